"""What settles a claim: experiments by name, each on the live engines in a namespace of the interview's own, emptied before and
removed afterwards. Each ends in a figure, a sentence and numbers.

    run("fault-F2", settings)        # -> Found(sentence, numbers, figure)

`EXPERIMENTS` says what each measures; scenarios may only refer to those. What they do is in `live.py` and in feedlab.lab.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from ..config import Settings
from ..errors import Conflict, EngineDown
from .names import FAULTS

# the kinds behind the field's reports, beside F1 to F12: histories of feedlab.verify.faults by name
HISTORIES = {
    "returning": "a user comes back after 31 days",
    "snapshot": "Redis comes back with an older state",
    "restart": "Redis comes back empty, and one post comes before any read",
    "follow-after-eviction": "the first post after a follow",
    "cap": "scrolling beyond FEED_MAX",
    "hidden-cap": "all that the feed holds is hidden",
    "text-order": "equal milliseconds, ids of two lengths",
    "imported": "a back-dated post",
    "demotion-restored": "a demotion is lost with Redis's memory",
    "rebuild-restored": "a half-built feed comes back with an old snapshot",
}
_VERDICTS = {
    "textbook": "pages of the textbook that are wrong",
    "ours": "pages of ours that are wrong",
    "kind": "the first verdict on the textbook: missing, ended early, short page ..., or none",
}


@dataclass(frozen=True)
class Experiment:
    """`measures`: name -> what it is, with its unit. `seconds`: about how long on two quiet cores."""

    title: str
    measures: dict[str, str]
    seconds: float = 3.0


def _fault(name: str, title: str) -> Experiment:
    return Experiment(f"{title}: textbook and ours on the same history", _VERDICTS, 3)


EXPERIMENTS: dict[str, Experiment] = {
    **{f"fault-{f}": _fault(f, title) for f, title in FAULTS.items() if f not in ("F9", "F11", "F12")},
    **{f"fault-{h}": _fault(h, title) for h, title in HISTORIES.items()},
    "fault-F9": Experiment(
        "malformed cursors: what each system answers",
        {
            "ours_refused": "cursors that ours refuses with 400",
            "textbook_refused": "that the textbook refuses with 400",
            "sent": "malformed cursors sent",
        },
        0.1,
    ),
    "fault-F11": Experiment(
        "bytes an entry in the Redis that is up",
        {
            "bytes_500": "bytes an entry of a feed of 500",
            "bytes_100": "bytes an entry of a feed of 100",
            "ratio": "the one over the other",
            "article": "the article's bytes an entry over those of a feed of 500",
            "trimmed": "encoding of a feed that add-then-trim keeps at 128",
            "shape": "sawtooth | flat: bytes an entry against length",
        },
        1,
    ),
    "fault-F12": Experiment(
        "two follows at once",
        {"ours": "count after two follows, ours", "textbook": "count after two follows, read-add-write"},
        1,
    ),
    "threshold": Experiment(
        "the same posts under three thresholds",
        {
            "push_writes": "feed writes a post under push all",
            "middle_writes": "under a middling threshold",
            "low_writes": "under a low one",
            "push_pulls": "authors pulled a page under push all",
            "low_pulls": "under a low threshold",
            "wrong": "scrolls that are not the SQL answer",
            "shape": "what falls and what rises as the threshold falls",
            "saved": "share of the feed writes that the middling one saves",
        },
        6,
    ),
    "celebrity-post": Experiment(
        "one post of a large account: pushed, and pulled",
        {
            "followers": "followers of the account",
            "push_writes": "feed writes when pushed",
            "pull_writes": "feed writes when pulled",
            "deliveries_a_second": "deliveries a second that this took",
            "minutes_at_largest": "minutes for the article's largest account at this rate",
            "wrong": "pages that are not the SQL answer",
        },
        4,
    ),
    "hot-key": Experiment(
        "the pages of a crowd that follows one celebrity, with and without copies in the process",
        {
            "pages": "pages read",
            "without": "reads of the celebrity's key without copies",
            "with_copies": "with copies of 3 s in 4 processes",
            "saved": "without over with",
            "wrong": "pages that are not the SQL answer",
        },
        3,
    ),
    "herd": Experiment(
        "a crowd finds the celebrity's key cold, all at once",
        {
            "readers": "readers at once",
            "textbook": "rebuilds by the textbook",
            "ours": "rebuilds by ours",
            "wrong": "pages that are not the SQL answer",
        },
        3,
    ),
    "many-followees": Experiment(
        "a first page for readers who follow 50, 500 and 5,000 authors",
        {
            "pull_blocks_50": "8 kB blocks that pull touches at 50",
            "pull_blocks_5000": "at 5,000",
            "pull_times": "blocks at 5,000 over 50",
            "feed_times": "time by the feed at 5,000 over 50",
            "pull_over_feed": "time by pull over by the feed, at 5,000",
            "shape": "which of the two grows with the authors followed",
        },
        4,
    ),
    "delete": Experiment(
        "a post in many feeds is deleted",
        {
            "feeds": "feeds that hold it",
            "shown": "readers who still see it after the delete, before any event",
            "entries_left": "feeds that still hold the entry then",
            "swept": "feeds that hold it after the event",
            "short": "pages that came short",
        },
        3,
    ),
    "crash": Experiment(
        "a writer is killed between its two steps",
        {
            "commit_then_send": "posts lost by commit, then send",
            "send_then_commit": "ghosts by send, then commit",
            "outbox": "posts lost or ghosts with an outbox",
        },
        4,
    ),
    "late-rows": Experiment(
        "transactions commit out of order while the relay runs",
        {
            "textbook": "posts lost by `id > last`",
            "ours": "posts lost by taking the rows that are there",
            "posts": "posts committed",
        },
        3,
    ),
    "two-relays": Experiment(
        "two relays on one outbox",
        {
            "textbook": "events behind a younger one of their author, by `id > last`",
            "ours": "the same with a lock a slice of authors",
            "repeats": "records that the textbook sends twice",
        },
        3,
    ),
    "burst": Experiment(
        "a burst waits in Kafka and is worked off, under a high and a low threshold",
        {
            "events": "records that wait",
            "high_deliveries": "feed writes under the high threshold",
            "low_deliveries": "under the low one",
            "saved": "share of the feed writes that lowering saves",
            "lost": "scrolls that are not the SQL answer after both",
            "shape": "what the lower threshold does to the queue and to the pages",
        },
        6,
    ),
    "paging": Experiment(
        "a scroll by offset and one by cursor while posts come in",
        {"offset": "posts that the offset shows twice", "cursor": "posts that the cursor shows twice"},
        1,
    ),
    "rebuild": Experiment(
        "first pages with the feeds there, and with all of them gone",
        {
            "warm_sql": "SQL queries a page, feeds there",
            "cold_sql": "feeds gone",
            "times": "queries of a cold page over a warm one",
            "wrong": "pages that are not the SQL answer",
            "shape": "what becomes of pages, and of SQL's load",
        },
        3,
    ),
    "small-site": Experiment(
        "a site of some thousand users on one indexed query",
        {
            "users": "users",
            "pages_a_second": "pages a second by one connection",
            "blocks": "8 kB blocks a page",
            "seconds": "seconds a page, median",
        },
        5,
    ),
    "ranked": Experiment(
        "the best 20 of three days by score, out of a pool of the newest",
        {
            "recall_pool": "share of the best 20 that is in a pool of FEED_MAX newest",
            "recall_small": "in a pool a tenth of that",
            "repeats_live": "posts shown twice when scores move between pages",
            "repeats_frozen": "when the order is frozen at page one",
            "shape": "the newest pool holds all of the best, most, or few",
        },
        3,
    ),
    "own-post": Experiment(
        "an author looks at the page right after posting",
        {
            "plain": "the post is on the page before the queues are drained (1 or 0)",
            "own": "with the author's own posts from SQL (1 or 0)",
            "drained": "the post is in the author's followers' pages once drained (1 or 0)",
        },
        2,
    ),
    "precision": Experiment(
        "ids and milliseconds as scores of a sorted set",
        {
            "ids": "ids put in",
            "distinct_ids": "different scores when the score is the id",
            "distinct_ms": "milliseconds that come back changed",
            "last_exact": "2^53 comes back exact (1), and 2^53 + 1 does not (0)",
        },
        1,
    ),
}


@dataclass
class Found:
    """`numbers`: the experiment's measures; `figure`: plotly JSON, of a few kB; `seconds` that the run took."""

    name: str
    title: str
    sentence: str
    numbers: dict[str, float | str]
    figure: dict
    seconds: float
    at: float

    def as_dict(self) -> dict:
        return asdict(self)


