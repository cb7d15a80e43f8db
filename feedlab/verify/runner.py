"""Runs a history on live engines, against ours or the textbook's, records what was done and what was read, and has it judged.

One process steps everything: writers, relay, consumer, readers. Engines are real; time between steps is the history's. A worker is
killed before its n-th call to an engine, which is where a process can die as seen from the engines.
"""
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .. import db, kafka, outbox, posts, pull, repair
from ..addresses import Addresses
from ..celebrities import LocalCopies
from ..config import Settings
from ..core import check
from ..core import cursor as cursors
from ..core.codec import Event
from ..core.model import Entry, Page, Post
from ..core.snowflake import EPOCH_MS, Snowflake
from ..errors import ClockWentBack, FeedlabError
from ..lab.session import Lab, open_lab
from .histories import History
from .systems import System, committed_lag

# Histories begin in the very millisecond in which ids pass 10^17: node BOUNDARY makes ids of 18 digits in it, the node below of 17.
# Two processes that post in one millisecond then show whether ties are in numeric or in text order (F1).
START_MS = EPOCH_MS + (10**17 >> 22)
BOUNDARY = (10**17 >> 12) % 1024
TABLES = "posts, users, follows, user_activity, follower_counts, pull_flags, outbox"
WATCHED = {"execute", "fcall", "fcall_ro", "produce", "flush", "commit", "seek", "hmget", "hset", "unlink", "zadd", "zrem", "delete"}


class Killed(BaseException):
    """A worker died here. Not an Exception, so that nothing in the worker can catch it and go on."""


class Tap:
    """Stands before a connection and calls `tick` before each call that reaches an engine."""

    def __init__(self, inner, tick: Callable[[], None]):
        self._inner, self._tick = inner, tick

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if name == "pipeline":
            return lambda *a, **k: PipeTap(found(*a, **k), self._tick)
        if name not in WATCHED:
            return found

        def call(*a, **k):
            self._tick()
            return found(*a, **k)
        return call


class PipeTap(Tap):
    """A pipeline reaches the engine only when it is executed."""

    def __getattr__(self, name):
        return super().__getattr__(name) if name == "execute" else getattr(self._inner, name)


