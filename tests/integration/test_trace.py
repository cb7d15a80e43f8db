"""Where a post is, at each station of its way, on real engines."""
import json

import pytest
from conftest import add_users, running, until

from feedlab import follows, posts
from feedlab.errors import NotFound
from feedlab.lab.trace import trace

LAB = {"feed_max": 5, "threshold": 4, "batch": 2}     # two followers a slice


@pytest.fixture(scope="module", autouse=True)
def world(lab):
    """1 is followed by two, 2 by six; 90 follows 1 as well but was never here."""
    add_users(lab, 1, 2, *range(10, 16))
    posts.create_user(lab.conn, 90, "never here")
    for user, author in [(10, 1), (11, 1), (90, 1), *((u, 2) for u in range(10, 16))]:
        follows.follow(lab.conn, lab.redis, lab.names, user, author)
    with running(lab):
        lab.drain()
    yield


def write(lab, author: int, **options) -> int:
    return posts.create(lab.conn, lab.ids, lab.names, author, "hello", **options).id


def visit(lab, *users: int) -> None:
    for u in users:
        lab.page(u)           # makes the feed


def test_unknown(lab):
    with pytest.raises(NotFound, match="there is no post 5"):
        trace(lab, 5)


def test_waiting_then_pushed(lab):
    visit(lab, 10, 11)
    post = write(lab, 1)
    t = trace(lab, post)
    assert (t.outbox, t.decision, t.topic, t.kafka_ms, t.first_feed_ms) == ("waiting", "pending", None, None, None)
    assert 0 <= t.outbox_ms < 5_000 and t.feeds.absent == 2 and t.author == 1
    with running(lab):
        lab.drain()
    t = trace(lab, post)
    assert (t.outbox, t.decision, t.topic, t.deliveries, t.lag) == ("sent", "pushed", lab.names.created, 2, 0)
    assert t.partition in (0, 1) and t.offset >= 0
    assert (t.feeds.active_followers, t.feeds.holding) == (2, 2), "90 was never here, so it is no active follower"
    # each step after the one before, but for a millisecond of rounding between clocks
    assert t.outbox_ms - 1 <= t.kafka_ms <= t.first_feed_ms + 1 and t.first_feed_ms <= t.last_feed_ms
    json.dumps(t.as_dict(), allow_nan=False)
    assert t.as_dict()["post"] == str(post)


def test_pulled(lab):
    visit(lab, *range(10, 16))
    post = write(lab, 2)
    with running(lab):
        lab.drain()
    t = trace(lab, post)
    assert (t.decision, t.flagged, t.in_celebrity_timeline, t.deliveries) == ("pulled", True, True, 0)
    assert t.feeds.holding == 0 and t.feeds.active_followers == 6
    assert t.first_feed_ms is not None, "when celeb:2:recent had it"


def test_large_author_in_slices(lab):
    from feedlab import db
    db.set_knobs(lab.conn, threshold=100)
    try:
        visit(lab, *range(10, 16))
        post = write(lab, 2)
        with running(lab):
            until(lambda: lab.drain() or trace(lab, post).deliveries == 6)
    finally:
        db.set_knobs(lab.conn, threshold=4)
    t = trace(lab, post)
    assert (t.decision, t.deliveries, t.feeds.holding) == ("pushed", 6, 6)
    assert t.topic == lab.names.created and t.outbox_ms is not None


def test_feeds_that_do_not_hold_it(lab):
    visit(lab, 10)
    lab.redis.unlink(lab.names.feed(11))
    old = write(lab, 1, created_at_ms=1_000)
    with running(lab):
        for _ in range(8):                       # FEED_MAX is 5: the floor of 10 rises above the old post
            write(lab, 1)
        lab.drain()
    t = trace(lab, old)
    assert t.feeds.below_floor == 1 and t.feeds.no_feed == 1 and t.feeds.holding == 0
    assert t.created_at_ms == 1_000
    assert 0 <= t.outbox_ms < 5_000, "times count from the writing, not from the date it bears"


def test_deleted(lab):
    visit(lab, 10, 11)
    post = write(lab, 1)
    posts.delete(lab.conn, lab.names, 1, post)
    t = trace(lab, post)
    assert t.deleted and t.decision == "pending"
    with running(lab):
        lab.drain()
    t = trace(lab, post)
    assert t.deleted and t.decision == "gone" and t.feeds.holding == 0


def test_expired(lab):
    post = write(lab, 1)
    with running(lab):
        lab.drain()
    lab.redis.unlink(lab.names.trace(post))
    t = trace(lab, post)
    assert (t.decision, t.outbox, t.topic) == ("unknown", "sent", None)


def test_a_half_built_feed(lab):
    from feedlab import timeline
    post = write(lab, 1)
    lab.redis.unlink(lab.names.feed(10))
    assert timeline.begin(lab.redis, lab.names.feed(10), 5)
    assert trace(lab, post).feeds.building == 1
    lab.redis.unlink(lab.names.feed(10))
