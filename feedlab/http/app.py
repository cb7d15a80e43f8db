"""8 HTTP: the same posts, follows and pages, with JSON ids as strings (they pass 2^53) and problem bodies (RFC 9457).

    feedlab serve            # binds to loopback unless told otherwise

`X-User-Id` is the teaching stand-in for authentication: `who` is the one place that a team replaces. PostgreSQL is the
truth: without Redis pages come from SQL, without Kafka writes wait in the outbox, without PostgreSQL everything is a
503 with Retry-After.
"""

import asyncio
import hashlib
import json
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from importlib.resources import files
from typing import Annotated, Literal

import anyio.to_thread
from fastapi import Depends, FastAPI, Header, Path, Query, Request, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse
from prometheus_client import CONTENT_TYPE_LATEST
from psycopg_pool import ConnectionPool, PoolTimeout
from pydantic import BaseModel, ConfigDict, Field

from .. import __version__, db, follows, kafka, posts, timeline
from ..addresses import Addresses
from ..config import Settings
from ..core.codec import Names
from ..core.model import MAX_ID, Page, Post
from ..core.snowflake import Drawn
from ..errors import BadInput, Conflict, EngineDown, NotFound
from ..reader import LIMIT, Reader
from . import metrics
from .edge import DEADLINE_S, HEADERS_MAX, PROBLEM, Forbidden, StrictRoute, Unauthorized, add_errors, problem

CONNECTIONS = 16  # to PostgreSQL, and as many requests at a time; the others wait for their turn
POSTGRES_S = 2.0  # how long a request waits for a connection before it is a 503
ID = r"^(0|[1-9][0-9]{0,18})$"
# What OpenAPI says is plainer than what is checked: a pattern for "at most 2^63 - 1" would be unreadable. Ids pass
# 9 x 10^18 in 2092.
SAID_ID = {"pattern": r"^(0|[1-9][0-9]{0,17}|[1-8][0-9]{18})$"}
SAID_CURSOR = {"pattern": r"^(0|[1-9][0-9]{0,14}|[1-8][0-9]{15}):(0|[1-9][0-9]{0,17}|[1-8][0-9]{18})$"}
# and these are refused by `posts`, whose sentences are better than "does not match": a NUL, nothing but blanks
SAID_NAME = {"pattern": r"^[^\x00]+$"}
SAID_TEXT = {"pattern": r"^[^\x00]*[^\x00-\x20\x7f-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000][^\x00]*$"}
# no \s: engines do not agree on what it is
IMAGE = r"^https?://[^\x00-\x20\x7f-\xa0]+$"



# --- what goes over the wire --------------------------------------------------------------------


class UserIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = Field(min_length=1, max_length=200, examples=["Ada"], json_schema_extra=SAID_NAME)


class UserOut(BaseModel):
    id: str = Field(pattern=ID, examples=["7253000000000000000"])
    name: str
    followerCount: int


class PostIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    content: str = Field(min_length=1, max_length=posts.TEXT_MAX, examples=["hello"], json_schema_extra=SAID_TEXT)
    images: list[Annotated[str, Field(max_length=2_000, pattern=IMAGE)]] = Field(default=[], max_length=10)


class PostOut(BaseModel):
    id: str = Field(pattern=ID)
    authorId: str = Field(pattern=ID)
    content: str
    images: list[str]
    createdAtMillis: int


class PageOut(BaseModel):
    items: list[PostOut]
    nextCursor: str | None = Field(
        description="Pass it as cursor to go on; null only at the true end. It works for ever."
    )


