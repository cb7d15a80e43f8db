"""Kafka to timelines, and what may go wrong between: at the end every page is the SQL answer, and nothing is counted
twice."""

import random
from contextlib import ExitStack, contextmanager
from itertools import count

import pytest
import redis
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from confluent_kafka.admin import NewPartitions
from conftest import add_users, running, until

from feedlab import celebrities, db, fanout, follows, kafka, outbox, posts, pull, timeline
from feedlab.core.codec import Event
from feedlab.core.model import Entry
from feedlab.fanout import FanOut
from feedlab.reader import scroll
from feedlab.relay import Relay

LAB = {"feed_max": 5, "threshold": 1_000, "batch": 3}
PUSH, PULL = 1_000, 0
users, clock = count(1), count(1_000_000)


class Switch:
    """Relay and consumer, on or off; starting them costs a second, so they stay on from test to test."""

    def __init__(self, lab):
        self.lab, self.stack = lab, None

    def on(self):
        if self.stack is None:
            self.stack = ExitStack()
            # new partitions are looked for each 0.3 s, not 5, so that the test of them is quick
            self.stack.enter_context(running(self.lab, **{"topic.metadata.refresh.interval.ms": 300}))

    def off(self):
        if self.stack is not None:
            stack, self.stack = self.stack, None
            stack.close()


@pytest.fixture(scope="module")
def switch(lab):
    s = Switch(lab)
    yield s
    s.off()


@pytest.fixture
def alive(lab, switch):
    """The lab, relay and consumer running, everything pushed."""
    db.set_knobs(lab.conn, threshold=PUSH, feed_max=5)
    switch.on()
    lab.drain()
    return lab


def cast(lab, followers, warm=True):
    """A new author and so many new followers, each with a finished feed. Relay and consumer must be running: the events
    of
    the follows drop feeds, and would drop these later."""
    author, *fans = [next(users) for _ in range(followers + 1)]
    add_users(lab, author, *fans)
    for u in fans:
        follows.follow(lab.conn, lab.redis, lab.names, u, author)
    lab.drain()
    if warm:
        for u in fans:
            lab.page(u)
    return author, fans


def post(lab, author, ms=None):
    """At `ms`, else a millisecond after the post before: a cut within a tie would take more than one entry."""
    return posts.create(lab.conn, lab.ids, lab.names, author, "x", created_at_ms=next(clock) if ms is None else ms)


def demote(lab, author):
    outbox.put(lab.conn, lab.names, Event("demote", author=author))


def feed(lab, user):
    """Ids stored in the user's feed; None when there is none."""
    t = timeline.get(lab.redis, lab.names.feed(user))
    return None if t.floor is None else [e.id for e in t.entries]


def right(lab, *who):
    """Drained, every scroll is the SQL answer; warm and cold."""
    lab.drain()
    for u in who:
        want = [e.id for e in pull.everything(lab.conn, u)]
        for limit in (2, 50):
            got = [i for p in scroll(lambda c: lab.page(u, c, limit)) for i in p.ids]  # noqa: B023
            assert got == want, (
                f"user {u}, pages of {limit}: missing {set(want) - set(got)}, extra {set(got) - set(want)}"
            )
        lab.redis.delete(lab.names.feed(u))
        assert [i for p in scroll(lambda c: lab.page(u, c, 3)) for i in p.ids] == want  # noqa: B023


class Stats:
    """How far the counters moved since the start."""

    def __init__(self, lab):
        self.lab, self.start = lab, lab.stats()

    def __getitem__(self, name):
        return self.lab.stats().get(name, 0) - self.start.get(name, 0)


def produce(lab, topic, *values, key=b"1", partition=-1):
    p, failures = kafka.producer(lab.addresses.kafka_bootstrap), []
    for value in values:
        p.produce(topic, value, key, partition=partition, on_delivery=lambda e, _: failures.append(e) if e else None)
    kafka.wait_acked(p, failures)


def read_topic(lab, name):
    ends, got = kafka.end_offsets(lab.admin, [name]), []
    c = kafka.consumer(lab.addresses.kafka_bootstrap, "t_fanout.readback")
    try:
        c.assign([TopicPartition(name, int(f.rsplit(":", 1)[1]), OFFSET_BEGINNING) for f in ends])
        until(lambda: got.extend(m for m in c.consume(100, 0.1) if not m.error()) or len(got) >= sum(ends.values()))
    finally:
        c.close()
    return got


