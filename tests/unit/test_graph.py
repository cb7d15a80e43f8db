"""Reading follow graphs: what a file may look like, and what is said about one that cannot be used."""
import gzip
import os
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedlab.errors import BadInput
from feedlab.lab import graph as module
from feedlab.lab.graph import from_edges, read_graph

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def shared(name: str) -> Path:
    if not (SHARED / name).exists():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{name} is not in ../shared/data")
    return SHARED / name


@pytest.fixture
def write(tmp_path):
    def write(content, name="edges.csv") -> Path:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return tmp_path / name
    return write


def follows(graph) -> list[tuple[int, int]]:
    return list(zip(graph.follower.tolist(), graph.followee.tolist(), strict=True))


# ---------------------------------------------------------------------------------------------------- real graphs

@pytest.mark.parametrize("name, users, rows, directed, largest", [
    ("facebook_combined.txt.gz", 4_039, 176_468, False, 1_045),
    ("wiki-Vote.txt", 7_115, 103_689, True, 457),
    ("socfb-Reed98.edges", 962, 37_624, False, 313),
])
def test_real_graphs(name, users, rows, directed, largest):
    graph = read_graph(shared(name))
    assert (len(graph.users), len(graph.follower), graph.directed) == (users, rows, directed)
    assert graph.followers.max() == largest
    assert graph.followers.sum() == graph.followees.sum() == rows
    assert graph.dropped == {"self_loops": 0, "repeats": 0}
    assert f"{users:,} users, {rows:,} follows" in graph.description()


def test_real_trace_is_refused_with_the_reason():
    with pytest.raises(BadInput, match=r"line 1: 'MT' in column 4 is not a number"):
        read_graph(shared("higgs-activity_time.txt.gz"))


# ---------------------------------------------------------------------------------------------------- formats

@pytest.mark.parametrize("text", [
    "1 2\n2 3\n3 1\n", "1\t2\n2\t3\n3\t1\n", "1,2\n2,3\n3,1", "1 , 2\n 2,3 \n3, 1\n", "1  2\n 2 3\n3 \t 1 \n",
    "# SNAP\n% Konect\n1 2\n2 3\n\n# in between\n   \n3 1\n", "1 2\r\n2 3\r\n3 1\r\n", "\n\n1 2\n2 3\n3 1\n\n",
    "\ufeff1,2\n2,3\n3,1\n", "follower,followee\n1,2\n2,3\n3,1\n", "followee,follower\n2,1\n3,2\n1,3\n",
    "Target,Source\n2,1\n3,2\n1,3\n", '"from","to"\n1,2\n2,3\n3,1\n', "FromNodeId\tToNodeId\n1\t2\n2\t3\n3\t1\n",
    "When,Followee ID,Follower-ID\n5,2,1\n6,3,2\n7,1,3\n", "a b\n1 2\n2 3\n3 1\n", "1 2 0.5 -7\n2 3 1e9 8\n3 1 .5 +1\n",
    '"1","2"\n"2","3"\n"3","1"\n', '"from","to"\n"1",2\r\n2, "3"\n"3" ,"1"\n', '"1" "2"\n"2"\t3\n3 1\n',
    "1;2\n2;3\n3;1\n", 'follower;followee\n"1" ; "2"\n2;3\n3;1', '# "quoted; words"\n"1","2","0.5"\n2,3,7\n# 9 "9\n3,1,"-1e3"\n',
    "0001 2\n2 3\n3 000000000000000000000000001\n", "1 2\n2 3\n3 1\n1 2\n2 2\n",
])
def test_all_forms_of_one_graph(write, text):
    assert follows(read_graph(write(text), directed=True)) == [(1, 2), (2, 3), (3, 1)]


def test_gzip_is_seen_by_its_bytes_not_its_name(write):
    text = b"1 2\n2 3\n"
    assert "gzip" in read_graph(write(gzip.compress(text), "edges.txt")).description()
    assert "gzip" not in read_graph(write(text, "edges.gz")).description()
    several = gzip.compress(b"1 2\n") + gzip.compress(b"2 3\n")
    assert len(read_graph(write(several)).users) == 3


