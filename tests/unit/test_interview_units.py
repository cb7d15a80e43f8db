"""What people type where a number belongs: read rightly, converted, or refused with a sentence; never a traceback."""
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedlab.errors import BadInput
from feedlab.interview.units import LARGEST, parse, read, say

TYPED = [
    ("35k/s", "reads/s", 35e3), ("3.5e4", "reads/s", 35e3), ("35,000", "reads/s", 35e3), ("35 000 reads per second", "reads/s", 35e3),
    ("~35K qps", "reads/s", 35e3), ("about 35 thousand a second", "reads/s", 35e3), ("3 G/day", "reads/s", 3e9 / 86_400),
    ("3e9/86400", "reads/s", 3e9 / 86_400), ("1.7 k per second", "posts/s", 1_700), ("1,7k/s", "posts/s", 1_700),
    ("45 billion a day", "feed writes/day", 45e9), ("45B/day", "feed writes/day", 45e9), ("520k/s", "feed writes/day", 520e3 * 86_400),
    ("150M x 300", "feed writes/day", 45e9), ("150M x 300 a day", "feed writes/day", 45e9), ("3.5×10⁴", "reads/s", 35e3),
    ("6 TB", "TB", 6), ("6TB", "TB", 6), ("6T", "TB", 6), ("6", "TB", 6), ("12.7 TiB", "TB", 12.7 * 2**40 / 1e12), ("6000 GB", "TB", 6),
    ("60 B", "bytes", 60), ("480 bits", "bytes", 60), ("10 Gbps", "GB/s", 1.25), ("2^53", "", 2**53), ("2**53", "", 2**53),
    ("20:1", "", 20), ("20x", "times", 20), ("5 %", "", 0.05), ("8m", "minutes", 8), ("480 s", "minutes", 8), ("50m", "followers", 50e6),
    ("6 TB / 64 GB", "nodes", 93.75), (".5", "", 0.5), ("5 daily", "posts/day", 5), ("1'000", "", 1_000),
]


@pytest.mark.parametrize(("typed", "unit", "value"), TYPED)
def test_typed(typed, unit, value):
    assert read(typed, unit) == pytest.approx(value)


REFUSED = [
    ("", "reads/s", "no answer yet"), ("   ", "reads/s", "no answer yet"), ("lots", "reads/s", "not a number"),
    ("6 TB", "reads/s", "an amount of memory"), ("35k reads", "reads/s", "is a count"), ("20 s", "TB", "is a time"),
    ("6 TB a day", "TB", "a bandwidth"),
    ("500 posts/s", "reads/s", "counts posts"), ("5 nodes", "cores", "counts nodes"), ("-5", "reads/s", "negative"),
    ("−5 TB", "TB", "negative"),
    ("1e400", "", "zeros"), ("9^199", "", "zeros"), ("9^9999", "", "up to 200"), ("30-40k", "reads/s", "range"),
    ("30 to 40k/s", "reads/s", "range"),
    ("0", "reads/s", "Zero"), ("1/0", "", "divided by 0"), ("nan", "", "not a number"), ("inf", "", "not a number"),
    ("5 blorps", "", "no unit"),
    ("1.2.3", "", "not a number"), ("3 4", "", "not a number"), ("٣", "", "not a number"), ("9" * 81, "",
    "characters long"), ("k", "", "not a number"),
    ("5 /", "", "not a number"), ("3 4 5/s", "reads/s", "not a number"), ("<script>", "", "not a number"),
    ("35k/s; drop table", "reads/s", "not a number"),
]


@pytest.mark.parametrize(("typed", "unit", "said"), REFUSED)
def test_refused_with_a_sentence(typed, unit, said):
    with pytest.raises(BadInput, match=said) as e:
        read(typed, unit)
    assert str(e.value)[-1] in ".?" and len(str(e.value)) < 250


def test_a_prediction_may_be_zero():
    assert read("0 posts", "posts", zero=True) == 0


@given(st.text(max_size=90))
def test_any_text_is_a_number_or_a_sentence(text):
    for unit in ("reads/s", "TB", "minutes", ""):
        try:
            value = read(text, unit, zero=True)
        except BadInput as e:
            assert str(e)
        else:
            assert math.isfinite(value) and value >= 0


numbers = st.floats(1e-3, 1e12, allow_nan=False).map(lambda x: float(f"{x:.6g}"))
FORMS = [("{}/s", "reads/s", 1), ("{} reads per second", "reads/s", 1), ("{} a day", "reads/s", 1 / 86_400), ("{} k/s", "reads/s", 1e3),
         ("{}TB", "TB", 1), ("{} GiB", "TB", 2**30 / 1e12), ("{} min", "s", 60), ("{} million", "", 1e6), ("{}%", "", 0.01),
         ("about {} TB", "TB", 1)]


@given(numbers, st.sampled_from(FORMS), st.sampled_from(["{:.6g}", "{:.12f}", "{:,.6f}", "{:.6e}"]))
def test_a_value_survives_every_form(value, form, digits):
    pattern, unit, factor = form
    typed = pattern.format(digits.format(value))
    if value * max(1, factor) < LARGEST:
        assert read(typed, unit) == pytest.approx(value * factor, rel=1e-5, abs=1e-6 * factor)


@given(numbers, st.sampled_from(["reads/s", "TB", "minutes", "nodes", ""]))
def test_what_is_shown_can_be_typed(value, unit):
    assert read(say(value, unit), unit) == pytest.approx(value, rel=0.006)


def test_units_of_scenarios_are_units():
    assert parse("1 feed writes/day").kind.startswith("a rate") and parse("1 GB/s").kind.startswith("a bandwidth")
