"""What policies cost: the one callable over edges and over posts, MinCost's property, the article's figures, speed."""
import time

import numpy as np
import pytest
from conftest import shared_file
from hypothesis import given, settings
from hypothesis import strategies as st

from feedlab.core import cost, policy
from feedlab.core.policy import DROP, PULL, PUSH, SKIP, Edges, Rates
from feedlab.errors import BadInput
from feedlab.lab.graph import from_edges
from feedlab.policies import graphs, hubs, simulate, study
from feedlab.policies.graphs import Degrees
from feedlab.policies.simulate import Assumptions, Costs

EXACT = [policy.PushAll(), policy.PullAll(), policy.Threshold(3), policy.Hysteresis(2, 4), policy.LagDriven(4, 1), policy.ActiveOnly(30, 3),
         policy.RateThreshold(3), policy.MinCost(1.0), policy.Slices(1, 3)]
settings.register_profile("unhurried", deadline=None, max_examples=60)      # cores here do other things too
settings.load_profile("unhurried")


@st.composite
def worlds(draw):
    """A graph of 2 to 12 users, their rates, and when they were last seen."""
    n = draw(st.integers(2, 12))
    edges = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] != e[1]), min_size=1, max_size=50))
    rate = st.floats(0, 100, allow_subnormal=False)
    posts, reads = (np.array(draw(st.lists(rate, min_size=n, max_size=n))) for _ in range(2))
    posts[0], reads[0] = 1, 1      # somebody does
    away = np.array(draw(st.lists(st.sampled_from([0.0, 29.0, 31.0]), min_size=n, max_size=n))) if draw(st.booleans()) else None
    follows = graphs.of(from_edges(*zip(*edges, strict=True), True, "drawn"))
    return follows, Rates(np.arange(n), posts, reads, away)


@given(worlds(), st.sampled_from([*EXACT, policy.Lossy(1, 5), lambda e: (e.followers < 3) | (e.reads > 20)]))
def test_the_chunks_add_up_to_one_edge_after_the_other(world, rule):
    """The reference: ask the policy about each edge alone."""
    follows, rates = world
    people = simulate.population(follows, rates) if rates.posts_of(follows.ids).sum() and rates.reads_of(follows.ids).sum() else None
    if people is None:
        return
    t = simulate.tally(people, rule)
    pushed, pulled, skipped, dropped = (np.zeros(follows.users) for _ in range(4))
    for i, (r, a) in enumerate(zip(follows.reader.tolist(), follows.author.tolist(), strict=True)):
        e = Edges(author=people.ids[a], followers=people.followers[a], posts=np.float32(people.posts[a]), reader=people.ids[r],
                  follows=people.follows[r], reads=np.float32(people.reads[r]), post=i,
                  away_days=0.0 if people.away_days is None else people.away_days[r])
        said = int(policy.answers(rule, e, 1)[0])
        if people.away_days is not None and people.away_days[r] > 30:
            said = SKIP
        pushed[a] += said == PUSH
        pulled[r] += said == PULL
        skipped[a] += said == SKIP
        dropped[a] += said == DROP
    assert t.pushed.tolist() == pushed.tolist() and t.skipped.tolist() == skipped.tolist() and t.dropped.tolist() == dropped.tolist()
    active = people.active()
    assert (t.pulled * active).tolist() == (pulled * active).tolist()


