"""A package with entry points, as its installation leaves it."""

import sys
from pathlib import Path

import pytest

from onnxreg.converters.source import toolchain


def install(folder: Path, patch: pytest.MonkeyPatch, group: str, *entries: str, module: str) -> None:
    """Write the distribution `other-plug-ins` with the module `other_plug_ins`, and let Python find both."""
    (folder / "other_plug_ins.py").write_text(module)
    info = folder / "other_plug_ins-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-plug-ins\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("other_plug_ins\n")
    (info / "entry_points.txt").write_text("\n".join([f"[onnxreg.{group}]", *entries]))
    patch.syspath_prepend(str(folder))
    patch.delitem(sys.modules, "other_plug_ins", raising=False)
    toolchain.distributions.cache_clear()
