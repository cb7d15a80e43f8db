"""Every experiment of the interview room on live engines, once each: what it must measure for the scenarios to be right, and that nothing
is left behind."""
import json
import threading

import pytest
from conftest import kept_runners

from feedlab import db, kafka
from feedlab.config import Settings
from feedlab.errors import Conflict, EngineDown
from feedlab.interview import experiments, live
from feedlab.interview.experiments import EXPERIMENTS, Found, run
from feedlab.interview.scenario import scenarios
from feedlab.timeline import client
from feedlab.verify import faults

SETTINGS = Settings(namespace="t_iv")
USED = sorted({e for s in scenarios().values() for e in s.experiments})
# what scenarios give as right, or what their explanations rest on; counts and shapes, no times
MUST = {
    "fault-F9": lambda n: n["ours_refused"] == n["sent"] > n["textbook_refused"],
    "fault-F11": lambda n: n["trimmed"] == "skiplist" and n["shape"] == "sawtooth" and n["bytes_500"] > 60 > n["bytes_100"],
    "fault-F12": lambda n: (n["ours"], n["textbook"]) == (2, 1),
    "threshold": lambda n: n["shape"] == "writes-fall-pulls-rise" and n["wrong"] == 0 and 0 < n["saved"] < 1,
    "celebrity-post": lambda n: (n["push_writes"], n["pull_writes"], n["wrong"]) == (n["followers"], 0, 0) and n["minutes_at_largest"] > 1,
    "hot-key": lambda n: n["without"] == n["pages"] and n["with_copies"] <= 20 and n["wrong"] == 0,
    "herd": lambda n: n["textbook"] == n["readers"] and n["ours"] == 1 and n["wrong"] == 0,
    "many-followees": lambda n: n["shape"] == "pull-grows" and 50 < n["pull_times"] < 150,
    "delete": lambda n: (n["shown"], n["short"], n["swept"]) == (0, 0, 0) and n["feeds"] == n["entries_left"] == 120,
    "crash": lambda n: (n["commit_then_send"], n["send_then_commit"], n["outbox"]) == (1, 1, 0),
    "late-rows": lambda n: n["textbook"] > 0 == n["ours"],
    "two-relays": lambda n: n["textbook"] > 0 == n["ours"] and n["repeats"] > 0,
    "burst": lambda n: n["shape"] == "shorter-and-exact" and n["saved"] > 0.5,
    "paging": lambda n: n["offset"] == 6 and n["cursor"] == 0,
    "rebuild": lambda n: n["shape"] == "right-but-dear" and 1.5 < n["times"] < 4,
    "small-site": lambda n: n["pages_a_second"] > 50,
    "ranked": lambda n: n["shape"] == "some" and n["repeats_live"] > 0 == n["repeats_frozen"],
    "own-post": lambda n: (n["plain"], n["own"], n["drained"]) == (0, 1, 1),
    "precision": lambda n: n["distinct_ids"] < n["ids"] / 10 and n["distinct_ms"] == 0 and n["last_exact"] == 1,
}


def whole(found) -> None:
    """What every finding has."""
    data = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert data["numbers"].keys() == EXPERIMENTS[found.name].measures.keys()
    assert data["figure"]["layout"]["title"]["text"] and data["figure"]["data"] and len(json.dumps(data)) < 20_000
    assert found.sentence.endswith(".") and found.sentence == found.sentence.strip()


@pytest.mark.parametrize("name", [n for n in USED if n in MUST] + ["fault-F2"])
def test_experiment(addresses, name):
    said = []
    found = run(name, SETTINGS, lambda text, done=None, total=None: said.append(text))
    whole(found)
    assert said and found.seconds < 60
    assert name == "fault-F2" or MUST[name](found.numbers), found.numbers


@pytest.fixture(scope="module")
def runner(addresses):
    with kept_runners(addresses, "t_ivkept") as opened:
        yield opened


@pytest.mark.parametrize("name", [n for n in USED if n not in MUST])
def test_fault_on_both(runner, name):
    """The history of each fault that a scenario refers to: wrong on the textbook in the way that the catalogue says, right on ours."""
    sentence, numbers, figure = live.on_both(name.removeprefix("fault-"), runner)
    whole(Found(name, "", sentence, numbers, json.loads(figure.to_json()), 0.0, 0.0))
    wanted = faults.CATALOGUE[name.removeprefix("fault-")].textbook
    assert numbers["textbook"] > 0 == numbers["ours"] and numbers["kind"] in wanted, numbers


def test_nothing_is_left(addresses):
    conn, r = db.connect(addresses.postgres_url, "public"), client(addresses.redis_url)
    assert conn.execute("select nspname from pg_namespace where nspname like 't\\_iv\\_room%'").fetchall() == []
    assert list(r.scan_iter(match="t_iv_room*", count=1000)) == []
    assert [t for t in kafka.admin(addresses.kafka_bootstrap).list_topics(timeout=10).topics if t.startswith("t_iv_room")] == []
    conn.close()


def test_one_at_a_time_and_the_second_is_told(addresses, monkeypatch):
    inside, over = threading.Event(), threading.Event()

    def slow(*_):
        inside.set()
        over.wait(20)
        raise KeyboardInterrupt                       # Ctrl-C in the middle
    monkeypatch.setattr(live, "perform", slow)
    raised = []

    def first():
        try:
            run("paging", SETTINGS)
        except KeyboardInterrupt as e:
            raised.append(e)
    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(20)
    with pytest.raises(Conflict, match="another interview"):
        run("paging", SETTINGS)
    over.set()
    thread.join(20)
    monkeypatch.undo()
    assert raised and run("precision", SETTINGS).numbers["ids"] == 200, "the lock is free again"


def test_engines_that_are_away_are_named_with_the_way_to_start_them(tmp_path):
    never = Settings(state_dir=tmp_path, postgres_url=None, redis_url=None, kafka_bootstrap=None, engines="embedded")
    with pytest.raises(EngineDown, match="This experiment needs the engines, .*`feedlab up`"):
        experiments.run("paging", never)
    gone = Settings(postgres_url="postgresql://u:secret@127.0.0.1:1/x", redis_url="redis://127.0.0.1:1/0", kafka_bootstrap="127.0.0.1:1")
    with pytest.raises(EngineDown, match="Start them with `feedlab up`") as e:
        experiments.run("paging", gone)
    assert "secret" not in str(e.value)
