"""Claims: what a notebook concludes, checked where it stands. The printed line is the same at every run, so that nbval compares
it; a claim that does not hold raises, and the sentence says what was expected and what came.
"""
from ..errors import Shown


class ClaimFailed(Shown, AssertionError):
    """A conclusion that this run does not bear out."""


def claim(text: str, got, want=True) -> None:
    """Print that the claim holds, or raise ClaimFailed.

    `want` is a value, or a test of `got` (a callable that answers true or false), for a ratio with room.

    >>> claim("two and two make four", 2 + 2, 4)
    holds: two and two make four
    >>> claim("a page is short", 20, lambda n: n <= 50)
    holds: a page is short
    """
    holds = want(got) if callable(want) else got == want
    if not holds:
        expected = (want.__doc__ or "what the claim says") if callable(want) else repr(want)
        raise ClaimFailed(f"does not hold: {text}. Expected {expected}, got {got!r}.")
    print(f"holds: {text}")
