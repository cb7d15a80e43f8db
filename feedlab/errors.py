"""The few errors that feedlab raises on purpose. Each message says what to do next.

The command line prints the message and exits with 2, the API turns it into a 4xx or 503, a notebook shows it in place.
"""


class Shown:
    """An error whose text says it all: a notebook shows that one line in place, not a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [f"{type(self).__name__}: {self}"]


class FeedlabError(Shown, Exception):
    """Base of all errors whose text is meant for the user."""


class BadInput(FeedlabError):
    """Something the user gave cannot be used: a file, a cursor, a number. The message names it and what was expected."""


class NotFound(FeedlabError):
    """A user or a post that does not exist (or exists no more)."""


class Conflict(FeedlabError):
    """The request is well formed but cannot be carried out as things are, for example following oneself."""


class ClockWentBack(FeedlabError):
    """The clock stepped back further than the id generator is willing to wait."""


class EngineDown(FeedlabError):
    """PostgreSQL, Redis or Kafka does not answer. The message names the engine, its address and the command that helps."""
