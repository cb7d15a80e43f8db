"""Notebook 02's experiments: what is taken away is missed, and is there again afterwards."""

from itertools import pairwise

import pytest

from feedlab import db, pull
from feedlab.classroom.chapters import data_model
from feedlab.core.model import START
from feedlab.core.snowflake import parts
from feedlab.errors import BadInput

LAB = {"feed_max": 500, "threshold": 10_000}
SMALL = {"authors": 200, "each": 40, "followees": 20, "busy": 3_000, "fans": 2_000}


@pytest.fixture(scope="module")
def grown(lab):
    """Before the crowd comes: the tables are empty."""
    said = []
    rows = data_model.growth(lab, (200, 2_000, 20_000), say=lambda *now: said.append(now))
    return rows, said, {t: lab.conn.execute(f"select count(*) from {t}").fetchone()[0] for t in ("users", "posts", "follows")}


@pytest.fixture(scope="module")
def crowd(lab, grown):
    lab.rows = data_model.crowd(lab, **SMALL)
    return lab


def keys(lab):
    return list(lab.redis.scan_iter(match=f"{lab.settings.namespace}:*"))


# --- indexes ----------------------------------------------------------------------------------------


def test_growth_is_flat_with_the_index_and_leaves_nothing(lab, grown):
    rows, said, left = grown
    (_, small, small_without), (_, middle, middle_without), (_, large, large_without) = rows
    assert [n for n, *_ in rows] == [200, 2_000, 20_000]
    assert large < 2 * middle and large_without > 5 * middle_without and small_without < 2 * small
    assert set(left.values()) == {0} and len(said) == 3
    figure = data_model.growth_figure(rows)
    assert f"{large:,}" in figure.layout.title.text and [len(t.x) for t in figure.data] == [3, 3]


def test_the_crowd_is_as_said(crowd):
    assert crowd.rows == {"users": 2_201, "posts": 200 * 40 + 3_000, "follows": 20 + 3 * 2_000}
    of = "select count(*) from posts where author_id = %s"
    assert crowd.conn.execute(of, (data_model.BUSY,)).fetchone() == (3_040,)
    assert crowd.conn.execute(of, (data_model.ORDINARY,)).fetchone() == (40,)
    neighbours = crowd.conn.execute("select author_id from posts order by id limit 200").fetchall()
    assert len(set(neighbours)) == 200  # no author's posts lie side by side


def test_a_second_crowd_is_refused(crowd):
    with pytest.raises(BadInput, match="hold posts already.*Begin the notebook again"):
        data_model.crowd(crowd, **SMALL)


@pytest.fixture(scope="module")
def found(crowd):
    return data_model.all_with_and_without(crowd)


@pytest.mark.parametrize("name", data_model.QUESTIONS)
def test_each_question_lives_on_its_index(crowd, found, name):
    having, lacking = found[name]
    index = data_model.QUESTIONS[name][2]
    assert any(index in scan for scan in having.scans), having
    assert not any(index in scan for scan in lacking.scans), lacking
    assert having.buffers < lacking.buffers and having.rows <= lacking.rows
    assert index in having.text and "rows" in str(having)
    assert set(data_model.DROP) <= data_model.indexes(crowd.conn)


def test_rows_are_counted_exactly(crowd, found):
    having, lacking = found["whom do I follow"]
    assert (having.rows, lacking.rows) == (20, crowd.rows["follows"])
    having, lacking = found["a page by pull"]
    assert having.rows == 20 + 20 * 20  # the follows, then 20 of each
    assert lacking.rows == 20 + 20 * crowd.rows["posts"]  # the whole table once for each followee, filtered rows too


def test_the_figure_of_the_questions(found):
    figure = data_model.questions_figure(found)
    assert list(figure.data[0].y) == list(data_model.QUESTIONS) and "times as much" in figure.layout.title.text


def test_an_index_comes_back_whatever_happens(crowd, addresses):
    with db.connect(addresses.postgres_url, crowd.settings.namespace) as other:
        with pytest.raises(ZeroDivisionError), data_model.without(crowd.conn, "posts_author_newest") as conn:
            assert "posts_author_newest" not in data_model.indexes(conn)
            raise ZeroDivisionError
        assert "posts_author_newest" in data_model.indexes(other)
    with pytest.raises(BadInput, match="no index 'nothing'.*posts_pkey"), data_model.without(crowd.conn, "nothing"):
        pass
    with pytest.raises(BadInput, match="no question 'what'.*a page by pull"):
        data_model.with_and_without(crowd, "what")


def test_the_plain_page_answers_the_same_and_reads_everything(crowd):
    plain, lateral = data_model.two_ways_to_ask(crowd)
    # 19 followees with 40 posts, and the busy one; with the 20 follows
    assert plain.rows >= 19 * 40 + 3_040 and lateral.rows == 20 + 20 * 20
    args = data_model.QUESTIONS["a page by pull"][1]
    assert crowd.conn.execute(data_model.NAIVE_PAGE, args).fetchall() == crowd.conn.execute(pull.PAGE, args).fetchall()


