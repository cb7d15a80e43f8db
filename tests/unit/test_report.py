"""Figures and the report: the finding in the title, small JSON, one file that asks nobody for anything."""
import json
import re
import warnings
from html.parser import HTMLParser

import numpy as np
import pytest

from feedlab.draw import plots
from feedlab.errors import BadInput
from feedlab.lab.graph import from_edges
from feedlab.lab.report import write_report

RESULT = {
    "users": 4039, "follows": 176468, "posts": 2000, "deliveries": 62000, "deliveries_expected": 62000, "write_amplification": 31.0,
    "pull_authors": 12, "scrolls_checked": 100, "scrolls_equal": 100, "bytes_per_entry": 82.5,
    "visible_ms": {"p50": 21.5, "p99": 140.0}, "threshold": 200, "feed_max": 500, "seed": 7, "seconds": 41.2,
    "engines": [{"name": "PostgreSQL", "source": "embedded", "version": "18.4", "address": "127.0.0.1:5432"},
                {"name": "Redis", "address": "redis://me:secret@10.0.0.1:6379/0", "healthy": True}],
    "graph": "data/my graph.csv", "pure_push_deliveries": 87400, "pages": 900, "sources_per_page": {"mean": 3.5},
    "lag_samples": [{"t_s": 0.0, "outbox": 5, "lag": 0}, {"t_s": 1.5, "outbox": 40, "lag": 300},
                    {"t_s": 3.0, "outbox": 0, "lag": 0}],
    "visible_samples": [5.0, 21.5, 30.0, 140.0], "follower_counts": [0, 1, 1, 5, 300],
    "redis": {"used_bytes": 5_115_000, "entries": 62000, "encoding": "skiplist"},
}


def figures():
    return {
        "lag": plots.lag_over_time(RESULT["lag_samples"]), "writes": plots.write_amplification(31.0, 43.7, 0, 200),
        "sources": plots.sources_per_page(3.5, 43.7), "memory": plots.memory_bars([("this run", 82.5), ("other", 60)]),
        "visible": plots.visible_hist(RESULT["visible_samples"]), "degrees": plots.degree_ccdf([0, 1, 1, 5, 300], 200),
    }


# ---------------------------------------------------------------------------------------------------- figures

@pytest.mark.parametrize("name, title", [
    ("lag", "At most 340 events waited, 1.5 s in; nothing waits at the end"),
    ("writes", "Push below 200 followers writes 31 feeds a post; pure push 43.7"),
    ("sources", "A page asks 3.5 sources; pure pull 43.7"),
    ("memory", "A feed entry takes 82.5 bytes; other 60"),
    ("visible", "Half of the posts are visible within 25.8 ms, 99 % within 137 ms"),
    ("degrees", "1 of 5 accounts reach the threshold of 200 followers"),
])
def test_the_title_says_the_finding(name, title):
    fig = figures()[name]
    assert fig.layout.title.text == title
    assert fig.layout.xaxis.title.text
    bundle = plots.mimebundle(fig)
    assert bundle["text/plain"] == f"Figure: {title}" == repr(plots.show(fig))
    assert plots.show(fig)._repr_mimebundle_() == bundle
    spec = json.dumps(bundle["application/vnd.plotly.v1+json"])
    assert len(spec) < 4_000, "the small template is gone"
    assert "uid" not in spec and "bdata" not in spec


def test_figures_of_nothing_say_so():
    for fig, title in ((plots.lag_over_time([]), "No lag was sampled"), (plots.visible_hist([]), "No post was timed"),
                       (plots.memory_bars([]), "No memory was measured"), (plots.degree_ccdf([]), "No follower counts"),
                       (plots.visible_hist([None, float("nan")]), "No post was timed")):
        assert fig.layout.title.text == title
        json.dumps(plots.mimebundle(fig), allow_nan=False)


@pytest.mark.parametrize("ms", [[0], [7.0] * 3, [10.0], [0.001, 1e6], list(range(1, 2000))])
def test_every_post_is_in_one_bar(ms):
    assert sum(plots.visible_hist(ms).data[0].y) == len(ms)


def test_ccdf_is_the_share_with_at_least_so_many():
    line = plots.degree_ccdf([0, 1, 1, 5], None).data[0]
    assert list(zip(line.x, line.y, strict=True)) == [(1, 0.75), (5, 0.25)]
    graph = from_edges([1, 2, 3], [9, 9, 1], True, "test")
    assert list(plots.degree_ccdf(graph).data[0].x) == [1, 2]
    many = plots.degree_ccdf(np.arange(100_000)).data[0]
    assert len(many.x) <= 400 and many.x[0] == 1 and many.x[-1] == 100_000


# ---------------------------------------------------------------------------------------------------- report

