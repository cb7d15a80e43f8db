"""The checker: each kind of wrong page is found and named; what cannot be known is never called wrong."""
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedlab.core.check import KINDS, Deleted, Followed, History, Knob, Posted, Read, Unfollowed, check
from feedlab.core.model import Entry

U, A, B = 7, 1, 2


def world() -> History:
    """User 7 follows 1 and 2; posts 1..5 at 10..50, by turns."""
    h = History([Followed(U, A), Followed(U, B)])
    for i in range(1, 6):
        with h.doing(Posted([B, A][i % 2], i, 10 * i)):
            pass
    return h


def page(h: History, ids, cursor=None, after=None, limit=3, **fields) -> Read:
    """A page as read: its times are those of the posts, `after` is the post that the next cursor names."""
    ms = {f.id: f.ms for f in h.facts if isinstance(f, Posted) and f.id is not None}
    place = {i: Entry(m, i) for i, m in ms.items()}
    with h.doing(Read(U, place.get(cursor), limit, [place.get(i, Entry(1, i)) for i in ids], place.get(after),
                      **{"drained": True} | fields)) as read:
        pass
    return read


def found(h: History, **options) -> list[str]:
    return [str(v) for v in check(h, **options).verdicts]


def test_a_correct_scroll_is_clean():
    h = world()
    page(h, [5, 4, 3], after=3, scroll=1)
    page(h, [2, 1], cursor=3, scroll=1, page=2)
    report = check(h, answers={(U, None): [5, 4, 3, 2, 1]})
    assert (report.pages, report.wrong, report.unknown, report.verdicts) == (2, 0, 0, [])
    assert str(report) == "2 pages, 0 wrong, 0 unknown"


@pytest.mark.parametrize("ids, cursor, after, said", [
    ([5, 3, 2], None, 2, "missing: user 7, page 1: post 4 missing"),
    ([5, 5, 4], None, 4, "repeated: user 7, page 1: post 5 is shown again, it was on page 1"),
    ([5, 3, 4], None, 4, "out of order: user 7, page 1: post 4 at 40 comes after post 3 at 30"),
    ([3, 2, 1], 3, None, "not older than the cursor: user 7, page 1: post 3 at 30 is not older than the cursor 30:3"),
    ([5, 4], None, 4, "short page: user 7, page 1: 2 posts of 3, and yet there is a next page"),
    ([5, 4, 3], None, None,
     "ended early: user 7, page 1: the feed ends after post 3, but post 2 is older and should follow"),
    ([], 3, None, "ended early: user 7, page 1: the feed is empty below the cursor, but post 2 should be there"),
    ([2, 1], 3, 3, "cursor did not move: user 7, page 1: the next cursor 30:3 does not lie below the page's own"),
    ([5, 4, 3], None, 2, "cursor elsewhere: user 7, page 1: the next cursor is 20:2, the last post is 30:3"),
    ([3, 2, 1], 4, 1, "ended late: user 7, page 1: there is a next cursor although nothing older exists"),
    ([5, 4, 3, 2], None, 2, "too many: user 7, page 1: 4 posts although the limit is 3"),
    ([99, 2, 1], 3, None, "unknown post: user 7, page 1: post 99 was never written"),
])
def test_each_kind_on_one_page(ids, cursor, after, said):
    h = world()
    page(h, ids, cursor, after)
    assert said in found(h)


def test_repeated_on_a_later_page():
    h = world()
    page(h, [5, 4, 3], after=3, scroll=1)
    page(h, [3, 2, 1], cursor=3, scroll=1, page=2)
    assert "repeated: user 7, page 2: post 3 is shown again, it was on page 1" in found(h)


def test_deleted_and_unfollowed_are_found_at_any_time():
    h = world()
    with h.doing(Deleted(5)):
        pass
    with h.doing(Unfollowed(U, B)):
        pass
    page(h, [5, 4], drained=False)
    page(h, [3, 1])
    assert found(h) == [
        "deleted shown: user 7, page 1: post 5 is shown although it was deleted before",
        "unfollowed shown: user 7, page 1: post 4 is shown although user 7 unfollowed its author 2"]
    h = History([Posted(3, 6, 60)])
    page(h, [6])
    assert found(h) == ["unfollowed shown: user 7, page 1: post 6 is shown although user 7 never followed its author 3"]


