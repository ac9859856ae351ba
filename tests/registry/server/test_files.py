"""Opening files of a tree that strangers wrote: nothing but regular files, and no way out."""

import os
from pathlib import Path

import pytest

from onnxreg.registry.server.served_registry import open_beneath


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"secret")
    root = tmp_path / "tree"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_bytes(b"data")
    return root


def test_a_file_beneath_the_root_is_opened(tree: Path) -> None:
    with open_beneath(tree, "a/b/file") as file:
        assert file.read() == b"data"


def test_the_root_itself_may_be_a_link(tree: Path) -> None:
    (tree.parent / "link").symlink_to(tree)
    with open_beneath(tree.parent / "link", "a/b/file") as file:
        assert file.read() == b"data"


def test_paths_other_than_files_of_the_tree_are_refused(tree: Path) -> None:
    (tree / "link").symlink_to(tree.parent / "outside" / "secret")
    (tree / "inside").symlink_to(tree / "a" / "b" / "file")
    (tree / "folder").symlink_to(tree.parent / "outside")
    (tree / "loop").symlink_to("loop")
    os.mkfifo(tree / "pipe")
    absent = ["nothing", "a", "a/b", "a/b/file/more", "a/nothing/file", "x" * 300]
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in [*absent, "link", "inside", "folder/secret", "loop", "loop/x", "pipe"]:
        with pytest.raises(FileNotFoundError):
            open_beneath(tree, path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_unreadable_file_is_an_error(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "a" / "b" / "file").chmod(0)
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    with pytest.raises(PermissionError):
        open_beneath(tree, "a/b/file")
