"""The KV cache of a decoder, read from its graph and the settings beside it; and OpenMed's mobile-safe set."""

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.graphs import graph

from onnxreg.converters.importers.adopt import adopt_files
from onnxreg.converters.onnx.facts import with_kv_caches
from onnxreg.converters.onnx.mobile_rules import MOBILE_SAFE_OPS, android_warnings
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

GENAI = {"model": {"context_length": 2048, "decoder": {"head_size": 64}}}
CONFIG = {"max_position_embeddings": 512}
Shape = tuple[str | int, ...]


def spec(name: str, dtype: str, shape: Shape) -> dict[str, Any]:
    dims = [
        {"kind": "dynamic", "name": size} if isinstance(size, str) else {"kind": "static", "value": size}
        for size in shape
    ]
    return {"name": name, "dtype": dtype, "shape": dims}


def decoder(
    layers: int = 2, dtype: str = "float16", shape: Shape = ("batch", 8, "past", 64), form: str = "{}"
) -> list[dict[str, Any]]:
    """The inputs of a decoder; `form` is that of the name of a past."""
    names = [
        form.format(f"past_key_values.{layer}.{side}") for layer in range(layers) for side in ("key", "value")
    ]
    tokens = spec("input_ids", "int64", ("batch", "sequence"))
    return [tokens, *(spec(name, dtype, shape) for name in names)]


def cache_of(root: Path, inputs: list[dict[str, Any]], files: dict[str, Any], path: str = "m.onnx") -> Any:
    """The `kv_cache` of a draft with one artifact of these inputs; each file is a companion."""
    for name, value in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(json.dumps(value))
    artifact = DraftArtifact("onnx", "float32", path, fields={"metadata": {"inputs": inputs}})
    companions = tuple(DraftFile("other", name) for name in files)
    (described,) = with_kv_caches(Draft("acme/x", root, (artifact,), companions)).artifacts
    assert described.fields["metadata"] == {"inputs": inputs}
    return described.fields.get("kv_cache")


@pytest.mark.parametrize(
    ("inputs", "size"),
    {
        "float16": (decoder(), 2 * 2 * 8 * 64 * 2),
        "float32": (decoder(dtype="float32"), 2 * 2 * 8 * 64 * 4),
        "bfloat16": (decoder(dtype="bfloat16"), 2 * 2 * 8 * 64 * 2),
        "int8": (decoder(dtype="int8"), 2 * 2 * 8 * 64),
        "int4": (decoder(dtype="int4"), 2 * 2 * 8 * 64 // 2),
        "one layer": (decoder(layers=1), 2 * 8 * 64 * 2),
        "an open head size": (decoder(shape=("batch", 8, "past", "kv_cache_dim")), 2 * 2 * 8 * 64 * 2),
        "another head size": (decoder(shape=("batch", 8, "past", 128)), 2 * 2 * 8 * 128 * 2),
        "a batch of two": (decoder(shape=(2, 8, "past", 64)), 2 * 2 * 2 * 8 * 64 * 2),
        "a past of one length": (decoder(shape=("batch", 8, 4096, 64)), 2 * 2 * 8 * 64 * 2),
        "layers of two kinds": (
            [*decoder(layers=1), spec("past_key_values.1.key", "float32", (1, 2, "past", 10))],
            2 * 8 * 64 * 2 + 2 * 10 * 4,
        ),
        "bits that fill no byte": ([spec("past_key_values.0.key", "int4", (1, 1, "past", 3))], 2),
    }.values(),
    ids=str,
)
def test_the_bytes_of_a_token(tmp_path, inputs, size):
    expected = {"bytes_per_token": size, "max_tokens": 2048}
    assert cache_of(tmp_path, inputs, {"genai_config.json": GENAI}) == expected


@pytest.mark.parametrize(
    ("files", "path", "longest"),
    [
        ({"genai_config.json": GENAI, "config.json": CONFIG}, "m.onnx", 2048),
        ({"config.json": CONFIG}, "m.onnx", 512),
        ({"cpu/genai_config.json": GENAI, "config.json": CONFIG}, "cpu/m.onnx", 2048),
        ({"cpu/genai_config.json": GENAI, "config.json": CONFIG}, "m.onnx", 512),
        ({"cpu/genai_config.json": GENAI}, "gpu/m.onnx", None),
        ({}, "m.onnx", None),
        ({"genai_config.json": {"model": {}}}, "m.onnx", None),
        ({"genai_config.json": []}, "m.onnx", None),
        ({"config.json": {"max_position_embeddings": 0}}, "m.onnx", None),
        ({"config.json": {"max_position_embeddings": "512"}}, "m.onnx", None),
    ],
)
def test_the_longest_context_is_that_of_the_files_beside_the_graph(tmp_path, files, path, longest):
    cache = cache_of(tmp_path, decoder(), files, path)
    assert (None if cache is None else cache["max_tokens"]) == longest


@pytest.mark.parametrize(
    "changes",
    [
        *({"form": form} for form in ("decoder.{}", "{}.scale")),
        *({"shape": shape} for shape in (("batch", "heads", "past", 64), ("batch", 8, "past"))),
        *({"dtype": dtype} for dtype in ("str", "unknown")),
        {"layers": 0},
    ],
    ids=str,
)
def test_a_cache_that_is_not_known_is_not_recorded(tmp_path, changes):
    assert cache_of(tmp_path, decoder(**changes), {"genai_config.json": GENAI}) is None


def test_files_that_are_added_are_read(tmp_path):
    """A graph as Optimum writes it, with its past and its config."""
    kind = "float[b, 2, p, 16]"
    model = graph("y = Add(k, v)", f"{kind} k, {kind} v", f"{kind} y")
    for at, side in enumerate(("key", "value")):
        model.graph.input[at].name = model.graph.node[0].input[at] = f"past_key_values.0.{side}"
    onnx.save(model, tmp_path / "m.onnx")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "workspace").mkdir()
    files = [tmp_path / "m.onnx", tmp_path / "config.json"]
    (artifact,) = adopt_files(files, tmp_path / "workspace", name="acme/x").artifacts
    assert artifact.fields["kv_cache"] == {"bytes_per_token": 2 * 2 * 16 * 4, "max_tokens": 512}


BERT = Path(__file__).parents[1].parent / "fixtures/openmed-v1/bert"


def test_the_set_of_mobile_safe_operators():
    assert len(MOBILE_SAFE_OPS) == 45
    assert {"Gelu", "LayerNormalization", "Where"} <= MOBILE_SAFE_OPS
    assert not {"GreaterOrEqual", "IsNaN", "MatMulInteger"} & MOBILE_SAFE_OPS


def test_the_sentences_are_those_of_the_real_tool():
    artifacts = json.loads((BERT / "openmed-onnx.json").read_text())["artifacts"]
    for metadata in (artifact["metadata"] for artifact in artifacts[:2]):
        warnings = android_warnings(metadata["operators"])
        assert warnings == {key: metadata[key] for key in warnings}


def test_a_domain_is_never_safe():
    assert android_warnings(["Add", "com.microsoft:Add"])["unsupported_ops"] == ["com.microsoft:Add"]
