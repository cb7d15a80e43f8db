"""What a feed costs: the article's sheet, its tail, the bytes of a timeline, the work of pushing and pulling. Pure; no engine.

Units are in the names or in the docstrings: `_a_day`, `_a_second`, bytes are bytes (TB = 10^12), times are seconds. A *delivery* is
one feed write (one post into one feed), a *pull* is one celebrity's timeline read for one page. H and L are what a delivery and a
pull cost in CPU seconds (`feedlab policy calibrate` measures them on the engines that are up).

>>> f"{Sheet().feed_writes_a_day:.3g} feed writes a day, {Sheet().redis_bytes / 1e12:.3g} TB"
'4.5e+10 feed writes a day, 6 TB'
"""
import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

DAY = 86_400        # seconds


@dataclass(frozen=True)
class Sheet:
    """The article's section 2: users are daily active ones; `reads` and `posts` a user and day; `followers` is the mean, `largest` the
    greatest account's; `peak` is the peak rate over the mean; `feeds` prebuilt feeds of at most `feed_max` entries, each of
    `entry_bytes` by the article's own estimate (see `timeline_bytes` for what engines take).

    >>> s = Sheet()
    >>> round(s.reads_a_second), round(s.posts_a_second), s.reads_a_post
    (34722, 1736, 20.0)
    """
    users: float = 300e6
    reads: float = 10
    posts: float = 0.5
    followers: float = 300
    largest: float = 50e6
    peak: float = 3
    feeds: float = 200e6
    feed_max: int = 500
    entry_bytes: float = 60

    @property
    def reads_a_day(self) -> float:
        return self.users * self.reads

    @property
    def reads_a_second(self) -> float:
        return self.reads_a_day / DAY

    @property
    def peak_reads_a_second(self) -> float:
        return self.reads_a_second * self.peak

    @property
    def posts_a_day(self) -> float:
        return self.users * self.posts

    @property
    def posts_a_second(self) -> float:
        return self.posts_a_day / DAY

    @property
    def peak_posts_a_second(self) -> float:
        return self.posts_a_second * self.peak

    @property
    def feed_writes_a_day(self) -> float:
        """Under push all: every post goes to every follower."""
        return self.posts_a_day * self.followers

    @property
    def feed_writes_a_second(self) -> float:
        return self.feed_writes_a_day / DAY

    @property
    def reads_a_post(self) -> float:
        """Reads to writes, 20 : 1 in the article."""
        return self.reads / self.posts

    @property
    def redis_bytes(self) -> float:
        """The article's 6 TB: feeds x entries x its 60 B."""
        return self.feeds * self.feed_max * self.entry_bytes


# --- work ----------------------------------------------------------------------------------------------------------------

def fan_out_seconds(followers, deliveries_a_second):
    """How long one post takes to reach `followers` feeds.

    Check (R. Krikorian, "Real-Time Delivery Architecture at Twitter", QCon 2012; High Scalability, 8 July 2013: "1 million followers in
    3.5 seconds", 31 M for the largest account of the time):

    >>> round(fan_out_seconds(31e6, 1e6 / 3.5), 1)
    108.5
    """
    return followers / deliveries_a_second


def deliveries(posts, followers, pushed=True):
    """Feed writes: the sum of posts x followers over the authors that are pushed. Arrays (authors,), or numbers; `pushed` is a
    boolean array, or for an author that is pushed to some followers only, the share of them.

    Check (the same talk): 400 M tweets a day at 75 deliveries each are 347 K a second.

    >>> round(deliveries(400e6, 75) / DAY, -3)
    np.float64(347000.0)
    >>> deliveries(np.array([2, 1]), np.array([10, 1000]), np.array([True, False]))
    np.float64(20.0)
    """
    return np.sum(np.asarray(posts, float) * followers * pushed)


def write_amplification(posts, followers, pushed=True) -> float:
    """Feed writes a post: `deliveries` over the posts. 0 without posts."""
    total = np.sum(np.broadcast_to(np.asarray(posts, float), np.shape(followers) or np.shape(posts)))
    return float(deliveries(posts, followers, pushed) / total) if total else 0.0


def pulls_a_page(followers, pulled, readers, weight=1.0) -> float:
    """Pulled authors that a reader follows, on average over `readers`: each is one more timeline to read for a page.

    `followers`, `pulled`: arrays (authors,); `weight`: mean page rate of an author's followers over that of all readers (1: alike).

    >>> pulls_a_page(np.array([10, 400, 600]), np.array([False, True, True]), readers=500)
    2.0
    """
    return float(np.sum(np.asarray(followers, float) * pulled * weight) / readers)


