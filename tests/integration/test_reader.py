"""Pages, by the cases from the field (/shared/cases/feed_cases.md): each history must show exactly these pages, warm
and cold.

A reads; B (1..), C (201..) are pushed, K (101..) is a celebrity. `p5@50` = post id 5 by B at 50 ms.
THRESHOLD 3, FEED_MAX 5.
"""

import json
import threading

import pytest
import redis
from conftest import add_users, until

from feedlab import db, follows, posts, pull, timeline
from feedlab.core.model import MAX_MS, START, Entry
from feedlab.core.snowflake import Drawn
from feedlab.errors import BadInput, NotFound
from feedlab.reader import Reader, scroll

A, B, C, K, FANS = 1, 2, 3, 4, (5, 6, 7)


class History:
    def __init__(self, lab):
        self.lab, self.conn, self.r, self.names = lab, lab.conn, lab.redis, lab.names

    def post(self, *rows, by=None):
        """(id, ms) each, ids below 100 by B, below 200 by K, else by C."""
        for i, ms in rows:
            author = by or (B if i < 100 else K if i < 200 else C)
            posts.create(self.conn, Drawn((i, i)), self.names, author, f"post {i}", created_at_ms=ms)
        self.lab.drain()
        return self

    def run(self, first, last, by=None, start=10, step=10):
        """Posts first..last, 10 ms apart."""
        return self.post(*((i, start + step * (i - first)) for i in range(first, last + 1)), by=by)

    def delete(self, *ids):
        for i in ids:
            (author,) = self.conn.execute("select author_id from posts where id = %s", (i,)).fetchone()
            posts.delete(self.conn, self.names, author, i)
        return self

    def follow(self, user, author):
        follows.follow(self.conn, self.r, self.names, user, author)

    def unfollow(self, user, author):
        follows.unfollow(self.conn, self.r, self.names, user, author)

    def evict(self, key=None):
        self.r.delete(key or self.names.feed(A))

    def page(self, cursor=None, limit=20):
        return self.lab.page(A, cursor, limit)

    def pages(self, limit):
        return [p.ids for p in scroll(lambda c: self.page(c, limit))]

    def shows(self, limit, *want):
        """Drained: these pages and no others, warm, warm again and cold; and they are the SQL answer."""
        self.lab.drain()
        want = [list(p) for p in want]
        for state in ("as it is", "warm", "cold"):
            if state == "cold":
                self.evict()
            got = self.pages(limit)
            assert got == want, f"{state}: {got}"
        assert [i for p in want for i in p] == [e.id for e in pull.everything(self.conn, A)]


@pytest.fixture
def h(running_lab):
    lab = running_lab
    lab.drain()
    lab.conn.execute("truncate users, posts, follows, user_activity, follower_counts, pull_flags")
    lab.redis.delete(
        "none",
        *(
            k
            for k in lab.redis.scan_iter(match=f"{lab.settings.namespace}:*", count=1000)
            if k not in (lab.names.progress, lab.names.stats)
        ),
    )
    db.set_knobs(lab.conn, threshold=3, feed_max=5)
    lab.reader = Reader(lab.settings)
    add_users(lab, A, B, C, K, *FANS)
    made = History(lab)
    for u in FANS:
        made.follow(u, K)
    made.follow(A, B)
    lab.drain()
    return made


@pytest.fixture
def with_c(h):
    h.follow(A, C)
    h.lab.drain()
    h.page()  # warm from the start, as in every case
    return h


@pytest.fixture
def with_k(h):
    h.follow(A, K)
    h.lab.drain()
    h.page()
    return h


# --- the table ------------------------------------------------------------------------------------


def test_r04_a_follow_empties_the_cache_and_one_new_post_arrives(h):
    h.run(1, 6).post((201, 15))
    h.page()
    h.follow(A, C)
    h.post((7, 80)).shows(4, (7, 6, 5, 4), (3, 2, 201, 1))


def test_r05_a_sparse_source_is_no_boundary(with_k):
    db.set_knobs(with_k.conn, feed_max=3)
    with_k.run(1, 8).post((101, 5)).shows(4, (8, 7, 6, 5), (4, 3, 2, 1), (101,))


