"""Real engines for every test that speaks of one: the checkout's own (`.feedlab/`), started once, left running.

Each test module gets a namespace of its own (SQL schema, Redis prefix, topics), wiped before and after. A missing engine is an
error, never a skip, wherever CI is set; on a laptop it is a skip with the reason.
"""
import os
import threading
import time
import zlib
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from feedlab import engines, posts
from feedlab.addresses import Addresses
from feedlab.config import Settings
from feedlab.errors import FeedlabError
from feedlab.fanout import FanOut
from feedlab.lab.session import Lab, open_lab, remove, wipe
from feedlab.relay import Relay
from feedlab.verify.runner import Runner
from feedlab.verify.systems import SYSTEMS

# addresses at which nobody listens
AWAY = {"FEEDLAB_POSTGRES_URL": "postgresql://u:secret@127.0.0.1:1/x", "FEEDLAB_REDIS_URL": "redis://127.0.0.1:1/0",
        "FEEDLAB_KAFKA_BOOTSTRAP": "127.0.0.1:1"}
SHARED = Path(__file__).resolve().parents[2] / "shared"


def shared_file(name: str) -> Path:
    """A real graph or trace; absent: a skip on a laptop, an error in CI."""
    path = SHARED / "data" / name
    if not path.exists():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{path} is absent")
    return path


@pytest.fixture(autouse=True)
def environment():
    """`feedlab -n NAME` sets FEEDLAB_NAMESPACE for its own process; in this one the next test must not find it."""
    before = {k: v for k, v in os.environ.items() if k.startswith("FEEDLAB_")}
    yield
    for name in [k for k in os.environ if k.startswith("FEEDLAB_") and k not in before]:
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(scope="session")
def addresses() -> Addresses:
    try:
        return engines.up(Settings())
    except FeedlabError as e:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"engines: {e}")


def until(condition, timeout_s: float = 20, what: str = "the condition"):
    """Wait for a condition, never for a time. Returns its value; fails at the deadline."""
    end = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"{what} did not come true in {timeout_s} s"
        time.sleep(0.01)


@contextmanager
def fresh_lab(addresses, namespace: str, **changes):
    """A Lab on an empty namespace, wiped afterwards."""
    s = Settings(namespace=namespace, **({"local_copy_s": 0.0, "partitions": 2} | changes))
    with open_lab(s, addresses) as old:
        wipe(old)
    with open_lab(s, addresses) as lab:
        yield lab
        wipe(lab)


@contextmanager
def running(lab: Lab, relays: int = 1, consumers: int = 1, **fanout):
    """Relay and consumer as threads, stopped and joined at the end. Processes are tested where kills are."""
    a, s = lab.addresses, lab.settings
    loops = [Relay(s, a.postgres_url, a.kafka_bootstrap) for _ in range(relays)]
    loops += [FanOut(s, a.postgres_url, a.redis_url, a.kafka_bootstrap, **fanout) for _ in range(consumers)]
    with in_threads(*loops):
        yield loops


@contextmanager
def in_threads(*loops, say=lambda text: None):
    """These loops, until the end of the `with`."""
    stop = threading.Event()
    threads = [threading.Thread(target=loop.run, args=(stop.is_set, say), daemon=True) for loop in loops]
    for t in threads:
        t.start()
    try:
        yield
    finally:
        stop.set()
        for t in threads:
            t.join(20)
            assert not t.is_alive(), "a loop did not stop"


@pytest.fixture(scope="module")
def lab(addresses, request):
    """The module's own Lab: FEED_MAX 5 and threshold 3 unless the module sets LAB = {...}."""
    changes = {"feed_max": 5, "threshold": 3} | getattr(request.module, "LAB", {})
    with fresh_lab(addresses, f"t_{zlib.crc32(request.module.__name__.encode()):08x}", **changes) as made:
        yield made


@pytest.fixture(scope="module")
def running_lab(lab):
    """The module's Lab with relay and consumer running."""
    with running(lab):
        yield lab


@contextmanager
def kept_runners(addresses, prefix: str):
    """name of a system -> Runner of histories, opened when first asked for, wiped at the end: joining a consumer group costs seconds. No
    longer than a module: others kill engines, and a runner does not reconnect."""
    made: dict[str, Runner] = {}
    with ExitStack() as stack:
        def runner(system: str) -> Runner:
            if system not in made:
                s = Settings(namespace=f"{prefix}_{system}", partitions=2, batch=2)     # a slice is two followers: handed on all the time
                made[system] = stack.enter_context(Runner(s, addresses, SYSTEMS[system]))
            return made[system]
        yield runner
    for runner in made.values():
        remove(runner.settings, addresses)


def add_users(lab: Lab, *users: int) -> None:
    """Users that exist and were here just now."""
    for u in users:
        posts.create_user(lab.conn, u, f"user {u}")
        posts.visit(lab.conn, u)
