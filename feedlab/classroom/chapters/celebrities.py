"""Notebook 08: one key that every reader wants.

Reads of the key are counted where they leave this process as commands to Redis (`Watched`), statements where they leave for
PostgreSQL. Pages, posts and rebuilds are the real ones; only the clock that ages local copies is moved by hand, so that ten
seconds of a site pass in one. """
import itertools
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import plotly.graph_objects as go

from ... import celebrities, db, posts, pull, repair, timeline
from ...config import Settings
from ...core.model import Post
from ...draw import plots
from ...lab.graph import from_edges, load_graph
from ...lab.session import Lab
from ...reader import Reader
from ...verify.systems import SYSTEMS

CELEBRITY = 0
READS = ("fcall_ro", "exists", "zrevrangebyscore")       # how ours and the textbook read a timeline


class Watched:
    """Stands before a Redis client or pipeline and notes every read of one key: `log` gets the command's name. `after()` is
    called once the answer is there."""

    def __init__(self, inner, key: str, log: list[str], after: Callable[[], None] = lambda: None, pipeline: bool = False):
        self._inner, self._key, self._log, self._after, self._pipeline = inner, key, log, after, pipeline
        self._asked = False

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if name == "pipeline":
            return lambda *a, **k: Watched(found(*a, **k), self._key, self._log, self._after, True)
        if name not in (*READS, "execute"):
            return found

        def call(*args, **options):
            about = self._key in args
            if about:
                self._log.append(name)
            answer = found(*args, **options)
            if self._pipeline:
                self._asked |= about
            if about and not self._pipeline or name == "execute" and self._asked:
                self._after()
            return answer
        return call


