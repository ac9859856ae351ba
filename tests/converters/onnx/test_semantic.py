"""The semantic digest: what it does not see, and that it sees everything else."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, parser

from onnxreg.converters.onnx.facts import contract, inspect_file
from onnxreg.converters.onnx.onnx_graph import read_graph
from onnxreg.converters.onnx.semantic import semantic_digest
from onnxreg.schema.manifest.parts import SemanticDigest

BERT = Path(__file__).parents[1].parent / "fixtures/openmed-v1/bert"
TEXT = """<ir_version: 10, opset_import: ["" : 18, "com.microsoft" : 1]>
tagger (int64[batch, tokens] ids, bool flag) => (float[batch, tokens, 3] logits)
<float[5, 4] table = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0},
 float[4, 3] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0}, float[3] b = {0.1, 0.2, 0.3}> {
  a = Gather <axis: int = 0> (table, ids)
  left = Sigmoid(a)
  right = Tanh(a)
  both = Sub(left, right)
  c = If (flag) <
    then_branch = yes () => (float[p, q, r] y) { y = Relu(both) },
    else_branch = no () => (float[p, q, r] z) { n = Neg(both) z = Abs(n) }
  >
  h = MatMul(c, w)
  logits = Add(h, b)
}"""


def model_of(text: str = TEXT) -> Any:
    return parser.parse_model(text)


@pytest.fixture
def digest(tmp_path: Path) -> Callable[..., SemanticDigest]:
    def save(model: Any, **options: Any) -> SemanticDigest:
        path = tmp_path / "model.onnx"
        onnx.save(model, path, **options)
        return inspect_file(path).semantic

    return save


def renamed(model: Any) -> Any:
    """Every value within, and every node, under another name."""
    names = {
        name: f"v_{index}"
        for index, name in enumerate(["a", "left", "right", "both", "c", "h", "y", "n", "z"])
    }

    def rename(graph: Any) -> None:
        for node in graph.node:
            node.name = f"node of {node.op_type}"
            for side in (node.input, node.output):
                side[:] = [names.get(name, name) for name in side]
            for attribute in node.attribute:
                rename(attribute.g)
        for value in graph.output:
            value.name = names.get(value.name, value.name)

    rename(model.graph)
    return model


def told(model: Any) -> Any:
    """All that tools and people say."""
    model.producer_name, model.producer_version, model.model_version = "another", "9", 4
    model.doc_string, model.domain, model.graph.name = "words", "org.example", "main_graph"
    helper.set_model_props(model, {"made by": "hand"})
    for node in model.graph.node:
        node.doc_string = "from line 3"
        node.metadata_props.add(key="scope", value="encoder")
    for tensor in model.graph.initializer:
        tensor.doc_string = "trained"
    model.graph.value_info.append(
        helper.make_tensor_value_info("a", TensorProto.FLOAT, ["batch", "tokens", 4])
    )
    return model


def reordered(model: Any) -> Any:
    nodes, tensors = list(model.graph.node), list(model.graph.initializer)
    nodes[1], nodes[2] = nodes[2], nodes[1]
    for field, items in ((model.graph.node, nodes), (model.graph.initializer, tensors[::-1])):
        del field[:]
        field.extend(items)
    return model


def typed(model: Any) -> Any:
    """The tensors in typed fields, or raw where they were typed."""
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        raw = tensor.HasField("raw_data")
        other = (
            helper.make_tensor(tensor.name, tensor.data_type, tensor.dims, array.flatten().tolist())
            if raw
            else numpy_helper.from_array(array, tensor.name)
        )
        tensor.CopyFrom(other)
    return model


def axes_called_otherwise(model: Any) -> Any:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "s0"
    return model


def unused_domain(model: Any) -> Any:
    model.opset_import[1].version = 7
    return model


@pytest.mark.parametrize(
    "change",
    [renamed, told, reordered, typed, axes_called_otherwise, unused_domain],
    ids=lambda f: f.__name__,
)
def test_changes_that_the_digest_ignores(change: Callable[[Any], Any], digest: Any) -> None:
    before, after = digest(model_of()), change(model_of())
    assert after != model_of()
    assert digest(after) == before


@pytest.mark.parametrize("threshold", [0, 40])
def test_external_data_is_the_same(threshold: int, digest: Any) -> None:
    inline = digest(typed(model_of()))
    external = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": threshold}
    assert digest(typed(model_of()), **external) == inline


EDITS = {
    "operator": ("Sigmoid(a)", "Relu(a)", "graph"),
    "operator in a subgraph": ("Relu(both)", "Erf(both)", "graph"),
    "operands exchanged": ("Sub(left, right)", "Sub(right, left)", "graph"),
    "another operand": ("Sub(left, right)", "Sub(left, left)", "graph"),
    "branches exchanged": ("y = Relu(both)", "n0 = Neg(both) y = Abs(n0)", "graph"),
    "attribute": ("axis: int = 0", "axis: int = 1", "graph"),
    "attribute left out": ("Gather <axis: int = 0>", "Gather", "graph"),
    "input renamed": ("ids", "tokens_in", "graph"),
    "output renamed": ("logits", "scores", "graph"),
    "type of an input": ("int64[batch", "int32[batch", "graph"),
    "fixed axis": ("int64[batch, tokens]", "int64[1, tokens]", "graph"),
    "opset": ('"" : 18', '"" : 19', "graph"),
    "a node more": ("h = MatMul(c, w)", "unused = Abs(c) h = MatMul(c, w)", "graph"),
    "a weight": ("{0.1, 0.2, 0.3}>", "{0.1, 0.2, 0.4}>", "weights"),
    "its sign of zero": ("{0.1, 0.2, 0.3}>", "{0.1, 0.2, -0.0}>", "weights"),
    "the name of a weight": ("b)", "bias)", "both"),
    "shape of a weight": ("float[3] b", "float[1, 3] b", "both"),
}


@pytest.mark.parametrize(("before", "after", "where"), EDITS.values(), ids=EDITS.keys())
def test_a_change_shows_in_the_graph_or_weights_digest(
    before: str, after: str, where: str, digest: Any
) -> None:
    assert TEXT.count(before) >= 1
    text = TEXT.replace(before, after)
    if where == "both" and "bias" in after:
        text = text.replace("float[3] b ", "float[3] bias ")
    one, other = digest(model_of()), digest(model_of(text))
    changed = {half for half in ("graph", "weights") if getattr(one, half) != getattr(other, half)}
    assert changed == ({"graph", "weights"} if where == "both" else {where})


def test_equal_nodes_are_told_apart(digest: Any) -> None:
    """A random generator that stands twice is not one whose output is used twice."""
    twice = """<ir_version: 10, opset_import: ["" : 18]> g () => (float[2] y) {
      p = RandomNormal <shape: ints = [2]> () q = RandomNormal <shape: ints = [2]> () y = Sub(p, q) }"""
    assert digest(model_of(twice)) != digest(model_of(twice.replace("Sub(p, q)", "Sub(p, p)")))


def test_functions_count_by_what_they_do(digest: Any) -> None:
    text = """<ir_version: 10, opset_import: ["" : 18, "local" : 1]> g (float[n] x) => (float[n] y) { y = local.f(x) }
    <domain: "local", opset_import: ["" : 18]> f (p) => (r) { q = Relu(p) r = Neg(q) }"""
    other = text.replace("q", "inner").replace("(p)", "(argument)")
    assert digest(model_of(text)) == digest(model_of(other))
    assert digest(model_of(text)) != digest(model_of(text.replace("Relu", "Abs")))


def test_subgraphs_with_a_tensor_of_one_name(digest: Any) -> None:
    """Each branch has its own `k`: exchanging them is another computation with the same tensors."""

    def branches(one: str, other: str) -> str:
        return f"""<ir_version: 10, opset_import: ["" : 18]> g (bool c) => (float[1] y) {{
          y = If (c) <then_branch = a () => (float[1] p) <float[1] k = {{{one}}}> {{ p = Abs(k) }},
                      else_branch = b () => (float[1] p2) <float[1] k = {{{other}}}> {{ p2 = Abs(k) }}> }}"""

    assert digest(model_of(branches("1.0", "2.0"))) != digest(model_of(branches("2.0", "1.0")))


@given(st.randoms(use_true_random=False))
def test_any_order_of_nodes_and_tensors(random: Random) -> None:
    """Also orders in which a node stands before what it needs, as ORT-format files may have."""

    def semantic(model: Any) -> SemanticDigest:
        return semantic_digest(graph := read_graph(model, Path("m.onnx")), *contract(graph))

    model = model_of()
    expected = semantic(model)
    for field in (model.graph.node, model.graph.initializer):
        items = list(field)
        random.shuffle(items)
        del field[:]
        field.extend(items)
    assert semantic(model) == expected


def test_ort_format(tmp_path: Path) -> None:
    """Two conversions of one graph, and of a graph with other weights."""
    import onnxruntime

    def convert(model: Any, name: str) -> SemanticDigest:
        onnx.save(model, tmp_path / f"{name}.onnx")
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / f"{name}.ort")
        options.add_session_config_entry("session.save_model_format", "ORT")
        onnxruntime.InferenceSession(tmp_path / f"{name}.onnx", options, providers=["CPUExecutionProvider"])
        return inspect_file(tmp_path / f"{name}.ort").semantic

    one, again = convert(model_of(), "one"), convert(told(model_of()), "again")
    assert one == again
    other = convert(model_of(TEXT.replace("{0.1, 0.2, 0.3}>", "{0.1, 0.2, 0.4}>")), "other")
    assert (other.graph == one.graph, other.weights == one.weights) == (True, False)
    assert inspect_file(BERT / "model.ort").semantic != one


@pytest.mark.more
def test_it_is_the_same_in_every_process(tmp_path: Path) -> None:
    onnx.save(model_of(), tmp_path / "m.onnx")
    code = (
        "import sys; from pathlib import Path; from onnxreg.converters.onnx.facts import inspect_file;"
        f"print(inspect_file(Path({str(tmp_path / 'm.onnx')!r})).semantic.to_json())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert outputs == {f"{inspect_file(tmp_path / 'm.onnx').semantic.to_json()}\n"}


def test_known_digest(digest: Any) -> None:
    """A change of the rules would make equal models look different: then this test fails, and the format says so."""
    text = '<ir_version: 10, opset_import: ["" : 18]> g (float[n] x) => (float[n] y) <float[1] w = {2.0}> { y = Mul(x, w) }'
    assert digest(model_of(text)).to_json() == {
        "graph": "sha256:94b49fb474cf6243b2ae07400aa491c250db120612147a1c51f55ec79e1aa675",
        "weights": "sha256:dfa5a75377ebba69b6009ed925b800f5ca52c638a01981671d6735df22168eb0",
    }


def test_graph_by_hand(digest: Any) -> None:
    """The rule of docs/format.md, computed here a second time, on a node with a subgraph and an attribute."""

    def name(value: Any) -> str:
        return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def node(kind: str, attributes: list[Any], *inputs: str) -> str:
        return name([["ai.onnx", kind, "", "18"], attributes, list(inputs), ["1"]])

    def out(digest: str) -> str:
        return name([digest, "0"])

    text = """<ir_version: 10, opset_import: ["" : 18]> g (float[n] x, bool c) => (float[n] y) <float[1] w = {2.0}> {
      a = LeakyRelu <alpha: float = 0.5> (x)
      y = If (c) <then_branch = t () => (float[n] p) { p = Mul(a, w) }, else_branch = e () => (float[n] q) { q = Abs(a) }> }"""
    x, c, w = name(["input", "x"]), name(["input", "c"]), name(["weight", "w", "float32", ["1"]])
    leaky = node("LeakyRelu", [["alpha", "1", (0.5).hex()]], x)
    mul, absolute = node("Mul", [], out(leaky), w), node("Abs", [], out(leaky))
    branches = [
        [side, "5", name(["0", [inner], [out(inner)]])]
        for side, inner in (("else_branch", absolute), ("then_branch", mul))
    ]
    choice = node("If", branches, c)
    document = {
        "inputs": [["x", "float32", [""], True], ["c", "bool", [], True]],
        "outputs": [["y", "float32", [""], True, out(choice)]],
        "nodes": sorted([leaky, choice]),
        "functions": [],
    }
    assert digest(model_of(text)).graph.hex == name(document)


def test_weights_by_hand(digest: Any) -> None:
    """The rule of docs/format.md, computed here a second time."""
    model = typed(model_of())
    rows = sorted(
        [
            tensor.name,
            "float32",
            [str(dim) for dim in tensor.dims],
            f"sha256:{hashlib.sha256(numpy_helper.to_array(tensor).astype('<f4').tobytes()).hexdigest()}",
        ]
        for tensor in model.graph.initializer
    )
    text = json.dumps(rows, separators=(",", ":"))
    assert digest(model).weights.hex == hashlib.sha256(text.encode()).hexdigest()
