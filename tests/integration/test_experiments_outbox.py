"""Notebook 10's experiments: exact counts of what is lost, repeated and out of order, on both systems; the outbox is left empty."""

import threading

import pytest
from conftest import until

from feedlab import db, kafka, outbox, posts, pull
from feedlab.classroom import book
from feedlab.classroom.chapters import outbox as x
from feedlab.classroom.chapters.outbox import Contended, Crash
from feedlab.core.codec import Event, member
from feedlab.errors import EngineDown, FeedlabError

SYSTEMS = ("textbook", "ours")
READER, AUTHORS = 0, [1, 2, 3]


@pytest.fixture(scope="module")
def b(addresses):
    made = book.begin("t_exp_outbox", partitions=2)
    made.people(10)
    made.follow(READER, *AUTHORS)
    made.pump()
    made.open().page(READER)
    yield made
    made.end()


@pytest.fixture
def lab(b):
    """Nothing waits before a test, and an experiment leaves nothing waiting."""
    b.pump()
    yield b.open()
    assert outbox.depth(b.open().conn) == 0 and "textbook_last" not in db.knobs(b.open().conn)


def write(lab, *authors):
    return [posts.create(lab.conn, lab.ids, lab.names, a, f"by {a}") for a in authors]


# --- reading back -------------------------------------------------------------------------------------


def test_what_is_read_back_is_what_came_since(b, lab):
    write(lab, 1)
    b.pump()
    since = x.begin(lab)
    assert x.events(lab, since) == []
    made = write(lab, 1, 2, 1, 3, 1)
    b.pump()
    got = x.events(lab, since)
    assert sorted(e.post for e in got) == [p.id for p in made]
    assert [e.post for e in got if e.author == 1] == [p.id for p in made if p.author_id == 1]
    assert x.backwards(got) == 0


def test_a_topic_that_stays_short_is_said(b, lab, monkeypatch):
    since = {f: n - 1 for f, n in x.begin(lab).items()}  # as if a record more had to be there
    monkeypatch.setattr(kafka, "end_offsets", lambda *_: {f: n + 5 for f, n in since.items()})
    with pytest.raises(EngineDown, match="could be read back in 0 s"):
        x.events(lab, since, timeout_s=0.3)


@pytest.mark.parametrize(
    "order,n", [([], 0), ([1, 2, 3], 0), ([1, 1, 2, 2], 0), ([2, 1], 1), ([1, 2, 3, 1, 2, 3], 2), ([3, 2, 1], 2)]
)
def test_backwards_counts_what_is_behind_a_younger_one(order, n):
    assert x.backwards([Event("posted", author=7, post=i) for i in order]) == n
    mixed = [Event("posted", author=a, post=p) for a, p in [(1, 5), (2, 1), (1, 6), (2, 2)]]
    assert x.backwards(mixed) == 0  # of different authors there is no order


# --- a crash --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n,dies_at", [(5, 3), (1, 1)])
def test_a_crash_between_the_two_steps(b, lab, n, dies_at):
    got = x.crashes(lab, [4, 5, 6], n, dies_at)
    assert got == [
        Crash("commit, then send", n, n - 1, 1, 0),
        Crash("send, then commit", n - 1, n, 0, 1),
        Crash("outbox", n, n, 0, 0),
    ]
    assert "2 of 3 ways" in x.crash_figure(got).layout.title.text
    b.pump()


def test_a_writer_that_is_not_killed_is_said(lab, monkeypatch):
    monkeypatch.setattr(x, "_env", lambda lab: {"PATH": ""})  # the child finds no engine
    with pytest.raises(FeedlabError, match="not killed as they should"):
        x.crashes(lab, [4, 5, 6], 2, 1)


def test_the_first_gap_names_page_and_post(b, lab):
    made = write(lab, *[1, 2] * 6)
    b.pump()
    assert x.first_gap(lab, READER) == ""
    feed, before = lab.names.feed(READER), len(pull.everything(lab.conn, READER))
    lab.redis.zrem(feed, member(made[-7].id))
    assert x.first_gap(lab, READER, limit=5) == "user 0, page 2: 'by 2' is missing"
    lab.redis.delete(feed)
    assert x.first_gap(lab, READER) == ""
    last = pull.everything(lab.conn, READER)[-1]
    lab.redis.zrem(feed, member(last.id))
    assert x.first_gap(lab, READER, limit=before) == "user 0: 'by 1' is missing at the end"
    lab.redis.delete(feed)


