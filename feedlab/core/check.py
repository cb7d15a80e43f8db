"""The checker: holds every page that was read against what was done, as recorded, and says in sentences what is wrong.

A history is a list of facts (posts, deletes, follows, unfollows, knob moves), each with the sequence number at which it
was begun and the one at which its answer came. What runs at the same time as a page, or whose answer was lost (`end`
None), may or may not show on it: that is never called wrong, it is counted as unknown. The oracle here is computed from
the facts alone, so a mistake in the SQL of `pull` is found too.

>>> h = History()
>>> h.facts += [Followed(7, 1), Posted(1, id=41, ms=10), Posted(1, id=42, ms=10)]
>>> h.reads.append(Read(7, limit=20, entries=[Entry(10, 42)], drained=True, start=h.tick(), end=h.tick()))
>>> print(check(h))
1 pages, 1 wrong, 0 unknown
ended early: user 7, page 1: the feed ends after post 42, but post 41 is older and should follow
"""
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, pairwise

from .model import START, Entry

NEVER = float("inf")     # the end of what was begun and never answered
KINDS = ("repeated", "out of order", "not older than the cursor", "deleted shown", "unfollowed shown", "unknown post",
         "wrong time", "too many", "short page", "cursor did not move", "cursor elsewhere", "missing", "ended early",
         "ended late", "foreign", "oracle", "error")


# --- what is recorded ------------------------------------------------------------------------------------------------

@dataclass(kw_only=True)
class Fact:
    """Something that was done: begun at `start`, acknowledged at `end`; None when its answer was lost, so that it may
    have happened at any time since, or never. Without either: it was so from the beginning."""
    start: int = 0
    end: int | None = 0

    @property
    def until(self) -> float:
        return NEVER if self.end is None else self.end


@dataclass
class Posted(Fact):
    """`id` None: the answer was lost with the id in it. `how`: "pushed" or "pulled", if the recorder knows."""
    author: int
    id: int | None = None
    ms: int | None = None
    how: str | None = None


@dataclass
class Deleted(Fact):
    id: int


@dataclass
class Followed(Fact):
    user: int
    author: int


@dataclass
class Unfollowed(Fact):
    user: int
    author: int


@dataclass
class Knob(Fact):
    """A live knob was moved. `threshold` lets verdicts say what was pulled and what was pushed."""
    name: str
    value: int


@dataclass
class Read(Fact):
    """One page. Pages with the same `scroll` are one walk down from the top (`page` counts from 1). `drained`: the
    queues were empty and local copies had expired, so the page must be exact. Drained pages of the same `state` (any
    number that the recorder gives to a state of SQL), user, cursor and limit must be the same, warm or cold: `label`
    names which one it was. `error`: what came instead of a page. `end` None: nothing came."""
    user: int
    cursor: Entry | None = None
    limit: int = 20
    entries: list[Entry] = field(default_factory=list)
    next_cursor: Entry | None = None
    drained: bool = False
    scroll: int | None = None
    page: int = 1
    state: int | None = None
    label: str = ""
    error: str = ""


class History:
    """Facts and reads under one counter. Safe to record into from several threads.

    >>> h = History()
    >>> with h.doing(Followed(7, 1)):
    ...     pass                                  # the real thing; if it raises, its outcome is unknown
    >>> h.facts
    [Followed(start=1, end=2, user=7, author=1)]
    """

    def __init__(self, facts: Sequence[Fact] = (), reads: Sequence[Read] = ()):
        self.facts, self.reads = list(facts), list(reads)
        self._count = count(1)

    def tick(self) -> int:
        """The next sequence number."""
        return next(self._count)

    @contextmanager
    def doing(self, fact: Fact) -> Iterator[Fact]:
        """Record what is done inside the `with`. Its fields may be set there (the id of a new post, a page's entries).

        An exception leaves `end` at None, outcome unknown, and goes on. Who finds out later what became of it sets
        `end` to a new tick, or takes the fact out of the list when it never happened.
        """
        fact.start, fact.end = self.tick(), None
        (self.reads if isinstance(fact, Read) else self.facts).append(fact)
        yield fact
        fact.end = self.tick()


