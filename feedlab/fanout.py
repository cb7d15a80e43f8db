"""3 The fan-out consumer: Kafka records to timelines.

The consumer's place in each partition is kept in Redis, beside the effects, and moves in the same atomic call
(`names.progress`, timeline.lua). So

- a redelivered record finds that the place has moved on, and is refused: its effect is there already, and is counted once;
- a Redis that lost writes (restart, old snapshot, failover) has an older place: the consumer sees it, seeks back to it and
  replays, which is safe since delivery is idempotent;
- a consumer that was thought dead and wakes up is refused, since its successor has moved the place.

Kafka's committed offset follows behind; it serves tools that show lag. A large author is worked off in slices: the first one
here, the rest as records of `feed-slices`, so that a small author behind it need not wait.
"""
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import numpy as np
import psycopg
import redis
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, Message, TopicPartition
from redis.exceptions import RedisError

from . import celebrities, db, kafka, pull, timeline
from .addresses import away
from .config import Settings
from .core import policy
from .core.codec import Event, Names, Poison, decode
from .core.model import Entry
from .errors import EngineDown

FACTS = """
    select a.id, coalesce((select sum(n) from follower_counts where user_id = a.id), 0)::bigint
    from unnest(%s::bigint[]) a (id)"""

# Keyset over the active followers of many authors at once (index follows_followee); one row more tells whether there is a rest.
FOLLOWERS = """
    select q.n, array(
        select f.follower_id from follows f
        join user_activity u on u.user_id = f.follower_id and u.last_seen_at > now() - %s * interval '1 day'
        where f.followee_id = q.author and f.follower_id > q.after order by f.follower_id limit %s)
    from unnest(%s::int[], %s::bigint[], %s::bigint[]) q (n, author, after)"""

# What a policy may want to know of readers and authors beyond the follower count (asked only when it looks at it).
FOLLOWS = "select follower_id, count(*) from follows where follower_id = any(%s) group by 1"
AWAY = "select user_id, extract(epoch from now() - last_seen_at)::float8 / 86400 from user_activity where user_id = any(%s)"
FLAGGED = "select author_id from pull_flags where raised and author_id = any(%s)"

DEMOTE_WRITES = 20_000     # deliveries in one slice of a demotion: about 0.2 s of Redis


class Behind(Exception):
    """Redis does not have the place that this consumer left: it lost writes, or another consumer has taken over."""


