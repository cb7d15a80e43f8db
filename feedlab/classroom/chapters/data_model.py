"""Notebook 02: what the indexes, the millisecond and the score are for, each measured by taking it away.

Indexes are dropped inside a transaction that is rolled back, so that a run leaves the tables as they were. Work is counted in
8 kB pages that PostgreSQL touched (`buffers`), which is a count and hardly moves between runs; times are shown, never compared.
"""
from contextlib import contextmanager
from dataclasses import dataclass

from ... import fanout, pull, reader, timeline
from ...core.model import START, Entry
from ...core.snowflake import PER_MS, Snowflake, parts
from ...db import Connection
from ...draw import plots
from ...errors import BadInput
from ...lab.session import Lab

READER, BUSY, ORDINARY = 0, 1, 2     # who reads; the author with far more posts and followers than the others; one of these
NOW = 1_700_000_000_000              # the first post's millisecond; one post a millisecond after it


# --- a table that is large enough to matter --------------------------------------------------------------------------------

def crowd(lab: Lab, authors: int = 2_000, each: int = 40, followees: int = 50, busy: int = 20_000, fans: int = 20_000) -> dict:
    """Fill an empty namespace: authors 1 to `authors` with `each` posts, in turns, so that no author's posts lie side by side.
    Author 1 has `busy` more, and `fans` followers, each of whom follows two others; user 0 follows the authors 1 to `followees`.
    Returns rows by table.

    Raises BadInput when the namespace holds posts already.
    """
    c = lab.conn
    if c.execute("select 1 from posts limit 1").fetchone():
        raise BadInput("the tables hold posts already. Begin the notebook again: it empties its namespace.")
    with c.transaction():
        c.execute("insert into users select g, 'user ' || g from generate_series(0, %s) g", (authors + fans,))
        c.execute("insert into user_activity select g from generate_series(0, %s) g", (authors + fans,))
        c.execute("insert into posts (id, author_id, created_at_ms, content) select g, 1 + g %% %s, %s + g, 'post ' || g "
                  "from generate_series(1, %s) g", (authors, NOW, authors * each))
        c.execute("insert into posts (id, author_id, created_at_ms, content) select %(n)s + g, 1, %(now)s + %(n)s + g, 'post ' || g "
                  "from generate_series(1, %(busy)s) g", {"n": authors * each, "now": NOW, "busy": busy})
        c.execute("insert into follows select 0, g from generate_series(1, %s) g", (followees,))
        c.execute("insert into follows select %(a)s + g, 1 from generate_series(1, %(f)s) g", {"a": authors, "f": fans})
        c.execute("insert into follows select %(a)s + g, 2 + (g * 7 + k) %% (%(a)s - 1) from generate_series(1, %(f)s) g, "
                  "generate_series(1, 2) k", {"a": authors, "f": fans})
    for table in ("users", "user_activity", "posts", "follows"):
        c.execute(f"vacuum analyze {table}")
    return {t: c.execute(f"select count(*) from {t}").fetchone()[0] for t in ("users", "posts", "follows")}


# --- plans -------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Plan:
    """One EXPLAIN ANALYZE. `buffers`: 8 kB pages touched, in memory or not. `rows`: rows that scans took up, also those that a
    filter then threw away. `scans`: what was scanned and by which index. `ms`: as the server says. `text`: a line a node."""
    buffers: int
    rows: int
    scans: tuple[str, ...]
    ms: float
    text: str

    def __str__(self) -> str:
        return f"{self.buffers:,} pages, {self.rows:,} rows, {self.ms:.2f} ms\n{self.text}"

    __repr__ = __str__


