"""Prometheus metrics: what this process counts itself, and what each station says when it is asked."""
from confluent_kafka import KafkaException
from prometheus_client import Counter, Gauge, Histogram
from redis.exceptions import RedisError

from . import kafka
from .core.codec import Names
from .core.model import Explain
from .errors import EngineDown

SECONDS = (.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5)
PAGES = Histogram("feedlab_page_seconds", "Time to make one page", buckets=SECONDS)
WRITES = Histogram("feedlab_post_seconds", "Time to save one post with its outbox row", buckets=SECONDS)
FEEDS = Counter("feedlab_pages", "Pages by how the feed was found", ["feed"])
BELOW = Counter("feedlab_pages_below_floor", "Pages that went below the feed's floor, to SQL")
CELEBRITIES = Counter("feedlab_celebrity_reads", "Celebrity timelines wanted by pages", ["from_"])
HIDDEN = Counter("feedlab_entries_hidden", "Entries that the read filter took out")
OUTBOX = Gauge("feedlab_outbox_rows", "Rows not yet in Kafka")
OUTBOX_AGE = Gauge("feedlab_outbox_oldest_seconds", "Age of the oldest of them")
LAG = Gauge("feedlab_consumer_lag_records", "Records in Kafka whose effect is not yet in Redis")
FANOUT = Gauge("feedlab_fanout", "The fan-out's counters: deliveries, added, missing, below, trimmed, pushed, pulled, dead ...", ["what"])


def page(ex: Explain) -> None:
    """Count one page."""
    FEEDS.labels(ex.feed).inc()
    BELOW.inc(ex.below_floor)
    HIDDEN.inc(ex.hidden)
    CELEBRITIES.labels("copy").inc(ex.local_hits)
    CELEBRITIES.labels("redis").inc(max(0, ex.flagged - ex.local_hits))


_admins: dict = {}


def stations(conn, r, names: Names, bootstrap: str) -> None:
    """Ask each station; one that is away keeps its last value."""
    rows, age = conn.execute("select count(*), coalesce(extract(epoch from clock_timestamp() - min(created_at)), 0) from outbox").fetchone()
    OUTBOX.set(rows)
    OUTBOX_AGE.set(float(age))
    try:
        for what, n in r.hgetall(names.stats).items():
            FANOUT.labels(what).set(int(n))
        admin = _admins.setdefault(bootstrap, kafka.admin(bootstrap))
        LAG.set(kafka.lag(admin, r, names))
    except (RedisError, KafkaException, EngineDown):
        pass
