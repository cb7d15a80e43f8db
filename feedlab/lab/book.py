"""What every notebook begins and ends with: engines up, a namespace of its own, and everything removed at the end.

    book = begin("00_start")      # engines started if needed; namespace nb_00_start, emptied
    book.lab                      # connections and names (feedlab.lab.session.Lab)
    book.end()                    # removes the namespace from the engines, stops what runs
"""
import atexit
import sys
import time
from contextlib import ExitStack
from html import escape

from .. import config, engines
from .session import open_lab, wipe
from .workers import Workers


class Progress:
    """Progress of anything over two seconds. In a notebook one bar that is drawn over and empty at the end (so that the saved
    notebook has no trace of it); elsewhere one line on stderr."""

    def __init__(self, every_s: float = 0.2):
        self.every_s, self.last, self.width, self.bar = every_s, 0.0, 0, None
        self.notebook = "ipykernel" in sys.modules

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


class Book:
    """An open notebook: settings of its namespace, addresses, and, after `open`, the lab."""

    def __init__(self, name: str, **changes):
        self.settings = config.settings(namespace=f"nb_{name}", **changes)
        self.progress = Progress()
        self.addresses = engines.up(self.settings, self.progress)
        self.progress.close()
        self.stack = ExitStack()
        self.lab = None
        atexit.register(self.end)

    def open(self):
        """The lab of this namespace as it is now, for example after a demo."""
        if self.lab is None:
            self.lab = self.stack.enter_context(open_lab(self.settings, self.addresses))
        return self.lab

    def run(self, relays: int = 1, consumers: int = 1) -> Workers:
        """Relay and fan-out as processes, until `end`; returns when both are at work."""
        workers = self.stack.enter_context(Workers(self.settings, self.addresses, relays, consumers))
        workers.wait_ready(self.open())
        return workers

    def end(self) -> None:
        """Stop what runs and remove this notebook's namespace from the engines. Harmless when repeated."""
        atexit.unregister(self.end)
        if self.stack is None:
            return
        stack, self.stack, self.lab = self.stack, None, None
        stack.close()
        with open_lab(self.settings, self.addresses) as last:
            wipe(last)


def begin(name: str, **changes) -> Book:
    """Engines up (started if needed), namespace `nb_<name>` emptied, ready to `open`. Settings can be changed by keyword."""
    book = Book(name, **changes)
    with open_lab(book.settings, book.addresses) as old:
        wipe(old)
    return book
