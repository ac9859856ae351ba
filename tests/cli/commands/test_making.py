"""`export`, `import`, `add`: what they hand to the converters, and what they say of the outcome."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from onnxreg.converters.importers.confine import Child
from onnxreg.converters.importers.survey import Difference
from onnxreg.converters.request import ExportRequest
from onnxreg.registry import Registry
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConversionError
from onnxreg.schema.manifest.vocabulary import FILENAME

pytestmark = pytest.mark.usefixtures("reader_in_process")
Reg = Callable[..., Any]


@dataclass(frozen=True)
class Ordered:
    """An order of which nothing is known but that it is another one than those before."""

    name: str
    number: int

    def warnings(self) -> tuple[str, ...]:
        return ()


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch, draft: Callable[..., Any]) -> Iterator[list[Any]]:
    """A converter that needs no torch: what it was asked for, call by call."""
    calls: list[Any] = []

    def plan(request: ExportRequest) -> Ordered:
        calls.append(request)
        return Ordered(request.name or "acme/pii", len(calls))

    def run(order: Ordered, workspace: Path, cache: Any, progress: Any) -> Any:
        progress.step("converting to ONNX")
        return draft(workspace / "made", order.name), None

    monkeypatch.setattr(ExportRequest, "plan", plan)
    monkeypatch.setattr("onnxreg.converters.request.run", run)
    yield calls


def test_export_publishes_and_writes_out(reg: Reg, exported: list[Any]) -> None:
    words = ("--registry", "r", "export", "./ckpt", "--profile", "android", "--name", "acme/x")
    done = reg(*words, "--output", "out", "--json")
    assert (done.status, done.err) == (0, "")
    assert exported == [ExportRequest("./ckpt", "acme/x", "android", is_typed=True)]
    value = done.json
    assert set(value) == {
        *("ref", "name", "version", "new", "digest", "manifest", "states", "yanked", "newer", "output")
    }
    assert (value["ref"], value["version"], value["output"]) == ("acme/x:0.1.0", "0.1.0", "out")
    assert value["digest"] == str(Digest.of(Path("out", FILENAME).read_bytes()))
    assert reg("--registry", "r", "show", value["ref"], "--json").json == value["manifest"]


def test_export_says_what_it_did(reg: Reg, exported: list[Any]) -> None:
    done = reg("--registry", "r", "export", "acme/pii@main", "--profile", "android", "--version", "1.0.0")
    assert done.err == "converting to ONNX ...\n"
    assert done.out.startswith("published acme/pii:1.0.0\nmanifest sha256:")
    for line in (
        "note: model.onnx: outside the mobile-safe operators: Einsum",
        "  such operators run on the CPU; NNAPI and XNNPACK may leave them to it",
        "warning: model.onnx: opset 18 needs ORT 1.14",
        "refused by G4/point: model_int8.onnx",
        "  recall of NAME falls by 0.02",
        "skipped: ort: onnxruntime is not installed",
    ):
        assert line in done.out.splitlines()
    again = reg("--registry", "r", "export", "acme/pii@main", "--profile", "android", "--version", "1.0.0")
    assert again.out.startswith("nothing new: this is acme/pii:1.0.0\n")


def test_export_hands_every_option_on(reg: Reg, exported: list[Any]) -> None:
    spans = [{"start": 0, "end": 3, "label": "NAME"}]
    Path("golden.jsonl").write_text(json.dumps({"id": "a", "text": "Ann", "gold_spans": spans}) + "\n")
    words = (
        *("--int8-embeddings", "--no-rewrite", "--max-seq-length", 128),
        *("--eval-suite", "golden.jsonl", "--min-gold-chars", 50, "--min-parent-recall", 0.7),
        "--trust-remote-code",
    )
    assert reg("--registry", "r", "export", "x", "--profile", "android", *words).status == 0
    assert reg("--registry", "r", "export", "x", "--profile", "android", "--no-int8").status == 0
    assert [request.options for request in exported] == [
        {
            "int8_embeddings": True,
            "rewrite": False,
            "max_seq_length": 128,
            "eval_suite": Path("golden.jsonl"),
            "min_gold_chars": 50,
            "min_parent_recall": 0.7,
        },
        {"int8": False},
    ]
    assert [request.trust_remote_code for request in exported] == [True, False]


@pytest.mark.parametrize(
    ("error", "status"),
    [(ConversionError("it broke"), 7), (KeyboardInterrupt(), 130)],
    ids=["error", "ctrl-c"],
)
def test_a_failed_export_leaves_nothing(
    error: BaseException, status: int, reg: Reg, monkeypatch: pytest.MonkeyPatch
) -> None:
    def execute(order: Any, workspace: Path, cache: Any, progress: Any) -> Any:
        (workspace / "model.onnx").write_bytes(b"half")
        raise error

    monkeypatch.setattr(ExportRequest, "plan", lambda request: Ordered("acme/x", 0))
    monkeypatch.setattr("onnxreg.converters.request.run", execute)
    done = reg("--registry", "r", "export", "x", "--profile", "android", "--output", "out")
    assert done.status == status
    assert not Path("out").exists()
    assert not Path("r").exists()
    assert reg("--registry", "r", "ls", "--json").status == 3


def test_a_failed_export_leaves_an_empty_directory_as_it_was(reg: Reg) -> None:
    Path("r").mkdir()
    done = reg("--registry", "r", "export", "json:lods", "--task", "pooling", "--name", "x")
    assert done.status in (2, 3, 9)
    assert list(Path("r").iterdir()) == []


def test_an_export_that_cannot_be_written_out_says_that_it_was_published(
    reg: Reg, exported: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnxreg.converters import request as module

    def run(*about: Any) -> Any:
        Path("out").mkdir()
        Path("out", "thesis.txt").write_text("somebody came first")
        return made(*about)

    made = module.run
    monkeypatch.setattr(module, "run", run)
    words = ("--registry", "r", "export", "x", "--profile", "android", "--name", "acme/x")
    done = reg(*words, "--version", "1.0.0", "--output", "out")
    assert done.status == 2
    assert done.err.splitlines()[-2].startswith("error: published acme/x:1.0.0, but out holds thesis.txt")
    assert reg("--registry", "r", "show", "acme/x:1.0.0").status == 0


@pytest.mark.parametrize("target", ["a-file/below/out", "a-file", "dangling"])
def test_an_output_that_cannot_be_made_is_refused_before_the_work(
    reg: Reg, exported: list[Any], target: str
) -> None:
    Path("a-file").write_text("thesis")
    Path("dangling").symlink_to("elsewhere")
    done = reg("--registry", "r", "export", "x", "--profile", "android", "--output", target)
    assert (done.status, exported) == (2, [])
    assert target in done.err
    assert not Path("elsewhere").exists()


def test_an_output_beside_which_nothing_can_be_made_is_refused_before_the_work(
    reg: Reg, exported: list[Any]
) -> None:
    done = reg("--registry", "r", "export", "x", "--profile", "android", "--output", "/proc/out")
    assert (done.status, exported) == (9, [])


def test_a_wrong_version_is_refused_before_the_work(reg: Reg, exported: list[Any]) -> None:
    done = reg("--registry", "r", "export", "x", "--profile", "android", "--version", "1.0")
    assert (done.status, exported) == (2, [])


def test_a_missing_library_names_its_extra(
    reg: Reg, exported: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks_torch(*words: Any, **more: Any) -> Any:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr("onnxreg.converters.request.run", lacks_torch)
    done = reg("--registry", "r", "export", "x", "--profile", "android")
    assert done.status == 9
    assert "torch" in done.err
    assert "[export]" in done.err.splitlines()[-1]


def test_import_lists_the_differences(
    reg: Reg, monkeypatch: pytest.MonkeyPatch, draft: Callable[..., Any]
) -> None:
    def take(_: Child, directory: Path, workspace: Path, *, name: str) -> Any:
        assert directory == Path("openmed")
        found = [Difference("artifacts.0.precision", "fp16", "float32"), Difference("certified", True, None)]
        return draft(workspace / "made", name), found

    monkeypatch.setattr(Child, "take", take)
    words = ("--registry", "r", "import", "openmed", "--name", "acme/x", "--version", "2.0.0")
    value = reg(*words, "--json").json
    assert value["ref"] == "acme/x:2.0.0"
    assert value["differences"] == [
        {"path": "artifacts.0.precision", "claimed": "fp16", "found": "float32"},
        {"path": "certified", "claimed": True, "found": None},
    ]
    shown = [line.split() for line in reg(*words).out.splitlines()]
    assert ["artifacts.0.precision", '"fp16"', '"float32"'] in shown
    assert ["certified", "true", "nothing"] in shown


def test_import_of_a_directory_without_a_manifest(reg: Reg, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert reg("--registry", "r", "import", "empty", "--name", "x").status == 2


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A real ONNX file: y = x @ w."""
    import numpy
    import onnx
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        [onnx.numpy_helper.from_array(numpy.ones((4, 2), numpy.float32), "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(made, tmp_path / "linear.onnx")
    return tmp_path / "linear.onnx"


@pytest.mark.parametrize(
    ("word", "status", "said"),
    [
        ("out/nope.onnx", 3, "there is no file out/nope.onnx"),
        ("a-directory.onnx", 2, "a-directory.onnx is a directory"),
        ("a-pipe.onnx", 2, "a-pipe.onnx is not a regular file"),
        ("UP.ONNX", 2, "the suffix of UP.ONNX is not in lower case\nhint: rename it to UP.onnx"),
    ],
)
def test_add_says_why_it_does_not_take_a_file(reg: Reg, word: str, status: int, said: str) -> None:
    Path("a-directory.onnx").mkdir()
    os.mkfifo("a-pipe.onnx")
    Path("UP.ONNX").write_bytes(b"")
    done = reg("--registry", "r", "add", word, "--name", "acme/x")
    assert (done.status, Path("r").exists()) == (status, False)
    assert said in done.err


FILES = {
    "add": ("no.onnx", "--name", "acme/x"),
    "import": ("no", "--name", "acme/x"),
    "export --recipe": ("x", "--name", "acme/x", "--recipe", "no.yaml"),
    "export --batch": ("--batch", "no.yaml"),
    "export --eval-suite": ("hf/x", "--profile", "android", "--eval-suite", "no.jsonl"),
    "coverage": ("acme/pii", "--devices", "no.json"),
    "resolve": ("acme/pii", "--device", "./no.json"),
    "lock": ("acme/pii", "--device", "no.json"),
    "run": ("acme/pii", "--input", "no.json"),
    "attest": ("acme/pii", "--report", "no.json"),
    "policy set": ("no.toml",),
    "archive verify": ("no.onnxreg",),
    "archive verify --trust": ("made.onnxreg", "--trust", "no.toml"),
    "serve": ("--token-file", "no"),
    "pull --locked": ("no.lock", "./there"),
}


@pytest.mark.parametrize("verb", FILES)
def test_a_file_that_is_not_there_is_3_everywhere(reg: Reg, home: Path, verb: str) -> None:
    assert reg("--registry", home, "archive", "create", "made.onnxreg", "--all").status == 0
    words = [*verb.partition(" --")[0].split(), *FILES[verb]]
    if verb == "pull --locked":
        words.insert(1, "--locked")
    done = reg("--registry", home, *words)
    assert (done.status, "no" in done.err) == (3, True), done.err


def test_add_registers_a_model_and_its_companions(reg: Reg, model: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    before = model.read_bytes()
    words = ("--registry", "r", "add", model, tmp_path / "config.json", "--name", "acme/linear")
    value = reg(*words, "--json").json
    assert (value["ref"], value["output"]) == ("acme/linear:0.1.0", None)
    (artifact,) = value["manifest"]["artifacts"]
    assert (artifact["format"], artifact["precision"]) == ("onnx", "float32")
    assert artifact["metadata"]["operators"] == ["MatMul"]
    assert model.read_bytes() == before
    assert reg(*words, "--format", "onnx", "--version", "1.0.0").out.startswith("published acme/linear:1.0.0")
    assert reg("--registry", "r", "ls", "acme/linear", "--json").json["versions"][0]["version"] == "1.0.0"


def test_add_of_something_else(reg: Reg, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no model")
    for words, status in ((["absent.onnx"], 3), ([tmp_path / "notes.txt"], 2)):
        done = reg("--registry", "r", "add", *words, "--name", "x")
        assert done.status == status
        assert Registry("r").names() == []