def sources_a_page(pulls, below_floor=0.0):
    """Sources merged for one page: the reader's own feed, one timeline a pulled author, and SQL for the share of pages that go
    `below_floor` (protocol rule 6)."""
    return 1 + pulls + below_floor


def cpu_seconds(feed_writes, pulls, h, l):
    """CPU of feed writes and pulls: writes x H + pulls x L (A. Silberstein and others, "Feeding Frenzy", SIGMOD 2010, section 3)."""
    return feed_writes * h + pulls * l


def push_edge(reads, posts, h, l):
    """Whether an edge is pushed at the least cost: reads of the follower over posts of the author >= H / L ("Feeding Frenzy",
    section 3.2). Written as a product, so that an author who never posts is pushed (it costs nothing)."""
    return np.asarray(reads, float) * l >= np.asarray(posts, float) * h


def edge_cost(reads, posts, pushed, h, l):
    """CPU seconds an edge (arrays (edges,)): posts x H where it is pushed, reads x L where it is pulled."""
    return np.where(pushed, np.asarray(posts, float) * h, np.asarray(reads, float) * l)


def redis_cores(feed_writes_a_second: float, pulls_a_second: float, h: float, l: float, peak: float = 1.0,
                busy: float = 0.6) -> float:
    """Cores of Redis (it runs commands on one thread a process) at `peak` times the mean, each at most `busy` of its time: beyond
    about 60 % the waiting time of a single server more than doubles (1 / (1 - busy))."""
    return cpu_seconds(feed_writes_a_second, pulls_a_second, h, l) * peak / busy


def nodes(redis_bytes: float, node_bytes: float = 64e9, filled: float = 0.75, replicas: int = 1) -> int:
    """Redis nodes for the memory, each filled to `filled` (the rest is for copy-on-write, buffers and growth), replicas included."""
    return math.ceil(redis_bytes / (node_bytes * filled)) * (1 + replicas)


# --- bursts -----------------------------------------------------------------------------------------------------------------

def lag_under(arrivals, capacity, step_s: float = 1.0) -> np.ndarray:
    """Backlog at the end of each step, in the unit of `arrivals` (work that arrives in a step, array (steps,)), when a server does
    `capacity` of it a second. A fluid queue: backlog(t) = max(0, backlog(t-1) + arrivals(t) - capacity x step) (Lindley 1952).

    >>> lag_under([5, 0, 0, 9], 2).tolist()
    [3.0, 1.0, 0.0, 7.0]
    """
    net = np.cumsum(np.asarray(arrivals, float) - np.asarray(capacity, float) * step_s)
    return net - np.minimum(0.0, np.minimum.accumulate(net))


def drain_seconds(backlog: float, arrival_a_second: float, capacity_a_second: float) -> float:
    """Seconds until a backlog is gone; infinite when as much arrives as is done."""
    spare = capacity_a_second - arrival_a_second
    return 0.0 if backlog <= 0 else backlog / spare if spare > 0 else math.inf


# --- the tail -----------------------------------------------------------------------------------------------------------------

def pareto_share(threshold: float, alpha: float, xmin: float, largest: float = math.inf) -> float:
    """Share of the deliveries that authors of `threshold` followers or more own, when follower counts are Pareto and everybody posts
    alike: (t / xmin)^(1 - alpha); with `largest` the distribution is cut there.

    >>> round(pareto_share(10_000, 1.485, 98), 3)
    0.106
    """
    def above(t):
        return (t / xmin) ** (1 - alpha) if t < math.inf else 0.0
    t, end = min(max(threshold, xmin), largest), above(largest)
    return (above(t) - end) / (1 - end)


def lognormal_share(threshold: float, median: float, sigma: float) -> float:
    """The same when log(followers) is normal: Phi((ln median + sigma^2 - ln t) / sigma).

    >>> round(lognormal_share(10_000, 7.8, 2.70), 2)
    0.52
    """
    if threshold <= 0:
        return 1.0
    return NormalDist().cdf((math.log(median) + sigma ** 2 - math.log(threshold)) / sigma)


