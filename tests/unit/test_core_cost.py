"""The cost model's figures: the article's sheet, the tail, the published checks, the bytes of a timeline."""
import doctest
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedlab.core import cost, snowflake
from feedlab.core.cost import LAYOUTS, Sheet, timeline_bytes


def test_examples_in_the_docstrings():
    result = doctest.testmod(cost)
    assert result.attempted > 15 and result.failed == 0


def test_the_article_s_sheet():
    s = Sheet()
    assert (s.reads_a_day, s.posts_a_day, s.feed_writes_a_day) == (3e9, 150e6, 45e9)
    assert s.reads_a_second == pytest.approx(35e3, rel=0.01) and s.peak_reads_a_second == pytest.approx(100e3, rel=0.05)
    assert s.posts_a_second == pytest.approx(1.7e3, rel=0.03) and s.peak_posts_a_second == pytest.approx(5e3, rel=0.05)
    assert s.reads_a_post == 20 and s.redis_bytes == 6e12
    assert s.feed_writes_a_second == pytest.approx(520_833, abs=1)
    assert Sheet(users=100).reads_a_day == 1_000


def test_what_the_engines_take_of_the_six_terabytes():
    """127 B an entry and 12.7 TB on Redis 7.0, 21 B and 2.1 TB as listpack, by the figures in the shared design."""
    s = Sheet()
    skiplist = timeline_bytes(500, "redis-7.0")
    listpack = timeline_bytes(500, "redis-7.0", 512, packed=True)
    assert (round(skiplist / 500), round(listpack / 500)) == (127, 21)
    assert skiplist * s.feeds / 1e12 == pytest.approx(12.7, abs=0.1)
    assert listpack * s.feeds / 1e12 == pytest.approx(2.1, abs=0.1)


def test_a_listpack_holds_padded_ids_as_text():
    """F11's 20 B is true of str(id). An id with leading zeros is text to a listpack: 21 B instead of 10."""
    assert cost.listpack_bytes(101) - cost.listpack_bytes(100) == 31
    assert cost.listpack_bytes(101, packed=True) - cost.listpack_bytes(100, packed=True) == 20
    first_of_19_digits = 10**18
    ms, _, _ = snowflake.parts(first_of_19_digits)
    assert 1_942_000_000_000 < ms < 1_943_000_000_000      # July 2031


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_cliff(layout):
    at_most, above = timeline_bytes(127, layout), timeline_bytes(128, layout)
    assert above > 2.5 * at_most
    assert timeline_bytes(100, layout, most=128) > 2 * timeline_bytes(100, layout)      # once a skiplist, for ever (F11)
    assert timeline_bytes(128, layout, 512) < above / 2


