"""A file is written whole or not at all."""
import pytest

from feedlab.atomic import write
from feedlab.errors import BadInput

SAYS = "{path} cannot be written: {why}."


def test_what_was_there_is_replaced_and_nothing_lies_beside_it(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    assert write(path, "new é", SAYS) == path and path.read_text("utf-8") == "new é"
    assert write(path, b"\x00\xff", SAYS).read_bytes() == b"\x00\xff" and list(tmp_path.iterdir()) == [path]


def test_a_folder_is_made_only_when_asked_for(tmp_path):
    with pytest.raises(BadInput, match="none/a.txt cannot be written: No such file or directory"):
        write(tmp_path / "none" / "a.txt", "x", SAYS)
    assert list(tmp_path.iterdir()) == []
    assert write(tmp_path / "none" / "a.txt", "x", SAYS, folders=True).read_text() == "x"


def test_what_cannot_be_replaced_stands_as_it_was(tmp_path):
    place = tmp_path / "folder"
    (place / "kept").mkdir(parents=True)
    with pytest.raises(BadInput, match="folder cannot be written: "):
        write(place, "x", SAYS)
    assert (place / "kept").is_dir() and list(tmp_path.iterdir()) == [place]
