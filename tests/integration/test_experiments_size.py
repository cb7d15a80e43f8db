"""Notebook 13's experiments: one query against the pushed feed, a ranked feed, who sees a post when."""

import pytest

from feedlab import pull
from feedlab.classroom import book
from feedlab.classroom.chapters import when_not_to
from feedlab.core.cost import Sheet
from feedlab.core.model import START, Entry

EACH = 60


@pytest.fixture(scope="module")
def b(addresses):
    made = book.begin("t_size")
    yield made
    made.end()


@pytest.fixture(scope="module")
def crowd(b):
    lab = b.open()
    lab.readers = when_not_to.crowd(lab, followees=(3, 20, 200), each=EACH)
    return lab


def test_readers_follow_as_many_as_said(crowd):
    for n, reader in crowd.readers.items():
        followed = [f for f, in crowd.conn.execute("select followee_id from follows where follower_id = %s", (reader,))]
        assert len(set(followed)) == n and set(followed) <= set(range(1, 201))
        assert len(pull.everything(crowd.conn, reader)) == n * EACH


def test_one_query_is_the_page(crowd):
    user = crowd.readers[20]
    top = when_not_to.one_query(crowd.conn, user)
    assert [p.entry for p in top] == pull.page(crowd.conn, user, START, 20)
    assert top[0].content == f"post {top[0].id}" and len(top) == 20
    below = when_not_to.one_query(crowd.conn, user, top[-1].entry, 5)
    assert [p.entry for p in below] == pull.everything(crowd.conn, user)[20:25]
    assert when_not_to.same_pages(crowd, crowd.readers) == 0


def test_a_page_that_differs_is_counted(crowd):
    """The comparison would notice: the feed in Redis is given a post that nobody wrote."""
    user = crowd.readers[3]
    crowd.page(user)
    first = pull.page(crowd.conn, user, START, 1)[0]
    crowd.redis.zrem(crowd.names.feed(user), f"{first.id:019d}")
    assert when_not_to.same_pages(crowd, crowd.readers) == 1
    crowd.redis.delete(crowd.names.feed(user))


def test_both_ways_are_timed(crowd):
    said = []
    found = when_not_to.pages(crowd, crowd.readers, times=3, say=lambda *now: said.append(now))
    assert list(found) == [3, 20, 200] and len(said) == 3
    for cost in found.values():
        assert cost.pull_ms > 0 and cost.pushed_ms > 0 and cost.ratio == cost.pull_ms / cost.pushed_ms
    assert len(when_not_to.carried_figure(found).data[0].x) == len(when_not_to.ratio_figure(found).data[0].x) == 3


@pytest.mark.parametrize("ratios, title", [((0.5, 2.0), "Up to 3 followees"), ((2.0, 3.0), "quicker from the start")])
def test_the_title_says_where_the_query_wins(ratios, title):
    found = {n: when_not_to.Cost(r, 1.0) for n, r in zip((3, 20), ratios, strict=True)}
    assert title in when_not_to.ratio_figure(found).layout.title.text


def test_users_and_connections_are_one_sum():
    for ms in (0.5, 5.0, 40.0):
        assert when_not_to.connections(ms, Sheet(users=when_not_to.users_carried(ms))) == pytest.approx(1.0)
    assert when_not_to.users_carried(5.0, Sheet(reads=30)) == pytest.approx(when_not_to.users_carried(5.0) / 3)


def test_without_its_index_the_query_reads_the_table_for_each_followee(crowd):
    having, lacking = when_not_to.without_index(crowd, crowd.readers[3])
    rows = 200 * EACH
    assert having.rows <= 3 + 3 * 20 + 20  # follows, twenty of each, the page itself
    assert lacking.rows >= 3 * rows
    assert any("posts_author_newest" in scan for scan in having.scans)


# --- ranked -------------------------------------------------------------------------------------------


def test_a_post_has_the_same_score_whoever_asks():
    entries = [Entry(1_000, 1), Entry(2_000, 2), Entry(3_000, 3)]
    assert list(when_not_to.score(entries, 3_000)) == list(when_not_to.score(entries[::-1], 3_000))[::-1]
    assert when_not_to.rank([], 0) == []
    now, later = when_not_to.score(entries, 3_000), when_not_to.score(entries, 3_000 + when_not_to.HALF_LIFE_MS)
    assert later == pytest.approx(now / 2)


def test_the_best_are_looked_for_in_the_feed(crowd):
    user = crowd.readers[20]
    found = when_not_to.ranked(crowd, user, pools=(20, 100, 500))
    assert found.everything == 20 * EACH and len(set(found.best)) == 20
    assert found.best == when_not_to.rank(pull.everything(crowd.conn, user), max(found.best).ms + 10**6)[:20]  # age moves all alike
    kept = list(found.kept.values())
    assert kept == sorted(kept) and kept[-1] <= 20
    assert found == when_not_to.ranked(crowd, user, pools=(20, 100, 500))
    assert f"newest 500 {kept[-1]}" in when_not_to.pool_figure(found).layout.title.text


def test_a_cursor_in_time_breaks_a_ranked_scroll_and_a_kept_order_does_not(crowd):
    user = crowd.readers[20]
    crowd.page(user)
    wrong, right = when_not_to.ranked_by_cursor(crowd, user, 40, 10), when_not_to.ranked_by_snapshot(crowd, user, 40, 10)
    assert wrong.pages[0] == right.pages[0] and right.verdicts == ()
    assert any("repeats" in v for v in wrong.verdicts) and any("missing" in v for v in wrong.verdicts)
    assert sorted(p for page in right.pages for p in page) == list(range(1, 41))


@pytest.mark.parametrize(
    "pages, said",
    [
        ([(2, 3), (1,)], ()),
        ([(2, 3), (2, 1)], ("page 2 repeats post 2",)),
        ([(2,), (1,)], ("post 3 is missing: no page shows it",)),
    ],
)
def test_ranked_verdicts(pages, said):
    assert when_not_to.ranked_verdicts(pages, 3) == said


# --- who sees -------------------------------------------------------------------------------------------


def test_who_sees_a_post_when(b):
    b.people(2)
    b.follow(1, 0)
    seen = when_not_to.who_sees(b, author=0, follower=1)
    own, own_self, pushed, pulled = when_not_to.WAYS
    assert list(seen) == ["committed", "in Kafka", "delivered"]
    assert [seen[s][pushed] for s in seen] == [False, False, True]
    assert all(seen[s][pulled] and seen[s][own_self] and not seen[s][own] for s in seen)
    table = when_not_to.sees_table(seen)
    assert list(table.index) == list(when_not_to.WAYS) and table.loc[pushed, "delivered"] == "shown"
