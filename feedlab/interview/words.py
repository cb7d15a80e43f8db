"""What terminal and notebook both say: a step, its clock, an answer's feedback, a figure as text."""

from .engine import Feedback, Interview

ASKS = {
    "clarify": "Ask, one question at a time; go on when you have enough.",
    "estimate": "A number with its unit, for example 35k/s, 3.5e4, 6 TB.",
    "choose": "Choose one.",
    "predict": "Say it before the live run.",
    "order": "Number the steps in the right order, for example 3 1 2.",
    "spot": "Name the fault, for example F3.",
    "say": "Say it in a sentence or two; then tick the points that you had.",
}


def clock(seconds: float) -> str:
    """
    >>> clock(0), clock(75.4), clock(3_675)
    ('0:00', '1:15', '61:15')
    """
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def where(room: Interview) -> str:
    """Where we are, in one line: `3 of 14 · estimate · estimates · 2 min`."""
    step = room.step
    return f"{room.index + 1} of {len(room.steps)} · {step.phase} · {step.rubric} · {step.level} · {step.minutes:g} min"


def remark(said: Feedback) -> str:
    """One line about the credit."""
    points = "" if said.credit is None or said.credit in (0, 1) else f" ({said.credit:.0%})"
    return {"experiment": "Noted; the run decides.", "ticks": "Noted; now tick the points that you had."}.get(
        said.awaits
    ) or said.verdict[0].upper() + said.verdict[1:] + points + "."


def bars(figure: dict, width: int = 40) -> list[str]:
    """A figure as lines of text, for a terminal: its title, and its bars if it has any."""
    rows: list[tuple[str, float]] = []
    title = [figure.get("layout", {}).get("title", {}).get("text", "")]
    for trace in figure.get("data", []):
        x, y = trace.get("x"), trace.get("y")
        if trace.get("type") != "bar" or not isinstance(x, list) or not isinstance(y, list):
            continue
        names, values = (y, x) if trace.get("orientation") == "h" else (x, y)
        prefix = f"{trace['name']}: " if trace.get("name") and len(figure["data"]) > 1 else ""
        rows += [
            (f"{prefix}{n}", v)
            for n, v in zip(names, values, strict=False)
            if isinstance(v, int | float) and not isinstance(v, bool)
        ]
    rows = rows[:12]
    top = max((v for _, v in rows), default=0)
    if top <= 0:
        return title
    label = min(36, max(len(n) for n, _ in rows))
    return title + [f"{n[:label]:>{label}} {'█' * round(width * max(0.0, v) / top) or '·'} {v:,.4g}" for n, v in rows]
