"""Follow and unfollow: counts stay exact under any concurrency, nobody waits for a celebrity's row, pages follow at
once."""

import random
import threading
import time

import pytest
from conftest import add_users, running

from feedlab import db, follows, posts, pull, reader, timeline
from feedlab.core.codec import decode
from feedlab.errors import Conflict, NotFound

A, B, C, D = 1, 2, 3, 4


@pytest.fixture(autouse=True)
def nothing_yet(lab):
    lab.conn.execute("truncate users, posts, outbox, follows, user_activity, follower_counts, pull_flags")
    lab.redis.delete(*lab.redis.scan_iter(match=f"{lab.settings.namespace}:feed:*"), "none")
    add_users(lab, A, B, C, D)


def follow(lab, user, author, conn=None):
    return follows.follow(conn or lab.conn, lab.redis, lab.names, user, author)


def unfollow(lab, user, author, conn=None):
    return follows.unfollow(conn or lab.conn, lab.redis, lab.names, user, author)


def post(lab, author, ms):
    return posts.create(lab.conn, lab.ids, lab.names, author, "x", created_at_ms=ms).id


def pages(lab, user, limit):
    return [p.ids for p in reader.scroll(lambda c: lab.page(user, c, limit))]


def in_parallel(lab, works):
    """Run each work(conn) in a thread with a connection of its own, all started at once; what they returned, in
    order."""
    gate, got, failed = threading.Barrier(len(works)), [None] * len(works), []

    def run(i):
        try:
            with db.connect(lab.addresses.postgres_url, lab.settings.namespace) as conn:
                gate.wait(30)
                got[i] = works[i](conn)
        except Exception as e:
            failed.append(e)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(works))]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert failed == []
    return got


def counts_are_exact(lab):
    wrong = lab.conn.execute("""
        select u.id, (select count(*) from follows where followee_id = u.id) as rows,
               coalesce((select sum(n) from follower_counts where user_id = u.id), 0) as counted from users u
        where (select count(*) from follows where followee_id = u.id)
              <> coalesce((select sum(n) from follower_counts where user_id = u.id), 0)""").fetchall()
    assert wrong == []


def kinds(lab):
    return [decode(p.encode()).kind for (p,) in lab.conn.execute("select payload from outbox order by id")]


def test_follow_and_unfollow_are_idempotent_and_tell_once(lab):
    assert [follow(lab, A, B) for _ in range(3)] == [True, False, False]
    assert follows.followers(lab.conn, B) == 1
    assert [unfollow(lab, A, B) for _ in range(3)] == [True, False, False]
    assert follows.followers(lab.conn, B) == 0
    assert kinds(lab) == ["followed", "unfollowed"]
    assert lab.conn.execute("select distinct topic, key from outbox").fetchall() == [(lab.names.graph, A)]


@pytest.mark.parametrize(
    "user,author,error,text",
    [
        (A, A, Conflict, "oneself"),
        (A, 99, NotFound, "no user 99"),
        (99, A, NotFound, "no user 99"),
        (A, -1, NotFound, "no user -1"),
        (A, 2**63, NotFound, str(2**63)),
        (2**80, A, NotFound, str(2**80)),
    ],
)
def test_who_cannot_follow(lab, user, author, error, text):
    with pytest.raises(error, match=text):
        follow(lab, user, author)
    assert kinds(lab) == [] and unfollow(lab, user, author) is False
    counts_are_exact(lab)


def test_all_or_nothing(lab):
    """Row, count and event: when the event fails, none of them is there."""
    lab.conn.execute("alter table outbox add constraint probe check (payload not like '%follow%') not valid")
    try:
        with pytest.raises(db.psycopg.errors.CheckViolation):
            follow(lab, A, B)
    finally:
        lab.conn.execute("alter table outbox drop constraint probe")
    assert lab.conn.execute(
        "select (select count(*) from follows), (select count(*) from follower_counts)"
    ).fetchone() == (0, 0)


