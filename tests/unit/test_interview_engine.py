"""The interview as a state machine, without an engine: back and forth, resuming, scoring, the clock; every scenario headless with right,
wrong, empty and absurd answers; scorecard, store, drills."""
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedlab.errors import BadInput
from feedlab.interview import drills, scorecard
from feedlab.interview.engine import GAP_S, Interview, Session, begin, factor_credit
from feedlab.interview.experiments import EXPERIMENTS
from feedlab.interview.scenario import LEVELS, scenarios
from feedlab.interview.store import Store
from feedlab.interview.walk import right_answer
from feedlab.interview.words import bars

ALL = scenarios()


def enter(name: str, level: str = "senior", **options) -> Interview:
    return Interview(ALL[name], begin(ALL[name], level, now=1000.0, **({"seed": 1} | options)))


def found(name: str, **numbers) -> dict:
    """What an experiment would have written down; that it does is tested live (test_interview_live.py)."""
    filled = dict.fromkeys(EXPERIMENTS[name].measures, 0) | numbers
    return {"name": name, "title": EXPERIMENTS[name].title, "sentence": f"{name} ran.", "numbers": filled, "seconds": 1.0, "at": 0.0,
            "figure": {"data": [{"type": "bar", "orientation": "h", "x": [1, 2], "y": ["a", "b"]}], "layout": {"title": {"text": "t"}}}}


def wrong_answer(room: Interview):
    step = room.step
    if step.kind == "estimate":
        return f"{1000 * room.scenario.figures.value(step.value):.6g}"
    if step.kind == "choose":
        return min(range(len(step.options)), key=lambda i: step.options[i].credit)
    if step.kind == "spot":
        return next(f for f in step.among if f != step.fault)
    if step.kind == "order":
        shown = [k for k, _ in room.choices()]
        return [shown.index(i) + 1 for i in reversed(range(len(step.items)))]
    if step.kind == "predict":
        return list(step.shapes)[-1] if step.shapes else "1e9"
    return "I do not know that" if step.kind == "say" else "done"


def measured(room: Interview, right: bool) -> None:
    """Record what each prediction waits for, so that the guess of `right_answer` is right, or not."""
    for step in room.steps:
        if step.kind == "predict":
            key = next(iter(step.shapes)) if step.shapes else 1.0
            other = "something else" if step.shapes else 7e7
            room.record(step.experiment, found(step.experiment, **{step.measure: key if right else other}))


# --- every scenario, headless ----------------------------------------------------------------------------------------------

@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ALL)
def test_right_answers_get_every_point(name, level):
    room = enter(name, level)
    for fact in room.scenario.facts:
        assert room.text(fact.answer) in room.ask(fact.ask), f"{fact.id} is not brought out by its own question"
    for step in room.steps:
        room.goto(step.id, 1001.0)
        said = room.answer(right_answer(room), 1001.0)
        if said.awaits == "ticks":
            said = room.tick_points(list(range(1, len(room.scenario.points(step, level)) + 1)), 1001.0)
        if step.kind == "predict":
            assert said.awaits == "experiment" and said.credit is None
            assert "decides" in said.right, "what is right is not told before the run"
        else:
            assert said.credit == 1, (step.id, said)
            assert len(said.right) > 40 and said.read_on
    measured(room, right=True)
    room.end(1100.0)
    card = scorecard.make(room)
    # a figure of a prediction is guessed as 1, which is right when 1 is what comes
    assert card["share"] == 1 and card["reached"] == level
    assert all(r["met"] for r in card["levels"]) and [r["level"] for r in card["levels"]] == list(LEVELS[:LEVELS.index(level) + 1])


@pytest.mark.parametrize("name", ALL)
def test_wrong_answers_get_few_and_are_told_what_is_right(name):
    room = enter(name, "staff")
    for step in room.steps:
        room.goto(step.id, 1001.0)
        said = room.answer(wrong_answer(room), 1001.0)
        if said.awaits == "ticks":
            said = room.tick_points("0", 1001.0)
        if step.kind == "choose":
            best = next(o for o in step.options if o.credit == 1)
            assert room.text(best.because) in said.right and said.right.startswith("Yours: ")
            assert room.evidence(step)[-1] == best.experiment and len(said.others) == len(step.options) - 2
        assert said.credit is None or said.credit < 0.65, (step.id, said)
    measured(room, right=False)
    room.end(1100.0)
    card = scorecard.make(room)
    assert card["share"] < 0.2 and card["reached"] == "" and card["not_asked"]


ABSURD = ["", "   ", "lots", "-5", "1e400", "6 parsecs", "9" * 100, "\x00", "<script>alert(1)</script>", "0", "99", "1 1 1",
          "None", "²", "F99"]


