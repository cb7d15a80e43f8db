"""The article's feed read: limit + 1 of the pushed feed by an inclusive score bound, the followed celebrities' recent posts, merge,
hydrate, cursor of the last entry.

F1: with more ties in one millisecond than limit + 1 the inclusive read returns only what was seen. F2: whom to pull is decided
by today's count. F4: below the oldest pushed entry the celebrities go on alone. F6: deleted and unfollowed are filtered after the
cut. F7: a feed that is not there is filled from SQL with no token, so a delivery in between is lost, everybody rebuilds at once,
and who follows nobody rebuilds for ever. F9: see cursor.
"""
from .. import db, pull, reader
from ..core.model import START, Entry, Explain, Page
from ..errors import NotFound
from . import cursor as cursors
from .merge import merge

CELEBRITIES = """
    select f.followee_id from follows f join follower_counts c on c.user_id = f.followee_id
    where f.follower_id = %s group by f.followee_id having sum(c.n) >= %s"""


class Reader(reader.Reader):
    """Same signature as ours."""

    def page(self, conn, r, user: int, cursor: str | None = None, limit: int = reader.LIMIT) -> Page:
        before, limit, ex = cursors.parse(cursor), min(limit, reader.LIMIT_MAX), Explain(feed="pushed")
        if not conn.execute("select 1 from users where id = %s", (user,)).fetchone():
            raise NotFound(f"there is no user {user}.")
        knobs = db.knobs(conn)
        if not r.exists(self.names.feed(user)):
            self.rebuild(conn, r, user, knobs["feed_max"])
            ex.feed = "rebuilt"
        n = limit + 1 + (cursor is not None)        # the bound is inclusive: the cursor's own entry comes once more
        sources = [self._range(r, self.names.feed(user), before, n)]
        for author, in conn.execute(CELEBRITIES, (user, knobs["threshold"])).fetchall():
            sources.append(self.recent(conn, r, author, before, n, knobs["feed_max"]))
        pushed, pulled = sources[0], [e for source in sources[1:] for e in source]
        more = merge(pushed, pulled, before, limit + 1)
        page = more[:limit]
        shown = reader.visible(conn, user, [e.id for e in page])
        kept = [e for e in page if e.id in shown]
        go_on = len(more) > limit or (page and any(len(source) == n for source in sources))
        return Page(self._hydrate(conn, r, kept, ex), cursors.text(page[-1]) if go_on else None, ex)

    def recent(self, conn, r, author: int, before: Entry, n: int, feed_max: int) -> list[Entry]:
        """A celebrity's newest, from the cache, which is filled on a miss."""
        key = self.names.celeb(author)
        if not r.exists(key):
            rows = pull.newest(conn, [author], limit=feed_max)
            if rows:
                r.zadd(key, {str(e.id): e.ms for e in rows})
        return self._range(r, key, before, n)

    def _range(self, r, key: str, before: Entry, n: int) -> list[Entry]:
        rows = r.zrevrangebyscore(key, before.ms, "-inf", start=0, num=n, withscores=True)
        return [Entry(int(ms), int(m)) for m, ms in rows]

    def rebuild(self, conn, r, user: int, feed_max: int) -> None:
        """Read SQL, then write Redis: what is delivered between the two is lost (F7)."""
        rows = self.rebuild_read(conn, user, feed_max)
        self.rebuild_write(r, user, rows, feed_max)

    def rebuild_read(self, conn, user: int, feed_max: int) -> list[Entry]:
        return pull.page(conn, user, START, feed_max)

    def rebuild_write(self, r, user: int, rows: list[Entry], feed_max: int) -> None:
        key = self.names.feed(user)
        r.delete(key)
        if rows:
            r.zadd(key, {str(e.id): e.ms for e in rows})