def test_a_post_too_many_is_named_too(b, lab, monkeypatch):
    made = write(lab, 1, 1)
    b.pump()
    want = pull.everything(lab.conn, READER)
    monkeypatch.setattr(pull, "everything", lambda *_: [e for e in want if e.id != made[0].id])
    assert x.first_gap(lab, READER, limit=5) == f"user 0, page 1: post {made[0].id} should not be there"


# --- a late commit ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_row_that_commits_late(lab, system):
    late = x.late_commit(lab, system, early=7, late=8)
    (slow, *first), (quick, *second) = late.rows
    assert slow < quick
    never = system == "textbook"
    assert first == ["the slow one", "2nd", "never" if never else "2nd"]
    assert second == ["the quick one", "1st", "1st"] and late.lost == never


@pytest.mark.parametrize("system", SYSTEMS)
def test_writers_at_once(lab, system):
    got = x.contended(lab, system, [4, 5, 6, 7], each=25)
    assert got.committed == 101 and got.sent + got.lost == got.committed
    if system == "ours":
        assert (got.lost, got.records) == (0, 101)
    else:
        assert got.lost > 0 and got.records == got.sent
    assert got.polls > 3  # the relay was at it while they wrote


def test_a_writer_that_fails_is_not_swallowed(lab):
    with pytest.raises(FeedlabError, match="no user 999"):
        x.contended(lab, "ours", [4, 999], each=2)


# --- two relays -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("authors,each,batch", [([4, 5, 6], 10, 10), ([4], 6, 2)])
def test_two_relays_that_meet(lab, authors, each, batch):
    n = len(authors) * each
    ours = x.two_relays(lab, "ours", authors, each, batch)
    assert (ours.posts, ours.records, ours.repeats, ours.backwards) == (n, n, 0, 0)
    assert ours.first + ours.second == n
    textbook = x.two_relays(lab, "textbook", authors, each, batch)
    # the second sends all; the first its batch, and, since it has set `last` back, all that follows once more
    assert (textbook.records, textbook.repeats) == (2 * n, n) and textbook.backwards > 0
    assert (textbook.first, textbook.second) == (n, n)


def test_dying_before_the_delete_repeats_and_changes_nothing(b, lab):
    b.follow(9, 8)
    b.pump()
    lab.page(9)
    relay, _ = b.stations()
    assert x.resent(lab, relay, 8, b.pump) == {"left": 1, "records": 2, "deliveries": 2, "added": 1}
    assert isinstance(relay.conn, type(lab.conn))  # the relay has its own connection again


# --- being woken ------------------------------------------------------------------------------------------


def test_being_woken_beats_looking(b, lab):
    before = threading.active_count()
    took = x.wakeups(lab, 4, n=4, poll_s=0.3)
    assert len(took["notify"]) == len(took["poll"]) == 4 and min(*took["notify"], *took["poll"]) > 0
    assert sum(took["poll"]) > 2 * sum(took["notify"])
    until(lambda: threading.active_count() <= before, what="the end of the relay's thread")
    assert "times as long as being woken" in x.wake_figure(took, 0.3).layout.title.text


def test_no_relay_no_endless_wait(b, lab, monkeypatch):
    monkeypatch.setattr(x.Relay, "once", lambda self: 0)
    with pytest.raises(EngineDown, match="did not move a row"):
        x.wakeups(lab, 4, n=1, timeout_s=0.5)
    lab.conn.execute("delete from outbox")


def test_figures_say_what_was_found():
    rows = [("textbook", Contended(121, 113, 113, 8, 30)), ("ours", Contended(121, 121, 121, 0, 30))]
    fig = x.contended_figure(rows)
    assert fig.layout.title.text == "Of 121 committed posts 8 are never sent, and nothing has crashed"
    assert list(fig.data[0].x) == [8, 0]
