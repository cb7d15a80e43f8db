"""What the browser tests share: notebooks made and opened, cells run, controls moved by the keyboard, charts read in the page."""
from pathlib import Path

import nbformat
from conftest import until

ROOT = Path(__file__).resolve().parents[2]
ARTIFACTS = ROOT / "artifacts"      # screenshots of the run; not committed
ERRORS = "[data-mime-type='application/vnd.jupyter.error']"


class Watched:
    """A page with what went wrong on it: errors of its scripts, and requests that left this machine."""

    def __init__(self, page):
        self.page, self.errors, self.outside = page, [], []
        page.on("pageerror", lambda e: self.errors.append(str(e)))
        page.on("request", lambda r: self.outside.append(r.url) if not r.url.startswith(
            ("http://127.0.0.1", "ws://127.0.0.1", "http://localhost", "file:", "data:", "blob:", "about:")) else None)

    def shot(self, name: str) -> None:
        ARTIFACTS.mkdir(exist_ok=True)
        self.page.screenshot(path=ARTIFACTS / f"{name}.png")

    def clean(self) -> None:
        """Nothing went wrong so far: no script error, nobody outside was asked, no cell failed, no widget is missing."""
        assert self.errors == [] and self.outside == []
        assert self.page.locator(ERRORS).all_inner_texts() == []
        for trouble in ("model not found", "Error displaying widget", "Error creating widget"):
            assert self.page.get_by_text(trouble).count() == 0, trouble


def fresh_copy(name: str) -> str:
    """The notebook without outputs, in artifacts/, so that a run in the browser never changes the one that is committed."""
    book = nbformat.read(ROOT / "notebooks" / name, as_version=4)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return _write(name, book)


def notebook(name: str, *cells: str) -> str:
    """A notebook of these code cells, in artifacts/."""
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    book.metadata["kernelspec"] = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    return _write(name, book)


def _write(name: str, book) -> str:
    ARTIFACTS.mkdir(exist_ok=True)
    nbformat.write(book, ARTIFACTS / name)
    return f"artifacts/{name}"


def open_notebook(page, jupyter: str, path: str) -> None:
    """Open it in JupyterLab, alone, and wait for its kernel; nobody is asked anything."""
    base, token = jupyter.split("lab/tree/")[0], jupyter.split("token=")[1]
    page.goto(f"{base}lab/tree/{path}?token={token}&reset")
    kernel_is_idle(page)
    assert page.locator(".jp-Dialog").count() == 0, page.locator(".jp-Dialog").inner_text()


def kernel_is_idle(page, timeout_s: float = 60) -> None:
    page.wait_for_selector("text=Python 3 (ipykernel) | Idle", timeout=timeout_s * 1000)


def menu(page, *names: str) -> None:
    for name in names:
        page.get_by_role("menuitem", name=name, exact=True).click()


def run_all(page) -> None:
    """JupyterLab drops what is run before its kernel has been connected, so ask again until the first cell has begun."""
    prompt = page.locator(".jp-CodeCell .jp-InputPrompt").first

    def begun():
        if prompt.inner_text().strip() != "[ ]:":
            return True
        menu(page, "Run", "Run All Cells")
        page.wait_for_timeout(500)
        return False
    until(begun, 60, "the first cell")


def traces(within) -> dict[str, dict]:
    """The chart inside `within` as the page holds it: trace name -> x, y, text (the last trace of a name). Empty while it is drawn anew."""
    return within.evaluate("""w => Object.fromEntries(((w.querySelector('.js-plotly-plot') || {}).data || []).map(
        t => [t.name, {x: [...(t.x || [])], y: [...(t.y || [])], text: [...(t.text || [])]}]))""")


def title(within) -> str:
    return within.evaluate("w => ((w.querySelector('.js-plotly-plot') || {}).layout || {title: {}}).title.text || ''")


def scroll_through(page) -> None:
    """From the top of the notebook to its end and back, a screen at a time, as a reader would."""
    for step in (700, -700):
        at = None
        while at != (now := page.evaluate("""step => { const o = document.querySelector('.jp-WindowedPanel-outer');
                o.scrollBy(0, step); return o.scrollTop; }""", step)):
            at = now
            page.wait_for_timeout(30)


def press(page, within, label: str, key: str, times: int = 1) -> None:
    """Focus the handle of the slider with this label, and press a key: what somebody without a mouse does."""
    handle = within.locator(".widget-hslider", has=page.get_by_text(label, exact=True)).locator(".noUi-handle")
    handle.focus()
    for _ in range(times):
        page.keyboard.press(key)


def push(page, within, label: str) -> None:
    """Focus a button and press Enter."""
    within.get_by_role("button", name=label, exact=True).focus()
    page.keyboard.press("Enter")
