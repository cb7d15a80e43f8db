"""What lies around every HTTP request: limits of size and time, strict JSON, and errors as problem bodies (RFC 9457).

`api` has the routes; nothing here knows what they do.
"""
import asyncio
import json
import logging
import traceback
from http import HTTPStatus

import psycopg
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from .. import db
from ..errors import BadInput, ClockWentBack, Conflict, EngineDown, FeedlabError, NotFound
from . import metrics

BODY_MAX = 320 * 1024  # the largest valid post, all of it escaped: 12 bytes for each of 5,000 + 10 x 2,000 characters
HEADERS_MAX = 32 * 1024  # request line and headers together
DEADLINE_S = 8.0  # how long it may take in all: an engine that hangs is a 503, too
PROBLEM = "application/problem+json"

log = logging.getLogger("feedlab.http.app")


class Forbidden(FeedlabError):
    """Known, but not allowed."""


class Unauthorized(FeedlabError):
    """Nobody says who is asking."""


STATUS = {
    BadInput: 400,
    Unauthorized: 401,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    ClockWentBack: 503,
    EngineDown: 503,
}


# --- JSON without surprises ---------------------------------------------------------------------


def strict_json(body: bytes):
    """RFC 8259 and no more: UTF-8, no NaN, no name twice, no number or depth beyond what Python takes. Raises
    JSONDecodeError.

    >>> strict_json(b'{"a": [1, null]}')
    {'a': [1, None]}
    """

    def pairs(found: list[tuple]) -> dict:
        if len(dict(found)) < len(found):
            raise ValueError("a name appears twice in one object")
        return dict(found)

    def constant(name: str):
        raise ValueError(f"{name} is not JSON")

    try:
        return json.loads(body.decode(), object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError:
        raise
    except UnicodeDecodeError as e:
        raise json.JSONDecodeError("the body is not UTF-8", "", e.start) from None
    except RecursionError:
        raise json.JSONDecodeError("the body is nested too deeply", "", 0) from None
    except ValueError as e:
        raise json.JSONDecodeError(str(e)[:100], "", 0) from None


class StrictRequest(Request):
    async def json(self):
        return strict_json(await self.body())


class StrictRoute(APIRoute):
    def get_route_handler(self):
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return strict


# --- errors -------------------------------------------------------------------------------------


def problem(path: str, status: int, detail: str) -> dict:
    """A problem body, with nothing in it that UTF-8 cannot hold."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": path,
    }
    return {k: v.encode("utf-8", "replace").decode() if isinstance(v, str) else v for k, v in body.items()}


HEADERS = {
    503: {"Retry-After": "2"},
    401: {"WWW-Authenticate": 'X-User-Id realm="feedlab"'},
    408: {"Connection": "close"},
    413: {"Connection": "close"},
    431: {"Connection": "close"},
}


def respond(request: Request, status: int, detail: str, headers: dict | None = None) -> JSONResponse:
    return JSONResponse(
        problem(request.url.path, status, detail), status, HEADERS.get(status, {}) | (headers or {}), media_type=PROBLEM
    )


def add_errors(app: FastAPI) -> None:
    @app.exception_handler(FeedlabError)
    def ours(request: Request, e: FeedlabError) -> JSONResponse:
        return respond(request, next(code for kind, code in STATUS.items() if isinstance(e, kind)), str(e))

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, e: RequestValidationError) -> JSONResponse:
        said = (
            f"{'.'.join(str(x)[:100] for x in err['loc'])}: {err.get('ctx', {}).get('error', err['msg'])}"
            for err in e.errors()[:5]
        )
        return respond(request, 422, "; ".join(said))

    @app.exception_handler(HTTPException)
    def http(request: Request, e: HTTPException) -> JSONResponse:
        headers = dict(e.headers or {})
        if e.status_code == 405:  # of all routes with this path; the framework names the first one's
            methods = {
                m
                for r in app.routes
                if hasattr(r, "path_regex") and r.path_regex.match(request.url.path)
                for m in r.methods
            }
            headers["Allow"] = ", ".join(sorted(methods | ({"HEAD"} if "GET" in methods else set())))
        return respond(request, e.status_code, f"{request.method} {request.url.path}: {e.detail}", headers)

    @app.exception_handler(psycopg.errors.UndefinedTable)
    def wiped(request: Request, e: Exception) -> JSONResponse:
        request.app.state.feedlab.forget_tables()  # somebody has dropped the namespace under us; they are made anew
        return respond(request, 503, "the tables are gone and will be made again. Try again in some seconds.")

    def away(request: Request, e: Exception) -> JSONResponse:
        return respond(request, 503, "PostgreSQL does not answer. Try again in some seconds.")

    for kind in db.AWAY:  # the pool's own errors are among them
        app.add_exception_handler(kind, away)
    app.add_middleware(Edge)


class Edge:
    """Around every request: a head of at most HEADERS_MAX (431) and a body of at most BODY_MAX, whether it says its
    length or comes in chunks (413); an end after DEADLINE_S (408 while the body is still coming, else 503); HEAD as GET
    without the body; and whatever nobody foresaw is a problem body and one escaped line in the log."""

    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        request, head, headers = Request(scope), scope["method"] == "HEAD", dict(scope["headers"])
        got, started, over = 0, False, False
        whole = b"transfer-encoding" not in headers and headers.get(b"content-length", b"0") == b"0"

        async def counted():
            nonlocal got, whole
            message = await receive()
            got += len(message.get("body", b""))
            whole = whole or not message.get("more_body")
            if got > BODY_MAX:
                raise _TooLarge
            return message

        async def noted(message):
            nonlocal started
            if over:
                return  # too late: it has been answered
            if message["type"] == "http.response.start":
                started = True
                metrics.RESPONSES.labels(message["status"]).inc()
                message["headers"] = [
                    *message["headers"],
                    (b"x-content-type-options", b"nosniff"),
                    (b"cache-control", b"no-store"),
                ]
            elif head:
                message = message | {"body": b""}
            await send(message)

        async def refuse(status: int, detail: str) -> None:
            if not started:
                await respond(request, status, detail)(scope, receive, noted)

        async def handle() -> None:
            declared = headers.get(b"content-length", b"0")
            try:
                # h11 limits what it keeps of an unfinished head; one that came in a single piece is measured here
                if (
                    sum(len(k) + len(v) + 4 for k, v in scope["headers"])
                    + len(scope["raw_path"])
                    + len(scope["query_string"])
                    > HEADERS_MAX
                ):
                    return await refuse(431, f"request line and headers may have {HEADERS_MAX} bytes.")
                if declared.isdigit() and int(declared[:20]) > BODY_MAX:
                    raise _TooLarge
                await self.app(scope | {"method": "GET"} if head else scope, counted, noted)
            except _TooLarge as e:
                await refuse(413, e.detail)
            except Exception as e:
                last = traceback.extract_tb(e.__traceback__)[-1]
                log.error(
                    "%s %s: %s at %s:%s: %s",
                    scope["method"],
                    ascii(request.url.path)[:300],
                    type(e).__name__,
                    last.filename,
                    last.lineno,
                    ascii(str(e))[:1000],
                )
                await refuse(500, "this should not happen; the server's log says more.")

        work = asyncio.ensure_future(handle())
        try:
            done, _ = await asyncio.wait({work}, timeout=DEADLINE_S)
        except asyncio.CancelledError:
            work.cancel()
            raise
        if not done:
            await refuse(
                *(
                    (503, f"no answer within {DEADLINE_S:g} s. Try again in some seconds.")
                    if whole
                    else (408, f"the body did not arrive within {DEADLINE_S:g} s.")
                )
            )
            over = True
            return
        work.result()


class _TooLarge(HTTPException):
    """An HTTPException, since FastAPI makes a 400 of whatever else is raised while it reads a body."""

    def __init__(self):
        super().__init__(413, f"a body may have {BODY_MAX} bytes.")
