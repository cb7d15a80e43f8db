"""Histories: what happens to a feed, as a list of small steps, run on live engines against ours or the textbook's.

A step is a list of a name and arguments, so that a history is JSON and can be stored, shrunk and replayed:

    [["post", 1], ["follow", 0, 1], ["pump"], ["evict", 0], ["scroll", 0, 2]]

Users are small numbers. The clock of posts is the history's own, in milliseconds; it moves when a step says so, so that posts
share a millisecond as often as not. Nothing sleeps: relay and consumer are stepped (`relay`, `consume`, `pump` = both until
quiet); `kill` lets one die before its n-th call to an engine and starts it again; `inside` runs other steps just before the n-th
call that a relay, a consumer or a page makes, so that every interleaving can be written down. `random_history(seed)` draws one; its weights are drawn anew
for each, often zero (swarm testing: what is rare together becomes common).
"""
import random
from dataclasses import asdict, dataclass, field

KINDS = {       # name -> (weight, arguments); u a user, a another user, n a number, k a post
    "post": (10, "u"), "tick": (3, "n"), "burst": (1, "un"), "late": (1, "u"), "commit": (2, ""), "back_dated": (1, "un"),
    "delete": (1, "k"), "follow": (4, "ua"), "unfollow": (2, "ua"), "page": (4, "un"), "scroll": (2, "un"),
    "absent": (1, "u"), "threshold": (1, "n"), "feed_max": (0.5, "n"), "demote": (1.5, "u"),
    "evict": (1.5, "u"), "evict_celeb": (1, "u"), "flush": (0.3, ""), "snapshot": (1, ""), "restore": (0.7, ""),
    "rebuild": (1, "u"), "rebuild_on": (3, "u"), "hold": (0.7, "u"), "hold_on": (1.5, ""), "relay": (6, ""), "consume": (6, ""), "pump": (1, ""),
    "kill": (1.5, "wc"), "inside": (2, "Wc"), "again": (1, "k"), "clock_back": (0.3, "n"),
}       # w: "relay" or "consume"; W: those or "page"; c: which call
DISRUPTIONS = {"evict": "eviction", "evict_celeb": "eviction", "flush": "eviction", "restore": "snapshot restored",
               "threshold": "threshold move", "feed_max": "FEED_MAX move", "kill": "kill", "rebuild": "paused rebuild", "hold": "late delivery",
               "inside": "change in between", "again": "redelivery", "late": "late commit",
               "absent": "absence", "clock_back": "clock step", "demote": "demotion", "back_dated": "back-dated post",
               "delete": "delete", "unfollow": "unfollow"}
INSIDE = ("post", "follow", "unfollow", "delete", "evict", "page", "rebuild", "rebuild_on", "commit", "threshold", "restore")


@dataclass
class History:
    """`steps` on `users` users (0, 1, 2 ...); `follows` are there from the start, as are the two knobs."""
    steps: list[list]
    users: int = 4
    follows: list[list[int]] = field(default_factory=list)
    feed_max: int = 5
    threshold: int = 99
    name: str = ""

    def as_dict(self) -> dict:
        return asdict(self)

    @property
    def faults(self) -> list[str]:
        """Which disruptions it holds, in words."""
        flat = [s for step in self.steps for s in ([step, *step[-1]] if step[0] == "inside" else [step])]
        return sorted({DISRUPTIONS[s[0]] for s in flat if s[0] in DISRUPTIONS})


def random_history(seed: int, number: int = 0, only: list[str] | None = None) -> History:
    """History `number` of a seed. `only`: values of DISRUPTIONS that may appear (None: all)."""
    rng = random.Random(seed * 1_000_003 + number)
    users = rng.choice([3, 4, 5])
    names = [n for n in KINDS if only is None or n not in DISRUPTIONS or DISRUPTIONS[n] in only]
    weights = {n: KINDS[n][0] * rng.choice([0, 0.3, 1, 3]) for n in names}
    weights["post"] = max(weights["post"], 3)
    weights["consume"] = max(weights["consume"], 0.5)

    def argument(kind: str, u: int):
        return {"u": u, "a": rng.choice([x for x in range(users) if x != u]), "n": rng.choice([1, 1, 2, 3, 5, 9]),
                "k": rng.randrange(40), "c": rng.choice([1, 2, 3, 4, 5, 6, 8]), "w": rng.choice(["relay", "consume", "consume"]),
                "W": rng.choice(["relay", "consume", "consume", "page"])}[kind]

    def step(among: list[str], inner: bool = False) -> list:
        name = rng.choices(among, [weights[n] + (0.2 if inner else 0) for n in among])[0]
        u = rng.randrange(users)
        drawn = [name, *(argument(kind, u) for kind in KINDS[name][1])]
        if name == "inside":
            inside = [n for n in INSIDE if n in weights]
            drawn.append([step(inside, True) for _ in range(rng.choice([1, 1, 2]))])
        return drawn
    pairs = [[u, a] for u in range(users) for a in range(users) if u != a]
    return History([step(names) for _ in range(rng.choice([15, 30, 60]))], users,
                   rng.sample(pairs, rng.choice([0, len(pairs) // 3, 2 * len(pairs) // 3])),
                   feed_max=rng.choice([1, 2, 3, 5]), threshold=rng.choice([1, 2, 3, 99]), name=f"seed {seed} history {number}")
