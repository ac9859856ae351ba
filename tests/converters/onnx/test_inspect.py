"""Facts of ONNX files: small graphs written as text, each about one fact."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from onnxreg.converters.onnx.facts import GraphFacts, inspect_file
from onnxreg.schema.core.errors import InputError

BERT = Path(__file__).parents[1].parent / "fixtures/openmed-v1/bert"
HEAD = '<ir_version: 10, opset_import: ["" : 18]>'


def save(path: Path, text: str) -> Path:
    onnx.save(parser.parse_model(text), path)
    return path


def facts_of(tmp_path: Path, text: str) -> GraphFacts:
    return inspect_file(save(tmp_path / "model.onnx", text))


def test_contract_axes_and_dtypes(tmp_path: Path) -> None:
    facts = facts_of(
        tmp_path,
        f"""{HEAD}
        g (int64[batch, sequence] input_ids, float[?, 3] pixels) => (float[batch, sequence, 7] logits, bool flag)
        {{ logits = Foo(input_ids) flag = Bar(pixels) }}""",
    )
    ids, pixels = facts.inputs
    logits, flag = facts.outputs
    assert (ids.name, ids.dtype, ids.axes) == ("input_ids", "int64", ("batch", "sequence"))
    assert [dim.to_json() for dim in pixels.shape] == [
        {"kind": "dynamic", "name": ""},
        {"kind": "static", "value": 3},
    ]
    assert pixels.axes == ("", "")
    assert logits.axes == ("batch", "sequence", "labels")
    assert logits.shape[-1].value == 7
    assert flag.to_json() == {"name": "flag", "dtype": "bool", "axes": [], "shape": []}


def test_unknown_rank_is_not_a_scalar(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, f"{HEAD} g (float[] x) => (float[] y) {{ y = Neg(x) }}")
    assert facts.inputs[0].to_json() == {"name": "x", "dtype": "float32"}


def test_operators_carry_since_versions_and_types(tmp_path: Path) -> None:
    facts = facts_of(
        tmp_path,
        f"""{HEAD} g (float[n] x, int64[n] i) => (float[n] y, int64[n] j)
        {{ y = Add(x, x) j = Add(i, i) }}""",
    )
    assert [entry.to_json() for entry in facts.operators] == [
        {
            "domain": "ai.onnx",
            "name": "Add",
            "opset": 14,
            "inputs": {"0": ["float", "int64_t"], "1": ["float", "int64_t"]},
            "outputs": {"0": ["float", "int64_t"]},
        }
    ]


def test_types_of_intermediate_values_are_inferred(tmp_path: Path) -> None:
    facts = facts_of(
        tmp_path,
        f"{HEAD} g (float[n] x) => (float16[n] y) {{ h = Cast<to: int = 10>(x) y = Neg(h) }}",
    )
    neg = next(entry for entry in facts.operators if entry.name == "Neg")
    assert neg.inputs == {"0": ("MLFloat16",)}


def test_stale_value_info_does_not_win(tmp_path: Path) -> None:
    model = parser.parse_model(f"{HEAD} g (float[n] x) => (float[n] y) {{ h = Neg(x) y = Abs(h) }}")
    model.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT16, ["n"]))
    onnx.save(model, tmp_path / "stale.onnx")
    types = {entry.name: entry.inputs["0"] for entry in inspect_file(tmp_path / "stale.onnx").operators}
    assert types == {"Neg": ("float",), "Abs": ("float",)}


def test_stated_types_of_what_onnx_does_not_know_hold(tmp_path: Path) -> None:
    text = HEAD.replace("]", ', "own" : 1]') + " g (float[n] x) => (float[n] y) { h = own.Op(x) y = Abs(h) }"
    model = parser.parse_model(text)
    model.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT16, ["n"]))
    onnx.save(model, tmp_path / "own.onnx")
    types = {entry.name: entry.inputs["0"] for entry in inspect_file(tmp_path / "own.onnx").operators}
    assert types == {"Op": ("float",), "Abs": ("MLFloat16",)}


def test_both_names_of_the_default_domain(tmp_path: Path) -> None:
    text = f"{HEAD} g (float[2, n] x) => (float[2, m] y) {{ y = MatMul(x, x) }}"
    facts = [facts_of(tmp_path, text.replace('""', name)) for name in ('""', '"ai.onnx"')]
    assert [one.operators[0].opset for one in facts] == [13, 13]


def test_operands_of_a_variadic_parameter_share_a_position(tmp_path: Path) -> None:
    facts = facts_of(
        tmp_path, f"{HEAD} g (float[n] x) => (float[m] y) {{ y = Concat<axis: int = 0>(x, x, x, x, x) }}"
    )
    assert facts.operators[0].inputs == {"0": ("float",)}


def test_operators_inside_subgraphs_in_first_seen_order(tmp_path: Path) -> None:
    facts = facts_of(
        tmp_path,
        f"""{HEAD} g (bool c, float[n] x) => (int64[r, m] y) {{
          y = If (c) <
            then_branch = a () => (int64[r, m] p) {{ p = NonZero(x) }},
            else_branch = b () => (int64[r, m] p) {{ q = Abs(x) p = NonZero(q) }}
          >
        }}""",
    )
    assert facts.operator_names == ("If", "NonZero", "Abs")
    nonzero = next(entry for entry in facts.operators if entry.name == "NonZero")
    assert nonzero.inputs == {"0": ("float",)}


def test_local_functions_are_replaced_by_their_bodies(tmp_path: Path) -> None:
    facts = facts_of(
        tmp_path,
        """<ir_version: 10, opset_import: ["" : 18, "local" : 1]>
        g (float[n] x) => (float[n] y) { h = local.twice(x) y = Relu(h) }
        <domain: "local", opset_import: ["" : 18, "local" : 1]> twice (a) => (b) { c = local.once(a) b = Abs(c) }
        <domain: "local", opset_import: ["" : 18]> once (a) => (b) { b = Neg(a) }""",
    )
    assert facts.operator_names == ("Neg", "Abs", "Relu")
    assert {entry.name: entry.inputs.get("0") for entry in facts.operators}["Neg"] == ("float",)


def test_functions_of_another_opset_are_listed_under_it(tmp_path: Path) -> None:
    facts = facts_of(
        tmp_path,
        """<ir_version: 10, opset_import: ["" : 18, "local" : 1]>
        g (float[n] x) => (float[n] y) { h = local.old(x) y = Relu(h) }
        <domain: "local", opset_import: ["" : 12]> old (a) => (b) { b = Relu(a) }""",
    )
    assert [(entry.name, entry.opset) for entry in facts.operators] == [("Relu", 6), ("Relu", 14)]


def weights_model(nodes: list[onnx.NodeProto], **tensors: np.ndarray) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in tensors.items()],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def test_weights_shared_by_two_nodes_count_once(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["y"])]
    onnx.save(weights_model(nodes, w=np.zeros((64, 64), np.float16)), tmp_path / "m.onnx")
    facts = inspect_file(tmp_path / "m.onnx")
    assert (facts.weights.weights_total, facts.precision) == (1, "float16")


def test_weights_quantize_dequantize(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["w"], axis=1, block_size=0),
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("MatMul", ["h", "v"], ["y"]),
    ]
    model = weights_model(
        nodes,
        q=np.zeros((64, 32), np.int8),
        scale=np.ones(32, np.float32),
        zero=np.zeros(32, np.int8),
        v=np.zeros((32, 8), np.float32),
    )
    onnx.save(model, tmp_path / "m.onnx")
    facts = inspect_file(tmp_path / "m.onnx")
    assert facts.weights.to_json() == {
        "weights_quantized": 1,
        "weights_total": 2,
        "bytes_quantized": 64 * 32,
        "bytes_total": 64 * 32 + 32 * 8 * 4,
    }
    assert facts.precision == "int8"


@pytest.mark.parametrize("bits", [4, 8.0])  # a number of bits that is not whole counts as not stated
def test_weights_four_bit_packed(bits: float, tmp_path: Path) -> None:
    node = helper.make_node(
        "MatMulNBits", ["x", "q", "s"], ["y"], domain="com.microsoft", K=64, N=16, bits=bits, block_size=32
    )
    model = weights_model([node], q=np.zeros((16, 2, 16), np.uint8), s=np.ones((16, 2), np.float32))
    onnx.save(model, tmp_path / "m.onnx")
    facts = inspect_file(tmp_path / "m.onnx")
    assert (facts.weights.weights_total, facts.weights.bytes_quantized) == (1, 16 * 2 * 16)
    assert facts.precision == "int4"


def test_weights_of_two_float_types_are_mixed(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Gather", ["v", "h"], ["y"])]
    model = weights_model(nodes, w=np.zeros((64, 64), np.float32), v=np.zeros((64, 64), np.float16))
    onnx.save(model, tmp_path / "m.onnx")
    assert inspect_file(tmp_path / "m.onnx").precision == "mixed"


def external(tmp_path: Path, location: str = "model.onnx.data") -> onnx.ModelProto:
    model = weights_model([helper.make_node("MatMul", ["x", "w"], ["y"])], w=np.ones((64, 64), np.float32))
    onnx.save(
        model,
        tmp_path / "model.onnx",
        save_as_external_data=True,
        location="model.onnx.data",
        size_threshold=0,
    )
    model = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location
    onnx.save(model, tmp_path / "model.onnx")
    return model


def test_external_data_is_listed_and_not_read(tmp_path: Path) -> None:
    external(tmp_path)
    facts = inspect_file(tmp_path / "model.onnx")
    assert facts.external_data == ("model.onnx.data",)
    assert facts.weights.bytes_total == 64 * 64 * 4


def test_external_data_of_attributes_in_subgraphs(tmp_path: Path) -> None:
    tensor = numpy_helper.from_array(np.ones(2, np.float32), "v")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="deep/values.bin")
    branch = helper.make_graph(
        [helper.make_node("Constant", [], ["p"], value=tensor)],
        "branch",
        [],
        [helper.make_tensor_value_info("p", TensorProto.FLOAT, [2])],
    )
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)],
        "g",
        [helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    onnx.save(helper.make_model(graph, ir_version=10), tmp_path / "model.onnx")
    with pytest.raises(InputError, match=r"deep/values\.bin, which is missing"):
        inspect_file(tmp_path / "model.onnx")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/values.bin").write_bytes(bytes(8))
    assert inspect_file(tmp_path / "model.onnx").external_data == ("deep/values.bin",)


@pytest.mark.parametrize("location", ["/etc/passwd", "../model.onnx.data", "a/../../x", "C:\\x", "", "a\0b"])
def test_external_data_outside_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    external(tmp_path, location)
    with pytest.raises(InputError, match=r"model\.onnx keeps tensors in .* not a file beside it"):
        inspect_file(tmp_path / "model.onnx")


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    whole = save(tmp_path / "w.onnx", f"{HEAD} g (float[n] x) => (float[n] y) {{ y = Relu(x) }}").read_bytes()
    cases = {
        "empty": b"",
        "text": b"this is no model\n",
        "cut": whole[:-7],
        "zip": b"PK\x03\x04" + bytes(60),
        "json": b'{"format": "openmed-onnx"}',
        "headless": onnx.ModelProto(ir_version=10).SerializeToString(),
    }
    for name, data in cases.items():
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(data)
        with pytest.raises(
            InputError, match=rf"^{name}\.onnx is not an ONNX file, or is cut short"
        ) as caught:
            inspect_file(path)
        assert caught.value.hint


def test_a_git_lfs_pointer_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    with pytest.raises(InputError, match="Git LFS pointer"):
        inspect_file(path)


@pytest.mark.more
def test_damaged_bytes_never_raise_anything_else(tmp_path: Path) -> None:
    whole = (BERT / "model_int8.onnx").read_bytes()
    random = np.random.default_rng(3)
    path = tmp_path / "damaged.onnx"
    refused = 0
    for _ in range(150):
        data = bytearray(whole)
        for position in random.integers(0, len(data), 4):
            data[position] = random.integers(256)
        path.write_bytes(data)
        try:
            inspect_file(path)
        except InputError:
            refused += 1
    assert 20 < refused < 150


def test_operator_names_that_are_no_text(tmp_path: Path) -> None:
    path = save(tmp_path / "model.onnx", f"{HEAD} g (float[n] x) => (float[n] y) {{ y = Relu(x) }}")
    path.write_bytes(path.read_bytes().replace(b"Relu", b"Re\xffu"))
    with pytest.raises(InputError, match=r"^model\.onnx "):
        inspect_file(path)


def test_a_real_export() -> None:
    claimed = json.loads((BERT / "openmed-onnx.json").read_text())["artifacts"][0]["metadata"]
    fields = inspect_file(BERT / "model.onnx").fields()["metadata"]
    assert fields == {key: claimed[key] for key in ("inputs", "outputs", "operators", "opset")}
