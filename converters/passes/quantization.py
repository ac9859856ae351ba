"""Passes that quantize to 8 bits or fewer: dynamically, by blocks of weights, embedding tables, and with calibration data.

Dynamic quantization gives the same graph and names as `onnxruntime.quantization.quantize_dynamic`, in one walk over the
graph. ONNX Runtime copies all weights four times and codes each channel in Python, which takes 30 times as long. Weights are
coded by ONNX Runtime's formulas (`compute_scale_zp` and `quantize_nparray`), to the same bits.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from copy import deepcopy
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from pydantic import Field

from onnxreg.converters.onnx.onnx_graph import within
from onnxreg.converters.onnx.tensors import tensor_bytes
from onnxreg.converters.passes import models, samples
from onnxreg.converters.passes.base import GraphPass, PassParams, QuantizationPass
from onnxreg.schema.core.errors import ConversionError, InputError

LIMIT, REDUCED_LIMIT = 127, 64
"""The largest code, by default and with `reduce_range`."""
MIN_ROW_COSINE = 0.99
"""Lowest cosine of a coded row with its original: below it a row is wrong, not only rounded."""
DRAWN_ROWS, MAX_SHIFT = 16, 12
"""The batch size of inputs drawn to find the largest activations, and the largest exponent of a scale (a power of two)."""
NORMALIZATIONS = frozenset(
    f"{kind}Normalization" for kind in ("Layer", "SimplifiedLayer", "RMS", "SkipLayer", "SkipSimplifiedLayer")
)
"""Normalizations that are one operator; others end with a Mul and an Add of stored vectors."""
SHARES = tuple(number / 64 for number in range(64, 7, -1))
"""Ranges that calibration by squared error compares, as shares of an activation's whole range."""
PRODUCTS = frozenset({"Conv", "Gemm", "MatMul"})
MASK_SIZE = 1e3
"""A constant of at least this size that reaches an operator of `MASKED` counts as a mask, whose exact size means nothing."""
MASKED = frozenset(
    {"Softmax", "LogSoftmax", "Exp", "ReduceLogSumExp", "ReduceMax", "ReduceMin", "TopK", "ArgMax", "ArgMin"}
)
_CARRYING = """
    Add Cast CastLike Concat Expand Flatten Gather GatherElements GatherND Identity Mul Neg Reshape ScatterElements
    ScatterND Slice Split Squeeze Sub Tile Transpose Trilu Unsqueeze Where
"""
CARRYING = frozenset(_CARRYING.split())
"""Operators whose result contains a mask's value, unchanged or with a score added."""
ARITHMETIC = CARRYING | {"Abs", "Ceil", "Clip", "Div", "Floor", "Log", "Max", "Min", "Pow", "Round", "Sqrt"}
"""Operators that compute an index before a Cast to integers, such as the bucket of a relative position."""


