"""The feed microscope: one feed, its floor, its sources, and the merge."""

import plotly.graph_objects as go

from ... import follows, posts, pull, repair, timeline
from ...core import cursor as cursors
from ...core.model import NO_FLOOR, Entry, Page
from ...core.snowflake import wall_clock_ms
from ...draw import plots
from ...errors import BadInput
from ...reader import Reader
from .base import Frame

READER = 0
AUTHORS = {1: "Ana", 2: "Ben", 3: "Cem", 4: "Kim", 5: "Lea"}      # Kim and Lea are celebrities
CELEBRITIES = (4, 5)
CROWD = range(10, 14)                                             # who makes them so
THRESHOLD, FEED_MAX, MINUTE = 4, 10, 60_000
FIRST = [1, 2, 4, 3, 1, 2, 3, 5, 2, 1, 4, 3, 2, 5, 1, 4, 3, 2, 1, 5, 3, 2, 4, 1]      # who wrote the first posts, oldest first
COLOURS = {"feed in Redis": plots.BLUE, "SQL below": plots.GREY, "this page": plots.GREEN, "SQL answer": plots.GREY}
LIMITS = [2, 3, 4, 5, 6, 8]


class Watched(Reader):
    """Our reader, with a note of what the merge drew from each source."""

    def __init__(self, settings):
        super().__init__(settings)
        self.drawn: list[tuple[str, list[Entry]]] = []

    def _drawn(self, name, source, ex):
        noted: list[Entry] = []
        self.drawn.append((name, noted))

        def draw():
            for entry in Reader._drawn(self, name, source, ex):
                noted.append(entry)
                yield entry
        return draw()


