"""The API on a module's running lab."""
import httpx
import pytest

from feedlab.http import app


@pytest.fixture(scope="module")
def url(running_lab):
    with app.in_thread(running_lab.settings, running_lab.addresses) as at:
        yield at


@pytest.fixture(scope="module")
def web(url):
    with httpx.Client(base_url=url, timeout=30) as client:
        yield client