def fit_pareto(mean: float, largest: float, users: float) -> tuple[float, float]:
    """(alpha, xmin) of the Pareto with this mean whose expected greatest of `users` draws is about `largest` (its 1 - 1/users
    quantile): alpha xmin / (alpha - 1) = mean and xmin users^(1 / alpha) = largest. Bisection over alpha; raises ValueError if none fits.

    >>> alpha, xmin = fit_pareto(300, 50e6, 300e6)
    >>> round(alpha, 3), round(xmin)
    (1.485, 98)
    """
    def top(alpha):
        return mean * (alpha - 1) / alpha * users ** (1 / alpha)
    # top(alpha) rises from 0 at alpha = 1, has one maximum, then falls to the mean: the tail that is wanted lies to its right
    grid = np.linspace(1.001, 20, 20_000)
    values = top(grid)
    peak = int(values.argmax())
    if not values[-1] < largest <= values[peak]:
        raise ValueError(f"no Pareto has mean {mean:g} and largest {largest:g} among {users:g} users")
    low, high = float(grid[peak]), float(grid[-1])
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if top(middle) > largest else (low, middle)
    return low, mean * (low - 1) / low


def fit_lognormal(mean: float, largest: float, users: float) -> tuple[float, float]:
    """(median, sigma) of the log-normal with this mean whose 1 - 1/users quantile is `largest`: median exp(sigma^2 / 2) = mean and
    median exp(z sigma) = largest. Of the two solutions the one with the smaller sigma.

    >>> median, sigma = fit_lognormal(300, 50e6, 300e6)
    >>> round(median, 1), round(sigma, 2), round(lognormal_share(10_000, median, sigma), 3)
    (7.8, 2.7, 0.522)
    """
    z = -NormalDist().inv_cdf(1 / users)
    under = z * z - 2 * math.log(largest / mean)
    if under < 0 or largest <= mean:
        raise ValueError(f"no log-normal has mean {mean:g} and largest {largest:g} among {users:g} users")
    sigma = z - math.sqrt(under)
    return mean * math.exp(-sigma * sigma / 2), sigma


# --- memory -------------------------------------------------------------------------------------------------------------------

