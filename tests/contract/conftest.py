"""Runners of histories, one a system, kept over the tests of a module: joining a consumer group costs seconds. No longer than
that: other modules kill engines, and a runner does not reconnect."""
from contextlib import ExitStack

import pytest

from feedlab.config import Settings
from feedlab.lab.runner import Runner
from feedlab.lab.session import open_lab, wipe
from feedlab.lab.systems import SYSTEMS


@pytest.fixture(scope="module")
def runners(addresses):
    """name of the system -> Runner, opened when first asked for, wiped at the end."""
    with ExitStack() as stack:
        made = {}

        def runner(system: str) -> Runner:
            if system not in made:
                s = Settings(namespace=f"t_check_{system}", partitions=2, batch=2)     # a slice is two followers: handed on all the time
                made[system] = stack.enter_context(Runner(s, addresses, SYSTEMS[system]))
            return made[system]
        yield runner
    for runner in made.values():
        with open_lab(runner.settings, addresses) as lab:
            wipe(lab)