def test_what_an_insert_costs(crowd):
    before = crowd.conn.execute("select count(*) from posts").fetchone()
    having, lacking = data_model.insert_cost(crowd, 500)
    assert 0.9 * 500 < having - lacking < 1.3 * 500  # about a record more for each row
    assert crowd.conn.execute("select count(*) from posts").fetchone() == before


@pytest.mark.parametrize(
    "query, right",
    [
        ("select id from posts where author_id = 2 and not deleted order by created_at_ms desc, id desc limit 20", True),
        ("select id from posts where author_id = 2 and not deleted order by created_at_ms, id limit 20", False),
        ("select id from posts where author_id = 2 and not deleted order by id desc limit 20", False),  # right, but reads all
        ("delete from posts where author_id = 2 returning id", False),
    ],
)
def test_the_exercise_knows_a_good_query(crowd, query, right):
    want = data_model.newest_of(crowd, author=2, n=20, rows=20)
    assert want(query) is right and "20 newest posts of author 2" in want.__doc__
    assert crowd.conn.execute("select count(*) from posts where author_id = 2").fetchone() == (40,)


# --- milliseconds -------------------------------------------------------------------------------------


def test_a_cursor_in_milliseconds_over_microseconds_passes_over_posts(lab):
    scrolled = data_model.cursor_over(lab, "microseconds", posts=16, limit=4)
    assert scrolled.pages == ((16, 15, 14, 13), (10, 9, 8, 7))
    missing = [f"post {p} is missing: page 2 passes over it" for p in (12, 11)]
    assert list(scrolled.verdicts) == missing + [
        f"post {p} is missing: the scroll ends above it" for p in range(6, 0, -1)
    ]
    assert "... and 4 more" in str(scrolled)


@pytest.mark.parametrize("posts, limit", [(16, 4), (1, 5), (40, 7), (5, 1)])
def test_a_cursor_as_coarse_as_its_column_does_not(lab, posts, limit):
    scrolled = data_model.cursor_over(lab, "milliseconds", posts, limit)
    assert [p for page in scrolled.pages for p in page] == list(range(posts, 0, -1))
    assert scrolled.verdicts == () and "every post once" in str(scrolled)


def test_the_scroll_leaves_no_table(lab):
    data_model.cursor_over(lab, "milliseconds")
    assert lab.conn.execute("select to_regclass('scrolled')").fetchone() == (None,)
    with pytest.raises(BadInput, match="microseconds or milliseconds, got 'weeks'"):
        data_model.cursor_over(lab, "weeks")


@pytest.mark.parametrize(
    "pages, said",
    [
        ([[3, 2], [1]], ()),
        ([[3, 2], [2, 1]], ("page 2 repeats post 2",)),
        ([[3], [1]], ("post 2 is missing: page 2 passes over it",)),
        ([[3, 2]], ("post 1 is missing: the scroll ends above it",)),
        ([[2, 3], [1]], ("page 1 shows post 3 after post 2",)),
        ([], tuple(f"post {p} is missing: the scroll ends above it" for p in (3, 2, 1))),
        ([[9, 3, 2], [1]], ()),  # 9 came while the scroll was under way
    ],
)
def test_verdicts(pages, said):
    assert data_model.verdicts(pages, [3, 2, 1]) == said


# --- scores ------------------------------------------------------------------------------------------


def test_ids_of_one_millisecond(lab):
    ids = data_model.one_millisecond(lab)
    assert len(ids) == 4_096 and [b - a for a, b in pairwise(ids)] == [1] * 4_095
    assert len({parts(i)[:2] for i in ids}) == 1 and parts(ids[0])[2] == 0


def test_redis_keeps_what_a_double_keeps(lab):
    ids = data_model.one_millisecond(lab)
    scores = data_model.as_scores(lab, ids)
    assert scores == [float(i) for i in ids] and len(set(scores)) < 300
    assert scores[0] == ids[0] and scores[1] == scores[0] != ids[1]
    assert keys(lab) == []
    assert f"{len(set(scores))} different scores" in data_model.scores_figure(ids, scores).layout.title.text


@pytest.mark.parametrize("n, limit", [(100, 20), (1, 20), (40, 40), (200, 7)])
def test_a_timeline_scrolls_a_burst_exactly(lab, n, limit):
    scrolled = data_model.scroll_by_ms(lab, data_model.one_millisecond(lab, n), limit)
    assert [p for page in scrolled.pages for p in page] == list(range(n - 1, -1, -1)) and scrolled.verdicts == ()
    assert keys(lab) == []


def test_a_score_that_is_the_id_does_not(lab):
    scrolled = data_model.scroll_by_id(lab, data_model.one_millisecond(lab, 100), 20)
    assert scrolled.pages[0] == tuple(range(99, 79, -1))
    assert scrolled.verdicts[0] == "post 79 is missing: page 2 passes over it"
    assert keys(lab) == []


def test_start_is_above_every_post(crowd):
    """The questions begin at the top of the feed."""
    newest = crowd.conn.execute("select max(created_at_ms) from posts").fetchone()[0]
    assert data_model.QUESTIONS["a page by pull"][1]["ms"] == START.ms > newest
