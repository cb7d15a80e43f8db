"""Notebook 01: the estimation sheet of section 2, and its figures held against what the engines on this machine take."""
import time
from dataclasses import dataclass, replace

import numpy as np

from ... import posts, timeline
from ...core import cost
from ...core.codec import Names
from ...core.cost import Sheet
from ...core.model import Entry
from ...draw import plots
from ...lab.graph import Graph
from ...lab.session import Lab
from ...lab.world import Activity

TB = 1e12


# --- the sheet --------------------------------------------------------------------------------------------------------------

def rows(sheet: Sheet = Sheet()) -> list[tuple[str, str, str]]:
    """The sheet as (quantity, figure, how it is made), in the order in which one writes it on a board.

    >>> rows()[1]
    ('feed reads', '35 K a second, 104 K at the peak', '300 M users x 10 a day / 86,400 s')
    """
    s = sheet
    return [
        ("daily users", big(s.users), "given"),
        ("feed reads", f"{big(s.reads_a_second)} a second, {big(s.peak_reads_a_second)} at the peak",
         f"{big(s.users)} users x {s.reads:g} a day / {cost.DAY:,} s"),
        ("posts", f"{big(s.posts_a_second)} a second, {big(s.peak_posts_a_second)} at the peak",
         f"{big(s.users)} users x {s.posts:g} a day"),
        ("reads to posts", f"{s.reads_a_post:.3g} : 1", f"{s.reads:g} / {s.posts:g}"),
        ("feed writes, all pushed", f"{big(s.feed_writes_a_day)} a day, {big(s.feed_writes_a_second)} a second",
         f"{big(s.posts_a_day)} posts x {s.followers:g} followers"),
        ("one post of the largest account", f"{big(s.largest)} feed writes", "one a follower"),
        ("memory of the feeds", f"{s.redis_bytes / TB:.3g} TB", f"{big(s.feeds)} feeds x {s.feed_max} entries x {s.entry_bytes:g} B"),
    ]


def big(x: float) -> str:
    """A number as one says it.

    >>> big(45e9), big(1736), big(300e6), big(12)
    ('45 G', '1.7 K', '300 M', '12')
    """
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("K", 1e3)):
        if abs(x) >= size:
            n = x / size
            return f"{n:.0f} {unit}" if n >= 10 else f"{n:.2g} {unit}"
    return f"{x:.3g}"


class Table:
    """`rows` as a table, in a notebook and as text."""

    def __init__(self, rows: list[tuple[str, str, str]]):
        self.rows = rows

    def __repr__(self) -> str:
        wide = [max(len(r[i]) for r in self.rows) for i in range(2)]
        return "\n".join(f"{q:{wide[0]}}  {f:{wide[1]}}  {how}" for q, f, how in self.rows)

    def _repr_html_(self) -> str:
        from html import escape
        cell = "<td style='text-align:left'>{}</td>".format
        body = "".join("<tr>" + "".join(cell(escape(x)) for x in row) + "</tr>" for row in self.rows)
        return f"<table><tr><th>quantity</th><th>figure</th><th>made of</th></tr>{body}</table>"


def show(sheet: Sheet = Sheet()) -> Table:
    """The sheet, to be the last line of a cell."""
    return Table(rows(sheet))


def _steps(least: int, most: int) -> list[float]:
    """1, 2, 3, 5 times each power of ten from `least` to `most`."""
    return [m * 10.0 ** k for k in range(least, most + 1) for m in (1, 2, 3, 5)]


# the controls of `estimator`: field -> (label, the values that its slider stands on)
CONTROLS = {
    "users": ("users a day", _steps(3, 9)), "reads": ("reads a user and day", _steps(0, 2)),
    "posts": ("posts a user and day", _steps(-2, 1)), "followers": ("mean followers", _steps(0, 3)),
    "feed_max": ("FEED_MAX", [50, 100, 127, 200, 300, 500, 800, 1_000, 2_000]),
    "entry_bytes": ("bytes an entry", [20, 30, 40, 60, 80, 100, 130]),
}


