"""All stations by name, and what one run of them gives: the document of `feedlab bench --json`."""
import os
import platform
import time
from collections.abc import Callable, Sequence

from .. import __version__, engines
from ..addresses import Addresses
from ..config import Settings
from ..errors import BadInput, EngineDown
from . import delivery, growth, memory, page_cached, page_cold, relay, scaling, visible, whole_push

STATIONS: dict[str, Callable[..., dict]] = {
    "delivery": delivery.run, "push": whole_push.run, "relay": relay.run, "page": page_cached.run, "cold": page_cold.run,
    "visible": visible.run, "memory": memory.run, "scaling": scaling.run, "growth": growth.run}

# a few seconds each: what a test runs, and whoever wants a first look. Too short for a figure that one would quote.
QUICK = {
    "delivery": {"rounds": 2, "posts": 20, "followers": 40, "feed_max": 100},
    "push": {"rounds": 1, "posts": 100, "before": 1, "users": 300, "threshold": 30},
    "relay": {"rounds": 2, "rows": 1_500},
    "page": {"rounds": 2, "pages": 10, "followees": (20, 100), "posts_each": 5},
    "cold": {"rounds": 2, "pages": 3, "followees": 30, "posts_each": 10, "feed_max": 100},
    "visible": {"rounds": 2, "posts_a_round": 5, "load": 50},
    "memory": {"lengths": (50, 127, 128, 200), "feeds": 5},
    "scaling": {"processes": (1, 2), "rounds": 1, "posts": 40, "followers": 40, "feed_max": 100},
    "growth": {"factors": (1, 4, 16), "posts": 1_000, "repeat": 5},
}


def chosen(names: Sequence[str]) -> list[str]:
    """The stations meant: all when none is named. Raises BadInput for one that there is not.

    >>> chosen(["relay"])
    ['relay']
    """
    for name in names:
        if name not in STATIONS:
            raise BadInput(f"there is no station {name!r}. Stations are {', '.join(STATIONS)}; none named runs all.")
    return [name for name in STATIONS if name in names] if names else list(STATIONS)


def run(settings: Settings, addresses: Addresses, stations: Sequence[str] = (), *, quick: bool = False, options: dict | None = None,
        say=lambda *a: None) -> dict:
    """Run the stations, one after the other. `options`: {station: keyword arguments} on top of the quick or the full ones.

    {"rows": all lines of the table, "stations": {name: what its run returned}, "failed": {name: why}, "machine", "engines", "seconds",
    "finished_at_ms"}. A station that cannot be measured does not take the others' figures with it.
    """
    began, found, failed = time.monotonic(), {}, {}
    for name in chosen(stations):
        with_options = (QUICK[name] if quick else {}) | (options or {}).get(name, {})
        try:
            found[name] = STATIONS[name](settings, addresses, say=say, **with_options)
        except EngineDown as e:
            failed[name] = str(e)
            say(f"{name}: not measured: {e}")
    return {"rows": [{"station": name, **row} for name, result in found.items() for row in result["rows"]], "stations": found,
            "failed": failed, "quick": quick, "machine": machine(), "engines": [e.as_dict() for e in engines.status(settings)],
            "version": __version__, "seconds": round(time.monotonic() - began, 1), "finished_at_ms": int(time.time() * 1000)}


def machine() -> dict:
    """What the figures hang on: cores, system, Python, and how busy the machine was with other work."""
    return {"cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}", "python": platform.python_version(),
            "load_1m": os.getloadavg()[0] if hasattr(os, "getloadavg") else None}


def short(rows: Sequence[dict]) -> list[dict]:
    """The rows that have a bound and do not keep it."""
    return [r for r in rows if r["reached"] is False]
