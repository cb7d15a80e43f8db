"""From the commit of outbox rows to the last feed: relay and consumer as two processes, beside each of them alone."""
import time
from pathlib import Path

import numpy as np

from .. import outbox
from ..addresses import Addresses
from ..config import Settings, project_root
from ..core.codec import Event
from ..errors import EngineDown
from ..fanout import FanOut
from ..lab import world
from ..lab.demo import DEFAULT_GRAPH
from ..lab.graph import Graph, load_graph, read_graph
from ..lab.workers import Workers
from ..relay import Relay
from .ground import fill_outbox, fill_posts, ground, warm
from .measure import clock, row, spread

THRESHOLD = 500      # in the generated graph: its ten celebrities are pulled


def run(settings: Settings, addresses: Addresses, *, rounds: int = 3, posts: int = 3_000, before: int = 3,
        users: int | None = None, graph: Path | str | None = None, threshold: int = THRESHOLD, say=lambda *a: None) -> dict:
    """`rounds` of `posts` posts, drawn by the activity model; feeds hold what `before` posts of each user left in them.

    `graph`: an edge list, the generated one when left out; `users` takes only its first so many users (for a quick look).
    """
    path = Path(graph) if graph else project_root() / DEFAULT_GRAPH
    g = read_graph(path)
    if users:
        g = _first(g, users)
    with clock() as took, ground(settings, addresses, "push", threshold=threshold) as lab:
        say(f"whole push: loading {path.name} and building feeds")
        load_graph(lab.conn, g)
        fill_posts(lab, np.repeat(g.users, before))
        warm(lab, g.users.tolist())
        one = Push(lab, g, posts, len(g.users) * before, say)
        for n in range(rounds):
            one.round()
            say("whole push: rounds", n + 1, rounds)
        wanted = world.expected_deliveries(g, np.concatenate(one.authors), threshold)
        stats = lab.stats()
        slowest = [min(a, b) for a, b in zip(one.rates["relay"], one.rates["consumer"], strict=True)]
        a_post = wanted.hybrid / wanted.posts
        table = [row(f"whole push, {path.name}", one.rates["whole"], "its slowest station alone", slowest, "posts/s", at_least=0.7),
                 row(f"whole push, {path.name}", one.rates["whole"], "relay alone", one.rates["relay"], "posts/s"),
                 row(f"whole push, {path.name}", one.rates["whole"], "consumer alone", one.rates["consumer"], "posts/s")]
        return {"station": "whole_push", "rows": table, "seconds": took(),
                "counts": {"posts": wanted.posts, "deliveries": stats["deliveries"], "deliveries_by_graph": wanted.hybrid,
                           "added": stats["added"], "pulled": stats.get("pulled", 0), "left_in_outbox": outbox.depth(lab.conn)},
                "deliveries_a_second": spread([r * a_post for r in one.rates["whole"]]),
                "conditions": f"{path.name}, {posts:,} posts a round, {a_post:.0f} deliveries a post, threshold {threshold}, "
                              f"{rounds} rounds"}


def _first(g: Graph, users: int) -> Graph:
    from ..lab.graph import from_edges
    top = g.users[:users][-1]
    keep = (g.follower <= top) & (g.followee <= top)
    return from_edges(g.follower[keep], g.followee[keep], True, g.source)


class Push:
    """Rounds over one lab: the same number of posts through relay alone, consumer alone, and through both at once."""

    def __init__(self, lab, graph: Graph, posts: int, made: int, say):
        self.lab, self.graph, self.posts, self.made, self.say = lab, graph, posts, made, say
        self.activity = world.activity(graph)
        self.authors: list[np.ndarray] = []
        self.rates = {"relay": [], "consumer": [], "whole": []}

    def prepare(self) -> list:
        authors = world.draw_posts(self.activity, self.posts, seed=len(self.authors) + 1)
        self.authors.append(authors)
        rows = fill_posts(self.lab, authors, self.made)
        self.made += len(rows)
        out = (outbox.row(self.lab.names, Event("posted", author=a, post=i, ms=ms)) for i, a, ms in rows)
        return [(o["topic"], o["key"], o["payload"]) for o in out]

    def handled(self) -> int:
        stats = self.lab.stats()
        return stats.get("pushed", 0) + stats.get("pulled", 0)

    def round(self) -> None:
        a, s = self.lab.addresses, self.lab.settings
        relay = Relay(s, a.postgres_url, a.kafka_bootstrap)
        consumer = FanOut(s, a.postgres_url, a.redis_url, a.kafka_bootstrap)
        relay.open()
        consumer.open()
        try:
            until(lambda: consumer.once().resynced and consumer.place, "the consumer's partitions")
            fill_outbox(self.lab, self.prepare())
            with clock() as took:
                while relay.once():
                    pass
            self.rates["relay"].append(self.posts / took())
            left = self.posts
            with clock() as took:
                def some() -> bool:
                    nonlocal left
                    left -= consumer.once().records
                    return left <= 0
                until(some, "the consumer")
            self.rates["consumer"].append(self.posts / took())
        finally:
            consumer.close()
            relay.close()
        rows, wanted = self.prepare(), self.handled() + self.posts
        with Workers(s, a) as workers:
            workers.wait_ready(self.lab)
            fill_outbox(self.lab, rows)
            with clock() as took:
                until(lambda: self.handled() >= wanted, "relay and consumer", pause_s=0.005)
            self.rates["whole"].append(self.posts / took())


def until(condition, what: str, timeout_s: float = 60, pause_s: float = 0.0) -> None:
    """Wait for a condition. Raises EngineDown at the deadline."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise EngineDown(f"{what}: not done after {timeout_s:.0f} s. `feedlab doctor` says what is wrong.")
        if pause_s:
            time.sleep(pause_s)
