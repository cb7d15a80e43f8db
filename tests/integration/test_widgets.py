"""Each widget's handlers on live engines, without a browser: exact counts, knobs moved, nothing left behind, errors in the box."""
import os
import signal
import statistics
import subprocess
import sys
import threading
import time

import psutil
import pytest
from conftest import until

from feedlab import db, kafka, pull
from feedlab.addresses import Addresses
from feedlab.classroom import book, live_run, widgets
from feedlab.classroom.widgets.feed_microscope import FEED_MAX, READER
from feedlab.core.check import Verdict
from feedlab.lab import world
from feedlab.verify import faults

NAME = "t_widgets"
ALL = ("threshold", "feed_max", "way", "microscope", "burst", "faults")


@pytest.fixture(scope="module")
def graph():
    return world.generate(seed=3, users=300, celebrities=4)


@pytest.fixture(scope="module")
def b(addresses, graph):
    made = book.begin(NAME)
    made.load(graph, warm=False)
    yield made
    made.end()
    left = left_of(made.addresses, made.settings.namespace[:16])
    left += [t.name for t in threading.enumerate() if t.name.startswith("feedlab")]
    assert left == [], left


@pytest.fixture(autouse=True)
def widgets_end_with_their_test():
    """Also where it fails: what one test leaves running is not the next one's finding."""
    yield
    widgets.stop_all()


def left_of(a: Addresses, prefix: str) -> list[str]:
    """Whatever is still there of these namespaces: schemas, keys, topics, processes."""
    import redis
    with db.connect(a.postgres_url, "public") as conn:
        found = [f"schema {n}" for n, in conn.execute("select nspname from pg_namespace where starts_with(nspname, %s)", (prefix,))]
    r = redis.Redis.from_url(a.redis_url)
    found += [f"key {k}" for k in r.scan_iter(match=f"{prefix}*", count=1000)]
    found += [f"topic {t}" for t in kafka.admin(a.kafka_bootstrap).list_topics(timeout=10).topics if t.startswith(prefix)]
    return found + workers(prefix)


def workers(prefix: str) -> list[str]:
    """Processes of a relay or consumer in these namespaces."""
    found = []
    for p in psutil.process_iter(["cmdline"]):
        try:
            if "feedlab.lab.workers" in (p.info["cmdline"] or []) and p.environ().get("FEEDLAB_NAMESPACE", "").startswith(prefix):
                found.append(f"process {p.pid}")
        except psutil.Error:
            pass
    return found


def good(w) -> bool:
    """The box has no error. Shows it in the failure."""
    assert "fl-error" not in w.message.value, w.message.value
    return True


def samples(w, n: int, timeout_s: float = 60) -> list:
    """`n` more samples of the widget's run."""
    first = len(w.run.samples) if w.run else 0
    until(lambda: good(w) and w.run is not None and len(w.run.samples) >= first + n, timeout_s, f"{n} samples")
    return w.run.samples[first:]


# --- all of them --------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ALL)
def test_made_quickly_and_starts_nothing(b, name):
    getattr(widgets, name)(b)                         # imports, and the first figure of this process
    threads, processes = threading.active_count(), len(workers(b.settings.namespace[:16]))
    began = time.monotonic()
    w = getattr(widgets, name)(b)
    assert time.monotonic() - began < 2
    assert (threading.active_count(), len(workers(b.settings.namespace[:16]))) == (threads, processes)
    assert w.lab is None and w.worker is None
    bundle = w._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    picture = bundle["application/vnd.plotly.v1+json"]
    assert picture["layout"]["title"]["text"] == w.static().layout.title.text and len(picture["data"]) == len(w.static().data)
    assert bundle["text/plain"].startswith(w.title)
    w.stop()


@pytest.mark.parametrize("name", ALL)
def test_each_control_has_words_and_ends_with_the_widget(b, name):
    w = getattr(widgets, name)(b)
    assert all(c.description for c in w._controls)
    w.stop()
    w.stop()
    assert all(c.disabled for c in w._controls)


def test_errors_are_said_in_the_box(b):
    w = widgets.faults(b)
    w.guarded(lambda: 1 / 0)
    assert "ZeroDivisionError" in w.message.value and "Run this cell again" in w.message.value and "role='alert'" in w.message.value
    w.task(lambda: {}["nothing"])
    w.wait()
    assert "KeyError" in w.message.value
    w.on_fault("F3")
    assert w.message.value == "", "the next action starts with an empty box"
    w.stop()
    w.go.click()
    assert "Run its cell again" in w.message.value


