"""The scorecard: what was shown, by rubric and by level, each with the act, the evidence and a strong answer. HTML and JSON.

    card = make(room)                    # plain data, JSON-ready
    export(card, store)                  # -> (path of the HTML, path of the JSON); the history grows by one
    progress(store.cards())              # how the shares have moved

A level is met with MET of the points of its own steps; the card says the highest level up to which all are met.
"""

import json
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from ..draw import document
from .engine import HINT_COST, Interview, verdict
from .scenario import LEVELS, RUBRIC
from .store import Store

MET = 0.6
LEVEL_ACTS = {  # what each level is seen to do (an interviewer's rubric, in acts that can be observed)
    "mid": "asks for what is missing, computes the rates, knows both strategies and their costs",
    "senior": "makes the numbers choose the design, names the faults of a popular answer and mends them",
    "staff": "challenges the requirement and prices it, says what it takes to run and to change it",
}


def make(room: Interview) -> dict:
    """The card of an interview as it stands. Steps without an answer count as nothing."""
    s, acts = room.session, []
    for step in room.steps:
        answer, said = s.answers.get(step.id), room.feedback(step)
        spent = s.spent.get(step.id, 0.0)
        acts.append(
            {
                "step": step.id,
                "phase": step.phase,
                "rubric": step.rubric,
                "level": step.level,
                "act": room.text(step.act),
                "asked": room.text(step.ask),
                "answered": said.answered if said else "",
                "verdict": "no answer" if answer is None else verdict(answer.credit),
                "credit": answer.credit if answer else None,
                "points": round(room.points(step), 3),
                "of": step.weight,
                "hints": answer.hints if answer else 0,
                "seconds": round(spent, 1),
                "over": s.clock != "off" and spent > 60 * step.minutes,
                "minutes": step.minutes,
                "strong": said.right if said else "",
                "measured": said.measured if said else [],
                "read_on": list(step.read),
            }
        )
    total = sum(a["of"] for a in acts)
    levels = [
        _share({"level": name, "does": LEVEL_ACTS[name]}, [a for a in acts if a["level"] == name])
        for name in LEVELS
        if any(a["level"] == name for a in acts)
    ]
    reached = ""
    for row in levels:
        row["met"] = row["share"] >= MET
    for row in levels:
        if not row["met"]:
            break
        reached = row["level"]
    essential = [f for f in room.scenario.facts if f.essential]
    return {
        "version": 1,
        "id": s.id,
        "scenario": s.scenario,
        "title": room.scenario.title,
        "level": s.level,
        "began": s.began,
        "ended": s.ended,
        "minutes": round(sum(s.spent.values()) / 60, 1),
        "clock": s.clock,
        "share": round(sum(a["points"] for a in acts) / total, 4),
        "reached": reached,
        "answered": len(s.answers),
        "steps": len(acts),
        "hints": sum(a["hints"] for a in acts),
        "rubric": [_share({"rubric": name}, rows) for name in RUBRIC if (rows := [a for a in acts if a["rubric"] == name])],
        "levels": levels,
        "acts": acts,
        "asked": list(s.asked),
        "not_asked": [f.ask for f in essential if f.id not in s.asked],
        "experiments": {name: s.found[name] for name in room.scenario.experiments if name in s.found},
    }


def _share(row: dict, acts: list[dict]) -> dict:
    points, of = sum(a["points"] for a in acts), sum(a["of"] for a in acts)
    return row | {
        "points": round(points, 2),
        "of": round(of, 2),
        "share": round(points / of, 4) if of else 0.0,
        "acts": len(acts),
    }


def headline(card: dict) -> str:
    """The card in one sentence."""
    reached = f"every level up to {card['reached']} is met" if card["reached"] else "the first level is not met yet"
    return f"{card['title']}, asked as {card['level']}: {card['share']:.0%} of the points; {reached}."


def progress(cards: list[dict]) -> list[dict]:
    """Each finished interview in order: when, scenario, level, share, and the change since the last of that scenario and level."""
    last, rows = {}, []
    for c in cards:
        key = c["scenario"], c["level"]
        rows.append(
            {
                "when": _when(c["ended"]),
                "scenario": c["scenario"],
                "level": c["level"],
                "share": c["share"],
                "reached": c.get("reached", ""),
                "change": None if key not in last else round(c["share"] - last[key], 4),
            }
        )
        last[key] = c["share"]
    return rows


def export(card: dict, store: Store) -> tuple[Path, Path]:
    """Write the card beside the earlier ones. (HTML, JSON). Raises BadInput when that cannot be done."""
    written = store.write(f"scorecards/{card['id']}.json", json.dumps(card, ensure_ascii=False, indent=1))
    return store.write(f"scorecards/{card['id']}.html", page(card, store.cards())), written


