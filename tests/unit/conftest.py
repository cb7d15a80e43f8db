"""What tests of the command line without an engine share."""
import os

import pytest


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """No engine of this machine, no variable of this shell."""
    for name in list(os.environ):
        if name.startswith("FEEDLAB_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("FEEDLAB_STATE_DIR", str(tmp_path / "state"))
