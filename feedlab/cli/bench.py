"""`bench` and `load-test`: what each station costs beside what one would use instead, and the API under a mix of requests."""

from pathlib import Path
from typing import Annotated

import typer

from ..errors import EngineDown
from .app import LAB, command, file, number_option

STATIONS = ("delivery", "push", "relay", "page", "cold", "visible", "memory", "scaling", "growth")
MIXES = ("article", "deathstar", "retwis")


def _station(value) -> str:
    if value in STATIONS:
        return value
    raise typer.BadParameter(f"{value!r} is not a station; stations are {', '.join(STATIONS)}.")


def _mix(value) -> str:
    if value in MIXES:
        return value
    raise typer.BadParameter(f"{value!r} is not a mix; mixes are {', '.join(MIXES)}.")


GraphFile = Annotated[
    Path | None,
    typer.Option("--graph", parser=file, metavar="FILE", show_default=False, help="Edge list; left out: the generated graph in data/."),
]
Out = Annotated[str | None, typer.Option("--json", metavar="OUT", show_default=False, help="Write the figures as JSON; - is stdout.")]


@command(
    LAB,
    "feedlab bench",
    "feedlab bench delivery relay --json bench.json",
    "feedlab bench --report bench.html",
    "feedlab bench --quick",
    "feedlab bench push --graph facebook_combined.txt.gz",
)
def bench(
    station: Annotated[
        list[str] | None,
        typer.Argument(parser=_station, metavar="[STATION]...", show_default=False, help=f"Of {', '.join(STATIONS)}; none: all."),
    ] = None,
    json: Out = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="OUT.html", show_default=False, help="Write an HTML report with pictures.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", metavar="", help="Seconds instead of minutes: a look, nothing to quote.")] = False,
    graph: GraphFile = None,
) -> None:
    """Measure every station side by side with the bare engine, with the textbook and with pull. About five minutes for all.

    The engines must be up; nothing else should keep the machine busy. Works in namespaces of its own, which it removes.
    A bound that is not kept is said in the table; the exit code is 0 all the same: a slow machine is no failure.
    """
    from .. import engines
    from ..bench import table
    from ..bench.report import write_report
    from ..config import settings
    from . import outputs, show

    s = outputs.own_namespace(settings(), "bench")
    out, page = outputs.writable(json, report)
    outputs.graph_exists(graph)
    addresses = engines.addresses(s)
    with show.stages() as say:
        result = table.run(s, addresses, station or (), quick=quick, options={"push": {"graph": graph}} if graph else None, say=say)
    if page:
        result["report"] = str(write_report(result, page))
    outputs.given(result, out, json)
    print_table(result, stderr=json == "-")
    if page:
        show.line(f"report: {page}", err=json == "-")
    if result["failed"]:
        raise EngineDown("; ".join(f"{name} was not measured: {why}" for name, why in result["failed"].items()))


@command(
    LAB,
    "feedlab load-test",
    "feedlab load-test --mix deathstar --graph socfb-Reed98.edges --seconds 20",
    "feedlab load-test --mix retwis --clients 8 --json load.json",
    "feedlab load-test --url http://127.0.0.1:8080 --graph follows.csv.gz",
    name="load-test",
)
def load_test(
    mix: Annotated[
        str, typer.Option("--mix", parser=_mix, metavar="NAME", help="article: 20 reads a post; deathstar: 60 % feed, 30 % an author, "
                          "10 % post, pages of 10; retwis: 5 % new user, 15 % follow, 30 % post, 50 % feed.")
    ] = "article",
    seconds: Annotated[int, number_option("--seconds", "a number of seconds", "How long.", 1, 86_400)] = 10,
    clients: Annotated[int, number_option("--clients", "a number of clients", "Requests at once; each waits for its answer.", 1, 256)] = 4,
    graph: GraphFile = None,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", show_default=False,
                     help="An API that runs already, with this graph loaded; left out: one is started, with relay and consumer."),
    ] = None,
    seed: Annotated[int, number_option("--seed", "a seed", "The same seed draws the same requests.")] = 1,
    json: Out = None,
) -> None:
    """Send the HTTP API a mix of requests and report p50, p99 and errors of each operation. The exit code is 1 when there was an error.

    Without --url it works in the namespace load (unless another is named), which it empties before and after.
    """
    from .. import engines
    from ..bench import load
    from ..config import settings
    from . import outputs, show

    s = outputs.own_namespace(settings(), "load")
    out, _ = outputs.writable(json, None)
    outputs.graph_exists(graph)
    if url is not None:
        load.check_url(url)
    with show.stages() as say:
        addresses = None if url else engines.addresses(s)
        result = load.run(s, addresses, mix, seconds=seconds, clients=clients, graph=graph, url=url, seed=seed, say=say)
    outputs.given(result, out, json)
    _print_load(result, stderr=json == "-")
    raise typer.Exit(1 if result["errors"] else 0)


def print_table(result: dict, stderr: bool = False) -> None:
    """Every row: ours, the other, the ratio over the rounds, the bound and whether it is kept."""
    from ..bench.report import figure, ratio
    from . import show

    t = show.table("feedlab bench" + (" (quick: nothing to quote)" if result["quick"] else ""), "Station", "Measured", "Ours", "Beside",
                   "That one", "Ratio (rounds)", "Must be", "Kept", keep=("Station", "Ours", "That one", "Ratio (rounds)", "Must be"))
    for n in (2, 4, 5):
        t.columns[n].justify = "right"
    for r in result["rows"]:
        kept = "" if r["reached"] is None else "yes" if r["reached"] else "NO"
        ours, other = figure(r["ours"], r["unit"]), figure(r["other"], r["unit"])
        t.add_row(r["station"], r["what"], ours, r["beside"], other, ratio(r), r["bound"], kept, style="red" if kept == "NO" else None)
    show.console(stderr).print(t)
    bound = [r for r in result["rows"] if r["reached"] is not None]
    kept, m = sum(r["reached"] for r in bound), result["machine"]
    show.line(f"{kept} of {len(bound)} bounds kept in {result['seconds']:.0f} s; load of the machine at the end "
              f"{m['load_1m'] or 0:.1f} on {m['cores']} cores", err=stderr)


def _print_load(result: dict, stderr: bool = False) -> None:
    from . import show

    t = show.table(f"feedlab load-test --mix {result['mix']}", "Operation", "Requests", "p50", "p99", "Errors", keep=("Operation",))
    for n in (1, 2, 3, 4):
        t.columns[n].justify = "right"
    for name, o in result["operations"].items():
        t.add_row(name, f"{o['requests']:,}", f"{o['p50_ms']:.1f} ms", f"{o['p99_ms']:.1f} ms", str(o["errors"]),
                  style="red" if o["errors"] else None)
    show.console(stderr).print(t)
    show.line(f"{result['requests']:,} requests in {result['seconds']:.1f} s by {result['clients']} clients: "
              f"{result['requests_a_second']:,.0f} a second, {show.count(result['errors'], 'error')}", err=stderr)
    for example in result["examples"]:
        show.line(f"  {example}", err=stderr)
