"""Is every page right? Histories on live engines against ours and the textbook's, the shortest one that goes wrong, and what is
missed when a safeguard is switched off. Histories, runner and judge are those of `feedlab check` (verify.histories, verify.runner, core.check).
"""
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import plotly.graph_objects as go

from ... import celebrities, reader, timeline
from ...core.check import Report
from ...draw import plots
from ...errors import BadInput
from ...verify import checking, faults
from ...verify.histories import KINDS, History, random_history
from ...verify.runner import Runner
from ...verify.systems import SYSTEMS
from ..book import Book


@contextmanager
def runner(book: Book, system: str) -> Iterator[Runner]:
    """A runner of histories on `ours` or `textbook`, in a namespace of the notebook's that `book.end()` removes. Raises BadInput."""
    if system not in SYSTEMS:
        raise BadInput(f"there is no system {system!r}; they are: {', '.join(SYSTEMS)}")
    own = book.also(f"{book.settings.namespace[:16]}_check_{system}")
    # slices of two followers: large authors, handed on from record to record, are the rule
    s = book.settings.model_copy(update={"namespace": own, "partitions": 2, "batch": 2})
    with Runner(s, book.addresses, SYSTEMS[system]) as r:
        yield r


def judged(book: Book, system: str, steps: Sequence[list] | History, **history) -> Report:
    """One history on one system; or its steps, with `follows`, `users`, `feed_max`, `threshold` as in History. Raises BadInput for
    a step that is none."""
    h = steps if isinstance(steps, History) else History([list(s) for s in steps], **history)
    check_steps(h.steps)
    with runner(book, system) as r:
        return r.run(h)


def check_steps(steps: Sequence[list]) -> None:
    """Raises BadInput for a step whose name or number of arguments is wrong."""
    for step in steps:
        if not step or step[0] not in KINDS:
            raise BadInput(f"{step!r} is no step; the first word is one of: {', '.join(KINDS)}")
        wanted = len(KINDS[step[0]][1]) + (step[0] == "inside")
        if len(step) - 1 != wanted:
            raise BadInput(f"{step!r}: {step[0]!r} takes {wanted} arguments, got {len(step) - 1}. For example {example(step[0])}.")
        if step[0] == "inside":
            check_steps(step[-1])


def example(name: str) -> list:
    """A step of that name, with arguments that work."""
    words = {"w": "consume", "W": "page", "c": 2, "n": 3}
    return [name, *(words.get(kind, 1) for kind in KINDS[name][1]), *([[["post", 1]]] if name == "inside" else [])]


def race(book: Book, seed: int, histories: int, systems: Sequence[str] = ("textbook", "ours")) -> dict[str, list[Report]]:
    """The same random histories on each system, the systems side by side: system -> one report a history, in order."""
    chosen = [random_history(seed, n) for n in range(histories)]
    return on_each(book, systems, lambda r, h: r.run(h), chosen)


def on_each(book: Book, systems: Sequence[str], run: Callable, histories: Sequence[History]) -> dict[str, list]:
    """`run(runner, history)` for every history on every system; one thread a system, progress in the notebook's own."""
    reports: dict[str, list] = {name: [] for name in systems}
    stop = threading.Event()
    for name in systems:                     # registered here: the book belongs to this thread
        book.also(f"{book.settings.namespace[:16]}_check_{name}")

    def work(name: str) -> None:
        with runner(book, name) as r:
            for h in histories:
                if stop.is_set():
                    return
                reports[name].append(run(r, h))
    with ThreadPoolExecutor(len(systems)) as pool:
        jobs = [pool.submit(work, name) for name in systems]
        try:
            while not all(j.done() for j in jobs):
                book.progress("histories on live engines", sum(map(len, reports.values())), len(systems) * len(histories))
                stop.wait(0.1)
        finally:
            stop.set()                       # Ctrl-C: the threads end after the history that they are at
            book.progress.close()
    for j in jobs:
        j.result()
    return reports


def wrong(reports: Sequence[Report]) -> list[int]:
    """Which of the histories went wrong, by number."""
    return [n for n, r in enumerate(reports) if r.wrong]


def strip(reports: dict[str, list[Report]]) -> go.Figure:
    """One mark a history and system: a dot where every page was right, a cross where one was not."""
    n = max(map(len, reports.values()))
    pages = sum(r.pages for rs in reports.values() for r in rs)
    said = ", ".join(f"{name} {len(wrong(rs))}" for name, rs in reports.items())
    fig = plots.figure(f"Wrong histories of {n}: {said}", f"history ({pages:,} pages read in all)", "")
    for bad, label, symbol, colour in ((False, "every page right", "circle", plots.BLUE),
                                       (True, "a page wrong", "x", plots.VERMILLION)):
        marks = [(i, name, r) for name, rs in reports.items() for i, r in enumerate(rs) if bool(r.wrong) is bad]
        fig.add_scatter(x=[i for i, _, _ in marks], y=[name for _, name, _ in marks], mode="markers", name=label,
                        marker={"symbol": symbol, "size": 14, "color": colour},
                        text=[str(r).replace("\n", "<br>") for *_, r in marks],
                        hovertemplate="history %{x}, %{y}: %{text}<extra></extra>")
    return fig.update_yaxes(categoryorder="array", categoryarray=list(reports)[::-1], showgrid=False) \
        .update_layout(height=240, margin={"l": 80})


