"""JupyterLab for this checkout: in a session of its own, found again by its state folder, stopped by `feedlab down`.

Settings are ours (`feedlab/lab/jupyter/overrides.json`); workspaces and runtime files lie in the state folder, so that
the user's own JupyterLab is left as it is, and a second checkout does not meet this one.
"""

import json
import os
import secrets
import shutil
import sys
import time
from pathlib import Path

import psutil

from ..config import Settings, project_root
from ..engines import procs
from ..engines.state import folder
from ..errors import EngineDown

START_S = 60  # measured 2-4 s; a cold disk takes longer
NOTEBOOK = "notebooks/00_start.ipynb"
PROGRAMS = ("python", "Python", "jupyter")


def _marker(s: Settings) -> str:
    """The argument that only our server has; it is also where its workspaces go."""
    return f"--LabApp.workspaces_dir={folder(s) / 'jupyter' / 'workspaces'}"


def _record(s: Settings) -> Path:
    return folder(s) / "jupyter.json"


def running(s: Settings) -> str | None:
    """The URL of this checkout's server, if it runs and answers."""
    try:
        data = json.loads(_record(s).read_text())
        if any(p.pid == data["pid"] for p in _processes(s)) and answers(data["base"], data["token"]):
            return _url(data["base"], data["token"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _processes(s: Settings) -> list[psutil.Process]:
    return procs.find((_marker(s),), PROGRAMS)


def start(s: Settings, port: int) -> tuple[str, psutil.Process]:
    """Start a server and wait until it answers: its URL with the token, and its process. A taken port moves on.

    Raises EngineDown with the end of its log.
    """
    here, root = folder(s), project_root()
    runtime = here / "jupyter" / "runtime"
    runtime.mkdir(parents=True, exist_ok=True)
    token = secrets.token_urlsafe(24)
    # the token goes by the environment: arguments can be read by every user of the machine
    env = os.environ | {
        "JUPYTER_TOKEN": token,
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "JUPYTER_PREFER_ENV_PATH": "1",
        # the notebooks use the engines that this command used, whatever folder they run in
        "FEEDLAB_STATE_DIR": str(here),
        "FEEDLAB_ENGINES": s.engines,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    args = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        "--ServerApp.port_retries=100",
        f"--ServerApp.root_dir={root}",
        _marker(s),
        f"--LabApp.app_settings_dir={Path(__file__).resolve().parent.parent / 'classroom' / 'jupyter'}",
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        args.append("--allow-root")
    log = here / "logs" / "jupyter.log"
    process = psutil.Process(procs.start(args, log, root, env))
    try:
        base = _wait(process, runtime / f"jpserver-{process.pid}.json", token, log)
        _write(_record(s), {"pid": process.pid, "base": base, "token": token})
    except BaseException:
        procs.end([process], timeout=10)  # Ctrl-C while it starts leaves nothing behind
        raise
    return _url(base, token), process


def _wait(process: psutil.Process, info: Path, token: str, log: Path) -> str:
    """The address that the server took, once it answers there."""
    until = time.monotonic() + START_S
    while procs.alive(process) and time.monotonic() < until:
        try:
            base = json.loads(info.read_text())["url"]  # written by the server once it has its port
            if answers(base, token):
                return base
        except (OSError, ValueError, KeyError):
            pass
        time.sleep(0.05)
    raise EngineDown(
        f"JupyterLab did not start: {procs.tail(log, 1) or 'it said nothing'}. See {log}; `feedlab doctor` "
        "names the versions."
    )


def answers(base: str, token: str) -> bool:
    """Whether the server at `base` takes this token."""
    import urllib.request

    request = urllib.request.Request(f"{base}api/status", headers={"Authorization": f"token {token}"})
    try:
        # no proxy: this is our own machine
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def _url(base: str, token: str) -> str:
    page = f"lab/tree/{NOTEBOOK}" if (project_root() / NOTEBOOK).exists() else "lab"
    return f"{base}{page}?token={token}"


def _write(path: Path, data: dict) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f:  # the token is for us alone
        json.dump(data, f)


def stop(s: Settings, report) -> bool:
    """Stop this checkout's server and its kernels. False when none ran. Needs no intact record."""
    found = _processes(s)
    if found:
        kernels = [k for p in found for k in _children(p)]
        procs.end(found, timeout=15)
        procs.end([k for k in kernels if procs.alive(k)], timeout=5)
        report("JupyterLab: stopped")
    if found or _record(s).exists():
        _record(s).unlink(missing_ok=True)
    return bool(found)


def wipe(s: Settings) -> None:
    """Remove workspaces, runtime files and the record of a server that does not run."""
    shutil.rmtree(folder(s) / "jupyter", ignore_errors=True)


def _children(p: psutil.Process) -> list[psutil.Process]:
    try:
        return p.children(recursive=True)
    except psutil.Error:
        return []
