"""Snowflake ids: 41 bits of milliseconds, 10 of node, 12 of sequence. The clock is handed in.

The post's time and its id come from one clock reading (`next` returns both), so that order by time and order by id agree
for one node. A clock that steps back never repeats or lowers an id: a small step is bridged by staying on the newest
millisecond seen, a larger one is refused. (Both were bugs of real generators: twitter-archive/snowflake#6,
bwmarrin/snowflake#20.)
"""
import threading
import time
from collections.abc import Callable

from ..errors import ClockWentBack

EPOCH_MS = 1_704_067_200_000     # 2024-01-01T00:00:00Z; 41 bits last until 2093
MS_BITS, NODE_BITS, SEQUENCE_BITS = 41, 10, 12
NODES = 1 << NODE_BITS
PER_MS = 1 << SEQUENCE_BITS


def wall_clock_ms() -> int:
    """Epoch milliseconds now."""
    return time.time_ns() // 1_000_000


def parts(snowflake: int) -> tuple[int, int, int]:
    """(epoch milliseconds, node, sequence) of an id."""
    return ((snowflake >> (NODE_BITS + SEQUENCE_BITS)) + EPOCH_MS,
            (snowflake >> SEQUENCE_BITS) % NODES, snowflake % PER_MS)


class Snowflake:
    """A generator for one node (0..1023). Thread-safe.

    `max_back_ms`: the largest step back of the clock that is bridged; beyond it `next` raises ClockWentBack.

    >>> ticks = iter([EPOCH_MS + 100] * 3 + [EPOCH_MS + 99, EPOCH_MS + 100])
    >>> ids = Snowflake(1, clock=lambda: next(ticks))
    >>> got = [ids.next()[0] for _ in range(5)]
    >>> got == sorted(set(got))
    True
    """

    def __init__(self, node: int, clock: Callable[[], int] = wall_clock_ms, max_back_ms: int = 1_000):
        if not 0 <= node < NODES:
            raise ValueError(f"node must be 0..{NODES - 1}, got {node}")
        self.node, self.clock, self.max_back_ms = node, clock, max_back_ms
        self._last_ms, self._sequence = -1, 0
        self._lock = threading.Lock()

    def next(self) -> tuple[int, int]:
        """A new id and the epoch millisecond it stands for. Ids of one generator strictly rise."""
        with self._lock:
            now = self.clock()
            if now < EPOCH_MS:
                raise ClockWentBack(f"the clock says {now} ms, before the id epoch {EPOCH_MS} (2024-01-01). Set the clock.")
            if now - EPOCH_MS >= 1 << MS_BITS:
                raise ClockWentBack(f"the clock says {now} ms, after the last id of 41 bits (2093). Set the clock.")
            if now < self._last_ms - self.max_back_ms:
                raise ClockWentBack(
                    f"the clock stepped back by {self._last_ms - now} ms (more than {self.max_back_ms}); ids made now could "
                    "repeat. Wait until it has caught up, or start a process with another node number.")
            now = max(now, self._last_ms)
            if now > self._last_ms:
                self._sequence = 0
            else:
                self._sequence += 1
                if self._sequence >= PER_MS:      # 4,096 ids in one millisecond: go to the next one the clock reaches
                    now, self._sequence = self._wait_beyond(now), 0
            self._last_ms = now
            return ((now - EPOCH_MS) << (NODE_BITS + SEQUENCE_BITS)) | (self.node << SEQUENCE_BITS) | self._sequence, now

    def _wait_beyond(self, ms: int) -> int:
        for _ in range(20 * max(self.max_back_ms, 50)):      # a strict generator (0) waits for the next millisecond, too
            now = self.clock()
            if now > ms:
                return now
            time.sleep(0.0001)
        raise ClockWentBack(f"the clock has stood at or before {ms} ms while {PER_MS} ids were used up. Set the clock.")


class Drawn:
    """An id that was drawn already, where a generator is wanted: a write that is tried again makes the same post, so that the second
    try finds the first, if that had gone through.

    >>> Drawn((7, 1_700_000_000_000)).next()
    (7, 1700000000000)
    """

    def __init__(self, drawn: tuple[int, int]):
        self.drawn = drawn

    def next(self) -> tuple[int, int]:
        return self.drawn
