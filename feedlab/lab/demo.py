"""The main job on real input: a follow graph, posts and reads from a skewed activity model, relay and fan-out as processes of
their own, and at the end the figures, each held against SQL.

Goes on when an engine is killed and comes back: what was being done is done again, and a post is never made twice.
"""
import random
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import psycopg
from confluent_kafka import KafkaException
from redis.exceptions import RedisError

from .. import db, engines, kafka, posts, pull, repair
from ..addresses import Addresses, away
from ..config import Settings, project_root
from ..core.snowflake import Drawn, wall_clock_ms
from ..errors import BadInput, Conflict, EngineDown
from ..reader import scroll
from . import world
from .graph import Graph, load_graph, read_graph
from .session import Lab, open_lab, wipe
from .workers import Workers

DEFAULT_GRAPH = "data/follows.csv.gz"
AWAY = (*db.AWAY, RedisError, KafkaException, EngineDown)
PATIENCE_S = 180       # how long an engine may be away before the demo gives up

# The count that write amplification must equal, made from the graph alone, not from the fan-out's counters.
EXPECTED = """
    with fans as (select followee_id, count(*) n from follows group by followee_id)
    select count(*), coalesce(sum(f.n), 0)::bigint, coalesce(sum(f.n) filter (where f.n < %(threshold)s), 0)::bigint,
           count(distinct p.author_id) filter (where f.n >= %(threshold)s)
    from posts p left join fans f on f.followee_id = p.author_id"""


def _say(text: str, done: int | None = None, total: int | None = None) -> None:
    """The default progress: nothing."""