def kinds(reports: Sequence[Report]) -> go.Figure:
    """What was wrong, by kind of verdict: pages on which it was seen."""
    count = Counter(v.kind for r in reports for v in r.verdicts).most_common()
    title = f"Most often: {count[0][0]}" if count else "Nothing was wrong"
    return plots.bars(title, [k for k, _ in count], [n for _, n in count], "verdicts", measured=0)


# --- a counterexample ----------------------------------------------------------------------------------------------------

def counterexample(book: Book, seed: int, reports: Sequence[Report], most: int = 40) -> tuple[History, History]:
    """(as it was drawn, as short as `most` runs made it): the first of the seed's histories that the textbook got wrong.

    Raises BadInput when none was wrong: take another seed, or more histories.
    """
    found = wrong(reports)
    if not found:
        raise BadInput(f"none of the {len(reports)} histories went wrong. Take another seed, or more histories.")
    # of those that went wrong, the one with the fewest steps: it is the shortest way to a short one
    long = min((random_history(seed, n) for n in found), key=lambda h: len(h.steps))
    with runner(book, "textbook") as r:
        counted = _Counted(r, lambda n: book.progress("leaving out steps", n, most + 1))
        short = checking.shrink(counted, long, most=most)
    book.progress.close()
    return long, short


class _Counted:
    """A runner that says how many histories it has run."""

    def __init__(self, inner: Runner, tick: Callable[[int], None]):
        self.inner, self.tick, self.n = inner, tick, 0

    def run(self, history: History) -> Report:
        self.n += 1
        self.tick(self.n)
        return self.inner.run(history)


PHRASES = {
    "post": "user {0} posts", "tick": "{0} ms pass", "burst": "user {0} posts {1} times in one millisecond",
    "late": "user {0} posts, the transaction stays open", "commit": "the open transaction commits",
    "back_dated": "user {0} imports a post dated {1} ms ago", "delete": "post {0} is deleted",
    "follow": "user {0} follows user {1}", "unfollow": "user {0} unfollows user {1}", "page": "user {0} reads a page of {1}",
    "scroll": "user {0} scrolls to the end, {1} a page", "absent": "user {0} stays away for 31 days",
    "threshold": "the threshold moves to {0}", "feed_max": "FEED_MAX moves to {0}", "demote": "author {0} is to be pushed again",
    "evict": "Redis evicts the feed of user {0}", "evict_celeb": "Redis evicts the celebrity timeline of user {0}",
    "flush": "Redis loses every key", "snapshot": "Redis takes a snapshot", "restore": "Redis comes back as it was at the snapshot",
    "rebuild": "a reader begins to rebuild the feed of user {0} and is held up", "rebuild_on": "the rebuild of user {0} goes on",
    "hold": "a consumer has read the followers of user {0} and is held up", "hold_on": "the consumer that was held up writes",
    "relay": "the relay moves a batch", "consume": "the consumer handles a batch", "pump": "relay and consumer run until quiet",
    "kill": "the {0} process dies before its engine call {1}", "inside": "during {0}, before its engine call {1}:",
    "again": "the event of post {0} comes once more", "clock_back": "the clock steps back {0} ms"}


def told(history: History) -> str:
    """The history in words, a step a line. (`delete` and `again` count the posts made so far, round and round; see verify.runner.)"""
    start = [f"{history.users} users, threshold {history.threshold}, FEED_MAX {history.feed_max}"]
    start += [f"user {u} follows user {a}" for u, a in history.follows]
    return "\n".join(["given: " + "; ".join(start), *(f"{n}. {line}" for n, line in enumerate(map(_told, history.steps), 1))])


def _told(step: list) -> str:
    text = PHRASES[step[0]].format(*step[1:])
    return text + " " + "; ".join(map(_told, step[-1])) if step[0] == "inside" else text


# --- safeguards, switched off ----------------------------------------------------------------------------------------------

