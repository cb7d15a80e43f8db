"""What stations stand on: a namespace of their own, emptied before and after, filled with users, follows and posts by COPY."""
import zlib
from collections.abc import Iterable
from contextlib import contextmanager

import numpy as np

from .. import repair
from ..addresses import Addresses
from ..config import Settings
from ..lab.graph import from_edges, load_graph
from ..lab.session import Lab, open_lab, wipe

FIRST_MS = 1_700_000_000_000      # the oldest post of a filled table: 14 November 2023
STEP_MS = 10
FIRST_ID = 10**15                 # far below any Snowflake of today, and as wide as one
TEXT = "It rained all morning, and then the sun came out over the harbour. Somebody sang on the pier; we stayed for an hour."


@contextmanager
def ground(settings: Settings, addresses: Addresses, station: str, **changes):
    """An open Lab on an empty namespace that begins as the caller's; everything in it is removed at the end."""
    tail = f"_{station}"
    mine = settings.model_copy(update={"namespace": settings.namespace[:16].rstrip("_") + tail} | {"partitions": 4} | changes)
    with open_lab(mine, addresses) as old:
        wipe(old)
    with open_lab(mine, addresses) as lab:
        try:
            yield lab
        finally:
            wipe(lab)


def follow(lab: Lab, pairs: Iterable[tuple[int, int]]) -> None:
    """Load (follower, followee) pairs; everybody in them was here just now."""
    pairs = np.asarray(list(pairs), np.int64)
    load_graph(lab.conn, from_edges(pairs[:, 0], pairs[:, 1], True, "bench"))


def fill_posts(lab: Lab, authors: np.ndarray, first: int = 0, text: str = TEXT) -> list[tuple[int, int, int]]:
    """One post a given author, STEP_MS apart, straight into the table, without outbox rows. -> [(id, author, ms)]

    `first` is the number of the first of them, so that a second call goes on above the first.
    """
    rows = [(FIRST_ID + first + n, author, FIRST_MS + STEP_MS * (first + n)) for n, author in enumerate(authors.tolist())]
    with lab.conn.cursor().copy("copy posts (id, author_id, created_at_ms, content) from stdin") as copy:
        for row in rows:
            copy.write_row((*row, text))
    lab.conn.execute("analyze posts")
    return rows


def fill_outbox(lab: Lab, rows: list[tuple[str, int, str]]) -> None:
    """Commit outbox rows (topic, key, payload) at once, and wake the relay."""
    with lab.conn.transaction():
        with lab.conn.cursor().copy("copy outbox (topic, key, payload) from stdin") as copy:
            for row in rows:
                copy.write_row(row)
        lab.conn.execute("select pg_notify(%s, '')", (lab.names.channel,))


def warm(lab: Lab, users: Iterable[int]) -> int:
    """Build these users' feeds. How many were built."""
    return repair.warm(lab.conn, lab.redis, lab.settings, list(users))


def seeded(*words) -> np.random.Generator:
    """A generator that draws the same for the same words."""
    return np.random.default_rng(zlib.crc32(repr(words).encode()))
