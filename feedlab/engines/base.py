"""How an engine is asked whether it is well, and what `feedlab status` shows of it.

Only the standard library is imported at the top: `import feedlab.engines` must stay far below a second.
"""
from dataclasses import asdict, dataclass, replace

from ..addresses import short


@dataclass(frozen=True)
class Probe:
    """An engine's own answer. `memory` is None where it cannot tell; `error` is "" when it is well; `hopeless` is an
    error that waiting does not mend."""

    version: str = ""
    memory: int | None = None
    detail: str = ""
    error: str = ""
    hopeless: bool = False


@dataclass(frozen=True)
class EngineStatus:
    """One engine as `feedlab status` shows it. `address` has its password masked; `source` is yours, containers,
    embedded or none."""

    name: str
    source: str
    version: str
    address: str
    pid: int | None
    memory_bytes: int | None
    healthy: bool
    detail: str

    def as_dict(self) -> dict:
        return asdict(self)


def probe(name: str, address: str, timeout: float = 3.0) -> Probe:
    """Ask the engine at `address` whether it is ready, its version and its memory. Never raises; takes about
    `timeout`."""
    try:
        return _PROBES[name](address, timeout)
    except ImportError as e:
        return Probe(error=f"its client library cannot be loaded ({short(e)}): `pip install -r constraints.txt`",
                     hopeless=True)
    except Exception as e:  # every driver has its own hierarchy, and a wrong URL raises anything
        return Probe(error=short(e, address))


def _postgres(address: str, timeout: float) -> Probe:
    import psycopg
    # psycopg takes whole seconds and at least 2
    with psycopg.connect(address, connect_timeout=max(2, round(timeout)), autocommit=True,
                         options=f"-c statement_timeout={int(timeout * 1000)}") as conn:
        version, recovering = conn.execute("select current_setting('server_version'), pg_is_in_recovery()").fetchone()
        if recovering:
            return Probe(version, error="is a read-only standby or still recovering")
        return Probe(version.split()[0])


def _redis(address: str, timeout: float) -> Probe:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry
    with redis.Redis.from_url(address, socket_timeout=timeout, socket_connect_timeout=timeout, decode_responses=True,
                              retry=Retry(NoBackoff(), 0)) as client:
        client.ping()
        info = client.info()
        if int(info.get("loading", 0)):
            return Probe(error="still loads its data")
        valkey = info.get("valkey_version")
        version = valkey or info.get("redis_version", "")
        server = info.get("server_name") or ("valkey" if valkey else "redis")
        allocator = info.get("mem_allocator", "unknown allocator")
        major = int(str(info.get("redis_version", "0")).split(".")[0])
        if not valkey and major < 7:
            return Probe(version, error=f"is version {version}; 7 or later is needed")
        return Probe(str(version), int(info.get("used_memory_rss", 0)) or None, f"{server}, {allocator}")


def _kafka(address: str, timeout: float) -> Probe:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic
    # librdkafka writes its connection errors to stderr; a probe of a broker that is down must be silent, so they are
    # dropped
    admin = AdminClient({"bootstrap.servers": address, "socket.timeout.ms": int(timeout * 1000), "log_level": 0,
                         "socket.connection.setup.timeout.ms": max(1000, int(timeout * 1000)),
                         "reconnect.backoff.max.ms": 200, "error_cb": lambda _: None})
    meta = admin.list_topics(timeout=timeout)
    if not meta.brokers:
        return Probe(error="knows of no broker")
    # metadata is answered before a restarted broker may lead a partition; only the controller tells when it may
    try:
        admin.create_topics([NewTopic("feedlab-probe", 1, 1)], validate_only=True,
                            operation_timeout=timeout, request_timeout=timeout)["feedlab-probe"].result(timeout + 1)
    except KafkaException as e:
        if e.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    brokers = len(meta.brokers)
    return Probe("", None, f"{brokers} broker{'s' if brokers > 1 else ''}, "
                           f"{len(meta.topics)} topic{'' if len(meta.topics) == 1 else 's'}")


_PROBES = {"postgres": _postgres, "redis": _redis, "kafka": _kafka}
KAFKA_UNKNOWN = "version unknown (librdkafka does not tell)"


def with_version(p: Probe, version: str) -> Probe:
    return replace(p, version=version)
