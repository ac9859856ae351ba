"""Passes that quantize to 8 bits or fewer: weights and activations, only weights, or only embedding tables.

`OnnxDynamicQuantization` makes the same graph and bits as `onnxruntime.quantization.quantize_dynamic`, 30 times as
fast. The formulas come from ONNX Runtime (`compute_scale_zp` and `quantize_nparray`).
"""

from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache, partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from pydantic import Field

from onnxreg.converters.onnx.tensors import FLOATS, type_of
from onnxreg.converters.passes import models, samples
from onnxreg.converters.passes.base import GraphPass, PassParams, QuantizationPass
from onnxreg.schema.core.errors import ConversionError, InputError

FLOAT, INTEGERS = 1, frozenset({6, 7})
LIMIT = 127
RANGES = {"QInt8": ((-LIMIT, LIMIT), (-64, 64)), "QUInt8": ((0, 255), (0, 127))}
"""For each weight type, the smallest and largest code by default, and those with `reduce_range`."""
MIN_ROW_COSINE = 0.99  # the lowest accepted cosine of a quantized row with the original row
DRAWN_ROWS, MAX_SHIFT = 16, 12
"""For `SmoothQuant`: the batch size of random inputs, and the largest exponent of a scale."""
NORMALIZATIONS = frozenset(
    f"{kind}Normalization" for kind in ("Layer", "SimplifiedLayer", "RMS", "SkipLayer", "SkipSimplifiedLayer")
)
"""The normalizations that are a single operator. Others end with a Mul and an Add of stored vectors."""
SHARES = tuple(number / 64 for number in range(64, 7, -1))
"""The ranges that the method `MSE` tries, as shares of an activation's whole range."""
PRODUCTS = frozenset({"Conv", "Gemm", "MatMul"})
MASK_SIZE = 1e3  # constants of this magnitude or more may be attention masks
MASKED = frozenset(
    {"Softmax", "LogSoftmax", "Exp", "ReduceLogSumExp", "ReduceMax", "ReduceMin", "TopK", "ArgMax", "ArgMin"}
)
_CARRYING = """
    Add Cast CastLike Concat Expand Flatten Gather GatherElements GatherND Identity Mul Neg Reshape ScatterElements
    ScatterND Slice Split Squeeze Sub Tile Transpose Trilu Unsqueeze Where
"""
CARRYING = frozenset(_CARRYING.split())  # operators through which the values of an attention mask may flow
ARITHMETIC = CARRYING | {"Abs", "Ceil", "Clip", "Div", "Floor", "Log", "Max", "Min", "Pow", "Round", "Sqrt"}
"""Operators by which a graph may compute an index in floating point."""


