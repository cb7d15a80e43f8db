"""policy.toml: what is written can be read, what is wrong is one sentence."""
import doctest

import numpy as np
import pytest

from feedlab.core import policy
from feedlab.core.policy import KINDS, Edges, Rates
from feedlab.errors import BadInput
from feedlab.policies import files


def test_examples_in_the_docstrings():
    for module in (files, policy):
        assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("kind", KINDS)
def test_every_policy_goes_round(tmp_path, kind):
    rule = KINDS[kind]()
    assert files.write(tmp_path / "policy.toml", rule) == [tmp_path / "policy.toml"]
    loaded = files.load(tmp_path / "policy.toml")
    assert loaded.policy == rule and loaded.rates.default_posts == 0.5
    assert "--policy policy.toml` decides" in (tmp_path / "policy.toml").read_text() and files.parse(kind) == rule


def test_rates_go_beside_it_when_they_are_asked_for(tmp_path):
    rates = Rates(np.array([3, 9]), np.array([0.1, 1 / 3]), np.array([2.5, 1e-7]), None, 0.7, 8.0)
    assert len(files.write(tmp_path / "a.toml", policy.Threshold(5), rates)) == 1
    assert [p.name for p in files.write(tmp_path / "b.toml", policy.MinCost(0.3), rates, {"graph": "g"})] == ["b.rates.csv.gz", "b.toml"]
    loaded = files.load(tmp_path / "b.toml")
    for of in ("posts_of", "reads_of"):           # to the last bit: decisions must be the same
        assert getattr(loaded.rates, of)([3, 9, 4]).tolist() == getattr(rates, of)([3, 9, 4]).tolist()
    assert loaded.basis == {"graph": "g"}


BAD = [
    ("", "no [policy]"), ("[policy]\n", "no [policy]"), ("x = [", "not a policy file"),
    ("[policy]\nkind = 'nope'\n", "there is no policy 'nope'"), ("[policy]\nkind = 'threshold'\nlimit = 1\n", "no 'limit'"),
    ("[policy]\nkind = 'threshold'\nfollowers = -1\n", "whole number from 0, got -1"),
    ("[policy]\nkind = 'threshold'\nfollowers = 1.5\n", "whole number"), ("[policy]\nkind = 'threshold'\nfollowers = true\n", "got True"),
    ("[policy]\nkind = 'min-cost'\nh_over_l = nan\n", "got nan"), ("[policy]\nkind = 'slices'\nturn = 0\n", "at least 1"),
    ("[policy]\nkind = 'lag-driven'\ncalm = 9\nflood = 9\n", "calm below flood"), ("[policy]\nkind='push-all'\n[other]\n", "'other'"),
    ("[policy]\nkind='push-all'\n[rates]\nposts_a_day=-1\n", "numbers from 0"),
    ("[policy]\nkind='push-all'\n[rates]\nfile='x.csv'\n", "x.csv"),
]


@pytest.mark.parametrize("text, words", BAD)
def test_a_bad_file_is_one_sentence(tmp_path, text, words):
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(BadInput) as e:
        files.load(path)
    assert words in str(e.value) and "policy.toml" in str(e.value) or "x.csv" in str(e.value)


@pytest.mark.parametrize("text, words", [
    ("nope", "there is no policy"), ("nope:3", "there is no policy"), ("threshold:x", "not a number"), ("threshold:1,2", "takes followers"),
    ("push-all:1", "takes no numbers"), ("threshold:limit=1", "no 'limit'"), ("threshold:-1", "from 0"),
    ("hysteresis:1,inf", "whole number")])
def test_bad_words_on_the_command_line(text, words):
    with pytest.raises(BadInput, match=words):
        files.parse(text)


def test_places_and_functions_that_cannot_be_written(tmp_path):
    with pytest.raises(BadInput, match="cannot be written"):
        files.write(tmp_path / "no" / "policy.toml", policy.PushAll())
    with pytest.raises(BadInput, match="mine is a function of your own"):
        def mine(e):
            return True
        files.write(tmp_path / "policy.toml", mine)
    with pytest.raises(BadInput, match="cannot be read"):
        files.load(tmp_path / "policy.toml")
    assert list(tmp_path.iterdir()) == []


# --- the callables themselves ------------------------------------------------------------------------------------------------------

def test_needs_find_every_branch():
    assert policy.needs(policy.Lossy()) == {"followers", "follows", "reader", "post"}
    assert not policy.by_reader(policy.Slices()) and policy.by_reader(policy.MinCost())

    def mine(e):
        return (e.followers < 10_000) | (e.reads > 20)
    assert policy.needs(mine) == {"followers", "reads"} and policy.name_of(mine) == "mine"
    with pytest.raises(AttributeError, match="no 'age'.*followers"):
        policy.needs(lambda e: e.age > 3)


def test_hysteresis_holds_between_its_marks():
    rule = policy.Hysteresis(80, 100)
    asked = [(100, False, 0), (99, False, 1), (80, False, 1), (100, True, 0), (80, True, 0), (79, True, 1)]
    assert [int(rule(Edges(followers=f, flagged=flag))) for f, flag, _ in asked] == [want for *_, want in asked]
    assert policy.answers(rule, Edges(followers=np.array([79, 90, 100]), flagged=np.array([True, True, False])), 3).tolist() == [1, 0, 0]


def test_the_lag_lowers_the_threshold():
    rule = policy.LagDriven(10_000, 100, 500, 5_000)
    thresholds = [float(rule.threshold(lag)) for lag in (0, 500, 2_750, 5_000, 10**9)]
    assert thresholds == pytest.approx([10_000, 10_000, 1_000, 100, 100])


def test_lossy_chance_is_even_and_repeats():
    x = policy.chance(np.arange(100_000), 7)
    assert (x == policy.chance(np.arange(100_000), 7)).all() and 0 <= x.min() and x.max() < 1
    assert abs(x.mean() - 0.5) < 0.005 and abs(np.corrcoef(x, policy.chance(np.arange(100_000), 8))[0, 1]) < 0.01
