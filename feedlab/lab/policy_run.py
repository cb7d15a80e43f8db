"""Prediction against the real pipeline: the same graph, rates and policy through outbox, Kafka, the fan-out consumer and Redis.

    rows = check(settings, addresses, follows, rates, rule, costs)

Each row is {quantity, unit, predicted, measured, off, bound, within}: write amplification equal exactly, bytes within 5 %, sources
a page and CPU within 20 %. `replay` sends a burst and holds the lag against a queue's.
"""
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from .. import celebrities, kafka, repair
from ..addresses import Addresses
from ..config import Settings
from ..core import cost, policy
from ..core.codec import Event
from ..core.policy import PULL, PUSH, SKIP, Edges, Policy, Rates
from ..errors import BadInput
from ..policies import files
from ..policies.graphs import Follows, to_graph
from ..policies.rates import Trace
from ..policies.simulate import Costs, population, tally
from .calibrate import Meter, Stations, scratch
from .graph import load_graph
from .workers import Workers

EDGES_MAX = 2_000_000       # loaded into PostgreSQL: about 20 s


def row(quantity: str, unit: str, predicted: float, measured: float, bound: float) -> dict:
    off = abs(predicted - measured) / abs(measured) if measured else float(predicted != measured)
    return {"quantity": quantity, "unit": unit, "predicted": predicted, "measured": measured, "off": off, "bound": bound,
            "within": off <= bound}


