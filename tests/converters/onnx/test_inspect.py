"""Facts of ONNX and ORT-format files: small graphs written as text, each about one fact."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.graphs import graph, write_ort

from onnxreg.converters.importers.adopt import adopt
from onnxreg.converters.onnx.facts import GraphFacts, inspect_file, with_kv_caches
from onnxreg.converters.onnx.mobile_rules import MOBILE_SAFE_OPS, android_warnings
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

BERT = Path(__file__).parents[2] / "fixtures/openmed-v1/bert"
TWICE = """<domain: "local", opset_import: ["" : 18, "local" : 1]> twice (a) => (b) { c = local.once(a) b = Abs(c) }
<domain: "local", opset_import: ["" : 18]> once (a) => (b) { b = Neg(a) }"""
OLD = '<domain: "local", opset_import: ["" : 12]> old (a) => (b) { b = Relu(a) }'
BRANCHES = (
    "y = If (c) <then_branch = a () => (int64[r, m] p) { p = NonZero(x) },"
    " else_branch = b () => (int64[r, m] p) { q = Abs(x) p = NonZero(q) }>"
)


def facts_of(
    tmp_path: Path, body: str, inputs: str = "float[n] x", outputs: str = "float[n] y", **more: Any
) -> GraphFacts:
    """The facts of a graph; `stated` are types that the file states of values within."""
    stated = more.pop("stated", {})
    model = graph(body, inputs, outputs, ir=10, **more)
    infos = [helper.make_tensor_value_info(name, kind, ["n"]) for name, kind in stated.items()]
    model.graph.value_info.extend(infos)
    onnx.save(model, tmp_path / "model.onnx")
    return inspect_file(tmp_path / "model.onnx")


def test_contract_axes_and_dtypes(tmp_path):
    sides = "int64[batch, s] ids, float[?, 3] pixels", "float[batch, s, 7] logits, bool flag, float[] any"
    facts = facts_of(tmp_path, "logits = Foo(ids) flag = Bar(pixels) any = Neg(pixels)", *sides)
    ids, pixels = facts.inputs
    logits, flag, unranked = facts.outputs
    assert (ids.name, ids.dtype, ids.axes) == ("ids", "int64", ("batch", "s"))
    shape = [{"kind": "dynamic", "name": ""}, {"kind": "static", "value": 3}]
    assert ([dim.to_json() for dim in pixels.shape], pixels.axes) == (shape, ("", ""))
    assert (logits.axes, logits.shape[-1].value) == (("batch", "s", "labels"), 7)
    assert flag.to_json() == {"name": "flag", "dtype": "bool", "axes": [], "shape": []}
    assert unranked.to_json() == {"name": "any", "dtype": "float32"}


FLOAT, HALF = ("float",), ("MLFloat16",)
NEG, ABS, RELU = ("Neg", 13), ("Abs", 13), ("Relu", 14)
OPERATORS: dict[str, tuple[str, dict[str, Any], dict[tuple[str, int], tuple[str, ...]]]] = {
    "inferred types": ("h = Cast<to: int = 10>(x) y = Neg(h)", {}, {("Cast", 13): FLOAT, NEG: HALF}),
    "stale types": ("h = Neg(x) y = Abs(h)", {"stated": {"h": TensorProto.FLOAT16}}, {NEG: FLOAT, ABS: FLOAT}),
    "stated types": ("h = own.Op(x) y = Abs(h)", {"stated": {"h": TensorProto.FLOAT16}}, {("Op", 1): FLOAT, ABS: HALF}),
    "a variadic parameter": ("y = Concat<axis = 0>(x, x, x, x, x)", {}, {("Concat", 13): FLOAT}),
    "subgraphs": (BRANCHES, {"inputs": "bool c, float[n] x", "outputs": "int64[r, m] y"},
                  {("If", 16): ("bool",), ("NonZero", 13): FLOAT, ABS: FLOAT}),
    "local functions": ("h = local.twice(x) y = Relu(h)", {"more": TWICE}, {NEG: FLOAT, ABS: FLOAT, RELU: FLOAT}),
    "functions of another opset": ("h = local.old(x) y = Relu(h)", {"more": OLD}, {("Relu", 6): (), RELU: FLOAT}),
}  # fmt: skip


@pytest.mark.parametrize("case", OPERATORS)
def test_operators_carry_since_versions_and_types_in_first_seen_order(tmp_path, case):
    body, more, expected = OPERATORS[case]
    facts = facts_of(tmp_path, body, **more)
    assert {(entry.name, entry.opset): entry.inputs.get("0", ()) for entry in facts.operators} == expected
    if case != "stated types":
        assert facts.operator_names == tuple(dict.fromkeys(name for name, _ in expected))


def test_types_are_those_of_all_nodes_and_both_names_of_the_default_domain_are_one(tmp_path):
    sides = "float[n] x, int64[n] i", "float[n] y, int64[n] j"
    both = ["float", "int64_t"]
    add = {"inputs": {"0": both, "1": both}, "outputs": {"0": both}}
    for domain in ("", "ai.onnx"):
        model = graph("y = Add(x, x) j = Add(i, i)", *sides)
        model.opset_import[0].domain = domain
        onnx.save(model, tmp_path / "model.onnx")
        (entry,) = inspect_file(tmp_path / "model.onnx").operators
        assert entry.to_json() == {"domain": "ai.onnx", "name": "Add", "opset": 14, **add}


BLOCKS = "y = com.microsoft.MatMulNBits <K = 64, N = 16, bits = {}, block_size = 32> (x, q, s)"
PACKED = {"q": np.zeros((16, 2, 16), np.uint8), "s": np.ones((16, 2), np.float32)}
CODES = {"q": np.zeros((64, 32), np.int8), "scale": np.ones(32, np.float32), "zero": np.zeros(32, np.int8)}
FULL, SHORT = np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float16)
WEIGHTS: dict[str, tuple[str, dict[str, Any], tuple[int, int, int, int, str]]] = {
    "shared by two nodes": ("h = MatMul(x, w) y = MatMul(h, w)", {"w": SHORT}, (0, 1, 0, 64 * 64 * 2, "float16")),
    "of two types": ("h = MatMul(x, w) y = Gather(v, h)", {"w": FULL, "v": SHORT}, (0, 2, 0, 64 * 64 * 6, "mixed")),
    "int8": ("w = DequantizeLinear <axis = 1, block_size = 0> (q, scale, zero) h = MatMul(x, w) y = MatMul(h, v)",
             {**CODES, "v": np.zeros((32, 8), np.float32)}, (1, 2, 64 * 32, 64 * 32 + 32 * 8 * 4, "int8")),
    "4 bits": (BLOCKS.format(4), PACKED, (1, 1, 16 * 2 * 16, 16 * 2 * 16, "int4")),
    "bits that are not whole, which count as not stated": (BLOCKS.format("8.0"), PACKED, (1, 1, 512, 512, "int4")),
}  # fmt: skip


@pytest.mark.parametrize("case", WEIGHTS)
def test_weights(tmp_path, case):
    body, weights, expected = WEIGHTS[case]
    facts = facts_of(tmp_path, body, "float[n, 64] x", "float[a, b] y", opset=21, **weights)
    keys = ("weights_quantized", "weights_total", "bytes_quantized", "bytes_total")
    assert (facts.weights.to_json(), facts.precision) == (
        dict(zip(keys, expected[:4], strict=True)),
        expected[4],
    )


def external(tmp_path: Path, location: str) -> None:
    """A graph whose weights are in `model.onnx.data`, it says in another place."""
    model = graph("y = MatMul(x, w)", "float[n, 64] x", "float[a, b] y", w=(64, 64))
    options = {"save_as_external_data": True, "location": "model.onnx.data", "size_threshold": 0}
    onnx.save(model, tmp_path / "model.onnx", **options)
    model = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location
    onnx.save(model, tmp_path / "model.onnx")


@pytest.mark.parametrize(
    "location", ["model.onnx.data", "/etc/passwd", "../model.onnx.data", "a/../../x", "C:\\x", "", "a\0b"]
)
def test_external_data_is_listed_and_not_read_and_outside_the_folder_refused(tmp_path, location):
    external(tmp_path, location)
    if location == "model.onnx.data":
        facts = inspect_file(tmp_path / "model.onnx")
        assert (facts.external_data, facts.weights.bytes_total) == (("model.onnx.data",), 64 * 64 * 4)
        return
    with pytest.raises(InputError, match=r"model\.onnx keeps tensors in .* not a file beside it"):
        inspect_file(tmp_path / "model.onnx")


def test_external_data_of_attributes_in_subgraphs(tmp_path):
    body = "y = If(c) <then_branch = t () => (float[2] p) { p = Constant <value = float[2] {1, 1}> () }, else_branch = e () => (float[2] p) { p = Identity(x) }>"
    model = graph(body, "bool c, float[2] x", "float[2] y")
    tensor = model.graph.node[0].attribute[0].g.node[0].attribute[0].t
    tensor.CopyFrom(TensorProto(name="v", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL))
    tensor.external_data.add(key="location", value="deep/values.bin")
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(InputError, match=r"deep/values\.bin, which is missing"):
        inspect_file(tmp_path / "model.onnx")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/values.bin").write_bytes(bytes(8))
    assert inspect_file(tmp_path / "model.onnx").external_data == ("deep/values.bin",)


# Files that cannot be read


@pytest.fixture(scope="module")
def conditional(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with branches; its `.ort`, without optimizations, is beside it."""
    path = tmp_path_factory.mktemp("ort") / "model.onnx"
    sides = "bool c, float[n] x", "int64[r, m] y, float[n, 3] logits"
    weights = {"w": np.array([[1, 2, 3]], np.float32), "s": np.array([-1, 1])}
    onnx.save(graph(f"{BRANCHES} h = Reshape(x, s) logits = MatMul(h, w)", *sides, ir=10, **weights), path)
    write_ort(path, "NONE")
    return path


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
UNREADABLE: dict[str, bytes | slice] = {
    "empty.onnx": b"",
    "text.onnx": b"this is no model\n",
    "cut.onnx": slice(-7),
    "zip.onnx": b"PK\x03\x04" + bytes(60),
    "json.onnx": b'{"format": "openmed-onnx"}',
    "headless.onnx": onnx.ModelProto(ir_version=10).SerializeToString(),
    "empty.ort": b"",
    "text.ort": b"x" * 100,
    "head.ort": slice(8),
    "half.ort": slice(1000),
    "cut.ort": slice(-64),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable_files_are_named(conditional, tmp_path, name):
    path, data = tmp_path / name, UNREADABLE[name]
    if isinstance(data, slice):
        data = conditional.with_suffix(path.suffix).read_bytes()[data]
    path.write_bytes(data)
    with pytest.raises(
        InputError, match=rf"^{name} is not an (ONNX|ORT-format) file, or is cut short"
    ) as caught:
        inspect_file(path)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (POINTER, "Git LFS pointer"),
        (graph("y = Relu(x)").SerializeToString().replace(b"Relu", b"Re\xffu"), r"^model\.onnx "),
    ],
    ids=["pointer", "an operator that is not text"],
)
def test_a_pointer_and_names_that_are_no_text(tmp_path, data, message):
    (tmp_path / "model.onnx").write_bytes(data)
    with pytest.raises(InputError, match=message):
        inspect_file(tmp_path / "model.onnx")


