"""What must go and what must come: delete, unfollow and follow on live engines. Hidden at once by the read filter, removed later by an
event; a follow that fills in twenty against one that drops the feed; follower counts under concurrent changes.
"""
import statistics
import threading
import time
from collections.abc import Callable, Sequence

import plotly.graph_objects as go

from ... import db, follows, kafka, posts, pull, repair
from ...core.codec import member
from ...draw import plots
from ...errors import BadInput, EngineDown
from ...textbook import follows as t_follows
from ...verify.histories import History
from ...verify.runner import Runner
from ...verify.systems import committed_lag
from ..book import Book
from .cursor_and_merge import numbers, scrolled
from .exactness import runner

# --- delete ------------------------------------------------------------------------------------------------------------------

def deleted(book: Book, followers: int = 50, first: int = 100) -> list[dict]:
    """One post in every follower's feed, then deleted, then swept. One dict a stage: stage, holding (feeds in Redis that have its id),
    showing (readers whose page has it). Author `first`, followers after it."""
    lab, (author, *readers) = book.open(), book.people(followers + 1, first)
    for u in readers:
        book.follow(u, author)
    book.pump()
    repair.warm(lab.conn, lab.redis, book.settings, readers)
    post, = book.post(author, "to be deleted")
    book.pump()
    stages = [_stage("delivered", book, readers, post.id)]
    posts.delete(lab.conn, lab.names, author, post.id)
    stages.append(_stage("delete has returned", book, readers, post.id))
    book.pump()
    stages.append(_stage("event handled", book, readers, post.id))
    return stages


def _stage(name: str, book: Book, readers: Sequence[int], post: int) -> dict:
    lab = book.open()
    pipe = lab.redis.pipeline(transaction=False)
    for u in readers:
        pipe.zscore(lab.names.feed(u), member(post))
    holding = sum(score is not None for score in pipe.execute())
    return {"stage": name, "holding": holding, "showing": sum(post in lab.page(u).ids for u in readers)}


def stages_figure(stages: Sequence[dict]) -> go.Figure:
    """Feeds that hold the post and pages that show it, by stage."""
    at = stages[1]
    fig = plots.figure(f"When delete returns, {at['holding']} feeds hold the post and {at['showing']} pages show it", "", "users")
    for key, label, colour, shape in (("holding", "feeds in Redis that hold its id", plots.GREY, "/"),
                                      ("showing", "pages that show it", plots.BLUE, "")):
        fig.add_bar(x=[s["stage"] for s in stages], y=[s[key] for s in stages], name=label, text=[s[key] for s in stages],
                    textposition="outside", cliponaxis=False, marker={"color": colour, "pattern": {"shape": shape}})
    return fig.update_layout(barmode="group")


# --- unfollow, and a delivery that comes late -----------------------------------------------------------------------------------

def late_delivery(book: Book, system: str, limit: int = 2) -> list[dict]:
    """User 0 follows 1 and 2. A consumer reads the followers of user 1's post and is held up; user 0 unfollows 1; then it writes.

    Posts 1 to 3 are user 2's, post 4 is user 1's. One dict a stage: stage, feed (post numbers in Redis), page (post numbers of page one
    of `limit`), more (whether there is a next page).
    """
    stages = []
    with runner(book, system) as r:
        r.begin(History([], 3, [[0, 1], [0, 2]], feed_max=50))

        def look(stage: str) -> None:
            page = next(scrolled(r, 0, limit))
            number = numbers(r.made)
            key = r.lab.names.feed(0)
            ids = [int(m) for m in r.lab.redis.zrange(key, 0, -1, desc=True) if m.isdigit()]
            stages.append({"stage": stage, "feed": [number[i] for i in ids], "page": [number[i] for i in page.ids],
                           "more": page.next_cursor is not None})
        r.do(["page", 0, 50])
        for _ in range(3):
            r.do(["tick", 10])
            r.do(["post", 2])
        r.do(["pump"])
        r.do(["tick", 10])
        r.do(["post", 1])
        r.do(["hold", 1])
        r.do(["unfollow", 0, 1])
        _quiet(r)
        look("unfollowed")
        r.do(["hold_on"])
        look("late delivery")
        if r.ours:
            repair.sweep(r.lab.conn, r.lab.redis, r.lab.names, 0)
            look("swept")
    return stages