@pytest.mark.parametrize("layout, at", [("redis-7.0", 512), ("valkey-9.1", 7 * 64)])
def test_the_sawtooth(layout, at):
    """The table doubles between two sizes: `at` members fit, one more does not; half a table later the old one is gone."""
    before, after = timeline_bytes(at - 1, layout), timeline_bytes(at, layout)
    one = timeline_bytes(at - 1, layout) - timeline_bytes(at - 2, layout)
    assert after - before > 20 * one
    settled = timeline_bytes(at + at // 2, layout)
    assert settled / (at + at // 2) < after / at


@given(entries=st.integers(0, 2_000), layout=st.sampled_from(sorted(LAYOUTS)), limit=st.sampled_from([0, 64, 128, 512]))
def test_bytes_are_sane(entries, layout, limit):
    size = timeline_bytes(entries, layout, limit)
    assert 10 * entries < size < 2_500 + 200 * entries
    assert timeline_bytes(entries, layout, limit, most=entries * 2) >= size * 0.8
    between = timeline_bytes(entries + 0.5, layout, limit)
    assert min(size, timeline_bytes(entries + 1, layout, limit)) <= between <= max(size, timeline_bytes(entries + 1, layout, limit))


def test_wrong_arguments():
    with pytest.raises(ValueError, match="redis-7.0, valkey-9.1"):
        timeline_bytes(1, "redis-1.0")
    with pytest.raises(ValueError, match="negative"):
        timeline_bytes(-1)
    assert (cost.layout_of("well: valkey, libc"), cost.layout_of("redis")) == ("valkey-9.1", "redis-7.0")


@pytest.mark.parametrize("n, libc, je", [(1, 24, 8), (24, 24, 32), (25, 40, 32), (56, 56, 64), (57, 72, 64), (129, 136, 160),
                                         (161, 168, 192), (10_017, 10_024, 10_240)])
def test_allocation_classes(n, libc, je):
    assert (cost._glibc(n), cost._jemalloc(n)) == (libc, je)


# --- the tail ---------------------------------------------------------------------------------------------------------------------

def test_mean_300_and_largest_50_m_fit_two_tails_five_times_apart():
    alpha, xmin = cost.fit_pareto(300, 50e6, 300e6)
    median, sigma = cost.fit_lognormal(300, 50e6, 300e6)
    assert (round(alpha, 3), round(xmin)) == (1.485, 98)
    assert (round(median, 1), round(sigma, 2)) == (7.8, 2.70)
    assert round(cost.pareto_share(10_000, alpha, xmin), 3) == 0.106
    assert round(cost.lognormal_share(10_000, median, sigma), 3) == 0.522


def test_shares_against_draws():
    rng = np.random.default_rng(1)
    pareto = 98 * (1 - rng.random(2_000_000)) ** (-1 / 2.5)       # a lighter tail than the article's, so that draws settle
    assert pareto[pareto >= 500].sum() / pareto.sum() == pytest.approx(cost.pareto_share(500, 2.5, 98), abs=0.01)
    lognormal = np.exp(rng.normal(math.log(50), 1, 2_000_000))
    assert lognormal[lognormal >= 100].sum() / lognormal.sum() == pytest.approx(cost.lognormal_share(100, 50, 1), abs=0.01)


def test_shares_at_their_ends():
    assert cost.pareto_share(1, 1.5, 98) == 1 and cost.pareto_share(50e6, 1.5, 98, 50e6) == 0
    assert cost.lognormal_share(0, 8, 2.7) == 1 and cost.lognormal_share(1e15, 8, 2.7) < 1e-6
    for fit in (cost.fit_pareto, cost.fit_lognormal):
        with pytest.raises(ValueError, match="no "):
            fit(300, 200, 1e6)
        with pytest.raises(ValueError, match="no "):
            fit(300, 1e12, 1e3)


# --- work --------------------------------------------------------------------------------------------------------------------------

def test_twitter_2013():
    assert cost.deliveries(400e6, 75) / cost.DAY == pytest.approx(347e3, rel=0.001)
    rate = 1e6 / 3.5
    assert cost.fan_out_seconds(1e6, rate) == pytest.approx(3.5) and cost.fan_out_seconds(31e6, rate) == pytest.approx(108.5)


def test_deliveries_and_amplification():
    posts, followers = np.array([2.0, 1.0, 0.0]), np.array([10, 1_000, 7])
    assert cost.deliveries(posts, followers) == 1_020
    assert cost.deliveries(posts, followers, np.array([True, False, True])) == 20
    assert cost.deliveries(posts, followers, np.array([1, 0.5, 1])) == 520
    assert cost.write_amplification(posts, followers) == 340
    assert cost.write_amplification(np.zeros(3), followers) == 0


def test_an_edge_is_pushed_when_reads_pay_for_it():
    h, pull = 8e-6, 40e-6
    assert cost.push_edge(10, 0.5, h, pull)                         # 20 reads a post against H / L = 0.2
    assert not cost.push_edge(0.01, 1, h, pull)
    assert cost.push_edge(0.2, 1, h, pull)                          # at the mark itself: push
    assert cost.push_edge(0, 0, h, pull)                            # an author who never posts costs nothing
    assert cost.edge_cost([10, 0.01], [0.5, 1], [True, False], h, pull).tolist() == pytest.approx([4e-6, 4e-7])
    assert cost.cpu_seconds(10, 5, h, pull) == pytest.approx(2.8e-4)


def test_sources_a_page():
    pulls = cost.pulls_a_page(np.array([10, 400, 600]), np.array([False, True, True]), readers=500)
    assert pulls == 2 and cost.sources_a_page(pulls) == 3 and cost.sources_a_page(pulls, 0.1) == pytest.approx(3.1)


def test_cores_and_nodes():
    assert cost.redis_cores(100e3, 0, 8e-6, 40e-6, peak=3, busy=0.6) == pytest.approx(4)
    assert cost.nodes(48e9, 64e9, 0.75, replicas=0) == 1 and cost.nodes(49e9, 64e9, 0.75, replicas=1) == 4


@given(st.lists(st.integers(0, 100), min_size=1, max_size=50), st.integers(1, 50))
def test_lag_is_lindley_s(arrivals, capacity):
    backlog, want = 0, []
    for a in arrivals:
        backlog = max(0, backlog + a - capacity)
        want.append(backlog)
    assert cost.lag_under(arrivals, capacity).tolist() == pytest.approx(want)


def test_draining():
    assert cost.drain_seconds(100, 5, 10) == 20
    assert cost.drain_seconds(100, 10, 10) == math.inf and cost.drain_seconds(0, 10, 10) == 0
