"""Bytes an entry, by length and encoding: MEMORY USAGE and used_memory, beside the formula and the article's 60 B."""
import time

import redis

from .. import timeline
from ..addresses import Addresses
from ..config import Settings
from ..core import cost
from ..core.codec import Names
from ..core.model import Entry
from .ground import FIRST_ID, FIRST_MS, STEP_MS, ground
from .measure import against, clock, row
from .scratch import available, own_redis

LENGTHS = (50, 100, 127, 128, 200, 300, 500, 800)
LIMIT = 128            # zset-max-listpack-entries as servers come
ARTICLE_BYTES = cost.Sheet().entry_bytes


def run(settings: Settings, addresses: Addresses, *, lengths=LENGTHS, feeds: int = 50, say=lambda *a: None) -> dict:
    """`feeds` feeds of each length, each with a floor, built as a reader builds them.

    Measured on a Redis of our own, with the usual listpack limit and with one above all lengths; on the engine at `addresses`, as it is
    set, when this machine has no program for one of its own. No setting of a shared server is touched.
    """
    found, engine = [], ""
    with clock() as took:
        if available():
            for limit in (LIMIT, 2 * max(lengths)):
                with own_redis(zset_max_listpack_entries=limit) as r:
                    engine = name_of(r)
                    found += measure(r, Names("memory"), lengths, feeds, limit, say)
        else:
            with ground(settings, addresses, "memory") as lab:
                engine, limit = name_of(lab.redis), listpack_limit(lab.redis)
                found += measure(lab.redis, lab.names, lengths, feeds, limit, say, whole=False)
    layout = cost.layout_of(engine)
    for p in found:
        # a rebuild has one member more for a moment (the builder's mark beside the floor), so 127 entries touch 129 members
        p["formula"] = cost.timeline_bytes(p["feed_max"], layout, p["limit"], most=p["feed_max"] + 1)
    table = []
    for kind in dict.fromkeys(p["encoding"] for p in found):
        some = [p for p in found if p["encoding"] == kind]
        worst = max(some, key=lambda p: abs(p["bytes"] / p["formula"] - 1))
        off = abs(worst["bytes"] / worst["formula"] - 1)
        table.append(against(f"formula off by, {kind}, worst at {worst['feed_max']} entries", [off * 100], "allowed", 5, "%",
                             at_most=1))
        at = next((p for p in some if p["feed_max"] == 500), some[-1])
        each, of = at["bytes"] / at["feed_max"], f"{kind}, feed of {at['feed_max']}"
        table.append(against(f"bytes an entry, {of}", [each], "the article's figure", ARTICLE_BYTES, "B"))
        if at["used_bytes"]:
            table.append(row(f"used_memory an entry, {of}", [at["used_bytes"] / at["feed_max"]], "MEMORY USAGE", [each], "B"))
    counts = {"feeds": len(found) * feeds,
              "members_are_entries_and_a_floor": all(p["members"] == p["feed_max"] + 1 for p in found),
              "encodings": {f"{p['limit']}/{p['feed_max']}": p["encoding"] for p in found}}
    return {"station": "memory", "rows": table, "counts": counts, "points": found, "seconds": took(),
            "conditions": f"{engine}, formula for {layout}, {feeds} feeds of each length"}


def measure(r: redis.Redis, names: Names, lengths, feeds: int, limit: int, say=lambda *a: None, whole: bool = True) -> list[dict]:
    """One point a length. `bytes`: MEMORY USAGE of a feed; `used_bytes`: rise of used_memory a feed (`whole`: nobody else writes)."""
    points = []
    for length in (max(lengths), *lengths):      # the longest first, uncounted: the server's own tables have grown by then
        before = r.info("memory")["used_memory"]
        for u in range(feeds):
            build(r, names.feed(u), length)
        used = r.info("memory")["used_memory"] - before
        key = names.feed(0)
        found = ({"feed_max": length, "limit": limit, "encoding": r.object("encoding", key), "members": r.zcard(key),
                       "bytes": r.memory_usage(key, samples=0), "used_bytes": used / feeds if whole else None})
        points.append(found)
        r.delete(*(names.feed(u) for u in range(feeds)))
        say(f"memory: listpack limit {limit}", len(points) - 1, len(lengths))
    return points[1:]


def build(r: redis.Redis, key: str, length: int, feed_max: int | None = None) -> None:
    """A feed of `length` entries with a floor below them, by the steps of a reader's rebuild."""
    rows = [Entry(FIRST_MS + STEP_MS * n, FIRST_ID + n) for n in range(length, -1, -1)]
    token = timeline.begin(r, key, 30)
    timeline.complete(r, key, token, rows, feed_max or length, int((time.time() + 3600) * 1000))


def name_of(r: redis.Redis) -> str:
    """Which server this is: "valkey 9.1.2", "redis 7.0.15"."""
    info = r.info("server")
    return f"valkey {info['valkey_version']}" if info.get("valkey_version") else f"redis {info['redis_version']}"


def listpack_limit(r: redis.Redis) -> int:
    """The server's zset-max-listpack-entries; the usual one where CONFIG is forbidden."""
    try:
        return int(next(iter(r.config_get("zset-max-listpack-entries").values()), LIMIT))
    except redis.ResponseError:
        return LIMIT
