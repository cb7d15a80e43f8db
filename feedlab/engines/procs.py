"""Processes and ports: start detached, find again by identity, end for certain.

A process is ours only if a whole argument of its command line is the engine's marker (a path or option with this state
folder in it), or, for PostgreSQL's children, which rename themselves, if its program is postgres and its current folder
is our data folder. A number in a pid file alone proves nothing: after a restart it may be anyone's.
"""
import os
import signal
import socket
import subprocess
import time
import zlib
from pathlib import Path

import psutil

# Popen objects of engines that this process started: polled, so that a killed one does not stay a zombie below a
# notebook
_started: list[subprocess.Popen] = []


def reap() -> None:
    _started[:] = [p for p in _started if p.poll() is None]


def start(args: list, log: Path, cwd: Path, env: dict | None = None, **more) -> int:
    """Start a process that outlives us (own session, no terminal), output appended to `log`. Returns its pid."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        child = subprocess.Popen([str(a) for a in args], stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=cwd,
                                 env=env, start_new_session=True, close_fds=True, **more)
    _started.append(child)
    return child.pid


def find(markers: tuple[str, ...], program: tuple[str, ...], cwd: Path | None = None) -> list[psutil.Process]:
    """Our living processes, oldest first: one of `markers` among the arguments and a program of that name, or `cwd` as
    said above."""
    reap()
    found = []
    for p in psutil.process_iter():
        try:
            name = p.name()
            if not name.startswith(program) or p.status() == psutil.STATUS_ZOMBIE:
                continue
            if not set(markers).isdisjoint(p.cmdline()) or (cwd is not None and Path(p.cwd()) == cwd):
                found.append(p)
        except (psutil.Error, OSError):
            continue
    return sorted(found, key=lambda p: p.create_time())


def end(processes: list[psutil.Process], sig: int = signal.SIGTERM, timeout: float = 20.0) -> bool:
    """Signal, wait, then SIGKILL whatever is left. True if all went by themselves. psutil checks the start time, so a
    pid that was given to another process in the meantime is left alone."""
    for p in processes:
        try:
            p.send_signal(sig)
        except psutil.Error:
            pass
    alive = wait_gone(processes, timeout)
    for p in alive:
        try:
            p.kill()
        except psutil.Error:
            pass
    wait_gone(alive, 5)
    return not alive


def wait_gone(processes: list[psutil.Process], timeout: float) -> list[psutil.Process]:
    """Those still alive after `timeout`. Polls every 20 ms and reaps our own children, which psutil.wait_procs may
    not."""
    until = time.monotonic() + timeout
    while True:
        reap()
        processes = [p for p in processes if alive(p)]
        if not processes or time.monotonic() > until:
            return processes
        time.sleep(0.02)


def alive(p: psutil.Process) -> bool:
    try:
        return p.is_running() and p.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def memory(processes: list[psutil.Process]) -> int | None:
    """Resident bytes. For PostgreSQL's many processes shared pages are counted once (PSS) where the system tells."""
    total = 0
    for p in processes:
        try:
            total += getattr(p.memory_full_info(), "pss", 0) if len(processes) > 1 else p.memory_info().rss
        except psutil.Error:
            continue
    return total or None


def port_free(port: int) -> bool:
    """Whether a server could listen on 127.0.0.1:port. With SO_REUSEADDR, as the servers do, so that connections which
    linger in TIME_WAIT after a kill do not count as use."""
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            s.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False


def free_port(key: str, taken: set[int] = frozenset()) -> int:
    """A free port between 15000 and 30999, the same for the same `key` while it is free.

    Not one that the system would give (32768 and up on Linux): while the engine is down, any outgoing connection could
    take such a port, and the engine could not come back where its clients look for it.
    """
    first = zlib.crc32(key.encode())
    for i in range(2_000):
        port = 15_000 + (first + i * 7) % 16_000
        if port not in taken and port_free(port):
            return port
    raise OSError("no free port between 15000 and 30999 on 127.0.0.1")


def tail(log: Path, lines: int = 3) -> str:
    """The last lines of a log, for an error message."""
    try:
        with log.open("rb") as f:
            f.seek(max(0, os.fstat(f.fileno()).st_size - 4_000))
            text = f.read().decode(errors="replace")
        return " | ".join([x.strip() for x in text.splitlines() if x.strip()][-lines:])[-400:]
    except OSError:
        return ""
