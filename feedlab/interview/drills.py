"""Estimation drills: the article's quantities with fresh numbers each time, computed by `feedlab.core.cost`.

    d = drill(seed=7)                  # the same seed, the same drill
    d.ask; d.unit; d.tolerance
    d.judge("35k/s")                   # -> Judged; BadInput for what is no number, and nothing is scored

What is right is within a factor that the drill states.
"""

import random
import secrets
from dataclasses import dataclass

from ..errors import BadInput
from .engine import factor_credit
from .quantities import Figures
from .units import read, say


@dataclass(frozen=True)
class Judged:
    right: bool
    value: float  # what was typed, in the drill's unit
    sentence: str


@dataclass(frozen=True)
class Drill:
    """`expression` is computed over `sheet` and `given` (see quantities.py); `way` is the way to it, with figures filled in."""

    kind: str
    seed: int
    ask: str
    unit: str
    tolerance: float
    right: float
    way: str

    def judge(self, said: str) -> Judged:
        """Raises BadInput with a sentence for what is no number of this kind."""
        value = read(said, self.unit)
        good = factor_credit(value, self.right, self.tolerance) == 1
        off = max(value / self.right, self.right / value)
        how = (
            "Right"
            if good
            else f"Not within the factor of {self.tolerance:g}: {'too much' if value > self.right else 'too little'}"
        )
        return Judged(good, value, f"{how}: {say(self.right, self.unit)} (yours is off by a factor of {off:.3g}). {self.way}")

    def as_dict(self) -> dict:
        return {
            "kind": self.kind,
            "seed": self.seed,
            "ask": self.ask,
            "unit": self.unit,
            "within_a_factor_of": self.tolerance,
            "right": self.right,
            "way": self.way,
        }


# kind -> (question, expression, unit, factor, way); {expression | unit} is filled in, names are those of quantities.py
_KINDS: dict[str, tuple[str, str, str, float, str]] = {
    "reads": (
        "{users | daily users}, {reads | feed reads} each a day. How many reads a second on average?",
        "reads_a_second",
        "reads/s",
        1.3,
        "{reads_a_day | reads} a day over 86,400 s.",
    ),
    "peak-reads": (
        "{users | daily users}, {reads | feed reads} each a day, the peak is {peak | times} the mean. Reads a second at peak?",
        "peak_reads_a_second",
        "reads/s",
        1.3,
        "{reads_a_second | reads/s} on average, times {peak | }.",
    ),
    "posts": (
        "{users | daily users}, each writes {posts | posts} a day. Posts a second on average?",
        "posts_a_second",
        "posts/s",
        1.3,
        "{posts_a_day | posts} a day over 86,400 s.",
    ),
    "feed-writes": (
        "{users | daily users}, {posts | posts} each a day, {followers | followers} on average. Feed writes a day "
        "under pure push?",
        "feed_writes_a_day",
        "feed writes/day",
        1.4,
        "{posts_a_day | posts} a day times {followers | }.",
    ),
    "feed-writes-a-second": (
        "{posts_a_day | posts} a day, {followers | followers} on average, all pushed. Feed writes a second?",
        "feed_writes_a_second",
        "feed writes/s",
        1.4,
        "{feed_writes_a_day | feed writes} a day over 86,400 s.",
    ),
    "fan-out-time": (
        "An account has {largest | followers}, a Redis core takes {rate | feed writes/s}. How long is one post on its "
        "way, on {cores | cores}?",
        "fan_out_seconds(largest, rate * cores)",
        "s",
        1.4,
        "{largest | } over {rate * cores | feed writes/s}.",
    ),
    "memory": (
        "{feeds | feeds} of {feed_max | entries}, {entry_bytes | bytes} an entry. How much Redis memory?",
        "redis_bytes / GB",
        "GB",
        1.3,
        "{feeds * feed_max | entries} times {entry_bytes | bytes}.",
    ),
    "timeline": (
        "One sorted set of {feed_max | entries} on Valkey 9.1, default settings. How many bytes, about?",
        "timeline_bytes(feed_max)",
        "bytes",
        1.7,
        "{timeline_bytes(feed_max) / feed_max | bytes} an entry. In a listpack (up to 128 members) it is "
        "{timeline_bytes(100) / 100 | }, in a skiplist of 500 {timeline_bytes(500) / 500 | }.",
    ),
    "cores": (
        "{rate_needed | feed writes/s} at peak, {core_us | µs} of a Redis core each, a core at most 60 % busy. How many cores?",
        "redis_cores(rate_needed, 0, core_us * 1e-6, 0)",
        "cores",
        1.4,
        "{rate_needed * core_us * 1e-6 | cores} of work, over 0.6.",
    ),
    "nodes": (
        "{feeds | feeds} of {feed_max | entries} at {entry_bytes | bytes}, nodes of {node_gb | GB} filled to three "
        "quarters, one replica each. How many nodes?",
        "nodes(redis_bytes, node_gb * GB)",
        "nodes",
        1.3,
        "{redis_bytes / GB | GB} over {node_gb * 0.75 | GB}, rounded up, twice.",
    ),
    "outage": (
        "A relay stands still for {minutes | minutes}; {users | users} write {posts | posts} a day each. Rows in the "
        "outbox, at the mean rate?",
        "posts_a_second * minutes * minute",
        "rows",
        1.4,
        "{posts_a_second | posts/s} for {minutes * minute | s}.",
    ),
    "catching-up": (
        "{backlog | posts} wait, {arrive | posts/s} arrive, {work | posts/s} are worked off. How long until nothing waits?",
        "drain_seconds(backlog, arrive, work)",
        "s",
        1.4,
        "{backlog | } over the {work - arrive | posts/s} that are left over.",
    ),
    "ratio": (
        "{reads | reads} and {posts | posts} a user and day. How many reads are there a post?",
        "reads_a_post",
        "",
        1.2,
        "{reads | } over {posts | }.",
    ),
    "exact": (
        "A Redis score is a double, exact to 2^53. It holds milliseconds since 1970 times {slots | }, plus a sequence "
        "number below that. For how many "
        "years is it exact?",
        "max_ms / slots / 1000 / (365 * day)",
        "years",
        1.5,
        "2^53 over {slots | } is {max_ms / slots | ms}; a year has {365 * day * 1000 | ms}..",
    ),
}
KINDS = tuple(_KINDS)


