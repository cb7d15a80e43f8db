"""Through a scenario without a person: for the notebook that runs unattended, and for the tests.

    room = open_room("pages-that-repeat", "mid")
    walk(room, answers={"repeats": "2 posts"}, run=["paging"], settings=s, say=b.progress)
"""
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..errors import BadInput
from .engine import Interview, begin
from .scenario import find
from .store import Store


def open_room(name: str, level: str = "senior", store: Store | None = None, *, seed: int | None = None, clock: bool = False,
              where: Path | None = None) -> Interview:
    """A new interview; with a store it is saved after each answer."""
    scenario = find(name, where)
    session = begin(scenario, level, seed=seed, now=time.time(), clock=clock)
    return Interview(scenario, session, changed=(lambda: store.save(session)) if store else lambda: None)


def right_answer(room: Interview):
    """What `Interview.answer` takes as right at this step. For a prediction a guess, since only the run knows."""
    step = room.step
    if step.kind == "estimate":
        return f"{room.scenario.figures.value(step.value):.6g} {step.unit if step.unit != 'times' else ''}".strip()
    if step.kind == "choose":
        return next(i for i, o in enumerate(step.options) if o.credit == 1)
    if step.kind == "order":
        shown = [k for k, _ in room.choices()]
        return [shown.index(i) + 1 for i in range(len(step.items))]
    if step.kind == "spot":
        return step.fault
    if step.kind == "predict":
        return next(iter(step.shapes)) if step.shapes else f"1 {step.unit if step.unit != 'times' else ''}".strip()
    return room.text(step.strong) if step.kind == "say" else "done"


def walk(room: Interview, answers: Mapping[str, object] | None = None, *, run: Sequence[str] = (), settings=None,
         say: Callable = lambda text, done=None, total=None: None, tell: Callable[[str], None] = lambda line: None) -> Interview:
    """Answer every step, with `answers` by step id or else rightly, run the experiments named in `run` when a step calls for
    them, and end. All facts are asked for first. `tell` gets a line a step."""
    from . import experiments
    answers = dict(answers or {})
    unknown = answers.keys() - room.by_id.keys()
    if unknown:
        raise BadInput(f"there is no step {sorted(unknown)[0]!r}; they are: {', '.join(room.by_id)}.")
    for fact in room.scenario.facts:
        room.ask(fact.ask)
    for n, step in enumerate(room.steps):
        room.goto(step.id, time.time())
        feedback = room.answer(answers.get(step.id, right_answer(room)), time.time())
        if feedback.awaits == "ticks":
            feedback = room.tick_points(list(range(1, len(room.scenario.points(step, room.session.level)) + 1)), time.time())
        for name in step.experiments:
            if name in run and name not in room.session.found:
                room.record(name, experiments.run(name, settings, say).as_dict())
        tell(f"{n + 1} {step.id}: {room.feedback(step).verdict}")
    room.end(time.time())
    return room


def measured(room: Interview, experiment: str) -> dict:
    """The numbers that an experiment of this interview found. Raises BadInput when it has not run."""
    if experiment not in room.session.found:
        raise BadInput(f"{experiment[:40]} has not run in this interview.")
    return room.session.found[experiment]["numbers"]


