"""A comparison from start to end: people, assumptions, policies, what is advised and what would flip it.

    s = run(graphs.read("article"), Rates.even(), [], Assumptions())
    s.advised.policy, s.flips, s.tail
"""
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from ..core import cost, policy
from ..core.policy import Policy, Rates
from . import bursts, simulate
from .graphs import Degrees, Follows
from .simulate import Assumptions, Outcome, Population

BIG = 10_000       # followers: the article's threshold, at which the tail is looked at


@dataclass
class Study:
    graph: Follows | Degrees
    people: Population
    rules: list[Policy]
    assume: Assumptions
    outcomes: list[Outcome]
    seed: int
    advised: Outcome | None = None
    flips: list[dict] = field(default_factory=list)
    front: list[Outcome] = field(default_factory=list)
    tail: dict = field(default_factory=dict)

    def rule(self, name: str) -> Policy:
        return next(r for r in self.rules if policy.name_of(r) == name)

    def as_dict(self) -> dict:
        return {"graph": self.graph.understood(), "seed": self.seed, "assumptions": asdict(self.assume),
                "outcomes": [o.as_dict() for o in self.outcomes], "advised": self.advised and self.advised.policy,
                "flips": self.flips, "front": [o.policy for o in self.front], "tail": self.tail}


def run(graph: Follows | Degrees, rates: Rates | None, rules: list[Policy], assume: Assumptions, *, spread: bool = False, seed: int = 1,
        repetitions: int = simulate.REPETITIONS, trace=None, burst: bool = True,
        progress: Callable = lambda name, done=None, total=None: None) -> Study:
    """Compare `rules` (none: the usual ones) on a graph. Raises BadInput."""
    people = simulate.population(graph, rates, spread)
    rules = list(rules) or simulate.usual(assume.costs)
    reach, outcomes = people.reads_of_followers(assume.active_days), []
    for rule in rules:
        name = policy.name_of(rule)
        t = simulate.tally(people, rule, assume.active_days, progress=lambda done, total, name=name: progress(name, done, total))
        o = simulate.outcome(people, rule, t, assume, reach, seed, repetitions)
        if burst:
            o.burst = bursts.run(people, rule, t, assume, trace=trace, seed=seed, repetitions=repetitions)
        outcomes.append(o)
        progress(name, 1, 1)
    s = Study(graph, people, rules, assume, outcomes, seed)
    s.advised, s.flips = simulate.advice(outcomes, assume), simulate.flips(outcomes, assume)
    s.front, s.tail = simulate.front(outcomes), tail(people)
    return s


def tail(people: Population, threshold: int = BIG) -> dict:
    """Which share of the deliveries authors of `threshold` or more followers own here, and under the two laws that have the same mean and
    largest author (None where none has): {threshold, here, pareto, lognormal}."""
    owned = people.posts * people.followers * (1 if people.author_weight is None else people.author_weight)
    out = {"threshold": threshold, "here": float(owned[people.followers >= threshold].sum() / owned.sum()) if owned.sum() else 0.0}
    mean = people.edges / people.users
    for name, fit, share in (("pareto", cost.fit_pareto, cost.pareto_share), ("lognormal", cost.fit_lognormal, cost.lognormal_share)):
        try:
            out[name] = share(threshold, *fit(mean, people.largest, people.users))
        except ValueError:
            out[name] = None
    return out


def tail_sentence(t: dict, exact: bool) -> str:
    here = f"Authors of {t['threshold']:,} or more followers own {t['here']:.1%} of the deliveries here"
    if t["pareto"] is None or t["lognormal"] is None or exact:
        return here + "."
    return (f"{here}. With this mean and this largest author it is {t['pareto']:.1%} if the tail is a Pareto and "
            f"{t['lognormal']:.1%} if it is log-normal: the answer hangs on the tail. Bring a degree histogram or the graph "
            "itself (--graph FILE).")


def sweep(people: Population, thresholds: list[int], feed_maxes: list[int], assume: Assumptions, *, seed: int = 1,
          repetitions: int = simulate.REPETITIONS, progress: Callable = lambda name, done=None, total=None: None) -> list[dict]:
    """An outcome for each threshold and FEED_MAX, as dicts with both in them. Each threshold passes over the edges once."""
    reach, out = people.reads_of_followers(assume.active_days), []
    for i, threshold in enumerate(thresholds):
        rule = policy.Threshold(threshold)
        t = simulate.tally(people, rule, assume.active_days)
        for feed_max in feed_maxes:
            o = simulate.outcome(people, rule, t, replace(assume, feed_max=feed_max), reach, seed, repetitions)
            out.append({"threshold": threshold, "feed_max": feed_max} | o.as_dict())
        progress("threshold", i + 1, len(thresholds))
    return out


def steps(low: int, high: int, n: int) -> list[int]:
    """At most n whole numbers from low to high, evenly spaced on a logarithmic scale.

    >>> steps(10, 1000, 3)
    [10, 100, 1000]
    """
    return sorted({int(round(x)) for x in np.geomspace(max(low, 1), max(high, 1), n)} | {low, high}) if n > 1 else [low]
