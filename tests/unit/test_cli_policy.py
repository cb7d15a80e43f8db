"""`feedlab policy` without an engine: what it prints, what it refuses, and that nothing is left behind by a refusal."""
import json
import shlex

import pytest
from conftest import shared_file

from feedlab.cli import policy as commands
from feedlab.cli.edge import run
from feedlab.policies import files


@pytest.fixture(autouse=True)
def here(alone, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def said(capsys, *argv: str) -> tuple[int, str, str]:
    code = run(["policy", *argv])
    out = capsys.readouterr()
    return code, out.out, out.err


def test_compare_says_it_all(capsys):
    code, out, err = said(capsys, "compare", "--graph", "article", "--repetitions", "3")
    assert code == 0
    for words in ("push-all", "45.0 G", "threshold 10000", "10.6%", "52.2%", "Advised: ", "would flip it"):
        assert words in out, words
    assert "300,000,000 authors" in err


def test_compare_as_json_is_a_list_with_units_in_the_names(capsys):
    code, out, err = said(capsys, "compare", "--graph", "article", "--policy", "push-all", "--policy", "threshold:10000", "--json")
    rows = json.loads(out)
    assert code == 0 and [r["policy"] for r in rows] == ["push-all", "threshold 10000"]
    assert rows[0]["deliveries_per_day"] == pytest.approx(45e9, rel=1e-3)
    for name in ("pulls_per_day", "cpu_cores", "cpu_seconds_per_day", "redis_bytes", "largest_fan_out_seconds", "sources_per_page"):
        assert name in rows[0]
    assert rows[1]["burst"]["repetitions"] == 10 and len(rows[1]["spread"]["deliveries_per_day"]) == 2


@pytest.mark.parametrize("name", ["wiki-Vote.txt", "facebook_combined.txt.gz", "socfb-Reed98.edges"])
def test_real_graphs_at_a_team_s_scale(capsys, name):
    code, out, _ = said(capsys, "compare", "--graph", str(shared_file(name)), "--scale", "300e6", "--json", "--repetitions", "2")
    rows = json.loads(out)
    assert code == 0 and len(rows) == 10 and all(r["users"] == pytest.approx(300e6) for r in rows)


def test_sweep(capsys):
    code, out, _ = said(capsys, "sweep", "--threshold", "100:100000", "--steps", "4", "--feed-max", "128,500", "--json")
    rows = json.loads(out)
    assert code == 0 and [(r["threshold"], r["feed_max"]) for r in rows] == [
        (t, f) for t in (100, 1_000, 10_000, 100_000) for f in (128, 500)]
    writes = [r["deliveries_per_day"] for r in rows if r["feed_max"] == 500]
    assert writes == sorted(writes)
    assert rows[-2]["redis_bytes"] < rows[-1]["redis_bytes"]
    code, out, _ = said(capsys, "sweep", "--graph", "article", "--steps", "3")
    assert code == 0 and "1,000,000" in out


def test_report_is_one_file_that_asks_nobody(capsys, tmp_path):
    code, out, _ = said(capsys, "report", "--graph", "article", "--out", "r.html", "--repetitions", "2")
    page = (tmp_path / "r.html").read_text()
    assert code == 0 and "written: r.html" in out
    for words in ("Advised: ", "on the front of", "Assumptions", "Predicted against measured", "Versions", "Run it again", "10.6%",
                  "default-src 'none'", "H, CPU of a delivery", "feed writes a day, ten draws"):
        assert words in page, words
    assert "http://" not in page.split("<script>")[0] and "https://" not in page.split("<script>")[0]


def test_export_writes_what_the_consumer_loads(capsys, tmp_path):
    (tmp_path / "g.csv").write_text("follower,followee\n" + "".join(f"{u},1\n" for u in range(2, 40)) + "1,2\n")
    (tmp_path / "r.csv").write_text("user,posts_a_day,reads_a_day\n1,5,1\n2,0.1,20\n")
    code, out, _ = said(capsys, "export", "--graph", "g.csv", "--rates", "r.csv", "--policy", "min-cost:0.5", "--out", "policy.toml")
    loaded = files.load("policy.toml")
    assert code == 0 and "policy.rates.csv.gz" in out and "feedlab fanout --policy policy.toml" in out
    assert loaded.policy.h_over_l == 0.5 and loaded.rates.posts_of([1, 2]).tolist() == [5, 0.1]
    assert said(capsys, "export", "--graph", "g.csv", "--out", "advised.toml")[0] == 0 and files.load("advised.toml").basis["users"] == 39


BAD_FILES = {
    "broken.csv": b"follower,folowee\n1,2\n", "empty.csv": b"", "wide.csv": b"1,2\n3,9223372036854775808\n", "word.csv": b"1,2\n3,x\n"}
BAD = [
    (["--graph", "broken.csv"], "does not name both ids"), (["--graph", "empty.csv"], "is empty"), (["--graph", "."], "is a folder"),
    (["--graph", "wide.csv"], "line 2: '9223372036854775808' is not a user id"), (["--graph", "word.csv"], "line 2"),
    (["--graph", "long.txt"], "longer than 1 MB"), (["--graph", "absent.csv"], "does not exist"), (["--graph", ""], "is empty; name"),
    (["--graph", "ok.csv", "--rates", "neg.csv"], "posts_a_day"), (["--rates", "ok.csv", "--graph", "ok.csv"], "expected a header"),
    (["--rates", "rates.csv"], "a histogram has no users"), (["--posts", "-1"], "number of posts a day"),
    (["--reads", "-0.5"], "reads a day"),
    (["--posts", "nan"], "posts a day"), (["--posts", "inf"], "posts a day"), (["--posts", "0"], "nobody posts"),
    (["--policy", "nope"], "there is no policy"), (["--scale", "0"], "number of users"), (["--scale", "1e13"], "number of users"),
    (["--feed-max", "0"], "--feed-max"), (["--layout", "redis-1"], "layout must be"), (["--peak", "0.5"], "--peak"),
    (["--kind", "tree"], "'tree'"),
    (["--columns", "a"], "FOLLOWER,FOLLOWEE"), (["--copies", "2"], "--copies"), (["--fresh", "0"], "--fresh"), (["--seed", "x"], "--seed"),
]


@pytest.mark.parametrize("command, argv, words", [("report", *b) for b in BAD] + [(c, *b) for c in ("compare", "export") for b in BAD[:9]],
                         ids=lambda x: " ".join(x) if isinstance(x, list) else x if x in ("report", "compare", "export") else "")
def test_bad_input_is_one_sentence_and_nothing_is_written(capsys, tmp_path, command, argv, words):
    for name, content in BAD_FILES.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "ok.csv").write_text("1,2\n2,1\n")
    (tmp_path / "neg.csv").write_text("user,posts_a_day,reads_a_day\n1,-1,3\n")
    (tmp_path / "rates.csv").write_text("user,posts_a_day,reads_a_day\n1,1,3\n")
    with open(tmp_path / "long.txt", "wb") as f:          # 2 GB of one line, by its length
        f.write(b"1" * (17 << 20))
        f.truncate(2 << 30)
    before = sorted(p.name for p in tmp_path.iterdir())
    out = {"compare": [], "report": ["--out", "out.html"], "export": ["--out", "out.toml"]}[command]
    code, printed, err = said(capsys, command, *argv, *out)
    sentences = [line for line in err.splitlines() if line.startswith("feedlab: ")]
    assert code == 2 and printed == "" and len(sentences) == 1 and words in sentences[0] and "Traceback" not in err, (code, printed, err)
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "state") == before


