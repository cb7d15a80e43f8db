"""The interview as a state machine, which notebook and terminal share. Pure: no engine, no file, no clock of its own.

    room = Interview(scenario, begin(scenario, "senior", seed=1, now=time.time()))
    room.step                        # what is asked
    said = room.answer("35k/s", now) # Feedback: what was right, and where to read on. BadInput: nothing was scored
    room.forth(now)
    room.session.as_dict()           # all there is to save; `Session.of` reads it back

Rules of scoring: the first answer to a step counts (afterwards the right one is known). Each hint takes a fifth of the
step's points. A prediction is scored when its experiment has run. Free text is scored by the points that one ticks oneself.
A step without an answer is worth nothing. The clock is shown and written down, and takes no points.
"""
import math
import random
import re
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from ..errors import BadInput
from . import names
from .scenario import LEVELS, Scenario, Step
from .units import read, say

HINT_COST = 0.2
TEXT_MAX = 5_000
GAP_S = 300          # the longest time between two signs of life that counts as thinking: more is a lid that was closed


@dataclass
class Answer:
    """`said`: as typed (text), chosen (number of an option, key of a shape, name of a fault) or ordered (list of numbers).
    `value`: the number in the step's unit. `credit` 0 to 1, before hints; None while an experiment or ticks are awaited.
    `ticked`: points of a text."""
    said: object
    value: float | None = None
    credit: float | None = None
    hints: int = 0
    seconds: float = 0.0
    ticked: list[int] | None = None


@dataclass
class Session:
    """All that is saved. `asked`: ids of facts, in the order in which they were asked for; `missed`: questions that the
    interviewer had no answer to. `found`: experiment -> what it found, as `experiments.Found.as_dict` gives it."""
    id: str
    scenario: str
    digest: str
    level: str
    seed: int
    began: float
    at: str = ""
    asked: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=dict)
    hints: dict[str, int] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)
    found: dict[str, dict] = field(default_factory=dict)
    clock: str = "runs"              # runs | paused | off
    seen: float | None = None        # when the clock was last looked at
    ended: float | None = None

    def as_dict(self) -> dict:
        return asdict(self) | {"version": 1}

    @classmethod
    def of(cls, data: dict) -> "Session":
        """From `as_dict`, after JSON. Raises BadInput for what is none."""
        try:
            data = dict(data)
            if data.pop("version") != 1:
                raise BadInput("this session was saved by another version of feedlab; begin a new one")
            answers = {k: Answer(**v) for k, v in data.pop("answers").items()}
            return cls(**data, answers=answers)
        except (TypeError, KeyError, AttributeError) as e:
            raise BadInput(f"this is not a saved interview ({e}); begin a new one") from None


@dataclass(frozen=True)
class Feedback:
    """After an answer. `credit` None: not known yet, see `awaits` ("experiment" or "ticks")."""
    credit: float | None
    verdict: str                     # right | partly right | not right | not known yet
    right: str                       # what was right, and the way to it
    measured: list[str]              # a sentence of each experiment that has run
    experiments: list[str]           # those that settle it and have not run yet
    read_on: list[str]               # notebooks
    awaits: str = ""
    answered: str = ""               # what was answered, as it was understood
    others: tuple[tuple[str, str], ...] = ()     # of a choice: the options that were neither taken nor best, and what follows from each


def begin(scenario: Scenario, level: str, *, seed: int | None = None, now: float, clock: bool = True) -> Session:
    """A new session at its first step. Raises BadInput for an unknown level."""
    if level not in LEVELS:
        raise BadInput(f"there is no level {level[:20]!r}; they are: {', '.join(LEVELS)}.")
    seed = secrets.randbelow(10**6) if seed is None else seed
    return Session(f"{scenario.name}-{int(now)}-{secrets.token_hex(2)}", scenario.name, scenario.digest, level, seed, now,
                   at=scenario.at_level(level)[0].id, clock="runs" if clock else "off", seen=now)


