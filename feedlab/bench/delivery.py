"""Deliveries a second into full feeds: the consumer, beside bare ZADD, the textbook's pipeline and one round trip a follower."""
import socket
import time
from urllib.parse import unquote, urlsplit

import numpy as np
import redis

from .. import db, kafka, timeline
from ..addresses import Addresses
from ..config import Settings
from ..core.codec import Event, member
from ..fanout import FanOut
from ..lab.session import Lab
from ..textbook import fanout as textbook
from .ground import FIRST_ID, FIRST_MS, STEP_MS, fill_posts, follow, ground, warm
from .measure import clock, interleaved, row, spread

FOLLOWERS = 300     # the article's mean
FEED_MAX = 500
AUTHORS = 20


class Timed(FanOut):
    """The consumer as it is, with a clock: from decoded records to Redis's answer, and the parts of it."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.seconds = self.planning = self.queueing = 0.0
        self.began = self.planned = 0.0

    def _plan(self, work, *more):
        self.began = time.perf_counter()
        answer = super()._plan(work, *more)
        self.planned = time.perf_counter()
        self.planning += self.planned - self.began
        return answer

    def _queue(self, pipe, w):
        began = time.perf_counter()
        super()._queue(pipe, w)
        self.queueing += time.perf_counter() - began

    def _settle(self, answers, done):
        self.seconds += time.perf_counter() - self.began
        super()._settle(answers, done)


def run(settings: Settings, addresses: Addresses, *, rounds: int = 7, posts: int = 100, followers: int = FOLLOWERS,
        feed_max: int = FEED_MAX, say=lambda *a: None) -> dict:
    """`rounds` of `posts` posts by AUTHORS authors whom the same `followers` users follow, whose feeds hold `feed_max` entries.

    Rates are deliveries a second: one entry into one feed. The naive way does a twentieth of the posts.
    """
    with clock() as took, ground(settings, addresses, "delivery", feed_max=feed_max, threshold=10**9) as lab:
        say("delivery: filling feeds")
        ways = Ways(lab, posts, followers, feed_max)
        rates = interleaved({"ours": ways.ours, "bare": ways.bare, "textbook": ways.textbook, "naive": ways.naive}, rounds,
                            lambda n: say("delivery: rounds", n, rounds))
        ways.close()
        counts, profile = ways.counts(), ways.profile(rates)
    ours = rates["ours"]
    rows = [row("exact deliveries", ours, "bare pipelined ZADD", rates["bare"], "deliveries/s", at_least=0.40),
            row("exact deliveries", ours, "the textbook's client pipeline", rates["textbook"], "deliveries/s", at_least=1.5),
            row("exact deliveries", ours, "one round trip a follower", rates["naive"], "deliveries/s", at_least=30)]
    return {"station": "delivery", "rows": rows, "counts": counts, "profile": profile, "seconds": took(),
            "points": {name: spread(values) for name, values in rates.items()},
            "conditions": f"{followers} followers an author, feeds of {feed_max}, {posts} posts a round, {rounds} rounds"}


class Ways:
    """The four ways over feeds of their own, all filled alike; each call is one round and returns deliveries a second."""

    def __init__(self, lab: Lab, posts: int, followers: int, feed_max: int):
        self.lab, self.posts, self.feed_max = lab, posts, feed_max
        self.readers = list(range(followers))
        self.authors = [10**6 + n for n in range(AUTHORS)]
        follow(lab, [(u, a) for a in self.authors for u in self.readers])
        fill_posts(lab, np.resize(self.authors, feed_max + 1))
        self.next = feed_max + 1
        warm(lab, self.readers)
        self.other = {way: [f"{lab.names.namespace}:{way}:{u}" for u in self.readers] for way in ("bare", "textbook", "naive")}
        for keys in self.other.values():
            for key in keys:
                lab.redis.zadd(key, {member(FIRST_ID + n): FIRST_MS + STEP_MS * n for n in range(1, feed_max + 1)})
        a, s = lab.addresses, lab.settings
        self.fanout = Timed(s, a.postgres_url, a.redis_url, a.kafka_bootstrap, most=500)
        self.fanout.open()
        self.producer = kafka.producer(a.kafka_bootstrap)
        self.article = textbook.FanOut(s, a.postgres_url, a.redis_url, a.kafka_bootstrap)
        self.article.conn = db.connect(a.postgres_url, s.namespace)
        self.article.redis = redis.Redis.from_url(a.redis_url, decode_responses=True)
        self.raw = RawRedis(a.redis_url)
        self.totals = {"posts": 0, "deliveries": 0, "added": 0, "batches": 0}
        self.naive_trips = 0

    def close(self) -> None:
        self.fanout.close()
        self.raw.close()
        self.article.conn.close()
        self.article.redis.close()

    def new_posts(self, n: int) -> list[Event]:
        """n new posts, in the table (the consumer asks whether they live), as events."""
        rows = fill_posts(self.lab, np.resize(self.authors, n), self.next)
        self.next += n
        return [Event("posted", author=author, post=i, ms=ms) for i, author, ms in rows]

    def ours(self) -> float:
        events, f = self.new_posts(self.posts), self.fanout
        failures: list = []
        for e in events:
            self.producer.produce(self.lab.names.created, e.encode().encode(), str(e.author).encode(),
                                  on_delivery=lambda error, _: failures.append(error) if error else None)
        kafka.wait_acked(self.producer, failures)
        before, handled, deadline = f.seconds, 0, time.monotonic() + 60
        while handled < len(events):
            done = f.once()
            handled += done.records
            self.totals["deliveries"] += done.deliveries
            self.totals["added"] += done.added
            self.totals["batches"] += done.records > 0
            if time.monotonic() > deadline:
                raise db.EngineDown(f"the consumer handled {handled} of {len(events)} records in 60 s. Is Kafka well? `feedlab doctor`")
        self.totals["posts"] += len(events)
        return len(events) * len(self.readers) / (f.seconds - before)

    def bare(self) -> float:
        """The same entries by plain ZADD, packed beforehand: what the server can do at most. Nothing trims, so the surplus goes
        unclocked."""
        events = self.new_posts(self.posts)
        packed = [zadd(key, e.ms, member(e.post)) for e in events for key in self.other["bare"]]
        with clock() as took:
            self.raw.send(packed)
        for key in self.other["bare"]:
            self.lab.redis.zremrangebyrank(key, 0, -(self.feed_max + 1))
        return len(packed) / took()

    def textbook(self) -> float:
        """The article's consumer on the same events, SQL included, into feeds of its own."""
        events, names = self.new_posts(self.posts), self.article.names
        self.article.names = Elsewhere(self.lab.names.namespace)
        done = textbook.fanout.Done()
        with clock() as took:
            for e in events:
                self.article.handle(e, done)
        self.article.names = names
        return done.deliveries / took()

    def naive(self) -> float:
        """The article's two commands for one follower, then the next follower."""
        events, n = self.new_posts(max(1, self.posts // 20)), 0
        r = self.article.redis
        with clock() as took:
            for e in events:
                for key in self.other["naive"]:
                    pipe = r.pipeline(transaction=False)
                    textbook.add(pipe, key, e.post, e.ms, self.feed_max)
                    pipe.execute()
                    n += 1
        self.naive_trips = n // len(events)
        return n / took()

    def counts(self) -> dict:
        """Exact: what one post cost, and whether every feed has what it must."""
        t, names = self.totals, self.lab.names
        stats = self.lab.stats()
        sizes = [timeline.get(self.lab.redis, names.feed(u)) for u in self.readers]
        return {"deliveries_a_post": t["deliveries"] / t["posts"], "added_a_post": t["added"] / t["posts"],
                "deliveries_by_redis": stats["deliveries"], "deliveries": t["deliveries"],
                "round_trips_a_post_ours_at_most": 1, "batches": t["batches"], "posts": t["posts"],
                "round_trips_a_post_naive": self.naive_trips, "feeds": len(sizes),
                "shortest_feed": min(len(s.entries) for s in sizes), "longest_feed": max(len(s.entries) for s in sizes),
                "newest_in_every_feed": len({s.entries[0] for s in sizes}) == 1}

    def profile(self, rates: dict) -> dict:
        """Where the consumer's time went, as shares of it."""
        f = self.fanout
        return {"sql_share": f.planning / f.seconds, "packing_share": f.queueing / f.seconds,
                "redis_share": 1 - (f.planning + f.queueing) / f.seconds,
                "inside_redis_deliveries_a_second": None if not rates["ours"] else
                spread(rates["ours"])["median"] / max(1e-9, 1 - (f.planning + f.queueing) / f.seconds)}


class Elsewhere(textbook.fanout.Names):
    """The article's feeds beside ours in one namespace."""

    def feed(self, user: int) -> str:
        return f"{self.namespace}:textbook:{user}"


def zadd(key: str, ms: int, value: str) -> bytes:
    """One ZADD as it goes over the wire.

    >>> zadd("k", 5, "7")
    b'*4\\r\\n$4\\r\\nZADD\\r\\n$1\\r\\nk\\r\\n$1\\r\\n5\\r\\n$1\\r\\n7\\r\\n'
    """
    words = ("ZADD", key, str(ms), value)
    return ("*4\r\n" + "".join(f"${len(w.encode())}\r\n{w}\r\n" for w in words)).encode()


class RawRedis:
    """A socket that sends packed commands and counts the answers: no client library in the way."""

    def __init__(self, url: str):
        u = urlsplit(url)
        self.socket = socket.create_connection((u.hostname, u.port or 6379), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if u.password:
            self.command("AUTH", *filter(None, (unquote(u.username or ""), unquote(u.password))))
        if u.path.strip("/"):
            self.command("SELECT", u.path.strip("/"))

    def command(self, *words: str) -> bytes:
        self.socket.sendall((f"*{len(words)}\r\n" + "".join(f"${len(w.encode())}\r\n{w}\r\n" for w in words)).encode())
        answer = self.socket.recv(4096)
        if not answer.startswith(b"+"):
            raise redis.ResponseError(answer.decode(errors="replace").strip())
        return answer

    def send(self, commands: list[bytes], at_once: int = 1_000) -> int:
        """All commands, `at_once` in a round trip; each must be answered by an integer. How many were answered."""
        answered = 0
        for at in range(0, len(commands), at_once):
            some = commands[at:at + at_once]
            self.socket.sendall(b"".join(some))
            left, tail = len(some), b""
            while left:
                got = tail + self.socket.recv(1 << 16)
                if b"-" in got[:1] or b"\r\n-" in got:
                    raise redis.ResponseError(got.decode(errors="replace")[:200])
                left -= got.count(b"\r\n") - tail.count(b"\r\n")
                tail = got[-1:] if got.endswith(b"\r") else b""
            answered += len(some)
        return answered

    def close(self) -> None:
        self.socket.close()
