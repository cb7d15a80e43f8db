"""`check`: random histories on live engines, every page judged; and the fault catalogue by name."""

from pathlib import Path
from typing import Annotated

import typer

from .app import LAB, AsJson, command, number_option


def _system(value) -> str:
    if value in ("ours", "textbook"):
        return value
    raise typer.BadParameter(f"{value!r} is neither ours nor textbook.")


@command(
    LAB,
    "feedlab check",
    "feedlab check --histories 300 --seed 1",
    "feedlab check --system textbook --histories 50",
    "feedlab check --faults kill,eviction --json",
    "feedlab check --replay .feedlab/histories/seed-1-history-0.json --system textbook",
)
def check(
    histories: Annotated[
        int, number_option("--histories", "a number of histories", "Random histories, beside the catalogue.", 0, 10**7)
    ] = 50,
    seed: Annotated[
        int | None, number_option("--seed", "a seed", "The same seed, the same histories.", show_default=False)
    ] = None,
    system: Annotated[
        str, typer.Option("--system", parser=_system, metavar="NAME", help="ours, or textbook: the design as printed.")
    ] = "ours",
    faults: Annotated[
        str | None,
        typer.Option("--faults", metavar="WORDS", show_default=False, help="Only these, with commas: kill,eviction ..."),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option("--replay", metavar="FILE", show_default=False, help="One history that an earlier check has kept."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run histories of posts, follows, kills, evictions, moved thresholds on live engines, and hold every page against what was done.

    The engines must be up. The exit code is 1 when anything is wrong; the first random history that went wrong is shrunk and kept.
    """
    from .. import engines
    from ..config import settings
    from ..verify import checking
    from . import show

    s, only = settings(), checking.words(faults)
    with show.stages() as say:
        result = checking.run(
            s, engines.addresses(s), histories=histories, seed=seed, system=system, only=only, replay=replay, say=say
        )
    if as_json:
        show.document(result)
    else:
        _print(result)
    raise typer.Exit(1 if result["wrong"] else 0)


def _print(r: dict) -> None:
    from . import show

    used = ", ".join(f"{name} {n}" for name, n in r["faults_used"].items())
    show.line(
        f"{r['system']}: {show.count(r['histories'], 'history')} and {r['catalogue']} of the catalogue, {r['pages']:,} pages, "
        f"{show.count(r['wrong'], 'history')} wrong, seed {r['seed']}, {r['seconds']} s"
    )
    show.line(f"histories holding: {used or 'no fault'}")
    for sentence in r["verdicts"][:60]:
        show.line(f"  {sentence}")
    if len(r["verdicts"]) > 60:
        show.line(f"  and {len(r['verdicts']) - 60} more; --json has them all")
    if r["named"]:
        show.line(f"found by name: {', '.join(r['named'])}")
    if r["replay"]:
        show.line(f"the first random one that went wrong, shrunk: {r['replay']}")
