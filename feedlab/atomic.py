"""Files that are written whole or not at all: beside the old one, and then renamed over it."""
import os
from pathlib import Path

from .errors import BadInput


def write(path, content: str | bytes, refusal: str, folders: bool = False) -> Path:
    """Write a file and return its path. `folders`: make its folder too. Raises BadInput with `refusal`, in which {path} and {why} are
    filled in; what stood there before stands there still, and nothing is left beside it."""
    path = Path(path).expanduser()
    half = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if folders:
            path.parent.mkdir(parents=True, exist_ok=True)
        half.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(half, path)
    except OSError as e:
        half.unlink(missing_ok=True) if half.parent.is_dir() else None
        raise BadInput(refusal.format(path=path, why=e.strerror)) from None
    return path
