"""`feedlab policy ...`: what each fan-out policy costs on a follow graph, and the file that the consumer loads."""

import math
import re
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import BadInput
from .app import LAB, AsJson, Directed, app, file, whole

EXAMPLES = (
    "feedlab policy compare --graph article",
    "feedlab policy compare --graph follows.csv --rates activity.csv --policy threshold:500 --policy min-cost --scale 300e6",
    "feedlab policy sweep --graph follows.csv --threshold 50:50000 --feed-max 300,500 --json",
    "feedlab policy report --graph follows.csv --out report.html",
    "feedlab policy export --graph follows.csv --out policy.toml",
    "feedlab policy calibrate",
    "feedlab policy check --graph data/follows.csv.gz --rates data/activity.csv --policy threshold:200",
)


def _epilog(*examples: str) -> str:
    return "Examples:\n\n" + "\n\n".join(f"$ {e}" for e in examples)


policy = typer.Typer(
    add_completion=False, no_args_is_help=True, rich_markup_mode="rich", epilog=_epilog(*EXAMPLES),
    help="Push or pull? Compare fan-out policies on your own follow graph, and export the one to run.",
)
app.add_typer(policy, name="policy", rich_help_panel=LAB, epilog=_epilog(*EXAMPLES))


def sub(name: str, *examples: str):
    return policy.command(name, epilog=_epilog(*examples))


# --- what may be typed --------------------------------------------------------------------------------------------------


def number(what: str, least: float = 0, most: float = math.inf, above: bool = False):
    """A parser of numbers, 300e6 included."""

    def parse(value) -> float:
        try:
            found = float(str(value).replace("_", ""))
        except ValueError:
            found = math.nan
        if not (least < found if above else least <= found) or found > most or math.isinf(found):
            raise typer.BadParameter(f"{str(value)[:40]!r} is not {what} (a number {'above' if above else 'from'} {least:g}).")
        return found

    return parse


def columns(value) -> tuple[str, str]:
    names = [c.strip() for c in str(value).split(",")]
    if len(names) != 2 or not all(names):
        raise typer.BadParameter("two names are wanted: FOLLOWER,FOLLOWEE.")
    return names[0], names[1]


def span(value) -> tuple[int, int]:
    """A:B in followers."""
    found = re.fullmatch(r"(\d{1,12}):(\d{1,12})", str(value))
    if not found or not 1 <= int(found[1]) <= int(found[2]):
        raise typer.BadParameter(f"{str(value)[:40]!r} is not a range of followers such as 100:50000.")
    return int(found[1]), int(found[2])


def several(value) -> list[int]:
    parts = str(value).split(",")
    if not all(re.fullmatch(r"\d{1,6}", p.strip()) and 1 <= int(p) <= 100_000 for p in parts):
        raise typer.BadParameter(f"{str(value)[:40]!r} is not a list of entries from 1 to 100000, such as 300,500.")
    return [int(p) for p in parts]


def _option(name: str, parser, metavar: str, help: str):
    return typer.Option(name, parser=parser, metavar=metavar, show_default=False, help=help)


GraphFile = Annotated[str, typer.Option(
    "--graph", metavar="FILE", help="Edge list, CSV, Parquet, Matrix Market, GML, GraphML, a degree histogram or sample, gz or zst; or "
    "article, article-lognormal, facebook-2011, twitter-2009, generated.")]
Kind = Annotated[str, typer.Option("--kind", metavar="KIND", help="auto, edges, histogram (followers,users) or sample (a count a line).")]
Columns = Annotated[str | None, _option("--columns", columns, "A,B", "Names of the id columns, follower first.")]
RatesFile = Annotated[Path | None, _option("--rates", file, "FILE", "CSV with user, posts_a_day, reads_a_day and perhaps away_days.")]
PostsADay = Annotated[float, _option("--posts", number("a number of posts a day"), "N", "Posts a day of whoever is not in --rates (0.5).")]
ReadsADay = Annotated[float, _option("--reads", number("a number of reads a day"), "N", "Reads a day of whoever is not in --rates (10).")]
Spread = Annotated[bool, typer.Option("--spread", metavar="", help="Of a histogram: spread the rates, not everybody alike.")]
Policies = Annotated[list[str] | None, typer.Option("--policy", metavar="KIND[:N,...]", show_default=False,
                                                    help="Such as threshold:500, hysteresis:400,500, min-cost; several times. None: all.")]
