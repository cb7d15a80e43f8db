"""The functions that `feedlab.engines` offers: which way serves each engine, and up, down, kill, status over all of
them."""
import shutil
import threading
from queue import Queue

from ..addresses import FIELDS, NAMES, TITLES, VARIABLES, Addresses, check, masked, short
from ..errors import BadInput, EngineDown, FeedlabError
from . import containers, external, procs
from .base import KAFKA_UNKNOWN, EngineStatus, Probe, probe
from .embedded import Embedded
from .kafka_broker import Kafka
from .postgres import Postgres
from .redis_server import Redis
from .state import State, usable

EMBEDDED: dict[str, type[Embedded]] = {"postgres": Postgres, "redis": Redis, "kafka": Kafka}


def embedded(name: str, state: State) -> Embedded:
    return EMBEDDED[name](state)


def choose(settings, state: State, report=lambda text: None) -> tuple[dict[str, str], list[str]]:
    """Name -> yours, containers or embedded; and why a way was passed over.

    A URL that is set always wins. With `auto`, an engine that this checkout has had before stays where its data are, so
    that a Docker engine which happens to be started later does not seem to have lost them.
    """
    ways, passed = {}, []
    docker = None
    for name in NAMES:
        before = state.record(name).get("source")
        if getattr(settings, FIELDS[name]):
            ways[name] = "yours"
        elif settings.engines == "yours":
            raise EngineDown(f"{TITLES[name]}: `--engines yours` needs {VARIABLES[name]}, which is not set. Set it, or "
                             f"run `feedlab up --engines embedded`.")
        elif settings.engines == "embedded" or (settings.engines == "auto" and before == "embedded"):
            ways[name] = "embedded"
        else:
            docker = containers.unavailable() if docker is None else docker
            if not docker:
                ways[name] = "containers"
            elif settings.engines == "containers":
                raise EngineDown(f"{TITLES[name]}: containers were asked for, but {docker}. Start Docker, or run "
                                 f"`feedlab up --engines embedded`, or set {VARIABLES[name]}.")
            else:
                ways[name] = "embedded"
                if docker not in passed:
                    passed.append(docker)
                    if before == "containers":
                        report(f"{docker}; starting embedded engines instead. What the containers hold stays there.")
    return ways, passed


def up(settings, report=None) -> Addresses:
    """Make all three engines answer and return their addresses. Idempotent; what runs already is kept.

    `report(text)` gets a line at each step (the first start downloads 45 MB). Takes about 5 s, 1 s if all run. Raises
    EngineDown, naming each engine that cannot be had, what was tried and what helps, and BadInput for a state folder
    that cannot be written. Interrupted half-way, the next `up` or `down` takes over from there.
    """
    _check_given(settings)
    say = _in_turn(report)
    state = State(settings)
    with state.locked(say), usable(state.dir):
        _check_room(state)
        ways, passed = choose(settings, state, say)
        _leave_others(state, ways, say)
        jobs = {name: _job(settings, state, name) for name, way in ways.items() if way != "containers"}
        composed = [name for name, way in ways.items() if way == "containers"]
        if composed:
            jobs["containers"] = lambda report, cancel: containers.up(state, composed, report)
        failed = _together(jobs, say)
        if "containers" in failed and settings.engines == "auto" and len(failed) == 1:
            # for example an image that cannot be pulled: there is still a way
            passed.append(short(failed["containers"]))
            say(f"containers: {passed[-1]}; starting embedded engines instead")
            failed = _together({name: _embedded_job(state, name) for name in composed}, say)
        if failed:
            raise _explain(failed, passed)
        return addresses(settings)


def _job(settings, state: State, name: str):
    if getattr(settings, FIELDS[name]):
        return lambda report, cancel: external.up(settings, state, name, report)
    return _embedded_job(state, name)


def _embedded_job(state: State, name: str):
    return lambda report, cancel: embedded(name, state).up(report, cancel)


