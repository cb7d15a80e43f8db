"""The two systems that a history can be run on: ours, and the textbook's, behind the same five names."""
from dataclasses import dataclass
from types import ModuleType

from .. import fanout, follows, kafka, outbox, pull, reader, relay, timeline
from ..core.model import START
from ..lab.session import Lab
from ..textbook import fanout as t_fanout
from ..textbook import follows as t_follows
from ..textbook import reader as t_reader
from ..textbook import relay as t_relay


@dataclass(frozen=True)
class System:
    """`relay`, `fanout`, `reader`, `follows`: the modules. `drained`: whether everything that was written has been handled."""
    name: str
    relay: ModuleType
    fanout: ModuleType
    reader: ModuleType
    follows: ModuleType

    def waiting(self, lab: Lab) -> int:
        """Outbox rows that the relay will still send."""
        return outbox.depth(lab.conn) if self.relay is relay else t_relay.waiting(lab.conn)

    def rebuild(self, lab: Lab, user: int):
        """A reader's rebuild of a feed, step by step: a generator that stops before SQL is read and before Redis is written."""
        key, feed_max = lab.names.feed(user), _feed_max(lab)
        if self.reader is reader:
            expires = lab.reader.expiry()
            token = timeline.begin(lab.redis, key, lab.settings.building_s)
            if token is None:
                return
            yield
            rows = pull.page(lab.conn, user, START, feed_max + 1)
            yield
            timeline.complete(lab.redis, key, token, rows, feed_max, expires)
        else:
            if lab.redis.exists(key):
                return
            yield
            rows = lab.reader.rebuild_read(lab.conn, user, feed_max)
            yield
            lab.reader.rebuild_write(lab.redis, user, rows, feed_max)


    def hold(self, lab: Lab, post):
        """A consumer that has read the post's followers and is held up before it writes: a generator that stops in between."""
        users = lab.conn.execute(fanout.FOLLOWERS, (lab.settings.active_days, 1_000, [0], [post.author_id], [-1])).fetchone()[1]
        keys, most = [lab.names.feed(u) for u in users], _feed_max(lab)
        yield
        if not keys:
            return
        pipe = lab.redis.pipeline(transaction=False)
        if self.fanout is fanout:
            pipe.hset(lab.names.progress, "held", "0")
            timeline.deliver(pipe, lab.names, ("held", "0", "0"), keys, [post.entry], most)
            pipe.hdel(lab.names.progress, "held")
        else:
            for key in keys:
                t_fanout.add(pipe, key, post.id, post.created_at_ms, most)
        pipe.execute()


def _feed_max(lab: Lab) -> int:
    from ..db import knobs
    return knobs(lab.conn)["feed_max"]


OURS = System("ours", relay, fanout, reader, follows)
TEXTBOOK = System("textbook", t_relay, t_fanout, t_reader, t_follows)
SYSTEMS = {s.name: s for s in (OURS, TEXTBOOK)}


def committed_lag(lab: Lab, consumer) -> int:
    """Records behind by the committed offsets: all that the textbook's consumer knows."""
    ends = kafka.end_offsets(lab.admin, lab.names.topics)
    parts = consumer.assignment()
    done = {kafka.field(p.topic, p.partition): max(0, p.offset) for p in consumer.committed(parts, timeout=10)}
    return sum(max(0, end - done.get(f, 0)) for f, end in ends.items())
