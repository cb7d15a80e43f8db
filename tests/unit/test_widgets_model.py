"""What the widgets compute before anything runs: the model's curves, the scroll depths, the histories in words."""
from statistics import NormalDist

import numpy as np
import pytest

from feedlab.classroom import live_run
from feedlab.classroom.widgets.fault_chooser import NAMES, PROBED, in_words
from feedlab.classroom.widgets.feed_max_explorer import DEPTHS, SIZES, feed_bytes, share_below_floor
from feedlab.classroom.widgets.threshold_explorer import ACTIVE, SKEW, THRESHOLDS, Model
from feedlab.lab import world
from feedlab.verify import faults


@pytest.fixture(scope="module")
def graph():
    return world.generate(seed=3, users=400, celebrities=5)


def test_curves_are_those_of_the_cost_model(graph):
    model = Model(graph)
    writes, pulls = model.curves(1.0, 0.80)
    assert writes == sorted(writes) and pulls == sorted(pulls, reverse=True)
    act = world.activity(graph, 1)
    assert writes[-1] == pytest.approx(float((act.posts * graph.followers).sum() / act.posts.sum())), "nobody has 10,000: pure push"
    assert pulls[-1] == 0.0
    everybody = Model(graph).at(1, 1.0, 0.80)
    assert everybody[0] == 0.0 and everybody[1] == pytest.approx(len(graph.follower) / len(graph.users)), "pure pull: every followee"


def test_active_share_scales_the_writes_and_leaves_the_pulls(graph):
    model = Model(graph)
    whole, half = model.at(100, 1.0, 0.80), model.at(100, 0.5, 0.80)
    assert half[0] == pytest.approx(whole[0] / 2) and half[1] == whole[1]


def test_skew_is_the_share_of_the_busiest_tenth(graph):
    for share, sigma in SKEW.items():
        assert NormalDist().cdf(sigma - 1.2816) == pytest.approx(share, abs=0.005)
    alike = live_run.skewed(world.activity(graph, 1), 0.0).posts
    assert np.allclose(alike, alike[0]) and alike.mean() == pytest.approx(world.POSTS_A_DAY)
    same = world.activity(graph, 1)
    assert np.allclose(live_run.skewed(same, world.POST_SIGMA).posts, same.posts)
    assert Model(graph).at(10_000, 1.0, 0.10)[0] == pytest.approx(graph.followers.mean()), "all alike: the mean follower count"


@pytest.mark.parametrize("share", ACTIVE)
def test_exact_count_of_active_followers(graph, share):
    people = live_run.Population(graph, share, seed=4)
    assert people.active.sum() == round(share * len(graph.users))
    authors = np.random.default_rng(1).choice(graph.users, 200)
    here = set(graph.users[people.active].tolist())
    fans: dict[int, int] = {}
    for follower, followee in zip(graph.follower.tolist(), graph.followee.tolist(), strict=True):
        fans[followee] = fans.get(followee, 0) + (follower in here)
    total = dict(zip(graph.users.tolist(), graph.followers.tolist(), strict=True))
    for threshold in (10, 60, 1_000):
        by_hand = sum(fans.get(a, 0) for a in authors.tolist() if total[a] < threshold)
        assert people.expected(authors, threshold) == by_hand
    if share == 1.0:
        assert people.expected(authors, 60) == world.expected_deliveries(graph, authors, 60).hybrid


@pytest.mark.parametrize("depth", DEPTHS)
def test_share_below_the_floor_is_a_count_of_pages(depth):
    p = 1 - 1 / depth
    readers = p ** np.arange(4_000)            # of page 1, 2, 3 ...: who goes on, goes on alike
    for size in SIZES:
        below = readers[size // 20:].sum() / readers.sum()
        assert share_below_floor(size, depth) == pytest.approx(below, abs=1e-9)
    assert readers.sum() == pytest.approx(depth), "pages a visit"


def test_the_cliff_is_on_the_slider():
    """115 entries, 11 of slack, one more before the cut, the floor: 128 members at most. With one more it has been a skiplist."""
    before, after = (feed_bytes(n, "valkey-9.1", 128) for n in (115, 116))
    assert after > 2 * before and {115, 116} <= set(SIZES)
    assert feed_bytes(500, "valkey-9.1", 1_000) < feed_bytes(500, "valkey-9.1", 128) / 2
    assert 10_000 in THRESHOLDS and 50 in THRESHOLDS


def test_every_history_of_the_chooser_can_be_told():
    for name in NAMES:
        fault = faults.CATALOGUE[name]
        assert (name in PROBED) == (fault.probe is not None)
        if fault.history:
            told = in_words(fault.history)
            assert told and not any("{" in line for line in told), told
    assert in_words(faults.CATALOGUE["F8"].history) == [
        "user 1 posts", "deliver everything", "user 1 posts, and the transaction stays open", "user 2 posts", "deliver everything",
        "that transaction commits", "deliver everything"]
