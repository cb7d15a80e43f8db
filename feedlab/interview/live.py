"""What the experiments do to live engines. `perform(name, settings, addresses, say)` gives (sentence, numbers, figure).

Most is borrowed from feedlab.lab: histories and their runner, and the experiments of the notebooks. Counts are exact at
every run; times are ratios taken side by side.
"""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np
import plotly.graph_objects as go

from .. import db, posts, pull, repair, timeline
from ..addresses import Addresses
from ..classroom.workspace import Place
from ..config import Settings
from ..core import cost
from ..core import cursor as cursors
from ..core.check import Posted
from ..core.codec import member
from ..core.model import MAX_MS, START
from ..draw import plots
from ..lab import world
from ..lab.graph import Graph, from_edges, load_graph
from ..lab.session import Lab
from ..reader import scroll
from ..textbook import cursor as t_cursor
from ..verify import faults
from ..verify.runner import Runner
from ..verify.systems import SYSTEMS

Said = tuple[str, dict[str, float | str], go.Figure]


def perform(name: str, settings: Settings, addresses: Addresses, say: Callable) -> Said:
    """Run one by name; its namespace must be empty, and is left to the caller."""
    if name.startswith("fault-") and name.removeprefix("fault-") in faults.CATALOGUE and name not in WAYS:
        return _fault(name.removeprefix("fault-"), settings, addresses, say)
    with Desk(settings, addresses, say) as desk:
        return WAYS[name](desk)


class Desk(Place):
    """A place whose namespace is removed by who runs it."""

    def __init__(self, settings: Settings, addresses: Addresses, say: Callable):
        super().__init__(settings, addresses, _Said(say))

    def __enter__(self) -> "Desk":
        return self

    def __exit__(self, *_) -> None:
        self.put_down()
        self.stack.close()

    def show(self, graph: Graph) -> Lab:
        """The graph loaded and every feed built."""
        self.load(graph)
        return self.open()

    def wrong(self, users: Sequence[int]) -> int:
        """How many of these users' scrolls are not the SQL answer."""
        lab, bad = self.open(), 0
        lab.reader.copies.clear()
        for u in users:
            got = [i for page in scroll(lambda c, u=u: lab.page(u, c, 50)) for i in page.ids]
            bad += got != [e.id for e in pull.everything(lab.conn, u)]
        return bad


class _Said:
    """`say` where a Progress is expected."""

    def __init__(self, say: Callable):
        self._say = say

    def __call__(self, text: str, done: int | None = None, total: int | None = None) -> None:
        self._say(text, done, total)

    def close(self) -> None:
        pass


# --- faults: both systems on the same history ---------------------------------------------------------------------------------


def _fault(name: str, s: Settings, a: Addresses, say: Callable) -> Said:
    with ExitStack() as stack:

        def runner(system: str) -> Runner:
            say(f"{system}: {faults.CATALOGUE[name].title}")
            own = {"namespace": f"{s.namespace[:16]}_check_{system}", "partitions": 2, "batch": 2, "local_copy_s": 3.0}
            return stack.enter_context(Runner(s.model_copy(update=own), a, SYSTEMS[system]))

        return on_both(name, runner)


def on_both(name: str, runner: Callable[[str], Runner]) -> Said:
    """A fault's history on the textbook and on ours; `runner(system)` gives an open runner."""
    history, shown, reports = faults.CATALOGUE[name].history, {}, {}
    for system in ("textbook", "ours"):
        r = runner(system)
        reports[system] = r.run(history)
        rank = _ranks(r)
        want = [rank[e.id] for e in pull.everything(r.lab.conn, 0)]
        shown[system] = _worst_scroll(r, want)
    first = {system: (report.smallest() or [None])[0] for system, report in reports.items()}
    said = {system: f"{v.sentence}." if v else "every page equals the SQL answer." for system, v in first.items()}
    numbers = {"textbook": reports["textbook"].wrong, "ours": reports["ours"].wrong,
               "kind": first["textbook"].kind if first["textbook"] else "none"}
    sentence = f"Textbook: {said['textbook']} Ours, on the same history: {said['ours']}"
    return sentence, numbers, _seen_figure(want, shown, reports)


def _ranks(runner: Runner) -> dict[int, int]:
    """Post id -> number in the order of ids, as the verdicts call it."""
    ids = [i for (i,) in runner.lab.conn.execute("select id from posts order by id")]
    assert len(ids) == sum(isinstance(f, Posted) and f.id is not None for f in runner.facts.facts)
    return {i: n for n, i in enumerate(ids, 1)}