def test_r07_r08_redis_comes_back_empty(with_c):
    with_c.run(1, 5)
    with_c.page()
    with_c.r.delete(*with_c.r.scan_iter(match=f"{with_c.lab.settings.namespace}:*", count=1000))
    with_c.post((6, 60)).shows(3, (6, 5, 4), (3, 2, 1))


def test_r10_deleted_posts_leave_no_gap_in_a_page(with_c):
    with_c.run(1, 8).delete(8, 6, 5).shows(3, (7, 4, 3), (2, 1))


def test_r13_full_pages_and_a_cursor_while_more_exists(with_c):
    with_c.run(1, 60).delete(59, 45)
    one = with_c.page(limit=30)
    assert len(one.ids) == 30 and one.next_cursor is not None
    two = with_c.page(one.next_cursor, 30)
    assert len(two.ids) == 28 and two.next_cursor is None
    with_c.shows(30, [60, *range(58, 45, -1), *range(44, 28, -1)], range(28, 0, -1))


def test_a_last_page_that_is_exactly_full_ends(with_c):
    with_c.run(1, 6).shows(3, (6, 5, 4), (3, 2, 1))


def test_r17_one_missing_row_fails_nothing(with_c):
    with_c.run(1, 3)
    with_c.page()
    with_c.conn.execute("delete from posts where id = 2")
    with_c.shows(20, (3, 1))


def test_r17_what_is_inserted_between_two_source_reads_is_not_doubled(with_k, monkeypatch):
    h, fetch = with_k, with_k.lab.reader._fetch
    h.run(1, 4).run(101, 104, start=15)

    def fetch_and_then_posts_arrive(*args):
        got = fetch(*args)
        h.post((5, 60), (105, 61))
        return got

    monkeypatch.setattr(h.lab.reader, "_fetch", fetch_and_then_posts_arrive)
    page = h.page(limit=8)
    monkeypatch.undo()
    assert len(set(page.ids)) == len(page.ids) == 8
    assert [p.entry for p in page.posts] == sorted((p.entry for p in page.posts), reverse=True)
    h.shows(10, (105, 5, 104, 4, 103, 3, 102, 2, 101, 1))


def test_r20_deleted_within_the_age_of_every_cache(with_k):
    h = with_k
    h.lab.reader = Reader(h.lab.settings.model_copy(update={"local_copy_s": 3600.0}))
    h.run(101, 103).run(1, 2)
    for _ in range(2):
        before = h.page()
    assert before.explain.local_hits == 1 and h.r.exists(h.names.post(103)) and 103 in before.ids
    h.delete(103)
    after = h.page()
    assert after.explain.local_hits == 1 and 103 not in after.ids


def test_r34_one_millisecond_over_a_page_edge(with_c):
    with_c.post(*((i, 10) for i in range(1, 8))).shows(3, (7, 6, 5), (4, 3, 2), (1,))


@pytest.mark.parametrize("threshold", [3, 1_000])
def test_r35_two_posts_of_one_time(with_k, threshold):
    """With K pulled, and with all three pushed."""
    db.set_knobs(with_k.conn, threshold=threshold)
    with_k.post((1, 10), (2, 10), (101, 10)).shows(1, (101,), (2,), (1,))


def test_r37_ids_as_numbers(with_c):
    with_c.post(*((i, 10) for i in range(8, 13))).shows(2, (12, 11), (10, 9), (8,))


def test_r38_the_cursor_is_the_last_entrys_own(with_k):
    with_k.run(1, 4).post((101, 5), (102, 45)).shows(3, (102, 4, 3), (2, 1, 101))
    assert with_k.page(limit=3).next_cursor == "30:3"


def test_r40_a_saved_cursor_works_for_ever(with_c):
    with_c.run(1, 4)
    one = with_c.page(limit=2)
    assert one.ids == [4, 3]
    with_c.run(5, 20, start=50)
    for _ in range(2):
        assert with_c.page(one.next_cursor, 2).ids == [2, 1]
        with_c.evict()


def test_r43_an_imported_post_stands_where_its_time_is(with_c):
    with_c.run(1, 6).post((70, 15)).shows(3, (6, 5, 4), (3, 2, 70), (1,))


