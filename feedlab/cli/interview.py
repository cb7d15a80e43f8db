"""`interview` and `drill`: the interview room in the terminal, over the engine that the notebook uses too."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from .app import LAB, AsJson, command, number_option


def _level(value) -> str:
    if value in ("mid", "senior", "staff"):
        return value
    raise typer.BadParameter(f"{str(value)[:40]!r} is none of mid, senior, staff.")


@command(
    LAB,
    "feedlab interview",
    "feedlab interview design-the-feed --level staff",
    "feedlab interview 2 --no-clock",
    "feedlab interview --list --json",
    "feedlab interview --history",
    "cat answers.txt | feedlab interview lost-events --json > card.json",
)
def interview(
    scenario: Annotated[
        str | None, typer.Argument(metavar="SCENARIO", help="Name, number or a .toml of your own.", show_default=False)
    ] = None,
    level: Annotated[
        str | None,
        typer.Option("--level", parser=_level, metavar="LEVEL", show_default=False, help="mid, senior (the default) or staff."),
    ] = None,
    no_clock: Annotated[bool, typer.Option("--no-clock", metavar="", help="Without a clock.")] = False,
    no_run: Annotated[bool, typer.Option("--no-run", metavar="", help="Leave the experiments out.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", metavar="", help="Begin anew, also when one is unfinished.")] = False,
    names: Annotated[bool, typer.Option("--list", metavar="", help="Show the scenarios.")] = False,
    history: Annotated[bool, typer.Option("--history", metavar="", help="Show the finished interviews.")] = False,
    as_json: AsJson = False,
) -> None:
    """Be interviewed: clarify, estimate, design, deep-dive, defend; each claim is settled by a live run.

    Type an answer, or: ? and a question · hint · run · back · next · clock · end · quit. Every answer is saved: Ctrl-C, and the same
    command goes on. Ends with a scorecard (HTML and JSON). With the engines down everything but the experiments goes on.
    """
    from ..config import settings
    from ..interview.scenario import find, scenarios
    from ..interview.store import Store
    from . import show

    s = settings()
    store = Store.of(s)
    if history:
        _history(store, as_json)
        return
    if names or scenario is None:
        known = scenarios()
        if names and as_json:
            show.document([{"name": n, "title": k.title, "about": k.about, "minutes": k.minutes} for n, k in known.items()])
            return
        _list(known, err=as_json)
        if names:
            return
    talk = _Talk(err=as_json)
    if scenario is None:
        scenario = talk.ask("Which one (number or name)?")
        if scenario is None:
            return
    _Room(find(scenario.strip()), s, store, talk, level, not no_clock, not no_run, fresh).run(as_json)


def _list(known: dict, err: bool) -> None:
    from . import show

    t = show.table("Scenarios", "", "Name", "About", "Minutes", keep=("Name",))
    for n, (name, k) in enumerate(known.items(), 1):
        t.add_row(str(n), name, f"{k.title}. {k.about}.", f"{k.minutes:g}")
    show.console(err).print(t)


def _history(store, as_json: bool) -> None:
    from ..interview.scorecard import progress
    from . import show

    rows = progress(store.cards())
    if as_json:
        show.document(rows)
    elif not rows:
        show.line("no finished interview yet; `feedlab interview` begins one")
    else:
        t = show.table("Finished interviews", "When", "Scenario", "Level", "Points", "Change", keep=("When", "Scenario"))
        for r in rows:
            t.add_row(
                r["when"], r["scenario"], r["level"], f"{r['share']:.0%}", "" if r["change"] is None else f"{r['change']:+.0%}"
            )
        show.console().print(t)


class _Talk:
    """Lines in, lines out. With --json all talk is on stderr, so that stdout is one document."""

    def __init__(self, err: bool):
        from . import show

        self.err, self.console = err, show.console(err)

    def say(self, text: str = "", style: str | None = None) -> None:
        self.console.print(text, style=style, soft_wrap=not self.console.is_terminal)

    def ask(self, prompt: str) -> str | None:
        """A line without its end; None at the end of the input."""
        self.console.print(f"{prompt} ", end="", style="bold")
        try:
            if sys.stdin.isatty():
                return input()
            line = sys.stdin.readline()
        except EOFError:
            line = ""
        except UnicodeDecodeError:
            return "\ufffd"
        self.say() if not sys.stdin.isatty() else None
        return line.rstrip("\n") if line else None


class _Room:
    """One interview in the terminal."""

    def __init__(self, scenario, settings, store, talk: _Talk, level: str | None, clock: bool, live: bool, fresh: bool):
        import time

        from ..interview.engine import Interview, begin

        self.scenario, self.settings, self.store, self.talk, self.live, self.now = (
            scenario,
            settings,
            store,
            talk,
            live,
            time.time,
        )
        old = None if fresh else store.unfinished(scenario.name, level)
        session = old or begin(scenario, level or "senior", now=time.time(), clock=clock)
        self.room = Interview(scenario, session, changed=lambda: store.save(session))
        self.room.resume(time.time())
        if not clock:
            session.clock = "off"
        self.resumed = old is not None
        self.told: str | None = None

    def run(self, as_json: bool) -> None:
        from . import show

        room, talk = self.room, self.talk
        talk.say(f"\n{self.scenario.title} ({room.session.level})", style="bold")
        talk.say(room.text(self.scenario.prompt))
        talk.say("? and a question asks the interviewer; hint, run, back, next, clock, end, quit; help explains.", style="dim")
        if self.resumed:
            left = len(room.open_steps())
            talk.say(f"This goes on where it was left, {show.count(left, 'step')} to go. `--fresh` begins anew.")
        try:
            ended = self._steps()
        except KeyboardInterrupt:
            self._save()
            raise
        if not ended:
            self._save()
            talk.say(f"Saved. `feedlab interview {self.scenario.name}` goes on from here.")
            if as_json:
                from ..interview.scorecard import make

                show.document(make(room))
            return
        self._card(as_json)

    def _save(self) -> None:
        self.room.tick(self.now())
        self.store.save(self.room.session)

    def _steps(self) -> bool:
        """Until the end. False when the input ended, or by `quit`."""
        room = self.room
        while True:
            self._show()
            line = self.talk.ask(self._prompt())
            if line is None:
                return False
            word = line.strip().lower()
            if word == "quit":
                return False
            if word == "end" or (word in ("next", "done", "") and room.answered and not room.open_steps()):
                room.end(self.now())
                return True
            try:
                self._one(line, word)
            except self._foreseen() as e:
                self.talk.say(f"  {e}", style="yellow")

    @staticmethod
    def _foreseen():
        from ..errors import FeedlabError

        return FeedlabError

    def _prompt(self) -> str:
        room, step = self.room, self.room.step
        spent = "" if room.session.clock == "off" else f"[{self._clock()}] "
        if room.answered is not None and room.answered.credit is None and step.kind == "say":
            return spent + "points that you had >"
        return spent + ("next >" if room.answered else "question >" if step.kind == "clarify" else "answer >")

    def _clock(self) -> str:
        from ..interview.words import clock

        room = self.room
        spent = room.tick(self.now())
        paused = " paused" if room.session.clock == "paused" else ""
        return f"{clock(spent)} of {room.step.minutes:g}:00{paused}"

    def _show(self) -> None:
        """The step, once when we come to it."""
        from ..interview.words import ASKS, where

        room, step, talk = self.room, self.room.step, self.talk
        if self.told == step.id:
            return
        self.told = step.id
        talk.say(f"\n── {where(room)}", style="cyan")
        talk.say(room.text(step.ask), style="bold")
        if shown := room.shown():
            for line in shown.splitlines():
                talk.say(f"    {line}")
        for n, (_, text) in enumerate(room.choices(), 1):
            talk.say(f"  {n}  {text}")
        if room.answered is None:
            talk.say(ASKS[step.kind], style="dim")
        else:
            talk.say(f"  answered: {room.feedback().answered}", style="dim")
            if room.feedback().awaits == "ticks":
                self._points()

    def _one(self, line: str, word: str) -> None:
        """One line: a command, a question, or an answer."""
        room, talk, step = self.room, self.talk, self.room.step
        if word == "help":
            talk.say(
                "  ?QUESTION ask the interviewer · hint (costs a fifth of the step) · run the step's experiments · back · next · "
                "clock (run, paused, off in turn) · end (score now) · quit (go on later)"
            )
        elif word.startswith("?"):
            for said in room.ask(line.strip()[1:]):
                talk.say(f"  {said}", style="green")
        elif word == "hint":
            talk.say("  " + (room.hint() or "There is no further hint here."))
        elif word == "back":
            if not room.back(self.now()):
                talk.say("  This is the first step.")
        elif word == "clock":
            turn = {"runs": "paused", "paused": "off", "off": "runs"}[room.session.clock]
            room.set_clock(turn, self.now())
            talk.say(f"  The clock {'runs' if turn == 'runs' else f'is {turn}'}.")
        elif word == "run":
            self._experiments([e for e in step.experiments if e not in room.session.found] if room.answered else [])
            if not room.answered:
                talk.say("  Answer first: the run is what settles it.")
        elif word == "next" and not (step.kind == "clarify" and room.answered is None):
            self._next()
        elif room.answered is not None:
            if step.kind == "say" and room.answered.credit is None:
                said = room.tick_points(line, self.now())
                self._feedback(said)
            elif word in ("", "done"):
                self._next()
            else:
                talk.say("  The first answer counts. `next` goes on.")
        elif step.kind == "clarify" and word not in ("next", "done", ""):
            for said in room.ask(line):
                talk.say(f"  {said}", style="green")
        else:
            said = room.answer(line, self.now())
            self._feedback(said)

    def _next(self) -> None:
        room = self.room
        if room.forth(self.now()):
            return
        left = room.open_steps()
        self.talk.say(
            f"  This is the last step. {len(left)} have no answer: `back` to them, or `end` for the scorecard."
            if left
            else "  This is the last step; `end` gives the scorecard."
        )

    def _points(self) -> None:
        room = self.room
        for n, p in enumerate(room.scenario.points(room.step, room.session.level), 1):
            self.talk.say(f"  {n}  {room.text(p.text)}")

    def _feedback(self, said) -> None:
        from ..interview.words import remark

        room, talk, step = self.room, self.talk, self.room.step
        talk.say(f"  {remark(said)}", style="bold green" if said.verdict == "right" else "bold")
        if said.awaits == "ticks":
            self._points()
            talk.say("  Which of these did you say? Numbers, 0 for none.", style="dim")
            return
        before = room.session.answers[step.id].credit
        if said.awaits != "experiment":
            talk.say(f"  {said.right}")
            for option, because in said.others:
                talk.say(f"  Not taken: {option.rstrip('.')}. {because}", style="dim")
        if self.live:
            self._experiments(room.evidence())
        now = room.feedback(step)
        if before is None and now.credit is not None:
            talk.say(f"  {remark(now)} {now.right}", style="bold green" if now.verdict == "right" else "bold")
        talk.say("  Read on: " + ", ".join(f"notebooks/{n}.ipynb" for n in said.read_on), style="dim")

    def _experiments(self, names: list[str]) -> None:
        """Run them, record and tell. An engine that is down is said once, and the answer stays."""
        from ..interview import experiments
        from ..interview.words import bars
        from . import show

        for name in names:
            try:
                with show.stages() as say:
                    found = experiments.run(name, self.settings, say)
            except self._foreseen() as e:
                self.talk.say(f"  {e}", style="yellow")
                return
            self.room.record(name, found.as_dict())
            self.talk.say(f"  Measured ({found.seconds:.1f} s): {found.sentence}", style="magenta")
            for line in bars(found.figure):
                self.talk.say(f"    {line}")

    def _card(self, as_json: bool) -> None:
        from ..interview import scorecard
        from . import show

        card, talk = scorecard.make(self.room), self.talk
        html, data = scorecard.export(card, self.store)
        t = show.table("Scorecard", "Rubric", "Points", "Of", "Share", keep=("Rubric",))
        for r in card["rubric"]:
            t.add_row(r["rubric"], f"{r['points']:g}", f"{r['of']:g}", f"{r['share']:.0%}")
        for r in card["levels"]:
            t.add_row(
                f"level {r['level']}: {'met' if r['met'] else 'not met'}",
                f"{r['points']:g}",
                f"{r['of']:g}",
                f"{r['share']:.0%}",
            )
        talk.console.print(t)
        talk.say(scorecard.headline(card), style="bold")
        change = scorecard.progress(self.store.cards())[-1]["change"]
        if change is not None:
            talk.say(f"{change:+.0%} against the last time.")
        talk.say(f"scorecard: {html}\nas JSON: {data}")
        if as_json:
            show.document(card | {"html": str(Path(html))})


@command(
    LAB,
    "feedlab drill",
    "feedlab drill --count 10",
    "feedlab drill memory --seed 7",
    "echo 35k/s | feedlab drill reads --seed 7 --count 1 --json",
)
def drill(
    kind: Annotated[
        str | None, typer.Argument(metavar="KIND", show_default=False, help="reads, memory, nodes ...; left out: any.")
    ] = None,
    count: Annotated[int, number_option("--count", "a number of drills", "How many.", 1, 1000)] = 5,
    seed: Annotated[
        int | None, number_option("--seed", "a seed", "The same seed, the same numbers.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Estimation drills with fresh numbers: a number and its unit (35k/s, 3.5e4, 45 billion a day, 6 TB), within a stated factor.

    An empty line passes a drill over; what is no number is asked again and does not count. The streak is kept.
    """
    from ..config import settings
    from ..errors import BadInput
    from ..interview.drills import drill as draw
    from ..interview.store import Store
    from . import show

    talk, store, done = _Talk(err=as_json), Store.of(settings()), []
    for n in range(count):
        d, judged = draw(None if seed is None else seed + n, kind), None
        talk.say(f"\n{n + 1} of {count}: {d.ask}", style="bold")
        talk.say(
            f"In {d.unit or 'plain numbers'}, or any unit of that kind; within a factor of {d.tolerance:g} is right.",
            style="dim",
        )
        while judged is None:
            line = talk.ask("answer >")
            if line is None or not line.strip():
                break
            try:
                judged = d.judge(line)
            except BadInput as e:
                talk.say(f"  {e}", style="yellow")
        if judged is None:
            if line is None:
                break
            talk.say(f"  Passed over. {d.way}")
            continue
        streak = store.drilled(judged.right)
        done.append(d.as_dict() | {"answer": judged.value, "is_right": judged.right})
        talk.say(f"  {judged.sentence}", style="bold green" if judged.right else "bold")
        talk.say(f"  streak {streak['now']}, best {streak['best']}, {streak['right']} of {streak['all']} in all", style="dim")
    if as_json:
        show.document({"drills": done, "streak": store.streak()})
