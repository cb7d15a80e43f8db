"""The cases from the field, by number: faults that people reported of real feed systems (feed_cases.md), each a small
history and the pages that it must show.

A (1) reads; B (2, posts 1..) and C (3, posts 201..) are pushed, K (4, posts 101..) is a celebrity: threshold 3. A
follows all three unless a case says otherwise, and has a feed that was read while it was still empty. `h.run(1, 4)` is
p1..p4 @10..40.

Relay and consumer are stepped by `feedlab.verify.runner`, so that "before any read" and "removal stopped" are exact, not
lucky. Pages are read over HTTP. A case that returns (limit, page, page ...) must show these pages twice warm and once
after DEL of A's feed key, the same bytes each time, every page but the last full, and equal to the SQL answer.
"""

import json
import re
import threading
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
import redis
from conftest import until
from redis.backoff import NoBackoff
from redis.retry import Retry

from feedlab import celebrities, db, follows, kafka, outbox, posts, pull, reader, repair, timeline
from feedlab.config import Settings
from feedlab.core.codec import Event, member
from feedlab.core.snowflake import EPOCH_MS, Drawn, Snowflake
from feedlab.errors import ClockWentBack
from feedlab.http import app
from feedlab.lab.session import open_lab, wipe
from feedlab.relay import LOCK
from feedlab.verify import faults
from feedlab.verify.histories import History
from feedlab.verify.runner import Killed, Runner, Tap
from feedlab.verify.systems import SYSTEMS

A, B, C, K, D, FANS = 1, 2, 3, 4, 5, (6, 7, 8)
NUMBERS = """
    R01 R02 R04 R05 R07 R08 R10 R11 R13 R14 R16 R17 R19 R20 R22 R23 R25 R26 R28 R29 R31 R32 R34 R35 R37
    R38 R40 R41 R43 R44 R46 R47 R49 R50 R52 R53 R55 R56 R58 R59 S1 S2 S3 S4 S5 S7 S8
""".split()


