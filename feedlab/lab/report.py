"""The report of a demo: one HTML file that needs nothing else, to open offline or send to somebody.

    write_report(result, "demo.html")

plotly.js (5 MB) is inside the file, and its content security policy forbids every request, so that it looks the same in
ten years. Values that were not measured are named as such, never guessed.
"""
import json
import math
import os
import shlex
from html import escape
from numbers import Real
from pathlib import Path

from ..engines import masked
from ..errors import BadInput
from . import plots

ARTICLE_BYTES = 60  # bytes an entry as the article assumes (fault F11)


def write_report(result: dict, path) -> Path:
    """Write the report of `result` (what `feedlab demo --json` holds) to `path`, and return that path.

    Keys used, all optional: users follows posts deliveries write_amplification pull_authors scrolls_checked
    scrolls_equal deliveries_expected deliveries_exact redis_lost bytes_per_entry visible_ms{p50, p99} engines[{...}] threshold feed_max seed graph (its path as typed)
    pure_push_deliveries pages sources_per_page{mean} lag_samples[{t_s, outbox, lag}] visible_samples[ms]
    redis{used_bytes, entries, encoding, encodings{name: feeds}} follower_counts[int] or {bins (rising follower counts, or left edges), counts}
    seconds, command (instead of one made of graph, threshold, feed_max, posts, seed). What is missing is shown as
    "not measured".
    Raises BadInput when the file cannot be written.
    """
    path = Path(path).expanduser()
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        half.write_text(_page(result), encoding="utf-8")
        os.replace(half, path)  # an old report stays whole until the new one is
    except OSError as e:
        half.unlink(missing_ok=True) if half.parent.is_dir() else None
        raise BadInput(f"the report cannot be written to {path}: {e.strerror}. Choose another place.") from None
    return path


def _page(r: dict) -> str:
    from plotly.offline import get_plotlyjs

    good, verdict = _verdict(r)
    figures = _figures(r)
    drawn = {f"figure-{i}": json.loads(fig.to_json()) for i, (fig, _) in enumerate(figures) if fig}
    for spec in drawn.values():
        layout = spec["layout"]
        del layout["title"]  # it stands above as text, where it wraps
        above = len(spec["data"]) > 1 or "annotations" in layout  # a legend, a label at a line
        layout["margin"] = {"t": 40 if above else 10}
        for height in (layout, layout["template"]["layout"]):
            height.pop("height", None)  # the element's own height rules, see _section
    return _HTML.format(
        verdict=escape(verdict), state="good" if good else "bad", sign="✓" if good else "!", about=escape(_about(r)),
        rows="\n".join(_row(*row) for row in _rows(r)),
        figures="\n".join(_section(i, fig, note) for i, (fig, note) in enumerate(figures)),
        engines=_engines(r.get("engines")), command=escape(_command(r)),
        plotly=get_plotlyjs().replace("</script", "<\\/script"), style=_STYLE, script=_SCRIPT,
        drawn=json.dumps(drawn, allow_nan=False).replace("<", "\\u003c"))


def _verdict(r: dict) -> tuple[bool, str]:
    checked, equal = r.get("scrolls_checked"), r.get("scrolls_equal")
    if not _is(checked, equal) or not checked:
        return False, "No scroll was compared with the SQL pull answer"
    if equal == checked:
        return True, f"{equal:,} of {checked:,} scrolls equal the SQL pull answer"
    return False, f"Only {equal:,} of {checked:,} scrolls equal the SQL pull answer"


def _about(r: dict) -> str:
    graph = f"on {Path(str(r['graph'])).name}" if r.get("graph") else "on a follow graph"
    said = [f"{_num(r[key])} {unit if unit == 's' or r[key] != 1 else unit[:-1]}"
            for key, unit in (("users", "users"), ("posts", "posts"), ("seconds", "s")) if _is(r.get(key))]
    return f"feedlab demo {graph}{': ' if said else ''}{', '.join(said)}."


