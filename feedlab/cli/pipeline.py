"""`load`, `relay`, `fanout`, `set`: the graph, the two loops that move a post, and the live knobs."""

import signal
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ..addresses import away
from .app import PIPELINE, AsJson, Directed, command, file, knob


@command(
    PIPELINE,
    "feedlab load data/follows.csv.gz",
    "feedlab load facebook_combined.txt.gz --undirected",
    "feedlab load follows.csv --directed --json",
)
def load(
    graph: Annotated[
        Path,
        typer.Argument(
            parser=file,
            metavar="GRAPH",
            show_default=False,
            help="Edge list: text or CSV, gzipped or not, with or without a header.",
        ),
    ],
    directed: Directed = None,
    json: AsJson = False,
) -> None:
    """Load a follow graph, and say how it was understood. What is there already is kept; loading twice is harmless."""
    from .. import timeline
    from ..lab.graph import load_graph, read_graph
    from . import show
    from .opened import store

    g = read_graph(graph, directed)
    if not json:
        show.line(g.description())
    with store() as s, show.progress("loading") as say:
        r = timeline.connect(s.addresses.redis_url)  # before anything is changed: feeds must be dropped afterwards
        counts = load_graph(s.conn, g, say)
        # A load sends no events: feeds that were built before it lack the new follows. Also when none is new, since an
        # earlier load may have died before this line.
        dropped = timeline.drop_all(r, s.settings.namespace)
        r.close()
    if json:
        show.document(
            {
                "source": g.source,
                "form": g.form,
                "directed": g.directed,
                "why": g.why,
                "dropped": g.dropped,
                "description": g.description(),
                **counts,
                "timelines_dropped": dropped,
            }
        )
    else:
        show.line(
            f"loaded: {show.count(counts['new_users'], 'new user')} and {show.count(counts['new_follows'], 'new follow')}; "
            f"{show.count(dropped, 'timeline')} dropped, to be rebuilt at the next read"
        )


# --- the two loops ---------------------------------------------------------------------------------------------------


@command(PIPELINE, "feedlab relay", "FEEDLAB_NAMESPACE=class1 feedlab relay")
def relay() -> None:
    """Step 2: move outbox rows to Kafka until Ctrl-C or SIGTERM. Two at once share the work.

    An engine that is away is waited for. Exit code 0 when told to stop.
    """
    from ..relay import Relay
    from . import show

    with told_to_stop() as stop:
        s, a = loop_start("relay", stop)
        moved = Relay(s, a.postgres_url, a.kafka_bootstrap).run(stop, say)
        say(f"relay: stopped, {show.count(moved, 'row')} moved to Kafka")


@command(PIPELINE, "feedlab fanout", "FEEDLAB_BATCH=200 feedlab fanout", "feedlab fanout --policy policy.toml")
def fanout(
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy",
            parser=file,
            metavar="FILE",
            show_default=False,
            help="Decide by this policy.toml (`feedlab policy export` writes one) instead of the live threshold.",
        ),
    ] = None,
) -> None:
    """Step 3: deliver Kafka records to feeds until Ctrl-C or SIGTERM. Several at once share the partitions.

    An engine that is away is waited for. Exit code 0 when told to stop.
    """
    from ..fanout import FanOut
    from . import show

    options = {}
    if policy is not None:
        from ..core.policy import name_of
        from ..policies import files

        loaded = files.load(policy)
        options = {"decide": loaded.policy, "rates": loaded.rates}
        say(f"fanout: decides by {policy}: {name_of(loaded.policy)}")
    with told_to_stop() as stop:
        s, a = loop_start("fanout", stop)
        done = FanOut(s, a.postgres_url, a.redis_url, a.kafka_bootstrap, **options).run(stop, say)
        say(
            f"fanout: stopped, {show.count(done.records, 'record')}, {show.count(done.deliveries, 'feed write')}, "
            f"{show.count(done.dead, 'dead letter')}"
        )


def say(text: str) -> None:
    print(text, flush=True)  # a log: each line at once, also into a file


@contextmanager
def told_to_stop():
    """Gives `stop()`: whether SIGINT or SIGTERM has come. A second one ends the process at once."""
    stop = threading.Event()
    wanted = signal.SIGINT, signal.SIGTERM

    def told(number, _frame):
        stop.set()
        for n in wanted:
            signal.signal(n, signal.SIG_DFL)

    before = {n: signal.signal(n, told) for n in wanted}
    try:
        yield stop.is_set
    finally:
        for n, handler in before.items():
            signal.signal(n, handler)


def loop_start(name: str, stop):
    """Settings and addresses for a loop, tables and topics made. Waits for engines that are away, once said.

    Raises BadInput for an address that can never answer.
    """
    import time

    from .. import db, engines, kafka
    from ..config import settings
    from ..core.codec import Names
    from ..errors import EngineDown
    from .opened import check_addresses

    s = settings()
    a = engines.addresses(s, running=False)
    check_addresses(a)
    say(f"{name}: starts in namespace {s.namespace}; Ctrl-C stops it")
    trouble = False
    while not stop():
        try:
            conn = db.connect(a.postgres_url, s.namespace)
            try:
                db.apply_schema(conn, s)
            finally:
                conn.close()
            kafka.ensure_topics(a.kafka_bootstrap, Names(s.namespace), s.partitions, timeout_s=3)
            break
        except (EngineDown, *db.AWAY) as e:
            if not trouble:
                say(f"{name}: waiting, since {_why(e, a)}")
            trouble = True
            time.sleep(0.2)
    return s, a


def _why(e: BaseException, a) -> str:
    """Host, port, or another program on that port: which is it? Else what the driver said."""
    from ..engines import external

    for name in ("postgres", "kafka"):
        if why := external.unreachable(name, a.of(name)):
            return f"{external.TITLES[name]} does not answer: {why}"
    return away(e, postgres=a.postgres_url, redis=a.redis_url, kafka=a.kafka_bootstrap)


# --- the live knobs --------------------------------------------------------------------------------------------------


@command(
    PIPELINE, "feedlab set", "feedlab set threshold=50 feed_max=300", "feedlab set threshold=200 --json", name="set"
)
def set_(
    knobs: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=VALUE...", show_default=False, help="threshold (followers), feed_max (entries)."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Move the live knobs; the running consumer sees them at its next batch. Without arguments: show them."""
    from .. import db
    from . import show
    from .opened import store

    values = dict(map(knob, knobs or []))
    with store() as s:
        if values:
            db.set_knobs(s.conn, **values)
        now = db.knobs(s.conn)
    if json:
        show.document(now)
    else:
        show.line(" ".join(f"{k}={v}" for k, v in sorted(now.items(), reverse=True)))
