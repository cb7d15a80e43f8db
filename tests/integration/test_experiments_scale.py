"""Notebook 01's experiments: the sheet says what the article says, and what is measured is measured on the engines."""

import json

import numpy as np
import pytest
from conftest import running

from feedlab import posts
from feedlab.classroom.chapters import requirements_and_scale
from feedlab.config import project_root
from feedlab.core import cost
from feedlab.core.cost import Sheet
from feedlab.lab.graph import from_edges, load_graph
from feedlab.lab.world import Activity

LAB = {"feed_max": 500, "threshold": 10_000}


def keys(lab):
    return list(lab.redis.scan_iter(match=f"{lab.settings.namespace}:*"))


# --- the sheet ---------------------------------------------------------------------------------------


def test_the_notebook_prints_the_sheet():
    """The table in the notebook's prose is what the code makes of the article's numbers."""
    book = json.loads((project_root() / "notebooks" / "01_requirements_and_scale.ipynb").read_text())
    prose = "\n".join("".join(c["source"]) for c in book["cells"] if c["cell_type"] == "markdown")
    for row in requirements_and_scale.rows(Sheet()):
        assert "| " + " | ".join(row) + " |" in prose


def test_the_sheet_as_text_and_as_html():
    shown = requirements_and_scale.show(Sheet(users=1e6))
    assert "1 M users x 10 a day" in repr(shown) and shown._repr_html_().count("<tr>") == len(shown.rows) + 1


@pytest.mark.parametrize("x, said", [(0, "0"), (999, "999"), (1_000, "1 K"), (9_940, "9.9 K"), (45e9, "45 G"), (6e12, "6 T")])
def test_numbers_as_one_says_them(x, said):
    assert requirements_and_scale.big(x) == said


def test_a_moved_sheet():
    moved = requirements_and_scale.moved(Sheet(), users=30e6, feed_max=100)
    assert (moved.users, moved.feed_max, moved.feeds) == (30e6, 100, 20e6)
    assert requirements_and_scale.moved(Sheet()) == Sheet()


def test_the_estimator_computes_again_when_a_slider_moves():
    box = requirements_and_scale.estimator()
    sliders, out = dict(zip(requirements_and_scale.CONTROLS, box.children[0].children, strict=True)), box.children[1]

    def text():
        return out.outputs[0]["data"]["text/plain"]
    assert [s.description for s in sliders.values()] == [label for label, _ in requirements_and_scale.CONTROLS.values()]
    assert {name: s.value for name, s in sliders.items()} == {name: getattr(Sheet(), name) for name in sliders}
    assert text() == repr(requirements_and_scale.show())
    sliders["followers"].value = 200.0
    assert "30 G a day" in text() and "6 TB" in text()
    sliders["feed_max"].value = 100
    assert "30 G a day" in text() and "1.2 TB" in text() and "1.2 TB" in out.outputs[0]["data"]["text/html"]
    for slider in sliders.values():  # the ends of every slider are figures, too
        for _, value in (slider.options[0], slider.options[-1]):
            slider.value = value
            assert "nan" not in text() and "inf" not in text()


# --- memory -------------------------------------------------------------------------------------------


def test_feeds_are_built_weighed_and_removed(lab):
    said = []
    long, short = requirements_and_scale.build_feeds(lab, 500, n=3, say=lambda *now: said.append(now)), requirements_and_scale.build_feeds(lab, 100, n=3)
    assert (long.encoding, short.encoding) == ("skiplist", "listpack") and len(said) == 3
    assert long.entry_bytes > 60 > short.entry_bytes
    for feeds in (long, short):
        assert feeds.bytes == pytest.approx(cost.timeline_bytes(feeds.entries, requirements_and_scale.layout(lab)), rel=0.25)
    assert long.total(Sheet(feeds=10)) == 10 * long.bytes
    assert keys(lab) == []
    assert "The sheet says 6 TB" in requirements_and_scale.memory_figure([long, short]).layout.title.text


# --- work --------------------------------------------------------------------------------------------


def test_deliveries_are_counted_one_a_feed_and_post(lab):
    rate = requirements_and_scale.deliver_for(lab, seconds=0.2, feeds=50, feed_max=3)
    assert rate.n % 50 == 0 and rate.n > 5 * 50 and rate.seconds >= 0.2
    assert rate.a_second == rate.n / rate.seconds
    assert keys(lab) == [] and lab.stats() == {}


def test_seconds_of_a_post():
    seconds = requirements_and_scale.reach(requirements_and_scale.Rate(100_000, 1.0), Sheet(), threshold=10_000)
    assert seconds == {"300 followers": 0.003, "10 K followers": 0.1, "50 M followers": 500.0}
    figure = requirements_and_scale.reach_figure(seconds)
    assert "500 s" in figure.layout.title.text and list(figure.data[0].y) == list(seconds)


# --- two means -----------------------------------------------------------------------------------------


@pytest.fixture
def loaded(lab):
    """User 1 is followed by 2 to 9, user 2 by nobody."""
    graph = from_edges(np.arange(2, 10), np.full(8, 1), True, "test")
    load_graph(lab.conn, graph)
    yield lab, graph
    lab.conn.execute("truncate users, posts, outbox, follows, user_activity, follower_counts")
    lab.redis.delete(*(keys(lab) or ["-"]))


def test_the_consumer_counts_what_sql_counts(loaded):
    lab, graph = loaded
    requirements_and_scale.write(lab, [1, 1, 2, 1])
    assert requirements_and_scale.feed_writes(lab) == (0, 3 * 8)  # nothing has been relayed yet
    with running(lab):
        lab.drain()
    assert requirements_and_scale.feed_writes(lab) == (24, 24)
    assert lab.conn.execute("select count(*) from posts").fetchone() == (4,)


def test_an_absent_follower_is_not_written_to(loaded):
    lab, _ = loaded
    lab.conn.execute("delete from user_activity where user_id = 5")
    posts.create(lab.conn, lab.ids, lab.names, 1, "hello")
    assert requirements_and_scale.feed_writes(lab)[1] == 7


def test_the_mean_user_and_the_mean_post(loaded):
    _, graph = loaded
    act = Activity(graph.users, np.array([2.0, *[0.0] * 8]), np.ones(9))
    by_user, by_post = requirements_and_scale.two_means(graph, act)
    assert (by_user, by_post) == (pytest.approx(8 / 9), 8.0)
    assert "took 7 feed writes" in requirements_and_scale.means_figure(by_user, by_post, 7.0).layout.title.text
