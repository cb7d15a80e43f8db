"""The HTTP API on live engines: each route, each status, what survives a crash, and what a hostile byte gets for an
answer."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from importlib.resources import files
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
from conftest import fresh_lab, until
from prometheus_client.parser import text_string_to_metric_families

from feedlab import db
from feedlab.config import Settings
from feedlab.core.model import MAX_ID
from feedlab.http import app, edge, metrics

LAB = {"feed_max": 5, "threshold": 1_000}
PROBLEM = "application/problem+json"


class User:
    """A new user, and what the user asks for."""

    def __init__(self, web, name="somebody"):
        made = web.post("/api/users", json={"name": name})
        assert made.status_code == 201, made.text
        self.web, self.id, self.headers = web, made.json()["id"], {"X-User-Id": made.json()["id"]}

    def ask(self, method, path, **kw):
        return self.web.request(method, path, headers=self.headers | kw.pop("headers", {}), **kw)

    def post(self, text="hello", key=None, **body):
        return self.ask(
            "POST", "/api/posts", json={"content": text} | body, headers={"Idempotency-Key": key} if key else {}
        )

    def follow(self, other):
        return self.ask("PUT", f"/api/follows/{other.id}")

    def feed(self, **query):
        return self.ask("GET", "/api/feed", params=query)


@pytest.fixture
def ada(web):
    return User(web, "Ada")


@pytest.fixture
def bob(web):
    return User(web, "Bob")


def refused(answer, status, *words):
    """A problem body of this status whose sentence has these words."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == PROBLEM
    body = answer.json()
    assert set(body) == {"type", "title", "status", "detail", "instance"} and body["status"] == status
    for w in words:
        assert w in body["detail"], body["detail"]
    return body


def contents(answer):
    assert answer.status_code == 200, answer.text
    return [p["content"] for p in answer.json()["items"]]


# --- users --------------------------------------------------------------------------------------


def test_a_user_is_made_and_found(web, ada, bob):
    made = web.post("/api/users", json={"name": "Zoë 🦊"})
    body = made.json()
    assert made.status_code == 201 and made.headers["location"] == f"/api/users/{body['id']}"
    assert body == {"id": body["id"], "name": "Zoë 🦊", "followerCount": 0} and isinstance(body["id"], str)
    assert web.get(made.headers["location"]).json() == body
    ada.follow(bob)
    assert web.get(f"/api/users/{bob.id}").json()["followerCount"] == 1
    refused(web.get("/api/users/1"), 404, "no user 1")


@pytest.mark.parametrize(
    "body, status",
    [
        ({}, 422),
        ({"name": ""}, 422),
        ({"name": "x" * 201}, 422),
        ({"name": 5}, 422),
        ({"name": None}, 422),
        ({"name": "x", "id": "5"}, 422),
        ([], 422),
        ("x", 422),
        (None, 422),
        ({"name": "a\0b"}, 400),
        ({"name": "x" * 200}, 201),
    ],
)
def test_what_a_user_may_be_called(web, body, status):
    answer = web.post("/api/users", json=body)
    assert answer.status_code == status
    if status > 201:
        refused(answer, status)


# --- posts --------------------------------------------------------------------------------------


def test_a_post_is_made_found_and_deleted(web, running_lab, ada, bob):
    bob.follow(ada)
    made = ada.post("hello", images=["https://example.org/a.png"])
    body = made.json()
    assert made.status_code == 201 and made.headers["location"] == f"/api/posts/{body['id']}"
    assert (
        body["authorId"] == ada.id
        and body["images"] == ["https://example.org/a.png"]
        and type(body["createdAtMillis"]) is int
    )
    assert int(body["id"]) > 2**53 and isinstance(body["id"], str)
    assert web.get(made.headers["location"]).json() == body
    running_lab.drain()
    assert bob.feed().json() == {"items": [body], "nextCursor": None}
    refused(bob.ask("DELETE", made.headers["location"]), 403, "somebody else's")
    for _ in range(2):
        gone = ada.ask("DELETE", made.headers["location"])
        assert (gone.status_code, gone.content) == (204, b"")
    assert contents(bob.feed()) == [] and contents(web.get(f"/api/users/{ada.id}/posts")) == []  # at once
    refused(web.get(made.headers["location"]), 404, "no post")
    refused(ada.ask("DELETE", "/api/posts/17"), 404, "no post 17")


