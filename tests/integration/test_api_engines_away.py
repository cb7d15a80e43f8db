"""The API while an engine is away: behind proxies of our own, so that the shared engines stay up. Redis away: pages
from SQL. Kafka away: writes wait in the outbox. PostgreSQL away, or hanging: 503 with Retry-After, soon. Afterwards the
contract holds, nothing is lost.
"""

import socket
import threading
import time
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit, urlunsplit

import httpx
import pytest
from conftest import fresh_lab, running, until

from feedlab import pull
from feedlab.addresses import Addresses
from feedlab.http import app

PROBLEM = "application/problem+json"


class Proxy:
    """A TCP port before an engine: `cut` closes what is open and refuses what comes, `hang` passes nothing on, `back`
    is as before."""

    def __init__(self, host: str, port: int):
        self.target, self.flows = (host, port), threading.Event()
        self.open: set[socket.socket] = set()
        self.lock, self.listener, self.port = threading.Lock(), None, 0
        self.back()

    def back(self):
        self.flows.set()
        if self.listener is None:
            self.listener = socket.socket()
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.listener.bind(("127.0.0.1", self.port))
            self.listener.listen(128)
            self.port = self.listener.getsockname()[1]
            threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def hang(self):
        self.flows.clear()

    def cut(self):
        self.flows.set()
        if self.listener is not None:
            with suppress(OSError):
                self.listener.shutdown(socket.SHUT_RDWR)  # wakes the accept
            self.listener.close()
            self.listener = None
        with self.lock:
            for s in self.open:
                with suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)
            self.open.clear()

    def _accept(self, listener):
        with suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(self.target)
                with self.lock:
                    self.open |= {near, far}
                for a, b in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(a, b), daemon=True).start()

    def _pass_on(self, source, sink):
        with suppress(OSError):
            while data := source.recv(65_536):
                self.flows.wait()
                sink.sendall(data)
        for s in (source, sink):
            with suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)


def behind(url: str) -> tuple[Proxy, str]:
    """A proxy for an address, and the address through it."""
    if "//" not in url:
        host, _, port = url.partition(":")
        proxy = Proxy(host, int(port))
        return proxy, f"127.0.0.1:{proxy.port}"
    parts = urlsplit(url)
    proxy = Proxy(parts.hostname, parts.port)
    who, at, _ = parts.netloc.rpartition("@")
    return proxy, urlunsplit(parts._replace(netloc=f"{who}{at}127.0.0.1:{proxy.port}"))


class World:
    """Lab, proxies, API behind them; a reader who follows an author."""

    def __init__(self, lab, proxies, web):
        self.lab, self.proxies, self.web = lab, proxies, web
        self.reader, self.author = (web.post("/api/users", json={"name": n}).json()["id"] for n in ("reader", "author"))
        assert web.put(f"/api/follows/{self.author}", headers={"X-User-Id": self.reader}).status_code == 204
        self.written: list[str] = []

    def post(self, n: int):
        answer = self.web.post("/api/posts", json={"content": f"post {n}"}, headers={"X-User-Id": self.author})
        if answer.status_code == 201:
            self.written.append(answer.json()["id"])
        return answer

    def page(self, **query):
        return self.web.get("/api/feed", params=query, headers={"X-User-Id": self.reader})

    def scroll(self, limit=3):
        ids, cursor = [], None
        while True:
            answer = self.page(limit=limit, **({"cursor": cursor} if cursor else {}))
            assert answer.status_code == 200, answer.text
            ids += [p["id"] for p in answer.json()["items"]]
            cursor = answer.json()["nextCursor"]
            if cursor is None:
                return ids

    def contract_holds(self):
        """Drained: the pages are the SQL answer, which has every post that was acknowledged; warm and cold."""
        self.lab.drain()
        for _ in range(2):
            got = self.scroll()
            assert got == [str(e.id) for e in pull.everything(self.lab.conn, int(self.reader))]
            assert got == self.written[::-1]
            self.lab.redis.delete(self.lab.names.feed(int(self.reader)))


@pytest.fixture
def world(addresses):
    with ExitStack() as stack:
        lab = stack.enter_context(fresh_lab(addresses, "t_api_away", feed_max=5, threshold=1_000))
        proxies, urls = {}, {}
        for name, url in (
            ("postgres", addresses.postgres_url),
            ("redis", addresses.redis_url),
            ("kafka", addresses.kafka_bootstrap),
        ):
            proxies[name], urls[name] = behind(url)
            stack.callback(proxies[name].cut)
        away = Addresses(
            **{
                f: urls[n]
                for f, n in (("postgres_url", "postgres"), ("redis_url", "redis"), ("kafka_bootstrap", "kafka"))
            }
        )
        web = stack.enter_context(
            httpx.Client(base_url=stack.enter_context(app.in_thread(lab.settings, away)), timeout=30)
        )
        yield World(lab, proxies, web)


def up(world, engine):
    said = world.web.get("/metrics").text
    return f'feedlab_engine_up{{engine="{engine}"}} 1.0' in said


