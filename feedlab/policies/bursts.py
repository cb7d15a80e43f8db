"""What happens in time: lag, freshness and fairness of one consumer while a burst passes.

    found = run(people, rule, tally(people, rule), assume)          # the article's burst: ten times the mean for five minutes
    found = run(people, rule, t, assume, trace=rates.read_trace("higgs-activity_time.txt.gz").compressed(100))

One consumer stands for all: it has its share of the posts. There are as many as the mean load at `peak` times needs. A post waits until
those before it are done, then takes `1 / posts_a_second + followers / deliveries_a_second`. Without feedback that is Lindley's recursion,
over arrays; a policy that looks at the lag goes by batches, one that takes turns post by post.
"""
from collections import deque

import numpy as np

from ..core import cost, policy
from ..core.policy import Edges, LagDriven, Policy
from .rates import Trace
from .simulate import REPETITIONS, Assumptions, Population, Tally

SMALL = 1_000            # followers: authors below it are the small ones whose wait is looked at
HORIZON_S = 1_800.0
BURST = (600.0, 900.0, 10.0)      # from, to (s), times the mean (article, 9.4)
WARM_UP = 0.1            # of the time, cut off before anything is counted
POSTS_MAX = 150_000      # of one repetition; of more, one stands for several and takes as long as they
BATCH = 64               # posts that a policy with an eye on the lag is asked about at once


def consumers_for(deliveries_per_day: float, posts_per_day: float, assume: Assumptions) -> int:
    """Consumers for the mean load at `peak` times, each busy as assumed; at least one."""
    c = assume.costs
    busy = (deliveries_per_day / c.deliveries_a_second + posts_per_day / c.posts_a_second) / cost.DAY
    return max(assume.consumers, int(np.ceil(busy * assume.peak / assume.busy)))


def posts_of(posts_a_second: float, trace: Trace | None, burst: tuple = BURST) -> float:
    """How many posts one consumer gets in the time that is looked at."""
    start, end, times = burst
    return posts_a_second * (trace.seconds if trace else HORIZON_S + (end - start) * (times - 1))


def arrivals(rng, wanted: float, trace: Trace | None, burst: tuple = BURST) -> np.ndarray:
    """Times of about `wanted` posts, float64 sorted: Poisson with the article's burst, or in the trace's own shape."""
    if trace is None:
        start, end, times = burst
        whole = HORIZON_S + (end - start) * (times - 1)                # the burst's seconds count `times` fold
        at = np.sort(rng.random(rng.poisson(wanted))) * whole
        stretched = np.where(at < start, at, np.where(at < start + (end - start) * times, start + (at - start) / times,
                                                      at - (end - start) * (times - 1)))
        return stretched
    return np.sort(trace.at[rng.integers(0, len(trace.at), rng.poisson(wanted))] + rng.random())


def run(people: Population, rule: Policy, t: Tally, assume: Assumptions, *, trace: Trace | None = None,
        burst: tuple = BURST, seed: int = 1, repetitions: int = REPETITIONS) -> dict:
    """Means of the repetitions, each figure with (least, greatest) of them as `<name>_spread`; `burst` is (from s, to s, times the mean).
    lag_posts_max and lag_s_max (at the worst moment), fresh_s_p50 and fresh_s_p99 (from posting to the last feed),
    small_s_p99 (of authors below 1,000 followers), consumers."""
    aw = 1 if people.author_weight is None else people.author_weight
    scale = (assume.scale or people.users) / people.users
    deliveries, posts = people.weigh(people.posts * t.pushed, people.author_weight) * scale, people.posts_a_day * scale
    n = consumers_for(deliveries, posts, assume)
    share = people.posts * aw / people.posts_a_day
    run_share = np.cumsum(share)
    wanted = posts_of(posts / cost.DAY / n, trace, burst)
    each = max(1.0, wanted / POSTS_MAX)
    found: dict[str, list] = {}
    for repetition in range(repetitions):
        rng = np.random.default_rng([seed, repetition])
        at = arrivals(rng, wanted / each, trace, burst)
        if len(at) < 2:
            continue
        author = np.minimum(np.searchsorted(run_share, rng.random(len(at)) * run_share[-1]), len(share) - 1)
        for name, value in _one(people, rule, t, assume, at, author, each).items():
            found.setdefault(name, []).append(value)
    out = {"consumers": n, "repetitions": repetitions}
    for name, values in found.items():
        out[name] = float(np.mean(values))
        out[name + "_spread"] = (float(min(values)), float(max(values)))
    return out


