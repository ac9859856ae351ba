"""Every pass by name: onnxreg's, and those of other packages (entry points of the group `onnxreg.passes`)."""

import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Any

from onnxreg.converters.passes import (
    base,
    conversion,
    float16,
    graph_passes,
    merge_decoders,
    mobile_safe,
    model_builder,
    ort_format,
    quantization,
)
from onnxreg.converters.passes.base import Pass
from onnxreg.converters.source.toolchain import PlugIns

BUILT_IN: Mapping[str, type[Pass[Any, Any]]] = {
    pass_.id: pass_
    for pass_ in (
        base.Original,
        conversion.OnnxConversion,
        conversion.TransformersExport,
        conversion.TorchScriptExport,
        merge_decoders.MergeDecoders,
        graph_passes.OnnxOpVersionConversion,
        mobile_safe.MobileSafeRewrite,
        float16.OnnxFloatToFloat16,
        float16.OrtMixedPrecision,
        graph_passes.OnnxIODataTypeConverter,
        graph_passes.DynamicToFixedShape,
        quantization.OnnxDynamicQuantization,
        quantization.OnnxStaticQuantization,
        quantization.OnnxBlockWiseRtnQuantization,
        quantization.EmbeddingQuantization,
        graph_passes.OrtTransformersOptimization,
        model_builder.ModelBuilder,
        ort_format.OrtFormat,
        base.GoldenVectors,
        quantization.SmoothQuant,
        quantization.OrtDynamicQuantization,
        quantization.WeightQuantization,
    )
}


def _accept(entry: EntryPoint, pass_: Any) -> type[Pass[Any, Any]] | None:
    is_pass = isinstance(pass_, type) and issubclass(pass_, Pass)
    return pass_ if is_pass and getattr(pass_, "id", None) == entry.name else None


CATALOG: PlugIns[type[Pass[Any, Any]]] = PlugIns("onnxreg.passes", "a pass", BUILT_IN, _accept)
find, names = CATALOG.find, CATALOG.names


def describe(name: str) -> dict[str, Any]:
    """Describe a pass as JSON: `{name, version, summary, package, parameters}`; `parameters` is a JSON Schema."""
    pass_ = find(name)
    text = " ".join((inspect.getdoc(pass_) or "").split("\n\n")[0].split())
    return {
        "name": name,
        "version": pass_.version,
        "summary": text.partition(". ")[0].rstrip("."),
        "package": pass_.__module__.partition(".")[0],
        "parameters": pass_.Params.model_json_schema(mode="validation"),
    }