@pytest.mark.parametrize(
    "body, status",
    [
        ({"content": "x" * 5_000}, 201),
        ({"content": "x" * 5_001}, 422),
        ({"content": ""}, 422),
        ({"content": " \n\t "}, 400),
        ({"content": "a\0b"}, 400),
        ({"content": 7}, 422),
        ({}, 422),
        ({"content": "x", "authorId": "1"}, 422),
        ({"content": "x", "images": ["https://e.org/a b"]}, 422),
        ({"content": "x", "images": ["ftp://e.org/a"]}, 422),
        ({"content": "x", "images": "https://e.org"}, 422),
        ({"content": "x", "images": ["https://e.org/a"] * 11}, 422),
        ({"content": "x", "images": ["https://e.org/" + "a" * 2_000]}, 422),
        ({"content": "x", "images": ["https://e.org/a"] * 10}, 201),
        ({"content": "\\', \"; drop table posts; -- %s {0} \u202e"}, 201),
    ],
)
def test_what_a_post_may_hold(ada, body, status):
    answer = ada.ask("POST", "/api/posts", json=body)
    assert answer.status_code == status, answer.text
    if status == 201:
        assert answer.json()["content"] == body["content"]
        assert ada.web.get(answer.headers["location"]).json()["content"] == body["content"]
    else:
        refused(answer, status)


def test_the_largest_valid_post_escaped_passes_the_size_limit(ada):
    """5,000 characters of 12 bytes each, and ten images; ASCII-escaped as many clients do."""
    body = {"content": "🦊" * 5_000, "images": ["https://" + "🦊" * 1_992] * 10}
    raw = json.dumps(body).encode()
    assert 290_000 < len(raw) < edge.BODY_MAX
    answer = ada.ask("POST", "/api/posts", content=raw, headers={"Content-Type": "application/json"})
    assert answer.status_code == 201 and answer.json()["content"] == body["content"]


# --- who asks -----------------------------------------------------------------------------------


NEEDS_USER = [
    ("GET", "/api/feed"),
    ("POST", "/api/posts"),
    ("DELETE", "/api/posts/5"),
    ("PUT", "/api/follows/5"),
    ("DELETE", "/api/follows/5"),
]


@pytest.mark.parametrize("method, path", NEEDS_USER)
def test_nobody_asks(web, method, path):
    body = {"json": {"content": "x"}} if method == "POST" else {}
    answer = web.request(method, path, **body)
    refused(answer, 401, "X-User-Id")
    assert answer.headers["www-authenticate"].startswith("X-User-Id")
    for bad in ("", "x", "-1", "007", "1.0", "1 2", "+1", "1" * 20, "²"):
        refused(web.request(method, path, headers=[(b"X-User-Id", bad.encode("latin-1"))], **body), 422, "x-user-id")
    refused(web.request(method, path, headers={"X-User-Id": str(MAX_ID + 1)}, **body), 400, str(MAX_ID))


def test_somebody_who_does_not_exist(web, ada):
    ghost = {"X-User-Id": "12"}
    refused(web.get("/api/feed", headers=ghost), 404, "no user 12")
    refused(web.post("/api/posts", json={"content": "x"}, headers=ghost), 404, "no user 12")
    refused(web.post("/api/posts", json={"content": "x"}, headers=ghost | {"Idempotency-Key": "k"}), 404, "no user 12")
    refused(web.put(f"/api/follows/{ada.id}", headers=ghost), 404, "no user 12")


# --- follows ------------------------------------------------------------------------------------


def test_follow_and_unfollow_are_idempotent(web, running_lab, ada, bob):
    bob.post("before")
    for _ in range(2):
        answer = ada.follow(bob)
        assert (answer.status_code, answer.content) == (204, b"")
    assert web.get(f"/api/users/{bob.id}").json()["followerCount"] == 1
    assert contents(ada.feed()) == ["before"]  # at once, drained or not
    for _ in range(2):
        assert ada.ask("DELETE", f"/api/follows/{bob.id}").status_code == 204
        assert contents(ada.feed()) == []
    assert web.get(f"/api/users/{bob.id}").json()["followerCount"] == 0
    refused(ada.follow(ada), 409, "oneself")
    refused(ada.ask("PUT", "/api/follows/9"), 404, "no user 9")
    assert ada.ask("DELETE", "/api/follows/9").status_code == 204


# --- pages --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def full(web, running_lab):
    """A reader of an author with 60 posts."""
    reader, author = User(web), User(web)
    reader.follow(author)
    for n in range(60):
        assert author.post(f"{n}").status_code == 201
    running_lab.drain()
    return reader, author


