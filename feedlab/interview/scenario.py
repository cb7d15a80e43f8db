"""A scenario as data: the schema of `data/scenarios/*.toml`, and what is said about a mistake in one.

    read(path)            one scenario
    scenarios()           all of `data/scenarios/`, by name

`data/scenarios/README.md` says how to write one.
"""
import hashlib
import re
import tomllib
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..config import project_root
from ..errors import BadInput
from . import names
from .experiments import EXPERIMENTS
from .quantities import Figures
from .units import parse

FOLDER = "data/scenarios"
LEVELS = ("mid", "senior", "staff")
PHASES = ("clarify", "estimate", "design", "deep dive", "defend")
RUBRIC = ("requirements", "estimates", "data model", "API", "design", "deep dives", "trade-offs", "operations")

Text = Annotated[str, Field(min_length=1, max_length=4_000)]
Level = Literal["mid", "senior", "staff"]
Id = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,40}$")]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Fact(Part):
    """What the interviewer knows and says only when asked. `words`: any of them in a question brings it out. `essential`: to
    go on without it is to guess."""
    id: Id
    ask: Text = Field(description="the question, as a good candidate puts it")
    answer: Text
    words: list[Annotated[str, Field(min_length=2)]] = Field(min_length=1)
    essential: bool = False


class Step(Part):
    """What every kind of step has. `act`: the observable act that is scored, for the scorecard. `level`: from which level on
    it is asked. `follow_up`: a question that follows on the step before. `read`: notebooks to read on in."""
    id: Id
    phase: Literal[PHASES]
    rubric: Literal[RUBRIC]
    act: Text
    ask: Text
    minutes: float = Field(gt=0, le=30)
    level: Level = "mid"
    follow_up: bool = False
    weight: float = Field(1.0, gt=0, le=5)
    hints: list[Text] = Field(default=[], max_length=4)
    read: list[str] = Field(min_length=1)

    @property
    def experiments(self) -> list[str]:
        """Names of the experiments that settle it, in order, each once."""
        return []


class Clarify(Step):
    """Ask for facts; the essential ones count."""
    kind: Literal["clarify"]
    because: Text


class Estimate(Step):
    """`value` is an expression in `unit`; within a factor of `tolerance` is right, within its square half right."""
    kind: Literal["estimate"]
    value: Text
    unit: str
    tolerance: float = Field(gt=1, le=10)
    way: Text


class Option(Part):
    """`because`: what follows from choosing it, and why. `credit`: 1 for a good answer, less for one that is partly right.
    `experiment` shows the consequence."""
    text: Text
    because: Text
    credit: float = Field(0.0, ge=0, le=1)
    experiment: str


class Choose(Step):
    kind: Literal["choose"]
    options: list[Option] = Field(min_length=2, max_length=6)

    @property
    def experiments(self) -> list[str]:
        return list(dict.fromkeys(o.experiment for o in sorted(self.options, key=lambda o: -o.credit)))

    @model_validator(mode="after")
    def _one_is_best(self):
        if [o.credit for o in self.options].count(1.0) != 1:
            raise ValueError("exactly one of the options must have credit = 1")
        return self


class Predict(Step):
    """Before a live run: a figure (`unit`, `tolerance`) or a shape (`shapes`: key -> text). `measure` is the experiment's
    number, or word, that settles it."""
    kind: Literal["predict"]
    experiment: str
    measure: str
    unit: str | None = None
    tolerance: float | None = Field(None, gt=1, le=10)
    shapes: dict[str, Text] | None = None
    because: Text

    @property
    def experiments(self) -> list[str]:
        return [self.experiment]

    @model_validator(mode="after")
    def _figure_or_shape(self):
        if (self.shapes is None) == (self.unit is None) or (self.unit is None) != (self.tolerance is None):
            raise ValueError("either unit and tolerance (a figure is predicted) or shapes (a choice), not both")
        return self


class Order(Step):
    """`items` in the right order; they are shown shuffled. `pairs` (numbers of items from 1) are the orders that matter;
    without them every pair does."""
    kind: Literal["order"]
    items: list[Text] = Field(min_length=3, max_length=9)
    pairs: list[tuple[int, int]] = []
    because: Text
    experiment: str | None = None

    @property
    def experiments(self) -> list[str]:
        return [self.experiment] if self.experiment else []

    @model_validator(mode="after")
    def _pairs_exist(self):
        for a, b in self.pairs:
            if not 1 <= a < b <= len(self.items):
                raise ValueError(f"pairs: [{a}, {b}] must be two numbers of items, the earlier one first")
        return self


