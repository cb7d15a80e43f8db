"""The workbook as files: run a notebook, keep only what is the same at every run, lint it, make the learner's edition.

    python -m feedlab.classroom.edition run notebooks/06_hybrid.ipynb       # execute in a fresh kernel, clean, lint, write back
    python -m feedlab.classroom.edition lint notebooks/*.ipynb
    python -m feedlab.classroom.edition learner --out notebooks/learner     # blanks where the solutions are

What is committed: sources, execution counts (nbval compares no cell without one), and the outputs of cells tagged
`nbval-check-output`. Everything else (widget views, figures, timings) would differ at the next run, or be dead when opened.
"""
import ast
import re
from collections.abc import Iterable
from pathlib import Path

import nbformat

from ..config import project_root
from ..errors import BadInput, EngineDown

CHECKED, SOLUTION = "nbval-check-output", "solution"
FOLDED = "# a solution is folded here"
CELL_S = 60
LINES, WORDS, BYTES = 8, 1_800, 200_000
KERNEL = {"kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
          "language_info": {"name": "python"}}


def read(path: Path):
    """A notebook. Raises BadInput when it is none."""
    try:
        return nbformat.read(path, as_version=4)
    except OSError as e:
        raise BadInput(f"{path}: {e.strerror}.") from None
    except Exception:
        raise BadInput(f"{path} is not a notebook (nbformat 4).") from None


def tags(cell) -> list[str]:
    return cell.metadata.get("tags", [])


def execute(book, folder: Path, cell_s: int = CELL_S):
    """Run all cells in a fresh kernel in `folder`; outputs and counts are put into `book`. Raises CellExecutionError."""
    from nbclient import NotebookClient
    NotebookClient(book, timeout=cell_s, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()
    return book


def clean(book):
    """Remove what a re-run would change."""
    book.metadata = nbformat.from_dict(KERNEL)
    for n, cell in enumerate(book.cells):
        cell.id = f"cell-{n:02d}"
        kept = tags(cell)
        cell.metadata = nbformat.from_dict({"tags": kept} if kept else {})
        if SOLUTION in kept:
            cell.metadata["jupyter"] = {"source_hidden": True}       # folded until the reader opens it
            if not cell.source.startswith(FOLDED):                   # JupyterLab shows the first line of what is folded
                cell.source = f"{FOLDED}\n{cell.source}"
        if cell.cell_type == "code":
            said = "".join(o.text for o in cell.outputs if o.output_type == "stream") if CHECKED in kept else ""
            # one piece: how many the kernel sent it in is a matter of time
            cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=said)] if said else []
            cell.source = cell.source.rstrip()
    return book


def text(book) -> str:
    """The file that a cleaned notebook is written as."""
    return nbformat.writes(book) + "\n"


def learner(book):
    """The edition with blanks: each solution becomes dots to fill in, and is kept folded below. A copy."""
    out = nbformat.from_dict(book)
    cells, answers = [], []
    for cell in out.cells:
        if cell.cell_type == "markdown":
            cell.source = cell.source.replace("](pictures/", "](../pictures/").replace("](../", "](../../") \
                .replace("](../../pictures/", "](../pictures/")
        else:
            cell.outputs, cell.execution_count = [], None
        if SOLUTION in tags(cell):
            solved = cell.source.removeprefix(f"{FOLDED}\n")
            answers += _answers(solved)
            cell.source, cell.metadata = blank(solved), nbformat.from_dict({"tags": ["blank"]})
            fold = f"<details><summary>A solution</summary>\n\n```python\n{solved}\n```\n\n</details>"
            cells += [cell, nbformat.v4.new_markdown_cell(fold, id=f"{cell.id}-fold")]
        else:
            check = re.search(r"\bb\.check\(\s*[\"'](\w+)", cell.source) if cell.cell_type == "code" else None
            if check and answers:
                cell.source = f'b.filled_in("{check[1]}", {", ".join(dict.fromkeys(answers))})\n{cell.source}'
                answers = []
            cells.append(cell)
    out.cells = cells
    return out


def assigned(solution: str) -> list[str]:
    """The names that a solution gives a value at top level, in order."""
    names: list[str] = []
    for node in ast.parse(solution).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.append(node.name)
        for target in getattr(node, "targets", [getattr(node, "target", None)]):
            names += [n.id for n in ast.walk(target) if isinstance(n, ast.Name)] if target is not None else []
    return [n for n in dict.fromkeys(names) if n != "_"]


def _answers(solution: str) -> list[str]:
    names = assigned(solution)
    return [n for n in names if n.startswith("answer")] or names


def blank(solution: str) -> str:
    """The answers (names that begin with `answer`), with dots for values; what else a solution assigns is its own affair.

    >>> print(blank("def half(n):\\n    return n / 2\\nanswer_1 = half(4)"))
    answer_1 = ...     # your turn
    """
    return "\n".join(f"{n} = ..." for n in _answers(solution)) + "     # your turn"


# --- lint ------------------------------------------------------------------------------------------------------------------

MAGICS = re.compile(r"^%%?(\w+)", re.M)
SECRETS = re.compile(r"(/home/|/root/|/work/|/tmp/|/Users/|[A-Z]:\\\\)")


