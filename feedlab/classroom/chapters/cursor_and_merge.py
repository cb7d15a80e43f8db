"""Pages, cursors, ties and the merge, on live engines: section 8 of the article as a live run, what an offset does while posts arrive,
what ties and hidden posts do to a scroll. Posts are called by number, 1 for the first written.
"""
from collections.abc import Iterator, Sequence

import plotly.graph_objects as go

from ... import celebrities, db, posts, timeline
from ...core.codec import member
from ...core.model import Entry, Page
from ...core.snowflake import Drawn
from ...draw import plots
from ...errors import BadInput
from ...verify.histories import History
from ...verify.runner import Runner
from ..book import Book
from .exactness import runner

OFFSET = """
    select id from posts where not deleted and author_id in (select followee_id from follows where follower_id = %s)
    order by created_at_ms desc, id desc limit %s offset %s"""


# --- offset and cursor ------------------------------------------------------------------------------------------------------

def while_posts_arrive(book: Book, pages: int = 4, limit: int = 5, arriving: int = 2, first: int = 10) -> dict[str, list[list[int]]]:
    """Two scrolls side by side, one by offset in SQL, one by cursor; `arriving` posts are written between one page and the next.

    Users `first` (the reader) and `first + 1` (who writes). {"offset": pages of post numbers, "cursor": the same}.
    """
    lab, (reader, author) = book.open(), book.people(2, first)
    book.follow(reader, author)
    made = book.post(author, n=pages * limit)
    scrolls: dict[str, list[list[int]]] = {"offset": [], "cursor": []}
    cursor = None
    for n in range(pages):
        rows = lab.conn.execute(OFFSET, (reader, limit, n * limit)).fetchall()
        page = lab.page(reader, cursor, limit)
        number, cursor = numbers(made), page.next_cursor
        scrolls["offset"].append([number[i] for i, in rows])
        scrolls["cursor"].append([number[i] for i in page.ids])
        made += book.post(author, n=arriving)
        book.pump()
    return scrolls


def numbers(made: Sequence) -> dict[int, int]:
    """Post ids as 1, 2, 3 in the order in which they were written."""
    return {post.id: n for n, post in enumerate(made, 1)}


def repeats(pages: Sequence[Sequence[int]]) -> list[int]:
    """Post numbers that a scroll shows a second time."""
    seen: set[int] = set()
    again = []
    for post in (p for page in pages for p in page):
        if post in seen:
            again.append(post)
        seen.add(post)
    return again


def scrolls_figure(scrolls: dict[str, list[list[int]]]) -> go.Figure:
    """Each shown post by page and number; a post that was shown before is a cross."""
    said = ", ".join(f"{name} {len(repeats(pages))}" for name, pages in scrolls.items())
    fig = plots.figure(f"Posts shown twice: {said}", "page", "post number (higher is newer)")
    shift, colours = dict(zip(scrolls, (-0.08, 0.08), strict=False)), (plots.ORANGE, plots.BLUE)
    for (name, pages), colour in zip(scrolls.items(), colours, strict=False):
        seen: set[int] = set()
        x, y, symbols, sizes = [], [], [], []
        for n, page in enumerate(pages, 1):
            for post in page:
                x.append(n + shift.get(name, 0))
                y.append(post)
                symbols.append("x" if post in seen else "circle")
                sizes.append(13 if post in seen else 9)
                seen.add(post)
        fig.add_scatter(x=x, y=y, mode="markers", name=f"by {name} (cross: shown before)" if repeats(pages) else f"by {name}",
                        marker={"color": colour, "symbol": symbols, "size": sizes}, hovertemplate="post %{y}<extra>" + name + "</extra>")
    return fig.update_xaxes(dtick=1)


# --- section 8 ---------------------------------------------------------------------------------------------------------------

# (author, id, ms, pushed?): author 1 is always pushed, author 2 is over the threshold for posts 2 and 4
SECTION_8 = [(1, 1, 1000, True), (2, 2, 2000, False), (2, 3, 3000, True), (2, 4, 4000, False), (1, 5, 5000, True)]


def section_8(book: Book) -> dict[str, list[Entry]]:
    """The article's own example made live, with its ids and milliseconds: user 0 follows 1 (pushed) and 2, who crosses the threshold and
    comes back. What Redis holds then: {"pushed": feed of user 0, "pulled": recent posts of user 2}, newest first."""
    lab = book.open()
    book.people(3)
    book.follow(0, 1, 2)
    book.pump()
    lab.page(0)                                            # the feed exists before the first post
    for author, i, ms, push in SECTION_8:
        db.set_knobs(lab.conn, threshold=99 if push else 1)
        posts.create(lab.conn, Drawn((i, ms)), lab.names, author, f"post {i}")
        book.pump()
    lab.redis.delete(lab.names.celeb(2))                   # rebuilt from SQL, as after an eviction: now 3 is on both sides
    celebrities.ensure(lab.conn, lab.redis, lab.names, 2, lab.settings.feed_max, lab.settings.building_s, lab.settings.celeb_ttl_s)
    return {"pushed": timeline.get(lab.redis, lab.names.feed(0)).entries, "pulled": timeline.get(lab.redis, lab.names.celeb(2)).entries}


