"""Deliveries a second with 1, 2, 4 consumer processes, and which resource is used up where it stops."""
import statistics
import time

import numpy as np
import psutil

from .. import kafka
from ..addresses import Addresses
from ..config import Settings
from ..core.codec import Event
from ..lab.workers import Workers
from .delivery import FEED_MAX, FOLLOWERS
from .ground import fill_posts, follow, ground, warm
from .measure import clock, row, spread
from .whole_push import until

FULL = 0.85       # of a core, or of the machine: from there on it is that which stops us


def run(settings: Settings, addresses: Addresses, *, processes=(1, 2, 4), rounds: int = 3, posts: int = 300,
        followers: int = FOLLOWERS, feed_max: int = FEED_MAX, say=lambda *a: None) -> dict:
    """`posts` records over four partitions a round, feeds full; the consumers are up before the records come."""
    own = {"feed_max": feed_max, "threshold": 10**9, "partitions": max(processes)}
    with clock() as took, ground(settings, addresses, "scaling", **own) as lab:
        say("scaling: filling feeds")
        # authors whose keys fall on all partitions
        authors = [10**6 + n for n in range(64)]
        follow(lab, [(u, a) for a in authors for u in range(followers)])
        fill_posts(lab, np.resize(authors, feed_max + 1))
        warm(lab, range(followers))
        made, rates, used = feed_max + 1, {n: [] for n in processes}, {n: [] for n in processes}
        producer, total = kafka.producer(addresses.kafka_bootstrap), 0
        for turn in range(rounds):
            for n in processes[turn % len(processes):] + processes[:turn % len(processes)]:
                rows = fill_posts(lab, np.resize(authors, posts), made)
                made, total = made + posts, total + posts
                events = [(e.encode().encode(), str(e.author).encode())
                          for e in (Event("posted", author=a, post=i, ms=ms) for i, a, ms in rows)]
                with Workers(lab.settings, addresses, relays=0, consumers=n) as workers:
                    workers.wait_ready(lab)
                    before, seen = lab.stats().get("pushed", 0), Usage(lab.redis, workers.pids("fanout"))
                    with clock() as spent:
                        send(producer, lab.names.created, events)
                        until(lambda: lab.stats().get("pushed", 0) >= before + posts, "the consumers", pause_s=0.005)   # noqa: B023
                    rates[n].append(posts * followers / spent())
                    used[n].append(seen())
            say("scaling: rounds", turn + 1, rounds)
        stats = lab.stats()
    shares = {n: {what: statistics.median(u[what] for u in used[n]) for what in used[n][0]} for n in processes}
    table = [row(f"{n} consumer processes", rates[n], "one", rates[processes[0]], "deliveries/s") for n in processes[1:]]
    return {"station": "scaling", "rows": table, "seconds": took(),
            "stopped_by": {str(n): stopped_by(shares[n]) for n in processes},
            "points": {str(n): {"deliveries_a_second": spread(rates[n]), **shares[n]} for n in processes},
            "counts": {"posts": total, "pushed": stats["pushed"], "deliveries": stats["deliveries"], "followers": followers},
            "conditions": f"{psutil.cpu_count()} cores for engines and consumers together, {followers} followers, feeds of {feed_max}, "
                          f"{posts} posts a round, {rounds} rounds"}


def send(producer, topic: str, records: list[tuple[bytes, bytes]]) -> None:
    """Produce (value, key) records and wait until all are acknowledged."""
    failures: list = []
    for value, key in records:
        producer.produce(topic, value, key, on_delivery=lambda error, _: failures.append(error) if error else None)
    kafka.wait_acked(producer, failures)


class Usage:
    """Shares of a core that Redis and the consumers use, and of all cores that anybody uses, from now until it is called."""

    def __init__(self, r, pids: list[int]):
        self.r, self.processes = r, [psutil.Process(pid) for pid in pids]
        self.before = self.now()

    def now(self) -> tuple[float, float, float, float]:
        cpu, machine = self.r.info("cpu"), psutil.cpu_times()
        mine = sum(sum(p.cpu_times()[:2]) for p in self.processes)
        idle = machine.idle + getattr(machine, "iowait", 0) + getattr(machine, "steal", 0)
        return time.monotonic(), cpu["used_cpu_user"] + cpu["used_cpu_sys"], mine, sum(machine) - idle

    def __call__(self) -> dict[str, float]:
        s, r, c, m = (b - a for a, b in zip(self.before, self.now(), strict=True))
        return {"redis_core": r / s, "consumer_cores": c / s, "machine": m / (s * psutil.cpu_count())}


def stopped_by(share: dict[str, float]) -> str:
    """The resource that is used up.

    >>> stopped_by({"redis_core": 0.9, "consumer_cores": 0.5, "machine": 0.8})
    "Redis's one core"
    >>> stopped_by({"redis_core": 0.5, "consumer_cores": 1.2, "machine": 0.97})
    'the cores of this machine'
    """
    if share["redis_core"] >= FULL:
        return "Redis's one core"
    return "the cores of this machine" if share["machine"] >= FULL else "none: each consumer waits for Redis and Redis for it"