def _rows(r: dict) -> list[tuple[str, str, str]]:
    """(quantity, value, what it means)"""
    get = r.get
    visible, redis, mixture = get("visible_ms") or {}, get("redis") or {}, encodings(get("redis"))
    pages = (get("sources_per_page") or {}).get("mean")
    threshold = f"of at least {get('threshold'):,} followers " if _is(get("threshold")) else ""
    return [
        ("Scrolls checked", _num(get("scrolls_checked")), "users whose pages, put end to end, were compared with SQL"),
        ("Scrolls equal", _num(get("scrolls_equal")), "of those; anything less than all is a bug"),
        ("Users", _num(get("users")), "accounts in the follow graph"),
        ("Follows", _num(get("follows")), "directed: a friendship counts twice"),
        ("Posts", _num(get("posts")), "written, each with its outbox row in one transaction"),
        ("Deliveries", _num(get("deliveries")), "entries written into feeds"),
        ("Deliveries by SQL", _num(get("deliveries_expected")), by_sql(r)),
        ("Write amplification", _num(get("write_amplification")), "deliveries a post"),
        ("Pure push", _num(get("pure_push_deliveries")), "deliveries if every follower of every post were written to"),
        ("Pulled authors", _num(get("pull_authors")), f"authors {threshold}whose posts are fetched at read time"),
        ("Pages read", _num(get("pages")), "of feeds, up to their end"),
        ("Sources a page", _num(pages), "own feed, celebrities' timelines and SQL touched for one page, mean"),
        ("Visible, p50", _num(visible.get("p50"), " ms"), "from writing a post to its last feed, half of the posts"),
        ("Visible, p99", _num(visible.get("p99"), " ms"), "the same for all but the slowest hundredth"),
        ("Memory an entry", _num(get("bytes_per_entry"), " B"),
         f"{f'{mixture}; ' if mixture else ''}Redis memory over feed entries; the article assumes {ARTICLE_BYTES} B"),
        ("Redis memory", _bytes(redis.get("used_bytes")), "rise of used_memory during the run"),
        ("Feed length", _num(get("feed_max"), " entries"), "the cap; older posts come from SQL"),
    ]


def by_sql(r: dict) -> str:
    """What the deliveries that the graph alone demands say about those that were counted."""
    made, wanted = r.get("deliveries"), r.get("deliveries_expected")
    if not _is(made, wanted):
        return "counted from graph and posts alone"
    if r.get("deliveries_exact") is False:
        lost = r.get("redis_lost")
        times = "" if not _is(lost) else " once" if lost == 1 else f" {lost:,} times"
        return (f"Redis lost its memory{times}: some deliveries were made again; by the graph they are {wanted:,}")
    return "counted from graph and posts alone: " + ("equal" if made == wanted else "NOT EQUAL")


def encodings(redis: dict | None) -> str:
    """How Redis holds the feeds, the most frequent way first; "" when it is not known.

    >>> encodings({"encodings": {"skiplist": 508, "listpack": 3531}})
    '3,531 feeds as listpack, 508 as skiplist'
    """
    redis = redis or {}
    kinds = sorted((redis.get("encodings") or {}).items(), key=lambda kind: -kind[1])
    if not kinds:
        return f"feeds as {redis['encoding']}" if redis.get("encoding") else ""
    return ", ".join(f"{n:,}{(' feed' if n == 1 else ' feeds') if i == 0 else ''} as {kind}" for i, (kind, n) in enumerate(kinds))


def _figures(r: dict) -> list[tuple]:
    """(figure or None, the note below it, or what is missing)"""
    get, out = r.get, []
    push = get("pure_push_deliveries")
    if _is(get("write_amplification"), push, get("posts")) and r["posts"]:
        fig = plots.write_amplification(r["write_amplification"], push / r["posts"], 0, get("threshold"))
        out.append((fig, "Pull writes nothing and pays at each read, push the other way round."))
    else:
        out.append((None, "Write amplification"))
    mean = (get("sources_per_page") or {}).get("mean")
    if _is(mean, get("follows"), get("users")) and r["users"]:
        fig = plots.sources_per_page(mean, r["follows"] / r["users"])
        out.append((fig, "Pure pull asks every followee: drawn is the mean number of followees of a user."))
    else:
        out.append((None, "Sources a page"))
    samples = [s for s in get("lag_samples") or [] if _is(s.get("t_s"))]
    out.append((plots.lag_over_time(samples), "The outbox waits for the relay, Kafka's records for the consumer.")
               if samples else (None, "Lag over time"))
    times = [m for m in get("visible_samples") or [] if _is(m)]
    out.append((plots.visible_hist(times), "One count is one post; the axis is logarithmic.")
               if times else (None, "Time to visible"))
    fig = _degrees(get("follower_counts"), get("threshold"))
    out.append((fig, "Few accounts have most of the followers. That is why one rule for all is dear.")
               if fig else (None, "Follower counts"))
    if _is(get("bytes_per_entry")):
        rows = [("this run", r["bytes_per_entry"]), ("the article's figure", ARTICLE_BYTES)]
        mixture = encodings(get("redis"))
        out.append((plots.memory_bars(rows), "An entry is a post id and its time; the text is in the post cache."
                    + (f" Stored: {mixture}." if mixture else "")))
    else:
        out.append((None, "Memory an entry"))
    return out


