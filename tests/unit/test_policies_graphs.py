"""Follow graphs from every kind of file: what is understood, what is refused and with which words."""
import gzip
import tracemalloc

import duckdb
import networkx as nx
import numpy as np
import pytest
from conftest import shared_file

from feedlab.errors import BadInput
from feedlab.lab import graph as text
from feedlab.policies import graphs, rates

EDGES = [(1, 2), (2, 1), (3, 1), (5, 1), (5, 2)]


def write(path, content: str | bytes):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def pairs(f: graphs.Follows) -> list[tuple[int, int]]:
    return list(zip(f.ids[f.reader].tolist(), f.ids[f.author].tolist(), strict=True))


LINES = {
    "space.txt": "".join(f"{a} {b}\n" for a, b in EDGES),
    "tab.tsv": "# a comment\n% another\n" + "".join(f"{a}\t{b}\n" for a, b in EDGES),
    "comma.csv": "follower,followee\n" + "".join(f"{a},{b}\n" for a, b in EDGES),
    "named.csv": "name,followee,follower\n" + "".join(f"\"x, y\",{b},{a}\n" for a, b in EDGES),
    "market.mtx": "%%MatrixMarket matrix coordinate pattern general\n% c\n5 5 5\n" + "".join(f"{a} {b}\n" for a, b in EDGES),
    "weighted.mtx": "%%MatrixMarket matrix coordinate real general\n5 5 5\n" + "".join(f"{a} {b} 0.5\n" for a, b in EDGES),
}


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("packed", [False, True])
def test_text_in_its_kinds(tmp_path, name, packed):
    content = gzip.compress(LINES[name].encode()) if packed else LINES[name]
    f = graphs.read(write(tmp_path / (name + ".gz" * packed), content), directed=True)
    assert pairs(f) == EDGES and f.ids.tolist() == [1, 2, 3, 5] and f.followers.tolist() == [3, 2, 0, 0]
    assert f.follows.tolist() == [1, 1, 1, 2] and f.reader.dtype == np.int32


def test_by_duckdb_it_is_the_same_graph(tmp_path, monkeypatch):
    """Above a size text goes through DuckDB: the same edges, counts and words as in memory."""
    rng = np.random.default_rng(1)
    rows = rng.integers(0, 60, (800, 2)) * 7
    path = write(tmp_path / "g.txt", "# drawn\n% by hand\n" + "".join(f"{a} {b}\n" for a, b in rows.tolist()))
    for directed in (None, True, False):
        monkeypatch.setattr(graphs, "SMALL", 1 << 20)
        small = graphs.read(path, directed)
        monkeypatch.setattr(graphs, "SMALL", 10)
        large = graphs.read(path, directed)
        assert pairs(large) == pairs(small) and (large.directed, large.dropped) == (small.directed, small.dropped)


@pytest.mark.parametrize("form", ["parquet", "csv.zst"])
def test_parquet_and_zst(tmp_path, form):
    path = tmp_path / f"g.{form}"
    values = ", ".join(f"({a}, {b}, 'x')" for a, b in EDGES)
    how = "(format parquet)" if form == "parquet" else "(format csv, header, compression zstd)"
    duckdb.sql(f"copy (select * from (values {values}) t (follower, followee, note)) to '{path}' {how}")
    f = graphs.read(path)
    assert pairs(f) == EDGES and f.directed
    assert pairs(graphs.read(path, columns=("followee", "follower"))) == sorted((b, a) for a, b in EDGES)
    with pytest.raises(BadInput, match="follower, followee, note|no column 'nobody'"):
        graphs.read(path, columns=("nobody", "follower"))


@pytest.mark.parametrize("kind", ["gml", "graphml"])
def test_libraries_formats(tmp_path, kind):
    g = nx.DiGraph(EDGES)
    getattr(nx, f"write_{kind}")(g, tmp_path / f"g.{kind}")
    f = graphs.read(tmp_path / f"g.{kind}")
    assert f.users == 4 and len(f.reader) == 5 and f.directed and f.followers.max() == 3
    undirected = nx.Graph([("ann", "bob"), ("bob", "eve")])
    getattr(nx, f"write_{kind}")(undirected, tmp_path / f"u.{kind}")
    f = graphs.read(tmp_path / f"u.{kind}")
    assert not f.directed and len(f.reader) == 4