def _quiet(r: Runner, timeout_s: float = 20) -> None:
    """Relay and consumer until nothing waits, while what is held up stays held up (which `Runner.drain` would end)."""
    end = time.monotonic() + timeout_s
    while True:
        r.do(["pump"])
        lag = kafka.lag(r.lab.admin, r.lab.redis, r.lab.names) if r.ours else committed_lag(r.lab, r.fanout.consumer)
        if lag == 0 and r.system.waiting(r.lab) == 0:
            return
        if time.monotonic() > end:
            raise EngineDown(f"not drained in {timeout_s:.0f} s. `feedlab doctor` says what is wrong.")


# --- a new follow ---------------------------------------------------------------------------------------------------------------

def new_follow(book: Book, system: str, each: int = 60, limit: int = 20) -> list[list[int]]:
    """User 0 follows 1 and has a feed; users 1 and 2 took turns with `each` posts; then user 0 follows 2 and scrolls to the end. The
    pages, as numbers among user 2's posts only (1 is the oldest)."""
    with runner(book, system) as r:
        r.begin(History([], 3, [[0, 1]], feed_max=500))
        r.do(["page", 0, 50])
        for _ in range(each):
            for author in (1, 2):
                r.do(["tick", 10])
                r.do(["post", author])
        r.drain()
        r.do(["follow", 0, 2])
        r.drain()
        mine = numbers([p for p in r.made if p.author_id == 2])
        return [[mine[i] for i in page.ids if i in mine] for page in scrolled(r, 0, limit)]


def follow_cost(book: Book, followees: int = 100, each: int = 5, repeat: int = 15, first: int = 300) -> dict[str, float]:
    """Milliseconds (medians of `repeat`, taken in turns): "warm page"; "backfill of 20: follow" and "backfill of 20: next page"; "drop:
    follow" and "drop: next page", which rebuilds. The reader, user `first`, follows `followees` authors of `each` posts."""
    lab = book.open()
    reader, *authors = book.people(1 + followees + 2 * repeat, first)
    old, new = authors[:followees], authors[followees:]
    lab.conn.execute("""
        insert into posts (id, author_id, created_at_ms, content)
        select 10000000 + %s * a.n + k, a.id, 1000000 + 10 * (a.n + k * %s), 'text'
        from unnest(%s::bigint[]) with ordinality a (id, n), generate_series(1, %s) k""",
                     (max(each, 25), len(authors), authors, max(each, 25)))
    lab.conn.execute("delete from posts where author_id = any(%s) and (id - 10000000) %% %s > %s", (old, max(each, 25), each))
    lab.conn.execute("insert into follows select %s, unnest(%s::bigint[])", (reader, old))
    lab.page(reader)
    times: dict[str, list[float]] = {}

    def timed(name: str, act: Callable):
        began = time.perf_counter()
        act()
        times.setdefault(name, []).append(1_000 * (time.perf_counter() - began))
    for n in range(repeat):
        book.progress("following and reading", n, repeat)
        timed("warm page", lambda: lab.page(reader))
        timed("backfill of 20: follow", lambda a=new[2 * n]: _backfill(book, reader, a))
        timed("backfill of 20: next page", lambda: lab.page(reader))
        timed("drop: follow", lambda a=new[2 * n + 1]: follows.follow(lab.conn, lab.redis, lab.names, reader, a))
        timed("drop: next page", lambda: lab.page(reader))
    book.progress.close()
    lab.conn.execute("delete from outbox where key = %s", (reader,))     # these follows are nobody else's business
    return {name: statistics.median(ms) for name, ms in times.items()}


class _Kept:
    """A Redis in which a follow drops nothing: the article keeps the feed and adds to it."""

    def unlink(self, *keys: str) -> int:
        return 0


def _backfill(book: Book, reader: int, author: int) -> None:
    """The article's follow, in our form of members, so that the page after it can read them."""
    lab = book.open()
    follows.follow(lab.conn, _Kept(), lab.names, reader, author)
    rows = pull.newest(lab.conn, [author], limit=t_follows.BACKFILL)
    lab.redis.zadd(lab.names.feed(reader), {member(e.id): e.ms for e in rows})


def cost_figure(ms: dict[str, float]) -> go.Figure:
    """Milliseconds of each way: the follow, and the first page after it."""
    ways = ("backfill of 20", "drop")
    both = {way: ms[f"{way}: follow"] + ms[f"{way}: next page"] for way in ways}
    times = plots.number(both["drop"] / both["backfill of 20"])
    fig = plots.figure(f"Follow and next page: drop and rebuild takes {times} times the backfill", "ms (median)", "")
    for part, colour, shape in (("follow", plots.GREY, "/"), ("next page", plots.BLUE, "")):
        fig.add_bar(y=list(ways), x=[round(ms[f"{way}: {part}"], 2) for way in ways], name=part, orientation="h",
                    marker={"color": colour, "pattern": {"shape": shape}}, hovertemplate="%{y}, " + part + ": %{x} ms<extra></extra>")
    warm = round(ms["warm page"], 2)
    fig.add_vline(warm, line={"color": plots.VERMILLION, "dash": "dash"})
    fig.add_annotation(x=warm, y=1, yref="paper", yanchor="bottom", xanchor="left", showarrow=False, text="a warm page")
    return fig.update_yaxes(autorange="reversed").update_layout(barmode="stack", height=240, margin={"l": 110})