def test_text_in_the_box_is_text(b):
    w = widgets.faults(b)
    w.tell("<script>x</script>")
    assert "<script>" not in w.message.value
    w.fail(ValueError("<b>"))
    assert "<b>" not in w.message.value
    w.stop()


def test_an_engine_that_is_away_is_a_sentence(b, monkeypatch):
    away = b.addresses.__class__(**vars(b.addresses) | {"postgres_url": "postgresql://feedlab@127.0.0.1:9/feedlab"})
    w = widgets.way(b)
    real = b.addresses
    monkeypatch.setattr(b, "addresses", away)
    w.write.click()
    w.wait()
    assert "PostgreSQL does not answer" in w.message.value and "feedlab doctor" in w.message.value
    monkeypatch.setattr(b, "addresses", real)
    w.write.click()
    w.wait()
    assert good(w) and w.post is not None, "once it is back, the same button works"
    w.stop()


# --- threshold ----------------------------------------------------------------------------------------------------------------

COUNTED = """
    with fans as (select followee_id, count(*) n from follows group by 1)
    select coalesce(sum(f.n), 0)::bigint from posts p join fans f on f.followee_id = p.author_id where p.id > %s and f.n < %s"""


def test_threshold_live_is_exact_and_the_pages_do_not_change(b):
    lab = b.open()
    w = widgets.threshold(b)
    w.on_threshold(10_000)
    assert db.knobs(lab.conn)["threshold"] == 10_000, "the slider moves the knob of whatever consumer runs here"
    w.on_start()
    first = lab.ids.next()[0]
    seen = {10_000: samples(w, 2)[-1]}
    for threshold in (50, 10, 1_000):
        w.on_threshold(threshold)
        until(lambda: w.run.samples[-1].threshold == threshold, 30, "a sample of the new threshold")     # noqa: B023
        seen[threshold] = samples(w, 2)[-1]
        assert db.knobs(lab.conn)["threshold"] == threshold
        assert w.measured().threshold == threshold
    w.on_stop()
    assert good(w) and not w.run.running
    runs: dict[int, live_run.Sample] = {}
    for s in w.run.samples:
        assert s.deliveries == s.expected, s
        runs[s.threshold] = s                          # the last of each setting has all its posts
    assert sum(s.posts for s in runs.values()) == lab.conn.execute("select count(*) from posts where id > %s", (first,)).fetchone()[0]
    at = first
    for s in runs.values():                            # the same count by SQL, setting by setting: ids are in the order of writing
        rows = [i for i, in lab.conn.execute("select id from posts where id > %s order by id limit %s", (at, s.posts))]
        since, later = (lab.conn.execute(COUNTED, (start, s.threshold)).fetchone()[0] for start in (at, rows[-1]))
        assert s.deliveries == since - later, s
        at = rows[-1]
    assert seen[10_000].pulls_a_page == 0 < seen[50].pulls_a_page < seen[10].pulls_a_page
    assert seen[1_000].pulls_a_page == 0, "who fell below the threshold was brought back to push"
    assert 3 * seen[10].writes_a_post < seen[50].writes_a_post and 3 * seen[10].writes_a_post < seen[10_000].writes_a_post
    lab.reader.copies.clear()
    for user in range(1, 11):
        assert lab.page(user, limit=50).ids == [e.id for e in pull.everything(lab.conn, user)][:50]
    w.stop()


def test_threshold_pins_and_figures(b):
    w = widgets.threshold(b)
    w.on_threshold(100)
    began = time.perf_counter()
    w.on_threshold(50)
    assert time.perf_counter() - began < 1, "150 ms on a quiet machine"
    before = w.chart.outputs[0]["data"]
    assert before["text/plain"].startswith("Figure: Threshold 50:")
    w.on_skew(0.10)
    assert w.chart.outputs[0]["data"] != before
    w.on_pin()
    w.on_threshold(200)
    w.on_active(0.4)
    w.on_pin()
    w.on_threshold(700)
    w.on_pin()
    assert [p[0][0] for p in w.pins] == [200, 700], "the two latest"
    assert {"pin A", "pin B"} <= {t.name for t in w.figure.data} and "pin B, model" in w.info.value
    w.on_unpin()
    assert not {"pin A", "pin B"} & {t.name for t in w.figure.data}
    assert "300 M users" in w.info.value
    w.stop()


