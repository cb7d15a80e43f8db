"""The fault catalogue: F1 to F12 of the design as printed, and the kinds behind the field's reports, each callable by name.

    from feedlab.lab import faults
    faults.run("F3")          # both systems on live engines, the same history, side by side
    faults.CATALOGUE["F3"].history.steps

A fault is a small history (see feedlab.lab.history) with the kinds of verdict that the textbook must get; ours must get none.
F9, F11 and F12 are not about pages: they are probes, functions that return what each system did.
Users: 0 is the reader A, 1 is B, 2 is C or the celebrity K.
"""
from collections.abc import Callable
from dataclasses import dataclass

from .history import History

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
    _history("F1", "more posts in one millisecond than a page holds", ("missing",), [["burst", 1, 7], PUMP]),
    _history("F2", "an author crosses the threshold and comes back", ("missing",), [
        *posts(1, 3), ["threshold", 1], *posts(1, 3), ["threshold", 99], *posts(1, 3)]),
    _history("F3", "a delivery onto an evicted feed makes a feed of one", ("missing",), [*posts(1, 3), EVICT, *posts(1, 1)]),
    _history("F4", "below the oldest pushed entry the celebrities go on alone", ("missing",), [
        ["threshold", 2], *posts(2, 1), *posts(1, 8)], follows=((0, 1), (0, 2), (1, 2)), feed_max=3),
    _history("F5", "a backfill of 20 leaves a hole below the twentieth", ("missing",), [
        *posts(1, 25), *posts(2, 1), ["page", 0, 5], ["follow", 0, 1], PUMP], follows=((0, 2),)),
    _history("F6", "the page is cut first and filtered afterwards", ("short page",), [
        *posts(1, 8), ["delete", 7], ["delete", 5], ["delete", 4], PUMP]),
    _history("F7", "a rebuild races a delivery", ("missing",), [
        *posts(1, 2), EVICT, ["rebuild", 0], ["rebuild_on", 0], *posts(1, 1), ["rebuild_on", 0]]),
    _history("F8", "the row with the lower outbox id commits later", ("missing",), [
        *posts(1, 1), ["tick", 10], ["late", 1], ["tick", 10], ["post", 2], PUMP, ["commit"], PUMP]),
    _history("F10", "unfollow, then a delivery that read the old follower list", ("short page", "unfollowed shown"), [
        *posts(2, 3), ["tick", 10], ["post", 1], ["relay"],
        # calls of a consumer that handles one post: knobs, count, followers, then the write
        *[["inside", "consume", n, [["unfollow", 0, 1], ["relay"]]] for n in (4,)], PUMP]),
    _history("returning", "back after absence: before and after, not the time between (R01)", ("missing",), [
        *posts(1, 4), ["absent", 0], *posts(1, 4), ["page", 0, 5], *posts(1, 1)]),
    _history("snapshot", "Redis comes back with an older state (R08)", ("missing",), [
        *posts(1, 3), ["snapshot"], *posts(1, 3), ["restore"]]),
    _history("restart", "Redis comes back empty, one post before any read (R07)", ("missing",), [
        *posts(1, 5), ["flush"], *posts(1, 1)]),
    _history("follow-after-eviction", "the first post after a follow makes the feed look whole (R04)", ("missing",), [
        *posts(1, 6), EVICT, ["follow", 0, 2], *posts(1, 1)], follows=((0, 1),)),
    _history("cap", "the scroll ends at FEED_MAX (R56)", ("missing",), posts(1, 12), feed_max=5),
    _history("hidden-cap", "all that the feed holds is hidden (R11, R14)", ("missing", "short page"), [
        *posts(1, 4), *posts(2, 20), ["unfollow", 0, 2], EVICT], feed_max=5),
    _history("text-order", "equal milliseconds come back in text order (R37)", ("out of order", "missing"), [
        ["burst", 1, 12], PUMP], feed_max=50),
    _history("imported", "a back-dated post is placed by arrival (R43)", ("missing",), [
        *posts(1, 6), ["back_dated", 1, 45], PUMP], feed_max=5),
    _history("demotion-restored", "a demotion is lost with Redis's memory", (), [
        *posts(1, 1), OLD_PAGE, ["threshold", 1], *posts(1, 2), ["snapshot"], ["threshold", 99], ["demote", 1], PUMP, PUMP,
        ["restore"]]),
    _history("rebuild-restored", "a half-built feed comes back with an old snapshot", (), [
        *posts(1, 2), EVICT, ["rebuild", 0], ["snapshot"], ["rebuild_on", 0], *posts(1, 2), ["restore"], ["rebuild_on", 0]]),
]
