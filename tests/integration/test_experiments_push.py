"""What notebook 04 runs: counts exactly, and each experiment leaves feeds as it says."""
import pytest

from feedlab import pull
from feedlab.classroom import book
from feedlab.classroom.chapters import fanout_on_write


@pytest.fixture(scope="module")
def b(addresses):
    made = book.begin("t_push")
    yield made
    made.end()


def test_on_the_wire(b):
    assert fanout_on_write.wire(b, followers=7) == {"naive": {"trips": 7, "commands": 14}, "textbook": {"trips": 1, "commands": 14},
                                         "ours": {"trips": 1, "commands": 1}}
    assert list(b.open().redis.scan_iter(match=f"{b.settings.namespace}:ours:*")) == []


def test_rates_are_of_each_way_and_the_figure_says_so(b):
    found = fanout_on_write.rates(b, followers=20, feed_max=50, posts=20, rounds=1)
    assert set(found["points"]) == set(fanout_on_write.WAYS) and fanout_on_write.ratio(found, "ours", "ours") == 1
    assert "times as fast" in fanout_on_write.rates_figure(found).layout.title.text


def test_a_record_that_comes_twice(b):
    fanout_on_write.village(b, readers=4)
    before = b.open().stats()
    b.post(100, n=2)
    b.post(101)
    b.pump()
    assert fanout_on_write.gained(before, b.lab.stats()) == {"deliveries": 12, "added": 12}
    feeds = fanout_on_write.feeds(b)
    assert len(feeds) == 4 and all(len(rows) == 4 for rows in feeds.values())          # three posts and the floor
    assert fanout_on_write.again_by_kafka(b) == {"records": 11, "deliveries": 0, "added": 0}     # three posts, eight follows
    assert fanout_on_write.feeds(b) == feeds
    assert fanout_on_write.again_by_redis(b) == {"deliveries": 12, "added": 0}
    assert fanout_on_write.feeds(b) == feeds


def test_onto_an_evicted_feed(b):
    if not b.open().conn.execute("select count(*) from follows").fetchone()[0]:
        fanout_on_write.village(b, readers=4)
    assert fanout_on_write.onto_nothing(b, 2, 100) == {"textbook": 1, "ours": 0, "missing": 1}
    page = b.lab.page(2)
    assert page.explain.feed == "rebuilt" and page.ids == [e.id for e in pull.everything(b.lab.conn, 2)]


def test_the_slack(b):
    sizes = fanout_on_write.trimmed(b, feed_max=10, posts=40)
    assert {n for n, _ in sizes} == {10, 11} and all(n + below == 10 + k for k, (n, below) in enumerate(sizes, 1))
    assert "11 entries" in fanout_on_write.trimmed_figure(sizes, 10).layout.title.text

