"""The pass that publishes a source as it is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxreg.converters.passes.base import Pass


class Original(Pass[Path, Path]):
    """Take an ONNX file and its external data over, byte for byte."""

    id = "Original"
    takes = "original"

    def apply(self, subject: Path) -> Path:
        return subject

    def ensures(self, before: Mapping[str, Any], after: Path) -> dict[str, Any]:
        return {}
