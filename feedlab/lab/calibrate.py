"""What a delivery (H) and a pull (L) cost on the engines that are up: measured in a namespace of its own, which is removed.

    costs = run(settings, addresses).costs          # under two minutes, mostly less than half of one
    costs = stored(settings)                        # the last one, from the state folder

CPU seconds are counted, not the clock: of Redis (INFO), of this process (consumer, reader) and, where it can be seen, of the PostgreSQL
backends that serve it. Kafka's are left out. Other clients of the same Redis would be counted too, so measure when nobody else uses it.
"""
import json
import os
import platform
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from .. import celebrities, db, engines, posts, repair, timeline
from ..addresses import Addresses
from ..config import Settings
from ..core import cost, policy
from ..core.model import Entry
from ..errors import BadInput
from ..policies.simulate import Costs
from .graph import from_edges, load_graph
from .session import open_lab, remove
from .stations import Stations

FILE = "calibration.json"
SMALL, LARGE = 10, 2_000          # followers of the two kinds of authors
PULLED = 40                       # authors that the reader of L follows


@dataclass(frozen=True)
class Calibration:
    """What was measured: rates are by the clock, `bytes` is {entries: [measured, model]} of a feed, `covers` says whose CPU was counted."""
    costs: Costs
    relay_rows_a_second: float
    bytes: dict
    layout: str
    covers: str
    machine: str
    versions: dict
    seconds: float
    at: str

    def as_dict(self) -> dict:
        return asdict(self)


class Meter:
    """CPU seconds of this process, Redis, and the PostgreSQL backends of the connections given. `lap()` since the last."""

    def __init__(self, redis, *conns):
        self.redis, self.backends = redis, []
        try:
            import psutil
            for c in conns:
                process = psutil.Process(c.info.backend_pid)
                if "postgres" in " ".join(process.cmdline()).lower():
                    self.backends.append(process)
        except Exception:      # PostgreSQL elsewhere, in a container, or of another user: not seen
            self.backends = []
        self.covers = "this process, Redis" + (", PostgreSQL's backends" if self.backends else "")
        self.last = self._now()

    def _now(self) -> tuple[float, float, float]:
        info = self.redis.info("cpu")
        redis = info["used_cpu_user"] + info["used_cpu_sys"]
        return time.process_time(), redis, sum(sum(b.cpu_times()[:2]) for b in self.backends)

    def lap(self) -> float:
        now = self._now()
        spent, self.last = sum(now) - sum(self.last), now
        return spent


@contextmanager
def scratch(settings: Settings, addresses: Addresses, name: str, **changes):
    """A Lab on an empty namespace that is removed afterwards, also after Ctrl-C."""
    s = settings.model_copy(update={"namespace": f"x_{name}_{os.getpid()}", "partitions": 2, "local_copy_s": 0.0, "trace_s": 0} | changes)
    with open_lab(s, addresses) as lab:
        try:
            yield lab
        finally:
            remove(s, addresses)            # over connections of its own: after Ctrl-C this lab's may be in the middle of something


def handle(at: Stations, wanted: int, what: str = "records", timeout_s: float = 120) -> None:
    """Step the consumer until so many records are done. Raises BadInput at the deadline."""
    done, end = 0, time.monotonic() + timeout_s
    while done < wanted:
        done += at.fanout.once(0.2).records
        if time.monotonic() > end:
            raise BadInput(f"only {done} of {wanted} {what} were handled in {timeout_s:.0f} s.")


def run(settings: Settings, addresses: Addresses, progress: Callable = lambda text, done=None, total=None: None,
        scale: float = 1.0) -> Calibration:
    """Measure, and store beside the engines' state. `scale` < 1 measures less, for tests. Raises EngineDown, BadInput."""
    began, n = time.monotonic(), lambda count: max(2, int(count * scale))
    with scratch(settings, addresses, "calibrate", threshold=10 ** 9) as lab:
        progress("loading 2,300 users")
        crowd = range(1_000, 1_000 + LARGE)
        edges = [(u, 1) for u in crowd] + [(u, 2 + i) for i in range(20) for u in crowd[i * SMALL:(i + 1) * SMALL]]
        edges += [(900, 100 + i) for i in range(PULLED)] + [(901, 100)]
        graph = from_edges(*zip(*edges, strict=True), True, "calibration")
        load_graph(lab.conn, graph)
        repair.warm(lab.conn, lab.redis, lab.settings, graph.users.tolist())
        with Stations(lab) as at:
            meter = Meter(lab.redis, at.fanout.conn)
            small = _batch(lab, at, meter, [2 + i % 20 for i in range(n(1_500))], progress, "small authors")
            large = _batch(lab, at, meter, [1] * n(80), progress, "a large author")
        with Stations(lab, decide=policy.PullAll()) as at:
            pulled = _batch(lab, at, Meter(lab.redis, at.fanout.conn), [2 + i % 20 for i in range(n(400))], progress, "pulled authors")
        with Stations(lab, decide=lambda e: e.reads < 0) as at:          # asked edge by edge, and pulls each
            walked = _batch(lab, at, Meter(lab.redis, at.fanout.conn), [1] * n(40), progress, "edge by edge")
        # two unknowns, two kinds of posts: CPU = posts x post_s + deliveries x H
        delivery_s = (large["cpu"] / large["posts"] - small["cpu"] / small["posts"]) / (LARGE - SMALL)
        post_s = max(0.0, small["cpu"] / small["posts"] - SMALL * delivery_s)
        flag_s = max(0.0, pulled["cpu"] / pulled["posts"] - post_s)
        walk_s = max(0.0, (walked["cpu"] / walked["posts"] - post_s - flag_s) / LARGE)
        measured, layout = _bytes(lab, progress)
        page_s, pull_s, copy_s = _pages(lab, progress, n(300))
        versions = {e.name: e.version for e in engines.status(settings)} | {"python": platform.python_version()}
    costs = Costs(delivery_s=delivery_s, pull_s=pull_s, page_s=page_s, post_s=post_s, copy_s=copy_s, flag_s=flag_s, walk_s=walk_s,
                  deliveries_a_second=LARGE * large["posts"] / large["seconds"], posts_a_second=small["posts"] / small["seconds"],
                  source=f"measured on this machine, {time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC")
    made = Calibration(costs, small["rows_a_second"], measured, layout, meter.covers,
                       f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()} {platform.release()}", versions,
                       time.monotonic() - began, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    place = Path(settings.state_dir) / FILE
    place.parent.mkdir(parents=True, exist_ok=True)
    half = place.with_suffix(f".{os.getpid()}")
    half.write_text(json.dumps(made.as_dict(), indent=2))
    half.replace(place)
    return made