class OnnxDynamicQuantization(QuantizationPass):
    """Quantize weights to 8 bits, `QInt8` symmetric or `QUInt8` with a zero point; activations are uint8 at run time.

    By default each channel has a scale: on MiniLM the mean cosine of pooled outputs with the parent's is .993, and .963 with
    a scale per tensor. A stack of matrices gets one scale, because no kernel takes more. A Gemm becomes a MatMul and an Add
    first. The pass fails unless it quantizes every constant weight of the requested operators MatMul, Gemm and Conv, except
    in `nodes_to_exclude`. `Gather` in `op_types_to_quantize` quantizes embedding tables as `EmbeddingQuantization` does.
    """

    id = "OnnxDynamicQuantization"
    version = 4

    class Params(PassParams):
        weight_type: Literal["QInt8", "QUInt8"] = "QInt8"
        op_types_to_quantize: tuple[Literal["MatMul", "Gemm", "Conv", "Gather"], ...] = ("MatMul", "Gemm")
        nodes_to_exclude: tuple[str, ...] = ()
        per_channel: bool = True
        reduce_range: bool = False

    def prepare(self, subject: Any) -> None:
        import numpy as np
        import onnx

        stay = {"MatMul", "Gemm"}.difference(self.params.op_types_to_quantize)
        if self.params.nodes_to_exclude or len(stay) == 1:
            models.name_nodes(subject)
        others = (node.name for node in subject.graph.node if node.op_type in stay and node.name)
        self.excluded = {*self.params.nodes_to_exclude, *others}
        models.drop_second_names(subject)
        models.fold_transposes(subject)
        if "Gemm" in self.params.op_types_to_quantize:
            models.unfold_gemms(subject, self.excluded)
        weights = self.factors(subject)
        if halves := [name for name, tensor in weights.items() if tensor.data_type != tensor.FLOAT]:
            raise InputError(
                f"{self.id} takes weights in float32, and {len(halves)} are float16: {', '.join(halves)[:100]}",
                "quantize the float32 graph (input: STEP), or use OnnxBlockWiseRtnQuantization, which takes float16",
            )
        for name, tensor in weights.items():
            if not np.isfinite(onnx.numpy_helper.to_array(tensor)).all():
                raise ConversionError(f"the weight {name} holds NaN or infinity")

    def apply(self, subject: Any) -> Any:
        import numpy as np
        import onnx

        self.note_stacks(subject)
        if "Gather" in self.params.op_types_to_quantize:
            self.found["embeddings"] = quantize_tables(subject)
        stored = {tensor.name: tensor for tensor in self.factors(subject).values()}
        codes_of: dict[str, list[Any]] = {}
        activations: set[str] = set()
        nodes: list[Any] = []
        for node in subject.graph.node:
            is_product = node.op_type in self.products - {"Gemm"} and models.is_standard(node)
            if not is_product or node.name in self.excluded or node.input[1] not in stored:
                nodes.append(node)
                continue
            value, weight = node.input[:2]
            if weight not in codes_of:
                codes_of[weight] = self._coded(stored[weight])
            activation = f"{value}_input" if value in stored else value  # it may be a weight elsewhere
            if activation not in activations:
                activations.add(activation)
                outputs = [f"{activation}_{part}" for part in ("quantized", "scale", "zero_point")]
                name = f"{activation}_QuantizeLinear"
                nodes.append(onnx.helper.make_node("DynamicQuantizeLinear", [value], outputs, name))
            nodes += _product(node, activation, weight)
            if node.op_type == "Conv" and len(node.input) > 2:
                shape = np.array([1, -1, *[1] * (len(stored[weight].dims) - 2)], np.int64)
                name = f"{node.output[0]}_bias_reshape_shape"  # the bias is added in this shape
                codes_of[weight].append(onnx.numpy_helper.from_array(shape, name))
        subject.graph.initializer.extend(tensor for tensors in codes_of.values() for tensor in tensors)
        models.replace_nodes(subject.graph, nodes)
        models.drop_unread_weights(subject)
        models.clear_value_info(subject)
        operators = models.count_operators(subject)
        names = ("MatMulInteger", "ConvInteger", "DynamicQuantizeLinear")
        self.found["operators"] = {name: operators.get(name, 0) for name in names}
        return subject

    @property
    def products(self) -> frozenset[str]:
        operators = frozenset(self.params.op_types_to_quantize) - {"Gather"}
        return operators | {"MatMul"} if "Gemm" in operators else operators

    def _coded(self, tensor: Any) -> list[Any]:
        """Return the tensors of a weight's codes, zero points and scales; only a matrix gets a scale for each column."""
        import onnx

        weight = onnx.numpy_helper.to_array(tensor)
        axis = -1 if self.params.per_channel and weight.ndim == 2 else None
        limit = REDUCED_LIMIT if self.params.reduce_range else LIMIT
        if self.params.weight_type == "QInt8":
            values, scales, zeros = _code(weight, axis, -limit, limit)
        else:
            values, scales, zeros = _code(weight, axis, 0, LIMIT if self.params.reduce_range else 255)
        shape = (-1,) if axis is not None else ()
        parts = {
            "quantized": values,
            "zero_point": zeros.astype(values.dtype).reshape(shape),
            "scale": scales.reshape(shape),
        }
        return [onnx.numpy_helper.from_array(array, f"{tensor.name}_{part}") for part, array in parts.items()]


