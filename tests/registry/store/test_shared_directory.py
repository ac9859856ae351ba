"""A registry in a directory as people have them: on a share, with other users, a sync program, few system calls, a disk that fails."""

import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from io import BufferedReader, FileIO, RawIOBase
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from filelock import FileLock
from support.registries import owner
from support.sampling import sampled

from onnxreg.cli.main import main
from onnxreg.registry import Registry, system
from onnxreg.registry.log.log import open_log
from onnxreg.registry.store.directory import DirectoryRegistry, DirectoryStore, temporary
from onnxreg.registry.system import READ_ONLY, Disk
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import HostError, RegError

LOCK = "local/locks/index~acme~pii.jsonl.lock"
INDEX = "index/acme/pii.jsonl"
Patch = pytest.MonkeyPatch


@pytest.fixture
def filled(registry, make_draft) -> Registry:
    registry.add(make_draft())
    return registry


def reg(registry: Registry, words: str) -> int:
    return registry.reg(*words.split())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def failing(number: int, when: Callable[..., bool] = lambda *_: True, real: Any = None) -> Callable[..., Any]:
    """A system call that fails with this error for some of its arguments."""

    def call(*arguments: Any, **options: Any) -> Any:
        if when(*arguments):
            raise OSError(number, os.strerror(number), str(arguments[0]) if arguments else None)
        return real and real(*arguments, **options)

    return call


# Permissions


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize(("root_mode", "file_mode"), [(0o775, 0o664), (0o755, 0o644), (0o700, 0o600)])
def test_new_files_have_the_permissions_of_their_directory(tmp_path, make_draft, umask, root_mode, file_mode):
    """Whatever the umask of the one who writes them: the next one may have another."""
    root = tmp_path / "share"
    root.mkdir()
    root.chmod(root_mode)
    for mask in (0o002, 0o077, 0o022):
        umask(mask)
        Registry(root).add(make_draft(seed=str(mask)))
    for path in root.rglob("*"):
        in_blobs = path.is_relative_to(root / "blobs")
        assert mode(path) == (root_mode if path.is_dir() else file_mode & (0o444 if in_blobs else 0o777)), (
            path
        )


def test_a_file_that_is_replaced_keeps_its_permissions(filled):
    index = filled.store.root / INDEX
    index.chmod(0o640)
    filled.tag("acme/pii", "stable")
    assert mode(index) == 0o640


@pytest.mark.parametrize("is_shared", [False, True])
def test_nobody_else_may_write_where_an_export_works(registry, tmp_path, monkeypatch, is_shared):
    """An account without a home may use a shared directory, as in a container: everyone may write to its volume."""
    for path in (registry.store.root, registry.store.root / "local", registry.store.root / "local/tmp"):
        path.chmod(0o777 if is_shared else 0o755)
    with registry.workspace() as workspace:
        assert workspace.is_dir()
        assert (registry.store.root in workspace.parents) != is_shared
        assert not (mode(workspace) | mode(workspace.parent)) & 0o022
    assert not workspace.exists()
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("REG_STATE", str(tmp_path / "file" / "state"))
    with registry.workspace() as workspace:
        assert not mode(workspace) & 0o022


def test_scratch_of_a_killed_command_is_swept(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, alive = tmp_path / f"onnxreg-{'0' * 16}", tmp_path / f"onnxreg-{'1' * 16}"
    for directory in (dead, alive):
        (directory / "part").mkdir(parents=True)
        directory.with_name(f"{directory.name}.lock").touch()
    with FileLock(f"{alive}.lock"), temporary() as directory:
        assert mode(directory) == 0o700
        assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {alive.name, directory.name}
    assert not directory.exists()


# System calls that fail


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK])
def test_a_file_system_without_locks_is_named(filled, make_draft, monkeypatch, number):
    """And nobody waits for a lock file that stays."""
    monkeypatch.setattr(fcntl, "flock", failing(number))
    with pytest.raises(HostError, match="no locks"):
        filled.add(make_draft(seed="b"))
    assert len(filled.state("acme/pii").versions) == 1


