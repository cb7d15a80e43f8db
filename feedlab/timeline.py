"""4 A timeline in Redis and its floor: one kind of key, used for `feed:{user}` and for `celeb:{author}:recent`.

What runs inside Redis is in `timeline.lua`: each function there is atomic. A timeline is complete strictly above its floor;
at or below it, ask SQL. A key that does not exist is never made by a delivery, only by a rebuild (F3, F7).
"""
import hashlib
import secrets
from collections.abc import Iterable
from importlib.resources import files

import redis
from redis.exceptions import RedisError, ResponseError

from .core.codec import member
from .core.model import NO_FLOOR, START, Entry, Timeline
from .errors import BadInput, EngineDown

CODE = files("feedlab").joinpath("timeline.lua").read_text()
# The library's name in Redis, and the beginning of its functions' names. Functions are global there: two versions of this code under one
# name would replace each other's beneath running processes.
LIBRARY = f"feedlab_{hashlib.sha256(CODE.encode()).hexdigest()[:8]}"
ALL = 2**31         # more entries than any timeline has


def connect(url: str, timeout_s: float = 5.0) -> redis.Redis:
    """A client with the functions loaded. Raises EngineDown when Redis does not answer, BadInput for a wrong URL."""
    r = client(url, timeout_s)
    try:
        load(r)
    except ResponseError as e:
        raise EngineDown(f"Redis answers, but not as needed: {e}. feedlab needs Redis 7 or later, or Valkey.") from None
    except RedisError as e:
        raise EngineDown(f"Redis does not answer: {str(e).rstrip('.')}. `feedlab doctor` says what is wrong, "
                         "`feedlab up` starts it.") from None
    return r


def client(url: str, timeout_s: float = 5.0) -> redis.Redis:
    """A client that has not spoken to Redis yet; readers load the functions when they find them missing. Raises BadInput."""
    try:
        return redis.Redis.from_url(url, decode_responses=True, socket_timeout=timeout_s, socket_connect_timeout=timeout_s)
    except ValueError as e:
        raise BadInput(f"the Redis URL cannot be used: {e}. Its form is redis://host:port/0") from None


def load(r: redis.Redis) -> None:
    """Put the functions into Redis. A Redis that comes back empty has lost them too."""
    r.function_load(CODE.replace("feedlab", LIBRARY), replace=True)


def lost_functions(error: Exception) -> bool:
    """Whether a call failed because Redis came back without the functions."""
    return isinstance(error, ResponseError) and "Function not found" in str(error)


def slack(feed_max: int) -> int:
    """How far a timeline may grow beyond FEED_MAX before it is trimmed: about 10 %, so that not each delivery trims."""
    return feed_max // 10


# --- readers ---------------------------------------------------------------------------------------------------------

def read(r, key: str, before: Entry = START, n: int = ALL):
    """Up to n entries strictly older than `before`. Queue it on a pipeline, or call it and get the raw answer; `parse` it.

    O(log N + n).
    """
    return r.fcall_ro(f"{LIBRARY}_read", 1, key, before.ms, member(before.id), n)


def parse(answer: list) -> Timeline:
    """The Timeline in an answer of `read`."""
    if not answer:
        return Timeline(None)
    state, floor, more, *rows = answer
    if state != "floor":
        return Timeline(None, exists=True)
    entries = [Entry(int(float(ms)), int(m)) for m, ms in zip(rows[::2], rows[1::2], strict=True)]
    return Timeline(float(floor), entries, bool(int(more)), exists=True)


def get(r: redis.Redis, key: str, before: Entry = START, n: int = ALL) -> Timeline:
    """`read` and `parse` in one."""
    return parse(with_functions(r, lambda: read(r, key, before, n)))


def with_functions(r: redis.Redis, call):
    """Run `call`; when Redis came back without the functions, load them and run it once more."""
    try:
        return call()
    except ResponseError as e:
        if not lost_functions(e):
            raise
        load(r)
        return call()


# --- builders (protocol rule 4) ----------------------------------------------------------------------------------------

def begin(r: redis.Redis, key: str, building_s: float) -> str | None:
    """Become the builder of a timeline that does not exist. The token, or None when the key exists.

    Call it before SQL is read: from here on, what commits is delivered to the key. If the builder dies the key expires.
    """
    token = secrets.token_hex(8)
    won = with_functions(r, lambda: r.fcall(f"{LIBRARY}_begin", 1, key, token, int(building_s * 1000)))
    return token if won else None