class Expected:
    """What a policy does with certain posts on a graph: the same callable, asked with the posts' own ids."""

    def __init__(self, follows: Follows, rates: Rates, rule: Policy, feed_max: int, active_days: float):
        self.follows, self.rule, self.feed_max = follows, rule, feed_max
        self.posts, self.reads, self.away = (f(follows.ids) for f in (rates.posts_of, rates.reads_of, rates.away_of))
        order = np.argsort(follows.author, kind="stable")
        self.readers = follows.reader[order]                 # of each author, rising
        self.starts = np.concatenate([[0], np.cumsum(follows.followers)])
        self.active = self.away <= active_days
        self.edgewise = policy.by_reader(rule)
        self.pushed = self.pulled_posts = self.walked = 0
        self.flagged: set[int] = set()
        self.entries = np.zeros(follows.users, np.int64)     # of each feed
        self.most = np.zeros(follows.users, np.int64)

    def post(self, author: int, post_id: int) -> int:
        """One post by the author at a position. How many feeds it goes to."""
        f = self.follows
        r = self.readers[self.starts[author]:self.starts[author + 1]]
        r = r[self.active[r]]
        e = Edges(author=int(f.ids[author]), followers=int(f.followers[author]), posts=float(self.posts[author]), post=post_id,
                  flagged=author in self.flagged, reader=f.ids[r], follows=f.follows[r], reads=self.reads[r], away_days=self.away[r])
        said = policy.answers(self.rule, e, len(r))
        alone = not self.edgewise and int(np.asarray(self.rule(e)).flat[0]) != PUSH
        if alone or np.isin(said, (PULL, SKIP)).any():
            self.flagged.add(author)
            self.pulled_posts += 1
        self.walked += len(r) if self.edgewise else 0
        to = r[said == PUSH]
        self.pushed += len(to)
        self.entries[to] += 1
        self.most[to] = np.maximum(self.most[to], self.entries[to])
        over = to[self.entries[to] > self.feed_max + self.feed_max // 10]
        self.entries[over] = self.feed_max
        return len(to)

    def cpu_seconds(self, posts: int, c: Costs) -> float:
        """Of the consumer, Redis and PostgreSQL for all posts so far."""
        return posts * c.post_s + self.pushed * c.delivery_s + self.pulled_posts * c.flag_s + self.walked * c.walk_s


def check(settings: Settings, addresses: Addresses, follows: Follows, rates: Rates, rule: Policy, costs: Costs, *,
          posts: int = 500, pages: int = 300, feed_max: int = 500, seed: int = 1, settled: bool = False,
          progress: Callable = lambda text, done=None, total=None: None) -> list[dict]:
    """Run it. `settled`: pages are read as if every author had posted once, so that all flags that will be up are up. Raises BadInput
    for a graph that is too large to load, EngineDown."""
    if len(follows.reader) > EDGES_MAX:
        raise BadInput(f"a live check loads the graph into PostgreSQL, at most {EDGES_MAX:,} follows; {follows.source} has "
                       f"{len(follows.reader):,}. Take a sample of it.")
    rng, c = np.random.default_rng(seed), costs
    weight = rates.posts_of(follows.ids)
    expected = Expected(follows, rates, rule, feed_max, settings.active_days)
    with scratch(settings, addresses, "policy", feed_max=feed_max) as lab:
        progress(f"loading {follows.users:,} users and {len(follows.reader):,} follows")
        load_graph(lab.conn, to_graph(follows))
        repair.warm(lab.conn, lab.redis, lab.settings, follows.ids[expected.active].tolist(),
                    lambda done: progress("building feeds", done, int(expected.active.sum())))
        if rates.away_days is not None:
            with lab.conn.cursor() as cursor:
                cursor.executemany("update user_activity set last_seen_at = now() - %s * interval '1 day' where user_id = %s",
                                   list(zip(expected.away.tolist(), follows.ids.tolist(), strict=True)))
        with Stations(lab, decide=rule, rates=rates) as at:
            from ..posts import create
            authors = rng.choice(follows.users, posts, p=weight / weight.sum())
            for i, author in enumerate(authors.tolist()):
                made = create(lab.conn, lab.ids, lab.names, int(follows.ids[author]), "x")
                expected.post(author, made.id)
                if i % 100 == 0:
                    progress("posting", i, posts)
            at.move()
            meter = Meter(lab.redis, at.fanout.conn)
            progress("delivering")
            while kafka.lag(lab.admin, lab.redis, lab.names):
                for _ in range(20):
                    if not at.fanout.once(0.05).records:
                        break
            spent = meter.lap()
        stats, info = lab.stats(), lab.redis.info("server")
        delivered = stats.get("deliveries", 0)
        limit = int(lab.redis.config_get("zset-max-listpack-entries").get("zset-max-listpack-entries", 128))
        layout = cost.layout_of("valkey" if "valkey_version" in info else "redis")
        fed = np.flatnonzero(expected.most)
        size = sum(cost.timeline_bytes(int(expected.entries[u]), layout, limit, most=int(expected.most[u])) for u in fed)
        pipe = lab.redis.pipeline(transaction=False)
        for u in fed:
            pipe.memory_usage(lab.names.feed(int(follows.ids[u])), samples=0)
        held = sum(x or 0 for x in pipe.execute())
        if settled:
            up = np.flatnonzero(tally(population(follows, rates), rule, settings.active_days).some_pull)
            celebrities.raise_flags(lab.conn, follows.ids[up].tolist())
            expected.flagged |= set(up.tolist())
        readers = rng.choice(follows.users, pages, p=_share(expected.reads * expected.active))
        pulled = np.zeros(follows.users, bool)
        pulled[list(expected.flagged)] = True
        per_reader = np.bincount(follows.reader, pulled[follows.author], minlength=follows.users)
        for user in follows.ids[readers[:20]].tolist():        # celebrities' timelines are there afterwards
            lab.page(int(user))
        reading, sources = Meter(lab.redis, lab.conn), 0
        for i, user in enumerate(follows.ids[readers].tolist()):
            sources += 1 + lab.page(int(user)).explain.flagged
            if i % 100 == 0:
                progress("reading pages", i, pages)
        read_cpu = reading.lap()
    wanted_sources = float(pages + per_reader[readers].sum())
    return [
        row("write amplification", "feed writes a post", expected.pushed / posts, delivered / posts, 0.0),
        row("Redis bytes of fed feeds", "B", float(size), float(held), 0.05),
        row("sources a page", "timelines", wanted_sources / pages, sources / pages, 0.20),
        row("CPU of delivery", "s", expected.cpu_seconds(posts, c), spent, 0.20),
        row("CPU of pages", "s", pages * c.page_s + (wanted_sources - pages) * c.pull_s, read_cpu, 0.20)]


def _share(weight: np.ndarray) -> np.ndarray:
    return weight / weight.sum()


# --- a burst ------------------------------------------------------------------------------------------------------------------------------

def replay(settings: Settings, addresses: Addresses, follows: Follows, rates: Rates, rule: Policy, trace: Trace, *, seed: int = 1,
           load: float = 4.0, seconds: float = 10.0, probes: int = 1_000,
           progress: Callable = lambda text, done=None, total=None: None) -> dict:
    """Send the trace's busiest stretch into Kafka, at such a speed that its peak is `load` times what the consumer can do, and hold the
    greatest lag against a fluid queue's. The rate of the consumer is measured before and after, on the same kind of posts (on a machine
    that does other things it is not the same). Authors are drawn by their rate.
    {predicted, measured (records), row, samples [[s, records]], arrivals, rate, seconds}.
    """
    rng = np.random.default_rng(seed)
    weight = rates.posts_of(follows.ids)
    with scratch(settings, addresses, "burst") as lab:
        load_graph(lab.conn, to_graph(follows))
        repair.warm(lab.conn, lab.redis, lab.settings, follows.ids.tolist())
        path = None
        if type(rule) in policy.KINDS.values():
            path = Path(settings.state_dir) / f"{lab.settings.namespace}.toml"
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write(path, rule, rates)
        try:
            with Workers(lab.settings, addresses, relays=0, consumers=1, policy=path) as workers:
                workers.wait_ready(lab)
                producer = kafka.producer(addresses.kafka_bootstrap, **{"linger.ms": 1})
                probe = _events(lab, follows, rng.choice(follows.users, probes * 5 // 2, p=_share(weight)))
                progress("measuring the consumer's rate")
                half = probes // 2
                _rate(producer, lab, probe[:half])          # its plans and caches
                rate = _rate(producer, lab, probe[half:half + probes])
                arrivals = _stretch(trace, seconds, rate * load)
                events = _events(lab, follows, rng.choice(follows.users, len(arrivals), p=_share(weight)))
                progress("replaying the burst")
                samples = _replay(producer, lab, events, arrivals)
                rate = (rate + _rate(producer, lab, probe[half + probes:])) / 2
        finally:
            if path:
                path.unlink(missing_ok=True)
                path.with_name(path.stem + ".rates.csv.gz").unlink(missing_ok=True)
    step = 0.05
    counts = np.bincount((arrivals / step).astype(int))
    predicted = float(cost.lag_under(counts, rate, step).max())
    measured = float(max(n for _, n in samples))
    return {"predicted": predicted, "measured": measured, "row": row("greatest lag in the burst", "records", predicted, measured, 0.25),
            "samples": samples, "arrivals": len(arrivals), "rate": rate, "seconds": float(arrivals[-1])}


def _stretch(trace: Trace, seconds: float, peak_rate: float) -> np.ndarray:
    """Arrival times of an hour around the trace's busiest minute, compressed into `seconds`; acts are thinned or repeated evenly, so that
    the busiest hundredth of the stretch has `peak_rate` a second."""
    minute = np.bincount((trace.at // 60).astype(int)).argmax() * 60.0
    part = trace.between(max(0.0, minute - 1_200), minute + 2_400).at
    at = part * seconds / 3_600
    slot = seconds / 100
    busiest = np.bincount((at / slot).astype(int)).max() / slot
    wanted = int(len(at) * peak_rate / busiest)
    return at[np.sort(np.linspace(0, len(at) - 1, max(wanted, 10)).astype(int))]


def _events(lab, follows: Follows, authors: np.ndarray) -> list[Event]:
    """Posts in SQL, and their events, as the outbox would have them."""
    made = []
    for a in authors.tolist():
        post, ms = lab.ids.next()
        made.append(Event("posted", author=int(follows.ids[a]), post=post, ms=ms))
    with lab.conn.cursor().copy("copy posts (id, author_id, created_at_ms, content) from stdin") as copy:
        for e in made:
            copy.write_row((e.post, e.author, e.ms, "x"))
    return made


def _rate(producer, lab, events: list[Event]) -> float:
    """Records a second of the consumer, when all are there at once."""
    started = time.monotonic()
    for e in events:
        producer.produce(lab.names.created, e.encode().encode(), str(e.author).encode())
        producer.poll(0)
    producer.flush(30)
    end = started + 120
    while kafka.lag(lab.admin, lab.redis, lab.names):
        if time.monotonic() > end:
            raise BadInput("the consumer did not catch up in two minutes.")
        time.sleep(0.005)
    return len(events) / (time.monotonic() - started)


def _replay(producer, lab, events: list[Event], arrivals: np.ndarray) -> list[list[float]]:
    """Send each event at its time; [[seconds, records behind]] from what was sent and what Redis has as done."""
    def done() -> int:
        return sum(int(v) for f, v in lab.redis.hgetall(lab.names.progress).items() if f.startswith(lab.names.created + ":"))
    before, samples, sent, began = done(), [], 0, time.monotonic()
    while True:
        now = time.monotonic() - began
        due = int(np.searchsorted(arrivals, now, "right"))
        for e in events[sent:due]:
            producer.produce(lab.names.created, e.encode().encode(), str(e.author).encode())
        sent = max(sent, due)
        producer.poll(0)
        behind = sent - (done() - before)
        samples.append([round(now, 3), behind])
        if sent == len(events) and behind <= 0:
            producer.flush(10)
            return samples
        if now > arrivals[-1] + 60:
            raise BadInput(f"the consumer is still {behind} records behind a minute after the burst.")
        time.sleep(0.005)




FILE = "policy_check.json"


def keep(settings: Settings, rows: list[dict]) -> None:
    """Keep the rows of the last check beside the engines' state, for the report."""
    place = Path(settings.state_dir) / FILE
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(rows))


def stored(settings: Settings) -> list[dict] | None:
    """The rows of the last check, None if there are none that can be read."""
    try:
        rows = json.loads((Path(settings.state_dir) / FILE).read_text())
        return rows if all({"quantity", "predicted", "measured", "off", "bound", "within"} <= r.keys() for r in rows) else None
    except (OSError, ValueError, AttributeError, TypeError):
        return None
