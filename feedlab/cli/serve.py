"""`serve` and `control`: the HTTP API, and the loop that moves the threshold by the lag."""

from typing import Annotated

import typer

from .app import FEED, PIPELINE, command, number_option


@command(FEED, "feedlab serve", "feedlab serve --port 8081", "feedlab serve --host 0.0.0.0 --port 80")
def serve(
    port: Annotated[int, number_option("--port", "a port", "Port to listen on.", 1, 65_535)] = 8080,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Address to bind to; the default is this machine only.")
    ] = "127.0.0.1",
) -> None:
    """Step 8: the HTTP API, until Ctrl-C or SIGTERM. X-User-Id says who asks: a stand-in for real authentication."""
    import socket

    from .. import db, engines
    from ..config import settings
    from ..errors import BadInput, EngineDown
    from ..http import app
    from . import show
    from .opened import check_addresses

    s = settings()
    addresses = engines.addresses(s, running=False)  # one that is away is done without, and said by /readyz
    check_addresses(addresses)
    try:  # tables of another feedlab: said now, not at each request
        with db.connect(addresses.postgres_url, s.namespace) as conn:
            db.apply_schema(conn, s)
    except (EngineDown, *db.AWAY) as e:
        show.line(f"feedlab API: starts without PostgreSQL: {str(e).splitlines()[0]}", err=True)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, UnicodeError) as e:
            raise BadInput(
                f"cannot listen on {host}:{port}: {getattr(e, 'strerror', None) or e}. Choose another --port."
            ) from None
    where = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    show.line(f"feedlab API: {where}/docs, live figures {where}/, namespace {s.namespace}; Ctrl-C ends it", err=True)
    app.serve(s, addresses, host, port)
    show.line("feedlab API: stopped", err=True)


@command(PIPELINE, "feedlab control", "feedlab control --high 1000 --low 100 --floor 50 --ceiling 10000")
def control(
    high: Annotated[
        int, number_option("--high", "a number of records", "Lag above which the threshold is halved.")
    ] = 5_000,
    low: Annotated[int, number_option("--low", "a number of records", "Lag below which it is doubled again.")] = 500,
    floor: Annotated[int, number_option("--floor", "a number of followers", "It never falls below.", 1)] = 50,
    ceiling: Annotated[int, number_option("--ceiling", "a number of followers", "It never rises above.", 1)] = 10_000,
) -> None:
    """Move the live threshold by the lag, within bounds, until Ctrl-C or SIGTERM; bring authors back to push in calm
    times."""
    from .. import controller
    from ..errors import BadInput
    from .pipeline import loop_start, say, told_to_stop

    if low >= high or floor > ceiling:
        raise BadInput("--low must be below --high, and --floor not above --ceiling.")
    with told_to_stop() as stop:
        s, addresses = loop_start("control", stop)
        controller.run(s, addresses, controller.Marks(high, low, floor, ceiling), stop, say)
        say("control: stopped")
