"""Notebook 06's experiment on a small graph: what the consumer counts is what the graph says, at every threshold."""
import numpy as np
import pytest

from feedlab.classroom import book
from feedlab.classroom.chapters import hybrid
from feedlab.lab import world

THRESHOLDS = [1_000, 40, 20, 10]


@pytest.fixture(scope="module")
def swept(addresses):
    b = book.begin("test_hybrid", local_copy_s=0.0)
    graph = b.load(world.generate(seed=3, users=150, celebrities=2))
    b.run()
    yield graph, hybrid.sweep(b, graph, THRESHOLDS, n=30, readers=15)
    b.end()


def test_feed_writes_are_a_count(swept):
    graph, points = swept
    assert [p.deliveries for p in points] == [p.expected for p in points]
    writes = [round(w * 30) for _, w, _ in hybrid.expected(graph, THRESHOLDS, n=30, readers=15)]
    assert [p.deliveries for p in points] == writes and writes == sorted(writes, reverse=True) and writes[0] > writes[-1]


def test_pulls_are_a_count_too(swept):
    graph, points = swept
    assert [p.pulls for p in points] == pytest.approx([x for _, _, x in hybrid.expected(graph, THRESHOLDS, n=30, readers=15)])
    assert points[0].pulls == 0 < points[-1].pulls and [p.sources for p in points] == pytest.approx([1 + p.pulls for p in points])


def test_pages_do_not_change(swept):
    assert all(p.equal == p.checked == 15 for p in swept[1])


def test_the_cheapest_threshold_rises_with_reads(swept):
    graph, points = swept
    curve = hybrid.model(graph, [5, 10, 20, 40, 80, 150])
    best = [min(hybrid.total(curve, n), key=lambda p: p[1])[0] for n in (0, 1, 5, 50)]
    assert best == sorted(best) and best[0] == 5 and best[-1] == 150


def test_the_model_is_the_mean_over_many_draws(swept):
    graph, _ = swept
    (_, modelled, _), = hybrid.model(graph, [40])
    (_, drawn, _), = hybrid.expected(graph, [40], n=20_000)
    assert drawn == pytest.approx(modelled, rel=0.05)


def test_figures(swept):
    graph, points = swept
    fig = hybrid.both_costs(points, hybrid.expected(graph, THRESHOLDS))
    assert len(fig.data) == 4 and list(fig.data[2].x) == THRESHOLDS and "feed writes a post" in fig.layout.title.text
    curve = hybrid.model(graph, np.array([5, 50]))
    assert len(hybrid.total_cost({"a": hybrid.total(curve, 1), "b": hybrid.total(curve, 20)}).data) == 3
