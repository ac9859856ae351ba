"""A registry in a directory as people have them: on a share, with other users, a NAS, a sync program, few system calls."""

import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from onnxreg.cli.main import main
from onnxreg.registry import Registry, support
from onnxreg.registry.store.directory import DirectoryRegistry, temporary
from onnxreg.registry.support.disk import READ_ONLY
from onnxreg.schema.core.errors import HostError
from onnxreg.schema.manifest.draft import Draft

MakeDraft = Callable[..., Draft]
LOCK = "local/locks/index~acme~pii.jsonl.lock"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize(("root_mode", "file_mode"), [(0o775, 0o664), (0o755, 0o644), (0o700, 0o600)])
def test_new_files_have_the_permissions_of_their_directory(
    tmp_path: Path, make_draft: MakeDraft, umask: Callable[[int], int], root_mode: int, file_mode: int
) -> None:
    """Whatever the umask of the one who writes them: the next one may have another."""
    root = tmp_path / "share"
    root.mkdir()
    root.chmod(root_mode)
    for mask in (0o002, 0o077, 0o022):
        umask(mask)
        Registry(root).add(make_draft(seed=str(mask)))
    umask(0o022)
    for path in root.rglob("*"):
        if path.is_dir():
            assert mode(path) == root_mode, path
        elif path.is_relative_to(root / "blobs"):
            assert mode(path) == file_mode & 0o444, path
        else:
            assert mode(path) == file_mode, path


def test_a_file_that_is_replaced_keeps_its_permissions(registry: Registry, make_draft: MakeDraft) -> None:
    published = registry.add(make_draft())
    index = registry.store.root / "index/acme/pii.jsonl"
    index.chmod(0o640)
    registry.tag(published.ref, "stable")
    assert mode(index) == 0o640


@pytest.mark.parametrize("is_shared", [False, True])
def test_nobody_else_may_write_where_an_export_works(registry: Registry, is_shared: bool) -> None:
    for path in (registry.store.root, registry.store.root / "local", registry.store.root / "local/tmp"):
        path.chmod(0o777 if is_shared else 0o755)
    with registry.workspace() as workspace:
        assert workspace.is_dir()
        assert (registry.store.root in workspace.parents) != is_shared
        for path in (workspace, workspace.parent):
            assert not mode(path) & 0o022
    assert not workspace.exists()


