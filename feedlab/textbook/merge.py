"""The article's merge: two lists in memory, cut before anything is filtered (F6 is in the reader, which filters afterwards).

>>> pushed, pulled = [Entry(5000, 5), Entry(3000, 3), Entry(1000, 1)], [Entry(4000, 4), Entry(3000, 3), Entry(2000, 2)]
>>> [e.id for e in merge(pushed, pulled, Entry(10**15, 0), 3)], [e.id for e in merge(pushed, pulled, Entry(3000, 3), 3)]
([5, 4, 3], [2, 1])
"""
from ..core.model import Entry


def merge(pushed: list[Entry], pulled: list[Entry], cursor: Entry, limit: int) -> list[Entry]:
    """Concatenate, keep what is older than the cursor, one of each id, newest first, cut."""
    by_id = {e.id: e for e in (*pushed, *pulled) if e < cursor}
    return sorted(by_id.values(), reverse=True)[:limit]
