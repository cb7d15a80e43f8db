"""Fan-out on write: three ways of making a post into feed writes, and a record that comes twice (notebook 04)."""
from collections.abc import Mapping

from confluent_kafka import TopicPartition

from ... import timeline
from ...bench import delivery
from ...bench.ground import ground
from ...bench.measure import Counts, counted_redis
from ...bench.memory import build
from ...core.model import Entry
from ...draw import plots
from ...textbook import fanout as textbook

WAYS = {"naive": "one round trip a follower", "textbook": "client pipeline", "ours": "server-side function", "bare": "bare ZADD, no check"}


def rates(b, followers: int = 100, feed_max: int = 200, posts: int = 40, rounds: int = 3) -> dict:
    """What `feedlab bench delivery` returns, on fewer and shorter feeds: deliveries a second, interleaved."""
    b.also(f"{b.settings.namespace[:16].rstrip('_')}_delivery")
    found = delivery.run(b.settings, b.addresses, rounds=rounds, posts=posts, followers=followers, feed_max=feed_max, say=b.progress)
    b.progress.close()
    return found


def ratio(found: dict, fast: str, slow: str) -> float:
    """How many times as many deliveries a second, by the medians."""
    return found["points"][fast]["median"] / found["points"][slow]["median"]


def rates_figure(found: dict):
    """Deliveries a second of each way, slowest first."""
    points = found["points"]
    fig = plots.bars(f"The server-side function delivers {ratio(found, 'ours', 'naive'):.0f} times as fast as one round trip a follower",
                     list(WAYS.values()), [points[w]["median"] for w in WAYS], "deliveries a second", measured=2)
    return fig.update_layout(margin={"l": 170})


def wire(b, followers: int = 50) -> dict[str, dict[str, int]]:
    """What one post costs on the wire to Redis, each way, counted at the socket: {way: {"trips", "commands"}}."""
    lab, counts = b.open(), Counts()
    keys = {way: [f"{lab.names.namespace}:{way}:{n}" for n in range(followers)] for way in ("naive", "textbook", "ours")}
    for some in keys.values():
        for key in some:
            build(lab.redis, key, 10)
    r, found = counted_redis(lab.addresses.redis_url, counts), {}
    entry = Entry(2**41, 2**60)

    def naive() -> None:
        for key in keys["naive"]:
            pipe = r.pipeline(transaction=False)
            textbook.add(pipe, key, entry.id, entry.ms, 500)
            pipe.execute()

    def pipeline() -> None:
        pipe = r.pipeline(transaction=False)
        for key in keys["textbook"]:
            textbook.add(pipe, key, entry.id, entry.ms, 500)
        pipe.execute()

    def ours() -> None:
        pipe = r.pipeline(transaction=False)
        timeline.deliver(pipe, lab.names, ("wire", "", "1"), keys["ours"], [entry], 500)
        pipe.execute()
    try:
        r.ping()
        for way, call in (("naive", naive), ("textbook", pipeline), ("ours", ours)):
            counts.reset()
            call()
            found[way] = {"trips": counts.trips, "commands": counts.commands}
    finally:
        r.hdel(lab.names.progress, "wire")
        r.close()
        for some in keys.values():
            lab.redis.unlink(*some)
    return found


# --- redelivery -----------------------------------------------------------------------------------------------------------------

def village(b, readers: int = 10) -> None:
    """Users 0 to `readers` - 1 follow authors 100 and 101, and have feeds; nothing waits."""
    b.people(readers)
    b.people(2, first=100)
    for user in range(readers):
        b.follow(user, 100, 101)
    b.pump()                                  # each follow drops the feed once more: build them after that
    for user in range(readers):
        b.open().page(user)


def feeds(b) -> dict[str, list]:
    """Every feed of the namespace as Redis holds it: {key: [(member, score)]}."""
    lab = b.open()
    return {key: lab.redis.zrange(key, 0, -1, withscores=True) for key in sorted(lab.redis.scan_iter(match=lab.names.feed("*")))}


def again_by_kafka(b) -> dict:
    """Kafka hands out every record a second time (as after a rebalance before the commit). What the consumer did with them."""
    lab, (_, fanout) = b.open(), b.stations()
    before = lab.stats()
    for field in list(fanout.place):
        topic, partition = field.rsplit(":", 1)
        fanout.consumer.seek(TopicPartition(topic, int(partition), 0))
    records = 0
    while done := fanout.once(0.5).records:
        records += done
    return {"records": records} | gained(before, lab.stats())


def again_by_redis(b) -> dict:
    """Redis knows an older place in the posts' topic, as after a restart from a snapshot: the consumer sees it and replays. What was
    delivered, and what of it was new. (Graph events would be replayed too; they drop feeds, and are left alone here.)"""
    lab, _ = b.open(), b.stations()
    before = lab.stats()
    posted = [field for field in lab.redis.hkeys(lab.names.progress) if field.startswith(lab.names.created + ":")]
    lab.redis.hset(lab.names.progress, mapping=dict.fromkeys(posted, 0))
    b.pump()
    return gained(before, lab.stats())


def gained(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Deliveries counted since, and entries that were really added."""
    return {what: after.get(what, 0) - before.get(what, 0) for what in ("deliveries", "added")}


def onto_nothing(b, user: int, author: int) -> dict:
    """A feed is evicted, then a post is delivered to it: entries afterwards by the article's two commands, and by ours."""
    lab = b.open()
    ours, other = lab.names.feed(user), f"{lab.names.namespace}:textbook:{user}"
    lab.redis.unlink(ours, other)
    before = lab.stats().get("missing", 0)
    post, = b.post(author, "after the eviction")
    b.pump()
    pipe = lab.redis.pipeline(transaction=False)
    textbook.add(pipe, other, post.id, post.created_at_ms, 500)
    pipe.execute()
    found = {"textbook": lab.redis.zcard(other), "ours": lab.redis.zcard(ours), "missing": lab.stats()["missing"] - before}
    lab.redis.unlink(other)
    return found


def trimmed(b, feed_max: int = 20, posts: int = 100) -> list[tuple[int, int]]:
    """One feed while `posts` posts come, one by one: (entries, posts below its floor). In a namespace of its own."""
    with ground(b.settings, b.addresses, "trim") as lab:
        b.also(lab.names.namespace)
        key, sizes = lab.names.feed(1), []
        build(lab.redis, key, feed_max)
        for n in range(1, posts + 1):
            entry = Entry(2**41 + n, 2**60 + n)
            timeline.deliver(lab.redis, lab.names, ("trim", "" if n == 1 else str(n - 1), str(n)), [key], [entry], feed_max)
            t = timeline.get(lab.redis, key)
            sizes.append((len(t.entries), feed_max + n - len(t.entries)))
        return sizes


def trimmed_figure(sizes: list[tuple[int, int]], feed_max: int = 20):
    """The feed's length as posts come: it grows into the slack, is cut back, grows again."""
    fig = plots.figure(f"A feed of FEED_MAX {feed_max} never holds more than {max(n for n, _ in sizes)} entries", "posts delivered",
                       "entries")
    fig.add_scatter(y=[n for n, _ in sizes], mode="lines", line={"shape": "hv"}, name="entries in the feed")
    fig.add_scatter(y=[n for _, n in sizes], mode="lines", line={"dash": "dot"}, name="below the floor: SQL has them")
    return fig.update_yaxes(rangemode="tozero")
