"""What a policy costs: over every edge of a graph, or over classes of alike users when only degrees are known.

    people = population(graphs.read("follows.csv"), rates)
    outcome = evaluate(people, policy.Threshold(10_000), Assumptions())
    outcome.as_dict()["deliveries_per_day"]

Both go the same way: chunks of edges (reader, author, weight), a policy asked over the whole chunk, sums. A chunk fits into the cache,
so memory hangs on the number of users, not of edges. Rates are means; `repeat` draws days of posts and reads from them (Poisson).
"""
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property

import numpy as np

from ..core import cost, policy
from ..core.policy import DROP, PULL, PUSH, SKIP, Edges, Policy, Rates
from ..errors import BadInput
from .graphs import CHUNK, Degrees, Follows

REPETITIONS = 10


@dataclass(frozen=True)
class Costs:
    """CPU seconds of one delivery (H), one pull (L), one page without its pulls and one post before its first delivery, of engines and our
    own processes together; and what one consumer does a second by the clock. `copy_s` is a pull that the process's own copy serves,
    `copies` the share of those (article, 9.1); `flag_s` is what a pulled post takes beside `post_s`, `walk_s` a follower that a policy is
    asked about edge by edge. `source` says where they were measured."""
    delivery_s: float = 15.5e-6
    pull_s: float = 110e-6
    page_s: float = 1_700e-6
    post_s: float = 90e-6
    copy_s: float = 4e-6
    copies: float = 0.0
    flag_s: float = 200e-6
    walk_s: float = 3e-6
    deliveries_a_second: float = 25_000
    posts_a_second: float = 1_500
    source: str = "measured by `feedlab policy calibrate` on 2 busy cores, Valkey 9.1.2, PostgreSQL 18.4; calibrate for yours"

    @property
    def l_s(self) -> float:
        """L with the share of local copies."""
        return self.pull_s * (1 - self.copies) + self.copy_s * self.copies

    @property
    def h_over_l(self) -> float:
        return self.delivery_s / self.l_s


@dataclass(frozen=True)
class Assumptions:
    """All that is not in graph and rates. `scale` users stand for the graph's (copies of it); `history_days` of posts fill a feed at most;
    `fresh_s` is what the largest pushed author may take; prices are optional, in any currency."""
    costs: Costs = field(default_factory=Costs)
    scale: float | None = None
    feed_max: int = 500
    layout: str = "valkey-9.1"
    listpack_limit: int = 128
    active_days: float = 30
    history_days: float = 365
    peak: float = 3
    busy: float = 0.6
    consumers: int = 1
    fresh_s: float = 5
    node_bytes: float = 64e9
    filled: float = 0.75
    replicas: int = 1
    core_price: float = 0          # a core and month
    memory_price: float = 0        # a GB and month, replicas included

    def __post_init__(self):
        for name in ("feed_max", "peak", "busy", "consumers", "history_days", "node_bytes", "filled", "fresh_s"):
            if not getattr(self, name) > 0:
                raise BadInput(f"{name} must be above 0, got {getattr(self, name)}.")
        if self.scale is not None and not 0 < self.scale < 1e12:
            raise BadInput(f"scale must be a number of users from 1 to 10^12, got {self.scale:g}.")
        if self.layout not in cost.LAYOUTS:
            raise BadInput(f"layout must be one of {', '.join(cost.LAYOUTS)}, got {self.layout!r}.")


# --- who writes and reads -----------------------------------------------------------------------------------------------------------

