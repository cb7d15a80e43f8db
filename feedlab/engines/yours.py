"""Engines that are the user's own, given by URL: asked whether they answer, never started, stopped or wiped."""
import socket
from urllib.parse import urlsplit

from ..errors import EngineDown
from .base import FIELDS, TITLES, VARIABLES, masked, probe, short


def up(settings, state, name: str, report) -> None:
    """Raises EngineDown if the engine at that URL does not answer within about 5 s."""
    address = getattr(settings, FIELDS[name])
    # the port first: a refused connection is told at once and plainly, where the Kafka client would try for 5 s
    error = unreachable(name, address) or probe(name, address, 5.0).error
    if error:
        raise EngineDown(f"{TITLES[name]} at {masked(address)} ({VARIABLES[name]}) does not answer: {error}. Start it, "
                         f"correct {VARIABLES[name]}, or unset it and run `feedlab up` for one of our own.")
    report(f"{TITLES[name]}: yours at {masked(address)} answers")


def unreachable(name: str, address: str) -> str:
    """For an engine that is yours: is it the name, the port or the server itself? "" if the port answers."""
    if name == "postgres" and "://" not in address or "," in address:
        return ""  # libpq's "host=... port=..." form, or several hosts: the client will tell
    default = {"postgres": 5432, "redis": 6379, "kafka": 9092}[name]
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        if "host=" in parts.query or parts.scheme == "unix":
            return ""  # a Unix socket
        host, port = parts.hostname or "127.0.0.1", parts.port or default
    except ValueError:
        return f"{masked(address)} is no address"
    try:
        socket.create_connection((host, port), timeout=3).close()
        return ""
    except socket.gaierror:
        return f"no host is called {host}"
    except ConnectionRefusedError:
        return f"nothing listens on {host}:{port}"
    except OSError as e:
        return f"{host}:{port} cannot be reached ({short(e)})"
