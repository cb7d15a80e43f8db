"""What the commands print with: consoles, lines, times, progress. Nothing coloured when the output is no terminal."""

import json
import os
import time
from contextlib import contextmanager
from datetime import UTC, datetime


def console(stderr: bool = False):
    """A rich console; texts are shown as they are, without markup. Piped, a line may be wide: ids must not be cut."""
    from rich.console import Console

    c = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not c.is_terminal and "COLUMNS" not in os.environ:
        c = Console(stderr=stderr, markup=False, emoji=False, highlight=False, width=200)
    return c


def table(title: str | None, *columns: str, keep: tuple[str, ...] = ()):
    """A rich table; columns named in `keep` are never wrapped."""
    from rich import box
    from rich.table import Table

    t = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False)
    for name in columns:
        t.add_column(name, no_wrap=name in keep, overflow="fold")
    return t


def line(text: str, err: bool = False) -> None:
    import typer

    typer.echo(text, err=err)


def document(data) -> None:
    """The one JSON document of a command."""
    line(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))


def clean(text: str, most: int = 200) -> str:
    """Somebody's text on one line, with no character that could steer the terminal.

    >>> clean("a\\nb\\x1b[31m")
    'a b�[31m'
    """
    flat = "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)
    return flat if len(flat) <= most else flat[: most - 3] + "..."


def when(ms: int) -> str:
    """Epoch milliseconds as UTC.

    >>> when(1760245800123)
    '2025-10-12 05:10:00.123 UTC'
    """
    try:
        return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S") + f".{ms % 1000:03d} UTC"
    except (ValueError, OverflowError, OSError):  # far beyond the year 9999
        return f"{ms} ms"


def count(n: int, one: str) -> str:
    """
    >>> count(1, "user"), count(2500, "feed write"), count(0, "history"), count(2, "query")
    ('1 user', '2,500 feed writes', '0 histories', '2 queries')
    """
    many = one[:-1] + "ies" if one.endswith("y") and one[-2:-1] not in "aeiou" else one + "s"
    return f"{n:,} {one if n == 1 else many}"


def size(n: int | None) -> str:
    return "" if n is None else f"{n / 1e6:,.0f} MB"


@contextmanager
def progress(title: str):
    """Gives `say(text)`: a line on stderr at each step, with a spinner below when it is a terminal."""
    err = console(stderr=True)

    def say(text: str) -> None:
        err.print("  " + text, soft_wrap=True)

    if err.is_terminal:
        from rich.text import Text

        with err.status(Text(title)):
            yield say
    else:
        yield say


@contextmanager
def stages():
    """Gives `say(text, done=None, total=None)`: lines, and a bar for each stage that counts, on stderr.

    A state that is said over and over (`draining: ...`) is shown in place in a terminal, else every 5 s.
    """
    err = console(stderr=True)
    if not err.is_terminal:
        last = {"what": "", "at": 0.0}

        def say(text: str, done: int | None = None, total: int | None = None) -> None:
            what, now = text.split(":")[0], time.monotonic()
            if done is not None and done == total or what != last["what"] or now - last["at"] > 5:
                err.print("  " + (text if done is None else f"{text} {done:,} of {total:,}"), soft_wrap=True)
                last.update(what=what, at=now)

        yield say
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    bars: dict[str, int] = {}
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=err, transient=False) as shown:

        def say(text: str, done: int | None = None, total: int | None = None) -> None:
            what = text.split(":")[0]
            if done is None and what != "draining":
                shown.console.print("  " + text, soft_wrap=True)
            elif what not in bars:
                bars[what] = shown.add_task(text, total=total, completed=done or 0)
            else:
                shown.update(bars[what], description=text, completed=done or 0, total=total)

        yield say