@dataclass(frozen=True, eq=False)
class Population:
    """Authors and readers as arrays, and the edges between them. In a graph both are its users, in order; of degrees they are classes of
    alike ones, `weight` users each, and an edge of classes stands for `weight` edges."""
    source: str
    ids: np.ndarray             # int64 (authors,)
    followers: np.ndarray       # (authors,)
    posts: np.ndarray           # a day, float64 (authors,)
    author_weight: np.ndarray | None
    follows: np.ndarray         # (readers,)
    reads: np.ndarray           # a day, float64 (readers,)
    away_days: np.ndarray | None
    reader_weight: np.ndarray | None
    reader: np.ndarray | None = None      # int32 (edges,); None: every class with every class
    author: np.ndarray | None = None
    largest: float = 0
    exact: bool = True          # False: readers and rates of a histogram are assumed, see `classes`
    drawn: dict = field(default_factory=dict)

    def weigh(self, values, weight) -> float:
        return float(np.sum(values) if weight is None else np.sum(values * weight))

    @cached_property
    def users(self) -> float:
        return float(len(self.ids)) if self.author_weight is None else float(self.author_weight.sum())

    @cached_property
    def edges(self) -> float:
        return float(len(self.reader)) if self.reader is not None else self.weigh(self.followers, self.author_weight)

    @cached_property
    def posts_a_day(self) -> float:
        return self.weigh(self.posts, self.author_weight)

    @cached_property
    def reads_a_day(self) -> float:
        return self.weigh(self.reads, self.reader_weight)

    @cached_property
    def starts(self) -> np.ndarray:
        """Where each reader's edges begin, int64 (readers + 1,); of a graph only."""
        return np.concatenate([[0], np.cumsum(self.follows)])

    @cached_property
    def inflow(self) -> np.ndarray:
        """Posts a day by all that a reader follows, float64 (readers,)."""
        if self.reader is None:
            return self.follows * (self.weigh(self.posts * self.followers, self.author_weight) / self.edges)
        out, posts = np.empty(len(self.reads)), self.posts.astype(np.float32)
        for r0, r1 in self.rows():
            lo, hi = self.starts[r0], self.starts[r1]
            out[r0:r1] = _row_sums(posts[self.author[lo:hi]], self.starts[r0:r1 + 1] - lo)
        return out

    def reads_of_followers(self, active_days: float = 30) -> np.ndarray:
        """Page reads a day of all of an author's followers together, float64 (authors,): what pulling that author costs."""
        reads = self.reads * self.active(active_days)
        if self.reader is None:
            ends = self.follows * self.reader_weight
            return self.followers * float((ends / ends.sum()) @ reads)
        return self._by_author(reads)

    def active_followers(self, active_days: float = 30) -> np.ndarray:
        """Followers who were seen in the last `active_days`, (authors,)."""
        return self.followers if self.away_days is None else self._by_author(self.active(active_days).astype(float))

    def active(self, active_days: float = 30) -> np.ndarray:
        """Which readers were, bool (readers,)."""
        return np.ones(len(self.reads), bool) if self.away_days is None else self.away_days <= active_days

    def _by_author(self, of_reader: np.ndarray) -> np.ndarray:
        out = np.zeros(len(self.ids))
        for r0, r1 in self.rows(1 << 22):
            lo, hi = self.starts[r0], self.starts[r1]
            out += np.bincount(self.author[lo:hi], np.repeat(of_reader[r0:r1], self.follows[r0:r1]), minlength=len(out))
        return out

    def rows(self, size: int = CHUNK) -> Iterator[tuple[int, int]]:
        """Readers [r0, r1) whose edges together are about `size`."""
        r0, n = 0, len(self.reads)
        while r0 < n:
            r1 = max(r0 + 1, int(np.searchsorted(self.starts, self.starts[r0] + size, "right")) - 1)
            yield r0, min(r1, n)
            r0 = r1

    def days(self, seed: int, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Posts and reads of n days, drawn (Poisson), int32 or float. Kept: all policies are compared on the same days."""
        if seed not in self.drawn or len(self.drawn[seed]) < n:
            rng = np.random.default_rng(seed)
            rates = [x if w is None else x * w for x, w in ((self.posts, self.author_weight), (self.reads, self.reader_weight))]
            self.drawn[seed] = [tuple(rng.poisson(x).astype(np.int32 if x.max() < 1e9 else float) for x in rates) for _ in range(n)]
        return self.drawn[seed][:n]


def _row_sums(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Sums of `values` between consecutive `starts` (rows may be empty)."""
    run = np.empty(len(values) + 1, np.float64 if values.dtype.kind == "f" else np.int64)
    run[0] = 0
    np.cumsum(values, out=run[1:])
    return run[starts[1:]] - run[starts[:-1]]


def population(graph: Follows | Degrees, rates: Rates | None = None, spread: bool = False) -> Population:
    """Of a graph with each user's rates; of degrees with the defaults of `rates` for everybody, or spread as the generated world's
    (`spread`: log-normal, sigma 2.12 for posts and 1.0 for reads). Raises BadInput when nobody posts or reads."""
    rates = rates or Rates.even()
    if min(rates.default_posts, rates.default_reads) < 0:
        raise BadInput("rates must not be negative: posts and reads a day start at 0.")
    if isinstance(graph, Follows):
        away = None if rates.away_days is None else rates.away_of(graph.ids)
        made = Population(graph.source, graph.ids, graph.followers, rates.posts_of(graph.ids), None, graph.follows,
                          rates.reads_of(graph.ids), away, None, graph.reader, graph.author, float(graph.followers.max()))
    else:
        made = classes(graph, rates, spread)
    if not made.posts_a_day or not made.reads_a_day:
        raise BadInput("nobody posts, or nobody reads, by these rates: there is nothing to compare.")
    return made


def classes(degrees: Degrees, rates: Rates, spread: bool) -> Population:
    """Readers of a histogram are assumed: they follow a log-normal number (sigma 1) with the mean that the followers have, in 24 classes of
    equal weight; with `spread` posts come in 12 classes and reads in 24, independent of the followers."""
    f, n = degrees.followers, degrees.authors
    if len(f) > 5_000:         # a histogram finer than that: classes of a hundredth of a decade, with their exact mean
        group = np.unique(np.floor(np.log10(np.maximum(f, 0.5)) * 200), return_inverse=True)[1]
        weight = np.bincount(group, n)
        f, n = np.bincount(group, n * f) / np.maximum(weight, 1e-300), weight
    mean = degrees.edges / degrees.users
    follows = _quantiles(1.0, 24) * mean
    posts, reads = np.array([1.0]), np.ones(24)
    if spread:
        posts = _quantiles(2.12, 12)
        reads = _quantiles(1.0, 24)[np.random.default_rng(5).permutation(24)]
    k = len(posts)
    return Population(degrees.source, np.arange(len(f) * k), np.repeat(f, k), np.tile(posts, len(f)) * rates.default_posts,
                      np.repeat(n / k, k), follows, reads * rates.default_reads, None, np.full(24, degrees.users / 24),
                      largest=degrees.largest, exact=False)


def _quantiles(sigma: float, n: int) -> np.ndarray:
    """Means of n equal parts of a log-normal with mean 1."""
    from statistics import NormalDist
    normal = NormalDist()
    z = [-math.inf, *(normal.inv_cdf(i / n) for i in range(1, n)), math.inf]
    owned = [normal.cdf(x - sigma) if math.isfinite(x) else float(x > 0) for x in z]
    return np.diff(owned) * n


# --- one policy --------------------------------------------------------------------------------------------------------------------------

@dataclass
class Outcome:
    """What a policy costs a day, at scale. Units are in the names; bytes and counts are of all users together."""
    policy: str
    users: float
    posts_per_day: float
    pages_per_day: float
    deliveries_per_day: float        # feed writes
    pulls_per_day: float             # author timelines read, edge by edge
    live_pulls_per_day: float        # the same here, where the flag is the author's and every follower pulls
    skipped_per_day: float           # to readers who are away
    dropped_per_day: float           # never to be seen (lossy)
    write_amplification: float       # feed writes a post
    pulled_authors: float
    pushed_edges_share: float
    sources_per_page: float
    sources_per_page_p99: float
    cpu_seconds_per_day: float       # deliveries x H + pulls x L
    cpu_cores: float                 # the same and the pages themselves, at the peak, each core busy as assumed
    redis_bytes: float
    redis_nodes: int
    largest_fan_out_seconds: float   # of the largest pushed author, at one consumer's rate: a post's slices go one after another
    page_ms_p99: float               # CPU time of the page that pulls most of a hundred
    exact: bool                      # every reader sees every post
    price_per_month: float | None = None
    spread: dict = field(default_factory=dict)      # name -> (least, greatest) of the repetitions
    burst: dict = field(default_factory=dict)       # see bursts.run

    def as_dict(self) -> dict:
        return asdict(self)


@dataclass
class Tally:
    """Sums of one pass over the edges, before scaling: what repetitions and sensitivities are made from. Of classes: of one user each."""
    pushed: np.ndarray        # (authors,) followers that are pushed
    pulled: np.ndarray        # (readers,) followed authors that are pulled
    fed: np.ndarray           # bool (readers,): anything is pushed to them
    some_pull: np.ndarray     # bool (authors,): the flag would be up
    skipped: np.ndarray       # (authors,) followers that are away
    dropped: np.ndarray       # (authors,) followers that never get it


def tally(people: Population, rule: Policy, active_days: float = 30, lag: float = 0,
          progress: Callable = lambda done, total: None) -> Tally:
    """One pass. `progress(edges done, edges)`. Readers away for more than `active_days` are passed over, as the consumer does."""
    needs = policy.needs(rule)
    if people.reader is None:
        return _classes(people, rule, needs, active_days, lag)
    known = needs if people.away_days is not None else needs - {"away_days"}       # nobody is known to be away
    if known & policy.OF_READERS:
        return _edges(people, rule, needs, active_days, lag, progress)
    return _authors(people, rule, active_days, lag, progress)


def _authors(people, rule, active_days, lag, progress) -> Tally:
    """One answer an author; the edges only tell how many of those a reader follows are pulled."""
    said = policy.answers(rule, Edges(author=people.ids, followers=people.followers, posts=people.posts, lag=lag,
                                      flagged=np.zeros(len(people.ids), bool)), len(people.ids))
    active, reached = people.active(active_days), people.active_followers(active_days)
    pulled, pushes = np.zeros(len(people.reads), np.int64), np.zeros(len(people.reads), np.int64)
    for count, answer in ((pulled, PULL), (pushes, PUSH)):
        this = said == answer
        if this.all():
            count[:] = people.follows
        elif this.any() and not (answer == PUSH and (said <= PUSH).all()):
            for r0, r1 in people.rows():
                lo, hi = people.starts[r0], people.starts[r1]
                count[r0:r1] = _row_sums(this[people.author[lo:hi]], people.starts[r0:r1 + 1] - lo)
                progress(int(hi), len(people.author))
    if (said <= PUSH).all():
        pushes = people.follows - pulled
    return Tally(np.where(said == PUSH, reached, 0), pulled * active, (pushes > 0) & active, (said == PULL) & (reached > 0),
                 np.where(said == SKIP, people.followers, people.followers - reached), np.where(said == DROP, reached, 0))


def _edges(people, rule, needs, active_days, lag, progress) -> Tally:
    """One answer an edge. Authors of the rarer answers are gathered and counted in large portions."""
    n, active = len(people.ids), people.active(active_days)
    pulled, fed = np.zeros(len(people.reads), np.int64), np.zeros(len(people.reads), bool)
    counts = {answer: _Counter(n) for answer in (PULL, SKIP, DROP)}
    posts, reads = people.posts.astype(np.float32), people.reads.astype(np.float32)
    of_author = {"author": people.ids, "followers": people.followers.astype(np.int32), "posts": posts}
    of_reader = {"reader": people.ids, "follows": people.follows.astype(np.int32), "reads": reads, "away_days": people.away_days}
    for r0, r1 in people.rows():
        lo, hi = people.starts[r0], people.starts[r1]
        a, many = people.author[lo:hi], people.follows[r0:r1]
        known = {k: v[a] for k, v in of_author.items() if k in needs}
        known |= {k: np.repeat(v[r0:r1], many) for k, v in of_reader.items() if k in needs and v is not None}
        if "post" in needs:
            known["post"] = np.arange(lo, hi)
        said = np.asarray(rule(Edges(lag=lag, **known)))
        if said.dtype == bool and said.shape == a.shape:
            pull, odd = ~said, False
        else:
            said = np.broadcast_to(said, a.shape).astype(np.int8)
            pull, odd = said == PULL, bool((said > PUSH).any())
        if not active[r0:r1].all():
            gone = np.repeat(~active[r0:r1], many)
            said, odd = np.where(gone, SKIP, said).astype(np.int8), True
            pull = said == PULL
        rows = people.starts[r0:r1 + 1] - lo
        pulled[r0:r1] = _row_sums(pull, rows)
        others = pulled[r0:r1]
        counts[PULL].add(a, pull)
        if odd:
            for answer in (SKIP, DROP):
                this = said == answer
                counts[answer].add(a, this)
                others = others + _row_sums(this, rows)
        fed[r0:r1] = others < many
        progress(int(hi), len(people.author))
    pull, skip, drop = (counts[answer].total() for answer in (PULL, SKIP, DROP))
    return Tally(people.followers - pull - skip - drop, pulled, fed, pull > 0, skip, drop)


class _Counter:
    """Counts how often each author comes; a bincount over all authors pays only for many at once."""

    def __init__(self, n: int, portion: int = 1 << 22):
        self.n, self.portion, self.waiting, self.parts, self.sum = n, portion, 0, [], np.zeros(n, np.int64)

    def add(self, authors: np.ndarray, chosen: np.ndarray) -> None:
        these = authors[chosen]
        self.parts.append(these)
        self.waiting += len(these)
        if self.waiting > self.portion:
            self.total()

    def total(self) -> np.ndarray:
        if self.waiting:
            self.sum += np.bincount(np.concatenate(self.parts), minlength=self.n)
        self.parts, self.waiting = [], 0
        return self.sum


def _classes(people, rule, needs, active_days, lag) -> Tally:
    """Every class of authors with every class of readers: a reader follows authors in proportion to their followers."""
    shape = (len(people.ids), len(people.reads))
    follows = np.maximum(people.follows, 1)
    e = Edges(author=people.ids[:, None], followers=people.followers[:, None], posts=people.posts[:, None], lag=lag,
              flagged=np.zeros((shape[0], 1), bool), post=np.arange(shape[0])[:, None] * 7919,
              reader=np.arange(shape[1])[None], follows=follows[None], reads=people.reads[None], away_days=np.zeros((1, shape[1])))
    said = np.broadcast_to(np.asarray(rule(e)), shape).astype(np.int8)
    ends = people.follows * people.reader_weight
    share = ends / ends.sum()                                        # of an author's followers, by class of reader
    owned = people.followers * people.author_weight
    owned = owned / owned.sum()                                      # of a reader's follows, by class of author
    of = {answer: (said == answer) @ share * people.followers for answer in (PUSH, PULL, SKIP, DROP)}
    return Tally(of[PUSH], owned @ (said == PULL) * people.follows, owned @ (said == PUSH) > 0, of[PULL] > 0, of[SKIP], of[DROP])


def evaluate(people: Population, rule: Policy, assume: Assumptions | None = None, *, seed: int = 1, repetitions: int = REPETITIONS,
             progress: Callable = lambda done, total: None, reach: np.ndarray | None = None) -> Outcome:
    """One policy's Outcome. `reach`: what `people.reads_of_followers` gave, to be shared by several calls."""
    assume = assume or Assumptions()
    t = tally(people, rule, assume.active_days, progress=progress)
    reach = people.reads_of_followers(assume.active_days) if reach is None else reach
    return outcome(people, rule, t, assume, reach, seed, repetitions)


def outcome(people: Population, rule: Policy, t: Tally, assume: Assumptions, reach: np.ndarray, seed: int = 1,
            repetitions: int = REPETITIONS) -> Outcome:
    """The figures of a tally."""
    c, aw, rw = assume.costs, people.author_weight, people.reader_weight
    reads = people.reads * people.active(assume.active_days)
    scale = (assume.scale or people.users) / people.users
    deliveries, pulls = people.weigh(people.posts * t.pushed, aw), people.weigh(reads * t.pulled, rw)
    pages, posts = people.weigh(reads, rw), people.posts_a_day
    live_pulls = people.weigh(np.where(t.some_pull, reach, 0), aw)
    cpu = cost.cpu_seconds(deliveries, pulls, c.delivery_s, c.l_s)
    size = redis_bytes(people, t, assume)
    largest = float(np.max(np.where(t.pushed > 0, t.pushed, 0), initial=0))
    if largest and not people.exact and t.pushed.argmax() == len(t.pushed) - 1:
        largest = people.largest
    p99 = 1 + _weighted_quantile(t.pulled, reads if rw is None else reads * rw, 0.99)
    dropped = people.weigh(people.posts * t.dropped, aw)
    cores = (cpu + pages * c.page_s) / cost.DAY * assume.peak / assume.busy
    price = None
    if assume.core_price or assume.memory_price:
        price = scale * (cores * assume.core_price + size * (1 + assume.replicas) / assume.filled / 1e9 * assume.memory_price)
    found = Outcome(
        policy=policy.name_of(rule), users=people.users * scale, posts_per_day=posts * scale, pages_per_day=pages * scale,
        deliveries_per_day=deliveries * scale, pulls_per_day=pulls * scale, live_pulls_per_day=live_pulls * scale,
        skipped_per_day=people.weigh(people.posts * t.skipped, aw) * scale, dropped_per_day=dropped * scale,
        write_amplification=deliveries / posts, pulled_authors=people.weigh(t.some_pull, aw) * scale,
        pushed_edges_share=people.weigh(t.pushed, aw) / people.edges, sources_per_page=1 + (pulls / pages if pages else 0),
        sources_per_page_p99=float(p99), cpu_seconds_per_day=cpu * scale, cpu_cores=cores * scale, redis_bytes=size * scale,
        redis_nodes=cost.nodes(size * scale, assume.node_bytes, assume.filled, assume.replicas) if size else 0,
        largest_fan_out_seconds=cost.fan_out_seconds(largest, c.deliveries_a_second),
        page_ms_p99=(c.page_s + (p99 - 1) * c.l_s) * 1e3, exact=not dropped, price_per_month=price)
    found.spread = repeat(people, t, assume, scale, seed, repetitions)
    return found


def redis_bytes(people: Population, t: Tally, assume: Assumptions) -> float:
    """Feeds of active readers that are pushed anything, and timelines of pulled authors. A feed holds between FEED_MAX and a tenth more,
    or what `history_days` brought; a rebuild fills it with pulled authors' posts too."""
    slack = assume.feed_max // 10
    by_length = np.array([cost.timeline_bytes(n, assume.layout, assume.listpack_limit,
                                              most=assume.feed_max + slack + 1 if n >= assume.feed_max else n)
                          for n in range(assume.feed_max + slack + 1)])
    entries = np.minimum(assume.history_days * people.inflow, assume.feed_max + slack / 2)
    feeds = by_length[np.rint(entries).astype(int)] * t.fed
    own = by_length[np.rint(np.minimum(assume.history_days * people.posts, assume.feed_max)).astype(int)]
    return people.weigh(feeds, people.reader_weight) + people.weigh(own * t.some_pull, people.author_weight)


def repeat(people: Population, t: Tally, assume: Assumptions, scale: float, seed: int, repetitions: int) -> dict:
    """Least and greatest of some figures over `repetitions` days whose posts and reads are drawn (Poisson of the rates)."""
    if repetitions < 2:
        return {}
    c, active = assume.costs, people.active(assume.active_days)
    deliveries, pulls, amplification = [], [], []
    for posts, reads in people.days(seed, repetitions):
        deliveries.append(float(posts @ t.pushed))
        pulls.append(float((reads * active) @ t.pulled))
        amplification.append(deliveries[-1] / max(float(posts.sum()), 1))
    cpu = [cost.cpu_seconds(d, p, c.delivery_s, c.l_s) for d, p in zip(deliveries, pulls, strict=True)]
    return {name: (min(v) * k, max(v) * k) for name, v, k in (
        ("deliveries_per_day", deliveries, scale), ("pulls_per_day", pulls, scale), ("cpu_seconds_per_day", cpu, scale),
        ("write_amplification", amplification, 1))}


def _weighted_quantile(values: np.ndarray, weight: np.ndarray, q: float) -> float:
    if values.dtype.kind == "i":
        run = np.cumsum(np.bincount(values, weight))
        return float(np.searchsorted(run, q * run[-1]))
    order = np.argsort(values)
    run = np.cumsum(weight[order])
    return float(values[order[min(np.searchsorted(run, q * run[-1]), len(values) - 1)]])


# --- several, and what to advise ---------------------------------------------------------------------------------------------------------

def usual(costs: Costs, followers: int = 10_000) -> list[Policy]:
    """The policies that a comparison shows when none are named."""
    return [policy.PushAll(), policy.PullAll(), policy.Threshold(followers), policy.Hysteresis(followers * 8 // 10, followers),
            policy.LagDriven(followers, max(1, followers // 200)), policy.ActiveOnly(30, followers), policy.RateThreshold(followers),
            policy.MinCost(costs.h_over_l), policy.Lossy(2_000, followers), policy.Slices(1_000, followers)]


def compare(people: Population, rules: list[Policy], assume: Assumptions, *, seed: int = 1, repetitions: int = REPETITIONS,
            progress: Callable = lambda name, done, total: None) -> list[Outcome]:
    reach = people.reads_of_followers(assume.active_days)
    return [evaluate(people, rule, assume, seed=seed, repetitions=repetitions, reach=reach,
                     progress=lambda done, total, name=policy.name_of(rule): progress(name, done, total)) for rule in rules]


def front(found: list[Outcome]) -> list[Outcome]:
    """The Pareto front: no other is better in CPU, memory and fan-out time at once (exact ones only)."""
    def marks(o):
        return o.cpu_seconds_per_day, o.redis_bytes, o.largest_fan_out_seconds
    def beaten(o, by):
        return marks(by) != marks(o) and all(x <= y for x, y in zip(marks(by), marks(o), strict=True))
    first: dict[tuple, Outcome] = {}
    for o in found:
        if o.exact:
            first.setdefault(marks(o), o)       # of equal ones the first
    return [o for o in first.values() if not any(beaten(o, p) for p in first.values())]


def advice(found: list[Outcome], assume: Assumptions) -> Outcome | None:
    """The exact policy with the least CPU among those whose largest author is delivered in `fresh_s`; None if there is none."""
    good = [o for o in found if o.exact and o.largest_fan_out_seconds <= assume.fresh_s]
    return min(good, key=lambda o: (o.cpu_seconds_per_day, o.redis_bytes), default=None)


def flips(found: list[Outcome], assume: Assumptions) -> list[dict]:
    """By which factor an input must change for another policy to be advised: [{input, factor, to}], the nearest first. Decisions are taken
    as they are; deliveries x H and pulls x L move with the input. Factors beyond a thousand are left out."""
    best = advice(found, assume)
    if best is None:
        return []
    c, out = assume.costs, []
    for other in found:
        if other is best or not other.exact:
            continue
        if other.largest_fan_out_seconds > assume.fresh_s:
            if other.cpu_seconds_per_day < best.cpu_seconds_per_day:      # only too slow for the largest author
                out.append({"input": "the time that the largest author may take", "factor": other.largest_fan_out_seconds / assume.fresh_s,
                            "to": other.policy})
            continue
        writes = (best.deliveries_per_day - other.deliveries_per_day) * c.delivery_s
        pulls = (other.pulls_per_day - best.pulls_per_day) * c.l_s
        if writes and pulls / writes > 0:
            x = pulls / writes
            for name, factor in (("cost of a delivery (H), or posts a day", x), ("cost of a pull (L), or reads a day", 1 / x)):
                out.append({"input": name, "factor": factor, "to": other.policy})
    near = sorted((f for f in out if 1e-3 < f["factor"] < 1e3), key=lambda f: abs(math.log(f["factor"])))
    first: dict[tuple, dict] = {}
    for f in near:      # of each input the nearest in either direction
        first.setdefault((f["input"], f["factor"] > 1), f)
    return list(first.values())
