"""Push or pull? A policy is a callable over edges; correctness does not hang on what it answers (protocol rule 7), cost does.

    def mine(e):                                    # a team's own, in a notebook's cell
        return (e.followers < 10_000) | (e.reads > 20)

The same callable serves the simulator (`e` holds arrays over many edges) and the live consumer (`FanOut(decide=mine)`: `e` holds
one author and an array over a slice of its followers, or plain numbers where only the author matters). It answers PULL, PUSH, SKIP
or DROP an edge; True and False are PUSH and PULL.
"""
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

PULL, PUSH, SKIP, DROP = 0, 1, 2, 3
ANSWERS = ("pull", "push", "skip", "drop")
"""SKIP: neither, since the reader is away and the feed is rebuilt at the next visit. DROP: the reader never gets it (lossy)."""


@dataclass
class Edges:
    """What is known of edges (author, reader): arrays that broadcast against each other, or numbers.

    of the author: `author` id, `followers`, `posts` a day, `flagged` (pull flag raised), `post` id of the post that is decided on;
    of the reader: `reader` id, `follows` (how many), `reads` a day, `away_days` since the last visit; `lag`: records that wait.
    """
    author: Any = 0
    followers: Any = 0
    posts: Any = 0.5
    flagged: Any = False
    post: Any = 0
    reader: Any = 0
    follows: Any = 0
    reads: Any = 10.0
    away_days: Any = 0.0
    lag: Any = 0


OF_READERS = frozenset(("reader", "follows", "reads", "away_days"))
FIELDS = frozenset(f.name for f in fields(Edges))

Policy = Callable[[Edges], Any]
"""Edges -> an answer for each: an int8 or bool array, or a number for all of them."""


# a small and a large value of each field, in every combination: whichever way a policy branches, it is taken
_PROBES = {name: np.where(np.arange(1 << len(FIELDS)) >> i & 1, 1 << 40, 1) for i, name in enumerate(sorted(FIELDS))}
_PROBES["flagged"] = _PROBES["flagged"] > 1


class _Noted:
    """Edges that note which of their fields are looked at."""

    def __init__(self):
        self.seen: set[str] = set()

    def __getattr__(self, name: str):
        if name not in FIELDS:
            raise AttributeError(f"edges have no {name!r}; they have {', '.join(sorted(FIELDS))}")
        self.seen.add(name)
        return _PROBES[name]


def needs(policy: Policy) -> frozenset[str]:
    """The fields that a policy looks at, found by asking it once.

    >>> sorted(needs(Threshold(10)))
    ['followers']
    """
    noted = _Noted()
    policy(noted)
    return frozenset(noted.seen)


def by_reader(policy: Policy) -> bool:
    """Whether it decides edge by edge. A policy that looks at authors only is asked once a post."""
    return bool(needs(policy) & OF_READERS)


def answers(policy: Policy, edges: Edges, n: int) -> np.ndarray:
    """Its answers for `n` edges as int8 (n,)."""
    return np.broadcast_to(np.asarray(policy(edges)), (n,)).astype(np.int8)


# --- the policies -------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class PushAll:
    """Every post to every active follower."""
    kind = "push-all"

    def __call__(self, e: Edges):
        return PUSH


@dataclass(frozen=True)
class PullAll:
    """Nothing prepared, every followed author is asked."""
    kind = "pull-all"

    def __call__(self, e: Edges):
        return PULL


@dataclass(frozen=True)
class Threshold:
    """The article's: push below the threshold, pull at or above it (section 7).

    >>> Threshold(10_000)(Edges(followers=9_999)), Threshold(10_000)(Edges(followers=10_000))
    (True, False)
    """
    followers: int = 10_000
    kind = "threshold"

    def __call__(self, e: Edges):
        return e.followers < self.followers


@dataclass(frozen=True)
class Hysteresis:
    """Two marks, so that an author near the threshold does not cross it with each follower: pull at `high` or above; an author
    that is pulled already (the flag) stays so down to `low`."""
    low: int = 8_000
    high: int = 10_000
    kind = "hysteresis"

    def __call__(self, e: Edges):
        mark = np.where(np.asarray(e.flagged, bool), min(self.low, self.high), self.high)
        return np.asarray(e.followers) < mark


@dataclass(frozen=True)
class LagDriven:
    """The article's 9.4, without a memory: the threshold is `ceiling` while at most `calm` records wait, `floor` at `flood` and
    above, and falls evenly on a logarithmic scale between. `feedlab.controller` is the variant that moves the live knob."""
    ceiling: int = 10_000
    floor: int = 50
    calm: int = 500
    flood: int = 5_000
    kind = "lag-driven"

    def threshold(self, lag):
        share = np.clip((np.asarray(lag, float) - self.calm) / (self.flood - self.calm), 0, 1)
        return self.ceiling * (self.floor / self.ceiling) ** share

    def __call__(self, e: Edges):
        return e.followers < self.threshold(e.lag)


