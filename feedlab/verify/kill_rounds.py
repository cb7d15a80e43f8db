"""kill -9, again and again, under load: relay, consumer, Redis, broker and PostgreSQL die at random moments while one
thread writes as fast as it can and others scroll all the time; every page is recorded and judged, and after each leg of
rounds everybody's scroll, page by page to the end, is held against the SQL pull answer and against the history.

    python -m feedlab.verify.kill_rounds --rounds 50 --seed 1

Kills the engines of the settings' state folder, so never in one that somebody else works on.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from statistics import median

import psycopg
from confluent_kafka import KafkaException
from redis.exceptions import RedisError

from .. import controller, db, engines, follows, kafka, outbox, posts, pull, repair, timeline
from ..addresses import FIELDS, Addresses
from ..config import Settings
from ..core import check, cursor
from ..core.check import Deleted, Followed, History, Knob, Posted, Read, Unfollowed
from ..core.snowflake import Drawn
from ..errors import BadInput, EngineDown, NotFound
from ..lab.session import open_lab, wipe
from ..lab.workers import KINDS, Workers
from ..reader import Reader, scroll

TARGETS = ("relay", "fanout", "redis", "kafka", "postgres")
AWAY = (*db.AWAY, RedisError, KafkaException, EngineDown)
PATIENCE_S = 120  # how long an engine may be away before a run gives up
USERS, LIVE = 60, 600  # posts not deleted, at most: so that everybody's whole scroll can be read after each leg
LEG = 5  # rounds between two checks of everything
READERS, PAUSE_S = (
    2,
    0.01,
)  # between two pages of a reader: flat out, two of them keep a JVM from starting for 25 s on two cores
# FEED_MAX below what most users can scroll to, so that each scroll crosses the floor; batch below the large authors'
# followers, so that slices are handed on; thresholds on both sides of the larger ones, so that some are pulled
FEED_MAX, BATCH, THRESHOLDS = 60, 15, (12, 25, 45)


def _say(text: str, done: int | None = None, total: int | None = None) -> None:
    """The default progress: nothing."""


def draw_follows(rng: random.Random, users: int = USERS) -> set[tuple[int, int]]:
    """(follower, followee) pairs with a heavy tail: author k has about 55 / k^0.6 followers of 60."""
    pairs = set()
    for author in range(1, users + 1):
        others = [u for u in range(1, users + 1) if u != author]
        pairs |= {(u, author) for u in rng.sample(others, max(2, int(0.92 * users / author**0.6)))}
    return pairs


class _Hand:
    """One thread's connections. While an engine is away it waits and tries again, until it is told that all is over."""

    def __init__(self, run: "Rounds"):
        self.run, self.conn = run, None
        self.redis = timeline.client(run.addresses.redis_url)

    def patiently(self, what: Callable):
        """`what()`, as often as needed. Raises EngineDown at the deadline, and what is not an engine's absence at once."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                if self.conn is None or self.conn.closed:
                    self.conn = db.connect(
                        self.run.addresses.postgres_url, self.run.settings.namespace, "feedlab rounds"
                    )
                return what()
            except AWAY as e:
                if isinstance(e, db.AWAY) and self.conn is not None:
                    self.conn.close()
                if time.monotonic() > end or self.run.over.is_set():
                    raise EngineDown(f"gave up after {PATIENCE_S} s: {str(e).splitlines()[0]}") from None
                self.run.over.wait(0.02)

    def close(self) -> None:
        for c in (self.conn, self.redis):
            if c is not None:
                c.close()


class Rounds:
    """One run: the threads, what they record, and the rounds. `run` below is how it is called."""

    def __init__(self, settings: Settings, addresses: Addresses, seed: int, say: Callable):
        self.settings, self.addresses, self.seed, self.say = settings, addresses, seed, say
        self.rng = random.Random(f"{seed} kills")
        self.over = threading.Event()
        self.history, self.live, self.pairs = History(), {}, set()
        self.gates = {"write": threading.Event(), "read": threading.Event()}
        self.locks: dict[str, list[threading.Lock]] = {"write": [], "read": []}
        self.failures: list[BaseException] = []
        self.made, self.heal, self.back_s, self.seconds = Counter(), {}, {}, {}

    # --- threads that write and read ---------------------------------------------------------------------------------------

    @contextmanager
    def load(self) -> Iterator[None]:
        """The writer and the readers, until the block is left; what went wrong in one of them is raised at the end."""
        work = [("write", self.writer, 0)] + [("read", self.reader, n) for n in range(READERS)]
        threads = []
        for kind, body, n in work:
            self.locks[kind].append(lock := threading.Lock())
            self.gates[kind].set()
            threads.append(
                threading.Thread(target=self._thread, args=(kind, lock, body, n), daemon=True, name=f"{kind} {n}")
            )
        for t in threads:
            t.start()
        try:
            yield
        finally:
            self.over.set()
            for gate in self.gates.values():
                gate.set()
            for t in threads:
                t.join(30)
        if self.failures:
            raise self.failures[0]

    def _thread(self, kind: str, lock: threading.Lock, body, n: int) -> None:
        hand = _Hand(self)
        try:
            for step in body(hand, n):
                while not self.gates[kind].wait(0.1):
                    pass
                if self.over.is_set():
                    return
                with lock:
                    step()
                if kind == "read":
                    self.over.wait(PAUSE_S)
        except BaseException as e:  # looked at by whoever waits for the threads
            if not (self.over.is_set() and isinstance(e, EngineDown)):
                self.failures.append(e)
        finally:
            hand.close()

    @contextmanager
    def held(self, *kinds: str) -> Iterator[None]:
        """No thread of these kinds is in the middle of anything, and none begins."""
        with ExitStack() as stack:
            for kind in kinds:
                self.gates[kind].clear()
                stack.callback(self.gates[kind].set)
            for kind in kinds:
                for lock in self.locks[kind]:
                    stack.enter_context(lock)
            yield

    def writer(self, hand: _Hand, n: int) -> Iterator[Callable]:
        """Steps without end: posts, deletes, follows, unfollows, moves of the threshold, demotions. Each is tried until its
        outcome is known; until then the history has it as unknown (end None)."""
        rng, names = random.Random(f"{self.seed} writer {n}"), self.names
        ids = hand.patiently(lambda: db.ids(hand.conn))
        # the number of an author's followers says how often it posts, so that large and small fan-outs mix
        authors, weights = range(1, USERS + 1), [1 / a**0.5 for a in range(1, USERS + 1)]

        def post():
            author, drawn = rng.choices(authors, weights)[0], ids.next()

            def once():
                with suppress(psycopg.errors.UniqueViolation):  # the try before had gone through after all
                    posts.create(hand.conn, Drawn(drawn), names, author, f"post of {author}")

            with self.history.doing(Posted(author, id=drawn[0], ms=drawn[1])):
                hand.patiently(once)
            self.live[drawn[0]] = author

        def delete():
            i = rng.choice(list(self.live))
            with self.history.doing(Deleted(i)):
                hand.patiently(lambda: posts.delete(hand.conn, names, self.live[i], i))
            del self.live[i]

        def follow():
            user, author = rng.sample(authors, 2)
            with self.history.doing(Followed(user, author)):
                hand.patiently(lambda: follows.follow(hand.conn, hand.redis, names, user, author))
            self.pairs.add((user, author))

        def unfollow():
            user, author = rng.choice(list(self.pairs))
            with self.history.doing(Unfollowed(user, author)):
                hand.patiently(lambda: follows.unfollow(hand.conn, hand.redis, names, user, author))
            self.pairs.discard((user, author))

        def move():
            value = rng.choice(THRESHOLDS)
            with self.history.doing(Knob("threshold", value)):
                hand.patiently(lambda: db.set_knobs(hand.conn, threshold=value))

        def demote():
            hand.patiently(
                lambda: (
                    controller.demote_below(hand.conn, names, 5)
                    or repair.ask_demotion(hand.conn, names, rng.choice(authors))
                )
            )

        while True:
            kind = rng.choices((post, delete, follow, unfollow, move, demote), (140, 20, 15, 15, 1, 2))[0]
            if kind is post and len(self.live) >= LIVE:
                kind = delete
            if (kind is delete and not self.live) or (kind is follow and len(self.pairs) > 1_200):
                kind = post
            self.made[kind.__name__] += 1
            yield kind

    def reader(self, hand: _Hand, n: int) -> Iterator[Callable]:
        """Steps without end: the pages of one scroll after another, by a process that keeps copies of its own."""
        rng, made = random.Random(f"{self.seed} reader {n}"), Reader(self.settings)
        while True:
            user, limit, depth = rng.randint(1, USERS), rng.choice((5, 20, 50)), rng.choice((1, 3, 10_000))
            walk = self._walk(hand, made, user, limit, depth)
            # a step is taken by the thread, so it may not be taken ahead: `go` tells whether there is a next page
            go = [True]
            while go[0]:
                yield lambda: go.__setitem__(0, next(walk, False))  # noqa: B023

    def _walk(self, hand: _Hand, reader: Reader, user: int, limit: int, depth: int) -> Iterator[bool]:
        """One page at each `next`, recorded; ends with the feed, at the depth, or when an engine took the page away."""
        at, history = None, self.history
        number = history.tick()
        for page in range(1, depth + 1):
            if history is not self.history:
                return  # everything was checked meanwhile; a new history has begun
            read = Read(user, cursor=cursor.parse(at) if at else None, limit=limit, scroll=number, page=page)
            try:
                with history.doing(read):
                    at = self._page(hand, reader, read, at)
            except AWAY:
                if hand.conn is not None:
                    hand.conn.close()
                self.over.wait(0.02)
                with suppress(EngineDown):
                    hand.conn = db.connect(self.addresses.postgres_url, self.settings.namespace, "feedlab rounds")
                return
            if at is None:
                return
            yield True

    def _page(self, hand: _Hand, reader: Reader, read: Read, at: str | None) -> str | None:
        if hand.conn is None:
            raise EngineDown("not connected")
        try:
            got = reader.page(hand.conn, hand.redis, read.user, at, read.limit)
        except (*AWAY, NotFound) as e:
            if isinstance(e, NotFound):
                read.error = str(e)
                return None
            raise
        except Exception as e:  # a 500, were it over HTTP
            read.error = f"{type(e).__name__}: {e}"
            return None
        read.entries = [p.entry for p in got.posts]
        read.next_cursor = cursor.parse(got.next_cursor) if got.next_cursor else None
        return got.next_cursor

    # --- rounds ------------------------------------------------------------

    def round(self, target: str) -> float:
        """Load, a kill at a random moment, back again, load, drained. Seconds from the kill until all queues were empty."""
        self.wait(self.rng.uniform(0.2, 1.2))
        began = time.monotonic()
        if target in KINDS:
            self.workers.kill(target)
        else:
            engines.kill(self.settings, target)
        self.wait(self.rng.uniform(0.0, 0.4))
        if target in KINDS:
            self.workers.watch()
        else:
            self.back()
        self.back_s.setdefault(target, []).append(time.monotonic() - began)
        self.wait(self.rng.uniform(0.1, 0.6))
        with self.held("write"):
            self.drain()
            return time.monotonic() - began

    def back(self) -> None:
        """`feedlab up`, and once more should the engine end while it starts."""
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                engines.up(self.settings)
                return
            except EngineDown:
                if time.monotonic() > end:
                    raise
                self.over.wait(0.2)

    def wait(self, seconds: float) -> None:
        self.over.wait(seconds)
        if self.failures:
            raise self.failures[0]

    def drain(self) -> None:
        """Until outbox and lag are 0, twice in a row, so that nothing hides between the two."""
        end, quiet, last = time.monotonic() + PATIENCE_S, 0, ""
        while quiet < 2:
            if time.monotonic() > end:
                raise EngineDown(
                    f"not drained after {PATIENCE_S} s: {last}. The logs of the workers are in "
                    f"{self.settings.state_dir}/logs."
                )
            self.workers.watch()
            rows, lag = self.hand.patiently(
                lambda: (outbox.depth(self.hand.conn), kafka.lag(self.admin, self.hand.redis, self.names))
            )
            quiet, last = quiet + 1 if rows == lag == 0 else 0, f"{rows} outbox rows, {lag} records behind"
            self.over.wait(0.02)

    # --- judgement ------------------------------------------------------------

    def judge(self, figures: dict) -> None:
        """With everybody held and the queues empty: each user's scroll to the end, warm and (each sixth) after a DEL,
        against SQL; all pages since the last time, and SQL itself, against the history. Then a new history begins from
        what is."""
        with self.held("write", "read"):
            self.drain()
            hand, history, answers, reader = self.hand, self.history, {}, Reader(self.settings)
            state = history.tick()
            for user in range(1, USERS + 1):
                want = hand.patiently(lambda: [e.id for e in pull.everything(hand.conn, user)])  # noqa: B023
                answers[user, state] = want
                for cold in (False, True) if user % 6 == 0 else (False,):
                    if cold:
                        hand.redis.delete(self.names.feed(user))
                    got = self._scroll(reader, user, state, "after DEL" if cold else "warm")
                    figures["scrolls"] += 1
                    figures["unequal"] += got != want
                    figures["lost"] += len(set(want) - set(got))
                    figures["twice"] += len(got) - len(set(got))
            acked = {f.id for f in history.facts if isinstance(f, Posted) and f.end is not None}
            figures["lost"] += (
                len(acked)
                - hand.conn.execute("select count(*) from posts where id = any(%s)", (list(acked),)).fetchone()[0]
            )
            figures["posts"] += sum(isinstance(f, Posted) and f.start > 0 for f in history.facts)
            report = check.check(history, answers=answers)
            figures["pages"] += report.pages
            figures["wrong"] += report.wrong
            figures["unknown"] += report.unknown
            figures["twice"] += sum(v.kind == "repeated" for v in report.verdicts)
            figures["verdicts"] += [str(v) for v in report.smallest()]
            self.begin()

    def _scroll(self, reader: Reader, user: int, state: int, label: str) -> list[int]:
        """Ids of the whole scroll. Its first two pages are recorded as drained, to be complete by the history; the
        check of a page goes over all posts, so not each; the rest by order, repeats and visibility, and here by SQL."""
        hand, number, got, reads = self.hand, self.history.tick(), [], []

        def page(at):
            read = Read(
                user,
                cursor=cursor.parse(at) if at else None,
                limit=50,
                scroll=number,
                page=len(reads) + 1,
                label=label,
                state=state,
                drained=len(reads) < 2,
            )
            with self.history.doing(read):
                found = hand.patiently(lambda: reader.page(hand.conn, hand.redis, user, at, 50))
                read.entries = [p.entry for p in found.posts]
                read.next_cursor = cursor.parse(found.next_cursor) if found.next_cursor else None
            reads.append(read)
            return found

        for found in scroll(page):
            got += found.ids
        return got

    def begin(self) -> None:
        """A new history, from what SQL holds now: which was just held against the old one."""
        conn, h = self.hand.conn, History()
        h.facts += [
            Posted(a, id=i, ms=ms)
            for a, i, ms in conn.execute("select author_id, id, created_at_ms from posts where not deleted")
        ]
        h.facts += [Followed(u, a) for u, a in conn.execute("select follower_id, followee_id from follows")]
        h.facts.append(Knob("threshold", db.knobs(conn)["threshold"]))
        self.history = h

    # --- all of it ------------------------------------------------------------

    def prepare(self, lab) -> None:
        """Users, follows, counts, by SQL."""
        self.names, self.admin, self.pairs = lab.names, lab.admin, draw_follows(random.Random(f"{self.seed} graph"))
        lab.conn.execute("insert into users select n, 'user ' || n from generate_series(1, %s) n", (USERS,))
        lab.conn.execute("insert into user_activity (user_id) select id from users")
        lab.conn.execute(
            "insert into follows select * from unnest(%s::bigint[], %s::bigint[])",
            tuple(map(list, zip(*sorted(self.pairs), strict=True))),
        )
        lab.conn.execute("insert into follower_counts select followee_id, 0, count(*) from follows group by 1")
        db.set_knobs(lab.conn, threshold=THRESHOLDS[1], feed_max=FEED_MAX)

    def go(self, rounds: int, targets: Sequence[str], consumer: dict) -> dict:
        began, figures = (
            time.monotonic(),
            {
                "posts": 0,
                "lost": 0,
                "twice": 0,
                "wrong": 0,
                "unequal": 0,
                "scrolls": 0,
                "pages": 0,
                "unknown": 0,
                "verdicts": [],
            },
        )
        with open_lab(self.settings, self.addresses) as old:
            wipe(old)
        with open_lab(self.settings, self.addresses) as lab:
            self.prepare(lab)
            self.hand, total, kills = _Hand(self), rounds * len(targets), 0
            self.hand.patiently(self.begin)
            with Workers(self.settings, self.addresses, say=self.say, consumer=consumer) as self.workers:
                self.workers.wait_ready(lab)
                with self.load():
                    try:
                        for target in targets:
                            at, before = time.monotonic(), figures["posts"]
                            for n in range(1, rounds + 1):
                                self.heal.setdefault(target, []).append(self.round(target))
                                kills += target in KINDS
                                if n % LEG == 0 or n == rounds:
                                    self.judge(figures)
                                self.seconds[target] = (time.monotonic() - at, figures["posts"] - before)
                                self.say(
                                    f"{target}: {figures['lost']} lost, {figures['twice']} twice, {figures['wrong']} "
                                    f"wrong; healed in {self.heal[target][-1]:.1f} s",
                                    n + rounds * targets.index(target),
                                    total,
                                )
                    except KeyboardInterrupt:
                        self.say("stopped by hand: what was done so far is judged")
                        self.back()
                        self.judge(figures)
            self.hand.close()
            died = self.workers.restarts - kills
        with open_lab(self.settings, self.addresses) as lab:
            wipe(lab)
        return {
            "seed": self.seed,
            "rounds": rounds,
            "targets": {
                t: {
                    "rounds": len(h),
                    "back_p50_s": round(median(self.back_s[t]), 2),
                    "heal_p50_s": round(median(h), 2),
                    "heal_max_s": round(max(h), 2),
                    "seconds": round(self.seconds[t][0], 1),
                    "posts": self.seconds[t][1],
                }
                for t, h in self.heal.items()
            },
            **figures,
            "operations": dict(self.made),
            "workers_died": died,
            "seconds": round(time.monotonic() - began, 1),
        }


def run(
    settings: Settings,
    addresses: Addresses,
    rounds: int = 3,
    seed: int = 1,
    targets: Sequence[str] = TARGETS,
    say: Callable = _say,
    consumer: dict | None = None,
) -> dict:
    """So many rounds of kill -9 of each target, in a namespace of its own (`<namespace>_rounds`), emptied before and after.

    `lost`: posts that SQL shows to a user and a scroll did not, or that were acknowledged and are gone. `twice`: posts
    shown twice in a scroll. `wrong`: pages with a verdict (`verdicts` has the smallest of each kind). `unequal`:
    scrolls that differ from SQL when drained. `back`: from the kill until it answers (a worker: is started again);
    `heal`: until all queues were empty. `workers_died`: deaths that were no kill of ours. `consumer`: settings of the
    Kafka consumer; a killed one is missed for session.timeout.ms, 10 s unless set.

    Raises BadInput (also for engines that are not ours to kill) and EngineDown.
    """
    for t in targets:
        if t not in TARGETS:
            raise BadInput(f"{t!r} cannot be killed; the targets are: {', '.join(TARGETS)}")
        if t not in KINDS and getattr(settings, FIELDS[t]):
            raise BadInput(
                f"{t} is yours (its URL is set), and feedlab never stops what is yours. Leave it out of the targets."
            )
    if rounds < 1:
        raise BadInput(f"rounds must be at least 1, got {rounds}")
    # lag counts whole records, so four partitions are enough; copies of 0.5 s, so that readers are often on a fresh one
    own = settings.model_copy(
        update={"namespace": f"{settings.namespace[:16]}_rounds", "partitions": 4, "batch": BATCH, "local_copy_s": 0.5}
    )
    return Rounds(own, addresses, seed, say).go(rounds, tuple(targets), consumer or {})


def wrong(result: dict) -> bool:
    """Whether anything in a result of `run` is not as it must be."""
    return any(result[name] for name in ("lost", "twice", "wrong", "unequal", "workers_died"))


def summary(result: dict) -> str:
    """The figures as a few lines."""
    lines = [
        f"seed {result['seed']}: {result['posts']:,} posts, {result['lost']} lost, {result['twice']} twice, "
        f"{result['wrong']} of {result['pages']:,} pages wrong, {result['unequal']} of {result['scrolls']:,} scrolls "
        f"unequal, "
        f"{result['seconds']:.0f} s"
    ]
    lines += [
        f"  {t:9} {f['rounds']} rounds in {f['seconds']:.0f} s, {f['posts']:,} posts; from the kill until it was back "
        f"p50 {f['back_p50_s']:.1f} s, until all was drained p50 {f['heal_p50_s']:.1f} s, max {f['heal_max_s']:.1f} s"
        for t, f in result["targets"].items()
    ]
    return "\n".join(lines + result["verdicts"])


def main(arguments: Sequence[str] | None = None) -> int:
    import argparse
    import json

    from ..cli import show
    from ..config import settings
    from ..errors import FeedlabError

    p = argparse.ArgumentParser(
        "python -m feedlab.verify.kill_rounds",
        description="kill -9 of each part at random moments under load; the "
        "scrolls of everybody are held against SQL. Exit code 1 when anything is wrong.",
    )
    p.add_argument("--rounds", type=int, default=3, help="kills of each target (3)")
    p.add_argument("--seed", type=int, default=1, help="of the writes, the reads and the moments (1)")
    p.add_argument("--targets", default=",".join(TARGETS), help=f"what is killed ({','.join(TARGETS)})")
    p.add_argument("--json", action="store_true", help="one JSON document on stdout")
    a = p.parse_args(arguments)
    try:
        s = settings()
        with show.stages() as say:
            result = run(s, engines.up(s), a.rounds, a.seed, a.targets.split(","), say)
    except FeedlabError as e:
        show.line(str(e), err=True)
        return 2
    print(json.dumps(result, indent=2) if a.json else summary(result), flush=True)
    return int(wrong(result))


if __name__ == "__main__":
    raise SystemExit(main())
