"""The commands on real engines: a post is written, moved and delivered by real processes, read and traced."""
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO

import pytest
from conftest import until

from feedlab.cli import run

LAB = {"feed_max": 50, "threshold": 5}


@dataclass
class Done:
    code: int
    stdout: str
    stderr: str


@pytest.fixture
def cli(lab, monkeypatch):
    """Run one command in the module's namespace: cli("feed", "1").stdout. In this process: a second less each."""
    for name, value in environment(lab).items():
        monkeypatch.setenv(name, value)

    def call(*argv: str, code: int = 0, **env: str) -> Done:
        out, err = StringIO(), StringIO()
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            for name, value in env.items():
                patch.setenv(name, value)
            done = Done(run(list(argv)), out.getvalue(), err.getvalue())
        assert done.code == code, (argv, done)
        assert "\x1b" not in done.stdout + done.stderr
        return done
    return call


def environment(lab) -> dict[str, str]:
    s = lab.settings
    unwanted = "FEEDLAB_", "FORCE_COLOR", "GITHUB_", "PY_COLORS"
    return {k: v for k, v in os.environ.items() if not k.startswith(unwanted)} | lab.addresses.environment() | {
        "FEEDLAB_NAMESPACE": s.namespace, "FEEDLAB_PARTITIONS": str(s.partitions)}


@contextmanager
def loops(lab, sent=signal.SIGTERM):
    """`feedlab relay` and `feedlab fanout`; told to stop at the end, they leave with 0 and say a last line."""
    running = {name: subprocess.Popen([sys.executable, "-m", "feedlab", name], env=environment(lab), text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE) for name in ("relay", "fanout")}
    try:
        yield running
        for p in running.values():
            p.send_signal(sent)
        for name, p in running.items():
            out, err = p.communicate(timeout=20)
            assert p.returncode == 0 and err == "", (name, err)
            first, *_, last = out.splitlines()
            assert first.startswith(f"{name}: starts") and last.startswith(f"{name}: stopped, "), out
    finally:
        for p in running.values():
            p.kill()


def test_the_whole_way(cli, lab):
    for u in "1", "2", "3":
        cli("user", u)
    assert "already" in cli("user", "1", code=2).stderr
    assert "follows 1 now" in cli("follow", "2", "1").stdout
    assert "already" in cli("follow", "2", "1").stdout
    assert "oneself" in cli("follow", "1", "1", code=2).stderr
    assert "no posts" in cli("feed", "2").stdout
    made = json.loads(cli("post", "1", "héllo [b]\x1b[31m", "--image", "https://example.org/a.png", "--json").stdout)
    assert set(made) == {"id", "author", "created_at_ms", "text", "images"} and made["author"] == "1"
    post = made["id"]
    assert int(post) > 2**53, "so it must be a string"
    assert json.loads(cli("trace", post, "--json").stdout)["outbox"] == "waiting"
    with loops(lab):
        until(lambda: lab.redis.hget(lab.names.trace(int(post)), "deliveries"), 30, "delivery")
        lab.drain()
        # the follow's own event may have dropped the feed: read it, then a second post meets a feed
        assert "héllo [b]�[31m  (1 image)" in cli("feed", "2").stdout
        second = json.loads(cli("post", "1", "second", "--json").stdout)["id"]
        lab.drain()
    traced = json.loads(cli("trace", second, "--json").stdout)
    assert traced["decision"] == "pushed" and traced["topic"] == lab.names.created and traced["feeds"]["holding"] == 1
    assert traced["post"] == second and traced["first_feed_ms"] >= 0
    shown = cli("trace", second).stdout
    assert "1 of 1 active follower holds it" in shown and "pushed: 1 feed write" in shown and lab.names.created in shown

    page = json.loads(cli("feed", "2", "--limit", "1", "--explain", "--json").stdout)
    assert [p["id"] for p in page["posts"]] == [second] and page["next_cursor"] and page["explain"]["feed"] == "pushed"
    last = json.loads(cli("feed", "2", "--cursor", page["next_cursor"], "--json").stdout)
    assert [p["id"] for p in last["posts"]] == [post] and last["next_cursor"] is None and last["user"] == "2"
    assert "How this page was made" in cli("feed", "2", "--explain").stdout

    assert "deleted" in cli("delete", "1", second).stdout
    assert "no post" in cli("delete", "2", second, code=2).stderr
    assert [p["id"] for p in json.loads(cli("feed", "2", "--json").stdout)["posts"]] == [post]
    assert "no longer follows" in cli("unfollow", "2", "1").stdout
    assert json.loads(cli("feed", "2", "--json").stdout)["posts"] == []
    for argv in (["feed", "77"], ["post", "77", "hi"], ["follow", "2", "77"], ["trace", "77"]):
        assert "there is no" in cli(*argv, code=2).stderr


