"""The hybrid: what moving the threshold costs and saves, on the running consumer (notebook 06)."""
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ... import db, posts, pull
from ...core import cost
from ...draw import plots
from ...lab import world
from ...lab.graph import Graph
from ...reader import scroll
from .. import widgets


@dataclass(frozen=True)
class Point:
    """What one setting of the threshold did. `deliveries` is what the consumer counted, `expected` the sum over the graph; `sources` and
    `pulls` are means a page over the readers; `equal` of `checked` scrolls were the SQL answer."""
    threshold: int
    posts: int
    deliveries: int
    expected: int
    sources: float
    pulls: float
    equal: int
    checked: int

    @property
    def writes_a_post(self) -> float:
        return self.deliveries / self.posts


def drawn(graph: Graph, n: int, readers: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Who posts, (n,), weighted by posts a day, and who reads, (readers,), each once; user ids."""
    return (world.draw_posts(world.activity(graph, seed), n, seed),
            np.random.default_rng(seed).choice(graph.users, readers, replace=False))


def sweep(b, graph: Graph, thresholds: Sequence[int], n: int = 60, readers: int = 25, seed: int = 1) -> list[Point]:
    """Move the running consumer's threshold through `thresholds`; at each the same authors post `n` times, and after the queues are
    drained `readers` users scroll to the end. The book must have been loaded with `graph`, and its workers must run."""
    widgets.stop_all()             # an explorer's workload in the same namespace would be counted too
    lab, points = b.open(), []
    authors, users = (a.tolist() for a in drawn(graph, n, readers, seed))
    for done, threshold in enumerate(thresholds):
        b.progress("moving the threshold", done, len(thresholds))
        db.set_knobs(lab.conn, threshold=int(threshold))
        before = lab.stats().get("deliveries", 0)
        for author in authors:
            posts.create(lab.conn, lab.ids, lab.names, author, f"under a threshold of {threshold}")
        lab.drain()
        deliveries = lab.stats().get("deliveries", 0) - before
        explained, equal = [], 0
        for user in users:
            pages = list(scroll(lambda c, user=user: lab.page(user, c, 50)))
            explained.append(pages[0].explain)
            equal += [i for page in pages for i in page.ids] == [e.id for e in pull.everything(lab.conn, user)]
        points.append(Point(int(threshold), n, deliveries, world.expected_deliveries(graph, np.array(authors), int(threshold)).hybrid,
                            float(np.mean([e.sources for e in explained])), float(np.mean([e.flagged for e in explained])), equal, readers))
    b.progress.close()
    return points


def expected(graph: Graph, thresholds: Sequence[int], n: int = 60, readers: int = 25, seed: int = 1) -> list[tuple[int, float, float]]:
    """(threshold, feed writes a post, pulled authors a page), counted from the graph for the very posts and readers of `sweep`."""
    authors, users = drawn(graph, n, readers, seed)
    at = np.isin(graph.followee, authors) & np.isin(graph.follower, users)
    of = graph.followers[np.searchsorted(graph.users, graph.followee[at])]       # followers of the author of each such follow
    return [(int(t), world.expected_deliveries(graph, authors, int(t)).write_amplification, float((of >= t).sum() / readers))
            for t in thresholds]


def model(graph: Graph, thresholds: Sequence[int], seed: int = 1) -> list[tuple[int, float, float]]:
    """The same in the long run: by the cost model, over all authors with the rates of `world.activity`, once each has posted."""
    act, f = world.activity(graph, seed), graph.followers
    return [(int(t), float(cost.write_amplification(act.posts, f, f < t)), cost.pulls_a_page(f, f >= t, len(graph.users)))
            for t in thresholds]


def both_costs(points: Sequence[Point], curve: Sequence[tuple[int, float, float]] = ()):
    """Feed writes a post and pulled authors a page against the threshold, one above the other: measured points on the lines that
    `expected` counted from the graph."""
    first, last = points[0], points[-1]
    fig = plots.figure(f"Threshold {first.threshold:,} to {last.threshold:,}: {plots.number(first.writes_a_post)} to "
                       f"{plots.number(last.writes_a_post)} feed writes a post, {plots.number(first.pulls)} to "
                       f"{plots.number(last.pulls)} authors pulled a page", "threshold: followers from which an author is pulled (log)",
                       "feed writes")
    if curve:
        x = [c[0] for c in curve]
        fig.add_scatter(x=x, y=plots.rounded(np.array([c[1] for c in curve])), name="feed writes, by the graph", mode="lines",
                        line={"color": plots.BLUE, "dash": "dot"})
        fig.add_scatter(x=x, y=plots.rounded(np.array([c[2] for c in curve])), name="pulled authors, by the graph", mode="lines",
                        yaxis="y2", line={"color": plots.VERMILLION, "dash": "dot"})
    x = [p.threshold for p in points]
    fig.add_scatter(x=x, y=[p.writes_a_post for p in points], name="feed writes, measured", mode="markers",
                    cliponaxis=False,
                    marker={"color": plots.BLUE, "size": 12})
    fig.add_scatter(x=x, y=[p.pulls for p in points], name="pulled authors, measured", mode="markers", yaxis="y2",
                    cliponaxis=False,
                    marker={"color": plots.VERMILLION, "size": 12, "symbol": "diamond"})
    fig.update_xaxes(type="log", tickvals=x, ticktext=[f"{t:,}" for t in x], anchor="y2")
    return fig.update_layout(height=440, yaxis={"rangemode": "tozero", "domain": [0.54, 1]},
                             yaxis2={"rangemode": "tozero", "domain": [0, 0.46], "title": {"text": "authors pulled"},
                                     "gridcolor": "rgba(127,127,127,0.25)"})


def total(curve: Sequence[tuple[int, float, float]], reads_a_post: float = 20.0, pull_cost: float = 1.0) -> list[tuple[int, float]]:
    """(threshold, cost a post) in units of one feed write: its feed writes, plus the pulls of the pages read per post. A pull is
    taken as `pull_cost` feed writes; 20 reads a post are the article's (section 2)."""
    return [(t, writes + reads_a_post * pull_cost * pulls) for t, writes, pulls in curve]


def total_cost(curves: dict[str, Sequence[tuple[int, float]]]):
    """Cost a post against the threshold, one line a mix of reads; the cheapest point of each is marked."""
    best = {name: min(points, key=lambda p: p[1]) for name, points in curves.items()}
    fig = plots.figure("The cheapest threshold: " + ", ".join(f"{b[0]:,} at {name}" for name, b in best.items()),
                       "threshold (log)", "cost a post, in feed writes")
    for (name, points), dash in zip(curves.items(), ("solid", "dash", "dot", "dashdot"), strict=False):
        fig.add_scatter(x=[p[0] for p in points], y=plots.rounded(np.array([p[1] for p in points])), name=name, mode="lines",
                        line={"dash": dash})
    fig.add_scatter(x=[b[0] for b in best.values()], y=[b[1] for b in best.values()], name="cheapest", mode="markers",
                    marker={"size": 12, "symbol": "circle-open", "color": plots.VERMILLION})
    return fig.update_xaxes(type="log", dtick=1).update_yaxes(type="log", dtick=1)
