"""`feedlab check` as a user runs it: JSON, exit codes, the shrunk history replayed by the printed command."""
import json
import subprocess
import sys

import pytest


def feedlab(*argv: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "feedlab", "-n", "t_cmd", *argv], capture_output=True, text=True, timeout=120)


def test_ours_is_right_and_says_what_was_tried(addresses):
    done = feedlab("check", "--histories", "3", "--seed", "9", "--json")
    result = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert {"histories", "pages", "wrong", "faults_used", "verdicts", "seed"} <= set(result)
    assert (result["histories"], result["wrong"], result["verdicts"], result["seed"]) == (3, 0, [], 9)


def test_the_textbook_is_named_shrunk_and_replayed(addresses):
    done = feedlab("check", "--system", "textbook", "--histories", "6", "--seed", "1", "--json")
    result = json.loads(done.stdout)
    assert done.returncode == 1
    assert {"F1", "F2", "F3", "F4", "F5", "F6", "F7", "F8", "F10"} <= set(result["named"])
    assert any("user 0, page 1: post 4 missing; it was pulled when written and pushed when read" in v for v in result["verdicts"])
    program, *argv = result["replay"].split()
    again = feedlab(*argv)
    assert program == "feedlab" and again.returncode == 1 and "1 history wrong" in again.stdout


@pytest.mark.parametrize(("argv", "words"), [
    (["--faults", "earthquake"], "is no fault"), (["--system", "theirs"], "neither ours nor textbook"),
    (["--replay", "/no/such/file"], "cannot be read"), (["--histories", "-1"], "whole number"),
    (["--replay", __file__], "is not a history"),
])
def test_bad_input_is_a_sentence(addresses, argv, words):
    done = feedlab("check", *argv)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr
