"""Whatever is sent, the answer is never a 5xx: schemathesis over the OpenAPI document, hypothesis for cursors, ids,
limits and bodies, and a stream of mixed valid and hostile requests, of which `make test` sends a few thousand.

    # the large one, against `feedlab serve`
    python tests/integration/test_api_fuzz.py http://127.0.0.1:8080 100000 [SEED]
"""

import http.client
import json
import random
import re
import sys
import threading
import time
from collections import Counter
from urllib.parse import quote, quote_from_bytes, urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from feedlab.addresses import Addresses
from feedlab.config import Settings
from feedlab.core.model import MAX_ID, MAX_MS
from feedlab.http import app, edge

LAB = {"feed_max": 5, "threshold": 3}
QUICK = settings(
    max_examples=80,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
PROBLEM = "application/problem+json"


# --- the stream: also run by hand ---------------------------------------------------------------

TEXTS = [
    "hello",
    "",
    " ",
    "\0",
    "\ud800",
    "🦊" * 40,
    "a" * 5_001,
    "' or 1=1; --",
    "%s %(x)s {0} ${jndi:x}",
    "\r\nSet-Cookie: a=b",
    "NaN",
    "null",
    "\u202e\u0000\uffff",
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "-1",
    "0",
    "1e3",
    "9223372036854775808",
    "9" * 400,
]


class Stream:
    """Mixed requests, each from one seed: about half of them as they should be, the rest bent in one place or more."""

    def __init__(self, url: str, seed: int):
        at = urlsplit(url)
        self.host, self.port, self.rng = at.hostname, at.port, random.Random(seed)
        self.connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        self.users, self.posts, self.cursors = (
            [self.made("/api/users", {"name": f"fuzz {n}"}) for n in range(4)],
            ["1"],
            ["1:1"],
        )
        self.statuses, self.bad = Counter(), []

    def made(self, path, body, user=None):
        self.connection.request(
            "POST", path, json.dumps(body), {"Content-Type": "application/json"} | ({"X-User-Id": user} if user else {})
        )
        return json.loads(self.connection.getresponse().read())["id"]

    def one(self) -> None:
        method, path, body, headers = self.drawn()
        line = f"{method} {path}"[:200]
        try:
            self.connection.putrequest(method, path, skip_accept_encoding=True)
            if isinstance(body, list):
                headers["Transfer-Encoding"] = "chunked"
            elif body is not None:
                headers["Content-Length"] = str(len(body))
            for k, v in headers.items():
                self.connection.putheader(k, v)
            self.connection.endheaders(
                body if body is None or isinstance(body, bytes) else iter(body), encode_chunked=isinstance(body, list)
            )
            answer = self.connection.getresponse()
            data = answer.read()
        except (http.client.HTTPException, OSError, ValueError) as e:
            # a server that refuses a body may close while it is being sent; what the client cannot say was not sent
            self.connection.close()
            self.statuses[f"not sent or cut off: {type(e).__name__}"] += 1
            return
        self.statuses[answer.status] += 1
        if answer.status >= 500:
            self.bad.append((answer.status, line, data[:200]))
        elif answer.status == 200 and data.startswith(b'{"items"'):
            page = json.loads(data)
            self.cursors = [*self.cursors[-50:], page["nextCursor"] or "5:5"]
        elif answer.status == 201 and path == "/api/posts":
            self.posts = [*self.posts[-50:], json.loads(data)["id"]]

    def drawn(self):
        r, bent = self.rng, self.rng.random() < 0.5
        me, other = r.choice(self.users), r.choice(self.users)
        headers = {"X-User-Id": me}
        kind = r.randrange(9)
        method, path, body = "GET", "/api/feed", None
        if kind <= 2:
            query = {"limit": str(r.choice([1, 2, 20, 50, 51, 10**12]))} if r.random() < 0.7 else {}
            if r.random() < 0.5:
                query["cursor"] = r.choice(self.cursors)
            if r.random() < 0.3:
                query["include"] = "self"
            if bent:
                query[r.choice(["limit", "cursor", "include", "x"])] = r.choice(
                    [*TEXTS, "1:1:1", "1:-1", "١:١", self.mangled(r.choice(self.cursors))]
                )
            path = (
                r.choice(["/api/feed", f"/api/users/{other}/posts"])
                + "?"
                + "&".join(f"{k}={self.said(v)}" for k, v in query.items())
            )
        elif kind == 3:
            path = r.choice(
                [f"/api/users/{other}", f"/api/posts/{r.choice(self.posts)}", "/healthz", "/openapi.json", "/"]
            )
        elif kind <= 5:
            method, path = "POST", "/api/posts"
            data = {
                "content": r.choice(TEXTS) if bent else f"text {r.random()}",
                "images": ["https://example.org/a.png"] * r.choice([0, 0, 1, 11 if bent else 2]),
            }
            body = json.dumps(data).encode()
            headers["Content-Type"] = "application/json"
            if r.random() < 0.3:
                headers["Idempotency-Key"] = f"key {r.randrange(50)}"
        elif kind == 6:
            method, path, body, headers["Content-Type"] = (
                "POST",
                "/api/users",
                json.dumps({"name": r.choice(TEXTS)}).encode(),
                "application/json",
            )
        elif kind == 7:
            method, path = r.choice(["PUT", "DELETE"]), f"/api/follows/{other}"
        else:
            method, path = "DELETE", f"/api/posts/{r.choice(self.posts)}"
        if bent:
            what = r.randrange(7)
            if what == 0:
                method = r.choice(["PATCH", "OPTIONS", "HEAD", "TRACE", "PUT", "POST", "DELETE", "GET", "BREW"])
            elif what == 1:
                path = re.sub(r"/\d+", lambda _: "/" + self.said(r.choice(TEXTS)), path)
            elif what == 2:
                headers["X-User-Id"] = r.choice(["", "x", "12", "-1", "9" * 19, "9" * 30, "\xff\xfe", "1, 2"])
            elif what == 3:
                headers.pop("X-User-Id")
            elif what == 4 and body:
                body = self.mangled(body)
            elif what == 5 and body:
                body = r.choice(
                    [
                        b"",
                        b"[" * 50_000,
                        b'{"content": NaN}',
                        b'{"content":"a","content":"b"}',
                        b"\xff\xfe",
                        b"x" * (edge.BODY_MAX + 1),
                        b"null",
                        [body[:3], body[3:]],
                        [b"x" * 50_000] * 8,
                        b'{"content": ' + b"9" * 5_000 + b"}",
                    ]
                )
            elif what == 6:
                headers[
                    r.choice(
                        [
                            "Content-Type",
                            "Idempotency-Key",
                            "Accept",
                            "Cookie",
                            "Range",
                            "Expect",
                            "X-Forwarded-For",
                            "Host",
                            "If-None-Match",
                        ]
                    )
                ] = r.choice(
                    [
                        "",
                        "\xff",
                        "a" * 300,
                        "application/json; charset=utf-7",
                        "multipart/form-data",
                        "bytes=0-",
                        "text/html",
                        "é",
                    ]
                )
        return method, path, body, headers

    def mangled(self, data):
        r, raw = self.rng, bytearray(data.encode() if isinstance(data, str) else data)
        for _ in range(r.choice([1, 1, 3])):
            at = r.randrange(len(raw) + 1)
            raw[at : at + r.choice([0, 1])] = bytes([r.randrange(256)]) * r.choice([0, 1, 2])
        return bytes(raw).decode("latin-1") if isinstance(data, str) else bytes(raw)

    def said(self, text: str) -> str:
        return quote(text.encode("utf-8", "surrogatepass"), safe="")


def hammer(url: str, requests: int, seed: int, threads: int = 4, say=lambda text: None):
    """(statuses, what was a 5xx) of so many requests."""
    streams = [Stream(url, 1_000 * seed + n) for n in range(threads)]

    def run(stream):
        for n in range(requests // threads):
            stream.one()
            if n % 2_500 == 2_499:
                say(f"{n + 1:,} of {requests // threads:,} in a thread: {dict(stream.statuses)}")

    workers = [threading.Thread(target=run, args=(s,)) for s in streams]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    return sum((s.statuses for s in streams), Counter()), [b for s in streams for b in s.bad]


# --- tests --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def me(web):
    """A user with a feed of 30 posts."""
    ids = [web.post("/api/users", json={"name": "fuzz"}).json()["id"] for _ in range(2)]
    web.put(f"/api/follows/{ids[1]}", headers={"X-User-Id": ids[0]})
    for n in range(30):
        web.post("/api/posts", json={"content": f"{n}"}, headers={"X-User-Id": ids[1]})
    return ids[0]


# the document needs no engine and no server; the requests go to the live one
schema = schemathesis.openapi.from_dict(
    app.make_app(Settings(), Addresses("postgresql://", "redis://", "nowhere:1")).openapi()
)


@schema.parametrize()
@settings(max_examples=12, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_schemathesis(case, url, me):
    """All of schemathesis's checks, on positive and negative data. Half of what is valid is asked by a user who
    exists."""
    positive = case.meta is not None and case.meta.generation.mode.is_positive
    if positive and "x-user-id" in (case.headers or {}) and len(str(case.headers["x-user-id"])) % 2:
        case.headers["x-user-id"] = me
    case.call_and_validate(base_url=url)


def answered(answer, *statuses):
    """One of these statuses, with a problem body unless it is a success."""
    assert answer.status_code in statuses, (answer.status_code, answer.text[:300])
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == PROBLEM and answer.json()["status"] == answer.status_code
    return answer


near_cursors = st.from_regex(r"[0-9 :+\-.e_]{0,45}", fullmatch=True) | st.tuples(
    st.integers(-2, MAX_MS + 2) | st.integers(), st.integers(-2, MAX_ID + 2) | st.integers()
).map(lambda t: f"{t[0]}:{t[1]}")


@QUICK
@given(st.text() | near_cursors)
@example("9007199254740992:9223372036854775807")
@example("9007199254740993:1")
@example("0:0")
@example("00:0")
def test_a_cursor_is_good_or_a_400(web, me, cursor):
    m = re.fullmatch(r"(0|[1-9][0-9]*):(0|[1-9][0-9]*)", cursor, re.ASCII)
    good = m and len(cursor) < 50 and int(m[1]) <= MAX_MS and int(m[2]) <= MAX_ID
    query = "cursor=" + quote(cursor.encode("utf-8", "surrogatepass"), safe="")
    answer = answered(web.get(f"/api/feed?limit=2&{query}", headers={"X-User-Id": me}), 200 if good else 400)
    if good:
        at = int(m[1]), int(m[2])
        assert all((p["createdAtMillis"], int(p["id"])) < at for p in answer.json()["items"])


@QUICK
@given(st.text(max_size=30) | st.integers().map(str) | st.integers(1, 6_000).map(lambda n: "9" * n))
def test_a_limit_is_1_to_50_or_a_422(web, me, limit):
    answer = answered(
        web.get("/api/feed?limit=" + quote(limit.encode("utf-8", "surrogatepass"), safe=""), headers={"X-User-Id": me}),
        200,
        422,
    )
    if re.fullmatch(r"[0-9]{1,4000}", limit, re.ASCII):
        assert answer.status_code == (200 if int(limit) else 422)
    if answer.status_code == 200:
        assert len(answer.json()["items"]) == min(30, int(limit), 50)


@QUICK
@given(
    st.sampled_from(
        [
            "GET /api/users/{}",
            "GET /api/users/{}/posts",
            "GET /api/posts/{}",
            "DELETE /api/posts/{}",
            "PUT /api/follows/{}",
            "DELETE /api/follows/{}",
        ]
    ),
    st.binary(max_size=30)
    | st.integers().map(lambda i: str(i).encode())
    | st.integers(MAX_ID - 2, MAX_ID + 2).map(lambda i: str(i).encode()),
)
def test_an_id_is_known_or_refused(web, me, route, raw):
    method, path = route.split()
    answered(
        web.request(method, path.format(quote_from_bytes(raw, safe="")), headers={"X-User-Id": me}),
        200,
        204,
        400,
        404,
        405,
        409,
        422,
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
bodies = st.one_of(
    st.binary(max_size=200),
    json_values.map(json.dumps).map(str.encode),
    st.fixed_dictionaries({"content": json_values | st.text()}, optional={"images": json_values, "x": json_values})
    .map(json.dumps)
    .map(str.encode),
)


@QUICK
@given(st.sampled_from(["/api/posts", "/api/users"]), bodies, st.booleans())
def test_a_body_is_taken_or_refused(web, me, path, body, keyed):
    headers = {"X-User-Id": me, "Content-Type": "application/json"} | (
        {"Idempotency-Key": f"{len(body) % 7}"} if keyed else {}
    )
    answer = answered(web.post(path, content=body, headers=headers), 201, 400, 409, 413, 422)
    if answer.status_code == 201:
        sent = json.loads(body)
        assert all(answer.json()[k] == sent[k] for k in sent)


header_bytes = st.binary(max_size=60).map(lambda b: bytes(c for c in b if c >= 32 and c != 127 or c == 9).strip())


@QUICK
@given(
    st.sampled_from(
        ["X-User-Id", "Idempotency-Key", "Content-Type", "Accept", "Cookie", "X-Forwarded-For", "Range", "Expect"]
    ),
    header_bytes,
)
def test_a_header_is_read_or_refused(web, me, name, value):
    headers = {b"X-User-Id": me.encode(), b"Content-Type": b"application/json"} | {name.encode(): value}
    answered(web.post("/api/posts", content=b'{"content": "x"}', headers=headers), 201, 400, 401, 404, 409, 422)


def test_mixed_requests(url):
    statuses, bad = hammer(url, 1_200, seed=1)
    assert bad == [] and sum(statuses.values()) == 1_200
    assert {200, 201, 204, 400, 401, 403, 404, 405, 409, 413, 422} <= set(statuses)  # it does reach them


if __name__ == "__main__":
    began = time.monotonic()
    counts, fives = hammer(
        sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1, say=lambda t: print(t, flush=True)
    )
    print(f"{sum(counts.values()):,} requests in {time.monotonic() - began:.0f} s")
    for status, n in sorted(counts.items(), key=str):
        print(f"  {status}: {n:,}")
    print(f"5xx: {len(fives)}", *fives[:20], sep="\n")
    sys.exit(bool(fives))
