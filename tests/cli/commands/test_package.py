"""`reg archive package`: what it prints, its JSON, and how it fails."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.usefixtures("reader_in_process")
Reg = Callable[..., Any]


@pytest.fixture(autouse=True)
def registry(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REG_HOME", str(home))


def test_for_people_and_as_json(reg: Reg) -> None:
    done = reg("archive", "package", "acme/pii:stable", "out")
    assert done.status == 0
    assert done.out.splitlines()[0].split() == ["VARIANT", "PROVIDER", "ARTIFACT", "DIGEST"]
    assert done.out.splitlines()[-1].startswith("written to out: component pii, ")
    value = reg("archive", "package", "acme/pii:stable", "out", "--format", "onnx-int8", "--json").json
    assert list(value) == [
        *("ref", "output", "manifest", "component", "variants", "shared_assets", "bytes", "left_out"),
    ]
    assert (value["ref"], value["output"], value["component"]) == ("acme/pii:0.1.0", "out", "pii")
    (variant,) = value["variants"]
    assert list(variant) == ["name", "ep", "artifact", "format", "precision", "digest", "directory"]
    assert (variant["name"], variant["artifact"]) == ("onnx-int8", "model_int8.onnx")
    assert value["bytes"] == sum(path.stat().st_size for path in Path("out").rglob("*") if path.is_file())
    assert reg("--quiet", "archive", "package", "acme/pii", "out").out == ""


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("acme/nobody", "out"), 3, "acme/nobody"),
        (("acme/pii", "out", "--format", "webgpu"), 3, "has no webgpu"),
        (("acme/pii", "out", "--precision", "int4"), 3, "of precision int4"),
        (("acme/pii", "home"), 2, "is inside the registry"),
        (("acme/pii", "."), 2, "is the working directory"),
        (("acme/pii", "file"), 2, "file is a file"),
        (("acme/pii", "file/deeper/still"), 2, "file/deeper/still is a file, or below one"),
        (("acme/pii", "mine"), 2, "mine holds x, which no earlier package wrote"),
        (("acme/pii",), 2, "reg archive package REF DIRECTORY"),
    ],
)
def test_refused_requests(reg: Reg, words: tuple[str, ...], status: int, message: str) -> None:
    Path("file").write_text("")
    Path("mine").mkdir()
    Path("mine/x").write_text("")
    done = reg("archive", "package", *words)
    assert (done.status, done.out) == (status, "")
    assert message in done.err
    assert not Path("out").exists()


def test_import_takes_no_directory_without_a_manifest(reg: Reg) -> None:
    Path("mine").mkdir()
    done = reg("import", "mine", "--name", "x")
    assert done.status == 2
    assert "reg export" in done.err