class Problem(BaseModel):
    """RFC 9457: `title` is the status in words, `detail` says what to do."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    instance: str


def _post(p: Post) -> PostOut:
    return PostOut(
        id=str(p.id),
        authorId=str(p.author_id),
        content=p.content,
        images=list(p.images),
        createdAtMillis=p.created_at_ms,
    )


def _page(p: Page) -> PageOut:
    return PageOut(items=[_post(x) for x in p.posts], nextCursor=p.next_cursor)


def _may(*codes: int, made: str = "") -> dict:
    """The refusals of an operation, for OpenAPI; `made`: what a 201 created."""
    said = {
        c: {
            "description": HTTPStatus(c).phrase,
            "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
        for c in codes
    }
    if 503 in said:
        said[503]["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}}
    if made:
        said[201] = {
            "headers": {
                "Location": {"schema": {"type": "string"}, "description": f"Where the {made} is.", "required": True}
            }
        }
    return said


# --- what a process keeps -----------------------------------------------------------------------


class State:
    """Pool, Redis client, reader, id generator: opened without waiting for any engine, so that the server starts and
    says what is away instead of not starting."""

    def __init__(self, settings: Settings, addresses: Addresses):
        self.settings, self.addresses, self.names = settings, addresses, Names(settings.namespace)
        # tcp_user_timeout and statement_timeout: a network that swallows packets and a lock that never comes are "away", too
        self.pool = ConnectionPool(
            addresses.postgres_url,
            min_size=1,
            max_size=CONNECTIONS,
            max_waiting=200,
            timeout=POSTGRES_S,
            open=False,
            check=ConnectionPool.check_connection,
            reconnect_timeout=5,
            kwargs={
                "autocommit": True,
                "connect_timeout": 2,
                "application_name": "feedlab serve",
                "tcp_user_timeout": 5_000,
                "options": f"-c search_path={settings.namespace} -c statement_timeout={int(DEADLINE_S * 1000)}",
            },
        )
        self.redis = timeline.client(addresses.redis_url, timeout_s=1.0)
        self.reader = Reader(settings)
        self.pings = ThreadPoolExecutor(6, "ping")  # apart from the requests' threads, which may all be waiting
        self._ids = self._admin = None
        self._tables, self._lock, self.away = False, threading.RLock(), False

    def ids(self, conn):
        with self._lock:
            if self._ids is None:
                self._ids = db.ids(conn)
            return self._ids

    def admin(self):
        with self._lock:
            if self._admin is None:
                self._admin = kafka.admin(self.addresses.kafka_bootstrap)
            return self._admin

    def tables(self, conn) -> None:
        """Make the tables when this process first meets PostgreSQL, which may be long after it started."""
        if not self._tables:
            with self._lock:
                if not self._tables:
                    try:
                        db.apply_schema(conn, self.settings)
                    except BadInput as e:  # of another version: not the asker's mistake
                        raise EngineDown(str(e)) from None
                    self._tables = True

    def forget_tables(self) -> None:
        self._tables, self._ids = False, None

    @contextmanager
    def connection(self):
        """A connection, for a route to open in its own body: as a dependency it would be held between two turns of the
        thread pool, and requests that wait for a connection could then keep every thread from those that have one.

        When the last request waited in vain, this one hardly waits: PostgreSQL is away, and a queue of waiting requests
        helps nobody.
        """
        try:
            with self.pool.connection(timeout=0.2 if self.away else POSTGRES_S) as conn:
                self.away = False
                self.tables(conn)
                yield conn
        except PoolTimeout:
            self.away = True
            raise

    def close(self) -> None:
        self.pool.close()
        self.redis.close()
        self.pings.shutdown(wait=False, cancel_futures=True)


def _state(request: Request) -> State:
    return request.app.state.feedlab


def who(
    x_user_id: Annotated[
        str, Header(description="Who is asking; stands for a real login.", pattern=ID, json_schema_extra=SAID_ID)
    ] = None,
) -> int:
    """The user who is asking. The only authentication there is: replace this dependency, and nothing else, by a real
    one."""
    if x_user_id is None:
        raise Unauthorized("the header X-User-Id is missing. Send the id of the user who is asking.")
    return _whole(x_user_id, "the header X-User-Id")


def _whole(text: str, what: str) -> int:
    if not re.fullmatch(r"0|[1-9][0-9]{0,18}", text) or int(text) > MAX_ID:
        raise BadInput(f"{what} must be a whole number from 0 to {MAX_ID}.")
    return int(text)


StateDep = Annotated[State, Depends(_state)]
Me = Annotated[int, Depends(who)]
Id = Annotated[
    str,
    Path(
        pattern=ID,
        json_schema_extra=SAID_ID,
        description=f"An id, as a decimal string; at most {MAX_ID}.",
        examples=["7253000000000000000"],
    ),
]
# the form is checked by core.cursor, whose refusal is a 400; the pattern here is for OpenAPI alone
Cursor = Annotated[
    str,
    Query(
        description="nextCursor of the page before, unchanged. Malformed: 400.",
        examples=["1760245800123:7253"],
        json_schema_extra=SAID_CURSOR,
    ),
]
Limit = Annotated[int, Query(ge=1, description="Posts a page; more than 50 is 50.")]
Key = Annotated[
    str, Header(min_length=1, max_length=200, description="The same key and post again: the same answer, one post.")
]


# --- the application ----------------------------------------------------------------------------

ABOUT = f"""An exact hybrid news feed. Ids are strings: they pass 2^53; an id is at most {MAX_ID}.
Refusals are problem bodies (RFC 9457).

