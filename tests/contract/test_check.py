"""Histories on live engines: ours is right on all, the textbook goes wrong where it must; and each safeguard of the protocol,
switched off in the code that runs, is missed. (`pulls`, which needs two consumers that race, is switched off in test_model.)"""
import random

import pytest

from feedlab import celebrities, fanout, reader, timeline
from feedlab.verify import checking, faults
from feedlab.verify.histories import History, random_history

SEED = random.SystemRandom().randrange(10**6)      # printed by a failure, which replays with it


def run(runners, system: str, history: History):
    return runners(system).run(history)


@pytest.mark.parametrize("name", [f.name for f in faults.HISTORIES])
def test_catalogue(runners, name):
    fault = faults.CATALOGUE[name]
    assert str(run(runners, "ours", fault.history)).endswith("0 wrong, 0 unknown")
    kinds = {v.kind for v in run(runners, "textbook", fault.history).verdicts}
    assert kinds & set(fault.textbook), f"the textbook should show one of {fault.textbook}, it shows {kinds}"


@pytest.mark.parametrize("number", range(40))
def test_random_histories(runners, number):
    history = random_history(SEED, number)
    report = run(runners, "ours", history)
    assert not report.wrong, f"{report}\n(seed {SEED} number {number}) {history}"


def test_the_textbook_goes_wrong_on_random_histories(runners):
    wrong = [n for n in range(12) if run(runners, "textbook", random_history(7, n)).wrong]
    assert len(wrong) >= 3, wrong


def test_a_wrong_history_shrinks_and_replays(runners, tmp_path):
    long = random_history(7, next(n for n in range(30) if run(runners, "textbook", random_history(7, n)).wrong))
    short = checking.shrink(runners("textbook"), long, most=25)
    assert len(short.steps) < len(long.steps)
    settings = runners("textbook").settings.model_copy(update={"state_dir": tmp_path})
    again = checking.read_history(checking.keep(settings, short))
    assert again == short and run(runners, "textbook", again).wrong


# --- mutations: one safeguard off, the history that needs it, and the checker must find it ---------------------------------------

def mutated_lua(runners, monkeypatch, old: str, new: str) -> None:
    assert timeline.CODE.count(old) == 1, "the safeguard is not where the mutation looks for it"
    monkeypatch.setattr(timeline, "CODE", timeline.CODE.replace(old, new))
    monkeypatch.setattr(timeline, "LIBRARY", "mutant")     # functions are global in Redis: others must not get these
    timeline.load(runners("ours").lab.redis)


def partial(runners, monkeypatch):
    mutated_lua(runners, monkeypatch, "c.missing = c.missing + 1 ",
                "redis.call('ZADD', key, '-inf', 'floor'); redis.call('ZADD', key, ms, args[a]) ")


def floor(runners, monkeypatch):
    mutated_lua(runners, monkeypatch, "raise(key, state, number(redis.call('ZRANGE', key, cut, cut, 'WITHSCORES')[2]))",
                "redis.call('ZREMRANGEBYRANK', key, 1, cut)")


def token(runners, monkeypatch):
    mutated_lua(runners, monkeypatch, "if state[1] ~= 'b:' .. args[1] then return 0 end",
                "if #state == 0 then state = {'x', '-inf'} end")


def flag(runners, monkeypatch):
    monkeypatch.setattr(celebrities, "raise_flags", lambda conn, authors: None)


def fallback(runners, monkeypatch):
    monkeypatch.setattr(reader.Reader, "_below", lambda *a, **k: iter(()))


def read_filter(runners, monkeypatch):
    monkeypatch.setattr(reader, "visible", lambda conn, user, ids, own=False: set(ids))


def short_life(runners, monkeypatch):
    """Feeds that outlive the activity window, and a reader that does not look."""
    monkeypatch.setattr(reader.Reader, "expiry", lambda self: 2**50)
    monkeypatch.setattr(reader, "ASK", reader.ASK.replace("last_seen_at < now() - %(ttl)s", "%(ttl)s < 0 and last_seen_at < now() - %(ttl)s"))


def after_the_write(runners, monkeypatch):
    """The place moves before the effect: a consumer that dies in between has handled what it never did."""
    plain = fanout.FanOut._queue

    def early(self, pipe, w):
        self.redis.hset(self.names.progress, w.field, w.message.offset() + 1)
        self.place[w.field] = w.message.offset() + 1
        w.message = Shifted(w.message)
        plain(self, pipe, w)
    monkeypatch.setattr(fanout.FanOut, "_queue", early)


class Shifted:
    """A message whose offset is given as one more, as the mutation has moved the place already."""

    def __init__(self, message):
        self.message = message

    def offset(self):
        return self.message.offset()

    def __getattr__(self, name):
        return getattr(self.message, name)


def padding(runners, monkeypatch):
    monkeypatch.setattr(timeline, "member", str)


