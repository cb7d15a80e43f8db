"""The fault catalogue: F1 to F12 of the design as printed, and the kinds behind the field's reports, each callable by name.

    from feedlab.verify import faults
    faults.run("F3")          # both systems on live engines, the same history, side by side
    faults.CATALOGUE["F3"].history.steps

A fault is a small history (see feedlab.verify.histories) with the kinds of verdict that the textbook must get; ours must get none.
F9, F11 and F12 are not about pages: they are probes, functions that return what each system did.
Users: 0 is the reader A, 1 is B, 2 is C or the celebrity K.
"""
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg

from .. import db, follows
from ..addresses import Addresses
from ..config import Settings, settings
from ..core import cursor
from ..core.check import Verdict
from ..errors import BadInput
from ..lab.session import open_lab
from ..textbook import cursor as t_cursor
from ..textbook import follows as t_follows
from .histories import History
from .runner import Runner
from .systems import SYSTEMS

LOST = ("missing", "ended early")
PUMP, EVICT, OLD_PAGE = ["pump"], ["evict", 0], ["page", 0, 50]


def posts(author: int, n: int, apart: int = 10) -> list[list]:
    """n posts of an author, `apart` milliseconds from one to the next, each delivered."""
    return [s for _ in range(n) for s in (["tick", apart], ["post", author])] + [PUMP]


@dataclass(frozen=True)
class Fault:
    """`textbook`: kinds of verdict of which the textbook must get at least one. `history` or `probe`, not both."""
    name: str
    title: str
    textbook: tuple[str, ...]
    history: History | None = None
    probe: Callable | None = None


def _history(name: str, title: str, textbook: tuple[str, ...], steps: list[list], follows=((0, 1), (0, 2)), users: int = 3,
             feed_max: int = 50, threshold: int = 99) -> Fault:
    return Fault(name, title, textbook, History(steps, users, [list(f) for f in follows], feed_max, threshold, name))


HISTORIES = [
    _history("F1", "more posts in one millisecond than a page holds", LOST, [["burst", 1, 7], PUMP]),
    _history("F2", "an author crosses the threshold and comes back", LOST, [
        *posts(1, 3), ["threshold", 1], *posts(1, 3), ["threshold", 99], *posts(1, 3)]),
    _history("F3", "a delivery onto an evicted feed makes a feed of one", LOST, [*posts(1, 3), EVICT, *posts(1, 1)]),
    _history("F4", "below the oldest pushed entry the celebrities go on alone", LOST, [
        ["threshold", 2], *posts(2, 1), *posts(1, 8)], follows=((0, 1), (0, 2), (1, 2)), feed_max=3),
    _history("F5", "a backfill of 20 leaves a hole below the twentieth", LOST, [
        *posts(1, 25), *posts(2, 1), ["page", 0, 5], ["follow", 0, 1], PUMP], follows=((0, 2),)),
    _history("F6", "the page is cut first and filtered afterwards", ("short page",), [
        *posts(1, 8), ["delete", 7], ["delete", 5], ["delete", 4], PUMP]),
    _history("F7", "a rebuild races a delivery", LOST, [
        *posts(1, 2), EVICT, ["rebuild", 0], ["rebuild_on", 0], *posts(1, 1), ["rebuild_on", 0]]),
    _history("F8", "the row with the lower outbox id commits later", LOST, [
        *posts(1, 1), ["tick", 10], ["late", 1], ["tick", 10], ["post", 2], PUMP, ["commit"], PUMP]),
    _history("F10", "unfollow, then a delivery that read the old follower list", ("short page", "ended early"), [
        *posts(2, 3), ["tick", 10], ["post", 1], ["hold", 1], ["unfollow", 0, 1], PUMP, PUMP, ["hold_on"]]),
    _history("returning", "back after absence: before and after, not the time between (R01)", LOST, [
        *posts(1, 4), ["absent", 0], *posts(1, 4), ["page", 0, 5], *posts(1, 1)]),
    _history("snapshot", "Redis comes back with an older state (R08)", LOST, [
        *posts(1, 3), ["snapshot"], *posts(1, 3), ["restore"]]),
    _history("restart", "Redis comes back empty, one post before any read (R07)", LOST, [
        *posts(1, 5), ["flush"], *posts(1, 1)]),
    _history("follow-after-eviction", "the first post after a follow makes the feed look whole (R04)", LOST, [
        *posts(1, 6), EVICT, ["follow", 0, 2], *posts(1, 1)], follows=((0, 1),)),
    _history("cap", "the scroll ends at FEED_MAX (R56)", LOST, posts(1, 12), feed_max=5),
    _history("hidden-cap", "all that the feed holds is hidden (R11, R14)", (*LOST, "short page"), [
        *posts(1, 4), *posts(2, 20), ["unfollow", 0, 2], ["page", 0, 2], EVICT], feed_max=5),
    _history("text-order", "equal milliseconds come back in text order (R37)", (*LOST, "out of order"), [
        ["burst", 1, 12], PUMP], feed_max=50),
    _history("imported", "a back-dated post is placed by arrival (R43)", LOST, [
        *posts(1, 6), ["back_dated", 1, 45], PUMP], feed_max=5),
    _history("demotion-restored", "a demotion is lost with Redis's memory", LOST, [
        *posts(1, 1), OLD_PAGE, ["threshold", 1], *posts(1, 2), ["snapshot"], ["threshold", 99], ["demote", 1], PUMP, PUMP,
        ["restore"]]),
    _history("rebuild-restored", "a half-built feed comes back with an old snapshot", LOST, [
        *posts(1, 2), EVICT, ["rebuild", 0], ["snapshot"], ["rebuild_on", 0], *posts(1, 2), ["restore"], ["rebuild_on", 0]]),
]


