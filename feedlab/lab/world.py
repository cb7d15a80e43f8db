"""A world to try the feed on: a generated follow graph with celebrities, and who posts and reads how much.

    python -m feedlab.lab.world generate --out data --seed 11    makes data/follows.csv.gz and data/activity.csv
    python -m feedlab.lab.world figures data/follows.csv.gz     degree figures as the table in data/README.md

Everything is drawn from numpy's generator with a seed: same seed, same numpy, same world.
"""
import gzip
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import BadInput
from .graph import Graph, from_edges, read_graph

USERS, CELEBRITIES, SEED = 4_000, 10, 11
POSTS_A_DAY, READS_A_DAY = 0.5, 10.0  # means; the design's section 2
# log-normal: the top 10 % hold the share Phi(sigma - 1.2816). 2.12 gives 80 % (Wojcik and Hughes, Sizing Up Twitter
# Users, Pew Research Center 2019: the most active 10 % of US adults on Twitter write 80 % of their tweets)
POST_SIGMA = 2.12
READ_SIGMA = 1.0   # our choice, no published figure: the top 10 % do 39 % of the reading
POST_FOLLOWERS = 0.3  # our choice: correlation of (log) posting with (log) followers; who is heard says more


# ---------------------------------------------------------------------------------------------------- the follow graph

def generate(seed: int = SEED, users: int = USERS, celebrities: int = CELEBRITIES) -> Graph:
    """A directed follow graph over ids 1 to `users`, of which the first `celebrities` are far ahead of the rest.

    Ordinary users: a Chung-Lu graph, that is, follows drawn with probability proportional to (eagerness of the follower
    x appeal of the followee), both log-normal and correlated, then a fifth of the follows returned (22 % of pairs on
    Twitter are mutual; Kwak et al. 2010). Celebrity k is followed by a share of all that falls from 55 % to 22 %. They
    get no share of the other draws; with the default seed the last of them has 896 followers, the first ordinary user
    473. 1 % of the users follow nobody: their feed is empty, and must not be rebuilt at every read (fault F7).
    """
    if users < 100 or not 0 <= celebrities <= users // 10:
        raise BadInput(f"a world needs 100 users or more and at most a tenth of them as celebrities, "
                       f"got {users} and {celebrities}.")
    rng = np.random.default_rng(seed)
    appeal_z = rng.standard_normal(users)
    eager_z = 0.5 * appeal_z + np.sqrt(0.75) * rng.standard_normal(users)
    appeal, eager = np.exp(0.75 * appeal_z), np.exp(0.85 * eager_z)
    appeal[:celebrities] = 0
    idle = rng.random(users) < 0.01
    eager[idle] = 0
    draws = 39 * users  # with the returned ones, and less the repeats, a mean of about 45 follows a user
    follower = rng.choice(users, draws, p=eager / eager.sum())
    followee = rng.choice(users, draws, p=appeal / appeal.sum())
    back = (rng.random(draws) < 0.2) & (follower >= celebrities) & ~idle[followee]
    pairs = [(follower, followee), (followee[back], follower[back])]
    for k in range(celebrities):
        share = 0.55 * 0.4 ** (k / max(celebrities - 1, 1))
        fans = np.flatnonzero((rng.random(users) < share) & ~idle)
        pairs.append((fans, np.full(len(fans), k)))
    u, v = (np.concatenate(side) + 1 for side in zip(*pairs, strict=True))
    return from_edges(u, v, True, f"generated, seed {seed}", why="generated as follows")


def write_graph(graph: Graph, path: Path) -> None:
    """`path` as gzipped CSV with the header follower,followee; no time or name inside, so same graph, same bytes (with
    the same zlib)."""
    rows = np.char.add(np.char.add(graph.follower.astype(str), ","), graph.followee.astype(str))
    text = "follower,followee\n" + "\n".join(rows.tolist()) + "\n"
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))


def figures(graph: Graph) -> dict[str, dict[str, float]]:
    """Mean, median, p99 and maximum of followers and followees over all users of the graph."""
    return {name: {"mean": float(np.mean(x)), "median": float(np.median(x)), "p99": float(np.percentile(x, 99)),
                   "max": int(np.max(x))}
            for name, x in (("followers", graph.followers), ("followees", graph.followees))}


def figures_table(graph: Graph) -> str:
    """`figures` as Markdown table rows, beside the published ones; data/README.md holds them, a test compares."""
    lines = ["| | mean | median | p99 | max |", "|---|---|---|---|---|"]
    for name, f in figures(graph).items():
        lines.append(f"| {name} here | {f['mean']:.1f} | {f['median']:.0f} | {f['p99']:.0f} | {f['max']:,} |")
    lines += ["| friends, Facebook 2011 (Ugander et al. 2011) | 190 | 99 | | 5,000 (the site's limit) |",
              "| followers, Twitter 2009 (Kwak et al. 2010) | 35 | | | 2,997,469 |"]
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------------------- activity

@dataclass(frozen=True, eq=False)
class Activity:
    """How much each user writes and reads. Arrays are float64 (users,), aligned with `users`, never negative."""

    users: np.ndarray  # int64, sorted user ids
    posts: np.ndarray  # posts a day
    reads: np.ndarray  # feed reads a day


