"""Exports without a registry, by the door that every export takes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxreg.converters.engine.cache import StepCache
from onnxreg.converters.request import ExportRequest, run
from onnxreg.schema.core.units import SILENT, Progress
from onnxreg.schema.manifest.draft import Draft


def export_android(
    source: Path | str,
    workspace: Path,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
    trust_remote_code: bool = False,
    progress: Progress = SILENT,
    cache: StepCache | None = None,
) -> Draft:
    """Export a checkpoint by the android profile into `workspace`."""
    request = ExportRequest(
        str(source), name, "android", options=options or {}, trust_remote_code=trust_remote_code
    )
    return run(request.plan(), workspace, cache, progress)[0]