def test_a_missing_post_is_told_with_what_became_of_it():
    """It was pulled when written (two followers, threshold 2) and pushed when read (threshold 9)."""
    h = History([Followed(U, A), Followed(8, A), Knob("threshold", 2)])
    with h.doing(Posted(A, 41, 10)):
        pass
    with h.doing(Knob("threshold", 9)):
        pass
    page(h, [], page=3)
    assert found(h) == ["ended early: user 7, page 3: the feed is empty below the cursor, but post 41 should be there; "
                        "it was pulled when written and pushed when read"]
    with h.doing(Posted(A, 40, 5, how="pushed")):
        pass
    page(h, [40])
    assert found(h)[-1] == "missing: user 7, page 1: post 41 missing; it was pulled when written and pushed when read"


def test_what_ran_at_the_same_time_is_not_called_wrong():
    h = world()
    with h.doing(Read(U, None, 9, [Entry(50, 5), Entry(30, 3), Entry(20, 2), Entry(10, 1)], drained=True)):
        with h.doing(Deleted(4)):
            pass
        with h.doing(Posted(A, 6, 60)):
            pass
    with h.doing(Read(U, None, 9, [Entry(60, 6), Entry(50, 5), Entry(30, 3), Entry(10, 1)], drained=True)):
        with h.doing(Unfollowed(U, B)):
            pass
    report = check(h)
    assert report.verdicts == [] and report.unknown == 2 + 1     # 4 and 6 on the first page, 2 on the second


def test_lost_answers_are_unknown():
    h = world()
    for fact in (Deleted(5), Unfollowed(U, B), Posted(A, 6, 60)):
        with pytest.raises(TimeoutError), h.doing(fact):
            raise TimeoutError
    page(h, [6, 5, 4], after=4)
    page(h, [3, 1])                                    # 2, 4, 5 and 6 may be there or not
    with pytest.raises(ConnectionError), h.doing(Read(U)):
        raise ConnectionError
    report = check(h)
    assert report.verdicts == [] and report.wrong == 0 and report.pages == 3 and report.unknown > 0
    h.facts[-2].end = h.tick()                         # SQL was asked: the unfollow had happened
    page(h, [4], drained=False)
    assert found(h) == ["unfollowed shown: user 7, page 1: post 4 is shown although user 7 unfollowed its author 2"]


def test_a_post_whose_id_was_lost_may_be_any_unknown_one():
    h = world()
    with pytest.raises(TimeoutError), h.doing(Posted(A)):
        raise TimeoutError
    page(h, [2, 1, 99], cursor=3)
    assert found(h) == [] and check(h).unknown == 1


def test_a_change_that_was_overruled_does_not_count():
    h = world()
    for fact in (Unfollowed(U, B), Followed(U, B), Unfollowed(U, A), Followed(U, A)):
        with h.doing(fact):
            pass
    page(h, [5, 3, 1])
    assert [v.post for v in check(h).verdicts] == [4, 2]


def test_two_changes_at_once_leave_it_open():
    h = world()
    with h.doing(Unfollowed(U, B)), h.doing(Followed(U, B)):
        pass
    page(h, [5, 3, 1])
    page(h, [5, 4, 3], after=3)
    assert found(h) == []


def test_during_only_what_is_certain():
    h = world()
    page(h, [5, 1], drained=False)
    assert found(h) == []


def test_warm_and_cold_must_be_the_same():
    h = world()
    page(h, [5, 4, 3], after=3, state=1, label="warm")
    page(h, [5, 4, 2], after=2, state=1, label="after DEL")
    assert "foreign: user 7, page 1: the same page was [5, 4, 3] warm and is [5, 4, 2] after DEL" in found(h)


def test_an_error_is_wrong_and_no_page_is_unknown():
    h = world()
    with h.doing(Read(U)) as read:
        read.error = "500 Internal Server Error"
    assert found(h) == ["error: user 7, page 1: the answer was an error: 500 Internal Server Error"]


def test_a_post_shown_at_another_time_or_before_it_was_written():
    h = world()
    h.reads.append(Read(U, None, 9, [Entry(77, 5)], start=h.tick(), end=h.tick()))
    page(h, [4], drained=False)
    with h.doing(Posted(A, 6, 60)):
        pass
    early = page(h, [6], drained=False)
    early.start, early.end = 1, 2
    assert found(h) == ["wrong time: user 7, page 1: post 5 is shown at 77, it was written at 50",
                        "unknown post: user 7, page 1: post 6 is shown before it was written"]


