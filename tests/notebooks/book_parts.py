"""What the notebook tests share."""
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "notebooks"
BOOKS = sorted(FOLDER.glob("*.ipynb"))
WORKBOOK = [p for p in BOOKS if p.name[0].isdigit()]


def checked_outputs(book) -> list[tuple[int, str]]:
    """(cell, text) of the cells whose output is compared."""
    from feedlab.classroom import edition
    return [(n, "".join(o.get("text", "") for o in c.outputs)) for n, c in enumerate(book.cells)
            if c.cell_type == "code" and edition.CHECKED in edition.tags(c)]
