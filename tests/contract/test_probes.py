"""F9, F11 and F12 by name, and what a notebook prints."""
import pytest

from feedlab.errors import BadInput
from feedlab.verify import faults


def test_a_malformed_cursor(addresses):
    said = faults.run("F9", addresses=addresses).said
    assert said["ours"] == "10 of 10 malformed cursors are refused with 400"
    assert "500" in said["textbook"]


def test_bytes_an_entry_are_not_60(addresses):
    said = faults.run("F11", addresses=addresses).said
    small, large = (int(said[f"{n} entries"].split()[0]) for n in (100, 500))
    assert small < 40 < 60 < large, said           # a listpack far below the article's 60 B, a skiplist above
    assert said["capped at 128 by add-then-trim"] == "128 entries as skiplist"


def test_a_count_loses_no_update(addresses):
    assert faults.run("F12", addresses=addresses).said == {
        "ours": "two follows at once, count 2", "textbook": "two follows at once, count 1"}


def test_a_fault_is_called_in_one_line(addresses):
    outcome = faults.run("F3", addresses=addresses)
    assert "ours: every page equals the SQL answer" in str(outcome)
    assert "ended early: user 0, page 1" in str(outcome) and "<table>" in outcome._repr_html_()
    with pytest.raises(BadInput, match="there is no fault"):
        faults.run("F99", addresses=addresses)
