"""7 One page of a feed: lazy sources merged newest first, filtered before the cut, hydrated, with a cursor.

Above the feed's floor: the feed itself (what was pushed) and each flagged author (what was pulled). At or below the floor: SQL
for everybody. While the feed is being built, or Redis is away: SQL for everything. The page is the same in each case; only
its cost differs.
"""
import json
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice

import redis
from redis.exceptions import RedisError

from . import celebrities, posts, pull, timeline
from .config import Settings
from .core import cursor as cursors
from .core.codec import Names
from .core.merge import merged
from .core.model import NO_FLOOR, Entry, Explain, Page, Post, Timeline
from .db import Connection, knobs
from .errors import BadInput, NotFound

LIMIT, LIMIT_MAX = 20, 50

# One query for what a page must know first: is there such a user, was the visit recorded lately, was the user away for so
# long that the follower query may have passed over the feed, whom to pull.
ASK = f"""
    select exists (select from users where id = %(user)s),
           coalesce((select last_seen_at >= now() - interval '{posts.VISIT_EVERY}' from user_activity
                     where user_id = %(user)s), false),
           coalesce((select last_seen_at < now() - %(ttl)s * interval '1 second' from user_activity
                     where user_id = %(user)s), true),
           array(select p.author_id from pull_flags p
                 join follows f on f.follower_id = %(user)s and f.followee_id = p.author_id where p.raised)"""

# The read filter (F6, F10): of these posts, which may this user see now? SQL is asked for every page, no cache stands before it.
# A scalar subquery, not `exists`: that one the planner may hash, and then it reads all that the user follows (2,000: 0.9 ms).
VISIBLE = """
    select p.id from posts p where p.id = any(%(ids)s) and not p.deleted and (p.author_id = %(own)s
        or (select true from follows where follower_id = %(user)s and followee_id = p.author_id))"""

HYDRATE = "select id, author_id, created_at_ms, content, images from posts where id = any(%s)"