class Demo:
    """One run. `say(text, done, total)` gets a line, or a stage with how far it is."""

    def __init__(self, settings: Settings, addresses: Addresses, say: Callable = _say):
        self.settings, self.addresses, self.say = settings, addresses, say
        self.lab: Lab | None = None
        self.samples: list[dict] = []
        self.counted, self.seen, self.redis_lost = {}, {}, 0
        self.started = time.monotonic()

    # --- engines may go and come back ----------------------------------------------------------------------------------

    def patiently(self, what: Callable):
        """Run `what()`; while an engine is away, say so once, keep the workers going and try again."""
        until, told = time.monotonic() + PATIENCE_S, False
        while True:
            try:
                if self.lab.conn.closed:
                    self.lab.conn = db.connect(self.addresses.postgres_url, self.settings.namespace)
                result = what()
                if told:
                    self.say("all engines answer again")
                return result
            except AWAY as e:
                if time.monotonic() > until:
                    raise EngineDown(f"gave up after {PATIENCE_S} s: {str(e).splitlines()[0]}") from None
                if not told:
                    a = self.addresses
                    why = away(e, postgres=a.postgres_url, redis=a.redis_url, kafka=a.kafka_bootstrap)
                    self.say(f"waiting, since {why} (`feedlab up` brings an engine back)")
                told = True
                if isinstance(e, db.AWAY):
                    self.lab.conn.close()
                self.workers.watch()
                time.sleep(0.2)

    def sample(self) -> None:
        """One point of lag over time; and the counters, which a Redis that comes back empty starts again from 0."""
        stats = self.lab.stats()
        if stats.get("deliveries", 0) < self.seen.get("deliveries", 0):
            self.redis_lost += 1
            self.counted = self.totals()
        self.seen = stats
        self.samples.append({"t_s": round(time.monotonic() - self.started, 2),
                             "outbox": self.lab.conn.execute("select count(*) from outbox").fetchone()[0],
                             "lag": kafka.lag(self.lab.admin, self.lab.redis, self.lab.names)})

    def totals(self) -> dict[str, int]:
        return {k: self.counted.get(k, 0) + self.seen.get(k, 0) for k in self.counted | self.seen}

    # --- the work ------------------------------------------------------------------------------------------------------------

    def load(self, graph: Graph) -> None:
        self.say(f"loading {len(graph.users):,} users and {len(graph.follower):,} follows")
        self.patiently(lambda: load_graph(self.lab.conn, graph))         # one transaction: all of it or nothing
        stage, users = "building feeds", graph.users.tolist()
        self.patiently(lambda: repair.warm(self.lab.conn, self.lab.redis, self.settings, users,
                                           lambda done: self.say(stage, done, len(users))))

    def write_and_read(self, authors: np.ndarray, readers: np.ndarray) -> list[int]:
        """One post, then one page, over and over; sources a page."""
        sources, every = [], 0.0
        for n, (author, reader) in enumerate(zip(authors.tolist(), readers.tolist(), strict=True)):
            drawn = self.lab.ids.next()
            self.patiently(lambda: self._post(author, n, drawn))                     # noqa: B023
            sources.append(self.patiently(lambda: self.lab.page(reader)).explain.sources)    # noqa: B023
            if time.monotonic() - every > 0.2:
                self.workers.watch()
                self.patiently(self.sample)
                self.say("posting and reading", n + 1, len(authors))
                every = time.monotonic()
        self.say("posting and reading", len(authors), len(authors))
        return sources

    def _post(self, author: int, n: int, drawn: tuple[int, int]) -> None:
        with suppress(psycopg.errors.UniqueViolation):       # the try before had gone through after all
            posts.create(self.lab.conn, Drawn(drawn), self.lab.names, author, f"post {n} of user {author}")

    def drain(self) -> None:
        """Until outbox and lag are 0, at least twice in a row so that nothing hides between the two."""
        until, quiet = time.monotonic() + PATIENCE_S, 0
        while quiet < 2:
            if time.monotonic() > until:
                raise EngineDown(f"not drained after {PATIENCE_S} s: {self.samples[-1]}. See the logs of the workers in "
                                 f"{self.settings.state_dir}/logs.")
            self.workers.watch()
            self.patiently(self.sample)
            last = self.samples[-1]
            quiet = quiet + 1 if last["outbox"] == last["lag"] == 0 else 0
            self.say(f"draining: {last['outbox']} outbox rows, {last['lag']} records behind")
            time.sleep(0.05)
        self.lab.reader.copies.clear()

    def check(self, users: list[int]) -> int:
        """How many of these users' scrolls, page by page to the end, equal the SQL pull answer."""
        equal = 0
        for n, user in enumerate(users):
            def whole(user=user) -> bool:
                got = [i for page in scroll(lambda c: self.lab.page(user, c)) for i in page.ids]
                return got == [e.id for e in pull.everything(self.lab.conn, user)]
            equal += self.patiently(whole)
            self.say("holding scrolls against SQL", n + 1, len(users))
        return equal

    def visible(self) -> list[int]:
        """Milliseconds from a post's time to its last feed, of each post whose trace is still there."""
        rows = self.lab.conn.execute("select id, created_at_ms from posts").fetchall()
        times: list[int] = []
        for at in range(0, len(rows), 1000):
            pipe = self.lab.redis.pipeline(transaction=False)
            for i, _ in rows[at:at + 1000]:
                pipe.hget(self.lab.names.trace(i), "last_ms")
            times += [int(last) - ms for (_, ms), last in zip(rows[at:at + 1000], pipe.execute(), strict=True) if last]
        return times

    def memory(self) -> dict:
        """What the feeds take: bytes by MEMORY USAGE, entries, encodings, and used_memory as a whole."""
        r, size, entries, kinds = self.lab.redis, 0, 0, {}
        keys = list(r.scan_iter(match=self.lab.names.feed("*"), count=1000))
        for at in range(0, len(keys), 500):
            pipe = r.pipeline(transaction=False)
            for key in keys[at:at + 500]:
                pipe.memory_usage(key, samples=0)
                pipe.zcard(key)
                pipe.object("encoding", key)
            rows = pipe.execute()
            for used, n, kind in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
                size, entries = size + (used or 0), entries + max(0, n - 1)       # one member is the floor
                kinds[kind] = kinds.get(kind, 0) + 1
        return {"feeds": len(keys), "feed_bytes": size, "entries": entries, "encodings": kinds,
                "encoding": max(kinds, key=kinds.get) if kinds else "none",
                "used_bytes": r.info("memory")["used_memory"] - self.used_before}


