"""`demo`: the main job on real input, its figures, and a picture of them."""

from pathlib import Path
from typing import Annotated

import typer

from .app import LAB, Directed, command, file, number_option

Graph = Annotated[
    Path | None,
    typer.Option(
        "--graph", parser=file, metavar="FILE", show_default=False, help="Edge list; left out: the generated graph in data/."
    ),
]


@command(
    LAB,
    "feedlab demo",
    "feedlab demo --posts 500 --threshold 200 --feed-max 300",
    "feedlab demo --graph facebook_combined.txt.gz --threshold 200 --json out.json",
    "feedlab demo --posts 300 --json - > figures.json",
    "FEEDLAB_NAMESPACE=try feedlab demo --report try.html",
)
def demo(
    graph: Graph = None,
    directed: Directed = None,
    threshold: Annotated[
        int | None,
        number_option(
            "--threshold", "a number of followers", show_default=False, help="Followers from which an author is pulled."
        ),
    ] = None,
    feed_max: Annotated[
        int | None,
        number_option(
            "--feed-max", "a number of entries", "Entries that a timeline keeps.", 1, 100_000, show_default=False
        ),
    ] = None,
    posts: Annotated[
        int, number_option("--posts", "a number of posts", "Posts to write, and pages to read.", 1, 100_000_000)
    ] = 2_000,
    seed: Annotated[int, number_option("--seed", "a seed", "The same seed draws the same world.")] = 1,
    sample: Annotated[
        int, number_option("--sample", "a number of users", "Users whose whole scroll is held against SQL.", 1)
    ] = 100,
    json: Annotated[
        str | None,
        typer.Option("--json", metavar="OUT", show_default=False, help="Write the figures as JSON; - is stdout."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="OUT.html",
            show_default=False,
            help="Where the picture goes; left out: the state folder.",
        ),
    ] = None,
) -> None:
    """Load a graph, write posts and read pages while relay and consumer run, and hold the outcome against SQL.

    Starts the engines if needed. Works in the namespace demo, unless another is named: it empties that first and leaves it
    filled, to be looked at (feedlab -n demo feed 7).
    The exit code is 1 when a scroll differs from the SQL answer.
    """
    from ..config import settings
    from . import outputs, show

    s = outputs.own_namespace(settings(), "demo")
    outputs.graph_exists(graph)
    out, report = outputs.writable(json, report)
    to_stderr = json == "-"
    result = perform(
        s,
        graph=graph,
        directed=directed,
        posts=posts,
        threshold=threshold,
        feed_max=feed_max,
        seed=seed,
        sample=sample,
        report=report or s.state_dir / f"{s.namespace}.html",
    )
    outputs.given(result, out, json)
    equal = summary(result, to_stderr)
    show.line(f"picture: {result['report']}", err=to_stderr)
    raise typer.Exit(0 if equal else 1)


def perform(s, **options) -> dict:
    """Engines up, then the demo, with progress on stderr."""
    from .. import engines
    from . import show

    with show.progress("starting the engines") as say:
        addresses = engines.up(s, say)
    from ..lab import demo as lab_demo

    with show.stages() as say:
        return lab_demo.run(s, addresses, say=say, **options)


def _n(value, form: str = ",") -> str:
    return "not measured" if value is None else format(value, form)


def _many(value, one: str) -> str:
    from . import show

    return f"{one}s not measured" if value is None else show.count(value, one)


def summary(r: dict, stderr: bool = False) -> bool:
    """Print the figures with what they mean. True when every scroll equals the SQL answer."""
    from ..lab.report import by_sql, encodings
    from . import show

    equal = r["scrolls_equal"] == r["scrolls_checked"]
    seen, sources = r.get("visible_ms") or {}, (r.get("sources_per_page") or {}).get("mean")
    per_entry = r.get("bytes_per_entry")
    rows = [
        ("users", _n(r.get("users")), f"with {_many(r.get('follows'), 'follow')}"),
        ("posts", _n(r.get("posts")), f"in {_n(r.get('seconds'), '.1f')} s, relay and consumer running beside"),
        ("deliveries", _n(r.get("deliveries")), "feed writes, one a follower of each pushed post"),
        ("deliveries by SQL", _n(r.get("deliveries_expected")), by_sql(r)),
        (
            "write amplification",
            _n(r.get("write_amplification"), ",.1f"),
            f"feed writes a post; pure push {_n(r.get('pure_push_write_amplification'), ',.1f')}, pure pull 0",
        ),
        (
            "pull authors",
            _n(r.get("pull_authors")),
            f"authors who posted with {_many(r.get('threshold'), 'follower')} or more",
        ),
        (
            "sources a page",
            _n(sources, ".1f"),
            f"touched to read one; pure pull {_n(r.get('sources_per_page_pull'), ',.1f')}",
        ),
        (
            "bytes an entry",
            _n(per_entry, ".0f"),
            f"in Redis: {encodings(r.get('redis')) or 'encoding unknown'}",
        ),
        ("visible p50", f"{_n(seen.get('p50'), ',.0f')} ms", "from writing a post to its last feed, half of the posts"),
        ("visible p99", f"{_n(seen.get('p99'), ',.0f')} ms", "the same, 99 of 100 posts"),
        (
            "scrolls equal",
            f"{r['scrolls_equal']:,} of {r['scrolls_checked']:,}",
            "users whose whole scroll is the SQL answer" + ("" if equal else ": MUST BE ALL"),
        ),
    ]
    t = show.table("The demo's figures", "Figure", "Value", "Meaning", keep=("Figure", "Value"))
    t.columns[1].justify = "right"
    for row in rows:
        t.add_row(*row, style="red" if row[0] == "scrolls equal" and not equal else None)
    show.console(stderr).print(t)
    return equal
