"""What the notebook on delete, follow and unfollow runs. Counts are exact; times only in their order, with room."""
import pytest

from feedlab import follows
from feedlab.classroom import book as books
from feedlab.classroom.chapters import delete_follow_unfollow
from feedlab.errors import BadInput


@pytest.fixture(scope="module")
def book(addresses):
    made = books.begin("t_removal")
    yield made
    made.end()


def test_a_delete_is_hidden_at_once_and_swept_later(book):
    stages = delete_follow_unfollow.deleted(book, followers=6)
    assert stages == [{"stage": "delivered", "holding": 6, "showing": 6},
                      {"stage": "delete has returned", "holding": 6, "showing": 0},
                      {"stage": "event handled", "holding": 0, "showing": 0}]
    fig = delete_follow_unfollow.stages_figure(stages)
    assert fig.layout.title.text == "When delete returns, 6 feeds hold the post and 0 pages show it"
    assert [list(t.y) for t in fig.data] == [[6, 6, 0], [6, 0, 0]]


def test_a_late_delivery_after_an_unfollow(book):
    ours, textbook = delete_follow_unfollow.late_delivery(book, "ours"), delete_follow_unfollow.late_delivery(book, "textbook")
    assert [s["stage"] for s in ours] == ["unfollowed", "late delivery", "swept"]
    assert [s["feed"] for s in ours] == [[3, 2, 1], [4, 3, 2, 1], [3, 2, 1]]      # it comes back into the feed,
    assert all(s["page"] == [3, 2] and s["more"] for s in ours)                   # never onto a page
    assert textbook[0]["page"] == [3, 2]
    assert textbook[1] == {"stage": "late delivery", "feed": [4, 3, 2, 1], "page": [3], "more": True}


def test_a_backfill_of_20_leaves_a_hole(book):
    textbook, ours = (sum(delete_follow_unfollow.new_follow(book, name, each=30), []) for name in ("textbook", "ours"))
    assert textbook == list(range(30, 10, -1))
    assert ours == list(range(30, 0, -1))


def test_what_a_follow_costs(book):
    lab = book.open()
    ms = delete_follow_unfollow.follow_cost(book, followees=30, each=5, repeat=5)
    assert set(ms) == {"warm page", "backfill of 20: follow", "backfill of 20: next page", "drop: follow", "drop: next page"}
    assert all(value > 0 for value in ms.values())
    assert ms["drop: next page"] > ms["warm page"]              # it rebuilds a feed of more than 150 entries
    assert follows.followers(lab.conn, 300) == 0
    followed, = lab.conn.execute("select count(*) from follows where follower_id = 300").fetchone()
    assert followed == 30 + 2 * 5
    assert lab.conn.execute("select count(*) from outbox").fetchone() == (0,)
    assert "times the backfill" in delete_follow_unfollow.cost_figure(ms).layout.title.text


def test_both_ways_of_following_end_at_the_same_page(book):
    """The times compare two ways to the same answer, as long as twenty are enough."""
    lab = book.open()
    warm = lab.page(300, limit=50).ids
    lab.redis.delete(lab.names.feed(300))
    assert lab.page(300, limit=50).ids == warm


def test_counts_under_concurrent_follows(book):
    assert delete_follow_unfollow.lost(book, "ours", threads=3, times=20) == 0
    assert 0 < delete_follow_unfollow.lost(book, "read, add, write", threads=4, times=100) < 400
    assert book.open().conn.execute("select count(*) from follower_counts where user_id = 1").fetchone() == (0,)


def test_one_row_is_hot(book):
    rates = delete_follow_unfollow.hot_row(book, threads=6, times=8)
    assert rates["16 rows"] > 1.5 * rates["one row"]
    assert rates["one row"] < 210                               # 5 ms each, one after the other


@pytest.mark.parametrize(("statement", "right"), [
    ("update counter set n = n + 1 where user_id = %(user)s", True),
    ("update counter set n = 1 where user_id = %(user)s", False)])
def test_a_learner_s_count(book, statement, right):
    assert (delete_follow_unfollow.counts_after(book, statement, threads=3, times=10) == 30) is right


@pytest.mark.parametrize("statement", ["update", "update counters set n = 1", "update counter set n = %(n)s"])
def test_a_statement_that_is_none_is_a_sentence(book, statement):
    with pytest.raises(BadInput, match="the statement cannot be used: .+ the table counter"):
        delete_follow_unfollow.counts_after(book, statement)
    assert delete_follow_unfollow.counts_after(book, "update counter set n = n + 1", threads=1, times=2) == 2      # the table is a new one


def test_bad_input(book):
    with pytest.raises(BadInput, match="how is one of"):
        delete_follow_unfollow.lost(book, "theirs")
    with pytest.raises(BadInput, match="there is no system"):
        delete_follow_unfollow.new_follow(book, "theirs")


def test_a_failure_in_a_thread_is_raised(book):
    with pytest.raises(ZeroDivisionError):
        delete_follow_unfollow.at_once(book, lambda conn: 1 / 0, threads=2, times=1)
