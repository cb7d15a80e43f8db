#!/usr/bin/env python3
"""The protocol of the exact hybrid feed as a runnable model, in step with the code (design.md section 1).

Claim: whatever the interleaving of posts, deletes, follows, knob moves, demotions, absences, evictions, rebuilds,
crashes, duplicates, rebalances, retention and lost Redis writes, once the queues are drained every user's pages, put
end to end, are the SQL pull answer; and before that no page repeats a post, goes out of order, or shows what its filter
query forbids.

Every process is a generator, and each `yield` is a point where anything else may run, or where the process dies. One
that is not scheduled for a long time is a zombie. Run: python model.py [histories] [seed] [--break NAME] [--tell K].
"""
import argparse
import random
import time
from bisect import insort
from itertools import pairwise
from typing import NamedTuple

INF = float("inf")
START = (INF, INF)
VISIT_EVERY, FEED_TTL, WINDOW, BUILDING = 2, 6, 7, 1       # clock ticks; a feed is gone before its reader drops out
HEAD = 2                                                   # entries in a local copy of a celebrity timeline
TOPICS = ("created", "graph", "slices")
PLOTS = ("post demote", "post snapshot fail_over forget_log demote", "post wait read_feed evict",
         "post follow unfollow read_feed evict fail_over snapshot")     # what some histories are about, nothing else
SAFEGUARDS = {
    "partial": "a delivery never makes a timeline, only a rebuild does",
    "floor": "trimming raises the floor",
    "token": "a rebuild is completed only by the holder of its token",
    "flag": "the pull flag is raised before a push is skipped",
    "fallback": "below the floor SQL answers",
    "filter": "a page is filtered by SQL as it is answered",
    "place": "the consumer compares its place with the one in Redis, and goes back to it",
    "guard": "each call compares the place, not only the start of a batch",
    "pulls": "a demotion lowers the flag only if no post was pulled meanwhile",
    "redemote": "a replayed demotion delivers again although the flag is down",
    "expiry": "a feed lives shorter than its reader counts as active",
    "renew": "a feed's life is prolonged only with a recorded visit",
    "after-write": "the place moves with the effect, not before it",
    "padding": "members are padded, so that Redis orders ties by number",
    "doubt": "a place that is missing or no longer in Kafka: all timelines are dropped",
    "adopt": "dropping all timelines and taking a new place is one step, refused when the place is not as it was read",
    "visit-first": "the visit is recorded before the feed exists",
    "slice-first": "the rest of a large fan-out is in Kafka before the place moves",
    "copy-age": "the age of a local copy is counted from before the read",
    "expiry-age": "the expiry of a feed is counted from before the visit was looked up",
}


class Event(NamedTuple):
    kind: str                                  # posted, deleted, demote (keyed by author); graph (keyed by user)
    key: int
    id: int = 0
    ms: int = 0
    after: int = -1                            # followers up to here are done: -1 at first, more in a slice record
    pulls: int = -1                            # the count of pulls that a demotion started from


class Behind(Exception):
    """Redis does not have the place that this consumer left."""


class Moved(Exception):
    """The feed changed under a page that reads it in chunks: the page starts over, from SQL."""


class Timeline:
    """A sorted set and its state: "floor" (complete above `score`) or a builder's token (`score`: newest entry cut)."""

    def __init__(self, state, score, expires, entries=()):
        self.state, self.score, self.expires, self.entries = state, score, expires, set(entries)

    def raise_to(self, score):
        self.score = score
        self.entries = {e for e in self.entries if e[0] > score}

    def copy(self):
        return Timeline(self.state, self.score, self.expires, self.entries)


class Read(NamedTuple):
    """What one read of a timeline gave; floor None: missing, or being built."""
    floor: float | None
    entries: list = []  # noqa: RUF012  (never changed)
    more: bool = False
    exists: bool = False


