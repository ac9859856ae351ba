"""`reg import`: a directory of whatever kind."""

from pathlib import Path

from onnxreg.converters.importers.draft_json import Difference
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.rules import FILENAME


def import_directory(directory: Path, workspace: Path, *, name: str) -> tuple[Draft, list[Difference]]:
    """Adopt what OpenMed wrote, what `--output` wrote, a model package, or a repository; see their modules."""
    from onnxreg.converters.importers.import_export import import_written, is_written
    from onnxreg.converters.importers.import_repository import import_repository, is_repository
    from onnxreg.converters.importers.openmed.openmed import import_openmed
    from onnxreg.converters.importers.packages.import_package import import_package, is_package

    if is_package(directory):
        return import_package(directory, workspace, name=name)
    if is_written(directory):
        return import_written(directory, workspace, name=name)
    if not (directory / FILENAME).is_file() and is_repository(directory):
        return import_repository(directory, workspace, name=name), []
    return import_openmed(directory, workspace, name=name)