def test_active_share_and_skew_live(b):
    lab = b.open()
    w = widgets.threshold(b)
    w.on_threshold(1_000)
    w.on_active(0.4)
    w.on_skew(0.10)
    w.on_start()
    some = samples(w, 2)
    assert all(s.deliveries == s.expected and s.active == 0.4 for s in some)
    away = w.run.graph.users[~w.run.people.active].tolist()
    assert len(away) == 180 and not any(lab.redis.exists(lab.names.feed(u)) for u in away), "an inactive user has no feed"
    w.on_active(1.0)
    until(lambda: w.run.samples[-1].active == 1.0, 30, "everybody active again")
    last = samples(w, 1)[-1]
    assert last.deliveries == last.expected > 0
    assert "equal to the graph" in w.info.value
    w.stop()
    assert not w.run.running


def test_running_the_cell_again_stops_the_earlier(b):
    first = widgets.threshold(b)
    first.on_start()
    samples(first, 1)
    assert len(workers(b.settings.namespace)) == 2
    second = widgets.threshold(b)
    assert not first.run.running and workers(b.settings.namespace) == [] and first.go.disabled and not second.go.disabled
    second.stop()


def test_one_run_at_a_time_in_a_notebook(b):
    w, other = widgets.threshold(b), widgets.burst(b)
    w.on_start()
    samples(w, 1)
    w.go.click()
    assert "still at work" in w.message.value
    other.on_start()
    other.wait()
    assert "another live run" in other.message.value and "fl-error" in other.message.value
    w.tell("")
    samples(w, 1)
    w.stop()
    other.stop()


# --- FEED_MAX -----------------------------------------------------------------------------------------------------------------

def test_feed_max_probe_measures_bytes_and_fallback(b):
    w = widgets.feed_max(b)
    for size, encoding in ((115, "listpack"), (116, "skiplist")):
        w.on_feed_max(size)
        w.on_probe()
        w.wait()
        assert good(w)
        p = w.probes[size]
        assert (p["encoding"], p["entries"]) == (encoding, size) or p["limit"] != 128
        assert p["fell_below"] and p["below_sql"] > p["above_sql"]
        model = float(w.info.value.split("model's error there ")[1].split("%")[0])
        assert abs(model) < 15
    assert w.probes[116]["bytes"] > 2 * w.probes[115]["bytes"] or w.probes[116]["limit"] != 128
    assert "measured" in {t.name for t in w.figure.data}
    before = w.chart.outputs
    w.on_limit(512)
    assert w.chart.outputs != before
    w.on_depth(20)
    assert "below the floor" in w.figure.layout.title.text
    w.stop()


# --- way of a post ------------------------------------------------------------------------------------------------------------

@pytest.fixture
def way(b):
    w = widgets.way(b)
    w.on_write()
    w.wait()
    assert good(w)
    yield w
    w.stop()


def test_way_step_by_step(way):
    assert (way.seen.outbox, way.seen.decision) == ("waiting", "pending") and "1 row waiting" in way.cards.value
    way.on_step()
    assert (way.seen.outbox, way.seen.lag) == ("sent", 1) and "1 record" in way.cards.value
    way.on_step()
    assert (way.seen.decision, way.seen.feeds.holding, way.seen.deliveries) == ("pushed", 4, 4)
    assert [t.name for t in way.figure.data] and list(way.figure.data[0].y) == ["row", "outbox", "Kafka", "first feed", "last feed"]
    way.on_step()
    assert "Every queue is empty" in way.message.value


def test_way_a_relay_dies_and_sends_again(way):
    way.death.value = "relay"
    way.on_kill()
    assert "Kafka has the record" in way.message.value and (way.seen.outbox, way.seen.lag) == ("waiting", 1)
    way.on_finish()
    assert "handled 2 records: 8 feed writes tried, 4 new" in way.message.value and way.seen.feeds.holding == 4


@pytest.mark.parametrize(("death", "holding", "again"), [("before", 0, "4 feed writes tried, 4 new"), ("after", 4, "")])
def test_way_a_consumer_dies(way, death, holding, again):
    way.death.value = death
    way.on_kill()
    assert "turn, so nobody died" in way.message.value and way.seen.outbox == "waiting", "nobody dies out of turn"
    way.on_step()
    way.on_kill()
    assert "consumer died" in way.message.value and way.seen.feeds.holding == holding
    way.on_finish()
    assert way.seen.feeds.holding == 4 and way.seen.deliveries == 4, "nothing was delivered twice"
    assert again in way.message.value


