"""A check says what was expected, what came, within what, and the usual mistake."""
import math

import pytest

from feedlab.classroom.exercises import Wrong, check


def even(x):
    "an even number"
    return x % 2 == 0


@pytest.mark.parametrize(("got", "want", "tolerance"), [
    (98, 98, 0), (100, 98, 0.05), ([1, 2], [1, 2], 0), ("reads", "reads", 0), (4, even, 0), (0.1 + 0.2, 0.3, 1e-9)])
def test_right(capsys, got, want, tolerance):
    check("7", got, want, tolerance)
    assert capsys.readouterr().out.startswith("right: exercise 7")


@pytest.mark.parametrize(("got", "want", "tolerance", "says"), [
    (110, 98, 0.05, "exercise 7: expected 98 within 5 %, got 110. The usual mistake: mixed up."),
    ([1], [1, 2], 0, "exercise 7: expected [1, 2], got [1]. The usual mistake: mixed up."),
    (3, even, 0, "exercise 7: expected an even number, got 3. The usual mistake: mixed up."),
    ("x", even, 0, "exercise 7: the answer 'x' cannot be looked at"),
    ("98", 98, 0.05, "exercise 7: expected 98 within 5 %, got '98'"),
    (math.nan, 98, 0.05, "got nan"), (True, 1, 0.05, "got True"), (math.inf, 98, 0.5, "got inf")])
def test_wrong(got, want, tolerance, says):
    with pytest.raises(Wrong) as e:
        check("7", got, want, tolerance, mistake="mixed up.")
    assert says in str(e.value)


def test_a_notebook_shows_one_line_and_no_traceback():
    with pytest.raises(Wrong) as e:
        check("7", 1, 2)
    assert e.value._render_traceback_() == ["Wrong: exercise 7: expected 2, got 1."]
