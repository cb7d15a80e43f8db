"""Predictions are kept, scored, and never a reason for a notebook to fail."""
import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedlab.classroom import predictions
from feedlab.classroom.predictions import Kept, Store, checked, number_score, score, sentence
from feedlab.errors import BadInput

NUMBER = st.floats(1e-6, 1e12)


@given(NUMBER, NUMBER)
def test_a_score_is_between_0_and_10_and_the_same_both_ways(said, measured):
    assert 0 <= number_score(said, measured) <= 10
    assert number_score(said, measured) == pytest.approx(number_score(measured, said), abs=0.011)


@given(NUMBER)
def test_nearer_never_scores_less(measured):
    scores = [number_score(measured * f, measured) for f in (1, 1.1, 2, 5, 10, 100)]
    assert scores == sorted(scores, reverse=True) and scores[0] == 10 and scores[-1] == 0


@pytest.mark.parametrize(("said", "measured", "points"), [
    ("reads", "reads", 10), ("reads", "writes", 0), (0, 0, 10), (0, 5, 0), (-5, 5, 0),
    ({1: 10, 2: 20}, {1: 10, 2: 20}, 10), ({1: 10, 2: 200}, {1: 10, 2: 20}, 5), ({1: 10}, {3: 10}, 0)])
def test_scores(said, measured, points):
    assert score(said, measured) == points


@pytest.mark.parametrize(("value", "choices", "says"), [
    ("49", None, "must be a number, got '49'"), (float("nan"), None, "must be a number"), (True, None, "must be a number"),
    ("b", ["a", "c"], "Choose one of: a, c"), ({}, None, "has no point"), ({1: "x"}, None, "must be a number, got 'x'")])
def test_what_cannot_be_predicted_is_refused_in_words(value, choices, says):
    with pytest.raises(BadInput, match=says):
        checked("a question", value, choices)


def test_the_store_keeps_what_was_said_in_order(tmp_path):
    store = Store(tmp_path / "deep" / "predictions.json")
    store.keep(Kept("06", "writes", 49, 60, "feed writes"))
    store.keep(Kept("06", "curve", {50: 1.0}, {50.0: 2.0}))
    store.keep(Kept("00", "pages", "a", "b", measured="b", score=10.0))
    assert [(k.notebook, k.label) for k in store.all()] == [("00", "pages"), ("06", "writes"), ("06", "curve")]
    assert store.get("06", "writes").value == 60 and store.get("06", "curve").value == {50.0: 2.0}
    assert store.get("06", "other") is None


@pytest.mark.parametrize("text", ["", "not json", "[1, 2]", "\x00"])
def test_a_broken_file_is_no_reason_to_fail(tmp_path, text):
    path = tmp_path / "predictions.json"
    path.write_text(text)
    store = Store(path)
    assert store.all() == []
    store.keep(Kept("00", "a", 1, 1))
    assert len(store.all()) == 1 and json.loads(path.read_text())


def test_several_kernels_may_write(tmp_path):
    store = Store(tmp_path / "predictions.json")
    threads = [threading.Thread(target=store.keep, args=(Kept(f"{n:02d}", "a", n, n),)) for n in range(12)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(store.all()) == 12


def test_sentences():
    assert sentence(Kept("a", "q", "x", "x", measured="y", score=0.0)) == "q: you said x; it is: y (0 of 10)"
    assert sentence(Kept("a", "q", 2, 2, "posts", 2.0, 10.0)) == "q: you said 2, measured 2 posts (10 of 10)"


def test_the_control_reports_each_change():
    seen = []
    number = predictions.control(Kept("a", "q <b>", 5, 5), None, seen.append)
    assert "<b>" not in number.children[0].value.removeprefix("<b>I predict: ").removesuffix("</b>")
    number.children[1].value = 7
    choice = predictions.control(Kept("a", "q", "x", "x"), ["x", "y"], seen.append)
    choice.children[1].value = "y"
    curve = predictions.control(Kept("a", "q", {1.0: 2.0, 3.0: 4.0}, {1.0: 2.0, 3.0: 4.0}), None, seen.append)
    curve.children[2].value = 9.0
    assert seen == [7, "y", {1.0: 2.0, 3.0: 9.0}]


def test_a_curve_is_drawn_beside_the_measured_one():
    fig = predictions.figure(Kept("a", "q", {1.0: 2.0, 100.0: 4.0}, {1.0: 2.0, 100.0: 4.0}, "u", {1.0: 3.0, 100.0: 5.0}, 8.0))
    assert [list(t.y) for t in fig.data] == [[2.0, 4.0], [3.0, 5.0]] and fig.layout.xaxis.type == "log"
