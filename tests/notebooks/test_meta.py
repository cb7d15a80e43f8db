"""Do the notebooks notice? One seam of a copy of the package is broken, and the notebook about it must stop at a claim that says what is
wrong. Functions in Redis are named by their code, so that the broken ones are nobody else's."""
import os
import re
import shutil

import pytest
from book_parts import FOLDER, ROOT
from nbclient.exceptions import CellExecutionError

from feedlab.classroom import edition

# notebook, file, what stands there, what is put in its place, what the failing claim is about
SEAMS = {
    "FEED_MAX off by one": ("12_memory_and_feed_max", "timeline.lua", "local cut = size - 1 - max", "local cut = size - 2 - max",
                            r"FEED_MAX|newest|entries"),
    "deleted posts are shown": ("09_delete_follow_unfollow", "reader.py", "any(%(ids)s) and not p.deleted and", "any(%(ids)s) and",
                                r"delete|gone|hidden|show"),
    "the cursor's own post comes again": ("07_cursor_and_merge", "timeline.lua", "rows[i] < args[2]", "rows[i] <= args[2]",
                                          r"by cursor, none|page two|in order"),
}


@pytest.mark.parametrize("name", list(SEAMS))
def test_a_broken_seam_is_red(name, tmp_path, addresses, monkeypatch):
    notebook, file, old, new, about = SEAMS[name]
    shutil.copytree(ROOT / "feedlab", tmp_path / "feedlab", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "data", tmp_path / "data")
    shutil.copy(ROOT / "docker-compose.yml", tmp_path)           # by which the package knows its checkout
    path = tmp_path / "feedlab" / file
    code = path.read_text()
    assert code.count(old) == 1, f"{file} has changed: {old!r} is not there once"
    path.write_text(code.replace(old, new))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    for variable, value in (addresses.environment() | {"FEEDLAB_STATE_DIR": str(tmp_path / "state")}).items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(CellExecutionError, match="does not hold") as e:
        edition.execute(edition.read(FOLDER / f"{notebook}.ipynb"), FOLDER)
    assert re.search(about, str(e.value))
    print(str(e.value).strip().splitlines()[-1])