class OnnxDynamicQuantization(QuantizationPass):
    """Quantize weights to 8 bits when the graph is made, and activations to uint8 at run time.

    `QInt8` weights are symmetric; `QUInt8` weights have a zero point. Each channel has a scale; with a scale per
    tensor, MiniLM's mean cosine with its parent falls from .993 to .963. A Gemm becomes a MatMul and an Add first. With
    `Gather` in `op_types_to_quantize`, tables are quantized as by `EmbeddingQuantization`.
    """

    id = "OnnxDynamicQuantization"
    version = 5

    class Params(PassParams):
        weight_type: Literal["QInt8", "QUInt8"] = "QInt8"
        op_types_to_quantize: tuple[Literal["MatMul", "Gemm", "Conv", "Gather"], ...] = ("MatMul", "Gemm")
        nodes_to_exclude: tuple[str, ...] = ()
        per_channel: bool = True
        reduce_range: bool = False

    def prepare(self, subject: Any) -> None:
        stay = {"MatMul", "Gemm"}.difference(self.params.op_types_to_quantize)
        if self.params.nodes_to_exclude or len(stay) == 1:
            models.name_nodes(subject)
        others = (node.name for node in subject.graph if node.op_type in stay and node.name)
        self.excluded = {*self.params.nodes_to_exclude, *others}
        models.drop_second_names(subject)
        models.fold_transposes(subject)
        if "Gemm" in self.params.op_types_to_quantize:
            models.unfold_gemms(subject, self.excluded)
        halves = [value.name for value in self.factors(subject) if value.const_value.dtype != FLOAT]
        if halves:
            raise InputError(
                f"{self.id} takes weights in float32, and {len(halves)} are float16: {', '.join(halves)[:100]}",
                "quantize the float32 graph (input: STEP), or use OnnxBlockWiseRtnQuantization, which takes float16",
            )

    def apply(self, subject: Any) -> Any:
        import onnx_ir as ir

        has_tables = "Gather" in self.params.op_types_to_quantize
        if has_tables:
            models.name_nodes(subject)
        self.note_stacks(subject)
        if has_tables:
            self.found["embeddings"] = quantize_tables(subject)
        weights, codes, activations = {*self.factors(subject)}, cache(self._store_codes), dict[Any, Any]()
        for node in list(subject.graph):
            is_product = node.op_type in self.products - {"Gemm"} and not node.domain
            if not is_product or node.name in self.excluded or node.inputs[1] not in weights:
                continue
            value, weight = node.inputs[:2]
            if value not in activations:
                base = f"{value.name}_input" if value in weights else value.name  # also a weight
                names = [f"{base}_{part}" for part in ("quantized", "scale", "zero_point")]
                outputs = [ir.Value(name=name) for name in names]
                label = f"{base}_QuantizeLinear"
                quantize = ir.node("DynamicQuantizeLinear", [value], outputs=outputs, name=label)
                subject.graph.insert_before(node, quantize)
                activations[value] = outputs
            _multiply_codes(node, *activations[value], *codes(weight))
        models.drop_unread_weights(subject)
        operators = models.count_operators(subject)
        kinds = ("MatMulInteger", "ConvInteger", "DynamicQuantizeLinear")
        self.found["operators"] = {name: operators.get(name, 0) for name in kinds}
        return subject

    @property
    def products(self) -> frozenset[str]:
        operators = frozenset(self.params.op_types_to_quantize) - {"Gather"}
        return operators | {"MatMul"} if "Gemm" in operators else operators

    def _store_codes(self, value: Any) -> list[Any]:
        weight = value.const_value.numpy()
        axis = -1 if self.params.per_channel and weight.ndim == 2 else None
        low, high = RANGES[self.params.weight_type][self.params.reduce_range]
        codes, scales, zeros = _code(weight, axis, low, high)
        shape = (-1,) if axis is not None else ()
        zeros, scales = zeros.astype(codes.dtype).reshape(shape), scales.reshape(shape)
        parts = {"quantized": codes, "zero_point": zeros, "scale": scales}
        return [models.store(value.graph, f"{value.name}_{part}", array) for part, array in parts.items()]