class Page(HTMLParser):
    """Tags, and the text outside of scripts and styles."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.attributes, self.text, self.inside = [], [], "", None
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside not in ("script", "style"):
            self.text += data


def test_report_holds_all_and_asks_nobody(tmp_path):
    path = write_report(RESULT, tmp_path / "new" / "demo.html")
    page, source = Page(path), path.read_text()
    for text in ("100 of 100 scrolls equal the SQL pull answer", "62,000", "31", "21.5 ms", "PostgreSQL", "18.4", "yes",
                 "Push below 200 followers writes 31 feeds a post; pure push 43.7", "5.1 MB", "82.5 B",
                 ".venv/bin/feedlab demo --graph 'data/my graph.csv' --threshold 200 --feed-max 500 --posts 2000 --seed 7"):
        assert text in page.text, text
    assert "not measured" not in page.text
    assert "secret" not in source and "redis://me:***@10.0.0.1" in page.text
    assert len(json.loads(re.search(r'id="drawn">(.*?)</script>', source).group(1))) == 6
    # a height of its own: else plotly collapses the picture when the window changes
    assert len(re.findall(r'class="plot" style="height:\d+px"', source)) == 6
    assert ("lang", "en") in page.attributes and ("scope", "col") in page.attributes and page.tags.count("h1") == 1
    assert "link" in page.tags and not [v for k, v in page.attributes if k in ("src", "href") and v != "data:,"]
    assert "default-src 'none'" in source
    assert [p.name for p in path.parent.iterdir()] == ["demo.html"]


def test_report_of_nothing_says_not_measured(tmp_path):
    page = Page(write_report({}, tmp_path / "demo.html"))
    assert "No scroll was compared" in page.text
    assert page.text.count("not measured") == 17 + 6 + 1  # values, figures, engines


def test_the_way_of_a_post_has_its_labels_above_the_line():
    """Steps go down as time goes right, so above and right of a point there is no line."""
    (line,) = plots.way_of_a_post([("row", 0), ("Kafka", 8), ("feed", 15)]).data
    assert line.textposition == "top right" and list(line.text) == ["0 ms", "8 ms", "15 ms"]


@pytest.fixture
def no_plotly(monkeypatch):
    """Without the 5 MB of plotly.js: for what looks at our part of the page only."""
    monkeypatch.setattr("plotly.offline.get_plotlyjs", lambda: "")


@pytest.mark.usefixtures("no_plotly")
@pytest.mark.parametrize("key", RESULT)
@pytest.mark.parametrize("value", [None, "missing"])
def test_each_key_may_be_missing_or_none(tmp_path, key, value):
    result = dict(RESULT, **{key: None})
    if value:
        del result[key]
    write_report(result, tmp_path / "demo.html")


@pytest.mark.usefixtures("no_plotly")
@pytest.mark.parametrize("changes", [
    {"posts": 0, "users": 0, "write_amplification": float("nan")}, {"visible_samples": [], "lag_samples": []},
    {"follower_counts": {"bins": [1, 10, 100, 1000], "counts": [50, 9, 1]}}, {"follower_counts": np.array([0, 1, 5])},
    {"follower_counts": {"bins": [0, 1, 5], "counts": [3, 2, 1]}}, {"follower_counts": {"bins": [], "counts": []}},
    {"scrolls_checked": 0, "scrolls_equal": 0}, {"engines": [{}]}, {"posts": np.int64(3)}, {"threshold": 0},
])
def test_odd_values_break_nothing(tmp_path, changes):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        text = Page(write_report(RESULT | changes, tmp_path / "demo.html")).text
    assert "nan" not in text.lower()


def test_a_difference_is_the_headline(tmp_path):
    page = Page(write_report(RESULT | {"scrolls_equal": 98}, tmp_path / "demo.html"))
    assert "Only 98 of 100 scrolls equal" in page.text and ("class", "bad") in page.attributes


@pytest.mark.usefixtures("no_plotly")
def test_deliveries_are_held_against_sql(tmp_path):
    def text(**changes) -> str:
        return Page(write_report(RESULT | changes, tmp_path / "demo.html")).text
    assert "counted from graph and posts alone: equal" in text()
    assert "alone: NOT EQUAL" in text(deliveries=61999)
    lost = text(deliveries=62500, deliveries_exact=False, redis_lost=2)
    assert "Redis lost its memory 2 times: some deliveries were made again; by the graph they are 62,000" in lost
    assert "bound" not in lost and "EQUAL" not in lost
    assert "Redis lost its memory once:" in text(deliveries=62500, deliveries_exact=False, redis_lost=1)


@pytest.mark.usefixtures("no_plotly")
def test_words_of_the_report(tmp_path):
    redis = {"encoding": "listpack", "encodings": {"skiplist": 508, "listpack": 3531}}
    engine = {"name": "redis", "pid": 12345, "memory_bytes": 45_600_000, "address": "host=h password=secret1",
              "detail": "postgresql://u@h/x?password=secret2"}
    page = Page(write_report(RESULT | {"users": 1, "posts": 1, "redis": redis, "engines": [engine]}, tmp_path / "a.html"))
    assert page.text.count("3,531 feeds as listpack, 508 as skiplist") == 2
    assert "1 user, 1 post, 41.2 s" in page.text
    assert "from writing a post to its last feed" in page.text and "commit until" not in page.text
    assert "46 MB" in page.text and "12345" in page.text and "memory" in page.text and "45,600,000" not in page.text
    assert "secret" not in page.text
    assert "from writing a post to its last feed" in plots.visible_hist([5]).layout.xaxis.title.text


def test_all_text_is_escaped(tmp_path):
    bad = '</script><img src="x" onerror="alert(1)">'
    plain, odd = (Page(write_report(RESULT | changes, tmp_path / "demo.html")) for changes in (
        {}, {"graph": bad, "command": bad, "engines": [{bad: bad}], "redis": {"encoding": bad}}))
    assert "img" not in odd.tags and odd.tags.count("script") == plain.tags.count("script")


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="the report cannot be written to .*file.demo.html"):
        write_report(RESULT, tmp_path / "file" / "demo.html")
    (tmp_path / "demo.html").mkdir()
    with pytest.raises(BadInput, match="cannot be written"):
        write_report(RESULT, tmp_path / "demo.html")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["demo.html", "file"]
