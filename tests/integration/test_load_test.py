"""`feedlab load-test`: each mix for a few seconds against our own API, relay and consumer; 0 errors."""
import os
import signal
import subprocess
import sys

import numpy as np
import psutil
import pytest
from conftest import fresh_lab, shared_file, until

from feedlab import db
from feedlab.bench import load
from feedlab.config import Settings
from feedlab.errors import BadInput
from feedlab.http import app
from feedlab.lab.graph import from_edges, load_graph

SETTINGS = Settings(namespace="t_load", partitions=2)


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """60 users, each of whom follows up to 20."""
    rng, path = np.random.default_rng(1), tmp_path_factory.mktemp("graph") / "small.txt"
    path.write_text("".join(f"{a} {b}\n" for a in range(60) for b in rng.choice(60, 20, replace=False) if a != b))
    return path


@pytest.mark.parametrize("mix", load.MIXES)
def test_each_mix_without_an_error(addresses, graph, mix):
    found = load.run(SETTINGS, addresses, mix, seconds=1.5, clients=3, graph=graph)
    assert found["errors"] == 0, found["examples"]
    assert found["requests"] == sum(o["requests"] for o in found["operations"].values()) > 20
    assert set(found["operations"]) == set(load.MIXES[mix][0]) and found["worker_restarts"] == 0
    for name, o in found["operations"].items():
        assert set(o["statuses"]) <= {str(s) for s in load.EXPECTED[name]} and o["p50_ms"] <= o["p99_ms"]
    if found["operations"]["post"]["requests"]:
        assert found["deliveries"] > 0


def test_reed98_as_deathstarbench_has_it(addresses):
    found = load.run(SETTINGS, addresses, "deathstar", seconds=1.5, graph=shared_file("socfb-Reed98.edges"))
    assert found["errors"] == 0 and found["graph"] == "socfb-Reed98.edges" and found["operations"]["feed"]["requests"] > 5


def test_nothing_is_left(addresses):
    with db.connect(addresses.postgres_url, "public") as conn:
        assert not conn.execute("select count(*) from pg_namespace where nspname = 't_load'").fetchone()[0]


def test_data_of_the_user_is_never_emptied(addresses, graph):
    """`-n demo load-test` would have taken the demo with it."""
    with fresh_lab(addresses, "t_load_mine") as lab:
        lab.conn.execute("insert into users (id, name) values (1, 'mine')")
        with pytest.raises(BadInput, match="there is data in namespace t_load_mine"):
            load.run(lab.settings, addresses, "retwis", seconds=1, graph=graph)
        assert lab.conn.execute("select count(*) from users").fetchone() == (1,)


def test_an_api_that_is_up_already(addresses, graph):
    """With --url nothing is started or wiped; a graph that is not loaded there is said."""
    with fresh_lab(addresses, "t_load_url") as lab:
        with app.in_thread(lab.settings, addresses) as url:
            with pytest.raises(BadInput, match="does not know user 0.*feedlab load small.txt"):
                load.run(lab.settings, None, "article", seconds=1, graph=graph, url=url)
            load_graph(lab.conn, load.read_graph(graph))
            found = load.run(lab.settings, None, "article", seconds=1, clients=2, graph=graph, url=url)
            assert found["errors"] == 0 and found["url"] == url and found["requests"] > 5
        assert lab.conn.execute("select count(*) from posts").fetchone()[0] == found["operations"]["post"]["requests"]


def test_errors_are_counted_and_shown(addresses, graph):
    """Users that the API does not know: each read is a 404, and the first of them are quoted."""
    with fresh_lab(addresses, "t_load_url") as lab, app.in_thread(lab.settings, addresses) as url:
        strangers = from_edges(np.array([1, 2, 3]), np.array([2, 3, 1]), True, "strangers")
        found = load.drive(url, strangers, "article", 0.5, 2, 1, lambda *a: None)
        assert found["errors"] == found["requests"] > 0 and "404" in found["operations"]["feed"]["statuses"]
        assert any("feed: 404" in e for e in found["examples"])


@pytest.mark.parametrize("argv", [["load-test", "--seconds", "60"], ["bench", "visible"]], ids=lambda a: a[0])
def test_ctrl_c_leaves_nothing(addresses, argv):
    """Interrupted in the middle: 130, one sentence, and neither a process nor a namespace of it remains."""
    env = os.environ | addresses.environment()
    p = subprocess.Popen([sys.executable, "-m", "feedlab", "-n", "t_ctrlc", *argv], env=env, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        def children() -> list[psutil.Process]:
            return [c for c in psutil.Process(p.pid).children(recursive=True) if "python" in c.name()]
        until(lambda: len(children()) >= 2, 60, "the command's own workers")
        workers = children()
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=60)
    finally:
        if p.poll() is None:
            os.killpg(p.pid, signal.SIGKILL)
            p.wait()
    assert p.returncode == 130 and err.splitlines()[-1].startswith("feedlab: interrupted; no figures"), err
    until(lambda: not any(w.is_running() for w in workers), what="the end of its workers")
    with db.connect(addresses.postgres_url, "public") as conn:
        assert not conn.execute("select count(*) from pg_namespace where nspname like 't\\_ctrlc%'").fetchone()[0]