class Consumer:
    """A member of the group: the partitions it thinks it has, and where it believes to be in each."""

    def __init__(self, parts):
        self.parts, self.place, self.stale, self.busy = parts, {}, True, False


class World:
    def __init__(self, seed, broken=()):
        self.rng = rng = random.Random(seed)
        self.broken = frozenset(broken)
        self.tale = []                         # what happened, for `--tell`
        # SQL: the truth
        self.users = range(rng.choice([2, 3, 4, 5]))
        self.posts, self.order = {}, []        # id -> [ms, author, deleted]; (ms, id) ascending
        self.follows, self.seen = set(), dict.fromkeys(self.users, 0)
        self.flags = {}                        # author -> [raised, pulls]
        self.outbox, self.locks, self.rows = [], {}, 0
        self.knobs = {"threshold": rng.choice([1, 2, 3, 99]), "most": rng.choice([2, 3, 5])}
        # Kafka: logs whose head may be gone, and committed offsets that trail behind
        self.parts, self.logs, self.low, self.committed = 0, {}, {}, {}
        # Redis: keys ("feed", user) and ("celeb", author), and the place in each partition; snapshots of both
        self.keys, self.places, self.snapshots = {}, {}, []
        self.slack, self.slice = rng.choice([0, 1]), rng.choice([1, 2])
        # the API process: its local copies
        self.copies, self.copy_ttl = {}, rng.choice([0, 1, 2])
        self.now, self.ms, self.next_id, self.tokens = 0, 100, rng.choice([1, 7, 95]), 0
        self.consumers, self.running = [], []              # running: (process, its name)
        # the history's own pace: how far a process gets before another one runs, how often one dies, how time passes
        self.whim, self.deaths = rng.random() < 0.4, rng.choice([0, 0.03, 0.1])
        self.bursts = rng.choice([[1], [1, 1, 2, 4], [1, 4, 30], [30]])
        self.ticks = rng.choice([[1], [2], [1, 3], [1, 8]])
        self.busy = rng.choice([0.1, 0.2, 0.35])
        self.focus = rng.choice([0, 0.5, 0.9])             # how often the author is user 0
        self.lazy = rng.choice([None, *TOPICS])            # a topic that lags
        self.hazard = rng.choice([0, 0, 0.05])             # how often Redis loses writes just while a consumer works
        self.grow(2)

    # --- SQL: each method is one statement ---------------------------------------------------------------------------
    def followees(self, user):
        return {a for u, a in self.follows if u == user}

    def newest(self, authors, before=START, above=-INF, n=None):
        found = []
        for e in reversed(self.order):
            if e[0] <= above or n is not None and len(found) == n:
                break
            if e < before and self.posts[e[1]][1] in authors and not self.posts[e[1]][2]:
                found.append(e)
        return found

    def answer(self, user, before=START, n=None):
        return self.newest(self.followees(user), before, n=n)

    def visible(self, user, e):
        _, author, deleted = self.posts[e[1]]
        return not deleted and (user, author) in self.follows

    def followers(self, author, after, n):
        return sorted(u for u, a in self.follows
                      if a == author and u > after and self.seen[u] > self.now - WINDOW)[:n]

    def push(self, author):
        """The policy. It may say anything: with `whim` it says something else each time."""
        if self.whim:
            return self.rng.random() < 0.6
        return sum(a == author for _, a in self.follows) < self.knobs["threshold"]

    def visit(self, user):
        if self.seen[user] <= self.now - VISIT_EVERY:
            self.seen[user] = self.now
            return True
        return False

    def put(self, event):
        self.rows += 1
        self.outbox.append((self.rows, "graph" if event.kind == "graph" else "created", event))

    # --- Kafka -------------------------------------------------------------------------------------------------------
    def produce(self, topic, key, event):
        self.logs[topic, key % self.parts].append(event)

    def grow(self, by=1):
        """More partitions: keys move. The group rebalances; who is busy at that moment goes on as a zombie."""
        self.parts += by
        for t in TOPICS:
            for p in range(self.parts):
                self.logs.setdefault((t, p), [])
                self.low.setdefault((t, p), 0)
        self.rebalance()

    def rebalance(self):
        split = [[] for _ in range(self.rng.choice([1, 2]))]
        for p in self.logs:
            self.rng.choice(split).append(p)
        self.consumers = [Consumer(parts) for parts in split]

    # --- Redis: each method is one atomic function (timeline.lua) ----------------------------------------------------
    def at(self, key):
        t = self.keys.get(key)
        if t is not None and t.expires <= self.now:
            del self.keys[key]
            t = None
        return t

    def rank(self, e):
        return (e[0], str(e[1])) if "padding" in self.broken else e

    def trim(self, t, most):
        ranked = sorted(t.entries, key=self.rank)
        cut = len(ranked) - most
        if cut > 0 and "floor" in self.broken:
            t.entries = set(ranked[cut:])
        elif cut > 0:
            t.raise_to(ranked[cut - 1][0])

    def deliver(self, keys, entries, most, floor=None):
        for key in keys:
            t = self.at(key)
            if t is None and "partial" in self.broken:
                t = self.keys[key] = Timeline("floor", -INF, self.now + FEED_TTL)
            if t is None:
                continue                       # its reader will rebuild it from SQL
            if "renew" in self.broken and t.state == "floor":
                t.expires = self.now + FEED_TTL
            for e in entries:
                if e[0] > t.score:
                    t.entries.add(e)
                    if len(t.entries) > most + self.slack:
                        self.trim(t, most)
            if floor is not None and floor > t.score:
                t.raise_to(floor)

    def begin(self, key):
        if self.at(key) is not None:
            return None
        self.tokens += 1
        self.keys[key] = Timeline(self.tokens, -INF, self.now + BUILDING)
        return self.tokens

    def complete(self, key, token, rows, most, expires):
        t = self.at(key)
        if "token" in self.broken:
            t = self.keys[key] = t or Timeline(token, -INF, 0)
        elif t is None or t.state != token:
            return
        t.entries |= set(rows[:most])
        t.state, t.expires = "floor", expires
        t.raise_to(max(t.score, rows[most][0] if len(rows) > most else -INF))
        self.trim(t, most)

    def read(self, key, before=START, n=10**9):
        t = self.at(key)
        if t is None or t.state != "floor":
            return Read(None, exists=t is not None)
        rows = sorted((e for e in t.entries if self.rank(e) < self.rank(before)), key=self.rank, reverse=True)
        return Read(t.score, rows[:n], len(rows) > n, True)

    def call(self, part, place, effect):
        """A consumer's call: the place is compared, the effect made, the place moved, in one step."""
        if not self.broken & {"place", "guard"} and self.places.get(part) != place:
            raise Behind
        self.places[part] = place + 1
        if "after-write" in self.broken:
            yield
        effect()

    # --- writers -----------------------------------------------------------------------------------------------------
    def post(self, _, author):
        self.ms += self.rng.choice([0, 0, 1, 5])           # several posts share a millisecond
        back = self.rng.choice([1, 3, 10]) if self.rng.random() < 0.2 else 0
        i, ms = self.next_id, self.ms - back
        self.next_id += 1
        if self.rng.random() < 0.3:                        # the id is taken; the commit comes later
            yield
        self.posts[i] = [ms, author, False]
        insort(self.order, (ms, i))
        self.put(Event("posted", author, i, ms))
        self.tale.append(("committed", i, "ms", ms, "author", author))

    def delete(self, *_):
        live = [i for i, p in self.posts.items() if not p[2]]
        if live:
            i = self.rng.choice(live)
            self.posts[i][2] = True
            self.put(Event("deleted", self.posts[i][1], i))

    def follow(self, user, author):
        new = user != author and (user, author) not in self.follows
        return self.change(user, author, self.follows.add) if new else None

    def unfollow(self, user, author):
        return self.change(user, author, self.follows.discard) if (user, author) in self.follows else None

    def change(self, user, author, how):
        how((user, author))
        self.put(Event("graph", user))
        yield                                              # dying here is why the event drops the feed again
        self.keys.pop(("feed", user), None)

    def demote(self, *_):
        raised = [a for a, f in self.flags.items() if f[0]]
        if raised:
            self.put(Event("demote", self.rng.choice(raised)))

    # --- the relay: at least once, an author in order; a lock a slice, which a hung relay loses ----------------------
    def relay(self, part):
        self.locks[part] = me = object()
        try:
            rows = [r for r in self.outbox if r[2].key % 2 == part][:self.rng.choice([1, 3])]
            for _, topic, event in rows:
                self.produce(topic, event.key, event)
                yield
            if self.locks.get(part) is me:
                self.outbox = [r for r in self.outbox if r not in rows]
        finally:
            if self.locks.get(part) is me:
                del self.locks[part]

    # --- the consumer ------------------------------------------------------------------------------------------------
    def once(self, c):
        try:
            if c.stale:
                yield from self.resync(c)
                return
            batch = []
            for p in self.rng.sample(c.parts, len(c.parts)):
                if p[0] == self.lazy and self.rng.random() < 0.98:
                    continue
                if c.place[p] < self.low[p]:
                    raise Behind                           # records were removed before we had them
                batch += [(p, e) for e in self.logs[p][c.place[p]:c.place[p] + self.rng.choice([1, 2, 3])]]
            batch = batch[:self.rng.choice([1, 2, 4])]
            if "place" not in self.broken and any(self.places.get(p) != at for p, at in c.place.items()):
                raise Behind                               # while idle; and by the first call at the latest
            yield
            if batch:
                yield from self.handle(c, batch)
        except (Behind, GeneratorExit):                    # refused, or the process dies
            c.stale = True
        finally:
            c.busy = False

    def resync(self, c):
        """Find each place: Redis's own; else Kafka's committed offset and, as nobody knows what is lost, no timelines.
        """
        stored = {p: self.places.get(p) for p in c.parts}
        yield
        places, doubt = {}, False
        for p, at in stored.items():
            low, high = self.low[p], len(self.logs[p])
            if at is not None and low <= at <= high and "place" not in self.broken:
                places[p] = at
                continue
            places[p] = min(max(low, self.committed.get(p, 0)), high)
            doubt = doubt or at is not None or places[p] > 0
        yield
        atomic = "adopt" not in self.broken and "place" not in self.broken
        if atomic and any(self.places.get(p) != at for p, at in stored.items()):
            return                                         # still stale: look again
        if doubt and not self.broken & {"doubt", "place"}:
            self.tale.append("doubt: all timelines are dropped")
            for key in list(self.keys):
                self.keys.pop(key, None)
                if not atomic:
                    yield
        self.places |= {p: at for p, at in places.items() if stored[p] != at}
        c.place, c.stale = places, False

    def handle(self, c, batch):
        work = []                                          # (partition, event, call, lower the flag?)
        knobs = dict(self.knobs)
        yield
        for p, e in batch:
            work.append((p, e, *(yield from self.plan(e, knobs["most"]))))
            yield
        rests = [(e.id or e.key, e._replace(after=users[-1], pulls=pulls))
                 for _, e, users, rest, pulls, _, _ in work if rest]
        if "slice-first" not in self.broken:
            for key, rest in rests:
                self.produce("slices", key, rest)
            yield
        for p, e, users, _, _, effect, _ in work:
            place, c.place[p] = c.place[p], c.place[p] + 1
            yield from self.call(p, place, effect)
            self.tale.append(("handled", p, place, *e, "feeds", users))
            if self.rng.random() < 0.5:
                yield
        if "slice-first" in self.broken:
            yield
            for key, rest in rests:
                self.produce("slices", key, rest)
        for _, e, _, _, pulls, _, lower in work:
            if lower and (pulls == self.flags.get(e.key, [0, 0])[1] or "pulls" in self.broken):
                self.flags.get(e.key, [0, 0])[0] = False
                self.tale.append(("flag down", e.key))
        yield
        if self.rng.random() < 0.7:                        # not waited for: it trails
            self.committed |= {p: at for p, at in c.place.items()}

    def plan(self, e, most):
        """What SQL knows: (followers of this slice, is there a rest, pulls, effect, lower the flag afterwards)."""
        nothing, pulls = (lambda: None), e.pulls
        if e.kind == "graph":
            return [], False, 0, lambda: self.keys.pop(("feed", e.key), None), False
        push, celeb = self.push(e.key), ("celeb", e.key)
        if e.kind == "posted" and self.posts[e.id][2]:
            return [], False, 0, nothing, False            # deleted before it was delivered
        yield
        if e.kind == "posted" and e.after < 0 and not push:
            if "flag" not in self.broken:
                flag = self.flags.setdefault(e.key, [True, 0])
                flag[0], flag[1] = True, flag[1] + 1       # committed before the push is skipped
            yield from self.build(celeb, {e.key}, most, self.now + FEED_TTL)
            return [], False, 0, lambda: self.deliver([celeb], [(e.ms, e.id)], most), False
        entries, floor = [(e.ms, e.id)], None
        if e.kind == "demote":                             # whatever flag and threshold say: it may be a replay
            if "redemote" in self.broken and not self.flags.get(e.key, [False])[0]:
                return [], False, 0, nothing, False
            if e.after < 0:
                pulls = self.flags.get(e.key, [0, 0])[1]
                yield
            rows = self.newest({e.key}, n=most + 1)
            entries, floor = rows[:most][::-1], rows[most][0] if len(rows) > most else None
            yield
        users = self.followers(e.key, e.after, self.slice + 1)
        rest, users = len(users) > self.slice, users[:self.slice]
        feeds = [("feed", u) for u in users]

        def effect():
            if e.kind == "deleted":
                for t in filter(None, map(self.at, [celeb, *feeds])):
                    t.entries = {x for x in t.entries if x[1] != e.id}
            else:
                self.deliver(feeds, entries, most, floor)
        return users, rest, pulls, effect, e.kind == "demote" and not rest and push

    # --- readers -----------------------------------------------------------------------------------------------------
    def build(self, key, authors, most, expires):
        """Make a timeline from SQL. The key exists before SQL is read: what commits later is delivered to it."""
        token = self.begin(key)
        if token is not None:
            yield
            rows = self.newest(authors if authors is not None else self.followees(key[1]), n=most + 1)
            yield
            self.complete(key, token, rows, most, expires)

    def expiry(self):
        return self.now + (WINDOW + 3 if "expiry" in self.broken else FEED_TTL)

    def page(self, user, before, limit):
        """One page: (entries, cursor of the next or None)."""
        try:
            if self.rng.random() < 0.05:
                raise Moved                                # Redis is away
            entries = yield from self.sources(user, before, limit)
            return (yield from self.cut(user, entries, limit))
        except Moved:
            return (yield from self.cut(user, self.sql(lambda b, n: self.answer(user, b, n), before, limit + 1), limit))

    def sources(self, user, before, limit):
        key, expires = ("feed", user), self.expiry()
        here = self.seen[user] > self.now - VISIT_EVERY
        flagged = sorted(a for a in self.followees(user) if self.flags.get(a, [False])[0])
        yield
        first = "visit-first" not in self.broken
        if first and not here and self.visit(user):
            yield
            t = self.at(key)
            if t is not None and t.state == "floor":
                t.expires = self.expiry() if "expiry-age" in self.broken else expires
            yield
        heads = {a: self.copies[a][1] for a in flagged if a in self.copies and self.now < self.copies[a][0]}
        feed, since = self.read(key, before, limit + 1), self.now
        for a in flagged:
            if a not in heads:
                yield
                heads[a] = yield from self.head(a, since)
        if not feed.exists:
            yield
            if "expiry-age" in self.broken:
                expires = self.expiry()
            yield from self.build(key, None, self.knobs["most"], expires)
            yield
            if not first:
                self.visit(user)
            feed = self.read(key, before, limit + 1)
        for a in flagged:
            if not heads[a].exists:
                yield from self.build(("celeb", a), {a}, self.knobs["most"], self.now + FEED_TTL)
        if feed.floor is None:
            return self.sql(lambda b, n: self.answer(user, b, n), before, limit + 1)
        floor = -INF if "fallback" in self.broken else feed.floor
        return self.merged([self.pushed(key, feed, floor), *(self.pulled(a, heads[a], before, floor) for a in flagged)],
                           self.sql(lambda b, n: self.answer(user, b, n), min(before, (floor, INF)), limit + 1))

    def head(self, author, since):
        """The author's newest entries, as a timeline of its own: when more remain, its floor is the last one's time."""
        t = self.read(("celeb", author), n=HEAD)
        if t.floor is not None and t.more:
            floor = t.entries[-1][0]
            t = Read(floor, [e for e in t.entries if e[0] > floor], False, True)
        yield
        if t.floor is not None:
            self.copies[author] = ((self.now if "copy-age" in self.broken else since) + self.copy_ttl, t)
        return t

    # sources are generators of entries, newest first; they yield None where something else may run

    def pushed(self, key, t, floor):
        while True:
            for before in t.entries:
                if before[0] <= floor:
                    return
                yield before
            if not t.more:
                return
            yield
            t = self.read(key, before, 2)
            if t.floor is None or t.floor > floor and "fallback" not in self.broken:
                raise Moved

    def pulled(self, author, t, before, above):
        floor = INF if t.floor is None else t.floor
        for e in t.entries:
            if e[0] <= above:
                return
            if e < before:
                yield e
        if floor > above:
            yield from self.sql(lambda b, n: self.newest({author}, b, above, n), min(before, (floor, INF)), 2)

    def sql(self, fetch, before, n):
        while True:
            yield
            rows = fetch(before, n)
            yield from rows
            if len(rows) < n:
                return
            before, n = rows[-1], 2 * n

    def merged(self, sources, below):
        heads, last = [], None
        for s in sources:
            heads.append([(yield from draw(s)), s])
        while heads := [h for h in heads if h[0] is not None]:
            top = max(heads, key=lambda h: h[0])
            if top[0] != last:
                last = top[0]
                yield last
            top[0] = yield from draw(top[1])
        yield from below

    def cut(self, user, entries, limit):
        """Filter a chunk at a time until the page is full, and one more that tells whether there is a next page."""
        shown = []
        while len(shown) <= limit:
            chunk = []
            while len(chunk) < max(limit + 1 - len(shown), 2):
                e = yield from draw(entries)
                if e is None:
                    break
                chunk.append(e)
            if not chunk:
                break
            yield
            if "filter" not in self.broken:
                chunk = [e for e in chunk if self.visible(user, e)]
            for e in chunk:
                assert self.visible(user, e), ("shows what it must not", user, e)
            shown += chunk
        return shown[:limit], shown[limit - 1] if len(shown) > limit else None

    def scroll(self, user, limit):
        """Read page after page; each is held against what holds at every moment. The value: all entries."""
        seen, before = [], START
        while before is not None:
            page, after = yield from self.page(user, before, limit)
            assert all(a > b for a, b in pairwise([before, *page])), ("repeated or out of order", user, before, page)
            assert after is None or len(page) == limit, ("short page", user, before, page)
            seen += page
            before = after
            yield
        return seen

    # --- Redis and the clock -----------------------------------------------------------------------------------------
    def copy(self):
        return {k: t.copy() for k, t in self.keys.items()}, dict(self.places)

    def fail_over(self, *_):
        """Redis comes back as it was: restart from a snapshot, failover to a replica that lags; or empty."""
        if self.rng.random() < 0.15:
            self.keys, self.places = {}, {}
        elif self.snapshots:
            keys, places = self.rng.choice(self.snapshots)
            self.keys, self.places = {k: t.copy() for k, t in keys.items()}, dict(places)
        self.tale.append(("Redis now has", {k: sorted(t.entries) for k, t in self.keys.items()}, dict(self.places)))

    def evict(self, *_):
        if self.keys:
            self.keys.pop(self.rng.choice(list(self.keys)))

    def wait(self, *_):
        self.now += self.rng.choice(self.ticks)

    # --- one random history ------------------------------------------------------------------------------------------
    def read_feed(self, user, _):
        return self.scroll(user, self.rng.choice([1, 2, 7]))

    def move_threshold(self, *_):
        self.knobs["threshold"] = self.rng.choice([1, 2, 3, 99])

    def move_most(self, *_):
        self.knobs["most"] = self.rng.choice([1, 2, 3, 5])

    def forget_log(self, *_):
        """Retention: the oldest records go; now and then even some that nobody has handled."""
        p = self.rng.choice(list(self.logs))
        most = self.committed.get(p, 0) if self.rng.random() < 0.8 else len(self.logs[p])
        self.low[p] = max(self.low[p], self.rng.randint(0, most))

    def add_partition(self, *_):
        if self.parts < 4:
            self.grow()

    def snapshot(self, *_):
        self.snapshots = self.snapshots[-2:] + [self.copy()]

    def hang_relay(self, *_):
        self.locks.clear()                                 # its transaction is ended, it does not know

    def actions(self):
        """What may happen, each with a weight drawn anew for every history, often zero: rare meetings become common."""
        some = {self.post: 6, self.follow: 3, self.unfollow: 2, self.delete: 1, self.evict: 1, self.read_feed: 5,
                self.move_threshold: 2, self.demote: 4, self.fail_over: 3, self.snapshot: 4, self.wait: 2,
                self.move_most: 0.3, self.forget_log: 0.5, self.add_partition: 0.3, self.rebalance_now: 0.5,
                self.hang_relay: 0.3}
        weights = {f: w * self.rng.choice([0, 0.3, 1, 4]) for f, w in some.items()}
        plot = self.rng.choice([None, None, *PLOTS])
        if plot:
            weights = {f: max(w, 0.3) * (f.__name__ in plot.split()) for f, w in weights.items()}
        weights[self.post] = max(1, weights[self.post])
        return list(weights), list(weights.values())

    def rebalance_now(self, *_):
        self.rebalance()

    def work(self):
        """A relay or a consumer that is free."""
        part = self.rng.choice([0, 1])
        if part not in self.locks and any(r[2].key % 2 == part for r in self.outbox):
            return self.relay(part)
        free = [c for c in self.consumers if not c.busy and (
            c.stale or any(c.place[p] < len(self.logs[p]) for p in c.parts) or self.rng.random() < 0.1)]
        if free:
            c = self.rng.choice(free)
            c.busy = True
            return self.once(c)
        return None

    def run(self, steps):
        rng = self.rng
        acts, weights = self.actions()
        pairs = [(u, a) for u in self.users for a in self.users if u != a]
        dense = rng.choice([0.3, 0.7, 1])
        self.follows = {pair for pair in pairs if rng.random() < dense}
        for u in self.users:
            result(self.scroll(u, 2))
        for _ in range(steps):
            r, g, name = rng.random(), None, "work"
            if rng.random() < self.hazard and any(c.busy for c in self.consumers):
                self.fail_over()
            if r < self.busy:
                act = rng.choices(acts, weights)[0]
                user, author = rng.choice(self.users), 0 if rng.random() < self.focus else rng.choice(self.users)
                name = act.__name__
                self.tale.append((name, user, author))
                g = act(user, author)
            elif r < self.busy + 0.25:
                g = self.work()
            elif r > 0.985:
                self.drain([rng.choice([1, 2, 3, 50])])
            if g is None and self.running:
                g, name = self.running.pop(rng.randrange(len(self.running)))
                if rng.random() < self.deaths:
                    g.close()
                    continue
            if g is not None and not advance(g, rng.choice(self.bursts)):
                self.running.append((g, name))
        self.drain([1, 2, 3, 50])

    def drain(self, limits):
        """Until the outbox is empty and every place is at its end; then hold every page against the pull answer.

        Now and then whatever runs is finished before; else it stays where it is, and goes on as a zombie afterwards.
        """
        if self.rng.random() < 0.3:
            for g, _ in self.running:
                advance(g, 10**6)
            self.running = []
        self.locks.clear()
        self.rebalance()
        self.tale.append("drain")
        lazy, self.lazy = self.lazy, None
        for _ in range(10_000):
            while self.outbox:
                advance(self.relay(self.outbox[0][2].key % 2), 10**6)
            for c in self.consumers:
                advance(self.once(c), 10**6)
            if not self.outbox and all(self.places.get(p) == len(log) for p, log in self.logs.items()):
                break
        else:
            raise AssertionError("never drained")
        self.lazy = lazy
        self.now += self.copy_ttl
        for g, name in self.running:
            if name == "read_feed":                        # pages that began long ago
                advance(g, self.rng.choice([0, 1, 3, 9]))
        saved = self.copy(), dict(self.seen), dict(self.copies)       # reading heals; the history must go on unhealed
        for user in self.users:
            for limit in limits:
                got, want = result(self.scroll(user, limit)), self.answer(user)
                assert got == want, ("pages differ from the pull answer", user, limit, got, want)
        (self.keys, self.places), self.seen, self.copies = saved