class Spot(Step):
    """Which of F1 to F12 is it? Shown is the history of the catalogue, in words, or `shown`. `among`: the faults offered."""
    kind: Literal["spot"]
    fault: str
    among: list[str] = Field(min_length=3)
    shown: Text | None = None
    because: Text

    @property
    def experiments(self) -> list[str]:
        return [f"fault-{self.fault}"]

    @model_validator(mode="after")
    def _among(self):
        for name in (self.fault, *self.among):
            if name not in names.FAULTS:
                raise ValueError(f"{name!r} is not one of {', '.join(names.FAULTS)}")
        if self.fault not in self.among:
            raise ValueError(f"among must hold the fault itself, {self.fault}")
        if self.shown is None and self.fault in names.PROBES:
            raise ValueError(f"{self.fault} has no history in the catalogue; say under `shown` what is seen")
        return self


class Point(Part):
    text: Text
    level: Level = "mid"


class Say(Step):
    """Free text; then the points of the rubric are shown, to be ticked by oneself. `strong`: a strong answer."""
    kind: Literal["say"]
    points: list[Point] = Field(min_length=2, max_length=8)
    strong: Text


AnyStep = Annotated[Clarify | Estimate | Choose | Predict | Order | Spot | Say, Field(discriminator="kind")]


class Scenario(Part):
    title: Text
    about: Annotated[str, Field(min_length=1, max_length=160)]
    prompt: Text
    minutes: float = Field(gt=0, le=90)
    sheet: dict[str, float] = {}
    given: dict[str, float] = {}
    facts: list[Fact] = Field(min_length=1)
    steps: list[AnyStep] = Field(min_length=3)
    name: str = ""
    digest: str = ""

    @cached_property
    def figures(self) -> Figures:
        return Figures(self.sheet, self.given)

    def at_level(self, level: str) -> list[Step]:
        """The steps that are asked at a level."""
        return [s for s in self.steps if LEVELS.index(s.level) <= LEVELS.index(level)]

    def points(self, step: Say, level: str) -> list[Point]:
        return [p for p in step.points if LEVELS.index(p.level) <= LEVELS.index(level)]

    @property
    def experiments(self) -> list[str]:
        return list(dict.fromkeys(e for s in self.steps for e in s.experiments))


# --- reading ---------------------------------------------------------------------------------------------------------------

def folder() -> Path:
    return project_root() / FOLDER


def scenarios(where: Path | None = None) -> dict[str, Scenario]:
    """Every scenario of the folder by name, in the order of the files' names. Raises BadInput."""
    where = where or folder()
    paths = sorted(where.glob("*.toml"))
    if not paths:
        raise BadInput(f"there are no scenarios in {where}. They belong to the checkout: data/scenarios/*.toml.")
    return {p.stem.split("_", 1)[-1]: read(p) for p in paths}


def find(name: str, where: Path | None = None) -> Scenario:
    """One scenario: by name, by number, or a path to a file of one's own. Raises BadInput that lists the names."""
    if name.endswith(".toml"):
        return read(Path(name))
    known = scenarios(where)
    if name.isdigit() and 1 <= int(name) <= len(known):
        return list(known.values())[int(name) - 1]
    if name not in known:
        raise BadInput(f"there is no scenario {name[:40]!r}; they are: {', '.join(known)}.")
    return known[name]


def read(path: Path) -> Scenario:
    """A scenario from its file. Raises BadInput: the file, the key, what was expected."""
    try:
        raw = Path(path).read_bytes()
        data = tomllib.loads(raw.decode())
    except OSError as e:
        raise BadInput(f"{path} cannot be read: {e.strerror}.") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text, which TOML must be.") from None
    except tomllib.TOMLDecodeError as e:
        raise BadInput(f"{path} is not TOML: {e}.") from None
    data |= {"name": Path(path).stem.split("_", 1)[-1], "digest": hashlib.sha256(raw).hexdigest()[:12]}
    try:
        made = Scenario.model_validate(data)
    except ValidationError as e:
        raise BadInput(f"{path}: {_sentence(e.errors()[0], data)}.") from None
    for key, why in mistakes(made):
        raise BadInput(f"{path}: {key}: {why}.")
    return made


_EXPECTED = {"missing": "this key is missing", "extra_forbidden": "there is no such key", "string_type": "expected text in quotes",
             "float_type": "expected a number", "list_type": "expected a list", "dict_type": "expected a table"}


