"""Notebook 08's experiments: what they count is what the engines were asked, and each count can go wrong."""

import socket
from urllib.parse import urlparse

import pytest

from feedlab import celebrities, db, pull, timeline
from feedlab.celebrities import HEAD
from feedlab.classroom import book
from feedlab.classroom.chapters import celebrities as celebrity
from feedlab.classroom.chapters.celebrities import CELEBRITY, Herd, Watched, key_reads, resp_bytes
from feedlab.core.codec import member
from feedlab.errors import NotFound

READERS, POSTS = 30, 120


@pytest.fixture(scope="module")
def b(addresses):
    made = book.begin("t_exp_celeb", partitions=2)
    yield made
    made.end()


@pytest.fixture(scope="module")
def crowd(b):
    """The readers; everybody has posted, and all is delivered."""
    readers = celebrity.crowd(b.open(), READERS)
    celebrity.some_posts(b.open(), readers)
    celebrity.some_posts(b.open(), [CELEBRITY], POSTS)
    b.pump()
    return readers


@pytest.fixture
def key(b, crowd):
    """The celebrity's key, whole before and after each test."""
    lab = b.open()
    name = lab.names.celeb(CELEBRITY)
    yield name
    lab.redis.delete(name)
    ensure(lab)


def ensure(lab):
    celebrities.ensure(lab.conn, lab.redis, lab.names, CELEBRITY, db.knobs(lab.conn)["feed_max"], 30, 3_600)


def test_a_crowd_is_one_celebrity_and_a_ring(b, crowd):
    lab = b.open()
    assert all(celebrities.flagged(lab.conn, u) == [CELEBRITY] for u in crowd)
    assert (lab.stats()["pulled"], lab.stats()["deliveries"]) == (POSTS, READERS)
    page = lab.page(crowd[0], limit=50)
    assert (page.explain.feed, page.explain.flagged, page.explain.sources) == ("pushed", 1, 2)


# --- counting ---------------------------------------------------------------------------------------


def test_reads_of_one_key_are_noted_on_client_and_pipeline(b, key):
    lab, log, answered = b.open(), [], []
    r = Watched(lab.redis, key, log, lambda: answered.append(len(log)))
    timeline.read(r, key, n=3)
    timeline.read(r, lab.names.feed(1), n=3)
    assert (log, answered) == (["fcall_ro"], [1])
    pipe = r.pipeline(transaction=False)
    timeline.read(pipe, lab.names.feed(1), n=3)
    timeline.read(pipe, key, n=3)
    assert len(log) == 2 and answered == [1]  # queued, not answered
    feed, head = map(timeline.parse, pipe.execute())
    assert len(answered) == 2 and feed.exists and len(head.entries) == 3
    assert r.exists(key) == 1 and log[-1] == "exists" and r.ttl(key) > 0 and len(log) == 3


def test_without_copies_every_page_reads_the_key(b, crowd):
    hot = celebrity.hot_key(b.open(), crowd, 60, processes=3, copy_s=0)
    assert (hot.pages, hot.reads, hot.wrong, len(hot.at)) == (60, 60, 0, 60) and hot.at == sorted(hot.at)


@pytest.mark.parametrize("processes", [1, 3])
def test_within_the_life_of_a_copy_each_process_reads_once(b, crowd, processes):
    hot = celebrity.hot_key(b.open(), crowd, 60, processes, copy_s=3, seconds=2.3)
    assert (hot.reads, hot.wrong) == (processes, 0)


@pytest.mark.parametrize("seed", [1, 2])
def test_copies_bound_the_reads_whatever_the_pages(b, crowd, seed):
    for pages in (40, 120):
        hot = celebrity.hot_key(b.open(), crowd, pages, processes=2, copy_s=1, seconds=10, seed=seed)
        assert 2 * 9 - 4 <= hot.reads <= 2 * 13, hot  # a copy lives 0.8 to 1 s, and ends at the next page of its process
        assert hot.wrong == 0


def test_a_page_that_is_not_the_sql_answer_is_noticed(b, crowd, key):
    lab = b.open()
    newest = pull.newest(lab.conn, [CELEBRITY], limit=1)[0]
    lab.redis.zrem(key, member(newest.id))
    assert celebrity.hot_key(lab, crowd, 10, copy_s=0).wrong == 2


def test_copies_never_make_more_reads_than_there_are_pages():
    assert key_reads(10, processes=200, copy_s=3) == 10
    assert key_reads(1_000, processes=200, copy_s=4, servers=2) == 25
    assert key_reads(1_000) == 1_000


# --- what a read costs --------------------------------------------------------------------------------