def test_the_two_oracles_watch_each_other():
    h = world()
    page(h, [5, 4, 3], after=3)

    def sql(*answer):
        return found(h, answers={(U, None): answer})
    assert sql(5, 4, 3, 2) == ["oracle: user 7, page 1: SQL and the history differ: post 1 is not in SQL's answer"]
    assert sql(6, 5, 4, 3, 2, 1) == ["oracle: user 7, page 1: SQL and the history differ: post 6 is in SQL's answer"]
    assert sql(5, 3, 4, 2, 1) == ["oracle: user 7, page 1: SQL's answer is out of order, or has a post twice"]


def test_the_report_gives_the_smallest_example_of_each_kind():
    h = world()
    page(h, [5, 2, 1], cursor=None, page=4)
    page(h, [3, 1], cursor=4, page=2)
    report = check(h)
    assert [(v.kind, v.page, v.post) for v in report.smallest()] == [("missing", 2, 2)]
    assert (report.wrong, len(report.verdicts)) == (2, 3) and {v.kind for v in report.verdicts} <= set(KINDS)


# --- any feed --------------------------------------------------------------------------------------------------------

@st.composite
def scrolls(draw) -> tuple[History, list[Entry]]:
    """A random history (posts with ties, deletes, unfollows, refollows) and a correct drained scroll of it."""
    rng, h = draw(st.randoms(use_true_random=False)), History()
    following, posts, dead = {A}, {}, set()
    h.facts.append(Followed(U, A))
    for i in range(1, draw(st.integers(2, 25))):
        what = rng.random()
        author = rng.choice([A, B, 3])
        if what < 0.7:
            fact = Posted(author, i, rng.randrange(100, 110))
            posts[i] = fact
        elif what < 0.8 and posts:
            fact = Deleted(rng.choice(list(posts)))
            dead.add(fact.id)
        elif author in following:
            fact = Unfollowed(U, author)
            following.discard(author)
        else:
            fact = Followed(U, author)
            following.add(author)
        with h.doing(fact):
            pass
    feed = sorted((Entry(p.ms, i) for i, p in posts.items() if p.author in following and i not in dead), reverse=True)
    limit, cursor, number = draw(st.integers(1, 5)), None, 1
    while True:
        rest = [e for e in feed if cursor is None or e < cursor]
        after = rest[limit - 1] if len(rest) > limit else None
        with h.doing(Read(U, cursor, limit, rest[:limit], after, drained=True, scroll=1, page=number, state=1)):
            pass
        if after is None:
            return h, feed
        cursor, number = after, number + 1


@given(scrolls())
def test_a_correct_scroll_is_never_flagged(made):
    h, feed = made
    report = check(h, answers={(U, 1): [e.id for e in feed]})
    assert (report.verdicts, report.unknown) == ([], 0)


@given(scrolls(), st.sampled_from(["drop", "repeat", "swap", "foreign id", "end", "go on", "cursor", "shift"]),
       st.integers(0, 10**6))
def test_any_single_change_of_a_correct_scroll_is_flagged(made, how, seed):
    h, feed = made
    rng = random.Random(seed)
    read = rng.choice(h.reads)
    entries = list(read.entries)
    k = rng.randrange(len(entries)) if entries else 0
    if how == "drop" and entries:
        del entries[k]
    elif how == "repeat" and feed:
        entries.insert(k, rng.choice(feed[:feed.index(entries[-1]) + 1]))
    elif how == "swap" and len(entries) > 1:
        k = max(k, 1)
        entries[k - 1], entries[k] = entries[k], entries[k - 1]
    elif how == "foreign id":
        others = [Entry(f.ms, f.id) for f in h.facts if isinstance(f, Posted) and Entry(f.ms, f.id) not in feed]
        entries.insert(k, rng.choice([*others, Entry(105, 999)]))
    elif how == "shift" and entries:
        entries[k] = Entry(entries[k].ms + 1, entries[k].id)
    changed = replace(read, entries=entries)
    if how == "end":
        changed.next_cursor = None
    elif how == "go on" and read.next_cursor is None and entries:
        changed.next_cursor = entries[-1]
    elif how == "cursor" and read.next_cursor is not None:
        changed.next_cursor = Entry(read.next_cursor.ms, read.next_cursor.id + rng.choice([-1, 1]))
    h.reads[h.reads.index(read)] = changed
    assert bool(check(h).verdicts) == (changed != read)