def test_a_long_wait_says_for_what(filled, make_draft, monkeypatch):
    lines: list[str] = []
    lock = FileLock(filled.store.root / LOCK)

    def tell(line: str) -> None:
        lines.append(line)
        lock.release()

    monkeypatch.setattr("onnxreg.registry.store.directory.NOTICE_SECONDS", 0.01)
    monkeypatch.setattr(system, "tell", tell)
    with lock:
        filled.add(make_draft(seed="b"))
    assert len(lines) == 1 and LOCK in lines[0]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.ENOTTY, errno.EIO])
def test_directories_that_cannot_be_synced(registry, make_draft, monkeypatch, number):
    """As on SMB. A disk that fails is another thing."""
    is_directory = lambda descriptor: stat.S_ISDIR(os.fstat(descriptor).st_mode)
    monkeypatch.setattr(os, "fsync", failing(number, is_directory))
    if number == errno.EIO:
        with pytest.raises(HostError):
            registry.add(make_draft())
    else:
        assert registry.add(make_draft()).new
        assert reg(registry, "doctor") == 0


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_permissions(registry, other, make_draft, monkeypatch, number):
    monkeypatch.setattr(Path, "chmod", failing(number))
    monkeypatch.setattr(os, "chown", failing(number))
    if os.geteuid() == 0:
        os.lchown(registry.store.root, -1, 12345)
    registry.add(make_draft(size=2**21))
    assert other.pull("acme/pii", registry.place).blobs


def test_parts_on_several_file_systems(registry, make_draft, monkeypatch):
    monkeypatch.setattr(Path, "replace", failing(errno.EXDEV))
    with pytest.raises(HostError) as caught:
        registry.add(make_draft())
    assert "mount the whole registry" in str(caught.value.hint)


@pytest.mark.parametrize(
    "words", ["mirror HOME ./mirror", "push --all --remote ./mirror", "ls", "gc", "verify"]
)
def test_a_model_that_cannot_be_listed_is_not_left_out(registry, make_draft, tmp_path, words, monkeypatch):
    """A folder of the index may not be listed, as if its owner had the umask 077 and we were not root."""
    for name in ("a/x", "b/y"):
        registry.add(make_draft(name))
    folder = registry.store.root / "index" / "b"
    monkeypatch.chdir(tmp_path)
    for name in ("listdir", "scandir"):
        is_folder = lambda path=".": not isinstance(path, int) and Path(path) == folder
        monkeypatch.setattr(os, name, failing(errno.EACCES, is_folder, getattr(os, name)))
    assert reg(registry, words.replace("HOME", registry.place)) == 9
    assert not (tmp_path / "mirror" / "index").exists()


def refuse_to_open(patch: Patch, path: Path) -> None:
    patch.setattr(os, "open", failing(errno.EACCES, lambda each, *_: str(each) == str(path), os.open))


def test_the_hint_of_a_place_that_may_not_be_written_names_a_path_that_exists(tmp_path, monkeypatch, capsys):
    new = tmp_path / "new" / "registry"
    monkeypatch.setattr(os, "mkdir", failing(errno.EACCES, lambda *_: True, os.mkdir))
    assert main(["--registry", str(new), "remote", "add", "origin", "/share"]) == 9
    assert capsys.readouterr().err.splitlines()[1] == f"hint: check who owns {tmp_path}, and its permissions"


def test_a_file_that_may_not_be_read_is_named(filled, monkeypatch):
    refuse_to_open(monkeypatch, filled.store.root / INDEX)
    for verb in ("ls", "query", "verify"):
        assert reg(filled, verb) == 9
    with pytest.raises(HostError) as caught:
        filled.resolve("acme/pii")
    assert str(filled.store.root / INDEX) in str(caught.value.hint)


def test_a_marker_that_may_not_be_opened_is_of_an_unknown_command(filled, monkeypatch):
    """Another user's command may run: a collection waits for it, then makes it start over."""
    marker = filled.store.scratch / f"{'0' * 16}.lock"
    marker.touch()
    refuse_to_open(monkeypatch, marker)
    assert filled.store.is_alive("0" * 16) is None
    assert reg(filled, "doctor") == 0


MOUNTED_READ_ONLY = ("unshare", "-rm", "sh", "-c")
MOUNTED_READ_ONLY += ('mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"', "sh")


def test_a_file_system_that_is_mounted_read_only(filled):
    mounted = [*MOUNTED_READ_ONLY, filled.place]
    if shutil.which("unshare") is None or subprocess.run([*mounted, "true"], check=False).returncode:
        pytest.skip("needs a mount namespace of its own")
    words = ["--registry", filled.place, "tag", "acme/pii", "beta"]
    command = [*mounted, sys.executable, "-m", "onnxreg.cli", *words]
    tag = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (tag.returncode, tag.stderr.splitlines()[1]) == (9, f"hint: {READ_ONLY}")