Scale = Annotated[float | None, _option("--scale", number("a number of users", 1, 1e12), "N", "Users that the graph stands for.")]
FeedMax = Annotated[int, _option("--feed-max", whole("a number of entries", 1, 100_000), "N", "Entries of a feed (500).")]
Layout = Annotated[str, typer.Option("--layout", metavar="NAME", help="Redis layout: valkey-9.1 or redis-7.0.")]
Listpack = Annotated[int, _option("--listpack", whole("a number of members", 0, 10**6), "N", "zset-max-listpack-entries (128).")]
Peak = Annotated[float, _option("--peak", number("a peak", 1), "X", "Peak rate over the mean (3).")]
Fresh = Annotated[float, _option("--fresh", number("seconds", 0, above=True), "S", "Seconds that the largest pushed author may take (5).")]
Copies = Annotated[float, _option("--copies", number("a share", 0, 1), "X", "Share of pulls served by a process's own copy (0).")]
Seed = Annotated[int, _option("--seed", whole("a seed"), "N", "Same seed, same draws (1).")]
Repetitions = Annotated[int, _option("--repetitions", whole("a number of repetitions", 1, 1000), "N", "Drawn days for the spread (10).")]


def _assume(scale, feed_max, layout, listpack, peak, fresh, copies):
    from dataclasses import replace

    from ..config import settings
    from ..lab import calibrate
    from ..policies.simulate import Assumptions, Costs

    known = calibrate.stored(settings())
    costs = replace(known.costs if known else Costs(), copies=copies)
    return Assumptions(costs=costs, scale=scale, feed_max=feed_max, layout=layout, listpack_limit=listpack, peak=peak, fresh_s=fresh)


def _inputs(graph, kind, cols, directed, rates_file, posts, reads, quiet: bool):
    """(graph, rates); says what was understood."""
    from ..core.policy import Rates
    from ..policies import graphs, rates
    from . import show

    if not str(graph):
        raise BadInput("the name of the graph is empty; name a file or a preset.")
    g = graphs.read(graph, directed, kind, cols)
    if not quiet:
        show.line(g.description(), err=True)
    known = rates.read(rates_file, posts, reads) if rates_file else Rates.even(posts, reads)
    if rates_file and isinstance(g, graphs.Degrees):
        raise BadInput("a histogram has no users whose rates could be looked up: leave --rates out, or bring the graph itself.")
    return g, known


def _rules(texts):
    from ..policies import files

    return [files.parse(t) for t in texts or []]


def _study(graph, kind, cols, directed, rates_file, posts, reads, spread, texts, assume, seed, repetitions, quiet, burst=True):
    from ..policies import study
    from . import show

    rules = _rules(texts)
    g, known = _inputs(graph, kind, cols, directed, rates_file, posts, reads, quiet)
    with show.stages() as say:
        return study.run(g, known, rules, assume, spread=spread, seed=seed, repetitions=repetitions, burst=burst, progress=say), known


def _command() -> str:
    return shlex.join(["feedlab", *sys.argv[1:]])


# --- the commands -----------------------------------------------------------------------------------------------------


