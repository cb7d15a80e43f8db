"""The article's consumer: ZADD and ZREMRANGEBYRANK a follower in a pipeline, offsets committed after the batch.

F1: members are the ids as text, unpadded. F2: at or above the threshold the post is only put on celeb:{author}:recent, and
nothing remembers that. F3: ZADD onto a feed that is not there makes a feed of one. F10: the follower list may be older than an
unfollow. Losing Redis's memory is not noticed: the committed offset is all there is.
"""
from confluent_kafka import KafkaException, TopicPartition

from .. import db, fanout, follows, pull
from ..core.codec import decode


class FanOut(fanout.FanOut):
    """Same life as ours; no place in Redis, no resync."""

    def _assigned(self, consumer, partitions) -> None:
        consumer.assign(partitions)

    def once(self, timeout_s: float = 0.1) -> fanout.Done:
        done = fanout.Done()
        first = self.consumer.poll(timeout_s)
        messages = [] if first is None else [first, *self.consumer.consume(self.most - 1, timeout=0)]
        for m in messages:
            if m.error() and not m.error().retriable():
                raise KafkaException(m.error())
        for m in (m for m in messages if not m.error()):
            self.handle(decode(m.value()), done)
            done.records += 1
            self.consumer.commit(offsets=[TopicPartition(m.topic(), m.partition(), m.offset() + 1)], asynchronous=False)
        return done

    def handle(self, event, done: fanout.Done) -> None:
        knobs = db.knobs(self.conn)
        if event.kind == "posted":
            self.post_created(event, knobs["threshold"], knobs["feed_max"], done)
        elif event.kind == "unfollowed":
            mine = [str(e.id) for e in pull.newest(self.conn, [event.author], limit=knobs["feed_max"])]
            if mine:
                self.redis.zrem(self.names.feed(event.user), *mine)
        elif event.kind == "deleted":
            pass                                     # "nothing is scanned; hydration skips"

    def post_created(self, event, threshold: int, feed_max: int, done: fanout.Done) -> None:
        if follows.followers(self.conn, event.author) >= threshold:
            self._add([self.names.celeb(event.author)], event, feed_max)
            return
        after = -1
        while True:
            users = self.followers(event.author, after)
            if not users:
                return
            self._add([self.names.feed(u) for u in users], event, feed_max)
            done.deliveries += len(users)
            done.added += len(users)
            after = users[-1]

    def followers(self, author: int, after: int) -> list[int]:
        rows = self.conn.execute(fanout.FOLLOWERS, (self.settings.active_days, self.settings.batch, [0], [author], [after]))
        return rows.fetchone()[1]

    def _add(self, keys: list[str], event, feed_max: int) -> None:
        pipe = self.redis.pipeline(transaction=False)
        for key in keys:
            add(pipe, key, event.post, event.ms, feed_max)
        pipe.execute()


def add(pipe, key: str, post: int, ms: int, feed_max: int) -> None:
    """Queue the article's delivery to one feed."""
    pipe.zadd(key, {str(post): ms})
    pipe.zremrangebyrank(key, 0, -(feed_max + 1))