@pytest.mark.parametrize("text, directed, why", [
    ("1 2\n3 2\n4 1\n", False, "no edge is listed both ways"),
    ("1 2\n1 3\n2 3\n", False, "listed once, smaller id first"),
    ("2 1\n3 1\n3 2\n", False, "listed once, larger id first"),
    ("1 2\n2 1\n3 4\n", True, "66.7% of the edges are listed both ways"),
    ("# Directed graph\n1 2\n1 3\n", True, "its comment says directed"),
    ("# an UNDIRECTED graph, not directed\n1 2\n2 1\n", False, "its comment says undirected"),
    ("undirected a,b\n1,2\n2,1\n", False, "its header says undirected"),
    ("follower,followee\n1,2\n1,3\n", True, "its header names follower and followee"),
    ("source,target\n1,2\n1,3\n", False, "listed once, smaller id first"),
])
def test_directed_or_not_and_why(write, text, directed, why):
    graph = read_graph(write(text))
    assert graph.directed is directed
    assert why in graph.description()
    assert read_graph(write(text), directed=not directed).directed is not directed


def test_description_says_all_that_was_understood(write):
    text = "# one\n# two\nsource\ttarget\tweight\n1\t2\t9\n2\t1\t9\n2\t2\t9\n9\t2\t9\n1\t2\t9\n"
    assert read_graph(write(gzip.compress(text.encode()), "g.tsv.gz")).description() == (
        "g.tsv.gz: gzip, columns separated by a tab, header 'source\\ttarget\\tweight', 1 more column ignored, "
        "2 comment lines at the top; directed (66.7% of the edges are listed both ways); 3 users, 3 follows, "
        "1 self loop and 1 repeat dropped, 6 gaps in the ids 1 to 9, largest follower count 2.")


def test_ids_to_the_end_of_bigint_and_zero(write):
    top = 2**63 - 1
    graph = read_graph(write(f"0 {top}\n{top - 1} 0\n8999999999999999999 {top}\n"), directed=True)
    assert follows(graph) == [(0, top), (8999999999999999999, top), (top - 1, 0)]


def test_undirected_edges_given_twice_count_once():
    graph = from_edges([1, 2, 2], [2, 1, 3], False, "test")
    assert follows(graph) == [(1, 2), (2, 1), (2, 3), (3, 2)]
    assert graph.dropped == {"self_loops": 0, "repeats": 1}


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1), st.booleans())
def test_counts_agree_with_sets(edges, directed):
    u, v = zip(*edges, strict=True)
    graph = from_edges(u, v, directed, "test")
    pairs = {(a, b) for a, b in edges if a != b}
    expected = pairs if directed else pairs | {(b, a) for a, b in pairs}
    assert follows(graph) == sorted(expected)
    assert graph.users.tolist() == sorted({*u, *v})
    assert graph.followers.tolist() == [sum(b == x for _, b in expected) for x in graph.users]
    assert graph.followees.tolist() == [sum(a == x for a, _ in expected) for x in graph.users]
    drops = graph.dropped
    assert len(edges) - drops["self_loops"] - drops["repeats"] == len(expected) // (1 if directed else 2)


ids = st.one_of(st.integers(0, 99), st.integers(0, 2**63 - 1))
gap = st.text(" \t", min_size=1, max_size=3)


end = st.sampled_from(["", " ", "\r"])
more = st.sampled_from(["", "# no 1 2\n", "\n", " \r\n"])


@given(st.lists(st.tuples(ids, gap, ids, end, more), min_size=1, max_size=30), st.sampled_from(["ws", "comma"]))
def test_fast_and_slow_ways_agree(tmp_path_factory, rows, form):
    """The expression and pandas read a clean block; the same block with one odd row goes line by line."""
    path = tmp_path_factory.mktemp("g") / "g.txt"
    glue = (lambda g: g) if form == "ws" else (lambda g: g[:1] + "," + g[1:])
    path.write_bytes("".join(f"{u}{glue(g)}{v}{end}\n{more}" for u, g, v, end, more in rows).encode())
    form = module._Form(f"1{glue(' ')}2".encode())
    (block,) = module._blocks(path)
    u, v = module._rows(path, *block, form)
    assert list(zip(u.tolist(), v.tolist(), strict=True)) == [(u, v) for u, _, v, _, _ in rows]


def test_blocks_do_not_show(write, monkeypatch):
    text = "# top\n" + "".join(f"{i} {i + 1}\n" for i in range(500))
    whole = read_graph(write(text))
    for size in (1, 7, 64):
        monkeypatch.setattr(module, "BLOCK", size)
        assert follows(read_graph(write(text))) == follows(whole)
        with pytest.raises(BadInput, match="line 502: 'x'"):
            read_graph(write(text + "x 1\n"))


def test_a_million_edges_are_quick(write):
    edges = np.random.default_rng(1).integers(0, 100_000, (1_000_000, 2))
    path = write("\n".join(f"{u} {v}" for u, v in edges.tolist()))
    start = time.process_time()
    graph = read_graph(path)
    assert len(graph.follower) > 1_000_000
    assert time.process_time() - start < 10  # 1.0 to 1.6 s by itself; the bound only catches a slow path