def _leave_others(state: State, ways: dict[str, str], report) -> None:
    """Stop what an earlier `up` started in another way, if the user has now asked for this one."""
    for name, way in ways.items():
        before = state.record(name).get("source")
        if before == "embedded" and way == "containers":
            embedded(name, state).down(report)
        elif before == "containers" and way == "embedded" and not containers.unavailable():
            containers.stop(state, [name], report)


def _together(jobs: dict, report) -> dict[str, Exception]:
    """Run the jobs at once. Returns those that failed. On Ctrl-C the jobs are told to stop at their next step."""
    cancel, done = threading.Event(), Queue()

    def run(name, job):
        try:
            job(report, cancel)
            done.put((name, None))
        except BaseException as e:  # handed to the caller's thread, whatever it is
            done.put((name, e))

    for name, job in jobs.items():
        # daemons: an interrupted command must not wait for a download to end
        threading.Thread(target=run, args=(name, job), daemon=True, name=f"feedlab-up-{name}").start()
    try:
        results = dict(done.get() for _ in jobs)
    except BaseException:
        cancel.set()
        raise
    failed = {name: e for name, e in results.items() if e is not None}
    for e in failed.values():
        if not isinstance(e, (FeedlabError, OSError, ValueError, RuntimeError)):
            raise e
        if isinstance(e, BadInput):
            raise e
    return failed


def _explain(failed: dict[str, Exception], passed: list[str]) -> EngineDown:
    """One message: which engine, what was tried with what result, and the commands that help."""
    parts = []
    for name, e in failed.items():
        title = TITLES.get(name, "containers")
        text = str(e) if isinstance(e, FeedlabError) else f"{type(e).__name__}: {short(e)}"
        parts.append(text if text.startswith(title) else f"{title}: {text}")
    if set(failed) == {"containers"} or not set(failed) <= set(NAMES):
        variables = "FEEDLAB_POSTGRES_URL, FEEDLAB_REDIS_URL, FEEDLAB_KAFKA_BOOTSTRAP"
    else:
        variables = ", ".join(VARIABLES[name] for name in failed)
    tried = f" Tried before: {'; '.join(passed)}." if passed else ""
    said = " ".join(part.rstrip(".") + "." for part in parts)
    return EngineDown(said + tried + " What helps: `feedlab doctor` (names cause and mend), `feedlab up --engines "
                      f"containers` (with Docker running), or your own engine: `export {variables}=...`.")


def _check_given(settings) -> None:
    """The form of every address that is given, before anything is started, asked or made: raises BadInput."""
    for name in NAMES:
        if address := getattr(settings, FIELDS[name]):
            check(name, address)


def _check_room(state: State) -> None:
    # WAL, a broker's segments and a fresh database: below this, an engine dies half-way with a message of its own
    free = shutil.disk_usage(state.dir).free
    if free < 200e6:
        raise BadInput(f"The state folder {state.dir} has only {free / 1e6:.0f} MB free, the engines need 200 MB. Make "
                       f"room there or set FEEDLAB_STATE_DIR to another folder.")


def _in_turn(report):
    """The report function, for several threads; nothing it raises stops a start."""
    lock = threading.Lock()

    def say(text: str) -> None:
        if report is not None:
            with lock:
                report(text)
    return say


def _address(settings, state: State, name: str) -> str | None:
    """Where an engine of this checkout is or was; None if it has never been started."""
    if url := getattr(settings, FIELDS[name]):
        return url
    record = state.record(name)
    if record.get("source") == "containers":
        return containers.address(state, name)
    engine = embedded(name, state)
    try:
        if engine.known_ports().get("port"):
            return engine.address()
    except OSError:  # its password file is gone
        pass
    return None