@pytest.mark.parametrize("name", ALL)
def test_empty_and_absurd_answers_are_refused_and_score_nothing(name):
    room = enter(name, "staff")
    for step in room.steps:
        room.goto(step.id, 1001.0)
        for text in ABSURD:
            before = json.dumps(room.session.as_dict())
            if step.kind == "clarify" or step.kind == "predict" and text == "0" and not step.shapes:
                continue                       # anything ends the questions; 0 may be predicted
            if step.kind == "predict" and text == "99" and not step.shapes or step.kind == "estimate" and text == "99":
                continue                       # a number like any other
            if step.kind == "say" and len(re.findall(r"\w+", text)) >= 3:
                continue                       # a text, of whatever kind
            with pytest.raises(BadInput) as e:
                room.answer(text, 1001.0)
            assert len(str(e.value)) > 10 and "Traceback" not in str(e.value)
            assert json.dumps(room.session.as_dict()) == before, "nothing was scored or kept"
    assert not room.session.answers.keys() - {"clarify"}
    assert scorecard.make(room)["share"] == 0


@given(st.text(max_size=60))
def test_whatever_is_typed_is_an_answer_or_a_sentence(text):
    for step in ALL["new-years-burst"].steps:
        room = enter("new-years-burst", "staff")
        room.goto(step.id, 1001.0)
        try:
            room.answer(text, 1001.0)
        except BadInput as e:
            assert str(e)
        Session.of(json.loads(json.dumps(room.session.as_dict())))


# --- back and forth, saved and resumed ---------------------------------------------------------------------------------------

def test_back_and_forth_and_the_first_answer_counts():
    room = enter("lost-events")
    assert not room.back(1.0) and room.index == 0
    assert room.forth(1.0) and room.step.id == "lost"
    room.answer("1500 posts a day", 1.0)
    with pytest.raises(BadInput, match="first answer counts"):
        room.answer("7", 1.0)
    assert room.back(1.0) and room.step.id == "clarify" and room.answered is None
    room.forth(1.0)
    assert room.feedback().verdict == "right" and "1,500 posts/day" in room.feedback().answered
    while room.forth(1.0):
        pass
    assert room.index == len(room.steps) - 1 and len(room.open_steps()) == len(room.steps) - 1
    with pytest.raises(BadInput, match="no step"):
        room.goto("nowhere", 1.0)


def test_nothing_is_lost_between_two_processes(tmp_path):
    store = Store(tmp_path)
    room = enter("design-the-feed")
    room.changed = lambda: store.save(room.session)
    room.ask("how many users are there?")
    room.forth(1005.0)
    room.hint()
    room.answer("35k/s", 1010.0)
    room.forth(1011.0)
    room.record("paging", found("paging"))
    again = Interview(ALL["design-the-feed"], store.unfinished("design-the-feed"))       # another process
    assert again.session == room.session and again.step.id == "writes" and again.known() == room.known()
    assert again.choices(again.by_id["model"]) == room.choices(room.by_id["model"]), "options stay where they were"
    assert again.points(again.by_id["reads"]) == pytest.approx(0.8), "the hint is still paid for"
    again.end(1020.0)
    store.save(again.session)
    assert store.unfinished("design-the-feed") is None and store.unfinished("lost-events") is None
    with pytest.raises(BadInput, match="has ended"):
        again.answer("5", 1030.0)


def test_damaged_files_are_passed_over_and_left(tmp_path):
    store = Store(tmp_path)
    store.save(enter("lost-events").session)
    for name, text in (("a", "{"), ("b", "[]"), ("c", '{"version": 2, "answers": {}}'), ("d", '{"version": 1}'), ("e", "null")):
        store.write(f"sessions/{name}.json", text)
        store.write(f"scorecards/{name}.json", text)
    store.write("drills.json", "nothing")
    assert [s.scenario for s in store.sessions()] == ["lost-events"] and store.cards() == []
    assert store.drilled(True) == {"now": 1, "best": 1, "right": 1, "all": 1}
    assert (tmp_path / "sessions" / "a.json").read_text() == "{"


def test_a_state_folder_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "interview").write_text("a file, not a folder")
    with pytest.raises(BadInput, match="cannot be written.*FEEDLAB_STATE_DIR"):
        Store(tmp_path / "interview").save(enter("lost-events").session)


def test_a_scenario_that_was_edited_meanwhile():
    session = enter("lost-events").session
    session.answers = {"gone": begin(ALL["lost-events"], "mid", now=0.0) and Session.of(session.as_dict()).answers.get("x")}
    session.at = "gone"
    room = Interview(ALL["lost-events"], session)
    assert room.step.id == "clarify" and session.answers == {}


def test_levels_ask_more():
    counts = [len(enter("design-the-feed", level).steps) for level in LEVELS]
    assert counts == sorted(set(counts))
    with pytest.raises(BadInput, match="mid, senior, staff"):
        enter("design-the-feed", "wizard")


