"""What is committed as a notebook: small, true, the same at every run, and with the skeleton of the workbook. No engine."""
import importlib
import pkgutil
import re

import pytest
from book_parts import BOOKS, FOLDER, ROOT, WORKBOOK

import feedlab
from feedlab.classroom import edition

SKELETON = ["Predict", "Run", "Break", "Mend", "Say it in an interview", "Exercises"]
MODULES: dict[str, list[str]] = {}          # last part -> all modules of that name, for example the bench's and the experiments' `memory`
for found in pkgutil.walk_packages(feedlab.__path__, "feedlab."):
    if ".cli." not in found.name:
        MODULES.setdefault(found.name.rsplit(".", 1)[1], []).append(found.name)


def every(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda p: p.stem)


def prose(book) -> str:
    return "\n\n".join(c.source for c in book.cells if c.cell_type == "markdown")


@every(BOOKS)
def test_is_clean(path):
    assert edition.lint(path) == []


def test_the_whole_workbook_is_there():
    assert [int(p.name[:2]) for p in WORKBOOK] == list(range(15))


@every(WORKBOOK)
def test_follows_the_skeleton(path):
    book = edition.read(path)
    heads = re.findall(r"^## (.+)$", prose(book), re.MULTILINE)
    parts = [h.split(":")[0] for h in heads]
    assert [h for h in parts if h in SKELETON] == SKELETON, f"its headings are {heads}"
    assert book.cells[0].source.startswith(f"# {path.name[:2]} · ")
    code = [c.source for c in book.cells if c.cell_type == "code"]
    assert any("b.predict(" in c for c in code) and any("b.compare(" in c for c in code)
    assert sum("claim(" in c for c in code) >= 2


@every(WORKBOOK)
def test_shows_something_within_three_cells(path):
    """The first picture, table or verdict of a live run comes within the first five code cells (opening and predictions included)."""
    code = [c.source for c in edition.read(path).cells if c.cell_type == "code"]
    shows = r"plots\.show\(|b\.fault\(|%%sql|%%redis|print\(|b\.source\(|claim\(|show\("
    assert any(re.search(shows, c) for c in code[:5])


@every(BOOKS)
def test_links_and_pictures_exist(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(edition.read(path))):
        if not re.match(r"https?://", target):
            assert (FOLDER / target.split("#")[0]).exists(), target


def resolves(dotted: str) -> bool:
    """Whether `module.name` or `feedlab.module.Class.name` names something of the package."""
    parts = dotted.split(".")
    if parts[0] == "feedlab":
        for n in range(len(parts), 0, -1):
            try:
                found, rest = importlib.import_module(".".join(parts[:n])), parts[n:]
                break
            except ModuleNotFoundError:
                continue
    else:
        modules, rest = [importlib.import_module(m) for m in MODULES[parts[0]]], parts[1:]
        classes = [c for m in modules for c in vars(m).values() if isinstance(c, type)]     # `graph.followers`: of a Graph called graph
        found = next((t for t in [*modules, *classes] if hasattr(t, rest[0])), modules[0])
    for name in rest:
        if not hasattr(found, name) and name not in getattr(found, "__annotations__", {}):
            return False
        found = getattr(found, name, None)
    return True


@every(BOOKS)
def test_names_in_prose_exist(path):
    """`posts.create`, `feedlab.reader.Reader.page()`: what stands in backticks and begins with a module of ours."""
    for word in re.findall(r"`([\w.]+)(?:\([^`]*\))?`", prose(edition.read(path))):
        head = word.split(".")[0]
        a_file = word.endswith((".py", ".lua", ".sql", ".html", ".toml", ".json", ".ipynb"))
        if "." in word and (head == "feedlab" or head in MODULES) and not a_file:
            assert resolves(word), f"{word} is named, and does not exist"


@every(BOOKS)
def test_files_in_prose_exist(path):
    for word in re.findall(r"`((?:feedlab|notebooks|data|tests)/[\w./]+)`", prose(edition.read(path))):
        assert (ROOT / word).exists(), f"{word} is named, and does not exist"


@pytest.mark.parametrize("picture", sorted(FOLDER.glob("pictures/*")), ids=lambda p: p.name)
def test_pictures_are_small(picture):
    assert picture.stat().st_size < 150_000


def test_a_name_that_does_not_exist_is_found():
    assert resolves("posts.create") and resolves("feedlab.reader.Reader.page") and not resolves("posts.creates")
