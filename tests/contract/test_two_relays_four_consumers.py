"""Two relays and four consumers, as processes, on eight partitions: 20,000 posts by several writers at once, while
consumers leave, are killed and join. At the end 200 users' scrolls are the SQL pull answer, and every delivery was
counted exactly once."""

import random
import threading
import time
import zlib

import pytest
from conftest import fresh_lab, until

from feedlab import db, kafka, outbox, pull, repair
from feedlab.core.codec import Event
from feedlab.lab.workers import Workers
from feedlab.reader import scroll

SEED = 3
USERS, POSTS, WRITERS, BULK = 800, 20_000, 4, 500
SAMPLE = 200
# What a killed consumer held stands still for this long; the default, 10 s, is for machines that may pause.
CONSUMER = {"session.timeout.ms": 3_000}

BULK_POSTS = """
    insert into posts (id, author_id, created_at_ms, content)
    select *, 'x' from unnest(%s::bigint[], %s::bigint[], %s::bigint[])"""
BULK_OUTBOX = "insert into outbox (topic, key, payload) select %s, * from unnest(%s::bigint[], %s::text[])"


def write_bulk(conn, ids, names, authors: list[int]) -> None:
    """Posts and their outbox rows in one transaction, as `posts.create` makes them, many at once."""
    drawn = [ids.next() for _ in authors]
    events = [Event("posted", author=a, post=i, ms=ms).encode() for a, (i, ms) in zip(authors, drawn, strict=True)]
    with conn.transaction():
        conn.execute(BULK_POSTS, ([i for i, _ in drawn], authors, [ms for _, ms in drawn]))
        conn.execute(BULK_OUTBOX, (names.created, authors, events))
        conn.execute("select pg_notify(%s, '')", (names.channel,))


def load_follows(lab, pairs: set[tuple[int, int]], users: int) -> None:
    """Users 1..users, all active, and who follows whom, straight into SQL: no events, so before any feed is built."""
    lab.conn.execute("insert into users select n, 'user ' || n from generate_series(1, %s) n", (users,))
    lab.conn.execute("insert into user_activity (user_id) select id from users")
    lab.conn.execute(
        "insert into follows select * from unnest(%s::bigint[], %s::bigint[])",
        tuple(map(list, zip(*sorted(pairs), strict=True))),
    )
    lab.conn.execute("insert into follower_counts select followee_id, 0, count(*) from follows group by 1")


def draw_follows(rng: random.Random) -> set[tuple[int, int]]:
    """A heavy tail: 2 to 200 followers, 10 on average."""
    pairs = set()
    for author in range(1, USERS + 1):
        fans = rng.sample(range(1, USERS + 1), min(200, int(3 / (1 - rng.random()) ** 0.7)))
        pairs |= {(u, author) for u in fans if u != author}
    return pairs


@pytest.mark.timeout(240)
def test_two_relays_and_four_consumers_that_come_and_go(addresses, capsys):
    # BATCH above the largest author: a consumer that is killed between the record of the next slice and its own effect
    # makes the record twice, and the second is counted again. Whole records are counted exactly once.
    with fresh_lab(
        addresses, f"t_{zlib.crc32(b'relays'):08x}", partitions=8, threshold=10**6, feed_max=100, batch=1_000, trace_s=0
    ) as lab:
        rng = random.Random(SEED)
        load_follows(lab, draw_follows(rng), USERS)
        sample = rng.sample(range(1, USERS + 1), SAMPLE)
        repair.warm(lab.conn, lab.redis, lab.settings, sample)
        failures: list[BaseException] = []
        with Workers(lab.settings, lab.addresses, relays=2, consumers=4, consumer=CONSUMER) as workers:
            workers.wait_ready(lab)
            began = time.monotonic()
            threads = [threading.Thread(target=write, args=(lab, n, failures), daemon=True) for n in range(WRITERS)]
            for t in threads:
                t.start()
            tell = []
            for share, what in ((0.1, "leaves"), (0.3, "joins"), (0.4, "killed"), (0.6, "leaves and joins")):
                until(lambda: lab.stats().get("pushed", 0) >= share * POSTS, 60, f"{share} of the posts")  # noqa: B023
                consumers = [p for kind, p in workers.running if kind == "fanout"]
                if what == "killed":
                    workers.kill("fanout", 1)
                elif what != "joins":
                    consumers[0].terminate()
                    consumers[0].wait(10)
                if what != "leaves":
                    workers.watch()
                tell.append(f"{what} at {lab.stats()['pushed']:,}")
            for t in threads:
                t.join(60)
            lab.drain(90)
            seconds = time.monotonic() - began
            stats = lab.stats()
            kafka.wait_members(lab.admin, lab.names.group, 4)
        (expected,) = lab.conn.execute("select count(*) from posts join follows on followee_id = author_id").fetchone()
        equal = sum(
            [i for p in scroll(lambda c: lab.page(u, c, 50)) for i in p.ids]  # noqa: B023
            == [e.id for e in pull.everything(lab.conn, u)]
            for u in sample
        )
        with capsys.disabled():
            print(
                f"\n  {POSTS:,} posts, {stats['deliveries']:,} deliveries in {seconds:.1f} s, 2 relays, 4 consumers, "
                f"8 partitions; a "
                f"consumer {', '.join(tell)}; {equal} of {SAMPLE} scrolls equal, seed {SEED}"
            )
        assert failures == []
        assert lab.conn.execute("select count(*) from posts").fetchone() == (POSTS,)
        assert outbox.depth(lab.conn) == 0
        assert (stats["pushed"], stats["deliveries"]) == (POSTS, expected)
        assert equal == SAMPLE


def write(lab, n: int, failures: list) -> None:
    """One writer's share, on a connection and a node number of its own."""
    try:
        rng = random.Random(f"{SEED} writer {n}")
        with db.connect(lab.addresses.postgres_url, lab.settings.namespace) as conn:
            ids = db.ids(conn)
            for _ in range(POSTS // WRITERS // BULK):
                write_bulk(conn, ids, lab.names, [rng.randint(1, USERS) for _ in range(BULK)])
    except BaseException as e:  # the test fails on it, not the thread
        failures.append(e)
