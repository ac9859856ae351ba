"""One exit status for each family, one message on stderr, and never a traceback for a user's mistake."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onnxreg.cli import main as entry
from onnxreg.cli.errors import EXIT_STATUS, needs, prefix_outcome
from onnxreg.cli.render import output
from onnxreg.registry import Registry
from onnxreg.registry.store.layout import blob_path
from onnxreg.registry.store.protocol import MissingBlobError
from onnxreg.registry.support.environment import state_directory
from onnxreg.schema.core import errors
from onnxreg.schema.core.digest import Digest

Reg = Callable[..., Any]


def families(kind: type[errors.RegError] = errors.RegError) -> Iterator[type[errors.RegError]]:
    for below in kind.__subclasses__():
        yield below
        yield from families(below)


def test_every_family_has_an_exit_status_of_its_own() -> None:
    assert {kind.family for kind in families()} - {errors.RegError.family} == EXIT_STATUS.keys()
    assert len(set(EXIT_STATUS.values())) == len(EXIT_STATUS)


GENERAL = [kind for kind in families() if kind.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", GENERAL, ids=lambda kind: kind.__name__)
def test_a_failure_is_a_message_and_a_hint_on_stderr(
    kind: type[errors.RegError], reg: Reg, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(words: list[str]) -> None:
        raise kind("no \x1b[31mluck", "try again")

    monkeypatch.setattr(entry, "_dispatch", fail)
    done = reg("ls")
    assert done.status == EXIT_STATUS[kind.family]
    assert (done.out, done.err) == ("", "error: no \\x1b[31mluck\nhint: try again\n")
    done = reg("ls", "--json")
    assert done.status == EXIT_STATUS[kind.family]
    assert done.out == ""
    assert done.error == {"family": kind.family, "message": "no \x1b[31mluck", "hint": "try again"}


def test_ctrl_c_is_130(reg: Reg, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(words: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(entry, "_dispatch", interrupted)
    assert reg("ls").status == 130
    assert reg("ls", "--json").error["family"] == "interrupted"


def test_a_bug_keeps_its_traceback(reg: Reg, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(words: list[str]) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(entry, "_dispatch", bug)
    with pytest.raises(ZeroDivisionError):
        reg("ls")


USAGE = (
    ["frob"],
    ["ls", "--quux"],
    ["ls", "a", "b"],
    ["resolve"],
    ["remote"],
    ["remote", "add", "origin"],
    ["export", "."],
    ["export", ".", "--profile", "android", "--opset", "many"],
    ["add", "model.onnx"],
    ["--frob", "ls"],
)


@pytest.mark.parametrize("words", USAGE, ids=" ".join)
def test_usage_errors_are_input_errors(words: list[str], reg: Reg) -> None:
    done = reg(*words)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert re.search(r"\nhint: .*see `reg", done.err)
    assert reg(*words, "--json").error["family"] == "input"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("resolve acme/pii --context-tokens 4k", "'4k' must be an integer"),
        ("export . --opset many", "'many' must be an integer"),
    ],
)
def test_a_value_that_is_no_number_is_told_in_plain_words(words: str, message: str, reg: Reg) -> None:
    assert message in reg(*words.split()).err


@pytest.mark.parametrize(
    "words", ["pull --format", "ls --format", "export . --opset", "trust add --model", "--registry"]
)
def test_a_missing_value_is_explained_by_the_help_of_its_verb(words: str, reg: Reg) -> None:
    done = reg(*words.split())
    told = words.partition(" -")[0].removesuffix(" .").removeprefix("--registry")
    assert done.status == 2 and "requires an argument" in done.err
    assert f"hint: see `{' '.join(['reg', *told.split()])} --help`" in done.err


MISTAKES = (
    (["ls"], 3),
    (["--registry", "HOME", "ls", "UPPER"], 2),
    (["--registry", "HOME", "show", "acme/pii:9.9.9"], 3),
    (["--registry", "HOME", "show", "acme/pii:beta"], 3),
    (["--registry", "HOME", "diff", "acme/pii", "nobody"], 3),
    (["--registry", "HOME", "log", "nobody"], 3),
    (["--registry", "HOME", "verify", "nobody"], 3),
    (["--registry", "HOME", "push", "acme/pii"], 2),
    (["--registry", "HOME", "push", "acme/pii", "nowhere"], 3),
    (["--registry", "HOME", "push", "acme/pii", "HOME"], 5),
    (["--registry", "HOME", "push", "acme/pii", "gopher://host/x"], 2),
    (["--registry", "HOME", "pull", "acme/pii", "./absent"], 3),
    (["--registry", "HOME", "tag", "tiny", "1.0.0"], 2),
    (["--registry", "HOME", "remote", "remove", "origin"], 3),
    (["--registry", "HOME", "builtin", "schemas", "manifest-v9"], 2),
)


@pytest.mark.parametrize(("words", "status"), MISTAKES, ids=lambda value: str(value))
def test_a_mistake_has_its_exit_status(
    words: list[str], status: int, reg: Reg, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REG_HOME", "nothing-here")
    done = reg(*(str(home) if word == "HOME" else word for word in words))
    assert done.status == status
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err


FILES_WANTED = (
    "export --recipe DIR",
    "export --batch DIR",
    "run tiny --input DIR",
    "lock tiny --output DIR",
    "policy set DIR",
    "attest tiny --report DIR",
    "archive verify DIR",
)


@pytest.mark.parametrize("words", FILES_WANTED)
def test_a_directory_where_a_file_belongs_is_2(words: str, reg: Reg, home: Path, tmp_path: Path) -> None:
    (tmp_path / "DIR").mkdir()
    done = reg("--registry", home, *words.split())
    assert (done.status, done.err) == (2, "error: DIR is a directory\nhint: name a file\n")


def test_a_file_that_is_no_archive_is_no_remote(reg: Reg, home: Path, tmp_path: Path) -> None:
    (tmp_path / "shapes.py").write_text("SIDES = 4\n")
    done = reg("--registry", home, "push", "tiny", "shapes.py")
    assert done.status == 2
    assert "shapes.py is a file, and no archive\nhint: name a directory" in done.err
    shutil.copy("shapes.py", "shapes.onnxreg")
    assert reg("--registry", home, "push", "tiny", "shapes.onnxreg").status == 4


def test_a_version_that_exists_with_another_manifest_is_a_conflict(
    reg: Reg, home: Path, tmp_path: Path, draft: Callable[..., Any]
) -> None:
    Registry(tmp_path / "other").add(draft(tmp_path / "w9", seed="other"), "0.1.0")
    assert reg("--registry", home, "push", "acme/pii:0.1.0", tmp_path / "other").status == 5


def test_an_output_that_holds_something_else_is_refused_before_anything_moves(
    reg: Reg, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("years of work")
    done = reg("--registry", "new", "pull", "acme/pii", home, "--output", "precious")
    assert done.status == 2
    assert not (tmp_path / "new").exists()
    done = reg("--registry", "new", "export", "x", "--profile", "android", "--output", "precious")
    assert done.status == 2
    assert not (tmp_path / "new").exists()
    assert (tmp_path / "precious" / "thesis.txt").read_text() == "years of work"


def test_damage_is_4_and_every_damage_is_listed(reg: Reg, home: Path) -> None:
    files = reg("--registry", home, "resolve", "acme/pii", "--json").json["files"]
    short, flipped = (home / blob_path(Digest.parse(entry["digest"])) for entry in files[:2])
    for path, data in ((short, b"cut"), (flipped, b"[]")):
        path.chmod(0o644)
        path.write_bytes(data)
    done = reg("--registry", home, "verify")
    assert done.status == 4
    kinds = [line.split()[0] for line in done.out.splitlines()[1:3]]
    assert sorted(kinds) == ["damaged", "short"]
    assert done.err.startswith("error: 2 damaged parts")
    report = reg("--registry", home, "verify", "--json")
    assert report.status == 4
    assert report.json["ok"] is False
    assert {damage["digest"] for damage in report.json["damages"]} == {entry["digest"] for entry in files[:2]}
    assert report.error["family"] == "integrity"
    done = reg("--registry", "new", "pull", "acme/pii:0.2.0", home, "--output", "out")
    assert done.status == 4
    assert not Path("out").exists()


def test_a_place_that_cannot_be_written_is_9(reg: Reg, home: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file" / "below", "/proc/nowhere"):
        done = reg("--registry", home, "push", "tiny", place)
        assert done.status == 9, done


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """A directory of which this process, as another user, may read everything and write nothing."""
    directories = [place, *(path for path in place.rglob("*") if path.is_dir())]
    own = os.geteuid()
    for directory in directories:
        directory.chmod(0o555)
    if own == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(own)
        for directory in directories:
            directory.chmod(0o755)


def test_an_unwritable_directory_is_named(reg: Reg, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as above:
        Path(above).chmod(0o755)
        place = Path(shutil.copytree(home, Path(above) / "home"))
        monkeypatch.chdir(place)
        for own in ("STATE", "TRUST"):
            monkeypatch.setenv(f"REG_{own}", str(Path(above) / own))
        tag, lock = ("tag", "tiny", "beta"), ("lock", "tiny", "--output")
        assert reg("--registry", place, *tag).status == 0
        assert reg("--registry", place, *lock, "first.lock").status == 0
        with locked(place):
            tagged = reg("--registry", place, *tag[:2], "gamma")
            written = reg("--registry", place, *lock, "second.lock")
    assert (tagged.status, written.status) == (9, 9)
    assert tagged.err.startswith(f"error: writing to {place} failed: Permission denied\n")
    assert written.err.startswith("error: writing second.lock failed: Permission denied\n")


def test_a_missing_library_is_one_line_that_names_the_extra() -> None:
    with pytest.raises(errors.HostError) as caught, needs("export", "reg export"):
        raise ModuleNotFoundError(name="torch.nn")
    assert caught.value.message == "reg export needs torch, which is not installed"
    assert "[export]" in caught.value.hint


def test_a_missing_module_of_our_own_is_a_bug() -> None:
    with pytest.raises(ModuleNotFoundError), needs("export", "reg export"):
        raise ModuleNotFoundError(name="onnxreg.converters.nothing")


def test_a_bug_in_a_process_is_a_traceback_and_1(home: Path) -> None:
    code = "import sys; from onnxreg.cli import main; from onnxreg.cli.context import Session; Session.reader = lambda *a, **k: 1 / 0; sys.exit(main.main(['ls']))"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.parametrize(
    "words", [["ls"], ["ls", "--json"], ["show", "tiny"], ["builtin", "schemas"], ["--version"]]
)
def test_a_reader_that_leaves_early_is_no_error(words: list[str], home: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "onnxreg.cli", *words]
    environment = {**os.environ, "REG_HOME": str(home)}
    done = subprocess.run(
        command, check=False, stdout=write, stderr=subprocess.PIPE, text=True, env=environment
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_errors_are_json_in_a_process_too() -> None:
    words = [sys.executable, "-m", "onnxreg.cli", "--registry", "absent", "show", "a", "--json"]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 3
    assert json.loads(done.stderr)["error"]["family"] == "not-found"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["acme/pip", "HOME"], "did you mean acme/pii?"),
        (["nobody", "HOME"], "it holds acme/pii, tiny"),
        (["acme/pii:9.9.9", "HOME"], "its newest are 0.2.0, 0.1.0"),
        (["acme/pii:beta", "HOME"], "its channels: stable"),
        (["acme/pii:stabel", "HOME"], "did you mean stable?"),
        (["acme/pii", "HOME", "--tag", "beta"], "its channels: stable"),
        (["acme/pii", "HOME", "--format", "ort"], "it has onnx-android (float32)"),
        (["acme/pii", "./absent"], "check the path"),
        (["acme/pii", "absent"], "see `reg remote list`; a directory is written ./absent"),
    ],
)
def test_a_pull_that_fails_tells_what_is_there_and_makes_nothing_here(
    words: list[str], hint: str, reg: Reg, home: Path
) -> None:
    there = [str(home) if word == "HOME" else word for word in words]
    done = reg("--registry", "mine", "pull", *there)
    assert done.status == 3
    assert f"hint: {hint}" in done.err
    assert not Path("mine").exists()
    assert reg("--registry", "mine", "pull", "acme/pii", home, "--format", "onnx-int8").status == 0
    assert str(home) in (state_directory() / "remotes.json").read_text()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("show", "tiny:latest"), "it has no channels yet; without a tag the newest is meant: tiny"),
        (("show", "acme/pii:9"), "a version has three numbers; its newest are 0.2.0, 0.1.0"),
        (("show", "tiny:9.0.0"), "its only version is 0.1.0"),
        (("diff", "acme/pii:0.1.0", "0.2.0"), "a version follows its model: NAME:0.2.0"),
        (("diff", "acme/pii:0.1.0"), "write reg diff OLD NEW; see `reg diff --help`"),
        (("--quiet", "tag", "tiny"), "write reg tag REF CHANNEL; see `reg tag --help`"),
        (("ls", "--quiet"), "--quiet goes before the verb: reg --quiet ..."),
        (("ls", "--registry=x"), "--registry goes before the verb: reg --registry ..."),
        (("push", "./share", "acme/pii"), "the model comes first: reg push acme/pii ./share"),
        (("tag", "stable", "acme/pii:0.1.0"), "the version comes first: reg tag acme/pii:0.1.0 stable"),
        (("promote", "stable", "acme/pii"), "the version comes first: reg promote acme/pii stable"),
        (
            ("log", "acme/pii:0.2.0"),
            "a name is NAME or ORG/NAME in lower case, such as acme/pii-small, without a version",
        ),
        (
            ("add", "x.onnx", "--name", "x", "--version", "v1.0.0"),
            "versions are SemVer 2.0, such as 1.4.0 or 2.0.0-rc.1",
        ),
        (("search", "pii"), "did you mean query or ls?"),
        (("trust", "list"), "did you mean show?"),
        (("rollback", "acme/pii"), "did you mean tag?"),
        (("exprot",), "did you mean export?"),
        (("artifacts",), "see `reg --help`"),
        (("policy",), "reg policy show|set; see `reg policy --help`"),
        (("policy", "gt"), "reg policy show|set; see `reg policy --help`"),
        (("pull", "acme/pii", "here", "--remote", "there"), "leave --remote away"),
        (
            ("add", "x.onnx", "--name", "x", "--license", ""),
            "write an SPDX expression such as 'MIT OR Apache-2.0', LicenseRef-NAME for your own licence, or other",
        ),
        (
            ("add", "x.onnx", "--name", "x", "--task", "Text Classification"),
            "write lower-case words joined by hyphens, such as text-classification",
        ),
        (
            ("run", "tiny", "--input", "x=1,2"),
            '--input takes a .npz or .json file, such as {"x": [[1, 2, 3, 4]]}',
        ),
    ],
)
def test_a_hint_names_what_was_probably_meant(
    words: tuple[str, ...], hint: str, reg: Reg, home: Path
) -> None:
    done = reg("--registry", home, *words)
    assert done.status in (2, 3) and done.err.splitlines()[-1] == f"hint: {hint}"


@pytest.mark.parametrize("verb", ["push", "pull"])
def test_the_name_of_a_remote_before_the_model(verb: str, reg: Reg, home: Path, tmp_path: Path) -> None:
    assert reg("--registry", home, "remote", "add", "origin", tmp_path / "shared").status == 0
    done = reg("--registry", home, verb, "origin", "acme/pii:0.1.0")
    assert done.status == 2
    assert done.err.splitlines()[-1] == f"hint: the model comes first: reg {verb} acme/pii:0.1.0 origin"


@pytest.mark.parametrize(
    ("words", "content", "status"),
    [
        (("pull", "acme/pii"), "a file", 2),
        (("pull", "acme/pii"), "something else", 2),
        (("pull", "acme/absent"), "nothing", 3),
        (("show", "acme/pii", "--remote"), "something else", 0),
    ],
)
def test_nothing_is_written_beside_other_things(
    reg: Reg, home: Path, tmp_path: Path, words: tuple[str, ...], content: str, status: int
) -> None:
    """Nor into an empty directory before there is something for it."""
    place = tmp_path / "project"
    if content == "a file":
        place.write_text("thesis")
    else:
        place.mkdir()
        if content == "something else":
            (place / "thesis.txt").write_text("thesis")
    before = sorted(tmp_path.rglob("*"))
    done = reg("--registry", place, *words, home)
    assert done.status == status, done.err
    assert sorted(tmp_path.rglob("*")) == before


def test_the_finished_part_precedes_the_failure() -> None:
    error = MissingBlobError(Digest.of(b""), "home")
    told = error.message
    with pytest.raises(MissingBlobError) as caught, prefix_outcome("pulled acme/pii:1.0.0"):
        raise error
    assert caught.value.message == f"pulled acme/pii:1.0.0, but {told}"


def test_a_file_that_cannot_be_written_leaves_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(errors.HostError, match="Is a directory"):
        output.write_file(tmp_path / "folder", b"text")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
