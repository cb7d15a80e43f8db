"""A random history on live engines, relay and consumer running: at the end every scroll is the SQL answer."""
import random

import pytest
from conftest import add_users, running

from feedlab import follows, posts, pull
from feedlab.reader import scroll

LAB = {"feed_max": 5, "threshold": 6}
USERS = range(10)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_scrolls_equal_the_pull_answer(lab, seed):
    rng, base = random.Random(seed), seed * 100
    add_users(lab, *(base + u for u in USERS))

    def pair():
        u, v = rng.sample(USERS, 2)
        return base + u, base + v
    with running(lab):
        for _ in range(250):
            u, v = pair()
            kind = rng.choices(["post", "follow", "unfollow", "read", "delete"], [8, 4, 1, 3, 1])[0]
            if kind == "post":
                posts.create(lab.conn, lab.ids, lab.names, u, "hello")
            elif kind == "follow":
                follows.follow(lab.conn, lab.redis, lab.names, u, v if rng.random() < 0.7 else base)\
                    if v != base and u != base else None
            elif kind == "unfollow":
                follows.unfollow(lab.conn, lab.redis, lab.names, u, v)
            elif kind == "read":
                lab.page(u)
            else:
                mine = pull.newest(lab.conn, [u])
                if mine:
                    posts.delete(lab.conn, lab.names, u, rng.choice(mine).id)
        lab.drain()
        for u in USERS:
            want = [e.id for e in pull.everything(lab.conn, base + u)]
            for limit in (1, 3, 50):
                got = [i for p in scroll(lambda c: lab.page(base + u, c, limit)) for i in p.ids]   # noqa: B023
                assert got == want, (seed, base + u, limit)
