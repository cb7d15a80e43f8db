"""A namespace to work in: its lab, relay and consumer as processes or by hand, people, posts and graphs. A notebook's book is one, and an
experiment of the interview has one."""
from contextlib import ExitStack
from pathlib import Path

from .. import config, follows, posts, repair
from ..addresses import Addresses
from ..fanout import FanOut
from ..lab.graph import Graph, load_graph, read_graph
from ..lab.session import Lab, open_lab
from ..lab.stations import Stations
from ..lab.workers import Workers
from ..relay import Relay


class Place:
    """`progress(text, done, total)` is told what takes long. What is opened is closed with `stack`."""

    def __init__(self, settings: config.Settings, addresses: Addresses, progress):
        self.settings, self.addresses, self.progress = settings, addresses, progress
        self.stack = ExitStack()
        self.lab: Lab | None = None
        self.hand: Stations | None = None

    # --- engines ---------------------------------------------------------------------------------------------------------

    def open(self) -> Lab:
        """The lab of this namespace as it is now, for example after a demo."""
        if self.lab is None:
            self.lab = self.stack.enter_context(open_lab(self.settings, self.addresses))
        return self.lab

    def run(self, relays: int = 1, consumers: int = 1) -> Workers:
        """Relay and fan-out as processes, until `end` or their `stop()`; returns when all are at work."""
        self.put_down()
        lab = self.open()
        workers = self.stack.enter_context(Workers(self.settings, self.addresses, relays, consumers))
        workers.wait_ready(lab)
        return workers

    def at(self) -> Stations:
        """Relay and consumer in this process. The same ones when asked again."""
        if self.hand is None:
            self.hand = Stations(self.open())
        return self.hand

    def stations(self) -> tuple[Relay, FanOut]:
        """The two, to be stepped by hand: `relay.once()`, `fanout.once()`."""
        return self.at().relay, self.at().fanout

    def pump(self) -> tuple[int, int]:
        """Step both stations until outbox and lag are 0. (rows moved, records handled)."""
        moved, done = self.at().pump()
        self.open().reader.copies.clear()
        return moved, done.records

    def put_down(self) -> None:
        """Close the stations: a consumer that is not stepped would keep its partitions from one that works."""
        if self.hand is not None:
            self.hand.close()
            self.hand = None

    # --- people and graphs -------------------------------------------------------------------------------------------------

    def people(self, n: int, first: int = 0) -> list[int]:
        """Users `first` to `first + n - 1`, active just now. Those who exist are left as they are."""
        lab, users = self.open(), list(range(first, first + n))
        lab.conn.execute("insert into users (id, name) select u, 'user ' || u from unnest(%s::bigint[]) u on conflict do nothing", (users,))
        lab.conn.execute("insert into user_activity (user_id) select unnest(%s::bigint[]) on conflict (user_id) do update "
                         "set last_seen_at = now()", (users,))
        return users

    def follow(self, follower: int, *followees: int) -> None:
        """`follower` follows each of `followees`, as the API would do it."""
        lab = self.open()
        for followee in followees:
            follows.follow(lab.conn, lab.redis, lab.names, follower, followee)

    def post(self, author: int, text: str = "hello", n: int = 1) -> list:
        """`n` posts of an author; they wait in the outbox until a relay comes."""
        lab = self.open()
        return [posts.create(lab.conn, lab.ids, lab.names, author, text if n == 1 else f"{text} {i}") for i in range(n)]

    def load(self, graph: Graph | Path | str, directed: bool | None = None, warm: bool = True) -> Graph:
        """A follow graph into this namespace, everybody active; with `warm` each feed is built, so that deliveries land."""
        if not isinstance(graph, Graph):
            path = Path(graph)
            graph = read_graph(path if path.is_absolute() or path.exists() else config.project_root() / path, directed)
        lab, users = self.open(), graph.users.tolist()
        self.progress(f"loading {len(users):,} users and {len(graph.follower):,} follows")
        load_graph(lab.conn, graph)
        if warm:
            repair.warm(lab.conn, lab.redis, self.settings, users, lambda done: self.progress("building feeds", done, len(users)))
        self.progress.close()
        return graph
