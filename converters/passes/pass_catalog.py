"""Every pass by name: the passes of onnxreg, and of other packages (entry points of the group `onnxreg.passes`)."""

import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Any

from onnxreg.converters.passes.base import GoldenVectors, Original, Pass
from onnxreg.converters.passes.conversion import OnnxConversion
from onnxreg.converters.passes.float16 import OnnxFloatToFloat16, OrtMixedPrecision
from onnxreg.converters.passes.graph_passes import (
    DynamicToFixedShape,
    OnnxIODataTypeConverter,
    OnnxOpVersionConversion,
    OrtTransformersOptimization,
)
from onnxreg.converters.passes.merge_decoders import MergeDecoders
from onnxreg.converters.passes.mobile_safe import MobileSafeRewrite
from onnxreg.converters.passes.model_builder import ModelBuilder
from onnxreg.converters.passes.ort_format import OrtFormat
from onnxreg.converters.passes.quantization import (
    EmbeddingQuantization,
    OnnxBlockWiseRtnQuantization,
    OnnxDynamicQuantization,
    OnnxStaticQuantization,
    OrtDynamicQuantization,
    SmoothQuant,
    WeightQuantization,
)
from onnxreg.converters.passes.transformers_export import TransformersExport
from onnxreg.converters.source.toolchain import PlugIns

BUILT_IN: Mapping[str, type[Pass[Any, Any]]] = {
    pass_.id: pass_
    for pass_ in (
        Original,
        OnnxConversion,
        TransformersExport,
        MergeDecoders,
        OnnxOpVersionConversion,
        MobileSafeRewrite,
        OnnxFloatToFloat16,
        OrtMixedPrecision,
        OnnxIODataTypeConverter,
        DynamicToFixedShape,
        OnnxDynamicQuantization,
        OnnxStaticQuantization,
        OnnxBlockWiseRtnQuantization,
        EmbeddingQuantization,
        OrtTransformersOptimization,
        ModelBuilder,
        OrtFormat,
        GoldenVectors,
        SmoothQuant,
        OrtDynamicQuantization,
        WeightQuantization,
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
