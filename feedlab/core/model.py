"""The words that every module uses. Pure data, no engine.

An *entry* is a post's place in time: `Entry(ms, id)`. Entries compare as tuples, so "newest first" is plain descending
order: milliseconds first, ties decided by the numeric id (protocol rule 3).
"""
from dataclasses import dataclass, field
from typing import NamedTuple

NO_FLOOR = float("-inf")     # a timeline with this floor is complete to the beginning of time
MAX_MS = 2**53               # a Redis score is a double: whole milliseconds are exact up to here
MAX_ID = 2**63 - 1           # PostgreSQL bigint, and 19 decimal digits


class Entry(NamedTuple):
    """A post in a timeline: `ms` is created-at in epoch milliseconds, `id` the post id.

    >>> Entry(5000, 5) > Entry(4000, 9), Entry(7, 10) > Entry(7, 9)
    (True, True)
    """
    ms: int
    id: int


START = Entry(MAX_MS, MAX_ID)   # above every post: the cursor of page one


@dataclass(frozen=True)
class Post:
    """A post as SQL has it."""
    id: int
    author_id: int
    created_at_ms: int
    content: str
    images: tuple[str, ...] = ()

    @property
    def entry(self) -> Entry:
        return Entry(self.created_at_ms, self.id)


@dataclass(frozen=True)
class Timeline:
    """What one read of a timeline key gave: `entries` newest first, all strictly above `floor`.

    `floor` None: the key does not exist, or is being built; its reader asks SQL. `more` says that entries may remain
    below the last one but above the floor.
    """
    floor: float | None
    entries: list[Entry] = field(default_factory=list)
    more: bool = False
    exists: bool = False


@dataclass
class Page:
    """One page of a feed: posts newest first, and the cursor of the next page, None only at the true end."""
    posts: list[Post]
    next_cursor: str | None
    explain: "Explain"

    @property
    def ids(self) -> list[int]:
        return [p.id for p in self.posts]


@dataclass
class Explain:
    """How a page was made: for `feedlab feed --explain`, tests of round trips, and the notebooks."""
    feed: str = "none"               # pushed | rebuilt | building | moved | unreachable
    floor: float | None = None
    flagged: int = 0                 # followed authors that are pulled
    local_hits: int = 0              # of those, served from this process's own copy
    taken: dict[str, int] = field(default_factory=dict)   # entries drawn from each source
    hidden: int = 0                  # entries that the filter took out (deleted, not followed)
    below_floor: bool = False        # SQL was asked for what is at or below the floor
    redis_trips: int = 0
    sql_queries: int = 0

    @property
    def sources(self) -> int:
        """Sources touched: the feed (or SQL) and each flagged author's timeline."""
        return 1 + self.flagged + int(self.below_floor)