def test_r46_ids_beyond_2_53(with_c):
    """As a JSON string the cursor comes back byte for byte; the id is not rounded on the way through Redis."""
    big = 653247040368672769
    with_c.post((big, 50), (big + 2, 50), (1, 40), by=B)
    one = with_c.page(limit=1)
    assert one.ids == [big + 2]
    assert with_c.page(json.loads(json.dumps(one.next_cursor)), 1).ids == [big]
    with_c.shows(2, (big + 2, big), (1,))


def test_r56_scrolling_goes_on_below_the_cap(with_c):
    with_c.run(1, 12).shows(5, (12, 11, 10, 9, 8), (7, 6, 5, 4, 3), (2, 1))


def test_r59_no_horizon(with_k):
    """p1 60 days old, p2 now; K likewise, with an expired celebrity timeline."""
    now = 1_764_500_000_000
    old = now - 60 * 86_400_000
    with_k.post((1, old), (101, old + 1), (2, now), (102, now + 1))
    with_k.evict(with_k.names.celeb(K))
    with_k.shows(20, (102, 2, 101, 1))
    with_k.shows(1, (102,), (2,), (101,), (1,))


@pytest.mark.parametrize("feed_max", [3, 5, 50])
def test_s1_own_posts_are_asked_for_as_deep_as_the_page(with_c, feed_max):
    """A owns the 12 newest, B has 10: no cap of its own on the user's own posts. Without `own` they are not there."""
    db.set_knobs(with_c.conn, feed_max=feed_max)
    with_c.run(1, 10).run(101, 112, by=A, start=200)

    def own(limit):
        return [p.ids for p in scroll(lambda c: with_c.lab.reader.page(with_c.conn, with_c.r, A, c, limit, own=True))]

    for _ in range(2):
        assert own(15) == [[*range(112, 100, -1), 10, 9, 8], [7, 6, 5, 4, 3, 2, 1]]
        assert [i for p in own(4) for i in p] == [*range(112, 100, -1), *range(10, 0, -1)]
        with_c.evict()
    with_c.shows(20, range(10, 0, -1))


def test_s2_the_cursors_post_is_gone(with_c):
    one = with_c.run(1, 6).page(limit=3)
    assert one.ids == [6, 5, 4]
    with_c.delete(4)
    assert with_c.page(one.next_cursor, 3).ids == [3, 2, 1]
    with_c.conn.execute("delete from posts where id = 4")
    assert with_c.page(one.next_cursor, 3).ids == [3, 2, 1]


def test_s5_a_new_post_on_top_moves_no_page(with_c):
    one = with_c.run(1, 6).page(limit=3)
    with_c.post((7, 70))
    assert with_c.page(one.next_cursor, 3).ids == [3, 2, 1]


def test_s8_the_feed_key_alone_is_gone(with_c):
    with_c.run(1, 5)
    with_c.page()
    with_c.evict()
    with_c.post((6, 60)).shows(20, (6, 5, 4, 3, 2, 1))


