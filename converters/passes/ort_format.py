"""`OrtFormat`: an ONNX file to ORT format, with the list of operators that a minimal build needs.

ONNX Runtime writes the model first, at the end of the file, and before it a table that tells a minimal build which
argument types pick a kernel. That table's entries come out in the order of a hash table with a random seed, so that no two
conversions are equal, while the model's bytes are. The pass writes that head again with sorted entries.
"""

import errno
import mmap
import os
import shutil
import struct
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from onnxreg.converters.onnx.ort_file import register_bindings, text
from onnxreg.converters.onnx.quiet import quiet
from onnxreg.converters.passes import base
from onnxreg.converters.passes.tools import model_file
from onnxreg.converters.runtime.sessions import load_session, run_session, session_options
from onnxreg.schema.core.errors import ConversionError, HostError

ALIGNMENT_BYTES = 16
"""At least the alignment of every vector in the model, so that moving the model's end never misaligns it."""


@dataclass(frozen=True)
class OrtFiles:
    """An ORT-format file and its operator config. `reproducible`: a second conversion gives the same bytes."""

    path: Path
    config: Path
    reproducible: bool


class OrtFormatParams(base.PassParams, title="Params"):
    optimization_style: Literal["Fixed"] = "Fixed"
    target_platform: Literal["arm", "amd64"] = "arm"
    enable_type_reduction: bool = True


class OrtFormat(base.Pass[Path, OrtFiles]):
    """Optimize with ONNX Runtime on the CPU and save in ORT format, as its conversion tool does.

    `Fixed` bakes the optimizations of the converting machine in; for a target that is not amd64 the NCHWc layout
    is left out. The files are written beside the input. The entries of the file's head are sorted, so that a second
    conversion gives the same bytes. A file whose sorted form does not parse to the same content, or gives other outputs,
    stays as ONNX Runtime wrote it (`canonical` in the result is false).
    """

    id = "OrtFormat"
    takes = "file"

    Params = OrtFormatParams

    def __init__(self, feed: Mapping[str, Any], **params: Any) -> None:
        """Args:
        feed: an array for each input, on which the canonical file is compared with the original.
        """
        super().__init__(**params)
        self._feed = feed

    def requires(self, subject: Path) -> None:
        """Raise HostError, naming the dependency only, if ONNX Runtime's conversion tools are missing."""
        try:
            with quiet():
                import flatbuffers  # noqa: F401
                import onnxruntime
                import onnxruntime.tools.ort_format_model  # noqa: F401
        except ImportError as error:
            raise HostError(
                f"missing dependency: {(error.name or 'onnxruntime').partition('.')[0]}"
            ) from error

    def apply(self, subject: Path) -> OrtFiles:
        """Write both files beside `subject`.

        Raise OSError if the disk is full, which ONNX Runtime does not say.
        """
        target = subject.with_suffix(".ort")
        kind = "required_operators_and_types" if self.params.enable_type_reduction else "required_operators"
        config = subject.with_suffix(f".{kind}.config")
        try:
            outputs = _outputs(self._convert(subject, target), self._feed)
            config.write_text(operator_config(target, self.params.enable_type_reduction), encoding="utf-8")
        except Exception as error:
            full = shutil.disk_usage(target.parent).free < subject.stat().st_size
            for path in (target, config):
                path.unlink(missing_ok=True)
            if full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise ConversionError(
                f"ONNX Runtime could not write ORT format: {type(error).__name__}"
            ) from error
        return OrtFiles(target, config, self._sort(target, outputs))

    def ensures(self, before: Mapping[str, Any], after: OrtFiles) -> dict[str, Any]:
        with after.path.open("rb") as file:
            if file.read(8)[4:] != b"ORTM":
                raise ConversionError("ONNX Runtime did not write an ORT-format file")
        if not after.config.read_text(encoding="utf-8").strip():
            raise ConversionError("ONNX Runtime's operator config names no operator")
        return {"canonical": after.reproducible}

    def _convert(self, source: Path, target: Path) -> Any:
        import onnxruntime as ort

        options = session_options()
        options.optimized_model_filepath = str(target)
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.add_session_config_entry("session.save_model_format", "ORT")
        disabled = None if self.params.target_platform == "amd64" else ["NchwcTransformer"]
        return ort.InferenceSession(
            str(source), options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled
        )

    def _sort(self, path: Path, optimized: list[bytes]) -> bool:
        """Replace a file by its canonical form; False, and nothing done, if that is not the same model.

        `optimized` are the outputs of the graph before it was written.
        """
        canonical = path.with_suffix(".canonical.ort")
        is_same = canonicalize(path, canonical)
        if is_same:
            outputs = _outputs(load_session(canonical), self._feed)
            is_same = outputs == optimized or outputs == _outputs(load_session(path), self._feed)
        if is_same:
            canonical.replace(path)
        canonical.unlink(missing_ok=True)
        return is_same


