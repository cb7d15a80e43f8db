"""`feedlab interview` and `feedlab drill` by lines on stdin, without an engine: answers, mistakes, the end of the input, Ctrl-C, JSON."""
import io
import json

import pytest
from conftest import AWAY

from feedlab.cli.edge import run
from feedlab.interview.scenario import scenarios


@pytest.fixture(autouse=True)
def wide(alone, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def typed(monkeypatch, capsys):
    """Run a command with these lines on stdin: (exit code, stdout, stderr)."""
    def do(argv: str, *lines: str):
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(line + "\n" for line in lines)))
        code = run(argv.split())
        out = capsys.readouterr()
        assert "Traceback" not in out.out + out.err
        return code, out.out, out.err
    return do


def test_the_list_and_the_choice_by_number(typed):
    code, out, _ = typed("interview", "2", "quit")
    assert code == 0 and all(name in out for name in scenarios()) and "The celebrity with 50 million followers (senior)" in out
    code, out, err = typed("interview --list --json")
    assert code == 0 and [row["name"] for row in json.loads(out)] == list(scenarios()) and err == ""


@pytest.mark.parametrize(("argv", "said"), [
    ("interview nowhere", "there is no scenario 'nowhere'; they are: design-the-feed"), ("interview 1 --level wizard",
    "none of mid, senior, staff"),
    ("interview nowhere.toml", "nowhere.toml cannot be read"), ("drill sums", "there is no drill 'sums'"), ("drill --count 0", "--count"),
])
def test_mistakes_are_one_sentence(typed, argv, said):
    code, out, err = typed(argv)
    assert code == 2 and said in err and err.count("\n") == 1


def test_friendly_about_what_is_no_answer_and_resumes(typed):
    code, out, _ = typed("interview lost-events --no-run", "in which order are they written?", "what colour?", "done", "",
                         "6 TB", "lots", "-5",
                         "", "1500", "next", "back", "hint", "nonsense")
    assert code == 0
    for said in ("BEGIN, INSERT, COMMIT", "That is left to you", "an amount of memory", "not a number", "negative", "no answer yet",
                 "Right.", "The first answer counts", "Saved. `feedlab interview lost-events` goes on from here."):
        assert said in out, said
    code, out, _ = typed("interview lost-events --no-run", "quit")
    assert "goes on where it was left, 7 steps to go" in out and "answered: 1500 (1,500 posts/day)" in out
    code, out, _ = typed("interview lost-events --fresh --no-run", "quit")
    assert "goes on where" not in out


def to_the_end(name: str) -> list[str]:
    """Lines that answer every step, by kind, wrongly or rightly as it comes."""
    lines = []
    for step in scenarios()[name].at_level("mid"):
        said = {"clarify": "done", "estimate": "1", "choose": "1", "predict": "1", "spot": "F3",
                "say": "Reads decide, and the skew of followers."}.get(
            step.kind) or " ".join(str(n) for n in range(1, len(getattr(step, "items", [])) + 1))
        lines += [said, *(["1"] if step.kind == "say" else []), ""]
    return lines


@pytest.mark.parametrize("name", scenarios())
def test_each_scenario_to_its_scorecard(typed, tmp_path, name):
    code, out, err = typed(f"interview {name} --level mid --no-clock --no-run --json", *to_the_end(name))
    card = json.loads(out)
    assert code == 0 and card["answered"] == card["steps"] and card["clock"] == "off" and 0 <= card["share"] <= 1
    assert "Scorecard" in err and "scorecard: " in err
    kept = tmp_path / "state" / "interview" / "scorecards" / f"{card['id']}.json"
    assert {k: v for k, v in card.items() if k != "html"} == json.loads(kept.read_text())
    code, out, _ = typed("interview --history --json")
    assert [r["scenario"] for r in json.loads(out)] == [name]


def test_with_the_engines_down_answers_go_on_and_experiments_say_how_to_start_them(typed, monkeypatch):
    for key, value in AWAY.items():
        monkeypatch.setenv(key, value)
    code, out, err = typed("interview lost-events --level senior --no-clock", "done", "", "1500", "", "1 post", "", "2", "",
                           "2", "", "F8", "", "run", "end")
    assert code == 0 and out.count("Start them with `feedlab up`, then run it again; the answer is kept.") >= 4
    assert "secret" not in out + err and out.count("Right.") >= 2 and "F8:" in out and "Scorecard" in out


def test_ctrl_c_saves_and_says_how_to_go_on(typed, monkeypatch, capsys):
    class Hand(io.StringIO):
        def readline(self):
            line = super().readline()
            if not line:
                raise KeyboardInterrupt
            return line
    monkeypatch.setattr("sys.stdin", Hand("done\n\n1500\n"))
    assert run(["interview", "lost-events", "--no-run"]) == 130
    assert "interrupted; every answer is saved; the same command goes on" in capsys.readouterr().err
    _, out, _ = typed("interview lost-events --no-run", "quit")
    assert "7 steps to go" in out


def test_json_of_an_unfinished_one_is_its_card_so_far(typed):
    code, out, err = typed("interview ranked-feed --json --no-run", "done")
    card = json.loads(out)
    assert code == 0 and card["ended"] is None and card["answered"] == 1 and "goes on from here" in err


def test_clock_commands(typed):
    _, out, _ = typed("interview ranked-feed --no-run", "clock", "clock", "clock", "help", "run", "back", "hint", "hint", "quit")
    for said in ("The clock is paused", "The clock is off", "The clock runs", "QUESTION ask", "Answer first", "first step",
                 "no further hint"):
        assert said in out, said


def test_an_empty_history_says_so(typed):
    assert "no finished interview yet" in typed("interview --history")[1]


def test_drills(typed):
    code, out, err = typed("drill reads --seed 7 --count 3 --json", "lots", "1 reads/s", "", "3e4")
    done = json.loads(out)
    assert code == 0 and [d["kind"] for d in done["drills"]] == ["reads", "reads"] and done["streak"]["all"] == 2
    assert "not a number" in err and "Passed over" in err and "within a factor of 1.3" in err
    right = done["drills"][0]["right"]
    code, out, _ = typed("drill reads --seed 7 --count 1", f"{right:.0f}")
    assert "Right: " in out and "streak 1" in out