def lanes(sources: dict[str, list[Entry]], pages: Sequence[Page]) -> go.Figure:
    """Sources and pages on one time axis: what the merge draws from, what it makes, and where each cursor stands."""
    cursors = [p.next_cursor for p in pages if p.next_cursor]
    title = " then ".join(" ".join(str(i) for i in p.ids) for p in pages) + (f"; cursor {', '.join(cursors)}" if cursors else "")
    fig = plots.figure(title, "created at, ms (newest on the left)", "")
    rows = [(name, es, plots.GREY) for name, es in sources.items()]
    rows += [(f"page {n}", [post.entry for post in p.posts], plots.BLUE) for n, p in enumerate(pages, 1)]
    for name, es, colour in rows:
        fig.add_scatter(x=[e.ms for e in es], y=[name] * len(es), text=[str(e.id) for e in es], mode="markers+text",
                        showlegend=False, textfont={"color": "white"}, marker={"size": 26, "color": colour},
                        hovertemplate=name + ": post %{text} at %{x}<extra></extra>")
    for c in cursors:
        fig.add_vline(int(c.split(":")[0]), line={"color": plots.VERMILLION, "dash": "dash", "width": 2})
    order = [name for name, *_ in rows]
    return fig.update_xaxes(autorange="reversed").update_yaxes(categoryorder="array", categoryarray=order[::-1]) \
        .update_layout(height=300, margin={"l": 80})


# --- what the merge draws ------------------------------------------------------------------------------------------------------

def drawn(book: Book, celebs: int = 8, each: int = 40, limit: int = 20, first: int = 20) -> tuple[Page, dict[str, int]]:
    """A reader of one pushed author and `celebs` celebrities, who took turns with `each` posts: one page, and entries {"held": by all
    sources together, "drawn": by the merge}. Users `first` (the reader), then the authors."""
    lab, (reader, *authors) = book.open(), book.people(celebs + 2, first)
    book.follow(reader, *authors)
    book.pump()
    lab.page(reader)
    for threshold, some in ((99, authors[:1]), (1, authors[1:])):
        db.set_knobs(lab.conn, threshold=threshold)
        for turn in range(each):
            for author in some:
                i = 1_000 * first + turn * len(authors) + authors.index(author)      # in turns, whoever is written first
                posts.create(lab.conn, Drawn((i, 10_000 + i)), lab.names, author, "text")
        book.pump()
    page = lab.page(reader, limit=limit)
    return page, {"held": each * len(authors), "drawn": sum(page.explain.taken.values())}


def taken_figure(page: Page, counts: dict[str, int]) -> go.Figure:
    """Entries drawn from each kind of source, against all that were there."""
    taken = page.explain.taken
    return plots.bars(f"A page of {len(page.posts)} draws {counts['drawn']} entries of {counts['held']}",
                      ["there, in all lists", *(f"drawn from the {name}" if name == "feed" else f"drawn from {name}" for name in taken)],
                      [counts["held"], *taken.values()], "entries", measured=len(taken))


# --- ties and hidden posts, on both systems --------------------------------------------------------------------------------------

def scrolled(r: Runner, user: int, limit: int, most: int = 200) -> Iterator[Page]:
    """A scroll to the end on a runner's system. Raises BadInput when it does not end."""
    cursor = None
    for _ in range(most):
        page = r.lab.reader.page(r.lab.conn, r.lab.redis, user, cursor, limit)
        yield page
        if page.next_cursor is None:
            return
        cursor = page.next_cursor
    raise BadInput(f"the feed did not end after {most} pages")


def ties(book: Book, system: str, ties: int = 7, older: int = 20, limit: int = 3) -> list[list[int]]:
    """The pages that user 0 sees when the newest `ties` posts share one millisecond and `older` ones lie below, as post numbers."""
    with runner(book, system) as r:
        r.begin(History([], 2, [[0, 1]], feed_max=500))
        steps = [["page", 0, 50], *(s for _ in range(older) for s in (["tick", 10], ["post", 1])), ["tick", 10], ["burst", 1, ties]]
        for step in steps:
            r.do(step)
        r.drain()
        number = numbers(r.made)
        return [[number[i] for i in p.ids] for p in scrolled(r, 0, limit)]


def hidden(book: Book, system: str, visible: int = 15, deleted: int = 45, limit: int = 10) -> list[dict]:
    """The pages of user 0 when the newest `deleted` posts of the feed have just been deleted and `visible` older ones remain. The sweep
    has not run. One dict a page: posts (how many), hidden (entries that the filter took out), sql (queries asked)."""
    with runner(book, system) as r:
        r.begin(History([], 3, [[0, 1], [0, 2]], feed_max=500))
        r.do(["page", 0, 50])
        for author, n in ((1, visible), (2, deleted)):
            for _ in range(n):
                r.do(["tick", 10])
                r.do(["post", author])
        r.drain()
        for k in range(visible, visible + deleted):
            r.do(["delete", k])
        return [{"posts": len(p.posts), "hidden": p.explain.hidden, "sql": p.explain.sql_queries} for p in scrolled(r, 0, limit)]


