"""Run ONNX Runtime and torch with repeatable results, and without output."""

import atexit
import gc
import json
import logging
import math
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from onnxreg.converters.source.source_files import scrub
from onnxreg.converters.source.toolchain import instruction_set
from onnxreg.schema.core.errors import ConversionError, missing_extra

LEVELS = {"torch": logging.CRITICAL, "torch.onnx": logging.ERROR, "onnxscript": logging.ERROR}
"""The log levels inside `quiet`. These loggers have handlers of their own."""
BFLOAT16, BFLOAT16_NUMBER = "tensor(bfloat16)", 16
SILENT, DEFAULT_SEVERITY = 4, 2  # log severities of ONNX Runtime: fatal errors only, and the default
MAX_MESSAGE_CHARS = 500
"""The maximum length of a message in characters. The middle of a longer message is cut out."""
_CODES = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : ")
_SOURCE = re.compile(
    r"/\S+\.(?:cc|h):\d+ [\w:~<>*& ,]+?\((?:[^()]|\([^()]*\))*\)(?: const)? |\b\w+\.(?:cc|h):\d+ \w+ "
)
"""Matches the source line and function in a message of ONNX Runtime."""
_lock = Lock()
_entered = 0
_undo = ExitStack()
_loader: tuple[int, subprocess.Popen[bytes]] | None = None
"""The process id of the starter of `try_load`'s helper, and the helper. A forked process starts its own helper."""
_one_at_a_time = Lock()


@contextmanager
def quiet() -> Iterator[None]:
    """A context without warnings and log output of torch and onnxscript. It holds for all threads."""
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
    """A context in which transformers prints nothing."""
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
    """A context in which ONNX Runtime prints nothing, even in sessions that its tools open."""
    import onnxruntime as ort

    ort.set_default_logger_severity(SILENT)
    try:
        yield
    finally:
        ort.set_default_logger_severity(DEFAULT_SEVERITY)


@contextmanager
def no_collection() -> Iterator[None]:
    """A context without garbage collection, for imports: most of their objects stay."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """A context in which torch computes on a single thread."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def session_options(*, prepacking: bool = False, exact: bool = True) -> Any:
    """Make options for a session that prints nothing and gives repeatable results.

    On x86 processors without VNNI, ONNX Runtime's default kernels saturate 8-bit products. `exact` selects kernels that
    give the values of VNNI and ARM (kOrtSessionOptionsAvx2PrecisionMode). `prepacking` needs more memory and is faster;
    the results are the same.
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
    """Load an ONNX or ORT-format file, or its bytes, as a deterministic `onnxruntime.InferenceSession` on the CPU.

    Each run computes on `threads` threads. Raises ConversionError if ONNX Runtime cannot load the file. `name` replaces
    the file's name in this error.
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
    """Return True if ONNX Runtime's default kernels saturate 8-bit products on this processor."""
    isa = instruction_set()
    return isa.startswith("x86_64") and "vnni" not in isa


def numpy_type(kind: str) -> str:
    """Translate a type of ONNX Runtime to numpy: `tensor(float)` to `float32`. bfloat16 becomes `float32`."""
    inner = kind.removeprefix("tensor(").removesuffix(")")
    names = {"float": "float32", "double": "float64", "bfloat16": "float32", "string": "str"}
    return names.get(inner, inner)


def run_session(session: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Run a loaded graph. Raise ONNX Runtime's errors, and TypeError if an output is not a tensor.

    bfloat16 inputs are given as float32, and rounded. bfloat16 outputs are returned as float32.
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
    """Convert a bfloat16 `onnxruntime.OrtValue` to a float32 array."""
    import ctypes

    import numpy as np

    shape = value.shape()
    buffer = (ctypes.c_uint16 * math.prod(shape)).from_address(value.data_ptr())
    bits = np.frombuffer(buffer, np.uint16).astype(np.uint32) << 16
    return bits.view(np.float32).reshape(shape)


def with_reason(failure: str, error: Exception, source: Path | None = None) -> str:
    """Return a line: `failure`, then ONNX Runtime's reason. Paths of this machine, such as `source`, are removed."""
    reason = str(error)
    if source is not None:
        reason = reason.replace(f"Load model from {source} failed:", "")
    near = Path.cwd() / "graph" if source is None else source.absolute()
    folders = [folder for folder in near.parents if len(folder.parts) > 2 or folder == near.parent]
    reason = scrub(f"{failure}: {_SOURCE.sub('', _CODES.sub('', reason))}", "", *folders)[0]
    line = " ".join(reason.split())
    half = MAX_MESSAGE_CHARS // 2
    return line if len(line) <= MAX_MESSAGE_CHARS else f"{line[:half]} ... {line[-half:]}"


def start_loader() -> "subprocess.Popen[bytes]":
    """Start the helper process of `try_load`, if none runs. It imports ONNX Runtime at once."""
    global _loader
    if _loader is None or _loader[0] != os.getpid() or _loader[1].poll() is not None:
        command, pipe = [sys.executable, "-P", "-m", __name__], subprocess.PIPE
        started = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)
        atexit.register(started.communicate)
        _loader = os.getpid(), started
    return _loader[1]


def try_load(path: Path, label: str, hint: str, meanwhile: Callable[[], Any] = lambda: None) -> None:
    """Load a file in a helper process, because a crash in ONNX Runtime's native code would end this process.

    Call `meanwhile` while the helper loads. Raises ConversionError about `label`, with `hint`, if the helper dies. Other
    errors are ignored.
    """
    with _one_at_a_time:
        process = start_loader()
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(str(path.absolute())).encode() + b"\n")
            process.stdin.flush()
        try:
            meanwhile()
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
    """The helper process: for each line of standard input (a path as JSON), load the file, then write one byte."""
    answers = os.dup(1)
    os.dup2(2, 1)  # so that a library's output is not an answer
    with suppress(Exception):
        session_options()  # imports ONNX Runtime
    for line in sys.stdin.buffer:
        with suppress(Exception):
            load_session(Path(json.loads(line)))
        os.write(answers, b".")


if __name__ == "__main__":
    main()
