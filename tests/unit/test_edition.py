"""Cleaning, blanks and lint of notebooks, on small ones made here."""
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from feedlab.classroom import edition
from feedlab.errors import BadInput


def code(source, *tags, text="", count=None):
    cell = new_code_cell(source, metadata={"tags": list(tags)} if tags else {}, execution_count=count)
    if text:
        cell.outputs = [new_output("stream", text=text)]
    return cell


def good():
    return new_notebook(cells=[
        new_markdown_cell("# A notebook"), code("b = book.begin('x')", count=1),
        code("claim('one', 1, 1)", edition.CHECKED, text="holds: one\n", count=2), code("b.end()", count=3)],
        metadata=edition.KERNEL)


def test_a_good_one_is_well():
    assert edition.lint("x.ipynb", good()) == []


@pytest.mark.parametrize(("change", "says"), [
    (lambda b: b.cells.insert(2, code("x = input()", count=2)), "input()"),
    (lambda b: b.cells.insert(2, code("!false", count=2)), "shell lines"),
    (lambda b: b.cells.insert(2, code("%%sqll\nselect 1", count=2)), "unknown magic %sqll"),
    (lambda b: b.cells.insert(2, code("\n".join(f"x{i} = 1" for i in range(9)), count=2)), "9 lines of code"),
    (lambda b: b.cells.insert(2, code("1", text="12 ms\n", count=2)), "would change"),
    (lambda b: b.cells.insert(2, code("open('/home/me/x')", count=2)), "a path of this machine"),
    (lambda b: b.cells.insert(2, new_markdown_cell("word " * 1_900)), "words of prose"),
    (lambda b: b.cells.insert(2, code("plots.show(f)\nclaim('a', 1, 1)", edition.CHECKED, text="holds\n", count=2)), "differs at each run"),
    (lambda b: b.cells.insert(2, code("x = 1", edition.CHECKED, count=2)), "prints nothing to compare"),
    (lambda b: b.cells[2].metadata.update(execution={"iopub": "x"}), "metadata of a run"),
    (lambda b: b.cells.pop(), "does not end the book"),
    (lambda b: b.cells.pop(1), "does not open the book"),
    (lambda b: b.cells[2].update(execution_count=7), "execution counts")])
def test_each_mistake_is_named(change, says):
    book = good()
    change(book)
    assert any(says in s for s in edition.lint("x.ipynb", book)), edition.lint("x.ipynb", book)


def test_clean_keeps_only_what_is_compared():
    book = good()
    book.cells[1].outputs = [new_output("display_data", data={"application/vnd.jupyter.widget-view+json": {}})]
    book.cells[1].metadata["execution"] = {"iopub.status.busy": "2026"}
    book.metadata["widgets"] = {"state": {}}
    book.cells.insert(2, code("answer = 1", edition.SOLUTION, text="3 ms"))
    cleaned = edition.clean(book)
    assert [len(c.get("outputs", [])) for c in cleaned.cells] == [0, 0, 0, 1, 0]
    assert "widgets" not in cleaned.metadata and "execution" not in cleaned.cells[1].metadata
    assert cleaned.cells[2].source.splitlines() == [edition.FOLDED, "answer = 1"], "what is folded shows its first line"
    assert cleaned.cells[2].metadata.jupyter.source_hidden and edition.clean(nbformat.from_dict(cleaned)) == cleaned
    nbformat.validate(cleaned)


@pytest.mark.parametrize(("solution", "blank"), [
    ("answer_1 = 3", "answer_1 = ...     # your turn"),
    ("(_, a, _), = f()\nanswer_2 = a", "answer_2 = ...     # your turn"),
    ("def answer_3(x):\n    y = x\n    return y", "answer_3 = ...     # your turn"),
    ("helper = 2\nanswer_5 = helper", "answer_5 = ...     # your turn"), ("x = 1", "x = ...     # your turn"),
    ("answer_4: int = 2", "answer_4 = ...     # your turn")])
def test_blanks(solution, blank):
    assert edition.blank(solution) == blank


def test_pictures_are_found_from_the_learners_folder():
    book = good()
    book.cells.append(new_markdown_cell("![x](pictures/x.png) [y](../feedlab/reader.py)"))
    assert edition.learner(book).cells[-1].source == "![x](../pictures/x.png) [y](../../feedlab/reader.py)"


@pytest.mark.parametrize("text", ["", "{}", "not json", '{"nbformat": 99}'])
def test_what_is_no_notebook_is_refused(tmp_path, text):
    path = tmp_path / "x.ipynb"
    path.write_text(text)
    with pytest.raises(BadInput, match="is not a notebook"):
        edition.read(path)
    with pytest.raises(BadInput, match="No such file"):
        edition.read(tmp_path / "none.ipynb")


def test_what_was_printed_in_pieces_is_kept_in_one():
    book = good()
    book.cells[2].outputs = [new_output("stream", text="holds: "), new_output("stream", text="one\n")]
    assert [o.text for o in edition.clean(book).cells[2].outputs] == ["holds: one\n"]
