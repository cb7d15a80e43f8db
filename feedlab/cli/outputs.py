"""What the long commands (demo, bench, load-test) share: a namespace that may be emptied, and outputs that can be written."""
from pathlib import Path

from ..errors import BadInput


def own_namespace(s, name: str):
    """What empties its namespace never takes the one that a user's own data are in, unless that is named."""
    return s if "namespace" in s.model_fields_set else s.model_copy(update={"namespace": name})


def graph_exists(graph: Path | None) -> None:
    if graph is not None and not graph.expanduser().exists():
        raise BadInput(f"--graph {graph}: there is no such file. Check the name, or leave --graph out for the graph in data/.")


def writable(json: str | None, report: Path | None):
    """The two outputs, said to be unwritable before the work and not after it."""
    return (_writable("--json", json) if json not in (None, "-") else None,
            _writable("--report", str(report)) if report is not None else None)


def given(result: dict, out: Path | None, json: str | None) -> None:
    """The JSON, where it was asked for."""
    import json as text

    from . import show

    if json == "-":
        show.document(result)
    elif out:
        out.write_text(text.dumps(result, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
        show.line(f"figures: {out}")


def _writable(option: str, name: str) -> Path:
    """Said before the work, not after it. No folder is made (a mistyped one would be), no empty file is left."""
    if not name:
        raise BadInput(f"{option} is empty; name a file.")
    path = Path(name).expanduser()
    try:
        if not path.parent.exists():
            raise BadInput(f"{option} {name}: there is no folder {path.parent}. Make it first, or choose another place.")
        new = not path.exists()
        with path.open("a", encoding="utf-8"):
            pass
        if new:
            path.unlink()
    except (OSError, ValueError) as e:
        raise BadInput(
            f"{option} {name}: cannot be written: {getattr(e, 'strerror', None) or e}. Choose another place."
        ) from None
    return path