# --- what is found ---------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Verdict:
    kind: str
    user: int
    page: int
    post: int | None
    sentence: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.sentence}"


@dataclass
class Report:
    """`pages` read, how many of them `wrong`, and how many things were `unknown`: pages that never came, and posts that
    may or may not belong on a page."""
    verdicts: list[Verdict] = field(default_factory=list)
    pages: int = 0
    wrong: int = 0
    unknown: int = 0

    def smallest(self) -> list[Verdict]:
        """One verdict of each kind: the one on the earliest page."""
        first: dict[str, Verdict] = {}
        for v in sorted(self.verdicts, key=lambda v: (v.page, v.user, v.post or 0)):
            first.setdefault(v.kind, v)
        return [first[k] for k in KINDS if k in first]

    def __str__(self) -> str:
        head = f"{self.pages} pages, {self.wrong} wrong, {self.unknown} unknown"
        return "\n".join([head, *map(str, self.smallest())])


def check(history: History, reads: Sequence[Read] | None = None,
          answers: Mapping[tuple[int, int | None], Sequence[int]] | None = None) -> Report:
    """Judge every page. `reads`: those of the history unless given. `answers`: what SQL said, post ids newest first, by
    (user, state); it is held against the history's own answer, so that the two oracles watch each other.

    A page that was not drained is held against what is certain at any time: nothing twice, in order, below its cursor,
    nothing whose delete or unfollow was acknowledged before the page began. A drained page must be complete as well.
    """
    known, report = _Known(history.facts), Report()
    shown: dict = defaultdict(dict)            # scroll -> post -> the page it was on
    same: dict = {}                            # (state, user, cursor, limit) -> the first such read
    compared = set()
    for read in history.reads if reads is None else reads:
        report.pages += 1
        if read.end is None:
            report.unknown += 1
            continue
        page = _Page(read, known)
        if read.error:
            page.say("error", None, f"the answer was an error: {read.error}")
        else:
            page.always(shown[read.scroll] if read.scroll is not None else {})
            if read.drained:
                page.drained()
                _foreign(page, same)
                who = (read.user, read.state)
                if answers and who in answers and who not in compared:
                    compared.add(who)
                    page.oracle(answers[who])
        report.verdicts += page.verdicts
        report.wrong += bool(page.verdicts)
        report.unknown += page.unknown
    return report


def _foreign(page: "_Page", same: dict) -> None:
    read = page.read
    if read.state is None:
        return
    first = same.setdefault((read.state, read.user, read.cursor, read.limit), read)
    if (first.entries, first.next_cursor) != (read.entries, read.next_cursor):
        ids, before = [e.id for e in read.entries], [e.id for e in first.entries]
        differing = [i for i in (*before, *ids) if (i in ids) != (i in before)]
        page.say("foreign", differing[0] if differing else None,
                 f"the same page was {before} {first.label}".rstrip() + f" and is {ids} {read.label}".rstrip()
                 + ("" if ids != before else f", next {first.next_cursor} and {read.next_cursor}"))