`X-User-Id` says who is asking. It proves nothing: it is a teaching stand-in for authentication."""


def make_app(settings: Settings, addresses: Addresses) -> FastAPI:
    """The application on engines at `addresses`; none of them need be up."""

    @asynccontextmanager
    async def lifespan(app: FastAPI):
        anyio.to_thread.current_default_thread_limiter().total_tokens = CONNECTIONS
        app.state.feedlab = State(settings, addresses)
        app.state.feedlab.pool.open(wait=False)
        yield
        app.state.feedlab.close()

    app = FastAPI(
        title="feedlab",
        version=__version__,
        description=ABOUT,
        lifespan=lifespan,
        separate_input_output_schemas=False,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    app.router.route_class = StrictRoute
    add_errors(app)
    _write(app)
    _read(app)
    _operate(app)
    app.openapi = lambda: _openapi(app)
    return app


def _openapi(app: FastAPI) -> dict:
    """FastAPI's, with our problem in place of its own, and X-User-Id said to be needed (it is optional to FastAPI so
    that its absence is a 401, not a 422)."""
    if app.openapi_schema is None:
        spec = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schemas = spec["components"]["schemas"]
        schemas["Problem"] = Problem.model_json_schema()
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        for item in spec["paths"].values():
            for operation in item.values():
                for parameter in operation.get("parameters", []):
                    parameter["required"] = parameter["required"] or parameter["name"] == "x-user-id"
        app.openapi_schema = spec
    return app.openapi_schema


def _write(app: FastAPI) -> None:
    @app.post("/api/users", status_code=201, tags=["users"], responses=_may(400, 409, 413, 422, 503, made="user"))
    def create_user(body: UserIn, s: StateDep, response: Response) -> UserOut:
        """Make a user; the id is ours to choose."""
        with s.connection() as conn:
            user, _ = s.ids(conn).next()
            posts.create_user(conn, user, body.name)
        response.headers["Location"] = f"/api/users/{user}"
        return UserOut(id=str(user), name=body.name, followerCount=0)

    @app.post(
        "/api/posts", status_code=201, tags=["posts"], responses=_may(400, 401, 404, 409, 413, 422, 503, made="post")
    )
    def create_post(body: PostIn, me: Me, s: StateDep, response: Response, idempotency_key: Key = None) -> PostOut:
        """Write a post. With an Idempotency-Key a retry is safe: the same key makes one post, and 409 with another
        text."""
        with metrics.WRITES.time(), s.connection() as conn:
            post = _once(conn, s, me, body, idempotency_key)
        response.headers["Location"] = f"/api/posts/{post.id}"
        return _post(post)

    @app.delete("/api/posts/{post_id}", status_code=204, tags=["posts"], responses=_may(400, 401, 403, 404, 422, 503))
    def delete_post(post_id: Id, me: Me, s: StateDep) -> None:
        """Delete one's own post: it is hidden from every feed at once. Doing it twice is harmless."""
        i = _whole(post_id, "the post id")
        with s.connection() as conn:
            row = conn.execute("select author_id from posts where id = %s", (i,)).fetchone()
            if row is None:
                raise NotFound(f"there is no post {i}.")
            if row[0] != me:
                raise Forbidden(f"post {i} is somebody else's; only its author may delete it.")
            posts.delete(conn, s.names, me, i)

    @app.put(
        "/api/follows/{followee_id}", status_code=204, tags=["follows"], responses=_may(400, 401, 404, 409, 422, 503)
    )
    def follow(followee_id: Id, me: Me, s: StateDep) -> None:
        """Follow somebody. Doing it twice is harmless; oneself is a 409."""
        with s.connection() as conn:
            follows.follow(conn, s.redis, s.names, me, _whole(followee_id, "the followee id"))

    @app.delete("/api/follows/{followee_id}", status_code=204, tags=["follows"], responses=_may(400, 401, 422, 503))
    def unfollow(followee_id: Id, me: Me, s: StateDep) -> None:
        """Follow no more. Their posts are hidden at once. Doing it twice is harmless."""
        with s.connection() as conn:
            follows.unfollow(conn, s.redis, s.names, me, _whole(followee_id, "the followee id"))


