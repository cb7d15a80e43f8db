"""Notebook 10: two writes in two systems cannot be made at once. What is lost by a crash, by a late commit and by two relays, and
what NOTIFY is worth.

Posts, relays and the consumer are the real ones. What is counted as sent is what a consumer of our own reads back from the
topic. """
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import plotly.graph_objects as go
from confluent_kafka import TopicPartition

from ... import db, kafka, outbox, posts, pull
from ...core.codec import Event, Names, decode
from ...core.model import Post
from ...core.snowflake import Snowflake
from ...draw import plots
from ...errors import EngineDown, FeedlabError
from ...lab.session import Lab
from ...reader import scroll
from ...relay import Relay
from ...textbook import relay as t_relay

RELAYS = {"ours": Relay, "textbook": t_relay.Relay}


# --- what is in the topic -----------------------------------------------------------------------------------------------------

def begin(lab: Lab) -> dict[str, int]:
    """Where the topic of posts ends now; hand it to `events`."""
    return kafka.end_offsets(lab.admin, [lab.names.created])


def events(lab: Lab, since: dict[str, int], timeout_s: float = 20) -> list[Event]:
    """What came into the topic of posts since `begin`, partition by partition, each in its order. Raises EngineDown at the
    deadline."""
    ends, got = begin(lab), []
    left, end = sum(ends.values()) - sum(since.values()), time.monotonic() + timeout_s
    c = kafka.consumer(lab.addresses.kafka_bootstrap, f"{lab.settings.namespace}.readback")
    try:
        c.assign([TopicPartition(lab.names.created, int(f.rsplit(":", 1)[1]), at) for f, at in since.items()])
        while len(got) < left:
            if time.monotonic() > end:
                raise EngineDown(f"{len(got)} of {left} records could be read back in {timeout_s:.0f} s.")
            got += [m for m in c.consume(min(500, left - len(got)), 0.2) if not m.error()]
    finally:
        c.close()
    return [decode(m.value()) for m in sorted(got, key=lambda m: (m.partition(), m.offset()))]


def backwards(sent: Sequence[Event]) -> int:
    """How many events came after a younger one of the same author (repeats of the youngest are not counted)."""
    newest: dict[int, int] = {}
    n = 0
    for e in sent:
        n += e.post < newest.get(e.author, 0)
        newest[e.author] = max(e.post, newest.get(e.author, 0))
    return n


# --- a crash between two writes -----------------------------------------------------------------------------------------------

def commit_then_send(lab, producer, author: int, text: str, between: Callable[[], None]) -> None:
    """The design without an outbox: the row is committed, then the event is sent."""
    post = _row(lab.conn, lab.ids, author, text)
    between()
    _send(lab.names, producer, post)


def send_then_commit(lab, producer, author: int, text: str, between: Callable[[], None]) -> None:
    """The other way round: the event is sent while the row's transaction is open."""
    with lab.conn.transaction():
        post = _row(lab.conn, lab.ids, author, text)
        _send(lab.names, producer, post)
        between()


def with_outbox(lab, producer, author: int, text: str, between: Callable[[], None]) -> None:
    """Ours: one transaction writes both rows, a relay sends. `between` comes after the commit."""
    posts.create(lab.conn, lab.ids, lab.names, author, text)
    between()


WAYS = {"commit, then send": commit_then_send, "send, then commit": send_then_commit, "outbox": with_outbox}


def _row(conn: db.Connection, ids: Snowflake, author: int, text: str) -> Post:
    post_id, ms = ids.next()
    conn.execute("insert into posts (id, author_id, created_at_ms, content) values (%s, %s, %s, %s)", (post_id, author, ms, text))
    return Post(post_id, author, ms, text)


def _send(names: Names, producer, post: Post) -> None:
    failures: list = []
    event = Event("posted", author=post.author_id, post=post.id, ms=post.created_at_ms)
    producer.produce(names.created, event.encode().encode(), str(post.author_id).encode(),
                     on_delivery=lambda error, _: failures.append(error) if error else None)
    kafka.wait_acked(producer, failures)


