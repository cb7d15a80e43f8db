"""The workload behind the live widgets: posts and reads at a rate, relay and consumer as processes, samples of what they did.

    run = Rounds(b.settings, b.addresses, on_sample=print)
    run.start()
    run.ask(threshold=200)       # the running consumer's knob is moved between two rounds
    run.stop()                   # ends the thread and both processes

A run is a thread of this process. It loads the generated graph when the namespace has none, and takes what is there otherwise. One
run at a time in a namespace, by an advisory lock that ends with its connection. When this process dies, so do thread and workers.
"""
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .. import celebrities, controller, db, kafka, outbox, posts, repair
from ..addresses import Addresses
from ..config import Settings, project_root
from ..core import cost
from ..core.model import Post
from ..core.snowflake import wall_clock_ms
from ..errors import Conflict
from ..lab import world
from ..lab.demo import DEFAULT_GRAPH
from ..lab.graph import Graph, from_edges, load_graph, read_graph
from ..lab.session import Lab, open_lab
from ..lab.workers import Workers


@dataclass(frozen=True)
class Sample:
    """What a run saw. The counts are since its settings last moved; `deliveries` was read with nothing on its way, so it must equal
    `expected`, the count that the graph gives. Times are milliseconds, memory bytes, `lag` events (outbox rows and records)."""
    t_s: float
    threshold: int
    active: float
    posts: int
    deliveries: int
    expected: int
    pages: int
    pulls_a_page: float
    redis_bytes: int
    model_bytes: float
    lag: int
    p50_ms: float
    p99_ms: float
    users: int

    @property
    def writes_a_post(self) -> float:
        return self.deliveries / self.posts if self.posts else 0.0


@lru_cache(maxsize=1)
def default_graph() -> Graph:
    """The generated graph of data/, read once."""
    return read_graph(project_root() / DEFAULT_GRAPH)


def graph_in(conn: db.Connection) -> Graph | None:
    """The follow graph of a namespace, None when nobody follows anybody."""
    rows = np.array(conn.execute("select follower_id, followee_id from follows").fetchall(), np.int64).reshape(-1, 2)
    return from_edges(rows[:, 0], rows[:, 1], True, "the follows in PostgreSQL") if len(rows) else None


def skewed(act: world.Activity, sigma: float) -> world.Activity:
    """The same activity with another spread of posting: sigma 0 is everybody alike, world.POST_SIGMA leaves it as it is."""
    weights = act.posts ** (sigma / world.POST_SIGMA)
    return world.Activity(act.users, weights * (world.POSTS_A_DAY / weights.mean()), act.reads)


class Population:
    """A graph with some of its users away. `active`: bool (users,); the same seed and share are the same users."""

    def __init__(self, graph: Graph, share: float = 1.0, seed: int = 1):
        self.graph, self.share = graph, share
        order = np.random.default_rng([seed, 7]).permutation(len(graph.users))
        self.active = order < round(share * len(graph.users))

    def expected(self, authors: np.ndarray, threshold: int) -> int:
        """Feed writes that posts of these authors cost: the active followers of those who have fewer than `threshold` followers in all."""
        if self.active.all():
            return world.expected_deliveries(self.graph, authors, threshold).hybrid
        g = self.graph
        here = self.active[np.searchsorted(g.users, g.follower)]
        counts = np.bincount(np.searchsorted(g.users, g.followee), weights=here, minlength=len(g.users)).astype(np.int64)
        at = np.searchsorted(g.users, np.asarray(authors, np.int64))
        return int(counts[at][g.followers[at] < threshold].sum())


