"""Models that already exist: loose files, and directories that OpenMed wrote."""

from onnxreg.converters.intake.adopt import adopt
from onnxreg.converters.intake.openmed import import_openmed

__all__ = ["adopt", "import_openmed"]