def _once(conn, s: State, me: int, body: PostIn, key: str | None) -> Post:
    """Create the post; with an Idempotency-Key, once. The key's row is taken first: a second request with it waits for
    the first to commit, then answers with its post."""
    if key is None:
        return posts.create(conn, s.ids(conn), s.names, me, body.content, images=body.images)
    posts.check_text("the Idempotency-Key", key)
    posts.check_text("the post", body.content, *body.images)  # before it is hashed
    digest = hashlib.sha256(body.model_dump_json().encode()).hexdigest()
    drawn = s.ids(conn).next()
    with conn.transaction():
        won = conn.execute(
            "insert into idempotency_keys values (%s, %s, %s, %s) on conflict do nothing returning 1",
            (me, key, digest, drawn[0]),
        ).fetchone()
        if won:
            return posts.create(conn, Drawn(drawn), s.names, me, body.content, images=body.images)
    known, post_id = conn.execute(
        "select digest, post_id from idempotency_keys where user_id = %s and key = %s", (me, key)
    ).fetchone()
    if known != digest:
        raise Conflict("this Idempotency-Key was used for another post. Use a new key for a new post.")
    row = conn.execute(
        "select id, author_id, created_at_ms, content, images from posts where id = %s", (post_id,)
    ).fetchone()
    if row is None:
        raise Conflict(
            f"the post {post_id} that was made with this Idempotency-Key was removed. Use a new key for a new post."
        )
    return Post(*row[:4], tuple(row[4]))


def _read(app: FastAPI) -> None:
    @app.get("/api/feed", tags=["feed"], responses=_may(400, 401, 404, 422, 503))
    def feed(
        me: Me,
        s: StateDep,
        cursor: Cursor = None,
        limit: Limit = LIMIT,
        include: Annotated[Literal["self"], Query(description="self: one's own posts, too, at once.")] = None,
    ) -> PageOut:
        """A page of one's feed, newest first. It is short only when the feed ends, and only then is nextCursor null."""
        with metrics.PAGES.time(), s.connection() as conn:
            page = s.reader.page(conn, s.redis, me, cursor, limit, own=include == "self")
        metrics.page(page.explain)
        return _page(page)

    @app.get("/api/users/{user_id}/posts", tags=["users"], responses=_may(400, 404, 422, 503))
    def author_posts(user_id: Id, s: StateDep, cursor: Cursor = None, limit: Limit = LIMIT) -> PageOut:
        """A page of one author's posts, in the same order and with the same cursor."""
        with s.connection() as conn:
            return _page(s.reader.author_page(conn, s.redis, _whole(user_id, "the user id"), cursor, limit))

    @app.get("/api/users/{user_id}", tags=["users"], responses=_may(400, 404, 422, 503))
    def user(user_id: Id, s: StateDep) -> UserOut:
        """One user."""
        i = _whole(user_id, "the user id")
        with s.connection() as conn:
            row = conn.execute("select name from users where id = %s", (i,)).fetchone()
            if row is None:
                raise NotFound(f"there is no user {i}.")
            return UserOut(id=str(i), name=row[0], followerCount=follows.followers(conn, i))

    @app.get("/api/posts/{post_id}", tags=["posts"], responses=_may(400, 404, 422, 503))
    def post(post_id: Id, s: StateDep) -> PostOut:
        """One post."""
        i = _whole(post_id, "the post id")
        with s.connection() as conn:
            row = conn.execute(
                "select id, author_id, created_at_ms, content, images from posts where id = %s and not deleted", (i,)
            ).fetchone()
        if row is None:
            raise NotFound(f"there is no post {i}.")
        return _post(Post(*row[:4], tuple(row[4])))


# --- operation ----------------------------------------------------------------------------------