def estimator(sheet: Sheet = Sheet()):
    """The sheet with sliders: every figure is computed again as one moves. A model only; nothing runs behind it, so nothing is to be
    stopped. The last line of a cell of its own."""
    import ipywidgets as w
    out, sliders = w.Output(), {}
    for name, (label, values) in CONTROLS.items():
        options = sorted({*values, getattr(sheet, name)})
        sliders[name] = w.SelectionSlider(options=[(big(v), v) for v in options], value=getattr(sheet, name), description=label,
                                          style={"description_width": "150px"}, layout={"width": "440px"})

    def redraw(_=None) -> None:
        table = Table(rows(moved(sheet, **{name: s.value for name, s in sliders.items()})))
        data = {"text/html": table._repr_html_(), "text/plain": repr(table)}
        out.outputs = ({"output_type": "display_data", "metadata": {}, "data": data},)
    for s in sliders.values():
        s.observe(redraw, "value")
    redraw()
    return w.HBox([w.VBox(list(sliders.values())), out], layout={"flex_flow": "row wrap"})


def moved(sheet: Sheet, **values: float) -> Sheet:
    """The sheet with other values, and as many feeds a user as before.

    >>> moved(Sheet(), users=30e6).feeds
    20000000.0
    """
    return replace(sheet, **values, feeds=sheet.feeds * values.get("users", sheet.users) / sheet.users)


# --- memory: the 6 TB ---------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Feeds:
    """Timelines of `entries` posts built in the live Redis: mean `bytes` of one (MEMORY USAGE, every element counted), `encoding`."""
    entries: int
    bytes: float
    encoding: str

    @property
    def entry_bytes(self) -> float:
        return self.bytes / self.entries

    def total(self, sheet: Sheet = Sheet()) -> float:
        """Bytes of all feeds of the sheet, if each were like these."""
        return self.bytes * sheet.feeds


def build_feeds(lab: Lab, entries: int = 500, n: int = 20, say=lambda *_: None) -> Feeds:
    """Build n feeds of so many posts by the reader's own `timeline.begin` and `complete`, weigh them, remove them."""
    keys, ids = [lab.names.feed(10**9 + i) for i in range(n)], [lab.ids.next() for _ in range(entries)]
    newest = [Entry(ms, i) for i, ms in reversed(ids)]
    try:
        for done, key in enumerate(keys):
            say(f"building feeds of {entries} entries", done, n)
            token = timeline.begin(lab.redis, key, building_s=30)
            timeline.complete(lab.redis, key, token, newest, entries, lab.reader.expiry())
        taken = [lab.redis.memory_usage(key, samples=0) for key in keys]
        return Feeds(entries, sum(taken) / n, lab.redis.object("encoding", keys[0]))
    finally:
        lab.redis.unlink(*keys)


def layout(lab: Lab) -> str:
    """The layout of `core.cost` that is nearest to the live Redis."""
    return cost.layout_of(lab.redis.info("server").get("server_name", "redis"))


def memory_figure(built: list[Feeds], sheet: Sheet = Sheet()):
    """TB for all feeds of the sheet: by its own bytes an entry, and by each kind of feed that was built."""
    names = [f"the sheet: {sheet.feed_max} x {sheet.entry_bytes:g} B"]
    names += [f"here: {f.entries} x {f.entry_bytes:.0f} B ({f.encoding})" for f in built]
    values = [sheet.redis_bytes / TB, *(f.total(sheet) / TB for f in built)]
    return plots.bars(f"The sheet says {values[0]:.3g} TB; feeds as they are built here take {values[1]:.3g} TB", names, values,
                      f"TB for {big(sheet.feeds)} feeds")


# --- work: the 45 G -----------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Rate:
    """`n` pieces of work in `seconds`, one after the other in one Redis."""
    n: int
    seconds: float

    @property
    def a_second(self) -> float:
        return self.n / self.seconds


def deliver_for(lab: Lab, seconds: float = 1.0, feeds: int = 1_000, feed_max: int = 500) -> Rate:
    """Feed writes a second of the live Redis: posts delivered to 1,000 empty feeds at a time by the consumer's own call, for so long."""
    names = Names(f"{lab.names.namespace}:measure")           # places and counters apart from the consumer's
    keys = [names.feed(i) for i in range(feeds)]
    try:
        for key in keys:
            token = timeline.begin(lab.redis, key, building_s=30)
            timeline.complete(lab.redis, key, token, [], feed_max, lab.reader.expiry())
        done, start = 0, time.perf_counter()
        while time.perf_counter() < start + seconds:
            post_id, ms = lab.ids.next()
            pipe = lab.redis.pipeline(transaction=False)
            timeline.deliver(pipe, names, ("0", str(done) if done else "", str(done + feeds)), keys, [Entry(ms, post_id)], feed_max)
            ((_, _, added),) = pipe.execute()
            done += added
        return Rate(done, time.perf_counter() - start)
    finally:
        lab.redis.unlink(names.progress, names.stats, *keys)


