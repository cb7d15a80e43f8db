"""Where is a post? Its row, the outbox, Kafka, the decision, the feeds that hold it, and when it came to each.

    with open_lab(settings()) as lab:
        trace(lab, post_id)          # reads only; changes nothing

Each time is by the clock of its step: PostgreSQL's for the outbox, the relay's for Kafka, Redis's for the feeds. On
one machine they are one clock, give or take a millisecond of rounding.
"""

from dataclasses import asdict, dataclass

from .. import kafka
from ..core.codec import Event, member
from ..core.snowflake import parts
from ..errors import NotFound
from .session import Lab

ROW = """
    select p.author_id, p.created_at_ms, p.content, p.deleted, coalesce(f.raised, false),
           (select (extract(epoch from o.created_at) * 1000)::bigint from outbox o
            where o.slice = (p.author_id & 15)::smallint and o.key = p.author_id and o.payload = %(payload)s
            order by o.id limit 1)
    from posts p left join pull_flags f on f.author_id = p.author_id where p.id = %(post)s"""

# the followers that the fan-out delivers to, by keyset
FOLLOWERS = """
    select f.follower_id from follows f
    join user_activity u on u.user_id = f.follower_id and u.last_seen_at > now() - %s * interval '1 day'
    where f.followee_id = %s and f.follower_id > %s order by f.follower_id limit 1000"""


@dataclass
class Feeds:
    """The author's active followers, by what their feed has of the post now. The other five add up to the first."""

    active_followers: int = 0
    holding: int = 0  # the post is in the feed
    no_feed: int = 0  # there is none: its reader will rebuild it from SQL
    building: int = 0  # somebody is building it right now
    below_floor: int = 0  # the feed begins above the post: SQL answers for it
    absent: int = 0  # could hold it and does not: pulled, still on its way, or deleted


@dataclass
class Trace:
    """What `feedlab trace` prints. A time is None when it is unknown: not reached yet, or the trace has expired."""

    post: int
    author: int
    text: str
    created_at_ms: int
    written_ms: int  # when it was really written (from its id); differs from created_at_ms when back-dated
    deleted: bool
    outbox: str  # waiting | sent
    topic: str | None
    partition: int | None
    offset: int | None
    decision: str  # pending | pushed | pulled | gone | unknown
    flagged: bool  # readers pull this author
    in_celebrity_timeline: bool
    deliveries: int  # feed writes that were tried, one a follower
    lag: int  # records that the consumer has still before it, in all partitions
    feeds: Feeds
    outbox_ms: int | None  # these four: milliseconds since written_ms
    kafka_ms: int | None
    first_feed_ms: int | None
    last_feed_ms: int | None

    def as_dict(self) -> dict:
        """For JSON: ids as strings, since they pass 2^53."""
        return asdict(self) | {"post": str(self.post), "author": str(self.author)}


def trace(lab: Lab, post_id: int) -> Trace:
    """Follow one post. Costs one round trip a thousand active followers. Raises NotFound."""
    found = lab.conn.execute("select author_id, created_at_ms from posts where id = %s", (post_id,)).fetchone()
    if found is None:
        raise NotFound(
            f"there is no post {post_id}. `feedlab feed USER` shows ids, `feedlab post` prints the id it gave."
        )
    payload = Event(
        "posted", author=found[0], post=post_id, ms=found[1]
    ).encode()  # exactly what `posts.create` put there
    author, created, text, deleted, flagged, waiting = lab.conn.execute(
        ROW, {"post": post_id, "payload": payload}
    ).fetchone()
    written, hash_ = parts(post_id)[0], lab.redis.hgetall(lab.names.trace(post_id))
    topic, partition, offset, outbox_at, kafka_at = _place(hash_.get("place"))
    in_celeb = lab.redis.zscore(lab.names.celeb(author), member(post_id)) is not None
    lag = kafka.lag(lab.admin, lab.redis, lab.names)
    deliveries = int(hash_.get("deliveries", 0))

    def since(ms) -> int | None:
        return int(ms) - written if ms else None

    return Trace(
        post_id,
        author,
        text,
        created,
        written,
        deleted,
        "sent" if waiting is None else "waiting",
        topic,
        partition,
        offset,
        _decision(hash_.get("decision"), waiting is not None or lag > 0, deleted),
        flagged,
        in_celeb,
        deliveries,
        lag,
        feeds_of(lab, author, post_id, created),
        since(outbox_at or waiting),
        since(kafka_at),
        since(hash_.get("first_ms")),
        since(hash_.get("last_ms")),
    )


def _place(place: str | None) -> tuple:
    """topic, partition, offset, outbox ms, kafka ms of `topic:partition:offset:ms:ms` (fanout.Work.where)."""
    if not place:
        return None, None, None, None, None
    topic, *numbers = place.rsplit(":", 4)
    return topic, *map(int, numbers)


def _decision(noted: str | None, on_its_way: bool, deleted: bool) -> str:
    """What the consumer noted beside the write (a slice is part of a push); nothing noted: not there yet, deleted before it
    came, or the trace has expired."""
    if noted:
        return "pulled" if noted == "pulled" else "pushed"
    return "pending" if on_its_way else "gone" if deleted else "unknown"


def feeds_of(lab: Lab, author: int, post_id: int, ms: int) -> Feeds:
    """How many feeds of the author's active followers hold the post now."""
    feeds, after, entry = Feeds(), -1, member(post_id)
    while users := [u for (u,) in lab.conn.execute(FOLLOWERS, (lab.settings.active_days, author, after))]:
        pipe = lab.redis.pipeline(transaction=False)
        for u in users:
            pipe.zrange(lab.names.feed(u), 0, 0, withscores=True)  # the state: always the first member
            pipe.zscore(lab.names.feed(u), entry)
        answers = pipe.execute()
        for state, score in zip(answers[::2], answers[1::2], strict=True):
            kind = _kind(state, score is not None, ms)
            setattr(feeds, kind, getattr(feeds, kind) + 1)
        feeds.active_followers += len(users)
        after = users[-1]
    return feeds


def _kind(state: list, holding: bool, ms: int) -> str:
    if not state:
        return "no_feed"
    name, floor = state[0]
    if name != "floor":
        return "building"
    return "holding" if holding else "below_floor" if ms <= floor else "absent"
