"""`reg run`: the self-test, texts and tensors, on a token classifier made of a table."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

Reg = Callable[..., Any]
WORDS = ["[UNK]", "Anna", "Keller", "met", "Bob", "on", "Monday"]
LABELS = ["O", "B-NAME", "I-NAME", "B-DATE", "I-DATE"]
TAGS = [0, 1, 2, 0, 1, 0, 3]
TEXT = "Anna Keller met Bob on Monday"
SPANS = [(0, 11, "NAME"), (16, 19, "NAME"), (23, 29, "DATE")]


def write_model(root: Path) -> Draft:
    """The tag of each word is looked up; the second artifact brings no golden vectors."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    from onnxreg.converters.passes.file_passes import GoldenVectors, Outputs
    from onnxreg.converters.runtime import golden

    root.mkdir()
    table = np.eye(len(LABELS), dtype=np.float32)[TAGS] * 4
    for name in ("model.onnx", "bare.onnx"):
        graph = onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["" : 18]>'
            "g (int64[batch, sequence] input_ids, int64[batch, sequence] attention_mask)"
            " => (float[batch, sequence, 5] logits) { logits = Gather(table, input_ids) }"
        )
        graph.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
        onnx.save(graph, root / name)
    ids = np.array([[1, 2, 3, 4]])
    feeds = {"row": {"input_ids": ids, "attention_mask": np.ones_like(ids)}}
    made = Outputs(root / "model.onnx", feeds, {"row": {"logits": table[ids]}})
    vectors = GoldenVectors(tolerance=1e-3).apply(made)
    tokenizer = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(root / "tokenizer.json"))
    sidecar = DraftFile(golden.ROLE, vectors.name)
    return Draft(
        "acme/tags",
        root,
        (
            DraftArtifact("onnx-android", "float32", "model.onnx", sidecars=(sidecar,)),
            DraftArtifact("onnx", "float32", "bare.onnx"),
        ),
        (DraftFile("tokenizer", "tokenizer.json"),),
        {"labels": LABELS, "max_sequence_length": 4, "task": "token-classification"},
    )


@pytest.fixture(autouse=True)
def tags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    registry = Registry(tmp_path / "tags")
    registry.add(write_model(tmp_path / "draft"), "1.0.0")
    monkeypatch.setenv("REG_HOME", str(registry.store.root))
    return registry


def test_the_self_test_passes_here(reg: Reg) -> None:
    done = reg("run", "acme/tags", "--self-test")
    assert (done.status, done.err) == (0, "")
    header, row, *rest = done.out.splitlines()
    assert header.split("  ")[0] == "CASE" and row.split()[:3] == ["row", "logits", "20"]
    assert rest[-1].startswith("model.onnx in ONNX Runtime ") and rest[-1].endswith(": pass")
    value = reg("run", "acme/tags", "--self-test", "--json").json
    assert list(value) == ["name", "version", "path", "runtime", "passed", "cases"]
    assert value["passed"] is True and value["cases"][0]["max_abs_error"] == 0


def test_a_runtime_that_computes_something_else(reg: Reg, monkeypatch: pytest.MonkeyPatch) -> None:
    from onnxreg.converters.runtime.golden import Runnable

    right = Runnable.run

    def wrong(self: Any, feeds: Any) -> Any:
        return {name: array + 0.1 for name, array in right(self, feeds).items()}

    monkeypatch.setattr(Runnable, "run", wrong)
    done = reg("run", "acme/tags", "--self-test")
    assert done.status == 8
    assert ": fail" in done.out and "gives other values here" in done.err
    assert reg("run", "acme/tags", "--self-test", "--json").json["passed"] is False


def test_an_artifact_without_vectors(reg: Reg) -> None:
    done = reg("run", "acme/tags", "--self-test", "--format", "onnx")
    assert done.status == 3 and "bare.onnx has no golden vectors" in done.err


