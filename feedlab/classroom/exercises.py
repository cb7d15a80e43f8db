"""Exercises: a check that says what was expected, what came, within what, and the usual mistake."""
import math
from numbers import Real

from ..errors import Shown


class Wrong(Shown, AssertionError):
    """An answer that the check does not accept."""


class YourTurn(Shown, AssertionError):
    """An exercise that is still blank."""


BLANK = (None, ...)


def filled_in(name: str, *answers) -> None:
    """Raise YourTurn when an answer is still blank. The learner's edition begins each check with it, since a check may need the answer
    for a run of its own."""
    if any(a is b for a in answers for b in BLANK):
        raise YourTurn(f"exercise {name} is still blank: write your answer in the cell above this one in place of the dots, run it, "
                       "then run this one again.")


def check(name: str, got, want, tolerance: float = 0.0, mistake: str = "") -> None:
    """Print that the exercise is right, or raise Wrong (YourTurn for a blank).

    `want`: a value, or a test of `got` with a docstring that says what it wants. `tolerance` is relative: 0.1 is 10 %.

    >>> check("1", 100, 98, tolerance=0.05)
    right: exercise 1 (within 5 %)
    >>> check("2", 12, 98, tolerance=0.05, mistake="followers and followees are mixed up")
    Traceback (most recent call last):
    feedlab.classroom.exercises.Wrong: exercise 2: expected 98 within 5 %, got 12. The usual mistake: followers and followees are mixed up.
    """
    filled_in(name, got)
    within = f" within {100 * tolerance:g} %" if tolerance else ""
    usual = f" The usual mistake: {mistake.rstrip('.')}." if mistake else ""
    if callable(want):
        try:
            right = bool(want(got))
        except Exception as e:
            raise Wrong(f"exercise {name}: the answer {got!r} cannot be looked at ({type(e).__name__}: {e}). Expected "
                        f"{(want.__doc__ or 'another answer').strip()}.{usual}") from None
        expected = (want.__doc__ or "another answer").strip()
    elif _number(want) and tolerance:
        right = _number(got) and math.isfinite(got) and abs(got - want) <= tolerance * abs(want)
        expected = f"{want:.6g}"
    else:
        right, expected = got == want, repr(want)
    if not right:
        shown = f"{got:.6g}" if _number(got) and tolerance else repr(got)
        raise Wrong(f"exercise {name}: expected {expected}{within}, got {shown}.{usual}")
    print(f"right: exercise {name}" + (f" ({within.strip()})" if within else ""))


def _number(x) -> bool:
    return isinstance(x, Real) and not isinstance(x, bool)