@pytest.mark.parametrize("suffix", [pytest.param(".onnx", marks=pytest.mark.more), ".ort"])
def test_damaged_bytes_never_raise_anything_else(conditional, tmp_path, suffix):
    source = conditional.with_suffix(".ort") if suffix == ".ort" else BERT / "model_int8.onnx"
    whole, random = source.read_bytes(), np.random.default_rng(3)
    path, refused = tmp_path / f"damaged{suffix}", 0
    for _ in range(150):
        data = bytearray(whole)
        for position in random.integers(8 if suffix == ".ort" else 0, len(data), 4):
            data[position] = random.integers(256)
        path.write_bytes(data)
        try:
            inspect_file(path)
        except InputError:
            refused += 1
    assert 20 < refused < (150 if suffix == ".onnx" else 151)


# ORT format


def test_facts_of_ort_format_are_those_of_its_graph(conditional):
    facts, source = inspect_file(conditional.with_suffix(".ort")), inspect_file(conditional)
    assert (facts.inputs, facts.outputs[1]) == (source.inputs, source.outputs[1])
    assert facts.outputs[1].axes == ("n", "labels")
    assert facts.operator_names == ("If", "Abs", "NonZero", "Reshape", "MatMul")
    assert facts.operators == source.operators
    assert facts.ort_format is not None and facts.ort_format >= 6
    assert facts.fields()["ort_format"] == facts.ort_format
    assert facts.opset_imports["ai.onnx"] == 18
    assert (facts.weights, facts.precision) == (source.weights, "float32")