def requests_to_first(pages: Sequence[dict]) -> int:
    """Pages that must be asked for until a post is seen."""
    return next((n for n, p in enumerate(pages, 1) if p["posts"]), len(pages))


def seen_figure(pages: dict[str, list[list[int]]], written: int) -> go.Figure:
    """Which of the posts each system's scroll showed, from the oldest to the newest."""
    counts = {name: len({p for page in ps for p in page}) for name, ps in pages.items()}
    title = ", ".join(f"{name} shows {n}" for name, n in counts.items()) + f" of {written} posts"
    fig = plots.figure(title, "post number (higher is newer)", "")
    for name, ps in pages.items():
        shown = {p: n for n, page in enumerate(ps, 1) for p in page}
        for there, symbol, colour in ((True, "circle", plots.BLUE), (False, "x-thin-open", plots.VERMILLION)):
            x = [p for p in range(1, written + 1) if (p in shown) is there]
            fig.add_scatter(x=x, y=[name] * len(x), mode="markers", showlegend=False,
                            marker={"symbol": symbol, "size": 11, "color": colour, "line": {"width": 2, "color": colour}},
                            text=[f"page {shown[p]}" if p in shown else "never shown" for p in x],
                            hovertemplate="post %{x}: %{text}<extra></extra>")
    return fig.update_layout(height=220, margin={"l": 80})


def lengths_figure(pages: dict[str, list[dict]]) -> go.Figure:
    """Posts on each page of a scroll, a group of bars a page."""
    empty = {name: sum(not p["posts"] for p in ps[:-1]) for name, ps in pages.items()}
    title = "Empty pages with a next page: " + ", ".join(f"{name} {n}" for name, n in empty.items())
    fig = plots.figure(title, "page", "posts on the page")
    for (name, ps), colour, shape in zip(pages.items(), (plots.ORANGE, plots.BLUE), ("/", ""), strict=False):
        counts = [p["posts"] for p in ps]
        fig.add_bar(x=list(range(1, len(ps) + 1)), y=counts, name=name, text=counts, textposition="outside", cliponaxis=False,
                    marker={"color": colour, "pattern": {"shape": shape}}, hovertemplate="page %{x}: %{y} posts<extra>" + name + "</extra>")
    return fig.update_xaxes(dtick=1).update_layout(barmode="group")


# --- members as text, and a cursor that a learner writes ----------------------------------------------------------------------------

def tie_order(book: Book, ids: Sequence[int] = (9, 10)) -> dict[str, list[int]]:
    """Redis's order, newest first, of posts that share a score: by members as the article writes them and as ours are."""
    lab, key, found = book.open(), f"{book.settings.namespace}:ties", {}
    for name, form in (("textbook", str), ("ours", member)):
        lab.redis.delete(key)
        lab.redis.zadd(key, {form(i): 5_000 for i in ids})
        found[name] = [int(m) for m in lab.redis.zrange(key, 0, -1, desc=True)]
    lab.redis.delete(key)
    return found


def scroll_where(book: Book, condition: str, ties: int = 7, older: int = 6, limit: int = 3, first: int = 40) -> list[list[int]]:
    """Scroll in SQL with a condition of the learner's for "older than the cursor", over `ties` posts in one millisecond and `older` ones
    below. The condition speaks of the columns created_at_ms and id and of the parameters %(ms)s and %(id)s. Raises BadInput.

    Runs in a transaction that is rolled back; at most 50 pages.
    """
    lab, (author,) = book.open(), book.people(1, first)
    rows = [(i, 1_000 + 10 * min(i, older + 1)) for i in range(1, older + ties + 1)]
    pages, before, at = [], {"ms": 2**53, "id": 2**63 - 1}, 10**6
    insert = "insert into posts (id, author_id, created_at_ms, content) values (%s, %s, %s, 'text')"
    try:
        with lab.conn.transaction(force_rollback=True):
            for i, ms in rows:
                lab.conn.execute(insert, (at + i, author, ms))
            while len(pages) < 50:
                found = lab.conn.execute(f"select created_at_ms, id from posts where author_id = %(author)s and ({condition}) "
                                         "order by created_at_ms desc, id desc limit %(limit)s",
                                         before | {"author": author, "limit": limit}).fetchall()
                pages.append([i - at for _, i in found])
                if len(found) < limit:
                    break
                before = {"ms": found[-1][0], "id": found[-1][1]}
    except (db.psycopg.Error, KeyError, TypeError) as e:
        raise BadInput(f"the condition cannot be used: {str(e).splitlines()[0]}. It is what stands after `where`, for example "
                       "created_at_ms < %(ms)s") from None
    return pages