def run(settings: Settings, addresses: Addresses, *, graph: Path | str | None = None, directed: bool | None = None,
        posts: int = 2_000, threshold: int | None = None, feed_max: int | None = None, seed: int = 1, sample: int = 100,
        report: Path | str | None = None, say: Callable = _say) -> dict:
    """Run the demo in the settings' namespace, which is emptied first and left filled, to be looked at. The result is what
    `feedlab demo --json` writes; counts are counts, `visible_ms` is milliseconds, `bytes_per_entry` bytes of MEMORY USAGE.

    Raises BadInput (graph, numbers) and EngineDown.
    """
    for name, value, least in (("posts", posts, 1), ("sample", sample, 1), ("seed", seed, 0)):
        if value < least:
            raise BadInput(f"{name} must be at least {least}, got {value}")
    path = Path(graph) if graph is not None else project_root() / DEFAULT_GRAPH
    g = read_graph(path, directed)
    say(g.description())
    if threshold is None:      # the article's 10,000 of 300 M users; here the celebrity set of the generated graph
        threshold = settings.threshold if "threshold" in settings.model_fields_set else 500
    feed_max = feed_max or settings.feed_max
    with _alone(settings, addresses), open_lab(settings, addresses) as lab:
        wipe(lab)
        db.apply_schema(lab.conn, settings)
        kafka.ensure_topics(addresses.kafka_bootstrap, lab.names, settings.partitions)
        lab.ids = db.ids(lab.conn)
        db.set_knobs(lab.conn, threshold=threshold, feed_max=feed_max)
        demo = Demo(settings, addresses, say)
        demo.lab, demo.used_before = lab, lab.redis.info("memory")["used_memory"]
        with Workers(settings, addresses, say=say) as demo.workers:
            demo.load(g)
            act, began = world.activity(g, seed), time.monotonic()
            sources = demo.write_and_read(world.draw_posts(act, posts, seed), world.draw_reads(act, posts, seed))
            demo.drain()
            seconds = time.monotonic() - began
            users = random.Random(seed).sample(g.users.tolist(), min(sample, len(g.users)))
            equal = demo.check(users)
            result = demo.patiently(lambda: _result(demo, g, path, threshold, feed_max, seed, sources, seconds, users, equal))
    if report is not None:
        from .report import write_report
        result["report"] = str(write_report(result, report))
    return result


@contextmanager
def _alone(settings: Settings, addresses: Addresses):
    """One demo at a time in a namespace: it is emptied at the start. Raises Conflict when another is at it."""
    lock = db.connect(addresses.postgres_url, settings.namespace, "feedlab demo")
    try:                # should PostgreSQL be killed meanwhile, the lock goes with the connection, and that is all
        if not lock.execute("select pg_try_advisory_lock(hashtext(%s))", (f"feedlab demo {settings.namespace}",)).fetchone()[0]:
            raise Conflict(f"another demo runs in namespace {settings.namespace}. Wait for it, or name another with --namespace.")
        yield
    finally:
        lock.close()


def _result(demo: Demo, g: Graph, path: Path, threshold: int, feed_max: int, seed: int, sources: list[int], seconds: float,
            users: list[int], equal: int) -> dict:
    made, push_all, expected, celebrities = demo.lab.conn.execute(EXPECTED, {"threshold": threshold}).fetchone()
    totals, ms, memory = demo.totals(), demo.visible(), demo.memory()
    p50, p99 = (float(x) for x in np.percentile(ms, [50, 99])) if ms else (None, None)
    deliveries = totals.get("deliveries", 0)
    return {
        "graph": str(path), "graph_read_as": g.description(), "seed": seed, "threshold": threshold, "feed_max": feed_max,
        "users": len(g.users), "follows": len(g.follower), "posts": made,
        "deliveries": deliveries, "deliveries_expected": expected,
        # Redis that came back empty has lost counters and places: some records were then handled, and counted, twice or not at all
        "deliveries_exact": demo.redis_lost == 0, "written": totals.get("added", 0),
        "write_amplification": deliveries / made, "write_amplification_expected": expected / made,
        "pure_push_deliveries": push_all, "pure_push_write_amplification": push_all / made, "pure_pull_write_amplification": 0.0,
        "pull_authors": celebrities, "counters": totals,
        "pages": len(sources), "sources_per_page": {"mean": float(np.mean(sources)), "max": int(max(sources))},
        "sources_per_page_pull": float(len(g.follower) / len(g.users)),
        "scrolls_checked": len(users), "scrolls_equal": equal,
        "bytes_per_entry": memory["feed_bytes"] / memory["entries"] if memory["entries"] else None, "redis": memory,
        "visible_ms": {"p50": p50, "p99": p99, "posts": len(ms)}, "visible_samples": ms, "lag_samples": demo.samples,
        "follower_counts": g.followers.tolist(),
        "worker_restarts": demo.workers.restarts, "redis_lost": demo.redis_lost, "seconds": round(seconds, 2),
        "finished_at_ms": wall_clock_ms(),
        "engines": [e.as_dict() for e in engines.status(demo.settings)],
    }