class Runner:
    """Keeps relay, consumer and connections over many histories; `run` empties the namespace first. Use it in a `with`."""

    def __init__(self, settings: Settings, addresses: Addresses, system: System):
        self.settings, self.addresses, self.system = settings, addresses, system
        self.clock_s = 0.0                       # ages local copies
        self.tick_at: int | None = None
        self.on_tick: Callable[[], None] | None = None

    def __enter__(self) -> "Runner":
        self._lab = open_lab(self.settings, self.addresses)
        self.lab: Lab = self._lab.__enter__()
        s, a, lab = self.settings, self.addresses, self.lab
        lab.reader = self.system.reader.Reader(s, LocalCopies(s.local_copy_s, clock=lambda: self.clock_s))
        self.relay = self.system.relay.Relay(s, a.postgres_url, a.kafka_bootstrap)
        self.fanout = self.system.fanout.FanOut(s, a.postgres_url, a.redis_url, a.kafka_bootstrap)
        self.relay.open()
        self.fanout.open()
        self.late = db.connect(a.postgres_url, s.namespace)
        until = time.monotonic() + 30
        while not self.fanout.consumer.assignment() or (self.fanout.stale and self.ours):
            self.fanout.once(0.1)
            if time.monotonic() > until:
                raise FeedlabError("the consumer was given no partitions in 30 s. Does another one of this namespace run?")
        for name in ("conn", "producer"):
            setattr(self.relay, name, Tap(getattr(self.relay, name), self._tick))
        for name in ("conn", "redis", "producer", "consumer"):
            setattr(self.fanout, name, Tap(getattr(self.fanout, name), self._tick))
        return self

    def __exit__(self, *exc) -> None:
        self.relay.close()
        self.fanout.close()
        self.late.close()
        self._lab.__exit__(*exc)

    @property
    def ours(self) -> bool:
        return self.system.name == "ours"

    # --- dying and interleaving ---------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self.tick_at is not None:
            self.tick_at -= 1
            if self.tick_at <= 0:
                act, self.tick_at, self.on_tick = self.on_tick, None, None
                act()

    @contextmanager
    def _before_call(self, n: int, act: Callable[[], None]) -> Iterator[None]:
        self.tick_at, self.on_tick = n, act
        try:
            yield
        finally:
            self.tick_at = self.on_tick = None

    def _dies(self) -> None:
        raise Killed

    def _restart_consumer(self) -> None:
        """What a new process would do: nothing in memory, ours finds its place in Redis, the textbook's in Kafka."""
        self.fanout.place, self.fanout.stale = {}, True
        if not self.ours:
            consumer = self.fanout.consumer
            for p in consumer.committed(consumer.assignment(), timeout=10):
                if p.offset < 0:
                    p.offset = 0
                consumer.seek(p)

    # --- one history -----------------------------------------------------------------------------------------------------

    def run(self, history: History) -> check.Report:
        """Run it to the end and judge every page that was read: `begin`, `do` each step, `finish`."""
        self.begin(history)
        for step in history.steps:
            self.do(step)
        return self.finish()

    def begin(self, history: History) -> None:
        """Empty the namespace; make the users, who follow as the history says; nothing has been posted."""
        self.facts, self.history, self.scrolls = check.History(), history, 0
        self._empty(history)
        for u in range(history.users):
            posts.create_user(self.lab.conn, u, f"user {u}")
            posts.visit(self.lab.conn, u)
        for u, a in history.follows:
            self.do(["follow", u, a])
        self.drain()

    def finish(self) -> check.Report:
        """Drain, scroll everybody's feed, warm and cold, and judge every page that was read.

        Verdicts call posts by the order in which they were written (post 1, 2, 3), and count milliseconds from the history's start.
        """
        self.drain()
        answers = {}
        for u in range(self.history.users):
            small = 1 + u % 3
            self._scroll(u, small, "warm")
            self._scroll(u, 50, "warm")
            self.lab.redis.delete(self.lab.names.feed(u))
            self._scroll(u, small, "cold")
            answers[u, 1] = [e.id for e in pull.everything(self.lab.conn, u)]
        return self._judge(answers)

    def _judge(self, answers: dict) -> check.Report:
        """With post ids by rank and milliseconds from the start, so that verdicts can be read."""
        rank = {i: n for n, i in enumerate(sorted(f.id for f in self.facts.facts if isinstance(f, check.Posted) and f.id), 1)}

        def short(e: Entry | None) -> Entry | None:
            return e and Entry(e.ms - START_MS, rank.get(e.id, e.id))
        for f in self.facts.facts:
            if isinstance(f, check.Posted) and f.id:
                f.id, f.ms = rank[f.id], f.ms - START_MS
            elif isinstance(f, check.Deleted):
                f.id = rank[f.id]
        for r in self.facts.reads:
            r.entries, r.cursor, r.next_cursor = [short(e) for e in r.entries], short(r.cursor), short(r.next_cursor)
        return check.check(self.facts, answers={who: [rank[i] for i in ids] for who, ids in answers.items()})

    def _empty(self, history: History) -> None:
        self.now, self.cursors, self.rebuilding, self.snapshot, self.open_late, self.held = START_MS, {}, {}, None, None, []
        self.made: list = []
        self.drain()
        lab = self.lab
        lab.conn.execute(f"truncate {TABLES}")
        keys = [k for k in lab.redis.scan_iter(match=f"{self.settings.namespace}:*", count=1000)
                if k not in (lab.names.progress, lab.names.stats)]
        if keys:
            lab.redis.unlink(*keys)
        db.set_knobs(lab.conn, threshold=history.threshold, feed_max=history.feed_max)
        self.ids = [Snowflake(node, clock=lambda: self.now) for node in (BOUNDARY, BOUNDARY - 1)]

    def do(self, step: list) -> None:
        """One step. What the design refuses (a clock too far back) is a refusal, not an error."""
        name, *args = step
        try:
            getattr(self, "_move_clock" if name == "tick" else f"_{name}")(*args)
        except ClockWentBack:
            pass

    # --- writers ---------------------------------------------------------------------------------------------------------------

    def _post(self, u: int, ms: int | None = None) -> None:
        with self.facts.doing(check.Posted(u)) as fact:
            self._made(posts.create(self.lab.conn, self.ids[u % 2], self.lab.names, u, "text", created_at_ms=ms), fact)

    def _made(self, post: Post, fact: check.Posted) -> None:
        self.made.append(post)
        fact.id, fact.ms = post.id, post.created_at_ms

    def _move_clock(self, n: int) -> None:
        self.now += n

    def _burst(self, u: int, n: int) -> None:
        for _ in range(n):
            self._post(u)

    def _late(self, u: int) -> None:
        if self.open_late is None:
            block = self.late.transaction()
            block.__enter__()
            fact = check.Posted(u, start=self.facts.tick(), end=None)
            self.facts.facts.append(fact)
            self._made(posts.create(self.late, self.ids[u % 2], self.lab.names, u, "late"), fact)
            self.open_late = (block, fact, self.made.pop())

    def _commit(self) -> None:
        if self.open_late is not None:
            (block, fact, post), self.open_late = self.open_late, None
            block.__exit__(None, None, None)
            fact.end = self.facts.tick()
            self.made.append(post)

    def _back_dated(self, u: int, n: int) -> None:
        self._post(u, self.now - n)

    def _delete(self, k: int) -> None:
        if self.made:
            post = self.made[k % len(self.made)]
            with self.facts.doing(check.Deleted(post.id)):
                posts.delete(self.lab.conn, self.lab.names, post.author_id, post.id)

    def _follow(self, u: int, a: int) -> None:
        with self.facts.doing(check.Followed(u, a)):
            self.system.follows.follow(self.lab.conn, self.lab.redis, self.lab.names, u, a)

    def _unfollow(self, u: int, a: int) -> None:
        with self.facts.doing(check.Unfollowed(u, a)):
            self.system.follows.unfollow(self.lab.conn, self.lab.redis, self.lab.names, u, a)

    def _clock_back(self, n: int) -> None:
        self.now -= n

    def _absent(self, u: int) -> None:
        """31 days pass for this user. The feed is gone if its own expiry falls into them; nothing else removes it."""
        self.lab.conn.execute("update user_activity set last_seen_at = now() - interval '31 days' where user_id = %s", (u,))
        key = self.lab.names.feed(u)
        if 0 <= self.lab.redis.pttl(key) <= 31 * 86_400_000:
            self.lab.redis.delete(key)

    def _threshold(self, n: int) -> None:
        with self.facts.doing(check.Knob("threshold", n)):
            db.set_knobs(self.lab.conn, threshold=n)

    def _feed_max(self, n: int) -> None:
        db.set_knobs(self.lab.conn, feed_max=n)

    def _demote(self, u: int) -> None:
        if self.ours:
            repair.ask_demotion(self.lab.conn, self.lab.names, u)

    # --- readers ---------------------------------------------------------------------------------------------------------------

    def _page(self, u: int, n: int) -> None:
        """The next page of a scroll that other steps come in between."""
        cursor, scroll, page = self.cursors.pop(u, None) or (None, self._new_scroll(), 1)
        answer = self._read(check.Read(u, limit=n, scroll=scroll, page=page), cursor)
        if answer and answer.next_cursor:
            self.cursors[u] = answer.next_cursor, scroll, page + 1

    def _scroll(self, u: int, limit: int, label: str = "") -> None:
        """From the top to the end; with a label, of the drained system."""
        cursor, scroll = None, self._new_scroll()
        for page in range(1, 500):
            answer = self._read(check.Read(u, limit=limit, scroll=scroll, page=page, drained=bool(label),
                                           state=1 if label else None, label=label), cursor)
            cursor = answer and answer.next_cursor
            if cursor is None:
                return

    def _new_scroll(self) -> int:
        self.scrolls += 1
        return self.scrolls

    def _read(self, read: check.Read, cursor: str | None, conn=None, r=None) -> Page | None:
        """One page, recorded; what the reader raises is recorded too: it would be a 500."""
        with self.facts.doing(read):
            read.cursor = cursors.parse(cursor) if cursor else None
            try:
                page = self.lab.reader.page(conn or self.lab.conn, r or self.lab.redis, read.user, cursor, read.limit)
            except Exception as e:
                read.error = f"{type(e).__name__}: {e}"
                return None
            read.entries = [p.entry for p in page.posts]
            read.next_cursor = cursors.parse(page.next_cursor) if page.next_cursor else None
            return page

    # --- Redis -------------------------------------------------------------------------------------------------------------------

    def _evict(self, u: int) -> None:
        self.lab.redis.delete(self.lab.names.feed(u))

    def _evict_celeb(self, u: int) -> None:
        self.lab.redis.delete(self.lab.names.celeb(u))

    def _keys(self) -> list[str]:
        return list(self.lab.redis.scan_iter(match=f"{self.settings.namespace}:*", count=1000))

    def _flush(self) -> None:
        """FLUSHALL, for this namespace."""
        keys = self._keys()
        if keys:
            self.lab.redis.unlink(*keys)

    def _snapshot(self) -> None:
        raw = self._raw()
        keys = self._keys()
        pipe = raw.pipeline(transaction=True)
        for k in keys:
            pipe.dump(k)
            pipe.pexpiretime(k)
        rows = pipe.execute()
        self.snapshot = list(zip(keys, rows[::2], rows[1::2], strict=True))

    def _restore(self) -> None:
        """Redis comes back as it was at the snapshot; expiries are absolute, as in an RDB file."""
        if self.snapshot is None:
            return
        self._flush()
        pipe = self._raw().pipeline(transaction=True)
        for key, dump, expires in self.snapshot:
            if dump is not None:
                pipe.restore(key, max(0, expires), dump, absttl=expires > 0)
        pipe.execute()

    def _raw(self):
        """A client that leaves bytes as they are: a DUMP is no text."""
        if not hasattr(self, "_bytes"):
            import redis
            self._bytes = redis.Redis.from_url(self.addresses.redis_url)
        return self._bytes

    def _rebuild(self, u: int) -> None:
        """A reader finds no feed, begins to rebuild it, and is held up."""
        posts.visit(self.lab.conn, u)
        g = self.system.rebuild(self.lab, u)
        if next(g, self) is not self:
            self.rebuilding.setdefault(u, []).append(g)

    def _rebuild_on(self, u: int) -> None:
        """The rebuild that was held up goes on by one step."""
        waiting = self.rebuilding.get(u)
        if waiting and next(waiting[0], self) is self:
            waiting.pop(0)

    def _hold(self, u: int) -> None:
        """A consumer has read the followers of the author's newest post, and is held up before it writes."""
        mine = [p for p in self.made if p.author_id == u]
        if mine:
            g = self.system.hold(self.lab, mine[-1])
            next(g)
            self.held.append(g)

    def _hold_on(self) -> None:
        """The consumer that was held up longest writes now."""
        if self.held:
            next(self.held.pop(0), None)

    # --- workers -----------------------------------------------------------------------------------------------------------------

    def _relay(self) -> int:
        return self.relay.once()

    def _consume(self) -> None:
        self.fanout.once(0.03)

    def _pump(self) -> None:
        while self._relay():
            pass
        self._consume()

    def _kill(self, worker: str, n: int) -> None:
        """The worker dies before its n-th call to an engine, if it makes so many, and another takes its place."""
        try:
            with self._before_call(n, self._dies):
                self.do([worker])
        except Killed:
            if worker == "consume":
                self._restart_consumer()

    def _inside(self, what: str, n: int, steps: list[list]) -> None:
        """`steps` happen just before the n-th engine call of a relay, a consumer or a page."""
        def act():
            for s in steps:
                self.do(s)
        if what != "page":
            with self._before_call(n, act):
                self.do([what])
            return
        u = steps[0][1] if len(steps[0]) > 1 and steps[0][0] != "delete" else 0
        u = u if u in range(self.history.users) else 0
        plain = self.lab.conn, self.lab.redis
        tapped = Tap(plain[0], self._tick), Tap(plain[1], self._tick)
        with self._before_call(n, act):
            self._read(check.Read(u, limit=2, scroll=self._new_scroll()), None, *tapped)

    def _again(self, k: int) -> None:
        """An event comes a second time, after newer ones."""
        if self.made:
            post = self.made[k % len(self.made)]
            with self.lab.conn.transaction():
                outbox.put(self.lab.conn, self.lab.names,
                           Event("posted", author=post.author_id, post=post.id, ms=post.created_at_ms))

    # --- draining ------------------------------------------------------------------------------------------------------------------

    def drain(self, timeout_s: float = 30) -> None:
        """Late commits commit, held-up rebuilds end, relay and consumer run until nothing is left, local copies get old."""
        if getattr(self, "open_late", None):
            self._commit()
        for waiting in getattr(self, "rebuilding", {}).values():
            for g in waiting:
                for _ in g:
                    pass
        self.rebuilding = {}
        while getattr(self, "held", None):
            self._hold_on()
        until = time.monotonic() + timeout_s
        while True:
            while self._relay():
                pass
            self.fanout.once(0.02)
            if not self.fanout.stale or not self.ours:
                lag = kafka.lag(self.lab.admin, self.lab.redis, self.lab.names) if self.ours else \
                    committed_lag(self.lab, self.fanout.consumer)
                if lag == 0 and self.system.waiting(self.lab) == 0:
                    break
            if time.monotonic() > until:
                raise FeedlabError(f"not drained in {timeout_s:.0f} s. Are the engines up? `feedlab doctor` says.")
        self.clock_s += 10