@contextmanager
def driven(lab, **options):
    """A consumer that moves only when told, its places read."""
    a = lab.addresses
    f = FanOut(lab.settings, a.postgres_url, a.redis_url, a.kafka_bootstrap, **options)
    f.open()
    try:
        until(lambda: f.once().resynced and f.place, what="an assignment")
        yield f
    finally:
        f.close()


def relay_all(lab):
    r = Relay(lab.settings, lab.addresses.postgres_url, lab.addresses.kafka_bootstrap)
    r.open()
    while r.once():
        pass
    r.close()


def work_off(lab, f):
    """Until nothing is behind; what was done."""
    total = fanout.Done()

    def lag_is_gone():
        done = f.once()
        for name in ("records", "deliveries", "added", "dead"):
            setattr(total, name, getattr(total, name) + getattr(done, name))
        return kafka.lag(lab.admin, lab.redis, lab.names) == 0

    until(lag_is_gone)
    return total


# --- slices ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("followers,slices", [(0, 0), (1, 0), (3, 0), (4, 1), (6, 1), (10, 3)])
def test_a_large_author_goes_in_slices_of_three(alive, followers, slices):
    """BATCH 3: exactly one delivery a follower at every boundary, the rest by records of feed-slices."""
    author, fans = cast(alive, followers)
    s = Stats(alive)
    p = post(alive, author)
    alive.drain()
    assert (s["deliveries"], s["added"], s["pushed"], s["slices"]) == (followers, followers, 1, slices)
    assert [feed(alive, u) for u in fans] == [[p.id]] * followers


def test_slice_records_that_come_again_do_no_harm(alive):
    author, fans = cast(alive, 7)
    p = post(alive, author)
    alive.drain()
    s = Stats(alive)
    produce(
        alive,
        alive.names.slices,
        *(
            Event("posted", author=author, post=p.id, ms=p.created_at_ms, after=after).encode()
            for after in (-1, fans[2], fans[5], fans[6], fans[0])
        ),
    )
    right(alive, *fans)
    assert s["added"] == 0


def test_deletes_and_demotions_go_in_slices_too(alive):
    author, fans = cast(alive, 8)
    made = [post(alive, author) for _ in range(3)]
    alive.drain()
    posts.delete(alive.conn, alive.names, author, made[1].id)
    alive.drain()
    assert [feed(alive, u) for u in fans] == [[made[2].id, made[0].id]] * 8
    db.set_knobs(alive.conn, threshold=PULL)
    made.append(post(alive, author))
    alive.drain()
    db.set_knobs(alive.conn, threshold=PUSH)
    demote(alive, author)
    alive.drain()
    assert [feed(alive, u) for u in fans] == [[made[3].id, made[2].id, made[0].id]] * 8
    assert celebrities.flagged(alive.conn, fans[0]) == []


# --- who gets it ----------------------------------------------------------------------------------


def test_the_inactive_are_skipped_and_come_back_whole(alive):
    author, (here, away) = cast(alive, 2)
    alive.conn.execute("update user_activity set last_seen_at = now() - interval '40 days' where user_id = %s", (away,))
    alive.redis.delete(alive.names.feed(away))  # it expired eleven days ago (protocol rule 8)
    s = Stats(alive)
    post(alive, author)
    alive.drain()
    assert (s["deliveries"], feed(alive, away)) == (1, None)
    right(alive, here, away)
    post(alive, author)
    alive.drain()
    assert s["deliveries"] == 3
    right(alive, here, away)


def test_r01_back_after_dormancy_with_the_key_still_there(alive):
    """The case as it was seen: the feed outlived its reader's activity. p5..p8 were not pushed, p9 was."""
    author, (a, _) = cast(alive, 2)
    made = [post(alive, author, 10 * i) for i in range(1, 5)]
    alive.drain()
    alive.conn.execute("update user_activity set last_seen_at = now() - interval '40 days' where user_id = %s", (a,))
    made += [post(alive, author, 10 * i) for i in range(5, 9)]
    alive.drain()
    alive.page(a)  # A is back
    made.append(post(alive, author, 90))
    alive.drain()
    assert [p.ids for p in scroll(lambda c: alive.page(a, c, 5))] == [
        [p.id for p in made[:3:-1]],
        [p.id for p in made[3::-1]],
    ]


