"""Notebook 13: how far one indexed query goes, what a ranked feed needs of a pushed one, and who sees a post when."""
import time
from dataclasses import dataclass

import numpy as np

from ... import posts, pull, timeline
from ...core import cost
from ...core.cost import Sheet
from ...core.model import START, Entry, Post
from ...db import Connection
from ...draw import plots
from ...lab.session import Lab
from . import data_model
from .data_model import Scrolled, verdicts

NOW, APART = 1_700_000_000_000, 60_000      # the first post's millisecond; one post a minute after it
FOLLOWEES = (10, 30, 100, 300, 1_000)


# --- how far one query goes ------------------------------------------------------------------------------------------------

def crowd(lab: Lab, followees=FOLLOWEES, each: int = 50) -> dict[int, int]:
    """Fill an empty namespace: as many authors as the greatest of `followees`, each with `each` posts in turns, and for each of
    `followees` a reader, active just now, who follows that many. Returns {followees: reader}.
    """
    c, authors, first = lab.conn, max(followees), 10**6
    readers = {n: first + i for i, n in enumerate(followees)}
    with c.transaction():
        c.execute("insert into users select g, 'author' from generate_series(1, %s) g", (authors,))
        c.execute("insert into posts (id, author_id, created_at_ms, content) select g, 1 + g %% %s, %s + g * %s::bigint, 'post ' || g "
                  "from generate_series(1, %s) g", (authors, NOW, APART, authors * each))
        for n, reader in readers.items():
            c.execute("insert into users values (%s, 'reader')", (reader,))
            c.execute("insert into user_activity values (%s)", (reader,))
            # spread over all authors, so that a reader of few does not follow those who happen to lie side by side
            c.execute("insert into follows select %(r)s, 1 + (g * %(a)s / %(n)s) from generate_series(0, %(n)s - 1) g",
                      {"r": reader, "a": authors, "n": n})
    for table in ("users", "posts", "follows", "user_activity"):
        c.execute(f"vacuum analyze {table}")
    return readers


# The whole of a feed service for a small product: the page by pull, with what is on it.
ONE_QUERY = f"""
    with page as ({pull.PAGE})
    select p.id, p.author_id, p.created_at_ms, p.content from page join posts p using (id)
    order by p.created_at_ms desc, p.id desc"""


def one_query(conn: Connection, user: int, before: Entry = START, limit: int = 20) -> list[Post]:
    """A page by fan-out on read, contents included, in one round trip."""
    return [Post(*row) for row in conn.execute(
        ONE_QUERY, {"user": user, "ms": before.ms, "id": before.id, "limit": limit, "own": False})]


@dataclass(frozen=True)
class Cost:
    """Milliseconds of a first page, as the client waits for it: by one query, and from the pushed feed by the package's reader. The least
    of several, which is what the work takes when nothing else on the machine gets in its way."""
    pull_ms: float
    pushed_ms: float

    @property
    def ratio(self) -> float:
        """By query over pushed."""
        return self.pull_ms / self.pushed_ms


def pages(lab: Lab, readers: dict[int, int], times: int = 15, say=lambda *_: None) -> dict[int, Cost]:
    """Pages of each reader by both ways, in turns, so that whatever else this machine does falls on both alike."""
    ways = (lambda user: one_query(lab.conn, user), lab.page)
    found = {}
    for done, (n, user) in enumerate(readers.items()):
        say("reading pages both ways", done, len(readers))
        lab.page(user)                                          # builds the feed
        took: tuple[list[float], list[float]] = ([], [])
        for _ in range(times):
            for way, read in enumerate(ways):
                start = time.perf_counter()
                read(user)
                took[way].append(1000 * (time.perf_counter() - start))
        found[n] = Cost(*map(min, took))
    return found


def same_pages(lab: Lab, readers: dict[int, int]) -> int:
    """Readers whose page by one query is not the page by the pushed feed."""
    return sum([p.id for p in one_query(lab.conn, user)] != lab.page(user).ids for user in readers.values())


def users_carried(page_ms: float, sheet: Sheet = Sheet(), busy: float = 0.6) -> float:
    """Daily users whose pages one connection serves, one page after the other, at the sheet's reads and peak, when it may be busy for
    this share of its time.

    >>> round(users_carried(5.0))      # 200 pages a second, 60 % of the time: 120 a second at the peak, 40 on average
    345600
    """
    return 1000 / page_ms * busy / sheet.peak * cost.DAY / sheet.reads