def _when(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


# --- HTML -------------------------------------------------------------------------------------------------------------


def fragment(card: dict, cards: list[dict] = ()) -> str:
    """The card without figures, for a notebook's cell: tables only."""
    rubric = "".join(
        f"<tr><th scope='row'>{escape(r['rubric'])}</th><td>{_bar(r['share'])}</td><td>{r['points']:g} of {r['of']:g}</td></tr>"
        for r in card["rubric"]
    )
    levels = "".join(
        f"<tr><th scope='row'>{r['level']}</th><td>{_bar(r['share'])}</td><td>{r['points']:g} of {r['of']:g}: "
        f"{'met' if r['met'] else 'not met'}</td><td>{escape(r['does'])}</td></tr>"
        for r in card["levels"]
    )
    acts = "".join(_act(a) for a in card["acts"])
    missing = f"<p>Not asked for: {escape(' '.join(card['not_asked']))}</p>" if card["not_asked"] else ""
    spent = "without a clock" if card["clock"] == "off" else f"{card['minutes']:g} minutes"
    return (
        f"<p class='about'>{_when(card['ended'])} · {spent} · {card['answered']} of {card['steps']} steps answered · "
        f"{card['hints']} hint{'' if card['hints'] == 1 else 's'} (each takes {HINT_COST:.0%} of a step)</p>{missing}"
        f"<h2>By rubric</h2><table class='iv'>{rubric}</table>"
        f"<h2>By level</h2><p>A level is met with {MET:.0%} of the points of its own steps.</p><table "
        f"class='iv'>{levels}</table>"
        f"{_history(cards)}<h2>Act, evidence, a strong answer</h2>{acts}"
    )


def _bar(share: float) -> str:
    return (
        f"<span style='white-space:nowrap'><span role='img' aria-label='{share:.0%}'><span "
        "style='display:inline-block;width:120px;height:10px;border:1px solid #7f7f7f'>"
        f"<span style='display:block;width:{share:.0%};height:10px;background:#0072B2'></span></span></span> {share:.0%}</span>"
    )


def _act(a: dict) -> str:
    sign = {"right": "✓", "partly right": "◐", "not right": "✗"}.get(a["verdict"], "·")
    took = f" · {a['seconds'] / 60:.1f} of {a['minutes']:g} min" if a["seconds"] else ""
    hints = f" · {a['hints']} hint{'' if a['hints'] == 1 else 's'}" if a["hints"] else ""
    read = ", ".join(escape(n) for n in a["read_on"])
    measured = "".join(f"<li>measured: {escape(m)}</li>" for m in a["measured"])
    return (
        f"<details class='act'><summary><span class='sign'>{sign}</span> <b>{escape(a['act'])}</b> · "
        f"{escape(a['rubric'])}, {a['level']} · "
        f"{a['verdict']}, {a['points']:g} of {a['of']:g}{hints}{took}</summary><ul><li>asked: {escape(a['asked'])}</li>"
        f"<li>your answer: {escape(a['answered']) or 'none'}</li>{measured}"
        f"{'<li>strong: ' + escape(a['strong']) + '</li>' if a['strong'] else ''}<li>read on: {read}</li></ul></details>"
    )


def _history(cards: list[dict]) -> str:
    rows = progress(list(cards))[-12:]
    if not rows:
        return ""
    body = "".join(
        f"<tr><td>{r['when']}</td><td>{escape(r['scenario'])}</td><td>{r['level']}</td><td>{_bar(r['share'])}</td>"
        f"<td>{'' if r['change'] is None else format(r['change'], '+.0%')}</td></tr>"
        for r in rows
    )
    return f"<h2>History</h2><table class='iv'>{body}</table>"


def page(card: dict, cards: list[dict] = ()) -> str:
    """A whole HTML page that needs nothing else; figures of the experiments are in it, with plotly when there are any."""
    figures = {f"figure-{n}": found["figure"] for n, found in enumerate(card["experiments"].values())}
    sections = "".join(
        f"<section><h3>{escape(f['title'])}</h3><p>{escape(f['sentence'])}</p><div id='figure-{n}' "
        "class='plot'></div></section>"
        for n, f in enumerate(card["experiments"].values())
    )
    script = f"<script>{document.plotly()}</script><script>{_SCRIPT}</script>" if figures else ""
    return _PAGE.format(
        title=escape(headline(card)),
        style=_STYLE,
        body=fragment(card, cards),
        measured=f"<h2>What was measured</h2>{sections}" if sections else "",
        drawn=document.embedded(figures),
        script=script,
    )


_STYLE = """
:root { color-scheme: light; }
body { margin: 0; background: #fbfbf9; color: #1b1f24; font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 1000px; margin: 0 auto; padding: 24px 16px 48px; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin: 32px 0 8px; }
h3 { font-size: 1rem; margin: 0; } .about { color: #59636e; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: 6px 12px 6px 0; border-bottom: 1px solid #d9dde1; }
details { border-bottom: 1px solid #d9dde1; padding: 6px 0; } summary { cursor: pointer; } .sign { display: inline-block; width: 1.4em; }
section { background: #fff; border: 1px solid #d9dde1; border-radius: 8px; padding: 16px; margin: 12px 0; } .plot { height: 340px; }
@media print { details > ul { display: block; } }
"""

_SCRIPT = """
for (const [id, spec] of Object.entries(JSON.parse(document.getElementById("drawn").textContent)))
  Plotly.newPlot(id, spec.data, {...spec.layout, height: 340}, {responsive: true, displayModeBar: false});
"""

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
<link rel="icon" href="data:,"><title>{title}</title><style>{style}</style></head>
<body><main><h1>{title}</h1>
{body}
{measured}
</main><script type="application/json" id="drawn">{drawn}</script>{script}</body></html>
"""
