"""A bound to compare with: social piggybacking through hubs, greedily ("Piggybacking on Social Networks", PVLDB 6(6), 2013).

An author's post can reach a reader through a common contact, the hub: the author is pushed to the hub's feed, and the reader pulls the hub.
Then the edge from author to reader costs nothing of its own. Our pipeline does not do it: it shows how much cheaper than MinCost one
could get.
"""
from dataclasses import dataclass

import numpy as np

from ..core import cost
from ..core.policy import Rates
from ..errors import BadInput
from .graphs import Follows

EDGES_MAX = 5_000_000


@dataclass(frozen=True)
class Bound:
    """CPU seconds a day: of MinCost, and with the hubs that greedy choice found worth it; `covered` edges ride for nothing."""
    min_cost_s: float
    piggyback_s: float
    hubs: int
    covered: int

    @property
    def saved(self) -> float:
        return 1 - self.piggyback_s / self.min_cost_s if self.min_cost_s else 0.0


def greedy(follows: Follows, rates: Rates, h: float, l: float, hubs: int = 200) -> Bound:
    """Try the `hubs` users with the most follows and followers, the largest first; a hub takes the authors and readers that pay. Each edge
    rides at most once. Raises BadInput for a graph beyond 5 M follows."""
    n = follows.users
    if len(follows.reader) > EDGES_MAX:
        raise BadInput(f"the piggyback bound takes at most {EDGES_MAX:,} follows, this graph has {len(follows.reader):,}.")
    posts, reads = rates.posts_of(follows.ids), rates.reads_of(follows.ids)
    key = follows.reader.astype(np.int64) * n + follows.author                     # sorted
    least = np.minimum(posts[follows.author] * h, reads[follows.reader] * l)        # what MinCost pays an edge
    left = np.ones(len(key), bool)                                                  # neither riding nor fixed
    start = np.concatenate([[0], np.cumsum(follows.follows)])
    by_author = np.argsort(follows.author, kind="stable")
    begin = np.concatenate([[0], np.cumsum(follows.followers)])
    now, used, covered = least.copy(), 0, 0
    for w in np.argsort(follows.follows * follows.followers, kind="stable")[::-1][:hubs]:
        up = np.arange(start[w], start[w + 1])                 # edges author -> hub
        down = by_author[begin[w]:begin[w + 1]]                # edges hub -> reader
        up, down = up[left[up]], down[left[down]]
        if not len(up) or not len(down):
            continue
        authors, readers = follows.author[up], follows.reader[down]
        wanted = readers.astype(np.int64)[:, None] * n + authors[None]
        at = np.minimum(np.searchsorted(key, wanted), len(key) - 1)
        gain = np.where((key[at] == wanted) & left[at], now[at], 0.0)
        push_more = posts[authors] * h - now[up]               # beyond what these edges cost already
        pull_more = reads[readers] * l - now[down]
        a, r = np.ones(len(authors), bool), np.ones(len(readers), bool)
        while True:                                            # drop who does not pay, until all who are left do
            a2 = a & ((gain * r[:, None]).sum(0) > push_more)
            r2 = r & ((gain * a2[None]).sum(1) > pull_more)
            if (a2 == a).all() and (r2 == r).all():
                break
            a, r = a2, r2
        riding = (gain > 0) & a[None] & r[:, None]
        profit = gain[riding].sum() - push_more[a].sum() - pull_more[r].sum()
        if profit <= 0:
            continue
        now[up[a]], now[down[r]] = posts[authors[a]] * h, reads[readers[r]] * l
        left[up[a]] = left[down[r]] = False
        now[at[riding]] = 0
        left[at[riding]] = False
        used, covered = used + 1, covered + int(riding.sum())
    total = float(np.sum(cost.edge_cost(reads[follows.reader], posts[follows.author],
                                        cost.push_edge(reads[follows.reader], posts[follows.author], h, l), h, l)))
    return Bound(total, float(now.sum()), used, covered)