def test_knobs_and_status(cli, lab):
    assert json.loads(cli("set", "threshold=7", "feed_max=40", "--json").stdout) == {"threshold": 7, "feed_max": 40}
    assert cli("set").stdout == "threshold=7 feed_max=40\n"
    data = json.loads(cli("status", "--json").stdout)
    assert [e["healthy"] for e in data["engines"]] == [True] * 3
    assert data["pipeline"]["knobs"] == {"threshold": 7, "feed_max": 40}
    assert {"outbox", "lag", "dead_letters"} <= set(data["pipeline"])
    assert "yours" in cli("status").stdout
    empty = cli("status", FEEDLAB_NAMESPACE="t_empty").stdout
    assert "nothing written in namespace t_empty yet; `feedlab -n t_empty load FILE`" in empty and "`feedlab demo`" not in empty
    there = lab.conn.execute("select to_regclass('demo.posts') is not null").fetchone()[0]
    assert ("`feedlab -n demo status`" in empty) is there
    assert not lab.conn.execute("select 1 from pg_namespace where nspname = 't_empty'").fetchone(), "status makes nothing"


def test_load_drops_feeds(cli, lab, tmp_path):
    file = tmp_path / "graph.csv"
    file.write_text("follower,followee\n101,100\n102,100\n")
    out = cli("load", str(file)).stdout
    assert "directed" in out and "3 users, 2 follows" in out and "3 new users and 2 new follows" in out
    cli("post", "100", "hi")
    assert len(json.loads(cli("feed", "101", "--json").stdout)["posts"]) == 1
    cli("user", "103")
    assert json.loads(cli("feed", "103", "--json").stdout)["posts"] == []      # a feed exists now
    file.write_text("follower,followee\n103,100\n")
    data = json.loads(cli("load", str(file), "--json").stdout)
    assert (data["users"], data["new_users"], data["new_follows"], data["directed"]) == (2, 0, 1, True)
    assert data["timelines_dropped"] >= 2
    assert len(json.loads(cli("feed", "103", "--json").stdout)["posts"]) == 1
    file.write_text("1 2\n3 x\n")
    assert "line 2" in cli("load", str(file), code=2).stderr


def test_writing_and_reading_while_redis_and_kafka_are_away(cli):
    away = {"FEEDLAB_REDIS_URL": "redis://127.0.0.1:1/0", "FEEDLAB_KAFKA_BOOTSTRAP": "127.0.0.1:1"}
    cli("user", "201", **away)
    cli("user", "202", **away)
    cli("follow", "201", "202", **away)
    cli("post", "202", "still here", **away)
    page = json.loads(cli("feed", "201", "--json", "--explain", **away).stdout)
    assert page["posts"][0]["text"] == "still here" and page["explain"]["feed"] == "unreachable"
    assert "Redis does not answer" in cli("trace", "5", code=2, **away).stderr
    assert cli("status", code=1, **away).stdout.count("NOT WELL") == 2


def test_another_engine_s_port_is_named(cli, lab):
    """By `up`, by `status` and by a loop: which engine answers there instead."""
    from urllib.parse import urlsplit
    pg, r, k = (urlsplit(x if "://" in x else f"//{x}").netloc.rpartition("@")[2] for x in (
        lab.addresses.postgres_url, lab.addresses.redis_url, lab.addresses.kafka_bootstrap))
    for variable, url, there, what in (
            ("FEEDLAB_KAFKA_BOOTSTRAP", r, r, "Redis, not Kafka"), ("FEEDLAB_KAFKA_BOOTSTRAP", pg, pg, "PostgreSQL, not Kafka"),
            ("FEEDLAB_REDIS_URL", f"redis://{k}/0", k, "Kafka, not Redis"),
            ("FEEDLAB_REDIS_URL", f"redis://{pg}/0", pg, "PostgreSQL, not Redis"),
            ("FEEDLAB_POSTGRES_URL", f"postgresql://u:secret@{r}/x", r, "Redis, not PostgreSQL"),
            ("FEEDLAB_POSTGRES_URL", f"postgresql://u:secret@{k}/x", k, "Kafka, not PostgreSQL")):
        said = f"something answers at {there}, but it is {what}"
        assert said in cli("status", code=1, **{variable: url}).stdout
        err = cli("up", code=2, **{variable: url}).stderr
        assert said in err and variable in err and "secret" not in err
    with subprocess.Popen([sys.executable, "-m", "feedlab", "relay"], text=True, stdout=subprocess.PIPE,
                          env=environment(lab) | {"FEEDLAB_KAFKA_BOOTSTRAP": r}) as p:
        try:
            lines = [p.stdout.readline(), p.stdout.readline()]
        finally:
            p.kill()
    assert f"waiting, since Kafka does not answer: something answers at {r}, but it is Redis, not Kafka" in lines[1]


def test_ctrl_c_stops_the_loops_too(cli, lab):
    cli("user", "301")
    cli("post", "301", "one more")
    with loops(lab, signal.SIGINT):
        lab.drain()          # both are at work