# --- follower counts ------------------------------------------------------------------------------------------------------------

ONE_ROW = """
    insert into follower_counts as c (user_id, shard, n) values (%s, 0, %s)
    on conflict (user_id, shard) do update set n = c.n + excluded.n"""


def at_once(book: Book, change: Callable[[db.Connection], None], threads: int = 4, times: int = 40) -> float:
    """`change(connection)` `times` times in each of `threads` threads, each with a connection of its own, all begun together. Seconds."""
    conns = [db.connect(book.addresses.postgres_url, book.settings.namespace, "feedlab experiment") for _ in range(threads)]
    gate, failures = threading.Barrier(threads + 1), []

    def work(conn) -> None:
        gate.wait()
        try:
            for _ in range(times):
                change(conn)
        except Exception as e:
            failures.append(e)
    pool = [threading.Thread(target=work, args=(c,), daemon=True) for c in conns]
    try:
        for t in pool:
            t.start()
        gate.wait()
        began = time.perf_counter()
        for t in pool:
            t.join()
        took = time.perf_counter() - began
    finally:
        for c in conns:
            c.close()
    if failures:
        raise failures[0]
    return took


def _read_add_write(conn: db.Connection, user: int) -> None:
    """How a program counts that reads a row, adds in memory and saves it."""
    n = follows.followers(conn, user)
    conn.execute("update follower_counts set n = %s where user_id = %s", (n + 1, user))


def lost(book: Book, how: str, threads: int = 4, times: int = 40, user: int = 1) -> int:
    """How many of `threads` x `times` concurrent follows a follower count misses. `how`: "read, add, write", or "ours"."""
    ways = {"read, add, write": lambda c: _read_add_write(c, user), "ours": lambda c: c.execute(follows.COUNT, (user, 1))}
    if how not in ways:
        raise BadInput(f"how is one of {' | '.join(ways)}, got {how!r}")
    conn = book.open().conn
    conn.execute("delete from follower_counts where user_id = %s", (user,))
    if how != "ours":
        conn.execute(ONE_ROW, (user, 0))
    at_once(book, ways[how], threads, times)
    found = follows.followers(conn, user)
    conn.execute("delete from follower_counts where user_id = %s", (user,))
    return threads * times - found


def hot_row(book: Book, threads: int = 8, times: int = 15, work_ms: float = 5, user: int = 2) -> dict[str, float]:
    """Follows a second of one celebrity, when each transaction has `work_ms` of other work after the count: with the count in one row,
    and in 16 by connection."""
    rates = {}
    for name, statement in (("one row", ONE_ROW), ("16 rows", follows.COUNT)):
        def change(conn, statement=statement) -> None:
            with conn.transaction():
                conn.execute(statement, (user, 1))
                conn.execute("select pg_sleep(%s)", (work_ms / 1_000,))
        rates[name] = threads * times / at_once(book, change, threads, times)
    conn = book.open().conn
    counted = follows.followers(conn, user)
    conn.execute("delete from follower_counts where user_id = %s", (user,))
    if counted != 2 * threads * times:
        raise AssertionError(f"{2 * threads * times} follows were counted as {counted}")
    return rates


def counts_after(book: Book, statement: str, threads: int = 4, times: int = 25, user: int = 3) -> int:
    """What `threads` x `times` follows leave in one row of a counter, when each runs a learner's statement: SQL on the table `counter`
    (columns user_id, n), with the parameter %(user)s. Raises BadInput when PostgreSQL refuses it."""
    conn = book.open().conn
    conn.execute("create table if not exists counter (user_id bigint primary key, n bigint not null)")
    try:
        conn.execute("insert into counter values (%s, 0)", (user,))
        at_once(book, lambda c: c.execute(statement, {"user": user}), threads, times)
        return conn.execute("select n from counter where user_id = %s", (user,)).fetchone()[0]
    except (db.psycopg.Error, KeyError, TypeError) as e:
        raise BadInput(f"the statement cannot be used: {str(e).splitlines()[0]}. It is an update of the table counter (user_id, n), "
                       "with the parameter %(user)s.") from None
    finally:
        conn.execute("drop table counter")