def lint(path: Path, book=None) -> list[str]:
    """What is wrong with a notebook, one sentence each; [] when nothing is."""
    book = read(path) if book is None else book
    said: list[str] = []
    if Path(path).exists() and Path(path).read_text() != text(clean(nbformat.from_dict(book))):
        said.append("is not as `python -m feedlab.classroom.edition run` leaves it")
    code = [c for c in book.cells if c.cell_type == "code"]
    words = sum(len(c.source.split()) for c in book.cells if c.cell_type == "markdown")
    if words > WORDS:
        said.append(f"{words} words of prose, at most {WORDS}")
    if Path(path).exists() and Path(path).stat().st_size > BYTES:
        said.append(f"{Path(path).stat().st_size:,} bytes, at most {BYTES:,}")
    for n, cell in enumerate(book.cells):
        where = f"cell {n}"
        if SECRETS.search(cell.source) or SECRETS.search(str(cell.get("outputs", ""))):
            said.append(f"{where} names a path of this machine")
        if cell.cell_type == "code":
            said += [f"{where}: {s}" for s in _lint_code(cell)]
    counts = [c.execution_count for c in code]
    if counts != list(range(1, len(code) + 1)):
        said.append("execution counts are not 1, 2, 3 ...: run it with `python -m feedlab.classroom.edition run`")
    if not code or "book.begin(" not in code[0].source:
        said.append("the first code cell does not open the book (book.begin)")
    if not code or not re.search(r"\.end\(\)", code[-1].source):
        said.append("the last code cell does not end the book (b.end())")
    return said


def _lint_code(cell) -> Iterable[str]:
    lines = [line for line in cell.source.splitlines() if line.strip() and line != FOLDED]
    if len(lines) > LINES:
        yield f"{len(lines)} lines of code, at most {LINES}"
    if re.search(r"\binput\(|^!", cell.source, re.M):
        yield "input() and shell lines hang or pass silently when run as a test"
    for magic in MAGICS.findall(cell.source):
        if magic not in ("sql", "redis", "load_ext"):
            yield f"unknown magic %{magic} (it would pass silently as a test)"
    if CHECKED in tags(cell):
        if not any(o.output_type == "stream" for o in cell.outputs):
            yield f"is tagged {CHECKED} and prints nothing to compare"
        if re.search(r"progress|plots\.show|b\.(load|predict|compare|source|score|run)\(|widgets\.", cell.source):
            yield f"is tagged {CHECKED} and shows what differs at each run"
    elif cell.outputs:
        yield "holds outputs that the next run would change: run it with `python -m feedlab.classroom.edition run`"
    if [k for k in cell.metadata if k not in ("tags", "jupyter")]:
        yield "holds metadata of a run"


# --- the edition as a folder --------------------------------------------------------------------------------------------------

def notebooks() -> list[Path]:
    """The notebooks with exercises, in order."""
    folder = project_root() / "notebooks"
    return [*sorted(folder.glob("[0-9][0-9]_*.ipynb")), folder / "policy_lab.ipynb"]


def write_learner(out: Path, again: bool = False) -> list[Path]:
    """The learner's edition of every notebook into a folder; a copy that is there already is the learner's and stays, unless `again`.
    Returns what was written. Raises BadInput when the folder cannot be written."""
    written = []
    for path in notebooks():
        target = out / path.name
        if target.exists() and not again:
            continue
        try:
            out.mkdir(parents=True, exist_ok=True)
            nbformat.write(learner(read(path)), target)
        except OSError as e:
            raise BadInput(f"{target} cannot be written: {e.strerror}. Choose another folder.") from None
        written.append(target)
    return written


def _app():
    import typer
    app = typer.Typer(add_completion=False, no_args_is_help=True, help="Run, lint and derive the notebooks of the workbook.")

    @app.command()
    def run(paths: list[Path]):
        """Execute in a fresh kernel, clean, lint, write back. Nothing is written when a cell fails."""
        from nbclient.exceptions import CellExecutionError
        for path in paths:
            try:
                book = clean(execute(read(path), path.parent.resolve()))
            except CellExecutionError as e:
                typer.echo(f"{path}: {e}", err=True)
                raise typer.Exit(1) from None
            path.write_text(text(book))
            _report(path, book)

    @app.command(name="lint")
    def lint_command(paths: list[Path]):
        """Say what is wrong; the exit code is 1 when something is."""
        wrong = [_report(path, None) for path in paths]
        raise typer.Exit(int(any(wrong)))

    @app.command(name="learner")
    def learner_command(out: Path = typer.Option("notebooks/learner"), again: bool = typer.Option(False, help="Overwrite.")):
        """Blanks where the solutions are."""
        for path in write_learner(out, again):
            typer.echo(path)

    def _report(path: Path, book) -> list[str]:
        said = lint(path, book)
        typer.echo(f"{path}: " + ("; ".join(said) or "well"))
        return said
    return app


if __name__ == "__main__":
    try:
        _app()()
    except (BadInput, EngineDown) as e:
        raise SystemExit(str(e)) from None
