"""The learner's edition: solutions are green (the notebooks themselves, by nbval), blanks are red, and nothing is lost on the way."""
import re

import nbformat
import pytest
from book_parts import WORKBOOK
from nbclient.exceptions import CellExecutionError

from feedlab.classroom import edition, exercises


def every(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda p: p.stem)


@every(WORKBOOK)
def test_every_exercise_has_a_solution_and_a_check(path):
    """Three or four, numbered from 1; before each check a solution that assigns something, which the edition sets to dots."""
    code = [c for c in edition.read(path).cells if c.cell_type == "code"]
    numbers, answers = [], []
    for cell in code:
        if edition.SOLUTION in edition.tags(cell):
            answers += edition.assigned(cell.source)
        for number in re.findall(r"b\.check\(\s*[\"'](\w+)[\"']", cell.source):
            assert answers, f"no solution before the check of exercise {number}"
            numbers.append(number)
            answers = []
    assert numbers == [str(n) for n in range(1, len(numbers) + 1)] and 2 <= len(numbers) <= 4


@every(WORKBOOK)
def test_the_edition_keeps_all_but_the_solutions(path):
    solved, blank = edition.read(path), edition.learner(edition.read(path))
    nbformat.validate(blank)
    left = [re.sub(r"^b\.filled_in\(.*\n", "", c.source) for c in blank.cells if c.cell_type == "code"]
    for cell in solved.cells:
        if cell.cell_type != "code":
            continue
        if edition.SOLUTION in edition.tags(cell):
            assert cell.source not in left
            assert any(cell.source.removeprefix(f"{edition.FOLDED}\n") in c.source for c in blank.cells if c.cell_type == "markdown"), "folded below"
        else:
            assert cell.source in left
    assert all(not c.outputs and c.execution_count is None for c in blank.cells if c.cell_type == "code")


@every(WORKBOOK)
def test_each_check_asks_first_whether_it_is_still_blank(path):
    """And does so with the names that the blanks set: run alone, blanks and checks are red one after the other."""
    asked = 0
    for cell in edition.learner(edition.read(path)).cells:
        if cell.cell_type == "code" and "b.filled_in(" in cell.source:
            number, names = re.match(r'b\.filled_in\("(\w+)", (.+)\)\n', cell.source).groups()
            with pytest.raises(exercises.YourTurn, match=f"exercise {number} is still blank"):
                exercises.filled_in(number, *[...] * len(names.split(",")))
            asked += 1
    assert asked >= 2


@pytest.mark.parametrize("blank", exercises.BLANK)
def test_a_blank_is_red(blank):
    with pytest.raises(exercises.YourTurn, match="exercise 1 is still blank"):
        exercises.check("1", blank, lambda x: True)


def test_a_blank_notebook_stops_at_its_first_exercise(addresses, tmp_path):
    """Run as a learner would who fills nothing in: all is well up to the first check, and that one says whose turn it is."""
    path = next(p for p in WORKBOOK if p.name.startswith("07"))
    book = edition.learner(edition.read(path))
    with pytest.raises(CellExecutionError, match="exercise 1 is still blank"):
        edition.execute(book, path.parent)


def test_copies_of_a_learner_are_never_overwritten(tmp_path):
    written = edition.write_learner(tmp_path)
    assert written[-1].name == "policy_lab.ipynb" and [p.name for p in written[:-1]] == [p.name for p in WORKBOOK]
    written[0].write_text("mine")
    assert edition.write_learner(tmp_path) == [] and written[0].read_text() == "mine"


def test_the_command(tmp_path, capsys):
    from feedlab.cli.edge import run
    assert run(["learner", "--out", str(tmp_path / "mine")]) == 0
    assert f"{len(WORKBOOK) + 1} notebooks written" in capsys.readouterr().out
    assert run(["learner", "--out", str(tmp_path / "mine")]) == 0 and "nothing to do" in capsys.readouterr().out
    (tmp_path / "file").write_text("")
    assert run(["learner", "--out", str(tmp_path / "file")]) == 2
    assert "cannot be written" in capsys.readouterr().err