def _sentence(error: dict, data: dict) -> str:
    """The key as one would look for it in the file, and what was expected.

    >>> _sentence({"loc": ("steps", 0, "choose", "options"), "type": "missing", "msg": "", "input": {}}, {"steps": [{"id": "x"}]})
    'steps[1] (x): options: this key is missing'
    """
    where, loc = [], list(error["loc"])
    while loc:
        part = loc.pop(0)
        if isinstance(part, int) and where:
            where[-1] += f"[{part + 1}]"
            if where[0].startswith("steps[") and len(where) == 1:
                steps = data.get("steps")
                step = steps[part] if isinstance(steps, list) and part < len(steps) else {}
                if isinstance(step, dict) and isinstance(step.get("id"), str):
                    where[-1] += f" ({step['id']})"
                if loc and loc[0] in names.KINDS:
                    loc.pop(0)              # pydantic's name for the kind of step
        elif part != "__root__":
            where.append(str(part))
    got = error.get("input")
    shown = f", got {got!r}" if isinstance(got, (str, int, float)) and error["type"] not in ("extra_forbidden", "missing") else ""
    if error["type"] == "union_tag_invalid":
        return f"{': '.join(where)}: kind: expected one of {', '.join(names.KINDS)}, got {error['ctx']['tag']!r}"
    if error["type"] == "union_tag_not_found":
        return f"{': '.join(where)}: kind: this key is missing; expected one of {', '.join(names.KINDS)}"
    said = _EXPECTED.get(error["type"], error["msg"].removeprefix("Value error, ").removeprefix("Input should be "))
    if error["type"] == "literal_error":
        said = f"expected {said}"
    elif error["type"] == "extra_forbidden":
        said += "; expected only those of data/scenarios/README.md"
    return f"{': '.join(where) or 'the file'}: {said}{shown}"


def mistakes(s: Scenario) -> Iterable[tuple[str, str]]:
    """What types alone do not tell: (key, what is wrong)."""
    try:
        figures = s.figures
    except BadInput as e:
        yield "sheet" if "sheet" in str(e) else "given", str(e)
        return
    for key, text in _texts(s):
        try:
            figures.text(text)
        except BadInput as e:
            yield key, str(e)
        if re.search(r"\{[^{}]*\b(a_second|a_day|_bytes)\b[^{}|]*\}", text):
            yield key, "a hole needs a unit: {expression | unit}"
    for n, fact in enumerate(s.facts, 1):
        if [f.id for f in s.facts].count(fact.id) > 1:
            yield f"facts[{n}] ({fact.id}): id", "expected an id of its own, another fact has it"
    if not any(f.essential for f in s.facts):
        yield "facts", "expected at least one with essential = true"
    for n, step in enumerate(s.steps, 1):
        at = f"steps[{n}] ({step.id})"
        if [x.id for x in s.steps].count(step.id) > 1:
            yield f"{at}: id", "expected an id of its own, another step has it"
        for book in step.read:
            if book not in names.NOTEBOOKS:
                yield f"{at}: read", f"there is no notebook {book!r}; expected one of {', '.join(names.NOTEBOOKS)}"
        for experiment in step.experiments:
            if experiment not in EXPERIMENTS:
                yield f"{at}: experiment", f"there is no experiment {experiment!r}; expected one of {', '.join(EXPERIMENTS)}"
        if isinstance(step, Estimate):
            try:
                if figures.value(step.value) <= 0:
                    yield f"{at}: value", "expected a number above 0"
            except BadInput as e:
                yield f"{at}: value", str(e)
        if isinstance(step, Estimate | Predict) and step.unit is not None:
            try:
                parse(f"1 {step.unit}")
            except BadInput:
                yield f"{at}: unit", f"{step.unit!r} is no unit; expected one such as reads/s, feed writes/day, TB, s, nodes"
        if isinstance(step, Predict) and step.experiment in EXPERIMENTS:
            known = EXPERIMENTS[step.experiment].measures
            if step.measure not in known:
                yield f"{at}: measure", f"{step.experiment} does not measure {step.measure!r}; expected one of {', '.join(known)}"
        for before in s.steps[:n - 1]:
            if isinstance(step, Predict) and step.experiment in before.experiments:
                yield f"{at}: experiment", (f"{step.experiment} is run by the earlier step {before.id}, so that what it measures would be "
                                            "known; expected one that has not run")
    if s.steps[0].level != "mid":
        yield "steps[1]: level", "the first step must be asked at every level"
    for n, step in enumerate(s.steps, 1):
        if step.follow_up and n == 1:
            yield f"steps[{n}] ({step.id}): follow_up", "there is no step before it"


def _texts(s: Scenario) -> Iterable[tuple[str, str]]:
    """Every text that may hold figures, with its key."""
    yield "prompt", s.prompt
    for n, f in enumerate(s.facts, 1):
        yield f"facts[{n}] ({f.id}): answer", f.answer
    for n, step in enumerate(s.steps, 1):
        at = f"steps[{n}] ({step.id})"
        for key in ("ask", "act", "way", "because", "strong", "shown"):
            if isinstance(text := getattr(step, key, None), str):
                yield f"{at}: {key}", text
        for i, hint in enumerate(step.hints, 1):
            yield f"{at}: hints[{i}]", hint
        for i, o in enumerate(getattr(step, "options", []), 1):
            yield f"{at}: options[{i}]: text", o.text
            yield f"{at}: options[{i}]: because", o.because
        for i, text in enumerate(getattr(step, "items", []), 1):
            yield f"{at}: items[{i}]", text
        for i, p in enumerate(getattr(step, "points", []), 1):
            yield f"{at}: points[{i}]: text", p.text
