"""What `--deep` finds between two model files."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

from onnxreg.converters.onnx import inspect_onnx
from onnxreg.converters.onnx.compare_files import compare_models
from onnxreg.schema.compare.graphs import GraphDiff, TensorChange
from onnxreg.schema.core.errors import InputError

BERT = Path(__file__).parents[1].parent / "fixtures/openmed-v1/bert"
TEXT = """<ir_version: 10, opset_import: ["" : 18]>
g (float[n, 4] x) => (float[n, 3] y, float[n, 3] z)
<float[4, 3] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0}, float[3] b = {3.0, 0.0, 4.0}> {
  h = MatMul(x, w)
  s = Add(h, b)
  y = LeakyRelu <alpha: float = 0.5> (s)
  z = Tanh(s)
}"""


def saved(path: Path, text: str, **options: Any) -> Path:
    onnx.save(parser.parse_model(text), path, **options)
    return path


def compared(folder: Path, one: str, other: str) -> GraphDiff:
    return compare_models(saved(folder / "old.onnx", one), saved(folder / "new.onnx", other))


def test_a_file_and_itself(tmp_path: Path) -> None:
    found = compared(tmp_path, TEXT, TEXT)
    assert found.to_json() == {"facts": [], "tensors": [], "equal_tensors": 2, "nodes": [], "equal_nodes": 4}


def test_by_how_much_a_weight_changed(tmp_path: Path) -> None:
    found = compared(tmp_path, TEXT, TEXT.replace("{3.0, 0.0, 4.0}", "{3.0, 0.0, 3.5}"))
    (change,) = found.tensors
    assert (change.change, change.name, found.equal_tensors) == ("changed", "b", 1)
    assert change.max_abs == 0.5
    assert change.relative_l2 == pytest.approx(0.5 / 5)
    assert not found.nodes


@pytest.mark.parametrize(
    ("before", "after", "change", "measured"),
    [
        ("float[3] b = {3.0, 0.0, 4.0}", "double[3] b = {3.0, 0.0, 4.0}", "retyped", (0.0, 0.0)),
        ("float[3] b =", "float[1, 3] b =", "reshaped", (None, None)),
        ("{3.0, 0.0, 4.0}", "{3.0, -0.0, 4.0}", "changed", (0.0, 0.0)),
    ],
)
def test_other_forms(before: str, after: str, change: str, measured: tuple[Any, Any], tmp_path: Path) -> None:
    (found,) = compared(tmp_path, TEXT, TEXT.replace(before, after)).tensors
    assert (found.change, (found.max_abs, found.relative_l2)) == (change, measured)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_have_no_distance(value: float, tmp_path: Path) -> None:
    path = saved(tmp_path / "old.onnx", TEXT)
    model = onnx.load(path)
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.array([3, 0, value], "float32"), "b"))
    onnx.save(model, tmp_path / "new.onnx")
    (found,) = compare_models(path, tmp_path / "new.onnx").tensors
    assert (found.change, found.max_abs, found.relative_l2) == ("changed", None, None)
    GraphDiff.decode(compare_models(path, tmp_path / "new.onnx").encode())
    assert not compare_models(tmp_path / "new.onnx", tmp_path / "new.onnx").tensors


def test_a_weight_under_another_name(tmp_path: Path) -> None:
    found = compared(tmp_path, TEXT, TEXT.replace(" b ", " bias ").replace(", b)", ", bias)"))
    (change,) = found.tensors
    assert (change.change, change.old and change.old.name, change.name) == ("renamed", "b", "bias")
    assert not found.nodes


def test_weights_on_one_side(tmp_path: Path) -> None:
    other = TEXT.replace("float[3] b = {3.0, 0.0, 4.0}", "float[1] c = {1.0}").replace("(h, b)", "(h, c)")
    found = compared(tmp_path, TEXT, other)
    assert [(change.change, change.name) for change in found.tensors] == [("added", "c"), ("removed", "b")]


NODES = {
    "operator": ("Tanh", "Sigmoid", [("changed", "z", "Sigmoid", ("operator",))]),
    "attribute": ("0.5", "0.25", [("changed", "y", "LeakyRelu", ("alpha",))]),
    "attribute gone": ("<alpha: float = 0.5>", "", [("changed", "y", "LeakyRelu", ("alpha",))]),
    "operands": ("Add(h, b)", "Add(b, h)", [("changed", "s", "Add", ("inputs",))]),
    "wiring": ("z = Tanh(s)", "z = Tanh(h)", [("changed", "z", "Tanh", ("inputs",))]),
    "added": (
        "z = Tanh(s)",
        "t = Neg(s) z = Tanh(t)",
        [("added", "t", "Neg", ()), ("changed", "z", "Tanh", ("inputs",))],
    ),
    "removed": (
        "s = Add(h, b)\n  y = LeakyRelu <alpha: float = 0.5> (s)\n  z = Tanh(s)",
        "y = LeakyRelu <alpha: float = 0.5> (h)\n  z = Tanh(h)",
        [
            ("changed", "y", "LeakyRelu", ("inputs",)),
            ("changed", "z", "Tanh", ("inputs",)),
            ("removed", "s", "Add", ()),
        ],
    ),
    "renamed within": ("s", "inner", []),
    "opset": (': 18', ': 19', [("changed", name, kind, ("operator",)) for name, kind in
        (("h", "MatMul"), ("s", "Add"), ("y", "LeakyRelu"), ("z", "Tanh"))]),
}  # fmt: skip


@pytest.mark.parametrize(("before", "after", "changes"), NODES.values(), ids=NODES.keys())
def test_nodes(before: str, after: str, changes: list[Any], tmp_path: Path) -> None:
    text = (
        TEXT.replace("(s)", "(inner)").replace("  s =", "  inner =")
        if before == "s"
        else TEXT.replace(before, after)
    )
    assert text != TEXT
    found = compared(tmp_path, TEXT, text)
    assert [(item.change, item.name, item.operator, item.what) for item in found.nodes] == changes


def test_outputs_exchanged(tmp_path: Path) -> None:
    """The same nodes, each for the other's output."""
    other = (
        TEXT.replace("y = Leaky", "q = Leaky")
        .replace("z = Tanh", "y = Tanh")
        .replace("q = Leaky", "z = Leaky")
    )
    found = compared(tmp_path, TEXT, other)
    assert [(item.name, item.operator) for item in found.nodes] == [("y", "output"), ("z", "output")]


