"""8 HTTP: the same posts, follows and pages, with JSON ids as strings (they pass 2^53) and problem bodies (RFC 9457).

    feedlab serve            # binds to loopback unless told otherwise

`X-User-Id` is the teaching stand-in for authentication: `who` is the one place that a team replaces. PostgreSQL is the truth: without
Redis pages come from SQL, without Kafka writes wait in the outbox, without PostgreSQL everything is a 503 with Retry-After.
"""
import hashlib
import re
import threading
from contextlib import asynccontextmanager
from typing import Annotated

import psycopg
from fastapi import Depends, FastAPI, Header, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from psycopg_pool import ConnectionPool, PoolTimeout
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from . import db, follows, kafka, metrics, outbox, posts, timeline
from .config import Settings
from .core.codec import Names
from .core.model import MAX_ID, Page, Post
from .engines import Addresses
from .errors import BadInput, ClockWentBack, Conflict, EngineDown, FeedlabError, NotFound
from .reader import LIMIT, Reader

BODY_MAX = 64 * 1024        # a post of 5,000 characters takes at most 60 kB as escaped JSON
ID = r"^(0|[1-9][0-9]{0,18})$"


class Forbidden(FeedlabError):
    """Known, but not allowed."""


class Unauthorized(FeedlabError):
    """Nobody says who is asking."""


STATUS = {BadInput: 400, Unauthorized: 401, Forbidden: 403, NotFound: 404, Conflict: 409, ClockWentBack: 503, EngineDown: 503}


# --- what goes over the wire -------------------------------------------------------------------------------------------------

class UserIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = Field(min_length=1, max_length=200, examples=["Ada"])


class UserOut(BaseModel):
    id: str = Field(pattern=ID, examples=["7253000000000000000"])
    name: str
    followerCount: int


class PostIn(BaseModel):
    model_config = ConfigDict(extra="forbid")
    content: str = Field(min_length=1, max_length=posts.TEXT_MAX, examples=["hello"])
    images: list[Annotated[str, Field(max_length=2_000, pattern=r"^https?://[^\s]+$")]] = Field(default=[], max_length=10)


class PostOut(BaseModel):
    id: str = Field(pattern=ID)
    authorId: str = Field(pattern=ID)
    content: str
    images: list[str]
    createdAtMillis: int


class PageOut(BaseModel):
    items: list[PostOut]
    nextCursor: str | None = Field(description="Pass it as cursor to go on; null only at the true end. It works for ever.")


class Problem(BaseModel):
    type: str = "about:blank"
    title: str
    status: int
    detail: str
    instance: str


def _post(p: Post) -> PostOut:
    return PostOut(id=str(p.id), authorId=str(p.author_id), content=p.content, images=list(p.images), createdAtMillis=p.created_at_ms)


def _page(p: Page) -> PageOut:
    return PageOut(items=[_post(x) for x in p.posts], nextCursor=p.next_cursor)


# --- what a process keeps ------------------------------------------------------------------------------------------------------

class State:
    """Pool, Redis client, reader, id generator: opened without waiting for any engine, so that the server starts and says what
    is away instead of not starting."""

    def __init__(self, settings: Settings, addresses: Addresses):
        self.settings, self.addresses, self.names = settings, addresses, Names(settings.namespace)
        self.pool = ConnectionPool(
            addresses.postgres_url, min_size=1, max_size=16, timeout=3, open=False, check=ConnectionPool.check_connection,
            reconnect_timeout=5, kwargs={"autocommit": True, "connect_timeout": 3, "application_name": "feedlab serve",
                                         "options": f"-c search_path={settings.namespace}"})
        self.redis = timeline.client(addresses.redis_url, timeout_s=1.0)
        self.reader = Reader(settings)
        self._ids, self._lock = None, threading.Lock()

    def ids(self, conn):
        with self._lock:
            if self._ids is None:
                self._ids = db.ids(conn)
            return self._ids


def _state(request: Request) -> State:
    return request.app.state.feedlab


def _conn(request: Request):
    with _state(request).pool.connection() as conn:
        yield conn


def who(x_user_id: Annotated[str | None, Header(description="Who is asking; stands for a real login.", pattern=ID)] = None) -> int:
    """The user who is asking. The only authentication there is: replace this dependency, and nothing else, by a real one."""
    if x_user_id is None:
        raise Unauthorized("the header X-User-Id is missing. Send the id of the user who is asking.")
    return _whole(x_user_id, "the header X-User-Id")


def _whole(text: str, what: str) -> int:
    if not re.fullmatch(r"0|[1-9][0-9]{0,18}", text) or int(text) > MAX_ID:
        raise BadInput(f"{what} must be a whole number from 0 to {MAX_ID}.")
    return int(text)


StateDep = Annotated[State, Depends(_state)]
Conn = Annotated[psycopg.Connection, Depends(_conn)]
Me = Annotated[int, Depends(who)]
Id = Annotated[str, Path(pattern=ID, description="An id, as a decimal string.", examples=["7253000000000000000"])]
Cursor = Annotated[str | None, Query(description="nextCursor of the page before, unchanged.", examples=["1760245800123:7253"])]
Limit = Annotated[int, Query(ge=1, le=2**31 - 1, description="Posts a page; more than 50 is 50.")]


