"""The embedded engines, alive: one set in a folder of its own, started, hurt and mended. About a minute on two
cores."""
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid

import psutil
import psycopg
import pytest
import redis

from feedlab import config, engines
from feedlab.addresses import NAMES, VARIABLES
from feedlab.engines import lifecycle
from feedlab.engines.state import State
from feedlab.errors import BadInput, EngineDown


def ours(settings) -> list[psutil.Process]:
    """Every process that has to do with this state folder, found in another way than the code under test does."""
    folder, found = str(State(settings).dir), []
    for p in psutil.process_iter():
        try:
            if p.status() == psutil.STATUS_ZOMBIE:
                continue
            if any(folder in a for a in p.cmdline()) or p.cwd().startswith(folder):
                found.append(p)
        except (psutil.Error, OSError):
            continue
    return found


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    with pytest.MonkeyPatch.context() as m:
        for variable in VARIABLES.values():
            m.delenv(variable, raising=False)
        # a space and a comma: the broker takes a comma in `log.dirs` for two folders
        s = config.settings(state_dir=tmp_path_factory.mktemp("eng") / "a lab, mine", engines="embedded")
    # what an `up` leaves that was killed while initdb and the broker's formatting were at work
    for half in ("postgres/data/base", "postgres/data.new/base", "kafka/data/__cluster_metadata-0", "kafka/data.new"):
        (s.state_dir / half).mkdir(parents=True)
        (s.state_dir / half / "half").write_text("x")
    yield s
    engines.down(s, wipe=True)
    assert ours(s) == []


@pytest.fixture
def addresses(settings):
    return engines.up(settings)


def sql(a, text):
    with psycopg.connect(a.postgres_url, autocommit=True) as conn:
        cursor = conn.execute(text)
        return cursor.fetchall() if cursor.description else None


