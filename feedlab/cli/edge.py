"""Where errors end: one sentence on stderr and an exit code, never a traceback for what is not our own mistake.

0 well, 1 a check failed (status, doctor, demo), 2 everything that a sentence explains, 130 Ctrl-C.
"""

import os
import re
import sys

from .. import addresses

# what Ctrl-C leaves behind, by command
STANDS = {
    "up": "what has started stays up; `feedlab up` goes on from there, `feedlab down` stops it",
    "down": "some engines may still run; `feedlab down` again stops the rest",
    "load": "the graph is in as a whole or not at all; `feedlab load` again is harmless",
    "demo": "its namespace is half filled, the next `feedlab demo` empties it first; the engines stay up",
    "lab": "the engines stay up, `feedlab down` stops them; `feedlab lab` starts again",
    "interview": "every answer is saved; the same command goes on from there",
    "check": "no verdict; the engines stay up",
    "bench": "no figures; its namespaces are removed, the engines stay up",
    "load-test": "no figures; its namespace is removed, the engines stay up",
}
STANDS_ELSE = "what was written before stays, and the engines are as they were"


def group():
    """All commands, as typer's own object."""
    import typer

    from . import bench, check, demo, engines, feed, interview, lab, pipeline, policy, serve, trace  # noqa: F401  each adds its commands
    from .app import app

    found = typer.main.get_command(app)
    for c in (found, *found.commands.values()):
        _plain_help(c)
        for below in getattr(c, "commands", {}).values() if c is not found else ():
            _plain_help(below)
    return found


def _plain_help(c) -> None:
    """Without the <bool> that typer prints beside --help."""
    made = c.get_help_option

    def get_help_option(ctx):
        option = made(ctx)
        if option is not None:
            option.metavar = ""
        return option

    c.get_help_option = get_help_option


def run(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code. FEEDLAB_DEBUG=1 lets the traceback through."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a character is no reason to fail
    args = sys.argv[1:] if argv is None else argv
    try:
        code = group().main(args or ["--help"], prog_name="feedlab", standalone_mode=False)
        sys.stdout.flush()
        return interrupted(args) if code == 130 else code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        return interrupted(args)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the flush at exit complains again
        return 1
    except Exception as e:
        said = sentence(e)
        if said is None or os.environ.get("FEEDLAB_DEBUG"):
            raise
        print(f"feedlab: {said}", file=sys.stderr)
        return 2


def interrupted(args: list[str]) -> int:
    """130, and one line that says what stands."""
    words = [w for before, w in zip(["", *args], args, strict=False)
             if not w.startswith("-") and before not in ("-n", "--namespace")]
    print(f"feedlab: interrupted; {STANDS.get(words[0] if words else '', STANDS_ELSE)}.", file=sys.stderr)
    return 130


def sentence(e: BaseException) -> str | None:
    """What to tell the user, also of a command that was typed wrongly; None for an error that nobody foresaw, whose traceback is then
    shown."""
    return _usage(e) if hasattr(e, "format_message") else addresses.sentence(e)


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
