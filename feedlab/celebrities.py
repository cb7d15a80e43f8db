"""5 Celebrities: the pull flag, the timeline `celeb:{author}:recent`, and each process's own copy of it.

The flag (F2): before the consumer skips a push it raises the author's flag, committed; readers pull every flagged author they
follow. It comes down only by a demotion that has delivered again what the flag covered, and only if no post was pulled
meanwhile: `pulls` counts them.
"""
import random
import time
from collections.abc import Callable, Iterable

import redis

from . import pull, timeline
from .core.codec import Names
from .core.model import NO_FLOOR, Entry, Timeline
from .db import Connection

HEAD = 100     # entries in a local copy: five pages; what is deeper is asked of SQL


# --- the flag --------------------------------------------------------------------------------------------------------------

def raise_flags(conn: Connection, authors: Iterable[int]) -> None:
    """Flag authors and count one pull each. Committed when this returns, before any push is skipped."""
    rows = sorted(set(authors))      # in order, so that two consumers cannot deadlock
    if rows:
        conn.execute("insert into pull_flags as f (author_id) select unnest(%s::bigint[]) on conflict (author_id) do update "
                     "set raised = true, pulls = f.pulls + 1", (rows,))


def flagged(conn: Connection, user: int) -> list[int]:
    """The followed authors that must be pulled."""
    return [a for a, in conn.execute(
        "select p.author_id from pull_flags p join follows f on f.follower_id = %s and f.followee_id = p.author_id "
        "where p.raised", (user,))]


def pulls(conn: Connection, author: int) -> int:
    """How many posts of the author were pulled so far; 0 for one that never was."""
    row = conn.execute("select pulls from pull_flags where author_id = %s", (author,)).fetchone()
    return row[0] if row else 0


def lower_flag(conn: Connection, author: int, pulls_then: int) -> bool:
    """Take the flag down if no post was pulled since `pulls_then` was read."""
    return conn.execute("update pull_flags set raised = false where author_id = %s and pulls = %s returning 1",
                        (author, pulls_then)).fetchone() is not None


# --- the timeline ------------------------------------------------------------------------------------------------------------

def ensure(conn: Connection, r: redis.Redis, names: Names, author: int, feed_max: int, building_s: float, ttl_s: int) -> None:
    """Build the author's timeline if there is none. Called by the consumer as the celebrity posts (proactive: no thundering
    herd of readers), and by a reader who finds none."""
    key = names.celeb(author)
    token = timeline.begin(r, key, building_s)
    if token:
        rows = pull.newest(conn, [author], limit=feed_max + 1)
        timeline.complete(r, key, token, rows, feed_max, int((time.time() + ttl_s) * 1000))


# --- the local copy ------------------------------------------------------------------------------------------------------------

class LocalCopies:
    """This process's own copies of celebrity timelines, each good for `ttl_s` seconds (2-5 in the design): a key that every
    reader wants is read by each process once in that time, not once a page.

    A copy may be late by `ttl_s`, which the contract counts as part of draining; it is never wrong about what is hidden,
    because the read filter asks SQL. Thread-safe: entries are replaced whole.
    """

    def __init__(self, ttl_s: float, clock: Callable[[], float] = time.monotonic, most: int = 10_000):
        self.ttl_s, self.clock, self.most = ttl_s, clock, most
        self._copies: dict[int, tuple[float, Timeline]] = {}

    def get(self, author: int) -> Timeline | None:
        """The copy, or None when there is none or it is too old."""
        found = self._copies.get(author)
        return found[1] if found and self.clock() < found[0] else None

    def put(self, author: int, head: Timeline, asked_at: float | None = None) -> Timeline:
        """Keep a head that was asked of Redis at `asked_at` (this clock): its age counts from before the question, whatever held the
        reader up since. The age is jittered by a fifth, so that copies do not expire together."""
        if self.ttl_s > 0 and head.floor is not None:
            if len(self._copies) >= self.most:
                self._copies.clear()           # rare and simple: they last seconds anyway
            self._copies[author] = ((self.clock() if asked_at is None else asked_at) + self.ttl_s * random.uniform(0.8, 1.0), head)
        return head

    def clear(self) -> None:
        self._copies.clear()


def head(t: Timeline) -> Timeline:
    """A read of HEAD entries as a timeline of its own: when more remain, its floor is the last entry's millisecond, and the
    entries of that millisecond are left to SQL (some of them may lie beyond the cut)."""
    if t.floor is None or not t.more:
        return t
    floor = t.entries[-1].ms
    return Timeline(floor, [e for e in t.entries if e.ms > floor], exists=True)


def entries(conn: Connection, author: int, t: Timeline | None, before: Entry, above: float, count: Callable[[int], None]):
    """An author's entries between `above` (milliseconds, exclusive) and the cursor, newest first: the timeline above its floor,
    SQL for the rest. A generator: SQL is asked only if the merge gets that far. `count(1)` at each SQL query."""
    floor = float("inf")
    if t is not None and t.floor is not None:
        floor = t.floor
        for e in t.entries:
            if e.ms <= above:
                return
            if e < before:
                yield e
    if floor == NO_FLOOR or floor <= above:
        return
    top = before if floor == float("inf") else min(before, Entry(int(floor) + 1, -1))    # at or below the floor

    def fetch(cursor: Entry, n: int) -> list[Entry]:
        count(1)
        return pull.newest(conn, [author], cursor, above, n)
    yield from pull.lazily(fetch, top, 21)      # a page of 20 looks at one more, to know whether there is a next