def test_a_feed_that_is_gone_is_not_made_by_a_delivery(alive):
    """R04, R07, S8: evicted, then p6 arrives: a feed of one must not pass for whole."""
    author, (a,) = cast(alive, 1)
    for ms in range(10, 60, 10):
        post(alive, author, ms)
    alive.drain()
    alive.redis.delete(alive.names.feed(a))
    post(alive, author, 60)
    alive.drain()
    assert feed(alive, a) is None
    right(alive, a)


# --- push or pull ---------------------------------------------------------------------------------


def test_the_flag_is_committed_before_the_place_moves(alive, switch, monkeypatch):
    author, (a,) = cast(alive, 1)
    switch.off()
    seen = []
    with driven(alive) as f:
        work_off(alive, f)
        db.set_knobs(alive.conn, threshold=PULL)
        p, queue, before = post(alive, author), f._queue, alive.redis.hgetall(alive.names.progress)

        def queue_(pipe, work):
            seen.append((celebrities.flagged(alive.conn, a), alive.redis.hgetall(alive.names.progress) == before))
            queue(pipe, work)

        monkeypatch.setattr(f, "_queue", queue_)
        relay_all(alive)
        work_off(alive, f)
    assert seen == [([author], True)]  # seen by another connection, nothing moved yet
    assert feed(alive, a) == [] and alive.page(a).ids == [p.id]


def test_r02_posts_made_while_the_threshold_was_low(alive):
    """1..3 pushed, 4..6 pulled, 7..9 pushed: moved live, no restart; L=4."""
    author, (a, b) = cast(alive, 2)
    made = []
    for threshold in (PUSH, PULL, PUSH):
        db.set_knobs(alive.conn, threshold=threshold)
        made += [post(alive, author, 10 * (len(made) + 1)).id for _ in range(3)]
        alive.drain()
        right(alive, a)
    assert [p.ids for p in scroll(lambda c: alive.page(b, c, 4))] == [made[:4:-1], made[4:0:-1], made[:1]]


def test_feed_max_moves_live(alive):
    author, (a,) = cast(alive, 1)
    for feed_max in (5, 2, 8):
        db.set_knobs(alive.conn, feed_max=feed_max)
        for _ in range(feed_max + 1):
            post(alive, author)
        alive.drain()
        assert len(feed(alive, a)) == feed_max or feed_max == 8  # a raised limit fills up as posts come
        assert [p.ids for p in scroll(lambda c: alive.page(a, c, 4))]
    right(alive, a)


def test_r28_the_count_decides_and_its_pages_follow(alive):
    """THRESH 3: B has A, C, D and is pulled; A leaves, B is pushed; A follows, B is pulled."""
    author, (a, c, d) = cast(alive, 3)
    db.set_knobs(alive.conn, threshold=3)
    s = Stats(alive)
    for act, pulled in ((None, 1), (follows.unfollow, 1), (follows.follow, 2)):
        if act:
            act(alive.conn, alive.redis, alive.names, a, author)
        post(alive, author)
        right(alive, a, c, d)
        assert s["pulled"] == pulled


def test_a_policy_of_ones_own_decides(alive, switch):
    """With the flag up any subset may be pushed as well: here a coin decides."""
    author, fans = cast(alive, 4)
    switch.off()
    rng = random.Random(3)
    with driven(alive, decide=lambda followers: rng.random() < 0.5) as f:
        for _ in range(12):
            post(alive, author)
        relay_all(alive)
        f.most = 1
        work_off(alive, f)
        right(alive, *fans)


# --- demotion -------------------------------------------------------------------------------------


def flag(lab, author):
    row = lab.conn.execute("select raised from pull_flags where author_id = %s", (author,)).fetchone()
    return row and row[0]


