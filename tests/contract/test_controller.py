"""The threshold follows the live lag: a burst takes it down within its bounds, calm brings it up again, noise does not
make it flap; the authors that it crosses, both ways and under load, lose nothing, and no flag stays up for ever."""

import random
import threading
import zlib

import pytest
from conftest import fresh_lab, running, until
from test_two_relays_four_consumers import load_follows, write_bulk

from feedlab import controller, db, outbox, pull
from feedlab.controller import Controller, Marks
from feedlab.reader import Reader, scroll

SEED = 4
USERS = 60
# 20 authors with 3 to 60 followers: between floor and ceiling nearly all are crossed, both ways
FANS = {a: min(USERS - 1, 3 * a) for a in range(1, 21)}
MARKS = Marks(high=400, low=40, floor=5, ceiling=64, patience_s=0.5)


@pytest.mark.parametrize(
    "noise,moves",
    [
        ("between the marks", (0, 0)),
        ("on both sides of high", (1, 4)),
        ("on both sides of low", (0, 0)),
        ("everything", (1, 4)),
    ],
)
def test_noise_does_not_make_it_flap(noise, moves):
    """An hour of lag that jumps at each look, one a second, patience 10 s. From 400, where it starts, to the floor of
    50 are three moves, to the ceiling of 800 one; a controller without patience would move at nearly each of the 3,600
    looks."""
    low, high = {
        "between the marks": (501, 5_000),
        "on both sides of high": (4_000, 6_000),
        "on both sides of low": (0, 4_999),
        "everything": (0, 20_000),
    }[noise]
    rng, now, threshold, seen = random.Random(SEED), [0.0], 400, []
    c = Controller(Marks(floor=50, ceiling=800), clock=lambda: now[0])
    for _ in range(3_600):
        now[0] += 1
        wanted = c.decide(rng.choice((low, high)) if noise != "everything" else rng.randint(low, high), threshold)
        if wanted != threshold:
            seen.append(wanted)
        threshold = wanted
        assert 50 <= threshold <= 800
    assert moves[0] <= len(seen) <= moves[1], seen


def test_it_never_moves_twice_within_its_patience():
    rng, now, threshold, at = random.Random(SEED), [0.0], 400, []
    c = Controller(Marks(floor=1, ceiling=10**6, patience_s=10), clock=lambda: now[0])
    for _ in range(20_000):
        now[0] += rng.random()
        wanted = c.decide(rng.choice((0, 0, 0, 10**6)) if now[0] % 200 < 100 else 0, threshold)
        if wanted != threshold:
            at.append(now[0])
        threshold = wanted
    assert len(at) > 20 and min(b - a for a, b in zip(at, at[1:], strict=False)) >= 10


@pytest.mark.timeout(200)
def test_bursts_move_it_down_calm_moves_it_up_and_nothing_is_lost(addresses, capsys):
    with fresh_lab(
        addresses, f"t_{zlib.crc32(b'controller'):08x}", partitions=4, threshold=64, feed_max=40, batch=20
    ) as lab:
        rng = random.Random(SEED)
        load_follows(
            lab,
            {(u, a) for a, n in FANS.items() for u in rng.sample([u for u in range(1, USERS + 1) if u != a], n)},
            USERS,
        )
        stop, said, lags, values, wrong = threading.Event(), [], [], [], []
        step = controller.step

        def watched(c, conn, lag):
            lags.append(lag)
            values.append(step(c, conn, lag))
            return values[-1]

        controller.step = watched
        loops = [
            threading.Thread(
                target=controller.run,
                args=(lab.settings, lab.addresses, MARKS, stop.is_set, said.append, 0.1),
                daemon=True,
            ),
            threading.Thread(target=post_all_the_time, args=(lab, stop, wrong), daemon=True),
            threading.Thread(target=read_all_the_time, args=(lab, stop, wrong), daemon=True),
        ]
        for t in loops:
            t.start()
        try:
            for burst in (1, 2):
                # no consumer: the lag passes `high` and stays there, so the threshold goes to its floor
                for _ in range(3):
                    write_bulk(lab.conn, lab.ids, lab.names, [rng.randint(1, 20) for _ in range(200)])
                until(lambda: db.knobs(lab.conn)["threshold"] == MARKS.floor, 30, f"the floor in burst {burst}")
                with running(lab, consumers=1):
                    until(lambda: pulled(lab) > 0, 30, "pulled posts")
                    until(
                        lambda: db.knobs(lab.conn)["threshold"] == MARKS.ceiling, 60, f"the ceiling after burst {burst}"
                    )
                    until(lambda: flags(lab) == 0, 60, "all authors demoted")
            stop.set()
            for t in loops:
                t.join(20)
                assert not t.is_alive()
            with running(lab):
                lab.drain()
                unequal = [
                    u
                    for u in range(1, USERS + 1)
                    if [i for p in scroll(lambda c: lab.page(u, c, 50)) for i in p.ids]  # noqa: B023
                    != [e.id for e in pull.everything(lab.conn, u)]
                ]
        finally:
            stop.set()
            controller.step = step
        moves = [b for a, b in zip([64, *values], values, strict=False) if a != b]
        s = lab.stats()
        with capsys.disabled():
            (made,) = lab.conn.execute("select count(*) from posts").fetchone()
            print(
                f"\n  {made:,} posts, {s['pushed']:,} pushed, {s['pulled']:,} pulled, {s['demotions']} demotions; "
                f"lag up to {max(lags):,}; "
                f"the threshold moved {len(moves)} times: {' '.join(map(str, moves))}; seed {SEED}"
            )
        assert wrong == [] and unequal == [] and outbox.depth(lab.conn) == 0
        assert max(lags) > MARKS.high and MARKS.floor <= min(values) <= max(values) <= MARKS.ceiling
        # 64 32 16 8 5 and up again 10 20 40 64: four down and four up in each burst, unless the load passed `high` on
        # the way up
        assert 16 <= len(moves) <= 24, moves
        assert s["pushed"] > 0 and s["pulled"] > 0 and s["demotions"] > 0


def pulled(lab) -> int:
    return lab.stats().get("pulled", 0)


def flags(lab) -> int:
    return lab.conn.execute("select count(*) from pull_flags where raised").fetchone()[0]


def post_all_the_time(lab, stop, wrong) -> None:
    """Ten posts a second by anybody: below `low` while the consumer runs, and enough for authors to post in mid-demotion."""
    try:
        rng = random.Random(f"{SEED} posts")
        with db.connect(lab.addresses.postgres_url, lab.settings.namespace) as conn:
            ids = db.ids(conn)
            while not stop.wait(0.1):
                write_bulk(conn, ids, lab.names, [rng.randint(1, 20)])
    except BaseException as e:  # the test fails on it
        wrong.append(e)


def read_all_the_time(lab, stop, wrong) -> None:
    """Scrolls without end; no page may repeat a post or go out of order, wherever the threshold is."""
    try:
        rng, reader = random.Random(f"{SEED} reads"), Reader(lab.settings)
        with db.connect(lab.addresses.postgres_url, lab.settings.namespace) as conn:
            while not stop.wait(0.01):
                user = rng.randint(1, USERS)
                pages = scroll(lambda c: reader.page(conn, lab.redis, user, c, 20))  # noqa: B023
                got = [p.entry for page in pages for p in page.posts]
                if got != sorted(set(got), reverse=True):
                    wrong.append(f"user {user}: {got}")
    except BaseException as e:  # the test fails on it
        wrong.append(e)