class LiveRun:
    """The thread and what it needs open. A subclass does the work in `prepare`, `turn` (again and again until `stop`) and `finish`."""

    rate = 40.0      # posts a second

    def __init__(self, settings: Settings, addresses: Addresses, *, on_sample: Callable = lambda sample: None,
                 say: Callable = lambda text, done=None, total=None: None, on_error: Callable[[Exception], None] = lambda e: None,
                 seed: int = 1, consumer: dict | None = None):
        self.settings, self.addresses, self.on_sample, self.say, self.on_error = settings, addresses, on_sample, say, on_error
        self.rng, self.seed, self.consumer = np.random.default_rng([seed, 5]), seed, consumer
        self.told, self.ready = threading.Event(), threading.Event()
        self.thread: threading.Thread | None = None
        self.asked: dict = {}
        self.asking = threading.Lock()
        self.samples: list = []

    # --- life --------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self.thread = threading.Thread(target=self._main, name=f"feedlab run {self.settings.namespace}", daemon=True)
        self.thread.start()

    @property
    def running(self) -> bool:
        return self.thread is not None and self.thread.is_alive()

    def stop(self, timeout_s: float = 30) -> None:
        """End the thread and both workers. Harmless when repeated, or when it never started."""
        self.told.set()
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join(timeout_s)

    def ask(self, **changes) -> None:
        """Settings for the next turn (a turn takes about half a second); the last word counts."""
        with self.asking:
            self.asked |= changes

    def _main(self) -> None:
        try:
            with open_lab(self.settings, self.addresses) as self.lab:
                self._alone()
                self._open_world()
                if self.told.is_set():
                    return
                self.say("starting relay and consumer")
                with Workers(self.settings, self.addresses, consumer=self.consumer) as self.workers:
                    self.workers.wait_ready(self.lab)
                    self.prepare()
                    self.say("")
                    self.ready.set()
                    while not self.told.is_set():
                        self.workers.watch()
                        self.turn()
                    self.finish()
        except Exception as e:
            self.on_error(e)
        finally:
            self.say("")

    def _alone(self) -> None:
        """The lock lasts as long as the lab's connection."""
        name = f"feedlab run {self.settings.namespace}"
        if not self.lab.conn.execute("select pg_try_advisory_lock(hashtext(%s))", (name,)).fetchone()[0]:
            raise Conflict("another live run is at work in this notebook. Press its stop button first.")

    def _open_world(self) -> None:
        lab = self.lab
        self.graph = graph_in(lab.conn)
        if self.graph is None:
            self.graph = default_graph()
            self.say(f"loading {len(self.graph.users):,} users and {len(self.graph.follower):,} follows")
            load_graph(lab.conn, self.graph)
        self.active_now: np.ndarray | None = None
        self.people = Population(self.graph)
        self.base = world.activity(self.graph, self.seed)
        self.act = self.base

    def settle(self, share: float) -> None:
        """Make this share of the users active: their feeds are built; the others' activity and feeds are gone, as after 30 days."""
        if self.active_now is not None and self.people.share == share:
            return
        lab, self.people = self.lab, Population(self.graph, share, self.seed)
        away = self.graph.users[~self.people.active].tolist()
        if away:
            lab.conn.execute("update user_activity set last_seen_at = now() - (%s + 1) * interval '1 day' where user_id = any(%s)",
                             (self.settings.active_days, away))
            lab.redis.unlink(*(lab.names.feed(u) for u in away))
        came = self.people.active if self.active_now is None else self.people.active & ~self.active_now
        users = self.graph.users[came].tolist()
        for at in range(0, len(users), 500):
            if self.told.is_set():
                return
            repair.warm(lab.conn, lab.redis, self.settings, users[at:at + 500])
            self.say("building feeds", min(at + 500, len(users)), len(users))
        self.say("")
        self.active_now = self.people.active

    # --- work -----------------------------------------------------------------------------------------------------------------

    def draw_authors(self, n: int) -> np.ndarray:
        return self.rng.choice(self.act.users, n, p=self.act.posts / self.act.posts.sum())

    def draw_readers(self, n: int) -> np.ndarray:
        """Only those who are active: a read by another would make them so."""
        weights = self.act.reads * self.people.active
        return self.rng.choice(self.act.users, n, p=weights / weights.sum())

    def post(self, author: int) -> Post:
        return posts.create(self.lab.conn, self.lab.ids, self.lab.names, int(author), "a post of the live run")

    def waiting(self) -> int:
        """Outbox rows and records that have not reached Redis."""
        return outbox.depth(self.lab.conn) + kafka.lag(self.lab.admin, self.lab.redis, self.lab.names)

    def prepare(self) -> None: ...

    def turn(self) -> None: ...

    def finish(self) -> None: ...