def explain(conn: Connection, query: str, args=()) -> Plan:
    """Run a query under EXPLAIN (ANALYZE, BUFFERS). Parallel workers and the JIT are off, so that the same work counts the same."""
    with conn.transaction():
        conn.execute("set local max_parallel_workers_per_gather = 0; set local jit = off")
        ((answer,),) = conn.execute("explain (analyze, buffers, timing off, format json) " + query, args).fetchall()
    top = answer[0]["Plan"]
    nodes = list(_nodes(top, 0))
    scans, rows = [], 0
    for node, _ in nodes:
        if "Scan" in node["Node Type"] and ("Relation Name" in node or "Index Name" in node):
            scans.append(_said(node))
            removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
            if node["Node Type"] != "Bitmap Index Scan":            # hands its rows to the heap scan above it, where they count
                rows += round((node["Actual Rows"] + removed) * node["Actual Loops"])
    text = "\n".join(f"{'  ' * depth}{_said(n)}: {n['Actual Rows']:,.0f} rows x {n['Actual Loops']:,.0f}" for n, depth in nodes)
    return Plan(top["Shared Hit Blocks"] + top["Shared Read Blocks"], rows, tuple(scans), answer[0]["Execution Time"], text)


def _nodes(plan: dict, depth: int):
    yield plan, depth
    for below in plan.get("Plans", ()):
        yield from _nodes(below, depth + 1)


def _said(node: dict) -> str:
    index, table = node.get("Index Name"), node.get("Relation Name")
    return node["Node Type"] + (f" of {table}" if table else "") + (f" by {index}" if index else "")


DROP = {
    "posts_author_newest": "drop index posts_author_newest",
    "follows_followee": "drop index follows_followee",
    "follows_pkey": "alter table follows drop constraint follows_pkey",
    "posts_pkey": "alter table posts drop constraint posts_pkey",
}


@contextmanager
def without(conn: Connection, index: str):
    """Inside, the index does not exist, for this connection; afterwards it does again, whatever happened. Raises BadInput for an index
    that has no place in this notebook."""
    if index not in DROP:
        raise BadInput(f"there is no index {index!r} to do without; they are: {', '.join(DROP)}")
    with conn.transaction(force_rollback=True):
        conn.execute(DROP[index])
        yield conn


def indexes(conn: Connection) -> set[str]:
    """The names of this namespace's indexes, primary keys among them."""
    return {name for name, in conn.execute("select indexname from pg_indexes where schemaname = current_schema")}


# the design's hot questions: name -> (SQL, arguments, the index that it lives on). The SQL is the package's own, word for word.
QUESTIONS = {
    "the 20 newest of an author": (
        pull.NEWEST, {"authors": [BUSY], "ms": START.ms, "id": START.id, "above": -1, "limit": 20}, "posts_author_newest"),
    "a page by pull": (
        pull.PAGE, {"user": READER, "ms": START.ms, "id": START.id, "limit": 20, "own": False}, "posts_author_newest"),
    "who follows an author": (fanout.FOLLOWERS, (30, 1_000, [0], [ORDINARY], [-1]), "follows_followee"),
    "whom do I follow": ("select followee_id from follows where follower_id = %s", (READER,), "follows_pkey"),
    "20 posts by id": (reader.HYDRATE, (list(range(1, 1_001, 50)),), "posts_pkey"),
}


def with_and_without(lab: Lab, name: str) -> tuple[Plan, Plan]:
    """One of QUESTIONS, asked with its index and without. Raises BadInput for another name."""
    if name not in QUESTIONS:
        raise BadInput(f"there is no question {name!r}; they are: {', '.join(QUESTIONS)}")
    query, args, index = QUESTIONS[name]
    having = explain(lab.conn, query, args)
    with without(lab.conn, index) as conn:
        return having, explain(conn, query, args)


def all_with_and_without(lab: Lab, say=lambda *_: None) -> dict[str, tuple[Plan, Plan]]:
    """Every one of QUESTIONS, with its index and without."""
    found = {}
    for i, name in enumerate(QUESTIONS):
        say("asking with and without the index", i, len(QUESTIONS))
        found[name] = with_and_without(lab, name)
    return found


# A page as one would first write it, by the same indexes: all posts of all followed authors are read and sorted for the newest 20.
NAIVE_PAGE = """
    select created_at_ms, id from posts where not deleted
        and author_id in (select followee_id from follows where follower_id = %(user)s)
        and (created_at_ms, id) < (%(ms)s, %(id)s)
    order by created_at_ms desc, id desc limit %(limit)s"""


