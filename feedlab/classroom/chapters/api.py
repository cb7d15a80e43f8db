"""Notebook 03: the API as a client meets it: retries with a key, cursors against offsets, cursors that are none."""
import http.client
import json
import logging
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote, urlencode, urlsplit

from ... import pull
from ...core.codec import Names
from ...core.model import START, Entry
from ...draw import plots
from ...errors import EngineDown
from ...http import app
from ...lab.session import Lab
from ...textbook import reader as t_reader
from . import data_model
from .data_model import Scrolled, verdicts

# --- servers and clients --------------------------------------------------------------------------------------------------

def serve(b, textbook: bool = False) -> str:
    """The HTTP API on the notebook's namespace, on a free port of this machine, until `b.end()`. Returns its URL.

    `textbook`: with the article's reader and its cursor behind the same routes.
    """
    return b.stack.enter_context((in_thread_textbook if textbook else app.in_thread)(b.settings, b.addresses))


class TextbookReader(t_reader.Reader):
    """The article's reader with the signature that the route calls; it knows nothing of one's own posts. Its feeds are apart from ours,
    whose floor it would trip over."""

    def __init__(self, settings):
        super().__init__(settings)
        self.names = Names(f"{settings.namespace}:textbook")

    def page(self, conn, r, user, cursor=None, limit=20, own=False):
        return super().page(conn, r, user, cursor, limit)


@contextmanager
def in_thread_textbook(settings, addresses):
    """As `api.in_thread`, with the article's reader. What it would log of its errors is dropped: they are what is looked at."""
    made = app.server(settings, addresses, port=0)
    thread = threading.Thread(target=made.run, daemon=True, name="textbook serve")
    log, quiet = logging.getLogger("feedlab.http.app"), logging.NullHandler()
    log.addHandler(quiet)
    before, log.propagate = log.propagate, False
    thread.start()
    try:
        until = time.monotonic() + 20
        while not made.started:
            if not thread.is_alive() or time.monotonic() > until:
                raise EngineDown("the API did not start. Is another program using every port?")
            time.sleep(0.01)
        made.config.app.state.feedlab.reader = TextbookReader(settings)
        yield f"http://127.0.0.1:{made.servers[0].sockets[0].getsockname()[1]}"
    finally:
        made.should_exit = True
        thread.join(20)
        log.removeHandler(quiet)
        log.propagate = before


@dataclass(frozen=True)
class Answer:
    """What the server said. `body`: the JSON, {} for none."""
    status: int
    body: dict

    def __repr__(self) -> str:
        if self.status >= 400:
            return f"{self.status} {self.body.get('detail', '')}"
        return f"{self.status} {json.dumps(self.body, ensure_ascii=False)}"


class Client:
    """One user's requests, each on a connection of its own.

        ada = Client(url, user=7)
        ada.post("hello", key="a1").body["id"]
    """

    def __init__(self, url: str, user):
        self.where, self.user = urlsplit(url), str(user)

    def ask(self, method: str, path: str, body: dict | None = None, headers: dict | None = None) -> Answer:
        """One request. Raises OSError when no server answers."""
        conn = http.client.HTTPConnection(self.where.hostname, self.where.port, timeout=30)
        try:
            sent = {"X-User-Id": self.user, "Content-Type": "application/json"} | (headers or {})
            conn.request(method, path, None if body is None else json.dumps(body), sent)
            answer = conn.getresponse()
            raw = answer.read()
            return Answer(answer.status, json.loads(raw) if raw else {})
        finally:
            conn.close()

    def post(self, content: str, key: str | None = None) -> Answer:
        """Write a post, with an Idempotency-Key or without."""
        return self.ask("POST", "/api/posts", {"content": content}, {} if key is None else {"Idempotency-Key": key})

    def delete(self, post) -> Answer:
        return self.ask("DELETE", f"/api/posts/{post}")

    def follow(self, user) -> Answer:
        return self.ask("PUT", f"/api/follows/{quote(str(user))}")

    def feed(self, cursor: str | None = None, limit: int = 20, **more) -> Answer:
        """A page of the feed; `more` are further parameters of the query, such as include="self"."""
        asked = {"limit": limit} | ({} if cursor is None else {"cursor": cursor}) | more
        return self.ask("GET", "/api/feed?" + urlencode(asked))


# --- retries ------------------------------------------------------------------------------------------------------------

