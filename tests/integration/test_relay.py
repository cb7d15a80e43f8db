"""Outbox to Kafka: nothing is skipped or lost, whoever commits late, dies or shares the work; an author's events stay
in order."""

import random
import threading
import time
from collections import Counter

import psycopg
import pytest
from confluent_kafka import TopicPartition
from conftest import add_users, running, until

from feedlab import db, follows, kafka, outbox, posts
from feedlab.core.codec import Event, decode
from feedlab.relay import Relay

A, B = 1, 2


LAB = {"partitions": 4}


@pytest.fixture(autouse=True)
def begins(lab):
    """Empty tables; what `topic` reads back is what came after this."""
    lab.conn.execute("truncate users, posts, outbox, follows, user_activity restart identity")
    add_users(lab, A, B)
    lab.begins = kafka.end_offsets(lab.admin, lab.names.topics)


def relay(lab, **options):
    r = Relay(lab.settings, lab.addresses.postgres_url, lab.addresses.kafka_bootstrap, **options)
    r.open()
    return r


def topic(lab, name=None):
    """All events that came into a topic since the test began, each partition in order: [(partition, key, event)]."""
    name, got = name or lab.names.created, []
    ends = kafka.end_offsets(lab.admin, [name])
    c = kafka.consumer(lab.addresses.kafka_bootstrap, "t_relay.readback")
    try:
        c.assign([TopicPartition(name, int(f.rsplit(":", 1)[1]), lab.begins[f]) for f in ends])
        left = sum(end - lab.begins[f] for f, end in ends.items())
        deadline = time.monotonic() + 20
        while len(got) < left:
            assert time.monotonic() < deadline, f"{len(got)} of {left}"
            got += [
                (m.partition(), int(m.key()), decode(m.value()))
                for m in c.consume(min(1000, left - len(got)), 0.2)
                if not m.error()
            ]
    finally:
        c.close()
    return got


def put(lab, conn, author, n):
    """One event, numbered by its milliseconds."""
    outbox.put(conn, lab.names, Event("posted", author=author, post=n, ms=n))


def in_order(events):
    """{author: [numbers in the order of their first arrival]}"""
    seen = {}
    for _, _, e in events:
        mine = seen.setdefault(e.author, [])
        if e.ms not in mine:
            mine.append(e.ms)
    return seen


def test_an_event_arrives_as_it_was_written(lab):
    p = posts.create(lab.conn, lab.ids, lab.names, B, "x")
    follows.follow(lab.conn, lab.redis, lab.names, A, B)
    r = relay(lab)
    assert (r.once(), r.once(), outbox.depth(lab.conn)) == (2, 0, 0)
    assert [(key, e) for _, key, e in topic(lab)] == [(B, Event("posted", author=B, post=p.id, ms=p.created_at_ms))]
    assert [(key, e) for _, key, e in topic(lab, lab.names.graph)] == [(A, Event("followed", user=A, author=B))]
    r.close()


def test_r47_a_lower_id_that_commits_later_is_sent(lab):
    r = relay(lab)
    with db.connect(lab.addresses.postgres_url, lab.settings.namespace) as late:
        with late.transaction():
            first = posts.create(late, lab.ids, lab.names, B, "takes id 1, stays open", created_at_ms=1_000)
            second = posts.create(lab.conn, lab.ids, lab.names, B, "id 2, commits", created_at_ms=2_000)
            ids = lab.conn.execute("select id from outbox").fetchall()
            assert ids == [(2,)]  # 1 is taken and not to be seen
            assert (r.once(), r.once()) == (1, 0)
        assert (r.once(), outbox.depth(lab.conn)) == (1, 0)
    assert [e.post for _, _, e in topic(lab)] == [second.id, first.id]
    r.close()
    follows.follow(lab.conn, lab.redis, lab.names, A, B)
    with running(lab):
        lab.drain()
        assert lab.page(A).ids == [second.id, first.id]


def test_a_rolled_back_change_sends_nothing(lab):
    r = relay(lab)
    with pytest.raises(ZeroDivisionError), lab.conn.transaction():
        posts.create(lab.conn, lab.ids, lab.names, B, "x")
        raise ZeroDivisionError
    assert r.once() == 0 and topic(lab) == []
    r.close()