@dataclass
class Done:
    """What one `once()` did."""
    records: int = 0
    deliveries: int = 0
    added: int = 0
    dead: int = 0
    resynced: bool = False
    lost: str = ""           # what a resync found to be gone from Redis, in words

    def add(self, other: "Done") -> None:
        """Count what another one did to this."""
        for name in ("records", "deliveries", "added", "dead"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


class FanOut:
    """`once()` handles what has arrived; `run(stop)` goes on until told to stop, through any engine's absence."""

    def __init__(self, settings: Settings, postgres_url: str, redis_url: str, bootstrap: str, *,
                 decide: policy.Policy | None = None, rates: policy.Rates | None = None, most: int = 500, **consumer):
        """`decide`: a policy instead of the live threshold; `rates`: what it may ask of users' posts and reads a day."""
        self.settings, self.names = settings, Names(settings.namespace)
        self.postgres_url, self.redis_url, self.bootstrap = postgres_url, redis_url, bootstrap
        self.decide, self.most, self.consumer_settings = decide, most, consumer
        self.rates, self.needs = rates or policy.Rates.even(), policy.needs(decide) if decide else frozenset()
        self.edgewise = bool(self.needs & policy.OF_READERS)       # one answer an edge, not one a post
        self.batch = min(settings.batch, getattr(decide, "turn", settings.batch))
        self.conn: db.Connection | None = None
        self.redis: redis.Redis | None = None
        self.consumer = self.producer = None
        self.place: dict[str, int] = {}           # field -> the offset that Redis has as next, as far as we know
        self.left: dict[str, int] = {}            # field -> the offset up to which Redis has answered us
        self.stale = True                         # the places must be read from Redis before anything is handled
        # a member that does not poll for max.poll.interval.ms (librdkafka: 300 s) loses its partitions: see _keep
        self.poll_limit_s = consumer.get("max.poll.interval.ms", 300_000) / 1000
        self.since: float | None = None           # when the batch that is being handled was begun
        self.watch, self.over = threading.Lock(), threading.Event()
        self.keeper: threading.Thread | None = None

    # --- life --------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        if self.conn is None or self.conn.closed:
            self.conn = db.connect(self.postgres_url, self.settings.namespace, "feedlab fanout")
        if self.redis is None:
            self.redis = timeline.connect(self.redis_url)
        if self.producer is None:
            self.producer = kafka.producer(self.bootstrap)
        if self.consumer is None:
            self.consumer = kafka.consumer(self.bootstrap, self.names.group, **self.consumer_settings)
            self.consumer.subscribe(list(self.names.topics), on_assign=self._assigned, on_revoke=self._revoked,
                                    on_lost=self._revoked)
        if self.keeper is None:
            self.over.clear()
            self.keeper = threading.Thread(target=self._keep, daemon=True)
            self.keeper.start()

    def close(self) -> None:
        """Leave the group (the others take over at once) and close what was opened."""
        self.over.set()
        if self.keeper is not None:
            self.keeper.join()
            self.keeper = None
        for c in (self.consumer, self.conn, self.redis):
            if c is not None:
                c.close()
        self.consumer = self.conn = self.redis = self.producer = None

    def _keep(self) -> None:
        """While a batch takes longer than a third of the poll limit: pause everything and poll in its stead, so that a slow Redis
        does not cost the partitions. The batch goes on; its place is read again afterwards."""
        while not self.over.wait(self.poll_limit_s / 6):
            with self.watch:
                if self.since is not None and time.monotonic() - self.since > self.poll_limit_s / 3:
                    self.stale = True
                    with suppress(KafkaException):           # the broker is away: asked again at the next turn
                        self.consumer.pause(self.consumer.assignment())
                        self.consumer.poll(0)

    @contextmanager
    def _handling(self):
        with self.watch:
            self.since = time.monotonic()
        try:
            yield
        finally:
            with self.watch:
                self.since = None

    def _assigned(self, consumer, partitions) -> None:
        consumer.assign(partitions)
        consumer.pause(partitions)                # nothing flows before resync has found each place
        self.stale = True

    def _revoked(self, consumer, partitions) -> None:
        for p in partitions:
            self.place.pop(kafka.field(p.topic, p.partition), None)
            self.left.pop(kafka.field(p.topic, p.partition), None)

    def run(self, stop: Callable[[], bool], say: Callable[[str], None] = lambda text: None) -> Done:
        """Until `stop()`. An engine that is away is waited for, and said once; the place in the group is kept meanwhile."""
        total, trouble = Done(), False
        while not stop():
            try:
                self.open()
                done = self.once()
                if trouble:
                    say("fanout: all engines answer again")
                trouble = False
                total.add(done)
                if done.lost:
                    say(f"fanout: {done.lost}")
                elif done.resynced and self.place:
                    say(f"fanout: {len(self.place)} partitions, {sum(self.place.values())} records handled before, by Redis")
            except (RedisError, psycopg.Error, KafkaException, EngineDown, BufferError) as e:
                if not trouble:
                    say("fanout: waiting, since " + away(e, postgres=self.postgres_url, redis=self.redis_url, kafka=self.bootstrap))
                trouble, self.stale = True, True
                self._let_go()
        self.close()
        return total

    def _let_go(self) -> None:
        """After trouble: connections are made anew, the group is kept by polling with all partitions paused."""
        if self.conn is not None:
            self.conn.close()
        self.conn = self.redis = self.producer = None
        if self.consumer is not None:
            try:
                self.consumer.pause(self.consumer.assignment())
                self.consumer.poll(0.2)
                return
            except KafkaException:
                pass
        time.sleep(0.2)

    # --- finding the place ---------------------------------------------------------------------------------------------

    def resync(self) -> str:
        """Read each place from Redis and go on from there, forwards or back. What Redis lost, in words, "" if nothing.

        A place that is missing, or that Kafka no longer has: nobody knows what Redis lost. Then all timelines are dropped
        (always right: they are rebuilt from SQL) and the committed offset is taken.
        """
        timeline.load(self.redis)
        parts = self.consumer.assignment()
        fields = [kafka.field(p.topic, p.partition) for p in parts]
        stored = self.redis.hmget(self.names.progress, fields) if fields else []
        places, doubt, lost = {}, False, 0
        commits = self.consumer.committed(parts, timeout=10) if parts else []
        for p, f, at, committed in zip(parts, fields, stored, commits, strict=True):
            low, high = self.consumer.get_watermark_offsets(p, timeout=10)
            if at is not None and low <= int(at) <= high:
                places[f] = int(at)
                # Redis had more than that: we saw its answer, or (another consumer) Kafka's offset, which follows behind, is ahead
                lost += max(0, self.left.get(f, 0) - int(at), committed.offset - int(at))
                continue
            places[f] = min(max(low, committed.offset), high) if committed.offset > OFFSET_INVALID else low
            doubt = doubt or at is not None or places[f] > 0     # at 0 nothing was ever handled, so nothing can be missing
        moves = [(f, at or "", str(places[f])) for f, at in zip(fields, stored, strict=True) if at != str(places[f])]
        if moves:
            # A mark before the drop, asked for after it: should Redis come back with an older state in between, old timelines would
            # return under a place that never saw what they lack. (Found by the model, `adopt`.)
            token = timeline.mark(self.redis, self.names.progress)
            if doubt:
                timeline.drop_all(self.redis, self.settings.namespace)
            if not timeline.adopt(self.redis, self.names.progress, token, moves):
                raise Behind
        self.place, self.left = places, dict(places)
        self._seek(parts, fields)
        self.stale = False
        if doubt:
            return ("Redis does not know how far it was (restarted empty?): all timelines dropped, each is rebuilt from SQL when it "
                    "is read")
        return f"Redis is older than this consumer left it ({lost} records): replaying from its place" if lost else ""

    def _seek(self, parts, fields) -> None:
        """Move every partition to its place. librdkafka refuses a seek until the fetcher has started, so ask again."""
        end = time.monotonic() + 10
        for p, f in zip(parts, fields, strict=True):
            while True:
                try:
                    self.consumer.seek(TopicPartition(p.topic, p.partition, self.place[f]))
                    break
                except KafkaException as e:
                    if e.args[0].code() != KafkaError._STATE or time.monotonic() > end:
                        raise
                    time.sleep(0.01)
        self.consumer.resume(parts)

    def _check(self) -> None:
        """While idle: has Redis still the places that we left? (A restart shows here, even when nobody posts.)"""
        if self.place:
            fields = list(self.place)
            stored = self.redis.hmget(self.names.progress, fields)
            if any(at != str(self.place[f]) for f, at in zip(fields, stored, strict=True)):
                raise Behind

    # --- one batch --------------------------------------------------------------------------------------------------------

    def once(self, timeout_s: float = 0.1) -> Done:
        """Handle the records that have arrived (at most `most`). Raises engine errors; then nothing is half done that the next
        `resync` would not find."""
        done = Done()
        first = self.consumer.poll(timeout_s)
        messages = [] if first is None else [first, *self.consumer.consume(self.most - 1, timeout=0)]
        for m in messages:
            if m.error() and not m.error().retriable():
                raise KafkaException(m.error())
        messages = [m for m in messages if not m.error()]
        try:
            if self.stale:
                done.lost = self.resync()
                done.resynced = True
                return done                      # what was polled before the seek is read again
            if not messages:
                self._check()
                return done
            with self._handling():
                self._handle(messages, done)
        except Behind:
            self.stale = True
        except redis.ResponseError as e:
            if not timeline.lost_functions(e):
                raise
            self.stale = True
        return done

    def _handle(self, messages: list[Message], done: Done) -> None:
        work = self._decode(messages, done)
        self._plan(work)
        if any(w.rest for w in work):
            self._produce([(self.names.slices, w.key, w.rest) for w in work if w.rest])
        pipe = self.redis.pipeline(transaction=False)
        for w in work:
            self._queue(pipe, w)
        if work:
            self._settle(pipe.execute(raise_on_error=False), done)
            self.left = dict(self.place)
        for w in work:
            if w.clear:
                celebrities.lower_flag(self.conn, w.event.author, w.event.pulls)
        done.records += len(messages)
        self._commit(messages)

    def _decode(self, messages: list[Message], done: Done) -> list["Work"]:
        work, at = [], dict(self.place)
        for m in messages:
            f = kafka.field(m.topic(), m.partition())
            if f not in at or m.offset() < at[f]:
                continue                         # of a partition that was taken away, or handled before
            if m.offset() > at[f]:
                raise Behind                     # our topics have no gaps: records were removed before we had them
            at[f] += 1
            try:
                work.append(Work(m, f, decode(m.value())))
            except Poison as e:
                self._produce([(self.names.dead, m.key(), m.value())], headers={
                    "reason": str(e), "from": f"{f}:{m.offset()}"})
                done.dead += 1
                work.append(Work(m, f, None, counter="dead"))
        return work

    def _plan(self, work: list["Work"]) -> None:
        """What SQL knows, in a few queries for the whole batch: counts, live knobs, who was deleted, followers."""
        knobs = db.knobs(self.conn)
        feed_max, decide = knobs["feed_max"], self.decide or policy.threshold(knobs["threshold"])
        events = [w for w in work if w.event and w.event.kind in ("posted", "deleted", "demote")]
        followers = dict(self.conn.execute(FACTS, (list({w.event.author for w in events}),)).fetchall()) if events else {}
        posted = [w.event.post for w in events if w.event.kind == "posted"]
        live = {i for i, in self.conn.execute("select id from posts where id = any(%s) and not deleted", (posted,))} \
            if posted else set()
        facts = self._facts(events, followers)
        for w in events:
            w.feed_max = feed_max
            w.push = self.edgewise or int(decide(facts(w))) == policy.PUSH
            if w.event.kind == "posted" and w.event.post not in live:
                w.gone = True                    # deleted before it was delivered; the filter would hide it anyway
            elif w.event.kind == "demote":
                self._plan_demotion(w)
        self._ask_followers([w for w in events if w.slices and not w.gone])
        if self.edgewise:
            self._choose([w for w in events if w.event.kind == "posted" and not w.gone], facts)
        pulled = [w.event.author for w in events if w.event.kind == "posted" and not w.gone
                  and (w.some_pull or w.event.after < 0 and not w.push)]
        celebrities.raise_flags(self.conn, pulled)
        for author in set(pulled):
            celebrities.ensure(self.conn, self.redis, self.names, author, feed_max, self.settings.building_s,
                               self.settings.celeb_ttl_s)

    def _facts(self, events: list["Work"], followers: dict[int, int]) -> Callable[["Work"], policy.Edges]:
        """What a policy may know of the author of each event."""
        authors = list({w.event.author for w in events})
        flagged = {a for a, in self.conn.execute(FLAGGED, (authors,))} if "flagged" in self.needs else set()
        posts = dict(zip(authors, self.rates.posts_of(authors).tolist(), strict=True)) if "posts" in self.needs else {}
        lag = self._waiting() if "lag" in self.needs else 0
        return lambda w: policy.Edges(author=w.event.author, followers=followers[w.event.author], post=w.event.post, lag=lag,
                                      flagged=w.event.author in flagged, posts=posts.get(w.event.author, 0.5))

    def _waiting(self) -> int:
        """Records that wait for this consumer, as its client last heard."""
        ends = (self.consumer.get_watermark_offsets(p, cached=True)[1] - self.place.get(kafka.field(p.topic, p.partition), 0)
                for p in self.consumer.assignment())
        return sum(max(0, n) for n in ends)

    def _choose(self, posted: list["Work"], facts) -> None:
        """Edge by edge: keep the followers that are pushed to, and note whether another must pull (protocol rule 7: any subset may be
        pushed while the flag is up). What is dropped raises no flag; a reader who is only away counts as one who pulls."""
        users = sorted({u for w in posted for u in w.users})
        follows = dict(self.conn.execute(FOLLOWS, (users,))) if "follows" in self.needs else {}
        away = dict(self.conn.execute(AWAY, (users,))) if "away_days" in self.needs else {}
        for w in posted:
            edges = replace(facts(w), reader=np.array(w.users, np.int64), reads=self.rates.reads_of(w.users),
                            follows=np.array([follows.get(u, 0) for u in w.users]), away_days=np.array([away.get(u, 0.0) for u in w.users]))
            said = policy.answers(self.decide, edges, len(w.users))
            w.users = [u for u, a in zip(w.users, said.tolist(), strict=True) if a == policy.PUSH]
            w.some_pull = bool(np.isin(said, (policy.PULL, policy.SKIP)).any())

    def _plan_demotion(self, w: "Work") -> None:
        """Back to push: deliver the author's newest FEED_MAX posts to every follower, and raise the floor of each feed to the
        next one, below which SQL answers. Done whatever flag and threshold say: it may be a replay."""
        if w.event.after < 0:
            w.event = replace(w.event, pulls=celebrities.pulls(self.conn, w.event.author))
        rows = pull.newest(self.conn, [w.event.author], limit=w.feed_max + 1)
        w.entries = rows[:w.feed_max][::-1]
        w.floor = rows[w.feed_max].ms if len(rows) > w.feed_max else None

    def _ask_followers(self, slices: list["Work"]) -> None:
        """The next slice of followers of each, and what is left for a slice record."""
        by_size: dict[int, list[Work]] = {}
        for w in slices:
            size = self.batch if not w.entries else max(1, min(self.batch, DEMOTE_WRITES // len(w.entries)))
            by_size.setdefault(size, []).append(w)
        for size, group in by_size.items():
            rows = self.conn.execute(FOLLOWERS, (self.settings.active_days, size + 1, list(range(len(group))),
                                                 [w.event.author for w in group], [w.event.after for w in group]))
            for n, users in rows:
                w = group[n]
                w.users = users[:size]
                if len(users) > size:
                    w.rest = replace(w.event, after=w.users[-1]).encode()
                elif w.event.kind == "demote":
                    w.clear = w.push

    def _queue(self, pipe, w: "Work") -> None:
        e, n = w.event, self.names
        if w.field not in self.place:
            raise Behind                         # taken away while the batch was planned
        place = (w.field, str(self.place[w.field]), str(w.message.offset() + 1))
        feeds = [n.feed(u) for u in w.users]
        if e is None or w.gone:
            timeline.drop_at(pipe, n, place, [], w.counter)
        elif e.kind == "posted" and (w.push or e.after >= 0):
            if w.some_pull:      # some take it from the author; the place moves with the call below, and both may be repeated
                timeline.deliver(pipe, n, (*place[:2], place[1]), [n.celeb(e.author)], [Entry(e.ms, e.post)], w.feed_max,
                                 counted_as="celeb_writes")
            timeline.deliver(pipe, n, place, feeds, [Entry(e.ms, e.post)], w.feed_max, counter="pushed" if e.after < 0 else "slices",
                             trace=e.post, trace_s=self.settings.trace_s, where=w.where)
        elif e.kind == "posted":
            timeline.deliver(pipe, n, place, [n.celeb(e.author)], [Entry(e.ms, e.post)], w.feed_max, counter="pulled",
                             counted_as="celeb_writes", trace=e.post, trace_s=self.settings.trace_s, where=w.where)
        elif e.kind == "demote":
            timeline.deliver(pipe, n, place, feeds, w.entries, w.feed_max, counter="demotions" if w.clear else "slices",
                             counted_as="redelivered", floor=w.floor)
        elif e.kind == "deleted":
            timeline.remove(pipe, n, place, [n.celeb(e.author), *feeds], e.post, "deleted" if e.after < 0 else "slices")
        else:
            timeline.drop_at(pipe, n, place, [n.feed(e.user)], "graph")
        self.place[w.field] = w.message.offset() + 1

    def _settle(self, answers: list, done: Done) -> None:
        """All calls of a batch were refused, or none: a refusal means that the place is not where we left it."""
        for a in answers:
            if isinstance(a, Exception):
                raise a
            if a[0] == 0:
                raise Behind
            done.deliveries += a[1]
            done.added += a[2]

    # --- Kafka ---------------------------------------------------------------------------------------------------------------

    def _produce(self, records: list[tuple], headers: dict | None = None) -> None:
        """Send records and wait for the acknowledgement: the place moves only after what is left to do is safe."""
        failures: list = []
        for topic, key, value in records:
            self.producer.produce(topic, value, key, headers=headers or {},
                                  on_delivery=lambda error, _: failures.append(error) if error else None)
        kafka.wait_acked(self.producer, failures)

    def _commit(self, messages: list[Message]) -> None:
        """After Redis has answered. Not waited for: the place that counts is in Redis."""
        last = {(m.topic(), m.partition()): m.offset() + 1 for m in messages}
        self.consumer.commit(offsets=[TopicPartition(t, p, at) for (t, p), at in last.items()], asynchronous=True)


class Work:
    """One record and what is to be done with it."""
    __slots__ = ("message", "field", "event", "counter", "push", "gone", "users", "rest", "clear", "entries", "floor", "feed_max",
                 "some_pull")

    def __init__(self, message: Message, field: str, event: Event | None, counter: str = ""):
        self.message, self.field, self.event, self.counter = message, field, event, counter
        self.push = self.gone = self.clear = self.some_pull = False
        self.users: list[int] = []
        self.entries: list[Entry] = []
        self.rest = self.floor = self.feed_max = None

    @property
    def slices(self) -> bool:
        """Goes over the author's followers. A slice record goes on whatever the threshold says by now."""
        e = self.event
        return e.kind == "demote" or e.after >= 0 or self.push

    @property
    def key(self) -> bytes:
        return str(self.event.post or self.event.author).encode()

    @property
    def where(self) -> str:
        """For `feedlab trace`: topic, partition, offset, and when outbox and broker had it (epoch ms)."""
        headers = dict(self.message.headers() or [])
        return f"{self.field}:{self.message.offset()}:{(headers.get('outbox-ms') or b'0').decode()}:{self.message.timestamp()[1]}"
