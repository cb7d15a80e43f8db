"""The six widgets in a real browser: each control is moved by the keyboard; the chart in the page and the engine behind it are seen to
change. One notebook with all six, one kernel; after a reload and after scrolling they are still there."""
import pytest
import redis
from browser_parts import ARTIFACTS, Watched, menu, notebook, open_notebook, press, push, scroll_through, title, traces
from conftest import until

from feedlab import db, relay

ALL = ("threshold", "feed_max", "way", "microscope", "burst", "faults")
NAMESPACE = "nb_t_wbrowser"
FIRST = """from feedlab.classroom import book, widgets
from feedlab.lab import world
b = book.begin('t_wbrowser')
graph = b.load(world.generate(seed=3, users=300, celebrities=4), warm=False)"""


@pytest.fixture(scope="module")
def lab(chromium, jupyter):
    """A page on the notebook, all cells run."""
    page = chromium.new_page(viewport={"width": 1180, "height": 1000})
    watched = Watched(page)
    path = notebook("widgets.ipynb", FIRST, *(f"from feedlab.classroom import widgets\nwidgets.{name}(b)" for name in ALL), "print('all six')",
                    "b.end()")
    open_notebook(page, jupyter, path)
    run_all_but_the_last(page)
    until(lambda: page.locator(".jp-OutputArea-output", has_text="all six").count(), 60, "the six widgets")
    yield watched
    page.close()


def run_all_but_the_last(page) -> None:
    """The last cell ends the book: it is run by the last test. Asked again until the first has begun, as in `run_all`."""
    prompt = page.locator(".jp-CodeCell .jp-InputPrompt").first

    def begun():
        if prompt.inner_text().strip() != "[ ]:":
            return True
        page.locator(".jp-CodeCell").last.click()
        menu(page, "Run", "Run All Above Selected Cell")
        page.wait_for_timeout(500)
        return False
    until(begun, 60, "the first cell")


@pytest.fixture
def widget(lab, request):
    """The widget of the test's name, with a screenshot at the end, whatever comes."""
    name = request.node.name.removeprefix("test_").split("_in_")[0]
    found = lab.page.locator(".fl-widget").nth(ALL.index(name))
    found.scroll_into_view_if_needed()
    until(lambda: found.locator(".js-plotly-plot").count(), 20, "its chart")
    yield found
    lab.shot(f"widget_{name}_page")
    found.screenshot(path=shot_of(name))
    lab.clean()


def shot_of(name: str):
    return ARTIFACTS / f"widget_{name}.png"


@pytest.fixture(scope="module")
def sql(addresses):
    with db.connect(addresses.postgres_url, NAMESPACE) as conn:
        yield conn


@pytest.fixture(scope="module")
def r(addresses):
    client = redis.Redis.from_url(addresses.redis_url, decode_responses=True)
    yield client
    client.close()


def settled(widget, condition, what: str, timeout_s: float = 40):
    """Until the chart in the page says so; the widget's box must have no error meanwhile."""
    def true():
        bad = widget.locator(".fl-error[role=alert]")
        assert bad.count() == 0, bad.all_inner_texts()
        return condition()
    return until(true, timeout_s, what)


def test_threshold_in_the_page(lab, widget, sql, r):
    page, before = lab.page, traces(widget)
    press(page, widget, "threshold (followers)", "ArrowLeft", 3)
    settled(widget, lambda: traces(widget).get("now", {}).get("x") == [150], "the circle at 150")
    assert traces(widget)["now"]["y"] != before["now"]["y"] and title(widget).startswith("Threshold 150:")
    until(lambda: db.knobs(sql)["threshold"] == 150, 10, "the engine's knob")
    press(page, widget, "busiest tenth writes", "ArrowLeft", 2)
    settled(widget, lambda: traces(widget).get("model", before["model"])["y"] != before["model"]["y"], "another curve")
    push(page, widget, "Pin this setting")
    settled(widget, lambda: "pin A" in traces(widget), "a pin")
    push(page, widget, "Start the workload")
    settled(widget, lambda: traces(widget).get("measured", {}).get("x") == [150], "a measured point")
    press(page, widget, "threshold (followers)", "ArrowLeft", 4)
    # the keys come one by one, so that a threshold in between may have been measured too
    settled(widget, lambda: traces(widget).get("measured", {"x": [0]})["x"][-1] == 30, "a measured point at the new threshold")
    writes, pulls = traces(widget)["measured"]["y"], traces(widget)["measured: pulls"]["y"]
    assert writes[-1] < writes[0] and pulls[-1] > pulls[0], "fewer feed writes, more pulls a page"
    until(lambda: db.knobs(sql)["threshold"] == 30, 10, "the engine's knob")
    counted = int(r.hget(f"{NAMESPACE}:stats", "deliveries"))
    settled(widget, lambda: int(r.hget(f"{NAMESPACE}:stats", "deliveries")) > counted, "feeds being written")
    press(page, widget, "active users", "ArrowLeft", 1)
    settled(widget, lambda: "80%" in widget.locator("table.fl").inner_text() and "equal to the graph" in widget.inner_text(),
            "a measured point with fewer active users")
    push(page, widget, "Stop")
    until(lambda: relay.running(sql, NAMESPACE) == 0, 20, "the relay's end")