class Feed:
    """One case's world on the shared engines: emptied before each case, users and posts with the ids of the case."""

    def __init__(self, runner: Runner, http: httpx.Client):
        self.runner, self.http, self.lab = runner, http, runner.lab
        self.conn, self.r, self.names = self.lab.conn, self.lab.redis, self.lab.names
        # an unfollow whose DEL does not arrive: nobody listens on this port
        self.dead = redis.Redis(port=1, retry=Retry(NoBackoff(), 0))

    def reset(self, followed=(B, C, K), feed_max=500):
        self.runner._empty(History([], feed_max=feed_max, threshold=3))
        people = [A, B, C, K, D, *FANS]
        self.conn.execute("insert into users select u, 'user ' || u from unnest(%s::int[]) u", (people,))
        self.conn.execute("insert into user_activity (user_id) select unnest(%s::int[])", (people,))
        pairs = [(u, K) for u in FANS] + [(A, a) for a in followed]
        self.conn.execute(
            "insert into follows select * from unnest(%s::int[], %s::int[])",
            ([u for u, _ in pairs], [a for _, a in pairs]),
        )
        self.conn.execute("insert into follower_counts select followee_id, 0, count(*) from follows group by 1")
        self.lab.reader = reader.Reader(self.lab.settings)
        assert self.pages(5) == [[]]  # warm from the start
        return self

    # --- what happens

    def write(self, *rows, by=None, conn=None):
        """Posts (id, ms), not yet delivered: ids below 100 by B, below 200 by K, else by C."""
        for i, ms in rows:
            author = by or (B if i < 100 else K if i < 200 else C)
            posts.create(conn or self.conn, Drawn((i, i)), self.names, author, f"post {i}", created_at_ms=ms)
        return self

    def post(self, *rows, by=None):
        """Posts, delivered one by one, so that each meets the feed as the one before left it."""
        for row in rows:
            self.write(row, by=by).drain()
        return self

    def run(self, first, last, by=None, start=10, step=10):
        self.write(*((i, start + step * (i - first)) for i in range(first, last + 1)), by=by).drain()
        return self

    def delete(self, *ids):
        for i in ids:
            (author,) = self.conn.execute("select author_id from posts where id = %s", (i,)).fetchone()
            posts.delete(self.conn, self.names, author, i)
        return self

    def follow(self, user, author):
        follows.follow(self.conn, self.r, self.names, user, author)
        return self

    def unfollow(self, user, author, removal=True):
        """`removal=False`: neither the DEL of the request nor the event's arrives (until somebody drains)."""
        follows.unfollow(self.conn, self.r if removal else self.dead, self.names, user, author)
        return self

    def evict(self, key=None):
        self.r.delete(key or self.names.feed(A))
        return self

    def knobs(self, **values):
        db.set_knobs(self.conn, **values)
        return self

    def drain(self):
        self.runner.drain()
        return self

    def relay(self):
        while self.runner.relay.once():
            pass

    def consume(self):
        """Handle what is in Kafka; what is in the outbox stays there."""
        until(
            lambda: (
                self.runner.fanout.once(0.02)
                and not self.runner.fanout.stale
                and kafka.lag(self.lab.admin, self.r, self.names) == 0
            )
        )

    # --- what is seen

    def score(self, post, key=None):
        return self.r.zscore(key or self.names.feed(A), member(post))

    def stored(self, user=A):
        return [e.id for e in timeline.get(self.r, self.names.feed(user)).entries]

    def get(self, path="/api/feed", user=A, **query):
        return self.http.get(path, params=query, headers={"X-User-Id": str(user)})

    def page(self, limit, cursor=None, user=A, **query):
        """(ids, cursor of the next) of one page."""
        answer = self.get(user=user, limit=limit, **({"cursor": cursor} if cursor else {}), **query)
        assert answer.status_code == 200, answer.text
        body = answer.json()
        return [int(p["id"]) for p in body["items"]], body["nextCursor"]

    def scroll(self, limit, user=A, **query):
        """The bytes of each page, from the top to null."""
        cursor, seen = None, []
        while True:
            answer = self.get(user=user, limit=limit, **({"cursor": cursor} if cursor else {}), **query)
            assert answer.status_code == 200, answer.text
            seen.append(answer.content)
            cursor = answer.json()["nextCursor"]
            if cursor is None:
                return seen
            assert len(seen) < 2_000, "the feed does not end"

    def pages(self, limit, user=A, **query):
        return [ids_of(b) for b in self.scroll(limit, user, **query)]

    def same_bytes(self, *limits):
        """R58, for any history: pages of these sizes, warm and after DEL of A's feed key."""
        warm = {limit: self.scroll(limit) for limit in limits}
        for limit in limits:
            self.evict()
            assert self.scroll(limit) == warm[limit], f"pages of {limit}"

    def shows(self, limit, *want):
        """Drained: these pages and no others, warm, warm again and cold, the same bytes, and they are the SQL
        answer."""
        self.drain()
        want = [list(p) for p in want]
        warm = self.scroll(limit)
        assert [ids_of(b) for b in warm] == want
        assert self.scroll(limit) == warm
        self.same_bytes(limit, 7, 50)
        assert [i for p in want for i in p] == [e.id for e in pull.everything(self.conn, A)]
        assert all(len(p) == limit for p in want[:-1])


def ids_of(page: bytes) -> list[int]:
    return [int(p["id"]) for p in json.loads(page)["items"]]


@dataclass
class Case:
    history: object
    options: dict


CASES: dict[str, Case] = {}


def case(number, **options):
    """Register a history under its number. `options` go to `Feed.reset`."""

    def register(history):
        assert number not in CASES
        CASES[number] = Case(history, options)
        return history

    return register


@pytest.fixture(scope="module")
def feed(addresses):
    s = Settings(namespace="t_field_cases", partitions=2, local_copy_s=0.0)
    with open_lab(s, addresses) as old:
        wipe(old)
    with (
        Runner(s, addresses, SYSTEMS["ours"]) as runner,
        app.in_thread(s, addresses) as url,
        httpx.Client(base_url=url, timeout=30) as http,
    ):
        yield Feed(runner, http)
    with open_lab(s, addresses) as old:
        wipe(old)


# --- holes: what was written while a feed was away, switched off or lost ------------------------


@case("R01")
def back_after_dormancy(h):
    """misskey#16953. Our feeds expire before their reader leaves the follower query; here the key outlived it all the
    same."""
    h.run(1, 4)
    h.conn.execute("update user_activity set last_seen_at = now() - interval '31 days' where user_id = %s", (A,))
    h.run(5, 8, start=50)
    assert h.stored() == [4, 3, 2, 1]  # not pushed, and the key is still there
    h.page(5)  # A is back
    h.post((9, 90)).shows(5, [9, 8, 7, 6, 5], [4, 3, 2, 1])
    h.reset().run(1, 4)
    h.conn.execute("update user_activity set last_seen_at = now() - interval '31 days' where user_id = %s", (A,))
    h.run(5, 8, start=50)
    repair.warm(h.conn, h.r, h.lab.settings, [A])  # or is made active without a read
    h.post((9, 90))
    return 5, [9, 8, 7, 6, 5], [4, 3, 2, 1]