class _Known:
    """What the facts say about any moment: True, False, or None where nobody can know."""

    def __init__(self, facts: Sequence[Fact]):
        self.posts: dict[int, Posted] = {}
        self.by_author: dict[int, list[Posted]] = defaultdict(list)
        self.deletes: dict[int, list[Deleted]] = defaultdict(list)
        self.graph: dict[int, dict[int, list[Fact]]] = defaultdict(lambda: defaultdict(list))  # user, author
        self.thresholds: list[Knob] = []
        self.lost_posts = False                # a post was written whose id nobody knows
        for f in facts:
            if isinstance(f, Posted):
                if f.id is None or f.ms is None:
                    self.lost_posts = True
                else:
                    self.posts[f.id] = f
                    self.by_author[f.author].append(f)
            elif isinstance(f, Deleted):
                self.deletes[f.id].append(f)
            elif isinstance(f, Followed | Unfollowed):
                self.graph[f.user][f.author].append(f)
            elif isinstance(f, Knob) and f.name == "threshold":
                self.thresholds.append(f)

    def follows(self, user: int, author: int, start: float, end: float) -> bool | None:
        """Whether the user follows the author all through start..end; None when a change ran meanwhile or was never
        answered."""
        changes = [f for f in self.graph[user][author] if f.start < end] if user in self.graph else []
        done = [f for f in changes if f.until < start]
        # what a later change, begun after its answer and answered before the page, has overruled does not count
        latest = max((f.start for f in done), default=0)
        states = {isinstance(f, Followed) for f in changes if f.until >= latest}
        if not done:
            states.add(False)
        return states.pop() if len(states) == 1 else None

    def exists(self, post: Posted, start: float, end: float) -> bool | None:
        return True if post.until < start else None if post.start < end else False

    def deleted(self, i: int, start: float, end: float) -> bool | None:
        found = self.deletes.get(i, ())
        return True if any(f.until < start for f in found) else None if any(f.start < end for f in found) else False

    def feed(self, user: int, start: float, end: float) -> tuple[list[Entry], set[Entry]]:
        """The pull answer, computed from the facts: (what must be in it, newest first; what may be)."""
        must, may = [], set()
        for author in list(self.graph[user]) if user in self.graph else ():
            followed = self.follows(user, author, start, end)
            if followed is False:
                continue
            for post in self.by_author.get(author, ()):
                exists, deleted = self.exists(post, start, end), self.deleted(post.id, start, end)
                if exists and followed and deleted is False:
                    must.append(Entry(post.ms, post.id))
                elif exists is not False and deleted is not True:
                    may.add(Entry(post.ms, post.id))
        return sorted(must, reverse=True), may

    def mode(self, author: int, at: float) -> str | None:
        """What the threshold made of the author's posts at that moment; None where it cannot be said."""
        moves = [k for k in self.thresholds if k.until <= at]
        if not moves:
            return None
        states = [self.follows(u, author, at + 0.5, at + 0.5) for u in list(self.graph) if author in self.graph[u]]
        if None in states:
            return None
        return "pushed" if sum(states) < max(moves, key=lambda k: k.until).value else "pulled"


