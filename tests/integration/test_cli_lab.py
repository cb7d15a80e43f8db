"""`feedlab lab` without the demo, on engines that are there: a JupyterLab that answers and leaves nothing behind."""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import psutil
import pytest
from conftest import until

FEEDLAB = [sys.executable, "-m", "feedlab"]


@pytest.fixture
def env(addresses, tmp_path):
    """A state folder of its own, so that the checkout's own JupyterLab is not met; the engines are "yours"."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("FEEDLAB_")}
    e = clean | addresses.environment() | {"FEEDLAB_STATE_DIR": str(tmp_path)}
    yield e
    subprocess.run([*FEEDLAB, "down"], env=e, timeout=60, capture_output=True)
    assert servers(tmp_path) == []


def servers(state) -> list[int]:
    found = []
    for p in psutil.process_iter():
        try:
            if any(str(state) in word for word in p.cmdline()) and p.status() != psutil.STATUS_ZOMBIE:
                found.append(p.pid)
        except psutil.Error:
            pass
    return found


def feedlab(env, *argv: str) -> subprocess.CompletedProcess:
    done = subprocess.run([*FEEDLAB, *argv], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done
    return done


def opened(url: str):
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10)


def answer(url: str) -> int:
    return opened(url).status


def test_detached_on_a_taken_port_then_down(env, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        out = feedlab(env, "lab", "--detach", "--no-demo", "--port", str(port)).stdout
        url = re.search(r"JupyterLab: (http://127\.0\.0\.1:(\d+)/lab\S*\?token=\S+)", out)
        assert url and int(url[2]) != port, out
        assert answer(url[1]) == 200
        settings = url[1].partition("/lab")[0] + "/lab/api/settings/@jupyterlab/notebook-extension:tracker?token="
        shown = json.loads(opened(settings + url[1].partition("token=")[2]).read())
        assert shown["schema"]["properties"]["windowingMode"]["default"] == "none", "our overrides.json is in force"
        again = feedlab(env, "lab", "--detach", "--no-demo").stdout
        assert url[1] in again and "runs already" in again
    assert len(servers(tmp_path)) == 1
    assert oct((tmp_path / "jupyter.json").stat().st_mode)[-3:] == "600", "the token is for its owner alone"
    (tmp_path / "jupyter.json").write_text("garbled")
    assert "JupyterLab: stopped" in feedlab(env, "down").stderr
    assert servers(tmp_path) == []


def test_foreground_until_ctrl_c(env, tmp_path):
    quiet = env | {"FEEDLAB_NO_BROWSER": "1"}
    with subprocess.Popen([*FEEDLAB, "lab", "--no-demo"], env=quiet, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as p:
        try:
            line = until(lambda: re.match(r"JupyterLab: (\S+)", p.stdout.readline()), 60, "the URL")
            assert answer(line[1]) == 200
            assert "Ctrl-C" in p.stdout.readline()
            p.send_signal(signal.SIGINT)
            out, err = p.communicate(timeout=30)
        finally:
            p.kill()
    assert p.returncode == 0 and "engines still run" in out and "Traceback" not in err
    assert servers(tmp_path) == []