def _worst_scroll(runner: Runner, want: list[int]) -> list[int]:
    """Of user 0's scrolls of the drained system the one that differs most from what it should be: post numbers."""
    scrolls: dict[int, list[int]] = {}
    for r in runner.facts.reads:
        if r.user == 0 and r.drained:
            scrolls.setdefault(r.scroll, []).extend(e.id for e in r.entries)
    return max(scrolls.values(), key=lambda got: len(set(want) ^ set(got)) + (got != want))


def _seen_figure(want: list[int], shown: dict[str, list[int]], reports: dict) -> go.Figure:
    """Which posts the SQL answer has, and which each system's scroll showed."""
    title = "; ".join(f"{name}: {r.wrong} of {r.pages} pages wrong" for name, r in reports.items())
    fig = plots.figure(title[0].upper() + title[1:], "post (higher is newer)", "")
    for label, posts_, colour, symbol in (
        ("shown", {"SQL answer": want} | shown, plots.BLUE, "circle"),
        ("missing", {n: sorted(set(want) - set(got)) for n, got in shown.items()}, plots.VERMILLION, "x"),
        ("should not be there", {n: sorted(set(got) - set(want)) for n, got in shown.items()}, plots.ORANGE, "diamond"),
    ):
        x, y = [p for ps in posts_.values() for p in ps], [n for n, ps in posts_.items() for _ in ps]
        if x:
            fig.add_scatter(
                x=x,
                y=y,
                mode="markers",
                name=label,
                marker={"size": 11, "symbol": symbol, "color": colour},
                hovertemplate="post %{x}: " + label + " by %{y}<extra></extra>",
            )
    return fig.update_yaxes(categoryorder="array", categoryarray=["ours", "textbook", "SQL answer"]).update_layout(height=260)


def f9(d: Desk) -> Said:
    from ..errors import BadInput

    def refused(parse) -> int:
        n = 0
        for bad in faults.BAD_CURSORS:
            try:
                parse(bad)
            except BadInput:
                n += 1
            except Exception:  # what the API would answer with a 500
                pass
        return n

    ours, textbook, sent = refused(cursors.parse), refused(t_cursor.parse), len(faults.BAD_CURSORS)
    return (
        f"Of {sent} malformed cursors ours refuses {ours} with 400 and a sentence; split and convert refuses "
        f"{textbook}, and the rest is a "
        "500 or some other page.",
        {"ours_refused": ours, "textbook_refused": textbook, "sent": sent},
        plots.bars(
            f"Malformed cursors refused with 400: ours {ours} of {sent}, split and convert {textbook}",
            ["split and convert", "ours"],
            [textbook, ours],
            "of the malformed cursors",
        ),
    )


def f11(d: Desk) -> Said:
    lab, lengths, found = d.open(), (20, 50, 100, 120, 127, 130, 160, 200, 300, 400, 500, 600, 800), {}
    key = f"{lab.settings.namespace}:bytes"
    for n in lengths:
        lab.redis.delete(key)
        lab.redis.zadd(key, {member(10**17 + i): 1_700_000_000_000 + i for i in range(n)})
        found[n] = lab.redis.memory_usage(key, samples=0) / n
    lab.redis.delete(key)
    for i in range(200):
        lab.redis.zadd(key, {member(10**17 + i): 1_700_000_000_000 + i})
        lab.redis.zremrangebyrank(key, 0, -129)
    trimmed = lab.redis.object("encoding", key)
    info, small, large = lab.redis.info("server"), found[100], found[500]
    name = f"{'Valkey ' + info['valkey_version'] if 'valkey_version' in info else 'Redis ' + info['redis_version']}"
    article = cost.Sheet().entry_bytes
    fig = plots.figure(
        f"{name}: {small:.0f} B an entry in a feed of 100, {large:.0f} B in one of 500", "entries in the feed", "bytes an entry"
    )
    fig.add_scatter(
        x=list(lengths), y=[round(b, 1) for b in found.values()], mode="lines+markers", name="MEMORY USAGE", line={"width": 2.5}
    )
    fig.add_hline(article, line={"color": plots.VERMILLION, "dash": "dash"}, annotation_text="the article's 60 B")
    fig.update_yaxes(rangemode="tozero")
    return (
        f"On {name} an entry takes {small:.0f} B in a feed of 100 (listpack) and {large:.0f} B in a feed of 500 "
        f"(skiplist), not {article:.0f}. "
        f"A feed kept at 128 by add-then-trim touches 129 once and stays a {trimmed}.",
        {
            "bytes_500": large,
            "bytes_100": small,
            "ratio": large / small,
            "article": article / large,
            "trimmed": trimmed,
            "shape": "sawtooth" if found[130] > 1.5 * found[127] else "flat",
        },
        fig,
    )


