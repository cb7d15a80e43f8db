"""The generated world: what data/ holds is what the generator makes and what data/README.md says."""
import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feedlab.errors import BadInput
from feedlab.lab import world
from feedlab.lab.graph import from_edges, read_graph

DATA = Path(__file__).resolve().parents[2] / "data"


@pytest.fixture(scope="module")
def default():
    return read_graph(DATA / "follows.csv.gz")


def test_readme_figures_are_those_of_the_file(default):
    readme = (DATA / "README.md").read_text()
    assert world.figures_table(default) in readme
    followers = np.sort(default.followers)[::-1]
    act = world.activity(default)
    share = np.sort(act.posts)[::-1] / act.posts.sum()
    follows = set(zip(default.follower.tolist(), default.followee.tolist(), strict=True))
    back = sum((b, a) in follows for a, b in follows) / len(follows)
    heard = (act.posts * default.followers).sum() / act.posts.sum()
    for text in (f"{len(default.users):,} users (ids 1 to {default.users[-1]:,}), {len(default.follower):,} follows",
                 f"seed {world.SEED};", f"--seed {world.SEED}\n",
                 f"{(default.followees == 0).sum()} users follow nobody",
                 f"with {followers[0]:,} down to {followers[9]:,} followers",
                 f"the first ordinary user has {followers[10]:,}",
                 f"the busiest one writes {share[0]:.1%} of all".replace("%", " %"),
                 f"most active tenth writes {share[:400].sum():.0%} of".replace("%", " %"),
                 f"{back:.0%} of the follows\nare returned".replace("%", " %").replace("\n", " "),
                 f"{followers[0] / len(default.users):.0%} of all users".replace("%", " %"),
                 f"({followers[0] / followers.mean():.0f} here", f"random post has {heard:.0f} followers"):
        assert text.replace("\n", " ") in readme.replace("\n", " "), text


def test_the_celebrities_are_ten_and_far_ahead(default):
    by_id = dict(zip(default.users.tolist(), default.followers.tolist(), strict=True))
    stars, others = [by_id[i] for i in range(1, 11)], [n for i, n in by_id.items() if i > 10]
    assert min(stars) > 1.5 * max(others)
    assert 25 <= np.median(default.followers) <= 40 and 40 <= default.followers.mean() <= 60
    assert (DATA / "follows.csv.gz").stat().st_size < 1_000_000


def test_the_generator_makes_the_files_of_data(tmp_path):
    done = subprocess.run([sys.executable, "-m", "feedlab.lab.world", "generate", "--out", tmp_path / "new"],
                          capture_output=True, text=True, cwd=DATA.parent, timeout=120)
    assert done.returncode == 0, done.stderr
    # the text, not the gzip's bytes: those depend on the zlib that Python was built with
    assert gzip.decompress((tmp_path / "new/follows.csv.gz").read_bytes()) == \
        gzip.decompress((DATA / "follows.csv.gz").read_bytes())
    assert (tmp_path / "new/activity.csv").read_bytes() == (DATA / "activity.csv").read_bytes()


def test_same_graph_same_bytes(tmp_path):
    graph = world.generate(seed=3, users=200, celebrities=3)
    for name in ("a.gz", "b.gz"):
        world.write_graph(graph, tmp_path / name)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert (tmp_path / "a.gz").read_bytes()[4:8] == bytes(4)  # the time of gzip's header
    again = read_graph(tmp_path / "a.gz")
    assert (again.follower == graph.follower).all() and (again.followee == graph.followee).all()
    assert (world.generate(4, 200, 3).follower[:50] != graph.follower[:50]).any()


@pytest.mark.parametrize("arguments, message", [
    (["generate", "--users", "100", "--celebrities", "50"], "at most a tenth"),
    (["generate", "--out", "README.md/x"], "cannot be written"),
    (["figures", "nothing.csv"], "nothing.csv does not exist"),
])
def test_command_line_says_what_is_wrong(arguments, message):
    done = subprocess.run([sys.executable, "-m", "feedlab.lab.world", *arguments], capture_output=True, text=True,
                          cwd=DATA, timeout=120)
    assert done.returncode == 2
    assert message in done.stderr and "Traceback" not in done.stderr
    assert "Example" in subprocess.run([sys.executable, "-m", "feedlab.lab.world", arguments[0], "--help"],
                                       capture_output=True, text=True, cwd=DATA, timeout=120).stdout


def test_activity_is_skewed_as_its_docstring_says(default):
    act = world.activity(default)
    assert act.posts.mean() == pytest.approx(0.5) and act.reads.mean() == pytest.approx(10)
    top = len(act.users) // 10
    assert 0.72 < np.sort(act.posts)[-top:].sum() / act.posts.sum() < 0.85
    assert 0.35 < np.sort(act.reads)[-top:].sum() / act.reads.sum() < 0.43
    ln = np.log(act.posts), np.log1p(default.followers)
    assert np.corrcoef(*ln)[0, 1] == pytest.approx(world.POST_FOLLOWERS, abs=0.05)


def test_draws_follow_the_weights_and_the_seed(default):
    act = world.activity(default)
    posts = world.draw_posts(act, 200_000, seed=5)
    assert posts.shape == (200_000,) and posts.dtype == np.int64
    assert (posts == world.draw_posts(act, 200_000, seed=5)).all()
    assert (posts[:1000] != world.draw_posts(act, 1000, seed=6)).any()
    assert (posts[:1000] != world.draw_reads(act, 1000, seed=5)).any()
    busiest = act.users[act.posts.argmax()]
    assert (posts == busiest).mean() == pytest.approx(act.posts.max() / act.posts.sum(), rel=0.1)
    assert world.draw_reads(act, 0).shape == (0,)


def test_activity_of_a_graph_where_all_are_alike():
    act = world.activity(from_edges([1, 2], [2, 1], True, "test"))
    assert np.isfinite(act.posts).all() and act.posts.mean() == pytest.approx(0.5)


edge = st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda e: e[0] != e[1])


@settings(max_examples=50)
@given(st.lists(edge, min_size=1), st.lists(st.integers(0, 9), max_size=20), st.integers(0, 6))
def test_expected_deliveries_by_counting(edges, authors, threshold):
    graph = from_edges(*zip(*edges, strict=True), True, "test")
    authors = [a for a in authors if a in graph.users]
    followers = {a: len({u for u, v in edges if v == a}) for a in authors}
    got = world.expected_deliveries(graph, authors, threshold)
    assert got.posts == len(authors) and got.pull == 0
    assert got.push == sum(followers[a] for a in authors)
    assert got.hybrid == sum(followers[a] for a in authors if followers[a] < threshold)
    assert got.pull_authors == len({a for a in authors if followers[a] >= threshold})
    assert got.write_amplification == (got.hybrid / len(authors) if authors else 0)


def test_a_stranger_is_named(default):
    with pytest.raises(BadInput, match="user 4001 is not in the graph follows.csv.gz"):
        world.expected_deliveries(default, [1, 4001], 10)
