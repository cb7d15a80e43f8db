"""The broker's jars: exactly those of `kafka.lock`, each checked by SHA-256, fetched once a user by jgo.

`classpath(report)` is all a caller needs. `python -m feedlab.engines.jars` resolves anew and rewrites the lock (do this
to move to another Kafka). The lock also spares the 9 s of CPU that walking the POMs takes on two cores.
"""
import hashlib
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from ..errors import EngineDown

LOCK = Path(__file__).with_name("kafka.lock")
KAFKA = "org.apache.kafka:kafka_2.13:4.4.0"
# The bare broker has no slf4j provider and complains of it. Kafka brings slf4j 1.7 and log4j-core, so log4j's binding
# for slf4j 1 adds 30 KB and no other jar. It is NOT resolved together with Kafka: jgo takes each coordinate for a BOM
# as well, and log4j's parent then pulls kafka-clients down to 3.9.1.
PROVIDER = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5"


@dataclass(frozen=True)
class Jar:
    group: str
    artifact: str
    version: str
    size: int
    sha256: str

    @property
    def filename(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


def locked() -> list[Jar]:
    """The jars of the lock file, in its order."""
    rows = (line.split() for line in LOCK.read_text().splitlines() if line.strip() and not line.startswith("#"))
    return [Jar(*gav.split(":"), int(size), digest) for gav, size, digest in rows]


def kafka_version() -> str:
    return next(j.version for j in locked() if j.artifact == "kafka_2.13")


def cache_dir() -> Path:
    """Per user and shared by all checkouts: `$XDG_CACHE_HOME/feedlab/jars`; a temp folder when the home cannot be
    written."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    try:
        folder = base / "feedlab" / "jars"
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError:
        # the owner's number is part of the name, so that no other user can put jars there for us (each is checked
        # anyway)
        folder = Path(tempfile.gettempdir()) / f"feedlab-jars-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def sound(path: Path, jar: Jar) -> bool:
    """Whether the file is that very jar. The size is asked first: a half-downloaded file is told without reading it."""
    try:
        if path.stat().st_size != jar.size:
            return False
        with path.open("rb") as f:
            return hashlib.file_digest(f, "sha256").hexdigest() == jar.sha256
    except OSError:
        return False


def maven_path(jar: Jar) -> Path:
    repo = Path(os.environ.get("M2_REPO") or Path.home() / ".m2" / "repository")
    return repo.joinpath(*jar.group.split("."), jar.artifact, jar.version, jar.filename)


def download(jar: Jar, target: Path) -> None:
    """Fetch one jar with jgo's resolver. It writes in place and only warns of a wrong checksum, so it gets a folder of
    its own to write to, and the file is moved (atomically) to where others look for it once its SHA-256 is right."""
    from jgo.maven import MavenContext
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".part-") as tmp:
        context = MavenContext(repo_cache=Path(tmp), timeout=30)
        path = context.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve()
        if not sound(Path(path), jar):
            raise EngineDown(f"{jar.filename} came with another SHA-256 than feedlab/engines/kafka.lock has. "
                             f"Try again.")
        os.replace(path, target)


def classpath(report=lambda text: None) -> list[Path]:
    """Paths of all jars, downloading what is missing or damaged (45 MB the first time).

    Two callers at once are safe: one downloads, the other waits. Raises EngineDown when a jar cannot be had.
    """
    wanted, cache = locked(), cache_dir()

    def find(jar: Jar) -> Path | None:
        return next((p for p in (cache / jar.filename, maven_path(jar)) if sound(p, jar)), None)

    with ThreadPoolExecutor(8) as pool:
        found = dict(zip(wanted, pool.map(find, wanted)))
        if all(found.values()):
            return list(found.values())
        with FileLock(cache / ".lock"):
            # what another process has fetched while this one waited for the lock
            found = {jar: path or find(jar) for jar, path in found.items()}
            missing = sorted((j for j, path in found.items() if path is None), key=lambda j: -j.size)
            done = 0
            total = sum(j.size for j in missing)
            if missing:
                report(f"Kafka: downloading {len(missing)} jars, {total / 1e6:.0f} MB, once for this user")

            def fetch(jar: Jar) -> None:
                nonlocal done
                for attempt in (1, 2, 3):
                    try:
                        download(jar, cache / jar.filename)
                        break
                    except Exception as e:  # requests' and jgo's errors have no common base
                        if attempt == 3:
                            raise EngineDown(f"Kafka: {jar.filename} cannot be downloaded from Maven: "
                                             f"{type(e).__name__}: {str(e)[:200]}") from e
                done += jar.size
                report(f"Kafka: {done / 1e6:.0f} of {total / 1e6:.0f} MB ({jar.filename})")

            list(pool.map(fetch, missing))
            for jar in missing:
                found[jar] = cache / jar.filename
    return list(found.values())


def relock() -> None:
    """Resolve KAFKA with all it needs, add PROVIDER, and rewrite the lock file."""
    import jgo
    artifacts = jgo.resolve(KAFKA)
    artifacts += [a for a in jgo.resolve(PROVIDER) if f"{a.groupId}:{a.artifactId}:{a.version}" == PROVIDER]
    rows = []
    for a in artifacts:
        data = Path(a.resolve()).read_bytes()
        rows.append(f"{a.groupId}:{a.artifactId}:{a.version} {len(data)} {hashlib.sha256(data).hexdigest()}")
    LOCK.write_text("# group:artifact:version size sha256, written by: python -m feedlab.engines.jars\n"
                    + "\n".join(sorted(rows)) + "\n")


if __name__ == "__main__":
    relock()
    sys.stdout.write(f"{LOCK.name}: {len(locked())} jars\n")