# Files of others


SYSTEM_FILES = (
    *(".DS_Store", "index/acme/.DS_Store", "index/acme/._pii.jsonl", "Thumbs.db", "blobs/desktop.ini"),
    *("@eaDir/x", "blobs/sha256/.nfs000000000012345600000001", "index/.fuse_hidden0000001200000001"),
    *("lost+found/x", "System Volume Information/x", ".git/objects/x", ".gitattributes"),
)


def test_files_of_the_system_are_no_damage(filled, capsys):
    for name in SYSTEM_FILES:
        path = filled.store.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    for verb in ("verify", "gc", "doctor"):
        assert reg(filled, verb) == 0, capsys.readouterr()
    assert (filled.store.root / ".DS_Store").exists()


@pytest.mark.parametrize(
    ("name", "collects"),
    [
        ("index/acme/pii (conflicted copy 2024-05-01).jsonl", False),
        ("index/acme/pii-DESKTOP-1.jsonl", False),
        ("registry (1).json", True),
    ],
)
def test_a_conflict_copy_is_named_as_a_stray_file(filled, capsys, name, collects):
    """It may have events that are lost, so what it refers to is not collected."""
    shutil.copy(filled.store.root / INDEX, filled.store.root / name)
    assert reg(filled, "verify") == 4
    assert name in capsys.readouterr().out
    assert reg(filled, "gc") == (0 if collects else 4)


def test_a_fresh_disk_is_empty(filled, tmp_path):
    for name in ("lost+found", ".DS_Store", "System Volume Information"):
        (tmp_path / name / name).mkdir(parents=True)
        assert filled.push("acme/pii", str(tmp_path / name)).blobs


def test_line_ends_of_windows_are_damage(filled):
    """As git makes them with `core.autocrlf`."""
    index = filled.store.root / INDEX
    index.write_bytes(index.read_bytes().replace(b"\n", b"\r\n"))
    for words in ("verify", "show acme/pii", "resolve acme/pii", "tag acme/pii:0.1.0 x", "gc"):
        assert reg(filled, words) == 4


def test_files_of_the_system_in_an_output_directory(filled, other, tmp_path):
    """What a system makes again goes with the earlier version; a file of the user's stays, also one of git."""
    output = tmp_path / "output"
    rows = ((".DS_Store", 0), ("Thumbs.db", 0), ("notes.txt", 2), (".git/HEAD", 2), ("lost+found/x", 2))
    for name, status in rows:
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).touch()
        assert reg(other, f"pull acme/pii {filled.store.root} --output {output}") == status
        assert (output / name).exists() == bool(status)
        (output / name).unlink(missing_ok=True)


def test_a_registry_in_the_working_directory_lists_its_models(filled, monkeypatch):
    paths = [file.path for file in filled.store.files()]
    monkeypatch.chdir(filled.store.root)
    here = DirectoryRegistry.open(Path())
    assert list(here.names()) == ["acme/pii"]
    assert [file.path for file in here.files()] == paths


CALLS = ("create", "extend", "mkdir", "rename", "sync_directory", "sync_file", "write")
LARGE = 150_000
"""A size whose drafts have one file that a pull resumes."""
ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "EDQUOT": errno.EDQUOT}


class Failing(Disk):
    """A disk on which one call, counted from 0, fails with an error."""

    def __init__(self, call: str, number: int, error: int) -> None:
        self.call, self.number, self.error, self.count = call, number, error, 0

    @property
    def has_failed(self) -> bool:
        return self.count > self.number

    def check(self, call: str) -> None:
        if call == self.call:
            self.count += 1
            if self.count == self.number + 1:
                raise OSError(self.error, os.strerror(self.error))

    def create(self, path: Path) -> Any:
        self.check("create")
        return Written(super().create(path), self)


def checked(call: str) -> Any:
    def perform(self: Failing, *arguments: Any) -> Any:
        self.check(call)
        return getattr(Disk, call)(self, *arguments)

    return perform


for name in set(CALLS) - {"create", "write"}:
    setattr(Failing, name, checked(name))


