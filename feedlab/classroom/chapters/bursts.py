"""Notebook 11: everybody posts at once.

A tick is a minute of the site. The posts of a tick are written, the relay moves them, and the consumer may make `budget` feed
writes a tick, whatever this machine could do: so lag is a count, the same at every run, and thresholds can be compared. Posts,
relay, consumer, controller and demotions are the real ones. """
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import plotly.graph_objects as go

from ... import controller, db, posts, pull
from ...addresses import Addresses
from ...config import Settings
from ...core.codec import member
from ...draw import plots
from ...errors import BadInput, EngineDown
from ...fanout import FanOut
from ...lab import world
from ...lab.graph import Graph
from ...lab.session import Lab, open_lab, wipe
from ...reader import scroll
from ...relay import Relay
from ...verify.systems import SYSTEMS

# De Domenico et al. 2013, the Higgs announcement on Twitter: the fullest of 10,078 minutes has 19.4 times the mean
PEAK_TO_MEAN = 19.4


# --- the trace ----------------------------------------------------------------------------------------------------------------

def burst(ticks: int = 72, total: int = 600, peak: float = PEAK_TO_MEAN, quiet: float = 0.3, seed: int = 1) -> np.ndarray:
    """Posts in each tick, int64 (ticks,), `total` in all: a quiet third at about `quiet` of the mean, then in one tick the peak
    of `peak` times the mean, then an exponential decay that makes the mean right. Posts fall into ticks at random, by the seed,
    but for the peak, which is exact. Raises BadInput when the numbers leave no room for a decay.

    >>> b = burst()
    >>> int(b.sum()), round(float(b.max() / b.mean()), 1), int(b.argmax())
    (600, 19.4, 24)
    """
    start = ticks // 3
    over = ticks * (1 - quiet)                  # what the burst must hold, in means
    if not 0 < quiet < 1 or not quiet + 1 < peak < over:
        raise BadInput(f"{ticks} ticks with a quiet level of {quiet:g} (between 0 and 1) cannot hold a peak of {peak:g} times "
                       "the mean. Take more ticks or a lower peak.")
    decay = 1 - (peak - quiet) / over           # of the geometric sum (peak - quiet) / (1 - decay) = over
    rate = np.full(ticks, quiet)
    rate[start:] += (peak - quiet) * decay ** np.arange(ticks - start)
    top = round(peak * total / ticks)
    rate[start] = 0
    counts = np.random.default_rng(seed).multinomial(total - top, rate / rate.sum())
    counts[start] = top
    return counts


def town(users: int = 400, celebrities: int = 8, seed: int = world.SEED) -> tuple[Graph, np.ndarray]:
    """A follow graph small enough for a burst a few seconds long, and whom its posts are by: (graph, weights aligned with its
    users)."""
    g = world.generate(seed, users, celebrities)
    act = world.activity(g, seed)
    return g, act.posts / act.posts.sum()


def trace_figure(counts: np.ndarray) -> go.Figure:
    """Posts a minute, and their mean."""
    fig = plots.figure(f"The fullest minute has {counts.max()} posts, {counts.max() / counts.mean():.1f} times the mean",
                       "minute", "posts")
    fig.add_bar(x=list(range(len(counts))), y=counts.tolist(), showlegend=False, marker={"color": plots.BLUE})
    fig.add_hline(float(counts.mean()), line={"color": plots.VERMILLION, "dash": "dash"}, annotation_text="mean")
    return fig.update_layout(bargap=0.05)


# --- one run ------------------------------------------------------------------------------------------------------------------

@dataclass
class Run:
    """What happened at each tick (lists of one length): `lag` in records at its end, `threshold`, `written` feed writes in it;
    and of each post the ticks until it was handled (`delay`), in the order of the posts. `deliveries`: feed writes of posts;
    `redelivered`: of demotions; `moves` of the threshold; `flags` still up at the end; `sources` a page, sampled at the
    burst's top and at the end."""
    lag: list[int] = field(default_factory=list)
    threshold: list[int] = field(default_factory=list)
    written: list[int] = field(default_factory=list)
    delay: list[int] = field(default_factory=list)
    deliveries: int = 0
    redelivered: int = 0
    moves: int = 0
    flags: int = 0
    sources: dict[str, float] = field(default_factory=dict)