# the page draws itself from /metrics and asks nobody else
PAGE_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def _operate(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False, response_class=HTMLResponse)
    async def live() -> HTMLResponse:
        return HTMLResponse(
            files("feedlab").joinpath("http/live.html").read_text(), headers={"Content-Security-Policy": PAGE_POLICY}
        )

    @app.get("/healthz", tags=["operation"])
    async def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @app.get(
        "/readyz",
        tags=["operation"],
        responses={
            503: {
                "description": "PostgreSQL is away",
                "headers": {"Retry-After": {"schema": {"type": "integer"}}},
                "content": {
                    "application/json": {"schema": {"type": "object", "additionalProperties": {"type": "string"}}}
                },
            }
        },
    )
    async def readyz(s: StateDep, response: Response) -> dict[str, str]:
        """Each engine, by name. 503 only without PostgreSQL: the others are done without for a while."""
        asked = {"postgres": lambda: _ping(s), "redis": s.redis.ping, "kafka": lambda: s.admin().list_topics(timeout=2)}
        loop = asyncio.get_running_loop()
        answers = await asyncio.gather(*(loop.run_in_executor(s.pings, _try, call) for call in asked.values()))
        said = dict(zip(asked, answers, strict=True))
        if said["postgres"] != "ok":
            response.status_code, response.headers["Retry-After"] = 503, "2"
        return said

    @app.get(
        "/metrics",
        tags=["operation"],
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    def prometheus(s: StateDep) -> Response:
        """Prometheus text: each station. One that is away is left out; the process's own figures are always there."""
        try:
            with s.connection() as conn:
                said = metrics.text(conn, s.redis, s.names, s.admin())
        except (EngineDown, *db.AWAY):
            said = metrics.text(None, s.redis, s.names, s.admin())
        return Response(said, media_type=CONTENT_TYPE_LATEST)


def _ping(s: State) -> None:
    with s.pool.connection() as conn:
        conn.execute("select 1")


def _try(call) -> str:
    try:
        call()
        return "ok"
    except Exception as e:
        return f"away ({type(e).__name__})"


# --- serving ------------------------------------------------------------------------------------


def server(settings: Settings, addresses: Addresses, host: str = "127.0.0.1", port: int = 8080):
    """A uvicorn server, not yet running. h11, not httptools: its limit of the headers' size is what we rely on."""
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Protocol(H11Protocol):
        """What is not HTTP is refused with a problem body, too. Its bytes are neither answered nor logged."""

        def send_400_response(self, msg: str) -> None:
            status = 431 if len(self.conn.trailing_data[0]) >= HEADERS_MAX else 400
            body = json.dumps(
                problem("", status, f"{msg} Request line and headers may have {HEADERS_MAX} bytes.")
            ).encode()
            head = (
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {PROBLEM}\r\n"
                f"Content-Length: {len(body)}\r\n"
                "Connection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
            self.transport.close()

    return uvicorn.Server(
        uvicorn.Config(
            make_app(settings, addresses),
            host=host,
            port=port,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=10,
            http=Protocol,
            h11_max_incomplete_event_size=HEADERS_MAX,
            proxy_headers=False,
            server_header=False,
        )
    )


def serve(settings: Settings, addresses: Addresses, host: str = "127.0.0.1", port: int = 8080) -> None:
    """Until SIGTERM or Ctrl-C; requests under way are finished, then it returns."""
    told = signal.SIGINT, signal.SIGTERM
    # uvicorn raises the signal again once it has stopped; here that is the end of the work, not an error
    before = {n: signal.signal(n, lambda *_: None) for n in told}
    try:
        server(settings, addresses, host, port).run()
    finally:
        for n, handler in before.items():
            signal.signal(n, handler)


@contextmanager
def in_thread(settings: Settings, addresses: Addresses, port: int = 0):
    """The same server in a thread of this process, for notebooks and tests: gives its URL, and stops it at the end."""
    made = server(settings, addresses, port=port)
    thread = threading.Thread(target=made.run, daemon=True, name="feedlab serve")
    thread.start()
    until = time.monotonic() + 20
    while not made.started:
        if not thread.is_alive() or time.monotonic() > until:
            raise EngineDown(f"the API did not start on port {port}. Is the port in use?")
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{made.servers[0].sockets[0].getsockname()[1]}"
    finally:
        made.should_exit = True
        thread.join(20)
