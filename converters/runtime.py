"""The runtimes that compute logits, set so that figures repeat: one thread each, and no chatter."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onnxreg.converters.ort_errors import with_reason
from onnxreg.schema.errors import ConversionError, missing_extra


def session_options(*, prepacking: bool = False) -> Any:
    """Options of a quiet ONNX Runtime session (`onnxruntime.SessionOptions`).

    Args:
        prepacking: keep a second copy of the weights for speed; the values are the same.
    """
    try:
        import onnxruntime as ort
    except ImportError as error:
        raise missing_extra("onnxruntime", "onnx", "running a graph") from error
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if not prepacking:
        options.add_session_config_entry("session.disable_prepacking", "1")
    return options


def load_session(source: Path | bytes, *, name: str = "", prepacking: bool = False) -> Any:
    """An ONNX or ORT-format file on the CPU, one thread for each run, deterministic (`onnxruntime.InferenceSession`).

    Runs may stand side by side. Raises ConversionError where ONNX Runtime cannot load it.

    Args:
        source: the file, or its bytes.
        name: what errors call it; the file's own name where absent.
    """
    options = session_options(prepacking=prepacking)
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    import onnxruntime as ort

    try:
        where = source if isinstance(source, bytes) else str(source)
        return ort.InferenceSession(where, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        what = name or (source.name if isinstance(source, Path) else "the model")
        place = source if isinstance(source, Path) else None
        raise ConversionError(with_reason(f"ONNX Runtime cannot load {what}", error, place)) from error


def silent_run() -> Any:
    """Options of a run that prints nothing where it fails: its exception says the same (`onnxruntime.RunOptions`)."""
    import onnxruntime as ort

    options = ort.RunOptions()
    options.log_severity_level = 4
    return options


def numpy_type(kind: str) -> str:
    """numpy's name of a tensor's element type as ONNX Runtime says it: `tensor(float)` is `float32`."""
    inner = kind.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32", "double": "float64"}.get(inner, inner)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """torch computes on one thread until the exit; its thread count, a setting of the process, is put back."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