class FeedMicroscope(Frame):
    kind, height = "micro", 540
    title = "Feed microscope"
    hint = (f"A reader follows three people and two celebrities (★), threshold {THRESHOLD} followers, FEED_MAX {FEED_MAX} and one of "
            "slack. Filled: drawn by the merge for this page. Hollow: there, not needed. Crossed: drawn, and hidden by the read filter.")

    def __init__(self, b):
        super().__init__(b)
        self.page: Page | None = None
        self.cursor: str | None = None
        self.reader: Watched | None = None
        self.limit = self.slider("posts a page", LIMITS, 4, self.on_limit)
        self.top = self.button("Read the top", self.on_top, "Page one", main=True)
        self.next = self.button("Next page", self.on_next, "From the cursor on")
        self.evict = self.button("Evict the feed", self.on_evict, "Redis loses it")
        self.rebuild = self.button("Rebuild the feed", self.on_rebuild, "From SQL, as a reader would")
        names = [(f"{n}{' ★' if a in CELEBRITIES else ''}", a) for a, n in AUTHORS.items()]
        self.author = self.choice("author", names, 1)
        self.write = self.button("Write", self.on_write, "The author writes a post")
        self.delete = self.button("Delete the newest", self.on_delete, "The author deletes the newest post")
        self.unfollow = self.button("Unfollow / follow", self.on_unfollow, "The reader unfollows the author, or follows again")
        self.deliver = self.check("deliver events at once", True, self.on_deliver)
        self.show([self.limit, self.top, self.next], [self.author, self.write, self.delete, self.unfollow],
                  [self.evict, self.rebuild, self.deliver])
        self.redraw()

    # --- handlers -----------------------------------------------------------------------------------------------------------

    def on_top(self) -> None:
        if self.reader is None:
            self.task(self._open)
        else:
            self.cursor = None
            self._read()

    def _open(self) -> None:
        with self.lock:
            self.say("making a small world")
            self._world()
            self._read()

    def _world(self) -> None:
        lab = self.own_lab(threshold=THRESHOLD, feed_max=FEED_MAX)
        reader = Watched(lab.settings)
        for user in (READER, *AUTHORS, *CROWD):
            posts.create_user(lab.conn, user, AUTHORS.get(user, f"user {user}"))
            posts.visit(lab.conn, user)
        for author in AUTHORS:
            for fan in (READER, *(CROWD if author in CELEBRITIES else ())):
                follows.follow(lab.conn, lab.redis, lab.names, fan, author)
        self.pump()
        reader.page(lab.conn, lab.redis, READER)       # the empty feed is there before the first post
        start = wall_clock_ms() - (len(FIRST) + 1) * MINUTE
        for n, author in enumerate(FIRST):
            posts.create(lab.conn, lab.ids, lab.names, author, f"post {n + 1}", created_at_ms=start + n * MINUTE)
        self.pump()
        self.reader = reader

    def on_next(self) -> None:
        self._there()
        if self.page is None or self.page.next_cursor is None:
            self.tell("The feed ends here: only the cursor says so." if self.page else "No page was read yet. Press Read the top.")
            return
        self.cursor = self.page.next_cursor
        self._read()

    def on_limit(self, value: int) -> None:
        if value != self.limit.value:
            self.limit.value = value
        elif self.reader is not None:
            self._read()

    def on_evict(self) -> None:
        self._there()
        self.lab.redis.delete(self.lab.names.feed(READER))
        self.page = None
        self.tell("Redis has no feed for this reader. Deliveries pass it by; the next read rebuilds it from SQL.")
        self.redraw()

    def on_rebuild(self) -> None:
        self._there()
        lab = self.lab
        lab.redis.delete(lab.names.feed(READER))
        repair.warm(lab.conn, lab.redis, lab.settings, [READER])
        self.page = None
        self.tell(f"The feed was built from SQL: the newest {FEED_MAX} of everybody followed, celebrities too. Its floor is the time of "
                  "the next one.")
        self.redraw()

    def on_write(self) -> None:
        self._there()
        lab, author = self.lab, self.author.value
        posts.create(lab.conn, lab.ids, lab.names, author, "a new post")
        self._after(f"{AUTHORS[author]} wrote a post.", top=True)

    def on_delete(self) -> None:
        self._there()
        lab, author = self.lab, self.author.value
        rows = pull.newest(lab.conn, [author], limit=1)
        if not rows:
            self.tell(f"{AUTHORS[author]} has no post left to delete. Write one.")
            return
        posts.delete(lab.conn, lab.names, author, rows[0].id)
        self._after(f"{AUTHORS[author]} deleted a post: no reader sees it from now on, whatever Redis still holds.")

    def on_unfollow(self) -> None:
        self._there()
        lab, author = self.lab, self.author.value
        if follows.unfollow(lab.conn, lab.redis, lab.names, READER, author):
            self._after(f"The reader unfollowed {AUTHORS[author]}. The feed was dropped and built again.")
        else:
            follows.follow(lab.conn, lab.redis, lab.names, READER, author)
            self._after(f"The reader follows {AUTHORS[author]} again. The feed was dropped and built again.")

    def on_deliver(self, at_once: bool) -> None:
        if at_once and self.reader is not None:
            self._after("Events are delivered at once.")
        elif self.reader is not None:
            self.tell("Events wait now: SQL knows what Redis does not, until you deliver again.")

    def _after(self, text: str, top: bool = False) -> None:
        if self.deliver.value:
            self.pump()
        if top:
            self.cursor = None
        self._read()
        waiting = self.waiting()
        self.tell(text + (f" {waiting} event{'s' * (waiting != 1)} wait." if waiting else ""))

    def _there(self) -> None:
        if self.reader is None:
            raise BadInput("no feed is open yet. Press Read the top.")

    # --- reading -------------------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        self.reader.drawn = []
        self.page = self.reader.page(self.lab.conn, self.lab.redis, READER, self.cursor, self.limit.value)
        self.tell("")
        self.redraw()

    def _right(self) -> bool:
        """Whether the page equals the SQL answer below the cursor."""
        before = cursors.parse(self.cursor)
        answer = [e.id for e in pull.everything(self.lab.conn, READER) if e < before]
        return self.page.ids == answer[:self.limit.value]

    # --- what is shown ----------------------------------------------------------------------------------------------------------

    def redraw(self) -> None:
        self.draw(self._chart())
        self.info.value = self._words()

    def _words(self) -> str:
        if self.page is None:
            return ""
        ex = self.page.explain
        drew = ", ".join(f"{n} from {name}" for name, n in ex.taken.items()) or "nothing"
        verdict = "equals the SQL answer" if self._right() else "differs from the SQL answer"
        events = self.waiting()
        if events and not self._right():
            verdict += f" ({events} events are on their way; drained, it will not)"
        return (f"<div class='fl-gauge'>This page <b>{verdict}</b>. Drawn: {drew}; hidden by the filter: {ex.hidden}; feed {ex.feed}; "
                f"Redis round trips {ex.redis_trips}, SQL queries {ex.sql_queries}{', below the floor' if ex.below_floor else ''}.</div>")

    def _chart(self) -> go.Figure:
        if self.reader is None:
            fig = plots.figure("No feed is open yet: press Read the top", "", "")
            return fig.update_xaxes(visible=False).update_yaxes(visible=False)
        lab = self.lab
        feed = timeline.get(lab.redis, lab.names.feed(READER))
        lanes: dict[str, list[Entry]] = {"feed in Redis": feed.entries}
        flagged = [a for a, in lab.conn.execute("select author_id from pull_flags where raised order by 1")]
        for a in flagged:
            lanes[f"{AUTHORS[a]}, pulled"] = timeline.get(lab.redis, lab.names.celeb(a)).entries
        drawn = {e for name, es in self.reader.drawn for e in es} if self.page else set()
        lanes["SQL below"] = [e for name, es in self.reader.drawn if name == "sql" for e in es] if self.page else []
        lanes["this page"] = [p.entry for p in self.page.posts] if self.page else []
        lanes["SQL answer"] = pull.everything(lab.conn, READER)
        return self._lanes(feed, lanes, drawn)

    def _lanes(self, feed, lanes: dict[str, list[Entry]], drawn: set[Entry]) -> go.Figure:
        everyone = sorted({e for es in lanes.values() for e in es}, reverse=True)
        y = {e: n for n, e in enumerate(everyone)}
        author = dict(self.lab.conn.execute("select id, author_id from posts where id = any(%s)", ([e.id for e in everyone],)).fetchall())
        number = {i: n for n, i in enumerate(sorted(i for i, in self.lab.conn.execute("select id from posts")), 1)}
        truth = set(lanes["SQL answer"])
        n = len(self.page.posts) if self.page else 0
        floor = "no floor" if feed.floor == NO_FLOOR else "a floor"
        head = "Redis has no feed" if not feed.exists else f"The feed holds {len(feed.entries)} entries and {floor}"
        fig = plots.figure(f"{head}; {f'a page of {n} was merged' if self.page else 'no page was read'}", "", "")
        for x, (lane, entries) in enumerate(lanes.items()):
            colour = COLOURS.get(lane, plots.ORANGE)
            full = [e in drawn or lane == "this page" for e in entries]
            hidden = [e in drawn and e not in truth for e in entries]
            label = [f"{AUTHORS[author[e.id]][0]}{number[e.id]}" for e in entries]
            fig.add_scatter(
                x=[x] * len(entries), y=[y[e] for e in entries], mode="markers+text", name=lane, showlegend=False, text=label,
                textposition="middle right", cliponaxis=False, hovertemplate="%{text}<extra>" + lane + "</extra>",
                marker={"size": 13, "color": colour, "line": {"width": 2, "color": colour},
                        "symbol": ["x" if h else "circle" if f and lane != "SQL answer" else "circle-open"
                                   for f, h in zip(full, hidden, strict=True)]})
        shapes = []
        if feed.exists and feed.floor not in (None, NO_FLOOR):
            at = sum(e.ms > feed.floor for e in everyone) - 0.5
            shapes.append({"type": "line", "x0": -0.3, "x1": 0.62, "y0": at, "y1": at, "line": {"color": plots.VERMILLION, "width": 4}})
            fig.add_annotation(x=0.62, y=at, text="floor", showarrow=False, xanchor="left", font={"color": plots.VERMILLION})
        if self.cursor:
            before = cursors.parse(self.cursor)
            at = sum(e >= before for e in everyone) - 0.5
            shapes.append({"type": "line", "x0": -0.4, "x1": len(lanes) - 0.4, "y0": at, "y1": at,
                           "line": {"color": plots.PURPLE, "width": 2, "dash": "dash"}})
            fig.add_annotation(x=len(lanes) - 0.4, y=at, text="cursor", showarrow=False, xanchor="left", font={"color": plots.PURPLE})
        fig.update_layout(shapes=shapes, margin={"l": 20, "r": 60, "b": 10})
        fig.update_xaxes(tickvals=list(range(len(lanes))), ticktext=list(lanes), side="top", range=[-0.5, len(lanes) - 0.3], showgrid=False,
                         ticks="")
        return fig.update_yaxes(range=[len(everyone) - 0.3, -0.7], showticklabels=False, showgrid=False, ticks="")