def replay(lab: Lab, relay: Relay, fanout: FanOut, counts: Sequence[int], weights: np.ndarray, budget: int, threshold: int,
           marks: controller.Marks | None = None, seed: int = 1, most_ticks: int = 1_000,
           say: Callable[[str, int, int], None] = lambda text, done, total: None) -> Run:
    """Play the trace and go on until nothing waits: with a fixed threshold, or, with `marks` (`patience_s` in ticks), under the
    controller, which also demotes in calm ticks, and until no flag is up. Authors are drawn by `weights` over the users in order
    of id.

    The consumer gets a tick's budget of feed writes; what a batch writes beyond it is missing from the next. The topic must
    have one partition: then records are handled in the order in which they were written, and delays are exact. Raises BadInput
    otherwise. """
    if lab.settings.partitions != 1:
        raise BadInput("a replay needs a namespace with one partition: book.begin(..., partitions=1)")
    users = [u for u, in lab.conn.execute("select id from users order by id")]
    authors = iter(np.random.default_rng([seed, 1]).choice(users, int(sum(counts)), p=weights).tolist())
    db.set_knobs(lab.conn, threshold=threshold)
    now, run, line, credit = [0], Run(), deque(), 0
    tuner = controller.Controller(marks, clock=lambda: now[0]) if marks else None
    was, fanout.most, before = fanout.most, 8, lab.stats()
    try:
        for tick in range(most_ticks):
            now[0], n = tick, int(counts[tick]) if tick < len(counts) else 0
            for _ in range(n):
                posts.create(lab.conn, lab.ids, lab.names, next(authors), f"minute {tick}")
            line.extend([tick] * n)
            start = _writes(lab.stats())
            while relay.once() == relay.batch:
                pass
            credit = min(budget, credit + budget)
            while line and credit > 0:
                credit = credit - _handle(lab, fanout, line, tick, run)
            run.written.append(_writes(lab.stats()) - start)
            lag, old = len(line), db.knobs(lab.conn)["threshold"]
            if tuner and controller.step(tuner, lab.conn, lag) == old and lag <= marks.low:
                line.extend([-1] * len(controller.demote_below(lab.conn, lab.names, 10)))
            new = db.knobs(lab.conn)["threshold"]
            run.moves += new != old
            run.lag.append(lag)
            run.threshold.append(old)
            if tick == int(np.argmax(counts)) + 5:
                run.sources["in the burst"] = sources_a_page(lab, users)
            say("minute of the burst", min(tick + 1, len(counts)), len(counts))
            if tick >= len(counts) - 1 and not line and (not tuner or new == marks.ceiling and not _flags(lab)):
                break
    finally:
        fanout.most = was
    after = lab.stats()
    run.deliveries, run.redelivered = (after.get(k, 0) - before.get(k, 0) for k in ("deliveries", "redelivered"))
    run.flags, run.sources["at the end"] = _flags(lab), sources_a_page(lab, users)
    return run


def _handle(lab: Lab, fanout: FanOut, line: deque, tick: int, run: Run, timeout_s: float = 20) -> int:
    """One batch of the consumer; the feed writes that it made."""
    before, end = _writes(lab.stats()), time.monotonic() + timeout_s
    while not (done := fanout.once(0.05)).records:
        if time.monotonic() > end:
            raise EngineDown(f"{len(line)} records wait, and none came in {timeout_s:.0f} s.")
    for _ in range(done.records):
        written = line.popleft()
        if written >= 0:
            run.delay.append(tick - written)
    return max(1, _writes(lab.stats()) - before)


def _writes(stats: dict[str, int]) -> int:
    return sum(stats.get(k, 0) for k in ("deliveries", "redelivered", "celeb_writes"))


def _flags(lab: Lab) -> int:
    return lab.conn.execute("select count(*) from pull_flags where raised").fetchone()[0]


