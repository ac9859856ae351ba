"""`OrtFormat`: converts an ONNX file to ORT format, and lists the operators that a minimal build needs.

An ORT-format file begins with a table of argument types. ONNX Runtime writes the table's entries in random order, so
`OrtFormat` writes the table again with sorted entries.
"""

import errno
import mmap
import os
import shutil
import struct
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from onnxreg.converters.onnx.ort_file import register_bindings, text
from onnxreg.converters.passes import models
from onnxreg.converters.passes.base import Pass, PassParams
from onnxreg.converters.runtime.sessions import quiet, session_options
from onnxreg.schema.core.errors import ConversionError, HostError

ALIGNMENT_BYTES = 16  # the alignment of a flatbuffer, counted from its end


class OrtFiles(NamedTuple):
    path: Path
    config: Path


class OrtFormat(Pass[Path, OrtFiles]):
    """Optimize with ONNX Runtime on the CPU and save in ORT format, as ONNX Runtime's conversion tool does.

    ONNX Runtime's optimizations for this machine are applied. For the target `arm`, the NCHWc layout is left out. The
    files are written beside the input. `canonical` in the result is false if the file's first table is not sorted.
    """

    id = "OrtFormat"
    takes = "file"

    class Params(PassParams):
        optimization_style: Literal["Fixed"] = "Fixed"
        target_platform: Literal["arm", "amd64"] = "arm"
        enable_type_reduction: bool = True

    def requires(self, subject: Path) -> None:
        for module in ("flatbuffers", "onnxruntime", "onnxruntime.tools.ort_format_model"):
            if find_spec(module) is None:
                raise HostError(f"missing dependency: {module.partition('.')[0]}")

    def apply(self, subject: Path) -> OrtFiles:
        import onnxruntime as ort

        with_types = self.params.enable_type_reduction
        kind = "required_operators_and_types" if with_types else "required_operators"
        options = session_options()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.add_session_config_entry("session.save_model_format", "ORT")
        disabled = None if self.params.target_platform == "amd64" else ["NchwcTransformer"]
        with models.scratch_in(subject.parent), models.scratch() as folder:
            raw, canonical, config = (folder / name for name in ("raw.ort", "canonical.ort", "config"))
            options.optimized_model_filepath = str(raw)
            try:
                ort.InferenceSession(
                    str(subject), options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled
                )
                config.write_text(operator_config(raw, with_types), encoding="utf-8")
                is_same = canonicalize(raw, canonical)
            except Exception as error:
                if shutil.disk_usage(folder).free < subject.stat().st_size:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
                raise ConversionError(
                    f"ONNX Runtime could not write ORT format: {type(error).__name__}"
                ) from error
            path = (canonical if is_same else raw).replace(subject.with_suffix(".ort"))
            self.found["canonical"] = is_same
            return OrtFiles(path, config.replace(subject.with_suffix(f".{kind}.config")))


def operator_config(path: Path, with_types: bool) -> str:
    """Return ONNX Runtime's operator config of an ORT-format file, without comments."""
    with quiet():
        from onnxruntime.tools.ort_format_model import create_config_from_models
    with models.scratch() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the tool leaves the model's file open
        create_config_from_models([path], folder / "config", with_types)
        lines = (folder / "config").read_text("utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("#"))


Table = tuple[tuple[str, tuple[tuple[str, tuple[tuple[int, int], ...]], ...]], ...]
"""For each operator, its type parameters, such as `T`, with their inputs `(0, index)` and outputs `(1, index)`."""


def canonicalize(source: Path, target: Path) -> bool:
    """Copy an ORT-format file, and sort the table in its head. Return False if anything else differs in the copy."""
    register_bindings()
    version, table, model, tail = _read_head(source)
    front = _write_head(version, table, model - tail, source.stat().st_size - tail)
    with source.open("rb") as original, target.open("wb") as file:
        file.write(front)
        original.seek(tail)
        shutil.copyfileobj(original, file, 2**20)
    moved = len(front) - tail
    return _read_head(target) == (version, table, model + moved, tail + moved)


def _read_head(path: Path) -> tuple[str, Table, int, int]:
    """Return (ONNX Runtime's version, sorted `Table`, offsets of the model's flatbuffer table and first byte)."""
    from ort_flatbuffers_py.fbs.InferenceSession import InferenceSession

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:

        def number(kind: str, at: int) -> int:
            return int(struct.unpack_from(kind, data, at)[0])

        def parameter(entry: Any) -> tuple[str, tuple[tuple[int, int], ...]]:
            arguments = tuple((one.ArgType(), one.Index()) for one in _all(entry, "Args"))
            return text(entry.KernelTypeStr()), arguments

        session = InferenceSession.GetRootAs(data, 0)
        operators = _all(session.KernelTypeStrResolver(), "OpKernelTypeStrArgs")
        parameters = (tuple(sorted(map(parameter, _all(one, "KernelTypeStrArgs")))) for one in operators)
        table = tuple(sorted(zip((text(one.OpId()) for one in operators), parameters, strict=True)))
        root = number("<I", 0)
        field = root + number("<H", root - number("<i", root) + 6)  # the second field of the root table
        model = field + number("<I", field)
        return text(session.OrtVersion()), table, model, min(model, model - number("<i", model))


def _all(table: Any, name: str) -> Sequence[Any]:
    return [getattr(table, name)(index) for index in range(getattr(table, f"{name}Length")())]


def _write_head(version: str, table: Table, model_offset: int, tail_size: int) -> bytes:
    """Return the head for a model of `tail_size` bytes, in which the model's table begins at byte `model_offset`."""
    # offsets in a flatbuffer are relative, so the head is built before a short substitute for the model
    import flatbuffers
    from ort_flatbuffers_py.fbs import (
        ArgTypeAndIndex,
        InferenceSession,
        KernelTypeStrArgsEntry,
        KernelTypeStrResolver,
        OpIdKernelTypeStrArgsEntry,
    )

    stand_in = model_offset + ALIGNMENT_BYTES
    stand_in += (tail_size - stand_in) % ALIGNMENT_BYTES
    builder = flatbuffers.Builder(4 * stand_in)
    builder.Pad(stand_in)
    builder.minalign = ALIGNMENT_BYTES

    def write(module: Any, **fields: Any) -> int:
        module.Start(builder)
        for name, value in fields.items():
            getattr(module, f"Add{name}")(builder, value)
        return int(module.End(builder))

    def vector(items: Sequence[Any], write_item: Callable[..., int]) -> int:
        offsets = [write_item(*item) for item in items]
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return int(builder.EndVector())

    def argument(kind: int, index: int) -> int:
        return write(ArgTypeAndIndex, ArgType=kind, Index=index)

    def parameter(name: str, arguments: Sequence[Any]) -> int:
        entries = vector(arguments, argument)
        return write(KernelTypeStrArgsEntry, KernelTypeStr=builder.CreateString(name), Args=entries)

    def operator(name: str, parameters: Sequence[Any]) -> int:
        entries = vector(parameters, parameter)
        return write(OpIdKernelTypeStrArgsEntry, OpId=builder.CreateString(name), KernelTypeStrArgs=entries)

    label, entries = builder.CreateString(version), vector(table, operator)
    resolver = write(KernelTypeStrResolver, OpKernelTypeStrArgs=entries)
    fields = {"OrtVersion": label, "Model": stand_in - model_offset, "KernelTypeStrResolver": resolver}
    builder.Finish(write(InferenceSession, **fields), b"ORTM")
    return bytes(builder.Output()[:-stand_in])
