"""Run ONNX Runtime, torch and other libraries with repeatable results: each on one thread, and without output."""

import atexit
import json
import logging
import math
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from onnxreg.converters.source.source_files import scrub
from onnxreg.converters.source.toolchain import instruction_set
from onnxreg.schema.core.errors import ConversionError, missing_extra

LEVELS = {"torch": logging.CRITICAL, "torch.onnx": logging.ERROR, "onnxscript": logging.ERROR}
"""The log levels that the context `quiet` sets for loggers with handlers of their own."""
BFLOAT16, BFLOAT16_NUMBER = "tensor(bfloat16)", 16
"""The name of the element type bfloat16 in ONNX Runtime, and its number in `onnx.TensorProto.DataType`."""
SILENT, DEFAULT_SEVERITY = 4, 2
"""Log severities of ONNX Runtime: fatal errors only, and the default. Exceptions report errors in any case."""
MAX_MESSAGE_CHARS = 500
"""The most characters of a message. A longer message loses its middle, because its end has the expected shape."""
_CODES = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : ")
_SOURCE = re.compile(
    r"/\S+\.(?:cc|h):\d+ [\w:~<>*& ,]+?\((?:[^()]|\([^()]*\))*\)(?: const)? |\b\w+\.(?:cc|h):\d+ \w+ "
)
"""The pattern of an error's place in messages of ONNX Runtime: file, line, and signature or name of the function."""
_lock = Lock()
_entered = 0
_undo = ExitStack()
_loader: tuple[int, subprocess.Popen[bytes]] | None = None
"""The id of the process that started the helper, and the helper, which loads files. A fork starts another helper."""
_one_at_a_time = Lock()


@contextmanager
def quiet() -> Iterator[None]:
    """A context without warnings. In it, torch and onnxscript log only errors, and `logging.basicConfig` does nothing.

    This holds for the whole process, from when the first thread enters the context until the last thread leaves it.
    """
    global _entered
    with _lock:
        if _entered == 0:
            _undo.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")
            handler = logging.NullHandler()
            logging.root.addHandler(handler)
            _undo.callback(logging.root.removeHandler, handler)
            for name, level in LEVELS.items():
                logger = logging.getLogger(name)
                _undo.callback(logger.setLevel, logger.level)
                logger.setLevel(level)
        _entered += 1
    try:
        yield
    finally:
        with _lock:
            _entered -= 1
            if _entered == 0:
                _undo.close()


@contextmanager
def silent_transformers() -> Iterator[None]:
    """A context in which transformers prints nothing while it loads and saves; failures still raise exceptions."""
    from transformers.utils import logging as reports

    level, bars = reports.get_verbosity(), reports.is_progress_bar_enabled()
    reports.set_verbosity(reports.CRITICAL)
    reports.disable_progress_bar()
    try:
        with quiet():
            yield
    finally:
        reports.set_verbosity(level)
        if bars:
            reports.enable_progress_bar()