def sources_a_page(lab: Lab, users: Sequence[int], sample: int = 40) -> float:
    """Mean of the sources that a first page asks, over every n-th user."""
    some = users[::max(1, len(users) // sample)]
    return sum(lab.page(u).explain.sources for u in some) / len(some)


def equal_scrolls(lab: Lab, users: Sequence[int], limit: int = 50) -> int:
    """How many of these users' feeds, page by page to the end, are the SQL answer."""
    lab.reader.copies.clear()
    return sum([i for p in scroll(lambda c: lab.page(u, c, limit)) for i in p.ids]               # noqa: B023
               == [e.id for e in pull.everything(lab.conn, u)] for u in users)


def flaps(patience_s: float, ticks: int = 600, seed: int = 1) -> int:
    """Moves of a threshold under a lag that jumps about the upper mark and falls to nothing, in turns; a look a second. No
    engine."""
    rng, now = np.random.default_rng(seed), [0.0]
    c = controller.Controller(controller.Marks(high=100, low=10, floor=10, ceiling=10_000, patience_s=patience_s), lambda: now[0])
    threshold, moves = 640, 0
    for tick in range(ticks):
        now[0] = tick
        wanted = c.decide(int(rng.choice([0, 50, 150])), threshold)
        moves, threshold = moves + (wanted != threshold), wanted
    return moves


# --- figures ------------------------------------------------------------------------------------------------------------------

STYLES = ((plots.VERMILLION, "solid"), (plots.BLUE, "dot"), (plots.GREEN, "dash"))


def lag_figure(runs: Sequence[tuple[str, Run]]) -> go.Figure:
    """Lag over time of several runs."""
    tops = ", ".join(f"{max(r.lag):,} ({name})" for name, r in runs)
    fig = plots.figure(f"Records that wait: at most {tops}", "minute", "records behind")
    for (name, r), (colour, dash) in zip(runs, STYLES, strict=False):
        fig.add_scatter(x=list(range(len(r.lag))), y=r.lag, name=name, mode="lines",
                        line={"color": colour, "dash": dash, "width": 2.5})
    return fig


def threshold_figure(run: Run) -> go.Figure:
    """The threshold that the controller set, under the lag that moved it."""
    fig = plots.figure(f"The threshold goes from {run.threshold[0]} to {min(run.threshold)} and back in {run.moves} moves",
                       "minute", "followers (log)")
    fig.add_scatter(x=list(range(len(run.threshold))), y=run.threshold, name="threshold", mode="lines",
                    line={"shape": "hv", "color": plots.BLUE, "width": 2.5})
    fig.add_scatter(x=list(range(len(run.lag))), y=run.lag, name="records behind", mode="lines", yaxis="y2",
                    line={"color": plots.VERMILLION, "dash": "dot"})
    ticks = sorted({*run.threshold})
    return fig.update_layout(yaxis={"type": "log", "tickvals": ticks},
                             yaxis2={"overlaying": "y", "side": "right", "title": {"text": "records behind"}, "showgrid": False,
                                     "rangemode": "tozero", "tickmode": "auto"}, margin={"r": 60})


def delay_figure(runs: Sequence[tuple[str, Run]]) -> go.Figure:
    """Minutes until a post is handled: the share of posts that wait longer than x."""
    worst = max(max(r.delay) for _, r in runs)
    title = "Minutes that the unluckiest post waits: " + ", ".join(f"{max(r.delay)} ({n})" for n, r in runs)
    fig = plots.figure(title, "minutes until a post is handled, more than", "share of the posts")
    for (name, r), (colour, dash) in zip(runs, STYLES, strict=False):
        d = np.array(r.delay)
        share = plots.rounded(np.array([np.mean(d > x) for x in range(worst + 1)]))
        fig.add_scatter(x=list(range(worst + 1)), y=share, name=name, mode="lines",
                        line={"color": colour, "dash": dash, "shape": "hv", "width": 2.5})
    return fig.update_yaxes(tickformat=".0%")


def bill_figure(fixed: Run, dynamic: Run) -> go.Figure:
    """Feed writes of posts and of demotions, by the end."""
    total = (dynamic.deliveries + dynamic.redelivered) / fixed.deliveries
    title = f"A dynamic threshold makes {total:.0%} of the writes, {dynamic.redelivered:,} of them later"
    fig = plots.figure(title, "feed writes", "")
    names = ["all pushed", "dynamic threshold"]
    for name, values, colour, shape in (("when the post was handled", [fixed.deliveries, dynamic.deliveries], plots.BLUE, ""),
                                        ("later, by demotions", [fixed.redelivered, dynamic.redelivered], plots.ORANGE, "/")):
        fig.add_bar(y=names, x=values, name=name, orientation="h", marker={"color": colour, "pattern": {"shape": shape}})
    fig.update_layout(barmode="stack", height=270, margin={"l": 130})
    return fig.update_yaxes(autorange="reversed")


# --- who is away --------------------------------------------------------------------------------------------------------------

def send_away(lab: Lab, users: Sequence[int], days: int = 31) -> None:
    """These users were last seen `days` days ago. Their feeds are gone, as their own expiry would have it by then."""
    lab.conn.execute("update user_activity set last_seen_at = now() - %s * interval '1 day' where user_id = any(%s)",
                     (days, list(users)))
    keys = [lab.names.feed(u) for u in users]
    if days * 86_400 > lab.settings.feed_ttl_s and keys:
        lab.redis.unlink(*keys)


# --- a big author and a small one ---------------------------------------------------------------------------------------------

BIG, SMALL = 1_000_001, 1_000_002


@dataclass
class Behind:
    """A post to `followers` feeds, and right behind it, in the same partition, one to a single feed: the feed writes made when
    the small one could be read (`before_small`) and when all was done (`all`)."""
    followers: int
    before_small: int
    all: int


def big_crowd(lab: Lab, followers: int = 5_000) -> int:
    """Users BIG, with so many followers, and SMALL, with one: the reader, whose id is returned. Feeds are not built: a
    delivery to a feed that is not there is counted all the same."""
    reader = 2_000_000
    with lab.conn.transaction():
        lab.conn.execute("insert into users select n, 'fan' from generate_series(%s::bigint, %s) n",
                         (reader, reader + followers - 1))
        lab.conn.execute("insert into users values (%s, 'big'), (%s, 'small')", (BIG, SMALL))
        lab.conn.execute("insert into user_activity (user_id) select id from users where id >= %s", (reader,))
        lab.conn.execute("insert into follows select id, %s from users where id >= %s", (BIG, reader))
        lab.conn.execute("insert into follows values (%s, %s)", (reader, SMALL))
        lab.conn.execute("insert into follower_counts values (%s, 0, %s), (%s, 0, 1)", (BIG, followers, SMALL))
    lab.conn.execute("analyze users, follows, user_activity")
    return reader


def behind_a_big_one(settings: Settings, addresses: Addresses, system: str, followers: int = 5_000,
                     timeout_s: float = 60) -> Behind:
    """BIG posts, then SMALL; the consumer of a system is stepped until SMALL's post is in the reader's feed, and then until
    all is delivered. In the namespace of `settings`, which is made with one partition, so that both posts are in it, and
    removed afterwards."""
    s, way = settings.model_copy(update={"partitions": 1, "threshold": followers + 1}), SYSTEMS[system]
    relay = way.relay.Relay(s, addresses.postgres_url, addresses.kafka_bootstrap)
    fanout = way.fanout.FanOut(s, addresses.postgres_url, addresses.redis_url, addresses.kafka_bootstrap)
    with open_lab(s, addresses) as lab:
        try:
            relay.open()
            fanout.open()
            reader, end = big_crowd(lab, followers), time.monotonic() + timeout_s
            way.reader.Reader(s).page(lab.conn, lab.redis, reader)                      # the reader's feed is there
            posts.create(lab.conn, lab.ids, lab.names, BIG, "to everybody")
            small = posts.create(lab.conn, lab.ids, lab.names, SMALL, "to one")
            key, members = lab.names.feed(reader), [member(small.id), str(small.id)]    # as ours, and as the textbook writes it
            while relay.once():
                pass
            written, seen = 0, None
            while written < followers + 1:
                written += fanout.once(0.05).deliveries
                if seen is None and any(score is not None for score in lab.redis.zmscore(key, members)):
                    seen = written
                if time.monotonic() > end:
                    raise EngineDown(f"{written} of {followers + 1} feed writes were made in {timeout_s:.0f} s.")
        finally:
            relay.close()
            fanout.close()
            wipe(lab)
    return Behind(followers, seen, written)


def behind_figure(rows: Sequence[tuple[str, Behind]]) -> go.Figure:
    """Feed writes made before the small author's post could be read."""
    title = "Feed writes before the small post is seen: " + ", ".join(f"{r.before_small:,} ({name})" for name, r in rows)
    return plots.bars(title, [n for n, _ in rows], [r.before_small for _, r in rows], "feed writes", measured=len(rows) - 1)