@dataclass
class Crash:
    """After a crash and a restart: posts that SQL has, events that were or will be sent, `lost` posts without an event,
    `ghosts`: events without a post."""
    way: str
    posts: int
    events: int
    lost: int
    ghosts: int


def crashes(lab: Lab, authors: Sequence[int], n: int = 12, dies_at: int = 8, timeout_s: float = 60) -> list[Crash]:
    """Each of the three ways, by an author of its own: a writer process makes posts until it is killed (SIGKILL, by itself) in
    post number `dies_at`, between the two steps; another writer goes on to post `n`. Nothing is relayed here: the outbox still
    holds its events."""
    since, before = begin(lab), _have(lab, authors)
    command = [sys.executable, "-m", "feedlab.classroom.chapters.outbox", json.dumps([list(authors), dies_at])]
    run = subprocess.run(command, env=_env(lab), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s)
    if run.stdout.split() != [str(-signal.SIGKILL)] * len(authors):
        raise FeedlabError(f"the writers were not killed as they should: {run.stdout} {run.stderr.strip()[-300:]}")
    producer = kafka.producer(lab.addresses.kafka_bootstrap)
    for (way, write), author in zip(WAYS.items(), authors, strict=True):
        for i in range(dies_at + 1, n + 1):
            write(lab, producer, author, f"post {i}, {way}", lambda: None)
    sent: dict[int, set[int]] = {a: set() for a in authors}
    for e in events(lab, since):
        if e.author in sent:
            sent[e.author].add(e.post)
    for author, payload in lab.conn.execute("select key, payload from outbox where key = any(%s)", (list(authors),)):
        sent[author].add(decode(payload.encode()).post)
    have = _have(lab, authors)
    made = {a: have[a] - before[a] for a in authors}
    return [Crash(way, len(made[a]), len(sent[a]), len(made[a] - sent[a]), len(sent[a] - made[a]))
            for way, a in zip(WAYS, authors, strict=True)]


def _have(lab: Lab, authors: Sequence[int]) -> dict[int, set[int]]:
    rows = lab.conn.execute("select author_id, id from posts where author_id = any(%s)", (list(authors),)).fetchall()
    return {a: {i for who, i in rows if who == a} for a in authors}


def _env(lab: Lab) -> dict[str, str]:
    return os.environ | lab.addresses.environment() | {"FEEDLAB_NAMESPACE": lab.settings.namespace}


@dataclass
class _Writer:
    """What a way of writing needs of a Lab, opened by the child for itself."""
    conn: db.Connection
    ids: Snowflake
    names: Names


def _children(authors: Sequence[int], dies_at: int) -> None:
    """A process of its own, which forks a writer for each way (so that Python starts once) and prints how each ended."""
    for way, author in zip(WAYS, authors, strict=True):
        pid = os.fork()
        if pid == 0:
            try:
                _writer(way, author, dies_at)
            finally:
                os._exit(1)                  # not reached when all is well
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _writer(way: str, author: int, dies_at: int) -> None:
    """Posts 1 to `dies_at`; in the last one the process kills itself between the two steps."""
    from ...config import settings
    s = settings()
    conn = db.connect(s.postgres_url, s.namespace)
    me, producer = _Writer(conn, db.ids(conn), Names(s.namespace)), kafka.producer(s.kafka_bootstrap)
    for i in range(1, dies_at + 1):
        WAYS[way](me, producer, author, f"post {i}, {way}",
                  lambda: os.kill(os.getpid(), signal.SIGKILL) if i == dies_at else None)      # noqa: B023


