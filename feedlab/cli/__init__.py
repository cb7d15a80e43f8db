"""The command line. Nothing heavy is imported before a command needs it, so that `feedlab --help` answers at once.

`app` holds the list of commands, `edge` turns errors into one sentence and an exit code, `show` prints, `opened` opens;
the others are the commands: `engines`, `pipeline`, `feed`, `trace`, `demo`, `check`, `serve`, `lab` (with `jupyter`).
"""

from .edge import run

__all__ = ["run"]