def crowd(lab: Lab, readers: int = 100) -> list[int]:
    """Readers 1 to `readers`, who all follow user 0, and each the next one; feeds built. The threshold is set so that user 0,
    and nobody else, is pulled. The readers."""
    users = np.arange(1, readers + 1)
    everybody = from_edges(np.r_[users, users], np.r_[np.zeros(readers, int), users % readers + 1], True, "a crowd")
    load_graph(lab.conn, everybody)
    db.set_knobs(lab.conn, threshold=max(3, readers // 2))
    repair.warm(lab.conn, lab.redis, lab.settings, everybody.users.tolist())
    return users.tolist()


def some_posts(lab: Lab, authors: Sequence[int], each: int = 1) -> list[Post]:
    """`each` posts of every author, in turns."""
    return [posts.create(lab.conn, lab.ids, lab.names, a, f"post {n} of user {a}") for n in range(each) for a in authors]


# --- the hot key --------------------------------------------------------------------------------------------------------------

@dataclass
class Hot:
    """`reads` of the celebrity's key by `pages` pages; `at`: the second of each read; `wrong`: pages that are not the SQL
    answer."""
    pages: int
    reads: int
    at: list[float] = field(default_factory=list)
    wrong: int = 0


def hot_key(lab: Lab, readers: Sequence[int], pages: int = 200, processes: int = 4, copy_s: float = 3.0, seconds: float = 10.0,
            author: int = CELEBRITY, seed: int = 1) -> Hot:
    """`pages` first pages, evenly over `seconds`, by readers in turn, each served by a process drawn at random. A process is a
    `Reader` with copies of its own, good for `copy_s` seconds; 0 keeps none."""
    now, rng, log, at = [0.0], random.Random(seed), [], []
    served = [Reader(lab.settings, celebrities.LocalCopies(copy_s, clock=lambda: now[0])) for _ in range(processes)]
    r, wrong = Watched(lab.redis, lab.names.celeb(author), log), 0
    for n, user in zip(range(pages), itertools.cycle(readers)):      # noqa: B905  readers go round
        now[0], before = n * seconds / pages, len(log)
        page = rng.choice(served).page(lab.conn, r, user)
        at += [now[0]] * (len(log) - before)
        if n % 5 == 0:
            wrong += page.ids != [e.id for e in pull.everything(lab.conn, user)[:20]]
    return Hot(pages, len(log), at, wrong)


def key_reads(pages_a_second: float, processes: int = 0, copy_s: float = 0.0, servers: int = 1) -> float:
    """Reads a second on each of `servers` (a primary and its replicas) that hold a key which every page wants. With copies of
    `copy_s` seconds the pages no longer count: at most `processes / copy_s` (copies live a little shorter, see LocalCopies.put).

    >>> key_reads(100_000), key_reads(100_000, servers=10), key_reads(100_000, processes=200, copy_s=4)
    (100000.0, 10000.0, 50.0)
    """
    asked = min(pages_a_second, processes / copy_s) if copy_s else pages_a_second
    return asked / servers


def crowd_figure(pages: Sequence[int], without: Sequence[int], with_copies: Sequence[int], processes: int,
                 copy_s: float) -> go.Figure:
    """Reads of the key over pages in the same ten seconds, with and without copies."""
    more, reads = pages[-1] / pages[0], with_copies[-1] / with_copies[0]
    fig = plots.figure(f"With copies, {more:.0f} times the pages make {reads:.1f} times the reads",
                       "pages in the same ten seconds", "reads of the celebrity's key (log)")
    for name, y, dash in (("no copy", without, "solid"), (f"{processes} processes, copies of {copy_s:g} s", with_copies, "dot")):
        fig.add_scatter(x=list(pages), y=list(y), name=name, mode="lines+markers", line={"dash": dash, "width": 2.5})
    return fig.update_yaxes(type="log", dtick=1, range=[0, np.log10(max(without)) + 0.2])


# --- what one read costs Redis ------------------------------------------------------------------------------------------------

def read_cost(lab: Lab, author: int = CELEBRITY, calls: int = 300) -> dict[str, float]:
    """One read of the head of the author's timeline: `entries`, `bytes` of the answer on the wire (RESP), `us` of Redis's only
    thread by Redis's own clock (INFO commandstats; other clients' calls of the same command are in it), `bytes_memory` of the
    key."""
    r, key = lab.redis, lab.names.celeb(author)
    answer = timeline.with_functions(r, lambda: timeline.read(r, key, n=celebrities.HEAD))
    before = r.info("commandstats")["cmdstat_fcall_ro"]
    for _ in range(calls):
        timeline.read(r, key, n=celebrities.HEAD)
    after = r.info("commandstats")["cmdstat_fcall_ro"]
    return {"entries": len(answer) // 2 - 1, "bytes": resp_bytes(answer), "bytes_memory": r.memory_usage(key, samples=0),
            "us": (after["usec"] - before["usec"]) / (after["calls"] - before["calls"])}


def resp_bytes(answer) -> int:
    """Bytes of an answer in Redis's protocol (RESP2): lists, strings and whole numbers.

    >>> resp_bytes(["floor", "-inf", 0]), len("*3\\r\\n$5\\r\\nfloor\\r\\n$4\\r\\n-inf\\r\\n:0\\r\\n")
    (29, 29)
    """
    if isinstance(answer, list):
        return len(f"*{len(answer)}\r\n") + sum(map(resp_bytes, answer))
    if isinstance(answer, int):
        return len(f":{answer}\r\n")
    return len(f"${len(answer.encode())}\r\n") + len(answer.encode()) + 2


# --- late, but never wrong ----------------------------------------------------------------------------------------------------

def staleness(lab: Lab, user: int, publish: Callable[[], Post], pump: Callable[[], object], copy_s: float = 3.0,
              step_s: float = 0.1) -> dict[str, float | bool]:
    """A process copies the celebrity's timeline at second 0; the celebrity posts, and the post is delivered. `late_s`: when
    this process first shows it; `other_s`: when a process without a copy does. Then the post is deleted: `hidden_at_once` by
    both."""
    now = [0.0]
    copied = Reader(lab.settings, celebrities.LocalCopies(copy_s, clock=lambda: now[0]))
    fresh = Reader(lab.settings, celebrities.LocalCopies(0))
    copied.page(lab.conn, lab.redis, user)
    post = publish()
    pump()
    shown = {}
    while len(shown) < 2 and now[0] < 10 * copy_s + 1:
        for name, reader in (("late_s", copied), ("other_s", fresh)):
            if name not in shown and post.id in reader.page(lab.conn, lab.redis, user).ids:
                shown[name] = round(now[0], 3)
        now[0] += step_s
    posts.delete(lab.conn, lab.names, post.author_id, post.id)       # the event is not pumped: the row alone must do
    hidden = all(post.id not in reader.page(lab.conn, lab.redis, user).ids for reader in (copied, fresh))
    return {**shown, "hidden_at_once": hidden}


# --- the thundering herd ------------------------------------------------------------------------------------------------------

@dataclass
class Herd:
    """`rebuilds`: SQL queries that read the celebrity's posts to fill the key, and the rows they got; `small`: queries for a
    page's worth, by a reader who does not wait for the rebuild, and their rows; `wrong`: pages that are not the SQL answer."""
    readers: int
    rebuilds: int
    rebuild_rows: int
    small: int
    small_rows: int
    wrong: int


def herd(lab: Lab, readers: Sequence[int], system: str = "ours", author: int = CELEBRITY, cold: bool = True,
         timeout_s: float = 30) -> Herd:
    """All these readers at once, each a thread with its own connections and no copies, on the celebrity's key, which is removed
    first if `cold`. All of them have looked at the key before any goes on, as happens when a key expires under load.

    `system` is "ours" or "textbook"; the textbook's keys have a prefix of their own, removed at the end. Raises
    BrokenBarrierError when a reader does not come to look. """
    s, way = lab.settings, SYSTEMS[system]
    own = s if system == "ours" else Settings(**s.model_dump() | {"namespace": f"{s.namespace[:16]}_textbook"})
    names, feed_max = way.reader.Reader(own).names, db.knobs(lab.conn)["feed_max"]
    gate, asked, wrong, failed = threading.Barrier(len(readers)), [], [], []

    def read(user: int) -> None:
        r = timeline.connect(lab.addresses.redis_url)
        try:
            with db.connect(lab.addresses.postgres_url, s.namespace) as conn:
                looks: list[str] = []
                watched = Watched(r, names.celeb(author), looks, lambda: gate.wait(timeout_s) if len(looks) == 1 else None)
                reader = way.reader.Reader(own, celebrities.LocalCopies(0))
                page = reader.page(_Noted(conn, asked, author), watched, user)
                if page.ids != [e.id for e in pull.everything(conn, user)[:20]]:
                    wrong.append(user)
        except BaseException as e:
            failed.append(e)
            gate.abort()
        finally:
            r.close()

    try:
        for user in readers:                       # feeds warm, so that only the celebrity's key is cold
            way.reader.Reader(own, celebrities.LocalCopies(0)).page(lab.conn, lab.redis, user)
        if cold:
            lab.redis.delete(names.celeb(author))
        _all_at_once(read, readers)
    finally:
        if own is not s:
            keys = list(lab.redis.scan_iter(match=f"{own.namespace}:*", count=1000))
            if keys:
                lab.redis.unlink(*keys)
    if failed:
        raise next((e for e in failed if not isinstance(e, threading.BrokenBarrierError)), failed[0])
    whole, small = [rows for limit, rows in asked if limit >= feed_max], [rows for limit, rows in asked if limit < feed_max]
    return Herd(len(readers), len(whole), sum(whole), len(small), sum(small), len(wrong))


def _all_at_once(work: Callable[[int], None], items: Sequence[int]) -> None:
    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in items]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


class _Noted:
    """Stands before a SQL connection and notes each query for the author's newest posts: its limit, and the rows it got."""

    def __init__(self, conn, asked: list[tuple[int, int]], author: int):
        self._conn, self._asked, self._author = conn, asked, author

    def __getattr__(self, name):
        return getattr(self._conn, name)

    def execute(self, query, params=None, **options):
        answer = self._conn.execute(query, params, **options)
        if query is pull.NEWEST and params["authors"] == [self._author]:
            self._asked.append((params["limit"], answer.rowcount))
        return answer


def herd_figure(rows: Sequence[tuple[str, Herd]]) -> go.Figure:
    """Rows read from SQL for the celebrity: by rebuilds, and by those who did not wait for one; a bar each system."""
    said = ", ".join(f"{n} rebuilds it {h.rebuilds} time{'' if h.rebuilds == 1 else 's'}" for n, h in rows)
    fig = plots.figure(f"{rows[0][1].readers} readers find it cold: {said}", "rows read from SQL", "")
    names = [n for n, _ in rows]
    for name, values, colour, shape in (
            ("to rebuild the key", [h.rebuild_rows for _, h in rows], plots.VERMILLION, ""),
            ("to answer without it", [h.small_rows for _, h in rows], plots.SKY, "/")):
        fig.add_bar(y=names, x=values, name=name, orientation="h", marker={"color": colour, "pattern": {"shape": shape}})
    return fig.update_layout(barmode="stack", height=270).update_yaxes(autorange="reversed")


# --- copies that expire together ----------------------------------------------------------------------------------------------

def worst_moment(processes: int = 200, copy_s: float = 3.0, seconds: float = 60.0, within_s: float = 0.1, jitter: bool = True,
                 seed: int = 1) -> int:
    """The most reads of the key in any `within_s` after the first copy has aged, if each process takes a new copy when the old
    one ends. No engine: the ages are those of `LocalCopies`, drawn as there (four fifths to all of `copy_s`), or all alike."""
    rng, at = random.Random(seed), []
    for _ in range(processes):
        t = 0.0
        while t < seconds:
            t += copy_s * (rng.uniform(0.8, 1.0) if jitter else 1.0)
            at.append(t)
    return int(np.bincount((np.array(at) / within_s + 1e-9).astype(int)).max())


def page_ratio(lab: Lab, user: int, rounds: int = 60) -> float:
    """How much longer a page takes without a local copy than with one: medians of `rounds` pages each, in turns."""
    with_copy, without = Reader(lab.settings, celebrities.LocalCopies(3_600)), Reader(lab.settings, celebrities.LocalCopies(0))
    took: dict[Reader, list[float]] = {with_copy: [], without: []}
    for _ in range(rounds):
        for reader, times in took.items():
            start = time.perf_counter()
            reader.page(lab.conn, lab.redis, user)
            times.append(time.perf_counter() - start)
    return float(np.median(took[without]) / np.median(took[with_copy]))


def answers_figure(pages_a_second: float, processes: int, copy_s: float, servers: int = 10) -> go.Figure:
    """Reads of the hot key a second and server: nothing done, replicas, copies."""
    rows = [("one server", key_reads(pages_a_second)),
            (f"{servers} servers (replicas)", key_reads(pages_a_second, servers=servers)),
            (f"copies of {copy_s:g} s in {processes} processes", key_reads(pages_a_second, processes, copy_s))]
    title = f"Replicas leave {plots.number(rows[1][1])} reads a second on each server, copies {plots.number(rows[2][1])}"
    return plots.bars(title, [name for name, _ in rows], [float(f"{x:.4g}") for _, x in rows], "reads a second and server",
                      measured=2)