@given(worlds(), st.floats(1e-6, 1e-3), st.floats(1e-6, 1e-3), st.integers(1, 2**31))
def test_min_cost_is_at_most_the_better_of_push_all_and_pull_all(world, h, pull, seed):
    """On every graph and every draw of posts and reads; and no follower threshold beats it."""
    follows, rates = world
    if not rates.posts_of(follows.ids).sum() or not rates.reads_of(follows.ids).sum():
        return
    people = simulate.population(follows, rates)
    assume = Assumptions(costs=Costs(delivery_s=h, pull_s=pull))
    rules = [policy.MinCost(assume.costs.h_over_l), policy.PushAll(), policy.PullAll(),
             *(policy.Threshold(k) for k in {1, 2, int(people.followers.max())})]
    best, *others = (simulate.evaluate(people, r, assume, repetitions=0).cpu_seconds_per_day for r in rules)
    assert best <= min(others) * (1 + 1e-6) + 1e-15
    # a draw: rates as counted on one day, decided on what was counted
    posts, reads = people.days(seed, 1)[0]
    if posts.sum() and reads.sum():
        drawn = simulate.population(follows, Rates(follows.ids, posts.astype(float), reads.astype(float), rates.away_days))
        best, *others = (simulate.evaluate(drawn, r, assume, repetitions=0).cpu_seconds_per_day for r in rules)
        assert best <= min(others) * (1 + 1e-6) + 1e-15


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(0.1, 1e6)), min_size=1, max_size=30), st.floats(0.01, 100))
def test_min_cost_over_classes_too(rows, h_over_l):
    people = simulate.population(Degrees(*map(np.array, zip(*rows, strict=True)), "drawn"), spread=True)
    assume = Assumptions(costs=Costs(delivery_s=1e-5 * h_over_l, pull_s=1e-5))
    best, *others = (simulate.evaluate(people, r, assume, repetitions=0).cpu_seconds_per_day for r in (
        policy.MinCost(assume.costs.h_over_l), policy.PushAll(), policy.PullAll(), policy.Threshold(1_000)))
    assert best <= min(others) * (1 + 1e-6)


def test_at_the_article_s_rates_min_cost_is_push_all():
    """10 reads and 0.5 posts for everybody: 20 reads a post, so every edge is pushed as long as a delivery costs less than 20 pulls."""
    people = simulate.population(graphs.read("article"))
    for costs in (Costs(), Costs(delivery_s=1e-5, pull_s=1e-5), Costs(delivery_s=1.9e-4, pull_s=1e-5)):
        found = [simulate.evaluate(people, r, Assumptions(costs=costs)) for r in (policy.MinCost(costs.h_over_l), policy.PushAll())]
        assert found[0].deliveries_per_day == found[1].deliveries_per_day == pytest.approx(45e9, rel=1e-3)
        assert found[0].pulls_per_day == 0
        threshold = simulate.evaluate(people, policy.Threshold(10_000), Assumptions(costs=costs))
        assert found[0].cpu_seconds_per_day <= threshold.cpu_seconds_per_day


def test_the_article_in_under_a_second():
    started = time.process_time()
    people = simulate.population(graphs.read("article"))
    found = simulate.compare(people, simulate.usual(Costs()), Assumptions())
    assert time.process_time() - started < 1
    by_name = {o.policy: o for o in found}
    assert by_name["push-all"].write_amplification == pytest.approx(300, rel=1e-3)
    assert by_name["threshold 10000"].deliveries_per_day == pytest.approx(45e9 * (1 - 0.106), rel=1e-3)      # what is below the threshold
    assert by_name["pull-all"].pulls_per_day == pytest.approx(900e9, rel=1e-3)          # 3 G reads of 300 followees
    assert by_name["pull-all"].sources_per_page == pytest.approx(301, rel=1e-3)
    assert by_name["push-all"].posts_per_day == pytest.approx(150e6) and by_name["push-all"].pages_per_day == pytest.approx(3e9)


def test_memory_is_the_sum_of_the_feeds():
    """200 M feeds of 500 entries: by the article's 60 B 6 TB, by the engines twice as much and more."""
    people = simulate.population(Degrees(np.array([300.0]), np.array([200e6]), "even"))
    for layout, limit, terabytes in (("valkey-9.1", 128, 8.3), ("redis-7.0", 128, 14.1)):
        o = simulate.evaluate(people, policy.PushAll(), Assumptions(layout=layout, listpack_limit=limit))
        assert o.redis_bytes / 1e12 == pytest.approx(terabytes, abs=0.15)          # at 525 entries, half of the trim's slack
        assert o.redis_bytes == pytest.approx(200e6 * cost.timeline_bytes(525, layout, limit, most=551))
    assert simulate.evaluate(people, policy.PullAll(), Assumptions()).redis_bytes == pytest.approx(200e6 * cost.timeline_bytes(182))