def _code(weight: Any, axis: int | None, low: int, high: int) -> tuple[Any, Any, Any]:
    """Return codes, scales and zero points: a float32 weight is about `(codes - zeros) * scales`.

    Each index along `axis` (None: the tensor) has a scale. If `low` is below 0, codes are symmetric int8, else uint8.
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


def _multiply_codes(
    node: Any, left: Any, left_scale: Any, left_zero: Any, right: Any, right_zero: Any, right_scale: Any
) -> None:
    import numpy as np

    output, name = node.outputs[0].name, f"{node.name}_quant" if node.name else ""
    product, scales = f"{output}_output_quantized", f"{name or output}_scales_mul"
    bias = next(filter(None, node.inputs[2:]), None)
    with models.replaced(node) as add:
        operands = [left, right, left_zero, right_zero]
        integers = add(f"{node.op_type}Integer", operands, product, name, **node.attributes)
        floats = add("Cast", [integers], f"{product}_cast_output", f"{product}_cast", to=FLOAT)
        scale = add("Mul", [left_scale, right_scale], f"{scales}:0", scales)
        result = f"{output}quant_scaled_output" if bias else ""
        scaled = add("Mul", [floats, scale], result, f"{name}_output_scale_mul" if name else "")
        if bias:
            dims = np.array([1, -1, *[1] * (len(right.const_value.shape) - 2)], np.int64)
            shape = models.store(node.graph, f"{output}_bias_reshape_shape", dims)
            across = add("Reshape", [bias, shape], f"{output}_bias_reshape_output")
            add("Add", [scaled, across], name=f"{output}_bias_add")


class OrtDynamicQuantization(GraphPass):
    """Quantize with `onnxruntime.quantization.quantize_dynamic`, to compare with graphs that other tools publish.

    The defaults are those of this function: a scale for each tensor, and quantized embedding tables.
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

    Raises ConversionError about `label` if it fails.
    """
    models.name_nodes(subject)
    failure, printed = "ONNX Runtime could not quantize the graph", redirect_stdout(StringIO())
    with models.scratch() as directory, models.tool(label, failure), printed:
        source, target = directory / "float.onnx", directory / "quantized.onnx"
        quantize(source, target, use_external_data_format=len(models.save(subject, source)) > 1)
        quantized = models.load(target)
    quantized.metadata_props.clear()
    quantized.metadata_props.update(subject.metadata_props)
    models.drop_unused_imports(quantized)
    return quantized


class OnnxBlockWiseRtnQuantization(QuantizationPass):
    """Convert each MatMul with a constant matrix to a `MatMulNBits` of the domain `com.microsoft`.

    Each block of `block_size` weights in a column has a scale, and a zero point if `is_symmetric` is false.
    `accuracy_level` is the type to which the runtime may round activations: 0 any, 1 float32, 2 float16, 3 bfloat16, 4
    int8. With `gemm`, each Gemm with a constant matrix becomes a MatMul and an Add first.
    """

    id = "OnnxBlockWiseRtnQuantization"
    version = 3

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
                models.to_proto(subject),
                nodes_to_exclude=excluded,
                op_types_to_quantize=("MatMul",),
                **options,
            )
            quantizer.process()
        return models.from_tool(quantizer.model.model)

    @property
    def products(self) -> frozenset[str]:
        return frozenset({"MatMul", "Gemm"} if self.params.gemm else {"MatMul"})


class WeightQuantization(QuantizationPass):
    """Store each constant matrix of MatMul and Gemm as int8 codes, with a scale for each block of a column.

    ONNX Runtime computes the matrix once, when it loads the graph. So only the file is smaller, not the memory of a
    run. A column is a single block if `block_size` does not divide its length. In a Conv's kernel, the weights with the
    same first index are a column. With Conv in `op_types_to_quantize`, nodes before a Ceil stay floats, because a Ceil
    computes the length of a sound.
    """

    id = "WeightQuantization"
    version = 2

    class Params(PassParams):
        block_size: Literal[16, 32, 64, 128, 256] = 32
        nodes_to_exclude: tuple[str, ...] = ()
        op_types_to_quantize: tuple[Literal["MatMul", "Gemm", "Conv", "ConvTranspose"], ...] = (
            "MatMul",
            "Gemm",
        )

    @property
    def products(self) -> frozenset[str]:
        return frozenset(self.params.op_types_to_quantize)

    def prepare(self, subject: Any) -> None:
        if "Conv" in self.products:
            models.name_nodes(subject)
            before = {node for node in subject.graph if node.op_type == "Ceil"}
            waiting = [*before]
            while waiting:
                fresh = {*waiting.pop().predecessors()} - before
                before |= fresh
                waiting += fresh
            self.excluded = {*self.params.nodes_to_exclude, *(node.name for node in before)}

    def apply(self, subject: Any) -> Any:
        import numpy as np
        import onnx_ir as ir

        weights, fresh = self.factors(subject), models.fresh_names(subject)
        for body in subject.graphs():
            tape = ir.tape.Tape()
            for value in [one for one in body.initializers.values() if one in weights]:
                weight = value.const_value.numpy()
                is_kernel = any(node.op_type.startswith("Conv") for node in value.consumers())
                *outer, length, width = (len(weight), weight[0].size, 1) if is_kernel else weight.shape
                size = length if length % self.params.block_size else self.params.block_size
                blocks = weight.reshape(*outer, length // size, size, width).astype(np.float32)
                scales = np.abs(blocks).max(-2, keepdims=True) / LIMIT
                scales = scales.astype(weight.dtype).astype(np.float32)
                scales[scales < np.finfo(weight.dtype).tiny] = 1
                codes = np.clip(np.rint(blocks / scales), -LIMIT, LIMIT).astype(np.int8)
                shape = np.array(weight.shape, np.int64)
                parts = {"codes": codes, "scales": scales.astype(weight.dtype), "shape": shape}
                names = {part: fresh(f"{value.name}_{part}") for part in (*parts, "floats", "blocks")}
                stored = [models.store(body, names[part], array) for part, array in parts.items()]
                kind = value.const_value.dtype
                floats, wide = (ir.Value(name=names[part]) for part in ("floats", "blocks"))
                tape.op("Cast", stored[:1], {"to": kind}, name="", output=floats)
                tape.op("Mul", [floats, stored[1]], name="", output=wide)
                matrix = tape.op("Reshape", [wide, stored[2]], name="", output=ir.Value(name=value.name))
                del body.initializers[value.name]
                value.replace_all_uses_with(matrix, replace_graph_outputs=True)
            if tape.nodes:
                body.insert_before(body[0], tape.nodes)
        return subject


class EmbeddingQuantization(GraphPass):
    """Store each embedding table as int8 codes, with a float32 scale for each row.

    An embedding table is a float32 matrix that only Gather reads, row by row.
    """

    id = "EmbeddingQuantization"
    version = 2

    def apply(self, subject: Any) -> Any:
        models.inline_functions(subject)
        models.name_nodes(subject)
        size = sum(value.const_value.nbytes for value in find_tables(subject))
        self.found = {"quantized_bytes": size, "embeddings": quantize_tables(subject)}
        models.drop_unread_weights(subject)
        return subject


def find_tables(model: Any) -> list[Any]:
    """Return the float32 matrices (`onnx_ir.Value`) that are only read by Gather along the first axis."""

    def reads_rows(node: Any, position: int) -> bool:
        is_gather = node.op_type == "Gather" and not node.domain and node.graph is model.graph
        return is_gather and position == 0 and node.attributes.get_int("axis", 0) == 0

    return [
        value
        for value in model.graph.initializers.values()
        if models.rank_of(value, {FLOAT}) == 2
        and value.uses()
        and all(reads_rows(*use) for use in value.uses())
        and not value.is_graph_output()
    ]


def quantize_tables(model: Any) -> dict[str, Any]:
    """Quantize the embedding tables of a graph. Return counts of tables, and the lowest cosine of a row.

    Raises ConversionError if there are no tables, or if the cosine of a row is below `MIN_ROW_COSINE`.
    """
    import numpy as np

    least, tables, fresh = 1.0, find_tables(model), models.fresh_names(model)
    for value in tables:
        table = value.const_value.numpy()
        if not np.isfinite(table).all():
            raise ConversionError(f"the table {value.name} holds NaN or infinity")
        codes, scales, _ = _code(table, 0, -LIMIT, LIMIT)
        rows = codes.astype(np.float32) * scales
        least = min(least, float(samples.cosines(table, rows, 1.0).min(initial=1.0)))
        names = [fresh(f"{value.name}_{part}") for part in ("codes", "scales")]
        stored = list(map(partial(models.store, model.graph), names, (codes, scales)))
        for node, _ in value.uses():
            label, indices = node.name, node.inputs[1]
            with models.replaced(node) as add:
                read = add("Gather", [stored[0], indices], f"{label}_codes", f"{label}_codes", axis=0)
                scale = add("Gather", [stored[1], indices], f"{label}_scale", f"{label}_scale", axis=0)
                wide = add("Cast", [read], f"{label}_values", f"{label}_values", to=FLOAT)
                add("Mul", [wide, scale], name=f"{label}_rows")
    if not tables:
        hint = "the graph has no table that only Gather reads"
        raise ConversionError("quantization reached none of the embedding tables", hint)
    if not least >= MIN_ROW_COSINE:
        raise ConversionError(f"a row of a quantized table has the cosine {least:.3g} with its original")
    return {"tables": len(tables), "tables_quantized": len(tables), "min_row_cosine": float(f"{least:.6g}")}


class OnnxStaticQuantization(QuantizationPass):
    """Quantize with ONNX Runtime, by the ranges of values on the calibration data.

    Operators get QuantizeLinear and DequantizeLinear around them (`quant_format` QDQ). The default of
    `op_types_to_quantize` is all operators that ONNX Runtime can quantize. Nodes that apply an attention mask or
    compute an index stay in floating point (`float_nodes` in the result). `percentile` is for the method `Percentile`.
    `MSE` takes the range with the least squared error on the data.
    """

    id = "OnnxStaticQuantization"
    version = 3

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
        # ONNX Runtime (1.31) quantizes a shared matrix along the axis of its first reader
        models.unfold_gemms(subject, only_shared=True)
        if names := float_nodes(subject):
            self.found["float_nodes"] = names
        self.note_stacks(subject)
        models.drop_unread_weights(subject)
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
        # sorted, since ONNX Runtime's default, and so its output, is in hash order
        operators = sorted(params.op_types_to_quantize or {*QDQRegistry, *QLinearOpsRegistry})
        symmetric = [{"symmetric": params.weight_type == "QInt8"}]
        if method == "MSE":
            method, ranges = "MinMax", target.with_suffix(".json")
            save_tensors_data(nearest_ranges(source, data, operators, use_external_data_format), ranges)
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
    """Return a range for each activation, as `TensorsData` of ONNX Runtime.

    Each range is a share (one of `SHARES`) of the full range: the one with the least squared error of its 256 codes.
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
    """Return the names of the nodes that apply a mask or compute an index: 8 bits cannot hold such values."""
    masks = {value for value in model.graph.initializers.values() if _is_mask(value.const_value)}
    for node in model.graph:
        is_mask = any(_is_mask(item.value) for item in node.attributes.values() if item.type.name == "TENSOR")
        if is_mask or (node.op_type in CARRYING and masks.intersection(node.inputs)):
            masks.update(node.outputs)
    names: list[str] = []
    masked, indices = set[Any](), set[Any]()
    for node in reversed(model.graph):
        if (node.op_type in MASKED or masked.intersection(node.outputs)) and masks.intersection(node.inputs):
            names.append(node.name)
            masked.update(masks.intersection(node.inputs))
        elif node.op_type == "Cast" and node.attributes.get_int("to", 0) in INTEGERS:
            indices.update(node.inputs)
        elif node.op_type in ARITHMETIC and indices.intersection(node.outputs):
            names.append(node.name)
            indices.update(node.inputs)
    return names[::-1]


