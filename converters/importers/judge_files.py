"""The judgement of model files from elsewhere. `add` and `import` take only what passes it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from onnxreg.converters.importers.companions import class_count
from onnxreg.converters.onnx.external_data import external_files
from onnxreg.converters.onnx.facts import GraphFacts, inspect_model, inspect_ort
from onnxreg.converters.onnx.mobile_rules import check_contract
from onnxreg.converters.onnx.onnx_graph import check_model, load_onnx
from onnxreg.converters.onnx.quantized_share import weight_type
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.schema.core.errors import Advice, ConversionError, InputError, RegError


def read_model(
    path: Path, config: Path | None = None, look: Callable[[Path], object] = lambda _: None
) -> GraphFacts:
    """The facts of an .onnx or .ort file. Raise InputError if it is not one, or if nothing can run it.

    Args:
        path: the file.
        config: the operator config of an .ort file.
        look: is shown each external data file before it is read.
    """
    if path.suffix == ".ort":
        return inspect_ort(path, config)
    model = load_onnx(path)
    for location in external_files(model, path):
        look(path.parent / location)
    facts = inspect_model(model, path)
    _refuse_unusable(model, path)
    return facts


def _refuse_unusable(model: Any, path: Path) -> None:
    """InputError for what neither ONNX's checker nor ONNX Runtime takes; each knows operators that the other does not."""
    try:
        check_model(model, path)
    except InputError as error:
        try:
            load_session(path, name=path.name)
        except RegError:
            raise error from None


def default_format(facts: GraphFacts) -> str:
    """The format name that the file itself justifies: `ort`, `onnx-int8`, `onnx-int4` or `onnx`."""
    if facts.ort_format is not None:
        return "ort"
    kind = weight_type(facts.precision)
    return f"onnx-{kind}" if kind in ("int8", "int4") else "onnx"


CORRECT_FORMAT = Advice("correct-format")


def check_format(format: str, facts: GraphFacts, path: str, hint: str | Advice = CORRECT_FORMAT) -> None:
    """Raise InputError if the file contradicts what a format name promises."""
    actual = default_format(facts)
    wrong_container = (actual == "ort") != format.startswith("ort")
    claims = next((kind for kind in ("int8", "int4") if format.endswith(f"-{kind}")), None)
    if wrong_container or (claims is not None and actual != "ort" and not actual.endswith(claims)):
        raise InputError(f"{path} is not {format}: the file itself says {actual}", hint)
    if format.endswith("-android"):
        check_android(facts, path, Advice("omit-format"))


def check_android(facts: GraphFacts, path: str, hint: str | Advice) -> None:
    """Raise InputError if a graph breaks the tensor contract of the android profile."""
    try:
        check_contract(facts, path, class_count(facts) or 0)
    except ConversionError as error:
        raise InputError(error.message, hint) from error