def f12(d: Desk) -> Said:
    lab = d.open()
    said = faults.probe_count(lab.settings, lab.addresses)
    n = {system: int(text.rsplit(" ", 1)[1]) for system, text in said.items()}
    return (
        f"Two follows at once: read, add and write back counts {n['textbook']}; one UPDATE under the row's lock, in 16 "
        f"shards, counts {n['ours']}.",
        n,
        plots.bars(
            f"Two follows at once are counted as {n['textbook']} and {n['ours']}",
            ["read, add, write", "n = n + 1, sharded"],
            [n["textbook"], n["ours"]],
            "followers counted",
        ),
    )


# --- what the threshold does ------------------------------------------------------------------------------------------


def _town(d: Desk, users: int = 300) -> tuple[Graph, list[int], list[int]]:
    """A small skewed graph with feeds built, 50 authors as uneven as people are (some often), 20 readers."""
    graph = world.generate(11, users, 8)
    d.show(graph)
    authors = world.draw_posts(world.activity(graph, 1), 50, 1).tolist()
    return graph, authors, random.Random(1).sample(graph.users.tolist(), 20)


def _posted(d: Desk, authors: Sequence[int]) -> int:
    """These authors post, the queues are drained; feed writes that it took."""
    lab = d.open()
    d.stations()
    before = lab.stats().get("deliveries", 0)
    for a in authors:
        posts.create(lab.conn, lab.ids, lab.names, a, "text")
    d.pump()
    return lab.stats().get("deliveries", 0) - before


def threshold(d: Desk) -> Said:
    graph, authors, readers = _town(d)
    lab, rows, wrong = d.lab, [], 0
    for t in (10**6, 60, 30):
        d.progress(f"threshold {t:,}: {len(authors)} posts, {len(readers)} scrolls")
        db.set_knobs(lab.conn, threshold=t)
        writes = _posted(d, authors) / len(authors)
        rows.append((t, writes, statistics.mean(lab.page(u).explain.flagged for u in readers)))
        wrong += d.wrong(readers)
    (_, push, push_pulls), (_, middle, _), (_, low, low_pulls) = rows
    names = ["push all", "60 followers", "30 followers"]
    fig = plots.figure(
        f"Feed writes a post {push:.0f}, {middle:.0f}, {low:.0f}; authors pulled a page {push_pulls:.1f} to {low_pulls:.1f}",
        "threshold",
        "feed writes a post",
    )
    fig.add_bar(x=names, y=[round(r[1], 1) for r in rows], name="feed writes a post", marker={"color": plots.BLUE})
    fig.add_scatter(
        x=names,
        y=[round(r[2], 2) for r in rows],
        name="authors pulled a page",
        yaxis="y2",
        mode="lines+markers",
        line={"color": plots.VERMILLION, "dash": "dot"},
    )
    fig.update_layout(
        yaxis2={"overlaying": "y", "side": "right", "rangemode": "tozero", "title": {"text": "authors pulled a page"}}
    )
    shape = "writes-fall-pulls-rise" if push > middle > low and push_pulls < low_pulls else "other"
    return (
        f"{len(graph.users)} users: push all takes {push:.0f} feed writes a post, a threshold of 60 {middle:.0f}, of "
        f"30 {low:.0f}; a page pulls "
        f"{push_pulls:.1f} authors, and {low_pulls:.1f} at 30. {wrong} scrolls differ from SQL.",
        {
            "push_writes": push,
            "middle_writes": middle,
            "low_writes": low,
            "push_pulls": push_pulls,
            "low_pulls": low_pulls,
            "wrong": wrong,
            "saved": 1 - middle / push,
            "shape": shape,
        },
        fig,
    )