def two_ways_to_ask(lab: Lab) -> tuple[Plan, Plan]:
    """The page by a plain `in (...)` and by pull.PAGE, both with every index. The answers are the same."""
    args = QUESTIONS["a page by pull"][1]
    return explain(lab.conn, NAIVE_PAGE, args), explain(lab.conn, pull.PAGE, args)


def growth(lab: Lab, sizes=(500, 5_000, 50_000), authors: int = 200, followees: int = 20, say=lambda *_: None):
    """8 kB pages that a page by pull touches as the table grows, with and without the index: [(posts, with, without)].

    Everything happens in one transaction that is rolled back: the tables are afterwards as before, empty ones too.
    """
    c, rows, first = lab.conn, [], 10**9
    args = {"user": first, "ms": START.ms, "id": START.id, "limit": 20, "own": False}
    with c.transaction(force_rollback=True):
        c.execute("insert into users select %s + g, 'user' from generate_series(0, %s) g", (first, authors))
        c.execute("insert into follows select %(me)s, %(me)s + g from generate_series(1, %(n)s) g", {"me": first, "n": followees})
        had = 0
        for n in sizes:
            say("growing the table of posts", n, max(sizes))
            c.execute("insert into posts (id, author_id, created_at_ms, content) select %(me)s + g, %(me)s + 1 + g %% %(a)s, "
                      "%(now)s + g, 'x' from generate_series(%(from)s::int, %(to)s::int) g",
                      {"me": first, "a": authors, "now": NOW, "from": had + 1, "to": n})
            had = n
            c.execute("analyze posts; analyze follows")
            having = explain(c, pull.PAGE, args)
            with without(c, "posts_author_newest"):
                rows.append((n, having.buffers, explain(c, pull.PAGE, args).buffers))
    return rows


def newest_of(lab: Lab, author: int, n: int, rows: int):
    """For an exercise: the test of a query (text) that must answer the n newest posts of an author and take up at most so many rows.
    Whatever the query does is rolled back."""
    def right(query: str) -> bool:
        with lab.conn.transaction(force_rollback=True):
            answer = [row[0] for row in lab.conn.execute(query)]
            return answer == [e.id for e in pull.newest(lab.conn, [author], limit=n)] and explain(lab.conn, query).rows <= rows
    right.__doc__ = f"the ids of the {n} newest posts of author {author} out of at most {rows} rows"
    return right


def insert_cost(lab: Lab, n: int = 5_000) -> tuple[int, int]:
    """WAL records of inserting n posts, with posts_author_newest and without: what the index costs the writer. Rolled back."""
    query = (f"explain (analyze, wal, timing off, format json) insert into posts (id, author_id, created_at_ms, content) "
             f"select {10**12} + g, {BUSY}, {NOW} + g, 'x' from generate_series(1, {int(n)}) g")

    def records() -> int:
        with lab.conn.transaction(force_rollback=True):
            ((answer,),) = lab.conn.execute(query).fetchall()
            return answer[0]["Plan"]["WAL Records"]
    having = records()
    with without(lab.conn, "posts_author_newest"):
        return having, records()


# --- why milliseconds ------------------------------------------------------------------------------------------------------

SAID = 4          # verdicts that are printed, of those there are


@dataclass(frozen=True)
class Scrolled:
    """A feed read to its end: `pages` of post ids, `verdicts` in words (empty: each post once and in order)."""
    pages: tuple[tuple[int, ...], ...]
    verdicts: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"page {i}: {' '.join(map(str, page))}" for i, page in enumerate(self.pages, 1)]
        lines += self.verdicts[:SAID] or ["every post once, newest first"]
        return "\n".join(lines + ([f"... and {len(self.verdicts) - SAID} more"] if len(self.verdicts) > SAID else []))

    __repr__ = __str__


# posts 1 to n, 100 microseconds apart, in ten to a millisecond
_COLUMNS = {
    "microseconds": ("timestamptz", "to_timestamp({now} / 1000.0) + g * interval '100 microseconds'", "to_timestamp(%(ms)s / 1000.0)",
                     "floor(extract(epoch from at) * 1000)::bigint"),
    "milliseconds": ("bigint", "{now} + g / 10", "%(ms)s", "at"),
}