def store(a) -> str:
    """A row, a key and a record, all named the same."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic
    name = "t" + uuid.uuid4().hex[:8]
    sql(a, f"create table {name} as select 42 as x")
    redis.Redis.from_url(a.redis_url).set(name, 42)
    admin = AdminClient({"bootstrap.servers": a.kafka_bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(10)
    producer = Producer({"bootstrap.servers": a.kafka_bootstrap, "acks": "all"})
    producer.produce(name, b"42")
    assert producer.flush(10) == 0
    return name


def fetch(a, name) -> tuple:
    """What is left of it: (row, key, record)."""
    from confluent_kafka import Consumer, TopicPartition
    consumer = Consumer({"bootstrap.servers": a.kafka_bootstrap, "group.id": name, "enable.auto.commit": False})
    consumer.assign([TopicPartition(name, 0, 0)])
    message, until = None, time.monotonic() + 15
    while (message is None or message.error()) and time.monotonic() < until:
        message = consumer.poll(1)
    consumer.close()
    row, key = sql(a, f"select x from {name}")[0][0], redis.Redis.from_url(a.redis_url).get(name)
    return row, key, message and message.value()


def test_up_twice_is_once(settings):
    first = engines.up(settings)  # from the half-written folders that the fixture made
    assert not (settings.state_dir / "kafka/data/half").exists()
    pids = [s.pid for s in engines.status(settings)]
    began = time.monotonic()
    assert engines.up(settings) == first == engines.addresses(settings)
    assert time.monotonic() - began < 2
    assert [s.pid for s in engines.status(settings)] == pids
    assert sql(first, "select current_database(), current_setting('fsync')") == [("feedlab", "on")]


def test_only_this_machine_and_only_with_the_password(settings, addresses):
    for p in ours(settings):
        for c in p.net_connections("tcp"):
            if c.status == psutil.CONN_LISTEN:
                assert c.laddr.ip in ("127.0.0.1", "::ffff:127.0.0.1")
    port = addresses.postgres_url.rsplit(":", 1)[1]
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(f"postgresql://feedlab@127.0.0.1:{port}", connect_timeout=3)


def test_status_is_json_and_hides_the_password(settings, addresses):
    rows = json.loads(json.dumps([s.as_dict() for s in engines.status(settings)]))
    assert [(r["name"], r["source"], r["healthy"]) for r in rows] == [(n, "embedded", True) for n in NAMES]
    assert all(r["version"][0].isdigit() and r["memory_bytes"] > 1e6 and r["pid"] for r in rows)
    password = addresses.postgres_url.split(":")[2].split("@")[0]
    assert password not in json.dumps(rows)
    assert password not in json.dumps([f.as_dict() for f in engines.doctor(settings)])
    assert State(settings).dir.joinpath("postgres/password").stat().st_mode & 0o077 == 0


def test_kill_9_of_all_three(settings, addresses):
    name = store(addresses)
    for engine in NAMES:
        engines.kill(settings, engine)
    with pytest.raises(EngineDown, match=r"PostgreSQL at .* does not run.*feedlab up"):
        engines.addresses(settings)
    assert engines.addresses(settings, running=False) == addresses  # clients keep reconnecting there
    assert [s.healthy for s in engines.status(settings)] == [False] * 3
    assert [f.mend[:12] for f in engines.doctor(settings)[:3]] == ["`feedlab up`"] * 3
    assert engines.up(settings) == addresses
    # an old snapshot would pass for the truth, so a crashed Redis comes back empty
    assert fetch(addresses, name) == (42, None, b"42")


def test_down_keeps_all_data_and_foreign_processes(settings, addresses):
    name = store(addresses)
    # a snapshot by hand is older than what the clean stop writes
    redis.Redis.from_url(addresses.redis_url).bgsave()
    engines.down(settings)
    assert ours(settings) == []
    engines.down(settings)

    # after a restart of the machine, the numbers in our pid files may be anyone's
    who = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    stranger = subprocess.Popen(["sleep", "60"], cwd="/", **who)
    try:
        state = State(settings)
        for engine in NAMES:
            state.write(engine, pid=stranger.pid)
        data = state.dir / "postgres/data"
        (data / "postmaster.pid").write_text(f"{stranger.pid}\n{data}\n0\n1\n\n*\n0 0\n")
        engines.down(settings)
        with pytest.raises(EngineDown):
            engines.kill(settings, "postgres")
        assert engines.up(settings) == addresses
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()
    assert fetch(addresses, name) == (42, b"42", b"42")
    # ... and what was loaded is on disk no more
    assert not list(state.dir.glob("redis/*.rdb"))


def test_state_file_lost_or_garbled(settings, addresses):
    pids = [s.pid for s in engines.status(settings)]
    for content in ('{"engines": {"postgres": 7', "[]", "\0\0"):
        (settings.state_dir / "state.json").write_text(content)
        assert engines.addresses(settings) == addresses
    (settings.state_dir / "state.json").unlink()
    assert engines.up(settings) == addresses
    assert [s.pid for s in engines.status(settings)] == pids


UP = """
import sys, time
from feedlab import config, engines
s = config.settings(state_dir=sys.argv[1], engines="embedded")
print(engines.up(s, lambda text: print("..", text, file=sys.stderr, flush=True)).postgres_url, flush=True)
time.sleep(float(sys.argv[2]))
"""


def up_elsewhere(settings, stay: float = 0) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", UP, str(settings.state_dir), str(stay)], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_two_ups_at_once_in_two_processes(settings, addresses):
    engines.down(settings)
    both = [up_elsewhere(settings), up_elsewhere(settings)]
    told = [p.communicate(timeout=90) for p in both]
    assert [out.strip() for out, _ in told] == [addresses.postgres_url] * 2, told
    assert sum("Kafka: up in" in err for _, err in told) == 1  # one started it, the other waited
    for engine in NAMES:
        assert lifecycle.embedded(engine, State(settings)).main_process() is not None


@pytest.mark.parametrize("when", ["while starting", "afterwards"])
def test_down_after_kill_9_of_the_parent(settings, when):
    engines.down(settings)
    parent = up_elsewhere(settings, stay=60)
    if when == "while starting":
        assert parent.stderr.readline()  # one engine is up, the broker is not
    else:
        assert parent.stdout.readline()
    parent.send_signal(signal.SIGKILL)
    parent.wait(10)
    engines.down(settings)
    assert ours(settings) == []


def test_a_taken_port_is_given_up(settings):
    before = engines.up(settings)
    engines.down(settings)
    squatters = []
    try:
        for engine in NAMES:
            port = int(before.of(engine).rsplit(":", 1)[1].split("/")[0])
            squatters.append(socket.create_server(("127.0.0.1", port)))
        assert "is used by" in [f for f in engines.doctor(settings) if f.topic == "ports"][0].text
        said = []
        after = engines.up(settings, said.append)
        assert sum("has been taken by another program" in line for line in said) == 3
        assert all(after.of(n) != before.of(n) for n in NAMES)
    finally:
        for s in squatters:
            s.close()
    assert all(s.healthy for s in engines.status(settings))


def test_yours_are_never_stopped(settings, addresses):
    """The same engines given by URL to another folder: asked, and left alone."""
    guest = config.settings(state_dir=settings.state_dir.parent / "guest", postgres_url=addresses.postgres_url,
                            redis_url=addresses.redis_url, kafka_bootstrap=addresses.kafka_bootstrap)
    assert engines.up(guest) == addresses == engines.addresses(guest)
    assert [(s.source, s.healthy, s.pid) for s in engines.status(guest)] == [("yours", True, None)] * 3
    assert "librdkafka does not tell" in engines.status(guest)[2].detail
    with pytest.raises(BadInput, match="never stops what is yours"):
        engines.kill(guest, "redis")
    engines.down(guest, wipe=True)
    assert all(s.healthy for s in engines.status(settings))


def test_wipe(settings, addresses):
    engines.down(settings, wipe=True)
    assert ours(settings) == []
    assert sorted(p.name for p in settings.state_dir.iterdir()) == ["lock"]
    with pytest.raises(EngineDown, match=r"PostgreSQL has not been started here.*feedlab up"):
        engines.addresses(settings)
    assert [s.source for s in engines.status(settings)] == ["none"] * 3
