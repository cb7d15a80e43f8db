"""What notebook 05 runs: rows read are counts, and counts are exact."""
import pytest

from feedlab import pull as sql
from feedlab.classroom import book
from feedlab.classroom.chapters import fanout_on_read


@pytest.fixture(scope="module")
def b(addresses):
    made = book.begin("t_pull")
    assert fanout_on_read.fill(made, authors=500, posts_each=40) == 20_000     # fewer, and the planner would rather read all of them
    yield made
    made.end()


@pytest.fixture(scope="module")
def people(b):
    return fanout_on_read.readers(b, (5, 40))


def test_rows_are_follows_and_a_page_an_author(b, people):
    for n, user in people.items():
        for limit in (10, 20):
            found = fanout_on_read.asked(b, user, limit=limit)
            assert (found["rows"], found["returned"]) == (n + n * limit, limit)


def test_a_page_deep_down_reads_as_much(b, people):
    deep = sql.everything(b.open().conn, people[40])[500]            # each author has more than twenty below it
    assert fanout_on_read.asked(b, people[40], before=deep)["rows"] == 40 + 40 * 20


def test_the_simple_query_reads_everything_and_answers_the_same(b, people):
    user = people[40]
    assert fanout_on_read.asked(b, user, "simple")["rows"] >= 40 * 40
    wanted = {"user": user, "ms": sql.START.ms, "id": sql.START.id, "limit": 50}
    assert [tuple(r) for r in b.open().conn.execute(fanout_on_read.SIMPLE, wanted)] == [tuple(e) for e in sql.page(b.lab.conn, user, sql.START, 50)]


def test_points_and_figures(b, people):
    points = fanout_on_read.against_followees(b, people, repeat=3)
    assert [(p["followees"], p["rows"]) for p in points] == [(5, 105), (40, 840)]
    assert "40 followees" in fanout_on_read.followees_figure(points).layout.title.text
    rows = {name: [fanout_on_read.asked(b, user, name)["rows"] for user in people.values()] for name in fanout_on_read.QUERIES}
    assert len(fanout_on_read.rows_figure(people, rows).data) == 2


def test_the_table_grows_and_the_rows_do_not(b, people):
    points = fanout_on_read.against_table(b, people[5], (20_000, 40_000), repeat=3)
    assert [(p["posts"], p["rows"]) for p in points] == [(20_000, 105), (40_000, 105)]
    assert b.open().conn.execute("select count(*) from posts").fetchone()[0] == 40_000
    assert "grows 2 times" in fanout_on_read.table_figure(points).layout.title.text
    assert isinstance(fanout_on_read.growth(points, "posts"), float)
    assert len(fanout_on_read.by_pull(b, people[5])) == 20
