"""What `pull --output` wrote can be taken in again: `reg import DIRECTORY`."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onnxreg.converters.importers.adopt import adopt_directory
from onnxreg.registry import Registry
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.manifest.vocabulary import FILENAME

pytestmark = pytest.mark.usefixtures("reader_in_process")
Reg = Callable[..., Any]
BERT = Path(__file__).parents[2] / "fixtures/openmed-v1/bert"
BACK = ("--registry", "other", "import", "out", "--name", "acme/bert")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A registry with one version, which lies in the directory `out` beside it, and its manifest's digest."""
    root = tmp_path_factory.mktemp("written")
    (root / "workspace").mkdir()
    registry = Registry(root / "r")
    published = registry.add(adopt_directory(BERT, root / "workspace", name="acme/bert")[0])
    registry.write_out(Ref("acme/bert", digest=published.digest), root / "out")
    return root, str(published.digest)


@pytest.fixture
def digest(written: tuple[Path, str], tmp_path: Path) -> str:
    root, found = written
    shutil.copytree(root / "out", tmp_path / "out")
    shutil.copytree(root / "r", tmp_path / "r")
    return found


def test_the_same_files_give_the_same_digest(reg: Reg, digest: str) -> None:
    done = reg(*BACK, "--version", "1.0.0", "--json").json
    assert done["digest"] == digest
    assert done["ref"] == "acme/bert:1.0.0"
    assert done["differences"] == []
    assert reg("--registry", "other", "verify").status == 0
    assert "nothing new" in reg(*BACK).out
    assert "nothing new" in reg("--registry", "r", "import", "out", "--name", "acme/bert").out


def test_add_says_how(reg: Reg, digest: str) -> None:
    del digest
    done = reg("--registry", "other", "add", "out", "--name", "acme/bert")
    assert done.status == 2
    assert "reg import out --name NAME" in done.err
    done = reg("--registry", "other", "add", "out/model.onnx", f"out/{FILENAME}", "--name", "acme/bert")
    assert done.status == 2
    assert "reg import DIRECTORY --name NAME" in done.err


def edit(change: Callable[[Any], None], canonical: bool = True) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        path = directory / FILENAME
        value = json.loads(path.read_bytes())
        change(value)
        style: dict[str, Any] = {"separators": (",", ":"), "sort_keys": True} if canonical else {"indent": 2}
        path.write_text(json.dumps(value, ensure_ascii=False, **style))

    return write


def append(path: str) -> Callable[[Path], None]:
    def write(directory: Path) -> None:
        with (directory / path).open("ab") as file:
            file.write(b" ")

    return write


def link_out(directory: Path) -> None:
    (directory / "config.json").rename(directory.parent / "elsewhere.json")
    (directory / "config.json").symlink_to("../elsewhere.json")


def rename_operators(value: Any) -> None:
    value["artifacts"][0]["metadata"]["operators"] = ["Add"]


def rename_inputs(value: Any) -> None:
    value["artifacts"][0]["metadata"]["inputs"][0]["name"] = "words"


def move_outside(value: Any) -> None:
    value["artifacts"][0]["path"] = "../model.onnx"


SPOILED: dict[str, tuple[Callable[[Path], None], int, str]] = {
    "a companion that was edited": (append("config.json"), 4, "config.json is not the file that"),
    "weights that were replaced": (
        lambda directory: shutil.copy(directory / "model.onnx", directory / "model_fp16.onnx") and None,
        4,
        "model_fp16.onnx is not the file that",
    ),
    "a model that was cut": (
        lambda directory: (directory / "model.onnx").write_bytes(b"\x08\x09") and None,
        2,
        "model.onnx is not an ONNX file",
    ),
    "a file that is missing": (lambda directory: (directory / "model.ort").unlink(), 2, "which is missing"),
    "a verdict by another tool": (
        edit(
            lambda value: value["artifacts"][0].update(certification={"state": "certified"}), canonical=False
        ),
        2,
        f"{FILENAME} was edited by another tool: ",
    ),
    "an artifact by another tool": (
        edit(lambda value: value["artifacts"].append({"format": "transformersjs", "path": "m"}), False),
        2,
        f"{FILENAME} was edited by another tool: ",
    ),
    "a manifest that is none": (
        lambda directory: (directory / FILENAME).write_text("{") and None,
        2,
        FILENAME,
    ),
    "another name": (edit(lambda value: value.update(name="acme/other")), 2, "use --name acme/other"),
    "other operators": (edit(rename_operators), 2, "states other operators of model.onnx"),
    "other inputs": (edit(rename_inputs), 2, "states other inputs of model.onnx"),
    "a path outside": (edit(move_outside), 2, "path"),
    "a link out of the directory": (link_out, 2, "a link that leads out of the directory"),
}


@pytest.mark.parametrize("case", SPOILED)
def test_damaged_files_are_refused(reg: Reg, digest: str, case: str) -> None:
    del digest
    spoil, status, message = SPOILED[case]
    spoil(Path("out"))
    done = reg(*BACK)
    assert (done.status, message in done.err) == (status, True), done.err


def test_a_manifest_that_another_tool_only_laid_out_is_the_same(reg: Reg, digest: str) -> None:
    edit(lambda value: None, canonical=False)(Path("out"))
    assert reg(*BACK, "--json").json["digest"] == digest


def test_a_file_that_the_manifest_does_not_name_is_left_out(reg: Reg, digest: str) -> None:
    Path("out/notes.txt").write_text("mine")
    done = reg(*BACK, "--json").json
    assert done["digest"] == digest
    assert [item["path"] for item in done["differences"]] == ["notes.txt"]


@pytest.fixture
def run_directory(tmp_path: Path) -> str:
    """The directory of a training, into which a version with `exports/model.onnx` was written; the manifest's digest."""
    workspace = tmp_path / "workspace"
    (workspace / "exports").mkdir(parents=True)
    draft, _ = adopt_directory(BERT, workspace, name="acme/bert")
    (model,) = [item for item in draft.artifacts if item.path == "model.onnx"]
    (workspace / "model.onnx").rename(workspace / "exports/model.onnx")
    published = Registry(tmp_path / "r").add(
        replace(draft, artifacts=(replace(model, path="exports/model.onnx"),))
    )
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    Registry(tmp_path / "r").write_out(Ref("acme/bert", digest=published.digest), tmp_path / "run/exports")
    return str(published.digest)


def test_the_exports_of_a_run_directory_are_taken_back(reg: Reg, run_directory: str) -> None:
    assert Path("run/exports/model.onnx").is_file()
    shutil.copytree("run/exports", "copy")
    for place, other in (("run/exports", "r1"), ("copy", "r2")):
        done = reg("--registry", other, "import", place, "--name", "acme/bert", "--json")
        assert done.status == 0, done.err
        assert (done.json["digest"], done.json["differences"]) == (run_directory, [])


def test_a_file_that_is_missing_from_exports_is_named_as_in_the_manifest(
    reg: Reg, run_directory: str
) -> None:
    Path("run/exports/model.onnx").unlink()
    done = reg("--registry", "other", "import", "run/exports", "--name", "acme/bert")
    assert done.status == 2
    assert "exports/model.onnx, which is missing" in done.err