def crash_figure(rows: Sequence[Crash]) -> go.Figure:
    """Lost posts and ghosts of each way."""
    bad = sum(c.lost + c.ghosts > 0 for c in rows)
    fig = plots.figure(f"One crash each: {bad} of {len(rows)} ways leave SQL and Kafka apart", "posts", "")
    for name, values, colour, shape in (("in SQL, never sent", [c.lost for c in rows], plots.VERMILLION, ""),
                                        ("sent, not in SQL", [c.ghosts for c in rows], plots.ORANGE, "/")):
        fig.add_bar(y=[c.way for c in rows], x=values, name=name, orientation="h", text=[v or "" for v in values],
                    marker={"color": colour, "pattern": {"shape": shape}})
    return fig.update_layout(barmode="stack", height=270).update_xaxes(dtick=1, range=[0, 1.5]) \
        .update_yaxes(autorange="reversed")


def first_gap(lab: Lab, user: int, limit: int = 5) -> str:
    """Scroll a user's feed and hold it against SQL: the first post that is missing or too many, in words; "" when all is
    equal."""
    want = [e.id for e in pull.everything(lab.conn, user)]
    texts = dict(lab.conn.execute("select id, content from posts where id = any(%s)", (want,)).fetchall())
    seen = 0
    for number, page in enumerate(scroll(lambda c: lab.page(user, c, limit)), 1):
        for got in page.ids:
            if seen == len(want) or got != want[seen]:
                return f"user {user}, page {number}: {texts[want[seen]]!r} is missing" if got in want[seen:] else \
                    f"user {user}, page {number}: post {got} should not be there"
            seen += 1
    return "" if seen == len(want) else f"user {user}: {texts[want[seen]]!r} is missing at the end"


# --- a commit that comes late -------------------------------------------------------------------------------------------------

@dataclass
class Late:
    """`rows`: what happened to each outbox row, in the order of their ids: (outbox id, who, committed, sent), committed and
    sent as "1st", "2nd" or "never". `lost`: committed and never sent."""
    rows: list[tuple[int, str, str, str]] = field(default_factory=list)
    lost: int = 0


def late_commit(lab: Lab, system: str, early: int, late: int) -> Late:
    """Author `late` inserts first and is held up before the commit; author `early` inserts afterwards and commits; the relay
    runs. Then the first commits, and the relay runs twice more. Leaves the outbox empty."""
    relay, since = _opened(lab, system), begin(lab)
    try:
        with db.connect(lab.addresses.postgres_url, lab.settings.namespace) as other:
            block = other.transaction()
            with block:
                slow = posts.create(other, lab.ids, lab.names, late, "inserted 1st, committed 2nd")
                quick = posts.create(lab.conn, lab.ids, lab.names, early, "inserted 2nd, committed 1st")
                ids = dict(other.execute("select key, id from outbox where key = any(%s)", ([early, late],)).fetchall())
                relay.once()
                first = {e.post for e in events(lab, since)}
        relay.once()
        relay.once()
        both = {e.post for e in events(lab, since)}
    finally:
        _closed(lab, relay)
    sent = {p: "1st" if p in first else "2nd" if p in both else "never" for p in (slow.id, quick.id)}
    return Late([(ids[late], "the slow one", "2nd", sent[slow.id]), (ids[early], "the quick one", "1st", sent[quick.id])],
                [*sent.values()].count("never"))


@dataclass
class Contended:
    """`committed` posts, `sent` different ones of them, `records` in the topic, `lost`, `polls` of the relay that found
    something."""
    committed: int
    sent: int
    records: int
    lost: int
    polls: int


