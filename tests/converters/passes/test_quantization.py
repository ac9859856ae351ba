"""Quantization: what the file holds, what stays in floating point, and the numbers of ONNX Runtime's own tools."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.quantization import QuantType, quantize_dynamic
from support.graphs import (
    all_outputs,
    contract,
    count_operators,
    draw,
    graph,
    operators,
    read,
    run,
    run_and_compare,
    store,
    stored,
)

from onnxreg.converters.onnx.onnx_graph import within
from onnxreg.converters.passes import models, samples
from onnxreg.converters.passes.pass_catalog import BUILT_IN
from onnxreg.converters.passes.quantization import (
    EmbeddingQuantization,
    OnnxBlockWiseRtnQuantization,
    OnnxDynamicQuantization,
    OnnxStaticQuantization,
    OrtDynamicQuantization,
    SmoothQuant,
    WeightQuantization,
)
from onnxreg.converters.runtime.sessions import quiet
from onnxreg.schema.core.errors import ConversionError, InputError

TWO = "h = MatMul(x, first) y = MatMul(h, second)"
ROWS, SIZE = 40, 16


def matrices(body: str = TWO, size: int = 40, **weights: tuple[int, ...]) -> Any:
    """Products whose channels have scales from 0.01 to 1."""
    shapes = weights or {"first": (size, size), "second": (size, size)}
    draw = np.random.default_rng(0)
    arrays = {
        name: (draw.normal(size=shape) * np.geomspace(0.01, 1, shape[-1])).astype(np.float32)
        for name, shape in shapes.items()
    }
    return graph(body, f"float[n, {size}] x", f"float[n, {size}] y", named=True, **arrays)


def stacks() -> Any:
    body, sides = "h = MatMul(x, stack) y = MatMul(h, last)", ("float[4, n, 8] x", "float[4, n, 5] y")
    return graph(body, *sides, stack=(4, 8, 6), last=(6, 5))


def image() -> Any:
    body = "c = Conv(x, kernel) r = Relu(c) f = Flatten(r) y = Gemm(f, weight, bias)"
    weights = {"kernel": (4, 3, 3, 3), "weight": (144, 5), "bias": (5,)}
    return graph(body, "float[n, 3, 8, 8] x", "float[n, 5] y", named=True, **weights)


def images(count: int = 8) -> list[dict[str, Any]]:
    return rows(1, 3, 8, 8, count=count)


def rows(*shape: int, count: int = 8, seed: int = 1) -> list[dict[str, Any]]:
    draw = np.random.default_rng(seed)
    return [{"x": draw.normal(size=shape).astype(np.float32)} for _ in range(count)]


def embedding(more: str = "") -> Any:
    table = np.random.default_rng(0).normal(size=(ROWS, SIZE)).astype(np.float32)
    table *= np.logspace(-3, 3, ROWS, dtype=np.float32)[:, None]
    table[7] = 0.0
    body = f"picked = Gather(table, ids) {more} rows = Identity(picked)"
    return graph(body, "int64[n] ids", f"float[n, {SIZE}] rows", table=table)


TestDynamic = contract(OnnxDynamicQuantization, matrices)
TestBlocks = contract(lambda: OnnxBlockWiseRtnQuantization(block_size=32), matrices)
TestStatic = contract(lambda: OnnxStaticQuantization(images()), image)
TestEmbeddings = contract(EmbeddingQuantization, embedding)
TestStored = contract(WeightQuantization, matrices)
TestRuntime = contract(OrtDynamicQuantization, matrices)


def with_value(subject: Any, name: str, value: float) -> Any:
    weight = stored(subject)[name].copy()
    weight.reshape(-1)[5] = value
    store(subject, name, weight)
    return subject


DYNAMIC, BLOCKS, STATIC, ROWS_OF_TABLES, STORED = (
    OnnxDynamicQuantization, OnnxBlockWiseRtnQuantization, OnnxStaticQuantization, EmbeddingQuantization, WeightQuantization,
)  # fmt: skip
NONE, LEFT, NUMBERS = (
    "reached none of the",
    "left weights in floating point: second",
    "{} holds NaN or infinity",
)
PRODUCT = "h = MatMul(x, first) "
REFUSED: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "no constant": (DYNAMIC, lambda: graph("y = MatMul(x, x)"), NONE),
    "no product of blocks": (BLOCKS, lambda: matrices("y = Gemm(x, first)"), NONE),
    "no Gemm": (lambda: BLOCKS(gemm=True), lambda: matrices("y = Add(x, x)"), NONE),
    "no MatMul": (lambda: STATIC(images(), op_types_to_quantize=["MatMul"]), image, NONE),
    "table read twice": (ROWS_OF_TABLES, lambda: embedding("again = Add(table, table)"), NONE),
    "no table": (ROWS_OF_TABLES, lambda: graph("y = Relu(x)"), NONE),
    "on the left": (DYNAMIC, lambda: matrices(PRODUCT + "w = Transpose(second) y = MatMul(w, h)"), LEFT),
    "alpha": (DYNAMIC, lambda: matrices(PRODUCT + "y = Gemm<alpha = 0.5>(h, second)"), LEFT),
    **{f"{value} in blocks": (lambda: BLOCKS(gemm=True), partial(matrices, f"y = Gemm <{value}> (x, second, first)"), LEFT)
       for value in ("alpha = 2.0", "beta = 0.5", "transA = 1")},
    **{f"{value} of a product": (DYNAMIC, partial(with_value, matrices(), "second", value), NUMBERS.format("second"))
       for value in (np.nan, np.inf)},
    "no stored matrix": (STORED, lambda: graph("y = MatMul(x, x)"), NONE),
    "infinity of a stored matrix": (STORED, partial(with_value, matrices(), "second", np.inf), NUMBERS.format("second")),
    **{f"{value} of a table": (ROWS_OF_TABLES, partial(with_value, embedding(), "table", value), NUMBERS.format("table"))
       for value in (np.nan, np.inf)},
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_weight_that_is_not_reached_stays_or_is_not_a_number_is_named(case: str) -> None:
    work, subject, message = REFUSED[case]
    with pytest.raises(ConversionError, match=message):
        run("int8", work(), subject())


def test_a_transposed_matrix_that_is_also_a_table_is_quantized_and_the_table_stays() -> None:
    full = matrices(PRODUCT + "w = Transpose(second) y = MatMul(h, w)")
    small, step = run("int8", DYNAMIC(), onnx.ModelProto.FromString(full.SerializeToString()))
    assert step.result["operators"]["MatMulInteger"] == 2
    feeds = draw(full)
    outputs = [all_outputs(model, feeds, "a graph")[0]["y"] for model in (full, small)]
    np.testing.assert_allclose(*outputs, atol=0.05 * np.abs(outputs[0]).max())


@pytest.mark.parametrize(
    ("work", "given", "subject", "message"),
    [
        (DYNAMIC, {"nodes_to_exclude": ["nod1"]}, matrices, "nod1"),
        (BLOCKS, {"nodes_to_exclude": ["nod"]}, matrices, "nod"),
        (BLOCKS, {"bits": 3}, matrices, "bits"),
        (BLOCKS, {"block_size": 48}, matrices, "block_size"),
        (BLOCKS, {"accuracy_level": 5}, matrices, "accuracy_level"),
        *(
            (STATIC, {"data": data}, image, r"needs sample|the graph takes x")
            for data in (None, [], [{"z": 1}])
        ),
        *(
            (
                STATIC,
                {"data": rows(3, 40) + rows(5, 40), "calibrate_method": method},
                matrices,
                "these have 2",
            )
            for method in ("Entropy", "Percentile", "MSE")
        ),
    ],
)
def test_parameters_and_data_that_mean_nothing(work: Any, given: Any, subject: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        run("int8", work(**given), subject())


# What every quantization keeps


@pytest.mark.parametrize(
    ("work", "subject", "left"),
    [
        (DYNAMIC(nodes_to_exclude=["node1"]), matrices, "second"),
        (BLOCKS(nodes_to_exclude=["node0"]), matrices, "first"),
        (STATIC(images(), nodes_to_exclude=["node3"]), image, "weight"),
    ],
)
def test_excluded_nodes_stay(work: Any, subject: Any, left: str) -> None:
    after, step = run_and_compare("int8", work, subject())
    assert step.result["weights"] == 1
    np.testing.assert_array_equal(stored(after)[left], stored(subject())[left])


SHARED = {
    "two Gemm": "h = Gemm<transB=1>(x, first) y = Gemm<transB=1>(h, first)",
    "three Gemm": "h = Gemm<transB=1>(x, first) i = Gemm<transB=1>(h, first) y = Gemm<transB=1>(i, first)",
    "Gemm and MatMul": "h = Gemm<transB=1>(x, first) y = MatMul(h, first)",
    "Gemm both ways": "h = Gemm<transB=1>(x, first) y = Gemm(h, first)",
    "under a second name": "again = Identity(first) h = Gemm<transB=1>(x, first) y = Gemm<transB=1>(h, again)",
    "with a bias": "b = Constant<value_float=1.0>() h = Gemm<transB=1>(x, first, b) y = Gemm<transB=1>(h, first, b)",
}
WORKS = {  # 7 bits, because sums of two products of 8 bits overflow on processors without VNNI
    "per channel": lambda: DYNAMIC(reduce_range=True),
    "per tensor": lambda: DYNAMIC(per_channel=False, reduce_range=True),
    "blocks": lambda: BLOCKS(bits=8, block_size=16, gemm=True),
    "static": lambda: STATIC(rows(3, 40), reduce_range=True),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in SHARED for kind in WORKS if (name, kind) != ("under a second name", "blocks")],
)
def test_a_matrix_that_nodes_share_gives_the_numbers_of_a_copy_for_each(name: str, kind: str) -> None:
    subject, work = matrices(SHARED[name], first=(40, 40)), WORKS[kind]
    _, step = run_and_compare("int8", work(), subject, feeds=rows(3, 40))
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.995


@pytest.mark.parametrize(
    ("work", "body"),
    [
        (DYNAMIC(), "again = Identity(first) h = MatMul(x, first) y = MatMul(h, again)"),
        (BLOCKS(), "h = MatMul(x, first) y = MatMul(h, first)"),
    ],
)
def test_a_weight_that_is_used_twice_is_stored_once(work: Any, body: str) -> None:
    """Also under another name, as the layers of ALBERT come out of PyTorch."""
    after, _ = run_and_compare("int8", work, matrices(body, first=(40, 40)))
    sizes = sorted(array.nbytes for array in stored(after).values())
    assert sizes[-1] <= 40 * 64 and sizes[-2] <= 160
    assert "Identity" not in operators(after)


IF = (
    "h = MatMul(x, outside) y = If(c) <then_branch = t () => (float[n, 40] u) { u = MatMul(h, w) },"
    " else_branch = e () => (float[n, 40] v) { v = Relu(h) }>"
)
LOOP = (
    "h = MatMul(x, outside) three = Constant<value = int64 {3}>() yes = Constant<value = bool {1}>()"
    " y = Loop(three, yes, h) <body = b (int64 i, bool k, float[n, 40] a) => (bool more, float[n, 40] next)"
    " { more = Identity(k) next = MatMul(a, w) }>"
)
PLACES = {"branch": (IF, False), "branch's own": (IF, True), "loop": (LOOP, False)}


def part(body: str, inside: bool) -> tuple[Any, list[dict[str, Any]]]:
    """A weight w that a branch or a loop reads; `inside`: it is stored there."""
    weights = {name: rows(40, 40, seed=seed)[0]["x"] / 6 for seed, name in enumerate(("outside", "w"))}
    subject = graph(body, "bool c, float[n, 40] x", **weights)
    if inside:
        subject.graph.node[1].attribute[0].g.initializer.append(subject.graph.initializer.pop())
    return subject, [{"c": np.array(True), "x": rows(3, 40)[0]["x"]}]


REACHES = (
    "OnnxFloatToFloat16",
    "OrtMixedPrecision",
    "OnnxBlockWiseRtnQuantization",
    "OnnxOpVersionConversion",
)


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("name", [*REACHES, "OnnxDynamicQuantization", "OnnxStaticQuantization"])
def test_a_pass_reaches_weights_of_branches_and_loops_or_says_that_it_does_not(
    name: str, place: tuple[str, bool]
) -> None:
    subject, feeds = part(*place)
    work = BUILT_IN[name](feeds)
    if name not in REACHES:
        with pytest.raises(ConversionError, match="left weights in floating point: w"):
            run_and_compare("x", work, subject, feeds=feeds)
        return
    _, step = run_and_compare("x", work, subject, feeds=feeds)
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.95
    if name != "OnnxOpVersionConversion":
        assert step.result.get("float16_weights", step.result.get("weights")) == 2


@pytest.mark.parametrize("inside", [False, True])
def test_a_gemm_in_a_branch_is_reached_by_blocks(inside: bool) -> None:
    subject, feeds = part(IF.replace("MatMul(h, w)", "Gemm <transB = 1> (h, w)"), inside)
    after, step = run_and_compare("x", BLOCKS(gemm=True), subject, feeds=feeds)
    assert (step.result["weights"], step.result["parity"]["outputs"]["y"]["cosine"] > 0.95) == (2, True)
    assert not any(node.op_type == "Gemm" for body in within(after.graph) for node in body.node)
    assert "w" not in {tensor.name for body in within(after.graph) for tensor in body.initializer}


def test_branches_may_pass_values_on_under_the_same_names() -> None:
    branches = (
        "<then_branch = t () => (float[2, 2] u) { a = Relu(x) b = Identity(a) u = MatMul(b, x) },"
        " else_branch = e () => (float[2, 2] v) { b = Identity(w) a = Identity(b) v = MatMul(x, a) }>"
    )
    subject = graph(f"y = If(c) {branches}", "bool c, float[2, 2] x", "float[2, 2] y", w=(2, 2))
    onnx.checker.check_model(subject, full_check=True)
    assert [value.name for value in models.factors(read(subject), {"MatMul"})] == ["w"]


@pytest.mark.parametrize("work", [DYNAMIC(), STATIC(rows(4, 3, 8))])
def test_a_stack_of_matrices_has_one_scale_and_the_others_one_for_each_channel(work: Any) -> None:
    after, step = run_and_compare("int8", work, stacks(), feeds=rows(4, 3, 8))
    weights = stored(after)
    assert (weights["stack_scale"].size, weights["last_scale"].size) == (1, 5)
    assert (step.result["weights"], step.result["per_tensor"]) == (2, ["stack"])
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.99


# Dynamic INT8


def test_a_matrix_may_be_a_weight_of_one_product_and_the_left_side_of_another() -> None:
    body = "t = Transpose <perm = [1, 0]> (w) y = MatMul(x, t) z = MatMul(t, v)"
    subject = graph(body, outputs="float[n, 8] y, float[40, 6] z", w=(8, 40), v=(8, 6))
    _, step = run_and_compare("int8", DYNAMIC(), subject)
    assert step.result["operators"]["MatMulInteger"] == 2
    assert all(one["cosine"] > 0.95 for one in step.result["parity"]["outputs"].values())


@pytest.mark.parametrize("reduce_range", [False, True])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("weight_type", ["QInt8", "QUInt8"])
def test_every_choice_is_what_the_file_holds(weight_type: str, per_channel: bool, reduce_range: bool) -> None:
    work = DYNAMIC(weight_type=weight_type, per_channel=per_channel, reduce_range=reduce_range)
    after, step = run_and_compare("int8", work, matrices())
    codes = stored(after)["first_quantized"]
    assert str(codes.dtype) == {"QInt8": "int8", "QUInt8": "uint8"}[weight_type]
    assert stored(after)["first_scale"].size == (40 if per_channel else 1)
    assert (int(np.ptp(codes.astype(int))) <= 128) is reduce_range
    assert step.result["quantized_bytes"] == 2 * 6400
    assert step.result["weights"] == step.result["operators"]["MatMulInteger"] == 2
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.98


def test_scales_for_each_channel_are_the_default_and_better() -> None:
    def error(work: Any) -> float:
        subject = matrices("y = MatMul(x, first)", first=(40, 40))
        feeds = rows(9, 40)
        before = all_outputs(subject, feeds, "parent")[0]["y"][:, 0]
        after = all_outputs(run("int8", work, subject)[0], feeds, "child")[0]["y"][:, 0]
        return float(np.abs(before - after).max() / np.abs(before).max())

    assert error(DYNAMIC()) < 0.05 < error(DYNAMIC(per_channel=False))


def test_embeddings_on_request_with_the_cosine_of_the_worst_row_and_convolutions() -> None:
    body = "hidden = Gather(table, ids) y = MatMul(hidden, weight)"
    weights = {"table": (20, 8), "weight": (8, 3)}
    results = []
    for kinds in (("MatMul", "Gemm"), ("MatMul", "Gather")):
        subject = graph(body, "int64[n] ids", "float[n, 3] y", **weights)
        results.append(run("int8", DYNAMIC(op_types_to_quantize=kinds), subject))
    (plain, _), (after, step) = results
    assert stored(plain)["table"].dtype == np.float32 and "table" not in stored(after)
    found = step.result["embeddings"]
    assert (found["tables"], found["tables_quantized"]) == (1, 1)
    assert 0.99 < found["min_row_cosine"] < 1
    subject = graph("y = Conv(x, w)", "float[n, 3, 8, 8] x", "float[n, 4, 6, 6] y", w=(4, 3, 3, 3))
    work = DYNAMIC(op_types_to_quantize=["Conv"], weight_type="QUInt8", per_channel=False)
    _, step = run_and_compare("int8", work, subject)
    assert (step.result["weights"], step.result["operators"]["ConvInteger"]) == (1, 1)
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.99


# Smoothing


LOUD = np.where(np.arange(40) % 13 == 5, np.float32(60), np.float32(1))
NORMAL = "h = LayerNormalization(x, loud, shift)"
SPELLED = "s = Mul(x, loud) h = Add(s, shift)"


def outliers(body: str = f"{NORMAL} y = MatMul(h, first)") -> Any:
    subject = matrices(body, first=(40, 40), second=(40, 40))
    store(subject, "loud", LOUD)
    store(subject, "shift", np.zeros(40, np.float32))
    return subject


TestSmooth = contract(SmoothQuant, outliers)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(
    ("body", "width"),
    [
        (f"{NORMAL} y = MatMul(h, first)", 2),
        (f"{SPELLED} q = MatMul(h, first) k = MatMul(h, second) r = Add(q, k) y = Add(r, h)", 3),
    ],
)
def test_smoothing_changes_no_product_and_takes_the_outliers_from_the_activation(
    body: str, width: int, alpha: float
) -> None:
    subject, feeds = outliers(body), rows(9, 40)
    before = all_outputs(subject, feeds, "parent")
    after, step = run_and_compare("smooth", SmoothQuant(feeds, alpha=alpha), subject, feeds=feeds)
    inverse = next(array for name, array in stored(after).items() if name.endswith("inverse_scales"))
    assert np.array_equal(np.frexp(inverse)[0], np.full(40, 0.5)) and step.result["activations"] == 1
    assert bool(inverse[6] / inverse[5] > 16) is (alpha == 1.0)
    assert sum("h_smoothed" in node.input for node in after.graph.node) == width - 1
    for one, other in zip(before, all_outputs(after, feeds, "child"), strict=True):
        assert np.array_equal(one["y"], other["y"])


def test_dynamic_int8_behind_smoothing_loses_a_fraction() -> None:
    def error(*line: Any) -> float:
        subject, feeds = outliers(), rows(9, 40)
        before = all_outputs(subject, feeds, "parent")[0]["y"]
        for work in line:
            subject, _ = run("step", work, subject)
        after = all_outputs(subject, feeds, "child")[0]["y"]
        return float(np.linalg.norm(after - before))

    assert error(SmoothQuant(), DYNAMIC()) < 0.7 * error(DYNAMIC())


@pytest.mark.parametrize(
    "body",
    [
        "y = Add(x, x)",
        "y = MatMul(x, first)",
        f"{NORMAL} a = MatMul(h, first) y = MatMul(a, first)",
        f"{NORMAL} y = MatMul(first, h)",
    ],
    ids=["no product", "not normalized", "a matrix with two readers", "the other operand"],
)
def test_what_cannot_be_smoothed_is_an_error(body: str) -> None:
    subject = outliers(body)
    with pytest.raises(ConversionError, match="smoothing reached no product"):
        run("smooth", SmoothQuant(rows(40, 40)), subject)


def test_smoothing_leaves_a_matrix_that_is_an_output_and_the_names_of_other_values() -> None:
    subject = outliers(f"{NORMAL} h_smoothed = MatMul(h, first) r = MatMul(h, second) y = Add(h_smoothed, r)")
    matrix = onnx.helper.make_tensor_value_info("second", onnx.TensorProto.FLOAT, [40, 40])
    subject.graph.output.append(matrix)
    before = all_outputs(subject, rows(9, 40), "parent")
    after, _ = run("smooth", SmoothQuant(), subject)
    for one, other in zip(before, all_outputs(after, rows(9, 40), "child"), strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in ("y", "second"))


def test_samples_of_another_graph_are_refused() -> None:
    with pytest.raises(InputError, match="the graph takes x"):
        run("smooth", SmoothQuant([{"z": 1}]), outliers())


MIXED = "h = MatMul(x, first) y = Gemm<transB=1>(h, second)"


@pytest.mark.parametrize(
    ("params", "left"),
    [
        ({"nodes_to_exclude": ["node1"]}, "second"),
        ({"op_types_to_quantize": ["MatMul"]}, "second"),
        ({"op_types_to_quantize": ["Gemm"]}, "first"),
        ({"op_types_to_quantize": ["Gemm"], "nodes_to_exclude": ["node0"]}, "first"),
    ],
)
def test_a_gemm_is_quantized_if_it_was_asked_for(params: Any, left: str) -> None:
    after, step = run_and_compare("int8", DYNAMIC(**params), matrices(MIXED))
    assert [name for name, a in stored(after).items() if a.dtype == np.float32 and a.ndim == 2] == [left]
    assert step.result["weights"] == step.result["operators"]["MatMulInteger"] == 1


@pytest.mark.parametrize("name", ["", "product"])
def test_integer_products_stay_and_hide_no_other(name: str) -> None:
    sides = "int64[n, 2] a, float[n, 8] x", "int64[n, 2] b, float[n, 3] y"
    whole = np.eye(2, dtype=np.int64)
    subject = graph("b = MatMul(a, whole) y = MatMul(x, weight)", *sides, whole=whole, weight=(8, 3))
    subject.graph.node[0].name = name
    after, step = run("int8", DYNAMIC(), subject)
    assert step.result["operators"]["MatMulInteger"] == step.result["weights"] == 1
    assert count_operators(after)["MatMul"] == 1


def by_onnx_runtime(subject: Any, **options: Any) -> dict[str, bytes]:
    """The weights that the public entry point of ONNX Runtime's quantizer gives a graph."""
    with tempfile.TemporaryDirectory() as directory:
        source, target = Path(directory, "model.onnx"), Path(directory, "int8.onnx")
        onnx.save(subject, source)
        options = {"per_channel": True, "weight_type": QuantType.QInt8, **options}
        with quiet():
            quantize_dynamic(source, target, op_types_to_quantize=["MatMul", "Gemm"], **options)
        return tensors(onnx.load(target))