def test_the_bytes_of_an_answer_are_those_on_the_wire(b, key):
    """The same question over a plain socket, up to the last byte."""
    lab = b.open()
    answer = timeline.read(lab.redis, key, n=7)
    url = urlparse(lab.addresses.redis_url)
    if url.scheme != "redis" or url.password:
        pytest.skip("a Redis behind TLS or a password")
    asked = [f"{timeline.LIBRARY}_read", "1", key, str(timeline.START.ms), member(timeline.START.id), "7"]
    with socket.create_connection((url.hostname, url.port), 5) as s:
        command = ["FCALL_RO", *asked]
        s.sendall((f"*{len(command)}\r\n" + "".join(f"${len(x)}\r\n{x}\r\n" for x in command)).encode())
        got = b""
        while len(got) < resp_bytes(answer):
            more = s.recv(65_536)
            assert more, got
            got += more
        s.settimeout(0.05)
        with pytest.raises(TimeoutError):
            got += s.recv(1)  # nothing more
    assert len(got) == resp_bytes(answer)


def test_a_read_takes_the_head_and_no_more(b, key):
    one = celebrity.read_cost(b.open(), calls=20)
    assert one["entries"] == HEAD < POSTS
    assert one["bytes"] > HEAD * (19 + 13) and one["us"] > 0 and one["bytes_memory"] > 0
    assert celebrity.page_ratio(b.open(), 1, rounds=5) > 0


# --- age ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copy_s", [1.0, 3.0])
def test_a_copy_is_late_by_its_age_at_most_and_never_shows_what_is_deleted(b, crowd, copy_s):
    lab = b.open()
    seen = celebrity.staleness(lab, crowd[3], lambda: celebrity.some_posts(lab, [CELEBRITY])[0], b.pump, copy_s)
    assert seen["other_s"] == 0 and seen["hidden_at_once"]
    assert 0.8 * copy_s <= seen["late_s"] <= copy_s + 0.1 + 1e-9


# --- herds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 12])
def test_the_textbook_rebuilds_once_a_reader_ours_once(b, crowd, key, n):
    lab = b.open()
    lab.conn.execute("delete from outbox")
    there = lab.conn.execute("select count(*) from posts where author_id = 0 and not deleted").fetchone()[0]
    assert celebrity.herd(lab, crowd[:n], "textbook") == Herd(n, n, n * there, 0, 0, 0)
    ours = celebrity.herd(lab, crowd[:n], "ours")
    assert (ours.rebuilds, ours.rebuild_rows, ours.wrong) == (1, there, 0)
    assert n <= ours.small <= 2 * n and 20 * n <= ours.small_rows <= 60 * n  # nobody waits for the builder
    assert celebrity.herd(lab, crowd[:n], "ours", cold=False) == Herd(n, 0, 0, 0, 0, 0)
    assert list(lab.redis.scan_iter(match=f"{lab.settings.namespace[:16]}_textbook:*", count=1000)) == []


def test_the_consumer_writes_the_key_before_any_reader_asks(b, crowd, key):
    lab = b.open()
    lab.redis.delete(key)
    celebrity.some_posts(lab, [CELEBRITY])
    b.pump()
    assert lab.redis.exists(key) and celebrity.herd(lab, crowd[:5], cold=False).small == 0


def test_a_reader_that_fails_ends_the_herd_with_its_own_error(b, crowd):
    with pytest.raises(NotFound, match="no user 999"):
        celebrity.herd(b.open(), [*crowd[:3], 999])


def test_equal_ages_come_back_together_jitter_spreads_them():
    assert celebrity.worst_moment(50, jitter=False) == 50
    assert celebrity.worst_moment(200) < 200 / 3
    assert celebrity.worst_moment(200, within_s=3.0) >= 200  # over a whole life of a copy, everybody


# --- figures --------------------------------------------------------------------------------------------


def test_figures_say_what_was_found():
    herds = [("the textbook", Herd(20, 20, 600, 0, 0, 0)), ("ours", Herd(20, 1, 30, 20, 400, 0))]
    fig = celebrity.herd_figure(herds)
    assert fig.layout.title.text == "20 readers find it cold: the textbook rebuilds it 20 times, ours rebuilds it 1 time"
    assert [list(t.x) for t in fig.data] == [[600, 30], [0, 400]]
    fig = celebrity.crowd_figure([10, 100], [10, 100], [8, 12], 4, 3)
    assert "10 times the pages make 1.5 times the reads" in fig.layout.title.text
    assert list(celebrity.answers_figure(100_000, 200, 4).data[0].x) == [100_000, 10_000, 50]