class Rounds(LiveRun):
    """Rounds of half a second: post and read at the rate, look at the lag, let it drain, take a sample. What is asked for
    (`threshold`, `active`, `sigma`) is done between two rounds, with nothing on its way, so that every count is exact."""

    round_s = 0.5

    def prepare(self) -> None:
        with self.asking:
            now, self.asked = {"active": 1.0, "sigma": world.POST_SIGMA} | self.asked, {}
        now.setdefault("threshold", db.knobs(self.lab.conn)["threshold"])
        self.began, self.now = time.monotonic(), {}
        self._move(now)

    def _move(self, wanted: dict) -> None:
        changed = {k: v for k, v in wanted.items() if self.now.get(k) != v}
        if not changed:
            return
        self.now |= changed
        if "threshold" in changed:
            db.set_knobs(self.lab.conn, threshold=int(changed["threshold"]))
            self._flags(int(changed["threshold"]))
        if "sigma" in changed:
            self.act = skewed(self.base, changed["sigma"])
        if "active" in changed:
            self.settle(changed["active"])
        self.lab.drain()
        self.authors: list[int] = []
        self.page_ms: list[float] = []
        self.pulls = 0
        self.written = self.lab.stats().get("deliveries", 0)

    def _flags(self, threshold: int) -> None:
        """What the threshold comes to once everybody has posted: who falls below it is demoted (else readers would pull them for
        ever, F2), who is at or above it has the flag. Left alone, flags would rise one by one, as authors post."""
        lab, most = self.lab, 0
        while not self.told.is_set() and controller.demote_below(lab.conn, lab.names, 500):
            while not self.told.is_set() and (left := self.waiting()):
                most = max(most, left)
                self.say("bringing authors back to push", most - left, most)
                self.told.wait(0.1)
        above = set(self.graph.users[self.graph.followers >= threshold].tolist())
        up = {a for a, in lab.conn.execute("select author_id from pull_flags where raised")}
        celebrities.raise_flags(lab.conn, above - up)
        feed_max, s = db.knobs(lab.conn)["feed_max"], self.settings
        for n, author in enumerate(sorted(above), 1):        # the consumer does it as a celebrity posts: readers never meet a cold one
            if self.told.is_set():
                return
            celebrities.ensure(lab.conn, lab.redis, lab.names, author, feed_max, s.building_s, s.celeb_ttl_s)
            self.say("building celebrity timelines", n, len(above))
        self.say("")

    def turn(self) -> None:
        with self.asking:
            wanted, self.asked = self.asked, {}
        self._move(wanted)
        n = max(1, round(self.rate * self.round_s))
        end, most = time.monotonic() + self.round_s, 0
        for i, (author, reader) in enumerate(zip(self.draw_authors(n).tolist(), self.draw_readers(n).tolist(), strict=True)):
            if self.told.is_set():
                break
            self.post(author)
            self.authors.append(author)
            began = time.perf_counter()
            page = self.lab.page(reader)
            self.page_ms.append((time.perf_counter() - began) * 1000)
            self.pulls += page.explain.flagged
            if i == n - 1 or i == n // 2:
                most = max(most, self.waiting())
            self.told.wait(max(0.0, (end - time.monotonic()) / (n - i)))
        self.lab.drain()
        self.take(most)

    def take(self, lag: int) -> None:
        written, (size, model) = self.lab.stats().get("deliveries", 0) - self.written, self.memory()
        p50, p99 = np.percentile(self.page_ms, [50, 99]) if self.page_ms else (0.0, 0.0)
        sample = Sample(
            time.monotonic() - self.began, self.now["threshold"], self.now["active"], len(self.authors), written,
            self.people.expected(np.array(self.authors, np.int64), self.now["threshold"]), len(self.page_ms),
            self.pulls / max(1, len(self.page_ms)), size, model, lag, float(p50), float(p99), len(self.graph.users))
        self.samples.append(sample)
        self.on_sample(sample)

    def memory(self) -> tuple[int, float]:
        """Bytes of all feeds and celebrity timelines by MEMORY USAGE, and by core.cost from their entry counts."""
        r, used, model = self.lab.redis, 0, 0.0
        layout = engine_layout(self.lab)
        limit = int(r.config_get("zset-max-listpack-entries")["zset-max-listpack-entries"])
        flagged = [a for a, in self.lab.conn.execute("select author_id from pull_flags")]
        keys = [self.lab.names.feed(u) for u in self.graph.users[self.people.active].tolist()]
        keys += [self.lab.names.celeb(a) for a in flagged]
        for at in range(0, len(keys), 1000):
            pipe = r.pipeline(transaction=False)
            for key in keys[at:at + 1000]:
                pipe.memory_usage(key, samples=0)
                pipe.zcard(key)
            rows = pipe.execute()
            used += sum(x or 0 for x in rows[::2])
            model += sum(cost.timeline_bytes(n - 1, layout, limit) for n in rows[1::2] if n)
        return used, model


def engine_layout(lab: Lab) -> str:
    """The name in cost.LAYOUTS of the Redis that is running."""
    return cost.layout_of(lab.redis.info("server").get("server_name", "redis"))