def test_what_was_understood_is_said(tmp_path):
    f = graphs.read(write(tmp_path / "g.csv", "follower,followee\n1,2\n1,2\n7,7\n9,2\n"))
    assert f.understood() == {
        "source": "g.csv", "form": f.form, "directed": True, "why": "its header names follower and followee", "users": 4, "follows": 2,
        "self_loops": 1, "repeats": 1, "unused_ids": 5, "lowest_id": 1, "highest_id": 9, "mean_followers": 0.5,
        "hubs": [{"id": 2, "followers": 2}, {"id": 9, "followers": 0}, {"id": 7, "followers": 0}]}
    assert "1 self loops and 1 repeats dropped, 5 gaps" in f.description() and "largest by followers: 2 (2)" in f.description()


@pytest.mark.parametrize("name, users, follows, largest", [
    ("wiki-Vote.txt", 7_115, 103_689, 457), ("facebook_combined.txt.gz", 4_039, 176_468, 1_045), ("socfb-Reed98.edges", 962, 37_624, 313)])
def test_real_graphs(name, users, follows, largest):
    f = graphs.read(shared_file(name))
    assert (f.users, len(f.reader), f.followers.max()) == (users, follows, largest)
    assert len(text.read_graph(shared_file(name)).follower) == follows
    again = graphs.of(graphs.to_graph(f))
    assert (again.reader == f.reader).all() and (again.author == f.author).all()


# --- degrees --------------------------------------------------------------------------------------------------------------------

def test_histogram_and_sample(tmp_path):
    h = graphs.read(write(tmp_path / "h.csv", "followers,users\n10,90\n1000,1\n"))
    assert (h.users, h.edges, h.largest) == (91, 1_900, 1_000)
    s = graphs.read(write(tmp_path / "s.txt", "followers\n5\n5\n70\n"))
    assert s.followers.tolist() == [5, 70] and s.authors.tolist() == [2, 1]
    assert graphs.read(write(tmp_path / "t.txt", "5\n7\n"), kind="sample").users == 2


@pytest.mark.parametrize("name, users, mean, largest", [
    ("article", 300e6, 300, 50e6), ("article-lognormal", 300e6, 300, 50e6), ("facebook-2011", 721e6, 190, 5_000),
    ("twitter-2009", 41.7e6, 35.25, 2_997_469)])
def test_presets(name, users, mean, largest):
    d = graphs.read(name)
    assert d.users == pytest.approx(users) and d.edges / d.users == pytest.approx(mean, rel=1e-3) and d.largest == largest
    assert (d.authors >= 0).all() and name.split("-")[0] in graphs.PRESETS[name].lower() + name


def test_tails_of_the_presets_are_those_of_the_closed_forms():
    for name, share in (("article", 0.106), ("article-lognormal", 0.522)):
        d = graphs.read(name)
        big = d.followers >= 10_000
        assert (d.followers * d.authors)[big].sum() / d.edges == pytest.approx(share, abs=0.001)


def test_the_generated_graph_is_the_same_for_a_seed():
    a, b = (graphs.generated(users=3_000, follows=20, seed=3) for _ in range(2))
    assert (a.reader == b.reader).all() and (a.author == b.author).all()
    key = a.reader.astype(np.int64) * a.users + a.author
    assert (np.diff(key) > 0).all() and (a.reader != a.author).all()          # once each, sorted, no self loop
    assert a.followers.max() > 20 * a.followers.mean()


# --- refused --------------------------------------------------------------------------------------------------------------------------

BAD = [
    ("broken.csv", "follower,folowee\n1,2\n", "does not name both ids"), ("three.csv", "a,b,c\n1,2,3\n", "does not name both ids"),
    ("odd.csv", "follower,followee\n1,2\n3\n", "line 3: 1 column"), ("empty.txt", "", "is empty"),
    ("none.txt", "# only this\n", "no edges"), ("loops.txt", "1 1\n2 2\n", "users who follow themselves"), ("word.txt", "1 2\n3 x\n", "line 2: 'x' is not a user id"),
    ("wide.txt", "1 2\n3 9223372036854775808\n", "line 2: '9223372036854775808'"),
    ("minus.txt", "1 2\n-3 4\n", "line 2"), ("bin.txt", b"\x00\x01\x02", "binary"),
    ("late.csv", "follower,followee,n\n1,2,a\n3,x,b\n", "line 3: 'x'"),
    ("cut.mtx", "%%MatrixMarket matrix coordinate pattern general\n5 5 9\n1 2\n", "announces 9 entries and has 1"),
    ("dense.mtx", "%%MatrixMarket matrix array real general\n5 5\n1\n", "line 1: expected '%%MatrixMarket matrix coordinate"),
    ("bad.gml", "graph [ node [", "cannot be read as gml"), ("bad.graphml", "<graphml><", "cannot be read as graphml"),
    ("h.csv", "followers,users\n10,-1\n", "line 2: '10,-1' is not a number of followers"), ("h2.csv", "followers,users\n", "no row"),
    ("fake.parquet", b"PAR1 nothing", "fake.parquet"),
]