def celebrity_post(d: Desk, fans: int = 1_200, n: int = 6) -> Said:
    u = np.arange(1, fans + 1)
    lab = d.show(from_edges(u, np.zeros(fans, int), True, "one large account"))
    relay, fanout = d.stations()
    taken = {}
    for way, t in (("push", 10**6), ("pull", 10)):
        d.progress(f"{n} posts of an account with {fans:,} followers: {way}")
        db.set_knobs(lab.conn, threshold=t)
        for _ in range(n):
            posts.create(lab.conn, lab.ids, lab.names, 0, "text")
        while relay.once():
            pass
        before, began = lab.stats().get("deliveries", 0), time.monotonic()
        fanout.once(1)  # all of them, or at least the first; its own time is what is taken
        seconds, done = time.monotonic() - began, lab.stats().get("deliveries", 0) - before
        d.pump()
        taken[way] = (done / seconds, (lab.stats().get("deliveries", 0) - before) / n)
    wrong = d.wrong(list(range(1, 41)))
    (rate, writes), (_, pulled) = taken["push"], taken["pull"]
    minutes = cost.fan_out_seconds(cost.Sheet().largest, rate) / 60
    return (
        f"Pushed, a post of {fans:,} followers is {writes:,.0f} feed writes, {rate:,.0f} a second here; at that rate "
        "one post to 50 million takes "
        f"{minutes:.0f} minutes. Pulled, it is {pulled:.0f} feed writes, and {40 - wrong} of 40 readers see all posts.",
        {
            "followers": fans,
            "push_writes": writes,
            "pull_writes": pulled,
            "deliveries_a_second": rate,
            "minutes_at_largest": minutes,
            "wrong": wrong,
        },
        plots.bars(
            f"One post to {fans:,} followers: {writes:,.0f} feed writes pushed, {pulled:.0f} pulled",
            ["pushed", "pulled"],
            [writes, pulled],
            "feed writes a post",
            measured=0,
        ),
    )


# --- celebrities ------------------------------------------------------------------------------------------------------


def hot_key(d: Desk, readers: int = 60, pages: int = 200) -> Said:
    from ..classroom.chapters import celebrities

    lab = d.open()
    crowd = celebrities.crowd(lab, readers)
    celebrities.some_posts(lab, [celebrities.CELEBRITY], 5)
    d.pump()
    without = celebrities.hot_key(lab, crowd, pages, copy_s=0)
    copies = celebrities.hot_key(lab, crowd, pages, copy_s=3.0)
    wrong = without.wrong + copies.wrong
    return (
        f"{pages} pages of a crowd read the celebrity's key {without.reads} times; with copies of 3 s in each of 4 processes "
        f"{copies.reads} times. {wrong} pages were wrong.",
        {
            "pages": pages,
            "without": without.reads,
            "with_copies": copies.reads,
            "saved": without.reads / max(1, copies.reads),
            "wrong": wrong,
        },
        plots.bars(
                f"{pages} pages: {without.reads} reads of one key, or {copies.reads}",
                ["no copy", "copies of 3 s"],
                [without.reads, copies.reads],
                "reads of the celebrity's key",
            ),
    )


def herd(d: Desk, readers: int = 12) -> Said:
    from ..classroom.chapters import celebrities

    lab = d.open()
    crowd = celebrities.crowd(lab, readers)
    celebrities.some_posts(lab, [celebrities.CELEBRITY], 30)
    d.pump()
    rows = [(system, celebrities.herd(lab, crowd, system)) for system in ("textbook", "ours")]
    n, wrong = {name: h.rebuilds for name, h in rows}, sum(h.wrong for _, h in rows)
    return (
        f"{readers} readers find the celebrity's key cold at the same moment: the textbook rebuilds it {n['textbook']} "
        f"times, ours {n['ours']} time"
        f"{'' if n['ours'] == 1 else 's'} (a token; the others take the SQL answer). {wrong} pages were wrong.",
        n | {"readers": readers, "wrong": wrong},
        plots.bars(
                f"{readers} readers find the key cold: rebuilt {n['textbook']} times, or {n['ours']}", ["textbook", "ours"],
                [n["textbook"], n["ours"]], "rebuilds"),
    )


# --- readers who follow many ------------------------------------------------------------------------------------------


