"""Fan-out on read: what a page by SQL costs, against followees and table size (notebook 05)."""
from collections.abc import Sequence

from ... import pull
from ...bench.ground import FIRST_ID, FIRST_MS, STEP_MS, follow, warm
from ...bench.growth import median_of
from ...bench.measure import exponent, rows_read
from ...core.model import START, Entry
from ...draw import plots
from ...reader import HYDRATE

LIMIT = 20
AUTHORS = 10**6           # the first author's id

# As it is usually written: everything of everybody, sorted, cut last.
SIMPLE = """
    select created_at_ms, id from posts where not deleted and author_id in (select followee_id from follows where follower_id = %(user)s)
        and (created_at_ms, id) < (%(ms)s, %(id)s)
    order by created_at_ms desc, id desc limit %(limit)s"""
QUERIES = {"simple": SIMPLE, "an index range an author": pull.PAGE}


def fill(b, authors: int = 1_000, posts_each: int = 60) -> int:
    """`authors` authors with `posts_each` posts, written in turn. Posts in the table."""
    lab, n = b.open(), authors * posts_each
    lab.conn.execute("insert into users (id, name) select %s + n, 'author ' || n from generate_series(0, %s) n on conflict do nothing",
                     (AUTHORS, authors - 1))
    lab.conn.execute("insert into posts (id, author_id, created_at_ms, content) select %s + n, %s + n %% %s, %s + n * %s, 'post ' || n "
                     "from generate_series(0, %s) n", (FIRST_ID, AUTHORS, authors, FIRST_MS, STEP_MS, n - 1))
    lab.conn.execute("vacuum analyze posts")
    return n


def grow(b, to: int, author: int = AUTHORS - 1) -> None:
    """Let somebody whom nobody here follows write until the table has `to` posts, all newer than the others."""
    lab = b.open()
    have, = lab.conn.execute("select count(*) from posts").fetchone()
    lab.conn.execute("insert into users values (%s, 'somebody else') on conflict do nothing", (author,))
    lab.conn.execute("insert into posts (id, author_id, created_at_ms, content) select %s + n, %s, %s + n * %s, 'elsewhere' "
                     "from generate_series(%s::bigint, %s::bigint) n", (FIRST_ID, author, FIRST_MS, STEP_MS, have, to - 1))
    lab.conn.execute("vacuum analyze posts")


def readers(b, followees: Sequence[int]) -> dict[int, int]:
    """One reader for each number of followees, with feeds built. {followees: user id}"""
    lab, found = b.open(), {n: k + 1 for k, n in enumerate(followees)}
    follow(lab, [(user, AUTHORS + k) for n, user in found.items() for k in range(n)])
    warm(lab, found.values())
    for user in found.values():
        lab.page(user)            # contents into the post cache
    return found


def asked(b, user: int, query: str = "an index range an author", before: Entry = START, limit: int = LIMIT) -> dict:
    """What a page by a query of QUERIES reads: rows out of tables and indexes, probes, 8 kB pages, milliseconds inside PostgreSQL."""
    wanted = {"user": user, "ms": before.ms, "id": before.id, "limit": limit, "own": False}
    return rows_read(b.open().conn, QUERIES[query], wanted)


def by_pull(b, user: int) -> list:
    """A whole page by pull: entries, then contents."""
    conn = b.open().conn
    rows = pull.page(conn, user, START, LIMIT)
    return conn.execute(HYDRATE, ([e.id for e in rows],)).fetchall()


def against_followees(b, people: dict[int, int], repeat: int = 25) -> list[dict]:
    """Page one by pull and from the feed, for each reader: {"followees", "rows", "pull_ms", "feed_ms"}, medians."""
    lab, points = b.open(), []
    for done, (n, user) in enumerate(people.items()):
        b.progress("reading pages", done, len(people))
        points.append({"followees": n, "rows": asked(b, user)["rows"],
                       "pull_ms": median_of(repeat, lambda user=user: by_pull(b, user)) * 1e3,
                       "feed_ms": median_of(repeat, lambda user=user: lab.page(user)) * 1e3})
    b.progress.close()
    return points


def against_table(b, user: int, sizes: Sequence[int], repeat: int = 25) -> list[dict]:
    """The same reader while the table grows by other people's posts: {"posts", "rows", "blocks", "pull_ms"}."""
    points = []
    for done, size in enumerate(sizes):
        b.progress("growing the table", done, len(sizes))
        grow(b, size)
        read = asked(b, user)
        points.append({"posts": size, "rows": read["rows"], "blocks": read["blocks"],
                       "pull_ms": median_of(repeat, lambda: by_pull(b, user)) * 1e3})
    b.progress.close()
    return points


def growth(points: list[dict], by: str) -> float:
    """The fitted exponent of the pull's time over `by`: 0 does not grow, 1 is proportional."""
    return exponent([p[by] for p in points], [p["pull_ms"] for p in points])


def followees_figure(points: list[dict]):
    """Milliseconds a page against followees: pull grows, the feed does not."""
    last = points[-1]
    fig = plots.figure(f"At {last['followees']:,} followees a pull takes {last['pull_ms'] / last['feed_ms']:.0f} times as long as the feed",
                       "followees (log)", "milliseconds a page (log)")
    x = [p["followees"] for p in points]
    fig.add_scatter(x=x, y=[p["pull_ms"] for p in points], mode="lines+markers", name="pull: SQL", hovertemplate="%{x:,}: %{y:.2f} ms")
    fig.add_scatter(x=x, y=[p["feed_ms"] for p in points], mode="lines+markers", name="push: the feed in Redis", line={"dash": "dot"},
                    hovertemplate="%{x:,}: %{y:.2f} ms")
    return fig.update_xaxes(type="log").update_yaxes(type="log")


def table_figure(points: list[dict]):
    """Milliseconds a page against the size of the posts table."""
    first, last = points[0], points[-1]
    fig = plots.figure(f"The table grows {last['posts'] / first['posts']:.0f} times, the pull reads "
                       f"{last['rows'] / first['rows']:.1f} times as many rows", "posts in the table (log)", "milliseconds a page")
    fig.add_scatter(x=[p["posts"] for p in points], y=[p["pull_ms"] for p in points], mode="lines+markers", showlegend=False,
                    hovertemplate="%{x:,} posts: %{y:.2f} ms")
    return fig.update_xaxes(type="log").update_yaxes(rangemode="tozero")


def rows_figure(people: dict[int, int], rows: dict[str, list[int]]):
    """Rows read a page by each query, against followees."""
    fig = plots.figure(f"The simple query reads {rows['simple'][-1] / rows['an index range an author'][-1]:.1f} times as many rows",
                       "followees", "rows read a page")
    for (name, values), dash in zip(rows.items(), ("solid", "dot"), strict=True):
        fig.add_scatter(x=list(people), y=values, mode="lines+markers", name=name, line={"dash": dash},
                        hovertemplate="%{x:,}: %{y:,} rows")
    return fig.update_yaxes(rangemode="tozero")