def cursor_over(lab: Lab, column: str, posts: int = 16, limit: int = 4) -> Scrolled:
    """Scroll `posts` posts, 100 microseconds apart, with the cursor createdAtMillis:postId, over a column of `microseconds`
    (timestamptz, as the design is usually printed) or `milliseconds` (bigint, ours). A table of its own, rolled back.

    Raises BadInput for another column.
    """
    if column not in _COLUMNS:
        raise BadInput(f"a column counts in {' or '.join(_COLUMNS)}, got {column!r}")
    kind, made, bound, spelled = _COLUMNS[column]
    pages: list[tuple[int, ...]] = []
    with lab.conn.transaction(force_rollback=True):
        lab.conn.execute(f"create table scrolled (id bigint primary key, at {kind} not null)")
        lab.conn.execute(f"insert into scrolled select g, {made.format(now=NOW)} from generate_series(1, {int(posts)}) g")
        ms, last = START
        while len(pages) <= posts:
            rows = lab.conn.execute(
                f"select id, {spelled} from scrolled where (at, id) < ({bound}, %(id)s) order by at desc, id desc limit %(limit)s",
                {"ms": min(ms, 10**14), "id": last, "limit": limit}).fetchall()        # timestamptz ends before 2^53 milliseconds
            if not rows:
                break
            pages.append(tuple(i for i, _ in rows))
            last, ms = rows[-1]
    return Scrolled(tuple(pages), verdicts(pages, range(posts, 0, -1)))


def verdicts(pages, wanted) -> tuple[str, ...]:
    """What is wrong with a scroll, a sentence a post: `wanted` is what should have been read, in order. Posts beyond it are let be.

    >>> verdicts([[5, 4], [4, 2, 3]], [5, 4, 3, 2, 1])
    ('page 2 repeats post 4', 'page 2 shows post 3 after post 2', 'post 1 is missing: the scroll ends above it')
    """
    said, seen, wanted = [], set(), list(wanted)
    place, last = {post: i for i, post in enumerate(wanted)}, None
    for number, page in enumerate(pages, 1):
        for post in page:
            if post in seen:
                said.append(f"page {number} repeats post {post}")
            elif post in place:
                if last is not None and place[post] < place[last]:
                    said.append(f"page {number} shows post {post} after post {last}")
                last = post
            seen.add(post)
    for post in wanted:
        if post not in seen:
            below = [n for n, page in enumerate(pages, 1) if any(place.get(p, -1) > place[post] for p in page)]
            said.append(f"post {post} is missing: " + (f"page {below[0]} passes over it" if below else "the scroll ends above it"))
    return tuple(said)


# --- why the score is a time ----------------------------------------------------------------------------------------------

def one_millisecond(lab: Lab, n: int = PER_MS) -> list[int]:
    """Ids of n posts of one node in one millisecond, in order: a generator of this namespace's node with its clock held still."""
    now = lab.ids.next()[1]
    still = Snowflake(lab.ids.node, clock=lambda: now)
    return [still.next()[0] for _ in range(min(n, PER_MS))]


def as_scores(lab: Lab, ids: list[int]) -> list[float]:
    """The scores that Redis answers, in the order of `ids`, when each post is stored with its id as its score."""
    with _sorted_by_id(lab, ids) as key:
        return lab.redis.zmscore(key, [str(one) for one in ids])


@contextmanager
def _sorted_by_id(lab: Lab, ids: list[int]):
    """A sorted set of this namespace with each id as member and as score; gone afterwards."""
    key = f"{lab.names.namespace}:by-id"
    try:
        lab.redis.zadd(key, {str(one): one for one in ids})
        yield key
    finally:
        lab.redis.delete(key)


def scroll_by_id(lab: Lab, ids: list[int], limit: int = 20) -> Scrolled:
    """Scroll posts whose score is their id: the next page is what scores below the last post. Posts go by their sequence numbers."""
    pages, bound = [], "+inf"
    with _sorted_by_id(lab, ids) as key:
        while page := lab.redis.zrevrangebyscore(key, bound, "-inf", start=0, num=limit):
            pages.append(tuple(parts(int(m))[2] for m in page))
            bound = f"({page[-1]}"
    return _sequences(ids, pages)


