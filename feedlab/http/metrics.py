"""Prometheus metrics: what this process counts itself, and what each station says when it is asked.

The process's own figures live in prometheus-client's default registry. The stations are asked at each scrape and
forgotten: a station that is away has no figures, instead of its last ones, and `feedlab_engine_up` says so.
"""

from collections.abc import Iterator

import redis
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from redis.exceptions import RedisError

from .. import db, kafka, relay
from ..core.codec import Names
from ..core.model import Explain
from ..errors import EngineDown

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
PAGES = Histogram("feedlab_page_seconds", "Time to make one page", buckets=SECONDS)
WRITES = Histogram("feedlab_post_seconds", "Time to save one post with its outbox row", buckets=SECONDS)
RESPONSES = Counter("feedlab_responses", "HTTP answers by status", ["status"])
FEEDS = Counter("feedlab_pages", "Pages by how the feed was found", ["feed"])
BELOW = Counter("feedlab_pages_below_floor", "Pages that went below the feed's floor, to SQL")
CELEBRITIES = Counter(
    "feedlab_celebrity_reads",
    "Celebrity timelines wanted by pages: from this process's copy, or from Redis",
    ["source"],
)
HIDDEN = Counter("feedlab_entries_hidden", "Entries that the read filter took out")

# so that each is there, as 0, before it first happens
FEED_KINDS = ("pushed", "rebuilt", "building", "moved", "unreachable")
FANOUT = (
    "deliveries",
    "added",
    "missing",
    "below",
    "trimmed",
    "pushed",
    "pulled",
    "celeb_writes",
    "slices",
    "demotions",
    "redelivered",
    "removed",
    "deleted",
    "graph",
    "dead",
)
for kind in FEED_KINDS:
    FEEDS.labels(kind)
for source in ("copy", "redis"):
    CELEBRITIES.labels(source)

KAFKA_S = 1.5  # how long a scrape waits for a broker
OUTBOX = "select count(*), coalesce(extract(epoch from clock_timestamp() - min(created_at)), 0)::float8 from outbox"
FLAGS = "select count(*) from pull_flags where raised"


def page(ex: Explain) -> None:
    """Count one page."""
    FEEDS.labels(ex.feed).inc()
    BELOW.inc(ex.below_floor)
    HIDDEN.inc(ex.hidden)
    CELEBRITIES.labels("copy").inc(ex.local_hits)
    CELEBRITIES.labels("redis").inc(max(0, ex.flagged - ex.local_hits))


def text(conn: db.Connection | None, r: redis.Redis, names: Names, admin: AdminClient) -> bytes:
    """Everything, in Prometheus's text form. `conn` None: PostgreSQL is away."""
    asked = CollectorRegistry()
    asked.register(_Said(stations(conn, r, names, admin)))
    return generate_latest() + generate_latest(asked)


class _Said:
    """Families that were made already, where prometheus-client wants a collector."""

    def __init__(self, families: Iterator[Metric]):
        self.families = list(families)

    def collect(self) -> list[Metric]:
        return self.families


def stations(conn: db.Connection | None, r: redis.Redis, names: Names, admin: AdminClient) -> Iterator[Metric]:
    """Ask each station; what is away is left out."""
    up = GaugeMetricFamily("feedlab_engine_up", "1 when the engine answered this scrape", labels=["engine"])
    try:
        if conn is not None:
            yield from _postgres(conn, names)
        up.add_metric(["postgres"], conn is not None)
    except db.AWAY:
        up.add_metric(["postgres"], 0)
    places: dict[str, str] | None = None
    try:
        stats, places = r.hgetall(names.stats), r.hgetall(names.progress)
        family = CounterMetricFamily(
            "feedlab_fanout",
            "What the consumers did: feed writes (deliveries) and those that were new "
            "(added), met no feed (missing), lay below a floor (below); entries cut (trimmed) ...",
            labels=["what"],
        )
        for what in sorted({*FANOUT, *stats}):
            family.add_metric([what], int(stats.get(what, 0)))
        yield family
        up.add_metric(["redis"], 1)
    except RedisError:
        up.add_metric(["redis"], 0)
    try:
        ends = _ends(admin, names)
        up.add_metric(["kafka"], 1)
        if ends is not None:
            yield CounterMetricFamily(
                "feedlab_relayed_records",
                "Records that the relays (and slices) have put into Kafka",
                value=sum(ends.values()),
            )
        if ends is not None and places is not None:
            yield GaugeMetricFamily(
                "feedlab_consumer_lag_records",
                "Records in Kafka whose effect is not yet in Redis",
                value=sum(max(0, end - int(places.get(f, 0))) for f, end in ends.items()),
            )
    except (KafkaException, EngineDown):
        up.add_metric(["kafka"], 0)
    yield up


def _postgres(conn: db.Connection, names: Names) -> Iterator[Metric]:
    rows, age = conn.execute(OUTBOX).fetchone()
    knobs, (flags,) = db.knobs(conn), conn.execute(FLAGS).fetchone()
    for name, text_, value in (
        ("outbox_rows", "Rows not yet in Kafka", rows),
        ("outbox_oldest_seconds", "Age of the oldest of them", age),
        ("relays", "Relays that are connected", relay.running(conn, names.namespace)),
        ("flagged_authors", "Authors that readers pull", flags),
        ("threshold_followers", "The live threshold", knobs["threshold"]),
        ("feed_max_entries", "The live FEED_MAX", knobs["feed_max"]),
    ):
        yield GaugeMetricFamily(f"feedlab_{name}", text_, value=value)


def _ends(admin: AdminClient, names: Names) -> dict[str, int] | None:
    """End offsets; None before the first relay has made the topics."""
    known = admin.list_topics(timeout=KAFKA_S).topics
    return kafka.end_offsets(admin, names.topics, KAFKA_S) if set(names.topics) <= set(known) else None
