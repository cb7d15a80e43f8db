"""kill -9 of the relay, the consumer, Redis, the broker and PostgreSQL in turn while the demo runs: it goes on after they
return, and at the end every sampled scroll equals the SQL pull answer."""
import os
import threading

import psutil
import pytest
from conftest import shared_file

from feedlab import engines
from feedlab.config import Settings
from feedlab.lab import demo

POSTS = 1_200
WORKERS, ENGINES = ("relay", "fanout"), ("redis", "kafka", "postgres")


def kill_worker(kind: str) -> None:
    doomed = [p for p in psutil.Process().children() if p.cmdline()[-2:] == ["feedlab.lab.workers", kind]]
    assert len(doomed) == 1, f"one {kind} should run, found {doomed}"
    doomed[0].kill()


@pytest.mark.timeout(240)
def test_demo_survives_a_kill_of_everything(addresses, capsys):
    if any(e.source != "embedded" for e in engines.status(Settings())):
        pytest.skip("only embedded engines may be killed; these are somebody's own")
    s = Settings(namespace="t_demo_kills")
    plan = [(POSTS * (k + 1) // 7, name) for k, name in enumerate((*WORKERS, *ENGINES))]
    killed, revivals, lines, early = [], [], [], []

    def kill_and_bring_back(name: str) -> str:
        engines.kill(s, name)
        revivals.append(threading.Thread(target=engines.up, args=(s,)))
        revivals[-1].start()
        return name

    def say(text, done=None, total=None):
        lines.append(text)
        if text == "building feeds" and 1_000 <= done and not early:       # an engine lost while loading is waited for as well
            early.append(kill_and_bring_back("redis"))
        if text == "posting and reading" and plan and done >= plan[0][0]:
            name = plan.pop(0)[1]
            killed.append(name)
            if name in WORKERS:
                kill_worker(name)
            else:
                kill_and_bring_back(name)

    result = demo.run(s, addresses, graph=shared_file("facebook_combined.txt.gz"), posts=POSTS, threshold=200, seed=5,
                      sample=60, say=say)
    for t in revivals:
        t.join()
    with capsys.disabled():
        print(f"\n  killed {', '.join(killed)}; {result['posts']} posts in {result['seconds']} s, "
              f"{result['scrolls_equal']} of {result['scrolls_checked']} scrolls equal, seed 5 [{os.getpid()}]")
    assert killed == [*WORKERS, *ENGINES]
    assert early == ["redis"]
    assert result["worker_restarts"] >= 2
    assert result["posts"] == POSTS
    assert (result["scrolls_equal"], result["scrolls_checked"]) == (60, 60)
