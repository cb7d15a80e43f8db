"""The interview room as a widget, over the same engine as the terminal's.

    from feedlab.interview import stepper
    stepper.room()                               # choose a scenario and a level
    stepper.room("lost-events", level="staff")   # goes on where it was left, also after a kernel restart

Everything can be done by keyboard: Tab and Shift-Tab, Space for a choice or a tick, Enter in a field or on a button. (Arrows are
JupyterLab's own.) Figures are `Output`s whose `outputs` are set, never FigureWidgets. What goes wrong is said in the box; nothing
is printed.
"""

import threading
import time
from collections.abc import Callable
from html import escape
from pathlib import Path

import ipywidgets as w

from ..config import Settings
from ..config import settings as read_settings
from ..errors import FeedlabError
from . import experiments, names, scorecard, words
from .engine import HINT_COST, Interview, begin
from .scenario import LEVELS, Scenario, find, scenarios
from .store import Store

STYLE = """<style>
.iv-room {border: 1px solid var(--jp-border-color2, #bbb); border-radius: 6px;
  padding: 10px 14px 12px; max-width: 960px; box-sizing: border-box}
.iv-room .widget-html-content {line-height: 1.5; white-space: normal}
.iv-room h3 {margin: 2px 0 6px; font-size: 16px} .iv-room p {margin: 4px 0}
.iv-ask {font-size: 15px; font-weight: 600; margin: 8px 0 4px} .iv-soft {color: var(--jp-ui-font-color2, #555)}
.iv-shown {font-family: var(--jp-code-font-family, monospace); font-size: 13px;
  white-space: pre-wrap; border-left: 3px solid #56B4E9; padding: 4px 10px}
.iv-box {border-left: 4px solid #D55E00; background: rgba(213,94,0,.10); padding: 6px 10px; margin: 4px 0}
.iv-said {border-left: 4px solid #0072B2; background: rgba(0,114,178,.08); padding: 6px 10px; margin: 4px 0}
.iv-room .widget-radio-box label {height: auto; white-space: normal; line-height: 1.45; margin-bottom: 6px; max-width: 100%}
.iv-room .widget-radio, .iv-room .widget-radio-box, .iv-room .widget-checkbox {width: auto; max-width: 100%; height: auto}
.iv-room .widget-checkbox label {white-space: normal; height: auto; line-height: 1.4}
.iv-room button:focus-visible, .iv-room input:focus-visible, .iv-room textarea:focus-visible {
  outline: 3px solid #E69F00; outline-offset: 1px}
.iv-room table.iv th, .iv-room table.iv td {text-align: left; padding: 3px 14px 3px 0; vertical-align: top}
.iv-room summary {cursor: pointer}
</style>"""

_live: list["Room"] = []


def room(
    scenario: str | None = None,
    level: str | None = None,
    clock: bool = True,
    *,
    settings: Settings | None = None,
    store: Store | None = None,
    where: Path | None = None,
) -> "Room":
    """The widget. An unfinished interview of this scenario (and level) goes on. Raises BadInput for an unknown name or level.

    `store`: where to save instead of the state folder; `where`: a folder of scenarios of your own.
    """
    while _live:
        _live.pop().stop()
    made = Room(settings or read_settings(), store, scenario, level, clock, where)
    _live.append(made)
    return made


