"""Embedded engines: what the three have in common. Each is a child process below the state folder, started detached.

A subclass says how to prepare and start its engine; `up`, `down` and `kill` here give it the same habits: what runs
already is kept; ports stay the same over restarts, so that running clients reconnect; a port that someone else has
taken meanwhile is given up for another; a process that dies while starting is reported with the end of its log.
"""
import re
import signal
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path

import psutil

from ..addresses import TITLES, masked
from ..errors import BadInput, EngineDown
from . import procs
from .base import Probe, probe, with_version
from .state import State, usable

START_S = 90  # recovery of PostgreSQL or of a broker after kill -9 takes seconds here; a slow disk gets time as well


class Embedded(ABC):
    """One embedded engine of one state folder."""

    name = ""
    programs: tuple[str, ...] = ()  # what the process may be called
    ports: tuple[str, ...] = ("port",)
    stop_signal = signal.SIGTERM
    stop_s = 20.0

    def __init__(self, state: State):
        self.state = state
        self.dir = state.dir / self.name
        self.log = state.dir / "logs" / f"{self.name}.log"
        self.record = state.record(self.name)

    # --- what a subclass says
    @property
    @abstractmethod
    def marker(self) -> str:
        """The argument of our process that no other has."""

    @property
    @abstractmethod
    def config(self) -> tuple[Path, dict[str, str]]:
        """The engine's own configuration file, and for each of `ports` the pattern that finds it there."""

    def missing(self) -> str:
        """Why this machine cannot run it, "" if it can."""
        return ""

    @abstractmethod
    def address(self) -> str:
        """Where clients find it."""

    @abstractmethod
    def prepare(self, report) -> None:
        """Make data folder and configuration, for the ports in `self.record`."""

    @abstractmethod
    def launch(self) -> int:
        """Start the process, return its pid."""

    def after_start(self) -> None:
        """Once it answers."""

    def after_stop(self) -> None:
        """Once it has ended by itself."""

    def cwd_marker(self) -> Path | None:
        """A current folder that only our processes have, for an engine whose children rename themselves."""
        return None

    def helpers(self) -> tuple[str, ...]:
        """Markers of short-lived programs that `prepare` runs; one may outlive an `up` that was killed."""
        return ()

    def version(self) -> str:
        """From the program on disk, where the engine itself cannot be asked."""
        return ""

    # --- what all do
    def processes(self) -> list[psutil.Process]:
        """All of this engine: the main one, its children, helpers that were left behind."""
        return procs.find((self.marker, *self.helpers()), self.programs, self.cwd_marker())

    def main_process(self) -> psutil.Process | None:
        """The one that holds our marker: the pid in the state file is only where to look first."""
        pid = self.record.get("pid")
        try:
            if pid:
                p = psutil.Process(pid)
                if p.name().startswith(self.programs) and self.marker in p.cmdline() and procs.alive(p):
                    return p
        except psutil.Error:
            pass
        for p in procs.find((self.marker,), self.programs):
            return p
        return None

    def end_orphans(self) -> None:
        """With the main process gone, what is left of it: after kill -9 of PostgreSQL its children need a moment to
        notice, and the next start refuses while one lives; a helper of a killed `up` would write into the folder of the
        next."""
        orphans = self.processes()
        procs.end(procs.wait_gone(orphans, 3), signal.SIGKILL, 5)

    def known_ports(self) -> dict[str, int]:
        """Ports of the record, else (the state file was lost) those in the engine's configuration."""
        path, patterns = self.config
        known = {}
        for key, pattern in patterns.items():
            if isinstance(self.record.get(key), int):
                known[key] = self.record[key]
                continue
            try:
                if found := re.search(pattern, path.read_text(), re.M):
                    known[key] = int(found[1])
            except (OSError, ValueError):
                pass
        return known

    def choose_ports(self, report) -> None:
        known = self.known_ports()
        taken: set[int] = set()
        for key in self.ports:
            port = known.get(key)
            if port is None or not procs.port_free(port):
                new = procs.free_port(f"{self.state.dir}/{self.name}/{key}", taken)
                if port is not None:
                    report(f"{TITLES[self.name]}: port {port} has been taken by another program, using {new}")
                port = new
            taken.add(port)
            self.record[key] = port

    def probe(self, timeout: float = 3.0) -> Probe:
        p = probe(self.name, self.address(), timeout)
        return p if p.version else with_version(p, self.version())

    def up(self, report, cancel: threading.Event) -> None:
        """Running and answering, or EngineDown."""
        running = self.main_process()
        if running is None:
            if why := self.missing():
                raise EngineDown(f"{TITLES[self.name]} cannot run embedded: {why}")
            with usable(self.state.dir):
                self.dir.mkdir(parents=True, exist_ok=True)
                self.restart(report, cancel)
        else:
            self.record.update(self.known_ports(), source="embedded", pid=running.pid)
            self.state.write(self.name, **self.record)
            self.wait(running, report, cancel)
        self.after_start()

    def restart(self, report, cancel: threading.Event) -> None:
        began = time.monotonic()
        self.end_orphans()
        for attempt in (1, 2, 3):
            self.choose_ports(report)
            self.prepare(report)
            if cancel.is_set():
                raise EngineDown("interrupted")
            # the record is written before the start as well: a kill in between leaves ports that the next `up` can use
            self.record.update(source="embedded")
            self.state.write(self.name, **self.record)
            process = psutil.Process(self.launch())
            self.record.update(pid=process.pid)
            self.state.write(self.name, **self.record)
            try:
                self.wait(process, report, cancel)
                report(f"{TITLES[self.name]}: up in {time.monotonic() - began:.1f} s on port {self.record['port']}")
                return
            except EngineDown:
                # someone took the port between our look and the engine's: once more, with other ports
                lost = [key for key in self.ports if not procs.port_free(self.record[key])]
                if attempt == 3 or procs.alive(process) or not lost:
                    raise

    def wait(self, process: psutil.Process, report, cancel: threading.Event) -> None:
        """Until it answers, or its process is gone, or START_S are over."""
        began = said = time.monotonic()
        while True:
            answer = self.probe(1.0)
            if not answer.error:
                return
            if answer.hopeless:
                raise EngineDown(f"{TITLES[self.name]} runs, but {answer.error}")
            procs.reap()
            if not procs.alive(process):
                raise EngineDown(f"{TITLES[self.name]} ended while starting: "
                                 f"{procs.tail(self.log) or 'its log is empty'} (see {self.log}). Mend that and run "
                                 f"`feedlab up` again; `feedlab down --wipe` starts afresh.")
            now = time.monotonic()
            if cancel.is_set():
                raise EngineDown("interrupted")
            if now - began > START_S:
                raise EngineDown(f"{TITLES[self.name]} at {masked(self.address())} runs (pid {process.pid}) but has "
                                 f"not answered for {START_S} s: {answer.error}. See {self.log}, or `feedlab down` and "
                                 f"`feedlab up`.")
            if now - said > 5:
                said = now
                report(f"{TITLES[self.name]}: still starting after {now - began:.0f} s ({answer.error})")
            time.sleep(0.05)

    def down(self, report) -> None:
        """No process of this engine left; data kept."""
        main, everything = self.main_process(), self.processes()
        clean = True
        if main is not None:
            clean = procs.end([main], self.stop_signal, self.stop_s)
        procs.end([p for p in everything if procs.alive(p)], signal.SIGKILL, 5)
        if main is not None:
            if clean:
                self.after_stop()
            how = "stopped" if clean else f"did not stop in {self.stop_s:.0f} s and was killed"
            report(f"{TITLES[self.name]}: {how}")
        try:
            if self.record:
                self.state.write(self.name, pid=None)
        except BadInput:
            pass  # on a full disk the old number stays, which proves nothing; to stop must work there most of all

    def kill(self) -> None:
        """kill -9, as a crash would. Raises EngineDown if it does not run."""
        main = self.main_process()
        if main is None:
            raise EngineDown(f"{TITLES[self.name]} does not run here, so it cannot be killed. Start it with "
                             f"`feedlab up`.")
        procs.end([main], signal.SIGKILL, 10)