@dataclass(frozen=True)
class ActiveOnly:
    """The threshold's answer for readers seen in the last `days`; the others' feeds are rebuilt at their next visit (9.4)."""
    days: float = 30
    followers: int = 10_000
    kind = "active-only"

    def __call__(self, e: Edges):
        return np.where(np.asarray(e.away_days) <= self.days, (np.asarray(e.followers) < self.followers).view(np.int8), np.int8(SKIP))


@dataclass(frozen=True)
class RateThreshold:
    """Pull authors who would cause `writes_a_day` feed writes or more: posts a day x followers."""
    writes_a_day: float = 10_000
    kind = "rate-threshold"

    def __call__(self, e: Edges):
        return np.multiply(e.posts, e.followers) < self.writes_a_day


@dataclass(frozen=True)
class MinCost:
    """The cheaper side of each edge: push when reads of the reader over posts of the author >= H / L, the cost of a delivery over that of
    a pull ("Feeding Frenzy", SIGMOD 2010). Written as a product: an author who never posts is pushed, which costs nothing."""
    h_over_l: float = 0.2
    kind = "min-cost"

    def __call__(self, e: Edges):
        return np.asarray(e.reads) >= np.multiply(e.posts, self.h_over_l)


@dataclass(frozen=True)
class Lossy:
    """Readers who follow more than `limit` get each pushed post with the chance limit / follows, and never see the others: keep =
    min(limit / follows, 1) (Bluesky, 2025). The rest by threshold. Chance is a hash of reader and post: a redelivery and the other
    consumer decide alike. **Not exact**: what it drops is lost to the feed until it is rebuilt."""
    limit: int = 2_000
    followers: int = 10_000
    kind = "lossy"

    def keep(self, follows):
        return np.minimum(self.limit / np.maximum(follows, 1), 1.0)

    def __call__(self, e: Edges):
        said = np.asarray(e.followers) < self.followers
        thin = (np.asarray(e.follows) > self.limit) & said
        if not thin.any():
            return said
        said = np.broadcast_to(said, thin.shape).astype(np.int8)
        follows, reader, post = (np.broadcast_to(x, thin.shape)[thin] for x in (e.follows, e.reader, e.post))
        said[thin] = np.where(chance(reader, post) < self.keep(follows), PUSH, DROP)
        return said


@dataclass(frozen=True)
class Slices:
    """Fairness: the threshold's answer, at most `turn` followers a turn, the rest behind what waits (Rama: 1,000). It moves no
    work, only when it is done: small authors need not wait behind a large one."""
    turn: int = 1_000
    followers: int = 10_000
    kind = "slices"

    def __call__(self, e: Edges):
        return e.followers < self.followers


KINDS = {c.kind: c for c in (PushAll, PullAll, Threshold, Hysteresis, LagDriven, ActiveOnly, RateThreshold, MinCost, Lossy, Slices)}


def threshold(limit: int) -> Threshold:
    return Threshold(limit)


def name_of(policy: Policy) -> str:
    """What to call it in a table: its kind and what it was given.

    >>> name_of(Threshold(500)), name_of(PushAll())
    ('threshold 500', 'push-all')
    """
    kind = getattr(policy, "kind", None)
    if kind is None:
        return getattr(policy, "__name__", type(policy).__name__)
    return " ".join([kind, *(f"{getattr(policy, f.name):g}" for f in fields(policy))])


def chance(reader, post):
    """A number in [0, 1) that hangs on reader and post only (splitmix64 of both)."""
    with np.errstate(over="ignore"):
        x = np.asarray(reader, np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.asarray(post, np.uint64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return (x >> np.uint64(11)).astype(float) * 2.0 ** -53


# --- how much each user reads and writes ------------------------------------------------------------------------------------------

@dataclass(frozen=True, eq=False)
class Rates:
    """Posts and reads a day by user; whoever is not in it has the defaults. `users` int64 sorted, the others float64 (users,)."""
    users: np.ndarray
    posts: np.ndarray
    reads: np.ndarray
    away_days: np.ndarray | None = None
    default_posts: float = 0.5
    default_reads: float = 10.0

    @classmethod
    def even(cls, posts: float = 0.5, reads: float = 10.0) -> "Rates":
        """Everybody alike; the article's 0.5 and 10 by default."""
        return cls(np.empty(0, np.int64), np.empty(0), np.empty(0), None, posts, reads)

    def _of(self, column, default: float, users):
        users = np.asarray(users, np.int64)
        if column is None or not len(self.users):
            return np.full(users.shape, default)
        at = np.minimum(np.searchsorted(self.users, users), len(self.users) - 1)
        return np.where(self.users[at] == users, column[at], default)

    def posts_of(self, users) -> np.ndarray:
        return self._of(self.posts, self.default_posts, users)

    def reads_of(self, users) -> np.ndarray:
        return self._of(self.reads, self.default_reads, users)

    def away_of(self, users) -> np.ndarray:
        return self._of(self.away_days, 0.0, users)