def connections(page_ms: float, sheet: Sheet = Sheet(), busy: float = 0.6) -> float:
    """Connections, each a core's work, that the sheet's peak needs when a page takes so long."""
    return sheet.peak_reads_a_second * page_ms / 1000 / busy


def carried_figure(found: dict[int, Cost], sheet: Sheet = Sheet()):
    """Users that one connection carries by pull, over the number of followees."""
    users = [users_carried(c.pull_ms, sheet) for c in found.values()]
    near = min(found, key=lambda n: abs(n - sheet.followers))
    fig = plots.figure(f"With {near} followees one connection carries {plots.number(users[list(found).index(near)])} daily users by pull",
                       "followees of a reader (log)", "daily users (log)")
    fig.add_scatter(x=list(found), y=plots.rounded(np.array(users)), name="one connection, one query a page", mode="lines+markers",
                    marker={"size": 9}, hovertemplate="%{y:,} users who follow %{x} each")
    fig.add_hrect(10_000, 100_000, line_width=0, fillcolor=plots.GREY, opacity=0.2)
    fig.add_annotation(x=0, xref="paper", y=float(np.log10(30_000)), xanchor="left", showarrow=False, text=" tens of thousands")
    return fig.update_xaxes(type="log", dtick=1).update_yaxes(type="log", dtick=1, tickformat="~s", range=[3.8, 7.5])


def ratio_figure(found: dict[int, Cost]):
    """Time of a page by one query over that from the pushed feed."""
    ratios = {n: c.ratio for n, c in found.items()}
    cheap = [n for n, r in ratios.items() if r < 1]
    title = f"Up to {max(cheap)} followees the one query is the quicker page" if cheap else "The pushed feed is quicker from the start"
    fig = plots.figure(title, "followees of a reader (log)", "time by query / from feed (log)")
    fig.add_scatter(x=list(ratios), y=plots.rounded(np.array(list(ratios.values()))), mode="lines+markers", marker={"size": 9},
                    showlegend=False, hovertemplate="%{y} times at %{x} followees")
    fig.add_hline(1, line={"dash": "dash", "color": plots.GREY})
    return fig.update_xaxes(type="log", dtick=1).update_yaxes(
        type="log", tickvals=[0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50], ticktext=["0.1", "0.2", "0.5", "1", "2", "5", "10", "20", "50"])


def without_index(lab: Lab, user: int) -> tuple[data_model.Plan, data_model.Plan]:
    """The one query of this user with its index and without (rolled back)."""
    args = {"user": user, "ms": START.ms, "id": START.id, "limit": 20, "own": False}
    having = data_model.explain(lab.conn, ONE_QUERY, args)
    with data_model.without(lab.conn, "posts_author_newest") as conn:
        return having, data_model.explain(conn, ONE_QUERY, args)


# --- a ranked feed ------------------------------------------------------------------------------------------------------------

HALF_LIFE_MS, SEED = 6 * 3_600_000, 5


def score(entries: list[Entry], now_ms: int) -> np.ndarray:
    """What a ranker might say: likes, halved every six hours. Likes are drawn from a log-normal (sigma 1.5) by the post's id, so that a
    post has the same likes whoever asks. Stands for any model; only that it is not the time matters here.
    """
    likes = np.array([np.random.default_rng([SEED, e.id]).lognormal(2.0, 1.5) for e in entries])
    age = np.array([now_ms - e.ms for e in entries], float)
    return likes * 0.5 ** (age / HALF_LIFE_MS)


def rank(entries: list[Entry], now_ms: int) -> list[Entry]:
    """Entries, the best first."""
    return [entries[i] for i in np.argsort(-score(entries, now_ms), kind="stable")] if entries else []


@dataclass(frozen=True)
class Ranked:
    """`best`: the twenty best of everything that SQL has. `kept`: pool size -> how many of these are among the newest so many of the
    pushed feed. `everything`: how many posts SQL has for this reader."""
    best: list[Entry]
    kept: dict[int, int]
    everything: int


