"""The merger equals "put all in a set, sort, cut", and draws no further than it must."""

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from feedlab.core.merge import merge, merged
from feedlab.core.model import START, Entry

# few milliseconds and few ids, so that ties and repeats are common
ENTRIES = st.lists(st.builds(Entry, st.integers(0, 4), st.integers(0, 6)), max_size=12)
SORTED = ENTRIES.map(lambda es: sorted(set(es), reverse=True))


class Source:
    """An iterator that counts what was drawn."""

    def __init__(self, entries):
        self.rows, self.drawn = iter(entries), 0

    def __iter__(self):
        return self

    def __next__(self):
        row = next(self.rows)
        self.drawn += 1
        return row


def test_section_8():
    pushed, pulled = [Entry(5000, 5), Entry(3000, 3), Entry(1000, 1)], [Entry(4000, 4), Entry(3000, 3), Entry(2000, 2)]
    one = merge(pushed, pulled, START, 3)
    assert [e.id for e in one] == [5, 4, 3]
    assert [e.id for e in merge(pushed, pulled, one[-1], 3)] == [2, 1]
    assert merge(pushed, pulled, Entry(1000, 1), 3) == []


@given(st.lists(SORTED, max_size=5))
def test_equals_the_sorted_set(sources):
    assert list(merged(sources)) == sorted({e for s in sources for e in s}, reverse=True)


@given(SORTED, SORTED, st.builds(Entry, st.integers(0, 5), st.integers(0, 7)), st.integers(0, 8))
def test_a_page_is_the_cut_below_the_cursor(pushed, pulled, before, limit):
    want = sorted((e for e in {*pushed, *pulled} if e < before), reverse=True)[:limit]
    assert merge(pushed, pulled, before, limit) == want


@given(SORTED, SORTED, st.integers(1, 5))
def test_pages_put_end_to_end_are_everything(pushed, pulled, limit):
    before, got = START, []
    while page := merge(pushed, pulled, before, limit):
        got, before = got + page, page[-1]
    assert got == sorted({*pushed, *pulled}, reverse=True)


def test_one_post_from_all_sources_is_one():
    assert list(merged([[Entry(7, 1)]] * 4)) == [Entry(7, 1)]


def test_same_millisecond_other_id_and_same_id_other_millisecond_both_stay():
    assert list(merged([[Entry(7, 2), Entry(6, 2)], [Entry(7, 1)]])) == [Entry(7, 2), Entry(7, 1), Entry(6, 2)]


@given(st.lists(SORTED, min_size=1, max_size=4), st.integers(1, 6))
def test_draws_at_most_one_entry_ahead_of_each_source(sources, n):
    counted = [Source(s) for s in sources]
    got = list(islice(merged(counted), n))
    for source, rows in zip(counted, sources, strict=True):
        used = sum(e >= got[-1] for e in rows) if got else 0
        assert source.drawn <= used + 1


def test_a_source_far_below_is_asked_once():
    """A celebrity's SQL source must not be emptied because it takes part in the merge."""
    new, old = Source([Entry(100 - i, 1) for i in range(50)]), Source([Entry(5 - i, 2) for i in range(5)])
    list(islice(merged([new, old]), 20))
    assert (new.drawn, old.drawn) == (20, 1)