def test_changed_facts_are_listed(tmp_path: Path) -> None:
    model = parser.parse_model(TEXT)
    model.producer_name, model.producer_version = "pytorch", "2.13"
    helper.set_model_props(model, {"labels": "3"})
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, tmp_path / "new.onnx")
    found = compare_models(saved(tmp_path / "old.onnx", TEXT), tmp_path / "new.onnx")
    assert [(fact.name, fact.old, fact.new) for fact in found.facts] == [
        ("input x", "float32[n, 4]", "float32[batch, 4]"),
        ("metadata labels", None, "3"),
        ("producer", "", "pytorch 2.13"),
    ]
    assert not (found.nodes or found.tensors)


def test_no_difference_of_the_semantic_digest_is_missed(tmp_path: Path) -> None:
    """Each edit of the tables, and whether files that differ by their digest differ here too."""
    texts = [TEXT.replace(before, after) for before, after, _ in NODES.values() if before != "s"]
    paths = [saved(tmp_path / f"{index}.onnx", text) for index, text in enumerate([TEXT, *texts])]
    digests = [inspect_onnx(path).semantic for path in paths]
    for i, one in enumerate(paths):
        for j, other in enumerate(paths):
            found = compare_models(one, other)
            assert bool(found.nodes or found.tensors or found.facts) == (digests[i] != digests[j])


def test_quantized_weights_are_compared_by_what_they_stand_for(tmp_path: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    rng = np.random.default_rng(0)
    base = rng.standard_normal((64, 32)).astype("float32")
    paths, arrays = [], [base, base + 0.1]
    for index, array in enumerate(arrays):
        model = parser.parse_model(
            '<ir_version: 10, opset_import: ["" : 18]> g (float[n, 64] x) => (float[n, 32] y) { y = MatMul(x, w) }'
        )
        model.graph.initializer.append(numpy_helper.from_array(array, "w"))
        onnx.save(model, tmp_path / f"{index}.onnx")
        paths.append(tmp_path / f"{index}_int8.onnx")
        quantize_dynamic(tmp_path / f"{index}.onnx", paths[-1], weight_type=QuantType.QInt8)
    changes: dict[str, TensorChange] = {item.name: item for item in compare_models(*paths).tensors}
    found = changes["w_quantized"]
    exact = float(np.linalg.norm(arrays[1] - arrays[0]) / np.linalg.norm(arrays[0]))
    assert found.dequantized and found.old and found.old.dtype == "int8"
    assert found.relative_l2 == pytest.approx(exact, rel=0.05)
    assert found.max_abs == pytest.approx(0.1, abs=0.05)


def test_external_data_and_ort_format(tmp_path: Path) -> None:
    inline = saved(tmp_path / "inline.onnx", TEXT)
    model = onnx.load(inline)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    onnx.save(model, tmp_path / "e.onnx", save_as_external_data=True, location="e.bin", size_threshold=0)
    assert compare_models(inline, tmp_path / "e.onnx").equal_tensors == 2
    assert not compare_models(inline, tmp_path / "e.onnx").tensors
    same = compare_models(BERT / "model.ort", BERT / "model.ort")
    assert not (same.tensors or same.nodes or same.facts) and same.equal_nodes


def test_external_data_without_elements(tmp_path: Path) -> None:
    text = '<ir_version: 10, opset_import: ["" : 18]> g (float[n] x) => (float[m] y) { y = Concat <axis = 0> (x, w) }'
    model = parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(np.empty(0, np.float32), "w"))
    options: Any = {"save_as_external_data": True, "location": "m.bin", "size_threshold": 0}
    onnx.save(model, tmp_path / "m.onnx", **options)
    assert onnx.load(tmp_path / "m.onnx", load_external_data=False).graph.initializer[0].external_data
    assert compare_models(tmp_path / "m.onnx", tmp_path / "m.onnx").equal_tensors == 1


@pytest.mark.parametrize("name", ["m.onnx", "m.ort"])
def test_files_other_than_models_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x08\x00junk")
    with pytest.raises(InputError, match=name):
        compare_models(tmp_path / name, tmp_path / name)