def _degrees(counts, threshold):
    if isinstance(counts, dict):
        n, bins = list(counts.get("counts") or []), list(counts.get("bins") or [])
        return plots.ccdf_of_counts(bins[:len(n)], n, threshold) if n and len(bins) >= len(n) else None
    return plots.degree_ccdf(counts, threshold) if counts is not None and len(counts) else None


def _section(i: int, fig, note: str) -> str:
    if fig is None:
        return f'<section class="figure"><h3>{escape(note)}</h3><p class="missing">not measured</p></section>'
    title, height = escape(fig.layout.title.text), (fig.layout.height or 360) - 40
    # a height on the element: without it plotly's responsive resize collapses it to nothing when a phone is turned
    return (f'<section class="figure"><h3 id="title-{i}">{title}</h3>'
            f'<div id="figure-{i}" class="plot" style="height:{height}px" role="img" aria-labelledby="title-{i}">'
            "</div>"
            f"<p>{escape(note)}</p></section>")


def _engines(engines) -> str:
    if not engines:
        return '<p class="missing">not measured</p>'
    engines = [{("memory" if k == "memory_bytes" else k): (_megabytes(v) if k == "memory_bytes" else v)
                for k, v in e.items()} for e in engines]
    keys = list(dict.fromkeys(k for e in engines for k in e))
    head = "".join(f'<th scope="col">{escape(str(k).replace("_", " "))}</th>' for k in keys)
    body = "".join("<tr>" + "".join(_cell(e.get(k), k, i == 0) for i, k in enumerate(keys)) + "</tr>" for e in engines)
    return (f'<div class="wide" tabindex="0" role="region" aria-label="Engines"><table class="engines"><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>")


def _megabytes(value) -> str:
    return f"{value / 1e6:,.0f} MB" if _is(value) else ""


def _cell(value, key, first: bool) -> str:
    text = {None: "", True: "yes", False: "no"}.get(value) if value is None or isinstance(value, bool) else \
        str(value) if key == "pid" else _num(value) if _is(value) else str(value)
    text = escape(masked(text))  # a report is passed on, a password is not
    if first:
        return f'<th scope="row">{text}</th>'
    return f'<td data-key="{escape(str(key).replace("_", " "))}">{text}</td>'


def _row(name: str, value: str, meaning: str) -> str:
    gone = ' class="missing"' if value == "not measured" else ""
    return f'<tr><th scope="row">{escape(name)}</th><td{gone}>{escape(value)}</td><td>{escape(meaning)}</td></tr>'


def _command(r: dict) -> str:
    if r.get("command"):
        return str(r["command"])
    words = [".venv/bin/feedlab", "demo"]  # what works in a fresh terminal, in the checkout
    for option, key in (("--graph", "graph"), ("--threshold", "threshold"), ("--feed-max", "feed_max"),
                        ("--posts", "posts"), ("--seed", "seed")):
        if r.get(key) is not None:
            words += [option, str(r[key])]
    return shlex.join(words)


def _is(*values) -> bool:
    """Are all of these numbers that can be shown?"""
    return all(isinstance(v, Real) and not isinstance(v, bool) and math.isfinite(v) for v in values)


def _num(value, unit: str = "") -> str:
    if not _is(value):
        return "not measured"
    return (f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:,.1f}" if abs(value) >= 10
            else f"{value:.2f}") + unit


def _bytes(value) -> str:
    if not _is(value):
        return "not measured"
    size = abs(value)
    units = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    return next((f"{value / u:,.1f} {name}" for u, name in units if size >= u), f"{value:,.0f} B")


_STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --soft: #59636e; --back: #fbfbf9; --card: #fff; --line: #d9dde1;
  --good: #00684c; --bad: #a84700; }
