"""The notebook kit on live engines: what a first and a last cell do, stations by hand, predictions, magics, and what is left: nothing."""
import threading

import psutil
import pytest
from IPython.core.interactiveshell import InteractiveShell

from feedlab import db, posts, pull
from feedlab.classroom import book, magics
from feedlab.errors import BadInput, FeedlabError
from feedlab.lab.session import open_lab


@pytest.fixture
def b(addresses):
    opened = book.begin("test_book", threshold=3, feed_max=5, local_copy_s=0.0)
    yield opened
    opened.end()


@pytest.fixture(scope="module")
def shell():
    found = InteractiveShell.instance()
    found.run_line_magic("load_ext", "feedlab")
    yield found
    InteractiveShell.clear_instance()


def namespaces(addresses, like="nb_test_book%"):
    with db.connect(addresses.postgres_url, "public") as conn:
        return [n for n, in conn.execute("select nspname from pg_namespace where nspname like %s", (like,))]


def test_stations_by_hand(b):
    b.people(3)
    b.follow(0, 1, 2)
    lab = b.open()
    b.pump()
    assert lab.page(0).ids == []                                   # and the feed is there now
    made = b.post(1, n=3)
    assert lab.conn.execute("select count(*) from outbox").fetchone() == (3,)
    relay, fanout = b.stations()
    assert relay.once() == 3
    moved, handled = b.pump()
    assert (moved, handled) == (0, 3)
    assert lab.page(0).ids == [p.id for p in made[::-1]] and lab.page(0).explain.feed == "pushed"
    assert b.stations()[1] is fanout


def test_workers_take_over_from_the_stations_by_hand(b):
    b.people(3)
    b.follow(0, 1)
    b.pump()
    workers = b.run()
    post, = b.post(1)
    b.open().drain()
    assert b.open().page(0).ids == [post.id]
    workers.stop()
    b.post(1)
    assert b.pump() == (1, 1)


def test_a_graph_is_loaded_warm(b):
    path = b.settings.state_dir / "few.txt"
    path.write_text("1 2\n3 2\n1 3\n")
    graph = b.load(path, directed=True)
    lab = b.open()
    assert len(graph.users) == 3 and all(lab.redis.exists(lab.names.feed(u)) for u in (1, 2, 3))
    path.unlink()


def test_end_leaves_nothing(b, addresses):
    b.people(2)
    b.follow(0, 1)
    b.pump()
    b.run()
    b.fault("F3")
    children = psutil.Process().children(recursive=True)
    assert namespaces(addresses) and any("workers" in " ".join(p.cmdline()) for p in children)
    stopped = []
    b.on_end(lambda: stopped.append(1))
    b.end()
    b.end()
    assert stopped == [1] and namespaces(addresses) == [] and book.current is None
    assert not any(p.is_running() and "feedlab.lab.workers" in " ".join(p.cmdline()) for p in children if p.is_running())
    for call in (b.open, b.stations, lambda: b.on_end(print)):
        with pytest.raises(BadInput, match="has ended"):
            call()
    assert threading.active_count() < 20


def test_running_the_first_cell_again_starts_afresh(b, addresses):
    b.people(2)
    again = book.begin("test_book")
    try:
        assert b.stack is None and book.current is again
        assert again.open().conn.execute("select count(*) from users").fetchone() == (0,)
    finally:
        again.end()


def test_two_kernels_of_one_notebook_leave_each_other_alone(b, addresses):
    """For example a notebook and its learner's copy."""
    b.people(2)
    other = book.Book("test_book")
    try:
        assert (b.settings.namespace, other.settings.namespace) == ("nb_test_book", "nb2_test_book")
        other.open()
    finally:
        other.end()
    assert b.open().conn.execute("select count(*) from users").fetchone() == (2,)
    third = book.Book("test_book")
    assert third.settings.namespace == "nb2_test_book", "free again after end"
    third.end()


def test_only_its_own_namespaces_are_removed(b):
    with pytest.raises(BadInput, match="is not this notebook's"):
        b.also("feedlab")
    assert b.also("nb_test_book_more") in b.namespaces


def test_a_fault_side_by_side(b):
    outcome = b.fault("F3")
    assert outcome.verdicts["textbook"] and not outcome.verdicts["ours"]
    with pytest.raises(BadInput, match="there is no fault"):
        b.fault("F99")


def test_predictions_are_kept_until_the_cell_says_something_else(b, capsys):
    label = "writes, in a test"
    assert b.predict(label, 50, unit="writes").value == 50
    b.kept.keep(book.replace(b.kept.get(b.name, label), value=60))         # a hand on the control
    assert b.predict(label, 50, unit="writes").value == 60
    assert b.predict(label, 40, unit="writes").value == 40
    b.compare(label, 80)
    assert "you said 40, measured 80 writes, a factor of 2" in capsys.readouterr().out
    b.compare(label, 40.0)
    b.score()
    assert "mean score" in capsys.readouterr().out
    with pytest.raises(BadInput, match="nothing was predicted as 'other'"):
        b.compare("other", 1)


