"""A page without help from Redis: the feed is gone and is built again, or the cursor is below the floor. Beside the SQL pull."""
import numpy as np

from .. import pull
from ..addresses import Addresses
from ..config import Settings
from ..core import cursor
from ..core.model import START
from ..reader import HYDRATE, Reader, scroll
from .ground import fill_posts, follow, ground, warm
from .measure import clock, interleaved, percentile, row
from .page_cached import LIMIT, percentiles, pulled, timed


def run(settings: Settings, addresses: Addresses, *, rounds: int = 7, pages: int = 20, followees: int = 300, posts_each: int = 10,
        feed_max: int = 500, say=lambda *a: None) -> dict:
    """A reader of `followees` authors with `posts_each` posts; a feed of `feed_max`. Times are the median of a round."""
    with clock() as took, ground(settings, addresses, "cold", feed_max=feed_max, threshold=10**9) as lab:
        say("page, cold: filling tables")
        user, authors = 1, [10**6 + n for n in range(followees)]
        follow(lab, [(user, a) for a in authors])
        fill_posts(lab, np.tile(authors, posts_each))
        warm(lab, [user])
        reader, key, times = Reader(lab.settings), lab.names.feed(user), {}
        below = pull.everything(lab.conn, user)[feed_max + 50]

        def rebuild() -> None:
            reader.page(lab.conn, lab.redis, user)

        def pull_all() -> None:
            rows = pull.page(lab.conn, user, START, feed_max + 1)
            lab.conn.execute(HYDRATE, ([e.id for e in rows[:LIMIT]],)).fetchall()

        def evicted(what):
            def once():                     # the eviction is not clocked
                lab.redis.unlink(key)
                return timed(times, "rebuild", what, 1)()
            return lambda: percentile([once() for _ in range(pages)], 0.5)

        at = cursor.text(below)
        ways = {"rebuild": evicted(rebuild), "pull of the same entries": timed(times, "pull of the same entries", pull_all, pages),
                "pull of a page": timed(times, "pull of a page", lambda: pulled(lab, user), pages),
                "below the floor": timed(times, "below the floor", lambda: reader.page(lab.conn, lab.redis, user, at), pages),
                "pull below": timed(times, "pull below", lambda: pulled(lab, user, below), pages)}
        found = interleaved(ways, rounds, lambda n: say("page, cold: rounds", n, rounds))
        counts = exact(lab, reader, user, at)
    table = [row("rebuild of a feed and page one", found["rebuild"], f"SQL pull of the same {feed_max + 1} entries",
                 found["pull of the same entries"], "s", at_most=2),
             row("rebuild of a feed and page one", found["rebuild"], "SQL pull of one page", found["pull of a page"], "s"),
             row("a page below the floor", found["below the floor"], "SQL pull of that page", found["pull below"], "s", at_most=2)]
    return {"station": "page_cold", "rows": table, "counts": counts, "seconds": took(),
            "points": percentiles(times),
            "conditions": f"{followees} followees, {followees * posts_each:,} posts, feed of {feed_max}, {pages} pages a round, "
                          f"{rounds} rounds"}


def exact(lab, reader: Reader, user: int, at: str) -> dict:
    """How each page was made, by its own word, and whether page, feed and scroll are right."""
    lab.redis.unlink(lab.names.feed(user))
    rebuilt, again = reader.page(lab.conn, lab.redis, user), reader.page(lab.conn, lab.redis, user)
    deep = reader.page(lab.conn, lab.redis, user, at)
    whole = [i for page in scroll(lambda c: reader.page(lab.conn, lab.redis, user, c, 50)) for i in page.ids]
    return {"first": rebuilt.explain.feed, "second": again.explain.feed, "same_page": rebuilt.ids == again.ids,
            "entries": lab.redis.zcard(lab.names.feed(user)) - 1, "below_floor": deep.explain.below_floor,
            "drawn_from_sql_below": deep.explain.taken.get("sql", 0), "drawn_from_feed_below": deep.explain.taken.get("feed", 0),
            "scroll_is_right": whole == [e.id for e in pull.everything(lab.conn, user)]}
