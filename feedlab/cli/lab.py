"""`lab`: what `make lab` calls. Engines, a small demo, JupyterLab on the first notebook. And `learner`: notebooks with blanks."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from .app import LAB, Way, command, number_option


@command(LAB, "feedlab lab", "feedlab lab --no-browser", "feedlab lab --no-demo --port 9000", "feedlab lab --detach")
def lab(
    no_browser: Annotated[
        bool, typer.Option("--no-browser", metavar="", help="Print the URL only; so does FEEDLAB_NO_BROWSER=1.")
    ] = False,
    no_demo: Annotated[
        bool, typer.Option("--no-demo", metavar="", help="Leave out the demo, and keep what is there.")
    ] = False,
    detach: Annotated[
        bool,
        typer.Option("--detach", metavar="", help="Print the URL and return; `feedlab down` stops JupyterLab, too."),
    ] = False,
    port: Annotated[
        int, number_option("--port", "a port", "JupyterLab's port; a taken one moves on to the next.", 1, 65_535)
    ] = 8888,
    engines: Way = None,
) -> None:
    """Start the engines, run a small demo (500 posts on the generated graph), open JupyterLab on the first notebook.

    Ctrl-C stops JupyterLab and leaves the engines running. The demo has a namespace of its own (demo),
    which it empties first; --no-demo leaves it as it is.
    """
    from .. import engines as api
    from ..config import settings
    from . import demo, jupyter, outputs, show

    s = settings(engines=engines)
    silent = no_browser or detach or os.environ.get("FEEDLAB_NO_BROWSER", "") not in ("", "0")
    if no_demo:
        with show.progress("starting the engines") as say:
            api.up(s, say)
    else:
        result = demo.perform(outputs.own_namespace(s, "demo"), posts=500, report=s.state_dir / "demo.html")
        if not demo.summary(result):
            show.line("not every scroll equals the SQL answer: this is a mistake of ours, please report it", err=True)
        show.line(f"picture: {result['report']}")
    _learner_copies()
    url, process = jupyter.running(s), None
    if url:
        show.line("JupyterLab runs already; `feedlab down` stops it, and the engines")
    else:
        with show.progress("starting JupyterLab"):
            url, process = jupyter.start(s, port)
    show.line(f"JupyterLab: {url}")
    sys.stdout.flush()
    if not silent:
        _browse(url)
    if process and not detach:
        _stay(s, process)


def _learner_copies() -> None:
    """The notebooks with blanks, beside the solved ones; where that cannot be written, the lab goes on without them."""
    from ..classroom.edition import write_learner
    from ..config import project_root
    from ..errors import BadInput
    from . import show
    try:
        write_learner(project_root() / "notebooks" / "learner")
    except BadInput as e:
        show.line(str(e), err=True)


@command(LAB, "feedlab learner", "feedlab learner --out exercises", "feedlab learner --again")
def learner(
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FOLDER", show_default=False, help="Where to; left out: notebooks/learner."),
    ] = None,
    again: Annotated[bool, typer.Option("--again", metavar="", help="Replace copies that are there, and what was filled in.")] = False,
) -> None:
    """Write copies of the notebooks with blanks where the solutions are; each solution is folded below its blank.

    A copy that is there already is yours and stays as it is.
    """
    from ..classroom.edition import write_learner
    from ..config import project_root
    from . import show

    folder = out if out is not None else project_root() / "notebooks" / "learner"
    written = write_learner(folder, again)
    show.line(f"{len(written)} notebooks written to {folder}" if written else
              f"nothing to do: {folder} has a copy of each notebook (--again replaces them)")


def _browse(url: str) -> None:
    """Open a browser, if there is a screen to show it on: a text browser would take over the terminal."""
    import webbrowser

    if sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)


def _stay(s, process) -> None:
    """In the foreground until Ctrl-C or SIGTERM, or until JupyterLab was shut down from its menu."""
    from ..engines import procs
    from . import jupyter, show

    show.line("Ctrl-C stops JupyterLab; the engines stay up")
    sys.stdout.flush()
    told = []
    before = {n: signal.signal(n, lambda *_: told.append(1)) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        while not told and procs.alive(process):
            time.sleep(0.1)
    finally:
        for n, handler in before.items():
            signal.signal(n, handler)
    with show.progress("stopping JupyterLab") as say:
        jupyter.stop(s, say)
    show.line("JupyterLab has ended; the engines still run, `feedlab down` stops them")