def _code(weight: Any, axis: int | None, low: int, high: int) -> tuple[Any, Any, Any]:
    """Return the codes of a float32 weight, and its scales and zero points along `axis` (None: one for the tensor).

    The weight is about `(codes - zeros) * scales`. If `low` is below 0, codes are int8 and the range is symmetric; else
    they are uint8. The range includes 0. A scale below the smallest normal number, as for a weight of zeros, becomes 1.
    """
    import numpy as np

    others = tuple(at for at in range(weight.ndim) if axis is None or at != axis % weight.ndim)
    ends = (end(axis=others, keepdims=True, initial=0) for end in (weight.min, weight.max))
    least, most = (end.astype(np.float64) for end in ends)
    if low < 0:
        most = np.maximum(-least, most)
        least = -most
    wide = (most - least) / (high - low)
    scales = np.where(wide < np.finfo(np.float32).tiny, 1, wide)
    zeros = np.zeros(scales.shape, np.float32)
    if low == 0:
        zeros = np.where(scales == wide, np.rint(-least / scales), 0).astype(np.float32)
    scales = scales.astype(np.float32)
    values = weight / scales
    np.rint(values, out=values)
    values += zeros
    kind = np.iinfo(np.int8 if low < 0 else np.uint8)
    return np.clip(values, kind.min, kind.max, out=values).astype(kind.dtype), scales, zeros


def _product(node: Any, activation: str, weight: str) -> Iterator[Any]:
    """Yield the nodes that replace a MatMul or Conv: the integer product, the product with both scales, and a Conv's bias."""
    import onnx

    make, output = onnx.helper.make_node, node.output[0]
    name = f"{node.name}_quant" if node.name else ""
    operands = [f"{one}_{part}" for part in ("quantized", "zero_point") for one in (activation, weight)]
    product, scales = f"{output}_output_quantized", f"{name or output}_scales_mul"
    bias = next((one for one in node.input[2:] if one), None)
    result = f"{output}quant_scaled_output" if bias else output
    integers = make(f"{node.op_type}Integer", operands, [product], name)
    integers.attribute.extend(node.attribute)
    yield integers
    yield make("Cast", [product], [f"{product}_cast_output"], f"{product}_cast", to=onnx.TensorProto.FLOAT)
    yield make("Mul", [f"{activation}_scale", f"{weight}_scale"], [f"{scales}:0"], scales)
    factors = [f"{product}_cast_output", f"{scales}:0"]
    yield make("Mul", factors, [result], f"{name}_output_scale_mul" if name else "")
    if bias:
        across = f"{output}_bias_reshape_output"
        yield make("Reshape", [bias, f"{output}_bias_reshape_shape"], [across])
        yield make("Add", [result, across], [output], f"{output}_bias_add")


class OrtDynamicQuantization(GraphPass):
    """Quantize with `onnxruntime.quantization.quantize_dynamic` itself, for a comparison with what other tools publish.

    The default parameters are those of that function: one scale for each tensor, and embedding tables are quantized too.
    Optimum's configurations differ in `per_channel`. A Gemm stays in float32.
    """

    id = "OrtDynamicQuantization"
    version = 2

    class Params(PassParams):
        weight_type: Literal["QInt8", "QUInt8"] = "QInt8"
        per_channel: bool = False
        reduce_range: bool = False

    def apply(self, subject: Any) -> Any:
        def quantize(*files: Path, **options: Any) -> None:
            from onnxruntime.quantization import QuantType, quantize_dynamic

            weight_type = QuantType[self.params.weight_type]
            quantize_dynamic(*files, **options, **self.params.model_dump() | {"weight_type": weight_type})

        quantized = by_files(self.id, subject, quantize)
        saved = models.weight_bytes(subject) - models.weight_bytes(quantized)
        self.found["quantized_bytes"] = saved * 4 // 3
        return quantized


def by_files(label: str, subject: Any, quantize: Callable[..., None]) -> Any:
    """Quantize a graph with a function of ONNX Runtime that takes two paths and `use_external_data_format`.

    Nodes without a name get one; the runtime's notes are left out. Raises ConversionError, naming `label`, on failure.
    """
    models.clear_value_info(subject)
    models.name_nodes(subject)
    failure, printed = "ONNX Runtime could not quantize the graph", redirect_stdout(StringIO())
    with models.scratch() as directory, models.tool(label, failure), printed:
        source, target = directory / "float.onnx", directory / "quantized.onnx"
        quantize(source, target, use_external_data_format=len(models.save(subject, source)) > 1)
        quantized = models.load(target)
    del quantized.metadata_props[:]
    quantized.metadata_props.extend(subject.metadata_props)
    models.clear_value_info(quantized)
    models.drop_unused_imports(quantized)
    return quantized