@contextmanager
def _instead(owner, name: str, value) -> Iterator[None]:
    """`owner.name` is `value` inside the `with`. For this process only."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _lua(r, old: str, new: str) -> Iterator[None]:
    """timeline.lua with `old` replaced. Functions are global in Redis, so the altered ones get names of their own; nobody else calls
    them, and they are removed at the end."""
    if timeline.CODE.count(old) != 1:
        raise BadInput("timeline.lua has changed: the safeguard is not where it is looked for. Adapt feedlab.classroom.chapters.exactness.")
    name = f"off{secrets.token_hex(4)}"
    with _instead(timeline, "CODE", timeline.CODE.replace(old, new)), _instead(timeline, "LIBRARY", name):
        timeline.load(r)
        try:
            yield
        finally:
            r.function_delete(name)


@dataclass(frozen=True)
class Safeguard:
    """`off(redis)` switches it off in this process while its `with` is open; `history` is one that needs it."""
    name: str
    does: str
    off: Callable
    history: History


def _h(steps: list[list], follows=((0, 1),), feed_max: int = 50) -> History:
    return History(steps, 3, [list(f) for f in follows], feed_max)


WARM, PUMP = ["page", 0, 50], ["pump"]      # pumped twice where the step after it must find everything handled
SAFEGUARDS = {s.name: s for s in [
    Safeguard("whole feeds only", "a delivery never makes a feed (F3)", lambda r: _lua(
        r, "c.missing = c.missing + 1 ", "redis.call('ZADD', key, '-inf', 'floor'); redis.call('ZADD', key, ms, args[a]) "),
        _h([*faults.posts(1, 3), PUMP, ["evict", 0], *faults.posts(1, 1)])),
    Safeguard("floor", "a trim raises the floor (R56)", lambda r: _lua(
        r, "raise(key, state, number(redis.call('ZRANGE', key, cut, cut, 'WITHSCORES')[2]))",
        "redis.call('ZREMRANGEBYRANK', key, 1, cut)"), _h([WARM, *faults.posts(1, 12)], feed_max=5)),
    Safeguard("pull flag", "an author who was not pushed is pulled (F2)", lambda r: _instead(
        celebrities, "raise_flags", lambda conn, authors: None),
        _h([WARM, ["threshold", 1], *faults.posts(1, 3), PUMP, ["threshold", 99]])),
    Safeguard("SQL below the floor", "the scroll goes on in SQL (F4)", lambda r: _instead(
        reader.Reader, "_below", lambda *a, **k: iter(())), faults.CATALOGUE["F4"].history),
    Safeguard("read filter", "each page asks SQL what may be shown (F10)", lambda r: _instead(
        reader, "visible", lambda conn, user, ids, own=False: set(ids)),
        _h([*faults.posts(1, 3), WARM, ["delete", 1], ["page", 0, 5]])),
    Safeguard("numeric ties", "members have a fixed width (F1)", lambda r: _instead(timeline, "member", str),
              _h([WARM, ["post", 1], ["post", 2], ["pump"]], ((0, 1), (0, 2)))),
]}


def without(book: Book, name: str | None, histories: Sequence[History] | None = None) -> list[Report]:
    """Ours with one safeguard switched off (None: all on), on that safeguard's own history or on `histories`. Raises BadInput."""
    if name is not None and name not in SAFEGUARDS:
        raise BadInput(f"there is no safeguard {name!r}; they are: {', '.join(SAFEGUARDS)}")
    if histories is None and name is None:
        raise BadInput("say which histories are to be run with every safeguard on.")
    chosen = [SAFEGUARDS[name].history] if histories is None else histories
    with runner(book, "ours") as r:
        if name is None:
            return [r.run(h) for h in chosen]
        with SAFEGUARDS[name].off(r.lab.redis):
            return [r.run(h) for h in chosen]


def missed(book: Book) -> dict[str, tuple[Report, Report]]:
    """Each safeguard: (its history with everything on, the same with this one off)."""
    found = {}
    with runner(book, "ours") as r:
        for n, (name, s) in enumerate(SAFEGUARDS.items()):
            book.progress(f"without {name}", n, len(SAFEGUARDS))
            whole = r.run(s.history)
            with s.off(r.lab.redis):
                found[name] = whole, r.run(s.history)
    book.progress.close()
    return found


def missed_table(found: dict[str, tuple[Report, Report]]) -> go.Figure:
    """Which kinds of verdict each safeguard prevents: one row a safeguard, one column a kind."""
    seen = {name: sorted({v.kind for v in off.verdicts}) for name, (_, off) in found.items()}
    names, columns = list(seen), sorted({k for ks in seen.values() for k in ks})
    fig = plots.figure(f"{sum(bool(k) for k in seen.values())} of {len(seen)} safeguards are missed as soon as they are off", "", "")
    cells = [(k, name) for name in names for k in seen[name]]
    fig.add_scatter(x=[k for k, _ in cells], y=[n for _, n in cells], mode="markers", showlegend=False,
                    marker={"symbol": "x", "size": 12, "color": plots.VERMILLION}, hovertemplate="without %{y}: %{x}<extra></extra>")
    return fig.update_xaxes(categoryorder="array", categoryarray=columns).update_yaxes(
        categoryorder="array", categoryarray=names[::-1]).update_layout(height=320, margin={"l": 150})
