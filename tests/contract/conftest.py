"""Runners of histories, one a system, kept over the tests of a module."""
import pytest
from conftest import kept_runners


@pytest.fixture(scope="module")
def runners(addresses):
    """name of the system -> Runner."""
    with kept_runners(addresses, "t_check") as runner:
        yield runner