class Reader:
    """What a process that serves pages keeps between them: settings, names, local copies. Connections are handed in."""

    def __init__(self, settings: Settings, copies: celebrities.LocalCopies | None = None,
                 clock: Callable[[], float] = time.time):
        self.settings, self.names, self.clock = settings, Names(settings.namespace), clock
        self.copies = copies or celebrities.LocalCopies(settings.local_copy_s)

    def page(self, conn: Connection, r: redis.Redis, user: int, cursor: str | None = None, limit: int = LIMIT,
             own: bool = False) -> Page:
        """The posts older than the cursor, newest first. It is short only when the feed ends, and only then is next_cursor None.

        `own` adds the user's own posts, straight from SQL: read-your-writes (article, section 10). Redis may be away: the answer is
        then SQL's. Raises BadInput (cursor, limit) and NotFound (user).
        """
        before, limit = cursors.parse(cursor), check_limit(limit)
        ex, expires = Explain(), self.expiry()      # before the visit is looked at: a feed must never outlive its reader's activity
        known, here, lapsed, flagged = conn.execute(ASK, {"user": user, "ttl": self.settings.feed_ttl_s}).fetchone()
        ex.sql_queries += 1
        if not known:
            raise NotFound(f"there is no user {user}. Create the user first, or load a graph with `feedlab load`.")
        try:
            return timeline.with_functions(r, lambda: self._page(conn, r, user, here, lapsed, flagged, before, limit, own, expires, ex))
        except RedisError as e:
            ex.feed, ex.flagged = "moved" if isinstance(e, _Moved) else "unreachable", 0
            return self._cut(conn, None, user, self._sql(conn, user, before, limit, own, ex), limit, own, ex)

    def _page(self, conn, r, user, here, lapsed, flagged, before, limit, own, expires, ex) -> Page:
        if lapsed:                              # a feed that outlived the activity window all the same has holes (R01)
            r.unlink(self.names.feed(user))
            ex.redis_trips += 1
        if not here and posts.visit(conn, user):           # recorded before the feed can exist (protocol rule 8)
            ex.sql_queries += 1
            timeline.touch(r, self.names.feed(user), expires)
            ex.redis_trips += 1
        feed, heads = self._fetch(r, user, flagged, before, limit, ex)
        ex.feed = "pushed"
        if not feed.exists:
            ex.feed = "rebuilt" if self._rebuild(conn, r, user, expires, ex) else "building"
            feed = timeline.get(r, self.names.feed(user), before, limit + 1)
            ex.redis_trips += 1
        for author, head in heads.items():
            if not head.exists:
                celebrities.ensure(conn, r, self.names, author, knobs(conn)["feed_max"], self.settings.building_s,
                                   self.settings.celeb_ttl_s)
        if feed.floor is None:
            ex.feed = "building"
            entries = self._sql(conn, user, before, limit, own, ex)
        else:
            ex.floor, ex.flagged = feed.floor, len(flagged)
            above = [self._drawn("feed", self._pushed(r, user, feed, before, ex), ex)]
            above += [self._drawn("celebrities", celebrities.entries(conn, a, heads[a], before, feed.floor, self._count(ex)), ex)
                      for a in flagged]
            if own:
                above.append(self._drawn("own", celebrities.entries(conn, user, None, before, feed.floor, self._count(ex)), ex))
            entries = merged(above)
            if feed.floor > NO_FLOOR:
                entries = chain(entries, self._below(conn, user, min(before, Entry(int(feed.floor) + 1, -1)), limit, own, ex))
        return self._cut(conn, r, user, entries, limit, own, ex)

    def author_page(self, conn: Connection, r: redis.Redis, author: int, cursor: str | None = None, limit: int = LIMIT) -> Page:
        """The author's own posts, straight from SQL, in the same order and with the same cursor. Raises as `page` does."""
        before, limit, ex = cursors.parse(cursor), check_limit(limit), Explain(feed="sql")
        if not conn.execute("select 1 from users where id = %s", (author,)).fetchone():
            raise NotFound(f"there is no user {author}.")
        rows = pull.newest(conn, [author], before, limit=limit + 1)
        ex.sql_queries = 2
        return Page(self._hydrate(conn, r, rows[:limit], ex), cursors.text(rows[limit - 1]) if len(rows) > limit else None, ex)

    # --- sources -----------------------------------------------------------------------------------------------------

    def _fetch(self, r, user: int, flagged: list[int], before: Entry, limit: int, ex: Explain):
        """The feed and the heads that this process has no copy of, in one round trip."""
        heads = {a: copy for a in flagged if (copy := self.copies.get(a))}
        ex.local_hits = len(heads)
        missing = [a for a in flagged if a not in heads]
        pipe, asked_at = r.pipeline(transaction=False), self.copies.clock()
        timeline.read(pipe, self.names.feed(user), before, limit + 1)
        for a in missing:
            timeline.read(pipe, self.names.celeb(a), n=celebrities.HEAD)
        feed, *rest = map(timeline.parse, pipe.execute())
        ex.redis_trips += 1
        for a, t in zip(missing, rest, strict=True):
            heads[a] = self.copies.put(a, celebrities.head(t), asked_at)
        return feed, heads

    def _pushed(self, r, user: int, t: Timeline, before: Entry, ex: Explain) -> Iterator[Entry]:
        """The feed's entries from the cursor down to the floor that was read first, a chunk at a time."""
        floor = t.floor
        while True:
            for before in t.entries:
                if before.ms <= floor:
                    return
                yield before
            if not t.more:
                return
            t = timeline.get(r, self.names.feed(user), before, 100)
            ex.redis_trips += 1
            if t.floor is None or t.floor > floor:        # trimmed or gone in mid-page: below here this page knows nothing,
                raise _Moved                              # so it starts over

    def _below(self, conn, user: int, before: Entry, limit: int, own: bool, ex: Explain) -> Iterator[Entry]:
        ex.below_floor = True
        yield from self._sql(conn, user, before, limit, own, ex)

    def _sql(self, conn, user: int, before: Entry, limit: int, own: bool, ex: Explain) -> Iterator[Entry]:
        def fetch(cursor: Entry, n: int) -> list[Entry]:
            ex.sql_queries += 1
            return pull.page(conn, user, cursor, n, own)
        return self._drawn("sql", pull.lazily(fetch, before, limit + 1), ex)

    def _drawn(self, name: str, source: Iterable[Entry], ex: Explain) -> Iterator[Entry]:
        for entry in source:
            ex.taken[name] = ex.taken.get(name, 0) + 1
            yield entry

    def _count(self, ex: Explain):
        def count(n: int) -> None:
            ex.sql_queries += n
        return count

    # --- filter, cut, hydrate ---------------------------------------------------------------------------------------------

    def _cut(self, conn, r, user: int, entries: Iterator[Entry], limit: int, own: bool, ex: Explain) -> Page:
        """Filter a chunk at a time until the page is full, plus one that tells whether there is a next page."""
        shown: list[Entry] = []
        while len(shown) <= limit:
            chunk = list(islice(entries, max(limit + 1 - len(shown), 10)))
            if not chunk:
                break
            ids = visible(conn, user, [e.id for e in chunk], own)
            ex.sql_queries += 1
            ex.hidden += len(chunk) - len(ids)
            shown += [e for e in chunk if e.id in ids]
        page, rest = shown[:limit], shown[limit:]
        return Page(self._hydrate(conn, r, page, ex), cursors.text(page[-1]) if rest else None, ex)

    def _hydrate(self, conn, r, page: list[Entry], ex: Explain) -> list[Post]:
        """Contents through the post cache. A post never changes, so a cached one is right; whether it shows was decided above."""
        found: dict[int, Post] = {}
        keys = [self.names.post(e.id) for e in page]
        try:
            if r is not None and page:
                ex.redis_trips += 1
                for raw in r.mget(keys):
                    if raw:
                        i, author, ms, content, images = json.loads(raw)
                        found[i] = Post(i, author, ms, content, tuple(images))
        except RedisError:
            r = None
        missing = [e.id for e in page if e.id not in found]
        if missing:
            rows = conn.execute(HYDRATE, (missing,)).fetchall()
            ex.sql_queries += 1
            found |= {row[0]: Post(*row[:4], tuple(row[4])) for row in rows}
            if r is not None:
                self._cache(r, rows, ex)
        return [found[e.id] for e in page if e.id in found]

    def _cache(self, r, rows, ex: Explain) -> None:
        pipe = r.pipeline(transaction=False)
        for row in rows:
            pipe.set(self.names.post(row[0]), json.dumps(row), ex=self.settings.post_cache_s)
        try:
            pipe.execute()
            ex.redis_trips += 1
        except RedisError:
            pass

    # --- rebuild (protocol rule 4) -------------------------------------------------------------------------------------------

    def expiry(self) -> int:
        """Absolute, epoch ms: the feed is gone a day before its reader would leave the follower query."""
        return int((self.clock() + self.settings.feed_ttl_s) * 1000)

    def _rebuild(self, conn, r, user: int, expires: int, ex: Explain) -> bool:
        """Make the feed from SQL, unless somebody else is at it. The key exists before SQL is read, so that what commits
        afterwards is delivered to it. The visit stands by now: `_page` has found it, or recorded it (protocol rule 8)."""
        key = self.names.feed(user)
        token = timeline.begin(r, key, self.settings.building_s)
        ex.redis_trips += 1
        if token is None:
            return False
        feed_max = knobs(conn)["feed_max"]
        rows = pull.page(conn, user, timeline.START, feed_max + 1)
        ex.sql_queries += 2
        ex.redis_trips += 1
        return timeline.complete(r, key, token, rows, feed_max, expires)


def visible(conn: Connection, user: int, ids: list[int], own: bool = False) -> set[int]:
    """Those of the posts that the user may see now: not deleted, of somebody followed (or, with `own`, of the user)."""
    return {i for i, in conn.execute(VISIBLE, {"ids": ids, "user": user, "own": user if own else None})}


class _Moved(RedisError):
    """The feed was trimmed or dropped while a page was being read from it; the page is then read from SQL."""


def check_limit(limit: int) -> int:
    """Posts a page: 1 to 50; more than 50 is 50. Raises BadInput below 1."""
    if type(limit) is not int or limit < 1:
        raise BadInput(f"limit must be a whole number from 1 to {LIMIT_MAX}, got {limit!r}")
    return min(limit, LIMIT_MAX)


def scroll(read: Callable[[str | None], Page], most: int = 100_000) -> Iterator[Page]:
    """Follow the cursor from the top to null: `scroll(lambda c: reader.page(conn, r, 7, c))`."""
    cursor = None
    for _ in range(most):
        page = read(cursor)
        yield page
        if page.next_cursor is None:
            return
        cursor = page.next_cursor
    raise BadInput(f"the feed did not end after {most} pages")