@pytest.mark.parametrize("pulled", [0, 1, 5, 6])
def test_a_demotion_takes_the_flag_down_and_leaves_pages_right(alive, pulled):
    """Fewer, as many, and more posts pulled than a feed holds (FEED_MAX 5)."""
    author, fans = cast(alive, 4)
    post(alive, author)
    alive.drain()
    db.set_knobs(alive.conn, threshold=PULL)
    for _ in range(pulled):
        post(alive, author)
    alive.drain()
    assert flag(alive, author) is (True if pulled else None)
    db.set_knobs(alive.conn, threshold=PUSH)
    demote(alive, author)
    alive.drain()
    assert not flag(alive, author)
    assert all(len(feed(alive, u)) == min(5, pulled + 1) for u in fans)
    right(alive, *fans)


def test_a_post_that_is_pulled_meanwhile_keeps_the_flag(alive, switch):
    """Between the demotion's first slice and its last, B is a celebrity again and posts: what was not pushed must be
    pulled."""
    author, fans = cast(alive, 7)
    switch.off()
    with driven(alive, most=1) as f:
        work_off(alive, f)
        db.set_knobs(alive.conn, threshold=PULL)
        post(alive, author)
        relay_all(alive)
        work_off(alive, f)
        assert flag(alive, author)
        db.set_knobs(alive.conn, threshold=PUSH)
        demote(alive, author)
        relay_all(alive)
        until(lambda: f.once().records)  # the first slice; two are left
        alive.conn.execute("update knobs set value = 0 where name = 'threshold'")
        late = post(alive, author)
        relay_all(alive)
        until(lambda: celebrities.pulls(alive.conn, author) == 2 or not f.once())
        db.set_knobs(alive.conn, threshold=PUSH)
        work_off(alive, f)
        assert flag(alive, author)
        assert all(late.id in alive.page(u).ids for u in fans)
        right(alive, *fans)


def test_a_demotion_of_one_still_above_the_threshold_delivers_but_keeps_the_flag(alive):
    author, fans = cast(alive, 3)
    db.set_knobs(alive.conn, threshold=PULL)
    p = post(alive, author)
    demote(alive, author)
    alive.drain()
    assert flag(alive, author) and [feed(alive, u) for u in fans] == [[p.id]] * 3
    right(alive, *fans)


# --- records that are no good ---------------------------------------------------------------------


def test_poison_goes_to_the_dead_letter_topic_and_the_rest_goes_on(alive):
    author, fans = cast(alive, 2)
    s = Stats(alive)
    junk = [b"junk", b"\xff\xfe\x00", b"", b'{"kind":[]}', b'{"kind":"posted","author":1}', b"[" * 20_000]
    for topic in alive.names.topics:
        produce(alive, topic, *junk, key=b"k", partition=0)
    for _ in range(3):
        post(alive, author)
    right(alive, *fans)
    assert s["dead"] == len(junk) * 3
    dead = read_topic(alive, alive.names.dead)
    assert sorted(m.value() for m in dead) == sorted(junk * 3)
    for m in dead:
        headers = dict(m.headers())
        assert headers["reason"] and m.key() == b"k"
        assert headers["from"].decode().rsplit(":", 2)[:2][0] in alive.names.topics
    assert any(b"kind must be one of" in dict(m.headers())["reason"] for m in dead)


def test_events_of_what_does_not_exist_do_nothing(alive):
    s, (author, fans) = Stats(alive), cast(alive, 1)
    produce(
        alive,
        alive.names.created,
        *(
            e.encode()
            for e in (
                Event("posted", author=10**15, post=1, ms=1),
                Event("deleted", author=author, post=1, ms=1),
                Event("demote", author=10**15),
                Event("followed", user=10**15, author=10**16),
                Event("posted", author=author, post=12345, ms=2**53),
            )
        ),
    )
    right(alive, *fans)
    assert s["dead"] == 0 and feed(alive, fans[0]) is not None


def test_a_record_that_comes_twice_adds_nothing(alive):
    author, fans = cast(alive, 3)
    p = post(alive, author)
    alive.drain()
    s = Stats(alive)
    produce(alive, alive.names.created, Event("posted", author=author, post=p.id, ms=p.created_at_ms).encode())
    alive.drain()
    assert (s["deliveries"], s["added"]) == (3, 0)
    right(alive, *fans)


# --- the place ------------------------------------------------------------------------------------


