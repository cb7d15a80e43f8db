"""What all ways of getting an engine share: names, the dataclasses of the API, and how an engine is asked whether it is
well.

Only the standard library is imported at the top: `import feedlab.engines` must stay far below a second.
"""
import re
from dataclasses import asdict, dataclass, replace
from urllib.parse import unquote

NAMES = ("postgres", "redis", "kafka")
TITLES = {"postgres": "PostgreSQL", "redis": "Redis", "kafka": "Kafka"}
FIELDS = {"postgres": "postgres_url", "redis": "redis_url", "kafka": "kafka_bootstrap"}
VARIABLES = {name: "FEEDLAB_" + field.upper() for name, field in FIELDS.items()}


@dataclass(frozen=True)
class Addresses:
    """Where the three engines answer; what clients connect with."""

    postgres_url: str
    redis_url: str
    kafka_bootstrap: str

    def of(self, name: str) -> str:
        return getattr(self, FIELDS[name])

    def environment(self) -> dict[str, str]:
        """The variables by which a process of its own finds the same engines."""
        return {VARIABLES[name]: self.of(name) for name in NAMES}


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


SECRET = r"(?:ssl)?password"  # what libpq and redis-py call one, as a key of a query or of a conninfo
# a user and the colon before its password, which ends at the last @ of the word: one with / or # or @ in it must be gone
# as well. What looks like host:port/database?user=me@server is none.
_USER = r"(://[^:@/\s]*):(?!\d+(?:,[^@/?\s]*)?(?:/[^@?\s]*)?(?:[?]\S*)?(?:\s|$))"


def masked(text: str, *addresses: str) -> str:
    """An address, or a text in which some stand, without passwords: for the screen, a log, a report.

    `addresses` are those that the text speaks of: a client may quote a part of one, so each secret of theirs goes, too.

    >>> masked("postgresql://u:p@h/x?sslpassword=q"), masked("host=h password='a b' port=1")
    ('postgresql://u:***@h/x?sslpassword=***', 'host=h password=*** port=1')
    """
    for secret in sorted({s for a in addresses for s in _secrets(a)}, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "***", text)
    # key=value first: a value may hold an @, and a quoted one blanks (as libpq reads it, with \ before a quote)
    text = re.sub(rf"(?i)\b({SECRET}\s*=\s*)('(?:[^'\\]|\\.)*(?:'|$)|[^\s&'\"]+)", r"\1***", text)
    return re.sub(rf"{_USER}\S*@", r"\1:***@", text)


def _secrets(address: str) -> set[str]:
    """Every password in an address, as typed and as decoded; of one that cannot be parsed, what is where one would be."""
    found = re.findall(rf"(?i)\b{SECRET}\s*=\s*'((?:[^'\\]|\\.)*)(?:'|$)", address)
    found += re.findall(rf"(?i)\b{SECRET}\s*=\s*([^\s&'\"]+)", address)
    if user := re.search(rf"{_USER}(.*)@", address, re.S):
        found.append(user[2])
    if "://" not in address and "=" in address:
        try:
            from psycopg.conninfo import conninfo_to_dict
            found += [str(v) for k, v in conninfo_to_dict(address).items() if re.fullmatch(SECRET, k)]
        except Exception:  # no driver, or no conninfo: what was found as text must do
            pass
    # a parser quotes the part that it stumbled over
    found += [part for one in found for part in re.split(r"[\s/?#@:'\\]+", one)]
    return {s for one in found for s in (one, unquote(one), re.sub(r"\\(.)", r"\1", one)) if s}


def short(error: BaseException | str, *addresses: str) -> str:
    """First line of an error, at most 200 characters, with no password in it (of `addresses`: see `masked`)."""
    inner = error.args[0] if isinstance(error, BaseException) and error.args else None
    # librdkafka's errors print as KafkaError{code=...}; they have a readable text as well
    text = inner.str() if hasattr(inner, "str") and hasattr(inner, "code") else str(error).strip()
    text = text or type(error).__name__
    return masked(" ".join(text.splitlines()[:1]), *addresses)[:200]


# first part of the module that an exception's class lives in -> the engine that it speaks of
_MODULES = {"psycopg": "postgres", "psycopg_pool": "postgres", "redis": "redis", "confluent_kafka": "kafka",
            "cimpl": "kafka"}


def engine_of(error: BaseException) -> str | None:
    """The engine whose driver raised this, by the module of its class."""
    if isinstance(error, BufferError):  # a full producer
        return "kafka"
    for kind in type(error).__mro__:
        if name := _MODULES.get(kind.__module__.partition(".")[0]):
            return name
    return None


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
