"""Engines that are the user's own, given by URL: checked for their form, asked whether they answer, never started,
stopped or wiped."""
import re
import socket
import struct
from urllib.parse import parse_qsl, urlsplit

from ..errors import BadInput, EngineDown, FeedlabError
from .base import FIELDS, NAMES, SECRET, TITLES, VARIABLES, Addresses, engine_of, masked, probe, short

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

def up(settings, state, name: str, report) -> None:
    """Raises EngineDown if the engine at that URL does not answer within about 5 s, BadInput for a wrong form."""
    address = getattr(settings, FIELDS[name])
    check(name, address)
    # the port first: a refused connection is told at once and plainly, where the Kafka client would try for 5 s
    error = unreachable(name, address) or probe(name, address, 5.0).error
    if error:
        raise EngineDown(f"{TITLES[name]} at {masked(address)} ({VARIABLES[name]}) does not answer: {error}. Start it, "
                         f"correct {VARIABLES[name]}, or unset it and run `feedlab up` for one of our own.")
    report(f"{TITLES[name]}: yours at {masked(address)} answers")


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


def unreachable(name: str, address: str) -> str:
    """Is it the form, the host's name, the port, or another program on that port? "" if all are as they should be."""
    if wrong := malformed(name, address):
        return wrong
    said = []
    for host, port in places(name, address):
        why = _no_connection(host, port) or (
            "" if address.lower().startswith("rediss:") else _stranger(name, host, port))
        if not why:
            return ""  # of several, one is enough
        said.append(why)
        if len(said) == 3:
            break
    return "; ".join(said)


def _no_connection(host: str, port: int) -> str:
    try:
        socket.create_connection((host, port), timeout=3).close()
        return ""
    except (socket.gaierror, UnicodeError):
        return f"no host is called {host}"
    except ConnectionRefusedError:
        return f"nothing listens on {host}:{port}"
    except OSError as e:
        return f"{host}:{port} cannot be reached ({short(e)})"


# a question in each engine's own language, and how its answer begins: PostgreSQL's SSLRequest; Redis' PING (+PONG, or
# -NOAUTH, -LOADING ...); Kafka's ApiVersions request, whose answer has our number 7531 behind its length
_KAFKA_ASKS = struct.pack(">hhih7s", 18, 0, 7531, 7, b"feedlab")
_ASK = {"postgres": (struct.pack(">ii", 8, 80877103), rb"[SN]$|E(?:$|\0)"), "redis": (b"PING\r\n", rb"\+PONG|-[A-Z]{2}"),
        "kafka": (struct.pack(">i", len(_KAFKA_ASKS)) + _KAFKA_ASKS, rb"(?s)....\0\0\x1d\x6b")}


def _speaks(name: str, host: str, port: int, timeout: float = 1.0) -> bool | None:
    """Whether what listens there speaks the engine's language; None when it says nothing in `timeout` s."""
    question, answer = _ASK[name]
    got = b""
    try:
        with socket.create_connection((host, port), timeout=timeout) as s:
            s.sendall(question)
            while not re.match(answer, got) and len(got) < 8:
                part = s.recv(8)
                if not part:
                    break
                got += part
    except TimeoutError:
        return False if got else None
    except OSError:
        pass
    return bool(re.match(answer, got))


def _stranger(name: str, host: str, port: int) -> str:
    """What is said when another program than the engine answers there; "" when it is the engine, or says nothing at
    all (the engine's own client then says more)."""
    heard = _speaks(name, host, port)
    if heard:
        return ""
    other = next((n for n in NAMES if n != name and _speaks(n, host, port)), None)
    if other:
        return f"something answers at {host}:{port}, but it is {TITLES[other]}, not {TITLES[name]}"
    return "" if heard is None else f"something answers at {host}:{port}, but it is not {TITLES[name]}"


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