@sub("compare", *EXAMPLES[:2], "feedlab policy compare --graph histogram.csv --spread --json")
def compare(
    graph: GraphFile = "article", kind: Kind = "auto", cols: Columns = None, directed: Directed = None, rates: RatesFile = None,
    posts: PostsADay = 0.5, reads: ReadsADay = 10.0, spread: Spread = False, policies: Policies = None, scale: Scale = None,
    feed_max: FeedMax = 500, layout: Layout = "valkey-9.1", listpack: Listpack = 128, peak: Peak = 3.0, fresh: Fresh = 5.0,
    copies: Copies = 0.0, seed: Seed = 1, repetitions: Repetitions = 10, json: AsJson = False,
) -> None:
    """Compare policies: feed writes, pulls, cores, memory, freshness, lag in a burst; with the spread of drawn days, and what would
    flip the advice."""
    from . import show

    assume = _assume(scale, feed_max, layout, listpack, peak, fresh, copies)
    s, _ = _study(graph, kind, cols, directed, rates, posts, reads, spread, policies, assume, seed, repetitions, json)
    if json:
        show.document([o.as_dict() for o in s.outcomes])
        return
    from ..policies import study
    from ..policies.report import COLUMNS
    from ..policies.report import number as shown

    table = show.table(None, *(title for _, title, _ in COLUMNS), "visible p99 in a burst, s", keep=("policy",))
    for o in s.outcomes:
        table.add_row(*(shown(getattr(o, name), k) for name, _, k in COLUMNS), shown(o.burst.get("fresh_s_p99")))
    show.console().print(table)
    show.line(study.tail_sentence(s.tail, s.people.exact))
    show.line(f"H {assume.costs.delivery_s * 1e6:.1f} µs a feed write, L {assume.costs.l_s * 1e6:.1f} µs a pull: {assume.costs.source}.")
    if s.advised is None:
        show.line(f"No exact policy delivers its largest author in {fresh:g} s; allow more with --fresh, or try a lower threshold.")
        return
    show.line(f"Advised: {s.advised.policy}, the least CPU of those that are exact and deliver the largest author in {fresh:g} s.")
    for f in s.flips[:4]:
        show.line(f"  {f['input']} x {f['factor']:.3g} would flip it to {f['to']}.")


@sub("sweep", EXAMPLES[2], "feedlab policy sweep --graph article --threshold 100:1000000 --steps 20")
def sweep(
    graph: GraphFile = "article", kind: Kind = "auto", cols: Columns = None, directed: Directed = None, rates: RatesFile = None,
    posts: PostsADay = 0.5, reads: ReadsADay = 10.0, spread: Spread = False, scale: Scale = None,
    threshold: Annotated[str, _option("--threshold", span, "A:B", "Followers, from and to (10:1000000).")] = "10:1000000",
    steps: Annotated[int, _option("--steps", whole("a number of steps", 1, 200), "N", "Thresholds between, evenly by ratio (12).")] = 12,
    feed_maxes: Annotated[str, _option("--feed-max", several, "N,...", "Entries of a feed (500).")] = "500",
    layout: Layout = "valkey-9.1", listpack: Listpack = 128, peak: Peak = 3.0, fresh: Fresh = 5.0, copies: Copies = 0.0,
    seed: Seed = 1, repetitions: Repetitions = 10, json: AsJson = False,
) -> None:
    """A threshold after the other, for each FEED_MAX: what each costs."""
    from ..policies import simulate, study
    from . import show

    assume = _assume(scale, 500, layout, listpack, peak, fresh, copies)
    g, known = _inputs(graph, kind, cols, directed, rates, posts, reads, json)
    with show.stages() as say:
        rows = study.sweep(simulate.population(g, known, spread), study.steps(*threshold, steps), feed_maxes, assume,
                           seed=seed, repetitions=repetitions, progress=say)
    if json:
        show.document(rows)
        return
    from ..policies.report import number as shown

    table = show.table(None, "threshold", "FEED_MAX", "feed writes a day", "pulls a day", "sources a page", "CPU s a day", "Redis",
                       "largest author, s")
    for r in rows:
        table.add_row(f"{r['threshold']:,}", f"{r['feed_max']:,}", *(shown(r[k]) for k in (
            "deliveries_per_day", "pulls_per_day", "sources_per_page", "cpu_seconds_per_day")), shown(r["redis_bytes"], "b"),
            shown(r["largest_fan_out_seconds"]))
    show.console().print(table)