def test_feed_max_in_the_page(lab, widget, r):
    page, before = lab.page, traces(widget)
    press(page, widget, "FEED_MAX (entries)", "ArrowLeft", 3)
    settled(widget, lambda: traces(widget).get("now", {}).get("x") == [250], "the circle at 250")
    press(page, widget, "encoding limit", "ArrowRight", 2)
    cliff = "model, valkey-9.1"
    settled(widget, lambda: traces(widget).get(cliff, before[cliff]) != before[cliff], "the cliff elsewhere")
    press(page, widget, "pages a visit (mean)", "ArrowRight", 1)
    below = "below the floor"
    settled(widget, lambda: traces(widget).get(below, before[below]) != before[below], "deeper scrolls")
    push(page, widget, "Probe this FEED_MAX")
    settled(widget, lambda: traces(widget).get("measured", {}).get("x") == [250], "a measured feed")
    key = f"{NAMESPACE[:16]}_max:feed:1"
    assert r.zcard(key) == 251, "250 entries and the floor"
    assert traces(widget)["measured"]["y"] == [r.memory_usage(key, samples=0) / 1000], "the engine holds what is shown"


def test_way_in_the_page(lab, widget, r, sql):
    page, space = lab.page, f"{NAMESPACE[:16]}_way"
    push(page, widget, "Write a post")
    settled(widget, lambda: "1 row waiting" in widget.inner_text(), "the row")
    post, = sql.execute(f"select max(id) from {space}.posts").fetchone()
    assert sql.execute(f"select count(*) from {space}.outbox").fetchone()[0] == 1
    push(page, widget, "Step and kill")
    settled(widget, lambda: "The relay died" in widget.inner_text(), "a death")
    push(page, widget, "Step")
    settled(widget, lambda: "2 records" in widget.inner_text(), "sent again")
    assert sql.execute(f"select count(*) from {space}.outbox").fetchone()[0] == 0
    push(page, widget, "Step")
    settled(widget, lambda: "in 4 of 4 feeds" in widget.inner_text(), "delivered")
    assert r.zscore(f"{space}:feed:3", f"{post:019d}") is not None
    push(page, widget, "celebrity, 6 followers: pulled")
    push(page, widget, "Write a post")
    settled(widget, lambda: "1 row waiting" in widget.inner_text(), "the next post")
    push(page, widget, "Play")
    settled(widget, lambda: "celebrity timeline: yes" in widget.inner_text(), "the celebrity's way")
    before = int(r.hget(f"{space}:stats", "added"))
    push(page, widget, "Replay")
    settled(widget, lambda: "Delivery is idempotent" in widget.inner_text(), "a replay")
    assert int(r.hget(f"{space}:stats", "added")) == before


def test_microscope_in_the_page(lab, widget, r, sql):
    page, key = lab.page, f"{NAMESPACE[:16]}_micro:feed:0"
    push(page, widget, "Read the top")
    settled(widget, lambda: len(traces(widget).get("this page", {"x": []})["x"]) == 4, "a page of four")
    first = traces(widget)
    push(page, widget, "Next page")
    settled(widget, lambda: traces(widget).get("this page", first["this page"])["text"] != first["this page"]["text"], "the next page")
    press(page, widget, "posts a page", "ArrowRight", 2)
    settled(widget, lambda: len(traces(widget).get("this page", {"x": []})["x"]) == 6, "a page of six")
    push(page, widget, "Evict the feed")
    settled(widget, lambda: traces(widget).get("feed in Redis", {"x": [1]})["x"] == [], "no feed")
    assert not r.exists(key)
    push(page, widget, "Rebuild the feed")
    settled(widget, lambda: len(traces(widget).get("feed in Redis", {"x": []})["x"]) == 10, "a feed")
    assert r.zcard(key) == 11
    push(page, widget, "Delete the newest")
    settled(widget, lambda: len(traces(widget).get("SQL answer", first["SQL answer"])["x"]) == 23, "one post less")
    push(page, widget, "Unfollow / follow")
    settled(widget, lambda: "A" not in {t[0] for t in traces(widget).get("SQL answer", first["SQL answer"])["text"]}, "one author less")
    push(page, widget, "Unfollow / follow")
    widget.locator("input[type=checkbox]").focus()
    page.keyboard.press("Space")
    settled(widget, lambda: "Events wait now" in widget.inner_text(), "delivery switched off")
    push(page, widget, "Write")
    settled(widget, lambda: "1 event wait" in widget.inner_text(), "an event that waits")
    assert sql.execute(f"select count(*) from {NAMESPACE[:16]}_micro.outbox").fetchone()[0] == 1
    widget.locator("input[type=checkbox]").focus()
    page.keyboard.press("Space")
    settled(widget, lambda: "equals the SQL answer" in widget.inner_text() and
            len(traces(widget).get("SQL answer", {"x": []})["x"]) == 24, "delivered")