def _one(people, rule, t: Tally, assume, at: np.ndarray, author: np.ndarray, many: float) -> dict:
    """Of one repetition, in which a post stands for `many`."""
    c = assume.costs
    own, each = many / c.posts_a_second, many / c.deliveries_a_second
    work = own + t.pushed[author] * each
    if isinstance(rule, LagDriven) or "lag" in policy.needs(rule):
        done = _with_lag(people, rule, at, author, own, each, many)
    elif getattr(rule, "turn", None):
        done = _in_turns(at, t.pushed[author], own, each, rule.turn)
    else:
        done = finished(at, work)
    counted = at >= at[0] + (at[-1] - at[0]) * WARM_UP
    wait = (done - at)[counted]
    small = wait[people.followers[author][counted] < SMALL]
    behind = np.arange(1, len(at) + 1) - np.searchsorted(np.sort(done), at, "right")
    return {"lag_posts_max": float(behind[counted].max()) * many, "lag_s_max": float(wait.max()), "fresh_s_p50": float(np.median(wait)),
            "fresh_s_p99": float(np.quantile(wait, 0.99)), "small_s_p99": float(np.quantile(small, 0.99)) if len(small) else 0.0}


def finished(at: np.ndarray, work: np.ndarray) -> np.ndarray:
    """When each of the jobs is done, first come first served: done(i) = max(done(i-1), at(i)) + work(i) (Lindley 1952), for all at once.

    >>> finished(np.array([0.0, 1.0, 5.0]), np.array([2.0, 2.0, 1.0])).tolist()
    [2.0, 4.0, 6.0]
    """
    total = np.cumsum(work)
    return total + np.maximum.accumulate(at - (total - work))


def _with_lag(people, rule, at, author, own, each, many) -> np.ndarray:
    """In small batches, as the consumer decides: the policy sees how many wait when a batch begins."""
    done, free = np.empty(len(at)), 0.0
    for i in range(0, len(at), BATCH):
        a, when = author[i:i + BATCH], at[i:i + BATCH]
        lag = int(np.searchsorted(at, max(free, when[0]), "right")) - i            # all before this batch are done by then
        e = Edges(author=people.ids[a], followers=people.followers[a], posts=people.posts[a], lag=max(0, lag) * many)
        said = policy.answers(rule, e, len(a))
        work = own + np.where(said == policy.PUSH, people.followers[a], 0) * each
        done[i:i + BATCH] = finished(np.maximum(when, free), work)
        free = float(done[min(i + BATCH, len(at)) - 1])
    return done


def _in_turns(at, pushed, own, each, turn: int) -> np.ndarray:
    """The first `turn` followers when the post's time comes, the rest as jobs behind whatever waits by then."""
    done, jobs, now, i = np.empty(len(at)), deque(), 0.0, 0
    times, sizes = at.tolist(), pushed.tolist()
    while i < len(times) or jobs:
        if not jobs:
            now = max(now, times[i])
        while i < len(times) and times[i] <= now:
            jobs.append((i, sizes[i], True))
            i += 1
        if not jobs:
            continue
        n, left, first = jobs.popleft()
        part = min(left, turn)
        if len(jobs) == 0 and left > turn and i < len(times):       # alone: as many turns as fit before the next post comes
            part = min(left, max(turn, turn * int((times[i] - now) / (turn * each))))
        elif not jobs and i == len(times):
            part = left
        now += (own if first else 0) + part * each
        if left > part:
            while i < len(times) and times[i] <= now:
                jobs.append((i, sizes[i], True))
                i += 1
            jobs.append((n, left - part, False))
        else:
            done[n] = now
    return done
