"""`reg export --task`: a task's own recipe from the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Reg = Callable[..., Any]
Make = Callable[..., Path]


@pytest.fixture(scope="module")
def encoder(make_checkpoint: Make) -> Path:
    return make_checkpoint("bert", task="")


def test_a_task_is_exported_published_and_rebuilt(reg: Reg, encoder: Path) -> None:
    words = ("export", encoder, "--task", "pooling", "--quantize", "--opset", 17, "--max-seq-length", 16)
    done = reg("--registry", "r", *words, "--name", "acme/x", "--json")
    assert (done.status, done.err) == (0, "")
    manifest = done.json["manifest"]
    assert [(item["path"], item["precision"]) for item in manifest["artifacts"]] == [
        ("model.onnx", "float32"),
        ("model_int8.onnx", "int8"),
    ]
    assert {item["opset_imports"]["ai.onnx"] for item in manifest["artifacts"]} == {17}
    assert (manifest["task"], manifest["max_sequence_length"]) == ("pooling", 16)
    assert manifest["recipe"]["parameters"]["got"]["pooling"] == {"mode": "mean", "normalize": False}
    again = reg("--registry", "r", "rebuild", "acme/x", "--source", encoder)
    assert again.status == 0, again.err
    twice = reg("--registry", "r", *words, "--name", "acme/x")
    assert twice.out.startswith("nothing new: this is acme/x:0.1.0")


def test_licence_and_description_are_of_the_version_and_its_rebuild(reg: Reg, encoder: Path) -> None:
    words = ("export", encoder, "--task", "default", "--name", "acme/x", "--license", "mit")
    first = reg("--registry", "r", *words, "--description", "Vectors", "--json").json["manifest"]
    assert (first["license"], first["description"]) == ("MIT", "Vectors")
    twice = reg("--registry", "r", *words, "--description", "Vectors")
    assert twice.out.startswith("nothing new: this is acme/x:0.1.0")
    other = reg("--registry", "r", *words, "--description", "Vectors of texts", "--json").json
    assert (other["version"], other["manifest"]["description"]) == ("0.1.1", "Vectors of texts")
    assert first["artifacts"] == other["manifest"]["artifacts"]
    again = reg("--registry", "r", "rebuild", "acme/x", "--source", encoder)
    assert again.status == 0, again.err
    refused = reg("--registry", "r", *words[:-1], "mti")
    assert refused.status == 2 and "no licence is called 'mti'" in refused.err


def test_embedding_tables_are_int8_on_request(reg: Reg, encoder: Path) -> None:
    words = ("export", encoder, "--task", "pooling", "--quantize", "--name", "acme/x", "--json")
    plain = reg("--registry", "r", *words).json["manifest"]
    done = reg("--registry", "r", *words, "--int8-embeddings")
    assert done.status == 0, done.err
    small = done.json["manifest"]
    counts = [each["artifacts"][1]["quantization"]["measured"] for each in (plain, small)]
    assert counts[0]["weights_quantized"] < counts[0]["weights_total"] == counts[1]["weights_quantized"]
    assert small["artifacts"][1]["size"] < plain["artifacts"][1]["size"]
    step = next(step for step in small["recipe"]["steps"] if step["name"] == "int8")
    assert step["result"]["embeddings"]["tables"] == step["result"]["embeddings"]["tables_quantized"] > 0


def test_task_exports_begin_at_opset_14(reg: Reg, encoder: Path) -> None:
    done = reg("--registry", "r", "export", encoder, "--task", "default", "--name", "acme/x", "--json")
    (artifact,) = done.json["manifest"]["artifacts"]
    assert (artifact["opset_imports"]["ai.onnx"], artifact["precision"]) == (14, "float32")


def test_an_unknown_task_lists_the_known_ones(reg: Reg, encoder: Path) -> None:
    done = reg("--registry", "r", "export", encoder, "--task", "embed", "--name", "acme/x")
    assert (
        done.status == 2
        and "no task is called 'embed'" in done.err
        and "did you mean embedding? one of: feature-extraction, pooling," in done.err
    )


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--task", "pooling", "--profile", "android"), "--profile"),
        ((), "--profile"),
        (("--task", "pooling", "--no-int8"), "--no-int8"),
        (("--task", "pooling", "--min-gold-chars", 3), "--min-gold-chars"),
        (("--task", "pooling", "--int8-embeddings"), "--quantize"),
        (("--profile", "android", "--quantize"), "--quantize"),
        (("--recipe", "x.yaml", "--quantize"), "--quantize"),
        (("--recipe", "x.yaml", "--opset", 17), "--opset"),
    ],
)
def test_options_that_mean_nothing_here(words: tuple[Any, ...], named: str, reg: Reg, encoder: Path) -> None:
    Path("x.yaml").write_text("task: pooling\nsteps: [{name: fp32, pass: OnnxConversion}]\n")
    done = reg("--registry", "r", "export", encoder, "--name", "acme/x", *words)
    assert done.status == 2 and named in done.err


def test_a_base_checkpoint_has_no_head(reg: Reg, encoder: Path) -> None:
    done = reg("--registry", "r", "export", encoder, "--task", "question-answering", "--name", "acme/x")
    assert done.status == 2 and "config.json says BertModel" in done.err
    assert not Path("r").exists()


def test_an_unknown_task_is_told_those_that_can_be_given(reg: Reg) -> None:
    done = reg("export", "x", "--task", "zzz", "--name", "acme/x")
    assert done.status == 2
    assert "one of: feature-extraction, pooling" in done.err
    assert not {"onnx", "image-classification", "text-generation"} & set(done.err.replace(",", "").split())


@pytest.mark.parametrize("opset", [6, 24, 99])
def test_an_opset_that_no_exporter_has_is_told_at_once(reg: Reg, encoder: Path, opset: int) -> None:
    done = reg("export", encoder, "--task", "pooling", "--opset", opset, "--name", "acme/x")
    assert (done.status, done.err) == (
        2,
        f"error: there is no opset {opset} to export to\nhint: PyTorch's exporters support 7 to 23\n",
    )
