"""The first notebook in a real browser: opens, runs to the end, draws its charts, asks nobody outside."""
import nbformat

from browser_parts import ARTIFACTS, ROOT
from conftest import until


def fresh_copy(name: str) -> str:
    """The notebook without outputs, in artifacts/, so that a run in the browser never changes the one that is committed."""
    book = nbformat.read(ROOT / "notebooks" / name, as_version=4)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    ARTIFACTS.mkdir(exist_ok=True)
    nbformat.write(book, ARTIFACTS / name)
    return f"artifacts/{name}"


def test_start_runs_to_the_end(watched, jupyter):
    page = watched.page
    page.goto(jupyter.replace("notebooks/00_start.ipynb", fresh_copy("00_start.ipynb")))
    page.wait_for_selector("text=Python 3 (ipykernel) | Idle", timeout=60_000)
    assert page.locator(".jp-Dialog").count() == 0, "a newcomer is asked nothing"
    prompt = page.locator(".jp-CodeCell .jp-InputPrompt").first

    def begun():
        """JupyterLab drops what is run before its kernel has been connected, so ask again until the first cell has begun."""
        if prompt.inner_text().strip() != "[ ]:":
            return True
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
        page.wait_for_timeout(1_000)
        return False
    until(begun, 60, "the first cell")

    failed = page.locator("[data-mime-type='application/vnd.jupyter.error']")

    def ended():
        return page.get_by_text("holds: and the pages are as right as before").count() or failed.count()
    try:
        until(ended, 150, "the end of the notebook")
    finally:
        watched.shot("00_start")
    assert failed.all_inner_texts() == []
    assert page.get_by_text("model not found").count() == 0
    assert page.get_by_text("holds: every sampled scroll equals the SQL answer").count() == 1
    assert page.locator(".js-plotly-plot").count() == 3
    page.locator(".js-plotly-plot").first.scroll_into_view_if_needed()
    watched.shot("00_start_chart")
    watched.clean()