def contended(lab: Lab, system: str, authors: Sequence[int], each: int = 30, hold_s: float = 0.004, seed: int = 1) -> Contended:
    """A writer a thread and author makes `each` posts; every transaction goes on for up to `hold_s` after the insert, as a
    request that has more to do. One post more is made and sent before. The relay runs all the while, and until it finds
    nothing more. Leaves the outbox empty."""
    relay, since, failed, polls = _opened(lab, system), begin(lab), [], 0
    made: list[int] = []

    def write(author: int) -> None:
        try:
            rng = random.Random(seed * 1_000 + author)
            with db.connect(lab.addresses.postgres_url, lab.settings.namespace) as conn:
                ids = db.ids(conn)
                for n in range(each):
                    with conn.transaction():
                        post = posts.create(conn, ids, lab.names, author, f"post {n}")
                        conn.execute("select pg_sleep(%s)", (rng.uniform(0, hold_s),))
                    made.append(post.id)
        except BaseException as e:
            failed.append(e)
    threads = [threading.Thread(target=write, args=(a,), daemon=True) for a in authors]
    try:
        made.append(posts.create(lab.conn, lab.ids, lab.names, authors[0], "before them all").id)
        polls += relay.once()                # a producer's first record takes a while: its id is asked of the broker
        for t in threads:
            t.start()
        while any(t.is_alive() for t in threads):
            polls += relay.once() > 0
        while relay.once():
            polls += 1
    finally:
        for t in threads:
            t.join()
        _closed(lab, relay)
    if failed:
        raise failed[0]
    sent = [e.post for e in events(lab, since)]
    return Contended(len(made), len(set(sent)), len(sent), len(set(made) - set(sent)), polls)


def contended_figure(rows: Sequence[tuple[str, Contended]]) -> go.Figure:
    """Events lost by each relay, without any crash."""
    first = rows[0][1]
    title = f"Of {first.committed} committed posts {first.lost} are never sent, and nothing has crashed"
    return plots.bars(title, [n for n, _ in rows], [c.lost for _, c in rows], "posts lost", measured=0)


def _opened(lab: Lab, system: str) -> Relay:
    """A relay in this process; the textbook's begins behind what the outbox has had so far."""
    relay = RELAYS[system](lab.settings, lab.addresses.postgres_url, lab.addresses.kafka_bootstrap)
    lab.conn.execute("delete from outbox")
    if system == "textbook":
        lab.conn.execute("insert into knobs select 'textbook_last', coalesce(pg_sequence_last_value("
                         "pg_get_serial_sequence('outbox', 'id')), 0) on conflict (name) do update set value = excluded.value")
    relay.open()
    return relay


def _closed(lab: Lab, *relays: Relay) -> None:
    """The textbook's relay leaves all rows where they are; ours would send them again."""
    for relay in relays:
        relay.close()
    lab.conn.execute("delete from outbox")
    lab.conn.execute("delete from knobs where name = 'textbook_last'")


# --- two relays ---------------------------------------------------------------------------------------------------------------

class _Held:
    """Stands before a producer: just before the first record, the other relay runs."""

    def __init__(self, producer, act: Callable[[], None]):
        self._producer, self._act = producer, act

    def __getattr__(self, name):
        return getattr(self._producer, name)

    def produce(self, *args, **options):
        act, self._act = self._act, lambda: None
        act()
        return self._producer.produce(*args, **options)


@dataclass
class Two:
    """`posts` written, `records` in the topic, `repeats` among them, `backwards`: events behind a younger one of the same author;
    `first` and `second`: records that each relay moved."""
    posts: int
    records: int
    repeats: int
    backwards: int
    first: int
    second: int


def two_relays(lab: Lab, system: str, authors: Sequence[int], each: int = 10, batch: int = 10) -> Two:
    """The first relay reads a batch and is held up before it sends; the second runs until it finds nothing; the first goes on;
    then both run until neither finds anything. Leaves the outbox empty."""
    since, one, two = begin(lab), _opened(lab, system), _opened(lab, system)
    one.batch = two.batch = batch
    moved = [0, 0]

    def all_of(n: int, relay: Relay) -> None:
        while done := relay.once():
            moved[n] += done
    try:
        for n in range(each):
            for a in authors:
                posts.create(lab.conn, lab.ids, lab.names, a, f"post {n}")
        plain = one.producer
        one.producer = _Held(plain, lambda: all_of(1, two))
        moved[0] += one.once()
        one.producer = plain
        all_of(0, one)
        all_of(1, two)
    finally:
        _closed(lab, one, two)
    sent = events(lab, since)
    repeats = len(sent) - len({e.post for e in sent})
    return Two(each * len(authors), len(sent), repeats, backwards(sent), *moved)


