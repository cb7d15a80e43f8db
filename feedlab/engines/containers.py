"""Engines in containers, by `docker-compose.yml` and the `docker compose` program.

Each checkout has a compose project of its own (`feedlab-<hash of its state folder>`), and ports of its own, kept in the
state file, so two checkouts never meet.

Not run: there was no Docker engine where this was written. The code is tested against a stand-in `docker` program that
records its arguments and answers in the shapes that Docker documents; the images themselves, their health checks and
`--wait` have not been seen to work.
"""
import json
import os
import shutil
import subprocess
from pathlib import Path

from ..addresses import NAMES, TITLES, masked, short
from ..errors import EngineDown
from . import procs
from .base import probe

COMPOSE_FILE = Path(__file__).resolve().parents[2] / "docker-compose.yml"
PORT_VARIABLES = {"postgres": "FEEDLAB_PG_PORT", "redis": "FEEDLAB_REDIS_PORT", "kafka": "FEEDLAB_KAFKA_PORT"}
# images of some 700 MB in all have to be pulled the first time
UP_S = 1_200
WAIT_S = 180


def unavailable() -> str:
    """Why containers cannot be had here, "" if they can. At most 8 s, for a Docker engine that hangs."""
    if not COMPOSE_FILE.exists():
        return "docker-compose.yml is not beside the package (it is in the checkout)"
    if not shutil.which("docker"):
        return "no `docker` program is on PATH"
    try:
        # the exit code of `docker info` is 0 in some versions although no server answers; the server's version is the
        # proof
        info = _docker("info", "--format", "{{.ServerVersion}}", timeout=4)
        if info.returncode or not info.stdout.strip():
            return f"Docker does not answer ({short(info.stderr) or 'no server version'})"
        if (compose := _docker("compose", "version", timeout=4)).returncode:
            return f"Docker has no `compose` plugin ({short(compose.stderr)})"
    except subprocess.TimeoutExpired:
        return "Docker does not answer within 4 s"
    except OSError as e:
        return f"Docker cannot be run ({short(e)})"
    return ""


def _docker(*args: str, timeout: float, env: dict | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(["docker", *args], capture_output=True, text=True, timeout=timeout, env=env,
                          stdin=subprocess.DEVNULL)


def _compose(state, *args: str, timeout: float = 120) -> str:
    """Run `docker compose` on this checkout's project; its standard output. Raises EngineDown with what it said."""
    env = dict(os.environ)
    for name in NAMES:
        if port := state.record(name).get("port"):
            env[PORT_VARIABLES[name]] = str(port)
    env["FEEDLAB_PG_PASSWORD"] = "feedlab"
    try:
        done = _docker("compose", "-p", state.project, "-f", str(COMPOSE_FILE), *args, timeout=timeout, env=env)
    except (OSError, subprocess.TimeoutExpired) as e:
        raise EngineDown(f"`docker compose {args[0]}` failed: {short(e)}") from e
    if done.returncode:
        said = [x.strip() for x in (done.stderr or done.stdout).splitlines() if x.strip()]
        raise EngineDown(f"`docker compose {args[0]}` failed: {' | '.join(said[-3:])[:400] or done.returncode}")
    return done.stdout


def ps(state) -> dict[str, dict]:
    """Service name -> what `docker compose ps` tells of it (State, Health, Image, ...). Empty if nothing runs."""
    out = _compose(state, "ps", "--all", "--format", "json", timeout=20).strip()
    if not out:
        return {}
    # one JSON array up to compose 2.20, one object a line since
    rows = json.loads(out) if out.startswith("[") else [json.loads(line) for line in out.splitlines() if line.strip()]
    return {row.get("Service", ""): row for row in rows}


def address(state, name: str) -> str:
    port = state.record(name).get("port", 0)
    return {"postgres": f"postgresql://feedlab:feedlab@127.0.0.1:{port}/feedlab",
            "redis": f"redis://127.0.0.1:{port}/0",
            "kafka": f"127.0.0.1:{port}"}[name]


def up(state, names: list[str], report) -> None:
    """Start these services, wait until they are healthy and answer us. Raises EngineDown."""
    running = {n for n, row in ps(state).items() if row.get("State") == "running"}
    taken: set[int] = set()
    for name in names:
        port = state.record(name).get("port") if state.record(name).get("source") == "containers" else None
        if port is None or (name not in running and not procs.port_free(port)):
            port = procs.free_port(f"{state.dir}/containers/{name}", taken)
        taken.add(port)
        state.write(name, source="containers", port=port, pid=None)
    if not set(names) <= running:
        report("containers: starting " + ", ".join(TITLES[n] for n in names) + " (the first time images are pulled)")
    _compose(state, "up", "-d", "--wait", "--wait-timeout", str(WAIT_S), *names, timeout=UP_S)
    for name in names:
        # --wait trusts the health check inside the container; what counts is that we reach it from here
        if error := probe(name, address(state, name), 10).error:
            raise EngineDown(f"{TITLES[name]} is healthy in its container but does not answer at "
                             f"{masked(address(state, name))}: {error}")
        report(f"{TITLES[name]}: up in a container on port {state.record(name)['port']}")


def stop(state, names: list[str], report) -> None:
    _compose(state, "stop", *names)
    report("containers: stopped " + ", ".join(TITLES[n] for n in names))


def down(state, wipe: bool, report) -> None:
    """Remove this checkout's containers, with their volumes if `wipe`. Raises EngineDown if Docker does not answer."""
    if why := unavailable():
        raise EngineDown(f"The containers of this checkout cannot be stopped: {why}. Start Docker and run "
                         f"`feedlab down` again.")
    _compose(state, "down", *(["-v"] if wipe else []))
    report("containers: removed" + (" with their volumes" if wipe else ", their volumes kept"))


def kill(state, name: str) -> None:
    _compose(state, "kill", "-s", "SIGKILL", name)


def image_version(state, name: str) -> str:
    """The tag of the image, "" if it has none or Docker does not say."""
    try:
        image = ps(state).get(name, {}).get("Image", "")
    except (EngineDown, ValueError):
        return ""
    return image.rsplit(":", 1)[1] if ":" in image.rsplit("/", 1)[-1] else ""