@case("R02")
def fan_out_switched_off_for_a_while(h):
    """misskey#12126, #17547."""
    h.run(1, 3).knobs(threshold=1).run(4, 6, start=40).knobs(threshold=3).run(7, 9, start=70)
    assert set(h.stored()) == {9, 8, 7, 3, 2, 1}  # 4 to 6 were not pushed
    return 4, [9, 8, 7, 6], [5, 4, 3, 2], [1]


@case("R04", followed=(B, K))
def one_post_after_a_follow_looks_like_a_whole_feed(h):
    """misskey#12513."""
    h.run(1, 6).post((201, 15))
    h.follow(A, C).drain()
    h.post((7, 80))  # before any read
    return 4, [7, 6, 5, 4], [3, 2, 201, 1]


@case("R05", feed_max=3)
def a_sparse_source_is_no_boundary(h):
    """misskey#14413."""
    h.run(1, 8).post((101, 5))
    return 4, [8, 7, 6, 5], [4, 3, 2, 1], [101]


@case("R07")
def a_restart_empties_redis(h):
    """gotosocial#3568. Only our own keys are lost, since other tests use this Redis; the consumer's place goes with
    them."""
    h.run(1, 5)
    h.runner._flush()
    h.post((6, 60))  # before any read
    return 3, [6, 5, 4], [3, 2, 1]


@case("R08")
def a_restart_brings_back_an_old_state(h):
    """mastodon#4241, #4056."""
    h.run(1, 3)
    h.runner._snapshot()
    h.run(4, 6, start=40)
    h.runner._restore()
    assert h.stored() == [3, 2, 1]
    return 3, [6, 5, 4], [3, 2, 1]


@case("S8")
def the_feed_key_alone_is_gone(h):
    """bangumi: a marker beside the key says "warmed". Our floor is in the key, so both go together."""
    h.run(1, 5).evict().post((6, 60))
    assert h.r.exists(h.names.feed(A)) == 0  # a delivery makes no feed
    return 20, [6, 5, 4, 3, 2, 1]


@case("S7", followed=(B,))
def the_follow_list_of_a_rebuild_is_todays(h):
    """Pixelfed: a follow list cached for 14 days feeds the warm-up."""
    h.run(1, 3).post((201, 15))
    assert h.pages(20) == [[3, 2, 1]]
    h.follow(A, C).drain().evict()
    return 20, [3, 2, 201, 1]


@case("R26", followed=(C, K))
def old_posts_of_somebody_newly_followed(h):
    """mastodon#21; gotosocial#1009, #1138."""
    h.run(1, 25)
    h.follow(A, B)
    return 10, range(25, 15, -1), range(15, 5, -1), range(5, 0, -1)


@case("R59")
def no_horizon(h):
    """misskey#10063, #10473. The celebrity likewise, its timeline expired."""
    now = int(time.time() * 1000)
    old = now - 60 * 86_400_000
    h.post((1, old), (2, now), (101, old + 1), (102, now + 1)).evict(h.names.celeb(K))
    assert h.pages(2) == [[102, 2], [101, 1]]
    h.evict(h.names.celeb(K))
    return 20, [102, 2, 101, 1]