def _batch(lab, at: Stations, meter: Meter, authors: list[int], progress, what: str) -> dict:
    """Write posts, move them, deliver them: CPU and clock of the delivery, rows a second of the relay."""
    for i, author in enumerate(authors):
        posts.create(lab.conn, lab.ids, lab.names, author, "x")
        if i % 100 == 0:
            progress(f"posting: {what}", i, len(authors))
    started = time.monotonic()
    rows = at.move()
    moved = time.monotonic() - started
    progress(f"delivering: {what}", 0, len(authors))
    # records of the posts themselves, and of the slices beyond the first batch of followers
    slices = sum(-(-(LARGE if a == 1 else SMALL) // at.fanout.batch) - 1 for a in authors)
    meter.lap()
    started = time.monotonic()
    handle(at, rows + slices)
    seconds = time.monotonic() - started
    progress(f"delivering: {what}", len(authors), len(authors))
    return {"cpu": meter.lap(), "seconds": seconds, "posts": len(authors), "rows_a_second": rows / moved}


def _bytes(lab, progress) -> tuple[dict, str]:
    """{entries: [measured, model]} of feeds built as a reader builds them, and the layout that was taken."""
    progress("measuring bytes")
    info = lab.redis.info("server")
    layout = cost.layout_of("valkey" if "valkey_version" in info else "redis")
    limit = int(lab.redis.config_get("zset-max-listpack-entries").get("zset-max-listpack-entries", 128))
    out, many = {}, 20      # skiplist levels are drawn: a single feed is 1.5 % off its mean
    for entries in (50, 120, 200, 500):
        sizes = []
        for i in range(many):
            key = lab.names.feed(10 ** 6 + entries * many + i)
            token = timeline.begin(lab.redis, key, 30)
            first, now = lab.ids.next()
            rows = [Entry(now - i * 1_000, first - (i * 1_000 << 22)) for i in range(entries)]
            timeline.complete(lab.redis, key, token, rows, 10_000, int(time.time() * 1000) + 60_000)
            sizes.append(lab.redis.memory_usage(key, samples=0))
        out[str(entries)] = [round(sum(sizes) / many), round(cost.timeline_bytes(entries, layout, limit))]
    return out, layout


def _pages(lab, progress, pages: int) -> tuple[float, float, float]:
    """CPU seconds of a page without pulls, of one pull from Redis, and of one from the process's own copy."""
    db.set_knobs(lab.conn, threshold=0)
    authors = list(range(100, 100 + PULLED))
    for a in authors:
        for _ in range(20 if a == authors[0] else 5):       # a full page for either reader
            posts.create(lab.conn, lab.ids, lab.names, a, "x")
    celebrities.raise_flags(lab.conn, authors)
    for a in authors:
        celebrities.ensure(lab.conn, lab.redis, lab.names, a, 500, 30, 600)
    lab.conn.execute("delete from outbox")
    meter, found = Meter(lab.redis, lab.conn), []
    for user, ttl, what in ((901, 0.0, "pages, one pull"), (900, 0.0, f"pages, {PULLED} pulls"), (900, 3.0, f"pages, {PULLED} own copies")):
        lab.reader.copies.ttl_s = ttl
        for _ in range(5):
            lab.page(user)
        meter.lap()
        for i in range(pages):
            lab.page(user)
            if i % 100 == 0:
                progress(what, i, pages)
        found.append(meter.lap() / pages)
        progress(what, pages, pages)
    lab.reader.copies.ttl_s = 0.0
    one, many, copied = found
    pull_s = max((many - one) / (PULLED - 1), 1e-9)
    page_s = max(one - pull_s, 1e-9)
    return page_s, pull_s, max((copied - page_s) / PULLED, 0.0)


def stored(settings: Settings) -> Calibration | None:
    """The last calibration of this state folder; None if there is none that can be read."""
    try:
        data = json.loads((Path(settings.state_dir) / FILE).read_text())
        costs = Costs(**{f.name: data["costs"][f.name] for f in fields(Costs)})
        return Calibration(**{f.name: data[f.name] for f in fields(Calibration) if f.name != "costs"}, costs=costs)
    except (OSError, ValueError, KeyError, TypeError):
        return None