def test_ties_at_every_edge_of_every_source(with_k):
    """Posts of B and K on few milliseconds, FEED_MAX 5, so that floor, cursor and page edges fall within ties."""
    with_k.post(*((i, 10 * (i // 4)) for i in range(1, 14)), *((100 + i, 10 * (i // 5)) for i in range(1, 14)))
    want = [e.id for e in pull.everything(with_k.conn, A)]
    assert len(want) == 26
    for limit in (1, 2, 3, 7):
        with_k.shows(limit, *(want[i : i + limit] for i in range(0, 26, limit)))


# --- rebuilds -------------------------------------------------------------------------------------


def test_r31_who_follows_silent_people_is_rebuilt_once(with_c):
    with_c.evict()
    seen = [with_c.page() for _ in range(10)]
    assert [p.ids for p in seen] == [[]] * 10 and all(p.next_cursor is None for p in seen)
    assert [p.explain.feed for p in seen] == ["rebuilt"] + ["pushed"] * 9
    with_c.post((1, 10)).shows(20, (1,))


def test_r32_a_builder_that_dies(with_c):
    with_c.run(1, 8)
    with_c.evict()
    key = with_c.names.feed(A)
    assert timeline.begin(with_c.r, key, 2)  # and then it died
    with_c.post((9, 90))
    one = with_c.page(limit=5)
    assert (one.ids, one.explain.feed) == ([9, 8, 7, 6, 5], "building")
    assert with_c.pages(5) == [[9, 8, 7, 6, 5], [4, 3, 2, 1]]  # SQL answers meanwhile
    until(lambda: not with_c.r.exists(key), 5)
    assert [with_c.page().explain.feed for _ in range(3)] == ["rebuilt", "pushed", "pushed"]
    with_c.shows(5, (9, 8, 7, 6, 5), (4, 3, 2, 1))


def test_twenty_readers_of_a_cold_feed_rebuild_it_once(with_k):
    with_k.run(1, 8).run(101, 104)
    with_k.evict(), with_k.evict(with_k.names.celeb(K))
    gate, got, failed = threading.Barrier(20), [], []

    def read():
        try:
            with db.connect(with_k.lab.addresses.postgres_url, with_k.lab.settings.namespace) as conn:
                gate.wait(20)
                got.append(with_k.lab.reader.page(conn, with_k.r, A, None, 20))
        except Exception as e:
            failed.append(e)

    threads = [threading.Thread(target=read) for _ in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert failed == [] and len(got) == 20
    assert [p.explain.feed for p in got].count("rebuilt") == 1
    assert {tuple(p.ids) for p in got} == {tuple(e.id for e in pull.everything(with_k.conn, A))}


def test_a_follow_in_the_middle_of_a_rebuild_is_not_lost(with_c, monkeypatch):
    """The rows were read before the follow; the key is dropped by it, so these rows complete nothing."""
    h, complete = with_c, timeline.complete
    h.run(1, 3).run(101, 102)
    h.evict()

    def follow_first(*args):
        monkeypatch.undo()
        h.follow(A, K)
        return complete(*args)

    monkeypatch.setattr(timeline, "complete", follow_first)
    assert sorted(h.page().ids) == [1, 2, 3, 101, 102]
    h.shows(20, [e.id for e in pull.everything(h.conn, A)])


@pytest.mark.parametrize("what", ["trimmed", "dropped"])
def test_a_feed_that_moves_while_a_page_reads_it(with_c, monkeypatch, what):
    """The first chunk is all hidden, and before the second the feed loses its tail, or goes: the page is whole all the
    same."""
    h, get = with_c, timeline.get
    db.set_knobs(h.conn, feed_max=300)
    h.evict(), h.page()
    h.run(1, 40)
    want = list(range(10, 0, -1))
    h.conn.execute("update posts set deleted = true where id > 10")  # hidden, and still in the feed
    assert len(timeline.get(h.r, h.names.feed(A)).entries) == 40

    def moved(*args):
        monkeypatch.undo()
        if what == "dropped":
            h.evict()
        else:
            pipe = h.r.pipeline(transaction=False)
            timeline.deliver(pipe, h.names, ("probe", "", "1"), [h.names.feed(A)], [], 300, floor=90)
            assert pipe.execute()[0][0] == 1
            h.r.hdel(h.names.progress, "probe")
        return get(*args)

    monkeypatch.setattr(timeline, "get", moved)
    assert h.page(limit=10).ids == want
    assert timeline.get is get  # it did move
    h.shows(10, want)


# --- cost -----------------------------------------------------------------------------------------


def test_a_warm_page_takes_two_trips_to_redis_and_two_queries(with_c):
    with_c.run(1, 5)
    with_c.page()
    ex = with_c.page(limit=4).explain
    assert (ex.redis_trips, ex.sql_queries, ex.below_floor, ex.feed, ex.sources) == (2, 2, False, "pushed", 1)
    assert ex.taken == {"feed": 5}  # one more than the page: is there a next?


def test_a_celebrity_costs_no_further_trip(with_k):
    with_k.run(1, 3).run(101, 103)
    with_k.page()
    ex = with_k.page().explain
    assert (ex.redis_trips, ex.sql_queries, ex.flagged, ex.sources) == (2, 2, 1, 2)


def test_a_deep_page_draws_its_page_and_not_the_feed(with_c):
    with_c.run(1, 60)
    cursor = with_c.page(limit=40).next_cursor
    ex = with_c.page(cursor, 10).explain
    assert ex.below_floor and ex.taken["sql"] <= 11 and ex.sql_queries <= 4


def test_a_read_writes_no_activity_twice_within_the_hour(with_c):
    before = with_c.conn.execute("select last_seen_at from user_activity where user_id = %s", (A,)).fetchone()
    with_c.page()
    assert with_c.conn.execute("select last_seen_at from user_activity where user_id = %s", (A,)).fetchone() == before
    with_c.conn.execute("update user_activity set last_seen_at = now() - interval '3 hours' where user_id = %s", (A,))
    expires = with_c.r.pexpiretime(with_c.names.feed(A))
    with_c.page()
    assert with_c.conn.execute(
        "select last_seen_at > now() - interval '1 minute' from user_activity where user_id = %s", (A,)
    ).fetchone()[0]
    assert with_c.r.pexpiretime(with_c.names.feed(A)) > expires  # renewed together with the visit, never without


def test_rule_8_a_feed_is_gone_before_its_reader_drops_out(with_c):
    """Expiry (absolute) lies within the activity window, counted from the recorded visit."""
    with_c.evict(), with_c.page()
    (seen,) = with_c.conn.execute(
        "select extract(epoch from last_seen_at)::float8 from user_activity where user_id = %s", (A,)
    ).fetchone()
    assert with_c.r.pexpiretime(with_c.names.feed(A)) / 1000 < seen + with_c.lab.settings.active_days * 86_400


# --- Redis away -----------------------------------------------------------------------------------


@pytest.fixture
def port():
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        yield s.getsockname()[1], s


@pytest.mark.parametrize("how", ["refuses", "hangs"])
def test_redis_away_the_answer_is_sqls(with_k, port, how):
    with_k.run(1, 8).run(101, 104)
    number, s = port
    if how == "hangs":
        s.listen(16)  # takes the connection, never says a word
    away = redis.Redis.from_url(f"redis://127.0.0.1:{number}/0", decode_responses=True, socket_timeout=0.2)
    want = [e.id for e in pull.everything(with_k.conn, A)]
    seen = list(scroll(lambda c: with_k.lab.reader.page(with_k.conn, away, A, c, 5)))
    assert [i for p in seen for i in p.ids] == want and [len(p.ids) for p in seen] == [5, 5, 2]
    assert {p.explain.feed for p in seen} == {"unreachable"}
    assert all(p.posts[0].content.startswith("post ") for p in seen)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [0, -1, 1.5, "5", True, None])
def test_a_limit_that_is_none(h, limit):
    with pytest.raises(BadInput, match="from 1 to 50"):
        h.page(limit=limit)


def test_at_most_fifty_a_page(with_c):
    with_c.run(1, 60)
    assert len(with_c.page(limit=10**9).ids) == 50


@pytest.mark.parametrize("cursor", ["...", "abc:1", "-1:5", "1:99999999999999999999", "", "1:2:3"])
def test_r41_a_bad_cursor_is_refused_before_anything_is_read(h, cursor):
    with pytest.raises(BadInput, match="createdAtMillis:postId"):
        h.page(cursor)


@pytest.mark.parametrize("user", [99, -1, 2**63, 2**80])
def test_nobody_has_no_feed(h, user):
    with pytest.raises(NotFound, match=f"no user {user}"):
        h.lab.page(user)
    assert not h.r.exists(h.names.feed(user))
    assert h.conn.execute("select count(*) from user_activity where user_id = %s", (user,)).fetchone() == (0,)


@pytest.mark.parametrize("cursor", ["0:0", "0:1", "1:0"])
def test_a_cursor_below_everything_ends(with_c, cursor):
    with_c.run(1, 7)
    page = with_c.page(cursor)
    assert (page.ids, page.next_cursor) == ([], None)


def test_the_cursor_of_the_start_is_page_one(with_c):
    with_c.run(1, 7)
    assert with_c.page(f"{START.ms}:{START.id}").ids == [7, 6, 5, 4, 3, 2, 1]


def test_the_first_and_the_last_millisecond_are_pages_like_others(with_k):
    with_k.post((1, 0), (2, MAX_MS), (101, 0), (102, MAX_MS)).shows(1, (102,), (2,), (101,), (1,))
    assert Entry(0, 1) in pull.everything(with_k.conn, A)
