"""A cursor has one spelling, comes back byte for byte, and anything else is BadInput: never a 500, never page one (F9,
R41)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedlab.core import cursor
from feedlab.core.model import MAX_ID, MAX_MS, START, Entry
from feedlab.errors import BadInput
from feedlab.verify.faults import BAD_CURSORS

ENTRIES = st.builds(Entry, st.integers(0, MAX_MS), st.integers(0, MAX_ID))

BAD = [
    # R41's own
    *BAD_CURSORS,
    "5:",
    ":5",
    # beyond what a post can have
    f"{MAX_MS + 1}:1",
    f"1:{MAX_ID + 1}",
    "9" * 16 + ":1",
    "9" * 400 + ":1",
    # other spellings of a good place: a cursor is compared and cached as text
    "01:5",
    "1:05",
    "00:0",
    "+1:5",
    "1:+5",
    "1:-5",
    " 1:5",
    "1:5 ",
    "1 :5",
    "1:5\n",
    "\n1:5",
    "1:5\r\n",
    "1_0:5",
    "0x1:5",
    "1.0:5",
    "1:5:",
    ":",
    "null",
    "undefined",
    "None",
    "NaN:NaN",
    "1;5",
    "1,5",
    "1\0:5",
    "1:5\0",
    # digits that int() would take: Arabic, Devanagari, full width, superscript; a full-width colon
    "\u0661\u0662:\u0663",
    "1:\u0663",
    "\u0967:\u0968",
    "\uff11:\uff15",
    "\u00b2:\u00b3",
    "1\uff1a5",
]


@pytest.mark.parametrize("text", BAD)
def test_r41_bad_cursors(text):
    with pytest.raises(BadInput) as e:
        cursor.parse(text)
    said = str(e.value)
    assert "createdAtMillis:postId" in said and "nextCursor" in said and len(said) < 400  # what was wrong, what to do


@given(
    st.one_of(st.text(max_size=40), st.text("0123456789:-+e. \u0663", max_size=20), st.from_regex(r"\d{1,17}:\d{1,20}"))
)
def test_any_text_is_refused_or_comes_back_byte_for_byte(text):
    try:
        entry = cursor.parse(text)
    except BadInput:
        return
    assert cursor.text(entry) == text and text.isascii()
    assert 0 <= entry.ms <= MAX_MS and 0 <= entry.id <= MAX_ID


@given(ENTRIES)
def test_round_trip(entry):
    assert cursor.parse(cursor.text(entry)) == entry


def test_r46_the_way_through_a_browser():
    """As a JSON string it survives; 653247040368672768 as a JSON number would not (2^53)."""
    text = cursor.text(Entry(1_760_245_800_123, 653247040368672768))
    assert json.loads(json.dumps({"nextCursor": text}))["nextCursor"] == text
    assert float(653247040368672769) == 653247040368672768  # what a number would have become


def test_none_is_the_start_and_above_every_post():
    assert cursor.parse(None) == START
    assert cursor.parse(cursor.text(START)) == START
    assert Entry(MAX_MS, MAX_ID - 1) < START
