"""The command line without an engine: help, bad input, exit codes, what is imported. Every error is one sentence."""
import os
import shlex
import signal
import subprocess
import sys

import pytest
from conftest import AWAY

from feedlab import engines
from feedlab.cli.edge import group, run, sentence

COMMANDS = group().commands
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("FEEDLAB_", "FORCE_COLOR", "GITHUB_", "PY_COLORS"))}
pytestmark = pytest.mark.usefixtures("alone")


def said(capsys, *argv: str) -> tuple[int, str, str]:
    code = run(list(argv))
    out = capsys.readouterr()
    return code, out.out, out.err


def refused(capsys, *argv: str) -> str:
    """The one sentence of a command that exits with 2."""
    code, out, err = said(capsys, *argv)
    assert code == 2 and out == "", (code, out, err)
    assert err.startswith("feedlab: ") and err.count("\n") == 1 and "Traceback" not in err, err
    return err


def test_all_commands_are_there():
    assert set(COMMANDS) == {"up", "down", "status", "doctor", "load", "relay", "fanout", "set", "user", "follow",
                             "unfollow", "post", "delete", "feed", "trace", "demo", "lab", "check", "serve", "control",
                             "bench", "load-test", "interview", "drill", "policy", "learner"}


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_examples(capsys, name):
    code, out, err = said(capsys, name, "--help")
    assert code == 0 and err == ""
    assert "Examples:" in out and f"feedlab {name}" in out.split("Examples:")[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_can_be_parsed(name):
    examples = [line[2:] for line in COMMANDS[name].epilog.split("\n\n") if line.startswith("$ ")]
    assert examples
    for example in examples:
        words = shlex.split(example.replace(r"\[", "[").split(" > ")[0])
        words = words[next(i for i, w in enumerate(words) if w == "feedlab"):]
        assert words[1] == name
        COMMANDS[name].make_context(name, words[2:])


def test_no_arguments_is_help(capsys):
    code, out, _ = said(capsys)
    assert code == 0 and "Usage: feedlab" in out and "demo" in out


def test_version(capsys):
    from feedlab import __version__
    assert said(capsys, "--version") == (0, f"feedlab {__version__}\n", "")


BAD = [
    (["feed", "x"], "'x' is not a user id"), (["feed", "1.5"], "not a user id"), (["feed", "-5"], "negative"),
    (["feed", "9223372036854775808"], "2^63-1"), (["feed", "9" * 5000], "not a user id"),
    (["feed", "٣"], "not a user id"),
    (["feed", ""], "not a user id"), (["feed", "1", "--limit", "0"], "--limit"),
    (["feed", "1", "--limit", "-1"], "--limit"),
    (["feed", "1", "--limit", "many"], "--limit"), (["feed", "1", "--cursor", "yesterday"], "createdAtMillis:postId"),
    (["feed", "1", "--cursor", ""], "createdAtMillis:postId"), (["feed"], "USER"), (["feed", "1", "2"], "2"),
    (["post", "1"], "TEXT"), (["post", "1", "  "], "empty"),
    (["post", "1", "hi", "--at", "noon"], "epoch milliseconds"),
    (["post", "1", "hi", "--at", "9007199254740993"], "2^53"), (["post", "1", "hi", "--at", "-1"], "--at"),
    (["post", "1", "\udcff"], "UTF-8"), (["post", "1", "hi", "--image", ""], "--image"),
    (["post", "1", "-hi"], "behind --"),
    (["user", "abc"], "not a user id"), (["user", "1", ""], "empty"), (["follow", "1"], "AUTHOR"),
    (["follow", "1", "b"], "'b' is not a user id"), (["unfollow", "a", "1"], "not a user id"),
    (["delete", "1", "p"], "not a post id"), (["trace", "12a"], "not a post id"), (["trace", "0x1f"], "not a post id"),
    (["set", "threshold"], "threshold=300"), (["set", "speed=3"], "'speed=3'"), (["set", "feed_max=0"], "from 1 to 100000"),
    (["set", "threshold=-1"], "from 0 to"), (["set", "threshold=ten"], "whole number"),
    (["load"], "GRAPH"), (["load", "no-such-file.txt"], "no-such-file.txt"), (["load", "."], "folder"),
    (["up", "--engines", "cloud"], "'cloud'"), (["lab", "--port", "0"], "--port"),
    (["lab", "--port", "70000"], "65535"),
    (["demo", "--posts", "0"], "--posts"), (["demo", "--sample", "0"], "--sample"),
    (["demo", "--threshold", "-1"], "--threshold"),
    (["demo", "--feed-max", "0"], "--feed-max"), (["demo", "--seed", "abc"], "--seed"),
    (["demo", "--json", "/dev/null/x.json"], "--json"), (["nope"], "'nope'"), (["status", "--yaml"], "--yaml"),
]


@pytest.mark.parametrize(("argv", "words"), BAD, ids=lambda x: " ".join(x)[:40] if isinstance(x, list) else "")
def test_bad_input_is_one_sentence_before_any_engine_is_asked(capsys, monkeypatch, argv, words):
    def asked(*_, **__):
        raise AssertionError("an engine was asked for")
    for name in ("up", "addresses", "status", "doctor"):
        monkeypatch.setattr(engines, name, asked)
    assert words in refused(capsys, *argv)


@pytest.mark.parametrize("argv", [["post", "1", "hi"], ["feed", "1"], ["set"], ["relay"], ["fanout"], ["trace", "5"],
                                  ["follow", "1", "2"], ["user", "1"], ["delete", "1", "2"]], ids=lambda a: a[0])
def test_engines_that_were_never_started(capsys, argv):
    assert "has not been started here. Run `feedlab up`." in refused(capsys, *argv)


@pytest.mark.parametrize("loop", ["relay", "fanout"])
@pytest.mark.parametrize(("variable", "url"), [
    ("FEEDLAB_POSTGRES_URL", "nonsense"), ("FEEDLAB_POSTGRES_URL", "postgresql://u:secret@h:12345678/x"),
    ("FEEDLAB_POSTGRES_URL", "postgresql://u:sec ret@h/x"), ("FEEDLAB_REDIS_URL", "localhost:6379"),
    ("FEEDLAB_REDIS_URL", "redis://h:port/0"), ("FEEDLAB_KAFKA_BOOTSTRAP", "localhost"),
    ("FEEDLAB_KAFKA_BOOTSTRAP", "h:0"), ("FEEDLAB_KAFKA_BOOTSTRAP", ",,"), ("FEEDLAB_REDIS_URL", "redis://h:1/abc"),
    ("FEEDLAB_POSTGRES_URL", "mysql://a@b/c"),
    ("FEEDLAB_ENGINES", "cloud"), ("FEEDLAB_NAMESPACE", "No!"), ("FEEDLAB_FEED_MAX", "lots")])
def test_a_loop_does_not_wait_for_a_wrong_variable(capsys, monkeypatch, loop, variable, url):
    for name, value in (AWAY | {variable: url}).items():
        monkeypatch.setenv(name, value)
    err = refused(capsys, loop)
    assert variable in err and "secret" not in err and "sec ret" not in err


def test_status_of_nothing(capsys):
    code, out, _ = said(capsys, "status")
    assert code == 1 and out.count("not started: `feedlab up`") == 3
    code, out, _ = said(capsys, "status", "--json")
    import json
    data = json.loads(out)
    assert code == 1 and data["pipeline"] is None
    assert [e["name"] for e in data["engines"]] == ["postgres", "redis", "kafka"]


def test_engine_errors_at_the_edge_name_engine_and_doctor():
    import psycopg
    from confluent_kafka import KafkaError, KafkaException
    from redis.exceptions import ConnectionError as RedisDown
    for error, name in ((psycopg.OperationalError("gone\nmore"), "PostgreSQL: gone. "),
                        (RedisDown("refused."), "Redis: refused. "),
                        (KafkaException(KafkaError(KafkaError._TRANSPORT, "no broker")), "Kafka: no broker. "),
                        (psycopg.OperationalError("at postgresql://u:secret@h/x"),
                         "PostgreSQL: at postgresql://u:***@h/x. ")):
        assert sentence(error) == f"{name}`feedlab doctor` says what is wrong."
    assert sentence(PermissionError(13, "Permission denied", "/x")).startswith("/x: Permission denied. ")
    assert sentence(ZeroDivisionError()) is None, "our own mistakes keep their traceback"


@pytest.mark.parametrize(("argv", "words"), [
    (["status"], "what was written before stays"), (["-n", "demo", "status"], "what was written before stays"),
    (["up"], "`feedlab up` goes on from there"), (["-n", "demo", "demo"], "the next `feedlab demo` empties it first")])
def test_ctrl_c_is_130_and_one_line_that_says_what_stands(capsys, monkeypatch, argv, words):
    def interrupted(*_):
        raise KeyboardInterrupt
    monkeypatch.setattr(engines, "status", interrupted)
    monkeypatch.setattr(engines, "up", interrupted)
    code, out, err = said(capsys, *argv)
    assert (code, out) == (130, "") and words in err
    assert err.startswith("feedlab: interrupted; ") and err.count("\n") == 1


@pytest.mark.parametrize("name", [None, *COMMANDS])
def test_help_names_no_type_of_python_beside_itself(capsys, name):
    _, out, _ = said(capsys, *([name] if name else []), "--help")
    (line,) = [x for x in out.splitlines() if "Show this message" in x]
    assert "<bool>" not in out and "--help" in line


def test_a_namespace_that_is_none_is_said_in_words(capsys):
    from feedlab.cli.app import NAMESPACE
    from feedlab.config import Settings
    assert NAMESPACE == Settings.model_fields["namespace"].metadata[0].pattern
    for bad in ("A", "", "9a", "a" * 32, "a-b", "a\n"):
        err = refused(capsys, "-n", bad, "status")
        assert "'--namespace' / '-n'" in err and "a letter from a to z" in err and "pattern" not in err


@pytest.mark.parametrize("option", ["--json", "--report"])
def test_an_outcome_that_cannot_be_written_is_refused_first_and_makes_nothing(capsys, monkeypatch, tmp_path, option):
    monkeypatch.setattr(engines, "up", lambda *_: pytest.fail("an engine was asked for"))
    err = refused(capsys, "demo", option, str(tmp_path / "none" / "x.out"))
    assert f"there is no folder {tmp_path / 'none'}. Make it first" in err and option in err
    assert option in refused(capsys, "demo", option, str(tmp_path)) and option in refused(capsys, "demo", option, "")
    assert list(tmp_path.iterdir()) == []


def test_an_outcome_that_can_be_written_leaves_no_empty_file_and_keeps_an_old_one(tmp_path):
    from feedlab.cli.outputs import _writable
    (tmp_path / "old").write_text("kept")
    for name in ("old", "new"):
        assert _writable("--json", str(tmp_path / name)) == tmp_path / name
    assert [p.name for p in tmp_path.iterdir()] == ["old"] and (tmp_path / "old").read_text() == "kept"


def test_a_missing_graph_is_told_for_the_command_that_was_typed(capsys):
    assert "--graph" not in refused(capsys, "load", "missing.txt")
    assert "leave --graph out" in refused(capsys, "demo", "--graph", "missing.txt")
    assert "empty" in refused(capsys, "load", "") and "empty" in refused(capsys, "demo", "--graph", "")


def test_a_limit_that_is_cut_is_said(capsys):
    code, _, err = said(capsys, "feed", "1", "--limit", "80")
    assert code == 2 and "--limit 80 is cut to 50" in err
    assert "cut" not in said(capsys, "feed", "1", "--limit", "50")[2]


def test_an_empty_namespace_is_told_what_fills_it():
    from feedlab.cli.engines import _nothing
    assert _nothing("feedlab", True) == ("pipeline: nothing written in namespace feedlab yet; `feedlab load FILE` and `feedlab post "
                                         "USER TEXT` fill it; what the demo left is in namespace demo: `feedlab -n demo status`")
    assert "demo" not in _nothing("feedlab", False)
    assert "`feedlab -n x load FILE`" in _nothing("x", False)
    assert "`feedlab demo` fills it" in _nothing("demo", False)


RESULT = {"users": 1, "follows": 1, "posts": 1, "seconds": 1.0, "deliveries": 12, "deliveries_expected": 10, "threshold": 1,
          "scrolls_equal": 1, "scrolls_checked": 1, "bytes_per_entry": 66.0,
          "redis": {"encoding": "listpack", "encodings": {"skiplist": 508, "listpack": 3531}}}


def test_the_summary_of_a_demo(capsys):
    from feedlab.cli.demo import summary
    assert summary(RESULT)
    out = capsys.readouterr().out
    assert "3,531 feeds as listpack, 508 as skiplist" in out and "with 1 follow\n" in out.replace(" \n", "\n").replace("  ", "")
    assert "NOT EQUAL" in out and "1 follower or more" in out
    assert summary(RESULT | {"deliveries_exact": False, "redis_lost": 3})
    out = capsys.readouterr().out
    assert "Redis lost its memory 3 times: some deliveries were made again; by the graph they are 10" in out
    assert "bound" not in out


def test_ones_are_not_many():
    from feedlab.cli import engines as commands
    from feedlab.cli import trace
    from feedlab.lab.trace import Feeds
    assert commands._to_mend(1, 9).startswith("1 of 9 needs mending")
    one = Feeds(**{f: 0 for f in Feeds.__dataclass_fields__} | {"active_followers": 1, "holding": 1})
    assert trace._feeds(one) == "1 of 1 active follower holds it"


def test_help_imports_nothing_heavy_and_has_no_colours():
    heavy = "confluent_kafka psycopg redis plotly pandas numpy jupyterlab pydantic_settings".split()
    code = f"import sys; from feedlab.cli import run; run(['--help']); print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=CLEAN)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("[]\n") and "\x1b" not in done.stdout


@pytest.mark.parametrize(("loop", "sent"), [("relay", signal.SIGTERM), ("fanout", signal.SIGINT)])
def test_a_loop_waits_for_engines_and_leaves_when_told(loop, sent):
    with subprocess.Popen([sys.executable, "-m", "feedlab", loop], env=CLEAN | AWAY, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as p:
        try:
            lines = [p.stdout.readline(), p.stdout.readline()]
            p.send_signal(sent)
            out, err = p.communicate(timeout=20)
        finally:
            p.kill()
    assert lines[0] == f"{loop}: starts in namespace feedlab; Ctrl-C stops it\n"
    assert lines[1].startswith(f"{loop}: waiting, since PostgreSQL does not answer"), lines
    assert p.returncode == 0 and err == "" and out.startswith(f"{loop}: stopped, 0 ") and out.count("\n") == 1
