"""One scenario from start to scorecard in a real browser, by keyboard, with its experiments live; in the middle the kernel is restarted."""
import json
from pathlib import Path

from browser_parts import ARTIFACTS, kernel_is_idle, menu, notebook, open_notebook, push, run_all, title
from conftest import until

ROOM = "from feedlab.interview import stepper\nfrom feedlab.config import settings\nstepper.room('pages-that-repeat', 'mid')"
WHERE = "print('state', settings().state_dir)"


def begin(page):
    run_all(page)
    until(lambda: page.locator(".iv-room").count(), 60, "the room")
    return page.locator(".iv-room")


def asked(room) -> str:
    return room.locator(".iv-ask").inner_text()


def step_with(room, text: str) -> None:
    until(lambda: room.locator(".iv-ask", has_text=text).count(), 20, f"the step “{text}”")


def choose(page, room, text: str) -> None:
    """Into the group of choices, and on by Tab to the one with this text."""
    options = room.locator("input[type=radio]")
    until(options.count, 10, "the choices")
    labels = room.locator(".widget-radio-box label").all_inner_texts()
    wanted = next(i for i, label in enumerate(labels) if text in label)
    options.first.focus()
    for _ in range(wanted):
        page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert options.nth(wanted).is_checked()
    page.wait_for_timeout(300)            # the page sends the choice


def said(room, text: str, timeout_s: float = 30) -> None:
    until(lambda: text in room.locator(".iv-said").all_inner_texts().__str__(), timeout_s, text)


def fill(page, room, placeholder: str, text: str, enter: bool = True) -> None:
    """Type into a field and press Enter in it."""
    room.get_by_placeholder(placeholder).focus()
    page.keyboard.type(text)
    if enter:
        page.keyboard.press("Enter")


def settle(page, room, answer: str) -> None:
    push(page, room, "Answer")
    said(room, answer)


def measured(page, room, *titles: str) -> None:
    """The experiments have run, and their figures are on the page."""
    for text in titles:
        until(lambda text=text: any(text in title(o) for o in room.locator(".widget-output").all()), 60, f"a figure “{text}”")
    page.wait_for_timeout(300)


def on(page, room) -> None:
    push(page, room, "Next")


def test_a_scenario_from_start_to_scorecard(watched, jupyter):
    page = watched.page
    open_notebook(page, jupyter, notebook("interview_test.ipynb", ROOM, WHERE))
    room = begin(page)
    watched.shot("interview_lobby")
    push(page, room, "Begin")

    step_with(room, "What do you want to know?")
    for question, fact in (("how is the next page asked for?", "offset and limit"), ("how many new posts come in?", "6 posts a minute"),
                           ("what are the ids?", "Snowflakes")):
        fill(page, room, "how many users are there?", question)
        said(room, fact)
    push(page, room, "Go on")
    said(room, "✓ Right.")
    watched.shot("interview_clarify")
    on(page, room)

    step_with(room, "With an offset")
    for bad, sentence in (("6 TB", "an amount of memory"), ("many", "not a number"), ("-2", "negative")):
        room.get_by_placeholder("35k/s").fill(bad)
        room.get_by_placeholder("35k/s").press("Enter")
        until(lambda sentence=sentence: sentence in room.locator(".iv-box").all_inner_texts().__str__(), 20, sentence)
    watched.shot("interview_refused")
    room.get_by_placeholder("35k/s").fill("2 posts")
    room.get_by_placeholder("35k/s").press("Enter")
    said(room, "✓ Right.")
    on(page, room)

    # a new kernel: nothing is lost
    # what stands there now is of the old kernel: it is marked, and what is waited for has no mark
    page.evaluate("document.querySelectorAll('.jp-OutputArea-output').forEach(o => o.classList.add('t-old'))")
    menu(page, "Run")
    page.locator(".lm-Menu-itemLabel", has_text="Restart Kernel and Run All Cells").click()
    page.locator(".jp-Dialog .jp-mod-accept").click()
    until(lambda: page.locator(".jp-OutputArea-output:not(.t-old) .iv-ask", has_text="two scrolls of four pages").count(), 60,
          "the room after the restart")
    until(lambda: page.locator(".t-old").count() == 0, 20, "the old outputs gone")
    kernel_is_idle(page)
    printed = until(lambda: page.locator(".jp-OutputArea-output", has_text="state ").all_inner_texts(), 30)[-1]
    state = Path(printed.split("state ")[1].strip())
    assert json.loads(next((state / "interview" / "sessions").glob("*.json")).read_text())["answers"]["repeats"]["said"] == "2 posts"

    fill(page, room, "a number", "0 posts")
    measured(page, room, "Posts shown twice")
    said(room, "✓ Right.")
    room.locator(".js-plotly-plot").first.scroll_into_view_if_needed()
    watched.shot("interview_predict")
    on(page, room)

    step_with(room, "What is in the cursor?")
    choose(page, room, "the next page is everything strictly older")
    settle(page, room, "◐ Partly right (20%).")
    measured(page, room, "pages wrong")
    room.scroll_into_view_if_needed()
    watched.shot("interview_choice")
    room.screenshot(path=ARTIFACTS / "interview.png")
    on(page, room)

    step_with(room, "cursor=abc:1")
    choose(page, room, "400 and a sentence")
    settle(page, room, "✓ Right.")
    measured(page, room, "Malformed cursors")
    on(page, room)

    step_with(room, "Which fault is it?")
    assert "is deleted" in room.locator(".iv-shown").inner_text()
    choose(page, room, "F6")
    settle(page, room, "✓ Right.")
    measured(page, room, "pages wrong")
    watched.shot("interview_spot")
    on(page, room)

    step_with(room, "nextCursor")
    fill(page, room, "In your own words", "Null only at the true end, and we filter before we cut.", enter=False)
    page.wait_for_timeout(500)
    push(page, room, "Answer")
    said(room, "tick the points")
    boxes = room.locator("input[type=checkbox]")
    assert boxes.count() == 2
    boxes.first.focus()
    page.keyboard.press("Space")
    page.wait_for_timeout(300)
    push(page, room, "These I said")
    said(room, "◐ Partly right (50%).")
    push(page, room, "Scorecard")

    until(lambda: "of the points" in room.locator("h3").all_inner_texts().__str__(), 30, "the scorecard")
    assert "every level up to mid is met" in room.locator("h3").first.inner_text()
    room.locator("details").first.locator("summary").click()
    room.scroll_into_view_if_needed()
    watched.shot("interview_scorecard")
    assert room.get_by_role("img", name="100%").count() >= 2
    card = json.loads(next((state / "interview" / "scorecards").glob("*.json")).read_text())
    assert card["answered"] == card["steps"] == 7 and set(card["experiments"]) == {"paging", "fault-F1", "fault-F9", "fault-F6"}
    watched.clean()

    # and the exported page, by itself, offline
    page.goto(f"file://{next((state / 'interview' / 'scorecards').glob('*.html'))}")
    until(lambda: page.locator(".js-plotly-plot").count() == 4, 30, "the figures of the exported card")
    page.screenshot(path=ARTIFACTS / "interview_card_page.png")
    watched.clean()