# --- scoring -----------------------------------------------------------------------------------------------------------------

def test_an_estimate_within_the_factor_its_square_and_beyond():
    for said, credit in (("35k/s", 1.0), ("3 billion a day", 1.0), ("50k/s", 0.5), ("100k/s", 0.0), ("35/s", 0.0)):
        room = enter("design-the-feed")
        room.goto("reads", 1.0)
        assert room.answer(said, 1.0).credit == credit, said


@given(st.floats(1e-6, 1e15), st.floats(1e-6, 1e15), st.floats(1.01, 10))
def test_too_much_and_too_little_count_alike(got, right, tolerance):
    assert factor_credit(got, right, tolerance) == factor_credit(right, got, tolerance) in (0, 0.5, 1)
    assert factor_credit(right, right, tolerance) == 1


def test_each_hint_takes_a_fifth_and_there_are_none_after_the_answer():
    room = enter("design-the-feed")
    room.forth(1.0)
    assert room.hint() and room.hint() and room.hint() is None
    room.answer("35k/s", 1.0)
    assert room.points(room.step) == pytest.approx(0.6) and room.hint() is None and len(room.hints()) == 2


def test_a_prediction_waits_for_its_run_and_is_judged_by_it():
    room = enter("design-the-feed", "mid")
    room.goto("shape", 1.0)
    said = room.answer("writes-fall-pulls-rise", 1.0)
    assert said.verdict == "not known yet" and room.points(room.step) == 0 and room.evidence() == ["threshold"]
    room.record("threshold", found("threshold", shape="writes-fall-pulls-rise"))
    now = room.feedback()
    assert now.credit == 1 and now.measured == ["threshold ran."] and "as measured just now" in now.right and room.evidence() == []


def test_an_order_is_scored_by_the_pairs_that_matter():
    for order, credit in (([1, 2, 3, 4, 5, 6], 1.0), ([1, 2, 3, 5, 6, 4], 1.0), ([6, 5, 4, 3, 2, 1], 0.0)):
        room = enter("design-the-feed")
        room.goto("way", 1.0)
        shown = [k for k, _ in room.choices()]
        assert shown != sorted(shown), "never shown in the right order"
        assert room.answer(" ".join(str(shown.index(i - 1) + 1) for i in order), 1.0).credit == credit
    with pytest.raises(BadInput, match="each of the numbers 1 to 6 once"):
        (r := enter("design-the-feed")).goto("way", 1.0) or r.answer("1 2 3", 1.0)


def test_spot_takes_a_name_a_number_and_a_fault_that_is_not_offered():
    for said, credit in (("F8", 1.0), (" f8 ", 1.0), ("4", 1.0), ("F12", 0.0), ("1", 0.0)):
        room = enter("lost-events")
        room.goto("spot", 1.0)
        assert "transaction stays open" in room.shown() and [k for k, _ in room.choices()] == ["F2", "F3", "F7", "F8", "F10"]
        assert room.answer(said, 1.0).credit == credit, said


def test_ticks_are_counted_once_and_checked():
    room = enter("design-the-feed", "staff")
    room.goto("challenge", 1.0)
    with pytest.raises(BadInput, match="no text"):
        room.tick_points("1", 1.0)
    room.answer("Not everybody needs a feed.", 1.0)
    for bad in ("4", "1 x", "-1", "1.5"):
        with pytest.raises(BadInput, match="from 1 to 3"):
            room.tick_points(bad, 1.0)
    assert room.tick_points("1, 3", 1.0).credit == pytest.approx(2 / 3)
    with pytest.raises(BadInput, match="ticked already"):
        room.tick_points("1", 1.0)


def test_facts_come_only_when_asked_for():
    room = enter("the-celebrity")
    assert room.known() == []
    assert room.ask("How many followers does it have?") == ["50 million followers. Some hundreds of accounts have more than a million."]
    assert room.ask("what is your favourite colour?") == ["That is left to you: state an assumption, and go on."]
    assert room.ask("HOW MANY FOLLOWERS???") and len(room.known()) == 1, "twice is once"
    with pytest.raises(BadInput, match="Ask something"):
        room.ask("   ")
    said = room.answer("done", 1.0)
    assert 0 < said.credit < 1 and "Still worth asking" in said.right and room.session.missed == ["what is your favourite colour?"]


