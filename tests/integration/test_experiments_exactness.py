"""What the notebook on exactness runs: the race of two systems, the counterexample, each safeguard switched off and back on."""
from types import SimpleNamespace

import pytest

from feedlab import celebrities, reader, timeline
from feedlab.classroom import book as books
from feedlab.classroom.chapters import exactness
from feedlab.errors import BadInput
from feedlab.verify.histories import KINDS, History, random_history

SEED = 6      # of its first histories the textbook gets some wrong


@pytest.fixture(scope="module")
def book(addresses):
    made = books.begin("t_exactness")
    yield made
    made.end()


@pytest.fixture(scope="module")
def reports(book):
    return exactness.race(book, SEED, 6)


def test_ours_is_right_and_the_textbook_is_not(reports):
    assert {name: len(rs) for name, rs in reports.items()} == {"textbook": 6, "ours": 6}
    assert exactness.wrong(reports["ours"]) == [] and exactness.wrong(reports["textbook"])
    fig = exactness.strip(reports)
    assert fig.layout.title.text == f"Wrong histories of 6: textbook {len(exactness.wrong(reports['textbook']))}, ours 0"
    assert sum(len(t.x) for t in fig.data) == 12 and set(fig.data[1].y) == {"textbook"}
    assert exactness.kinds(reports["textbook"]).layout.title.text.startswith("Most often: ")
    assert exactness.kinds(reports["ours"]).layout.title.text == "Nothing was wrong"


def test_the_counterexample_is_short_and_still_wrong(book, reports):
    long, short = exactness.counterexample(book, SEED, reports["textbook"])
    assert 0 < len(short.steps) < len(long.steps)
    assert exactness.judged(book, "textbook", short).wrong and not exactness.judged(book, "ours", short).wrong
    lines = exactness.told(short).splitlines()
    assert lines[0].startswith("given: ") and len(lines) == 1 + len(short.steps)


def test_a_counterexample_needs_a_wrong_history(book, reports):
    with pytest.raises(BadInput, match="none of the 6 histories went wrong. Take another seed"):
        exactness.counterexample(book, SEED, reports["ours"])


def test_an_error_in_a_thread_ends_the_race(book):
    def fails(runner, history):
        raise ZeroDivisionError(history.name)
    with pytest.raises(ZeroDivisionError):
        exactness.on_each(book, ["ours"], fails, [random_history(1)])


def test_each_safeguard_is_missed(book):
    found = exactness.missed(book)
    assert list(found) == list(exactness.SAFEGUARDS)
    for name, (whole, off) in found.items():
        assert not whole.wrong, f"{name}: {whole}"
        assert off.wrong, f"nobody misses {name}"
    assert exactness.missed_table(found).layout.title.text == "6 of 6 safeguards are missed as soon as they are off"
    kinds = {name: {v.kind for v in off.verdicts} for name, (_, off) in found.items()}
    assert "deleted shown" in kinds["read filter"] and "out of order" in kinds["numeric ties"]


def test_a_safeguard_is_back_on_afterwards(book):
    before = timeline.LIBRARY, timeline.CODE, timeline.member, reader.visible, reader.Reader._below, celebrities.raise_flags
    libraries = {row[1] for row in book.open().redis.function_list()}
    for name, safeguard in exactness.SAFEGUARDS.items():
        with pytest.raises(KeyError):
            with safeguard.off(book.open().redis):
                raise KeyError(name)
    assert before == (timeline.LIBRARY, timeline.CODE, timeline.member, reader.visible, reader.Reader._below, celebrities.raise_flags)
    assert {row[1] for row in book.open().redis.function_list()} == libraries
    assert not exactness.without(book, None, [exactness.SAFEGUARDS["read filter"].history])[0].wrong


def test_a_safeguard_that_has_moved_is_said(book, monkeypatch):
    monkeypatch.setattr(timeline, "CODE", "#!lua name=feedlab\n")
    with pytest.raises(BadInput, match="timeline.lua has changed"):
        with exactness.SAFEGUARDS["floor"].off(book.open().redis):
            pass


def test_without_takes_histories_of_its_own(book):
    harmless = History([["post", 1]], 2, [[0, 1]])
    assert [r.wrong for r in exactness.without(book, "read filter", [harmless])] == [0]
    with pytest.raises(BadInput, match="there is no safeguard 'belt'; they are: whole feeds only"):
        exactness.without(book, "belt")
    with pytest.raises(BadInput, match="say which histories"):
        exactness.without(book, None)


def test_steps_are_judged(book):
    report = exactness.judged(book, "textbook", [("post", 1), ("post", 1)], users=2, follows=[[0, 1]], feed_max=1)
    assert {v.kind for v in report.verdicts} == {"ended early"}


@pytest.mark.parametrize(("steps", "said"), [
    ([["pray"]], "is no step; the first word is one of: post, tick"),
    ([[]], "is no step"),
    ([["post"]], r"'post' takes 1 arguments, got 0. For example \['post', 1\]"),
    ([["inside", "page", 2, [["post"]]]], "'post' takes 1 arguments")])
def test_a_step_that_is_none_is_a_sentence(book, steps, said):
    with pytest.raises(BadInput, match=said):
        exactness.judged(book, "ours", steps)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_step_can_be_told(name):
    step = exactness.example(name)
    exactness.check_steps([step])
    line = exactness.told(History([step])).splitlines()[1]
    assert line.startswith("1. ") and "{" not in line and len(line.split()) > 3


def test_the_table_of_safeguards_says_when_one_is_not_missed():
    right = SimpleNamespace(verdicts=[], wrong=0)
    wrong = SimpleNamespace(verdicts=[SimpleNamespace(kind="missing")], wrong=1)
    fig = exactness.missed_table({"a": (right, wrong), "b": (right, right)})
    assert fig.layout.title.text.startswith("1 of 2 safeguards")


def test_the_notebook_s_namespaces_go_with_the_book(addresses):
    made = books.begin("t_exactness_end")
    exactness.judged(made, "ours", [["post", 1]], users=2)
    own, = set(made.namespaces) - {made.settings.namespace}
    r = made.open().redis
    url = addresses.redis_url
    made.end()
    r = timeline.client(url)
    assert not list(r.scan_iter(match=f"{own}:*"))
    r.close()
