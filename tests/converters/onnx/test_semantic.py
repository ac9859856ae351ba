"""The semantic digest: what it does not see, and that it sees everything else."""

import hashlib
import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, parser
from support.graphs import write_ort

from onnxreg.converters.onnx.facts import contract, inspect_file, semantic_digest
from onnxreg.converters.onnx.onnx_graph import read_graph
from onnxreg.schema.manifest.manifest import SemanticDigest

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


def semantic(model: Any) -> SemanticDigest:
    return semantic_digest(graph := read_graph(model, Path("m.onnx")), *contract(graph))


def renamed(model: Any) -> Any:
    """Every value within, and every node, under another name."""
    inner = ("a", "left", "right", "both", "c", "h", "y", "n", "z")

    def rename(graph: Any) -> None:
        for node in graph.node:
            node.name = f"node of {node.op_type}"
            for side in (node.input, node.output):
                side[:] = [f"v_{name}" if name in inner else name for name in side]
            for attribute in node.attribute:
                rename(attribute.g)
        for value in graph.output:
            value.name = f"v_{value.name}" if value.name in inner else value.name

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
    info = helper.make_tensor_value_info("a", TensorProto.FLOAT, ["batch", "tokens", 4])
    model.graph.value_info.append(info)
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
        if tensor.HasField("raw_data"):
            values = array.flatten().tolist()
            tensor.CopyFrom(helper.make_tensor(tensor.name, tensor.data_type, tensor.dims, values))
        else:
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return model


def axes_called_otherwise(model: Any) -> Any:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "s0"
    return model


def unused_domain(model: Any) -> Any:
    model.opset_import[1].version = 7
    return model


IGNORED = (renamed, told, reordered, typed, axes_called_otherwise, unused_domain)


@pytest.mark.parametrize("change", IGNORED, ids=lambda change: change.__name__)
def test_changes_that_the_digest_ignores(change):
    changed = change(model_of())
    assert changed != model_of()
    assert semantic(changed) == semantic(model_of())


@pytest.mark.parametrize("threshold", [0, 40])
def test_external_data_is_the_same(threshold, tmp_path):
    external = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": threshold}
    onnx.save(typed(model_of()), tmp_path / "model.onnx", **external)
    assert inspect_file(tmp_path / "model.onnx").semantic == semantic(model_of())


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
def test_a_change_shows_in_the_graph_or_weights_digest(before, after, where):
    assert TEXT.count(before) >= 1
    text = TEXT.replace(before, after)
    if "bias" in after:
        text = text.replace("float[3] b ", "float[3] bias ")
    one, other = semantic(model_of()), semantic(model_of(text))
    changed = {half for half in ("graph", "weights") if getattr(one, half) != getattr(other, half)}
    assert changed == ({"graph", "weights"} if where == "both" else {where})


def head(body: str, sides: str, domains: str = "") -> str:
    return f'<ir_version: 10, opset_import: ["" : 18{domains}]> g {sides} {{ {body} }}'


RANDOM = head(
    "p = RandomNormal <shape: ints = [2]> () q = RandomNormal <shape: ints = [2]> () y = Sub(p, {})",
    "() => (float[2] y)",
)
LOCAL = head("y = local.f(x)", "(float[n] x) => (float[n] y)", ', "local" : 1')
LOCAL += '<domain: "local", opset_import: ["" : 18]> f (p) => (r) { q = Relu(p) r = Neg(q) }'
BRANCHES = head(
    "y = If (c) <then_branch = a () => (float[1] p) <float[1] k = {ONE}> { p = Abs(k) },"
    " else_branch = b () => (float[1] p2) <float[1] k = {TWO}> { p2 = Abs(k) }>",
    "(bool c) => (float[1] y)",
)
PAIRS = {
    "a random generator that is there twice is not one whose output is used twice": (RANDOM.replace("{}", "q"), RANDOM.replace("{}", "p"), False),
    "functions count by what they do": (LOCAL, LOCAL.replace("q", "inner").replace("(p)", "(argument)"), True),
    "and not by their names": (LOCAL, LOCAL.replace("Relu", "Abs"), False),
    "branches with a tensor of one name": (BRANCHES.replace("ONE", "1.0").replace("TWO", "2.0"), BRANCHES.replace("ONE", "2.0").replace("TWO", "1.0"), False),
}  # fmt: skip


@pytest.mark.parametrize("case", PAIRS)
def test_pairs_of_graphs(case):
    one, other, equal = PAIRS[case]
    assert (semantic(model_of(one)) == semantic(model_of(other))) is equal


@given(st.randoms(use_true_random=False))
def test_any_order_of_nodes_and_tensors(random):
    """Also orders in which a node stands before what it needs, as ORT-format files may have."""
    model = model_of()
    expected = semantic(model)
    for field in (model.graph.node, model.graph.initializer):
        items = list(field)
        random.shuffle(items)
        del field[:]
        field.extend(items)
    assert semantic(model) == expected


def test_ort_format(tmp_path):
    """Two conversions of one graph, and of a graph with other weights."""

    def convert(model: Any, name: str) -> SemanticDigest:
        onnx.save(model, tmp_path / f"{name}.onnx")
        return inspect_file(write_ort(tmp_path / f"{name}.onnx")).semantic

    one, again = convert(model_of(), "one"), convert(told(model_of()), "again")
    assert one == again
    other = convert(model_of(TEXT.replace("{0.1, 0.2, 0.3}>", "{0.1, 0.2, 0.4}>")), "other")
    assert (other.graph == one.graph, other.weights == one.weights) == (True, False)


def test_graph_by_hand():
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
    assert semantic(model_of(text)).graph.hex == name(document)


def test_weights_by_hand():
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
    assert semantic(model).weights.hex == hashlib.sha256(text.encode()).hexdigest()