def test_spans_of_a_text(reg: Reg) -> None:
    """Longer than the four tokens that the model takes at once."""
    value = reg("run", "acme/tags", "--text", TEXT, "--json").json
    assert [(each["start"], each["end"], each["label"]) for each in value["spans"]] == SPANS
    assert [each["text"] for each in value["spans"]] == ["Anna Keller", "Bob", "Monday"]
    shown = reg("run", "acme/tags", "--text", TEXT).out.splitlines()
    assert shown[1].split() == ["NAME", "0", "11", "Anna", "Keller"]
    for text in ("", "met on"):
        assert reg("run", "acme/tags", "--text", text).out == "no labelled spans\n"


def test_outputs_for_tensors(reg: Reg, tmp_path: Path) -> None:
    feeds = {"input_ids": [[1, 3]], "attention_mask": [[1, 1]]}
    (tmp_path / "feeds.json").write_text(json.dumps(feeds))
    value = reg("run", "acme/tags", "--input", "feeds.json", "--json").json
    assert value["outputs"] == {
        "logits": {"dtype": "float32", "shape": [1, 2, 5], "data": [0, 4, 0, 0, 0, 4, 0, 0, 0, 0]}
    }
    assert "1x2x5" in reg("run", "acme/tags", "--input", "feeds.json").out


def test_from_a_remote_nothing_is_kept(reg: Reg, tags: Registry, tmp_path: Path) -> None:
    here = Registry(tmp_path / "here")
    done = reg("--registry", here.store.root, "run", "acme/tags", "--self-test", "--remote", tags.store.root)
    assert done.status == 0
    assert here.names() == []


def test_damaged_bytes_are_not_run(reg: Reg, tags: Registry) -> None:
    artifact = tags.resolve("acme/tags").artifact
    path = tags.store.root / "blobs" / "sha256" / artifact.digest.hex[:2] / artifact.digest.hex
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert reg("run", "acme/tags", "--self-test").status == 4


@pytest.mark.parametrize("words", [[], ["--self-test", "--text", "x"]])
def test_one_thing_at_a_time(reg: Reg, words: list[str]) -> None:
    done = reg("run", "acme/tags", *words)
    assert done.status == 2 and "one of --self-test, --text and --input" in done.err


def test_text_for_what_has_no_tokenizer(reg: Reg, tags: Registry, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "m.onnx").write_bytes(b"x")
    tags.add(Draft("acme/other", tmp_path / "w", (DraftArtifact("onnx", "float32", "m.onnx"),)))
    done = reg("run", "acme/other", "--text", "x")
    assert done.status == 2 and "acme/other has no tokenizer.json" in done.err
    missing = reg("run", "acme/tags", "--input", "nowhere.json")
    assert missing.status == 3 and "there is no file nowhere.json" in missing.err


def test_a_file_that_holds_no_inputs(reg: Reg) -> None:
    """A model, where its inputs are wanted."""
    onnx.save(onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 18]> g () => () {}'), "model.onnx")
    done = reg("run", "acme/tags", "--input", "model.onnx")
    assert done.status == 2
    assert "model.onnx is not an .npz file, and cannot be read as JSON: it is not" in done.err
    assert "hint: inputs are an .npz file of arrays by name, or JSON such as" in done.err


def test_inputs_of_another_shape_or_value(reg: Reg, tmp_path: Path) -> None:
    """What the runtime got and what it expected are both told, in its words without its codes; it prints nothing itself."""
    one_axis = {"dtype": "int64", "shape": [2], "data": [1, 3]}
    beyond = {"dtype": "int64", "shape": [1, 1], "data": [99]}
    for ids, told in ((one_axis, "Got: 1 Expected: 2"), (beyond, "indices element out of data bounds")):
        (tmp_path / "feeds.json").write_text(json.dumps({"input_ids": ids, "attention_mask": [[1, 1]]}))
        done = reg("run", "acme/tags", "--input", "feeds.json")
        assert done.status == 2 and done.err.startswith("error: model.onnx does not run on these inputs: ")
        assert told in done.err and "ONNXRuntimeError" not in done.err