def tensors(subject: Any) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in stored(subject).items()}


def test_large_weights_come_back_and_nothing_else_stands_in_for_them() -> None:
    body = "z = Gemm<transB = 1>(x, turned, bias) u = MatMul(z, straight) v = Add(u, kept) y = Mul(v, v)"
    weights = {**dict.fromkeys(("turned", "straight", "unread"), (64, 64)), "bias": (64,), "kept": (1, 64)}
    subject = graph(body, "float[n, 64] x", "float[n, 64] y", **weights)
    expected = by_onnx_runtime(subject)
    after, step = run("int8", DYNAMIC(), subject)
    assert step.result["weights"] == 2
    assert [value.name for value in after.graph.input] == ["x"]
    assert {"turned_quantized", "straight_quantized", "bias", "kept"} <= expected.keys()
    assert tensors(after) == expected


ODD = np.array(
    [
        [0, 1, -1e-40, 3e38, 1e-37, 5, -0.0],
        [0, -2, 1e-40, -3e38, -2e-37, 5, 0],
        [0, 0.5, 0, 1, 0, 4.999999, 0],
    ],
    np.float32,
)
"""Channels of zeros, denormals, the largest and smallest scales, of one sign only."""


@pytest.mark.parametrize("reduce_range", [False, True])
@pytest.mark.parametrize("operator", ["MatMul(x, w)", "Gemm(x, w)", "Gemm<transB = 1>(x, w)"])
def test_numbers_are_those_of_onnx_runtime(operator: str, reduce_range: bool) -> None:
    draw = np.random.default_rng(5).normal(size=(63, 40)) * np.geomspace(1e-6, 1e6, 40)
    weight = np.hstack([np.vstack([ODD, np.zeros((60, 7))]), draw]).astype(np.float32)
    weight = weight.T if "trans" in operator else weight
    subject = graph(f"y = {operator}", "float[n, 63] x", "float[n, 47] y", w=weight)
    expected = by_onnx_runtime(subject, reduce_range=reduce_range)
    after, _ = run("int8", DYNAMIC(reduce_range=reduce_range), subject)
    assert tensors(after) == expected
    assert {"w_quantized", "w_scale", "w_zero_point"} <= expected.keys()