def _is_mask(tensor: Any) -> bool:
    if type_of(tensor) not in FLOATS:
        return False
    values = tensor.numpy()
    return bool(values.size and max(values.max(), -values.min()) >= MASK_SIZE)


class SmoothQuant(GraphPass):
    """Make activations easier to quantize: divide each channel by a scale, and multiply the next weights by the scale.

    A scale is `peak ** alpha / weight ** (1 - alpha)`, rounded to a power of two. `peak` and `weight` are the channel's
    largest activation and weight (Xiao et al. 2023, https://arxiv.org/abs/2211.10438). Activations are measured on
    `data`, or on random inputs. Add a quantization step after this pass.
    """

    id = "SmoothQuant"
    version = 2
    tolerance = 1e-3

    class Params(PassParams):
        alpha: float = Field(0.5, ge=0, le=1)

    def apply(self, subject: Any) -> Any:
        import numpy as np
        import onnx_ir as ir

        models.inline_functions(subject)
        products, fresh = self._products(subject), models.fresh_names(subject)
        if not products:
            hint = "the graph has no MatMul of a normalized activation with a constant matrix"
            raise ConversionError("smoothing reached no product", hint)
        peaks_of = self._peaks(subject, [value.name for value in products])
        for value, matrices in products.items():
            arrays = [matrix.const_value.numpy() for matrix in matrices]
            weights = np.max([np.abs(array).max(axis=1) for array in arrays], axis=0)
            peaks = peaks_of[value.name]
            is_used = (peaks > 0) & (weights > 0)
            peaks, weights = (np.log2(np.where(is_used, one, 1)) for one in (peaks, weights))
            exponents = np.rint(self.params.alpha * peaks - (1 - self.params.alpha) * weights)
            exponents = np.clip(exponents - np.rint(np.median(exponents)), -MAX_SHIFT, MAX_SHIFT)
            scales = np.exp2(exponents).astype(np.float32)
            inverse = models.store(subject.graph, fresh(f"{value.name}_inverse_scales"), 1 / scales)
            name = fresh(f"{value.name}_smoothed")
            smooth = ir.node("Mul", [value, inverse], outputs=[ir.Value(name=name)], name=name)
            subject.graph.insert_before(matrices[0].uses()[0].node, smooth)
            for matrix, array in zip(matrices, arrays, strict=True):
                models.store(subject.graph, matrix.name, array * scales[:, None])
                matrix.uses()[0].node.replace_input_with(0, smooth.outputs[0])
        self.found["activations"] = len(products)
        return subject

    def _products(self, model: Any) -> dict[Any, list[Any]]:
        """Map each normalized activation to the float32 matrices that multiply it."""
        normalized, stretched, products = set[Any](), set[Any](), dict[Any, list[Any]]()
        for node in model.graph:
            if node.domain and node.op_type not in NORMALIZATIONS:
                continue
            has_vector = any(models.rank_of(value, {FLOAT}) == 1 for value in node.inputs)
            is_last = node.op_type == "Add" and has_vector and not stretched.isdisjoint(node.inputs)
            if node.op_type == "Mul" and has_vector:
                stretched.update(node.outputs)
            elif node.op_type in NORMALIZATIONS or is_last:
                normalized.add(node.outputs[0])
            elif node.op_type == "MatMul" and node.inputs[0] in normalized:
                matrix = node.inputs[1]
                is_matrix = models.rank_of(matrix, {FLOAT}) == 2
                if is_matrix and len(matrix.uses()) == 1 and not matrix.is_graph_output():
                    products.setdefault(node.inputs[0], []).append(matrix)
        return products

    def _peaks(self, subject: Any, names: list[str]) -> dict[str, Any]:
        import numpy as np

        feeds = self.data or samples.draw(subject, sizes=({"batch": DRAWN_ROWS},) * 2)
        peaks = dict[str, Any]()
        for name, values in samples.inner_values(subject, names, feeds, self.id):
            own = np.abs(values.reshape(-1, values.shape[-1])).max(axis=0, initial=0)
            peaks[name] = np.maximum(peaks.get(name, 0), own)
        return peaks
