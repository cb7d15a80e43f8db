"""How each station grows at 1x, 10x, 100x of what it should or should not depend on: the exponent, fitted."""
import time

from .. import outbox, pull, timeline
from ..addresses import Addresses
from ..config import Settings
from ..core.codec import Event
from ..core.model import START, Entry
from ..relay import Relay
from .ground import FIRST_ID, FIRST_MS, STEP_MS, fill_outbox, follow, ground, warm
from .measure import beside_expected, clock, exponent, percentile, rows_read
from .memory import build
from .page_cached import LIMIT, pulled

# name -> (what grows, what the exponent should be, and why)
EXPECTED = {
    "delivery by feed length": (0, "O(log N) a delivery"),
    "delivery by followers": (1, "O(followers) a post"),
    "page by table size": (0, "the feed is as long as before"),
    "pull by table size": (0, "an index range an author"),
    "pull by followees": (1, "O(followees)"),
    "relay by backlog": (0, "the oldest rows by index"),
}


def run(settings: Settings, addresses: Addresses, *, factors=(1, 10, 100), posts: int = 4_000, repeat: int = 40,
        say=lambda *a: None) -> dict:
    """Medians of `repeat` calls at each size. `posts` in the table at 1x."""
    with clock() as took:
        curves: dict[str, tuple[list, list]] = {}
        with ground(settings, addresses, "growth", feed_max=500, threshold=10**9) as lab:
            say("growth", 0, 4)
            curves["delivery by feed length"] = by_length(lab, [50 * f for f in factors], repeat)
            curves["delivery by followers"] = by_followers(lab, [10 * f for f in factors], repeat)
            say("growth", 1, 4)
            reads, tables = by_table(lab, [posts * f for f in factors], repeat)
            curves |= tables
            say("growth", 2, 4)
            curves["pull by followees"], more = by_followees(lab, [20 * f for f in factors], repeat)
            say("growth", 3, 4)
            curves["relay by backlog"] = by_backlog(lab, [300 * f for f in factors])
            say("growth", 4, 4)
        points = {name: {"sizes": sizes, "ms": [t * 1e3 for t in times], "exponent": exponent(sizes, times),
                         "expected": EXPECTED[name][0], "why": EXPECTED[name][1]} for name, (sizes, times) in curves.items()}
    table = [beside_expected(f"exponent, {name}", p["exponent"], p["why"], p["expected"]) for name, p in points.items()]
    return {"station": "growth", "rows": table, "counts": reads | more, "points": points, "seconds": took(),
            "conditions": f"sizes {', '.join(f'{f}x' for f in factors)}, medians of {repeat} calls"}


def median_of(repeat: int, what, before=lambda: None) -> float:
    """Seconds, the median of `repeat` calls; `before` runs unclocked before each."""
    times = []
    for _ in range(repeat):
        before()
        began = time.perf_counter()
        what()
        times.append(time.perf_counter() - began)
    return percentile(times, 0.5)


def by_length(lab, lengths: list[int], repeat: int, keys: int = 50):
    """One post into 50 full feeds of each length, by the server-side function alone."""
    return lengths, [deliver_to(lab, f"long{n}", keys, n, repeat) for n in lengths]


def by_followers(lab, followers: list[int], repeat: int, length: int = 50):
    """One post to so many feeds."""
    return followers, [deliver_to(lab, f"wide{n}", n, length, repeat) for n in followers]


def deliver_to(lab, name: str, keys: int, length: int, repeat: int) -> float:
    feeds = [f"{lab.names.namespace}:{name}:{n}" for n in range(keys)]
    for key in feeds:
        build(lab.redis, key, length)
    at, sent = lab.redis.hget(lab.names.progress, name) or "0", length
    lab.redis.hset(lab.names.progress, name, at)

    def one() -> None:
        nonlocal at, sent
        sent += 1
        place = (name, at, str(int(at) + 1))
        timeline.deliver(lab.redis, lab.names, place, feeds, [Entry(FIRST_MS + STEP_MS * sent, FIRST_ID + sent)], length)
        at = place[2]
    taken = median_of(repeat, one)
    for n in range(0, keys, 1000):
        lab.redis.unlink(*feeds[n:n + 1000])
    return taken


def by_table(lab, sizes: list[int], repeat: int):
    """Page one and its pull, as the posts table grows; the reader follows the same 50 of 1,000 authors."""
    follow(lab, [(u, 10**6 + n) for u in range(20) for n in range(1_000) if n % 20 == u])
    reads, pages, pulls, made = {}, [], [], 0
    for size in sizes:
        lab.conn.execute("insert into posts (id, author_id, created_at_ms, content) select %s + n, 1000000 + n %% 1000, %s + n * 10, "
                         "'a post' from generate_series(%s::bigint, %s::bigint) n", (FIRST_ID, FIRST_MS, made, size - 1))
        lab.conn.execute("vacuum analyze posts")
        made = size
        lab.redis.unlink(lab.names.feed(0))
        warm(lab, [0])
        lab.page(0)
        pages.append(median_of(repeat, lambda: lab.page(0)))
        pulls.append(median_of(repeat, lambda: pulled(lab, 0)))
        reads[f"pull_rows_read_at_{size}"] = read_by_pull(lab, 0)["rows"]
    return reads, {"page by table size": (sizes, pages), "pull by table size": (sizes, pulls)}


def by_followees(lab, counts: list[int], repeat: int):
    """A page by pull for readers who follow so many; the table stays as it is."""
    users = {n: 10**7 + n for n in counts}
    follow(lab, [(user, 10**6 + k) for n, user in users.items() for k in range(n)])
    times, reads = [], {}
    for n, user in users.items():
        times.append(median_of(max(5, repeat // 2), lambda user=user: pulled(lab, user)))
        reads[f"pull_rows_read_by_{n}_followees"] = read_by_pull(lab, user)["rows"]
    return (counts, times), reads


def read_by_pull(lab, user: int) -> dict:
    """What one pull of a page reads, by EXPLAIN ANALYZE."""
    return rows_read(lab.conn, pull.PAGE, {"user": user, "ms": START.ms, "id": START.id, "limit": LIMIT + 1, "own": False})


def by_backlog(lab, depths: list[int], batch: int = 300):
    """Seconds for one batch of the relay, when so many rows wait."""
    relay = Relay(lab.settings, lab.addresses.postgres_url, lab.addresses.kafka_bootstrap, batch)
    relay.open()
    times = []
    try:
        for depth in depths:
            def filled(depth=depth):
                missing = depth - outbox.depth(lab.conn)
                rows = (outbox.row(lab.names, Event("posted", author=n % 97, post=FIRST_ID + n, ms=FIRST_MS + n)) for n in range(missing))
                fill_outbox(lab, [(r["topic"], r["key"], r["payload"]) for r in rows])
            times.append(median_of(9, relay.once, filled))
    finally:
        relay.close()
    lab.conn.execute("truncate outbox")
    return depths, times