def addresses(settings, running: bool = True) -> Addresses:
    """Where the engines are, by URL and state file, without starting or asking anything (a few milliseconds).

    Raises BadInput for a URL of a wrong form, EngineDown for one that was never started or, unless `running` is False,
    whose process is not there. (A fault experiment says False: a killed engine comes back on the same port.)
    """
    _check_given(settings)
    state, found = State(settings), {}
    for name in NAMES:
        address = _address(settings, state, name)
        if address is None:
            raise EngineDown(f"{TITLES[name]} has not been started here. Run `feedlab up`.")
        ours = not getattr(settings, FIELDS[name]) and state.record(name).get("source") != "containers"
        if running and ours and embedded(name, state).main_process() is None:
            raise EngineDown(f"{TITLES[name]} at {masked(address)} does not run. Run `feedlab up`; it comes back there "
                             f"with its data.")
        found[FIELDS[name]] = address
    return Addresses(**found)


def down(settings, wipe: bool = False, report=None) -> None:
    """Stop this checkout's embedded engines and containers, keep their data; `wipe` removes the data too.

    "yours" are never touched. Works from the processes themselves, so it needs no intact pid or state file; twice is
    harmless.
    """
    say = _in_turn(report)
    state = State(settings)
    if not state.dir.exists():
        return
    with state.locked(say), usable(state.dir):
        failed = _together({name: (lambda report, cancel, name=name: embedded(name, state).down(report))
                            for name in NAMES}, say)
        if any(state.record(name).get("source") == "containers" for name in NAMES):
            containers.down(state, wipe, say)
        if failed:
            raise _explain(failed, [])
        if wipe:
            for name in NAMES:
                if (state.dir / name).exists():
                    shutil.rmtree(state.dir / name)
            shutil.rmtree(state.dir / "logs", ignore_errors=True)
            state.path.unlink(missing_ok=True)
            say("data removed")


def kill(settings, name: str) -> None:
    """kill -9 one embedded engine, as a crash would; `up` brings it back on the same port. For fault experiments.

    Raises BadInput for another name, or for an engine that is yours or in a container.
    """
    if name not in NAMES:
        raise BadInput(f"There is no engine {name!r}; the engines are {', '.join(NAMES)}.")
    if getattr(settings, FIELDS[name]):
        raise BadInput(f"{TITLES[name]} is yours ({VARIABLES[name]} is set), and feedlab never stops what is yours.")
    state = State(settings)
    with state.locked():
        if state.record(name).get("source") == "containers":
            containers.kill(state, name)
        else:
            embedded(name, state).kill()


def status(settings) -> list[EngineStatus]:
    """Each engine: source, version, address, pid, memory, health. Starts nothing; asks all three at once (at most ~4
    s)."""
    state = State(settings)
    found: dict[str, EngineStatus] = {}

    def ask(name):
        found[name] = _status(settings, state, name)
    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in NAMES]
    for t in threads:
        t.start()
    for t in threads:
        t.join(8)
    return [found.get(n) or EngineStatus(n, "none", "", "", None, None, False, "gave no answer in 8 s") for n in NAMES]


def _status(settings, state: State, name: str) -> EngineStatus:
    address = _address(settings, state, name)
    if address is None:
        return EngineStatus(name, "none", "", "", None, None, False, "not started: `feedlab up`")
    if getattr(settings, FIELDS[name]):
        source, pid, memory = "yours", None, None
        if why := external.unreachable(name, address):
            return EngineStatus(name, source, "", masked(address, address), pid, memory, False, why)
    elif state.record(name).get("source") == "containers":
        source, pid, memory = "containers", None, None
    else:
        engine = embedded(name, state)
        main = engine.main_process()
        if main is None:
            return EngineStatus(name, "embedded", engine.version(), masked(address), None, None, False,
                                "does not run: `feedlab up` (its data are kept)")
        source, pid, memory = "embedded", main.pid, procs.memory(engine.processes())
    answer: Probe = probe(name, address)
    version, detail = answer.version, answer.detail
    if name == "kafka":
        if source == "embedded":
            version = embedded(name, state).version()
        elif source == "containers":
            version = containers.image_version(state, name)
        detail = detail if version else f"{detail}; {KAFKA_UNKNOWN}"
    return EngineStatus(name, source, version, masked(address), pid, answer.memory or memory, not answer.error,
                        answer.error or detail)