class OnnxBlockWiseRtnQuantization(QuantizationPass):
    """Convert each MatMul with a constant matrix to a `MatMulNBits` of the domain `com.microsoft`.

    Each block of `block_size` weights in a column has one scale, and a zero point unless `is_symmetric`.
    `accuracy_level` is the type to which the runtime may round activations: 0 any, 1 float32, 2 float16, 3
    bfloat16, 4 int8. With `gemm` each Gemm with a constant matrix becomes a MatMul and an Add first.
    Activations and all other weights do not change.
    """

    id = "OnnxBlockWiseRtnQuantization"
    version = 2

    class Params(PassParams):
        bits: Literal[4, 8] = 4
        block_size: Literal[16, 32, 64, 128, 256] = 128
        is_symmetric: bool = True
        accuracy_level: Literal[0, 1, 2, 3, 4] = 0
        nodes_to_exclude: tuple[str, ...] = ()
        gemm: bool = False

    def prepare(self, subject: Any) -> None:
        if self.params.gemm:
            models.unfold_gemms(subject, self.params.nodes_to_exclude)

    def apply(self, subject: Any) -> Any:
        options = self.params.model_dump(exclude={"gemm", "nodes_to_exclude"})
        with models.tool(self.id, "ONNX Runtime could not quantize the graph"):
            from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

            excluded = list(self.params.nodes_to_exclude)
            quantizer = MatMulNBitsQuantizer(
                subject, nodes_to_exclude=excluded, op_types_to_quantize=("MatMul",), **options
            )
            quantizer.process()
        quantized = quantizer.model.model
        models.clear_value_info(quantized)
        models.drop_unread_weights(quantized)
        return quantized

    @property
    def products(self) -> frozenset[str]:
        return frozenset({"MatMul", "Gemm"} if self.params.gemm else {"MatMul"})


