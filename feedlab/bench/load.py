"""The HTTP API under a mix of requests: p50, p99 and errors of each operation. `feedlab load-test`.

Closed loop: each client sends its next request when the last one is answered, over one kept-alive connection. The mixes:

    article      20 feed reads a post (section 2: 10 reads and 0.5 posts a user and day)
    deathstar    60 % home timeline, 30 % an author's posts, 10 % compose, pages of 10 (Gan and others, "An Open-Source Benchmark Suite
                 for Microservices", ASPLOS 2019: socialNetwork's mixed workload)
    retwis       5 % new user, 15 % follow or unfollow, 30 % post, 50 % feed (Zhang and others, "Building Consistent Transactions with
                 Inconsistent Replication", SOSP 2015, table 2)
"""
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from .. import repair
from ..addresses import Addresses
from ..config import Settings, project_root
from ..errors import BadInput, EngineDown
from ..lab import world
from ..lab.demo import DEFAULT_GRAPH
from ..lab.graph import Graph, load_graph, read_graph
from ..lab.session import open_lab, wipe
from ..lab.workers import Workers
from .measure import percentile

# operation -> weight; limit: posts a page
MIXES = {
    "article": ({"feed": 20, "post": 1}, 20),
    "deathstar": ({"feed": 60, "author": 30, "post": 10}, 10),
    "retwis": ({"user": 5, "follow": 15, "post": 30, "feed": 50}, 20),
}
EXPECTED = {"feed": (200,), "author": (200,), "post": (201,), "user": (201,), "follow": (204,)}


def run(settings: Settings, addresses: Addresses | None, mix: str, *, seconds: float = 10, clients: int = 4,
        graph: Path | str | None = None, url: str | None = None, seed: int = 1, say: Callable = lambda *a: None) -> dict:
    """Run a mix for so many seconds. With `url` against an API that is up and has the graph's users; else against one of our own, with
    relay and consumer, in the settings' namespace, which is emptied before and after.

    {"operations": {name: requests, p50_ms, p99_ms, errors, statuses}, "requests", "requests_a_second", "errors", "examples": [text], ...}
    Raises BadInput (mix, graph, url) and EngineDown.
    """
    if mix not in MIXES:
        raise BadInput(f"there is no mix {mix!r}; mixes are {', '.join(MIXES)}.")
    path = Path(graph) if graph is not None else project_root() / DEFAULT_GRAPH
    g = read_graph(path)
    if url is not None:
        known(url, int(g.users[0]), path)
        return drive(url, g, mix, seconds, clients, seed, say) | {"graph": path.name, "url": url}
    with open_lab(settings, addresses) as old:
        if settings.namespace != "load" and old.conn.execute("select 1 from users limit 1").fetchone():
            raise BadInput(f"there is data in namespace {settings.namespace}, and the load test empties its own. Leave out -n, or name an "
                           "empty one.")
        wipe(old)
    with open_lab(settings, addresses) as lab:
        try:
            say(f"loading {len(g.users):,} users and {len(g.follower):,} follows")
            load_graph(lab.conn, g)
            repair.warm(lab.conn, lab.redis, settings, g.users.tolist(), lambda n: say("building feeds", n, len(g.users)))
            with Workers(settings, addresses) as workers, serving(settings, addresses) as at:
                workers.wait_ready(lab)
                result = drive(at, g, mix, seconds, clients, seed, say)
                say("draining")
                lab.drain(120)
            stats = lab.stats()
            return result | {"graph": path.name, "url": None, "deliveries": stats.get("deliveries", 0), "worker_restarts": workers.restarts}
        finally:
            wipe(lab)


def check_url(url: str) -> None:
    """Raises BadInput for what is not http://host:port."""
    try:
        u = urlsplit(url)
        good = u.scheme == "http" and u.hostname and (u.port or 80) and u.path in ("", "/")
    except ValueError:
        good = False
    if not good:
        raise BadInput(f"--url {url}: cannot be used. Its form is http://host:port, as `feedlab serve` prints it.")


def known(url: str, user: int, path: Path) -> None:
    """Raises BadInput or EngineDown unless the API answers and knows the graph's first user."""
    check_url(url)
    try:
        status, _ = Client(url).send("GET", f"/api/users/{user}")
    except (OSError, http.client.HTTPException) as e:
        raise EngineDown(f"no API answers at {url}: {e}. Start one with `feedlab serve`.") from None
    if status != 200:
        raise BadInput(f"the API at {url} does not know user {user} of {path.name} (status {status}). Load the graph in its namespace "
                       f"first: `feedlab load {path.name}`.")