class _Page:
    """One page under judgement."""

    def __init__(self, read: Read, known: _Known):
        self.read, self.known, self.verdicts, self.unknown = read, known, [], 0
        self.start, self.end = read.start, read.end

    def say(self, kind: str, post: int | None, text: str) -> None:
        r = self.read
        self.verdicts.append(Verdict(kind, r.user, r.page, post, f"user {r.user}, page {r.page}: {text}"))

    def context(self, i: int) -> str:
        """How the post was handled, if that is recorded or follows from the threshold."""
        post = self.known.posts[i]
        then = post.how or (self.known.mode(post.author, post.until) if post.end is not None else None)
        now = self.known.mode(post.author, self.start)
        if then is None:
            return ""
        return f"; it was {then} when written" + (f" and {now} when read" if now else "")

    def always(self, shown: dict[int, int]) -> None:
        """What holds at every moment. `shown`: the posts of this scroll's earlier pages."""
        r, last = self.read, None
        for e in r.entries:
            if e.id in shown:
                self.say("repeated", e.id, f"post {e.id} is shown again, it was on page {shown[e.id]}")
            elif last is not None and e >= last:
                self.say("out of order", e.id, f"post {e.id} at {e.ms} comes after post {last.id} at {last.ms}")
            if e >= (r.cursor or START):
                self.say("not older than the cursor", e.id,
                         f"post {e.id} at {e.ms} is not older than the cursor {r.cursor.ms}:{r.cursor.id}")
            shown[e.id], last = r.page, e
            self.allowed(e)
        if len(r.entries) > r.limit:
            self.say("too many", None, f"{len(r.entries)} posts although the limit is {r.limit}")
        if r.next_cursor is not None:
            if len(r.entries) < r.limit:
                self.say("short page", None, f"{len(r.entries)} posts of {r.limit}, and yet there is a next page")
            if r.next_cursor >= (r.cursor or START):
                self.say("cursor did not move", None, f"the next cursor {r.next_cursor.ms}:{r.next_cursor.id} does not "
                                                      "lie below the page's own")
            elif last is not None and r.next_cursor != last:
                self.say("cursor elsewhere", last.id, f"the next cursor is {r.next_cursor.ms}:{r.next_cursor.id}, the "
                                                      f"last post is {last.ms}:{last.id}")

    def allowed(self, e: Entry) -> None:
        """May this post be shown to this user on this page?"""
        known, user = self.known, self.read.user
        post = known.posts.get(e.id)
        if post is None:
            if known.lost_posts:
                self.unknown += 1
            else:
                self.say("unknown post", e.id, f"post {e.id} was never written")
            return
        if known.exists(post, self.start, self.end) is False:
            self.say("unknown post", e.id, f"post {e.id} is shown before it was written")
        if post.ms != e.ms:
            self.say("wrong time", e.id, f"post {e.id} is shown at {e.ms}, it was written at {post.ms}")
        if known.deleted(e.id, self.start, self.end):
            self.say("deleted shown", e.id, f"post {e.id} is shown although it was deleted before" + self.context(e.id))
        if known.follows(user, post.author, self.start, self.end) is False:
            ever = any(isinstance(f, Followed) for f in known.graph.get(user, {}).get(post.author, ()))
            self.say("unfollowed shown", e.id, f"post {e.id} is shown although user {user} "
                     + ("unfollowed" if ever else "never followed") + f" its author {post.author}" + self.context(e.id))

    def drained(self) -> None:
        """Everything from the cursor down to the last post is there; and the end is the end."""
        r, have = self.read, set(self.read.entries)
        top = r.cursor or START
        must, may = self.known.feed(r.user, self.start, self.end)
        must = [e for e in must if e < top and e not in have]
        lowest = min(r.entries, default=None)
        bottom = lowest if r.next_cursor is None else r.next_cursor
        gaps = [e for e in must if bottom is not None and e > bottom]
        older = [e for e in must if bottom is None or e < bottom]
        for e in gaps:
            self.say("missing", e.id, f"post {e.id} missing" + self.context(e.id))
        if r.next_cursor is None and older:
            e = older[0]
            self.say("ended early", e.id, (f"the feed ends after post {lowest.id}" if lowest else "the feed is empty")
                     + f", but post {e.id} is older and should follow" * bool(lowest)
                     + f" below the cursor, but post {e.id} should be there" * (not lowest) + self.context(e.id))
        maybe = [e for e in may if e < top]
        if r.next_cursor is not None and not older and not any(e < r.next_cursor for e in maybe) \
                and not self.known.lost_posts:
            self.say("ended late", None, "there is a next cursor although nothing older exists")
        self.unknown += sum(e not in have and (bottom is None or r.next_cursor is None or e > bottom) for e in maybe)

    def oracle(self, answer: Sequence[int]) -> None:
        """SQL's whole answer for this user against the history's."""
        must, may = self.known.feed(self.read.user, self.start, self.end)
        ids, allowed = set(answer), {e.id for e in must} | {e.id for e in may}
        wrong = [e.id for e in must if e.id not in ids]
        wrong += [] if self.known.lost_posts else [i for i in answer if i not in allowed]
        order = [self.known.posts[i] for i in answer if i in self.known.posts]
        if wrong:
            self.say("oracle", wrong[0], f"SQL and the history differ: post {wrong[0]} is "
                                         f"{'in' if wrong[0] in ids else 'not in'} SQL's answer")
        elif any((a.ms, a.id) <= (b.ms, b.id) for a, b in pairwise(order)):
            self.say("oracle", None, "SQL's answer is out of order, or has a post twice")