def resent(lab: Lab, relay: Relay, author: int, pump: Callable[[], object]) -> dict[str, int]:
    """One post; the relay dies when Kafka has acknowledged it and before the row is deleted; another run sends it again.
    Records in the topic, feed writes that the consumer was asked for (`deliveries`) and those that changed a feed
    (`added`)."""
    pump()
    before, since = lab.stats(), begin(lab)
    posts.create(lab.conn, lab.ids, lab.names, author, "sent twice")
    plain, relay.conn = relay.conn, _DiesBeforeDelete(relay.conn)
    try:
        relay.once()
    except _Died:
        pass
    finally:
        relay.conn = plain
    rows = outbox.depth(lab.conn)
    pump()
    after = lab.stats()
    writes = {k: after.get(k, 0) - before.get(k, 0) for k in ("deliveries", "added")}
    return {"left": rows, "records": len(events(lab, since)), **writes}


class _Died(Exception):
    """The relay died here."""


class _DiesBeforeDelete:
    def __init__(self, conn):
        self._conn = conn

    def __getattr__(self, name):
        return getattr(self._conn, name)

    def execute(self, query, *args, **options):
        if query.startswith("delete"):
            raise _Died
        return self._conn.execute(query, *args, **options)


# --- being woken, or looking --------------------------------------------------------------------------------------------------

def wakeups(lab: Lab, author: int, n: int = 8, poll_s: float = 0.3, seed: int = 1,
            timeout_s: float = 20) -> dict[str, list[float]]:
    """Seconds from the commit of an outbox row until the relay has moved it, `n` times each: `notify`: the row came with its
    NOTIFY; `poll`: it came without, and the relay looks every `poll_s`. Rows come at random moments, so that polling is not
    met in step."""
    s = lab.settings.model_copy(update={"relay_poll_s": poll_s})
    relay, stop, rng = Relay(s, lab.addresses.postgres_url, lab.addresses.kafka_bootstrap), threading.Event(), random.Random(seed)
    thread = threading.Thread(target=relay.run, args=(stop.is_set,), daemon=True)
    thread.start()
    took: dict[str, list[float]] = {"notify": [], "poll": []}
    row = outbox.row(lab.names, Event("demote", author=author))      # harmless: brings an author back to push who is pushed
    bare = "insert into outbox (topic, key, payload) values (%(topic)s, %(key)s, %(payload)s)"

    def moved() -> None:
        end = time.monotonic() + timeout_s
        while outbox.depth(lab.conn):
            if time.monotonic() > end:
                raise EngineDown(f"the relay did not move a row in {timeout_s:.0f} s.")
            time.sleep(0.0005)
    try:
        lab.conn.execute(outbox.PUT, row)
        moved()                                                       # it is up
        for _ in range(n):
            for name, query in (("notify", outbox.PUT), ("poll", bare)):
                time.sleep(rng.uniform(0, poll_s))
                lab.conn.execute(query, row)
                start = time.perf_counter()
                moved()
                took[name].append(time.perf_counter() - start)
    finally:
        stop.set()
        thread.join(timeout_s)
    return took


def wake_figure(took: dict[str, Sequence[float]], poll_s: float) -> go.Figure:
    """Every wait as a point, logarithmic; the title gives the ratio of the medians."""
    ratio = np.median(took["poll"]) / np.median(took["notify"])
    fig = plots.figure(f"Looking every {poll_s:g} s takes {ratio:.0f} times as long as being woken",
                       "ms until the relay has moved the row (log)", "")
    for name, label, symbol in (("notify", "woken by NOTIFY", "circle"), ("poll", f"found by polling every {poll_s:g} s", "x")):
        fig.add_scatter(x=[float(f"{1000 * t:.3g}") for t in took[name]], y=[label] * len(took[name]), mode="markers",
                        showlegend=False, marker={"symbol": symbol, "size": 10})
    return fig.update_xaxes(type="log", dtick=1).update_layout(height=240, margin={"l": 190})


if __name__ == "__main__":
    _children(*json.loads(sys.argv[1]))