def scroll_by_ms(lab: Lab, ids: list[int], limit: int = 20) -> Scrolled:
    """The same posts in one of our timelines, scored by their millisecond, the tie decided by the id in the member."""
    key, pages, before = lab.names.feed(0), [], START
    entries = [Entry(parts(one)[0], one) for one in reversed(ids)]
    try:
        lab.redis.delete(key)
        token = timeline.begin(lab.redis, key, building_s=30)
        timeline.complete(lab.redis, key, token, entries, len(entries), lab.reader.expiry())
        while page := timeline.get(lab.redis, key, before, limit).entries:
            pages.append(tuple(parts(e.id)[2] for e in page))
            before = page[-1]
    finally:
        lab.redis.delete(key)
    return _sequences(ids, pages)


def _sequences(ids: list[int], pages: list[tuple[int, ...]]) -> Scrolled:
    return Scrolled(tuple(pages), verdicts(pages, [parts(one)[2] for one in reversed(ids)]))


# --- figures -----------------------------------------------------------------------------------------------------------

def growth_figure(rows):
    """Pages touched as the table grows; `rows` as `growth` gives them."""
    sizes, having, lacking = zip(*rows, strict=True)
    fig = plots.figure(f"At {sizes[-1]:,} posts a page by pull touches {having[-1]:,} pages with the index, {lacking[-1]:,} without",
                       "posts in the table (log)", "8 kB pages touched (log)")
    for name, y, colour, dash, symbol in (("with posts_author_newest", having, plots.BLUE, "solid", "circle"),
                                          ("without it", lacking, plots.VERMILLION, "dot", "diamond")):
        fig.add_scatter(x=list(sizes), y=list(y), name=name, mode="lines+markers", line={"color": colour, "dash": dash},
                        marker={"symbol": symbol, "size": 9}, hovertemplate="%{y:,} pages at %{x:,} posts")
    return fig.update_xaxes(type="log", dtick=1).update_yaxes(type="log", dtick=1)


def questions_figure(found: dict[str, tuple[Plan, Plan]]):
    """Pages touched for each question, with its index and without, as `all_with_and_without` gives them."""
    names = list(found)
    worst = max(names, key=lambda n: found[n][1].buffers / found[n][0].buffers)
    times = found[worst][1].buffers / found[worst][0].buffers
    fig = plots.figure(f"Without its index “{worst}” touches {times:,.0f} times as much", "8 kB pages touched (log)", "")
    for label, which, colour, shape in (("with the index", 0, plots.BLUE, ""), ("without", 1, plots.VERMILLION, "/")):
        values = [found[n][which].buffers for n in names]
        fig.add_bar(x=values, y=names, orientation="h", name=label, text=[f"{v:,}" for v in values], textposition="outside",
                    cliponaxis=False, marker={"color": colour, "pattern": {"shape": shape}}, hovertemplate="%{y}: %{x:,} pages")
    top = max(p.buffers for pair in found.values() for p in pair)
    return fig.update_yaxes(autorange="reversed", ticks="", showgrid=False).update_layout(height=420, bargap=0.25).update_xaxes(
        type="log", dtick=1, range=[0, len(str(top)) + 0.3])


def scores_figure(ids: list[int], scores: list[float]):
    """Posts of one millisecond and the score that each got: stairs. `ids` and `scores` in the same order."""
    first, different = ids[0], len(set(scores))
    fig = plots.figure(f"{len(ids):,} posts of one millisecond have {different:,} different scores",
                       "sequence number of the post in its millisecond", "distance from the first id")
    n = [parts(one)[2] for one in ids]
    fig.add_scatter(x=n, y=[one - first for one in ids], name="id", mode="lines", line={"color": plots.GREY, "dash": "dot"})
    fig.add_scatter(x=n, y=[int(s) - first for s in scores], name="score that Redis keeps", mode="lines",
                    line={"color": plots.BLUE, "shape": "hv"})
    return fig