def activity(graph: Graph, seed: int = SEED) -> Activity:
    """Posts and reads a day for each user: log-normal, with the design's means of 0.5 and 10.

    ln posts = 2.12 (0.3 f + sqrt(1 - 0.3^2) z) + const, where z is standard normal and f the standardised log(1 +
    followers): the top tenth writes about 80 % of the posts (Pew Research Center 2019, see POST_SIGMA), and accounts
    with many followers write more. ln reads = 1.0 z' + const, independent (our choice). The correlation is why
    deliveries a post exceed the mean follower count.
    """
    rng = np.random.default_rng([seed, 1])  # a stream of its own, apart from the graph's
    n = len(graph.users)
    f = np.log1p(graph.followers)
    f = (f - f.mean()) / (f.std() or 1.0)
    post_z, read_z = rng.standard_normal(n), rng.standard_normal(n)
    posts = np.exp(POST_SIGMA * (POST_FOLLOWERS * f + np.sqrt(1 - POST_FOLLOWERS**2) * post_z))
    reads = np.exp(READ_SIGMA * read_z)
    return Activity(graph.users, posts * (POSTS_A_DAY / posts.mean()), reads * (READS_A_DAY / reads.mean()))


def draw_posts(act: Activity, n: int, seed: int = SEED) -> np.ndarray:
    """Author ids of n posts in order, int64 (n,): independent draws, weighted by posts a day."""
    return np.random.default_rng([seed, 2]).choice(act.users, n, p=act.posts / act.posts.sum())


def draw_reads(act: Activity, n: int, seed: int = SEED) -> np.ndarray:
    """Reader ids of n feed reads in order, int64 (n,): independent draws, weighted by reads a day."""
    return np.random.default_rng([seed, 3]).choice(act.users, n, p=act.reads / act.reads.sum())


def write_activity(act: Activity, path: Path) -> None:
    """`path` as CSV: user,posts_a_day,reads_a_day with four significant digits."""
    rows = zip(act.users.tolist(), act.posts.tolist(), act.reads.tolist(), strict=True)
    path.write_text("user,posts_a_day,reads_a_day\n" + "".join(f"{u},{p:.4g},{r:.4g}\n" for u, p, r in rows))


# ------------------------------------------------------------------------------------------ what must be delivered

@dataclass(frozen=True)
class Deliveries:
    """Feed writes that a list of posts costs, when every follower is active and has a feed."""

    posts: int
    hybrid: int        # only authors below the threshold are pushed
    push: int          # pure push: every follower of every post
    pull: int          # pure pull: none
    pull_authors: int  # authors among these posts at or above the threshold

    @property
    def write_amplification(self) -> float:
        """Feed writes a post under the hybrid."""
        return self.hybrid / self.posts if self.posts else 0.0


def expected_deliveries(graph: Graph, authors: np.ndarray, threshold: int) -> Deliveries:
    """The exact count for posts by `authors` (user ids, one a post): the sum over posts of the author's followers when
    they are fewer than `threshold`. Raises BadInput for an author who is not in the graph."""
    authors = np.asarray(authors, np.int64)
    at = np.minimum(np.searchsorted(graph.users, authors), len(graph.users) - 1)
    strangers = authors[graph.users[at] != authors]
    if len(strangers):
        raise BadInput(f"user {strangers[0]} is not in the graph {graph.source}.")
    followers = graph.followers[at]
    pushed = followers < threshold
    return Deliveries(len(authors), int(followers[pushed].sum()), int(followers.sum()), 0,
                      len(np.unique(authors[~pushed])))


# ---------------------------------------------------------------------------------------------------- command line

def _app():
    import typer

    app = typer.Typer(add_completion=False, no_args_is_help=True,
                      help="The generated world in data/: a follow graph with celebrities, and activity.")

    @app.command("generate")
    def generate_command(
            out: Path = typer.Option("data", help="Folder to write follows.csv.gz and activity.csv into."),
            seed: int = typer.Option(SEED, min=0, help="Same seed, same world."),
            users: int = typer.Option(USERS, min=100, help="Number of users."),
            celebrities: int = typer.Option(CELEBRITIES, min=0, help="Accounts far ahead of the rest.")):
        """Write a world. Example: python -m feedlab.lab.world generate --out data --seed 11"""
        graph = _or_exit(lambda: generate(seed, users, celebrities))
        try:
            out.mkdir(parents=True, exist_ok=True)
            write_graph(graph, out / "follows.csv.gz")
            write_activity(activity(graph, seed), out / "activity.csv")
        except OSError as e:
            typer.echo(f"{out} cannot be written: {e.strerror}.", err=True)
            raise typer.Exit(2) from None
        typer.echo(graph.description())
        typer.echo(figures_table(graph))

    @app.command("figures")
    def figures_command(path: Path = typer.Argument(..., help="Edge list, as `feedlab load` takes it.")):
        """Degree figures of a graph. Example: python -m feedlab.lab.world figures data/follows.csv.gz"""
        graph = _or_exit(lambda: read_graph(path))
        typer.echo(graph.description())
        typer.echo(figures_table(graph))

    def _or_exit(make):
        try:
            return make()
        except BadInput as e:
            typer.echo(str(e), err=True)
            raise typer.Exit(2) from None

    return app


if __name__ == "__main__":
    _app()()
