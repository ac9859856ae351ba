"""The built-in recipe of each task: full precision, and INT8 beside it if that is asked for."""

from typing import Any

from onnxreg.converters.passes.conversion import NEWEST, OLDEST
from onnxreg.converters.tasks import task_catalog
from onnxreg.converters.tasks.onnx_file import OnnxFile
from onnxreg.converters.tasks.text import TextTask
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.recipe_file import RecipeFile

OPSET = 14
PATH = "model.onnx"
EVERYTHING = ("MatMul", "Gemm", "Gather")
"""The operators that INT8 quantizes, embedding tables (`Gather`) included."""


def task_recipe(
    task: str,
    quantize: bool = False,
    opset: int | None = None,
    max_seq_length: int | None = None,
    path: str = PATH,
    int8_embeddings: bool = False,
) -> RecipeFile:
    """The recipe of a task. INT8 is written to `<path without .onnx>_int8.onnx`.

    Raises InputError for a task that there is not, or that has no recipe without more options, an opset that
    PyTorch does not export to, and for `int8_embeddings` without `quantize`.

    Args:
        opset: 14 if absent.
        max_seq_length: in tokens; the task's own if absent.
        int8_embeddings: quantize the embedding tables too, which are most of the bytes of a small encoder.
    """
    kind = task_catalog.find(task, TextTask)
    if kind is OnnxFile and (opset, max_seq_length) != (None, None):
        raise InputError(
            "an ONNX file keeps its opset and its inputs",
            "leave --opset and --max-seq-length out; a recipe with OnnxOpVersionConversion changes the opset",
        )
    if not issubclass(kind, OnnxFile | TextTask):
        raise InputError(
            f"the task {kind.id} has no recipe of its own",
            "write a recipe: reg export --recipe FILE; docs/recipes.md has examples",
        )
    if int8_embeddings and not quantize:
        raise InputError("--int8-embeddings is of the INT8 artifact, which is not made", "add --quantize")
    target = OPSET if opset is None else opset
    if not OLDEST <= target <= NEWEST:
        raise InputError(
            f"there is no opset {target} to export to", f"PyTorch's exporters support {OLDEST} to {NEWEST}"
        )
    first: dict[str, Any] = {"name": "original", "pass": "Original"}
    if kind is not OnnxFile:
        first = {"name": "fp32", "pass": "OnnxConversion", "params": {"target_opset": target}}
    steps, outputs = [first], [{"step": first["name"], "path": path}]
    if quantize:
        params = {"params": {"op_types_to_quantize": EVERYTHING}} if int8_embeddings else {}
        steps.append({"name": "int8", "pass": "OnnxDynamicQuantization", "input": first["name"], **params})
        outputs.append({"step": "int8", "path": f"{path.removesuffix('.onnx')}_int8.onnx"})
    value = {
        "task": kind.id,
        "options": {} if max_seq_length is None else {"max_seq_length": max_seq_length},
        "steps": steps,
        "outputs": outputs,
        "checks": [{"output": path, "metric": "max_abs_diff", "share": 0.001}],
    }
    return RecipeFile.from_json(value, f"the recipe of {task}")
