"""Kafka: topics, producer, consumer, and how far behind the consumer is."""
import time
from collections.abc import Callable
from functools import cached_property

import redis
from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .core.codec import Names
from .errors import EngineDown


def _base(bootstrap: str) -> dict:
    # log_level 2 (critical): a broker that is away is said by us, once, not by librdkafka ten times a second
    return {"bootstrap.servers": bootstrap, "log_level": 2, "reconnect.backoff.max.ms": 1000,
            "allow.auto.create.topics": False, "error_cb": lambda e: None}


class Admin(AdminClient):
    """An admin client that asks for offsets as a consumer does. By the admin API, librdkafka aborts the whole process (assertion
    eonce->refcnt > 0) when the broker dies while the request is out: confluentinc/librdkafka#4605, seen here with 2.16.0."""

    def __init__(self, bootstrap: str):
        super().__init__(_base(bootstrap))
        self.base = _base(bootstrap) | {"group.id": "feedlab.offsets"}      # which it never joins

    @cached_property
    def asker(self) -> Consumer:
        return Consumer(self.base)


def admin(bootstrap: str) -> Admin:
    return Admin(bootstrap)


def ensure_topics(bootstrap: str, names: Names, partitions: int, timeout_s: float = 15) -> None:
    """Create the namespace's topics; those that exist stay as they are. Raises EngineDown when no broker answers."""
    a = admin(bootstrap)
    wanted = [NewTopic(t, partitions) for t in names.topics] + [NewTopic(names.dead, 1)]
    until, made = time.monotonic() + timeout_s, False
    try:
        for future in a.create_topics(wanted, operation_timeout=timeout_s, request_timeout=timeout_s).values():
            try:
                future.result()
                made = True
            except KafkaException as e:
                if e.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
        # the controller has answered, the broker may not know them yet: who subscribed now would get "unknown topic"
        while made and not {t.topic for t in wanted} <= set(a.list_topics(timeout=timeout_s).topics) and time.monotonic() < until:
            time.sleep(0.02)
    except KafkaException as e:
        raise EngineDown(f"Kafka at {bootstrap} does not answer: {e.args[0].str()}. "
                         "`feedlab doctor` says what is wrong, `feedlab up` starts it.") from None


def producer(bootstrap: str, **changes) -> Producer:
    """acks=all and idempotent: a retry inside the client neither repeats nor reorders."""
    return Producer(_base(bootstrap) | {
        "enable.idempotence": True, "acks": "all", "linger.ms": 2, "compression.type": "lz4",
        "delivery.timeout.ms": 10_000, "queue.buffering.max.messages": 200_000} | changes)


def consumer(bootstrap: str, group: str, **changes) -> Consumer:
    """A member of a group. Offsets are committed by hand, after the effect."""
    return Consumer(_base(bootstrap) | {
        "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest",
        "partition.assignment.strategy": "range", "session.timeout.ms": 10_000, "heartbeat.interval.ms": 1_000,
        "fetch.wait.max.ms": 50, "topic.metadata.refresh.interval.ms": 5_000} | changes)


def wait_acked(p: Producer, failures: list, timeout_s: float = 15) -> None:
    """Wait until everything that was produced is acknowledged. Raises KafkaException when something was not."""
    left = p.flush(timeout_s)
    if left or failures:
        raise KafkaException(failures[0] if failures else
                             KafkaError(KafkaError._TIMED_OUT, f"{left} records were not acknowledged in {timeout_s} s"))


SETTLING = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._UNKNOWN_PARTITION, KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH,
            # a broker's first group: the topic of offsets is still being made
            KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)


def field(topic: str, partition: int) -> str:
    """A partition's field in the progress hash."""
    return f"{topic}:{partition}"


def end_offsets(a: Admin, topics, timeout_s: float = 10) -> dict[str, int]:
    """`topic:partition` -> the offset that the next record will get. Raises EngineDown when no broker answers."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            return _end_offsets(a, topics, timeout_s)
        except KafkaException as e:      # a topic that was just made, or a broker that just came back, has no leader yet
            if e.args[0].code() not in SETTLING or time.monotonic() > until:
                raise EngineDown(f"Kafka does not answer: {e.args[0].str()}. `feedlab doctor` says what is wrong.") from None
            time.sleep(0.05)


def _end_offsets(a: Admin, topics, timeout_s: float) -> dict[str, int]:
    known = a.asker.list_topics(timeout=timeout_s).topics       # of the client that asks: it must know of added partitions
    unknown = [t for t in topics if t not in known or not known[t].partitions]
    if unknown:          # just made, or the broker is just back: to call them empty would be to call their records handled
        raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART, f"no topic {unknown[0]}"))
    wanted = [TopicPartition(t, p, OFFSET_END) for t in topics for p in known[t].partitions]
    found = a.asker.offsets_for_times(wanted, timeout=timeout_s) if wanted else []      # the time "end": one request a broker
    for p in found:
        if p.error:
            raise KafkaException(p.error)
    return {field(p.topic, p.partition): p.offset for p in found}


def lag(a: Admin, r: redis.Redis, names: Names) -> int:
    """Records that are in Kafka but whose effect is not in Redis.

    Counted from the place that Redis itself holds (see fanout), so that a Redis which lost writes shows as lag at once.
    """
    done = r.hgetall(names.progress)
    return sum(max(0, end - int(done.get(f, 0))) for f, end in end_offsets(a, names.topics).items())


def wait_drained(conn, r: redis.Redis, a: AdminClient, names: Names, timeout_s: float = 60,
                 tick: Callable[[int, int], None] = lambda outbox, lag: None) -> None:
    """Wait until the outbox is empty and the lag is 0. Raises EngineDown at the deadline, with what was left."""
    from .outbox import depth
    end = time.monotonic() + timeout_s
    while True:
        rows, behind = depth(conn), lag(a, r, names)
        tick(rows, behind)
        # the outbox is looked at again after the lag: what the relay moved in between would be in neither
        if rows == 0 and behind == 0 and depth(conn) == 0 and lag(a, r, names) == 0:
            return
        if time.monotonic() > end:
            raise EngineDown(f"not drained after {timeout_s:.0f} s: {rows} outbox rows, {behind} records behind. "
                             "Are `feedlab relay` and `feedlab fanout` running?")
        time.sleep(0.02)


def wait_members(a: AdminClient, group: str, members: int, timeout_s: float = 30) -> None:
    """Wait until a group has so many members and each has partitions. Raises EngineDown at the deadline."""
    end = time.monotonic() + timeout_s
    while True:
        try:
            found = a.describe_consumer_groups([group], request_timeout=10)[group].result()
            working = [m for m in found.members if m.assignment and m.assignment.topic_partitions]
            if found.state.name == "STABLE" and len(working) >= members:
                return
        except KafkaException as e:
            if not e.args[0].retriable() and e.args[0].code() not in SETTLING:
                raise
        if time.monotonic() > end:
            raise EngineDown(f"no consumer of {group} had partitions after {timeout_s:.0f} s. Look at its log, or `feedlab doctor`.")
        time.sleep(0.05)