# Blocks


LIMITS = {(4, True): 0.16, (4, False): 0.12, (8, True): 0.01, (8, False): 0.008}


@pytest.mark.parametrize("block_size", [16, 32, 128])
@pytest.mark.parametrize(("bits", "symmetric"), LIMITS)
def test_the_error_of_the_products_is_small(bits: int, symmetric: bool, block_size: int) -> None:
    one = {"x": np.eye(72, dtype=np.float32)}
    subject = graph("y = MatMul(x, first)", "float[n, 72] x", "float[n, 72] y", first=(72, 72))
    weight = stored(subject)["first"]
    work = BLOCKS(bits=bits, is_symmetric=symmetric, block_size=block_size, accuracy_level=1)
    after, _ = run_and_compare("int4", work, subject, feeds=[one])
    got = all_outputs(after, [one], "blocks")[0]["y"]
    assert 0 < np.linalg.norm(got - weight) / np.linalg.norm(weight) < LIMITS[bits, symmetric]


def test_nodes_and_attributes_of_the_file() -> None:
    work = BLOCKS(accuracy_level=4)
    after, step = run_and_compare("int4", work, matrices(size=72))
    first = after.graph.node[0]
    attributes = {entry.name: entry.i for entry in first.attribute}
    assert (first.op_type, first.domain) == ("MatMulNBits", "com.microsoft")
    assert [attributes[name] for name in ("accuracy_level", "bits", "block_size")] == [4, 4, 128]
    assert {array.dtype for array in stored(after).values()} == {np.dtype("f4"), np.dtype("u1")}
    assert not {"first", "second"} & stored(after).keys()
    weights = step.result["weight_bytes"]
    assert (step.result["weights"], weights["before"]) == (2, step.result["quantized_bytes"])
    assert weights["before"] == 2 * 4 * 72 * 72 > 4 * weights["after"]


