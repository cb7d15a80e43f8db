"""What every notebook begins and ends with: engines up, a namespace of its own, and everything removed at the end.

    b = begin("00_start")      # engines started if needed; namespace nb_00_start, emptied
    b.predict("feed writes a post", 49, unit="feed writes")
    lab = b.open()             # connections and names (feedlab.lab.session.Lab)
    b.compare("feed writes a post", 67.5)
    b.end()                    # stops what runs, removes the namespace from the engines
"""
import atexit
import inspect
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from html import escape
from pathlib import Path

from filelock import FileLock, Timeout

from .. import config, engines
from ..errors import BadInput
from ..lab.session import Lab, remove
from . import exercises, predictions
from .workspace import Place

current: "Book | None" = None      # the open book of this kernel: what %%sql and %%redis speak to


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook (and not only has one imported)."""
    if "ipykernel" not in sys.modules:
        return False
    from IPython import get_ipython
    return type(get_ipython()).__name__ == "ZMQInteractiveShell"


class Progress:
    """Progress of anything over two seconds. In a notebook one bar that is drawn over and empty at the end (so that the saved
    notebook has no trace of it); elsewhere one line on stderr."""

    def __init__(self, every_s: float = 0.2):
        self.every_s, self.last, self.width, self.bar = every_s, 0.0, 0, None
        self.notebook = in_notebook()

    def __call__(self, text: str, done: int | None = None, total: int | None = None) -> None:
        now = time.monotonic()
        if done is not None and done != total and now - self.last < self.every_s:
            return
        self.last = now
        if self.notebook:
            bar = "" if done is None else f'<progress value="{done}" max="{max(1, total)}"></progress> {done:,} of {total:,}'
            self._draw(f"{escape(text)} {bar}", text)
        else:
            line = text if done is None else f"{text} {'#' * round(24 * done / max(1, total)):24} {done:,} of {total:,}"
            sys.stderr.write("\r" + line[:118].ljust(self.width))
            sys.stderr.flush()
            self.width = len(line[:118])

    def _draw(self, html: str, text: str) -> None:
        from IPython.display import display
        shown = {"text/html": html, "text/plain": text}
        if self.bar is None:
            self.bar = display(shown, raw=True, display_id=True)
        else:
            self.bar.update(shown, raw=True)

    def close(self) -> None:
        if self.bar is not None:
            self._draw("", "")
            self.bar = None
        elif not self.notebook:
            sys.stderr.write("\r" + " " * self.width + "\r")
            sys.stderr.flush()


class Prediction:
    """What `Book.predict` returns: `value` is the answer as it stands, also after a hand on the control."""

    def __init__(self, kept: predictions.Kept):
        self.kept = kept

    @property
    def value(self):
        return self.kept.value

    def __repr__(self) -> str:
        return f"{self.kept.label}: {self.kept.value}"


class Book(Place):
    """An open notebook: a place of its own, with predictions, exercises and an end."""

    def __init__(self, name: str, **changes):
        self.name = name
        settings, self.lock = _own_namespace(f"nb_{name}", {"partitions": 4} | changes)
        progress = Progress()
        super().__init__(settings, engines.up(settings, progress), progress)
        progress.close()
        self.predicted: dict[str, Prediction] = {}
        self.namespaces = [self.settings.namespace]
        atexit.register(self.end)

    def open(self) -> Lab:
        """The lab of this notebook. Raises BadInput after its end."""
        self._goes_on()
        return super().open()

    def _goes_on(self) -> None:
        if self.stack is None:
            raise BadInput("this book has ended. Run its first cell (book.begin) again.")

    # --- faults and other namespaces ---------------------------------------------------------------------------------------

    def fault(self, name: str, systems: tuple[str, ...] = ("textbook", "ours")):
        """A fault of the catalogue on both systems, in namespaces that `end` removes (feedlab.verify.faults.run)."""
        from ..verify import faults
        self._goes_on()                            # a book that has ended would not remove what this makes
        short = self.settings.namespace[:16]
        for part in ("probe", *(f"check_{s}" for s in systems)):
            self.also(f"{short}_{part}")
        return faults.run(name, systems, self.addresses, self.settings)

    def also(self, namespace: str) -> str:
        """Have `end` remove this namespace too. It must begin with the notebook's own, so that no other is hit by mistake."""
        if not namespace.startswith(self.settings.namespace[:16]):
            raise BadInput(f"{namespace} is not this notebook's: begin it with {self.settings.namespace[:16]}.")
        if namespace not in self.namespaces:
            self.namespaces.append(namespace)
        return namespace

    # --- predictions, exercises, source ------------------------------------------------------------------------------------

    @property
    def kept(self) -> predictions.Store:
        return predictions.Store(Path(self.settings.state_dir) / "predictions.json")

    def predict(self, label: str, value, unit: str = "", choices: list[str] | None = None) -> Prediction:
        """Ask for a prediction and keep it: a number, one of `choices`, or a curve {x: y}. Shows a control where widgets are drawn; the
        value in the cell is the default. What was said before is kept, until the cell says something else. Raises BadInput."""
        value = predictions.checked(label, value, choices)
        before = self.kept.get(self.name, label)
        same = before is not None and before.default == value
        said = Prediction(replace(before, unit=unit) if same else predictions.Kept(self.name, label, value, value, unit))
        self.predicted[label] = said
        self.kept.keep(said.kept)

        def changed(new) -> None:
            said.kept = replace(said.kept, value=new)
            self.kept.keep(said.kept)
        if in_notebook():
            from IPython.display import display
            display(predictions.control(said.kept, choices, changed))
        return said

    def compare(self, label: str, measured) -> None:
        """Show the prediction beside what was measured, and keep its score. Raises BadInput when nothing was predicted."""
        if label not in self.predicted:
            raise BadInput(f"nothing was predicted as {label!r}. Run the cell with b.predict({label!r}, ...) first.")
        said = self.predicted[label]
        if isinstance(measured, dict):
            measured = {float(x): float(y) for x, y in measured.items()}
        elif not isinstance(measured, str):
            measured = float(measured)
        said.kept = replace(said.kept, measured=measured, score=predictions.score(said.value, measured))
        self.kept.keep(said.kept)
        if isinstance(said.value, dict):
            from ..draw import plots
            _show(plots.mimebundle(predictions.figure(said.kept)))
        else:
            text = predictions.sentence(said.kept)
            _show({"text/html": f"<b>{escape(text)}</b>", "text/plain": text})

    def score(self) -> None:
        """The predictions of the whole book so far, and their mean score."""
        rows = [k for k in self.kept.all() if k.score is not None]
        if not rows:
            _show({"text/plain": "no prediction has been held against a measurement yet"})
            return
        mean = sum(k.score for k in rows) / len(rows)
        head = f"{len(rows)} predictions, mean score {mean:.1f} of 10"
        body = "".join(f"<tr><td style='text-align:left'>{escape(k.notebook)}</td><td style='text-align:left'>"
                       f"{escape(predictions.sentence(k))}</td></tr>" for k in rows)
        _show({"text/html": f"<b>{head}</b><table>{body}</table>", "text/plain": head})

    check = staticmethod(exercises.check)
    filled_in = staticmethod(exercises.filled_in)

    def source(self, thing: Callable) -> None:
        """Show the real function or class, with a link to its file."""
        lines, first = inspect.getsourcelines(thing)
        path = Path(inspect.getsourcefile(thing)).resolve()
        root = Path(config.__file__).resolve().parent.parent
        shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import PythonLexer
        code = highlight("".join(lines), PythonLexer(), HtmlFormatter(noclasses=True, nobackground=True))
        _show({"text/html": f'<a href="../{shown}">{shown}</a>, line {first}{code}',
               "text/plain": f"{shown}, line {first}\n{''.join(lines)}"})

    # --- the end ---------------------------------------------------------------------------------------------------------------

    def on_end(self, stop: Callable[[], None]) -> None:
        """Have `end` call this, before connections are closed."""
        self._goes_on()
        self.stack.callback(stop)

    def end(self) -> None:
        """Stop what runs and remove this notebook's namespaces from the engines. Harmless when repeated."""
        global current
        atexit.unregister(self.end)
        stack, self.stack, self.lab = self.stack or ExitStack(), None, None      # again: for what a cell has made after the end
        if current is self:
            current = None
        try:
            stack.close()
        finally:
            self.put_down()
            for namespace in self.namespaces:
                remove(self.settings.model_copy(update={"namespace": namespace}), self.addresses)
            self.lock.release()