@case("R58", feed_max=5)
def warm_pages_are_cold_pages(h):
    """misskey#12065, #12956. Every case here is compared byte for byte (`same_bytes`); this one mixes what they have
    one by one: ties, a celebrity, a back-dated post, a threshold that moves, deleted and unfollowed posts, and pages of
    every size."""
    h.post(*((i, 10 * (i // 3)) for i in range(1, 9)), (101, 20), (201, 20), (102, 25)).knobs(threshold=1)
    h.post((9, 30), (10, 20), (202, 30)).knobs(threshold=3).post((11, 40), (12, 5), (203, 40), (103, 40))
    h.delete(4, 101).unfollow(A, C, removal=False)
    h.same_bytes(1, 2, 3, 4, 5, 6, 7, 15, 50)
    h.drain().same_bytes(3, 5, 50)
    return 4, [103, 11, 9, 102], [10, 8, 7, 6], [5, 3, 12, 2], [1]


# --- pages that are short, empty, or end early --------------------------------------------------


@case("R10")
def deleted_posts_leave_no_short_page(h):
    """misskey#12160."""
    h.run(1, 8).delete(8, 6, 5)
    assert h.pages(3) == [[7, 4, 3], [2, 1]]  # at once, before anything is swept
    return 3, [7, 4, 3], [2, 1]


@case("R11", feed_max=5)
def the_newest_n_are_all_filtered_away(h):
    """mastodon#5398."""
    h.run(1, 4).run(201, 220, start=101, step=1).unfollow(A, C).evict()
    return 3, [4, 3, 2], [1]


@case("R13")
def a_page_of_28_ends_nothing(h):
    """atproto#4871."""
    h.run(1, 60).delete(59, 45)
    first, cursor = h.page(30)
    assert len(first) == 30 and cursor is not None
    return 30, [60, *range(58, 45, -1), *range(44, 28, -1)], range(28, 0, -1)


@case("R14", feed_max=5)
def load_more_moves_down(h):
    """mastodon#21236. Removal is stopped: unfollow's DEL and its event have not arrived."""
    h.run(1, 3).run(201, 206, start=101, step=1).unfollow(A, C, removal=False)
    assert set(h.stored()) == set(range(202, 207))  # only C's posts
    one, first = h.page(2)
    two, second = h.page(2, first)
    assert (one, two, second) == ([3, 2], [1], None)
    cursor = "1000:0"  # a saved cursor above everything: each call moves down
    for want in ([3], [2], [1]):
        got, below = h.page(1, cursor)
        assert got == want and (below is None or as_numbers(below) < as_numbers(cursor))
        cursor = below
    return 2, [3, 2], [1]


def as_numbers(cursor: str) -> tuple[int, ...]:
    return tuple(map(int, cursor.split(":")))


@case("R16", feed_max=100)
def a_narrow_view_is_not_empty(h):
    """nextcloud/social PR 2210. Removal not run: 60 of the unfollowed lie above."""
    h.run(1, 3).run(201, 260, start=101, step=1).unfollow(A, C, removal=False)
    assert len(h.stored()) == 63
    assert h.pages(3) == [[3, 2, 1]]
    return 3, [3, 2, 1]


@case("R17")
def a_missing_row_and_a_moving_index(h):
    """DeathStarBench PR 183."""
    h.run(1, 3)
    h.conn.execute("delete from posts where id = 2")
    answer = h.get(limit=20)
    assert answer.status_code == 200 and ids_of(answer.content) == [3, 1]
    h.post((101, 15), (102, 25))
    read, fetch = h.lab.reader, h.lab.reader._fetch

    def then_posts_arrive(*args):
        got = fetch(*args)
        read._fetch = fetch
        h.post((4, 60), (103, 61))  # between the two source reads
        return got

    read._fetch = then_posts_arrive
    ids = read.page(h.conn, h.r, A, None, 6).ids
    assert len(ids) == len(set(ids)) and set(ids) >= {3, 1, 101, 102}
    return 20, [103, 4, 3, 102, 101, 1]


@case("R31")
def who_follows_silent_people_is_not_rebuilt_for_ever(h):
    """mastodon#4851, PR 10130."""
    h.evict()
    seen = [h.lab.page(A) for _ in range(10)]
    assert [p.ids for p in seen] == [[]] * 10
    assert [p.explain.feed for p in seen] == ["rebuilt"] + ["pushed"] * 9
    h.post((1, 10))
    assert h.stored() == [1]  # pushed: the empty feed is a feed
    return 20, [1]


@case("R32")
def a_rebuild_dies_half_way(h):
    """mastodon#5634, PR 6251. building_s is 30 in production; the dead builder's key lives 0.5 s here."""
    h.run(1, 8).evict()
    assert timeline.begin(h.r, h.names.feed(A), 0.5)
    h.write((9, 90)).drain()
    assert (h.lab.page(A, limit=5).explain.feed, h.pages(5)) == ("building", [[9, 8, 7, 6, 5], [4, 3, 2, 1]])
    until(lambda: not h.r.exists(h.names.feed(A)), 5)
    assert [h.lab.page(A).explain.feed for _ in range(3)] == ["rebuilt", "pushed", "pushed"]
    assert len(h.stored()) == 9
    return 5, [9, 8, 7, 6, 5], [4, 3, 2, 1]


@case("S1")
def own_posts_are_asked_for_as_deep_as_the_page(h):
    """Bluesky: ten of one's own, whatever the page."""
    h.run(1, 10).run(101, 112, by=A, start=200)
    want = [[*range(112, 100, -1), 10, 9, 8], [7, 6, 5, 4, 3, 2, 1]]
    warm = h.scroll(15, include="self")
    assert [ids_of(b) for b in warm] == want
    h.evict()
    assert h.scroll(15, include="self") == warm
    assert [i for p in h.pages(4, include="self") for i in p] == [*range(112, 100, -1), *range(10, 0, -1)]
    return 20, range(10, 0, -1)  # not asked for: not there


@case("R56", feed_max=5)
def scrolling_goes_on_below_the_cap(h):
    """Stream-Framework#137; mastodon#18908, #2301, #20173; OldTwitter#163."""
    h.run(1, 12)
    assert len(h.stored()) == 5
    return 5, [12, 11, 10, 9, 8], [7, 6, 5, 4, 3], [2, 1]


# --- deleted and unfollowed ---------------------------------------------------------------------


@case("R19")
def a_delete_reaches_every_list(h):
    """Stream-Framework#96; stream-django#80. A left B before the delete, its DEL and event lost; D stays; K's own
    timeline, too.

    The deleted event cleans feeds of today's followers and the celebrity's timeline; a feed of somebody who left has
    the entries only if the drop did not happen, and `repair.sweep` (or the late event) takes them out."""
    h.follow(D, B).drain()
    h.page(20, user=D)
    h.run(1, 3).run(101, 103, start=15)
    h.page(20)
    h.unfollow(A, B, removal=False)
    assert h.score(2) and h.score(2, h.names.feed(D)) and h.score(102, h.names.celeb(K))
    h.delete(2, 102)
    assert repair.sweep(h.conn, h.r, h.names, A) == 3  # 1, 2 and 3: B is left, whatever is deleted
    assert h.stored() == [] and h.pages(20) == [[103, 101]]
    h.follow(A, B).drain()
    assert h.score(2, h.names.feed(D)) is None and h.score(102, h.names.celeb(K)) is None
    assert h.score(1, h.names.feed(D)) and h.score(101, h.names.celeb(K))
    h.page(20)
    assert h.score(2) is None
    return 20, [103, 3, 101, 1]


@case("R20")
def deleted_within_the_age_of_every_cache(h):
    """proerror77/Nova#234."""
    h.lab.reader = reader.Reader(h.lab.settings.model_copy(update={"local_copy_s": 3600.0}))
    h.run(101, 103).run(1, 2)
    for _ in range(2):
        before = h.lab.page(A)
    assert before.explain.local_hits == 1 and 103 in before.ids and h.r.exists(h.names.post(103))
    h.delete(103)
    after = h.lab.page(A)
    assert after.explain.local_hits == 1 and 103 not in after.ids
    return 20, [102, 2, 101, 1]


@case("R22")
def a_deleted_post_stays_away(h):
    """misskey-v11#1774."""
    h.run(1, 3).delete(2).drain().evict()
    assert h.pages(20) == [[3, 1]]
    with h.conn.transaction():
        outbox.put(h.conn, h.names, Event("posted", author=B, post=2, ms=20))
    h.drain()
    assert h.score(2) is None
    return 20, [3, 1]


@case("R23")
def the_unfollowed_are_gone_at_once(h):
    """mastodon#24527; takahe#366. Removal stopped."""
    h.run(1, 3).post((201, 15)).unfollow(A, B, removal=False)
    assert len(h.stored()) == 4 and h.pages(20) == [[201]]
    return 20, [201]


@case("R25")
def removal_takes_nothing_else(h):
    """mastodon PR 27391. By sweep, in place, and by the event."""
    h.post((1, 10)).post((11, 10), (2, 20), by=C).unfollow(A, B, removal=False)
    assert repair.sweep(h.conn, h.r, h.names, A) == 1
    assert h.stored() == [2, 11] and h.pages(20) == [[2, 11]]
    return 20, [2, 11]


@case("R28")
def two_unfollows_at_once(h):
    """mastodon PR 18527."""
    h.follow(C, B).follow(D, B)
    assert follows.followers(h.conn, B) == 3
    gate, gone = threading.Barrier(2), []

    def unfollow():
        gate.wait(10)
        gone.append(h.http.delete(f"/api/follows/{B}", headers={"X-User-Id": str(A)}).status_code)

    threads = [threading.Thread(target=unfollow) for _ in range(2)]
    [t.start() for t in threads]
    [t.join(20) for t in threads]
    assert gone == [204, 204] and follows.followers(h.conn, B) == 2
    h.post((1, 10))
    assert celebrities.flagged(h.conn, C) == []  # 2 < 3: pushed
    h.follow(A, B).post((2, 20))
    assert follows.followers(h.conn, B) == 3 and celebrities.flagged(h.conn, A) == [B]  # pulled
    assert h.pages(1, user=C) == [[2], [1]]
    return 1, [2], [1]


@case("R29")
def leaving_a_busy_author(h):
    """mastodon PR 18110. In place by sweep: one read of the feed, one query for its members, one ZREM of 100; B's
    50,000 are not looked at. (The unfollow itself drops the feed: one DEL.)"""
    h.conn.execute("insert into posts select g, %s, g, 'x' from generate_series(1, 50000) g", (B,))
    h.conn.execute("insert into posts select 60000 + g, %s, 60000 + g, 'x' from generate_series(1, 400) g", (C,))
    h.conn.execute("analyze posts")
    h.evict().page(20)
    assert len(h.stored()) == 500 and sum(i <= 50_000 for i in h.stored()) == 100
    h.unfollow(A, B, removal=False)
    queries = []
    assert repair.sweep(Tap(h.conn, lambda: queries.append(1)), h.r, h.names, A) == 100
    assert len(queries) == 1 and len(h.stored()) == 400
    asked = {"ids": [*range(49_901, 50_001), *range(60_001, 60_401)], "user": A, "own": None}
    (plan,) = h.conn.execute(
        "explain (analyze, timing off, summary off, format json) " + reader.VISIBLE, asked
    ).fetchone()
    assert rows_read(plan[0]["Plan"]) <= 2 * 500  # at most FEED_MAX posts and their follows
    newest = list(range(60_400, 60_000, -1))
    return 50, *(newest[i : i + 50] for i in range(0, 400, 50))


def rows_read(plan: dict) -> int:
    """Rows that the scans of a plan gave or threw away."""
    below = sum(map(rows_read, plan.get("Plans", [])))
    if "Scan" not in plan["Node Type"] or "Plans" in plan:
        return below
    each = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) + plan.get("Rows Removed by Index Recheck", 0)
    return int(below + each * plan["Actual Loops"])


# --- order, ties and cursors --------------------------------------------------------------------


@case("R34")
def one_millisecond_over_a_page_edge(h):
    """leapmux#287."""
    h.post(*((i, 10) for i in range(1, 8)))
    return 3, [7, 6, 5], [4, 3, 2], [1]


@case("R35")
def two_posts_of_one_time(h):
    """atproto#2199. First with all three pushed, then with K pulled."""
    h.knobs(threshold=99).post((1, 10), (2, 10), (101, 10)).shows(1, [101], [2], [1])
    assert set(h.stored()) == {1, 2, 101}
    h.reset().post((1, 10), (2, 10), (101, 10))
    assert set(h.stored()) == {1, 2}
    return 1, [101], [2], [1]


@case("R37")
def equal_scores_in_numeric_order(h):
    """redis#1481; trpc-agent-go PR 2518."""
    h.post(*((i, 10) for i in range(8, 13)))
    return 2, [12, 11], [10, 9], [8]


@case("R38")
def a_cursor_is_the_last_items_own(h):
    """atproto#1755."""
    h.run(1, 4).post((101, 5), (102, 45))
    assert h.page(3) == ([102, 4, 3], "30:3")
    return 3, [102, 4, 3], [2, 1, 101]


@case("R40", feed_max=5)
def a_saved_cursor_works_the_next_day(h):
    """atproto#3334."""
    h.run(1, 4)
    first, cursor = h.page(2)
    assert first == [4, 3]
    h.run(5, 20, start=50)
    for _ in range(2):
        assert h.page(2, cursor) == ([2, 1], None)
        h.evict()
    return 20, range(20, 0, -1)


@case("R41")
def a_bad_cursor_is_a_400(h):
    """social-app#4095; backend.ai PR 13065; fastapi-pagination#936."""
    h.run(1, 3)
    for path in ("/api/feed", f"/api/users/{B}/posts"):
        for bad in (
            *faults.BAD_CURSORS,
            " 30:3",
            "30:3\n",
            "030:3",
            "٣٠:٣",
            "30:3\0",
            "\ud7ff",
            "1" * 5_000,
        ):
            answer = h.get(path, cursor=bad)
            assert answer.status_code == 400, (path, bad, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
            assert "createdAtMillis:postId" in answer.json()["detail"]


@case("R43", feed_max=5)
def an_imported_post_stands_where_its_time_is(h):
    """misskey#3209; mastodon#33747; bridgy-fed#2202."""
    h.run(1, 6).post((70, 15))
    assert h.score(2) == 20  # not pushed out by an older one
    return 3, [6, 5, 4], [3, 2, 70], [1]


@case("R44")
def the_clock_steps_back(h):
    """snowflake#6; bwmarrin/snowflake#20; dolphinscheduler#6742. Bridged when the step is small, refused when none is
    allowed."""

    def ids(**options):
        ticks = iter([100, 100, 100, 99, 100])
        generator = Snowflake(1, clock=lambda: EPOCH_MS + next(ticks), **options)
        return lambda: generator.next()[0]

    draw = ids()
    got = [draw() for _ in range(5)]
    assert got == sorted(set(got))
    draw = ids(max_back_ms=0)
    got = [draw() for _ in range(3)]
    with pytest.raises(ClockWentBack):
        draw()
    got.append(draw())
    assert got == sorted(set(got))


@case("R46")
def ids_of_64_bits_in_json(h):
    """powercontext#91; laravel-snowflake#22. A browser's numbers are doubles: parsed as such, nothing changes, since
    ids are strings."""
    big = 653247040368672768
    h.post((big, 50), (big + 1, 50), (1, 40), by=B)
    body = h.get(limit=1).content
    as_browser = json.loads(body, parse_int=float)
    assert b'"%d"' % (big + 1) in body and as_browser["items"][0]["id"] == str(big + 1)
    assert as_browser["items"][0]["createdAtMillis"] == 50
    cursor = json.loads(json.dumps(as_browser["nextCursor"]))
    assert cursor == f"50:{big + 1}" and f'"{cursor}"'.encode() in body
    sent = h.http.get(f"/api/feed?limit=1&cursor={quote(cursor, safe='')}", headers={"X-User-Id": str(A)})
    assert ids_of(sent.content) == [big] and sent.json()["nextCursor"] == f"50:{big}"
    assert json.loads(h.http.get(f"/api/posts/{big}").content, parse_int=float)["id"] == str(big)
    return 2, [big + 1, big], [1]


@case("S2")
def the_cursors_post_is_gone(h):
    """Pixelfed: an inclusive bound, then "skip the first"."""
    first, cursor = h.run(1, 6).page(3)
    assert first == [6, 5, 4]
    h.delete(4)
    assert h.page(3, cursor) == ([3, 2, 1], None)
    h.drain().evict()
    assert h.page(3, cursor) == ([3, 2, 1], None)
    return 3, [6, 5, 3], [2, 1]


@case("S5")
def a_new_post_moves_no_page(h):
    """DeathStarBench: paging by index."""
    first, cursor = h.run(1, 6).page(3)
    assert first == [6, 5, 4]
    h.post((7, 70))
    assert h.page(3, cursor)[0] == [3, 2, 1]
    h.evict()
    assert h.page(3, cursor)[0] == [3, 2, 1]
    return 3, [7, 6, 5], [4, 3, 2], [1]


# --- the cap ------------------------------------------------------------------------------------


@case("R55", feed_max=5)
def trimming_keeps_the_newest(h):
    """bookwyrm PR 813. Our key has one member more, the floor (timeline.lua)."""
    for n, want in ((1, 1), (4, 4), (5, 5), (6, 5)):
        h.post(*((i, 10 * i) for i in range(1, n + 1) if h.score(i) is None))
        assert h.r.zcard(h.names.feed(A)) - 1 == want
    assert h.stored() == [6, 5, 4, 3, 2]
    return 4, [6, 5, 4, 3], [2, 1]


@case("S4", feed_max=5)
def the_cap_is_not_one_less(h):
    """BookWyrm redis_store: a bound off by one keeps max - 1. The celebrity's timeline, too: it is the same kind of
    key."""
    for n, want in ((1, 1), (4, 4), (5, 5), (6, 5)):
        h.post(*((i, 10 * i) for i in range(101, 101 + n) if h.score(i, h.names.celeb(K)) is None))
        assert h.r.zcard(h.names.celeb(K)) - 1 == want
    return 4, [106, 105, 104, 103], [102, 101]


@case("S3", feed_max=3)
def a_late_old_post_pushes_out_no_newer_one(h):
    """Pixelfed add(): evicts the minimum before it looks at the newcomer."""
    h.run(2, 4, start=20).post((9, 5))
    assert h.score(2) == 20 and h.score(9) is None
    return 3, [4, 3, 2], [9]


# --- outbox, relay, consumer --------------------------------------------------------------------


@case("R47")
def the_lower_outbox_id_commits_later(h):
    """kamu-cli#1398; postgresql-event-sourcing#2."""
    with h.runner.late.transaction():
        h.write((1, 10), conn=h.runner.late)
        h.write((2, 20))
        h.relay()
        h.consume()
        assert h.stored() == [2]
    h.relay()
    h.consume()
    assert h.stored() == [2, 1] and outbox.depth(h.conn) == 0  # both sent
    return 20, [2, 1]


@case("R49")
def two_relays_swap_an_authors_events(h):
    """kafkaflow-contrib#24. One relay holds the author's slice: the second gets nothing. And if they were swapped all
    the same?"""
    h.write((1, 10)).delete(1)
    with db.connect(h.lab.addresses.postgres_url, h.lab.settings.namespace) as other:
        with other.transaction():  # a relay that has its slices and is held up
            other.execute(LOCK, (f"feedlab relay {h.lab.settings.namespace}",)).fetchall()
            assert h.runner.relay.once() == 0
    create, delete = h.conn.execute("delete from outbox returning topic, key, payload").fetchall()
    for row in (delete, create):
        h.conn.execute("insert into outbox (topic, key, payload) values (%s, %s, %s)", row)
        h.relay()
        h.consume()
    assert h.stored() == []
    return 20, []


@case("R50", followed=(C,))
def a_retried_event_lands_after_a_newer_one(h):
    """sb11-mopl-team1#266."""
    h.run(1, 2)
    h.follow(A, B)
    (followed,) = h.conn.execute("delete from outbox returning topic, key, payload").fetchall()  # failed once
    h.page(20)  # a feed with B's posts is made meanwhile
    h.unfollow(A, B).drain()
    h.page(20)
    h.conn.execute("insert into outbox (topic, key, payload) values (%s, %s, %s)", followed)  # the retry
    h.drain().post((3, 30))
    assert h.conn.execute(
        "select count(*) from follows where follower_id = %s and followee_id = %s", (A, B)
    ).fetchone() == (0,)
    assert h.stored() == []
    return 20, []


@case("R52")
def committed_before_done(h):
    """kafka-python#1716. Killed before its first, second ... call to an engine, among them the one that writes to
    Redis."""
    died, last = 0, 8
    for n in range(1, last + 1):
        h.write((n, 10 * n))
        h.relay()
        try:
            with h.runner._before_call(n, h.runner._dies):
                h.consume()
        except Killed:
            died += 1
            h.runner._restart_consumer()  # what a new process knows: nothing
    assert died >= 4
    assert set(h.drain().stored()) == set(range(1, last + 1))
    return last, range(last, 0, -1)


@case("R53")
def a_big_author_blocks_nobody(h):
    """mastodon#17856, #25949. 20,000 followers, below the threshold: the post is handed on in slices of 1,000
    (settings.batch), so that p1 is in A's feed while 19,000 wait, on whichever partition. Counted, not timed."""
    partitions = h.lab.settings.partitions

    def lands(author):  # librdkafka's partitioner, checked below by the trace
        return zlib.crc32(str(author).encode()) % partitions

    bigs = {}
    for u in range(1_000, 1_100):
        bigs.setdefault("same" if lands(u) == lands(B) else "another", u)
    h.knobs(threshold=30_000)
    h.conn.execute("insert into users select g, 'fan ' || g from generate_series(10000, 29999) g")
    h.conn.execute("insert into user_activity (user_id) select g from generate_series(10000, 29999) g")
    for n, (where, big) in enumerate(sorted(bigs.items())):
        posts.create_user(h.conn, big, "big")
        h.conn.execute("insert into follows select g, %s from generate_series(10000, 29999) g", (big,))
        h.conn.execute("insert into follower_counts values (%s, 0, 20000)", (big,))
        before, small = h.lab.stats()["deliveries"], 1 + n
        posts.create(h.conn, Drawn((900 + n, 0)), h.names, big, "to many", created_at_ms=100 + 10 * n)
        h.write((small, 101 + 10 * n))
        h.relay()
        until(lambda small=small: h.runner.fanout.once(0.05) and h.score(small))
        done = h.lab.stats()["deliveries"] - before
        assert done <= 3_000, f"{where} partition: p{small} waited for {done} deliveries"
        h.drain()
        assert h.lab.stats()["deliveries"] - before == 20_001
        places = [int(h.r.hget(h.names.trace(i), "place").split(":")[1]) for i in (900 + n, small)]
        assert (places[0] == places[1]) == (where == "same")
    assert sorted(bigs) == ["another", "same"]
    return 20, [2, 1]


# --- the table ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", CASES)
def test_case(feed, number):
    c = CASES[number]
    want = c.history(feed.reset(**c.options))
    if want is not None:
        feed.shows(*want)


def test_every_case_is_here():
    """Read from this file's text, so that a case which is taken out is missed."""
    found = re.findall(r'^@case\("([RS]\d+)"', Path(__file__).read_text(), re.MULTILINE)
    assert sorted(found) == sorted(NUMBERS) and list(CASES) == found
    table = Path(__file__).resolve().parents[3] / "shared" / "cases" / "feed_cases.md"
    if table.exists():  # the list that NUMBERS was taken from
        assert sorted(re.findall(r"^\| ([RS]\d+) \|", table.read_text(), re.MULTILINE)) == sorted(NUMBERS)
