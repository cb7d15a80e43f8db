"""Lag, freshness and fairness: the arrays against the plain recursion, and what each policy is for."""
import numpy as np
import pytest
from conftest import shared_file
from hypothesis import given
from hypothesis import strategies as st

from feedlab.core import policy
from feedlab.policies import bursts, graphs, rates, simulate
from feedlab.policies.simulate import Assumptions, Costs

JOBS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), min_size=1, max_size=40)


@given(JOBS)
def test_the_arrays_are_the_recursion(jobs):
    at, work = np.sort(np.array([a for a, _ in jobs], float)), np.array([w for _, w in jobs], float)
    free, want = 0.0, []
    for a, w in zip(at, work, strict=True):
        free = max(free, a) + w
        want.append(free)
    assert bursts.finished(at, work).tolist() == pytest.approx(want)


@given(JOBS, st.integers(1, 30))
def test_turns_do_the_same_work_in_another_order(jobs, turn):
    """Every post is done, none before its own work could be, and the last is done when first come first served would be."""
    at, pushed = np.sort(np.array([a for a, _ in jobs], float)), np.array([w for _, w in jobs], float)
    done = bursts._in_turns(at, pushed, 0.1, 1.0, turn)
    assert (done >= at + 0.1 + pushed - 1e-9).all()
    assert done.max() == pytest.approx(bursts.finished(at, 0.1 + pushed).max())


def test_turns_are_fair_to_small_authors():
    """A large author first, then small ones: each waits for a turn, not for all of it."""
    at, pushed = np.arange(11) * 0.001, np.array([10_000.0] + [10.0] * 10)
    first_come, turns = bursts.finished(at, pushed * 1e-3), bursts._in_turns(at, pushed, 0.0, 1e-3, 100)
    assert first_come[1:].min() > 10 and turns[1:].max() < 1 and turns[0] == pytest.approx(first_come.max())


def people():
    return simulate.population(graphs.read("article"))


def found(rule, assume=None, **more):
    p, assume = people(), assume or Assumptions(costs=Costs(deliveries_a_second=50_000, posts_a_second=2_000))
    return bursts.run(p, rule, simulate.tally(p, rule), assume, repetitions=3, **more)


def test_what_each_policy_does_to_a_burst():
    push, threshold, dynamic, pull = (found(r) for r in (policy.PushAll(), policy.Threshold(10_000), policy.LagDriven(10_000, 50),
                                                         policy.PullAll()))
    assert pull["consumers"] < threshold["consumers"] / 5 < push["consumers"] / 5       # each for its own mean load at the peak
    assert threshold["fresh_s_p99"] > 60 and push["fresh_s_p99"] > 60                    # ten times the mean is more than three
    assert dynamic["fresh_s_p99"] < threshold["fresh_s_p99"] / 5
    assert dynamic["lag_posts_max"] < threshold["lag_posts_max"] / 5
    for f in (push, threshold, dynamic, pull):
        low, high = f["fresh_s_p99_spread"]
        assert low <= f["fresh_s_p99"] <= high and f["repetitions"] == 3 and f["consumers"] >= 1


def test_seeds():
    a, b, c = (found(policy.Threshold(10_000), seed=s) for s in (1, 1, 2))
    assert a == b != c


def test_consumers_are_counted_for_the_peak():
    c = Assumptions(costs=Costs(deliveries_a_second=50_000, posts_a_second=1e9), peak=3, busy=0.6)
    assert bursts.consumers_for(45e9, 150e6, c) == np.ceil(45e9 / 86_400 / 50_000 * 3 / 0.6)


def test_the_burst_has_its_shape():
    at = bursts.arrivals(np.random.default_rng(1), bursts.posts_of(5.0, None), None)
    start, end, times = bursts.BURST
    inside, outside = ((at >= start) & (at < end)).sum() / (end - start), (at < start).sum() / start
    assert inside / outside == pytest.approx(times, rel=0.15) and 0 <= at.min() and at.max() < bursts.HORIZON_S


def test_a_trace_keeps_its_shape():
    t = rates.read_trace(shared_file("higgs-activity_time.txt.gz")).compressed(1_000)
    at = bursts.arrivals(np.random.default_rng(1), 30_000, t)
    assert rates.Trace(at - at[0], at.astype(int), "drawn").peak(0.6) == pytest.approx(t.peak(0.6), rel=0.2)
    assert found(policy.Threshold(10_000), trace=t)["lag_s_max"] > 0