def test_edges_and_classes_agree():
    """The same degrees and even rates, once as edges and once as a histogram: the totals are the same."""
    follows = graphs.generated(users=20_000, follows=30, seed=2)
    values, counts = np.unique(follows.followers, return_counts=True)
    exact, classes = simulate.population(follows), simulate.population(Degrees(values.astype(float), counts.astype(float), "histogram"))
    for rule in (policy.PushAll(), policy.Threshold(100), policy.RateThreshold(40)):
        a, b = (simulate.evaluate(p, rule, Assumptions()) for p in (exact, classes))
        assert a.deliveries_per_day == pytest.approx(b.deliveries_per_day) and a.pulls_per_day == pytest.approx(b.pulls_per_day, rel=1e-6)
        assert a.live_pulls_per_day == pytest.approx(b.live_pulls_per_day, rel=1e-6)


def test_scaling_copies_the_graph():
    people = simulate.population(graphs.generated(users=2_000, follows=20, seed=2))
    one, many = (simulate.evaluate(people, policy.Threshold(50), Assumptions(scale=s)) for s in (None, 2e6))
    for name in ("deliveries_per_day", "pulls_per_day", "redis_bytes", "cpu_cores", "posts_per_day", "pulled_authors"):
        assert getattr(many, name) == pytest.approx(1_000 * getattr(one, name))
    assert many.write_amplification == one.write_amplification and many.largest_fan_out_seconds == one.largest_fan_out_seconds


def test_repetitions_are_seeded_and_spread_around_the_mean():
    people = simulate.population(graphs.generated(users=2_000, follows=20, seed=2))
    a, b, c = (simulate.evaluate(people, policy.PushAll(), Assumptions(), seed=s).spread for s in (1, 1, 2))
    assert a == b != c
    low, high = a["deliveries_per_day"]
    assert low < simulate.evaluate(people, policy.PushAll(), Assumptions()).deliveries_per_day < high


def test_away_readers_are_passed_over():
    follows = graphs.of(from_edges([1, 2, 3], [9, 9, 9], True, "fans"))
    rates = Rates(np.array([1, 2, 3, 9]), np.array([0, 0, 0, 1.0]), np.ones(4), np.array([0, 10, 50, 0.0]))
    people = simulate.population(follows, rates)
    for rule, writes in ((policy.PushAll(), 2), (policy.ActiveOnly(5, 10), 1), (policy.Threshold(3), 0)):
        o = simulate.evaluate(people, rule, Assumptions(), repetitions=0)
        assert (o.deliveries_per_day, o.write_amplification) == (writes, writes)
    assert simulate.evaluate(people, policy.ActiveOnly(5, 10), Assumptions()).skipped_per_day == 2


def test_lossy_says_what_it_drops_and_keeps_its_share():
    n = 4_000
    follows = graphs.of(from_edges([0] * n, list(range(1, n + 1)), True, "one who follows 4,000"))
    o = simulate.evaluate(simulate.population(follows), policy.Lossy(1_000), Assumptions(), repetitions=0)
    assert not o.exact and o.dropped_per_day + o.deliveries_per_day == pytest.approx(n / 2)
    assert o.deliveries_per_day / (n / 2) == pytest.approx(0.25, abs=0.03)
    assert simulate.evaluate(simulate.population(follows), policy.Lossy(n), Assumptions()).exact


