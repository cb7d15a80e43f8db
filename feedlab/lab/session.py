"""Everything that a command, a test or a notebook needs open, in one `with`: settings, addresses, connections, names.

The modules of the way of a post take what they use as arguments; this only opens and closes it.
"""
import time
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
import redis
from confluent_kafka.admin import AdminClient

from .. import db, engines, kafka, timeline
from ..addresses import Addresses
from ..config import Settings
from ..core.codec import Names
from ..core.model import Page
from ..core.snowflake import Snowflake
from ..errors import BadInput
from ..reader import Reader


@dataclass
class Lab:
    settings: Settings
    addresses: Addresses
    conn: psycopg.Connection
    redis: redis.Redis
    admin: AdminClient
    names: Names
    ids: Snowflake
    reader: Reader

    def page(self, user: int, cursor: str | None = None, limit: int = 20) -> Page:
        return self.reader.page(self.conn, self.redis, user, cursor, limit)

    def drain(self, timeout_s: float = 60, **options) -> None:
        """Wait for outbox and lag to be 0, then for local copies to be as new."""
        kafka.wait_drained(self.conn, self.redis, self.admin, self.names, timeout_s, **options)
        self.reader.copies.clear()

    def stats(self) -> dict[str, int]:
        """The fan-out's counters (deliveries, added, missing, below, trimmed, pushed, pulled ...)."""
        return {k: int(v) for k, v in self.redis.hgetall(self.names.stats).items()}


@contextmanager
def open_lab(settings: Settings, addresses: Addresses | None = None, create: bool = True):
    """A Lab on engines that are up; schema and topics are made if missing, unless it is opened only to be wiped. Raises EngineDown."""
    addresses = addresses or engines.addresses(settings)
    conn = db.connect(addresses.postgres_url, settings.namespace)
    try:
        if create:
            db.apply_schema(conn, settings)
        r = timeline.connect(addresses.redis_url)
        names = Names(settings.namespace)
        if create:
            kafka.ensure_topics(addresses.kafka_bootstrap, names, settings.partitions)
        try:
            yield Lab(settings, addresses, conn, r, kafka.admin(addresses.kafka_bootstrap), names,
                      db.ids(conn) if create else None, Reader(settings))
        finally:
            r.close()
    finally:
        conn.close()


def remove(settings: Settings, addresses: Addresses) -> None:
    """`wipe` a namespace, whether there is anything in it or not; nothing is made first."""
    with open_lab(settings, addresses, create=False) as lab:
        wipe(lab)


def wipe(lab: Lab) -> None:
    """Remove everything of this lab's namespace from the engines, and nothing else. Raises BadInput when the schema is not ours."""
    if not db.ours(lab.conn, lab.settings.namespace):
        raise BadInput(f"schema {lab.settings.namespace} was not made by feedlab; nothing was removed.")
    doomed = {*lab.names.topics, lab.names.dead} & set(lab.admin.list_topics(timeout=10).topics)
    for future in (lab.admin.delete_topics(list(doomed), operation_timeout=10) if doomed else {}).values():
        try:
            future.result()
        except Exception:                       # a topic that was never made
            pass
    lab.conn.execute(f'drop schema if exists "{lab.settings.namespace}" cascade')
    keys = list(lab.redis.scan_iter(match=f"{lab.settings.namespace}:*", count=1000))
    for i in range(0, len(keys), 1000):
        lab.redis.unlink(*keys[i:i + 1000])
    until = time.monotonic() + 10
    while doomed & set(lab.admin.list_topics(timeout=10).topics) and time.monotonic() < until:
        time.sleep(0.05)
