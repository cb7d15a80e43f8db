"""What a command opens: only what it needs. A post can be written while Redis and Kafka are away."""

import re
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urlsplit

from .. import db, engines
from ..config import Settings, settings
from ..core.codec import Names
from ..errors import BadInput


@dataclass
class Store:
    """PostgreSQL with its tables, and Redis as soon as it is asked for."""

    settings: Settings
    addresses: engines.Addresses
    conn: db.Connection
    names: Names

    @cached_property
    def redis(self):
        """A client that has not connected yet: reader and follows cope with a Redis that is away."""
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        check_redis(self.addresses.redis_url)
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


# --- addresses that no waiting will make right -----------------------------------------------------------------------


def check_addresses(a: engines.Addresses) -> None:
    """For the loops, which wait for an engine that is away: raises BadInput for an address that can never answer."""
    import psycopg

    try:
        parts = psycopg.conninfo.conninfo_to_dict(a.postgres_url)
        ports = str(parts.get("port") or "5432").split(",")
        if not all(p == "" or p.isdigit() and 0 < int(p) < 65536 for p in ports):
            raise BadInput(f"FEEDLAB_POSTGRES_URL: {','.join(ports)[:40]!r} is not a port. {POSTGRES_FORM}")
    except psycopg.Error as e:
        # libpq quotes the part that it stumbled over, which may be the password
        said = re.sub(r'"[^"]*"', '"***"' if "@" in a.postgres_url else r"\g<0>", str(e).strip())
        raise BadInput(f"FEEDLAB_POSTGRES_URL cannot be used: {said}. {POSTGRES_FORM}") from None
    check_redis(a.redis_url)
    for one in a.kafka_bootstrap.split(","):
        name, _, port = one.strip().rpartition(":")
        name = name.rpartition("://")[2]
        if (
            not re.fullmatch(r"[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]", name)
            or not port.isdigit()
            or not 0 < int(port) < 65536
        ):
            raise BadInput(f"FEEDLAB_KAFKA_BOOTSTRAP: {one.strip()[:60]!r} is not of the form host:port.")


POSTGRES_FORM = "Its form is postgresql://user:password@host:port/database"


def check_redis(url: str) -> None:
    import redis

    try:
        if urlsplit(url).scheme not in ("redis", "rediss", "unix"):
            raise ValueError("it must start with redis://, rediss:// or unix://")
        redis.Redis.from_url(url)
    except ValueError as e:
        raise BadInput(f"FEEDLAB_REDIS_URL cannot be used: {e}. Its form is redis://host:port/0") from None
