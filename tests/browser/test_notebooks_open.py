"""Every committed notebook opens in JupyterLab as it lies there: no error, no missing widget or picture, nobody outside is asked, also
after a reload and after scrolling. Nothing is run."""
import json
import shutil
import urllib.request

import pytest
from browser_parts import ARTIFACTS, ROOT, Watched, scroll_through
from conftest import until

NOTEBOOKS = sorted(p.name for p in (ROOT / "notebooks").glob("*.ipynb"))
COPIES = ARTIFACTS / "notebooks"      # JupyterLab writes the kernel's language into what it opens


@pytest.fixture(scope="module")
def opened(chromium):
    """One page for all of them, and copies of the notebooks to open."""
    shutil.rmtree(COPIES, ignore_errors=True)
    shutil.copytree(ROOT / "notebooks", COPIES, ignore=shutil.ignore_patterns("learner", ".*"))
    page = chromium.new_page(viewport={"width": 1366, "height": 900})
    yield Watched(page)
    page.close()


@pytest.fixture
def no_kernels_left(jupyter):
    """Opening a notebook starts a kernel; it goes with the test."""
    yield
    base, token = jupyter.split("lab/tree/")[0], jupyter.split("token=")[1]
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(method: str, path: str) -> bytes:
        request = urllib.request.Request(f"{base}api/{path}", method=method, headers={"Authorization": f"token {token}"})
        return opener.open(request, timeout=20).read()
    for kernel in json.loads(ask("GET", "kernels")):
        ask("DELETE", f"kernels/{kernel['id']}")


@pytest.mark.parametrize("path", NOTEBOOKS)
def test_opens(opened, jupyter, no_kernels_left, path):
    page, cells = opened.page, len(json.loads((COPIES / path).read_text())["cells"])
    base, token = jupyter.split("lab/tree/")[0], jupyter.split("token=")[1]
    page.goto(f"{base}lab/tree/{COPIES.relative_to(ROOT).as_posix()}/{path}?token={token}&reset")
    for again in (False, True):
        if again:
            page.reload()
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
        until(lambda: page.locator(".jp-Notebook .jp-Cell").count() == cells, 30, f"{cells} cells")
        scroll_through(page)
        broken = page.evaluate("""() => Promise.all([...document.querySelectorAll('.jp-Notebook img')].map(
            i => i.decode().then(() => null, () => i.src)))""")
        assert [src for src in broken if src] == [], "a picture that is not there"
        assert page.locator(".jp-Dialog").count() == 0, page.locator(".jp-Dialog").all_inner_texts()
        opened.clean()
