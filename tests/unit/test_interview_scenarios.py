"""The scenarios that are delivered, and what is said about a mistake in one: the file, the key, what was expected."""
import re
from pathlib import Path

import pytest

from feedlab.config import project_root
from feedlab.errors import BadInput
from feedlab.interview import names
from feedlab.interview.engine import told
from feedlab.interview.experiments import EXPERIMENTS
from feedlab.interview.live import WAYS
from feedlab.interview.quantities import Figures
from feedlab.interview.scenario import LEVELS, PHASES, RUBRIC, find, read, scenarios
from feedlab.verify import faults

ALL = scenarios()
README = (project_root() / "data" / "scenarios" / "README.md").read_text()
SMALL = "\n".join(line[4:] for line in README.split("## A small one, whole")[1].splitlines())


@pytest.fixture
def written(tmp_path):
    def write(text: str) -> Path:
        path = tmp_path / "mine.toml"
        path.write_text(text)
        return path
    return write


def refused(path: Path) -> str:
    with pytest.raises(BadInput) as e:
        read(path)
    said = str(e.value)
    assert said.startswith(f"{path}: ") and said.endswith(".") and "\n" not in said and "pydantic" not in said, said
    return said.removeprefix(f"{path}: ")


# --- what is delivered ---------------------------------------------------------------------------------------------------

def test_the_article_comes_first_and_all_the_cases_are_there():
    assert list(ALL) == ["design-the-feed", "the-celebrity", "follows-5000", "delete-and-unfollow", "lost-events", "new-years-burst",
                         "memory-2-tb", "returning-user", "pages-that-repeat", "redis-failover", "do-we-need-kafka", "ranked-feed"]


@pytest.mark.parametrize("name", ALL)
def test_a_scenario_has_what_an_interview_needs(name):
    s = ALL[name]
    assert {x.phase for x in s.steps} == set(PHASES)
    assert len({x.kind for x in s.steps}) >= 5 and len(s.steps) >= 9
    assert {x.level for x in s.steps if x.follow_up} == set(LEVELS), "a follow-up for each level"
    assert sum(x.minutes for x in s.steps) <= s.minutes
    wrong = [o for x in s.steps if x.kind == "choose" for o in x.options if o.credit < 1]
    assert len(wrong) >= 4 and all(len(o.because) > 40 for o in wrong), "wrong options say what follows from them"
    order = [PHASES.index(x.phase) for x in s.steps]
    assert order == sorted(order), "phases in order"


def test_each_dimension_of_the_rubric_is_asked_somewhere():
    assert {x.rubric for s in ALL.values() for x in s.steps} == set(RUBRIC)


def test_the_popular_wrong_answer_is_settled_by_f2():
    takers = [o for s in ALL.values() for x in s.steps if x.kind == "choose" for o in x.options
              if o.experiment == "fault-F2" and o.credit < 0.3 and re.search("Nothing: below the threshold|Agreed", o.text)]
    assert len(takers) >= 2


def test_every_experiment_is_used_or_free_to_use_and_can_run():
    used = {e for s in ALL.values() for e in s.experiments}
    assert used <= EXPERIMENTS.keys() and len(used) > 30
    for name in EXPERIMENTS:
        assert name in WAYS or name.removeprefix("fault-") in faults.CATALOGUE, name


def test_names_of_faults_are_those_of_the_catalogue():
    assert names.FAULTS.keys() == {f for f in faults.CATALOGUE if re.fullmatch(r"F\d+", f)}
    assert set(names.PROBES) == {f.name for f in faults.PROBES}


def test_histories_are_told_without_leftovers_of_code():
    for f in faults.HISTORIES:
        text = told(f.history)
        assert not re.search(r"\[|\bu\b|_", text.replace("FEED_MAX", "")) and text.count("\n") <= 40, text


def test_notebooks_that_are_named_exist_or_are_the_workbook_s():
    made = {p.stem for p in (project_root() / "notebooks").glob("*.ipynb")}
    assert {b for s in ALL.values() for x in s.steps for b in x.read} <= set(names.NOTEBOOKS) and "00_start" in made


# --- finding one -------------------------------------------------------------------------------------------------------------

def test_by_name_number_and_path(written):
    assert find("2").name == find("the-celebrity").name == "the-celebrity"
    assert find(str(written(SMALL))).title == "One post"
    for name in ("99", "celebrity", "0", "../x"):
        with pytest.raises(BadInput, match="there is no scenario .* they are: design-the-feed"):
            find(name)
    with pytest.raises(BadInput, match="cannot be read"):
        find("nowhere.toml")


# --- mistakes ----------------------------------------------------------------------------------------------------------------

def test_the_readme_s_example_is_a_scenario(written):
    assert [x.kind for x in read(written(SMALL)).steps] == ["clarify", "estimate", "spot"]


