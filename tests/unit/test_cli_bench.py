"""`bench` and `load-test` without an engine: what may be typed, and the sentence for what may not."""
import json

import pytest

from feedlab import engines
from feedlab.bench import load, report, table
from feedlab.cli import bench, outputs
from feedlab.cli.edge import run
from feedlab.errors import BadInput, EngineDown

BAD = [
    (["bench", "speed"], "'speed' is not a station"), (["bench", "relay", "x"], "'x' is not a station"),
    (["bench", "--json", ""], "--json is empty"), (["bench", "--json", "/proc/none/x.json"], "there is no folder"),
    (["bench", "--report", "/dev/null/x.html"], "--report"), (["bench", "--graph", "no-such.txt"], "no-such.txt"),
    (["load-test", "--mix", "tiktok"], "mixes are article, deathstar, retwis"), (["load-test", "--seconds", "0"], "--seconds"),
    (["load-test", "--clients", "0"], "--clients"), (["load-test", "--clients", "many"], "--clients"),
    (["load-test", "--graph", "no-such.txt"], "no-such.txt"), (["load-test", "--url", "localhost:8080"], "http://host:port"),
    (["load-test", "--url", "http://localhost:99999"], "http://host:port"), (["load-test", "--url", "https://x"], "http://host:port"),
    (["load-test", "--url", "http://x/api"], "http://host:port"), (["load-test", "--json", ""], "--json is empty"),
]


@pytest.mark.parametrize(("argv", "words"), BAD, ids=lambda x: " ".join(x)[:40] if isinstance(x, list) else "")
def test_bad_input_is_one_sentence_before_any_engine_is_asked(capsys, monkeypatch, argv, words):
    def asked(*_, **__):
        raise AssertionError("an engine was asked for")
    for name in ("up", "addresses", "status"):
        monkeypatch.setattr(engines, name, asked)
    code = run(argv)
    out, err = capsys.readouterr()
    assert code == 2 and out == "" and err.startswith("feedlab: ") and err.count("\n") == 1 and words in err, err


def test_a_namespace_of_its_own_unless_one_is_named(monkeypatch):
    from feedlab.config import settings
    monkeypatch.delenv("FEEDLAB_NAMESPACE", raising=False)
    assert outputs.own_namespace(settings(), "load").namespace == "load"
    monkeypatch.setenv("FEEDLAB_NAMESPACE", "class1")
    assert outputs.own_namespace(settings(), "load").namespace == "class1"


def row(**changes) -> dict:
    one = {"median": 2.0, "low": 1.0, "high": 4.0, "n": 3}
    return {"station": "relay", "what": "relay", "ours": one, "beside": "memory", "other": one, "unit": "rows/s", "ratio": one,
            "bound": ">= 1", "reached": True} | changes


def result(*rows) -> dict:
    return {"rows": list(rows), "stations": {"relay": {"conditions": "few rows", "counts": {"rows": 7}, "rows": [], "seconds": 1.0}},
            "failed": {}, "quick": False, "machine": table.machine(), "engines": [], "seconds": 12.0}


@pytest.fixture
def measured(monkeypatch):
    """The command with engines and stations put aside; what it was asked for."""
    asked: dict = {}

    def stations(settings, addresses, names, **options):
        asked.update(names=list(names), settings=settings, **options)
        return result(row(), row(what="slow", reached=False, bound=">= 3"), row(ratio=None, bound="", reached=None))
    monkeypatch.setattr(engines, "addresses", lambda s, **_: "addresses")
    monkeypatch.setattr(table, "run", stations)
    return asked


def test_the_table_says_what_is_kept_and_the_exit_code_is_0_all_the_same(capsys, measured, tmp_path):
    out, page = tmp_path / "b.json", tmp_path / "b.html"
    assert run(["bench", "relay", "delivery", "--quick", "--json", str(out), "--report", str(page)]) == 0
    said = capsys.readouterr().out
    assert "1 of 2 bounds kept" in said and "NO" in said and ">= 3" in said and "2 (1 to 4)" in said
    assert json.loads(out.read_text())["rows"][1]["reached"] is False and "1 of 2 bounds are kept" in page.read_text(encoding="utf-8")
    assert measured["names"] == ["relay", "delivery"] and measured["quick"] and measured["settings"].namespace == "bench"