def many_followees(d: Desk, rounds: int = 11) -> Said:
    lab, sizes, readers, asked = d.open(), (50, 500, 5_000), {}, set()
    authors = np.arange(10, 10 + sizes[-1])
    follower = np.concatenate([np.full(n, i) for i, n in enumerate(sizes)])
    load_graph(lab.conn, from_edges(follower, np.concatenate([authors[:n] for n in sizes]), True, "three readers"))
    d.progress(f"{3 * sizes[-1]:,} posts of {sizes[-1]:,} authors")
    lab.conn.execute(
        """insert into posts (id, author_id, created_at_ms, content)
        select n * 10000 + a, a, 1700000000000 + n * 1000 + a, 'text' from generate_series(1, 3) n, generate_series(10, %s) a""",
        (int(authors[-1]),),
    )
    lab.conn.execute("analyze posts")
    repair.warm(lab.conn, lab.redis, d.settings, list(range(len(sizes))))
    for i, n in enumerate(sizes):
        d.progress("first pages", i, len(sizes))
        plan = lab.conn.execute(
            "explain (analyze, buffers, format json) " + pull.PAGE,
            {"user": i, "ms": START.ms, "id": START.id, "limit": 20, "own": False},
        ).fetchone()[0][0]["Plan"]
        took: dict[str, list[float]] = {"pull": [], "feed": []}
        for _ in range(rounds):  # in turns
            for way, read in (("pull", lambda i=i: pull.page(lab.conn, i, START, 20)), ("feed", lambda i=i: lab.page(i))):
                began = time.perf_counter()
                got = read()
                took[way].append(time.perf_counter() - began)
        asked.add(got.explain.sources)
        readers[n] = (
            plan["Shared Hit Blocks"] + plan["Shared Read Blocks"],
            statistics.median(took["pull"]),
            statistics.median(took["feed"]),
        )
    few, many = readers[sizes[0]], readers[sizes[-1]]
    times, feed = many[0] / few[0], many[2] / few[2]
    fig = plots.figure(
        f"Pull at 5,000 followed touches {times:.0f} times the blocks of 50",
        "authors followed (log)",
        "8 kB blocks touched by pull (log)",
    )
    fig.add_scatter(x=list(sizes), y=[readers[n][0] for n in sizes], mode="lines+markers", name="pull: SQL blocks a page")
    fig.update_xaxes(type="log").update_yaxes(type="log")
    return (
        f"A first page by pull touches {few[0]:,} blocks for a reader of 50 authors and {many[0]:,} for one of 5,000 "
        f"({times:.0f} times). By the feed the "
        f"page asks one source either way; at 5,000 pull takes {many[1] / many[2]:.1f} times as long as the feed.",
        {
            "pull_blocks_50": few[0],
            "pull_blocks_5000": many[0],
            "pull_times": times,
            "feed_times": feed,
            "pull_over_feed": many[1] / many[2],
            "shape": "pull-grows" if times > 5 and asked == {1} else "both-grow" if times > 5 else "neither",
        },
        fig,
    )


# --- delete -----------------------------------------------------------------------------------------------------------


def delete(d: Desk, fans: int = 120) -> Said:
    lab = d.open()
    u = np.arange(2, fans + 2)
    d.show(from_edges(np.r_[u, u], np.r_[np.zeros(fans, int), np.ones(fans, int)], True, "two authors"))
    made = [p for _ in range(8) for p in (d.post(0), d.post(1))]
    d.pump()
    doomed = made[-1][0]

    def holding() -> int:
        pipe = lab.redis.pipeline(transaction=False)
        for user in u.tolist():
            pipe.zscore(lab.names.feed(user), member(doomed.id))
        return sum(s is not None for s in pipe.execute())

    feeds = holding()
    posts.delete(lab.conn, lab.names, doomed.author_id, doomed.id)
    pages = [lab.page(user, None, 10).ids for user in u.tolist()]
    shown, short, left = sum(doomed.id in ids for ids in pages), sum(len(ids) < 10 for ids in pages), holding()
    d.pump()
    swept = holding()
    return (
        f"The post is in {feeds} feeds. Right after the delete, before any event is handled, {shown} of {fans} readers "
        f"see it and {short} pages are "
        f"short, although {left} feeds still hold the entry; the event takes it out of all but {swept}.",
        {"feeds": feeds, "shown": shown, "entries_left": left, "swept": swept, "short": short},
        plots.bars(
            f"Deleted: {shown} readers see it while {left} feeds still hold it",
            ["readers who see it", "feeds that hold it, before the event", "after it"],
            [shown, left, swept],
            "of the followers",
            measured=0,
        ),
    )


# --- outbox -----------------------------------------------------------------------------------------------------------


def crash(d: Desk) -> Said:
    from ..classroom.chapters import outbox

    d.people(3)
    d.progress("three writers, each killed between its two steps")
    rows = outbox.crashes(d.open(), [0, 1, 2])
    bad = {c.way: c.lost + c.ghosts for c in rows}
    send, commit, box = (c for c in rows)
    return (
        f"Killed between the two steps: commit, then send loses {send.lost} post{'' if send.lost == 1 else 's'}; send, "
        f"then commit announces {commit.ghosts} that "
        f"SQL does not have; with the outbox {box.lost + box.ghosts}.",
        dict(zip(("commit_then_send", "send_then_commit", "outbox"), bad.values(), strict=True)),
        plots.bars(
            f"One kill each: {sum(n > 0 for n in bad.values())} of {len(bad)} ways leave SQL and Kafka apart",
            list(bad), list(bad.values()),
            "posts lost, or announced and not there", measured=2),
    )