def _own_namespace(wanted: str, changes: dict) -> tuple[config.Settings, FileLock]:
    """Settings with a namespace that no other kernel has open, and the lock that keeps it so until the book ends or its process does. The
    same notebook may be open twice, as itself and as a learner's copy: the second one works in `nb2_...`."""
    for n in range(1, 10):
        settings = config.settings(namespace=wanted if n == 1 else f"nb{n}{wanted.removeprefix('nb')}"[:31], **changes)
        folder = Path(settings.state_dir) / "books"
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f"{settings.namespace}.lock")
        with suppress(Timeout):
            lock.acquire(timeout=0)
            return settings, lock
    raise BadInput("this notebook is open in nine kernels. Shut some of them down (Kernel > Shut Down Kernel).")


def begin(name: str, **changes) -> Book:
    """Engines up (started if needed), namespace `nb_<name>` emptied, ready to `open`. Settings can be changed by keyword.
    (Open in a second kernel, it is `nb2_<name>` there.)

    A book that this kernel has open already is ended first: running the first cell again starts afresh.
    """
    global current
    if current is not None:
        current.end()
    book = Book(name, **changes)
    remove(book.settings, book.addresses)
    current = book
    if in_notebook():
        from IPython import get_ipython

        from .in_place import quiet_errors
        quiet_errors(get_ipython())
    return book


def _show(bundle: dict) -> None:
    if in_notebook():
        from IPython.display import display
        display(bundle, raw=True)
    else:
        print(bundle["text/plain"])
