"""Ids strictly rise, never repeat, and carry the time that the post carries, whatever the clock does (R44)."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedlab.core.model import MAX_ID
from feedlab.core.snowflake import EPOCH_MS, NODES, PER_MS, Snowflake, parts
from feedlab.errors import ClockWentBack

T0 = EPOCH_MS + 60_000


def generator(readings, node=1, **options):
    """A Snowflake whose clock says each of `readings` (milliseconds after T0) in turn, and then stands still."""
    left, last = list(readings), [T0]

    def clock():
        if left:
            last[0] = T0 + left.pop(0)
        return last[0]

    return Snowflake(node, clock=clock, **options)


def take(ids, n):
    """n ids, a refusal leaving a None in its place."""
    got = []
    for _ in range(n):
        try:
            got.append(ids.next())
        except ClockWentBack:
            got.append(None)
    return got


@pytest.mark.parametrize("max_back_ms", [0, 1, 1000])
def test_r44_a_step_back_of_one_millisecond(max_back_ms):
    got = take(generator([100, 100, 100, 99, 100], max_back_ms=max_back_ms), 5)
    assert (got[3] is None) == (max_back_ms == 0)  # bridged, or refused: never an id of the past
    made = [i for i, _ in filter(None, got)]
    assert len(set(made)) == len(made) >= 4 and made == sorted(made)


@given(st.lists(st.integers(0, 3_000), min_size=1, max_size=60), st.sampled_from([0, 5, 1000]))
def test_ids_rise_and_carry_their_time(readings, max_back_ms):
    newest = -1
    for reading, got in zip(
        readings, take(generator(readings, 7, max_back_ms=max_back_ms), len(readings)), strict=True
    ):
        seen = [i for i in (newest,) if i >= 0]
        top = parts(newest)[0] - T0 if seen else reading
        assert (got is None) == (reading < top - max_back_ms)
        if got:
            assert got[0] > newest
            assert parts(got[0])[:2] == (got[1], 7)  # the post's time and its id are one reading
            assert got[1] == T0 + max(reading, top)
            newest = got[0]


def test_a_refusal_names_the_step_and_ends_when_the_clock_has_caught_up():
    ids = generator([5_000, 3_000, 4_500])
    (first, _) = ids.next()
    with pytest.raises(ClockWentBack, match="2000 ms"):
        ids.next()
    assert ids.next()[0] > first


@pytest.mark.parametrize("max_back_ms", [0, 1000])
def test_the_4097th_id_of_a_millisecond_waits_for_the_next(max_back_ms):
    """The clock stands for 4,096 ids and for some looks more; a strict generator (0) waits as well."""
    ids = generator([5] * (PER_MS + 50) + [6], 3, max_back_ms=max_back_ms)
    got = [i for i, _ in take(ids, PER_MS + 1)]
    assert got == sorted(set(got)) and parts(got[-2]) == (T0 + 5, 3, PER_MS - 1) and parts(got[-1]) == (T0 + 6, 3, 0)


def test_a_frozen_clock_is_refused_and_nothing_repeats_afterwards():
    """A clock that stands: PER_MS ids, then refusals (not a hang, not a repeat), then on as soon as it moves."""
    ids = generator([], 0, max_back_ms=20)
    made = [i for i, _ in take(ids, PER_MS)]
    assert take(ids, 2) == [None, None]
    ids.clock = lambda: T0 + 1
    assert ids.next()[0] > made[-1]


def test_threads_share_a_generator_without_repeats():
    ids, got, gate = Snowflake(1), [], threading.Barrier(8)

    def work():
        gate.wait()
        mine = [ids.next()[0] for _ in range(1_000)]
        assert mine == sorted(mine)
        got.extend(mine)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert len(got) == len(set(got)) == 8_000


@given(st.integers(0, 2**41 - 1), st.integers(0, NODES - 1))
def test_parts_is_the_way_back(ms, node):
    i, at = Snowflake(node, clock=lambda: EPOCH_MS + ms).next()
    assert parts(i) == (EPOCH_MS + ms, node, 0) == (at, node, 0) and 0 <= i <= MAX_ID


@pytest.mark.parametrize("now", [0, EPOCH_MS - 1, EPOCH_MS + 2**41])
def test_a_clock_that_no_id_can_hold_is_refused(now):
    """Before the epoch, or after 41 bits are used up (2093): not an id that PostgreSQL refuses later."""
    with pytest.raises(ClockWentBack, match="[Ss]et the clock"):
        Snowflake(0, clock=lambda: now).next()


@pytest.mark.parametrize("node", [-1, NODES])
def test_node_out_of_range(node):
    with pytest.raises(ValueError, match="0..1023"):
        Snowflake(node)