@sub("report", EXAMPLES[3])
def report(
    out: Annotated[Path, typer.Option("--out", metavar="OUT.html", show_default=False, help="The file to write.")],
    graph: GraphFile = "article", kind: Kind = "auto", cols: Columns = None, directed: Directed = None, rates: RatesFile = None,
    posts: PostsADay = 0.5, reads: ReadsADay = 10.0, spread: Spread = False, policies: Policies = None, scale: Scale = None,
    feed_max: FeedMax = 500, layout: Layout = "valkey-9.1", listpack: Listpack = 128, peak: Peak = 3.0, fresh: Fresh = 5.0,
    copies: Copies = 0.0, seed: Seed = 1, repetitions: Repetitions = 10,
) -> None:
    """The comparison as one HTML file that needs nothing else: table, Pareto front, what flips the advice, predicted against measured,
    assumptions, versions, how to repeat it."""
    from ..config import settings
    from ..lab import calibrate, policy_run
    from ..policies import report as reports
    from . import show

    _room(out)
    assume = _assume(scale, feed_max, layout, listpack, peak, fresh, copies)
    s, _ = _study(graph, kind, cols, directed, rates, posts, reads, spread, policies, assume, seed, repetitions, False)
    known = settings()
    reports.write(s, out, _command(), policy_run.stored(known), calibrate.stored(known))
    show.line(f"written: {out}")


@sub("export", EXAMPLES[4], "feedlab policy export --policy min-cost:0.2 --rates activity.csv --graph follows.csv --out policy.toml")
def export(
    out: Annotated[Path, typer.Option("--out", metavar="OUT.toml", show_default=False, help="The file to write.")],
    graph: GraphFile = "article", kind: Kind = "auto", cols: Columns = None, directed: Directed = None, rates: RatesFile = None,
    posts: PostsADay = 0.5, reads: ReadsADay = 10.0, spread: Spread = False, policies: Policies = None, scale: Scale = None,
    feed_max: FeedMax = 500, layout: Layout = "valkey-9.1", listpack: Listpack = 128, peak: Peak = 3.0, fresh: Fresh = 5.0,
    copies: Copies = 0.0, seed: Seed = 1,
) -> None:
    """Write the policy that is advised (or the one --policy) as a file that `feedlab fanout --policy` loads; rates that it asks for go
    beside it."""
    from .. import __version__
    from ..policies import files
    from . import show

    _room(out)
    if policies and len(policies) > 1:
        raise BadInput("one policy can be exported: give --policy once, or not at all for the advised one.")
    assume = _assume(scale, feed_max, layout, listpack, peak, fresh, copies)
    s, known = _study(graph, kind, cols, directed, rates, posts, reads, spread, policies, assume, seed, 2, True, burst=False)
    chosen = s.outcomes[0] if policies else s.advised
    if chosen is None:
        raise BadInput(f"no exact policy delivers its largest author in {fresh:g} s: allow more with --fresh, or name one with --policy.")
    written = files.write(out, s.rule(chosen.policy), known, {
        "graph": s.graph.source, "users": chosen.users, "write_amplification": chosen.write_amplification,
        "deliveries_per_day": chosen.deliveries_per_day, "feedlab": __version__})
    show.line(f"written: {', '.join(map(str, written))}: {chosen.policy}, {chosen.write_amplification:.4g} feed writes a post here")
    show.line(f"run it: feedlab fanout --policy {shlex.quote(str(out))}")


def _room(out: Path) -> None:
    """Whether the place can be written at all, before minutes of work."""
    place = Path(out).expanduser()
    if not str(out) or place.is_dir() or not place.parent.is_dir():
        raise BadInput(f"{str(out)!r} cannot be written: name a file in a folder that exists.")