class WeightQuantization(QuantizationPass):
    """Store each constant matrix of MatMul and Gemm as int8 codes: each block of a column's weights has one scale.

    Cast, Mul and Reshape turn codes and scales into the matrix, and ONNX Runtime computes that once, when it loads the graph:
    the file is small, every runtime that loads the graph's opset loads the file, and it takes the time and the memory of
    the graph in full precision. A column whose length `block_size` does not divide is one block. Activations and all other
    weights do not change.
    """

    id = "WeightQuantization"
    products = frozenset({"MatMul", "Gemm"})

    class Params(PassParams):
        block_size: Literal[16, 32, 64, 128, 256] = 32
        nodes_to_exclude: tuple[str, ...] = ()

    def apply(self, subject: Any) -> Any:
        import numpy as np
        import onnx

        weights, make, fresh = self.factors(subject), onnx.helper.make_node, models.fresh_names(subject)
        for body in within(subject.graph):
            nodes: list[Any] = []
            for tensor in [item for item in body.initializer if item.name in weights]:
                weight = onnx.numpy_helper.to_array(tensor)
                if not np.isfinite(weight).all():
                    raise ConversionError(f"{tensor.name} holds NaN or infinity")
                *outer, length, width = weight.shape
                size = length if length % self.params.block_size else self.params.block_size
                blocks = weight.reshape(*outer, length // size, size, width).astype(np.float32)
                scales = (
                    (np.abs(blocks).max(-2, keepdims=True) / LIMIT).astype(weight.dtype).astype(np.float32)
                )
                scales[scales < np.finfo(weight.dtype).tiny] = 1
                codes = np.clip(np.rint(blocks / scales), -LIMIT, LIMIT).astype(np.int8)
                shape = np.array(weight.shape, np.int64)
                parts = {"codes": codes, "scales": scales.astype(weight.dtype), "shape": shape}
                names = {part: fresh(f"{tensor.name}_{part}") for part in (*parts, "floats", "blocks")}
                nodes += [
                    make("Cast", [names["codes"]], [names["floats"]], to=tensor.data_type),
                    make("Mul", [names["floats"], names["scales"]], [names["blocks"]]),
                    make("Reshape", [names["blocks"], names["shape"]], [tensor.name]),
                ]
                body.initializer.remove(tensor)
                body.initializer.extend(
                    onnx.numpy_helper.from_array(parts[part], names[part]) for part in parts
                )
            models.replace_nodes(body, [*nodes, *body.node])
        models.clear_value_info(subject)
        return subject


class EmbeddingQuantization(GraphPass):
    """Quantize each float32 table that only Gather reads rows of: int8 codes, and a float32 scale for each row.

    Gather reads a row's codes, which Cast and Mul turn into floats, so every runtime that loads the graph's opset loads the
    result. Activations and all other weights do not change. The codes are symmetric: a row's largest value has the code 127.
    """

    id = "EmbeddingQuantization"

    def apply(self, subject: Any) -> Any:
        models.inline_functions(subject)
        size = sum(map(tensor_bytes, find_tables(subject)))
        self.found = {"quantized_bytes": size, "embeddings": quantize_tables(subject)}
        models.clear_value_info(subject)
        return subject


def find_tables(subject: Any) -> list[Any]:
    """Return the float32 matrices of the main graph that only Gather along the first axis reads."""
    rows, others = set[str](), {value.name for value in (*subject.graph.input, *subject.graph.output)}
    for body in within(subject.graph):
        for node in body.node:
            is_gather = body is subject.graph and node.op_type == "Gather" and models.is_standard(node)
            reads_rows = is_gather and models.attribute(node, "axis", 0) == 0
            rows.update(node.input[:1] if reads_rows else ())
            others.update(node.input[1:] if reads_rows else node.input)
    return [
        tensor
        for tensor in subject.graph.initializer
        if tensor.data_type == tensor.FLOAT and len(tensor.dims) == 2 and tensor.name in rows - others
    ]


def quantize_tables(subject: Any) -> dict[str, Any]:
    """Quantize the tables of a graph in place. Raises ConversionError if there are no tables, or if a row is wrong.

    Returns `tables`, `tables_quantized`, and `min_row_cosine`, the lowest cosine of a row with its original.
    """
    import numpy as np
    import onnx

    models.name_nodes(subject)
    least, names, fresh = 1.0, dict[str, list[str]](), models.fresh_names(subject)
    for tensor in find_tables(subject):
        table = onnx.numpy_helper.to_array(tensor).astype(np.float32)
        if not np.isfinite(table).all():
            raise ConversionError(f"the table {tensor.name} holds NaN or infinity")
        values, scales, _ = _code(table, 0, -LIMIT, LIMIT)
        names[tensor.name] = [fresh(f"{tensor.name}_{part}") for part in ("codes", "scales")]
        stored = map(onnx.numpy_helper.from_array, (values, scales), names[tensor.name])
        subject.graph.initializer.extend(stored)
        rows = values.astype(np.float32) * scales
        norms = np.linalg.norm(table, axis=1) * np.linalg.norm(rows, axis=1)
        cosines = (table * rows).sum(axis=1)[norms > 0] / norms[norms > 0]
        least = min(least, float(cosines.min(initial=1.0)))
    if not names:
        raise ConversionError(
            "quantization reached none of the embedding tables",
            "the graph has no table that only Gather reads",
        )
    if not least >= MIN_ROW_COSINE:
        raise ConversionError(f"a row of a quantized table has the cosine {least:.3g} with its original")
    make, nodes = onnx.helper.make_node, list[Any]()
    for node in subject.graph.node:
        if node.op_type != "Gather" or node.input[0] not in names:
            nodes.append(node)
            continue
        (codes_name, scales_name), indices = names[node.input[0]], node.input[1]
        read, scale, wide = (f"{node.name}_{part}" for part in ("codes", "scale", "values"))
        nodes.append(make("Gather", [codes_name, indices], [read], read, axis=0))
        nodes.append(make("Gather", [scales_name, indices], [scale], scale, axis=0))
        nodes.append(make("Cast", [read], [wide], wide, to=onnx.TensorProto.FLOAT))
        nodes.append(make("Mul", [wide, scale], [node.output[0]], f"{node.name}_rows"))
    models.replace_nodes(subject.graph, nodes)
    models.drop_unread_weights(subject)
    return {"tables": len(names), "tables_quantized": len(names), "min_row_cosine": float(f"{least:.6g}")}


class OnnxStaticQuantization(QuantizationPass):
    """Quantize with ONNX Runtime, by the ranges of values on the calibration data.

    Pairs of QuantizeLinear and DequantizeLinear are put around the operators (`quant_format` QDQ); ONNX
    Runtime replaces these by quantized operators when it loads the file. `op_types_to_quantize` is by default
    every operator that ONNX Runtime can quantize. The pass fails unless it quantizes every constant weight of
    a Conv, Gemm or MatMul among them. Nodes that make or apply an attention mask, or compute an index, stay in
    floating point (`float_nodes` in the result): beside a mask of -1e4 or -inf, 8 bits cannot hold the
    scores, and a rounded index would select another row. `percentile` belongs to the method `Percentile`;
    `MSE` takes the range whose codes have the least squared error on the data.
    """

    id = "OnnxStaticQuantization"
    version = 2

    class Params(PassParams):
        weight_type: Literal["QInt8", "QUInt8"] = "QInt8"
        activation_type: Literal["QInt8", "QUInt8"] = "QUInt8"
        quant_format: Literal["QDQ"] = "QDQ"
        calibrate_method: Literal["MinMax", "Entropy", "Percentile", "MSE"] = "MinMax"
        percentile: float = Field(99.999, gt=50, le=100)
        per_channel: bool = True
        reduce_range: bool = False
        op_types_to_quantize: tuple[str, ...] | None = None
        nodes_to_exclude: tuple[str, ...] = ()

    def requires(self, subject: Any) -> None:
        super().requires(subject)
        samples.check(self.data or (), subject, self.id)
        method = self.params.calibrate_method
        sizes = {tuple(sorted((name, array.shape) for name, array in row.items())) for row in self.data or ()}
        if method != "MinMax" and len(sizes) > 1:
            raise InputError(
                f"{self.id}: calibration by {method} takes rows of one size, and these have {len(sizes)}",
                "pad the rows to one size, or calibrate by MinMax",
            )

    def apply(self, subject: Any) -> Any:
        models.name_nodes(subject)
        # ONNX Runtime (1.31) gives all readers of a matrix the channels of the first, transposed or not
        models.unfold_gemms(subject, only_shared=True)
        if names := float_nodes(subject):
            self.found["float_nodes"] = names
        self.note_stacks(subject)
        quantized = by_files(self.id, subject, self._quantize)
        data = self.data or ()
        self.found["calibration"] = {"samples": len(data), "dataset": str(samples.digest(data))}
        self.found["operators"] = models.count_operators(quantized)
        return quantized

    def _quantize(self, source: Path, target: Path, use_external_data_format: bool) -> None:
        from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
        from onnxruntime.quantization.calibrate import save_tensors_data
        from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

        params, method, ranges = self.params, self.params.calibrate_method, None
        data = SimpleNamespace(get_next=partial(next, map(dict, self.data or ()), None))
        # sorted: ONNX Runtime's own default is in hash order, and so is what it writes
        operators = sorted(params.op_types_to_quantize or {*QDQRegistry, *QLinearOpsRegistry})
        symmetric = [{"symmetric": params.weight_type == "QInt8"}]
        if method == "MSE":
            method, ranges = "MinMax", target.with_suffix(".json")
            nearest = nearest_ranges(source, data, operators, use_external_data_format)
            save_tensors_data(nearest, ranges)
        quantize_static(
            source,
            target,
            data,
            quant_format=QuantFormat[params.quant_format],
            op_types_to_quantize=operators,
            per_channel=params.per_channel,
            reduce_range=params.reduce_range,
            activation_type=QuantType[params.activation_type],
            weight_type=QuantType[params.weight_type],
            nodes_to_exclude=[*params.nodes_to_exclude, *self.found.get("float_nodes", ())],
            use_external_data_format=use_external_data_format,
            calibrate_method=CalibrationMethod[method],
            calibration_cache_path=ranges,
            extra_options={
                "CalibPercentile": params.percentile,
                "TensorQuantOverrides": dict.fromkeys(self.found.get("per_tensor", ()), symmetric),
            },
        )

    @property
    def products(self) -> frozenset[str]:
        operators = self.params.op_types_to_quantize
        return PRODUCTS if operators is None else PRODUCTS & set(operators)


def nearest_ranges(source: Path, data: Any, operators: list[str], is_large: bool) -> Any:
    """Return a range for each activation: the share (`SHARES`) whose 256 codes have the least squared error on the data.

    Errors are estimated from a histogram (`onnxruntime.quantization.calibrate.TensorsData`); each range contains 0.
    """
    import numpy as np
    from onnxruntime.quantization import CalibrationMethod, create_calibrator
    from onnxruntime.quantization.calibrate import TensorsData

    calibrator = create_calibrator(
        source,
        operators,
        source.with_suffix(".augmented.onnx"),
        CalibrationMethod.Percentile,
        is_large,
        extra_options={"symmetric": False},
    )
    calibrator.collect_data(data)
    ranges, shares = {}, np.array(SHARES, np.float32)[:, None]
    for name, (counts, edges, least, most, _) in calibrator.collector.get_histogram_dict().items():
        values = (edges[:-1] + edges[1:]) / 2
        low, high = shares * min(least, 0), shares * max(most, 0)
        steps = np.maximum((high - low) / 255, np.finfo(np.float32).tiny)
        codes = np.clip(np.rint(values / steps), np.rint(low / steps), np.rint(high / steps))
        nearest = np.argmin((values - codes * steps) ** 2 @ counts)
        ranges[name] = low[nearest, 0], high[nearest, 0]
    return TensorsData(CalibrationMethod.MinMax, ranges)


def float_nodes(model: Any) -> list[str]:
    """Return the names of the nodes whose values 8 bits cannot hold.

    Such a node reads a mask (a Softmax or a similar operator), carries a mask to one that does, or computes an index.
    """
    import onnx

    integers = {onnx.TensorProto.INT32, onnx.TensorProto.INT64}
    masks = {tensor.name for tensor in model.graph.initializer if _is_mask(tensor)}
    for node in model.graph.node:
        is_mask = any(_is_mask(entry.t) for entry in node.attribute if entry.HasField("t"))
        if is_mask or (node.op_type in CARRYING and masks.intersection(node.input)):
            masks.update(node.output)
    names: list[str] = []
    masked: set[str] = set()
    indices: set[str] = set()
    for node in reversed(model.graph.node):
        if (node.op_type in MASKED or masked.intersection(node.output)) and masks.intersection(node.input):
            names.append(node.name)
            masked.update(masks.intersection(node.input))
        elif node.op_type == "Cast" and models.attribute(node, "to", 0) in integers:
            indices.update(node.input)
        elif node.op_type in ARITHMETIC and indices.intersection(node.output):
            names.append(node.name)
            indices.update(node.input)
    return names[::-1]


def _is_mask(tensor: Any) -> bool:
    import onnx

    if tensor.data_type not in (tensor.FLOAT, tensor.FLOAT16, tensor.DOUBLE, tensor.BFLOAT16):
        return False
    values = onnx.numpy_helper.to_array(tensor)
    return bool(values.size and max(values.max(), -values.min()) >= MASK_SIZE)


class SmoothQuant(GraphPass):
    """Move the outliers of normalized activations into the weights that they are multiplied by, channel by channel.

    Before the MatMuls that read a normalization's output, a Mul divides each channel by a scale; the rows of the MatMuls'
    matrices are multiplied by the scales. A scale is `peak ** alpha / weight ** (1 - alpha)`, from the channel's largest
    activation and weight (Xiao et al. 2023, https://arxiv.org/abs/2211.10438), rounded to a power of two, so every product
    is the same number as before. Activations are measured on `data`, by default on drawn inputs. The pass quantizes
    nothing: add a quantization step after it.
    """

    id = "SmoothQuant"
    tolerance = 1e-3

    class Params(PassParams):
        alpha: float = Field(0.5, ge=0, le=1)

    def apply(self, subject: Any) -> Any:
        import numpy as np
        import onnx

        models.inline_functions(subject)
        stored = {tensor.name: tensor for tensor in subject.graph.initializer}
        products, inverse = self._products(subject), dict[str, str]()
        if not products:
            hint = "the graph has no MatMul of a normalized activation with a constant matrix"
            raise ConversionError("smoothing reached no product", hint)
        fresh = models.fresh_names(subject)
        for activation, peaks in self._peaks(subject, list(products)).items():
            matrices = {name: onnx.numpy_helper.to_array(stored[name]) for name in products[activation]}
            weights = np.max([np.abs(matrix).max(axis=1) for matrix in matrices.values()], axis=0)
            is_used = (peaks > 0) & (weights > 0)
            peaks, weights = (np.log2(np.where(is_used, one, 1)) for one in (peaks, weights))
            exponents = np.rint(self.params.alpha * peaks - (1 - self.params.alpha) * weights)
            exponents = np.clip(exponents - np.rint(np.median(exponents)), -MAX_SHIFT, MAX_SHIFT)
            scales = np.exp2(exponents).astype(np.float32)
            for name, matrix in matrices.items():
                stored[name].CopyFrom(onnx.numpy_helper.from_array(matrix * scales[:, None], name))
            inverse[activation] = fresh(f"{activation}_inverse_scales")
            subject.graph.initializer.append(onnx.numpy_helper.from_array(1 / scales, inverse[activation]))
        self.found["activations"] = len(inverse)
        smoothed, nodes = dict[str, str](), list[Any]()
        for node in subject.graph.node:
            activation = node.input[0] if node.op_type == "MatMul" else ""
            if node.input[1:2] and node.input[1] in products.get(activation, ()):
                if name := inverse.pop(activation, ""):
                    smooth = smoothed[activation] = fresh(f"{activation}_smoothed")
                    nodes.append(onnx.helper.make_node("Mul", [activation, name], [smooth], smooth))
                node.input[0] = smoothed[activation]
            nodes.append(node)
        models.replace_nodes(subject.graph, nodes)
        models.clear_value_info(subject)
        return subject

    def _products(self, subject: Any) -> dict[str, list[str]]:
        """Return, for each normalized activation, the float32 matrices that multiply it and that no other node reads."""
        readers = Counter(name for body in within(subject.graph) for node in body.node for name in node.input)
        readers.update(value.name for value in (*subject.graph.input, *subject.graph.output))
        floats = [one for one in subject.graph.initializer if one.data_type == one.FLOAT]
        vectors = {one.name for one in floats if len(one.dims) == 1}
        matrices = {one.name for one in floats if len(one.dims) == 2 and readers[one.name] == 1}
        normalized, stretched, products = set[str](), set[str](), dict[str, list[str]]()
        for node in subject.graph.node:
            if not (models.is_standard(node) or node.op_type in NORMALIZATIONS):
                continue
            is_shift = node.op_type == "Add" and not stretched.isdisjoint(node.input)
            if node.op_type == "Mul" and not vectors.isdisjoint(node.input):
                stretched.update(node.output)
            elif node.op_type in NORMALIZATIONS or (is_shift and not vectors.isdisjoint(node.input)):
                normalized.update(node.output[:1])
            elif node.op_type == "MatMul" and node.input[0] in normalized and node.input[1] in matrices:
                products.setdefault(node.input[0], []).append(node.input[1])
        return products

    def _peaks(self, subject: Any, names: list[str]) -> dict[str, Any]:
        """Return the largest magnitude in each channel of the values with these names."""
        import numpy as np
        import onnx

        tapped = deepcopy(subject)
        del tapped.graph.output[:]
        tapped.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        feeds = self.data or samples.draw(subject, sizes=({"batch": DRAWN_ROWS},) * 2)
        peaks = dict[str, Any]()
        for run in samples.all_outputs(tapped, feeds, self.id):
            for name, values in run.items():
                own = np.abs(values.reshape(-1, values.shape[-1])).max(axis=0, initial=0)
                peaks[name] = np.maximum(peaks.get(name, 0), own)
        return peaks