@contextmanager
def silent_runtime() -> Iterator[None]:
    """A context in which sessions print nothing, even those that a tool of ONNX Runtime opens with its own options."""
    import onnxruntime as ort

    ort.set_default_logger_severity(SILENT)
    try:
        yield
    finally:
        ort.set_default_logger_severity(DEFAULT_SEVERITY)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """A context in which torch computes on one thread; at the end, the process's thread count is restored."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def session_options(*, prepacking: bool = False, exact: bool = True) -> Any:
    """Make options (`onnxruntime.SessionOptions`) for a session that prints nothing and gives repeatable results.

    x86 processors without VNNI saturate 8-bit products in ONNX Runtime's default kernels; `session.x64quantprecision`
    selects exact kernels, which give the values of VNNI and ARM (onnxruntime_session_options_config_keys.h,
    kOrtSessionOptionsAvx2PrecisionMode). With VNNI they give the same values in 1.6 times the time.

    Args:
        prepacking: keep a second copy of the weights, for speed; the results are the same.
        exact: compute exact 8-bit products on every x86 processor.
    """
    try:
        import onnxruntime as ort
    except ImportError as error:
        raise missing_extra("onnxruntime", "onnx", "running a graph") from error
    options = ort.SessionOptions()
    options.log_severity_level = SILENT
    if exact:
        options.add_session_config_entry("session.x64quantprecision", "1")
    if not prepacking:
        options.add_session_config_entry("session.disable_prepacking", "1")
    return options


def load_session(source: Path | bytes, *, name: str = "", prepacking: bool = False, threads: int = 1) -> Any:
    """Load an ONNX or ORT-format file on the CPU, as a deterministic `onnxruntime.InferenceSession`.

    Each run computes on `threads` threads; runs may be parallel. Raises ConversionError if ONNX Runtime cannot load the file.

    Args:
        source: the file, or its bytes.
        name: the graph's name in errors; by default the file's own name.
    """
    for exact in (True, False) if _saturates() else (False,):
        options = session_options(prepacking=prepacking, exact=exact)
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.use_deterministic_compute = True
        import onnxruntime as ort

        model = source if isinstance(source, bytes) else str(source)
        try:
            return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            if exact:  # 1.31 has no exact 8-bit kernel for a weight that two nodes share
                continue
            file = source if isinstance(source, Path) else None
            label = name or (file.name if file else "the model")
            raise ConversionError(with_reason(f"ONNX Runtime cannot load {label}", error, file)) from error


@cache
def _saturates() -> bool:
    """True if the default kernels saturate 8-bit products on this processor."""
    isa = instruction_set()
    return isa.startswith("x86_64") and "vnni" not in isa


def numpy_type(kind: str) -> str:
    """Translate ONNX Runtime's name of an element type to numpy's name: `tensor(float)` to `float32`.

    bfloat16, which numpy lacks, becomes `float32`: see `run_session`.
    """
    inner = kind.removeprefix("tensor(").removesuffix(")")
    names = {"float": "float32", "double": "float64", "bfloat16": "float32", "string": "str"}
    return names.get(inner, inner)


def run_session(session: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Run a loaded graph; return outputs by name. Raises ONNX Runtime's errors, TypeError if an output is not a tensor.

    Pass float32 for bfloat16 inputs, which are rounded here; bfloat16 outputs come back as float32, without loss.
    """
    import onnxruntime as ort

    options = ort.RunOptions()
    options.log_severity_level = SILENT
    outputs = {item.name: item.type for item in session.get_outputs()}
    if other := next((name for name, kind in outputs.items() if not kind.startswith("tensor(")), None):
        raise TypeError(f"the output {other} is not a tensor: it is {outputs[other]}")
    taken = {item.name for item in session.get_inputs() if item.type == BFLOAT16}
    given = {name for name, kind in outputs.items() if kind == BFLOAT16}
    if not taken and not given:
        return dict(zip(outputs, session.run(list(outputs), dict(inputs), options), strict=True))
    import ml_dtypes
    import numpy as np

    values = {}
    for name, array in inputs.items():
        if name in taken:
            bits = np.ascontiguousarray(array).astype(ml_dtypes.bfloat16).view(np.uint16)
            values[name] = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, BFLOAT16_NUMBER)
        else:
            values[name] = ort.OrtValue.ortvalue_from_numpy(array)
    results = session.run_with_ort_values(list(outputs), values, options)
    return {
        name: _widen(value) if name in given else value.numpy()
        for name, value in zip(outputs, results, strict=True)
    }


def _widen(value: Any) -> Any:
    """Convert a bfloat16 value (`onnxruntime.OrtValue`) to float32: its bits become the upper 16 bits."""
    import ctypes

    import numpy as np

    shape = value.shape()
    buffer = (ctypes.c_uint16 * math.prod(shape)).from_address(value.data_ptr())
    bits = np.frombuffer(buffer, np.uint16).astype(np.uint32) << 16
    return bits.view(np.float32).reshape(shape)


def with_reason(failure: str, error: Exception, source: Path | None = None) -> str:
    """Make a message of one line: `failure`, then the reason in an error of ONNX Runtime.

    `source` is the file that ONNX Runtime loaded, if any. Paths of its directory and of outer directories are removed.
    """
    reason = str(error)
    if source is not None:
        reason = reason.replace(f"Load model from {source} failed:", "")
    near = Path.cwd() / "graph" if source is None else source.absolute()
    folders = [folder for folder in near.parents if len(folder.parts) > 2 or folder == near.parent]
    reason = scrub(f"{failure}: {_SOURCE.sub('', _CODES.sub('', reason))}", "", *folders)[0]
    line = " ".join(reason.split())
    half = MAX_MESSAGE_CHARS // 2
    return line if len(line) <= MAX_MESSAGE_CHARS else f"{line[:half]} ... {line[-half:]}"


def try_load(path: Path, label: str, hint: str) -> None:
    """Load a file in a helper process, because an error in ONNX Runtime's native code may end a process.

    Raises ConversionError about `label`, with `hint`, if the helper dies. Other errors are left to this process, which
    loads the file later. The helper ends with this process. Threads take turns.
    """
    global _loader
    with _one_at_a_time:
        if _loader is None or _loader[0] != os.getpid() or _loader[1].poll() is not None:
            command, pipe = [sys.executable, "-P", "-m", __name__], subprocess.PIPE
            started = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
            atexit.register(started.communicate)
            _loader = os.getpid(), started
        process = _loader[1]
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(str(path.absolute())).encode() + b"\n")
            process.stdin.flush()
        try:
            answer = process.stdout.read(1)
        except BaseException:  # the next file would get this file's late answer
            process.kill()
            process.communicate()
            raise
        if answer:
            return
        process.communicate()
    raise ConversionError(f"ONNX Runtime crashed (status {process.returncode}) while it loaded {label}", hint)


def main() -> None:
    """Run the helper process: read a path, as a line of JSON, from standard input; load that file; answer with a byte."""
    answers = os.dup(1)
    os.dup2(2, 1)  # so that a library's output is not an answer
    for line in sys.stdin.buffer:
        with suppress(Exception):
            load_session(Path(json.loads(line)))
        os.write(answers, b".")


if __name__ == "__main__":
    main()
