"""`OrtFormat`: an ONNX file to ORT format, with the list of operators that a minimal build needs."""

import errno
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from onnxreg.converters.onnx import ort_file
from onnxreg.converters.onnx.quiet import quiet
from onnxreg.converters.passes import base
from onnxreg.converters.runtime.sessions import load_session, run_session, session_options
from onnxreg.schema.core.errors import ConversionError, HostError


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
    is left out. The files are written beside the input. Where ONNX Runtime's version is among
    `ort_file.PROVEN_RUNTIMES`, the file is made canonical and run: its outputs must be equal, to the bit, to those
    of the optimized graph in memory or of the file as it was.
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
        import onnxruntime

        target = subject.with_suffix(".ort")
        kind = "required_operators_and_types" if self.params.enable_type_reduction else "required_operators"
        config = subject.with_suffix(f".{kind}.config")
        proven = onnxruntime.__version__ in ort_file.PROVEN_RUNTIMES
        try:
            session = self._convert(subject, target)
            outputs = _outputs(session, self._feed) if proven else []
            del session
            config.write_text(
                ort_file.operator_config(target, self.params.enable_type_reduction), encoding="utf-8"
            )
        except Exception as error:
            full = shutil.disk_usage(target.parent).free < subject.stat().st_size
            for path in (target, config):
                path.unlink(missing_ok=True)
            if full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from error
            raise ConversionError(
                f"ONNX Runtime could not write ORT format: {type(error).__name__}"
            ) from error
        if proven:
            self._canonicalize(target, outputs)
        return OrtFiles(target, config, proven)

    def ensures(self, before: Mapping[str, Any], after: OrtFiles) -> dict[str, Any]:
        with after.path.open("rb") as file:
            if file.read(8)[4:] != b"ORTM":
                raise ConversionError("ONNX Runtime did not write an ORT-format file")
        operators = after.config.read_text(encoding="utf-8").splitlines()
        if not operators:
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

    def _canonicalize(self, path: Path, optimized: list[bytes]) -> None:
        """Replace a file by its canonical form, whose outputs are `optimized`, those of its graph before it was
        written.
        """
        canonical = path.with_suffix(".canonical.ort")
        ort_file.canonicalize(path, canonical)
        outputs = _outputs(load_session(canonical), self._feed)
        if outputs != optimized and outputs != _outputs(load_session(path), self._feed):
            canonical.unlink()
            raise ConversionError("the canonical ORT-format file gives other outputs than the original")
        canonical.replace(path)


def _outputs(session: Any, feed: Mapping[str, Any]) -> list[bytes]:
    return [_bytes(output) for output in run_session(session, feed).values()]


def _bytes(array: Any) -> bytes:
    """The values of an output; those of texts, which numpy holds as objects, are not in the array's own bytes."""
    return repr(array.tolist()).encode() if array.dtype == object else bytes(array.tobytes())