@contextmanager
def serving(settings: Settings, addresses: Addresses):
    """`feedlab serve` as a process of its own on a free port; gives its URL, ends it by SIGTERM."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = os.environ | settings.environment() | addresses.environment()
    logs = Path(settings.state_dir) / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    with open(logs / f"{settings.namespace}.serve.log", "ab") as log:
        process = subprocess.Popen([sys.executable, "-m", "feedlab", "serve", "--port", str(port)], env=env, stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=log, start_new_session=True)
    try:
        url, end = f"http://127.0.0.1:{port}", time.monotonic() + 30
        while True:
            try:
                if Client(url).send("GET", "/healthz")[0] == 200:
                    break
            except (OSError, http.client.HTTPException):
                pass
            if process.poll() is not None or time.monotonic() > end:
                raise EngineDown(f"the API did not start on port {port}; its log is in {logs}.")
            time.sleep(0.05)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Client:
    """One kept-alive connection."""

    def __init__(self, url: str):
        u = urlsplit(url)
        self.at = u.hostname, u.port or 80
        self.conn: http.client.HTTPConnection | None = None

    def send(self, method: str, path: str, user: int | None = None, body: dict | None = None) -> tuple[int, bytes]:
        if self.conn is None:
            self.conn = http.client.HTTPConnection(*self.at, timeout=30)
            self.conn.connect()
            self.conn.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        headers = {} if user is None else {"X-User-Id": str(user)}
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            self.conn.request(method, path, None if body is None else json.dumps(body), headers)
            answer = self.conn.getresponse()
            return answer.status, answer.read()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self.conn is not None:
            self.conn.close()
            self.conn = None


class Caller(threading.Thread):
    """A client that goes on until told to stop. Draws operations by weight, readers and authors by the activity model."""

    def __init__(self, url: str, mix: str, readers: np.ndarray, authors: np.ndarray, seed: int, over: threading.Event):
        super().__init__(daemon=True, name="load-test client")
        self.client, self.over, self.rng = Client(url), over, random.Random(seed)
        (weights, self.limit), self.readers, self.authors = MIXES[mix], readers, authors
        self.names, self.weights = list(weights), list(weights.values())
        self.times: dict[str, list[float]] = {name: [] for name in weights}
        self.statuses: dict[str, dict[str, int]] = {name: {} for name in weights}
        self.examples: list[str] = []
        self.followed: list[tuple[int, int]] = []
        self.sent = 0

    def run(self) -> None:
        try:
            while not self.over.is_set():
                name = self.rng.choices(self.names, self.weights)[0]
                self.sent += 1
                began = time.perf_counter()
                try:
                    status, body = getattr(self, name)()
                except (OSError, http.client.HTTPException) as e:
                    status, body = type(e).__name__, str(e).encode()
                self.times[name].append(time.perf_counter() - began)
                said = self.statuses[name]
                said[str(status)] = said.get(str(status), 0) + 1
                if status not in EXPECTED[name] and len(self.examples) < 3:
                    self.examples.append(f"{name}: {status} {body[:160].decode(errors='replace')}")
        finally:
            self.client.close()

    def reader(self) -> int:
        return int(self.readers[self.rng.randrange(len(self.readers))])

    def author_id(self) -> int:
        return int(self.authors[self.rng.randrange(len(self.authors))])

    def feed(self):
        return self.client.send("GET", f"/api/feed?limit={self.limit}", self.reader())

    def author(self):
        return self.client.send("GET", f"/api/users/{self.author_id()}/posts?limit={self.limit}")

    def post(self):
        return self.client.send("POST", "/api/posts", self.author_id(), {"content": f"post {self.sent} of a load test"})

    def user(self):
        return self.client.send("POST", "/api/users", body={"name": f"load test {self.sent}"})

    def follow(self):
        """Follow somebody, or take back an earlier follow of this client: as often the one as the other."""
        if self.followed and self.rng.random() < 0.5:
            user, author = self.followed.pop(self.rng.randrange(len(self.followed)))
            return self.client.send("DELETE", f"/api/follows/{author}", user)
        user, author = self.reader(), self.author_id()
        while author == user:
            author = int(self.rng.choice(self.authors))
        self.followed.append((user, author))
        return self.client.send("PUT", f"/api/follows/{author}", user)


def drive(url: str, g: Graph, mix: str, seconds: float, clients: int, seed: int, say: Callable) -> dict:
    """Send the mix and count. Raises BadInput when the graph has one user."""
    if len(g.users) < 2:
        raise BadInput(f"the graph {g.source} has one user; a load needs two.")
    act, over = world.activity(g), threading.Event()
    readers, authors = world.draw_reads(act, 20_000, seed), world.draw_posts(act, 20_000, seed)
    if len(np.unique(authors)) < 2:
        authors = g.users
    callers = [Caller(url, mix, readers, authors, seed * 1_000 + n, over) for n in range(clients)]
    began = time.monotonic()
    for c in callers:
        c.start()
    try:
        while (passed := time.monotonic() - began) < seconds:
            say(f"{mix}: seconds", int(passed), int(seconds))
            over.wait(min(0.5, seconds - passed))
    finally:
        over.set()
        for c in callers:
            c.join(35)
    spent = time.monotonic() - began
    say(f"{mix}: seconds", int(seconds), int(seconds))
    operations = {}
    for name in MIXES[mix][0]:
        times = [t for c in callers for t in c.times[name]]
        said: dict[str, int] = {}
        for c in callers:
            for status, n in c.statuses[name].items():
                said[status] = said.get(status, 0) + n
        operations[name] = {"requests": len(times), "p50_ms": percentile(times, 0.5) * 1e3 if times else 0.0,
                            "p99_ms": percentile(times, 0.99) * 1e3 if times else 0.0, "statuses": said,
                            "errors": sum(n for status, n in said.items() if status not in map(str, EXPECTED[name]))}
    total = sum(o["requests"] for o in operations.values())
    return {"mix": mix, "clients": clients, "seconds": round(spent, 2), "seed": seed, "operations": operations, "requests": total,
            "requests_a_second": total / spent, "errors": sum(o["errors"] for o in operations.values()),
            "examples": [e for c in callers for e in c.examples][:10]}
