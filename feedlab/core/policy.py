"""Push or pull? A policy is a callable; correctness does not hang on what it answers (protocol rule 7), cost does."""
from collections.abc import Callable

Policy = Callable[[int], bool]
"""followers of the author -> True to push."""


def threshold(limit: int) -> Policy:
    """The article's policy: push below the threshold, pull at or above it.

    >>> threshold(10_000)(9_999), threshold(10_000)(10_000)
    (True, False)
    """
    return lambda followers: followers < limit