@sub("calibrate", "feedlab policy calibrate", "feedlab policy calibrate --json")
def calibrate_(json: AsJson = False) -> None:
    """Measure what a feed write (H) and a pull (L) cost on the engines that are up, in a namespace of its own that is removed. Under two
    minutes; best when nobody else uses them. Later comparisons take these figures."""
    from .. import engines
    from ..config import settings
    from ..lab import calibrate
    from . import show

    s = settings()
    with show.stages() as say:
        made = calibrate.run(s, engines.addresses(s), say)
    if json:
        show.document(made.as_dict())
        return
    c = made.costs
    table = show.table(None, "quantity", "measured")
    for name, value in (
        ("H, CPU of a feed write", f"{c.delivery_s * 1e6:.1f} µs"), ("L, CPU of a pull", f"{c.pull_s * 1e6:.1f} µs"),
        ("a pull from an own copy", f"{c.copy_s * 1e6:.1f} µs"), ("a page without pulls", f"{c.page_s * 1e3:.2f} ms"),
        ("a post before its first feed write", f"{c.post_s * 1e6:.0f} µs"), ("a pulled post, beyond that", f"{c.flag_s * 1e6:.0f} µs"),
        ("a follower asked about edge by edge", f"{c.walk_s * 1e6:.1f} µs"),
        ("consumer", f"{c.deliveries_a_second:,.0f} feed writes a second"),
        ("relay", f"{made.relay_rows_a_second:,.0f} rows a second"),
        *((f"feed of {n} entries", f"{b[0]:,} B (model {b[1]:,} B)") for n, b in made.bytes.items()),
    ):
        table.add_row(name, value)
    show.console().print(table)
    show.line(f"CPU counted of {made.covers}; {made.machine}; {made.seconds:.0f} s; kept for later comparisons.")


@sub("check", EXAMPLES[6], "feedlab policy check --policy min-cost:0.2 --json",
     "feedlab policy check --policy push-all --burst higgs-activity_time.txt.gz")
def check(
    graph: GraphFile = "data/follows.csv.gz", kind: Kind = "edges", cols: Columns = None, directed: Directed = None,
    rates: RatesFile = None,
    posts_a_day: PostsADay = 0.5, reads: ReadsADay = 10.0, policies: Policies = None, feed_max: FeedMax = 500,
    posts: Annotated[int, _option("--count", whole("a number of posts", 1, 100_000), "N", "Posts to write (500).")] = 500,
    burst: Annotated[Path | None, _option("--burst", file, "TRACE", "Also replay this trace's busiest hour in ten seconds.")] = None,
    seed: Seed = 1, json: AsJson = False,
) -> None:
    """Predicted against measured: the graph, the rates and one policy through the real pipeline, in a namespace of its own that is removed.
    Exit code 1 when write amplification or bytes are not as predicted."""
    from .. import engines
    from ..config import settings
    from ..core.policy import Threshold, name_of
    from ..lab import calibrate, policy_run
    from ..policies import rates as rate_files
    from . import show

    rules = _rules(policies) or [Threshold(200)]
    if len(rules) > 1:
        raise BadInput("one policy can be checked at a time: give --policy once.")
    s = settings()
    g, known = _inputs(graph, kind, cols, directed, rates, posts_a_day, reads, json)
    trace = rate_files.read_trace(burst) if burst else None
    a = engines.addresses(s)
    with show.stages() as say:
        measured = (calibrate.stored(s) or calibrate.run(s, a, say)).costs
        rows = policy_run.check(s, a, g, known, rules[0], measured, posts=posts, feed_max=feed_max, seed=seed, progress=say)
        if trace is not None:
            rows.append(policy_run.replay(s, a, g, known, rules[0], trace, seed=seed, progress=say)["row"])
    rows = [r | {"of": f"{g.source}, {name_of(rules[0])}"} for r in rows]
    policy_run.keep(s, rows)
    if json:
        show.document(rows)
    else:
        from ..policies.report import number as shown

        table = show.table(None, "quantity", "predicted", "measured", "unit", "off", "bound", "")
        for r in rows:
            table.add_row(r["quantity"], shown(r["predicted"]), shown(r["measured"]), r["unit"], f"{r['off']:.1%}", f"{r['bound']:.0%}",
                          "within" if r["within"] else "BEYOND")
        show.console().print(table)
    if not all(r["within"] for r in rows[:2]):
        raise typer.Exit(1)
