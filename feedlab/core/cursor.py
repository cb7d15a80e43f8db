"""The cursor `createdAtMillis:postId`: the place of the last entry that was shown. It works for ever, since it names a
place in time and not a row of a cache.

>>> parse("1760245800123:7253")
Entry(ms=1760245800123, id=7253)
>>> parse(None) == START, text(Entry(5, 3))
(True, '5:3')
"""
import re

from ..errors import BadInput
from .model import MAX_ID, MAX_MS, START, Entry

# no sign, no leading zero, ASCII digits only: each place has exactly one spelling, so a round trip is byte-equal
_FORM = re.compile(r"(0|[1-9][0-9]{0,15}):(0|[1-9][0-9]{0,18})")


def parse(cursor: str | None) -> Entry:
    """The entry that a cursor names; None is the start. Raises BadInput for anything malformed, never guesses (F9)."""
    if cursor is None:
        return START
    match = _FORM.fullmatch(cursor)
    if match:
        entry = Entry(int(match[1]), int(match[2]))
        if entry.ms <= MAX_MS and entry.id <= MAX_ID:
            return entry
    shown = cursor if len(cursor) <= 60 else cursor[:57] + "..."
    raise BadInput(f"cursor {shown!r} is not of the form createdAtMillis:postId, for example 1760245800123:7253. "
                   "Pass nextCursor of the page before unchanged, or leave the cursor out to start at the top.")


def text(entry: Entry) -> str:
    """The cursor of an entry; `parse(text(e)) == e`."""
    return f"{entry.ms}:{entry.id}"