class Interview:
    """A scenario and a session. `changed()` is called after everything that should not be lost."""

    def __init__(self, scenario: Scenario, session: Session, changed: Callable[[], None] = lambda: None):
        self.scenario, self.session, self.changed = scenario, session, changed
        self.steps = scenario.at_level(session.level)
        self.by_id = {s.id: s for s in self.steps}
        if session.at not in self.by_id:            # the scenario was edited meanwhile
            left = [s.id for s in self.steps if s.id not in session.answers]
            session.at = left[0] if left else self.steps[-1].id
        session.answers = {k: v for k, v in session.answers.items() if k in self.by_id}

    # --- where we are -----------------------------------------------------------------------------------------------------

    @property
    def step(self) -> Step:
        return self.by_id[self.session.at]

    @property
    def index(self) -> int:
        return self.steps.index(self.step)

    @property
    def answered(self) -> Answer | None:
        return self.session.answers.get(self.session.at)

    @property
    def done(self) -> bool:
        return self.session.ended is not None

    def open_steps(self) -> list[Step]:
        """Steps without an answer, in order."""
        return [s for s in self.steps if s.id not in self.session.answers]

    def text(self, text: str) -> str:
        return self.scenario.figures.text(text)

    def shown(self) -> str:
        """What is to be looked at in a step that asks for a fault: lines of a history, or the scenario's own text. Else ""."""
        step = self.step
        if step.kind != "spot":
            return ""
        if step.shown is not None:
            return self.scenario.figures.text(step.shown, lines=True)
        from ..verify import faults
        return told(faults.CATALOGUE[step.fault].history)

    def shuffled(self, step: Step, n: int) -> list[int]:
        """The numbers 0 to n - 1 as this session shows them: options, or items to be ordered (never in the right order)."""
        rng, order = random.Random(f"{self.session.seed}:{step.id}"), list(range(n))
        while True:
            rng.shuffle(order)
            if step.kind != "order" or order != sorted(order):
                return order

    def choices(self, step: Step | None = None) -> list[tuple[object, str]]:
        """(key, text) of what can be chosen or ordered, as shown. Empty where something is typed."""
        step = step or self.step
        if step.kind == "choose":
            return [(i, self.text(step.options[i].text)) for i in self.shuffled(step, len(step.options))]
        if step.kind == "order":
            return [(i, self.text(step.items[i])) for i in self.shuffled(step, len(step.items))]
        if step.kind == "spot":
            return [(f, f"{f}: {names.FAULTS[f]}") for f in sorted(step.among, key=lambda f: int(f[1:]))]
        if step.kind == "predict" and step.shapes:
            keys = list(step.shapes)
            return [(keys[i], self.text(step.shapes[keys[i]])) for i in self.shuffled(step, len(keys))]
        return []

    # --- moving -----------------------------------------------------------------------------------------------------------

    def goto(self, step_id: str, now: float) -> None:
        if step_id not in self.by_id:
            raise BadInput(f"there is no step {step_id[:40]!r} at this level")
        self.tick(now)
        self.session.at = step_id
        self.changed()

    def forth(self, now: float) -> bool:
        """To the next step, answered or not. False at the last."""
        if self.index + 1 == len(self.steps):
            return False
        self.goto(self.steps[self.index + 1].id, now)
        return True

    def back(self, now: float) -> bool:
        if self.index == 0:
            return False
        self.goto(self.steps[self.index - 1].id, now)
        return True

    def end(self, now: float) -> None:
        """Over: what has no answer is worth nothing."""
        self.tick(now)
        self.session.ended = now
        self.changed()

    # --- the clock ----------------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> float:
        """Look at the clock: seconds spent on this step. It stands still once the step is answered; time in which nobody
        looked (GAP_S and more) does not count."""
        s = self.session
        if s.clock == "runs" and s.seen is not None and not self.done and not self.answered and 0 < now - s.seen < GAP_S:
            s.spent[s.at] = s.spent.get(s.at, 0.0) + now - s.seen
        s.seen = now
        return s.spent.get(s.at, 0.0)

    def set_clock(self, state: str, now: float) -> None:
        """runs, paused or off."""
        if state not in ("runs", "paused", "off"):
            raise BadInput(f"the clock is one of runs, paused, off, not {state!r}")
        self.tick(now)
        self.session.clock = state
        self.changed()

    def resume(self, now: float) -> None:
        """After a restart: the time that the session lay there does not count."""
        self.session.seen = now

    # --- facts and hints ----------------------------------------------------------------------------------------------------

    def ask(self, question: str) -> list[str]:
        """What the interviewer says to a question: the facts it touches. Raises BadInput for an empty one."""
        said = " ".join(str(question).lower().split())
        if not said:
            raise BadInput("Ask something, for example: how many users are there?")
        words = set(re.findall(r"[a-z0-9]+", said))
        hit = [f for f in self.scenario.facts if any(_touches(w.lower(), said, words) for w in f.words)]
        for f in hit:
            if f.id not in self.session.asked:
                self.session.asked.append(f.id)
        if not hit and said not in self.session.missed:
            self.session.missed = [*self.session.missed, said[:200]][-30:]
        self.changed()
        return [self.text(f.answer) for f in hit] or ["That is left to you: state an assumption, and go on."]

    def known(self) -> list[str]:
        """The facts that have been asked for, in that order."""
        by_id = {f.id: f for f in self.scenario.facts}
        return [self.text(by_id[i].answer) for i in self.session.asked if i in by_id]

    def hint(self) -> str | None:
        """The next hint of this step; each takes a fifth of its points. None when there is none left, or the step is answered."""
        step, n = self.step, self.session.hints.get(self.step.id, 0)
        if self.answered or n >= len(step.hints):
            return None
        self.session.hints[step.id] = n + 1
        self.changed()
        return self.text(step.hints[n])

    def hints(self) -> list[str]:
        """Those that were taken at this step."""
        return [self.text(h) for h in self.step.hints[:self.session.hints.get(self.step.id, 0)]]

    # --- answers ------------------------------------------------------------------------------------------------------------

    def answer(self, said, now: float) -> Feedback:
        """Take an answer to the current step. Raises BadInput with a friendly sentence, and then nothing is scored or changed.

        estimate, predict a figure: text · choose, predict a shape, spot: a key of `choices`, or its number as shown, from 1
        ("F2" does for spot, too) · order: the numbers as shown, from 1, in the right order ("3 1 2" or a list) · say: text,
        then `tick_points` · clarify: anything.
        """
        step = self.step
        if self.answered is not None:
            raise BadInput("This step is answered, and the first answer counts. Go on to the next.")
        if self.done:
            raise BadInput("This interview has ended; the scorecard is below. Begin a new one to answer again.")
        made = getattr(self, f"_{step.kind}")(step, said)
        self.tick(now)
        made.hints, made.seconds = self.session.hints.get(step.id, 0), round(self.session.spent.get(step.id, 0.0), 1)
        self.session.answers[step.id] = made
        self._settle(step)
        self.changed()
        return self.feedback(step)

    def _clarify(self, step, said) -> Answer:
        wanted = [f.id for f in self.scenario.facts if f.essential]
        got = [i for i in wanted if i in self.session.asked]
        return Answer("asked for " + (", ".join(self.session.asked) or "nothing"), len(got), len(got) / len(wanted))

    def _estimate(self, step, said) -> Answer:
        value = read(said, step.unit)
        return Answer(str(said).strip(), value, factor_credit(value, self.scenario.figures.value(step.value), step.tolerance))

    def _predict(self, step, said) -> Answer:
        if step.shapes:
            return Answer(self._chosen(step, said))
        return Answer(str(said).strip(), read(said, step.unit, zero=True))

    def _choose(self, step, said) -> Answer:
        key = self._chosen(step, said)
        return Answer(key, credit=step.options[key].credit)

    def _spot(self, step, said) -> Answer:
        text = str(said).strip().upper()
        if re.fullmatch(r"F(?:1[0-2]|[1-9])", text):        # one that is not offered is a wrong answer, not a mistake in typing
            return Answer(text, credit=float(text == step.fault))
        key = self._chosen(step, said)
        return Answer(key, credit=float(key == step.fault))

    def _chosen(self, step, said):
        """A key of `choices`, by its number as shown (text, from 1) or as itself (not text, or the key of a shape)."""
        shown = self.choices(step)
        keys = [k for k, _ in shown]
        text = str(said).strip()
        if said in keys and not (isinstance(said, str) and text.isdigit()):
            return said
        if isinstance(said, str) and re.fullmatch(r"[0-9]{1,3}", text) and 1 <= int(text) <= len(keys):
            return keys[int(text) - 1]
        if not text or said is None:
            raise BadInput(f"Nothing is chosen yet; choose one of 1 to {len(keys)}.")
        raise BadInput(f"{text[:40]!r} is none of the choices; choose one of 1 to {len(keys)}.")

    def _order(self, step, said) -> Answer:
        n = len(step.items)
        shown = [k for k, _ in self.choices(step)]
        parts = re.findall(r"[^\s,;>-]+", said) if isinstance(said, str) else [str(x) for x in said or []]
        if not parts:
            raise BadInput(f"There is no order yet; type the numbers 1 to {n} in the order that you think right.")
        if len(parts) == 1 and n < 10 and len(parts[0]) == n:
            parts = list(parts[0])                    # "3124"
        if sorted(parts) != sorted(str(i) for i in range(1, n + 1)):
            raise BadInput(f"An order names each of the numbers 1 to {n} once, for example {' '.join(str(i) for i in range(n, 0, -1))}.")
        order = [shown[int(p) - 1] for p in parts]
        pairs = step.pairs or [(a, b) for b in range(2, n + 1) for a in range(1, b)]
        held = sum(order.index(a - 1) < order.index(b - 1) for a, b in pairs)
        # half of the pairs hold by chance
        return Answer([i + 1 for i in order], held, max(0.0, round(2 * held / len(pairs) - 1, 3)))

    def _say(self, step, said) -> Answer:
        text = str(said or "").strip()
        if len(re.findall(r"\w+", text)) < 3:
            raise BadInput("Say it in a sentence or two, in your own words; the points to compare with come afterwards.")
        if len(text) > TEXT_MAX:
            raise BadInput(f"That is {len(text):,} characters; an answer in an interview is shorter than {TEXT_MAX:,}.")
        return Answer(text)

    def tick_points(self, numbers, now: float) -> Feedback:
        """After a free text: which points of the rubric it had, numbers from 1 ("1 3", "" for none, or a list)."""
        step, answer = self.step, self.answered
        if step.kind != "say" or answer is None:
            raise BadInput("There is no text to be compared with the points yet.")
        if answer.ticked is not None:
            raise BadInput("The points are ticked already, and the first time counts.")
        points = self.scenario.points(step, self.session.level)
        parts = re.findall(r"[^\s,;]+", numbers) if isinstance(numbers, str) else [str(x) for x in numbers]
        if parts in (["none"], ["0"]):
            parts = []
        if not all(re.fullmatch(r"[0-9]{1,3}", p) and 1 <= int(p) <= len(points) for p in parts):
            raise BadInput(f"Type the numbers of the points that your answer had, from 1 to {len(points)}, for example: 1 {len(points)}. "
                           "Type 0 for none.")
        answer.ticked = sorted({int(p) for p in parts})
        answer.credit = len(answer.ticked) / len(points)
        self.tick(now)
        self.changed()
        return self.feedback(step)

    # --- experiments ----------------------------------------------------------------------------------------------------------

    def record(self, name: str, found: dict) -> None:
        """What an experiment found; predictions that waited for it are scored."""
        self.session.found[name] = found
        for step in self.steps:
            self._settle(step)
        self.changed()

    def _settle(self, step: Step) -> None:
        answer = self.session.answers.get(step.id)
        if step.kind != "predict" or answer is None or answer.credit is not None or step.experiment not in self.session.found:
            return
        measured = self.session.found[step.experiment]["numbers"][step.measure]
        answer.credit = float(answer.said == measured) if step.shapes else factor_credit(answer.value, measured, step.tolerance)

    # --- what is said afterwards --------------------------------------------------------------------------------------------

    def feedback(self, step: Step | None = None) -> Feedback | None:
        """What is said about an answered step; None before an answer."""
        step = step or self.step
        answer = self.session.answers.get(step.id)
        if answer is None:
            return None
        found = self.session.found
        awaits = "" if answer.credit is not None else "ticks" if step.kind == "say" else "experiment"
        return Feedback(answer.credit, verdict(answer.credit), self.right(step, answer),
                        [found[e]["sentence"] for e in step.experiments if e in found], [e for e in step.experiments if e not in found],
                        list(step.read), awaits, self.understood(step, answer), self._others(step, answer))

    def _others(self, step: Step, answer: Answer) -> tuple[tuple[str, str], ...]:
        if step.kind != "choose":
            return ()
        return tuple((self.text(o.text), self.text(o.because)) for i, o in enumerate(step.options) if i != answer.said and o.credit < 1)

    def understood(self, step: Step, answer: Answer) -> str:
        """The answer in words."""
        if step.kind == "choose":
            return self.text(step.options[answer.said].text)
        if step.kind == "spot":
            return f"{answer.said}: {names.FAULTS[answer.said]}"
        if step.kind == "predict" and step.shapes:
            return self.text(step.shapes[answer.said])
        if step.kind == "order":
            return " → ".join(f"{self.text(step.items[i - 1])}" for i in answer.said)
        if answer.value is not None and step.kind in ("estimate", "predict"):
            return f"{answer.said} ({say(answer.value, step.unit)})"
        return str(answer.said)

    def right(self, step: Step, answer: Answer) -> str:
        """What was right, and why; for a choice also what follows from the one that was taken."""
        text = self.text
        if step.kind == "estimate":
            factor = f"within a factor of {step.tolerance:g} counts"
            return f"{say(self.scenario.figures.value(step.value), step.unit)} ({factor}). {text(step.way)}"
        if step.kind == "choose":
            best = next(o for o in step.options if o.credit == 1)
            taken = step.options[answer.said]
            if taken is best:
                return text(best.because)
            return f"Yours: {text(taken.because)} Better: {text(best.text).rstrip('.')}. {text(best.because)}"
        if step.kind == "predict":
            found = self.session.found.get(step.experiment)
            if found is None:
                return "The run decides."
            measured = found["numbers"][step.measure]
            shown = text(step.shapes.get(measured, str(measured))) if step.shapes else say(measured, step.unit)
            return f"{shown.rstrip('.')}, as measured just now. {text(step.because)}"
        if step.kind == "order":
            return f"{' → '.join(map(text, step.items))}. {text(step.because)}"
        if step.kind == "spot":
            return f"{step.fault}: {names.FAULTS[step.fault]}. {text(step.because)}"
        if step.kind == "say":
            return text(step.strong)
        missing = [f.ask for f in self.scenario.facts if f.essential and f.id not in self.session.asked]
        return (f"Still worth asking: {' '.join(missing)} " if missing else "All that matters was asked for. ") + text(step.because)

    def evidence(self, step: Step | None = None) -> list[str]:
        """The experiments that answer what was said, those that have not run yet: of a choice, the one that was taken and
        the best."""
        step = step or self.step
        answer, names_ = self.session.answers.get(step.id), step.experiments
        if step.kind == "choose" and answer is not None:
            best = next(o for o in step.options if o.credit == 1)
            names_ = list(dict.fromkeys([step.options[answer.said].experiment, best.experiment]))
        return [e for e in names_ if answer is not None and e not in self.session.found]

    # --- score ------------------------------------------------------------------------------------------------------------------

    def points(self, step: Step) -> float:
        """0 to the step's weight."""
        answer = self.session.answers.get(step.id)
        if answer is None or not answer.credit:
            return 0.0
        return step.weight * answer.credit * max(0.0, 1 - HINT_COST * answer.hints)


