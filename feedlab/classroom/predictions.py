"""Predictions: what the reader said before a run, kept in the state folder, held against the measurement, scored over the book.

A prediction is a number, a choice or a sketched curve (x -> y). Its control is a widget where widgets can be drawn; without
one, or without a hand on it, the default in the cell counts, so that a notebook also runs unattended.
"""
import json
import math
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from ..atomic import write
from ..errors import BadInput


@dataclass(frozen=True)
class Kept:
    """One prediction as the store holds it. `measured` and `score` (0 to 10) are None before `compare`."""
    notebook: str
    label: str
    default: object
    value: object
    unit: str = ""
    measured: object = None
    score: float | None = None


class Store:
    """The predictions of all notebooks, in one JSON file; each write is whole, and several kernels may write."""

    def __init__(self, path: Path):
        self.path = Path(path)

    def _load(self) -> dict:
        try:
            found = json.loads(self.path.read_text())
            return found if isinstance(found, dict) else {}
        except (OSError, ValueError):            # none yet, or not ours: predictions are no reason for a notebook to fail
            return {}

    def keep(self, kept: Kept) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{self.path}.lock", timeout=10):
            data = self._load()
            data.setdefault(kept.notebook, {})[kept.label] = {
                k: v for k, v in vars(kept).items() if k not in ("notebook", "label")}
            write(self.path, json.dumps(data, indent=1), "{path} cannot be written: {why}. Set FEEDLAB_STATE_DIR to a folder that can.")

    def get(self, notebook: str, label: str) -> Kept | None:
        found = self._load().get(notebook, {}).get(label)
        return None if found is None else _kept(notebook, label, found)

    def all(self) -> list[Kept]:
        """Every prediction, by notebook and in the order in which they were made."""
        return [_kept(n, label, found) for n, group in sorted(self._load().items()) for label, found in group.items()]


def _kept(notebook: str, label: str, found: dict) -> Kept:
    names = ("default", "value", "unit", "measured", "score")
    kept = Kept(notebook, label, **{k: found.get(k) for k in names})
    if isinstance(kept.value, dict):             # JSON made text of the curve's x
        def numbers(d):
            return {float(k): v for k, v in d.items()} if isinstance(d, dict) else d
        kept = Kept(notebook, label, numbers(kept.default), numbers(kept.value), kept.unit, numbers(kept.measured), kept.score)
    return kept


def number_score(said: float, measured: float) -> float:
    """10 when equal, 0 when a factor of ten off or of another sign, linear in the logarithm of the factor between.

    >>> number_score(50, 50), round(number_score(25, 50), 1), number_score(500, 50)
    (10.0, 7.0, 0.0)
    """
    if said == measured:
        return 10.0
    if said * measured <= 0:
        return 0.0
    return round(10 * max(0.0, 1 - abs(math.log10(said / measured))), 2)


def score(said, measured) -> float:
    """Score of a number, a choice, or a curve (the mean over the points that both have)."""
    if isinstance(said, dict):
        both = [x for x in said if x in measured]
        return round(sum(number_score(said[x], measured[x]) for x in both) / len(both), 2) if both else 0.0
    if isinstance(said, str):
        return 10.0 if said == measured else 0.0
    return number_score(float(said), float(measured))


def checked(label: str, value, choices: list[str] | None):
    """The prediction as it is kept. Raises BadInput with what can be said instead."""
    if choices is not None:
        if value not in choices:
            raise BadInput(f"{value!r} is not among the answers to \"{label}\". Choose one of: {', '.join(choices)}.")
        return value
    if isinstance(value, dict):
        if not value:
            raise BadInput(f"the curve \"{label}\" has no point. Write {{x: y, ...}}.")
        return {float(_finite(label, x)): float(_finite(label, y)) for x, y in value.items()}
    return _finite(label, value)


def _finite(label: str, value):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise BadInput(f"the prediction \"{label}\" must be a number, got {value!r}.")
    return value


def control(kept: Kept, choices: list[str] | None, on_change):
    """The widget that shows a prediction and reports each change; works from the keyboard."""
    import ipywidgets as w
    label = w.HTML(f"<b>I predict: {_escape(kept.label)}</b>" + (f" ({_escape(kept.unit)})" if kept.unit else ""))
    wide = w.Layout(width="max-content")
    if choices is not None:
        box = w.RadioButtons(options=choices, value=kept.value, layout=wide)
        box.observe(lambda c: on_change(c["new"]), "value")
        return w.VBox([label, box])
    if isinstance(kept.value, dict):
        parts = {x: w.FloatText(value=y, description=f"{x:,g}", step=_step(y)) for x, y in kept.value.items()}
        for part in parts.values():
            part.observe(lambda _: on_change({x: p.value for x, p in parts.items()}), "value")
        return w.VBox([label, *parts.values()])
    box = w.FloatText(value=kept.value, step=_step(kept.value), description="value")
    box.observe(lambda c: on_change(c["new"]), "value")
    return w.VBox([label, box])


def _step(y: float) -> float:
    return 10.0 ** math.floor(math.log10(abs(y))) / 10 if y else 1.0


def _escape(text: str) -> str:
    from html import escape
    return escape(text)


def sentence(kept: Kept) -> str:
    """What came of a prediction, in words.

    >>> sentence(Kept("00", "feed writes a post", 49, 49, "feed writes", 98.0, 7.0))
    'feed writes a post: you said 49, measured 98 feed writes, a factor of 2 (7 of 10)'
    """
    from ..draw.plots import number
    unit = f" {kept.unit}" if kept.unit else ""
    if isinstance(kept.value, dict):
        return f"{kept.label}: {kept.score:.3g} of 10 over {len(kept.value)} points"
    if isinstance(kept.value, str):
        right = "right" if kept.value == kept.measured else f"it is: {kept.measured}"
        return f"{kept.label}: you said {kept.value}; {right} ({kept.score:.3g} of 10)"
    factor = ""
    if kept.value * kept.measured > 0 and kept.value != kept.measured:
        times = max(kept.value / kept.measured, kept.measured / kept.value)
        factor = f", a factor of {number(times)}"
    return f"{kept.label}: you said {number(kept.value)}, measured {number(kept.measured)}{unit}{factor} ({kept.score:.3g} of 10)"


def figure(kept: Kept):
    """A sketched curve and the measured one."""
    from ..draw import plots
    fig = plots.figure(sentence(kept), "", kept.unit)
    for name, points, dash in (("you said", kept.value, "dot"), ("measured", kept.measured, "solid")):
        xs = sorted(points)
        fig.add_scatter(x=xs, y=[points[x] for x in xs], name=name, mode="lines+markers", line={"dash": dash})
    if min(kept.value) > 0 and max(kept.value) / min(kept.value) > 20:
        fig.update_xaxes(type="log")
    ys = [y for points in (kept.value, kept.measured) for y in points.values()]
    if min(ys) > 0 and max(ys) / min(ys) > 50:         # else the small ones lie on the axis, and nobody sees whether they were right
        fig.update_yaxes(type="log", dtick=1)
    return fig.update_xaxes(tickvals=sorted(kept.value), ticktext=[f"{x:,g}" for x in sorted(kept.value)])