def test_a_station_that_cannot_be_measured_leaves_the_others(capsys, monkeypatch, tmp_path):
    def broken(settings, addresses, **_):
        raise EngineDown("Kafka does not answer.")
    monkeypatch.setattr(engines, "addresses", lambda s, **_: "addresses")
    monkeypatch.setattr(engines, "status", lambda s: [])
    good = {"station": "relay", "rows": [row()], "counts": {}, "conditions": "", "seconds": 1.0}
    monkeypatch.setattr(table, "STATIONS", {"delivery": broken, "relay": lambda s, a, **_: good})
    assert run(["bench", "--json", str(tmp_path / "b.json")]) == 2
    out, err = capsys.readouterr()
    assert "1 of 1 bounds kept" in out and err.splitlines()[-1] == "feedlab: delivery was not measured: Kafka does not answer."
    kept = json.loads((tmp_path / "b.json").read_text())
    assert list(kept["stations"]) == ["relay"] and list(kept["failed"]) == ["delivery"]


def test_json_on_stdout_is_the_document_alone(capsys, measured):
    assert run(["bench", "--json", "-"]) == 0
    out, err = capsys.readouterr()
    assert len(json.loads(out)["rows"]) == 3 and "bounds kept" in err


def test_a_graph_goes_to_the_push_station(capsys, measured, tmp_path):
    (tmp_path / "g.txt").write_text("1 2\n")
    assert run(["bench", "push", "--graph", str(tmp_path / "g.txt")]) == 0
    assert measured["options"] == {"push": {"graph": tmp_path / "g.txt"}}


@pytest.mark.parametrize(("argv", "code"), [([], 0), (["--mix", "retwis"], 1)])
def test_load_test_exits_with_1_when_there_was_an_error(capsys, monkeypatch, argv, code):
    monkeypatch.setattr(engines, "addresses", lambda s, **_: "addresses")
    monkeypatch.setattr(load, "run", lambda s, a, mix, **_: {
        "mix": mix, "operations": {"feed": {"requests": 9, "p50_ms": 1.5, "p99_ms": 3.0, "errors": code}}, "requests": 9, "seconds": 1.0,
        "clients": 4, "requests_a_second": 9.0, "errors": code, "examples": ["feed: 500 oh"] * code})
    assert run(["load-test", *argv]) == code
    out = capsys.readouterr().out
    assert "9 requests in 1.0 s by 4 clients" in out and ("feed: 500 oh" in out) == bool(code)


# --- parts without an engine -----------------------------------------------------------------------------------------------------------

def test_how_far_from_the_bound():
    at_most = row(bound="<= 4", ratio={"median": 2.0, "low": 1.0, "high": 8.0, "n": 3})
    assert report.margin(at_most) == 2 and report.margin(at_most, "high") == 0.5 and report.margin(row()) == 2


def test_mixes_are_as_cited():
    shares = {mix: {k: v / sum(weights.values()) for k, v in weights.items()} for mix, (weights, _) in load.MIXES.items()}
    assert shares["deathstar"] == {"feed": 0.6, "author": 0.3, "post": 0.1} and load.MIXES["deathstar"][1] == 10
    assert shares["retwis"] == {"user": 0.05, "follow": 0.15, "post": 0.3, "feed": 0.5}
    assert shares["article"]["feed"] / shares["article"]["post"] == 20
    assert set(load.MIXES) == set(bench.MIXES)
    assert {op for weights, _ in load.MIXES.values() for op in weights} == set(load.EXPECTED)


def test_no_api_answers_there():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with pytest.raises(EngineDown, match="Start one with `feedlab serve`"):
        load.known(f"http://127.0.0.1:{port}", 1, load.Path("g.txt"))


def test_an_unknown_mix():
    with pytest.raises(BadInput, match="no mix 'x'"):
        load.run(None, None, "x")
