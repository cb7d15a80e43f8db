"""kill -9 of the relay, the consumer, Redis, the broker and PostgreSQL, at random moments while posts are written and
pages are read all the time: nothing lost, nothing shown twice, no page ever wrong (which is also the test of reading
meanwhile).

Fifty rounds of each, by hand: `python -m feedlab.verify.kill_rounds --rounds 50 --seed 7`."""

import pytest

from feedlab import engines
from feedlab.config import Settings
from feedlab.errors import BadInput
from feedlab.verify import kill_rounds

ROUNDS, SEED = 2, 5
# A killed consumer is missed after this time; 10 s by default, which would be half of this test.
CONSUMER = {"session.timeout.ms": 3_000}


@pytest.mark.timeout(600)
def test_rounds_of_kill_of_everything(addresses, capsys):
    if any(e.source != "embedded" for e in engines.status(Settings())):
        pytest.skip("only embedded engines may be killed; these are somebody's own")
    result = kill_rounds.run(Settings(namespace="t_kill"), addresses, ROUNDS, SEED, consumer=CONSUMER)
    with capsys.disabled():
        print("\n  " + kill_rounds.summary(result).replace("\n", "\n  "))
    assert {t: f["rounds"] for t, f in result["targets"].items()} == dict.fromkeys(kill_rounds.TARGETS, ROUNDS)
    assert result["verdicts"] == []
    assert not kill_rounds.wrong(result)
    # it was a test: there was load, in each kind, and every user was looked at after each leg
    assert result["posts"] > 50 and result["pages"] > 500
    assert all(result["operations"].get(kind, 0) > 0 for kind in ("post", "delete", "follow", "unfollow"))
    assert result["scrolls"] >= len(kill_rounds.TARGETS) * kill_rounds.USERS


@pytest.mark.parametrize(
    "options,says",
    [({"targets": ("relay", "moon")}, "'moon' cannot be killed"), ({"rounds": 0}, "rounds must be at least 1")],
)
def test_what_it_refuses(addresses, options, says):
    with pytest.raises(BadInput, match=says):
        kill_rounds.run(Settings(), addresses, **options)


def test_engines_of_ones_own_are_never_killed(addresses):
    with pytest.raises(BadInput, match="redis is yours"):
        kill_rounds.run(Settings(redis_url=addresses.redis_url), addresses, 1, targets=("redis",))
