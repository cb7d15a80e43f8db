"""The dynamic threshold (article, 9.4): when the consumer lags, push less; when it has caught up, push more again.

A bound below and above, two marks for the lag, and patience keep it from flapping. Authors that fall below the threshold on the way
up are demoted, so that no flag stays raised for ever.
"""
import time
from collections.abc import Callable
from dataclasses import dataclass

from redis.exceptions import RedisError

from . import db, kafka, outbox, repair
from .addresses import away
from .core.codec import Event, Names
from .errors import EngineDown

FLAGGED_BELOW = """
    select p.author_id from pull_flags p where p.raised
      and coalesce((select sum(n) from follower_counts where user_id = p.author_id), 0) < %s
      and not exists (select from outbox where key = p.author_id and topic = %s and payload = %s || p.author_id || %s)
    order by p.author_id limit %s"""


@dataclass
class Marks:
    """Lag in records. Above `high` the threshold is halved, at most once in `patience_s`; when the lag has been below `low` for
    `patience_s` it is doubled. It stays within `floor` and `ceiling` (followers)."""
    high: int = 5_000
    low: int = 500
    floor: int = 50
    ceiling: int = 10_000
    patience_s: float = 10.0


class Controller:
    """Pure but for the clock: `decide(lag, threshold)` gives the threshold to set.

    >>> t = [0.0]
    >>> c = Controller(Marks(high=100, low=10, floor=50, ceiling=400, patience_s=5), clock=lambda: t[0])
    >>> c.decide(lag=200, threshold=400), c.decide(lag=200, threshold=200)      # the second within the patience
    (200, 200)
    >>> t[0] = 6.0
    >>> c.decide(lag=200, threshold=200), c.decide(lag=5, threshold=100)        # calm begins now
    (100, 100)
    >>> t[0] = 12.0
    >>> c.decide(lag=5, threshold=100)
    200
    """

    def __init__(self, marks: Marks, clock: Callable[[], float] = time.monotonic):
        self.marks, self.clock = marks, clock
        self.moved: float | None = None
        self.calm: float | None = None

    def decide(self, lag: int, threshold: int) -> int:
        now, m = self.clock(), self.marks
        if lag > m.low:
            self.calm = None
        elif self.calm is None:
            self.calm = now
        rested = self.moved is None or now - self.moved >= m.patience_s
        wanted = threshold
        if lag > m.high and rested:
            wanted = max(m.floor, threshold // 2)
        elif self.calm is not None and now - self.calm >= m.patience_s and rested:
            wanted = min(m.ceiling, threshold * 2)
        if wanted != threshold:
            self.moved = now
        return wanted


def step(controller: Controller, conn: db.Connection, lag: int) -> int:
    """Look once and move the live threshold if need be. The threshold that now holds."""
    threshold = db.knobs(conn)["threshold"]
    wanted = controller.decide(lag, threshold)
    if wanted != threshold:
        db.set_knobs(conn, threshold=wanted)
    return wanted


def demote_below(conn: db.Connection, names: Names, most: int = 100) -> list[int]:
    """Ask for the demotion of flagged authors that the threshold would push again, at most `most` at a time. Which."""
    before, after = Event("demote", author=0).encode().split('"author":0')
    authors = [a for a, in conn.execute(FLAGGED_BELOW, (
        db.knobs(conn)["threshold"], names.created, before + '"author":', after, most))]
    for author in authors:
        repair.ask_demotion(conn, names, author)
    return authors


def run(settings, addresses, marks: Marks, stop: Callable[[], bool], say: Callable[[str], None] = lambda text: None,
        every_s: float = 1.0) -> None:
    """Look every second until `stop()`. Demotions are asked for only while there is no lag to speak of: they cost writes."""
    from .timeline import client
    names, controller = Names(settings.namespace), Controller(marks)
    r, admin = client(addresses.redis_url), kafka.admin(addresses.kafka_bootstrap)
    conn, trouble = None, False
    while not stop():
        try:
            conn = conn or db.connect(addresses.postgres_url, settings.namespace, "feedlab control")
            lag, before = kafka.lag(admin, r, names) + outbox.depth(conn), db.knobs(conn)["threshold"]
            now = step(controller, conn, lag)
            if now != before:
                say(f"lag {lag}: threshold {before} -> {now}")
            elif lag <= marks.low:
                for author in demote_below(conn, names, 10):
                    say(f"author {author} goes back to push")
            trouble = False
        except (EngineDown, RedisError, *db.AWAY) as e:
            if not trouble:
                say("control: waiting, since " + away(e, postgres=addresses.postgres_url, redis=addresses.redis_url,
                                                      kafka=addresses.kafka_bootstrap))
            conn, trouble = None, True
        time.sleep(every_s)
