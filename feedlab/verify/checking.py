"""Many histories on live engines, each judged: what `feedlab check` runs, and the tests.

The catalogue comes first (it names what it finds), then random histories. A failing one is shrunk to the fewest steps that still
fail, kept as a file, and replayed by one command.
"""
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ..addresses import Addresses
from ..config import Settings
from ..core.check import Report
from ..errors import BadInput
from . import faults
from .histories import DISRUPTIONS, History, random_history
from .runner import Runner
from .systems import SYSTEMS

FAULT_WORDS = sorted(set(DISRUPTIONS.values()))
DISRUPTING = {"kill", "eviction", "threshold move"}


def _say(text: str, done: int | None = None, total: int | None = None) -> None:
    """The default progress: nothing."""


def words(faults: str | None) -> list[str] | None:
    """`"kill,eviction"` as a list. Raises BadInput for a word that is not one of FAULT_WORDS."""
    if faults is None:
        return None
    wanted = [w.strip() for w in faults.split(",") if w.strip()]
    for w in wanted:
        if w not in FAULT_WORDS:
            raise BadInput(f"{w!r} is no fault; they are: {', '.join(FAULT_WORDS)}")
    return wanted


def read_history(path: Path) -> History:
    """A history from a file that `check` kept. Raises BadInput saying what is wrong with it."""
    try:
        data = json.loads(Path(path).read_text())
        return History(**data)
    except OSError as e:
        raise BadInput(f"{path} cannot be read: {e.strerror}.") from None
    except (ValueError, TypeError) as e:
        raise BadInput(f"{path} is not a history: {e}. `feedlab check` writes such files.") from None


def shrink(runner: Runner, history: History, most: int = 60) -> History:
    """The history with as many steps taken out as `most` runs allow, while a verdict of the same kind remains."""
    kinds = {v.kind for v in runner.run(history).verdicts}
    steps, size = history.steps, max(1, len(history.steps) // 2)
    while size and most > 0:
        at = 0
        while at < len(steps) and most > 0:
            fewer = steps[:at] + steps[at + size:]
            most -= 1
            if kinds & {v.kind for v in runner.run(replace(history, steps=fewer)).verdicts}:
                steps = fewer
            else:
                at += size
        size //= 2
    return replace(history, steps=steps)


def run(settings: Settings, addresses: Addresses, *, histories: int = 100, seed: int | None = None, system: str = "ours",
        only: Sequence[str] | None = None, replay: Path | None = None, catalogue: bool = True, say: Callable = _say) -> dict:
    """The result is what `feedlab check --json` writes. `wrong` counts histories; `verdicts` are sentences, the smallest of each
    kind and history; `named` are the faults of the catalogue that were found.

    Works in a namespace of its own (`<namespace>_check_<system>`). Raises BadInput and EngineDown.
    """
    if histories < 0:
        raise BadInput(f"histories must be at least 0, got {histories}")
    if system not in SYSTEMS:
        raise BadInput(f"there is no system {system!r}; they are: {', '.join(SYSTEMS)}")
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    chosen = [read_history(replay)] if replay else [random_history(seed, k, only) for k in range(histories)]
    named = [f.history for f in faults.HISTORIES] if catalogue and not replay else []
    own = settings.model_copy(update={"namespace": f"{settings.namespace[:16]}_check_{system}", "partitions": 2, "batch": 2})
    began, pages, unknown, used, disrupted = time.monotonic(), 0, 0, Counter(), 0
    verdicts, wrong, first = [], [], None
    with Runner(own, addresses, SYSTEMS[system]) as runner:
        for n, history in enumerate(named + chosen):
            report: Report = runner.run(history)
            pages, unknown = pages + report.pages, unknown + report.unknown
            used.update(history.faults)
            disrupted += bool(DISRUPTING & set(history.faults))
            if report.wrong:
                wrong.append(history.name or "replayed")
                first = first or (history if n >= len(named) or replay else None)
                verdicts += [f"{history.name}: {v}" for v in report.smallest()]
            say(f"checking: {len(wrong)} wrong", n + 1, len(named) + len(chosen))
        kept = None
        if first is not None and not replay:
            say("shrinking the first history that went wrong")
            kept = keep(own, shrink(runner, first))
    names = {f.history.name for f in faults.HISTORIES}
    return {"system": system, "seed": seed, "histories": len(chosen), "catalogue": len(named), "pages": pages, "wrong": len(wrong),
            "unknown": unknown, "disrupted": disrupted, "faults_used": dict(used.most_common()), "verdicts": verdicts,
            "named": [w for w in wrong if w in names], "shrunk": kept and str(kept),
            "replay": kept and f"feedlab check --replay {kept} --system {system}", "seconds": round(time.monotonic() - began, 1)}


def keep(settings: Settings, history: History) -> Path:
    """Write a history where it can be replayed from."""
    path = settings.state_dir / "histories" / f"{history.name.replace(' ', '-') or 'history'}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(history.as_dict()))
    return path
