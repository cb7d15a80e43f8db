"""Topics, acknowledgements, and how far behind the consumer is."""

import socket
import threading
import time

import pytest
from confluent_kafka import KafkaException
from conftest import add_users, until

from feedlab import kafka, outbox, posts
from feedlab.core.codec import Event, Names
from feedlab.errors import EngineDown

LAB = {"partitions": 3}


@pytest.fixture
def nobody():
    """An address where no broker answers."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{s.getsockname()[1]}"


def produce(lab, topic, n):
    p, failures = kafka.producer(lab.addresses.kafka_bootstrap), []
    for i in range(n):
        p.produce(topic, b"junk", str(i).encode(), on_delivery=lambda e, _: failures.append(e) if e else None)
    kafka.wait_acked(p, failures)


def partitions(lab):
    known = lab.admin.list_topics(timeout=10).topics
    return {t: len(known[t].partitions) for t in (*lab.names.topics, lab.names.dead)}


def test_topics_are_made_once_and_stay_as_they_are(lab):
    want = {t: 3 for t in lab.names.topics} | {lab.names.dead: 1}
    assert partitions(lab) == want
    kafka.ensure_topics(lab.addresses.kafka_bootstrap, lab.names, 9)
    assert partitions(lab) == want


def test_two_may_make_them_at_once(lab):
    names, failed = Names(lab.settings.namespace + "_race"), []

    def make():
        try:
            kafka.ensure_topics(lab.addresses.kafka_bootstrap, names, 1)
        except Exception as e:
            failed.append(e)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    try:
        assert failed == []
        until(lambda: len(kafka.end_offsets(lab.admin, names.topics)) == 3)
    finally:
        for f in lab.admin.delete_topics([*names.topics, names.dead]).values():
            f.result()


def test_end_offsets_of_every_partition_and_none_of_the_unknown(lab):
    n = lab.names
    before = kafka.end_offsets(lab.admin, n.topics)
    assert set(before) == {kafka.field(t, p) for t in n.topics for p in range(3)}
    produce(lab, n.created, 20)
    after = kafka.end_offsets(lab.admin, n.topics)
    assert sum(after.values()) - sum(before.values()) == 20
    with pytest.raises(EngineDown, match="no topic"):       # to call it empty would be to call its records handled
        kafka.end_offsets(lab.admin, ["t_kafka.no-such-topic"], timeout_s=1)


def test_lag_is_counted_from_the_place_in_redis(lab):
    n, r = lab.names, lab.redis
    r.delete(n.progress)
    produce(lab, n.created, 6)
    ends = kafka.end_offsets(lab.admin, n.topics)
    assert kafka.lag(lab.admin, r, n) == sum(ends.values()) > 0  # an empty Redis has everything before it
    r.hset(n.progress, mapping=ends)
    assert kafka.lag(lab.admin, r, n) == 0
    some = max(ends, key=ends.get)
    r.hset(n.progress, some, ends[some] - 2)
    assert kafka.lag(lab.admin, r, n) == 2
    r.hset(n.progress, some, ends[some] + 50)  # a topic that was made anew
    assert kafka.lag(lab.admin, r, n) == 0


def test_wait_drained_says_what_is_left(lab):
    add_users(lab, 1)
    lab.redis.hset(lab.names.progress, mapping=kafka.end_offsets(lab.admin, lab.names.topics))
    kafka.wait_drained(lab.conn, lab.redis, lab.admin, lab.names, 5)
    posts.create(lab.conn, lab.ids, lab.names, 1, "x")
    outbox.put(lab.conn, lab.names, Event("demote", author=1))
    seen = []
    with pytest.raises(EngineDown, match="2 outbox rows, 0 records behind.*feedlab relay.*feedlab fanout"):
        kafka.wait_drained(
            lab.conn, lab.redis, lab.admin, lab.names, 0.3, tick=lambda rows, lag: seen.append((rows, lag))
        )
    assert set(seen) == {(2, 0)} and len(seen) > 1
    lab.conn.execute("truncate outbox")
    produce(lab, lab.names.slices, 2)
    with pytest.raises(EngineDown, match="0 outbox rows, 2 records behind"):
        kafka.wait_drained(lab.conn, lab.redis, lab.admin, lab.names, 0.3)


def test_what_is_not_acknowledged_is_an_error(lab, nobody):
    p, failures = kafka.producer(nobody, **{"delivery.timeout.ms": 300, "linger.ms": 0}), []
    p.produce(lab.names.created, b"x", on_delivery=lambda e, _: failures.append(e))
    with pytest.raises(KafkaException):
        kafka.wait_acked(p, failures, 0.1)  # not even answered in time
    p.flush(5)
    with pytest.raises(KafkaException):
        kafka.wait_acked(p, failures, 0.1)  # answered: it failed
    p = kafka.producer(lab.addresses.kafka_bootstrap, **{"delivery.timeout.ms": 2_000})
    p.produce("t_kafka.no-such-topic", b"x", on_delivery=lambda e, _: failures.append(e))
    failures.clear()
    with pytest.raises(KafkaException):
        kafka.wait_acked(p, failures)


def test_no_broker_is_one_sentence_within_the_time_given(nobody):
    for ask in (
        lambda: kafka.ensure_topics(nobody, Names("t_kafka_nobody"), 1, 1),
        lambda: kafka.end_offsets(kafka.admin(nobody), ["t"], 1),
    ):
        start = time.monotonic()
        with pytest.raises(EngineDown, match="feedlab doctor"):
            ask()
        assert time.monotonic() - start < 6