def late_rows(d: Desk) -> Said:
    from ..classroom.chapters import outbox

    authors = d.people(6)
    d.progress("transactions commit out of order")
    rows = [
        (name, outbox.contended(d.open(), system, authors, 15))
        for name, system in (("id > last", "textbook"), ("the rows that are there", "ours"))
    ]
    (_, t), (_, o) = rows
    return (
        f"Of {t.committed} committed posts a relay that asks for `id > last` never sends {t.lost}; one that takes the "
        f"rows that are there loses {o.lost}. "
        "Nothing has crashed.",
        {"textbook": t.lost, "ours": o.lost, "posts": t.committed},
        plots.bars(
            f"Of {t.committed} committed posts {t.lost} are never sent, and nothing has crashed",
            ["id > last", "the rows that are there"],
            [t.lost, o.lost], "posts lost", measured=0),
    )


def two_relays(d: Desk) -> Said:
    from ..classroom.chapters import outbox

    authors = d.people(4)
    d.progress("two relays on one outbox")
    t, o = (outbox.two_relays(d.open(), system, authors) for system in ("textbook", "ours"))
    return (
        f"Two relays by `id > last` put {t.backwards} events behind a younger one of their author and send {t.repeats} "
        "twice; with a lock for each slice of "
        f"authors {o.backwards} and {o.repeats}.",
        {"textbook": t.backwards, "ours": o.backwards, "repeats": t.repeats},
        plots.bars(
            f"Events out of their author's order: {t.backwards} by two polling relays, {o.backwards} with a lock a slice",
            ["id > last, twice", "a lock a slice"],
            [t.backwards, o.backwards],
            "events behind a younger one",
        ),
    )


# --- bursts -----------------------------------------------------------------------------------------------------------


def burst(d: Desk) -> Said:
    graph, authors, readers = _town(d)
    lab = d.open()
    relay, fanout = d.stations()
    fanout.most, runs = 10, {}
    for name, t in (("high", 10**6), ("low", 30)):
        db.set_knobs(lab.conn, threshold=t)
        for a in authors * 2:
            posts.create(lab.conn, lab.ids, lab.names, a, "text")
        while relay.once():
            pass
        before, waiting, at = lab.stats().get("deliveries", 0), len(authors) * 2, [(0, len(authors) * 2)]
        while waiting > 0:
            waiting -= fanout.once(0.05).records
            at.append((lab.stats().get("deliveries", 0) - before, waiting))
            d.progress(f"threshold {name}: working off", len(authors) * 2 - max(0, waiting), len(authors) * 2)
        runs[name] = at
    d.pump()
    lost = d.wrong(readers)
    high, low = runs["high"][-1][0], runs["low"][-1][0]
    fig = plots.figure(
        f"The same {len(authors) * 2} posts: {high:,} feed writes, or {low:,} with the threshold lowered",
        "feed writes made (what takes the time)",
        "posts waiting",
    )
    for name, dash in (("high", "solid"), ("low", "dot")):
        fig.add_scatter(
            x=[x for x, _ in runs[name]],
            y=[y for _, y in runs[name]],
            mode="lines",
            name=f"{name} threshold",
            line={"dash": dash, "width": 2.5},
        )
    return (
        f"{len(authors) * 2} posts wait. Working them off takes {high:,} feed writes under the high threshold and "
        f"{low:,} under the low one; afterwards {lost} of "
        f"{len(readers)} scrolls differ from SQL.",
        {
            "events": len(authors) * 2,
            "high_deliveries": high,
            "low_deliveries": low,
            "saved": 1 - low / high,
            "lost": lost,
            "shape": "shorter-and-exact" if low < high and not lost else "shorter-and-wrong" if lost else "same",
        },
        fig,
    )


# --- pages ------------------------------------------------------------------------------------------------------------


def paging(d: Desk) -> Said:
    from ..classroom.chapters import cursor_and_merge as pages

    scrolls = pages.while_posts_arrive(d)
    n = {name: len(pages.repeats(ps)) for name, ps in scrolls.items()}
    return (
        f"While two posts come in between one page and the next, an offset shows {n['offset']} posts a second time, "
        f"the cursor {n['cursor']}.",
        n,
        pages.scrolls_figure(scrolls),
    )


