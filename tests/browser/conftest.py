"""A real headless Chromium (Debian's), and JupyterLab as `feedlab lab` starts it. Screenshots are kept in artifacts/."""
import os
import shutil
import subprocess
import sys

import pytest
from browser_parts import ROOT, Watched
from playwright.sync_api import sync_playwright

QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="session")
def chromium():
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no chromium; on Debian: apt-get install chromium")
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=path, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture
def watched(chromium):
    page = chromium.new_page(viewport={"width": 1366, "height": 900})
    yield Watched(page)
    page.close()


@pytest.fixture(scope="session")
def jupyter(addresses, tmp_path_factory):
    """URL of a JupyterLab of our own, on the running engines, with our settings; stopped at the end."""
    env = os.environ | addresses.environment() | {"FEEDLAB_STATE_DIR": str(tmp_path_factory.mktemp("lab"))}

    def feedlab(*argv):
        return subprocess.run([sys.executable, "-m", "feedlab", *argv], env=env, cwd=ROOT, capture_output=True, text=True, timeout=120)
    started = feedlab("lab", "--no-demo", "--detach", "--port", "8890")
    assert started.returncode == 0, started.stderr
    yield next(line.split(": ", 1)[1] for line in started.stdout.splitlines() if line.startswith("JupyterLab: http"))
    assert feedlab("down").returncode == 0