def factor_credit(got: float, right: float, tolerance: float) -> float:
    """1 within the factor, a half within its square, else 0. Where 0 is right only 0 is; negative figures do not occur.

    >>> factor_credit(30, 35, 1.5), factor_credit(70, 35, 1.5), factor_credit(700, 35, 1.5), factor_credit(0, 0, 1.5)
    (1.0, 0.5, 0.0, 1.0)
    """
    if right == 0 or got == 0:
        return float(got == right)
    off = abs(math.log(got / right))
    return 1.0 if off <= math.log(tolerance) + 1e-9 else 0.5 if off <= 2 * math.log(tolerance) + 1e-9 else 0.0


def verdict(credit: float | None) -> str:
    """
    >>> verdict(1.0), verdict(0.4), verdict(0.0), verdict(None)
    ('right', 'partly right', 'not right', 'not known yet')
    """
    return "not known yet" if credit is None else "right" if credit >= 0.999 else "partly right" if credit > 0 else "not right"


def _touches(word: str, said: str, words: set[str]) -> bool:
    """Whether a fact's word stands in a question: a phrase as it is, a single word also in the plural.

    >>> _touches("user", "how many users?", {"how", "many", "users"}), _touches("use", "how many users?", {"how", "many", "users"})
    (True, False)
    """
    return word in said if not word.isalnum() else bool({word, word + "s", word + "es"} & words)


