"""Notebook 03's experiments, over HTTP on a live server: retries, pagers, cursors that are none."""

import logging

import pytest

from feedlab import pull
from feedlab.classroom import book
from feedlab.classroom.chapters import api
from feedlab.core import cursor
from feedlab.verify import faults


@pytest.fixture(scope="module")
def b(addresses):
    made = book.begin("t_http")
    made.people(12)
    yield made
    made.end()


@pytest.fixture(scope="module")
def url(b):
    return api.serve(b)


@pytest.fixture(scope="module")
def textbook(b):
    return api.serve(b, textbook=True)


@pytest.fixture(scope="module")
def users():
    """Users that no other test has."""
    return iter(range(1, 12))


@pytest.fixture
def pair(url, users):
    """A reader who follows an author, and nobody else."""
    reader, author = api.Client(url, next(users)), api.Client(url, next(users))
    assert reader.follow(author.user).status == 204
    return reader, author


# --- the client ------------------------------------------------------------------------------------


def test_answers(url):
    client = api.Client(url, 0)
    made = client.post("hello")
    assert made.status == 201 and made.body["content"] == "hello" and '"content": "hello"' in repr(made)
    assert client.delete(made.body["id"]) == api.Answer(204, {})
    refused = client.feed(limit=0)
    assert refused.status == 422 and repr(refused).startswith("422 ") and "limit" in repr(refused)
    assert client.feed(include="self").status == 200


def test_nobody_listens():
    with pytest.raises(OSError):
        api.Client("http://127.0.0.1:1", 0).feed()


# --- retries ----------------------------------------------------------------------------------------


def test_a_key_makes_one_post_of_many_tries(b, url):
    client = api.Client(url, 0)
    answers = api.retried(client, "once", key="k", n=6)
    assert len(answers) == 6 and len({(a.status, a.body["id"]) for a in answers}) == 1
    assert api.posts_of(b.open(), 0, "once") == 1
    assert len({a.body["id"] for a in api.retried(client, "often", key=None, n=6)}) == 6
    assert api.posts_of(b.open(), 0, "often") == 6
    assert client.post("another", key="k").status == 409


# --- pagers -------------------------------------------------------------------------------------------


def test_new_posts_repeat_by_offset(b, pair):
    p = api.scroll_while(b.open(), *pair, posts=20, limit=5, new=3)
    assert p.repeats == (3 * 3, 0) and p.missing == (0, 0)  # three gaps between the cursor's four pages
    assert p.cursor.pages == ((20, 19, 18, 17, 16), (15, 14, 13, 12, 11), (10, 9, 8, 7, 6), (5, 4, 3, 2, 1))
    assert p.offset.pages[1][:3] == p.offset.pages[0][-3:] and "page 2 repeats post 18" in str(p)
    figure = api.pagers_figure(p)
    assert "9 posts shown again" in figure.layout.title.text
    assert [len(t.x) for t in figure.data if "again" in t.name] == [9]


def test_deleted_posts_are_skipped_by_offset(b, pair):
    p = api.scroll_while(b.open(), *pair, posts=20, limit=5, new=0, gone=2)
    assert p.offset.pages[1] == (13, 12, 11, 10, 9)  # 20 and 19 are gone: 15 and 14 moved up unseen
    assert p.repeats == (0, 0) and p.missing[0] >= 4 and p.missing[1] == 0 and p.cursor.verdicts == ()


def test_nothing_changes_nothing_differs(b, pair):
    p = api.scroll_while(b.open(), *pair, posts=7, limit=3, new=0)
    assert p.offset.pages == p.cursor.pages == ((7, 6, 5), (4, 3, 2), (1,))
    assert p.offset.verdicts == ()


def test_depth(b, users):
    lab, user = b.open(), next(users)
    api.long_feed(lab, user, authors=4, each=200)
    assert len(pull.everything(lab.conn, user)) == 800
    found = api.depth(lab, user, pages=(1, 5, 20), limit=10)
    page = found[1][1]
    assert 4 + 4 * 10 <= page < 80 and found[1] == (page, page)  # the follows (all: the table is small), and ten of each
    assert found[20] == (page + 4 * 190, page)  # all that the four have, against the next ten of each
    assert found[1][0] < found[5][0] < found[20][0]
    assert f"{found[20][0]:,} rows by offset" in api.depth_figure(found).layout.title.text


def test_the_offset_page_is_the_same_page(b, pair):
    """The comparison is fair: both queries answer the same while nothing changes."""
    lab, (reader, author) = b.open(), pair
    for i in range(5):
        author.post(str(i))
    rows = lab.conn.execute(api.OFFSET_PAGE, {"user": int(reader.user), "limit": 2, "offset": 2}).fetchall()
    assert [str(i) for _, i in rows] == [p["id"] for p in reader.feed(limit=5).body["items"][2:4]]


# --- cursors that are none -------------------------------------------------------------------------------


def test_ours_refuses_what_the_textbook_falls_over(url, textbook):
    ours = api.statuses(api.Client(url, 0), faults.BAD_CURSORS)
    theirs = api.statuses(api.Client(textbook, 0), faults.BAD_CURSORS)
    assert set(ours) == set(theirs) == set(faults.BAD_CURSORS)
    assert set(ours.values()) == {400}
    assert {c for c, status in theirs.items() if status == 200} == {"-1:5", "1764500000000:99999999999999999999"}
    assert list(theirs.values()).count(500) == 8
    figure = api.statuses_figure({"ours": ours, "textbook": theirs})
    assert "10 of 10 malformed cursors are a 400" in figure.layout.title.text
    assert [sum(t.x[i] for t in figure.data) for i in (0, 1)] == [10, 10]


def test_a_good_cursor_is_good_for_both(b, textbook, pair):
    reader, author = pair
    ids = [author.post(str(i)).body["id"] for i in range(4)]
    for client in (reader, api.Client(textbook, reader.user)):
        first = client.feed(limit=2).body
        assert [p["id"] for p in first["items"]] == ids[:1:-1]
        assert cursor.text(cursor.parse(first["nextCursor"])) == first["nextCursor"]
        assert [p["id"] for p in client.feed(first["nextCursor"], limit=2).body["items"]] == ids[1::-1]


def test_what_the_textbook_logs_of_its_500_is_not_shown(textbook):
    shown = []
    handler = logging.Handler()
    handler.emit = shown.append
    logging.getLogger().addHandler(handler)
    try:
        assert api.Client(textbook, 0).feed("...").status == 500
    finally:
        logging.getLogger().removeHandler(handler)
    assert shown == []


def test_servers_end_with_their_context(b):
    log = logging.getLogger("feedlab.http.app")
    before = log.propagate, list(log.handlers)
    with api.in_thread_textbook(b.settings, b.addresses) as at:
        client = api.Client(at, 0)
        assert client.feed().status == 200
    assert (log.propagate, list(log.handlers)) == before
    with pytest.raises(OSError):
        client.feed()