def make_app(settings: Settings, addresses: Addresses) -> FastAPI:
    """The application on engines at `addresses`; none of them need be up."""
    @asynccontextmanager
    async def lifespan(app: FastAPI):
        app.state.feedlab = State(settings, addresses)
        app.state.feedlab.pool.open(wait=False)
        yield
        app.state.feedlab.pool.close()
        app.state.feedlab.redis.close()

    refusals = {c: {"model": Problem, "content": {"application/problem+json": {}}} for c in (400, 401, 403, 404, 409, 413, 422, 503)}
    app = FastAPI(title="feedlab", version="1", lifespan=lifespan, responses=refusals, separate_input_output_schemas=False)
    _errors(app)
    _write(app)
    _read(app)
    _operate(app)
    return app


def _write(app: FastAPI) -> None:
    @app.post("/api/users", status_code=201, tags=["users"])
    def create_user(body: UserIn, conn: Conn, s: StateDep, response: Response) -> UserOut:
        user, _ = s.ids(conn).next()
        posts.create_user(conn, user, body.name)
        response.headers["Location"] = f"/api/users/{user}"
        return UserOut(id=str(user), name=body.name, followerCount=0)

    @app.post("/api/posts", status_code=201, tags=["posts"])
    def create_post(body: PostIn, me: Me, conn: Conn, s: StateDep, response: Response,
                    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None) -> PostOut:
        with metrics.WRITES.time():
            post = _once(conn, s, me, body, idempotency_key)
        response.headers["Location"] = f"/api/posts/{post.id}"
        return _post(post)

    @app.delete("/api/posts/{post_id}", status_code=204, tags=["posts"])
    def delete_post(post_id: Id, me: Me, conn: Conn, s: StateDep) -> None:
        i = _whole(post_id, "the post id")
        row = conn.execute("select author_id from posts where id = %s", (i,)).fetchone()
        if row is None:
            raise NotFound(f"there is no post {i}.")
        if row[0] != me:
            raise Forbidden(f"post {i} is somebody else's; only its author may delete it.")
        posts.delete(conn, s.names, me, i)

    @app.put("/api/follows/{followee_id}", status_code=204, tags=["follows"])
    def follow(followee_id: Id, me: Me, conn: Conn, s: StateDep) -> None:
        follows.follow(conn, s.redis, s.names, me, _whole(followee_id, "the followee id"))

    @app.delete("/api/follows/{followee_id}", status_code=204, tags=["follows"])
    def unfollow(followee_id: Id, me: Me, conn: Conn, s: StateDep) -> None:
        follows.unfollow(conn, s.redis, s.names, me, _whole(followee_id, "the followee id"))


def _once(conn, s: State, me: int, body: PostIn, key: str | None) -> Post:
    """Create the post; with an Idempotency-Key, once. The key's row is taken first: a second request with it waits for the first to
    commit, then answers with its post."""
    if key is None:
        return posts.create(conn, s.ids(conn), s.names, me, body.content, images=body.images)
    posts.check_text("the Idempotency-Key", key)
    digest = hashlib.sha256(body.model_dump_json().encode()).hexdigest()
    drawn = s.ids(conn).next()
    with conn.transaction():
        won = conn.execute("insert into idempotency_keys values (%s, %s, %s, %s) on conflict do nothing returning 1",
                           (me, key, digest, drawn[0])).fetchone()
        if won:
            return posts.create(conn, _Drawn(drawn), s.names, me, body.content, images=body.images)
    known, post_id = conn.execute("select digest, post_id from idempotency_keys where user_id = %s and key = %s",
                                  (me, key)).fetchone()
    if known != digest:
        raise Conflict("this Idempotency-Key was used for another post. Use a new key for a new post.")
    row = conn.execute("select id, author_id, created_at_ms, content, images from posts where id = %s", (post_id,)).fetchone()
    return Post(*row[:4], tuple(row[4]))


class _Drawn:
    """An id that was drawn already, where a generator is wanted."""

    def __init__(self, drawn: tuple[int, int]):
        self.drawn = drawn

    def next(self) -> tuple[int, int]:
        return self.drawn


