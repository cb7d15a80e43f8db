"""Memory and FEED_MAX: encodings, the cliff, the trap of a cap on it, floor and fallback (notebook 12).

The server is one of the notebook's own: encodings are a server-wide setting, which nobody changes on a server that others use.
"""
from collections.abc import Sequence

from ... import db, pull, timeline
from ...bench import memory as station
from ...bench.ground import FIRST_ID, FIRST_MS, STEP_MS, follow
from ...bench.memory import ARTICLE_BYTES, LIMIT, build
from ...bench.scratch import own_redis
from ...core import cost
from ...core.codec import Names, member
from ...core.model import Entry
from ...draw import plots
from ...reader import scroll

NAMES = Names("memory")


def server(b, listpack_limit: int = LIMIT):
    """A fresh Redis of this notebook's own, stopped by `b.end()`; its zset-max-listpack-entries as given. Raises EngineDown."""
    return b.stack.enter_context(own_redis(zset_max_listpack_entries=listpack_limit))


def curve(b, servers: dict, lengths: Sequence[int], feeds: int = 5) -> list[dict]:
    """Bytes of a feed by its length on each server ({listpack limit: client}), and what the formula says of it."""
    points = []
    for limit, r in servers.items():
        found = station.measure(r, NAMES, lengths, feeds, limit, b.progress)
        layout = cost.layout_of(station.name_of(r))
        points += [p | {"formula": cost.timeline_bytes(p["feed_max"], layout, limit, most=p["feed_max"] + 1)} for p in found]
    b.progress.close()
    return points


def worst(points: list[dict]) -> float:
    """The largest share by which the formula is off."""
    return max(abs(p["formula"] / p["bytes"] - 1) for p in points)


def an_entry(points: list[dict], feed_max: int, limit: int = LIMIT) -> float:
    """Measured bytes an entry."""
    p, = (p for p in points if (p["feed_max"], p["limit"]) == (feed_max, limit))
    return p["bytes"] / p["feed_max"]


def curve_figure(points: list[dict]):
    """Bytes of a feed against its length: measured points on the formula's line, the article's 60 B beside."""
    low, high = (p for p in points if p["feed_max"] == 500)
    fig = plots.figure(f"A feed of 500 takes {low['bytes'] / 500:.0f} B an entry as {low['encoding']}, {high['bytes'] / 500:.0f} B as "
                       f"{high['encoding']}; the article says {ARTICLE_BYTES:.0f}", "entries in the feed", "bytes of the feed")
    for limit, symbol, dash in zip(sorted({p["limit"] for p in points}), ("circle", "square"), ("solid", "dot"), strict=True):
        some = [p for p in points if p["limit"] == limit]
        x = [p["feed_max"] for p in some]
        fig.add_scatter(x=x, y=[p["bytes"] for p in some], mode="markers", marker={"symbol": symbol, "size": 9},
                        name=f"measured, listpack up to {limit:,}", text=[p["encoding"] for p in some],
                        hovertemplate="%{x} entries: %{y:,} B, %{text}<extra></extra>")
        fig.add_scatter(x=x, y=[p["formula"] for p in some], mode="lines", line={"dash": dash}, name="formula", showlegend=False)
    fig.add_scatter(x=[0, 800], y=[0, 800 * ARTICLE_BYTES], mode="lines", line={"dash": "dash", "color": plots.GREY}, name="60 B an entry")
    return fig


# --- the cliff and the trap ----------------------------------------------------------------------------------------------------

def cliff(r, lengths: Sequence[int] = range(120, 137)) -> list[dict]:
    """A bare sorted set of ids (no floor), entry after entry: {"entries", "encoding", "bytes"}."""
    key, found = NAMES.post(0), []
    r.delete(key)
    for n in range(1, max(lengths) + 1):
        r.zadd(key, {member(FIRST_ID + n): FIRST_MS + STEP_MS * n})
        if n in lengths:
            found.append({"entries": n, "encoding": r.object("encoding", key), "bytes": r.memory_usage(key, samples=0)})
    r.delete(key)
    return found


def cliff_figure(points: list[dict]):
    """The step."""
    at = next(i for i, p in enumerate(points) if p["encoding"] != "listpack")
    fig = plots.figure(f"One entry more, {points[at]['bytes'] / points[at - 1]['bytes']:.1f} times the bytes: "
                       f"the cliff is at {points[at - 1]['entries']}", "entries", "bytes")
    for kind, colour, symbol in (("listpack", plots.GREEN, "circle"), ("skiplist", plots.VERMILLION, "x")):
        some = [p for p in points if p["encoding"] == kind]
        fig.add_scatter(x=[p["entries"] for p in some], y=[p["bytes"] for p in some], mode="markers", name=kind,
                        marker={"color": colour, "symbol": symbol, "size": 9}, hovertemplate="%{x} entries: %{y:,} B")
    return fig.update_yaxes(rangemode="tozero")