def retried(client: Client, content: str, key: str | None, n: int = 5) -> list[Answer]:
    """The same post sent n times at once, as by a client that has had no answer and tries again while the first try is on its way."""
    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(lambda _: client.post(content, key), range(n)))


def posts_of(lab: Lab, user, content: str) -> int:
    """Posts of a user with this text, as SQL has them."""
    return lab.conn.execute("select count(*) from posts where author_id = %s and content = %s", (int(user), content)).fetchone()[0]


# --- cursor against offset ---------------------------------------------------------------------------------------------------

# The page by number, as one would write it first. The best that can be said for it: each author's range ends at the offset.
OFFSET_PAGE = """
    select p.created_at_ms, p.id from follows f cross join lateral (
        select created_at_ms, id from posts where author_id = f.followee_id and not deleted
        order by created_at_ms desc, id desc limit %(offset)s::int + %(limit)s::int) p
    where f.follower_id = %(user)s order by p.created_at_ms desc, p.id desc limit %(limit)s offset %(offset)s"""


@dataclass(frozen=True)
class Pagers:
    """Two scrolls of one feed while it changed. Posts go by number, 1 the oldest."""
    offset: Scrolled
    cursor: Scrolled

    @property
    def repeats(self) -> tuple[int, int]:
        """How often a post was shown again: (by offset, by cursor)."""
        return tuple(sum(n - 1 for n in Counter(p for page in s.pages for p in page).values()) for s in (self.offset, self.cursor))

    @property
    def missing(self) -> tuple[int, int]:
        return tuple(sum("missing" in v for v in s.verdicts) for s in (self.offset, self.cursor))

    def __str__(self) -> str:
        return f"by offset\n{_indented(self.offset)}\nby cursor\n{_indented(self.cursor)}"

    __repr__ = __str__


def _indented(s: Scrolled) -> str:
    return "\n".join("  " + line for line in str(s).splitlines())


def scroll_while(lab: Lab, reader: Client, author: Client, posts: int = 20, limit: int = 5, new: int = 3, gone: int = 0) -> Pagers:
    """The author writes `posts` posts; the reader, who follows nobody else, scrolls them by cursor (over HTTP) and by offset (SQL),
    page by page in turns. After each page the author writes `new` posts, and deletes the `gone` newest of those that were seen.

    Each scroll is judged against what was there when it began.
    """
    numbers: dict[str, int] = {}

    def write(n: int) -> None:
        for _ in range(n):
            numbers[author.post(f"post {len(numbers) + 1}").body["id"]] = len(numbers) + 1
    write(posts)
    wanted, by_cursor, by_offset, seen = list(range(posts, 0, -1)), [], [], []
    cursor, more = None, True
    while more:
        if cursor is not None or not by_cursor:
            page = reader.feed(cursor, limit).body
            cursor = page["nextCursor"]
            by_cursor.append(tuple(numbers[i["id"]] for i in page["items"]))
            seen += [i["id"] for i in page["items"]]
        rows = lab.conn.execute(OFFSET_PAGE, {"user": int(reader.user), "limit": limit, "offset": limit * len(by_offset)}).fetchall()
        by_offset += [tuple(numbers[str(i)] for _, i in rows)] if rows else []
        more = bool(rows) or cursor is not None
        if cursor is not None:                   # while the cursor's reader is on the way; then nothing changes any more
            write(new)
            for post in seen[:gone]:
                author.delete(post)
            seen = seen[gone:]
    return Pagers(Scrolled(tuple(by_offset), verdicts(by_offset, wanted)), Scrolled(tuple(by_cursor), verdicts(by_cursor, wanted)))


def pagers_figure(p: Pagers):
    """Which post stood on which page, for both scrolls; what was shown before, or never, is marked."""
    fig = plots.figure(f"By page number: {p.repeats[0]} posts shown again, {p.missing[0]} never shown; by cursor {p.repeats[1]} and "
                       f"{p.missing[1]}", "page", "post, 1 the oldest")
    for name, scroll, shift, colour, symbol in (("by page number", p.offset, -0.12, plots.SKY, "square"),
                                                ("by cursor", p.cursor, 0.12, plots.BLUE, "circle")):
        seen: set[int] = set()
        points = {False: ([], []), True: ([], [])}                 # shown again? -> (x, y)
        for number, page in enumerate(scroll.pages, 1):
            for post in page:
                points[post in seen][0].append(number + shift)
                points[post in seen][1].append(post)
                seen.add(post)
        for again, (x, y) in points.items():
            if x:
                fig.add_scatter(x=x, y=y, name=f"{name}, shown again" if again else name, mode="markers",
                                marker={"symbol": "x" if again else symbol, "size": 9, "color": plots.VERMILLION if again else colour},
                                hovertemplate="post %{y}")
    return fig.update_xaxes(dtick=1)