def _read(app: FastAPI) -> None:
    @app.get("/api/feed", tags=["feed"])
    def feed(me: Me, conn: Conn, s: StateDep, cursor: Cursor = None, limit: Limit = LIMIT,
             include: Annotated[str | None, Query(pattern="^self$", description="self: one's own posts, too, at once.")] = None
             ) -> PageOut:
        with metrics.PAGES.time():
            page = s.reader.page(conn, s.redis, me, cursor, limit, own=include == "self")
        metrics.page(page.explain)
        return _page(page)

    @app.get("/api/users/{user_id}/posts", tags=["users"])
    def author_posts(user_id: Id, conn: Conn, s: StateDep, cursor: Cursor = None, limit: Limit = LIMIT) -> PageOut:
        return _page(s.reader.author_page(conn, s.redis, _whole(user_id, "the user id"), cursor, limit))

    @app.get("/api/users/{user_id}", tags=["users"])
    def user(user_id: Id, conn: Conn) -> UserOut:
        i = _whole(user_id, "the user id")
        row = conn.execute("select name from users where id = %s", (i,)).fetchone()
        if row is None:
            raise NotFound(f"there is no user {i}.")
        return UserOut(id=str(i), name=row[0], followerCount=follows.followers(conn, i))

    @app.get("/api/posts/{post_id}", tags=["posts"])
    def post(post_id: Id, conn: Conn) -> PostOut:
        i = _whole(post_id, "the post id")
        row = conn.execute("select id, author_id, created_at_ms, content, images from posts where id = %s and not deleted",
                           (i,)).fetchone()
        if row is None:
            raise NotFound(f"there is no post {i}.")
        return _post(Post(*row[:4], tuple(row[4])))


def _operate(app: FastAPI) -> None:
    @app.get("/healthz", tags=["operation"])
    def healthz() -> dict[str, str]:
        """The process answers."""
        return {"status": "ok"}

    @app.get("/readyz", tags=["operation"])
    def readyz(s: StateDep, response: Response) -> dict[str, str]:
        """Each engine, by name. 503 only without PostgreSQL: the others are done without for a while."""
        said = {"postgres": _try(lambda: _ping(s)), "redis": _try(s.redis.ping),
                "kafka": _try(lambda: kafka.admin(s.addresses.kafka_bootstrap).list_topics(timeout=2))}
        if said["postgres"] != "ok":
            response.status_code, response.headers["Retry-After"] = 503, "2"
        return said

    @app.get("/metrics", tags=["operation"], response_class=Response)
    def prometheus(s: StateDep) -> Response:
        """Prometheus text: each station."""
        try:
            with s.pool.connection() as conn:
                metrics.stations(conn, s.redis, s.names, s.addresses.kafka_bootstrap)
        except (PoolTimeout, *db.AWAY):
            pass                                     # the process's own figures are there all the same
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


def _ping(s: State) -> None:
    with s.pool.connection() as conn:
        conn.execute("select 1")


def _try(call) -> str:
    try:
        call()
        return "ok"
    except Exception as e:
        return f"away ({type(e).__name__})"


# --- errors ------------------------------------------------------------------------------------------------------------------------

def _problem(request: Request, status: int, title: str, detail: str) -> JSONResponse:
    headers = {"Retry-After": "2"} if status == 503 else {}
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, "instance": request.url.path}
    return JSONResponse(body, status, headers, media_type="application/problem+json")


def _errors(app: FastAPI) -> None:
    @app.exception_handler(FeedlabError)
    def ours(request: Request, e: FeedlabError) -> JSONResponse:
        status = next(code for kind, code in STATUS.items() if isinstance(e, kind))
        return _problem(request, status, type(e).__name__, str(e))

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, e: RequestValidationError) -> JSONResponse:
        said = "; ".join(f"{'.'.join(str(x) for x in err['loc'])}: {err['msg']}" for err in e.errors()[:5])
        return _problem(request, 422, "Unprocessable", said.encode("utf-8", "replace").decode())

    @app.exception_handler(HTTPException)
    def http(request: Request, e: HTTPException) -> JSONResponse:
        answer = _problem(request, e.status_code, str(e.detail), f"{request.method} {request.url.path}: {e.detail}")
        answer.headers.update(e.headers or {})
        return answer

    def away(request: Request, e: Exception) -> JSONResponse:
        return _problem(request, 503, "EngineDown", "PostgreSQL does not answer. Try again in some seconds.")
    for kind in (PoolTimeout, *db.AWAY):
        app.add_exception_handler(kind, away)
    app.add_middleware(BodyLimit)


class BodyLimit:
    """Refuses a body of more than 64 KiB with 413, whether it says its length or comes in chunks."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        got, started = 0, False

        async def counted():
            nonlocal got
            message = await receive()
            got += len(message.get("body", b""))
            if got > BODY_MAX:
                raise _TooLarge
            return message

        async def noted(message):
            nonlocal started
            started = True
            await send(message)
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        try:
            if declared.isdigit() and int(declared) > BODY_MAX:
                raise _TooLarge
            await self.app(scope, counted, noted)
        except _TooLarge:
            if not started:
                await _problem(Request(scope), 413, "Too large", f"a body may have {BODY_MAX} bytes.")(scope, receive, send)


class _TooLarge(Exception):
    pass


def serve(settings: Settings, addresses: Addresses, host: str = "127.0.0.1", port: int = 8080) -> None:
    """Until SIGTERM or Ctrl-C; requests under way are finished."""
    import uvicorn
    uvicorn.run(make_app(settings, addresses), host=host, port=port, log_level="warning", timeout_graceful_shutdown=10,
                h11_max_incomplete_event_size=32 * 1024)