def test_a_redelivered_record_is_counted_once(alive, switch):
    """Rewind the consumer itself: what Redis has is handled no second time."""
    author, _ = cast(alive, 2)
    switch.off()
    with driven(alive) as f:
        work_off(alive, f)
        post(alive, author)
        relay_all(alive)
        before = work_off(alive, f)
        assert before.deliveries == 2
        s, places = Stats(alive), dict(f.place)
        for p in f.consumer.assignment():
            f.consumer.seek(TopicPartition(p.topic, p.partition, 0))
        records = []
        until(lambda: records.append(f.once().records) or sum(records) >= sum(places.values()))
        assert (s["deliveries"], s["pushed"], s["graph"]) == (0, 0, 0) and f.place == places


def test_a_zombie_is_refused_and_changes_nothing(alive, switch):
    """A consumer that stood still while another took over: its place is old, its work is refused as a whole."""
    author, fans = cast(alive, 2)
    switch.off()
    with driven(alive) as f:
        work_off(alive, f)
        old = dict(f.place)
        p = post(alive, author)
        relay_all(alive)
        work_off(alive, f)
        s, before = Stats(alive), [feed(alive, u) for u in fans]
        f.place = old  # it never heard of the batch, and gets the same records
        for t in f.consumer.assignment():
            f.consumer.seek(TopicPartition(t.topic, t.partition, old[kafka.field(t.topic, t.partition)]))
        until(lambda: f.once() and f.stale, what="Behind")
        assert (s["deliveries"], s["pushed"], s["added"]) == (0, 0, 0) and [feed(alive, u) for u in fans] == before == [
            [p.id]
        ] * 2
        until(lambda: f.once().resynced)
        work_off(alive, f)
        right(alive, *fans)


@pytest.mark.parametrize("dies_at,counted", [("_queue", 0), ("_settle", 2), ("_commit", 2)])
def test_r52_killed_in_the_middle_of_a_batch(alive, switch, monkeypatch, dies_at, counted):
    """Before Redis had anything, after it had all, before Kafka heard of it: the next consumer delivers what is
    missing, once."""
    author, fans = cast(alive, 2)
    switch.off()

    def dies(*_):
        raise InterruptedError

    with driven(alive) as f:
        p, s = post(alive, author), Stats(alive)
        relay_all(alive)
        monkeypatch.setattr(f, dies_at, dies)
        with pytest.raises(InterruptedError):
            until(lambda: f.once().records)
    assert s["deliveries"] == counted
    with driven(alive) as f:
        work_off(alive, f)
    assert s["deliveries"] == s["added"] == 2
    assert [feed(alive, u) for u in fans] == [[p.id]] * 2


def test_r49_create_and_delete_the_other_way_round(alive):
    author, fans = cast(alive, 2)
    i, _ = alive.ids.next()
    alive.conn.execute(
        "insert into posts (id, author_id, created_at_ms, content, deleted) values (%s, %s, 5, 'x', true)", (i, author)
    )
    for kind in ("deleted", "posted"):
        produce(alive, alive.names.created, Event(kind, author=author, post=i, ms=5).encode())
    alive.drain()
    assert [feed(alive, u) for u in fans] == [[], []]
    right(alive, *fans)


def test_a_gap_is_noticed(alive, switch):
    """A record further on than our place: those between were never handled, so it is not taken."""
    author, fans = cast(alive, 1)
    switch.off()
    with driven(alive) as f:
        work_off(alive, f)
        for _ in range(4):
            post(alive, author)
        relay_all(alive)
        field = max(
            (f for f in f.place if f.startswith(alive.names.created)),
            key=lambda x: kafka.end_offsets(alive.admin, [alive.names.created])[x] - f.place[x],
        )
        topic, partition = field.rsplit(":", 1)
        f.consumer.seek(TopicPartition(topic, int(partition), f.place[field] + 2))
        s = Stats(alive)
        until(lambda: f.once() and f.stale, what="Behind")
        assert s["deliveries"] == 0
        until(lambda: f.once().resynced)
        work_off(alive, f)
        assert s["deliveries"] == 4
        right(alive, *fans)