def test_a_real_conversion_is_read_without_torch_and_the_runtime():
    """onnxruntime.tools imports torch; the bindings alone do not need it."""
    facts, source = inspect_file(BERT / "model.ort"), inspect_file(BERT / "model.onnx")
    assert (facts.inputs, facts.outputs) == (source.inputs, source.outputs)
    assert {"com.microsoft:BiasGelu", "com.microsoft:FusedMatMul"} <= set(facts.operator_names)
    assert not {"Erf", "Identity", "Constant"} & set(facts.operator_names)
    code = (
        "import sys; from pathlib import Path; from onnxreg.converters.onnx.facts import inspect_file;"
        f"inspect_file(Path({str(BERT / 'model.ort')!r}));"
        "sys.exit(bool({'torch', 'onnxruntime'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# The KV cache of a decoder, read from its graph and the settings beside it; and OpenMed's mobile-safe set

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
        ({"config.json": CONFIG}, "onnx/m.onnx", 512),
        ({"onnx/config.json": CONFIG, "config.json": {"max_position_embeddings": 64}}, "onnx/m.onnx", 512),
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
    (artifact,) = adopt(files, tmp_path / "workspace", name="acme/x")[0].artifacts
    assert artifact.fields["kv_cache"] == {"bytes_per_token": 2 * 2 * 16 * 4, "max_tokens": 512}


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
