"""The hybrid merger: lazy, newest first, one of each post. Sources are iterators of entries in descending order.

The article's own example (section 8):

>>> pushed, pulled = [Entry(5000, 5), Entry(3000, 3), Entry(1000, 1)], [Entry(4000, 4), Entry(3000, 3), Entry(2000, 2)]
>>> [e.id for e in merge(pushed, pulled, START, 3)], [e.id for e in merge(pushed, pulled, Entry(3000, 3), 3)]
([5, 4, 3], [2, 1])
"""
import heapq
from collections.abc import Iterable, Iterator
from itertools import islice

from .model import START, Entry  # noqa: F401  (START is used by the example above)


def merged(sources: Iterable[Iterable[Entry]]) -> Iterator[Entry]:
    """All entries of all sources, newest first, each once. Draws from a source only as far as it must: a source that asks
    SQL is not asked before everything newer is used up. Lazily O(log sources) an entry."""
    last = None
    for entry in heapq.merge(*sources, reverse=True):
        if entry != last:        # the same post has the same (ms, id) everywhere, so repeats are neighbours
            yield entry
            last = entry


def merge(pushed: list[Entry], pulled: list[Entry], cursor: Entry, limit: int) -> list[Entry]:
    """The article's `merge`, for two lists in memory: strictly older than the cursor, one of each, newest first, cut."""
    older = ([e for e in source if e < cursor] for source in (pushed, pulled))
    return list(islice(merged(older), limit))
