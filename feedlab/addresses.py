"""Where the engines are: their names, addresses and forms, passwords masked, and errors of their drivers in one line.

Nothing here starts, stops or asks an engine (that is `feedlab.engines`), so that a station may import it. Only the standard library
is imported at the top.
"""
import os
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from .errors import BadInput, FeedlabError

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


FORMS = {"postgres": "postgresql://user:password@host:port/database", "redis": "redis://host:port/0",
         "kafka": "host:port, several with commas"}
SCHEMES = {"postgres": ("postgresql", "postgres"), "redis": ("redis", "rediss", "unix"), "kafka": ()}
DEFAULT_PORTS = {"postgres": 5432, "redis": 6379, "kafka": 9092}
NO_PORT = "its port is not a number from 1 to 65535"


# --- the form: what no waiting will make right

def check(name: str, address: str) -> None:
    """Raises BadInput for an address that can never answer: the variable, what is wrong with it, the right form.
    Connects to nothing."""
    if wrong := malformed(name, address):
        raise BadInput(wrong)


def check_addresses(a: Addresses) -> None:
    """The same for all three."""
    for name in NAMES:
        check(name, a.of(name))


def malformed(name: str, address: str) -> str:
    """The sentence of `check`, "" if the form is right."""
    scheme, has_scheme, _ = address.strip().partition("://")
    if not address.strip():
        wrong = "it is empty"
    elif has_scheme and scheme.lower() not in SCHEMES[name] and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme):
        wrong = f"it starts with {scheme[:20]}://, which is not how an address of {TITLES[name]} starts"
    else:
        wrong = _WRONG[name](address)
    if not wrong:
        return ""
    shown = masked(address, address)
    if name == "postgres" and "://" not in address:  # a password with a blank and no quotes goes up to the next key
        shown = re.sub(rf"(?i)\b({SECRET}\s*=).*?(?=\s+\w+\s*=|$)", r"\1***", shown)
    return (f"{VARIABLES[name]}={shown if len(shown) <= 80 else shown[:77] + '...'} cannot be used: "
            f"{short(wrong, address).rstrip('.')}. Its form is {FORMS[name]}")


def _wrong_postgres(address: str) -> str:
    import psycopg
    try:
        parts = psycopg.conninfo.conninfo_to_dict(address)
    except psycopg.Error as e:
        # libpq quotes the part that it stumbled over, which may be the password
        secret = "@" in address or "password" in address.lower()
        return re.sub(r'"[^"]*"', '"***"' if secret else r"\g<0>", str(e).strip())
    ports = str(parts.get("port") or "").split(",")
    return "" if all(p == "" or _is_port(p) for p in ports) else NO_PORT


def _wrong_redis(address: str) -> str:
    if "://" not in address:
        return "it does not start with redis://, rediss:// or unix://"
    try:
        parts = urlsplit(address)
        if parts.port == 0:
            return NO_PORT
    except ValueError:
        return NO_PORT if "@" not in address else f"{NO_PORT}, or its password holds a / ? # @ that is not %-encoded"
    if parts.scheme.lower() == "unix":
        if not parts.path.strip("/"):
            return "it names no socket file"
    elif not re.fullmatch(r"/?|/\d{1,9}/?", parts.path):
        return f"{parts.path[:20]!r} is not the number of a database"
    for key, value in parse_qsl(parts.query, keep_blank_values=True):
        if key == "db" and not re.fullmatch(r"\d{1,9}", value):
            return "db= is not the number of a database"
    import redis
    try:
        with redis.Redis.from_url(address) as client:
            client.connection_pool.connection_class(**client.connection_pool.connection_kwargs)  # connects to nothing
    except (ValueError, TypeError, redis.RedisError) as e:
        # Python's own words for an option that nobody knows
        unknown = re.search(r"unexpected keyword argument '(\w+)'", str(e))
        return f"it has no option {unknown[1]!r}" if unknown else str(e)
    return ""


def _wrong_kafka(address: str) -> str:
    for one in address.split(","):
        one = one.strip()
        name, _, port = one.rpartition(":")
        if not one:
            return "there is nothing before or after one of its commas"
        if not re.fullmatch(r"[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]", name) or not _is_port(port):
            return f"{one[:60]!r} is not of the form host:port"
    return ""


_WRONG = {"postgres": _wrong_postgres, "redis": _wrong_redis, "kafka": _wrong_kafka}


def _is_port(text: str) -> bool:
    return bool(re.fullmatch(r"[0-9]{1,5}", text)) and 0 < int(text) < 65536


# --- does it answer

def places(name: str, address: str) -> list[tuple[str, int]]:
    """Each (host, port) that a well formed address names; none for a Unix socket."""
    if name == "postgres":
        from psycopg.conninfo import conninfo_to_dict
        parts = conninfo_to_dict(address)
        hosts = str(parts.get("hostaddr") or parts.get("host") or "").split(",")
        ports = str(parts.get("port") or "").split(",")
        ports = ports * len(hosts) if len(ports) == 1 else ports
        found = [(h, int(p or 5432)) for h, p in zip(hosts, ports, strict=False) if h and not h.startswith(("/", "@"))]
        return found if len(found) == len(hosts) else []
    found = []
    for one in address.split(","):
        parts = urlsplit(one.strip() if "://" in one else f"//{one.strip()}")
        if parts.scheme.lower() == "unix":
            return []
        found.append((parts.hostname or "localhost", parts.port or DEFAULT_PORTS[name]))
    return found


def away(error: BaseException, **addresses: str) -> str:
    """One line for "waiting, since ...": the engine, its place and the cause, of what a driver or feedlab itself raised.

    `addresses` by engine: away(e, postgres=..., redis=..., kafka=...).
    """
    name = engine_of(error)
    if isinstance(error, FeedlabError) or name is None:
        return masked((str(error).strip().splitlines() or [type(error).__name__])[0], *addresses.values())
    address = addresses.get(name, "")
    try:
        where = ", ".join(f"{host}:{port}" for host, port in places(name, address)) if address else ""
    except Exception:  # no address that could be read: then the cause alone
        where = ""
    cause = re.sub(r"^Error -?\d+ (?:while )?connecting to \S+\. ", "", short(error, address)).rstrip(".")
    return f"{TITLES[name]}{f' at {where}' if where else ''} {'does not answer' if _silent(error) else 'says'}: {cause}"


def _silent(error: BaseException) -> bool:
    """Is the engine away, or has it answered that it will not?"""
    if hasattr(error, "sqlstate"):
        return error.sqlstate is None
    code = getattr(error.args[0] if error.args else None, "code", None)
    if callable(code):
        return code() < 0  # librdkafka's own errors are below 0, the broker's above
    return type(error).__name__ in ("ConnectionError", "TimeoutError", "BusyLoadingError", "BufferError")


def sentence(e: BaseException) -> str | None:
    """What to tell the user of an error of ours, of an engine's driver or of the system; None for one that nobody foresaw."""
    if isinstance(e, FeedlabError):
        return re.sub(r"([.?!])\.(?=\s|$)", r"\1", " ".join(str(e).split()))  # a cause may bring its own full stop
    if name := engine_of(e):
        given = os.environ.get(VARIABLES[name], "")
        return f"{TITLES[name]}: {short(e, given).rstrip('.')}. `feedlab doctor` says what is wrong."
    if isinstance(e, OSError):
        about = f"{e.filename}: " if e.filename else ""
        return f"{about}{e.strerror or e}. `feedlab doctor` looks at the state folder and the disk."
    return None