class Written(RawIOBase):
    """A file whose writes are counted."""

    def __init__(self, file: BinaryIO, disk: Failing) -> None:
        self._file, self._disk = file, disk
        self.fileno = file.fileno

    def write(self, data: Any, /) -> int:
        self._disk.check("write")
        return self._file.write(data)

    def flush(self) -> None:
        if not self._file.closed:
            self._file.flush()

    def close(self) -> None:
        self._file.close()
        super().close()


def check_whole(root: Path) -> None:
    """Nothing is damaged, and no file is in the published tree that has no place in it."""
    assert not owner.verify(Registry(root, create=False)).damages
    files = (str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    known = ("registry.json", "blobs/sha256/", "index/", "gc/", "local/")
    assert not [path for path in files if not path.startswith(known)]


def family_of(act: Callable[[], object]) -> str:
    """The family of an error, which is that of the environment, or nothing."""
    try:
        act()
    except RegError as error:
        assert error.family == "environment"
        return error.family
    return ""


@pytest.mark.parametrize("number", sampled([0, 1, 4], 2))
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", sampled(ERRORS, 3))
def test_adding(registry, make_draft, error, call, number):
    first = registry.add(make_draft())
    disk = registry.store.disk = Failing(call, number, ERRORS[error])
    family = family_of(lambda: registry.add(make_draft(seed="b", size=LARGE)))
    check_whole(registry.store.root)
    assert Registry(registry.store.root).get("acme/pii:0.1.0").digest == first.digest
    assert disk.has_failed or not family
    registry.store.disk = Disk()
    if family:
        registry.add(make_draft(seed="b", size=LARGE))
    check_whole(registry.store.root)
    assert {"0.1.0", "0.1.1"} <= {str(each) for each in open_log(registry.store, "acme/pii").versions}


@pytest.mark.parametrize("number", sampled([0, 3], 2))
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("error", sampled(ERRORS, 3))
def test_pulling(registry, other, make_draft, error, call, number):
    registry.add(make_draft())
    other.pull("acme/pii", registry.place)
    made = registry.add(make_draft(seed="b", size=LARGE))
    disk = other.store.disk = Failing(call, number, ERRORS[error])
    family = family_of(lambda: other.pull("acme/pii", registry.place))
    assert family or not disk.has_failed or call in ("sync_directory", "rename", "create", "write", "mkdir")
    check_whole(other.store.root)
    other.store.disk = Disk()
    other.pull("acme/pii", registry.place)
    check_whole(other.store.root)
    assert other.get("acme/pii").digest == made.digest


class Unreadable(RawIOBase):
    """A file on a broken sector."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


class Dribbling(FileIO):
    """A file of a file system that returns at most 100 bytes for each read."""

    def read(self, size: int | None = -1, /) -> Any:
        return super().read(size if size is None or size < 0 else min(size, 100))

    def readinto(self, buffer: Any, /) -> Any:
        return super().readinto(memoryview(buffer)[:100])


def test_reads_that_return_less_than_was_asked_for(filled, monkeypatch):
    monkeypatch.setattr(DirectoryStore, "open_file", lambda at, key: BufferedReader(Dribbling(at.root / key)))
    registry = Registry(filled.store.root)
    published = registry.get("acme/pii")
    assert published.digest == Digest.of(published.data)
    assert not owner.verify(registry).damages
    assert [line.event.kind for line in registry.log("acme/pii")] == ["publish"]


@pytest.mark.parametrize("verb", ["pull", "push"])
def test_reading(registry, other, make_draft, monkeypatch, verb):
    registry.add(make_draft())
    Registry(other.store.root)
    good = DirectoryRegistry.open_blob
    with monkeypatch.context() as patch:

        def broken(self: DirectoryRegistry, digest: Digest, start: int = 0) -> BinaryIO:
            stream = good(self, digest, start)
            if os.fstat(stream.fileno()).st_size < 600:
                return stream
            stream.close()
            return Unreadable()

        patch.setattr(DirectoryRegistry, "open_blob", broken)
        with pytest.raises(HostError, match="Input/output error"):
            if verb == "pull":
                other.pull("acme/pii", registry.place)
            else:
                registry.push("acme/pii", other.place)
    if other.store.is_there:
        check_whole(other.store.root)
    other.pull("acme/pii", registry.place)
    check_whole(other.store.root)
