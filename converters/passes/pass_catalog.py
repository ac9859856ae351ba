"""Every pass by name: ours, and those that other packages bring as entry points of the group `onnxreg.passes`."""

import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Any

from onnxreg.converters.passes.base import Original, Pass
from onnxreg.converters.passes.conversion import OnnxConversion
from onnxreg.converters.passes.file_passes import GoldenVectors, OrtFormat
from onnxreg.converters.passes.float16 import OnnxFloatToFloat16, OrtMixedPrecision
from onnxreg.converters.passes.graph_passes import (
    DynamicToFixedShape,
    OnnxIODataTypeConverter,
    OnnxOpVersionConversion,
    OrtTransformersOptimization,
)
from onnxreg.converters.passes.mobile_safe import MobileSafeRewrite
from onnxreg.converters.passes.model_builder import ModelBuilder
from onnxreg.converters.passes.quantization import (
    EmbeddingQuantization,
    OnnxBlockWiseRtnQuantization,
    OnnxDynamicQuantization,
)
from onnxreg.converters.passes.static_quantization import OnnxStaticQuantization
from onnxreg.converters.source.toolchain import PlugIns

BUILT_IN: Mapping[str, type[Pass[Any, Any]]] = {
    pass_.id: pass_
    for pass_ in (
        Original,
        OnnxConversion,
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
    )
}


def _accept(entry: EntryPoint, pass_: Any) -> type[Pass[Any, Any]] | None:
    is_named = (
        isinstance(pass_, type) and issubclass(pass_, Pass) and getattr(pass_, "id", None) == entry.name
    )
    return pass_ if is_named else None


CATALOG: PlugIns[type[Pass[Any, Any]]] = PlugIns("onnxreg.passes", "a pass", BUILT_IN, _accept)
find, names = CATALOG.find, CATALOG.names


def describe(name: str) -> dict[str, Any]:
    """A pass in JSON: `{name, version, summary, package, parameters}`, the last as JSON Schema."""
    pass_ = find(name)
    return {
        "name": name,
        "version": pass_.version,
        "summary": _summary(pass_),
        "package": pass_.__module__.partition(".")[0],
        "parameters": pass_.Params.model_json_schema(mode="validation"),
    }


def table() -> str:
    """The built-in passes as a table in Markdown: what each does, and its parameters with their defaults."""
    rows = [(f"`{name}`", _summary(pass_), _parameters(pass_)) for name, pass_ in BUILT_IN.items()]
    lines = ["| pass | what it does | parameters |", "| --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def _summary(pass_: type[Pass[Any, Any]]) -> str:
    """The first sentence of the docstring, without the full stop."""
    text = " ".join((inspect.getdoc(pass_) or "").split("\n\n")[0].split())
    return text.partition(". ")[0].rstrip(".")


def _parameters(pass_: type[Pass[Any, Any]]) -> str:
    words = {None: "none", True: "yes", False: "no"}
    texts = []
    for name, field in pass_.Params.model_fields.items():
        default = field.default
        if isinstance(default, tuple):
            default = f"({', '.join(map(str, default))})"
        elif default is None or isinstance(default, bool):
            default = words[default]
        elif isinstance(default, float):
            default = f"{default:g}"
        texts.append(f"`{name}`" if field.is_required() else f"`{name}` {default}")
    return ", ".join(texts)