def capped(r, cap: int, posts: int = 300, trim_first: bool = False) -> dict:
    """The article's feed under a cap: add, then trim to `cap` (or the other way round). {"entries", "encoding", "bytes"} at the end."""
    key = NAMES.post(1)
    r.delete(key)
    for n in range(1, posts + 1):
        steps = [lambda n=n: r.zadd(key, {member(FIRST_ID + n): FIRST_MS + STEP_MS * n}),
                 lambda: r.zremrangebyrank(key, 0, -(cap + (0 if trim_first else 1)))]
        for step in reversed(steps) if trim_first else steps:
            step()
    found = {"entries": r.zcard(key), "encoding": r.object("encoding", key), "bytes": r.memory_usage(key, samples=0)}
    r.delete(key)
    return found


def ours(r, feed_max: int, posts: int = 400) -> dict:
    """Our feed under FEED_MAX after `posts` deliveries: entries, floor member, slack and all."""
    key, names = NAMES.feed(1), NAMES
    r.delete(key, names.progress, names.stats)
    build(r, key, 1, feed_max)
    for n in range(1, posts + 1):
        entry = Entry(FIRST_MS + STEP_MS * (10 + n), FIRST_ID + 10 + n)
        timeline.deliver(r, names, ("memory", "" if n == 1 else str(n - 1), str(n)), [key], [entry], feed_max)
    found = {"entries": r.zcard(key) - 1, "encoding": r.object("encoding", key), "bytes": r.memory_usage(key, samples=0)}
    r.delete(key, names.progress, names.stats)
    return found


def largest_packed(r, low: int = 100, high: int = 130) -> int:
    """The greatest FEED_MAX whose feed stays a listpack, whatever comes: by halving, since it is one step."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if ours(r, middle)["encoding"] == "listpack" else (low, middle)
    return low


# --- floor and fallback -----------------------------------------------------------------------------------------------------------

def history(b, posts: int = 400, authors: int = 20, reader: int = 1) -> int:
    """A reader of `authors` authors who wrote `posts` posts in turn. The reader's id."""
    lab = b.open()
    follow(lab, [(reader, 1_000 + n) for n in range(authors)])
    lab.conn.execute("insert into posts (id, author_id, created_at_ms, content) select %s + n, 1000 + n %% %s, %s + n * %s, 'post ' || n "
                     "from generate_series(0, %s) n", (FIRST_ID, authors, FIRST_MS, STEP_MS, posts - 1))
    return reader


def scrolls(b, reader: int, settings: Sequence[int], limit: int = 20) -> list[dict]:
    """The reader's whole scroll under each FEED_MAX: pages, those that asked SQL below the floor, entries drawn from either, and whether
    the scroll is the SQL answer."""
    lab, found = b.open(), []
    for feed_max in settings:
        db.set_knobs(lab.conn, feed_max=feed_max)
        lab.redis.unlink(lab.names.feed(reader))
        lab.page(reader)                          # builds the feed
        pages = list(scroll(lambda c: lab.page(reader, c, limit)))
        deep = [p.explain.below_floor for p in pages]
        found.append({"feed_max": feed_max, "pages": len(pages), "below": sum(deep),
                      "first_below": deep.index(True) + 1 if any(deep) else None,
                      "right": [i for p in pages for i in p.ids] == [e.id for e in pull.everything(lab.conn, reader)]})
    return found


def scrolls_figure(found: list[dict]):
    """Pages of a whole scroll that the feed served alone, by FEED_MAX."""
    first, last = found[0], found[-1]
    fig = plots.figure(f"FEED_MAX {first['feed_max']} serves {first['pages'] - first['below']} of {first['pages']} pages from Redis, "
                       f"FEED_MAX {last['feed_max']} {last['pages'] - last['below']}", "FEED_MAX", "pages of a whole scroll")
    x = [str(f["feed_max"]) for f in found]
    fig.add_bar(x=x, y=[f["pages"] - f["below"] for f in found], name="from the feed")
    fig.add_bar(x=x, y=[f["below"] for f in found], name="below the floor: SQL", marker={"pattern": {"shape": "/"}})
    return fig.update_layout(barmode="stack").update_xaxes(type="category")


def fleet_bytes(feed_max: int, layout: str = "valkey-9.1", listpack_limit: int = LIMIT) -> float:
    """Bytes of the article's 200 M feeds, all full, on an engine."""
    return cost.Sheet().feeds * cost.timeline_bytes(feed_max, layout, listpack_limit)