GEMMS = {
    "plain": "y = Gemm(x, first)",
    "across": "y = Gemm <transB = 1> (x, first)",
    "with a bias": "b = Constant <value_float = 2.0> () y = Gemm <transB = 1, alpha = 1.0> (x, first, b)",
    "both ways": "h = Gemm <transB = 1> (x, first) y = Gemm (h, first)",
    "beside a product": "h = Gemm <transB = 1> (x, first) y = MatMul(h, second)",
}


@pytest.mark.parametrize("body", GEMMS.values(), ids=GEMMS)
def test_a_gemm_is_a_product_too(body: str) -> None:
    work = BLOCKS(bits=8, block_size=16, gemm=True)
    after, step = run_and_compare("int8", work, matrices(body))
    count = body.count("Gemm") + body.count("MatMul")
    assert [kind for kind in operators(after) if kind in ("Gemm", "MatMulNBits")] == ["MatMulNBits"] * count
    assert step.result["weights"] == count
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.9999
    assert not {"first", "second"} & {name for name in stored(after) if name in body}


@pytest.mark.parametrize("params", [{}, {"gemm": True, "nodes_to_exclude": ["node0"]}])
def test_a_gemm_is_left_alone_where_it_is_excluded_or_not_asked_for(params: Any) -> None:
    subject = matrices(GEMMS["beside a product"])
    after, step = run_and_compare("int4", BLOCKS(**params), subject)
    assert (operators(after), step.result["weights"]) == (["Gemm", "MatMulNBits"], 1)