def drill(seed: int | None = None, kind: str | None = None) -> Drill:
    """A drill with fresh numbers. Raises BadInput for an unknown kind.

    >>> drill(7) == drill(7), drill(7) == drill(8)
    (True, False)
    """
    if kind is not None and kind not in _KINDS:
        raise BadInput(f"there is no drill {kind[:30]!r}; they are: {', '.join(KINDS)}.")
    seed = secrets.randbelow(10**6) if seed is None else seed
    rng = random.Random(seed)
    kind = kind or rng.choice(KINDS)
    sheet, given = _numbers(rng)
    f = Figures(sheet, given)
    ask, expression, unit, tolerance, way = _KINDS[kind]
    return Drill(kind, seed, f.text(ask), unit, tolerance, f.value(expression), f.text(way))


def _numbers(rng: random.Random) -> tuple[dict[str, float], dict[str, float]]:
    def pick(*values: float) -> float:
        return rng.choice(values)

    def around(low: float, high: float) -> float:
        """Two digits, evenly over the powers of ten: what one would be told."""
        return float(f"{low * (high / low) ** rng.random():.1e}")

    work = around(2e3, 50e3)
    sheet = {
        "users": around(1e6, 2e9),
        "reads": pick(4, 5, 8, 10, 12, 15, 20, 25),
        "posts": pick(0.1, 0.2, 0.3, 0.4, 0.5, 1, 2),
        "peak": pick(2, 3, 4, 5, 10),
        "followers": around(50, 900),
        "largest": around(1e6, 150e6),
        "feeds": around(5e6, 1e9),
        "feed_max": round(around(40, 1_200)),
        "entry_bytes": pick(30, 60, 80, 100, 130),
    }
    given = {
        "rate": around(50e3, 300e3),
        "cores": pick(1, 2, 4, 8, 16),
        "rate_needed": around(100e3, 5e6),
        "core_us": pick(3, 5, 7, 8, 10),
        "node_gb": pick(32, 64, 128, 256),
        "minutes": pick(2, 5, 10, 20, 30, 60),
        "backlog": around(1e5, 5e7),
        "slots": round(around(64, 9_000)),
        "arrive": round(work * pick(0.3, 0.5, 0.7, 0.9)),
        "work": work,
    }
    return sheet, given
