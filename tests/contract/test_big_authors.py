"""An author with 20,000 followers below the threshold: small authors behind its post on the same partition do not wait,
a consumer that is killed in mid-slice leaves nobody out, and a handler slower than the poll limit keeps its partitions.

(Poison records and the dead-letter topic: tests/integration/test_fanout.py. Here only that `status` shows them.)"""

import json
import os
import subprocess
import sys
import threading
import time
import zlib

import pytest
from conftest import add_users, fresh_lab, until

from feedlab import kafka, posts, pull, timeline
from feedlab.core.codec import member
from feedlab.fanout import FanOut
from feedlab.lab.workers import Workers
from feedlab.reader import scroll
from feedlab.relay import Relay

FOLLOWERS, BATCH, PARTITIONS = 20_000, 500, 2
BIG = 1
CONSUMER = {"session.timeout.ms": 3_000}


def partition(author: int) -> int:
    """Where librdkafka's own partitioner (consistent_random: CRC32 of the key) puts an author's posts."""
    return zlib.crc32(str(author).encode()) % PARTITIONS


SMALL = next(a for a in range(FOLLOWERS + 10, FOLLOWERS + 99) if partition(a) == partition(BIG))
READER = FOLLOWERS + 100  # follows the small author, and the big one


@pytest.fixture(scope="module")
def big(addresses):
    """The lab, with 20,000 followers of BIG, each with a finished and empty feed, made in one go."""
    with fresh_lab(
        addresses,
        f"t_{zlib.crc32(b'big authors'):08x}",
        partitions=PARTITIONS,
        threshold=10**6,
        batch=BATCH,
        feed_max=50,
    ) as lab:
        add_users(lab, BIG, SMALL)
        lab.conn.execute("insert into users select n, 'fan' from generate_series(2, %s) n", (FOLLOWERS,))
        lab.conn.execute("insert into users values (%s, 'reader')", (READER,))
        lab.conn.execute("insert into user_activity (user_id) select id from users on conflict do nothing")
        lab.conn.execute("insert into follows select id, %s from users where id <> all(%s)", (BIG, [BIG, SMALL]))
        lab.conn.execute("insert into follows values (%s, %s)", (READER, SMALL))
        lab.conn.execute("insert into follower_counts select followee_id, 0, count(*) from follows group by 1")
        pipe, until_ms = lab.redis.pipeline(transaction=False), int((time.time() + 86_400) * 1000)
        for u in fans():
            pipe.fcall(f"{timeline.LIBRARY}_begin", 1, lab.names.feed(u), "t", 60_000)
            pipe.fcall(f"{timeline.LIBRARY}_complete", 1, lab.names.feed(u), "t", "-inf", 50, until_ms)
        pipe.execute()
        yield lab


def fans() -> list[int]:
    return [*range(2, FOLLOWERS + 1), READER]


def holding(lab, post: int) -> int:
    """In how many followers' feeds the post stands."""
    pipe = lab.redis.pipeline(transaction=False)
    for u in fans():
        pipe.zscore(lab.names.feed(u), member(post))
    return sum(score is not None for score in pipe.execute())


def trace(lab, post: int) -> dict:
    return lab.redis.hgetall(lab.names.trace(post))


def test_a_small_author_behind_a_big_one_does_not_wait(big, capsys):
    lab = big
    with Workers(lab.settings, lab.addresses, consumer=CONSUMER) as workers:
        workers.wait_ready(lab)
        large = posts.create(lab.conn, lab.ids, lab.names, BIG, "to 20,000")
        small = posts.create(lab.conn, lab.ids, lab.names, SMALL, "to one", created_at_ms=large.created_at_ms + 1)
        until(lambda: lab.redis.zscore(lab.names.feed(READER), member(small.id)), what="the small post in a feed")
        seen = lab.stats().get("deliveries", 0)
        assert lab.page(READER, limit=1).ids == [small.id]
        lab.drain()
        a, b = trace(lab, large.id), trace(lab, small.id)
        with capsys.disabled():
            print(
                f"\n  small post in its feed after {int(b['last_ms']) - small.created_at_ms} ms, the big one in all "
                f"{FOLLOWERS:,} after {int(a['last_ms']) - large.created_at_ms} ms; "
                f"{seen:,} deliveries when the small one was seen"
            )
        assert a["place"].split(":")[:2] == b["place"].split(":")[:2]  # the same partition
        assert int(a["place"].split(":")[2]) < int(b["place"].split(":")[2])  # and behind the big one
        assert int(b["last_ms"]) < int(a["last_ms"]) and seen < FOLLOWERS + 1
        assert holding(lab, large.id) == FOLLOWERS
        assert lab.stats()["deliveries"] == FOLLOWERS + 1