def test_burst_in_the_page(lab, widget, sql):
    page = lab.page
    press(page, widget, "size of a burst", "ArrowRight", 1)
    push(page, widget, "Start the workload")
    settled(widget, lambda: len(traces(widget).get("events waiting", {"x": []})["x"]) > 2, "looks")
    assert db.knobs(sql)["threshold"] == 2_000
    push(page, widget, "Inject the burst")
    settled(widget, lambda: max(traces(widget).get("events waiting", {"y": [0]})["y"]) > 400, "a queue")
    settled(widget, lambda: min(traces(widget).get("threshold", {"y": [2_000]})["y"]) < 2_000, "a threshold that gives way")
    press(page, widget, "posts a second", "ArrowRight", 1)
    push(page, widget, "Kill the consumer")
    settled(widget, lambda: "consumer killed" in widget.inner_text(), "a mark in the chart")
    settled(widget, lambda: traces(widget).get("events waiting", {"y": [1]})["y"][-1] == 0, "nothing waits any more", 60)
    push(page, widget, "Stop")


def test_faults_in_the_page(lab, widget):
    page = lab.page
    push(page, widget, "Run it on both")
    settled(widget, lambda: "textbook: missing" in traces(widget), "what the textbook loses")
    assert traces(widget)["textbook: missing"]["text"] == ["6", "5", "4"] and "every page equals the SQL answer" in widget.inner_text()
    push(page, widget, "F3")
    until(lambda: title(widget).startswith("F3"), 20, "another fault")
    push(page, widget, "Run it on both")
    until(lambda: "textbook: missing" in traces(widget) and title(widget).startswith("F3"), 40, "what the textbook loses")


def end_the_book(page, sql) -> None:
    """Run the last cell, and see the engines without this notebook."""
    page.locator(".jp-CodeCell").last.click()
    page.keyboard.press("Control+Enter")

    def gone() -> bool:
        return sql.execute("select count(*) from pg_namespace where starts_with(nspname, %s)", (NAMESPACE[:16],)).fetchone()[0] == 0
    until(gone, 40, "clean engines")


def test_the_last_cell_leaves_nothing(lab, sql, r):
    end_the_book(lab.page, sql)
    until(lambda: next(r.scan_iter(match=f"{NAMESPACE[:16]}*", count=1000), None) is None, 10, "no key left")
    first = lab.page.locator(".fl-widget").first
    until(lambda: first.get_by_role("button", name="Start the workload").is_disabled(), 10, "grey buttons")
    lab.clean()


def test_still_there_after_scrolling_and_a_reload(chromium, jupyter, sql):
    """In a notebook with one widget, as ours are."""
    page = chromium.new_page(viewport={"width": 1180, "height": 700})
    watched = Watched(page)
    open_notebook(page, jupyter, notebook("reloaded.ipynb", FIRST, "widgets.threshold(b)", *(["'a line'"] * 8), "b.end()"))
    run_all_but_the_last(page)
    widget = page.locator(".fl-widget")
    until(lambda: page.get_by_text("'a line'").count() == 16 and widget.locator(".js-plotly-plot").count(), 60, "a widget and lines")
    page.keyboard.press("Control+s")
    until(lambda: page.locator(".jp-mod-dirty").count() == 0, 20, "the notebook saved")
    for again in (False, True):
        for _ in range(3 if again else 0):
            # jupyterlab_widgets 3.0.17 gives up on a model two seconds by the clock after it was wanted, even when it has come meanwhile
            # (get_model does not look once more): on a machine so busy that the page stands still for that long one reloads again
            page.reload()
            until(lambda: widget.locator(".js-plotly-plot").count() or page.get_by_text("model not found").count(), 60, "the chart")
            if widget.locator(".js-plotly-plot").count():
                break
        if not widget.locator(".js-plotly-plot").count():          # or runs the cell again, which must help at once
            page.locator(".jp-CodeCell .cm-content").nth(1).click()
            page.keyboard.press("Shift+Enter")
            until(lambda: widget.locator(".js-plotly-plot").count(), 30, "the chart, run again")
        scroll_through(page)
        watched.clean()
        before, = until(lambda: traces(widget).get("now", {}).get("x"), 20, "the mark on the chart")
        press(page, widget, "threshold (followers)", "ArrowLeft", 1)
        now, = until(lambda: (x := traces(widget).get("now", {}).get("x")) and x[0] < before and x, 20, "the slider works")   # noqa: B023
        until(lambda: db.knobs(sql)["threshold"] == now, 10, "and the knob behind it")                                     # noqa: B023
    watched.shot("widget_reloaded")
    end_the_book(page, sql)
    page.close()
