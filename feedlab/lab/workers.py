"""Relay and fan-out as processes of their own, started, watched, killed and stopped by whoever runs an experiment.

`python -m feedlab.lab.workers relay|fanout` is one worker. It stops on SIGTERM, and by itself when its parent is gone, so that
a killed experiment leaves nothing behind.
"""
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from .. import kafka, relay
from ..addresses import Addresses
from ..config import Settings
from ..errors import EngineDown

KINDS = ("relay", "fanout")


class Workers:
    """The workers of one namespace, as a context manager.

    `watch()` starts again what has died and says so; call it from the experiment's loop. `kill(kind)` is kill -9.
    """

    def __init__(self, settings: Settings, addresses: Addresses, relays: int = 1, consumers: int = 1,
                 say: Callable[[str], None] = lambda text: None, consumer: dict | None = None,
                 policy: Path | None = None):
        self.settings, self.addresses, self.say = settings, addresses, say
        self.policy = policy                      # a policy.toml that the consumers decide by
        self.consumer = consumer or {}            # settings of the Kafka consumer, for experiments with its time limits
        self.wanted = ["relay"] * relays + ["fanout"] * consumers
        self.running: list[tuple[str, subprocess.Popen]] = []
        self.restarts = 0

    def __enter__(self) -> "Workers":
        for kind in self.wanted:
            self.running.append((kind, self._start(kind)))
        return self

    def __exit__(self, *_) -> None:
        self.stop()

    def wait_ready(self, lab, timeout_s: float = 30) -> None:
        """Until each relay is connected and each consumer has its partitions. Raises EngineDown at the deadline."""
        kafka.wait_members(lab.admin, lab.names.group, self.wanted.count("fanout"), timeout_s)
        end = time.monotonic() + timeout_s
        while relay.running(lab.conn, self.settings.namespace) < self.wanted.count("relay"):
            if time.monotonic() > end:
                raise EngineDown(f"no relay was connected after {timeout_s:.0f} s; its log is in {self.settings.state_dir}/logs.")
            time.sleep(0.02)

    def _start(self, kind: str) -> subprocess.Popen:
        logs = Path(self.settings.state_dir) / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        env = os.environ | self.settings.environment() | self.addresses.environment() | {
            "FEEDLAB_PARENT": str(os.getpid()), "FEEDLAB_CONSUMER": json.dumps(self.consumer), "FEEDLAB_POLICY": str(self.policy or "")}
        with open(logs / f"{self.settings.namespace}.{kind}.log", "ab") as log:
            return subprocess.Popen([sys.executable, "-m", "feedlab.lab.workers", kind], env=env, stdin=subprocess.DEVNULL,
                                    stdout=log, stderr=log, start_new_session=True)

    def watch(self) -> None:
        """Start again what has died."""
        for n, (kind, process) in enumerate(self.running):
            code = process.poll()
            if code is not None:
                self.restarts += 1
                self.say(f"{kind} died ({'signal ' + str(-code) if code < 0 else 'exit ' + str(code)}), started again")
                self.running[n] = (kind, self._start(kind))

    def pids(self, kind: str) -> list[int]:
        return [p.pid for k, p in self.running if k == kind]

    def kill(self, kind: str, which: int = 0) -> int:
        """kill -9 one worker of a kind, and reap it. Its pid. `watch` starts another."""
        process = [p for k, p in self.running if k == kind][which]
        process.kill()
        process.wait()
        return process.pid

    def stop(self, timeout_s: float = 10) -> None:
        for _, p in self.running:
            if p.poll() is None:
                p.terminate()
        end = time.monotonic() + timeout_s
        for _, p in self.running:
            try:
                p.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
        self.running = []


def main(kind: str) -> int:
    from ..fanout import FanOut
    from ..relay import Relay
    s, told = Settings(), []
    signal.signal(signal.SIGTERM, lambda *_: told.append(1))
    signal.signal(signal.SIGINT, lambda *_: told.append(1))
    parent = int(os.environ.get("FEEDLAB_PARENT", "0"))

    def stop() -> bool:
        return bool(told) or (parent > 0 and os.getppid() != parent)

    def say(text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')} [{os.getpid()}] {text}", flush=True)
    options = json.loads(os.environ.get("FEEDLAB_CONSUMER", "{}"))
    if os.environ.get("FEEDLAB_POLICY"):
        from ..policies import files
        loaded = files.load(os.environ["FEEDLAB_POLICY"])
        options |= {"decide": loaded.policy, "rates": loaded.rates}
    loop = Relay(s, s.postgres_url, s.kafka_bootstrap) if kind == "relay" else \
        FanOut(s, s.postgres_url, s.redis_url, s.kafka_bootstrap, **options)
    say(f"{kind} starts")
    loop.run(stop, say)
    say(f"{kind} ends")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
