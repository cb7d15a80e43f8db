"""The protocol model: intact it is never wrong, and each safeguard, taken away, is missed.

What random histories find within a few hundred is left to them. What needs three rare things in a row is staged: a
short history with one process that is stopped at its n-th pause, for every n.
"""
import os
import random
import time

import model
import pytest
from model import TOPICS, advance, result

# safeguard -> how many histories of seed 11 are enough to miss it
FOUND = {"partial": 50, "floor": 150, "flag": 50, "fallback": 50, "filter": 100, "place": 200, "padding": 150,
         "expiry": 300, "renew": 300}


def test_intact_histories_are_never_wrong():
    """Another seed each time; FEEDLAB_MODEL_SEED and FEEDLAB_MODEL_SECONDS set it and how long it goes on."""
    seed = int(os.environ.get("FEEDLAB_MODEL_SEED", random.randrange(10**6)))
    end, k = time.monotonic() + float(os.environ.get("FEEDLAB_MODEL_SECONDS", 8)), 0
    while time.monotonic() < end or k < 50:
        _, wrong = model.history(seed, k)
        assert wrong is None, f"python tests/contract/model.py 1 {seed} --tell {k}: {wrong}"
        k += 1
    print(f"{k} histories of seed {seed}, none wrong")


@pytest.mark.parametrize("name", FOUND)
def test_random_histories_miss_it(name):
    assert model.wrong(FOUND[name], 11, (name,), stop_at=1), f"nothing noticed that {model.SAFEGUARDS[name]} was gone"


# --- staged ---------------------------------------------------------------------------------------------------------

class Calm(random.Random):
    """No chance: nothing dies or lags by itself; a choice takes the last."""

    def random(self):
        return 0.99


class Stage(model.World):
    """Users 1 and 2 follow 0; one consumer; a slice is one follower; feeds of 3 entries."""

    def __init__(self, broken):
        super().__init__(0, broken)
        self.rng, self.users, self.seen, self.follows = Calm(), range(3), dict.fromkeys(range(3), 0), {(1, 0), (2, 0)}
        self.knobs, self.whim, self.slack, self.slice, self.copy_ttl = {"threshold": 99, "most": 3}, False, 0, 1, 0
        self.lazy = None
        self.rebalance()

    def say(self, threshold=99):
        """Author 0 posts; the threshold is then as given."""
        self.knobs["threshold"] = threshold
        advance(self.post(None, 0), 10**6)

    def work(self, *topics):
        """Relay and consume until these topics are done."""
        while self.outbox:
            advance(self.relay(self.outbox[0][2].key % 2), 10**6)
        self.consumers = [model.Consumer([p for p in self.logs if p[0] in (topics or TOPICS)])]
        for _ in range(20):
            advance(self.once(self.consumers[0]), 10**6)

    def read_all(self):
        for u in (1, 2):
            result(self.scroll(u, 2))

    def consumer(self):
        """A consumer that has found its places and is about to handle what is there."""
        while self.outbox:
            advance(self.relay(self.outbox[0][2].key % 2), 10**6)
        c = model.Consumer(list(self.logs))
        advance(self.once(c), 10**6)
        return c


def pulls(w, n):
    """A post is pulled while a demotion is between its slices."""
    w.read_all()
    w.say(threshold=1)
    w.work()
    w.knobs["threshold"] = 99
    w.demote()
    w.work("created", "graph")
    w.say(threshold=1)
    w.work("created", "graph")
    w.knobs["threshold"] = 99


def redemote(w, n):
    """Redis comes back as it was before a demotion that has lowered the flag."""
    w.read_all()
    w.say(threshold=1)
    w.work()
    w.snapshot()
    w.knobs["threshold"] = 99
    w.demote()
    w.work()
    w.fail_over()


def guard(w, n):
    """Redis comes back as it was before a post, while the consumer handles the next one."""
    w.read_all()
    w.work()
    w.snapshot()
    w.say()
    w.work()
    w.say()
    g = w.once(w.consumer())
    advance(g, n)
    w.fail_over()
    advance(g, 10**6)


def adopt(w, n):
    """Redis is found empty, and comes back as it was while the consumer deals with that."""
    w.read_all()
    w.work()
    w.snapshot()
    w.say()
    w.work()
    w.committed = {p: len(log) for p, log in w.logs.items()}
    w.keys, w.places = {}, {}
    w.read_all()
    g = w.once(model.Consumer(list(w.logs)))
    advance(g, n)
    w.fail_over()
    advance(g, 10**6)


def doubt(w, n):
    """Redis comes back as it was before there were any places, and Kafka has only the committed offsets."""
    w.read_all()
    w.snapshot()
    w.say()
    w.work()
    w.committed = {p: len(log) for p, log in w.logs.items()}
    w.fail_over()
    w.places = {}


def expiry_age(w, n):
    """A reader is stopped for three ticks; its user then stays away past the activity window."""
    g = w.scroll(1, 2)
    advance(g, n)
    w.now += 3
    advance(g, 10**6)
    w.now += 5
    w.say()
    w.work()


def visit_first(w, n):
    """Something is posted while somebody who was long away reads."""
    w.now = 20
    g = w.scroll(1, 2)
    advance(g, n)
    w.say()
    w.work()
    advance(g, 10**6)


def token(w, n):
    """A feed is evicted while it is built, and a post comes after."""
    g = w.scroll(1, 2)
    advance(g, n)
    w.keys.clear()
    w.say()
    w.work()
    advance(g, 10**6)


def copy_age(w, n):
    """A page is stopped with an old head of a celebrity in its hand, and goes on when all is drained."""
    w.copy_ttl = 2
    w.read_all()
    w.say(threshold=1)
    w.work()
    w.now += 3
    g = w.scroll(1, 2)
    advance(g, n)
    w.say(threshold=1)
    w.running = [(g, "read_feed")]


def crash(w, n):
    """The consumer dies at its n-th pause."""
    w.read_all()
    w.say()
    g = w.once(w.consumer())
    advance(g, n)
    g.close()


STAGED = {"pulls": pulls, "redemote": redemote, "guard": guard, "adopt": adopt, "doubt": doubt,
          "expiry-age": expiry_age, "visit-first": visit_first, "token": token, "copy-age": copy_age,
          "after-write": crash, "slice-first": crash}


def staged(name: str, broken: tuple) -> list[int]:
    """The pauses n at which the history goes wrong."""
    bad = []
    for n in range(25):
        w = Stage(broken)
        try:
            STAGED[name](w, n)
            w.drain([1, 2, 3, 50])
        except AssertionError:
            bad.append(n)
    return bad


@pytest.mark.parametrize("name", STAGED)
def test_a_staged_history_misses_it(name):
    assert staged(name, ()) == []
    assert staged(name, (name,)), f"nothing noticed that {model.SAFEGUARDS[name]} was gone"


def test_every_safeguard_is_missed_somewhere():
    assert FOUND.keys() | STAGED.keys() == model.SAFEGUARDS.keys()


# --- the command ----------------------------------------------------------------------------------------------------

def test_a_history_can_be_told_again():
    (a, _), (b, _) = model.history(3, 5), model.history(3, 5)
    assert a.tale == b.tale and len(a.tale) > 10


def test_the_command_line(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["model.py", "20", "1"])
    assert model.main() == 0
    assert capsys.readouterr().out.startswith("20 histories, 0 wrong in ")
    monkeypatch.setattr("sys.argv", ["model.py", "100", "1", "--break", "fallback"])
    assert model.main() == 1
    assert "first: history " in capsys.readouterr().out