def cores(a_second: float, rate: Rate, busy: float = 0.6) -> float:
    """Redis cores for so much work a second, each busy for at most this share of its time: beyond it, waiting grows fast.

    >>> cores(600_000, Rate(100_000, 1.0))
    10.0
    """
    return a_second / rate.a_second / busy


def reach(rate: Rate, sheet: Sheet = Sheet(), threshold: int = 10_000) -> dict[str, float]:
    """Seconds that one post takes to reach all followers of a mean author, of one at the threshold, of the largest account, when one
    Redis like this one writes nothing else."""
    return {f"{big(n)} followers": cost.fan_out_seconds(n, rate.a_second) for n in (sheet.followers, threshold, sheet.largest)}


def reach_figure(seconds: dict[str, float], patience_s: float = 5.0):
    """`reach`, on a logarithmic axis, with the few seconds that the requirements allow."""
    names, values = list(seconds), list(seconds.values())
    fig = plots.figure(f"At this rate the last of {names[-1]} sees the post after {plots.millis(1000 * values[-1])}",
                       "seconds until the last feed is written (log)", "")
    fig.add_bar(x=values, y=names, orientation="h", text=[plots.millis(1000 * v) for v in values], textposition="outside",
                cliponaxis=False, showlegend=False, hovertemplate="%{y}: %{text}<extra></extra>",
                marker={"color": [plots.BLUE if v <= patience_s else plots.VERMILLION for v in values],
                        "pattern": {"shape": ["" if v <= patience_s else "/" for v in values]}})
    fig.add_vline(patience_s, line={"dash": "dash", "width": 2})
    fig.add_annotation(x=float(np.log10(patience_s)), y=1, yref="paper", yanchor="bottom", showarrow=False, text="a few seconds")
    low, high = np.log10(min(values)), np.log10(max(values))
    return fig.update_yaxes(autorange="reversed", ticks="", showgrid=False).update_layout(height=260).update_xaxes(
        type="log", dtick=1, tickformat="~g", range=[float(low) - 0.5, float(high) + 0.8])


# --- the hidden assumption: two means --------------------------------------------------------------------------------------

def two_means(graph: Graph, act: Activity) -> tuple[float, float]:
    """Followers of the mean user, and of the author of the mean post: feed writes a post if everybody posts alike, and as people do.

    >>> from feedlab.lab.graph import from_edges
    >>> g = from_edges([1, 2, 3], [4, 4, 4], True, "three follow the fourth")
    >>> two_means(g, Activity(g.users, np.array([0, 0, 0, 2.0]), np.ones(4)))
    (0.75, 3.0)
    """
    return float(np.mean(graph.followers)), cost.write_amplification(act.posts, graph.followers)


def write(lab: Lab, authors) -> None:
    """One post of each of these authors, in order; they wait in the outbox until a relay comes."""
    for author in authors:
        posts.create(lab.conn, lab.ids, lab.names, int(author), "hello")


FOLLOWED = """
    select count(*) from posts p join follows f on f.followee_id = p.author_id join user_activity u on u.user_id = f.follower_id"""


def feed_writes(lab: Lab) -> tuple[int, int]:
    """Feed writes that the consumer counted, and what SQL makes of the same posts: one an (active) follower."""
    return lab.stats().get("deliveries", 0), lab.conn.execute(FOLLOWED).fetchone()[0]


def means_figure(users: float, posts_: float, counted: float):
    """Feed writes a post: by the mean user, by who posts how much, and as counted on the engines."""
    return plots.bars(f"A post took {plots.number(counted)} feed writes; the mean user has {plots.number(users)} followers",
                      ["mean followers of a user", "counted on the engines", "mean followers of a post's author"],
                      [users, counted, posts_], "feed writes a post")
