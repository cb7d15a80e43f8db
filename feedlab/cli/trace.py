"""`trace`: where one post is."""

from . import show
from .app import PIPELINE, AsJson, PostId, command


@command(PIPELINE, "feedlab trace 337512345678901248", "feedlab trace 337512345678901248 --json")
def trace(post: PostId, json: AsJson = False) -> None:
    """Where a post is: row, outbox, partition and offset, pushed or pulled, feeds reached, the time at each step."""
    from ..config import settings
    from ..lab.session import open_lab
    from ..lab.trace import trace as follow

    with open_lab(settings()) as lab:
        t, slices = follow(lab, post), lab.names.slices
        keep_s = lab.settings.trace_s
    if json:
        show.document(t.as_dict())
        return
    dated = f", dated {show.when(t.created_at_ms)}" if abs(t.created_at_ms - t.written_ms) > 1000 else ""
    show.line(f"post {t.post} of user {t.author}, written {show.when(t.written_ms)}{dated}: {show.clean(t.text, 80)}")
    rows = show.table(None, "Step", "Where", "ms since the post", keep=("Step",))
    rows.add_row("row", "in posts" + (", deleted: no feed shows it" if t.deleted else ""), "0")
    rows.add_row(
        "outbox", "waits for `feedlab relay`" if t.outbox == "waiting" else "sent, row removed", _ms(t.outbox_ms)
    )
    rows.add_row("Kafka", _kafka(t, slices), _ms(t.kafka_ms))
    rows.add_row("decision", _decision(t, keep_s), "")
    rows.add_row("feeds", _feeds(t.feeds), _span(t))
    show.console().print(rows)


def _ms(n: int | None) -> str:
    return "" if n is None else f"{n:,}"


def _span(t) -> str:
    if t.first_feed_ms is None:
        return ""
    return (
        _ms(t.first_feed_ms)
        if t.first_feed_ms == t.last_feed_ms
        else f"first {_ms(t.first_feed_ms)}, last {_ms(t.last_feed_ms)}"
    )


def _kafka(t, slices: str) -> str:
    if t.topic is None:
        return "not yet" if t.outbox == "waiting" else "the consumer has not noted its place"
    part = "the last slice of a large fan-out: " if t.topic == slices else ""
    return f"{part}{t.topic}, partition {t.partition}, offset {t.offset}"


def _decision(t, keep_s: int) -> str:
    if t.decision == "pushed":
        return f"pushed: {show.count(t.deliveries, 'feed write')}, one an active follower"
    if t.decision == "pulled":
        return "pulled: readers take it from celeb:{}:recent{}".format(
            t.author, ", where it is" if t.in_celebrity_timeline else " or, below its floor, from SQL"
        )
    if t.decision == "gone":
        return "deleted before it was delivered, or its trace has expired"
    if t.decision == "pending":
        return "none yet" + (f": {show.count(t.lag, 'record')} still to be handled by `feedlab fanout`" if t.lag else "")
    return f"unknown: traces are kept for {keep_s:,} s" if keep_s else "unknown: tracing is off (FEEDLAB_TRACE_S=0)"


def _feeds(f) -> str:
    others = [
        f"{n:,} {text}"
        for n, text in (
            (f.no_feed, "without a feed"),
            (f.building, "being built"),
            (f.below_floor, "with a floor above it"),
            (f.absent, "without it"),
        )
        if n
    ]
    return f"{f.holding:,} of {show.count(f.active_followers, 'active follower')} {'holds' if f.holding == 1 else 'hold'} it" + (
        f"; {', '.join(others)}" if others else ""
    )
