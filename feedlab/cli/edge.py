"""Where errors end: one sentence on stderr and an exit code, never a traceback for what is not our own mistake.

0 well, 1 a check failed (status, doctor, demo), 2 everything that a sentence explains, 130 Ctrl-C.
"""

import os
import re
import sys

from ..errors import FeedlabError

# first part of the module that an exception's class lives in -> the engine that it speaks of
ENGINE = {"psycopg": "PostgreSQL", "redis": "Redis", "confluent_kafka": "Kafka", "cimpl": "Kafka"}


def group():
    """All commands, as typer's own object."""
    import typer

    from . import check, demo, engines, feed, lab, pipeline, serve, trace  # noqa: F401  each adds its commands
    from .app import app

    return typer.main.get_command(app)


def run(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code. FEEDLAB_DEBUG=1 lets the traceback through."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character is no reason to fail
    args = sys.argv[1:] if argv is None else argv
    try:
        code = group().main(args or ["--help"], prog_name="feedlab", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the flush at exit complains again
        return 1
    except Exception as e:
        said = sentence(e)
        if said is None or os.environ.get("FEEDLAB_DEBUG"):
            raise
        print(f"feedlab: {said}", file=sys.stderr)
        return 2


def sentence(e: BaseException) -> str | None:
    """What to tell the user; None for an error that nobody foresaw, whose traceback is then shown."""
    if isinstance(e, FeedlabError):
        return re.sub(r"([.?!])\.(?=\s|$)", r"\1", " ".join(str(e).split()))  # a cause may bring its own full stop
    if hasattr(e, "format_message"):
        return _usage(e)
    for kind in type(e).__mro__:
        if name := ENGINE.get(kind.__module__.partition(".")[0]):
            from ..engines.base import short

            return f"{name}: {short(e).rstrip('.')}. `feedlab doctor` says what is wrong."
    if isinstance(e, OSError):
        about = f"{e.filename}: " if e.filename else ""
        return f"{about}{e.strerror or e}. `feedlab doctor` looks at the state folder and the disk."
    return None


def _usage(e) -> str:
    """A usage error of typer, as one sentence with the command that explains it."""
    context = getattr(e, "ctx", None)
    path = context.command_path if context else "feedlab"
    said = e.format_message().removeprefix("Invalid value for ").rstrip()
    option = getattr(e, "option_name", "")
    if re.match(r"-\d", option or ""):
        said = f"{option} would be negative; ids and numbers here start at 0."
    elif option and path.endswith(" post"):
        said += " (a text that starts with - goes behind --)."
    return f"{said if said.endswith('.') else said + '.'} `{path} --help` has examples."
