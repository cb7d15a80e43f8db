"""From writing a post to seeing it in a follower's page: idle, and under load. Beside a round trip through Kafka alone."""
import threading
import time

import numpy as np
from confluent_kafka import TopicPartition

from .. import db, kafka, outbox, posts
from ..addresses import Addresses
from ..config import Settings
from ..core.codec import Event, member
from ..lab import trace
from ..lab.session import Lab
from ..lab.workers import Workers
from .ground import fill_outbox, fill_posts, follow, ground, warm
from .measure import clock, percentile, row
from .page_cached import percentiles
from .relay import PEAK_POSTS
from .whole_push import until

FOLLOWERS = 300
LOAD = 100        # posts a second: a fiftieth of the design's peak of 5,000, as if fifty such machines shared it


def run(settings: Settings, addresses: Addresses, *, rounds: int = 5, posts_a_round: int = 40, load: int = LOAD,
        say=lambda *a: None) -> dict:
    """Posts one at a time, each waited for; in turn with as many round trips through Kafka. Then the same while `load` posts a second
    go to FOLLOWERS followers each. Times in seconds, medians of a round."""
    with clock() as took, ground(settings, addresses, "visible", threshold=10**9) as lab:
        say("visible: starting relay and consumer")
        follow(lab, [(u, a) for u in range(FOLLOWERS) for a in (10**6, 10**6 + 1)])
        warm(lab, range(FOLLOWERS))
        trips, found, times = RoundTrips(lab), {"idle": [], "kafka": [], "load": []}, {"idle": [], "kafka": [], "load": []}

        def part(name: str, what, n: int) -> None:
            spent = [what() for _ in range(n)]
            times[name] += spent
            found[name].append(percentile(spent, 0.5))

        with Workers(lab.settings, addresses) as workers:
            workers.wait_ready(lab)
            for _ in range(5):
                see(lab)
                trips()
            seen: list[int] = []
            for n in range(rounds):
                part("idle", lambda: see(lab, seen), posts_a_round)
                part("kafka", trips, posts_a_round)
                say("visible: idle rounds", n + 1, rounds)
            with Load(lab, load) as background:
                for n in range(rounds):
                    part("load", lambda: see(lab), posts_a_round)
                    say("visible: rounds under load", n + 1, rounds)
            lab.drain()
        trips.close()
        profile = stations(lab, seen)
        stats = lab.stats()
        counts = {"posts": len(times["idle"]) + len(times["load"]) + 5, "load_posts": background.sent, "pushed": stats["pushed"],
                  "deliveries": stats["deliveries"], "followers": FOLLOWERS}
    table = [row("visible, idle (p50)", found["idle"], "produce + consume alone", found["kafka"], "s", at_most=3),
             row(f"visible, {load} posts/s x {FOLLOWERS} followers (p50)", found["load"], "idle", found["idle"], "s")]
    return {"station": "visible", "rows": table, "counts": counts, "points": percentiles(times), "profile": profile, "seconds": took(),
            "reached_load_posts_a_second": background.rate,
            "conditions": f"{posts_a_round} posts a round, {rounds} rounds; load wanted {load} posts/s (1/{PEAK_POSTS // load} of the "
                          f"design's peak), taken {background.rate:.0f}"}


def see(lab: Lab, seen: list[int] | None = None) -> float:
    """Seconds from before the write until a follower's page shows the post, whose id is put to `seen`."""
    key, end = lab.names.feed(0), time.monotonic() + 30
    began = time.perf_counter()
    post = posts.create(lab.conn, lab.ids, lab.names, 10**6, "can you see me?")
    while True:
        if lab.redis.zscore(key, member(post.id)) is not None and post.id in lab.page(0).ids:
            if seen is not None:
                seen.append(post.id)
            return time.perf_counter() - began
        time.sleep(0.0005)              # a reader that asks without pause would take a core from those who deliver
        if time.monotonic() > end:
            raise db.EngineDown(f"post {post.id} was not visible after 30 s. Do relay and consumer run? `feedlab doctor`")


def stations(lab: Lab, posts_seen: list[int]) -> dict[str, float]:
    """Where the time of these posts went, by their traces: medians, milliseconds since the post was made."""
    ways = [trace.trace(lab, i) for i in posts_seen]
    return {name: percentile([ms for w in ways if (ms := getattr(w, field)) is not None], 0.5)
            for name, field in (("committed", "outbox_ms"), ("in Kafka", "kafka_ms"), ("in the feed", "first_feed_ms"))}


class RoundTrips:
    """A record to a topic with one partition, acknowledged, and back through a consumer that waits for it."""

    def __init__(self, lab: Lab):
        self.topic, at = lab.names.dead, lab.addresses.kafka_bootstrap
        self.producer, self.consumer = kafka.producer(at), kafka.consumer(at, f"{lab.names.namespace}.trips")
        _, end = self.consumer.get_watermark_offsets(TopicPartition(self.topic, 0), timeout=10)
        self.consumer.assign([TopicPartition(self.topic, 0, end)])       # by number: nothing is missed

    def __call__(self) -> float:
        failures: list = []
        began = time.perf_counter()
        self.producer.produce(self.topic, b"a round trip", on_delivery=lambda error, _: failures.append(error) if error else None)
        kafka.wait_acked(self.producer, failures)
        until(lambda: (m := self.consumer.poll(1.0)) is not None and not m.error(), "a record")
        return time.perf_counter() - began

    def close(self) -> None:
        self.consumer.close()


class Load:
    """Posts of another author at a steady rate, by a thread with a connection of its own, ten times a second.

    More than two seconds' worth is never left waiting: a machine that cannot keep up gets what it can take, and `rate` says how much
    that was.
    """

    def __init__(self, lab: Lab, rate: int):
        self.lab, self.per_tick, self.most, self.sent, self.rate = lab, max(1, rate // 10), 2 * rate, 0, 0.0
        self.over, self.trouble = threading.Event(), None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(30)
        if self.trouble is not None:
            raise self.trouble

    def _run(self) -> None:
        lab, began, ticks = self.lab, time.monotonic(), 0
        before = lab.stats().get("pushed", 0)
        try:
            with db.connect(lab.addresses.postgres_url, lab.names.namespace) as conn:
                mine = Mine(lab, conn)
                while not self.over.wait(max(0.0, began + 0.1 * ticks - time.monotonic())):
                    ticks += 1
                    if self.sent - (lab.stats().get("pushed", 0) - before) > self.most:
                        continue
                    rows = fill_posts(mine, np.full(self.per_tick, 10**6 + 1), self.sent)
                    events = (outbox.row(lab.names, Event("posted", author=a, post=i, ms=ms)) for i, a, ms in rows)
                    fill_outbox(mine, [(e["topic"], e["key"], e["payload"]) for e in events])
                    self.sent += len(rows)
                self.rate = self.sent / (time.monotonic() - began)
        except Exception as e:
            self.trouble = e


class Mine:
    """The lab's names on a connection of one's own."""

    def __init__(self, lab: Lab, conn):
        self.names, self.conn = lab.names, conn
