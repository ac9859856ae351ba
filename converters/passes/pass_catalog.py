"""Every pass by name: ours, and those that other packages bring as entry points of the group `onnxreg.passes`."""

import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from onnxreg.converters.passes.base import Original, Pass
from onnxreg.converters.passes.conversion import OnnxConversion
from onnxreg.converters.passes.dynamic_quantization import OnnxDynamicQuantization
from onnxreg.converters.passes.embedding_quantization import EmbeddingQuantization
from onnxreg.converters.passes.fixed_shape import DynamicToFixedShape
from onnxreg.converters.passes.float16 import OnnxFloatToFloat16
from onnxreg.converters.passes.golden_vectors import GoldenVectors
from onnxreg.converters.passes.io_data_type import OnnxIODataTypeConverter
from onnxreg.converters.passes.mixed_precision import OrtMixedPrecision
from onnxreg.converters.passes.mobile_safe import MobileSafeRewrite
from onnxreg.converters.passes.model_builder import ModelBuilder
from onnxreg.converters.passes.op_version_conversion import OnnxOpVersionConversion
from onnxreg.converters.passes.ort_format import OrtFormat
from onnxreg.converters.passes.rtn_quantization import OnnxBlockWiseRtnQuantization
from onnxreg.converters.passes.static_quantization import OnnxStaticQuantization
from onnxreg.converters.passes.transformers_optimization import OrtTransformersOptimization
from onnxreg.schema.core.errors import ConflictError, HostError, InputError, suggest

GROUP = "onnxreg.passes"
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


def names() -> list[str]:
    """The names of all passes; ours come first, then others' in order. Nothing of theirs is imported."""
    return [*BUILT_IN, *sorted(_others())]


def find(name: str) -> type[Pass[Any, Any]]:
    """The pass of this name.

    Raises InputError, with the nearest names, for a name that no pass has, ConflictError if two packages
    give it, and HostError if another package's pass does not load.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    entry = _others().get(name)
    if entry is None:
        raise InputError(f"no pass is called {name[:80]!r}", suggest(name, names()))
    try:
        pass_ = entry.load()
    except Exception as error:
        raise HostError(f"the pass {name} ({entry.value}) does not load: {error}") from error
    if not (isinstance(pass_, type) and issubclass(pass_, Pass) and getattr(pass_, "id", None) == name):
        raise HostError(
            f"{entry.value} is not a pass with the id {name}", "report it to the authors of its package"
        )
    return pass_


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


def _others() -> dict[str, EntryPoint]:
    entries: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        if entry.name in BUILT_IN or entries.get(entry.name, entry).value != entry.value:
            raise ConflictError(
                f"two packages bring a pass called {entry.name}: {entry.value} is one of them",
                "uninstall one of them",
            )
        entries[entry.name] = entry
    return entries


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