# Static INT8


@pytest.mark.parametrize("method", ["MinMax", "Entropy", "Percentile"])
def test_methods_of_calibration(method: str) -> None:
    work = STATIC(images(), calibrate_method=method)
    after, step = run_and_compare("int8", work, image(), feeds=images(3))
    assert {"Conv", "DequantizeLinear", "QuantizeLinear"} <= step.result["operators"].keys()
    assert (step.result["weights"], step.result["quantized_bytes"]) == (2, 4 * (4 * 27 + 144 * 5))
    assert step.result["calibration"]["samples"] == 8
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.99
    assert (len(after.metadata_props), "float_nodes" in step.result) == (0, False)
    assert {entry.domain for entry in after.opset_import} <= {"", "com.microsoft"}


def test_one_scale_or_one_for_each_channel_and_one_for_a_stack_in_every_type() -> None:
    for per_channel, shape in ((False, ()), (True, (4,))):
        after, _ = run("int8", STATIC(images(), per_channel=per_channel), image())
        assert stored(after)["kernel_scale"].shape == shape
    work = STATIC(rows(4, 3, 8), weight_type="QUInt8")
    assert run("int8", work, stacks())[1].result["per_tensor"] == ["stack"]


def test_samples_are_the_rows_of_files(tmp_path: Path) -> None:
    column = np.arange(10, dtype=np.float32).reshape(10, 1)
    np.savez(tmp_path / "a.npz", x=column[:6])
    np.savez(tmp_path / "b.npz", x=column[6:])
    assert [feed["x"].tolist() for feed in samples.read(tmp_path)] == [[[float(n)]] for n in range(10)]