def test_records_that_kafka_has_removed_drop_all_feeds(alive, switch):
    """Retention overtook the consumer: nobody knows what was missed, so everything is rebuilt from SQL."""
    author, fans = cast(alive, 2)
    switch.off()
    with driven(alive) as f:
        work_off(alive, f)
    for _ in range(3):
        post(alive, author)
    relay_all(alive)
    ends = kafka.end_offsets(alive.admin, alive.names.topics)
    doomed = [TopicPartition(f.rsplit(":", 1)[0], int(f.rsplit(":", 1)[1]), end) for f, end in ends.items() if end]
    for future in alive.admin.delete_records(doomed).values():
        future.result()
    assert kafka.lag(alive.admin, alive.redis, alive.names) > 0
    with driven(alive) as f:
        assert [feed(alive, u) for u in fans] == [None, None]
        work_off(alive, f)
        post(alive, author)
        relay_all(alive)
        work_off(alive, f)
        right(alive, *fans)


LOST = ["everything", "everything, and nobody posts", "the places", "one place", "a place is older", "a place is ahead"]


@pytest.mark.parametrize("lost", LOST)
def test_redis_that_lost_something_heals(alive, lost):
    author, fans = cast(alive, 4)
    for i in range(7):
        post(alive, author, 10 * i)
    alive.drain()
    n, r = alive.names, alive.redis
    busy = max(r.hgetall(n.progress).items(), key=lambda row: int(row[1]))[0]
    if lost.startswith("everything"):
        r.delete(*r.scan_iter(match=f"{alive.settings.namespace}:*", count=10_000))
        assert kafka.lag(alive.admin, r, n) > 0  # said at once, whatever Kafka's committed offset is
    elif lost == "the places":
        r.delete(n.progress)
    elif lost == "one place":
        r.hdel(n.progress, busy)
    elif lost == "a place is older":
        r.hset(n.progress, busy, 0)
    else:
        r.hset(n.progress, busy, 10**9)
    for i in range(7, 7 if "nobody" in lost else 10):
        post(alive, author, 10 * i)
    until(
        lambda: all(
            int(r.hget(n.progress, f) or -1) == end for f, end in kafka.end_offsets(alive.admin, n.topics).items()
        )
    )
    right(alive, *fans)


def snapshot(lab):
    """All keys of the namespace at one moment, as an RDB file has them, with their absolute expiry."""
    with redis.Redis.from_url(lab.addresses.redis_url) as raw:  # a dump is bytes, not text
        keys, pipe = (
            list(raw.scan_iter(match=f"{lab.settings.namespace}:*", count=10_000)),
            raw.pipeline(transaction=True),
        )
        for k in keys:
            pipe.dump(k).pexpiretime(k)
        answers = pipe.execute()
    return {
        k: (data, max(0, expires)) for k, data, expires in zip(keys, answers[::2], answers[1::2], strict=True) if data
    }


def restore(lab, old):
    """Redis as it was then, in one step: what is newer is gone."""
    pipe = lab.redis.pipeline(transaction=True)
    now = list(lab.redis.scan_iter(match=f"{lab.settings.namespace}:*", count=10_000))
    if now:
        pipe.delete(*now)
    for k, (data, expires) in old.items():
        pipe.restore(k, expires, data, absttl=expires > 0)
    pipe.execute()


@pytest.mark.parametrize("places", ["with its places", "without them"])
def test_r08_an_old_snapshot_is_replayed(alive, places):
    """p1..p3, snapshot, p4..p6, a follow, a demotion; restore. L=3 -> [6,5,4],[3,2,1]. Nobody posts afterwards."""
    author, (a, b) = cast(alive, 2)
    other, (_,) = cast(alive, 1)
    mine = [post(alive, other, 5)]
    made = [post(alive, author, 10 * i).id for i in range(1, 4)]
    right(alive, a, b)
    old = snapshot(alive)
    made += [post(alive, author, 10 * i).id for i in range(4, 6)]
    db.set_knobs(alive.conn, threshold=PULL)
    made.append(post(alive, author, 60).id)
    alive.drain()
    db.set_knobs(alive.conn, threshold=PUSH)
    demote(alive, author)
    follows.follow(alive.conn, alive.redis, alive.names, b, other)
    right(alive, a, b)
    assert not flag(alive, author)
    if places == "without them":
        del old[alive.names.progress.encode()]
    restore(alive, old)  # old feeds, the one of b from before the follow
    alive.drain()
    assert [p.ids for p in scroll(lambda c: alive.page(a, c, 3))] == [made[:2:-1], made[2::-1]]
    assert alive.page(b).ids == [*made[::-1], mine[0].id]
    right(alive, a, b)


