"""How a station is measured: ways interleaved over several rounds, ratios made within a round, medians with their spread.

Two ways that are measured one after the other on a busy machine differ by whatever else ran meanwhile. So each round runs every
way once, the order turns, the ratio is of the same round, and what is reported is the median of the ratios with the smallest and
the largest.
"""
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager

import psycopg
import redis


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, smallest, largest and number of the values.

    >>> spread([3, 1, 2])
    {'median': 2, 'low': 1, 'high': 3, 'n': 3}
    """
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "n": len(values)}


def interleaved(ways: Mapping[str, Callable[[], float]], rounds: int, tick: Callable[[int], None] = lambda done: None,
                warm: bool = True) -> dict[str, list[float]]:
    """Run every way once a round, the order turned by one each time. A first round, not counted, warms what is warmed by use.

    A way returns its own measure (so that it can leave out what it prepares): a rate, or seconds.

    >>> interleaved({"a": lambda: 1.0, "b": lambda: 2.0}, 2)
    {'a': [1.0, 1.0], 'b': [2.0, 2.0]}
    """
    names, found = list(ways), {name: [] for name in ways}
    for n in range(-1 if warm else 0, rounds):
        for name in names[max(n, 0) % len(names):] + names[:max(n, 0) % len(names)]:
            value = ways[name]()
            if n >= 0:
                found[name].append(value)
        tick(n + 1)
    return found


def row(what: str, ours: Sequence[float], beside: str, other: Sequence[float], unit: str, *, at_least: float | None = None,
        at_most: float | None = None) -> dict:
    """One line of the table: ours, what stands beside it, and the ratio ours / beside, round by round.

    `at_least` or `at_most` is the bound of the ratio; `reached` says whether its median keeps it (None without a bound).

    >>> r = row("pages", [30, 40], "bare", [10, 10], "pages/s", at_least=3)
    >>> r["ratio"]["median"], r["bound"], r["reached"]
    (3.5, '>= 3', True)
    """
    ratio = spread([a / b for a, b in zip(ours, other, strict=True)])
    bound = f">= {at_least:g}" if at_least is not None else f"<= {at_most:g}" if at_most is not None else ""
    reached = None
    if bound:
        reached = bool(ratio["median"] >= at_least if at_least is not None else ratio["median"] <= at_most)
    return {"what": what, "ours": spread(ours), "beside": beside, "other": spread(other), "unit": unit, "ratio": ratio,
            "bound": bound, "reached": reached}


def against(what: str, ours: Sequence[float], beside: str, constant: float, unit: str, **bound) -> dict:
    """A `row` beside a figure that is not measured here: of the design, or of a formula."""
    return row(what, ours, beside, [constant] * len(ours), unit, **bound)


def beside_expected(what: str, value: float, beside: str, expected: float) -> dict:
    """A line without a ratio: one figure, beside what theory says of it.

    >>> beside_expected("exponent", 0.02, "O(1)", 0)["ratio"] is None
    True
    """
    return {"what": what, "ours": spread([value]), "beside": beside, "other": spread([expected]), "unit": "", "ratio": None,
            "bound": "", "reached": None}


def percentile(values: Sequence[float], share: float) -> float:
    """The value that a share of the values do not exceed (nearest rank).

    >>> percentile([1, 2, 3, 4], 0.5), percentile([1, 2, 3, 4], 0.99)
    (2, 4)
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """The slope of log time over log size by least squares: 0 does not grow, 1 is O(n).

    >>> round(exponent([1, 10, 100], [5, 50, 500]), 3), round(exponent([1, 10, 100], [7, 7, 7]), 3)
    (1.0, 0.0)
    """
    import numpy as np
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])


@contextmanager
def clock():
    """Seconds of the block: `with clock() as took: ...`, then `took()`.

    >>> with clock() as took:
    ...     pass
    >>> took() >= 0
    True
    """
    began, ended = time.perf_counter(), []
    yield lambda: (ended[0] if ended else time.perf_counter()) - began
    ended.append(time.perf_counter())


# --- exact counts -----------------------------------------------------------------------------------------------------------

class Counts:
    """What went over the wire: `trips` to Redis (one a command, or one a pipeline), `commands` in them, `queries` to PostgreSQL."""

    def __init__(self):
        self.trips = self.commands = self.queries = 0

    def reset(self) -> None:
        self.trips = self.commands = self.queries = 0

    def as_dict(self) -> dict[str, int]:
        return {"redis_trips": self.trips, "redis_commands": self.commands, "sql_queries": self.queries}


def counted_redis(url: str, counts: Counts) -> redis.Redis:
    """A client whose connection counts what it sends. Not what our code says of itself: what goes over the wire."""

    class Counting(redis.Connection):
        def send_command(self, *args, **options):
            counts.trips += 1
            counts.commands += 1
            return super().send_command(*args, **options)

        def pack_commands(self, commands):       # a pipeline packs all of its commands and sends them as one
            commands = list(commands)
            counts.trips += 1
            counts.commands += len(commands)
            return super().pack_commands(commands)

        def on_connect(self):
            super().on_connect()
            counts.reset()                       # greeting and naming are of the connection, not of the work

    pool = redis.ConnectionPool.from_url(url, decode_responses=True, socket_timeout=5)
    pool.connection_class = Counting
    return redis.Redis(connection_pool=pool)


def counted_sql(conn: psycopg.Connection, counts: Counts) -> psycopg.Connection:
    """The same connection, whose cursors count what they execute."""

    class Counting(psycopg.Cursor):
        def execute(self, *args, **options):
            counts.queries += 1
            return super().execute(*args, **options)

    conn.cursor_factory = Counting
    return conn


def rows_read(conn: psycopg.Connection, query: str, params) -> dict:
    """Rows that a query took from tables and indexes, and pages it touched: by EXPLAIN (ANALYZE), which runs it.

    {"rows": rows out of the scans, "probes": how often a scan was begun, "blocks": pages of 8 kB, "ms": milliseconds,
    "returned": rows}
    """
    plan = conn.execute("explain (analyze, buffers, format json) " + query, params).fetchone()[0][0]
    top = plan["Plan"]
    found = {"rows": 0, "probes": 0, "blocks": top.get("Shared Hit Blocks", 0) + top.get("Shared Read Blocks", 0),
             "ms": plan["Execution Time"], "returned": round(top["Actual Rows"])}

    def walk(node) -> None:
        if "Relation Name" in node:         # a scan; a bitmap's index part has no relation, and gives the same rows once more
            found["rows"] += round(node["Actual Rows"] * node["Actual Loops"])
            found["probes"] += node["Actual Loops"]
        for child in node.get("Plans", ()):
            walk(child)
    walk(top)
    return found
