"""Static pictures for code hosts, where no figure is drawn: run a notebook, draw its main figure in Chromium, keep it as a PNG.

    python tests/browser/pictures.py notebooks/06_hybrid.ipynb ...

The main figure is that of the cell tagged `picture`, else the first one after the heading `## Run`. Its picture is
`notebooks/pictures/<notebook>.png`; a folded cell below the figure shows it (folded, so that nobody sees the answer before predicting).
"""
import json
import shutil
import sys
from pathlib import Path

import nbformat
from playwright.sync_api import sync_playwright
from plotly.offline import get_plotlyjs

from feedlab.classroom import edition

PLOTLY = "application/vnd.plotly.v1+json"
PAGE = """<!doctype html><meta charset="utf-8"><body style="margin:0;background:#fff"><div id="f"></div><script>{js}</script>
<script>const s={figure}; s.layout.width=860; s.layout.paper_bgcolor='#fff';
Plotly.newPlot('f', s.data, s.layout, {{displayModeBar:false, staticPlot:true}});</script>"""


def main_figure(book) -> tuple[int, dict]:
    """(cell, figure) of a notebook that has been run. Raises LookupError when it draws none."""
    drawn, ran = [], False
    for n, cell in enumerate(book.cells):
        ran = ran or (cell.cell_type == "markdown" and "## Run" in cell.source)
        for out in cell.get("outputs", []):
            if PLOTLY in out.get("data", {}) and not any(t.get("name") == "you said" for t in out.data[PLOTLY]["data"]):
                drawn.append((("picture" in edition.tags(cell), ran), n, out.data[PLOTLY]))
    if not drawn:
        raise LookupError("this notebook draws no figure")
    best = max(mark for mark, _, _ in drawn)
    return next((n, figure) for mark, n, figure in drawn if mark == best)


def draw(browser, figure: dict, path: Path) -> None:
    page = browser.new_page(viewport={"width": 860, "height": 600})
    page.set_content(PAGE.format(js=get_plotlyjs(), figure=json.dumps(figure).replace("<", "\\u003c")))
    page.wait_for_selector(".js-plotly-plot .main-svg")
    page.locator("#f").screenshot(path=path)
    page.close()


def put(book, n: int, stem: str, title: str):
    """The folded cell below cell n; replaced when it is there."""
    text = (f"<details><summary>This figure, as a picture of one run (for readers on a code host)</summary>\n\n"
            f"![{title}](pictures/{stem}.png)\n\n</details>")
    old = [c for c in book.cells if c.cell_type == "markdown" and f"(pictures/{stem}.png)" in c.source]
    if old:
        old[0].source = text
    else:
        book.cells.insert(n + 1, nbformat.v4.new_markdown_cell(text))
    return book


def make(browser, path: Path) -> Path:
    committed = edition.read(path)
    n, figure = main_figure(edition.execute(edition.read(path), path.parent.resolve()))
    picture = path.parent / "pictures" / f"{path.stem}.png"
    draw(browser, figure, picture)
    title = f"The main figure of notebook {path.stem}"
    path.write_text(edition.text(edition.clean(put(committed, n, path.stem, title))))
    return picture


if __name__ == "__main__":
    with sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name in sys.argv[1:]:
            made = make(chromium, Path(name))
            print(f"{made}: {made.stat().st_size:,} bytes")
