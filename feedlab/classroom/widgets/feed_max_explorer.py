"""The FEED_MAX explorer: what a longer feed costs in memory, what a shorter one costs the reader who scrolls."""
import time

import numpy as np
import plotly.graph_objects as go

from ... import db, timeline
from ...core import cost
from ...core.model import Entry
from ...core.snowflake import wall_clock_ms
from ...draw import plots
from ...reader import LIMIT
from .base import MEASURED, NOW, Frame, two_panels

SIZES = [20, 40, 60, 80, 100, 115, 116, 128, 140, 160, 200, 250, 300, 400, 500, 600, 800, 1_000]
LIMITS = [0, 64, 128, 256, 512]
DEPTHS = [1.5, 2, 3, 5, 8, 12, 20, 35]       # pages a visit, mean
READER, AUTHOR = 1, 2


def share_below_floor(feed_max: int, pages_a_visit: float, limit: int = LIMIT) -> float:
    """Share of all pages that reach below the floor of a feed of FEED_MAX entries, when a reader asks for one more page with the same
    chance after each (so that a visit has `pages_a_visit` in the mean, geometric): page n is read by p^(n-1), and pages beyond
    FEED_MAX / limit go below.

    >>> round(share_below_floor(500, 5), 4), share_below_floor(20, 1)
    (0.0038, 0.0)
    """
    p = 1 - 1 / pages_a_visit
    return p ** (feed_max // limit) if p > 0 else 0.0


def feed_bytes(size: int, layout: str, limit: int) -> float:
    """Bytes of a feed in use: cut to FEED_MAX = `size`, after it had grown by its slack and one (see core.cost; it never shrinks back)."""
    return cost.timeline_bytes(size, layout, limit, most=size + timeline.slack(size) + 1)


class FeedMaxExplorer(Frame):
    kind, height = "max", 400
    title = "FEED_MAX explorer"
    hint = ("A feed keeps its newest FEED_MAX entries (trimmed at 10 % more); at or below its floor SQL answers. A set that has never "
            "had more members than the encoding limit is one small block (listpack), else a skiplist: the cliff.")

    def __init__(self, b):
        super().__init__(b)
        self.probes: dict[int, dict] = {}
        self.feed_max = self.slider("FEED_MAX (entries)", SIZES, 500, self.on_feed_max, "{:,}".format)
        self.limit = self.slider("encoding limit", LIMITS, 128, self.on_limit, "{:,}".format)
        self.depth = self.slider("pages a visit (mean)", DEPTHS, 5, self.on_depth, "{:g}".format)
        self.probe = self.button("Probe this FEED_MAX", self.on_probe, "Build such a feed in Redis and measure it", main=True)
        self.show([self.feed_max, self.limit, self.depth], [self.probe])
        self.redraw()

    # --- handlers -----------------------------------------------------------------------------------------------------------

    def on_feed_max(self, value: int) -> None:
        if value != self.feed_max.value:
            self.feed_max.value = value
            return
        self.redraw()

    def on_limit(self, value: int) -> None:
        if value != self.limit.value:
            self.limit.value = value
            return
        self.redraw()

    def on_depth(self, value: float) -> None:
        if value != self.depth.value:
            self.depth.value = value
            return
        self.redraw()

    def on_probe(self) -> None:
        self.task(self._probe, self.feed_max.value)

    def _probe(self, feed_max: int) -> None:
        """A feed in use: built from SQL by a reader, then delivered to until it is cut. Its bytes; pages above and below its floor."""
        self.say(f"building a feed of {feed_max:,} entries")
        lab, more = self.own_lab(), timeline.slack(feed_max) + 1
        db.set_knobs(lab.conn, feed_max=feed_max)
        lab.conn.execute("insert into users values (%s, 'reader'), (%s, 'author') on conflict do nothing", (READER, AUTHOR))
        lab.conn.execute("insert into follows values (%s, %s) on conflict do nothing", (READER, AUTHOR))
        lab.conn.execute("delete from posts")
        first, key, names = lab.ids.next()[0], lab.names.feed(READER), lab.names
        posts = [Entry(wall_clock_ms() - 3_600_000 + n, first + n) for n in range(feed_max + 2 * LIMIT + more)]
        self._write(posts[:-more])
        lab.redis.delete(key)
        lab.page(READER)                                # no feed is there: the reader rebuilds it
        self._write(posts[-more:])
        pipe = lab.redis.pipeline(transaction=False)
        pipe.hset(names.progress, "probe", "0")
        for entry in posts[-more:]:
            timeline.deliver(pipe, names, ("probe", "0", "0"), [key], [entry], feed_max)
        pipe.execute()
        size, encoding = lab.redis.memory_usage(key, samples=0), lab.redis.object("encoding", key)
        entries = timeline.get(lab.redis, key).entries
        self.say("reading above and below the floor")
        above, below, cursor = [], [], f"{entries[-1].ms}:{entries[-1].id}"
        for _ in range(15):                             # side by side, so that a busy machine slows both
            if self.ending.is_set():
                return
            began = time.perf_counter()
            warm = lab.page(READER)
            middle = time.perf_counter()
            deep = lab.page(READER, cursor)
            below.append(time.perf_counter() - middle)
            above.append(middle - began)
        limit = int(lab.redis.config_get("zset-max-listpack-entries")["zset-max-listpack-entries"])
        self.probes[feed_max] = {
            "bytes": size, "encoding": encoding, "limit": limit, "entries": len(entries), "above_ms": 1000 * sorted(above)[7],
            "below_ms": 1000 * sorted(below)[7], "above_sql": warm.explain.sql_queries, "below_sql": deep.explain.sql_queries,
            "fell_below": deep.explain.below_floor, "layout": cost.layout_of(lab.redis.info("server").get("server_name", "redis"))}
        p = self.probes[feed_max]
        self.tell(f"A feed of {len(entries):,} entries takes {size:,} bytes as {encoding}. A page below its floor took {p['below_sql']} "
                  f"SQL queries and {p['below_ms']:.1f} ms; one above {p['above_sql']} and {p['above_ms']:.1f} ms.")
        self.redraw()

    def _write(self, posts: list[Entry]) -> None:
        self.lab.conn.execute("insert into posts (id, author_id, content, created_at_ms) select i, %s, 'post', ms from "
                              "unnest(%s::bigint[], %s::bigint[]) p (i, ms)", (AUTHOR, [e.id for e in posts], [e.ms for e in posts]))

    # --- what is shown ----------------------------------------------------------------------------------------------------------

    def redraw(self) -> None:
        self.draw(self._chart())
        self.info.value = self._table()

    def _chart(self) -> go.Figure:
        size, limit, depth = self.feed_max.value, self.limit.value, self.depth.value
        here, share = feed_bytes(size, "valkey-9.1", limit), share_below_floor(size, depth)
        fig = two_panels(f"FEED_MAX {size:,}: {here / 1000:.3g} KB a feed, {share:.2%} of pages fall below the floor",
                         "FEED_MAX (entries)", "KB a feed", "pages below the floor")
        xs = sorted({*range(10, 1_001, 10), *range(110, 120)})
        for name, colour, dash in (("redis-7.0", plots.ORANGE, "dash"), ("valkey-9.1", plots.BLUE, "solid")):
            fig.add_scatter(x=xs, y=[round(feed_bytes(x, name, limit) / 1000, 3) for x in xs], mode="lines", name=f"model, {name}",
                            line={"color": colour, "dash": dash, "width": 2.5}, hovertemplate="%{y:.1f} KB at FEED_MAX %{x}")
        fig.add_scatter(x=[size], y=[round(here / 1000, 3)], mode="markers", name="now", marker=NOW)
        if self.probes:
            fig.add_scatter(x=list(self.probes), y=[p["bytes"] / 1000 for p in self.probes.values()], mode="markers", name="measured",
                            marker=MEASURED)
        right, xs = {"xaxis": "x2", "yaxis": "y2", "showlegend": False}, list(range(20, 1_001, 20))
        fig.add_scatter(x=xs, y=plots.rounded(np.array([share_below_floor(x, depth) for x in xs])), mode="lines", name="below the floor",
                        line={"color": plots.BLUE, "width": 2.5, "shape": "hv"}, hovertemplate="%{y:.2%} at FEED_MAX %{x}", **right)
        fig.add_scatter(x=[size], y=[float(f"{share:.4g}")], mode="markers", name="now", marker=NOW, **right)
        return fig.update_layout(yaxis2_tickformat=".0%")

    def _table(self) -> str:
        size, limit, depth = self.feed_max.value, self.limit.value, self.depth.value
        sheet, share = cost.Sheet(), share_below_floor(size, depth)
        rows = []
        for name in cost.LAYOUTS:
            one = feed_bytes(size, name, limit)
            rows.append((f"model, {name}", f"{one:,.0f} B", f"{one / size:.0f} B", f"{one * sheet.feeds / 1e12:.1f} TB", f"{share:.2%}",
                         "+1 SQL query"))
        probe = self.probes.get(size)
        if probe:
            extra = probe["below_sql"] - probe["above_sql"]
            rows.append((f"measured here ({probe['encoding']})", f"{probe['bytes']:,} B", f"{probe['bytes'] / size:.0f} B",
                         f"{probe['bytes'] * sheet.feeds / 1e12:.1f} TB", "",
                         f"+{extra} SQL {'query' if extra == 1 else 'queries'}, x{probe['below_ms'] / probe['above_ms']:.1f} time"))
        names = ("", "a feed", "an entry", "200 M feeds", "pages below the floor", "such a page costs")
        head = "".join(f"<th scope='col'>{h}</th>" for h in names)
        body = "".join("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in rows)
        if probe:
            model = feed_bytes(size, probe["layout"], probe["limit"])
            gauge = (f"measured on one feed at the engine's own limit of {probe['limit']}; the model's error there "
                     f"{(model - probe['bytes']) / probe['bytes']:+.1%} · 200 M feeds are that times 200 M, nothing else")
        else:
            gauge = "nothing measured at this FEED_MAX yet: press Probe"
        return f"<table class='fl'><tr>{head}</tr>{body}</table><div class='fl-gauge'>{gauge}</div>"