def ranked(lab: Lab, user: int, pools=(20, 50, 100, 200, 500), limit: int = 20) -> Ranked:
    """Rank everything that SQL has for the user, and look for the best in the newest entries of the feed in Redis."""
    lab.page(user)                                              # the feed is there
    everything = pull.everything(lab.conn, user)
    best = rank(everything, everything[0].ms)[:limit]
    pushed = timeline.get(lab.redis, lab.names.feed(user)).entries
    return Ranked(best, {n: len(set(best) & set(pushed[:n])) for n in pools}, len(everything))


def pool_figure(found: Ranked):
    """How many of the twenty best are in a pool of the newest n."""
    pools = list(found.kept)
    fig = plots.figure(f"Of the {len(found.best)} best, the newest {pools[0]} hold {found.kept[pools[0]]}, the newest {pools[-1]} "
                       f"{found.kept[pools[-1]]}", "entries of the pushed feed that are ranked (log)", "of the best are among them")
    fig.add_scatter(x=pools, y=list(found.kept.values()), mode="lines+markers", marker={"size": 9}, showlegend=False,
                    hovertemplate="%{y} of them in the newest %{x}")
    return fig.update_xaxes(type="log").update_yaxes(range=[0, len(found.best) + 1])


def ranked_by_cursor(lab: Lab, user: int, pool: int = 40, limit: int = 10) -> Scrolled:
    """The mistake: rank the newest `pool` entries, show the best `limit`, and take the place in time of the last one shown as the cursor
    of the next page. Posts go by number, 1 the oldest of the pool.
    """
    entries = timeline.get(lab.redis, lab.names.feed(user), START, pool).entries
    number, seen, before = {e: len(entries) - i for i, e in enumerate(entries)}, [], START
    while page := rank([e for e in entries if e < before], entries[0].ms)[:limit]:
        seen.append(tuple(number[e] for e in page))
        before = page[-1]
    return Scrolled(tuple(seen), ranked_verdicts(seen, len(entries)))


def ranked_verdicts(pages: list[tuple[int, ...]], n: int) -> tuple[str, ...]:
    """What is wrong with a ranked scroll of posts 1 to n: order is the ranker's business, each post once is ours."""
    shown = list(dict.fromkeys(p for page in pages for p in page))
    return verdicts(pages, shown) + tuple(f"post {p} is missing: no page shows it" for p in range(n, 0, -1) if p not in shown)


def ranked_by_snapshot(lab: Lab, user: int, pool: int = 40, limit: int = 10) -> Scrolled:
    """The mend: the pool is ranked once, its order is kept for the scroll, and the cursor is a place in that order."""
    entries = timeline.get(lab.redis, lab.names.feed(user), START, pool).entries
    number, order = {e: len(entries) - i for i, e in enumerate(entries)}, rank(entries, entries[0].ms)
    pages = [tuple(number[e] for e in order[i:i + limit]) for i in range(0, len(order), limit)]
    return Scrolled(tuple(pages), ranked_verdicts(pages, len(entries)))


# --- who sees a post when -------------------------------------------------------------------------------------------------------

WAYS = ("own page", "own page, include=self", "follower's page, pushed", "follower's page, by pull")


def who_sees(b, author: int, follower: int) -> dict[str, dict[str, bool]]:
    """Write a post, take it along its way by hand, and read four pages at each station: {station: {way: is the post on it}}.

    `b` is the open book; the follower follows the author, the author follows nobody. Nothing else may run in the namespace.
    """
    lab, (relay, _) = b.open(), b.stations()
    b.pump()
    lab.page(follower)                                          # the feed exists; else it would be built from SQL, post and all
    post = posts.create(lab.conn, lab.ids, lab.names, author, "hello")

    def look() -> dict[str, bool]:
        found = (lab.page(author).ids, lab.reader.page(lab.conn, lab.redis, author, own=True).ids, lab.page(follower).ids,
                 [e.id for e in pull.page(lab.conn, follower, START, 20)])
        return {way: post.id in ids for way, ids in zip(WAYS, found, strict=True)}
    seen = {"committed": look()}
    relay.once()
    seen["in Kafka"] = look()
    b.pump()
    seen["delivered"] = look()
    return seen


def sees_table(seen: dict[str, dict[str, bool]]):
    """`who_sees` as a table (pandas): a row a way, a column a station."""
    import pandas as pd
    return pd.DataFrame(seen).replace({True: "shown", False: "not yet"})