def complete(r: redis.Redis, key: str, token: str, rows: list[Entry], feed_max: int, expires_at_ms: int) -> bool:
    """Fill the timeline that `begin` made. `rows`: the newest FEED_MAX + 1 of the SQL answer, newest first.

    The row beyond FEED_MAX is not stored, its time is the floor; with fewer rows the timeline is whole and has none.
    False when the key is no longer ours: dropped by a follow, expired, or Redis restarted. That is fine.
    """
    floor = rows[feed_max].ms if len(rows) > feed_max else NO_FLOOR
    flat: list = []
    for e in rows[:feed_max]:
        if e.ms > floor:
            flat += (member(e.id), e.ms)
    return bool(r.fcall(f"{LIBRARY}_complete", 1, key, token, floor_text(floor), feed_max, expires_at_ms, *flat))


def floor_text(floor: float) -> str:
    return "-inf" if floor == NO_FLOOR else str(int(floor))


def touch(r, key: str, expires_at_ms: int):
    """Move the expiry (absolute, epoch ms) of a finished timeline."""
    return r.fcall(f"{LIBRARY}_touch", 1, key, expires_at_ms)


def drop(r: redis.Redis, *keys: str) -> None:
    """Remove timelines; a Redis that is away is no reason to fail, the durable event does it again."""
    try:
        r.unlink(*keys)
    except RedisError:
        pass


def drop_all(r: redis.Redis, namespace: str) -> int:
    """Remove every timeline of the namespace: always right, since each is rebuilt from SQL. Returns how many."""
    dropped = 0
    for pattern in (f"{namespace}:feed:*", f"{namespace}:celeb:*"):
        batch: list[str] = []
        for key in r.scan_iter(match=pattern, count=1000):
            batch.append(key)
            if len(batch) == 1000:
                dropped += r.unlink(*batch)
                batch = []
        if batch:
            dropped += r.unlink(*batch)
    return dropped


# --- a consumer takes over a place that Redis does not know ------------------------------------------------------------------

def mark(r: redis.Redis, progress: str) -> str:
    """Leave a mark beside the places, to see later that it is still the same Redis. Returns it."""
    token = secrets.token_hex(8)
    r.hset(progress, f"adopting:{token}", "1")
    return token


def adopt(r: redis.Redis, progress: str, token: str, moves: list[tuple[str, str, str]]) -> bool:
    """Set places, `moves` = (field, as it was read, new), if the mark is still there and none has changed. False: read again."""
    return bool(r.fcall(f"{LIBRARY}_adopt", 1, progress, f"adopting:{token}", *(x for move in moves for x in move)))


# --- the consumer's calls: each moves its place in the partition in the same call -----------------------------------------

def deliver(pipe, names, place: tuple[str, str, str], keys: list[str], entries: Iterable[Entry], feed_max: int, *,
            counter: str = "", counted_as: str = "deliveries", floor: float | None = None, trace: int = 0, trace_s: int = 0,
            where: str = "") -> None:
    """Queue: add entries to timelines. `place` = (field, expected, next) in the progress hash; see timeline.lua.

    `counter` goes up by one, `counted_as` by the entries: deliveries are feed writes, one a follower and post.
    """
    flat: list = []
    for e in entries:
        flat += (member(e.id), e.ms)
    pipe.fcall(f"{LIBRARY}_deliver", 3 + len(keys), names.progress, names.stats, names.trace(trace), *keys,
               *place, counter, feed_max, slack(feed_max), "" if floor is None else floor_text(floor), trace_s, where,
               counted_as, *flat)


def remove(pipe, names, place: tuple[str, str, str], keys: list[str], post_id: int, counter: str = "") -> None:
    """Queue: take one post out of timelines."""
    pipe.fcall(f"{LIBRARY}_remove", 2 + len(keys), names.progress, names.stats, *keys, *place, counter, member(post_id))


def drop_at(pipe, names, place: tuple[str, str, str], keys: list[str], counter: str = "") -> None:
    """Queue: drop timelines (or none) and move the place."""
    pipe.fcall(f"{LIBRARY}_drop", 2 + len(keys), names.progress, names.stats, *keys, *place, counter)