# --- bursts -----------------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Tick:
    """One look at a burst: posts a second since the last, events waiting, the live threshold, how many tracked posts came to their last
    feed since then, and the delay that a reader sees (ms): the longest that one of those took, or that one still on its way has waited."""
    t_s: float
    posts_a_second: float
    lag: int
    threshold: int
    came: int
    delay_ms: float


@dataclass
class Happening:
    t_s: float
    text: str


class Bursts(LiveRun):
    """A steady rate, bursts on top, and the controller that lowers the threshold while the lag is large.

    Marks are those of a small lab: a few hundred events are a lag, two seconds are patience.
    """

    rate, look_s = 20.0, 0.25
    marks = controller.Marks(high=400, low=60, floor=50, ceiling=2_000, patience_s=2.0)

    def __init__(self, *args, **options):
        # kill -9 is noticed after the session timeout; 6 s is the shortest that brokers allow
        super().__init__(*args, **({"consumer": {"session.timeout.ms": 6_000}} | options))
        self.happened: list[Happening] = []

    def prepare(self) -> None:
        self.settle(1.0)
        self.controller = controller.Controller(self.marks)
        db.set_knobs(self.lab.conn, threshold=self.marks.ceiling)
        self.fans = dict(zip(self.graph.users.tolist(), self.graph.followers.tolist(), strict=True))
        self.on_the_way: dict[int, int] = {}      # post -> ms, of a part of the posts that have readers
        self.post(self.draw_authors(1)[0])        # a consumer's first fetch takes up to a second: no reader's delay, so before the clock
        self.lab.drain()
        self.began = self.looked = self.paid = time.monotonic()
        self.due = self.made = 0.0

    def burst(self, n: int) -> None:
        """`n` posts at once, in the next turn."""
        self.ask(burst=n)

    def kill(self) -> None:
        """kill -9 the consumer, in the next turn; another is started at once."""
        self.ask(kill=True)

    def turn(self) -> None:
        with self.asking:
            wanted, self.asked = self.asked, {}
        self.rate = wanted.get("rate", self.rate)
        if wanted.get("kill"):
            self.workers.kill("fanout")
            self._note("consumer killed")
        if wanted.get("burst"):
            self._note(f"burst of {wanted['burst']:,}")
            self._many(wanted["burst"])
        now = time.monotonic()
        self.due += self.rate * min(1.0, now - self.paid)        # what a look or a burst took is made up for
        self.paid, n, end = now, int(self.due), now + self.look_s
        self.due -= n
        for i, author in enumerate(self.draw_authors(n).tolist()):
            if self.told.is_set():
                return
            self._track(self.post(author))
            self.told.wait(max(0.0, (end - time.monotonic()) / (n - i)))
        self.made += n
        if time.monotonic() < end:
            self.told.wait(end - time.monotonic())
        self.look()

    def _many(self, n: int) -> None:
        """Posts as fast as they go, 500 to a round trip."""
        authors = self.draw_authors(n).tolist()
        for at in range(0, n, 500):
            if self.told.is_set():
                return
            with self.lab.conn.pipeline():
                made = [self.post(a) for a in authors[at:at + 500]]
            for p in made[::10]:
                self._track(p)
        self.made += n

    def _track(self, post: Post) -> None:
        if self.fans[post.author_id] and len(self.on_the_way) < 2_000:
            self.on_the_way[post.id] = post.created_at_ms

    def _note(self, text: str) -> None:
        self.happened.append(Happening(time.monotonic() - self.began, text))

    def look(self) -> None:
        lag, now = self.waiting(), time.monotonic()
        threshold = controller.step(self.controller, self.lab.conn, lag)
        if lag <= self.marks.low:
            controller.demote_below(self.lab.conn, self.lab.names, 10)
        came = self._arrived()
        waits = wall_clock_ms() - min(self.on_the_way.values(), default=wall_clock_ms())
        tick = Tick(now - self.began, self.made / max(1e-3, now - self.looked), lag, threshold, len(came), float(max([*came, waits])))
        self.made, self.looked = 0.0, now
        self.samples.append(tick)
        self.on_sample(tick)

    def _arrived(self) -> list[int]:
        """Milliseconds to the last feed, of the tracked posts that have arrived. One that a demotion has taken to the feeds before its own
        record came was handled and has no time: it is dropped."""
        ids, came = list(self.on_the_way)[:500], []
        pipe = self.lab.redis.pipeline(transaction=False)
        for i in ids:
            pipe.hmget(self.lab.names.trace(i), "last_ms", "place")
        for i, (last, place) in zip(ids, pipe.execute(), strict=True):
            if last or place:
                ms = self.on_the_way.pop(i)
                came += [int(last) - ms] if last else []
        return came