# --- probes: faults that are not about pages --------------------------------------------------------------------------------

BAD_CURSORS = ("...", "abc:1", "1:abc", "1:2:3", "-1:5", "1e3:5", "1764500000000", "1764500000000:99999999999999999999",
               "1764500000000:", "")


def probe_cursor(s: Settings, a: Addresses) -> dict[str, str]:
    """F9: what each system makes of ten malformed cursors. A BadInput is a 400; anything else that is raised is a 500, and
    what is not refused is page one, or some other page, with a 200."""
    said = {}
    for name, parse in (("ours", cursor.parse), ("textbook", t_cursor.parse)):
        outcomes = []
        for bad in BAD_CURSORS:
            try:
                parse(bad)
                outcomes.append("200")
            except BadInput:
                outcomes.append("400")
            except Exception:
                outcomes.append("500")
        said[name] = f"{outcomes.count('400')} of {len(BAD_CURSORS)} malformed cursors are refused with 400"
        if outcomes.count("500") or outcomes.count("200"):
            said[name] += f", {outcomes.count('500')} are a 500 and {outcomes.count('200')} pass as good"
    return said


def probe_bytes(s: Settings, a: Addresses) -> dict[str, str]:
    """F11: bytes an entry (MEMORY USAGE) of a feed of 500 and of 100, against the article's 60; and a feed capped at 128 by
    add-then-trim, which touches 129 once and never becomes small again."""
    with open_lab(s, a) as lab:
        key, said = lab.names.feed(0), {}
        for n in (100, 500):
            lab.redis.delete(key)
            lab.redis.zadd(key, {f"{10**18 + i}": 1_700_000_000_000 + i for i in range(n)})
            said[f"{n} entries"] = f"{lab.redis.memory_usage(key, samples=0) / n:.0f} B an entry as {lab.redis.object('encoding', key)}"
        lab.redis.delete(key)
        for i in range(200):
            lab.redis.zadd(key, {f"{10**18 + i}": 1_700_000_000_000 + i})
            lab.redis.zremrangebyrank(key, 0, -129)
        said["capped at 128 by add-then-trim"] = f"{lab.redis.zcard(key)} entries as {lab.redis.object('encoding', key)}"
        lab.redis.delete(key)
    return said


def probe_count(s: Settings, a: Addresses) -> dict[str, str]:
    """F12: two follows at once, the second begun before the first has committed. Read-add-write loses one, ours none."""
    said = {}
    with open_lab(s, a) as lab, db.connect(a.postgres_url, s.namespace) as other:
        for name, user, count in (("ours", 1, _count), ("textbook", 2, t_follows.count)):
            lab.conn.execute("delete from follower_counts where user_id = %s", (user,))
            block = other.transaction()
            with block:
                before = follows.followers(lab.conn, user)
                count(other, user, 1)
                if name == "ours":
                    count(lab.conn, user, 1)             # another row: does not wait
            if name == "textbook":
                t_follows.write(lab.conn, user, before + 1)   # it had read before the first committed
            said[name] = f"two follows at once, count {follows.followers(lab.conn, user)}"
            lab.conn.execute("delete from follower_counts where user_id = %s", (user,))
    return said


def _count(conn: psycopg.Connection, user: int, change: int) -> None:
    conn.execute(follows.COUNT, (user, change))


PROBES = [
    Fault("F9", "a malformed cursor", (), probe=probe_cursor),
    Fault("F11", "60 B an entry is true of no Redis", (), probe=probe_bytes),
    Fault("F12", "a follower count that loses updates", (), probe=probe_count),
]
CATALOGUE = {f.name: f for f in (*HISTORIES, *PROBES)}


# --- running one by name ---------------------------------------------------------------------------------------------------------

@dataclass
class Outcome:
    """What both systems did. `verdicts`: system -> verdicts on pages; `said`: what a probe found."""
    fault: Fault
    verdicts: dict[str, list[Verdict]] = field(default_factory=dict)
    said: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.fault.name}: {self.fault.title}"]
        lines += [f"  {name}: {vs[0] if vs else 'every page equals the SQL answer'}" for name, vs in self.verdicts.items()]
        return "\n".join(lines + [f"  {name}: {text}" for name, text in self.said.items()])

    def _repr_html_(self) -> str:
        from html import escape
        head, *rows = str(self).splitlines()
        cells = "".join("<tr><th style='text-align:left'>{}</th><td style='text-align:left'>{}</td></tr>".format(
            *map(escape, row.strip().split(": ", 1))) for row in rows)
        return f"<b>{escape(head)}</b><table>{cells}</table>"


def run(name: str, systems: tuple[str, ...] = ("textbook", "ours"), addresses: Addresses | None = None,
        base: Settings | None = None) -> Outcome:
    """Run a fault by name on live engines, which must be up. Raises BadInput for an unknown name.

    `print(faults.run("F3"))`, or just `faults.run("F3")` as the last line of a cell.
    """
    from .. import engines
    if name not in CATALOGUE:
        raise BadInput(f"there is no fault {name!r}; they are: {', '.join(CATALOGUE)}")
    fault, s = CATALOGUE[name], base or settings()
    addresses = addresses or engines.addresses(s)
    outcome = Outcome(fault)
    if fault.probe:
        outcome.said = fault.probe(s.model_copy(update={"namespace": f"{s.namespace[:16]}_probe"}), addresses)
    else:
        for system in systems:
            own = s.model_copy(update={"namespace": f"{s.namespace[:16]}_check_{system}", "partitions": 2, "batch": 2})
            with Runner(own, addresses, SYSTEMS[system]) as runner:
                outcome.verdicts[system] = runner.run(fault.history).smallest()
    return outcome