def _glibc(n: float) -> int:
    """What malloc gives for n bytes on glibc, as malloc_usable_size says: 24, 40, 56, ..."""
    return max(24, -(-(int(n) + 8) // 16) * 16 - 8)


def _jemalloc(n: float) -> int:
    """The size class of jemalloc 5 with its usual quantum of 16: 8, 16, 32, 48 ... 128, then four classes to each doubling."""
    n = int(n)
    if n <= 8:
        return 8
    if n <= 128:
        return -(-n // 16) * 16
    step = 1 << ((n - 1).bit_length() - 3)
    return -(-n // step) * step


@dataclass(frozen=True)
class Layout:
    """How an engine lays a sorted set out in memory; the numbers that `timeline_bytes` needs, all in bytes.

    node: a skiplist node with one level; `in_node`: the member's text lies in the node. `fill`: members a bucket before the table
    doubles. `fixed`: the set's own structures (zset, skiplist, hash table, the 32-level header), `key`: object and name of the key.
    """
    name: str
    alloc: object
    node: int
    in_node: bool
    entry: int
    bucket: int
    fill: int
    fixed: int
    key: int
    source: str


LAYOUTS = {
    # t_zset.c, dict.c, sds.h of Redis 7.0: node = pointer to the member, score, back pointer, level (pointer and span); the member is an
    # sds of its own (1 B header, 1 B end); dictEntry = key, value, next; a bucket is one pointer. Counted as used_memory counts.
    "redis-7.0": Layout("redis-7.0", _jemalloc, 40, False, 24, 8, 1, 16 + 32 + 64 + 640, 16 + 32 + 32,
                        "derived from Redis 7.0's structures and jemalloc's size classes; 127 B an entry at 500 was measured"),
    # t_zset.c, hashtable.c of Valkey 9.1: node = score, back pointer, level, then the sds of the member (1 B size, 1 B header, 1 B end);
    # the table holds node pointers in 64 B buckets of seven; MEMORY USAGE SAMPLES 0 counts it so. Measured on 9.1.2 with libc.
    "valkey-9.1": Layout("valkey-9.1", _glibc, 32, True, 0, 64, 7, 16 + 32 + 552 + 200, 56,
                         "derived from Valkey 9.1's structures and glibc's malloc; measured on 9.1.2 by MEMORY USAGE SAMPLES 0"),
}
LEVEL_P = 0.25        # ZSKIPLIST_P: a node has another level with this chance
MEMBER, SCORE = 19, 13     # characters: a post id in fixed width, an epoch millisecond


def layout_of(engine: str) -> str:
    """The layout to take for an engine by its name: the nearest that is known."""
    return "valkey-9.1" if "valkey" in engine.lower() else "redis-7.0"


def timeline_bytes(entries: float, layout: str = "valkey-9.1", listpack_limit: int = 128, *, packed: bool = False,
                   most: float | None = None) -> float:
    """Bytes of one timeline: its key, `entries` posts and the floor member. Not the keyspace's own table (some 25 B a key). Of a fresh
    heap: in a Valkey that had lived for hours, libc's left-over pieces made skiplists 4 to 7 % larger (measured, 9.1.2).

    `listpack_limit` is zset-max-listpack-entries: up to so many members (the floor is one) the set is a listpack, one block of memory;
    above it a skiplist with a hash table, which doubles at powers of two: the sawtooth. A set never goes back to listpack, and its
    table does not shrink before it is nearly empty: `most` is the greatest number of entries it has had (default: `entries`). A
    rebuild has two state members for a moment (`timeline.complete`), so a feed that was built counts most = entries + 1.

    `packed`: members that are decimal numbers without leading zeros, as the article's `str(id)`. A listpack stores those as 8 B
    integers (10 B with its marks), text of 19 characters as 21 B. Ours are padded to 19 digits (F1) and have leading zeros until
    ids reach 10^18 (July 2031), so an entry takes 31 B in a listpack, and 20 B packed. In a skiplist it makes no difference.

    Figures to compare with (shared design, section 2; 500 entries): 127 B each on Redis 7.0, 80 B on Valkey 9.1, 21 B as listpack.

    >>> [round(timeline_bytes(500, name) / 500) for name in ("redis-7.0", "valkey-9.1")]
    [127, 80]
    >>> round(timeline_bytes(500, "redis-7.0", 512, packed=True) / 500), round(timeline_bytes(500, "valkey-9.1", 512) / 500)
    (21, 31)
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    if entries < 0:
        raise ValueError(f"entries must not be negative, got {entries}")
    low = math.floor(entries)
    if low == entries:
        return _timeline(low, layout, listpack_limit, packed, max(low, math.ceil(most or 0)))
    share = entries - low     # a mean number of entries lies between two whole ones
    return sum(w * _timeline(n, layout, listpack_limit, packed, max(n, math.ceil(most or 0)))
               for n, w in ((low, 1 - share), (low + 1, share)))


@lru_cache(maxsize=1 << 16)
def _timeline(entries: int, name: str, limit: int, packed: bool, most: int) -> float:
    at, members, peak = LAYOUTS[name], entries + 1, most + 1
    if peak <= limit:
        return at.key + at.alloc(listpack_bytes(entries, packed))
    levels = [(1 - LEVEL_P) * LEVEL_P ** k for k in range(31)]
    per_node = sum(p * at.alloc(at.node + 16 * k + (MEMBER + 3 if at.in_node else 0)) for k, p in enumerate(levels))
    per_entry = per_node + (0 if at.in_node else at.alloc(MEMBER + 2) + at.alloc(at.entry))
    return at.key + at.fixed + members * per_entry + _table(at, members, peak, limit)


def listpack_bytes(entries: int, packed: bool = False) -> int:
    """Bytes of a listpack of `entries` posts and the floor: 6 B head, 1 B end; an integer of 64 bits takes 10 B, text its length + 2."""
    floor = (5 + 2) + 10
    return 7 + floor + entries * ((10 if packed else MEMBER + 2) + 10)


def _table(at: Layout, members: int, peak: int, limit: int) -> float:
    """Bytes of the hash table: buckets to a power of two, doubled when `fill` members a bucket are reached. While it doubles, old and new
    stand side by side: an add moves two old buckets. Valkey's buckets of seven overflow into child buckets, here at their mean."""
    least = 4 if at.fill == 1 else 1
    if at.fill > 1:     # a listpack that is converted asks for 6.4 members a bucket
        least = _power(-(-min(limit + 1, peak) * 5 // 32))
    buckets = max(least, _power(-(-peak // at.fill)))
    total = buckets * at.bucket
    if at.fill > 1:
        total += _children(members / buckets) * buckets * at.bucket
    old = buckets // 2
    if buckets > least and peak <= old * at.fill + old // 2 and peak - members <= 1:     # later calls have ended it
        moved = (peak - old * at.fill) / (old / 2)
        total += old * at.bucket * (1 + (_children(at.fill) * (1 - moved) if at.fill > 1 else 0))
    return total


def _power(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def _children(load: float) -> float:
    """Child buckets a bucket, when members fall on buckets at random (Poisson): none up to 7 members, one up to 13, two up to 19."""
    mean, p = 0.0, math.exp(-load)
    for k in range(1, 40):
        p *= load / k
        mean += p * (0 if k <= 7 else -(-(k - 7) // 6))
    return mean
