"""Models that already exist: loose files, directories that OpenMed wrote, model packages of ONNX Runtime."""

from onnxreg.converters.intake.adopt import adopt
from onnxreg.converters.intake.openmed import import_openmed
from onnxreg.converters.intake.ortpackage import import_package, is_package

__all__ = ["adopt", "import_openmed", "import_package", "is_package"]
