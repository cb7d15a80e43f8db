"""The widget without a browser and without an engine: what its controls do, that nothing is raised or printed, that a new kernel goes on
where the old one was."""
import json

import pytest

from feedlab.config import Settings
from feedlab.errors import EngineDown
from feedlab.interview import experiments, stepper
from feedlab.interview.experiments import EXPERIMENTS, Found
from feedlab.interview.walk import right_answer

NOWHERE = {"postgres_url": "postgresql://u:p@127.0.0.1:1/x", "redis_url": "redis://127.0.0.1:1/0", "kafka_bootstrap": "127.0.0.1:1"}


@pytest.fixture
def opened(tmp_path):
    made = []

    def room(name=None, level=None, **options):
        made.append(stepper.room(name, level, settings=Settings(state_dir=tmp_path, **NOWHERE), **options))
        return made[-1]
    yield room
    for r in made:
        r.stop()


def entered(opened, name="lost-events", level="mid"):
    r = opened(name, level)
    r.start.click()
    assert r.message.value == "" and r.room is not None
    return r


def press(r, label: str) -> None:
    found = [b for b in buttons(r.body) if b.description.startswith(label)]
    assert found, [b.description for b in buttons(r.body)]
    found[0].click()


def buttons(box) -> list:
    found = []
    for child in getattr(box, "children", ()):
        found += [child] if type(child).__name__ == "Button" else buttons(child)
    return found


def ran(monkeypatch):
    """Experiments that answer at once: what they measure is tested live."""
    def run(name, settings, say):
        say("working", 1, 2)
        numbers = dict.fromkeys(EXPERIMENTS[name].measures, 0) | ({"commit_then_send": 1} if name == "crash" else {})
        return Found(name, EXPERIMENTS[name].title, f"{name} ran.", numbers, {"data": [], "layout": {"title": {"text": "t"}}}, 0.1, 0.0)
    monkeypatch.setattr(experiments, "run", run)


def test_the_lobby_lists_all_and_writes_nothing(opened, tmp_path):
    r = opened()
    assert len(r.pick.options) == 12 and r.start.description == "Begin" and not (tmp_path / "interview").exists()
    r.pick.value = "ranked-feed"
    r.level.value = "staff"
    r.start.click()
    assert (r.room.scenario.name, r.room.session.level) == ("ranked-feed", "staff")


def test_a_mistake_is_said_in_the_box_and_scores_nothing(opened, capsys):
    r = entered(opened)
    press(r, "Go on")
    press(r, "Next")
    for typed, said in (("", "no answer yet"), ("lots", "not a number"), ("6 TB", "an amount of memory"), ("-3", "negative")):
        r.input.value = typed
        press(r, "Answer")
        assert said in r.message.value and "role='alert'" in r.message.value and r.room.answered is None
    r.question.value = " "
    press(r, "Ask")
    assert "Ask something" in r.message.value
    r.guarded(lambda: 1 / 0)
    assert "ZeroDivisionError" in r.message.value, "whatever a handler raises is visible"
    r.guarded(lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    assert "Interrupted" in r.message.value
    assert capsys.readouterr() == ("", "")


def test_through_a_whole_scenario_to_the_card(opened, monkeypatch, tmp_path):
    ran(monkeypatch)
    r = entered(opened, "lost-events", "senior")
    r.question.value = "in which order are the two written?"
    press(r, "Ask")
    assert "BEGIN, INSERT, COMMIT" in r.message.value and "BEGIN" in r.facts.value
    for n, step in enumerate(r.room.steps):
        assert r.room.step is step
        said = right_answer(r.room)
        if step.kind != "clarify":
            r.input.value = " ".join(map(str, said)) if isinstance(said, list) else said
        press(r, "Go on" if step.kind == "clarify" else "Answer")
        if step.kind == "say":
            for box in r.input.children:
                box.value = True
            press(r, "These I said")
        assert r.message.value == "" and "Read on" in r.feedback.value, r.message.value
        for name in r.room.evidence(step) + ([step.experiment] if step.kind == "predict" else []):
            assert r.charts[name].outputs[0]["data"]["application/vnd.plotly.v1+json"]["layout"]
        if n + 1 < len(r.room.steps):
            press(r, "Next")
    assert "decides" not in r.feedback.value
    press(r, "Scorecard")
    assert r.room.done and "every level up to senior is met" in r.head.value
    kept = list((tmp_path / "interview" / "scorecards").glob("*.json"))
    assert len(kept) == 1 and json.loads(kept[0].read_text())["share"] > 0.9
    press(r, "Another one")
    assert r.room is None and r.start.description == "Begin"


def test_back_forth_hints_and_the_clock(opened):
    r = entered(opened)
    press(r, "Next")
    r.input.value = "half an ans"
    assert [b.description for b in buttons(r.body) if b.description.startswith("Hint")] == []
    press(r, "Back")
    press(r, "Hint")
    assert "There are two systems" in str([c.value for c in r.body.children if hasattr(c, "value")])
    press(r, "Pause")
    assert r.room.session.clock == "paused" and "(paused)" in r.time.value
    press(r, "Start the clock")
    press(r, "No clock")
    assert r.time.value.count("no clock") == 1
    press(r, "Start the clock")
    assert r.room.session.clock == "runs"
    press(r, "End")
    assert r.room.done and "0% of the points" in r.head.value


def test_a_new_kernel_goes_on_where_the_old_one_was(opened):
    r = entered(opened)
    press(r, "Go on")
    press(r, "Next")
    r.input.value = "1500 posts a day"
    press(r, "Answer")
    again = opened("lost-events")                  # the cell run again, by another process
    assert again.room.session.answers == r.room.session.answers and again.room.step.id == "lost" and "Right." in again.feedback.value
    lobby = opened("lost-events", "staff")         # another level is another interview
    assert lobby.room is None and lobby.start.description == "Begin"
    lobby.level.value = "mid"
    assert lobby.start.description == "Go on"


def test_engines_down(opened):
    r = entered(opened, "lost-events", "senior")
    for step in ("lost", "spot"):
        r.room.goto(step, 0.0)
        r.show()
        r.input.value = right_answer(r.room)
        press(r, "Answer")
        assert "✓ Right." in r.feedback.value
    assert "Start them with `feedlab up`" in r.message.value and "Run the experiment" in [b.description for b in buttons(r.nav)]
    with pytest.raises(EngineDown):
        r.run(["fault-F8"])
    assert r.busy.value == ""


def test_unknown_names_are_sentences(opened):
    from feedlab.errors import BadInput
    with pytest.raises(BadInput, match="there is no scenario"):
        opened("nowhere")