def test_a_sketched_curve(b, capsys):
    b.predict("a curve", {50: 1, 500: 2}, unit="writes")
    b.compare("a curve", {50: 1, 500: 2})
    assert "a curve: 10 of 10 over 2 points" in capsys.readouterr().out


def test_the_real_source_is_shown_with_its_place(b, capsys):
    b.source(posts.create)
    shown = capsys.readouterr().out
    assert shown.startswith("feedlab/posts.py, line ") and "def create(" in shown


# --- magics -----------------------------------------------------------------------------------------------------------------------

def test_the_magics_are_registered(shell):
    assert {"sql", "redis"} <= set(shell.magics_manager.magics["cell"])


def test_sql(b, capsys):
    b.people(30)
    frame = magics.sql("", "select id, name from users order by id;")
    assert list(frame.columns) == ["id", "name"] and len(frame) == magics.ROWS
    assert "the first 20 rows of 30" in capsys.readouterr().out
    magics.sql("--explain", "select * from users where id = 7")
    assert "Index Scan" in capsys.readouterr().out
    magics.sql("", "update users set name = 'x' where id = 7")
    assert capsys.readouterr().out == "UPDATE 1\n"
    magics.sql("", "select id from users where id = -1")
    assert capsys.readouterr().out == "no rows\n"


@pytest.mark.parametrize(("line", "cell", "says"), [
    ("", "selec 1", "PostgreSQL refuses: syntax error"), ("", " ; ", "no SQL statement"),
    ("--plan", "select 1", "knows --explain, not --plan"),
    ("", "select * from nowhere", 'relation "nowhere" does not exist')])
def test_bad_sql_is_one_sentence_and_the_connection_goes_on(b, line, cell, says):
    b.open()
    with pytest.raises(BadInput, match=says):
        magics.sql(line, cell)
    assert b.open().conn.execute("select 1").fetchone() == (1,)


def test_redis_commands(b, capsys):
    key = b.open().names.feed(99)
    magics.redis("", f"zadd {key} 5 a 6 b\n# a comment\nzrange {key} 0 -1\nget {key}x\n")
    assert capsys.readouterr().out == f"> zadd {key} 5 a 6 b\n2\n> zrange {key} 0 -1\n1) a\n2) b\n> get {key}x\n(nil)\n"
    for bad, says in (("zadd", "Redis refuses"), ("flushall", "more than this notebook's own keys"), ("CONFIG SET a b", "more than")):
        with pytest.raises(BadInput, match=says):
            magics.redis("", bad)


def test_magics_without_a_book_say_what_to_do():
    assert book.current is None
    with pytest.raises(FeedlabError, match="book.begin"):
        magics.sql("", "select 1")


def test_engine_errors_are_one_line_in_place(b, shell, capsys):
    magics.quiet_errors(shell)
    shell.push({"conn": b.open().conn})
    result = shell.run_cell("import redis; redis.Redis(port=1).ping()")
    out = capsys.readouterr().out
    assert not result.success and "ConnectionError: " in out and "Traceback" not in out
    shell.run_cell("from feedlab.errors import BadInput; raise BadInput('say it')")
    out = capsys.readouterr().out
    assert "BadInput: say it" in out and "Traceback" not in out


def test_the_contract_holds_in_a_book(b):
    """The kit adds nothing of its own to the way: pages of a small world by hand equal SQL."""
    b.people(6)
    for u in range(5):
        b.follow(u, 5, (u + 1) % 5)
    b.pump()
    for author in (5, 0, 1, 5, 5, 2, 5, 5, 5):
        b.post(author)
    b.pump()
    with open_lab(b.settings, b.addresses) as other:
        for u in range(6):
            assert other.page(u, limit=50).ids == [e.id for e in pull.everything(other.conn, u)]


def test_what_a_cell_makes_after_the_end_is_removed_by_another_end(b, addresses):
    """Running an earlier cell again, and the last one after it."""
    b.people(2)
    b.end()
    with open_lab(b.settings, addresses):
        pass
    assert namespaces(addresses)
    with pytest.raises(BadInput, match="has ended"):
        b.fault("F3")
    b.end()
    assert namespaces(addresses) == []


def test_predicting_again_keeps_the_score(b):
    label = "kept score, in a test"
    b.predict(label, 50)
    b.compare(label, 50)
    assert b.predict(label, 50).kept.score == 10 and b.kept.get(b.name, label).measured == 50
    assert b.predict(label, 51).kept.score is None


def test_a_connection_of_an_ended_book_says_so(b, shell, capsys):
    magics.quiet_errors(shell)
    shell.push({"conn": b.open().conn})
    b.end()
    shell.run_cell("conn.execute('select 1')")
    out = capsys.readouterr().out
    assert "Run the cells again" in out and "Traceback" not in out