def _say(text: str, done: int | None = None, total: int | None = None) -> None:
    """The default progress: nothing."""


def run(name: str, settings: Settings, say: Callable = _say) -> Found:
    """Run an experiment by name. The engines must be up: raises EngineDown saying how to start them; Conflict when another
    interview runs one just now. Leaves nothing in the engines, also after Ctrl-C."""
    from .. import db, engines
    from . import live

    began = time.monotonic()
    try:
        addresses = engines.addresses(settings)
        own = settings.model_copy(update={"namespace": f"{settings.namespace[:10]}_room", "partitions": 2, "local_copy_s": 0.0})
        lock = db.connect(addresses.postgres_url, own.namespace, "feedlab interview")
    except EngineDown as e:
        raise EngineDown(
            f"This experiment needs the engines, and {_lower(e)} Start them with `feedlab up`, then run it again; "
            "the answer is kept."
        ) from None
    try:
        if not lock.execute("select pg_try_advisory_lock(hashtext(%s))", (f"feedlab interview {own.namespace}",)).fetchone()[0]:
            raise Conflict("another interview runs an experiment just now. Wait a few seconds, then run it again.")
        _clear(own, addresses, lock)
        try:
            say(f"running: {EXPERIMENTS[name].title}")
            sentence, numbers, figure = live.perform(name, own, addresses, say)
        finally:
            _clear(own, addresses, lock)
    finally:
        lock.close()
    import json

    missing = EXPERIMENTS[name].measures.keys() - numbers.keys()
    assert not missing, f"{name} did not measure {missing}"
    return Found(
        name,
        EXPERIMENTS[name].title,
        sentence,
        numbers,
        json.loads(figure.to_json()),
        round(time.monotonic() - began, 2),
        time.time(),
    )


def _clear(own: Settings, addresses, conn) -> None:
    """Remove the room's namespaces, those that are there."""
    from ..lab.session import remove

    for part in ("", "_check_ours", "_check_textbook", "_probe"):
        name = own.namespace + part
        if conn.execute("select 1 from pg_namespace where nspname = %s", (name,)).fetchone():
            remove(own.model_copy(update={"namespace": name}), addresses)


def _lower(e: Exception) -> str:
    """An error's sentence as the second half of another."""
    text = str(e).split(". Run `feedlab")[0].split(". `feedlab")[0].rstrip(".")
    return f"{text}."
