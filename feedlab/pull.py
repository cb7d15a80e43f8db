"""6 The SQL answer: fan-out on read. It is the source below every floor, the answer while a feed is being built or Redis is
away, and the oracle that every page is held against."""
from collections.abc import Iterator, Sequence

from .core.model import NO_FLOOR, START, Entry
from .db import Connection

# One index range (posts_author_newest) a followed author, cut early; O(followees x log posts + limit).
PAGE = """
    select p.created_at_ms, p.id from (
        select followee_id from follows where follower_id = %(user)s union all select %(user)s where %(own)s) f
    cross join lateral (
        select created_at_ms, id from posts
        where author_id = f.followee_id and not deleted and (created_at_ms, id) < (%(ms)s, %(id)s)
        order by created_at_ms desc, id desc limit %(limit)s) p
    order by p.created_at_ms desc, p.id desc limit %(limit)s"""

# The same by author. Not `author_id = any(...)`: that would read and sort all of an author's posts for the newest 20.
NEWEST = """
    select p.created_at_ms, p.id from unnest(%(authors)s::bigint[]) a (id) cross join lateral (
        select created_at_ms, id from posts
        where author_id = a.id and not deleted and (created_at_ms, id) < (%(ms)s, %(id)s) and created_at_ms > %(above)s
        order by created_at_ms desc, id desc limit %(limit)s) p
    order by p.created_at_ms desc, p.id desc limit %(limit)s"""

# Written on purpose unlike PAGE: no lateral, no limit, no index order. A mistake in one is not in the other.
EVERYTHING = """
    select created_at_ms, id from posts where not deleted and author_id in
        (select followee_id from follows where follower_id = %s)
    order by created_at_ms desc, id desc"""


def page(conn: Connection, user: int, before: Entry, limit: int, own: bool = False) -> list[Entry]:
    """The newest `limit` posts of everybody the user follows (and, with `own`, of the user), strictly older than `before`."""
    return [Entry(*row) for row in conn.execute(
        PAGE, {"user": user, "ms": before.ms, "id": before.id, "limit": limit, "own": own})]


def newest(conn: Connection, authors: Sequence[int], before: Entry = START, above: float = NO_FLOOR,
           limit: int = 100) -> list[Entry]:
    """The newest `limit` posts of these authors, strictly older than `before`, in milliseconds strictly above `above`."""
    return [Entry(*row) for row in conn.execute(NEWEST, {
        "authors": list(authors), "ms": before.ms, "id": before.id, "limit": limit,
        "above": -1 if above == NO_FLOOR else int(above)})]


def everything(conn: Connection, user: int) -> list[Entry]:
    """The oracle: the whole feed of a user, in one plain query. O(all posts of the followed)."""
    return [Entry(*row) for row in conn.execute(EVERYTHING, (user,))]


def lazily(fetch, before: Entry, first: int) -> Iterator[Entry]:
    """Entries of `fetch(before, n)`, a chunk at a time, each twice as large, up to 500. Nothing is asked before it is drawn."""
    n = first
    while True:
        rows = fetch(before, n)
        yield from rows
        if len(rows) < n:
            return
        before, n = rows[-1], min(2 * n, 500)