MISTAKES = [
    ('title = "One post"', 'titel = "One post"', "titel: there is no such key", "title: this key is missing"),
    ('title = "One post"\n', "", "title: this key is missing"),
    ("minutes = 10", 'minutes = "ten"', "minutes: .*valid number.*'ten'"),
    ("minutes = 10", "minutes = -1", "minutes: .*greater than 0"),
    ('kind = "estimate"', 'kind = "guess"', r"steps\[2\] \(writes\): kind: expected one of clarify, estimate.*got 'guess'"),
    ('kind = "estimate"\n', "", r"steps\[2\] \(writes\): kind: this key is missing"),
    ('value = "deliveries(1, followers)"', 'value = "300"', r"steps\[2\] \(writes\): value: '300' is a literal"),
    ('value = "deliveries(1, followers)"', "value = 300", r"steps\[2\] \(writes\): value: expected text in quotes, got 300"),
    ('value = "deliveries(1, followers)"', 'value = "follower * 2"', "value: there is no quantity 'follower'"),
    ('value = "deliveries(1, followers)"', 'value = "followers / 0"', "value: .* cannot be computed"),
    ('value = "deliveries(1, followers)"', 'value = "open(followers)"', "value: there is no function 'open'"),
    ('value = "deliveries(1, followers)"', 'value = "followers.real"', "value: only numbers"),
    ('value = "deliveries(1, followers)"', 'value = "0 - followers"', "value: expected a number above 0"),
    ('unit = "feed writes"', 'unit = "blorps"', "unit: 'blorps' is no unit"),
    ("tolerance = 1.2", "tolerance = 0.5", "tolerance: .*greater than 1"),
    ('fault = "F3"', 'fault = "F13"', r"steps\[3\] \(spot\): 'F13' is not one of F1"),
    ('among = ["F2", "F3", "F6"]', 'among = ["F2", "F4", "F6"]', "among must hold the fault itself, F3"),
    ('fault = "F3"\namong = ["F2", "F3", "F6"]', 'fault = "F9"\namong = ["F2", "F9", "F6"]', "F9 has no history"),
    ('phase = "deep dive"', 'phase = "dive"', r"steps\[3\] \(spot\): phase: expected .*'deep dive'.*got 'dive'"),
    ('read = ["01_requirements_and_scale"]', 'read = ["01_scale"]', r"steps\[1\] \(clarify\): read: there is no notebook '01_scale'"),
    ('id = "spot"', 'id = "writes"', r"steps\[2\] \(writes\): id: expected an id of its own"),
    ('id = "spot"', 'id = "Spot!"', r"steps\[3\] \(Spot!\): id"),
    ('ask = "How many feed writes is one post?"',
    'ask = "{nothing | users}"', r"steps\[2\] \(writes\): ask: there is no quantity 'nothing'"),
    ("essential = true", "essential = false", "facts: expected at least one with essential = true"),
    ("minutes = 10", "minutes = 10\n[sheet]\nuser = 5", "sheet: the sheet has no 'user'"),
    ("minutes = 10", "minutes = 10\n[given]\nusers = 5", "given: 'users' is taken"),
    ("minutes = 10", "minutes = ", "is not TOML"),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda m: m[1][:40])
def test_a_mistake_is_named(written, mistake):
    old, new, *said = mistake
    assert old in SMALL
    path = written(SMALL.replace(old, new, 1))
    if "TOML" in said[0]:
        with pytest.raises(BadInput, match=rf"{re.escape(str(path))} is not TOML: .*line"):
            read(path)
    else:
        assert any(re.search(s, refused(path)) for s in said), refused(path)


PREDICTION = """
[[steps]]
id = "predict"
kind = "predict"
phase = "defend"
rubric = "design"
minutes = 1
act = "predicts"
ask = "How many?"
experiment = "paging"
measure = "cursor"
unit = "posts"
tolerance = 2
because = "So it is."
read = ["03_api"]
"""
OPTIONS = """
[[steps]]
id = "choice"
kind = "choose"
phase = "defend"
rubric = "design"
minutes = 1
act = "chooses"
ask = "Which?"
read = ["03_api"]
options = [{text = "a", because = "b", experiment = "paging", credit = 1}, {text = "c", because = "d", experiment = "paging"}]
"""


@pytest.mark.parametrize(("more", "said"), [
    (PREDICTION.replace('"cursor"', '"curse"'), "measure: paging does not measure 'curse'; expected one of offset, cursor"),
    (PREDICTION.replace('"paging"', '"pager"'), "experiment: there is no experiment 'pager'"),
    (PREDICTION.replace("tolerance = 2\n", ""), "either unit and tolerance"),
    (PREDICTION + '[steps.shapes]\na = "b"\n', "either unit and tolerance"),
    (OPTIONS.replace(", credit = 1", ""), "exactly one of the options must have credit = 1"),
    (OPTIONS.replace('experiment = "paging"}', 'experiment = "x"}'), "there is no experiment 'x'"),
    (OPTIONS.replace('text = "a", ', ""), r"options\[1\]: text: this key is missing"),
    (OPTIONS + PREDICTION, "paging is run by the earlier step choice"),
])
def test_mistakes_in_other_kinds(written, more, said):
    assert re.search(said, refused(written(SMALL + more)))


def test_files_that_are_none(tmp_path, written):
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="not UTF-8"):
        read(tmp_path / "binary.toml")
    with pytest.raises(BadInput, match="there are no scenarios"):
        scenarios(tmp_path / "empty")
    assert refused(written("steps = 5")).startswith(("title", "steps"))


# --- figures -------------------------------------------------------------------------------------------------------------------

def test_no_answer_is_a_literal():
    for s in ALL.values():
        for x in s.steps:
            if x.kind == "estimate":
                s.figures.value(x.value)          # raises for a literal
    for bad in ("6", "2 ** 53", "'x'", "", "__import__('os')", "threshold ** 1000", "users if users else 1", "[users]",
                "users and reads"):
        with pytest.raises(BadInput):
            Figures().value(bad)


def test_holes_are_filled_and_braces_left_alone():
    f = Figures(given={"rate": 5.0})
    assert f.text("at {rate * 2 | writes/s}, {largest | } and celeb:{author}:recent\n  {content}") == \
        "at 10 writes/s, 50 million and celeb:{author}:recent {content}"
    assert f.text("a\nb", lines=True) == "a\nb" and f.text("a\n\nb") == "a\n\nb"
