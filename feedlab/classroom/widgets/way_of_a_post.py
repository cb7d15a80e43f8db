"""The way of a post, one station at a time."""
import time
from html import escape

import ipywidgets as w
import plotly.graph_objects as go

from ... import follows, kafka, outbox, posts
from ...core.model import Post
from ...draw import plots
from ...fanout import Done
from ...lab.trace import Trace, trace
from ...verify.runner import Killed, Tap
from .base import Frame

ORDINARY, CELEBRITY, READERS = 1, 2, range(3, 9)
THRESHOLD = 5                  # author 1 has 4 followers, author 2 has 6
DEATHS = [("relay, before its delete", "relay"), ("consumer, before Redis", "before"), ("consumer, before its commit", "after")]
PAUSE_S = 0.8


class WayOfAPost(Frame):
    kind, height = "way", 270
    title = "Way of a post"
    hint = ("One post from its row to the last feed. Step it by hand, let a station die on the way, replay what was handled. Relay and "
            f"consumer are the real ones, here in this process; a small world of its own, threshold {THRESHOLD} followers.")

    def __init__(self, b):
        super().__init__(b)
        self.post: Post | None = None
        self.seen: Trace | None = None
        self.paused, self.log = True, []
        authors = [("ordinary, 4 followers: pushed", ORDINARY), ("celebrity, 6 followers: pulled", CELEBRITY)]
        self.author = self.choice("author", authors, ORDINARY)
        self.write = self.button("Write a post", self.on_write, "Row and outbox row, in one transaction", main=True)
        self.step = self.button("Step", self.on_step, "The next station does its work once")
        self.play = self.button("Play", self.on_play, "A step a second")
        self.pause = self.button("Pause", self.on_pause, "Stop playing")
        self.finish = self.button("Run to the end", self.on_finish, "All that is left, as fast as it goes")
        self.death = self.choice("who dies", DEATHS, "relay")
        self.kill = self.button("Step and kill", self.on_kill, "The station dies there; another takes its place")
        self.replay = self.button("Replay", self.on_replay, "Redis forgets how far the consumer was")
        self.cards = w.HTML()
        self.show([self.author, self.write], [self.step, self.play, self.pause, self.finish], [self.death, self.kill, self.replay],
                  self.cards)
        self.redraw()

    # --- handlers -----------------------------------------------------------------------------------------------------------

    def on_write(self) -> None:
        self.task(self._write, self.author.value)

    def _write(self, author: int) -> None:
        if self.hand is None:
            self.say("opening the stations")
            self._world()
        with self.lock:
            self.post = posts.create(self.lab.conn, self.lab.ids, self.lab.names, author, "a post on its way")
            self.note(f"Post {self._short()} of author {author} and its outbox row were committed in one transaction.", fresh=True)
            self.redraw()

    def _world(self) -> None:
        lab = self.own_lab(threshold=THRESHOLD)
        for user in (ORDINARY, CELEBRITY, *READERS):
            posts.create_user(lab.conn, user, f"user {user}")
            posts.visit(lab.conn, user)
        for author, fans in ((ORDINARY, 4), (CELEBRITY, 6)):
            for reader in READERS[:fans]:
                follows.follow(lab.conn, lab.redis, lab.names, reader, author)
        self.pump()
        for reader in READERS:
            lab.page(reader)                       # the feed is there, so that a delivery lands

    def on_step(self) -> None:
        self._idle()
        self._step()

    def on_finish(self) -> None:
        self._idle()
        if self._next() is None:
            self._step()                           # says that nothing is on its way
        while self._next() is not None:
            self._step(quiet=True)
        self.redraw()

    def on_kill(self) -> None:
        self._idle()
        self._step(die=self.death.value)

    def on_play(self) -> None:
        self.paused = False
        self.task(self._play)

    def _play(self) -> None:
        while not self.paused and not self.ending.is_set():
            with self.lock:
                if self._next() is None:
                    break
                self._step()
            self.ending.wait(PAUSE_S)
        self.paused = True

    def on_pause(self) -> None:
        self.paused = True

    def halt(self) -> None:
        self.paused = True

    def on_replay(self) -> None:
        self._idle()
        if self.hand is None:
            self.note("Nothing was handled yet. Write a post first.")
            return
        lab = self.lab
        for place, at in lab.redis.hgetall(lab.names.progress).items():
            if place.startswith(f"{lab.names.created}:") and int(at):      # posts alone: a follow that is replayed drops the feed
                lab.redis.hset(lab.names.progress, place, 0)
        done = self._consume()
        self.note(f"Redis forgot the consumer's place; it went back and handled {_n(done.records, 'record')} again: "
                  f"{done.deliveries} feed writes tried, {done.added} new. Delivery is idempotent.")
        self.redraw()

    def _idle(self) -> None:
        """Stop playing; the step that runs is waited for."""
        self.paused = True

    # --- stations ---------------------------------------------------------------------------------------------------------------

    def _next(self) -> str | None:
        """The station that has something to do."""
        if self.hand is None:
            return None
        if outbox.depth(self.lab.conn):
            return "relay"
        return "consumer" if kafka.lag(self.lab.admin, self.lab.redis, self.lab.names) else None

    def _step(self, die: str = "", quiet: bool = False) -> None:
        station = self._next()
        if station is None:
            self.note("Nothing is on its way. Write a post." if self.post is None else "Every queue is empty. Write another post.")
        elif die and station != ("relay" if die == "relay" else "consumer"):
            self.note(f"It is the {station}'s turn, so nobody died. Step first, or choose another death.")
        elif station == "relay":
            self._relay(die)
        else:
            self._consumer(die)
        if not quiet:
            self.redraw()

    def _relay(self, die: str) -> None:
        relay = self.hand.relay
        real, calls = relay.conn, []

        def before_the_delete() -> None:
            calls.append(1)
            if len(calls) == 3:                    # take the locks, read the rows, delete them
                raise Killed
        try:
            if die:
                relay.conn = Tap(real, before_the_delete)
            moved = relay.once()
            self.note(f"The relay took {_n(moved, 'row')} to Kafka, waited for the answer and deleted {'it' if moved == 1 else 'them'}.")
        except Killed:
            self.note("The relay died: Kafka has the record, the outbox row is still there. The next relay sends it again: at least once.")
        finally:
            relay.conn = real

    def _consumer(self, die: str) -> None:
        fanout = self.hand.fanout
        real = fanout.redis, fanout.consumer

        def dies() -> None:
            raise Killed
        try:
            if die == "before":
                fanout.redis = Tap(real[0], dies)
            elif die == "after":
                fanout.consumer = Tap(real[1], dies)
            done = self._consume()
            did = "it raised the author's pull flag and wrote the celebrity timeline, no feed" if self.seen.author == CELEBRITY else \
                f"{_n(done.deliveries, 'feed write')} tried, {done.added} new"
            self.note(f"The consumer handled {_n(done.records, 'record')}: {did}. Its place moved in the same call.")
        except Killed:
            self.note("The consumer died before Redis was written: the place is where it was, the next one handles the record."
                      if die == "before" else
                      "The consumer died before its commit: feeds and place are in Redis, the next one goes on behind the record.")
        finally:
            fanout.redis, fanout.consumer = real
            if die:
                fanout.place, fanout.stale = {}, True     # what a new process knows: nothing

    def _consume(self) -> Done:
        """Until no record waits."""
        total, end = Done(), time.monotonic() + 15
        while kafka.lag(self.lab.admin, self.lab.redis, self.lab.names) or self.hand.fanout.stale:
            done = self.hand.fanout.once(0.05)
            total.add(done)
            if time.monotonic() > end:
                raise TimeoutError("the consumer did not come to the end in 15 s.")
        return total

    # --- what is shown ----------------------------------------------------------------------------------------------------------

    def note(self, text: str, fresh: bool = False) -> None:
        self.log = [text] if fresh else [*self.log, text][-6:]
        self.tell(text)

    def _short(self) -> str:
        return f"…{self.post.id % 10_000:04d}"

    def redraw(self) -> None:
        self.seen = trace(self.lab, self.post.id) if self.post else None
        self.cards.value = self._cards()
        self.draw(self._chart())
        self.info.value = self._log()

    def _chart(self) -> go.Figure:
        t, last = self.seen, "last feed"
        if t is None:
            steps = [("row", None), ("outbox", None), ("Kafka", None), ("first feed", None), (last, None)]
        elif t.author == CELEBRITY:
            last = "celebrity timeline"
            steps = [("row", 0), ("outbox", t.outbox_ms), ("Kafka", t.kafka_ms), (last, t.last_feed_ms)]
        else:
            steps = [("row", 0), ("outbox", t.outbox_ms), ("Kafka", t.kafka_ms), ("first feed", t.first_feed_ms), (last, t.last_feed_ms)]
        names = [name for name, _ in steps]
        # every station has its line from the start, reached or not
        return plots.way_of_a_post(steps).update_yaxes(type="category", categoryorder="array", categoryarray=names, autorange=False,
                                                       range=[len(names) - 0.5, -0.6])

    def _cards(self) -> str:
        t = self.seen
        if t is None:
            states = [(name, "", "") for name in ("PostgreSQL", "outbox", "Kafka", "consumer", "Redis")]
        else:
            lab = self.lab
            ends = kafka.end_offsets(lab.admin, [lab.names.created])
            records, waiting, turn = sum(ends.values()), t.outbox == "waiting", self._next()
            places = lab.redis.hgetall(lab.names.progress)
            handled = sum(int(v) for k, v in places.items() if k.startswith(lab.names.created + ":"))
            where = f"partition {t.partition}, offset {t.offset}" if t.topic else "on its way" if not waiting else "not yet"
            feeds = (f"celebrity timeline: {'yes' if t.in_celebrity_timeline else 'not yet'}" if t.author == CELEBRITY else
                     f"in {t.feeds.holding} of {t.feeds.active_followers} feeds")
            states = [("PostgreSQL", f"post {self._short()}<br>{'flag raised' if t.flagged else 'no flag'}", "done"),
                      ("outbox", f"{_n(outbox.depth(lab.conn), 'row')} waiting", "on" if waiting else "done"),
                      ("Kafka", f"{_n(records, 'record')}<br>{where}", "" if waiting else "on" if turn == "consumer" else "done"),
                      ("consumer", f"place {handled} of {records}<br>{t.decision}", "done" if t.topic and turn is None else ""),
                      ("Redis", feeds, "done" if t.feeds.holding or t.in_celebrity_timeline else "")]
        cards = [f"<div class='fl-card {state}'><b>{n}. {name}</b>{text or '&nbsp;'}</div>"
                 for n, (name, text, state) in enumerate(states, 1)]
        return f"<div class='fl-cards'>{'<span class=fl-arrow>→</span>'.join(cards)}</div>"

    def _log(self) -> str:
        lines = "".join(f"<li>{escape(line)}</li>" for line in self.log)
        return (f"<div class='fl-gauge'>Times are by the clock of each step, since the post was written; stepped by hand they are yours. "
                f"<ol>{lines}</ol></div>")


def _n(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
