"""The article's follow: a backfill of the followee's 20 newest posts. F5: what is older than the twentieth is a hole; and a feed
that is not there becomes a feed of twenty (F3). F12: `count` is one row, read and written back (follow itself counts as ours
does, so that the histories show one fault at a time)."""
import redis

from .. import follows, pull
from ..core.codec import Names
from ..db import Connection

BACKFILL = 20


class _Nowhere:
    """A Redis in which there is nothing to drop: the article keeps the feed and adds to it."""

    def unlink(self, *keys: str) -> int:
        return 0


def follow(conn: Connection, r: redis.Redis, names: Names, user: int, author: int) -> bool:
    new = follows.follow(conn, _Nowhere(), names, user, author)
    if new:
        rows = pull.newest(conn, [author], limit=BACKFILL)
        if rows:
            r.zadd(names.feed(user), {str(e.id): e.ms for e in rows})
    return new


def unfollow(conn: Connection, r: redis.Redis, names: Names, user: int, author: int) -> bool:
    """The read filter hides, an event removes."""
    return follows.unfollow(conn, _Nowhere(), names, user, author)


def count(conn: Connection, user: int, change: int) -> None:
    """F12: read, add, write back. Two at once lose one."""
    write(conn, user, follows.followers(conn, user) + change)


def write(conn: Connection, user: int, n: int) -> None:
    """The second half of `count`, whenever it comes."""
    conn.execute("delete from follower_counts where user_id = %s", (user,))
    conn.execute("insert into follower_counts values (%s, 0, %s) on conflict (user_id, shard) do update set n = excluded.n",
                 (user, n))
