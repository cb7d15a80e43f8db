"""Follow and unfollow: the row, the count and the event in one transaction, then the feed is dropped (protocol rule 5).

A feed that was built before a follow is incomplete, so it must go; the next read rebuilds it from SQL. It is dropped twice:
here, so that the user sees the change at once, and again by the event, in case this process dies between commit and DEL.
"""
import redis

from . import outbox, timeline
from .core.codec import Event, Names
from .db import Connection
from .errors import Conflict, NotFound

# n = n + 1 under a row lock: no count is lost. 16 shards by connection: no row is hot (F12).
COUNT = """
    insert into follower_counts as c (user_id, shard, n) values (%s, pg_backend_pid() %% 16, %s)
    on conflict (user_id, shard) do update set n = c.n + excluded.n"""


def follow(conn: Connection, r: redis.Redis, names: Names, user: int, author: int) -> bool:
    """True when the follow is new. Repeating it is harmless. Raises Conflict (oneself) and NotFound (either)."""
    if user == author:
        raise Conflict("a user cannot follow oneself. Choose another user.")
    with conn.transaction():
        known = {u for u, in conn.execute("select id from users where id = any(%s)", ([user, author],))}
        for who in (user, author):
            if who not in known:
                raise NotFound(f"there is no user {who}. Create the user first, or load a graph with `feedlab load`.")
        new = conn.execute("insert into follows values (%s, %s) on conflict do nothing returning 1", (user, author)).fetchone()
        if new:
            conn.execute(COUNT, (author, 1))
            outbox.put(conn, names, Event("followed", user=user, author=author))
    if new:
        timeline.drop(r, names.feed(user))
    return new is not None


def unfollow(conn: Connection, r: redis.Redis, names: Names, user: int, author: int) -> bool:
    """True when there was a follow. The read filter hides the author at once, whatever is still in the feed (F10)."""
    with conn.transaction():
        gone = conn.execute("delete from follows where follower_id = %s and followee_id = %s returning 1",
                            (user, author)).fetchone()
        if gone:
            conn.execute(COUNT, (author, -1))
            outbox.put(conn, names, Event("unfollowed", user=user, author=author))
    if gone:
        timeline.drop(r, names.feed(user))
    return gone is not None


def followers(conn: Connection, user: int) -> int:
    """How many follow the user."""
    return int(conn.execute("select coalesce(sum(n), 0) from follower_counts where user_id = %s", (user,)).fetchone()[0])
