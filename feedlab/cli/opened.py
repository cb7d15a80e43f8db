"""What a command opens: only what it needs. A post can be written while Redis and Kafka are away."""

from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from .. import db, engines
from ..addresses import Addresses, check_addresses
from ..config import Settings, settings
from ..core.codec import Names

__all__ = ["Store", "check_addresses", "store"]


@dataclass
class Store:
    """PostgreSQL with its tables, and Redis as soon as it is asked for."""

    settings: Settings
    addresses: Addresses
    conn: db.Connection
    names: Names

    @cached_property
    def redis(self):
        """A client that has not connected yet: reader and follows cope with a Redis that is away."""
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        return redis.Redis.from_url(
            self.addresses.redis_url,
            decode_responses=True,
            socket_timeout=5,
            socket_connect_timeout=2,
            retry=Retry(NoBackoff(), 1),
        )


@contextmanager
def store():
    """A Store on the engines of this checkout. Raises EngineDown when PostgreSQL is away."""
    s = settings()
    # running=False: one that is down is found by who needs it, and the others need not care
    a = engines.addresses(s, running=False)
    conn = db.connect(a.postgres_url, s.namespace)
    try:
        db.apply_schema(conn, s)
        opened = Store(s, a, conn, Names(s.namespace))
        yield opened
        if "redis" in vars(opened):
            opened.redis.close()
    finally:
        conn.close()