def test_partitions_may_be_added(alive):
    author, fans = cast(alive, 2)
    more = {t: len(alive.admin.list_topics(t, timeout=10).topics[t].partitions) + 2 for t in alive.names.topics}
    for future in alive.admin.create_partitions([NewPartitions(t, n) for t, n in more.items()]).values():
        future.result()
    until(
        lambda: all(
            sum(f.startswith(t + ":") for f in alive.redis.hgetall(alive.names.progress)) == n for t, n in more.items()
        ),
        what="a place in each new partition",
    )
    p = post(alive, author)
    right(alive, *fans)
    s, last = Stats(alive), more[alive.names.created] - 1
    produce(
        alive,
        alive.names.created,
        Event("posted", author=author, post=p.id, ms=p.created_at_ms).encode(),
        partition=last,
    )
    alive.drain()
    assert s["pushed"] == 1  # what comes on the newest partition is handled
    right(alive, *fans)


def test_two_consumers_share_and_one_leaves(alive, switch):
    author, fans = cast(alive, 4)
    others = [cast(alive, 2) for _ in range(6)]
    switch.off()
    with running(alive, relays=1, consumers=2) as loops:
        for _ in range(5):
            for a, _ in [(author, fans), *others]:
                post(alive, a)
        alive.drain()
        until(lambda: all(len(f.place) >= 3 for f in loops[1:]), what="both with partitions")
        right(alive, *fans, *(u for _, f in others for u in f))
    with running(alive):
        post(alive, author)
        right(alive, *fans)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_random_history_with_faults(alive, seed):
    """What the model beside the design does, on live engines: everything at once, then drained, then every page is
    SQL's."""
    rng = random.Random(seed)
    cast_ = [next(users) for _ in range(8)]
    add_users(alive, *cast_)
    old, weights = None, [rng.choice([0, 1, 3]) + w for w in (6, 4, 1, 3, 1, 0, 0, 0, 0, 0)]
    kinds = ["post", "follow", "unfollow", "read", "delete", "threshold", "demote", "evict", "snapshot", "restore"]
    for _ in range(130):
        u, v = rng.sample(cast_, 2)
        kind = rng.choices(kinds, weights)[0]
        if kind == "post":
            post(alive, u, rng.choice([None, None, rng.randrange(60)]))
        elif kind == "follow":
            follows.follow(alive.conn, alive.redis, alive.names, u, v)
        elif kind == "unfollow":
            follows.unfollow(alive.conn, alive.redis, alive.names, u, v)
        elif kind == "read":
            seen = alive.page(u, None, 5)
            assert len(set(seen.ids)) == len(seen.ids)
            assert [p.created_at_ms for p in seen.posts] == sorted((p.created_at_ms for p in seen.posts), reverse=True)
        elif kind == "delete":
            mine = pull.newest(alive.conn, [u])
            if mine:
                posts.delete(alive.conn, alive.names, u, rng.choice(mine).id)
        elif kind == "threshold":
            db.set_knobs(alive.conn, threshold=rng.choice([0, 2, 3, 4, 99]), feed_max=rng.choice([1, 3, 5]))
        elif kind == "demote":
            demote(alive, u)
        elif kind == "evict":
            alive.redis.delete(rng.choice([alive.names.feed(u), alive.names.celeb(u)]))
        elif kind == "snapshot":
            old = snapshot(alive)
        elif kind == "restore" and old:
            restore(alive, old)
    right(alive, *cast_)


def test_an_entry_delivered_out_of_order_stands_where_its_time_is(alive):
    """R43: FEED_MAX 5, p1..p6@10..60, then id 70 @15 arrives: it belongs below the floor."""
    author, (a,) = cast(alive, 1)
    made = [post(alive, author, 10 * i).id for i in range(1, 7)]
    alive.drain()
    late = post(alive, author, 15).id
    alive.drain()
    assert feed(alive, a) == made[:0:-1]
    assert [p.ids for p in scroll(lambda c: alive.page(a, c, 3))] == [made[:2:-1], [made[2], made[1], late], made[:1]]
    assert Entry(15, late) in pull.everything(alive.conn, a)
