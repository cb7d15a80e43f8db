"""Engines that are the user's own, given by URL: checked for their form, asked whether they answer, never started,
stopped or wiped."""
import re
import socket
import struct

from ..addresses import FIELDS, NAMES, TITLES, VARIABLES, check, malformed, masked, places, short
from ..errors import EngineDown
from .base import probe


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