@pytest.mark.parametrize("how", ["cut", "hang"])
def test_redis_away(world, how):
    with running(world.lab):
        for n in range(8):
            world.post(n)
        world.contract_holds()
        getattr(world.proxies["redis"], how)()
        assert world.scroll() == world.written[::-1]  # from SQL
        assert world.post(8).status_code == 201
        started = time.monotonic()
        assert world.page(limit=1).json()["items"][0]["id"] == world.written[-1]
        assert world.web.delete(f"/api/follows/{world.author}", headers={"X-User-Id": world.reader}).status_code == 204
        assert world.page().json()["items"] == []  # the DEL did not arrive, the filter hides
        assert world.web.put(f"/api/follows/{world.author}", headers={"X-User-Id": world.reader}).status_code == 204
        assert time.monotonic() - started < 15  # a Redis that hangs costs its timeout of a second a request
        answer = world.web.get("/readyz")
        assert (
            answer.status_code == 200
            and answer.json()["redis"].startswith("away")
            and answer.json()["postgres"] == "ok"
        )
        assert not up(world, "redis") and up(world, "postgres")
        world.proxies["redis"].back()
        until(lambda: world.web.get("/readyz").json()["redis"] == "ok")
        world.contract_holds()


def test_kafka_away(world):
    """No relay can reach a broker: the outbox keeps what was acknowledged, and pages that are rebuilt have it at
    once."""
    for n in range(3):
        assert world.post(n).status_code == 201
    world.page()
    world.proxies["kafka"].cut()
    for n in range(3, 10):
        assert world.post(n).status_code == 201
    assert (
        world.web.delete(f"/api/posts/{world.written.pop(1)}", headers={"X-User-Id": world.author}).status_code == 204
    )
    answer = world.web.get("/readyz")
    assert answer.status_code == 200 and answer.json()["kafka"].startswith("away") and answer.json()["redis"] == "ok"
    started = time.monotonic()
    said = world.web.get("/metrics").text
    assert 'engine="kafka"} 0.0' in said and "feedlab_consumer_lag" not in said and "feedlab_outbox_rows 12.0" in said
    assert time.monotonic() - started < 6  # a scrape does not wait for a broker for long
    got = world.scroll()
    assert set(got) <= set(world.written) and got == sorted(got, key=int, reverse=True)
    world.proxies["kafka"].back()
    with running(world.lab):
        world.contract_holds()
    assert until(lambda: up(world, "kafka"), what="the broker is seen again")


@pytest.mark.parametrize("how", ["cut", "hang"])
def test_postgres_away(world, how):
    for n in range(4):
        world.post(n)
    with running(world.lab):
        world.contract_holds()
        getattr(world.proxies["postgres"], how)()
        user = {"X-User-Id": world.reader}
        asked = [
            ("GET", "/api/feed", {}),
            ("POST", "/api/posts", {"json": {"content": "x"}}),
            ("PUT", f"/api/follows/{world.author}", {}),
            ("DELETE", "/api/posts/5", {}),
            ("GET", f"/api/users/{world.author}", {}),
            ("POST", "/api/users", {"json": {"name": "x"}}),
        ]
        got = []

        def ask(method, path, more):
            started = time.monotonic()
            got.append((world.web.request(method, path, headers=user, **more), time.monotonic() - started))

        threads = [threading.Thread(target=ask, args=a) for a in asked * 4]  # more at once than there are connections
        for t in threads:
            t.start()
        assert world.web.get("/healthz").status_code == 200  # the process is alive, and does not queue behind them
        for t in threads:
            t.join(60)
        assert len(got) == len(threads)
        for answer, took in got:
            assert answer.status_code == 503 and answer.headers["content-type"] == PROBLEM, answer.text
            assert int(answer.headers["retry-after"]) > 0 and took < 10
        # what is wrong by itself is said as ever
        if how == "cut":
            assert world.page(limit=0).status_code == 422 and world.web.get("/api/feed").status_code == 401
            started = time.monotonic()
            assert world.page().status_code == 503
            assert time.monotonic() - started < 2  # known to be away: nobody queues
            answer = world.web.get("/readyz")
            assert (
                answer.status_code == 503
                and answer.json()["postgres"].startswith("away")
                and answer.json()["redis"] == "ok"
            )
            assert answer.headers["retry-after"]
            said = world.web.get("/metrics")
            assert (
                said.status_code == 200
                and 'engine="postgres"} 0.0' in said.text
                and "feedlab_page_seconds_count" in said.text
            )
        world.proxies["postgres"].back()
        until(lambda: world.page().status_code == 200, 30, "pages come again")
        # a POST that hung may have gone through after its 503; what was acknowledged is there in any case
        rows = world.lab.conn.execute(
            "select id::text from posts where not deleted and author_id = %s order by id", (int(world.author),)
        )
        assert set(world.written) <= {i for (i,) in rows}
        assert world.post(9).status_code == 201
        world.contract_holds()


def test_it_starts_with_every_engine_away(addresses):
    """And serves as soon as they come."""
    with fresh_lab(addresses, "t_api_late", feed_max=5) as lab, ExitStack() as stack:
        urls = {}
        proxies = []
        for field in ("postgres_url", "redis_url", "kafka_bootstrap"):
            proxy, urls[field] = behind(getattr(addresses, field))
            proxy.cut()
            stack.callback(proxy.cut)
            proxies.append(proxy)
        web = stack.enter_context(
            httpx.Client(base_url=stack.enter_context(app.in_thread(lab.settings, Addresses(**urls))), timeout=30)
        )
        assert web.get("/healthz").status_code == 200
        assert web.post("/api/users", json={"name": "x"}).status_code == 503
        assert all(v.startswith("away") for v in web.get("/readyz").json().values())
        for p in proxies:
            p.back()
        until(lambda: web.post("/api/users", json={"name": "x"}).status_code == 201, 30)
        until(lambda: set(web.get("/readyz").json().values()) == {"ok"}, 30)
