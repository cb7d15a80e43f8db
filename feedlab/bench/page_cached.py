"""Page one from Redis: beside the two Redis commands that no page can do without, and beside the SQL pull."""
import time

import numpy as np

from .. import celebrities, pull
from ..addresses import Addresses
from ..config import Settings
from ..core.model import START
from ..db import connect
from ..lab.session import Lab
from ..reader import HYDRATE, Reader
from .ground import fill_posts, follow, ground, warm
from .measure import Counts, against, clock, counted_redis, counted_sql, interleaved, percentile, row

LIMIT = 20
CELEBRITIES = 30
CELEB_POSTS = 100


def run(settings: Settings, addresses: Addresses, *, rounds: int = 7, pages: int = 120, followees=(50, 300, 2_000),
        posts_each: int = 20, say=lambda *a: None) -> dict:
    """`rounds` of `pages` first pages by readers who follow so many; times are the median of a round, p50 and p99 of all pages."""
    with clock() as took, ground(settings, addresses, "page", threshold=10**9) as lab:
        say("page, cached: filling tables and feeds")
        readers = people(lab, followees, posts_each)
        reader = Reader(lab.settings)
        times: dict[str, list[float]] = {}
        ways = {}
        for n, user in readers.items():
            ways[f"ours {n}"] = timed(times, f"ours {n}", lambda user=user: reader.page(lab.conn, lab.redis, user), pages)
            ways[f"bare {n}"] = timed(times, f"bare {n}", bare_pair(lab, user), pages)
            fewer = max(5, pages * 50 // (50 + (300 if n == "celebrities" else n)))       # a pull takes longer
            ways[f"pull {n}"] = timed(times, f"pull {n}", lambda user=user: pulled(lab, user), fewer)
        rounds_of = interleaved(ways, rounds, lambda n: say("page, cached: rounds", n, rounds))
        counts = exact(lab, readers)
        profile = parts(lab, readers)
    table = []
    for n in readers:
        name = f"page one, {CELEBRITIES} celebrities" if n == "celebrities" else f"page one, {n:,} followees"
        table.append(row(name, rounds_of[f"ours {n}"], "ZREVRANGEBYSCORE + MGET", rounds_of[f"bare {n}"], "s", at_most=3))
    for n in followees:
        rates = [[1 / t for t in rounds_of[f"{way} {n}"]] for way in ("ours", "pull")]
        table.append(row(f"page one, {n:,} followees", rates[0], "the SQL pull", rates[1], "pages/s",
                         at_least=10 if n >= 2_000 else None))
    for n in readers:
        who = f"{CELEBRITIES} celebrities" if n == "celebrities" else f"{n:,} followees"
        table.append(against(f"Redis round trips, {who}", [counts[f"redis_trips_{n}"]], "allowed", 3, "round trips", at_most=1))
    return {"station": "page_cached", "rows": table, "counts": counts, "profile": profile, "seconds": took(),
            "points": percentiles(times),
            "conditions": f"limit {LIMIT}, {pages} pages a round and reader, {rounds} rounds"}


def people(lab: Lab, followees, posts_each: int) -> dict:
    """Readers by the number of authors they follow, and one who follows 300 of them and CELEBRITIES flagged ones. -> {n: user id}"""
    authors = [10**6 + n for n in range(max(followees))]
    stars = [2 * 10**6 + n for n in range(CELEBRITIES)]
    readers: dict = {n: k for k, n in enumerate(followees)}
    pairs = [(user, a) for n, user in readers.items() for a in authors[:n]]
    usual = min(300, max(followees))
    readers["celebrities"] = len(readers)
    pairs += [(readers["celebrities"], a) for a in (*authors[:usual], *stars)]
    follow(lab, pairs)
    made = fill_posts(lab, np.tile(authors, posts_each))
    # by time, the celebrities' posts lie among those of the others; each has CELEB_POSTS of them
    at = np.linspace(0, len(made) - 1, CELEBRITIES * CELEB_POSTS).astype(int)
    with lab.conn.cursor().copy("copy posts (id, author_id, created_at_ms, content) from stdin") as copy:
        for k, i in enumerate(at):
            copy.write_row((made[-1][0] + 1 + k, stars[k % CELEBRITIES], made[i][2], "a celebrity says something"))
    lab.conn.execute("analyze posts")
    celebrities.raise_flags(lab.conn, stars)
    for star in stars:
        s = lab.settings
        celebrities.ensure(lab.conn, lab.redis, lab.names, star, s.feed_max, s.building_s, s.celeb_ttl_s)
    warm(lab, readers.values())
    for user in readers.values():
        lab.page(user)               # fills the post cache
    return readers


def timed(times: dict, name: str, what, n: int):
    """A way that runs `what` n times, keeps each time, and returns the median, seconds."""
    def way() -> float:
        spent = []
        for _ in range(n):
            began = time.perf_counter()
            what()
            spent.append(time.perf_counter() - began)
        times.setdefault(name, []).extend(spent)
        return percentile(spent, 0.5)
    return way


def percentiles(times: dict[str, list[float]]) -> dict[str, dict]:
    """{way: p50 and p99 in milliseconds, and of how many}"""
    return {way: {"p50_ms": percentile(t, 0.5) * 1e3, "p99_ms": percentile(t, 0.99) * 1e3, "n": len(t)} for way, t in times.items()}


def bare_pair(lab: Lab, user: int):
    """The least that a page from Redis can be: one range, one MGET of contents, nothing checked."""
    r, key, posts = lab.redis, lab.names.feed(user), [lab.names.post(i) for i in lab.page(user).ids]

    def pair() -> None:
        r.zrevrangebyscore(key, "+inf", "-inf", start=0, num=LIMIT + 1, withscores=True)
        r.mget(posts)
    return pair


def pulled(lab: Lab, user: int, before=START, limit: int = LIMIT) -> list:
    """A page by the SQL pull: entries, then contents."""
    rows = pull.page(lab.conn, user, before, limit + 1)
    return lab.conn.execute(HYDRATE, ([e.id for e in rows[:limit]],)).fetchall()


def exact(lab: Lab, readers: dict) -> dict:
    """What one page sends over the wire, counted there; and whether the page is the SQL answer."""
    counts, found = Counts(), {}
    r = counted_redis(lab.addresses.redis_url, counts)
    conn = counted_sql(connect(lab.addresses.postgres_url, lab.names.namespace), counts)
    reader = Reader(lab.settings)
    try:
        for n, user in readers.items():
            reader.page(conn, r, user)                # connects; and fetches local copies
            counts.reset()
            page = reader.page(conn, r, user)
            found |= {f"{what}_{n}": value for what, value in counts.as_dict().items()}
            found[f"right_{n}"] = page.ids == [e.id for e in pull.everything(lab.conn, user)[:LIMIT]]
            found[f"own_count_agrees_{n}"] = (page.explain.redis_trips, page.explain.sql_queries) == (counts.trips, counts.queries)
    finally:
        r.close()
        conn.close()
    return found


def parts(lab: Lab, readers: dict, n: int = 200) -> dict:
    """Milliseconds, the median of each station of a page: where its time goes."""
    from .. import reader, timeline
    user = readers[list(readers)[0]]
    key, ids = lab.names.feed(user), lab.page(user).ids
    posts = [lab.names.post(i) for i in ids]
    ways = {"whole page": lambda: lab.page(user),
            "SQL: user, visit, flags": lambda: lab.conn.execute(reader.ASK, {"user": user, "ttl": lab.settings.feed_ttl_s}).fetchone(),
            "Redis: read the feed": lambda: timeline.get(lab.redis, key, START, LIMIT + 1),
            "SQL: the read filter": lambda: reader.visible(lab.conn, user, ids),
            "Redis: contents": lambda: lab.redis.mget(posts),
            "a bare PING": lab.redis.ping, "a bare select 1": lambda: lab.conn.execute("select 1").fetchone()}
    times: dict[str, list[float]] = {}
    for name, what in ways.items():
        timed(times, name, what, n)()
    return {name: round(percentile(t, 0.5) * 1e3, 3) for name, t in times.items()}