def test_r28_two_unfollows_at_once_count_once(lab):
    for user in (A, C, D):
        follow(lab, user, B)
    assert sorted(in_parallel(lab, [lambda conn: unfollow(lab, A, B, conn)] * 2)) == [False, True]
    assert follows.followers(lab.conn, B) == 2
    assert sorted(in_parallel(lab, [lambda conn: follow(lab, A, B, conn)] * 8)) == [False] * 7 + [True]
    assert follows.followers(lab.conn, B) == 3
    counts_are_exact(lab)


def test_f12_sixteen_threads_leave_exact_counts(lab):
    """A celebrity and some others, followed and unfollowed by 16 at once, the same pairs too."""
    for u in range(100, 120):
        posts.create_user(lab.conn, u, "u")

    def work(seed):
        def run(conn):
            rng = random.Random(seed)
            for _ in range(40):
                u, v = rng.randrange(100, 120), rng.choice([B, B, B, C, 100, 101])
                if u != v:
                    (follow if rng.random() < 0.6 else unfollow)(lab, u, v, conn)

        return run

    in_parallel(lab, [work(s) for s in range(16)])
    counts_are_exact(lab)
    assert follows.followers(lab.conn, B) > 0
    shards = lab.conn.execute("select count(*) from follower_counts where user_id = %s", (B,)).fetchone()[0]
    assert shards > 4  # spread, not one hot row


def test_an_open_follow_does_not_hold_up_the_others(lab):
    """While one transaction that follows B stays open, others follow B at once: at most those on its shard of 16 must
    wait.
    With one row a user all of them would."""
    free, waits = 0, 0
    with db.connect(lab.addresses.postgres_url, lab.settings.namespace) as slow, slow.transaction():
        follow(lab, A, B, slow)
        for u in range(200, 212):
            posts.create_user(lab.conn, u, "u")
            with db.connect(lab.addresses.postgres_url, lab.settings.namespace) as conn:
                conn.execute("set lock_timeout = '200ms'")
                try:
                    follow(lab, u, B, conn)
                    free += 1
                except db.psycopg.errors.LockNotAvailable:
                    waits += 1
        assert free >= 9, (free, waits)
    counts_are_exact(lab)
    assert follows.followers(lab.conn, B) == free + 1


def test_a_follow_does_not_wait_for_the_authors_own_changes(lab):
    """B's posts and B's own users row are locked by another transaction: following B goes on (no foreign key lock)."""
    with db.connect(lab.addresses.postgres_url, lab.settings.namespace) as other, other.transaction():
        other.execute("update users set name = 'renamed' where id = %s", (B,))
        other.execute("select from users where id = %s for update", (B,))
        lab.conn.execute("set lock_timeout = '1s'")
        try:
            assert follow(lab, A, B)
        finally:
            lab.conn.execute("reset lock_timeout")


# --- pages: with relay and consumer stopped, so that what is seen is seen at once -----------------


def test_s7_r26_a_new_follow_shows_all_old_posts(lab):
    made = [post(lab, B, 10 * i) for i in range(1, 26)]
    follow(lab, A, C)
    assert pages(lab, A, 10) == [[]]  # warm, and empty
    follow(lab, A, B)
    want = [made[:14:-1], made[14:4:-1], made[4::-1]]
    assert pages(lab, A, 10) == want == pages(lab, A, 10)


def test_r23_the_posts_of_the_unfollowed_are_gone_at_once(lab):
    follow(lab, A, B), follow(lab, A, C)
    for ms in (10, 20, 30):
        post(lab, B, ms)
    c = post(lab, C, 15)
    assert len(pages(lab, A, 20)[0]) == 4
    unfollow(lab, A, B)
    assert pages(lab, A, 20) == [[c]]


def test_r25_an_unfollow_takes_nothing_else(lab):
    follow(lab, A, B), follow(lab, A, C)
    post(lab, B, 10)
    two = [post(lab, C, 10), post(lab, C, 20)]
    pages(lab, A, 20)
    unfollow(lab, A, B)
    assert pages(lab, A, 20) == [two[::-1]]