@media (prefers-color-scheme: dark) { :root { --text: #e8eaed; --soft: #a6aeb8; --back: #14171b; --card: #1c2127;
  --line: #363d46; --good: #4fd3ab; --bad: #ffa25e; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text); font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; }
main { max-width: 1100px; margin: 0 auto; padding: 24px 16px 48px; }
h1 { font-size: clamp(1.4rem, 4.5vw, 2.1rem); line-height: 1.2; margin: 0 0 8px; display: flex; gap: 12px; }
h1.good .sign { color: var(--good); } h1.bad .sign { color: var(--bad); }
h2 { font-size: 1.25rem; margin: 40px 0 12px; } h3 { font-size: 1rem; margin: 0 0 4px; line-height: 1.35; }
p { margin: 4px 0; } .about, .figure p, .values td:last-child { color: var(--soft); }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: 6px 12px 6px 0; border-bottom: 1px solid var(--line); }
.values th, .values td:nth-child(2) { white-space: nowrap; }
.values :is(th, td):nth-child(2) { text-align: right; }
.values td:nth-child(2) { font-variant-numeric: tabular-nums; font-weight: 600; }
.values td:nth-child(2).missing { font-weight: 400; } .missing { color: var(--soft); font-style: italic; }
.wide { overflow-x: auto; } .engines td { overflow-wrap: anywhere; font-size: 0.92rem; }
.engines :is(th, td:is([data-key="source"], [data-key="version"], [data-key="pid"], [data-key="memory"])) {
  white-space: nowrap; overflow-wrap: normal; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 16px; }
.figure { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 16px; min-width: 0; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 12px; margin: 8px 0;
  white-space: pre-wrap; overflow-wrap: anywhere; font-size: 0.9rem; }
@media (max-width: 600px) { .values thead { display: none; }
  .values tr { display: grid; grid-template-columns: 1fr auto; border-bottom: 1px solid var(--line); padding: 6px 0; }
  .values th, .values td { border: 0; padding: 0; }
  .engines thead { display: none; } .engines :is(th, td) { display: block; border: 0; padding: 0; }
  .engines tr { display: block; border-bottom: 1px solid var(--line); padding: 6px 0; }
  .engines td { display: grid; grid-template-columns: 7em minmax(0, 1fr); } .engines td:empty { display: none; }
  .engines td::before { content: attr(data-key); color: var(--soft); }
  .values td:nth-child(3) { grid-column: 1 / -1; font-size: 0.88rem; } .figure { padding: 12px; } }
"""

# colours follow the reader's light or dark setting (the page's own variables are the one source of them); on dark, sky
# blue for blue: 7 to 1 against the card instead of 3 to 1
_SCRIPT = """
const specs = document.getElementById("drawn").textContent, dark = matchMedia("(prefers-color-scheme: dark)");
function look(spec) {
  const css = getComputedStyle(document.documentElement), text = css.getPropertyValue("--text").trim();
  return {...spec.layout, autosize: true, font: {color: text},
          hoverlabel: {bgcolor: css.getPropertyValue("--card").trim(), font: {color: text}}};
}
function draw() {
  const drawn = JSON.parse(dark.matches ? specs.replaceAll("#0072B2", "#56B4E9") : specs);
  for (const [id, spec] of Object.entries(drawn))
    Plotly.react(id, spec.data, look(spec), {responsive: true, displayModeBar: false});
}
draw();
dark.addEventListener("change", draw);
"""

_HTML = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
<link rel="icon" href="data:,">
<title>feedlab demo: {verdict}</title>
<style>{style}</style>
</head>
<body>
<main>
<header>
<h1 class="{state}"><span class="sign" aria-hidden="true">{sign}</span><span>{verdict}</span></h1>
<p class="about">{about}</p>
</header>
<h2>Figures of the run</h2>
<table class="values">
<thead><tr><th scope="col">Quantity</th><th scope="col">Measured</th><th scope="col">What it means</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>
<h2>Pictures</h2>
<noscript><p>The pictures need JavaScript; every figure is in the table above.</p></noscript>
<div class="figures">
{figures}
</div>
<h2>Engines</h2>
{engines}
<h2>Run it again</h2>
<p>The same seed draws the same posts and reads; times depend on the machine.</p>
<pre><code>{command}</code></pre>
</main>
<script type="application/json" id="drawn">{drawn}</script>
<script>{plotly}</script>
<script>{script}</script>
</body>
</html>
"""
