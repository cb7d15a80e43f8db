"""The pull flag under concurrency, the celebrity's timeline, and each process's own copy of it."""

import random
import threading

import pytest
from conftest import add_users

from feedlab import celebrities, db, follows, posts, pull, timeline
from feedlab.celebrities import HEAD, LocalCopies
from feedlab.core.model import NO_FLOOR, START, Entry, Timeline
from feedlab.reader import Reader, scroll

A, K, L = 1, 2, 3
LAB = {"feed_max": 500, "threshold": 0}


@pytest.fixture
def clean(lab):
    lab.conn.execute("truncate users, posts, outbox, follows, user_activity, follower_counts, pull_flags")
    lab.redis.delete("none", *lab.redis.scan_iter(match=f"{lab.settings.namespace}:*", count=1000))
    add_users(lab, A, K, L)
    for author in (K, L):
        follows.follow(lab.conn, lab.redis, lab.names, A, author)
    return lab


def post(lab, author, ms):
    return posts.create(lab.conn, lab.ids, lab.names, author, "x", created_at_ms=ms)


def ensure(lab, author=K, feed_max=5):
    celebrities.ensure(lab.conn, lab.redis, lab.names, author, feed_max, 30, 3_600)


def stored(lab, author=K):
    return timeline.get(lab.redis, lab.names.celeb(author))


# --- the flag -------------------------------------------------------------------------------------


def test_raised_counted_and_lowered_only_if_nothing_was_pulled_meanwhile(clean):
    c = clean.conn
    assert (celebrities.pulls(c, K), celebrities.flagged(c, A)) == (0, [])
    celebrities.raise_flags(c, [K, K, L])  # a batch counts one pull an author
    assert (celebrities.pulls(c, K), sorted(celebrities.flagged(c, A))) == (1, [K, L])
    then = celebrities.pulls(c, K)
    celebrities.raise_flags(c, [K])
    assert not celebrities.lower_flag(c, K, then) and K in celebrities.flagged(c, A)
    assert celebrities.lower_flag(c, K, 2) and celebrities.flagged(c, A) == [L]
    celebrities.raise_flags(c, [K])
    assert celebrities.pulls(c, K) == 3  # the count never goes back: an old demotion cannot match it
    celebrities.raise_flags(c, [])
    assert not celebrities.lower_flag(c, 999, 0)


def test_only_the_flags_of_the_followed_count(clean):
    celebrities.raise_flags(clean.conn, [K, L])
    follows.unfollow(clean.conn, clean.redis, clean.names, A, K)
    assert celebrities.flagged(clean.conn, A) == [L] and celebrities.flagged(clean.conn, K) == []


def test_many_consumers_raise_at_once_without_deadlock_or_loss(clean):
    authors, failed, gate = list(range(100, 120)), [], threading.Barrier(8)

    def work(seed):
        rng = random.Random(seed)
        try:
            with db.connect(clean.addresses.postgres_url, clean.settings.namespace) as conn:
                gate.wait(20)
                for _ in range(25):
                    celebrities.raise_flags(conn, rng.sample(authors, len(authors)))
        except Exception as e:
            failed.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert failed == [] and {celebrities.pulls(clean.conn, a) for a in authors} == {200}


# --- the timeline ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 5, 6, 20])
def test_built_from_sql_with_its_floor(clean, n):
    made = [post(clean, K, 10 * i).entry for i in range(1, n + 1)]
    ensure(clean)
    t = stored(clean)
    assert t.entries == made[::-1][:5] and t.floor == (made[-6].ms if n > 5 else NO_FLOOR)
    assert 0 < clean.redis.ttl(clean.names.celeb(K)) <= 3_600


def test_what_is_there_or_being_built_is_left_alone(clean):
    post(clean, K, 10)
    token = timeline.begin(clean.redis, clean.names.celeb(K), 30)
    ensure(clean)
    assert stored(clean) == Timeline(None, exists=True)
    timeline.complete(clean.redis, clean.names.celeb(K), token, [], 5, 2**42)
    ensure(clean)
    assert stored(clean).entries == []


# --- the head and what lies below -----------------------------------------------------------------


def test_a_head_with_more_below_ends_above_its_last_millisecond():
    """Of the last millisecond some entries may lie beyond the cut, so all of it is left to SQL."""
    whole = Timeline(5.0, [Entry(9, 2), Entry(9, 1), Entry(8, 1)], False, exists=True)
    assert celebrities.head(whole) is whole
    cut = Timeline(NO_FLOOR, [Entry(9, 2), Entry(8, 2), Entry(8, 1)], True, exists=True)
    assert celebrities.head(cut) == Timeline(8, [Entry(9, 2)], exists=True)
    tied = Timeline(NO_FLOOR, [Entry(8, 2), Entry(8, 1)], True, exists=True)
    assert celebrities.head(tied) == Timeline(8, [], exists=True)
    for none in (Timeline(None), Timeline(None, exists=True)):
        assert celebrities.head(none) is none