def test_way_replay_adds_nothing(way):
    way.on_finish()
    way.author.value = 2
    way.on_write()
    way.wait()
    way.on_finish()
    assert (way.seen.decision, way.seen.flagged, way.seen.in_celebrity_timeline) == ("pulled", True, True)
    stats = way.lab.stats()["added"]
    way.on_replay()
    assert "handled 2 records again: 4 feed writes tried, 0 new" in way.message.value
    assert way.lab.stats()["added"] == stats
    for reader in range(3, 9):
        assert way.lab.page(reader).ids == [e.id for e in pull.everything(way.lab.conn, reader)]


def test_way_plays_and_pauses(way, monkeypatch):
    monkeypatch.setattr("feedlab.classroom.widgets.way_of_a_post.PAUSE_S", 30)
    way.on_play()
    until(lambda: way.seen.outbox == "sent", 10, "the first step")
    way.on_pause()
    assert way.seen.lag == 1, "paused before the second"
    way.stop()
    assert not way.worker.is_alive()


# --- microscope ---------------------------------------------------------------------------------------------------------------

@pytest.fixture
def micro(b):
    w = widgets.microscope(b)
    w.next.click()
    assert "Press Read the top" in w.message.value
    w.on_top()
    w.wait()
    assert good(w)
    yield w
    w.stop()


def lanes(w) -> dict[str, list[str]]:
    return {t.name: list(t.text or ()) for t in w.figure.data}


def test_microscope_scrolls_to_the_end(micro):
    got, pages = [], 0
    while True:
        got += micro.page.ids
        assert "equals the SQL answer" in micro.info.value
        assert lanes(micro)["this page"] == lanes(micro)["SQL answer"][len(got) - len(micro.page.ids):len(got)]
        pages += 1
        if micro.page.next_cursor is None:
            break
        micro.on_next()
    assert got == [e.id for e in pull.everything(micro.lab.conn, READER)] and pages == 6
    assert any(s.line.dash == "dash" for s in micro.figure.layout.shapes), "the cursor is a line"
    micro.on_next()
    assert "The feed ends here" in micro.message.value


def test_microscope_shows_floor_and_sources(micro):
    assert "floor" in [a.text for a in micro.figure.layout.annotations]
    assert FEED_MAX <= len(lanes(micro)["feed in Redis"]) <= FEED_MAX + 1
    assert {"Kim, pulled", "Lea, pulled"} <= set(lanes(micro))
    drawn = {name for name, entries in micro.reader.drawn if entries}
    assert drawn == {"feed", "celebrities"}
    assert not {t[0] for t in lanes(micro)["feed in Redis"]} & {"K", "L"}, "celebrities are not pushed"


def test_microscope_evict_rebuild_unfollow_delete_write(micro):
    lab = micro.lab
    micro.on_evict()
    assert not lab.redis.exists(lab.names.feed(READER)) and lanes(micro)["feed in Redis"] == []
    micro.on_top()
    assert micro.page.explain.feed == "rebuilt" and "equals" in micro.info.value
    micro.on_rebuild()
    assert len(lanes(micro)["feed in Redis"]) == FEED_MAX
    micro.author.value = 1
    newest = next(t for t in lanes(micro)["SQL answer"] if t.startswith("A"))
    micro.on_delete()
    assert newest not in lanes(micro)["SQL answer"] and newest not in lanes(micro)["this page"] and "equals" in micro.info.value
    micro.on_unfollow()
    assert not any(t.startswith("A") for t in lanes(micro)["this page"] + lanes(micro)["SQL answer"]) and "equals" in micro.info.value
    micro.on_unfollow()
    assert any(t.startswith("A") for t in lanes(micro)["SQL answer"]) and "equals" in micro.info.value
    micro.on_write()
    assert lanes(micro)["this page"][0].startswith("A") and "equals" in micro.info.value


def test_microscope_undelivered_events_show(micro):
    micro.author.value = 1
    micro.deliver.value = False
    micro.on_write()
    assert "1 event wait" in micro.message.value
    assert "differs from the SQL answer" in micro.info.value and "drained, it will not" in micro.info.value
    micro.on_delete()
    assert "equals the SQL answer" in micro.info.value, "a post that no feed has and nobody may see"
    micro.deliver.value = True
    assert micro.waiting() == 0 and "equals" in micro.info.value


# --- burst --------------------------------------------------------------------------------------------------------------------