def rebuild(d: Desk) -> Said:
    graph, authors, _ = _town(d)
    lab, users = d.open(), graph.users.tolist()[:100]
    _posted(d, authors)
    for u in users:
        lab.page(u)
    warm = [lab.page(u) for u in users]
    lab.redis.delete(*(lab.names.feed(u) for u in users))
    cold = [lab.page(u) for u in users]
    wrong = sum(p.ids != [e.id for e in pull.everything(lab.conn, u)][:20] for u, p in zip(users, cold, strict=True))
    w, c = (statistics.mean(p.explain.sql_queries for p in ps) for ps in (warm, cold))
    return (
        f"With the feeds there a page takes {w:.1f} SQL queries; with all of them gone {c:.1f} ({c / w:.1f} times), "
        f"each once; {wrong} of {len(users)} pages are wrong.",
        {
            "warm_sql": w,
            "cold_sql": c,
            "times": c / w,
            "wrong": wrong,
            "shape": "right-but-dear" if not wrong and c > w else "wrong" if wrong else "same",
        },
        plots.bars(
            f"A page takes {w:.1f} SQL queries warm, {c:.1f} with its feed gone",
            ["feeds there", "feeds gone"],
            [w, c],
            "SQL queries a page",
        ),
    )


def small_site(d: Desk, users: int = 3_000, follows: int = 30, n: int = 200) -> Said:
    lab, rng = d.open(), np.random.default_rng(1)
    follower = np.repeat(np.arange(users), follows)
    followee = (follower + rng.integers(1, users, len(follower))) % users
    d.progress(f"{users:,} users who follow {follows} each")
    load_graph(lab.conn, from_edges(follower, followee, True, "a small site"))
    lab.conn.execute(
        """insert into posts (id, author_id, created_at_ms, content)
        select n * 10000 + u, u, 1700000000000 + n * 1000 + u, 'text' from generate_series(1, 10) n, generate_series(0, %s) u""",
        (users - 1,),
    )
    lab.conn.execute("analyze posts")
    readers, took = rng.integers(0, users, n).tolist(), []
    for u in readers:
        began = time.perf_counter()
        assert len(pull.page(lab.conn, u, START, 20)) == 20
        took.append(time.perf_counter() - began)
    plan = lab.conn.execute(
        "explain (analyze, buffers, format json) " + pull.PAGE,
        {"user": readers[0], "ms": START.ms, "id": START.id, "limit": 20, "own": False},
    ).fetchone()[0][0]["Plan"]
    rate, needed = n / sum(took), cost.Sheet(users=50_000).peak_reads_a_second
    return (
        f"{users:,} users, one connection, one indexed query: {rate:,.0f} pages a second "
        f"({1000 * statistics.median(took):.1f} ms a page). A site of 50,000 users with the "
        f"article's habits needs {needed:.0f} a second at its peak.",
        {
            "users": users,
            "pages_a_second": rate,
            "blocks": plan["Shared Hit Blocks"] + plan["Shared Read Blocks"],
            "seconds": statistics.median(took),
        },
        plots.bars(
            f"One query serves {rate:,.0f} pages a second; 50,000 users need {needed:.0f}",
            ["needed by 50,000 users", "measured, one connection"],
            [needed, rate],
            "pages a second",
        ),
    )


