"""Names and bytes at the edges: Redis keys and members, topics, event records.

One function makes each kind of key, so that a Redis Cluster can get a hash tag in one place.
"""
import json
from dataclasses import asdict, dataclass

from ..errors import FeedlabError
from .model import MAX_ID, MAX_MS

MEMBER_WIDTH = 19     # digits of 2^63 - 1: with a fixed width, Redis's text order of ties is the numeric order (F1)


def member(post_id: int) -> str:
    """The sorted-set member of a post.

    >>> member(12) > member(9), int(member(12))
    (True, 12)
    """
    return f"{post_id:0{MEMBER_WIDTH}d}"


@dataclass(frozen=True)
class Names:
    """Every name in one namespace: Redis keys, topics, consumer group, NOTIFY channel.

    >>> Names("feedlab").feed(7), Names("feedlab").created
    ('feedlab:feed:7', 'feedlab.post-created')
    """
    namespace: str

    def feed(self, user: int) -> str:
        return f"{self.namespace}:feed:{user}"

    def celeb(self, author: int) -> str:
        return f"{self.namespace}:celeb:{author}:recent"

    def post(self, post_id: int) -> str:
        return f"{self.namespace}:post:{post_id}"

    def trace(self, post_id: int) -> str:
        return f"{self.namespace}:trace:{post_id}"

    @property
    def progress(self) -> str:
        """Hash: `topic:partition` -> the next offset to handle. Moves in the same call as the effect (see fanout)."""
        return f"{self.namespace}:progress"

    @property
    def stats(self) -> str:
        """Hash of counters, moved in the same call as the effect, so that a redelivery is not counted twice."""
        return f"{self.namespace}:stats"

    @property
    def created(self) -> str:
        """Topic keyed by author: posted, deleted, demote."""
        return f"{self.namespace}.post-created"

    @property
    def graph(self) -> str:
        """Topic keyed by user: followed, unfollowed."""
        return f"{self.namespace}.graph-changed"

    @property
    def slices(self) -> str:
        """Topic with the rest of a large fan-out, one slice a record, so that small authors need not wait."""
        return f"{self.namespace}.feed-slices"

    @property
    def dead(self) -> str:
        """Dead-letter topic: records that cannot be understood, with the reason in a header."""
        return f"{self.namespace}.dead-letter"

    @property
    def topics(self) -> tuple[str, ...]:
        return self.created, self.graph, self.slices

    @property
    def group(self) -> str:
        return f"{self.namespace}.feed-fanout"

    @property
    def channel(self) -> str:
        return f"{self.namespace}_outbox"


class Poison(FeedlabError):
    """A record that no retry will make readable. Goes to the dead-letter topic."""


KINDS = {"posted": ("author", "post", "ms"), "deleted": ("author", "post", "ms"), "demote": ("author",),
         "followed": ("user", "author"), "unfollowed": ("user", "author")}


@dataclass(frozen=True)
class Event:
    """One record. `after` is the follower id up to which the work is done: -1 at first, more in a slice record;
    `pulls` is the count of pulls that a demotion started from (see celebrities.demote)."""
    kind: str
    author: int
    user: int = 0
    post: int = 0
    ms: int = 0
    after: int = -1
    pulls: int = -1

    def encode(self) -> str:
        wanted = (*KINDS[self.kind], "after", "pulls")
        return json.dumps({"kind": self.kind} | {k: v for k, v in asdict(self).items() if k in wanted},
                          separators=(",", ":"))


def decode(record: bytes | None) -> Event:
    """The event in a record. Raises Poison, saying what is wrong with it.

    >>> decode(Event("posted", author=1, post=2, ms=3).encode().encode())
    Event(kind='posted', author=1, user=0, post=2, ms=3, after=-1, pulls=-1)
    """
    try:
        data = json.loads(record or b"")
    except (ValueError, RecursionError) as e:
        raise Poison(f"not JSON: {str(e)[:80]}") from None
    if not isinstance(data, dict) or not isinstance(data.get("kind"), str) or data["kind"] not in KINDS:
        raise Poison(f"kind must be one of {', '.join(KINDS)}")
    fields = {}
    for name in (*KINDS[data["kind"]], "after", "pulls"):
        optional = name in ("after", "pulls")
        value = data.get(name, -1 if optional else None)
        most = MAX_MS if name == "ms" else MAX_ID
        if type(value) is not int or not (-1 if optional else 0) <= value <= most:
            raise Poison(f"{name} must be a whole number from 0 to {most}, got {str(value)[:40]!r}")
        fields[name] = value
    return Event(data["kind"], **fields)