def long_feed(lab: Lab, user: int, authors: int = 10, each: int = 1_000) -> None:
    """The user follows `authors` new users, each with `each` posts, in turns. Straight into SQL."""
    first = 10**9
    with lab.conn.transaction():
        lab.conn.execute("insert into users select %s + g, 'author' from generate_series(1, %s) g", (first, authors))
        lab.conn.execute("insert into follows select %s, %s + g from generate_series(1, %s) g", (user, first, authors))
        lab.conn.execute("insert into posts (id, author_id, created_at_ms, content) select %(f)s + g, %(f)s + 1 + g %% %(a)s, "
                         "%(now)s + g, 'post' from generate_series(1, %(n)s) g",
                         {"f": first, "a": authors, "now": data_model.NOW, "n": authors * each})
    lab.conn.execute("vacuum analyze posts")
    lab.conn.execute("vacuum analyze follows")


def depth(lab: Lab, user: int, pages=(1, 5, 20, 50), limit: int = 20) -> dict[int, tuple[int, int]]:
    """Rows that PostgreSQL reads for page n of a user's feed: {n: (by offset, by cursor)}. The cursor is that of the page before."""
    found = {}
    for n in pages:
        before = START
        if n > 1:
            args = {"user": user, "limit": limit * (n - 1), "offset": 0}
            before = Entry(*lab.conn.execute(OFFSET_PAGE, args).fetchall()[-1])
        offset = data_model.explain(lab.conn, OFFSET_PAGE, {"user": user, "limit": limit, "offset": limit * (n - 1)})
        cursor = data_model.explain(lab.conn, pull.PAGE, {"user": user, "ms": before.ms, "id": before.id, "limit": limit, "own": False})
        found[n] = offset.rows, cursor.rows
    return found


def depth_figure(found: dict[int, tuple[int, int]]):
    """`depth` as two lines."""
    pages = list(found)
    offset, cursor = zip(*found.values(), strict=True)
    fig = plots.figure(f"Page {pages[-1]} reads {offset[-1]:,} rows by offset, {cursor[-1]:,} by cursor", "page of the feed", "rows read")
    for name, y, colour, dash, symbol in (("by offset", offset, plots.VERMILLION, "dot", "diamond"),
                                          ("by cursor", cursor, plots.BLUE, "solid", "circle")):
        fig.add_scatter(x=pages, y=list(y), name=name, mode="lines+markers", line={"color": colour, "dash": dash},
                        marker={"symbol": symbol, "size": 9}, hovertemplate="%{y:,} rows for page %{x}")
    return fig.update_yaxes(rangemode="tozero")


# --- what is no cursor ----------------------------------------------------------------------------------------------------------

def statuses(client: Client, cursors) -> dict[str, int]:
    """What the server answers to each of these cursors."""
    return {cursor: client.feed(cursor).status for cursor in cursors}


def statuses_figure(by_system: dict[str, dict[str, int]]):
    """How many cursors got which status, a bar a system. `by_system`: name -> `statuses`."""
    names = list(by_system)
    right = Counter(by_system[names[0]].values())
    fig = plots.figure(f"{names[0]}: {right[400]} of {sum(right.values())} malformed cursors are a 400", "cursors", "")
    for status, colour, shape in ((400, plots.BLUE, ""), (200, plots.ORANGE, "/"), (500, plots.VERMILLION, "x")):
        counts = [Counter(by_system[n].values())[status] for n in names]
        fig.add_bar(x=counts, y=names, orientation="h", name=f"{status}", text=[c or "" for c in counts],
                    insidetextfont={"color": "white" if status == 400 else "black"},
                    marker={"color": colour, "pattern": {"shape": shape}}, hovertemplate="%{y}: %{x} are a " + str(status))
    return fig.update_layout(barmode="stack", height=240).update_yaxes(autorange="reversed", ticks="", showgrid=False)