MASKS = {
    "added": "pad = Where(keep, zero, low) masked = Add(scores, pad)",
    "chosen": "masked = Where(keep, scores, low)",
    "multiplied": "number = Cast<to=1>(keep) away = Sub(one, number) pad = Mul(away, low) masked = Add(scores, pad)",
}


LOWEST = (-1e4, float(np.finfo(np.float32).min), -np.inf)


@pytest.mark.parametrize("is_padded", [True, False])
@pytest.mark.parametrize(
    ("mask", "low"),
    [(mask, low) for mask in MASKS for low in LOWEST if mask != "multiplied" or np.isfinite(low)],
)
def test_attention_masks_stay_in_floating_point(mask: str, low: float, is_padded: bool) -> None:
    """A mask in 8 bits makes every score 0; one that was never seen while calibrating lets padding through."""
    draw = np.random.default_rng(0)
    weights = {name: draw.normal(size=(16, 16)).astype(np.float32) / 4 for name in "abc"}
    subject = graph(
        "one = Constant<value_float=1.0>() zero = Constant<value_float=0.0>()"
        " q = MatMul(x, a) k = MatMul(x, b) kt = Transpose<perm=[1, 0]>(k) scores = MatMul(q, kt) "
        f"{MASKS[mask]} shares = Softmax(masked) v = MatMul(x, c) y = MatMul(shares, v)",
        "float[n, 16] x, bool[n] keep",
        "float[n, 16] y",
        opset=17,
        low=low,
        **weights,
    )
    x = draw.normal(size=(16, 9, 16)).astype(np.float32)
    feeds = [{"x": row, "keep": np.arange(9) < 3 + index % 6} for index, row in enumerate(x)]
    seen = feeds if is_padded else [{**feed, "keep": np.ones(9, bool)} for feed in feeds]
    _, step = run_and_compare("int8", STATIC(seen), subject, feeds=feeds)
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.99
    assert (bool(step.result["float_nodes"]), step.result["weights"]) == (True, 3)