# ----------------------------------------------------------------------------------------------- what cannot be used

@pytest.mark.parametrize("content, message", [
    ("1,2\n" * 16 + "abc,1\n", r"line 17: 'abc' is not a user id \(a whole number from 0 to 2\^63-1\)\."),
    ("a,b\n1,2\n3,-4\n", r"line 3: '-4' is not a user id"),
    ("1 2\n3 9223372036854775808\n", r"line 2: '9223372036854775808' is not a user id"),
    ("1 2\n1.0 2\n", r"line 2: '1.0' is not a user id"),
    ("1 2\n1_0 2\n", r"line 2: '1_0' is not a user id"),
    ("1 2\n\u0661 2\n", r"line 2: '\u0661' is not a user id"),
    ("1 2\n" + "9" * 6000 + " 2\n", r"line 2: '9{37}\.\.\.' is not a user id"),
    ("1 2\n\n# c\n3\n", r"line 4: 1 column, expected 2 as in the first line"),
    ("1 2\n3 4 5\n", r"line 2: 3 columns, expected 2"),
    ("a,b,c\n1,2\n", r"line 2: 2 columns, expected 3"),
    ("1,2\n3,\n", r"line 2: '' is not a user id"),
    ("1,2,\n", r"line 1: '' in column 3 is not a number"),
    ("1 2 x\n", r"line 1: 'x' in column 3 is not a number"),
    ("1|2\n", r"line 1: found one column, expected two user ids separated by a space, a tab, a comma or a semicolon"),
    ("\u0661 \u0662\n\u0663 \u0664\n", r"line 1: '\u0661' is not a user id .*in the digits 0 to 9"),
    ("# c\n\n\"\u0661\",\"2\u0662\"\n", r"line 3: '\u0661' is not a user id"),
    ('1,2\n"3,4"\n', r"line 2: '\"3' is not a user id"), ('1,2\n"3,4\n', r"line 2: '\"3' is not a user id"),
    ('1,2\n"" ,4\n', r"line 2: '' is not a user id"), ("1;2;0,5\n", r"line 1: '0,5' in column 3 is not a number"),
    (b"1 2\n\xff\xfe 3\n", r"line 2: not UTF-8 text"),
    (b"\xe9t\xe9 1\n", r"line 1: not UTF-8 text"),
    ("", r"is empty"),
    (gzip.compress(b""), r"is empty"),
    ("# only\n# comments\n", r"has no edges: expected lines such as '1 2'"),
    ("follower,followee\n", r"has no edges"),
    (b"\x7fELF\x00\x00", r"is a binary file"),
    (b"PK\x03\x04rest", r"is a zip archive: unpack it"),
    (gzip.compress(gzip.compress(b"1 2\n")), r"is gzipped twice"),
    ("1 2\n".encode("utf-16"), r"is UTF-16 text: save it as UTF-8"),
    (gzip.compress(b"1 2\n" * 9999)[:-20], r"is a damaged or cut-off gzip file"),
    (gzip.compress(b"1 2\n" * 9999)[:15] + b"\xff" * 40, r"is a damaged or cut-off gzip file"),
    (b"\x1f\x8b", r"is a damaged or cut-off gzip file"),
    ("1 2\n# " + "x" * (1 << 20) + "\n", r"line 2: longer than 1 MB"),
    ("1" * (2 << 20), r"line 1: longer than 1 MB"),
    ("%%MatrixMarket matrix coordinate pattern symmetric\n3 3 1\n1 2\n", r"is a Matrix Market file"),
])
def test_one_sentence_for_what_is_wrong(write, content, message):
    path = write(content)
    with pytest.raises(BadInput, match=message) as error:
        read_graph(path)
    text = str(error.value)
    assert text.startswith(str(path)) and text.endswith(".") and "\n" not in text and len(text) < 300 + len(str(path))


def test_what_is_no_readable_file(tmp_path):
    with pytest.raises(BadInput, match="does not exist: check the name.$"):
        read_graph(tmp_path / "nothing")
    with pytest.raises(BadInput, match="is a folder"):
        read_graph(tmp_path)
    with pytest.raises(BadInput, match="cannot be read"):
        read_graph("a\0b")


@given(st.binary(max_size=200))
def test_any_bytes_give_a_graph_or_one_sentence(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("g") / "g"
    path.write_bytes(content)
    try:
        graph = read_graph(path)
    except BadInput as e:
        assert "\n" not in str(e)
    else:
        assert len(graph.users) > 0 and graph.description()