def test_f10_a_delivery_that_read_the_old_follower_list_is_hidden(lab):
    """Unfollow and rebuild, then a late delivery of B's post to A: it is in the feed, and no page shows it."""
    follow(lab, A, B), follow(lab, A, C)
    p, c = post(lab, B, 50), post(lab, C, 40)
    unfollow(lab, A, B)
    assert pages(lab, A, 20) == [[c]]
    late = lab.names.feed(A)
    assert lab.redis.zadd(late, {f"{p:019d}": 50}) == 1
    assert p in [e.id for e in timeline.get(lab.redis, late).entries]
    assert pages(lab, A, 20) == [[c]] == pages(lab, A, 1)


def test_r11_the_newest_all_filtered_away(lab):
    """FEED_MAX 5: C's twenty newest posts fill the feed, A unfollows C, the feed is evicted."""
    follow(lab, A, B), follow(lab, A, C)
    made = [post(lab, B, 10 * i) for i in range(1, 5)]
    for ms in range(101, 121):
        post(lab, C, ms)
    pages(lab, A, 3)
    unfollow(lab, A, C)
    for _ in range(2):
        assert pages(lab, A, 3) == [made[:0:-1], made[:1]]
        timeline.drop(lab.redis, lab.names.feed(A))


@pytest.mark.parametrize("limit,want", [(3, [[2, 1, 0]]), (2, [[2, 1], [0]])])
def test_r14_r16_a_feed_full_of_the_unfollowed(lab, limit, want):
    """The removal did not run: put the old feed back after the unfollow, as if DEL and event were lost."""
    follow(lab, A, B), follow(lab, A, C)
    made = [post(lab, B, 10 * i) for i in range(1, 4)]
    for ms in range(101, 161):
        post(lab, C, ms)
    pages(lab, A, 3)
    old = lab.redis.dump(lab.names.feed(A))
    unfollow(lab, A, C)
    lab.redis.restore(lab.names.feed(A), 60_000, old, replace=True)
    assert pages(lab, A, limit) == [[made[i] for i in page] for page in want]


def test_the_event_drops_the_feed_again(lab):
    """The process that follows dies between commit and DEL: the feed that lacks B's posts goes all the same."""
    p = post(lab, B, 10)
    assert pages(lab, A, 5) == [[]]
    old = lab.redis.dump(lab.names.feed(A))
    follow(lab, A, B)
    lab.redis.restore(lab.names.feed(A), 60_000, old, replace=True)  # the DEL never came
    assert pages(lab, A, 5) == [[]]
    with running(lab):
        lab.drain()
    assert pages(lab, A, 5) == [[p]]


def test_r50_events_out_of_order_change_no_row(lab):
    """SQL decides who follows whom; a graph event only drops the feed, so its order cannot matter."""
    from feedlab import outbox
    from feedlab.core.codec import Event

    post(lab, B, 10)
    follow(lab, A, B), unfollow(lab, A, B)
    with running(lab):
        lab.drain()
        outbox.put(lab.conn, lab.names, Event("followed", user=A, author=B))
        lab.drain()
    assert pages(lab, A, 5) == [[]] and pull.everything(lab.conn, A) == [] and follows.followers(lab.conn, B) == 0


def test_r29_an_unfollow_takes_the_same_time_whatever_the_author_wrote(lab):
    """B has 50,000 posts and A's feed 100 of them: nothing walks the posts."""
    follow(lab, A, B)
    lab.conn.execute(
        "insert into posts (id, author_id, created_at_ms, content) "
        "select g, %s, g, 'x' from generate_series(1, 50000) g",
        (B,),
    )
    assert len(lab.page(A).ids) == 20
    start = time.monotonic()
    unfollow(lab, A, B)
    assert time.monotonic() - start < 1
    assert lab.page(A).ids == []