# --- histories in words --------------------------------------------------------------------------------------------------

_PEOPLE = "ABCDE"


def told(history) -> str:
    """A history of feedlab.verify.histories, a line a step; users are A (the reader), B, C; runs of the same steps are told once.

    >>> from feedlab.verify.histories import History
    >>> print(told(History([["tick", 10], ["post", 1], ["tick", 10], ["post", 1], ["pump"], ["evict", 0]], 2, [[0, 1]])))
    A follows B. The threshold is 99, FEED_MAX 5.
    B posts 2 times, 10 ms apart
    relay and consumer run until nothing waits
    A's feed is evicted from Redis
    """
    follows = [f"{_PEOPLE[u]} follows {_PEOPLE[a]}" for u, a in history.follows]
    lines = [f"{', '.join(follows)}. The threshold is {history.threshold}, FEED_MAX {history.feed_max}."]
    steps, at = [list(s) for s in history.steps], 0
    while at < len(steps):
        pair, n = steps[at:at + 2], 0
        if len(pair) == 2 and pair[0][0] == "tick" and pair[1][0] == "post":
            while steps[at + 2 * n:at + 2 * n + 2] == pair:
                n += 1
            who = _PEOPLE[pair[1][1]]
            lines.append(f"{who} posts" if n == 1 else f"{who} posts {n} times, {pair[0][1]} ms apart")
            at += 2 * n
        elif steps[at][0] == "tick":
            at += 1
        else:
            lines.append(_told(*steps[at]))
            at += 1
    return "\n".join(lines)