def test_a_consumer_killed_in_mid_slice_resumes(big, capsys):
    lab, killed = big, []
    with Workers(lab.settings, lab.addresses, consumer=CONSUMER) as workers:
        workers.wait_ready(lab)
        before = lab.stats()
        large = posts.create(lab.conn, lab.ids, lab.names, BIG, "again to 20,000")
        for slices in (3, 15):
            until(lambda: lab.stats().get("slices", 0) - before.get("slices", 0) >= slices, what=f"{slices} slices")  # noqa: B023
            workers.kill("fanout")
            killed.append(lab.stats()["slices"] - before.get("slices", 0))
            workers.watch()
        lab.drain()
        s = {k: v - before.get(k, 0) for k, v in lab.stats().items()}
        with capsys.disabled():
            print(
                f"\n  killed after {killed} slices of {FOLLOWERS // BATCH}; {s['deliveries']:,} deliveries, "
                f"{s['added']:,} added"
            )
        assert killed[-1] < FOLLOWERS // BATCH - 1, "it was done before the kill"
        assert holding(lab, large.id) == s["added"] == FOLLOWERS  # nobody left out, nobody twice
        # a slice whose follow-up record was written but not its own effect is followed up twice: delivered again,
        # without effect
        assert FOLLOWERS <= s["deliveries"] <= 3 * FOLLOWERS


def test_a_handler_slower_than_the_poll_limit(big, capsys):
    """Redis stands still for 8 s, the poll limit is 6 s: the consumer keeps its partitions (one assignment in all),
    no record is lost, and none is counted twice."""
    lab, stop, said = big, threading.Event(), []
    a = lab.addresses
    relay = Relay(lab.settings, a.postgres_url, a.kafka_bootstrap)
    fanout = FanOut(
        lab.settings,
        a.postgres_url,
        a.redis_url,
        a.kafka_bootstrap,
        **{"max.poll.interval.ms": 6_000, "session.timeout.ms": 6_000},
    )
    assigned, revoked, slow, before = [], [], threading.Event(), lab.stats()
    remember, queue = fanout._assigned, fanout._queue
    fanout._assigned = lambda consumer, parts: (assigned.append(len(parts)), remember(consumer, parts))
    gone = fanout._revoked
    fanout._revoked = lambda consumer, parts: (None if stop.is_set() else revoked.append(len(parts)), gone(consumer, parts))

    def queue_slowly(pipe, work):
        """The first record of the post: as if Redis took 8 s to answer. (A CLIENT PAUSE would stop everybody's Redis.)"""
        if not slow.is_set() and work.event.kind == "posted":
            slow.set()
            stop.wait(8)
        queue(pipe, work)

    fanout._queue = queue_slowly
    threads = [
        threading.Thread(target=loop.run, args=(stop.is_set, said.append), daemon=True) for loop in (relay, fanout)
    ]
    for t in threads:
        t.start()
    try:
        until(lambda: fanout.place, what="an assignment")
        began, post = time.monotonic(), posts.create(lab.conn, lab.ids, lab.names, SMALL, "slowly")
        until(slow.is_set, what="the slow handler")
        lab.drain()
        seconds = time.monotonic() - began
        until(lambda: len(fanout.place) == PARTITIONS * 3, what="all partitions")
        s = {k: v - before.get(k, 0) for k, v in lab.stats().items()}
        with capsys.disabled():
            print(
                f"\n  handler of 8 s under a limit of 6 s: drained after {seconds:.1f} s, "
                f"{len(assigned)} assignments; {said}"
            )
        assert (s["pushed"], s["deliveries"], s["added"]) == (1, 1, 1)
        assert revoked == [], "the partitions were kept"
        assert lab.page(READER, limit=1).ids == [post.id]
        assert [i for p in scroll(lambda c: lab.page(READER, c, 5)) for i in p.ids] == [
            e.id for e in pull.everything(lab.conn, READER)
        ]
    finally:
        stop.set()
        for t in threads:
            t.join(20)
            assert not t.is_alive(), "a loop did not stop"


def test_status_shows_dead_letters(big):
    lab = big
    with Workers(lab.settings, lab.addresses, consumer=CONSUMER):
        before = lab.stats().get("dead", 0)
        p, failures = kafka.producer(lab.addresses.kafka_bootstrap), []
        p.produce(
            lab.names.created,
            b"no event",
            str(BIG).encode(),
            on_delivery=lambda e, _: failures.append(e) if e else None,
        )
        kafka.wait_acked(p, failures)
        post = posts.create(lab.conn, lab.ids, lab.names, SMALL, "behind it")
        lab.drain()
        assert lab.page(READER, limit=1).ids == [post.id]
        env = os.environ | lab.addresses.environment() | {"FEEDLAB_NAMESPACE": lab.settings.namespace}
        run = subprocess.run(
            [sys.executable, "-m", "feedlab", "status", "--json"], env=env, capture_output=True, text=True, timeout=60
        )
        flow = json.loads(run.stdout)["pipeline"]
        assert (run.returncode, flow["dead_letters"], flow["lag"], flow["outbox"]) == (0, before + 1, 0, 0)