def test_the_clock_runs_pauses_and_is_switched_off():
    room = enter("design-the-feed")
    assert room.tick(1010.0) == 10
    room.set_clock("paused", 1020.0)
    assert room.tick(1090.0) == 20
    room.set_clock("runs", 1100.0)
    assert room.tick(1105.0) == 25
    assert room.tick(1105.0 + GAP_S) == 25, "a lid that was closed"
    room.resume(9000.0)
    assert room.tick(9003.0) == 28, "a restart"
    room.answer("done", 9004.0)
    assert room.tick(9100.0) == 29, "it stands still after the answer"
    room.forth(9100.0)
    room.set_clock("off", 9110.0)
    assert room.tick(9500.0) == 10
    with pytest.raises(BadInput, match="runs, paused, off"):
        room.set_clock("fast", 9500.0)
    room.end(9500.0)
    assert scorecard.make(room)["clock"] == "off"


# --- scorecard -------------------------------------------------------------------------------------------------------------------

def finished(name="lost-events", level="mid", good=True, at=2000.0) -> Interview:
    room = enter(name, level, seed=3)
    for step in room.steps:
        room.goto(step.id, 1001.0)
        said = room.answer(right_answer(room) if good else wrong_answer(room), 1001.0)
        if said.awaits == "ticks":
            room.tick_points("1" if good else "", 1001.0)
    room.record("crash", found("crash", commit_then_send=1))
    room.end(at)
    return room


def test_the_card_is_exported_whole_and_the_history_shows_progress(tmp_path):
    store = Store(tmp_path)
    bad, good = scorecard.make(finished(good=False)), scorecard.make(finished(at=3000.0))
    scorecard.export(bad, store)
    html, data = scorecard.export(good, store)
    assert json.loads(data.read_text()) == good
    page = html.read_text()
    assert "default-src 'none'" in page and "http://" not in page.split("<script")[0]
    assert "Plotly.newPlot" in page and "crash ran." in page
    for row in good["rubric"]:
        assert row["rubric"] in page
    rows = scorecard.progress(store.cards())
    assert [r["change"] is None for r in rows] == [True, False] and rows[1]["change"] > 0
    assert rows[1]["change"] == pytest.approx(good["share"] - bad["share"], abs=1e-3)
    assert f"{rows[1]['change']:+.0%}" in page


def test_what_was_typed_cannot_steer_the_page():
    room = enter("design-the-feed")
    room.goto("decides", 1.0)
    room.answer("<script>alert(1)</script> is what I say", 1.0)
    room.tick_points("", 1.0)
    room.end(2.0)
    page = scorecard.page(scorecard.make(room))
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page


def test_an_act_has_evidence_and_a_strong_answer():
    card = scorecard.make(finished())
    for act in card["acts"]:
        assert act["act"] and act["asked"] and act["answered"] and act["strong"] and act["read_on"] and act["verdict"] != "no answer"
    assert next(a for a in card["acts"] if a["step"] == "crashes")["measured"] == ["crash ran."]
    assert "every level up to mid is met" in scorecard.headline(card)


def test_an_empty_interview_has_a_card_too():
    room = enter("ranked-feed", "staff")
    room.end(1.0)
    card = scorecard.make(room)
    assert card["share"] == 0 and card["answered"] == 0
    assert "no answer" in scorecard.fragment(card) and "first level" in scorecard.headline(card)


# --- drills --------------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind", drills.KINDS)
def test_drills_are_fresh_computed_and_answerable(kind):
    made = [drills.drill(seed, kind) for seed in range(12)]
    assert len({d.ask for d in made}) > 6 and all(d.right > 0 and d.tolerance > 1 for d in made)
    for d in made:
        assert "{" not in d.ask + d.way and d == drills.drill(d.seed, kind)
        assert d.judge(f"{d.right:.4g}").right and not d.judge(f"{d.right * 50:.4g}").right
        assert "too little" in d.judge(f"{d.right / 50:.4g}").sentence
        with pytest.raises(BadInput):
            d.judge("no idea")


def test_a_drill_takes_other_units_of_the_same_kind():
    d = drills.drill(11, "feed-writes")
    assert d.judge(f"{d.right / 86_400:.6g} writes/s").right
    with pytest.raises(BadInput, match="a rate"):
        d.judge("6 TB")
    with pytest.raises(BadInput, match="there is no drill"):
        drills.drill(kind="sums")


def test_the_streak(tmp_path):
    store = Store(tmp_path)
    for right, now, best in ((True, 1, 1), (True, 2, 2), (False, 0, 2), (True, 1, 2)):
        s = store.drilled(right)
        assert (s["now"], s["best"]) == (now, best)
    assert Store(tmp_path).streak() == {"now": 1, "best": 2, "right": 3, "all": 4}


def test_a_figure_as_text():
    rows = bars(found("paging")["figure"])
    assert rows[0] == "t" and rows[2].count("█") == 2 * rows[1].count("█")
    assert bars({"data": [{"type": "scatter", "x": [1], "y": [2]}], "layout": {"title": {"text": "only this"}}}) == ["only this"]
    assert bars({}) == [""]