def test_burst_lag_threshold_delay_and_kill(b, monkeypatch):
    monkeypatch.setattr(live_run.Bursts, "marks", live_run.controller.Marks(high=30, low=20, floor=50, ceiling=400, patience_s=0.5))
    w = widgets.burst(b)
    w.on_burst()
    assert "Press Start" in w.message.value
    w.on_start()
    until(lambda: good(w) and sum(t.came > 0 for t in w.ticks) >= 5, 60, "ticks with posts that came")
    calm = statistics.median(t.delay_ms for t in w.ticks if t.came)
    assert {t.threshold for t in w.ticks} == {400}
    w.size.value = 2_000
    w.on_burst()
    until(lambda: min(t.threshold for t in w.ticks) < 400, 30, "the controller")
    until(lambda: w.ticks[-1].lag < 20 and w.ticks[-1].threshold == 400, 60, "calm again")
    assert max(t.lag for t in w.ticks) > 30 and max(t.delay_ms for t in w.ticks) > 5 * calm
    w.on_kill()
    until(lambda: w.run.workers.restarts == 1, 10, "another consumer")
    at = len(w.ticks)
    until(lambda: len(w.ticks) > at + 4 and w.ticks[-1].lag == 0 and w.ticks[-1].delay_ms < 1_000, 60, "what waited is delivered")
    assert [h.text for h in w.run.happened] == ["burst of 2,000", "consumer killed"]
    assert max(t.lag for t in w.ticks[at:]) > 0, "nobody consumed for a while"
    w.redraw()
    assert [len(t.x) > 4 for t in w.figure.data] == [True] * 4
    w.on_stop()
    assert good(w) and workers(b.settings.namespace) == []
    w.stop()


# --- faults -------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name", ["F1", "F2", "F6"])
def test_fault_side_by_side(b, name):
    w = widgets.faults(b)
    w.on_fault(name)
    w.on_run()
    w.wait()
    assert good(w)
    textbook, ours = w.sides["textbook"], w.sides["ours"]
    verdict: Verdict = textbook.verdicts[0]
    assert {v.kind for v in textbook.verdicts} & set(faults.CATALOGUE[name].textbook)
    assert ours.verdicts == [] and ours.shown == ours.answer == textbook.answer
    assert verdict.sentence in w.info.value.replace("&#x27;", "'") and "every page equals the SQL answer" in w.info.value
    if name == "F2":
        crosses = next(t for t in w.figure.data if t.name == "textbook: missing")
        assert list(crosses.text) == ["6", "5", "4"] and "loses 3 of 9" in w.figure.layout.title.text
    w.stop()


def test_fault_that_is_a_probe(b):
    w = widgets.faults(b)
    w.on_fault("F9")
    w.on_run()
    w.wait()
    assert good(w)
    assert "10 of 10 malformed cursors are refused" in w.info.value and list(w.figure.data[0].x) == [10, 0]
    w.on_fault("F12")
    assert w.sides == {}, "another fault: what the first said is gone"
    w.on_run()
    w.wait()
    assert good(w)
    assert sorted(w.figure.data[0].x) == [1, 2]
    w.stop()


# --- the end of the process ---------------------------------------------------------------------------------------------------

SCRIPT = """
import sys, time
from feedlab.classroom import book, widgets
from feedlab.lab import world
b = book.begin({name!r})
b.load(world.generate(seed=3, users=120, celebrities=2), warm=False)
w = widgets.threshold(b)
w.on_start()
end = time.monotonic() + 60
while not (w.run and w.run.samples):
    time.sleep(0.02)
    assert time.monotonic() < end, w.message.value
print("runs", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_nothing_runs_on_when_the_kernel_ends(addresses, how):
    name = f"t_wend_{how}"
    env = os.environ | addresses.environment()
    kernel = subprocess.Popen([sys.executable, "-c", SCRIPT.format(name=name)], env=env, text=True, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert kernel.stdout.readline() == "runs\n", kernel.stderr.read()
        assert len(workers(f"nb_{name}")) == 2
        if how == "exit":
            _, said = kernel.communicate("\n", timeout=60)
            assert kernel.returncode == 0 and "Traceback" not in said, said
            assert left_of(addresses, f"nb_{name}"[:16]) == []
        else:
            kernel.send_signal(signal.SIGKILL)
            kernel.wait(10)
            until(lambda: workers(f"nb_{name}") == [], 20, "workers without a parent end")
    finally:
        kernel.kill()
        kernel.communicate()
        book.begin(name).end()