@pytest.mark.parametrize("writing", ["before", "meanwhile"])
def test_two_relays_share_5000_rows(lab, writing):
    """60 authors, four writers, two relays: each event once, each author's in the order written, nothing left."""
    rng, authors, total, failed = random.Random(7), range(60), 5_000, []
    numbers = [[(a, i) for i in range(1, total // 60 + 1) for a in authors if a % 4 == w] for w in range(4)]

    def write(mine):
        try:
            with db.connect(lab.addresses.postgres_url, lab.settings.namespace) as conn:
                at = 0
                while at < len(mine):  # transactions of uneven size
                    n = rng.choice([1, 3, 40, 200])
                    with conn.transaction():
                        for author, i in mine[at : at + n]:
                            put(lab, conn, author, i)
                    at += n
        except Exception as e:
            failed.append(e)

    writers = [threading.Thread(target=write, args=(m,)) for m in numbers]

    def run_all():
        for t in writers:
            t.start()
        for t in writers:
            t.join(60)

    if writing == "before":
        run_all()
    with running(lab, relays=2, consumers=0) as relays:
        for each in relays:
            each.batch = 137
        if writing == "meanwhile":
            run_all()
        until(lambda: outbox.depth(lab.conn) == 0, what="an empty outbox")
    assert failed == []
    got = topic(lab)
    want = [(a, i) for m in numbers for a, i in m]
    assert Counter((e.author, e.ms) for _, _, e in got) == Counter(want)  # not one lost, not one twice
    for author, mine in in_order(got).items():
        assert mine == sorted(mine), f"author {author}"
    assert len({p for p, key, e in got}) == 4 and all(key == e.author for _, key, e in got)


def test_while_one_relay_is_at_an_author_the_other_leaves_him_alone(lab, monkeypatch):
    """The first waits for the broker; the second neither sends the author's next event nor waits."""
    one, two = relay(lab), relay(lab)
    asked, go, wait = threading.Event(), threading.Event(), kafka.wait_acked

    def held(producer, failures, timeout_s=15):
        asked.set()
        assert go.wait(20)
        wait(producer, failures, timeout_s)

    put(lab, lab.conn, B, 1)
    monkeypatch.setattr(kafka, "wait_acked", held)
    t = threading.Thread(target=one.once)
    t.start()
    assert asked.wait(10)
    monkeypatch.setattr(kafka, "wait_acked", wait)
    put(lab, lab.conn, B, 2)
    assert two.once() == 0
    go.set()
    t.join(20)
    assert two.once() == 1
    assert [e.ms for _, _, e in topic(lab)] == [1, 2]
    one.close(), two.close()


@pytest.mark.parametrize("how", ["the backend is killed", "the broker's answer is lost"])
def test_killed_between_acknowledgement_and_delete_repeats_and_loses_nothing(lab, monkeypatch, how):
    r, wait = relay(lab), kafka.wait_acked
    for i in range(1, 21):
        put(lab, lab.conn, B, i)

    def acked_then_dies(producer, failures, timeout_s=15):
        wait(producer, failures, timeout_s)
        if how == "the broker's answer is lost":
            raise kafka.KafkaException("lost")
        lab.conn.execute("select pg_terminate_backend(%s)", (r.conn.info.backend_pid,))

    monkeypatch.setattr(kafka, "wait_acked", acked_then_dies)
    with pytest.raises((psycopg.Error, kafka.KafkaException)):
        r.once()
    assert outbox.depth(lab.conn) == 20 and len(topic(lab)) == 20
    monkeypatch.setattr(kafka, "wait_acked", wait)
    with running(lab, consumers=0):  # another relay takes over
        until(lambda: outbox.depth(lab.conn) == 0)
    r.close()
    got = topic(lab)
    assert Counter(e.ms for _, _, e in got) == {i: 2 for i in range(1, 21)}
    assert in_order(got)[B] == list(range(1, 21))


def test_a_running_relay_survives_the_loss_of_its_connections(lab):
    said, stop = [], threading.Event()
    r = Relay(lab.settings, lab.addresses.postgres_url, lab.addresses.kafka_bootstrap)
    t = threading.Thread(target=r.run, args=(stop.is_set, said.append))
    t.start()
    try:
        for i, lost in enumerate(["conn", "bell", "conn"], 1):
            put(lab, lab.conn, B, i)
            until(lambda: outbox.depth(lab.conn) == 0)
            mine = getattr(r, lost)
            lab.conn.execute("select pg_terminate_backend(%s)", (mine.info.backend_pid,))
            until(lambda: getattr(r, lost) not in (None, mine))  # noqa: B023
        put(lab, lab.conn, B, 4)
        until(lambda: outbox.depth(lab.conn) == 0)
    finally:
        stop.set()
        t.join(20)
    assert in_order(topic(lab))[B] == [1, 2, 3, 4]
    assert any("waiting" in s for s in said) and any("again" in s for s in said)


def test_notify_wakes_long_before_the_poll(lab):
    """Polling every 60 s: what arrives sooner was woken for."""
    s = lab.settings.model_copy(update={"relay_poll_s": 60.0})
    stop, r = threading.Event(), Relay(s, lab.addresses.postgres_url, lab.addresses.kafka_bootstrap)
    t = threading.Thread(target=r.run, args=(stop.is_set,))
    t.start()
    try:
        put(lab, lab.conn, B, 1)
        until(lambda: outbox.depth(lab.conn) == 0, 10)  # it is up, and waits
        start = time.monotonic()
        for i in range(2, 7):
            put(lab, lab.conn, B, i)
            until(lambda: outbox.depth(lab.conn) == 0, 10)
        assert time.monotonic() - start < 5
    finally:
        stop.set()
        put(lab, lab.conn, B, 7)  # the bell, so that it looks at `stop`
        t.join(20)
        assert not t.is_alive()


def test_polling_is_the_net_below_notify(lab):
    """A row without its NOTIFY (a listener that reconnected in the wrong moment) is found by polling."""
    with running(lab, consumers=0):
        put(lab, lab.conn, B, 1)
        until(lambda: outbox.depth(lab.conn) == 0)
        row = outbox.row(lab.names, Event("posted", author=B, post=2, ms=2))
        lab.conn.execute("insert into outbox (topic, key, payload) values (%(topic)s, %(key)s, %(payload)s)", row)
        until(lambda: outbox.depth(lab.conn) == 0, 5)


def test_a_batch_is_bounded(lab):
    r = relay(lab, batch=10)
    for i in range(25):
        put(lab, lab.conn, i, 1)
    assert [r.once() for _ in range(4)] == [10, 10, 5, 0]
    r.close()
