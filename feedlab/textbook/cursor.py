"""The article's cursor: split and convert. F9: what is malformed raises ValueError, and the API answers 500."""
from ..core.model import START, Entry


def parse(cursor: str | None) -> Entry:
    """The entry that a cursor names. Raises whatever `int` and unpacking raise."""
    if cursor is None:
        return START
    ms, post_id = cursor.split(":")
    return Entry(int(ms), int(post_id))


def text(entry: Entry) -> str:
    return f"{entry.ms}:{entry.id}"
