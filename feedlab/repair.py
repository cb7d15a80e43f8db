"""Healing and upkeep by hand: warm feeds ahead, sweep hidden entries, ask for a demotion."""
import time
from collections.abc import Callable, Sequence

import redis

from . import db, outbox, pull, timeline
from .config import Settings
from .core.codec import Event, Names, member
from .core.model import START
from .errors import NotFound
from .reader import visible

LAPSED = """
    select u from unnest(%s::bigint[]) u left join user_activity a on a.user_id = u
    where a.last_seen_at is null or a.last_seen_at < now() - %s * interval '1 second'"""


def warm(conn: db.Connection, r: redis.Redis, settings: Settings, users: Sequence[int],
         tick: Callable[[int], None] = lambda done: None) -> int:
    """Build the feeds of these users ahead of their first read, where there is none. How many were built.

    Same steps as a reader's rebuild: the visit is recorded, the key exists before SQL is read.
    """
    names, feed_max, built = Names(settings.namespace), db.knobs(conn)["feed_max"], 0
    for at in range(0, len(users), 500):
        some, expires = [int(u) for u in users[at:at + 500]], int((time.time() + settings.feed_ttl_s) * 1000)
        lapsed = [names.feed(u) for u, in conn.execute(LAPSED, (some, settings.feed_ttl_s))]
        if lapsed:                      # as in reader: a feed that outlived the activity window has holes (R01)
            r.unlink(*lapsed)
        conn.execute("insert into user_activity (user_id) select unnest(%s::bigint[]) on conflict (user_id) do update "
                     "set last_seen_at = excluded.last_seen_at", (some,))
        for u in some:
            key = names.feed(u)
            token = timeline.begin(r, key, settings.building_s)
            if token:
                rows = pull.page(conn, u, START, feed_max + 1)
                built += timeline.complete(r, key, token, rows, feed_max, expires)
        tick(at + len(some))
    return built


def sweep(conn: db.Connection, r: redis.Redis, names: Names, user: int) -> int:
    """Take out of a feed what its reader may not see (deleted, no longer followed). At most FEED_MAX members are looked at,
    however many posts an author has. The floor stays: a feed with less in it is still complete. How many were removed."""
    key = names.feed(user)
    with r.pipeline() as pipe:
        pipe.watch(key)               # a feed that changes after this was perhaps rebuilt for a new follow: then nothing is removed
        ids = [e.id for e in timeline.get(r, key).entries]
        seen = visible(conn, user, ids)
        hidden = [member(i) for i in ids if i not in seen]
        if not hidden:
            return 0
        pipe.multi()
        pipe.zrem(key, *hidden)
        try:
            return pipe.execute()[0]
        except redis.WatchError:
            return 0


def ask_demotion(conn: db.Connection, names: Names, author: int) -> None:
    """Ask the fan-out to bring an author back to push (protocol rule 7): by an event, in the author's own order."""
    with conn.transaction():
        if not conn.execute("select 1 from users where id = %s", (author,)).fetchone():
            raise NotFound(f"there is no user {author}.")
        outbox.put(conn, names, Event("demote", author=author))