def ranked(d: Desk, authors: int = 40, posts_: int = 1_500, feed_max: int = 300) -> Said:
    """Scores: reactions, log-normal, halved with every 36 hours of age. The pool is the feed itself."""
    lab, rng, now = d.open(), random.Random(3), 1_700_000_000_000
    db.set_knobs(lab.conn, feed_max=feed_max)
    load_graph(lab.conn, from_edges(np.zeros(authors, int), np.arange(1, authors + 1), True, "one reader"))
    span = 72 * 3_600_000
    rows = sorted((now - rng.randrange(span), 1_000 + i) for i in range(posts_))
    with lab.conn.cursor() as c:
        c.executemany(
            "insert into posts (id, author_id, created_at_ms, content) values (%s, %s, %s, 'text')",
            [(i, 1 + i % authors, ms) for ms, i in rows],
        )
    repair.warm(lab.conn, lab.redis, d.settings, [0])
    reactions = {i: rng.lognormvariate(2, 1.5) for _, i in rows}
    score = {i: reactions[i] * 0.5 ** ((now - ms) / (36 * 3_600_000)) for ms, i in rows}
    pool = [e.id for e in timeline.get(lab.redis, lab.names.feed(0)).entries]
    best = sorted(score, key=score.get, reverse=True)[:20]

    def recall(n: int) -> float:
        return sum(i in set(pool[:n]) for i in best) / len(best)

    one = sorted(pool, key=score.get, reverse=True)[:20]
    moved = score | {i: score[i] * rng.lognormvariate(0, 0.8) for i in pool}  # reactions come in between the pages
    live = sorted(pool, key=moved.get, reverse=True)[20:40]
    key = f"{lab.settings.namespace}:ranked:0"
    lab.redis.rpush(key, *sorted(pool, key=score.get, reverse=True))  # the order as of page one, kept for the scroll
    frozen = [int(i) for i in lab.redis.lrange(key, 20, 39)]
    whole, small = recall(feed_max), recall(feed_max // 10)
    repeats, kept = len(set(one) & set(live)), len(set(one) & set(frozen))
    return (
        f"Of the best 20 of {posts_:,} posts by score, the newest {feed_max} hold {whole:.0%} and the newest "
        f"{feed_max // 10} hold {small:.0%}. When scores move "
        f"between two pages, {repeats} posts come twice; with the order kept from page one {kept}.",
        {
            "recall_pool": whole,
            "recall_small": small,
            "repeats_live": repeats,
            "repeats_frozen": kept,
            "shape": "all" if whole == 1 else "most" if whole >= 0.6 else "some" if whole > 0.1 else "none",
        },
        plots.bars(
            f"The best 20 by score: {whole:.0%} are among the newest {feed_max}, {small:.0%} among the newest {feed_max // 10}",
            [f"newest {feed_max // 10}", f"newest {feed_max}", "all posts"],
            [100 * small, 100 * whole, 100],
            "% of the best 20 by score",
        ),
    )


def own_post(d: Desk) -> Said:
    lab = d.open()
    d.people(3)
    d.follow(0, 1)
    d.follow(2, 0)
    d.pump()
    for u in (0, 2):
        lab.page(u)
    mine = posts.create(lab.conn, lab.ids, lab.names, 0, "mine")
    plain, own = mine.id in lab.page(0).ids, mine.id in lab.reader.page(lab.conn, lab.redis, 0, own=True).ids
    d.pump()
    drained = mine.id in lab.page(2).ids
    return (
        f"Right after posting the author's page has the post: {_yes(plain)} from the feed alone, {_yes(own)} with the "
        "author's own posts merged in from SQL. "
        f"Followers have it once the queues are drained: {_yes(drained)}.",
        {"plain": int(plain), "own": int(own), "drained": int(drained)},
        plots.bars(
            f"The author sees the own post at once: {_yes(plain)} by the feed, {_yes(own)} with a merge of SQL",
            ["feed alone", "feed and own posts"],
            [int(plain), int(own)],
            "posts of one that are seen at once",
        ),
    )


def precision(d: Desk, n: int = 200) -> Said:
    lab, key = d.open(), f"{d.settings.namespace}:scores"
    ids = [(1_700_000_000_000 << 22) + i for i in range(n)]
    lab.redis.zadd(key, {member(i): i for i in ids})
    distinct = len({s for _, s in lab.redis.zrange(key, 0, -1, withscores=True)})
    times = [1_760_245_800_123 + 7 * i for i in range(n)] + [MAX_MS]
    lab.redis.delete(key)
    lab.redis.zadd(key, {member(i): ms for i, ms in enumerate(times)})
    changed = sum(int(s) != times[int(m)] for m, s in lab.redis.zrange(key, 0, -1, withscores=True))
    lab.redis.zadd(key, {"edge": MAX_MS + 1})
    edge = int(lab.redis.zscore(key, "edge"))
    return (
        f"{n} ids of one millisecond share {distinct} score{'' if distinct == 1 else 's'}; of {len(times)} "
        f"milliseconds {changed} come back changed, and 2^53 + 1 comes back as {edge:,}.",
        {"ids": n, "distinct_ids": distinct, "distinct_ms": changed, "last_exact": int(changed == 0 and edge != MAX_MS + 1)},
        plots.bars(
            f"{n} Snowflake ids as scores: {distinct} different ones are left",
            ["ids", "scores that are different"],
            [n, distinct],
            "of the ids of one millisecond",
        ),
    )


def _yes(b: bool) -> str:
    return "yes" if b else "no"


WAYS: dict[str, Callable[[Desk], Said]] = {
    "fault-F9": f9,
    "fault-F11": f11,
    "fault-F12": f12,
    "threshold": threshold,
    "celebrity-post": celebrity_post,
    "hot-key": hot_key,
    "herd": herd,
    "many-followees": many_followees,
    "delete": delete,
    "crash": crash,
    "late-rows": late_rows,
    "two-relays": two_relays,
    "burst": burst,
    "paging": paging,
    "rebuild": rebuild,
    "small-site": small_site,
    "ranked": ranked,
    "own-post": own_post,
    "precision": precision,
}