def place(runners, monkeypatch):
    """The consumer does not notice that Redis is older than it left it: it takes what it remembers for the truth."""
    def blind(self):
        if self.place:
            self.redis.hset(self.names.progress, mapping=self.place)
    monkeypatch.setattr(fanout.FanOut, "_check", blind)
    plain = fanout.FanOut._handle

    def handle(self, messages, done):
        blind(self)
        plain(self, messages, done)
    monkeypatch.setattr(fanout.FanOut, "_handle", handle)


def drop_on_follow(runners, monkeypatch):
    monkeypatch.setattr(timeline, "drop", lambda r, *keys: None)
    mutated_lua(runners, monkeypatch, "for k = 3, #keys do redis.call('UNLINK', keys[k]) end", "")


def below_the_cursor(runners, monkeypatch):
    """The demotion does not raise the floor, so what is older than FEED_MAX posts is in no feed and below no floor."""
    mutated_lua(runners, monkeypatch, "if floor ~= '' and #state > 0", "if false and floor ~= ''")


H = faults.CATALOGUE
WARM = [["page", 0, 50]]
MUTATIONS = [
    (partial, H["F3"].history),
    (floor, H["cap"].history),
    (token, History([*faults.posts(1, 2), ["evict", 0], ["rebuild", 0], ["rebuild_on", 0], ["follow", 0, 2], *faults.posts(1, 1),
                     ["evict", 0], ["rebuild_on", 0]], 3, [[0, 1]], 50)),
    (flag, H["F2"].history),
    (fallback, H["F4"].history),
    (read_filter, History([*faults.posts(1, 3), *WARM, ["delete", 1], ["page", 0, 5]], 3, [[0, 1]], 50)),
    (short_life, H["returning"].history),
    (after_the_write, History([*WARM, *faults.posts(1, 1), ["post", 1], ["relay"], *[["kill", "consume", n] for n in (4, 5, 6)]],
                              3, [[0, 1]], 50)),
    (padding, History([*WARM, ["post", 1], ["post", 2], ["pump"]], 3, [[0, 1], [0, 2]], 50)),
    (place, History([*WARM, *faults.posts(1, 3), ["snapshot"], *faults.posts(1, 3), ["restore"]], 3, [[0, 1]], 50)),
    (drop_on_follow, History([*faults.posts(1, 3), *WARM, ["follow", 0, 1]], 3, [[0, 2]], 50)),
    (below_the_cursor, History([*WARM, ["threshold", 1], *faults.posts(1, 9), ["threshold", 99], ["demote", 1], ["pump"],
                                ["pump"]], 3, [[0, 1]], 3)),
]


@pytest.mark.parametrize(("mutate", "history"), MUTATIONS, ids=lambda x: getattr(x, "__name__", ""))
def test_a_safeguard_that_is_switched_off_is_missed(runners, monkeypatch, mutate, history):
    assert not run(runners, "ours", history).wrong, "the history is right with every safeguard on"
    mutate(runners, monkeypatch)
    try:
        report = run(runners, "ours", history)
        for number in range(60):       # a history of its own shows it at once; else random ones do
            if report.wrong:
                break
            report = run(runners, "ours", random_history(3, number))
        assert report.wrong, f"nobody misses {mutate.__name__}"
    finally:
        if timeline.LIBRARY == "mutant":
            runners("ours").lab.redis.function_delete("mutant")
        monkeypatch.undo()
        runners("ours")._restart_consumer()


@pytest.mark.parametrize("safe", [True, False], ids=["adopt", "adopt without asking"])
def test_redis_comes_back_older_while_a_place_is_adopted(runners, monkeypatch, safe):
    """The place is gone, the consumer drops all timelines, and before it has set the place anew Redis is restored from a snapshot:
    the timelines that come back lack what was posted since. Found by the model (`adopt`)."""
    runner, plain, restored = runners("ours"), timeline.drop_all, []

    def drop_all(r, namespace):
        dropped = plain(r, namespace)
        if not restored and runner.snapshot:
            restored.append(1)
            runner._restore()
        return dropped
    monkeypatch.setattr(timeline, "drop_all", drop_all)
    if not safe:
        monkeypatch.setattr(timeline, "adopt", lambda r, progress, token, moves: r.hset(
            progress, mapping={f: new for f, _, new in moves}) or True)
    report = runner.run(History([*WARM, *faults.posts(1, 2), ["snapshot"], *faults.posts(1, 2), ["pump"], ["flush"]], 3, [[0, 1]], 50))
    assert restored and bool(report.wrong) is not safe, report


def test_a_copy_is_as_old_as_the_question(runners):
    """A reader that is held up between Redis's answer and keeping the copy keeps it no longer for that (`copy-age` of the model)."""
    now = [0.0]
    copies = celebrities.LocalCopies(3.0, clock=lambda: now[0])
    asked_at, now[0] = now[0], 10.0
    copies.put(1, timeline.Timeline(floor=0, exists=True), asked_at)
    assert copies.get(1) is None