@pytest.mark.parametrize("seed", range(30))
def test_entries_are_sqls_between_cursor_and_above(clean, seed):
    """Whatever part of the author the timeline holds, and wherever cursor and lower bound lie."""
    rng = random.Random(seed)
    every = sorted({post(clean, K, rng.randrange(12)).entry for _ in range(25)}, reverse=True)
    for _ in range(20):
        floor = rng.choice([None, NO_FLOOR, *range(12)])
        t = None if floor is None else Timeline(floor, [e for e in every if e.ms > floor], exists=True)
        before = rng.choice([START, *every, Entry(rng.randrange(14), 5)])
        above = rng.choice([NO_FLOOR, *range(-1, 13)])
        asked = []
        got = list(celebrities.entries(clean.conn, K, t, before, above, asked.append))
        assert got == [e for e in every if above < e.ms and e < before], (floor, before, above)
        if floor is not None and floor <= above:
            assert asked == []  # SQL only for what the timeline cannot know


def test_sql_is_asked_only_when_the_merge_gets_there(clean):
    made = [post(clean, K, 10 * i).entry for i in range(1, 11)]
    ensure(clean)
    asked = []
    source = celebrities.entries(clean.conn, K, stored(clean), START, NO_FLOOR, asked.append)
    assert [next(source) for _ in range(5)] == made[:4:-1] and asked == []
    assert next(source) == made[4] and asked == [1]


def test_a_deep_scroll_over_a_celebrity_beyond_its_head(clean):
    """300 posts on 90 milliseconds, the timeline holds them all, a copy the newest hundred."""
    for i in range(300):
        post(clean, K, i // 7)
    celebrities.raise_flags(clean.conn, [K])
    ensure(clean, feed_max=500)
    clean.page(A)
    timeline.drop(clean.redis, clean.names.feed(A))
    token = timeline.begin(clean.redis, clean.names.feed(A), 30)
    timeline.complete(clean.redis, clean.names.feed(A), token, [], 500, 2**42)  # nothing was pushed: all must be pulled
    assert len(stored(clean).entries) == 300 > HEAD
    pages = list(scroll(lambda c: clean.page(A, c, 50)))
    assert [i for p in pages for i in p.ids] == [e.id for e in pull.everything(clean.conn, A)]
    assert pages[0].explain.sql_queries <= 3  # the first pages come from the head


# --- the local copy -------------------------------------------------------------------------------

WHOLE = Timeline(NO_FLOOR, [Entry(1, 1)], exists=True)


def test_a_copy_lasts_between_four_fifths_and_all_of_its_time():
    now = [100.0]
    for _ in range(50):
        copies = LocalCopies(3.0, clock=lambda: now[0])
        copies.put(K, WHOLE)
        for later, there in ((0, True), (2.39, True), (3.0, False)):
            now[0] = 100.0 + later
            assert (copies.get(K) is WHOLE) == there, later
        now[0] = 100.0


def test_copies_do_not_all_expire_together():
    now = [0.0]
    copies = LocalCopies(3.0, clock=lambda: now[0])
    for author in range(200):
        copies.put(author, WHOLE)
    now[0] = 2.7
    assert 20 < sum(copies.get(a) is not None for a in range(200)) < 180


@pytest.mark.parametrize("head", [Timeline(None), Timeline(None, exists=True)])
def test_what_is_missing_or_half_built_is_not_kept(head):
    copies = LocalCopies(3.0)
    assert copies.put(K, head) is head and copies.get(K) is None


def test_no_time_no_copies_and_never_more_than_most():
    off, few = LocalCopies(0.0), LocalCopies(60.0, most=10)
    off.put(K, WHOLE)
    assert off.get(K) is None
    for author in range(35):
        few.put(author, WHOLE)
        assert few.get(author) is WHOLE and sum(few.get(a) is not None for a in range(35)) <= 10
    few.clear()
    assert few.get(34) is None


def test_a_hot_key_is_read_once_a_process_and_not_once_a_page(clean):
    """The celebrity posts; of 30 pages within the copy's time one asks Redis. What it shows is late by that time at
    most."""
    now = [0.0]
    reader = Reader(clean.settings, LocalCopies(3.0, clock=lambda: now[0]))
    celebrities.raise_flags(clean.conn, [K])
    first = post(clean, K, 10)
    ensure(clean)

    def page():
        return reader.page(clean.conn, clean.redis, A)

    page()
    assert [page().explain.local_hits for _ in range(30)] == [1] * 30
    late = post(clean, K, 20)
    pipe = clean.redis.pipeline(transaction=False)
    timeline.deliver(pipe, clean.names, ("probe", "", "1"), [clean.names.celeb(K)], [late.entry], 5)
    pipe.execute()
    assert page().ids == [first.id]
    now[0] = 3.0
    assert page().ids == [late.id, first.id]


def test_threads_share_copies(clean):
    copies, failed = LocalCopies(60.0, most=5), []

    def work(seed):
        rng = random.Random(seed)
        try:
            for _ in range(3_000):
                a = rng.randrange(20)
                found = copies.get(a)
                assert found is None or found.entries == [Entry(a, a)]
                copies.put(a, Timeline(NO_FLOOR, [Entry(a, a)], exists=True))
        except Exception as e:
            failed.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert failed == []
