"""2 The relay: outbox rows to Kafka, none skipped, each author in order.

It never asks for `id > last` (a row that commits late would be skipped, F8); it asks for the rows that are there, and deletes
them once Kafka has acknowledged them. What dies in between is sent again: at least once.

Two relays share the work by slices of keys: a transaction-level advisory lock a slice, held until the deletes are committed.
PostgreSQL lets go of it when a relay dies, and after 30 s when one hangs (idle_in_transaction_session_timeout).
"""
import time
from collections.abc import Callable

import psycopg
from confluent_kafka import KafkaException

from . import db, kafka
from .addresses import away
from .config import Settings
from .core.codec import Names

SLICES = 16      # as in the generated column outbox.slice

# The locks are taken in a statement of their own: the next one has a newer snapshot, which sees what the last holder deleted.
LOCK = "select s from generate_series(0, 15) s where pg_try_advisory_xact_lock(hashtext(%s), s)"
ROWS = """
    select id, topic, key, payload, (extract(epoch from created_at) * 1000)::bigint from outbox
    where slice = any(%s) order by id limit %s"""


class Relay:
    """`once()` moves one batch; `run(stop)` goes on until told to stop, through any engine's absence."""

    def __init__(self, settings: Settings, postgres_url: str, bootstrap: str, batch: int = 1_000):
        self.settings, self.names = settings, Names(settings.namespace)
        self.postgres_url, self.bootstrap, self.batch = postgres_url, bootstrap, batch
        self.conn = self.bell = self.producer = None

    def open(self) -> None:
        """The bell and the broker first, `conn` last: who waits for a relay waits for that one (`running`), and then all is ready."""
        self.bell = db.connect(self.postgres_url, self.settings.namespace, f"relay bell {self.settings.namespace}")
        self.bell.execute(f'listen "{self.names.channel}"')
        self.producer = kafka.producer(self.bootstrap)
        self.producer.list_topics(self.names.created, timeout=5)      # connects; else the first post would wait for it
        self.conn = db.connect(self.postgres_url, self.settings.namespace, f"relay {self.settings.namespace}")

    def close(self) -> None:
        for c in (self.conn, self.bell):
            if c is not None:
                c.close()
        self.conn = self.bell = self.producer = None

    def once(self) -> int:
        """Move the oldest rows of the free slices; how many. Raises KafkaException or a psycopg error, and then nothing is lost:
        the rows are still there."""
        failures: list = []

        def on_delivery(error, _message):
            if error:
                failures.append(error)

        with self.conn.transaction():
            slices = [s for s, in self.conn.execute(LOCK, (f"feedlab relay {self.settings.namespace}",))]
            rows = self.conn.execute(ROWS, (slices, self.batch)).fetchall() if slices else []
            for _, topic, key, payload, at in rows:
                self.producer.produce(topic, payload.encode(), str(key).encode(), on_delivery=on_delivery,
                                      headers={"outbox-ms": str(at)})
                self.producer.poll(0)
            if rows:
                kafka.wait_acked(self.producer, failures)
                self.conn.execute("delete from outbox where id = any(%s)", ([row[0] for row in rows],))
        return len(rows)

    def wait(self, timeout_s: float) -> None:
        """Until a NOTIFY comes, or the time is up (polling is the net)."""
        for _ in self.bell.notifies(timeout=timeout_s, stop_after=1):
            pass

    def run(self, stop: Callable[[], bool], say: Callable[[str], None] = lambda text: None) -> int:
        """Until `stop()`; rows moved. An engine that is away is waited for and said once."""
        moved, trouble = 0, False
        while not stop():
            try:
                if self.conn is None:
                    self.open()
                n = self.once()
                if trouble:
                    say("relay: all engines answer again")
                moved, trouble = moved + n, False
                if n < self.batch:
                    self.wait(self.settings.relay_poll_s)
            except (psycopg.Error, KafkaException, db.EngineDown, BufferError) as e:
                if not trouble:
                    say("relay: waiting, since " + away(e, postgres=self.postgres_url, kafka=self.bootstrap))
                trouble = True
                self.close()
                time.sleep(0.2)
        self.close()
        return moved


def running(conn: db.Connection, namespace: str) -> int:
    """How many relays of a namespace are connected."""
    return conn.execute("select count(*) from pg_stat_activity where application_name = %s", (f"relay {namespace}",)).fetchone()[0]