def test_indices_are_computed_in_floating_point() -> None:
    """As MPNet and T5 find the row of a relative position."""
    body = "f = Cast<to=1>(x) l = Log(f) m = Mul(l, five) i = Cast<to=7>(m) r = Gather(table, i) y = MatMul(r, w)"
    subject = graph(body, "int64[n] x", "float[n, 8] y", opset=17, five=5.0, table=(50, 8), w=(8, 8))
    feeds = [{"x": np.arange(1, 1000, step)} for step in (7, 90)]
    _, step = run_and_compare("int8", STATIC(feeds), subject, feeds=feeds)
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.99


# Rows of embedding tables


def test_every_row_keeps_its_own_scale_by_standard_operators() -> None:
    table = stored(embedding())["table"]
    after, step = run_and_compare("rows", ROWS_OF_TABLES(), embedding())
    assert count_operators(after) == {"Cast": 1, "Gather": 2, "Identity": 1, "Mul": 1}
    got = all_outputs(after, [{"ids": np.arange(ROWS)}], "rows")[0]["rows"]
    largest = np.abs(table).max(axis=1, keepdims=True)
    assert (np.abs(got - table) <= largest / 127 / 2 * 1.001).all()
    assert (got[7] == 0).all()
    tables = {"tables": 1, "tables_quantized": 1, "min_row_cosine": pytest.approx(1, abs=1e-3)}
    assert step.result["embeddings"] == tables
    assert step.result["quantized_bytes"] == ROWS * SIZE * 4
    assert step.result["weight_bytes"]["after"] == ROWS * SIZE + ROWS * 4


def test_calibration_by_squared_error_leaves_out_a_rare_value() -> None:
    """One value in 160,000 is half as large again as the others: to keep it costs all others more than it gains."""
    data = rows(500, 40, count=8)
    data[0]["x"][0, 0] = 10.0
    kept, clipped = (
        run("int8", STATIC(data, calibrate_method=method), matrices())[0] for method in ("MinMax", "MSE")
    )
    whole, least = (stored(model)["x_scale"] for model in (kept, clipped))
    assert 0.5 * whole < least < 0.95 * whole


def test_new_values_do_not_take_the_names_of_others() -> None:
    subject = graph(
        "w_codes = MatMul(x, w) w_codes_1 = Neg(w_codes) y = MatMul(w_codes_1, v)", w=(40, 40), v=(40, 40)
    )
    after, step = run_and_compare("stored", STORED(), subject)
    assert step.result["parity"]["outputs"]["y"]["cosine"] > 0.999
    names = [name for node in after.graph.node for name in node.output] + list(stored(after))
    assert len(names) == len(set(names)) and "w_codes_2" in names
