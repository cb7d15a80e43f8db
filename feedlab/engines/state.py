"""The state folder: a lock for one change at a time, and a JSON file that says where each engine comes from.

Layout below `settings.state_dir` (one per checkout): `state.json`, `lock`, `logs/`, and a folder each for `postgres`,
`redis` and `kafka`. The JSON is a convenience, not the truth: if it is lost or garbled, embedded engines are found
again by their processes and the ports in their own configuration files.
"""
import errno
import hashlib
import json
import os
import threading
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ..addresses import short
from ..errors import BadInput, EngineDown

LOCK_S = 300  # longer than a first start with its download on a slow line: 45 MB in 300 s are 1.2 Mbit/s


def folder(settings) -> Path:
    """The state folder as one absolute path: it marks our processes, so it must have one spelling only."""
    return Path(settings.state_dir).expanduser().resolve()


def unusable(path: Path, e: OSError) -> BadInput:
    """The one sentence for a state folder that is read-only, full, or no folder at all."""
    why = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the disk quota is used up",
           errno.EROFS: "the disk is read-only", errno.EACCES: "permission denied",
           errno.EEXIST: "it is a file, not a folder", errno.ENOTDIR: "part of it is a file, not a folder",
           }.get(e.errno, e.strerror or short(e))
    return BadInput(f"The state folder {path} cannot be written: {why}. Make room there or set FEEDLAB_STATE_DIR to "
                    f"another folder.")


@contextmanager
def usable(path: Path):
    """Turn an OSError about files into the one sentence. Errors of sockets and processes pass through."""
    try:
        yield
    except OSError as e:
        if e.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EEXIST, errno.ENOTDIR,
                       errno.EISDIR):
            raise unusable(path, e) from e
        raise


class State:
    """The state folder of one checkout. Opening it makes the folder; raises BadInput when that cannot be."""

    def __init__(self, settings):
        self.dir = folder(settings)
        self.path = self.dir / "state.json"
        self._threads = threading.Lock()

    def create(self) -> None:
        with usable(self.dir):
            self.dir.mkdir(parents=True, exist_ok=True)
            (self.dir / "logs").mkdir(exist_ok=True)

    @contextmanager
    def locked(self, report=lambda text: None):
        """Hold the folder's lock over an up, down or kill: between processes, and between threads of one."""
        self.create()
        with usable(self.dir):
            lock = FileLock(self.dir / "lock", thread_local=False)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                report("waiting for another feedlab command that starts or stops these engines")
                try:
                    lock.acquire(timeout=LOCK_S)
                except Timeout:
                    raise EngineDown(f"Another feedlab command has been starting or stopping the engines of {self.dir} "
                                     f"for {LOCK_S} s. See `feedlab doctor`, end that command and try again.") from None
        try:
            yield self
        finally:
            lock.release()

    def read(self) -> dict:
        """The JSON, or an empty one if there is none or it cannot be parsed."""
        try:
            data = json.loads(self.path.read_text())
            engines = data["engines"]
            if all(isinstance(r, dict) for r in engines.values()):
                return data
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        return {"engines": {}}

    def record(self, name: str) -> dict:
        return self.read()["engines"].get(name, {})

    def write(self, name: str, **values) -> None:
        """Set values of one engine's record (None removes one). Written beside and renamed, so a reader never sees
        half."""
        with self._threads, usable(self.dir):
            data = self.read()
            record = data["engines"].setdefault(name, {})
            record.update(values)
            data["engines"][name] = {k: v for k, v in record.items() if v is not None}
            tmp = self.path.with_name(f"state.json.{os.getpid()}")
            try:
                tmp.write_text(json.dumps(data, indent=1))
                os.replace(tmp, self.path)
            finally:
                tmp.unlink(missing_ok=True)

    @property
    def project(self) -> str:
        """Name of this checkout's compose project."""
        return "feedlab-" + hashlib.sha256(str(self.dir).encode()).hexdigest()[:10]
