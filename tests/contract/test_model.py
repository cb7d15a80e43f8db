"""The protocol model: intact it is never wrong, and each safeguard, taken away, is missed."""
import os
import random
import time

import model
import pytest

# safeguard -> (first, last) history of seed 11 within which its absence shows. When the model changes, the histories do
# too: `python tests/contract/model.py 3000 11 --break NAME` names the first one anew.
FOUND = {}


def test_intact_histories_are_never_wrong():
    """Another seed each time; FEEDLAB_MODEL_SEED and FEEDLAB_MODEL_SECONDS set it and how long it goes on."""
    seed = int(os.environ.get("FEEDLAB_MODEL_SEED", random.randrange(10**6)))
    end, k = time.monotonic() + float(os.environ.get("FEEDLAB_MODEL_SECONDS", 8)), 0
    while time.monotonic() < end or k < 50:
        _, wrong = model.history(seed, k)
        assert wrong is None, f"python tests/contract/model.py --tell {k} 1 {seed}: {wrong}"
        k += 1
    print(f"{k} histories of seed {seed}, none wrong")


def test_every_safeguard_has_a_history_that_misses_it():
    assert set(FOUND) == set(model.SAFEGUARDS)


@pytest.mark.parametrize("name", FOUND)
def test_a_safeguard_that_is_taken_away_is_missed(name):
    first, last = FOUND[name]
    assert model.wrong(last - first + 1, 11, (name,), stop_at=1, first=first), model.SAFEGUARDS[name]
    assert not model.wrong(last - first + 1, 11, first=first)


def test_a_history_can_be_told_again():
    (a, _), (b, _) = model.history(3, 5), model.history(3, 5)
    assert a.tale == b.tale and len(a.tale) > 10


def test_the_command_line(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["model.py", "20", "1"])
    assert model.main() == 0
    assert capsys.readouterr().out.startswith("20 histories, 0 wrong in ")
    monkeypatch.setattr("sys.argv", ["model.py", "200", "1", "--break", "fallback"])
    assert model.main() == 1
    assert "first: history " in capsys.readouterr().out