def test_limits(full):
    reader, author = full
    for path in ("/api/feed", f"/api/users/{author.id}/posts"):

        def page(limit, path=path):
            return reader.ask("GET", path, params={"limit": limit})

        assert len(contents(reader.ask("GET", path))) == 20
        for over in (50, 51, 2**31, 2**63, 10**30):
            assert len(contents(page(over))) == 50
        for bad in (0, -1, -(10**30), "x", "1.5", "", "1e3", "ten", "0x10", "1" * 5_000):
            refused(page(bad), 422, "limit")


def test_a_scroll_is_whole_and_null_only_at_the_end(full):
    reader, author = full
    for path in ("/api/feed", f"/api/users/{author.id}/posts"):
        for limit in (7, 20, 30, 50):
            cursor, seen, sizes = None, [], []
            while True:
                page = reader.ask("GET", path, params={"limit": limit} | ({"cursor": cursor} if cursor else {}))
                seen, cursor = seen + contents(page), page.json()["nextCursor"]
                sizes.append(len(page.json()["items"]))
                if cursor is None:
                    break
            assert seen == [str(n) for n in range(59, -1, -1)]
            assert (
                set(sizes[:-1]) <= {limit} and sizes[-1] > 0
            )  # exactly full: the last one says so, no empty one follows


def test_a_saved_cursor_works_for_ever(running_lab, web):
    """Whatever happens above it, below it, or to the post that it names."""
    reader, author = User(web), User(web)
    reader.follow(author)
    made = [author.post(f"{n}").json() for n in range(8)]
    page = reader.feed(limit=4).json()
    assert [p["content"] for p in page["items"]] == ["7", "6", "5", "4"]
    saved = page["nextCursor"]
    assert saved == f"{made[4]['createdAtMillis']}:{made[4]['id']}"
    assert contents(reader.feed(limit=4, cursor=saved)) == ["3", "2", "1", "0"]
    for n in range(8, 30):
        author.post(f"{n}")
    author.ask("DELETE", f"/api/posts/{made[4]['id']}")
    running_lab.drain()
    assert contents(reader.feed(limit=4, cursor=saved)) == ["3", "2", "1", "0"]
    author.ask("DELETE", f"/api/posts/{made[3]['id']}")
    running_lab.redis.delete(running_lab.names.feed(int(reader.id)))
    assert contents(reader.feed(limit=4, cursor=saved)) == ["2", "1", "0"]


def test_a_bad_cursor_is_refused_everywhere(full):
    """The list of R41 is in test_field_cases.py."""
    reader, author = full
    for path in ("/api/feed", f"/api/users/{author.id}/posts"):
        refused(
            reader.ask("GET", path, params={"cursor": "1764500000000:x"}),
            400,
            "createdAtMillis:postId",
            "leave the cursor out",
        )


def test_read_your_writes(web, ada, bob):
    """The author sees the post at once when asked to, before relay or consumer have it; case S1 at the end."""
    ada.follow(bob)
    for n in range(10):
        bob.post(f"bob {n}")
    for n in range(12):
        made = ada.post(f"ada {n}").json()
        assert ada.feed(include="self", limit=1).json()["items"] == [made]
    want = [f"ada {n}" for n in range(11, -1, -1)] + ["bob 9", "bob 8", "bob 7"]
    assert contents(ada.feed(include="self", limit=15)) == want
    assert all(c.startswith("bob") for c in contents(ada.feed(limit=15)))
    refused(ada.feed(include="other"), 422, "include")


# --- Idempotency-Key ----------------------------------------------------------------------------


def test_a_retry_makes_one_post(web, running_lab, ada, bob):
    first = ada.post("once", key="k1")
    again = ada.post("once", key="k1")
    assert (again.status_code, again.json(), again.headers["location"]) == (
        201,
        first.json(),
        first.headers["location"],
    )
    refused(ada.post("something else", key="k1"), 409, "Use a new key")
    refused(ada.post("once", key="k1", images=["https://e.org/a"]), 409)
    assert bob.post("once", key="k1").json()["id"] != first.json()["id"]  # a key is the user's own
    assert contents(web.get(f"/api/users/{ada.id}/posts")) == ["once"]
    ada.ask("DELETE", first.headers["location"])
    assert ada.post("once", key="k1").json() == first.json() and contents(ada.feed(include="self")) == []
    running_lab.conn.execute("delete from posts where id = %s", (int(first.json()["id"]),))
    refused(ada.post("once", key="k1"), 409, "removed")


@pytest.mark.parametrize(
    "key, status", [("x" * 200, 201), ("x" * 201, 422), ("", 422), ("ключ".encode(), 201), (b"\xff\xfe", 201)]
)
def test_what_a_key_may_be(ada, key, status):
    for _ in range(2):
        answer = ada.ask("POST", "/api/posts", json={"content": "x"}, headers={"Idempotency-Key": key})
        assert answer.status_code == status


def test_eight_at_once_with_one_key(web, url, ada):
    gate, got = threading.Barrier(8), []

    def send():
        with httpx.Client(base_url=url, timeout=30) as own:
            gate.wait(20)
            got.append(
                own.post("/api/posts", json={"content": "once"}, headers=ada.headers | {"Idempotency-Key": "many"})
            )

    threads = [threading.Thread(target=send) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert [a.status_code for a in got] == [201] * 8 and len({a.json()["id"] for a in got}) == 1
    assert contents(web.get(f"/api/users/{ada.id}/posts")) == ["once"]


# --- the real command ---------------------------------------------------------------------------


@contextmanager
def served(lab, *more):
    """`feedlab serve` as a process: (process, client). What it said is `process.said()` after its end."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    env = os.environ | lab.addresses.environment() | {"FEEDLAB_NAMESPACE": lab.settings.namespace, "FEEDLAB_FEED_MAX": "5"}
    process = subprocess.Popen(
        [sys.executable, "-m", "feedlab", "serve", "--port", str(port), *more],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:

            def up():
                assert process.poll() is None, process.stdout.read().decode()
                try:
                    return client.get("/healthz").status_code == 200
                except httpx.TransportError:
                    return False

            until(up, 30, "feedlab serve")
            yield process, client
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(20)
        process.stdout.close()


def waiting_for_a_lock(lab, n=1):
    return (
        lab.conn.execute(
            "select count(*) from pg_stat_activity where application_name = 'feedlab serve' and wait_event_type = 'Lock'"
        ).fetchone()[0]
        >= n
    )


@contextmanager
def outbox_locked(lab):
    """Nobody can write a post until this is left: a request is caught in the middle of its transaction."""
    with db.connect(lab.addresses.postgres_url, lab.settings.namespace) as other, other.transaction():
        other.execute("lock table outbox in access exclusive mode")
        yield


@contextmanager
def in_background(call):
    got = []
    thread = threading.Thread(target=lambda: got.append(call()))
    thread.start()
    yield got
    thread.join(30)
    assert not thread.is_alive()


def test_sigterm_finishes_what_is_under_way(lab):
    with served(lab) as (process, client):
        user = User(client)
        with outbox_locked(lab):
            writing = in_background(lambda: user.post("finished"))
            got = writing.__enter__()
            until(lambda: waiting_for_a_lock(lab), what="the request under way")
            process.send_signal(signal.SIGTERM)

            def closed():
                try:
                    httpx.get(client.base_url.join("/healthz"), timeout=1)
                    return False
                except httpx.TransportError:
                    return True

            until(closed, what="no new connections")
            assert process.poll() is None and got == []
        writing.__exit__(None, None, None)
        assert got[0].status_code == 201
        assert process.wait(15) == 0
        assert lab.conn.execute("select content from posts where id = %s", (int(got[0].json()["id"]),)).fetchone() == (
            "finished",
        )
        said = process.stdout.read().decode()
        assert "stopped" in said and "Traceback" not in said


def test_a_crash_between_and_the_same_key_again(lab, web):
    """kill -9 while the transaction is open: nothing of it is there, and the retry makes the one post."""
    user = User(web)
    with served(lab) as (process, client):
        with outbox_locked(lab):
            user.web = client

            def lost():
                try:
                    return user.post("once", key="crash")
                except httpx.TransportError:
                    return None

            with in_background(lost) as got:
                until(lambda: waiting_for_a_lock(lab), what="the request under way")
                process.kill()
                process.wait(10)
            assert got == [None]
    user.web = web
    assert user.post("once", key="crash").status_code == 201
    assert user.post("once", key="crash").status_code == 201
    assert contents(web.get(f"/api/users/{user.id}/posts")) == ["once"]


def test_a_namespace_without_tables(addresses):
    """The server makes them at the first request, and again when somebody drops them under it."""
    with fresh_lab(addresses, "t_api_bare", feed_max=5) as bare:
        bare.conn.execute('drop schema "t_api_bare" cascade')
        with app.in_thread(bare.settings, addresses) as at, httpx.Client(base_url=at, timeout=30) as client:
            assert client.get("/metrics").status_code == 200
            User(client).post("hello")
            bare.conn.execute('drop schema "t_api_bare" cascade')
            answer = client.post("/api/users", json={"name": "x"})
            refused(answer, 503, "made again")
            assert answer.headers["retry-after"]
            assert User(client).post("hello").status_code == 201


# --- operation ----------------------------------------------------------------------------------


def test_ready_and_alive(web):
    assert web.get("/healthz").json() == {"status": "ok"}
    answer = web.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"postgres": "ok", "redis": "ok", "kafka": "ok"})


def samples(web):
    answer = web.get("/metrics")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain")
    found = {}
    for family in text_string_to_metric_families(answer.text):
        for s in family.samples:
            assert (s.name, tuple(s.labels.items())) not in found, f"{s.name} twice"
            found[s.name, tuple(s.labels.items())] = s.value
    return found


def test_metrics_have_each_station(running_lab, web, full):
    reader, author = full
    running_lab.drain()
    before = samples(web)
    for n in range(8):
        author.post(f"more {n}")
    running_lab.drain()
    running_lab.redis.delete(running_lab.names.feed(int(reader.id)))
    cursor = reader.feed(limit=20).json()["nextCursor"]
    reader.feed(cursor=cursor)
    after = samples(web)

    def moved(name, **labels):
        return after[name, tuple(labels.items())] - before[name, tuple(labels.items())]

    def now(name, **labels):
        return after[name, tuple(labels.items())]

    assert (
        now("feedlab_outbox_rows") == 0
        and now("feedlab_outbox_oldest_seconds") == 0
        and now("feedlab_consumer_lag_records") == 0
    )
    assert moved("feedlab_relayed_records_total") == 8 and now("feedlab_relays") == 1
    assert moved("feedlab_fanout_total", what="deliveries") == 8 and moved("feedlab_fanout_total", what="pushed") == 8
    assert moved("feedlab_fanout_total", what="trimmed") == 8  # FEED_MAX 5, and the feed was full
    assert moved("feedlab_pages_total", feed="rebuilt") == 1 and moved("feedlab_pages_total", feed="pushed") == 1
    assert moved("feedlab_pages_below_floor_total") == 2
    assert moved("feedlab_page_seconds_count") == 2 and moved("feedlab_post_seconds_count") == 8
    assert moved("feedlab_responses_total", status="201") == 8
    for what in metrics.FANOUT:
        assert ("feedlab_fanout_total", (("what", what),)) in after
    for name, labels in (
        ("feedlab_celebrity_reads_total", {"source": "copy"}),
        ("feedlab_celebrity_reads_total", {"source": "redis"}),
        ("feedlab_entries_hidden_total", {}),
        ("feedlab_flagged_authors", {}),
        ("feedlab_threshold_followers", {}),
    ):
        assert now(name, **labels) >= 0
    assert [now("feedlab_engine_up", engine=e) for e in ("postgres", "redis", "kafka")] == [1, 1, 1]


def test_the_outbox_shows_while_no_relay_runs(addresses):
    with (
        fresh_lab(addresses, "t_api_idle", feed_max=5) as idle,
        app.in_thread(idle.settings, addresses) as at,
        httpx.Client(base_url=at, timeout=30) as client,
    ):
        user = User(client)
        for _ in range(3):
            user.post()
        seen = samples(client)
        assert (
            seen["feedlab_outbox_rows", ()] == 3
            and seen["feedlab_outbox_oldest_seconds", ()] > 0
            and seen["feedlab_relays", ()] == 0
        )


def test_the_live_page_asks_nobody_else(web):
    answer = web.get("/")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    text = files("feedlab").joinpath("http/live.html").read_text()
    assert answer.text == text
    assert set(re.findall(r"https?://[^\s\"'<)]+", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    for name in set(re.findall(r'"(feedlab_\w+)"', text)):
        assert any(name == key[0] for key in samples(web)), f"{name} is drawn, but not in /metrics"


def test_openapi_is_complete(web):
    spec = web.get("/openapi.json").json()
    operations = {(m.upper(), p): op for p, item in spec["paths"].items() for m, op in item.items()}
    assert set(operations) == {
        ("POST", "/api/users"),
        ("GET", "/api/users/{user_id}"),
        ("GET", "/api/users/{user_id}/posts"),
        ("POST", "/api/posts"),
        ("GET", "/api/posts/{post_id}"),
        ("DELETE", "/api/posts/{post_id}"),
        ("PUT", "/api/follows/{followee_id}"),
        ("DELETE", "/api/follows/{followee_id}"),
        ("GET", "/api/feed"),
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/metrics"),
    }
    for (method, path), op in operations.items():
        assert op["description"] and op["operationId"] and op["tags"], (method, path)
        for status, answer in op["responses"].items():
            if int(status) >= 400 and path.startswith("/api"):
                assert list(answer["content"]) == [PROBLEM], (method, path, status)
        if path.startswith("/api"):
            assert "503" in op["responses"] and "Retry-After" in op["responses"]["503"]["headers"]
            needs = any(p["name"] == "x-user-id" and p["required"] for p in op.get("parameters", []))
            assert needs == ((method, re.sub(r"\{.*\}", "5", path)) in NEEDS_USER) == ("401" in op["responses"])
        if method == "POST":
            assert op["responses"]["201"]["headers"]["Location"]["required"] and "413" in op["responses"]
    known = set(spec["components"]["schemas"])
    assert set(re.findall(r"#/components/schemas/(\w+)", json.dumps(spec))) == known
    for name in ("id", "authorId"):
        assert spec["components"]["schemas"]["PostOut"]["properties"][name]["type"] == "string"


# --- methods, sizes, bytes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "path, allow",
    [
        ("/api/users", "POST"),
        ("/api/users/5", "GET, HEAD"),
        ("/api/users/5/posts", "GET, HEAD"),
        ("/api/posts", "POST"),
        ("/api/posts/5", "DELETE, GET, HEAD"),
        ("/api/follows/5", "DELETE, PUT"),
        ("/api/feed", "GET, HEAD"),
        ("/healthz", "GET, HEAD"),
        ("/readyz", "GET, HEAD"),
        ("/metrics", "GET, HEAD"),
        ("/", "GET, HEAD"),
    ],
)
def test_a_method_that_is_not_offered(web, path, allow):
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"} - set(allow.split(", ")):
        answer = web.request(method, path)
        refused(answer, 405, method)
        assert answer.headers["allow"] == allow
    if "HEAD" not in allow:
        answer = web.head(path)
        assert (answer.status_code, answer.content, answer.headers["allow"]) == (405, b"", allow)


@pytest.mark.parametrize(
    "path",
    [
        "/nowhere",
        "/api",
        "/api/users/",
        "/api/feed/",
        "//api/feed",
        "/api/posts/5/6",
        "/%2e%2e/etc/passwd",
        "/api/feed;a=b",
    ],
)
def test_what_is_not_there(web, path):
    refused(web.get(path), 404)


@pytest.mark.parametrize("path", ["/api/feed", "/healthz", "/", "/api/users/1", "/openapi.json"])
def test_head_is_get_without_the_body(url, full, path):
    """Over a plain socket: a client library would hide bytes that should not be there."""
    headers = full[0].headers
    want = httpx.get(url + path, headers=headers)
    with raw(
        url,
        f"HEAD {path} HTTP/1.1\r\nHost: x\r\nX-User-Id: {headers['X-User-Id']}\r\nConnection: close\r\n\r\n".encode(),
    ) as got:
        head, _, body = got.partition(b"\r\n\r\n")
    assert (
        body == b""
        and f" {want.status_code} ".encode() in head
        and f"content-length: {len(want.content)}".encode() in head.lower()
    )


@contextmanager
def raw(url, *pieces):
    """Send bytes, and read until the server closes."""
    at = urlsplit(url)
    with socket.create_connection((at.hostname, at.port), timeout=20) as s:
        got = b""
        try:
            for p in pieces:
                s.sendall(p)
            while piece := s.recv(65_536):
                got += piece
        except ConnectionError:
            pass  # closed while we were still sending: what was answered is what counts
        yield got


def status_of(got):
    answer = http.client.HTTPResponse(_Bytes(got))
    answer.begin()
    return answer.status, answer.headers.get("content-type"), answer.read()


class _Bytes:
    def __init__(self, data):
        self.data = data

    def makefile(self, mode):
        import io

        return io.BytesIO(self.data)


def test_a_body_that_is_too_large(web, url, ada):
    huge = b'{"content": "' + b"x" * edge.BODY_MAX + b'"}'
    json_ = {"Content-Type": "application/json"}
    refused(ada.ask("POST", "/api/posts", content=huge, headers=json_), 413, str(edge.BODY_MAX))
    pieces = (huge[i : i + 10_000] for i in range(0, len(huge), 10_000))
    refused(ada.ask("POST", "/api/posts", content=pieces, headers=json_), 413)  # chunked: it does not say its length
    small = ada.ask("POST", "/api/posts", content=(p for p in [b'{"content"', b': "in pieces"}']), headers=json_)
    assert small.status_code == 201 and small.json()["content"] == "in pieces"
    with raw(
        url,
        b"POST /api/posts HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
    ) as got:
        assert status_of(got)[0] in (400, 413)
    assert web.get("/healthz").status_code == 200


def test_headers_that_are_too_large(web, url, ada):
    assert ada.ask("GET", "/api/feed", headers={"X-More": "x" * 10_000}).status_code == 200
    refused(ada.ask("GET", "/api/feed", headers={"X-More": "x" * 40_000}), 431, str(app.HEADERS_MAX))
    many = b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: y\r\n" % i for i in range(10_000)) + b"\r\n"
    with raw(url, many) as got:
        assert status_of(got)[:2] == (431, PROBLEM)
    with raw(url, b"GET /" + b"a" * 50_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n") as got:
        assert status_of(got)[:2] == (431, PROBLEM)


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA\0: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /\r\n\r\n",
        b"POST /api/posts HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/posts HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /api/posts HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n folded: y\r\nA b: c\r\n\r\n",
    ],
    ids=lambda r: r[:24].decode("latin-1"),
)
def test_what_is_not_http(url, web, request_):
    with raw(url, request_ + b"\r\n" * 3) as got:
        status, kind, body = status_of(got)
    assert status in (400, 505) and kind == PROBLEM and json.loads(body)["status"] == status
    assert web.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        b"/api/users/%ff",
        b"/api/users/%00",
        b"/api/users/%d9%a3",
        b"/api/posts/%f0%9f%a6%8a",
        b"/api/users/%0d%0a",
        b"/api/feed?cursor=%ff%fe",
        b"/api/feed?cursor=%00",
        b"/api/feed?limit=%ff",
        b"/api/feed?%ff=%ff&=&&a",
    ],
)
def test_bytes_that_are_no_text(url, full, path):
    with raw(
        url,
        b"GET "
        + path
        + b" HTTP/1.1\r\nHost: x\r\nX-Junk: \xff\xfe\xe9\r\nConnection: close\r\nX-User-Id: "
        + full[0].headers["X-User-Id"].encode()
        + b"\r\n\r\n",
    ) as got:
        status, kind, body = status_of(got)
    assert status in ((200,) if path.endswith(b"&&a") else (400, 422)), body
    assert json.loads(body) and (status == 200 or kind == PROBLEM)


@pytest.mark.parametrize(
    "body, says",
    [
        (b'{"content": NaN}', "NaN"),
        (b'{"content": -Infinity}', "Infinity"),
        (b'{"content": "a", "content": "b"}', "twice"),
        (b'{"content": "x", "images": [{"a": 1, "a": 1}]}', "twice"),
        (b"[" * 100_000, "nested"),
        (b'{"a":' * 50_000, "nested"),
        (b'{"content": ' + b"9" * 10_000 + b"}", "digits"),
        (b'{"content": "\xff"}', "UTF-8"),
        ('{"content": "x"}'.encode("utf-16"), "UTF-8"),
        (b'\xef\xbb\xbf{"content": "x"}', "BOM"),
        (b"", "body"),
        (b"{", "Expecting"),
        (b"null", "body"),
        (b'{"content": "x"} {}', "Extra"),
        (b'{"content": 1e999}', "content"),
        (b'{"\\ud800": 1, "content": "x"}', "unicode"),
        (b"{'content': 'x'}", "Expecting"),
    ],
    ids=lambda b: b[:20].decode("latin-1") if isinstance(b, bytes) else "",
)
def test_json_that_is_none(ada, body, says):
    refused(ada.ask("POST", "/api/posts", content=body, headers={"Content-Type": "application/json"}), 422, says)


def test_half_a_character_is_not_text(ada):
    for body in (b'{"content": "\\ud800"}', b'{"content": "x", "images": ["https://\\udfff"]}'):
        for key in ({}, {"Idempotency-Key": "half"}):
            answer = ada.ask("POST", "/api/posts", content=body, headers={"Content-Type": "application/json"} | key)
            assert answer.status_code in (400, 422)
            refused(answer, answer.status_code)


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/xml",
        "",
        None,
        "\xff",
    ],
)
def test_a_body_of_another_kind(ada, kind):
    answer = ada.ask(
        "POST",
        "/api/posts",
        content=b'{"content": "x"}',
        headers={} if kind is None else {"Content-Type": kind.encode("latin-1")},
    )
    refused(answer, 422, "body")


# --- time and trouble ---------------------------------------------------------------------------


def test_a_body_that_never_comes(url, web, monkeypatch):
    monkeypatch.setattr(edge, "DEADLINE_S", 0.3)
    with raw(
        url, b"POST /api/users HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n{"
    ) as got:
        assert status_of(got)[:2] == (408, PROBLEM)


def test_a_request_that_takes_too_long(lab, ada, monkeypatch):
    """503, the thread goes on; the transaction it was in may still commit, which is what the key is for."""
    monkeypatch.setattr(edge, "DEADLINE_S", 0.5)
    with outbox_locked(lab):
        answer = ada.post("slow", key="slow")
        refused(answer, 503, "0.5 s")
        assert answer.headers["retry-after"] == "2"
    monkeypatch.undo()
    assert ada.post("slow", key="slow").status_code == 201
    assert contents(ada.feed(include="self")) == ["slow"]


def test_what_nobody_foresaw(web, ada, monkeypatch, caplog):
    """A problem body without the cause, and one line in the log in which nothing of the user's is unescaped."""

    def broken(*a, **k):
        raise ValueError("boom\nINFO a forged line \x1b[31m\u202e")

    monkeypatch.setattr(app.Reader, "page", broken)
    body = refused(ada.ask("GET", "/api/feed", params={"cursor": "1:1"}), 500)
    assert "boom" not in json.dumps(body)
    (record,) = [r for r in caplog.records if r.name == "feedlab.http.app"]
    line = record.getMessage()
    assert (
        line.isascii()
        and line.isprintable()
        and "ValueError" in line
        and r"boom\nINFO" in line
        and "test_api.py" in line
    )


def test_nothing_unescaped_in_the_log_of_the_command(lab):
    """Hostile paths, headers and bodies: the log has no line of theirs. (And a second server on this port says so in
    one sentence.)"""
    evil = "%0aINFO:%20forged%1b[31m"
    with served(lab) as (process, client):
        user = User(client, "forged\nname\x1b[31m")
        for path in (
            f"/{evil}",
            f"/api/users/{evil}",
            f"/api/feed?cursor={evil}",
            f"/api/feed?limit={evil}",
            f"/api/users/1?{evil}",
        ):
            assert client.get(path, headers=user.headers).status_code in (400, 404, 422)
        user.post("forged\n\x1b[31m", key="forged")
        user.ask("POST", "/api/posts", content=b"forged\n\x1b[31m", headers={"Content-Type": "application/json"})
        with raw(str(client.base_url), b"forged\n\x1b[31m\r\n\r\n"):
            pass
        second = subprocess.run(
            [sys.executable, "-m", "feedlab", "serve", "--port", str(client.base_url.port)],
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | {"FEEDLAB_NAMESPACE": lab.settings.namespace},
        )
        assert second.returncode == 2 and second.stderr.count("\n") == 1 and "Choose another --port" in second.stderr
        process.send_signal(signal.SIGINT)  # Ctrl-C ends it like SIGTERM
        assert process.wait(15) == 0
        said = process.stdout.read().decode()
    assert "forged" not in said and "\x1b" not in said


def test_more_requests_than_connections(web, full):
    """Sixty at once on a pool of 16: all are answered. (With the connection as a dependency of the route they blocked
    one another.)"""
    reader, _ = full
    gate, got = threading.Barrier(60), []

    def ask():
        gate.wait(30)
        got.append(web.get("/api/feed", headers=reader.headers).status_code)

    threads = [threading.Thread(target=ask) for _ in range(60)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert got == [200] * 60


def test_what_is_asked_of_sql_is_parameterised(lab, ada):
    hostile = "'); drop table posts; --"
    ada.post(hostile, key=hostile)
    assert contents(ada.feed(include="self")) == [hostile]
    assert lab.conn.execute("select count(*) > 0 from posts").fetchone() == (True,)


def test_settings_say_loopback(lab):
    from feedlab.cli.serve import serve

    assert serve.__defaults__[1] == "127.0.0.1" and app.server(Settings(), lab.addresses).config.host == "127.0.0.1"


def test_psycopg_errors_are_all_answered():
    """Whatever says that PostgreSQL is away becomes a 503: the pool's own errors are subclasses."""
    import psycopg_pool

    for kind in (
        psycopg_pool.PoolTimeout,
        psycopg_pool.PoolClosed,
        psycopg_pool.TooManyRequests,
        psycopg.errors.QueryCanceled,
        psycopg.errors.AdminShutdown,
        psycopg.errors.DeadlockDetected,
    ):
        assert issubclass(kind, db.AWAY)