def _outputs(session: Any, feed: Mapping[str, Any]) -> list[bytes]:
    """Each output to the bit; the texts of an array are not in its own bytes."""
    arrays = run_session(session, feed).values()
    return [repr(one.tolist()).encode() if one.dtype == object else one.tobytes() for one in arrays]


def operator_config(path: Path, with_types: bool) -> str:
    """The operator config of an ORT-format file as ONNX Runtime writes it, without comments, which name the file."""
    with quiet():
        from onnxruntime.tools.ort_format_model import create_config_from_models
    with model_file.scratch() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves the model's file open
        create_config_from_models([path], folder / "config", with_types)
        lines = (folder / "config").read_text("utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("#"))


Table = tuple[tuple[str, tuple[tuple[str, tuple[tuple[int, int], ...]], ...]], ...]
"""For each operator, for each type parameter, the arguments of that type: (0 for an input or 1 for an output, position)."""


def canonicalize(source: Path, target: Path) -> bool:
    """Write an ORT-format file with a sorted head to `target`, another path; tell if that parses to the same content."""
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
    """The version, the sorted table, and where the model's table and the bytes that belong to the model begin."""
    from ort_flatbuffers_py.fbs.InferenceSession import InferenceSession

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:

        def number(kind: str, at: int) -> int:
            return int(struct.unpack_from(kind, data, at)[0])

        session = InferenceSession.GetRootAs(data, 0)
        table = tuple(
            sorted(
                (text(entry.OpId()), tuple(sorted(map(_parameter, _all(entry, "KernelTypeStrArgs")))))
                for entry in _all(session.KernelTypeStrResolver(), "OpKernelTypeStrArgs")
            )
        )
        root = number("<I", 0)
        field = root + number("<H", root - number("<i", root) + 6)  # the second field of the root table
        model = field + number("<I", field)
        return text(session.OrtVersion()), table, model, min(model, model - number("<i", model))


def _parameter(entry: Any) -> tuple[str, tuple[tuple[int, int], ...]]:
    arguments = tuple((one.ArgType(), one.Index()) for one in _all(entry, "Args"))
    return text(entry.KernelTypeStr()), arguments


def _all(table: Any, name: str) -> Sequence[Any]:
    return [getattr(table, name)(index) for index in range(getattr(table, f"{name}Length")())]


def _write_head(version: str, table: Table, model_offset: int, tail_size: int) -> bytes:
    """The bytes before a model of `tail_size` bytes, whose table is `model_offset` bytes behind its begin.

    Offsets in a flatbuffer are relative, so the head is built on a short substitute for the model whose size is
    congruent to the model's: the references to the model and every alignment come out right.
    """
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
        """Write a table."""
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
        label = builder.CreateString(name)
        return write(OpIdKernelTypeStrArgsEntry, OpId=label, KernelTypeStrArgs=entries)

    label, entries = builder.CreateString(version), vector(table, operator)
    resolver = write(KernelTypeStrResolver, OpKernelTypeStrArgs=entries)
    fields = {"OrtVersion": label, "Model": stand_in - model_offset, "KernelTypeStrResolver": resolver}
    builder.Finish(write(InferenceSession, **fields), b"ORTM")
    return bytes(builder.Output()[:-stand_in])
