"""The typer application, how a command is added to it, and the kinds of arguments that several commands take."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core.model import MAX_ID, MAX_MS
from ..errors import BadInput

app = typer.Typer(
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="A Facebook-like news feed on live PostgreSQL, Redis and Kafka, to build, break and tune.",
    epilog="Start here:\n\n$ feedlab lab\n\n$ feedlab demo --posts 500\n\n$ feedlab COMMAND --help",
)

ENGINES, PIPELINE, FEED, LAB = "Engines", "The way of a post", "Write and read", "The lab"


def command(panel: str, *examples: str, name: str | None = None) -> Callable:
    """Add a function as a command; `examples` end its help, and a test parses each of them."""
    epilog = "Examples:\n\n" + "\n\n".join(f"$ {e}" for e in examples)
    return app.command(name, epilog=epilog.replace("[", r"\["), rich_help_panel=panel)


def _version(asked: bool) -> None:
    if asked:
        from .. import __version__

        typer.echo(f"feedlab {__version__}")
        raise typer.Exit


NAMESPACE = r"^[a-z][a-z0-9_]{0,30}$"  # that of config.Settings, whose import would cost every `--help`


def _namespace(value) -> str:
    if re.fullmatch(NAMESPACE, str(value)):
        return str(value)
    raise typer.BadParameter(
        f"{_shown(str(value))} is not the name of a namespace (a letter from a to z, then at most 30 of a to z, 0 to 9 and _)."
    )


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, metavar="", help="Show the version and exit.")
    ] = False,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace", "-n", parser=_namespace, metavar="NAME", show_default=False,
            help="Work in this namespace: its own tables, keys and topics (FEEDLAB_NAMESPACE; default feedlab, demo for the demo).",
        ),
    ] = None,
) -> None:
    if namespace is not None:
        os.environ["FEEDLAB_NAMESPACE"] = namespace


# --- what may be typed ------------------------------------------------------------------------------------------------


def whole(what: str, least: int = 0, most: int = MAX_ID) -> Callable[[Any], int]:
    """A parser of whole numbers.

    >>> whole("a user id")("7")
    7
    """

    def parse(value) -> int:
        text = str(value)  # typer parses a default, too
        if re.fullmatch(r"[0-9]{1,19}", text) and least <= int(text) <= most:
            return int(text)
        top = {MAX_ID: "2^63-1", MAX_MS: "2^53"}.get(most, f"{most}")
        raise typer.BadParameter(f"{_shown(text)} is not {what} (a whole number from {least} to {top}).")

    return parse


def text(value) -> str:
    """Text that PostgreSQL can hold: not empty, and valid UTF-8."""
    try:
        str(value).encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("this is not valid UTF-8 text.") from None
    if not str(value).strip():
        raise typer.BadParameter("this is empty; write some text.")
    return str(value)


def file(value) -> Path:
    """A file that is to be read. An empty name would be the current folder."""
    if str(value):
        return Path(value)
    raise typer.BadParameter("this is empty; name a file.")


def way(value) -> str:
    """auto, yours, containers or embedded."""
    if value in ("auto", "yours", "containers", "embedded"):
        return value
    raise typer.BadParameter(f"{_shown(str(value))} is none of auto, yours, containers, embedded.")


def knob(value) -> tuple[str, int]:
    """`name=value` of a live knob."""
    from ..db import KNOBS

    name, equals, number = str(value).partition("=")
    name = name.strip().replace("-", "_")
    if not equals or name not in KNOBS:
        raise BadInput(
            f"{_shown(str(value))} is not a knob and its value. Write for example "
            f"{' or '.join(f'{k}=300' for k in KNOBS)}."
        )
    least, most = KNOBS[name]
    if not re.fullmatch(r"[0-9]{1,18}", number) or not least <= int(number) <= most:
        raise BadInput(f"{name} must be a whole number from {least} to {most}, got {_shown(number)}.")
    return name, int(number)


def _shown(value: str) -> str:
    return repr(value if len(value) <= 40 else value[:37] + "...")


def user_argument(metavar: str = "USER", help: str = "User id."):
    return typer.Argument(parser=whole("a user id"), metavar=metavar, help=help, show_default=False)


def number_option(name: str, what: str, help: str, least: int = 0, most: int = MAX_ID, **more):
    return typer.Option(name, parser=whole(what, least, most), metavar="N", help=help, **more)


User = Annotated[int, user_argument()]
PostId = Annotated[int, typer.Argument(parser=whole("a post id"), metavar="POST", help="Post id.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", metavar="", help="One JSON document on stdout; ids are strings.")]
Way = Annotated[
    str | None,
    typer.Option(
        "--engines",
        parser=way,
        metavar="WAY",
        show_default=False,
        help="auto, yours (FEEDLAB_*_URL), containers (Docker) or embedded (packages).",
    ),
]
Directed = Annotated[
    bool | None,
    typer.Option(
        "--directed/--undirected",
        metavar="",
        show_default=False,
        help="Whether a line is one follow or two; without it the file decides.",
    ),
]