@pytest.mark.parametrize("name, content, words", BAD, ids=[b[0] for b in BAD])
def test_a_bad_file_is_one_sentence_with_the_line(tmp_path, name, content, words):
    path = write(tmp_path / name, content)
    with pytest.raises(BadInput) as e:
        graphs.read(path)
    assert words in str(e.value) and name in str(e.value) and "\n" not in str(e.value) and len(str(e.value)) < 400 + len(str(path))


def test_large_text_names_the_line_too(tmp_path, monkeypatch):
    monkeypatch.setattr(graphs, "SMALL", 10)
    for rows, words in (("1,2\n3,4,5\n", "line 3: Expected Number of Columns"),
                        ("1,2\n3,99999999999999999999\n", "line 3: '99999999999999999999'"),
                        ("1,2\n-3,4\n", "row 2: -3 is not a user id"), ("1,2\n3,\n", "row 2: an id is missing")):
        with pytest.raises(BadInput, match=words):
            graphs.read(write(tmp_path / "g.csv", "follower,followee\n" + rows))


def test_a_line_of_two_gigabytes(tmp_path):
    """Digits without an end, 2 GB of them by length: refused after the first block, in little memory."""
    path = tmp_path / "long.txt"
    with open(path, "wb") as f:
        f.write(b"1" * (40 << 20))
        f.truncate(2 << 30)
    tracemalloc.start()
    with pytest.raises(BadInput, match="line 1: longer than 1 MB"):
        graphs.read(path)
    assert tracemalloc.get_traced_memory()[1] < 200e6
    tracemalloc.stop()


def test_folders_and_absent_files(tmp_path):
    with pytest.raises(BadInput, match="is a folder"):
        graphs.read(tmp_path)
    with pytest.raises(BadInput, match="does not exist.*article"):
        graphs.read(tmp_path / "nothing.csv")
    with pytest.raises(BadInput, match="not 'tree'"):
        graphs.read("x", kind="tree")


# --- rates --------------------------------------------------------------------------------------------------------------------------------

def test_rates(tmp_path):
    r = rates.read(write(tmp_path / "r.csv", "user,reads_a_day,posts_a_day,away_days\n7,3,0.5,0\n2,1,9,40\n"), 0.1, 5)
    assert r.posts_of([2, 7, 8]).tolist() == [9, 0.5, 0.1] and r.reads_of([2, 7, 8]).tolist() == [1, 3, 5]
    assert r.away_of([2, 7, 8]).tolist() == [40, 0, 0]


@pytest.mark.parametrize("content, words", [
    ("user,posts_a_day,reads_a_day\n1,2,3\n1,-2,3\n", "row 2.*posts_a_day"), ("user,posts_a_day,reads_a_day\n1,nan,3\n", "row 1"),
    ("user,posts_a_day,reads_a_day\nx,2,3\n", "line 2: 'x' is not a user id"), ("user,posts\n1,2\n", "expected a header"), ("", "is empty"),
    ("user,posts_a_day,reads_a_day\n1,2,3\n1,2,3\n", "user 1 is there twice"), ("user,posts_a_day,reads_a_day\n", "no user below")])
def test_bad_rates(tmp_path, content, words):
    with pytest.raises(BadInput, match=words):
        rates.read(write(tmp_path / "r.csv", content))


def test_the_higgs_trace():
    t = rates.read_trace(shared_file("higgs-activity_time.txt.gz"))
    assert len(t.at) == 563_069 and t.peak() == pytest.approx(19.4, abs=0.05) and t.at[0] == 0
    assert t.compressed(100).seconds == pytest.approx(t.seconds / 100, rel=0.01)
    assert t.rates().posts.sum() * t.seconds / 86_400 == pytest.approx(563_069)


def test_bad_traces(tmp_path):
    with pytest.raises(BadInput, match="line 2: no user and epoch second"):
        rates.read_trace(write(tmp_path / "t.txt", "1 2 1341100972 MT\n1 2 noon MT\n"))
    with pytest.raises(BadInput, match="holds no timestamps"):
        rates.read_trace(write(tmp_path / "t.txt", "# nothing\n"))