def test_advice_wants_exact_and_fresh_and_says_what_would_flip_it():
    people = simulate.population(graphs.generated(users=20_000, follows=30, seed=2))
    rules = [policy.PushAll(), policy.PullAll(), policy.Threshold(100), policy.Lossy(5, 10**6)]
    assume = Assumptions(costs=Costs(delivery_s=1e-5, pull_s=1e-4, deliveries_a_second=1_000), fresh_s=0.5)
    found = simulate.compare(people, rules, assume)
    best = simulate.advice(found, assume)
    assert best.policy == "threshold 100"          # push-all is cheaper and too slow for the largest, lossy is not exact
    flips = simulate.flips(found, assume)
    assert {f["to"] for f in flips} == {"push-all", "pull-all"} and all(f["factor"] > 0 for f in flips)
    h = next(f for f in flips if f["to"] == "pull-all" and f["input"].startswith("cost of a delivery"))
    for factor, wanted in ((0.99, "threshold 100"), (1.01, "pull-all")):      # the factor is true
        changed = Assumptions(costs=Costs(delivery_s=1e-5 * h["factor"] * factor, pull_s=1e-4, deliveries_a_second=1_000), fresh_s=0.5)
        assert simulate.advice(simulate.compare(people, rules, changed), changed).policy == wanted
    assert simulate.advice([found[0]], assume) is None and simulate.flips([found[0]], assume) == []
    assert [o.policy for o in simulate.front(found)] == ["push-all", "pull-all", "threshold 100"]


def test_the_tail_decides():
    s = study.run(graphs.read("article"), None, [policy.PushAll()], Assumptions(), burst=False, repetitions=0)
    assert (round(s.tail["pareto"], 3), round(s.tail["lognormal"], 3), round(s.tail["here"], 3)) == (0.106, 0.522, 0.106)
    said = study.tail_sentence(s.tail, s.people.exact)
    assert "10.6%" in said and "52.2%" in said and "hangs on the tail" in said and "--graph FILE" in said


def test_wrong_assumptions():
    for wrong in ({"feed_max": 0}, {"scale": 0}, {"layout": "redis-1"}, {"peak": 0}):
        with pytest.raises(BadInput):
            Assumptions(**wrong)
    follows = graphs.of(from_edges([1], [2], True, "two"))
    for rates in (Rates.even(0, 10), Rates.even(0.5, 0)):
        with pytest.raises(BadInput, match="nothing to compare"):
            simulate.population(follows, rates)
    with pytest.raises(BadInput, match="negative"):
        simulate.population(follows, Rates.even(-1, 10))


@pytest.mark.parametrize("name", ["wiki-Vote.txt", "facebook_combined.txt.gz", "socfb-Reed98.edges"])
def test_real_graphs_in_a_moment(name):
    started = time.process_time()
    s = study.run(graphs.read(shared_file(name)), None, [], Assumptions())
    assert time.process_time() - started < 20 and len(s.outcomes) == 10
    push, pull = s.outcomes[:2]
    assert push.write_amplification == pytest.approx(s.people.edges / s.people.users)
    assert pull.sources_per_page == pytest.approx(1 + s.people.edges / s.people.users)


def test_twenty_million_edges_a_second_a_policy():
    """On a graph that does not fit into a cache; counted in CPU time of this process, since CI's cores do other things too."""
    people = simulate.population(graphs.generated(users=200_000, follows=25, seed=4))
    for rule in simulate.usual(Costs(), 500):
        started = time.process_time()
        simulate.tally(people, rule)
        assert people.edges / (time.process_time() - started) > 20e6, policy.name_of(rule)


# --- piggybacking ---------------------------------------------------------------------------------------------------------------

def test_a_hub_saves_what_it_covers():
    """Ten authors and ten readers all know the hub, and each reader each author: pushes to the hub and pulls of it replace 100 edges."""
    edges = [(0, a) for a in range(1, 11)] + [(r, 0) for r in range(11, 21)] + [(r, a) for r in range(11, 21) for a in range(1, 11)]
    follows = graphs.of(from_edges(*zip(*edges, strict=True), True, "hub"))
    b = hubs.greedy(follows, Rates.even(1, 1), 1e-5, 1e-5)
    assert b.min_cost_s == pytest.approx(120e-5) and b.piggyback_s == pytest.approx(20e-5) and (b.hubs, b.covered) == (1, 100)
    assert hubs.greedy(follows, Rates.even(1, 100), 1e-5, 1e-4).hubs == 0          # pulling the hub does not pay


@given(worlds())
def test_piggybacking_never_costs_more(world):
    follows, rates = world
    b = hubs.greedy(follows, rates, 1e-5, 2e-5)
    assert b.piggyback_s <= b.min_cost_s + 1e-12 and 0 <= b.covered <= len(follows.reader)