def test_places_that_cannot_be_written(capsys, tmp_path):
    for argv in (["report", "--out", "no/r.html"], ["report", "--out", "."], ["export", "--out", "no/p.toml"]):
        code, out, err = said(capsys, *argv)
        assert code == 2 and "folder that exists" in err
    code, _, err = said(capsys, "export", "--policy", "push-all", "--policy", "pull-all", "--out", "p.toml")
    assert code == 2 and "--policy once" in err and not (tmp_path / "p.toml").exists()
    code, _, err = said(capsys, "export", "--policy", "threshold:50", "--graph", "nothing", "--out", "p.toml")
    assert code == 2 and not (tmp_path / "p.toml").exists()


def test_the_consumer_refuses_a_bad_policy_file(capsys, tmp_path):
    (tmp_path / "p.toml").write_text("[policy]\nkind = 'nope'\n")
    code = run(["fanout", "--policy", "p.toml"])
    assert code == 2 and "there is no policy 'nope'" in capsys.readouterr().err


def test_every_example_can_be_parsed():
    import typer
    group = typer.main.get_command(commands.policy)
    for command in group.commands.values():
        examples = [line[2:] for line in command.epilog.split("\n\n") if line.startswith("$ ")]
        assert examples
        for example in examples:
            words = shlex.split(example)
            assert words[:3] == ["feedlab", "policy", command.name]
            command.make_context(command.name, words[3:])
