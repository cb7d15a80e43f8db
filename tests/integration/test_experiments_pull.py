"""What notebook 05 runs: rows read are counts, and counts are exact."""
import pytest

from feedlab import pull as sql
from feedlab.lab import book
from feedlab.lab.experiments import pull


@pytest.fixture(scope="module")
def b(addresses):
    made = book.begin("t_pull")
    assert pull.fill(made, authors=500, posts_each=40) == 20_000     # fewer, and the planner would rather read all of them
    yield made
    made.end()


@pytest.fixture(scope="module")
def people(b):
    return pull.readers(b, (5, 40))


def test_rows_are_follows_and_a_page_an_author(b, people):
    for n, user in people.items():
        for limit in (10, 20):
            found = pull.asked(b, user, limit=limit)
            assert (found["rows"], found["returned"]) == (n + n * limit, limit)


def test_a_page_deep_down_reads_as_much(b, people):
    deep = sql.everything(b.open().conn, people[40])[500]            # each author has more than twenty below it
    assert pull.asked(b, people[40], before=deep)["rows"] == 40 + 40 * 20


def test_the_simple_query_reads_everything_and_answers_the_same(b, people):
    user = people[40]
    assert pull.asked(b, user, "simple")["rows"] >= 40 * 40
    wanted = {"user": user, "ms": sql.START.ms, "id": sql.START.id, "limit": 50}
    assert [tuple(r) for r in b.open().conn.execute(pull.SIMPLE, wanted)] == [tuple(e) for e in sql.page(b.lab.conn, user, sql.START, 50)]


def test_points_and_figures(b, people):
    points = pull.against_followees(b, people, repeat=3)
    assert [(p["followees"], p["rows"]) for p in points] == [(5, 105), (40, 840)]
    assert "40 followees" in pull.followees_figure(points).layout.title.text
    rows = {name: [pull.asked(b, user, name)["rows"] for user in people.values()] for name in pull.QUERIES}
    assert len(pull.rows_figure(people, rows).data) == 2


def test_the_table_grows_and_the_rows_do_not(b, people):
    points = pull.against_table(b, people[5], (20_000, 40_000), repeat=3)
    assert [(p["posts"], p["rows"]) for p in points] == [(20_000, 105), (40_000, 105)]
    assert b.open().conn.execute("select count(*) from posts").fetchone()[0] == 40_000
    assert "grows 2 times" in pull.table_figure(points).layout.title.text
    assert isinstance(pull.growth(points, "posts"), float)
    assert len(pull.by_pull(b, people[5])) == 20