class Room:
    """Display it by naming it last in a cell. `room.room` is the Interview, None before one is begun. `stop()` ends the
    clock's thread."""

    def __init__(
        self,
        settings: Settings,
        store: Store | None = None,
        scenario: str | None = None,
        level: str | None = None,
        clock: bool = True,
        where: Path | None = None,
    ):
        self.settings, self.store, self.where = settings, store or Store.of(settings), where
        self.room: Interview | None = None
        self.lock, self.over = threading.RLock(), threading.Event()
        self.head, self.message, self.busy = w.HTML(), w.HTML(), w.HTML()
        self.time = w.HTML(layout=w.Layout(min_width="130px"))
        self.body, self.box = w.VBox([]), w.VBox([])
        self.box.add_class("iv-room")
        self.box.children = (w.HTML(STYLE), self.head, self.message, self.body)
        self.charts: dict[str, w.Output] = {}
        known = scenarios(where)
        old = None
        if scenario is not None:
            chosen = find(scenario, where)
            old = self.store.unfinished(chosen.name, level)
            if old is not None:
                self._enter(chosen, old)
        if old is None:
            self._lobby(known, find(scenario, where) if scenario else None, level or "senior", clock)
        self.ticker = threading.Thread(target=self._tick, daemon=True)
        self.ticker.start()

    def _repr_mimebundle_(self, **options) -> dict:
        return self.box._repr_mimebundle_(**options)

    def stop(self) -> None:
        """End the clock's thread and save. Harmless when repeated."""
        self.over.set()
        if self.room is not None and not self.room.done:
            self.room.tick(time.time())
            self.store.save(self.room.session)

    # --- parts -----------------------------------------------------------------------------------------------------------

    def button(self, label: str, handler: Callable[[], None], tip: str, main: bool = False) -> w.Button:
        made = w.Button(
            description=label, tooltip=tip, button_style="primary" if main else "", layout=w.Layout(width="max-content")
        )
        made.on_click(lambda _: self.guarded(handler))
        return made

    def field(self, handler: Callable[[], None], placeholder: str, label: str) -> w.Text:
        """A line of text; Enter in it is `handler`."""
        made = w.Text(
            placeholder=placeholder, description=label, style={"description_width": "initial"}, layout=w.Layout(width="520px")
        )
        made.on_msg(lambda _, content, buffers: self._when_quiet(made, handler) if content.get("event") == "submit" else None)
        return made

    def _when_quiet(self, field: w.Text, handler: Callable[[], None]) -> None:
        """Enter was pressed. The page sends the last letters after that, one message at a time, and ignores what we set
        meanwhile: so wait, beside the kernel, until the value has not changed for a quarter of a second."""

        def wait() -> None:
            seen, quiet = field.value, 0
            while quiet < 5 and not self.over.wait(0.05):
                quiet, seen = (quiet + 1 if field.value == seen else 0), field.value
            self.guarded(handler)

        threading.Thread(target=wait, daemon=True).start()

    def guarded(self, handler: Callable, *args) -> None:
        """Run a handler; whatever it raises is said in the box, and the step stays as it was."""
        with self.lock:
            try:
                self.message.value = ""
                handler(*args)
            except FeedlabError as e:
                self.message.value = f"<div class='iv-box' role='alert'>{escape(str(e))}</div>"
            except KeyboardInterrupt:
                self.message.value = (
                    "<div class='iv-box' role='alert'>Interrupted. Nothing is lost: go on, or run the experiment again.</div>"
                )
            except Exception as e:
                self.message.value = (
                    f"<div class='iv-box' role='alert'>{escape(type(e).__name__)}: {escape(str(e)[:300])}. Your "
                    "answers are saved; "
                    "run this cell again.</div>"
                )

    def _tick(self) -> None:
        """The clock, looked at once a second."""
        while not self.over.wait(1.0):
            with self.lock:
                self._clock()

    def _clock(self) -> None:
        if self.room is None or self.room.done:
            return
        state, spent = self.room.session.clock, self.room.tick(time.time())
        step = self.room.step
        text = (
            "no clock"
            if state == "off"
            else f"{words.clock(spent)} of {step.minutes:g}:00{' (paused)' if state == 'paused' else ''}"
        )
        late = state == "runs" and spent > 60 * step.minutes
        value = f"<span role='timer'>{'<b>' if late else ''}{text}{'</b>, over time' if late else ''}</span>"
        if value != self.time.value:
            self.time.value = value

    # --- the lobby ---------------------------------------------------------------------------------------------------------

    def _lobby(self, known: dict[str, Scenario], chosen: Scenario | None, level: str, clock: bool) -> None:
        self.head.value = "<h3>The interview room</h3>"
        options = [(f"{n}  {s.title} ({s.minutes:g} min)", name) for n, (name, s) in enumerate(known.items(), 1)]
        if chosen is not None and chosen.name not in known:
            options.append((chosen.title, chosen.name))
            known = known | {chosen.name: chosen}
        value = chosen.name if chosen else options[0][1]
        self.pick = w.Dropdown(options=options, value=value, description="Scenario", layout=w.Layout(width="520px"))
        self.level = w.Dropdown(options=list(LEVELS), value=level, description="Level")
        self.clocked = w.Checkbox(value=clock, description="With a clock", indent=False)
        about = w.HTML()

        def shown(_=None):
            old = self.store.unfinished(self.pick.value, self.level.value)
            self.start.description = "Go on" if old else "Begin"
            about.value = f"<p>{escape(known[self.pick.value].about)}.</p>" + (
                "<p>One is unfinished: it goes on where it was left.</p>" if old else ""
            )

        def enter():
            scenario = known[self.pick.value]
            old = self.store.unfinished(scenario.name, self.level.value)
            session = old or begin(scenario, self.level.value, now=time.time(), clock=self.clocked.value)
            self._enter(scenario, session)

        self.start = self.button("Begin", enter, "Enter the room", main=True)
        for control in (self.pick, self.level):
            control.observe(lambda change: self.guarded(shown), "value")
        shown()
        rows = scorecard.progress(self.store.cards())[-5:]
        past = "".join(
            f"<li>{r['when']}: {escape(r['scenario'])} ({r['level']}) {r['share']:.0%}"
            f"{'' if r['change'] is None else ', ' + format(r['change'], '+.0%')}</li>"
            for r in rows
        )
        self.body.children = (
            self.pick,
            about,
            w.HBox([self.level, self.clocked]),
            self.start,
            w.HTML(f"<ul>{past}</ul>" if past else ""),
        )

    def _enter(self, scenario: Scenario, session) -> None:
        self.room = Interview(scenario, session, changed=lambda: self.store.save(session))
        self.room.resume(time.time())
        self.show()

    # --- a step ------------------------------------------------------------------------------------------------------------

    def show(self) -> None:
        """Draw the step anew. Called after each move."""
        r = self.room
        if r.done:
            self._card()
            return
        step, said = r.step, r.feedback()
        self.head.value = (
            f"<h3>{escape(r.scenario.title)}</h3><details{' open' if r.index == 0 else ''}><summary>The task</summary>"
            f"<p>{escape(r.text(r.scenario.prompt))}</p></details><span class='iv-soft'>{escape(words.where(r))}</span>"
        )
        question = w.HTML(
            f"<div class='iv-ask'>{escape(r.text(step.ask))}</div>"
            + (f"<div class='iv-shown'>{escape(r.shown())}</div>" if r.shown() else "")
            + (f"<div class='iv-soft'>{escape(words.ASKS[step.kind])}</div>" if said is None else "")
        )
        self.feedback = w.HTML(self._said(said))
        self.facts = w.HTML(self._facts())
        self.question = self.field(self.on_ask, "how many users are there?", "Ask the interviewer")
        ask = w.HBox([self.question, self.button("Ask", self.on_ask, "Ask the interviewer a question")])
        self.runs = w.VBox([])
        self.charts = {}
        answer: list[w.Widget] = [] if said and said.awaits != "ticks" else [self._control()]
        if said is None:
            left = len(step.hints) - r.session.hints.get(step.id, 0)
            row = [
                self.button(
                    "Go on" if step.kind == "clarify" else "Answer",
                    self.on_answer,
                    "Take this answer; the first one counts",
                    main=True,
                )
            ]
            if left:
                row.append(
                    self.button(
                        f"Hint (−{HINT_COST:.0%}, {left} left)",
                        self.on_hint,
                        "A hint, which costs a fifth of the step's points",
                    )
                )
            answer.append(w.HBox(row))
        elif said.awaits == "ticks":
            answer.append(self.button("These I said", self.on_ticks, "Score the text by these points", main=True))
        hints = "".join(f"<li>{escape(h)}</li>" for h in r.hints())
        self.nav = w.HBox(self._nav(said), layout=w.Layout(flex_flow="row wrap", grid_gap="4px 6px"))
        clock = r.session.clock
        times = w.HBox(
            [
                self.time,
                self.button("Pause" if clock == "runs" else "Start the clock", self.on_pause, "Pause or start the clock"),
                self.button("No clock", self.on_off, "Switch the clock off"),
            ]
            if clock != "off"
            else [self.time, self.button("Start the clock", self.on_pause, "Switch the clock on")]
        )
        top = (question, ask, self.facts) if step.kind == "clarify" else (question,)
        rest = () if step.kind == "clarify" else (w.VBox([ask, self.facts]),)
        self.body.children = (
            times,
            *top,
            w.HTML(f"<ul>{hints}</ul>" if hints else ""),
            *answer,
            self.feedback,
            self.busy,
            self.runs,
            self.nav,
            *rest,
        )
        for name in step.experiments:
            if name in r.session.found:
                self._chart(name)
        self._clock()

    def _nav(self, said) -> list[w.Widget]:
        r = self.room
        made = []
        if r.index:
            made.append(self.button("Back", lambda: self._move(r.back), "To the step before"))
        if r.index + 1 < len(r.steps):
            made.append(
                self.button(
                    "Next",
                    lambda: self._move(r.forth),
                    "To the next step, answered or not",
                    main=said is not None and not said.awaits,
                )
            )
        missing = [e for e in r.step.experiments if e not in r.session.found] if said is not None else []
        if missing:
            made.append(
                self.button(
                    "Run the experiment" + ("s" if len(missing) > 1 else ""), lambda: self.run(missing), "On the live engines"
                )
            )
        left = len(r.open_steps())
        made.append(
            self.button(
                "Scorecard" if not left else f"End ({left} without an answer)",
                self.on_end,
                "End the interview and see the scorecard",
                main=not left,
            )
        )
        return made

    def _control(self) -> w.Widget:
        r, step = self.room, self.room.step
        self.input: w.Widget
        if step.kind in ("choose", "spot") or step.kind == "predict" and step.shapes:
            self.input = w.RadioButtons(
                options=[(f"{n}  {text}", key) for n, (key, text) in enumerate(r.choices(), 1)],
                value=None,
                layout=w.Layout(width="100%"),
            )
        elif step.kind == "order":
            items = "".join(f"<li>{escape(text)}</li>" for _, text in r.choices())
            self.input = self.field(self.on_answer, "3 1 2", "In this order")
            return w.VBox([w.HTML(f"<ol>{items}</ol>"), self.input])
        elif step.kind == "say" and r.answered is None:
            self.input = w.Textarea(placeholder="In your own words", rows=5, layout=w.Layout(width="100%"))
        elif step.kind == "say":
            self.input = w.VBox(
                [
                    w.Checkbox(value=False, description=r.text(p.text), indent=False)
                    for p in r.scenario.points(step, r.session.level)
                ]
            )
        elif step.kind == "clarify":
            self.input = w.HTML()
        else:
            self.input = self.field(
                self.on_answer,
                "35k/s" if step.kind == "estimate" else "a number",
                f"Answer ({step.unit})" if step.unit else "Answer",
            )
        return self.input

    def _facts(self) -> str:
        known = self.room.known()
        rows = "".join(f"<li>{escape(k)}</li>" for k in known)
        opened = " open" if self.room.step.kind == "clarify" else ""
        return f"<details{opened}><summary>What you were told ({len(known)})</summary><ul>{rows}</ul></details>"

    def _said(self, said) -> str:
        if said is None:
            return ""
        sign = {"right": "✓", "partly right": "◐", "not right": "✗"}.get(said.verdict, "·")
        text = "" if said.awaits == "ticks" else f"<p>{escape(said.right)}</p>"
        rows = "".join(f"<li>{escape(option)}<br><span class='iv-soft'>{escape(because)}</span></li>" for option, because in said.others)
        others = f"<details><summary>The other options, and what follows from them</summary><ul>{rows}</ul></details>" if rows else ""
        read = ", ".join(f"<a href='{n}.ipynb'>{n}</a>" for n in said.read_on if n in names.NOTEBOOKS)
        return (
            f"<div class='iv-said' role='status'><p><b>{sign} {escape(words.remark(said))}</b> <span "
            f"class='iv-soft'>Yours: {escape(said.answered[:400])}</span></p>"
            f"{text}{others}<p class='iv-soft'>Read on: {read}</p></div>"
        )

    # --- what the controls do ---------------------------------------------------------------------------------------------------

    def on_ask(self) -> None:
        texts = self.room.ask(self.question.value)
        self.question.value = ""                  # before the answer shows: who reads it may be typing already
        self.facts.value = self._facts()
        self.message.value = f"<div class='iv-said' role='status'>{'<br>'.join(map(escape, texts))}</div>"

    def on_hint(self) -> None:
        self.room.hint()
        kept = getattr(self.input, "value", None)
        self.show()
        if isinstance(kept, str) and hasattr(self.input, "value"):
            self.input.value = kept

    def on_answer(self) -> None:
        step = self.room.step
        self.room.answer(
            "done" if step.kind == "clarify" else self.input.value if self.input.value is not None else "", time.time()
        )
        self.show()
        if step.kind != "say":
            self.run(self.room.evidence(step))

    def on_ticks(self) -> None:
        self.room.tick_points([n for n, box in enumerate(self.input.children, 1) if box.value], time.time())
        self.show()

    def _move(self, move: Callable[[float], bool]) -> None:
        move(time.time())
        self.show()

    def on_pause(self) -> None:
        self.room.set_clock("paused" if self.room.session.clock == "runs" else "runs", time.time())
        self.show()

    def on_off(self) -> None:
        self.room.set_clock("off", time.time())
        self.show()

    def on_end(self) -> None:
        self.room.end(time.time())
        scorecard.export(scorecard.make(self.room), self.store)
        self.show()

    # --- experiments ------------------------------------------------------------------------------------------------------------

    def run(self, missing: list[str]) -> None:
        """Run experiments one after the other, each with progress, and show what they found. Raises EngineDown when the
        engines are down: the answer stays, and the button to run is there."""
        r, step = self.room, self.room.step
        try:
            for name in missing:
                r.record(name, experiments.run(name, self.settings, self._progress).as_dict())
                self._chart(name)
        finally:
            self.busy.value = ""
            r.resume(time.time())
            if missing and r.step is step:
                self.feedback.value = self._said(r.feedback(step))
                self.nav.children = self._nav(r.feedback(step))

    def _progress(self, text: str, done: int | None = None, total: int | None = None) -> None:
        now = time.monotonic()
        if done is not None and done != total and now - getattr(self, "_last", 0.0) < 0.2:
            return
        self._last = now
        bar = "" if done is None else f" <progress value='{done}' max='{max(1, total or 1)}'></progress> {done:,} of {total:,}"
        self.busy.value = f"<span class='iv-soft'>{escape(text)}{bar}</span>"

    def _chart(self, name: str) -> None:
        found = self.room.session.found[name]
        out = w.Output(layout=w.Layout(width="100%"))
        out.outputs = (
            {
                "output_type": "display_data",
                "metadata": {},
                "data": {
                    "application/vnd.plotly.v1+json": found["figure"] | {"config": {"displaylogo": False}},
                    "text/plain": f"Figure: {found['figure'].get('layout', {}).get('title', {}).get('text', '')}",
                },
            },
        )
        self.charts[name] = out
        said = w.HTML(
            f"<div class='iv-said' role='status'>Measured in {found['seconds']:.1f} s: {escape(found['sentence'])}</div>"
        )
        self.runs.children = (*self.runs.children, said, out)

    # --- the end ----------------------------------------------------------------------------------------------------------------

    def _card(self) -> None:
        card = scorecard.make(self.room)
        self.head.value = f"<h3>{escape(scorecard.headline(card))}</h3>"
        where = self.store.folder / "scorecards" / f"{card['id']}.html"
        again = self.button(
            "Another one",
            lambda: (setattr(self, "room", None), self._lobby(scenarios(self.where), None, card["level"], True)),
            "Back to the list of scenarios",
            main=True,
        )
        self.body.children = (
            w.HTML(
                scorecard.fragment(card, self.store.cards())
                + f"<p class='iv-soft'>Kept in {escape(str(where))} and, as JSON, beside it.</p>"
            ),
            again,
        )