def test_an_account_without_a_home_may_use_a_shared_directory(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container: its volume may be written by everyone."""
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("REG_STATE", str(tmp_path / "file" / "state"))
    registry.store.root.chmod(0o777)
    with registry.workspace() as workspace:
        assert not mode(workspace) & 0o022


@pytest.fixture
def flock(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def fail(number: int) -> None:
        def answer(*arguments: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(fcntl, "flock", answer)

    return fail


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK])
def test_a_file_system_without_locks_is_named(
    registry: Registry, make_draft: MakeDraft, flock: Callable[[int], None], number: int
) -> None:
    """And nobody waits for a lock file that stays."""
    registry.add(make_draft())
    flock(number)
    with pytest.raises(HostError, match="no locks"):
        registry.add(make_draft(seed="b"))
    assert len(registry.state("acme/pii").versions) == 1


def test_a_long_wait_says_for_what(
    registry: Registry, make_draft: MakeDraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.add(make_draft())
    lines: list[str] = []
    lock = FileLock(registry.store.root / LOCK)

    def tell(line: str) -> None:
        lines.append(line)
        lock.release()

    monkeypatch.setattr("onnxreg.registry.store.directory.NOTICE_SECONDS", 0.01)
    monkeypatch.setattr(support, "tell", tell)
    with lock:
        registry.add(make_draft(seed="b"))
    assert len(lines) == 1 and LOCK in lines[0]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.ENOTTY, errno.EIO])
def test_directories_that_cannot_be_synced(
    registry: Registry,
    make_draft: MakeDraft,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
) -> None:
    """As on SMB. A disk that fails is another thing."""

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    if number == errno.EIO:
        with pytest.raises(HostError):
            registry.add(make_draft())
    else:
        assert registry.add(make_draft()).new
        assert main(["--registry", str(registry.store.root), "doctor"]) == 0


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_permissions(
    registry: Registry, other: Registry, make_draft: MakeDraft, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def chmod(*arguments: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "chmod", chmod)
    monkeypatch.setattr(os, "chown", chmod)
    if os.geteuid() == 0:
        os.lchown(registry.store.root, -1, 12345)
    registry.add(make_draft(size=2**21))
    assert other.pull("acme/pii", str(registry.store.root)).blobs


def test_parts_on_several_file_systems(
    registry: Registry, make_draft: MakeDraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace(self: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(HostError) as caught:
        registry.add(make_draft())
    assert "mount the whole registry" in str(caught.value.hint)


@pytest.fixture
def hidden(registry: Registry, make_draft: MakeDraft, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the index that may not be listed, as if its owner had the umask 077 and we were not root."""
    for name in ("a/x", "b/y"):
        registry.add(make_draft(name))
    folder = registry.store.root / "index" / "b"
    listdir, scandir = os.listdir, os.scandir

    def refusing(call: Callable[..., Any]) -> Callable[..., Any]:
        def answer(path: Any = ".") -> Any:
            if not isinstance(path, int) and Path(path) == folder:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
            return call(path)

        return answer

    monkeypatch.setattr(os, "listdir", refusing(listdir))
    monkeypatch.setattr(os, "scandir", refusing(scandir))
    return folder


@pytest.mark.parametrize(
    "words", ["mirror HOME ./mirror", "push --all --remote ./mirror", "ls", "gc", "verify"]
)
def test_a_model_that_cannot_be_listed_is_not_left_out(
    hidden: Path, registry: Registry, tmp_path: Path, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    home = str(registry.store.root)
    assert main(["--registry", home, *words.replace("HOME", home).split()]) == 9
    assert not (tmp_path / "mirror" / "index").exists()


SYSTEM_FILES = (
    *(".DS_Store", "index/acme/.DS_Store", "index/acme/._pii.jsonl", "Thumbs.db", "blobs/desktop.ini"),
    *("@eaDir/x", "blobs/sha256/.nfs000000000012345600000001", "index/.fuse_hidden0000001200000001"),
    *("lost+found/x", "System Volume Information/x", ".git/objects/x", ".gitattributes"),
)


def test_files_of_the_system_are_no_damage(
    registry: Registry, make_draft: MakeDraft, capsys: pytest.CaptureFixture[str]
) -> None:
    registry.add(make_draft())
    for name in SYSTEM_FILES:
        path = registry.store.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    for verb in ("verify", "gc", "doctor"):
        assert main(["--registry", str(registry.store.root), verb]) == 0, capsys.readouterr()
    assert (registry.store.root / ".DS_Store").exists()


@pytest.mark.parametrize(
    ("name", "collects"),
    [
        ("index/acme/pii (conflicted copy 2024-05-01).jsonl", False),
        ("index/acme/pii-DESKTOP-1.jsonl", False),
        ("registry (1).json", True),
    ],
)
def test_a_conflict_copy_is_named_as_a_stray_file(
    registry: Registry, make_draft: MakeDraft, capsys: pytest.CaptureFixture[str], name: str, collects: bool
) -> None:
    """It may have events that are lost, so what it refers to is not collected."""
    registry.add(make_draft())
    shutil.copy(registry.store.root / "index/acme/pii.jsonl", registry.store.root / name)
    assert main(["--registry", str(registry.store.root), "verify"]) == 4
    assert name in capsys.readouterr().out
    assert main(["--registry", str(registry.store.root), "gc"]) == (0 if collects else 4)


@pytest.mark.parametrize("name", ["lost+found", ".DS_Store", "System Volume Information"])
def test_a_fresh_disk_is_empty(registry: Registry, make_draft: MakeDraft, tmp_path: Path, name: str) -> None:
    registry.add(make_draft())
    (tmp_path / "disk" / name).mkdir(parents=True)
    assert registry.push("acme/pii", str(tmp_path / "disk")).blobs


def test_scratch_of_a_killed_command_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, alive = tmp_path / f"onnxreg-{'0' * 16}", tmp_path / f"onnxreg-{'1' * 16}"
    for directory in (dead, alive):
        (directory / "part").mkdir(parents=True)
        directory.with_name(f"{directory.name}.lock").touch()
    with FileLock(f"{alive}.lock"), temporary() as directory:
        assert mode(directory) == 0o700
        assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {alive.name, directory.name}
    assert not directory.exists()


@pytest.mark.parametrize(
    "words", ["verify", "show acme/pii", "resolve acme/pii", "tag acme/pii:0.1.0 x", "gc"]
)
def test_line_ends_of_windows_are_damage(registry: Registry, make_draft: MakeDraft, words: str) -> None:
    """As git makes them with `core.autocrlf`."""
    registry.add(make_draft())
    index = registry.store.root / "index/acme/pii.jsonl"
    index.write_bytes(index.read_bytes().replace(b"\n", b"\r\n"))
    assert main(["--registry", str(registry.store.root), *words.split()]) == 4


def test_a_file_that_may_not_be_read_is_named(
    registry: Registry, make_draft: MakeDraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.add(make_draft())
    opened = os.open

    def refuse(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path).endswith("pii.jsonl"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    for verb in ("ls", "query", "verify"):
        assert main(["--registry", str(registry.store.root), verb]) == 9
    with pytest.raises(HostError) as caught:
        registry.resolve("acme/pii")
    assert str(registry.store.root / "index/acme/pii.jsonl") in str(caught.value.hint)


def test_a_marker_that_may_not_be_opened_is_of_an_unknown_command(
    registry: Registry, make_draft: MakeDraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's command may run: a collection waits for it, then makes it start over."""
    registry.add(make_draft())
    marker = registry.store.scratch / f"{'0' * 16}.lock"
    marker.touch()
    opened = os.open

    def refuse(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path) == str(marker):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    assert registry.store.is_alive("0" * 16) is None
    assert main(["--registry", str(registry.store.root), "doctor"]) == 0


def test_files_of_the_system_in_an_output_directory(
    registry: Registry, other: Registry, make_draft: MakeDraft, tmp_path: Path
) -> None:
    """They are nobody's work, and go with the earlier version; a file of the user's stays."""
    registry.add(make_draft())
    output = tmp_path / "output"
    output.mkdir()
    words = ["--registry", str(other.store.root), "pull", "acme/pii", str(registry.store.root), "--output"]
    for name, status in ((".DS_Store", 0), ("Thumbs.db", 0), ("notes.txt", 2)):
        (output / name).touch()
        assert main([*words, str(output)]) == status
    assert (output / "notes.txt").exists()


MOUNTED_READ_ONLY = (
    "unshare",
    "-rm",
    "sh",
    "-c",
    'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"',
    "sh",
)


def test_a_file_system_that_is_mounted_read_only(registry: Registry, make_draft: MakeDraft) -> None:
    registry.add(make_draft())
    root = str(registry.store.root)
    if (
        shutil.which("unshare") is None
        or subprocess.run([*MOUNTED_READ_ONLY, root, "true"], check=False).returncode
    ):
        pytest.skip("needs a mount namespace of its own")
    command = [sys.executable, "-m", "onnxreg.cli", "--registry", root]
    tag = subprocess.run(
        [*MOUNTED_READ_ONLY, root, *command, "tag", "acme/pii", "beta"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (tag.returncode, tag.stderr.splitlines()[1]) == (9, f"hint: {READ_ONLY}")


def test_a_registry_in_the_working_directory_lists_its_models(
    registry: Registry, make_draft: MakeDraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.add(make_draft())
    paths = [file.path for file in registry.store.files()]
    monkeypatch.chdir(registry.store.root)
    here = DirectoryRegistry.open(Path())
    assert list(here.names()) == ["acme/pii"]
    assert [file.path for file in here.files()] == paths