def _told(name: str, *args) -> str:
    who = _PEOPLE[args[0]] if args and isinstance(args[0], int) and args[0] < len(_PEOPLE) else ""
    other = _PEOPLE[args[1]] if len(args) > 1 and isinstance(args[1], int) and args[1] < len(_PEOPLE) else ""
    match name:
        case "delete":
            return f"post {args[0] + 1} is deleted"
        case "threshold" | "feed_max":
            return f"{name.replace('feed_max', 'FEED_MAX')} is set to {args[0]}"
        case "burst":
            return f"{who} posts {args[1]} times in one millisecond"
        case "page":
            return f"{who} reads a page of {args[1]}"
    return {
        "post": f"{who} posts", "pump": "relay and consumer run until nothing waits", "evict": f"{who}'s feed is evicted from Redis",
        "follow": f"{who} follows {other}", "unfollow": f"{who} unfollows {other}",
        "late": f"{who} posts, but the transaction stays open",
        "commit": "the open transaction commits", "rebuild": f"a reader finds no feed of {who}, begins to rebuild it, and is held up",
        "rebuild_on": "that rebuild goes on by one step",
        "hold": f"a consumer has read {who}'s followers, and is held up before it writes",
        "hold_on": "the held-up consumer writes now",
        "snapshot": "Redis takes a snapshot", "restore": "Redis comes back with that snapshot",
        "flush": "Redis comes back empty", "absent": f"31 days pass without {who}", "demote": f"{who} is asked to be pushed again",
        "back_dated": f"{who} imports a post with an older date"}.get(name, f"{name} {' '.join(map(str, args))}")