def draw(source):
    """The next entry of a source, None at its end; pauses are passed on."""
    for e in source:
        if e is not None:
            return e
        yield
    return None


def advance(g, steps):
    """Let a process run for a while. True when it has ended."""
    for _ in range(steps):
        try:
            next(g)
        except StopIteration:
            return True
    return False


def result(g):
    """Run a process to its end, for its value."""
    while True:
        try:
            next(g)
        except StopIteration as end:
            return end.value


def history(seed, number, broken=()):
    """One history: (the World, what went wrong or None)."""
    w = World(seed * 1_000_003 + number, broken)
    try:
        w.run(w.rng.choice([50, 150, 400, 600]))
        return w, None
    except AssertionError as e:
        return w, e.args[0]


def wrong(histories, seed, broken=(), stop_at=None, first=0):
    """Run histories: the (number, what went wrong) of those that did. `stop_at`: how many are enough."""
    found = []
    for k in range(first, first + histories):
        _, e = history(seed, k, broken)
        if e is not None:
            found.append((k, e))
            if stop_at is not None and len(found) >= stop_at:
                break
    return found


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("histories", nargs="?", type=int, default=2000)
    ap.add_argument("seed", nargs="?", type=int, default=0)
    ap.add_argument("--break", dest="broken", action="append", default=[], choices=list(SAFEGUARDS))
    ap.add_argument("--tell", type=int, metavar="K", help="tell what happens in history K")
    args = ap.parse_args()
    if args.tell is not None:
        w, e = history(args.seed, args.tell, args.broken)
        print(*w.tale, e, sep="\n")
        return 1 if e else 0
    start, found = time.monotonic(), wrong(args.histories, args.seed, args.broken)
    print(f"{args.histories} histories, {len(found)} wrong in {time.monotonic() - start:.1f} s"
          + (f"; first: history {found[0][0]}: {found[0][1]}" if found else ""))
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
