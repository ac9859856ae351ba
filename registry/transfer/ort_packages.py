"""Write a version as a model package of ONNX Runtime: verified, in a fresh directory, swapped in as a
whole."""

from pathlib import Path

from onnxreg.registry.store.protocol import BlobReader
from onnxreg.registry.transfer.export_files import check_target, fill, replacing
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.formats.ort_package import MANIFEST, read_package, written_by_us
from onnxreg.schema.formats.package_layout import PackageLayout


def check_package_target(target: Path, registry: Path | None = None) -> None:
    """InputError if writing a package there would lose or hide anything that is not an earlier package of
    ours.
    """
    check_target(target, registry, _packaged)


def _packaged(directory: Path) -> set[str]:
    try:
        package = written_by_us(read_package((directory / MANIFEST).read_bytes()))
    except (OSError, InputError):
        return set()
    return {MANIFEST, *package.files} if package else set()


def write_package(
    store: BlobReader, package: PackageLayout, target: Path, progress: Progress = SILENT
) -> None:
    """Write a package into `target`; an earlier one there is replaced as a whole.

    IntegrityError if a blob is damaged: the target then is as it was before.
    """
    with replacing(target) as fresh:
        fill(store, package.files, fresh, progress)
        for path, data in package.documents.items():
            (fresh / path).parent.mkdir(parents=True, exist_ok=True)
            (fresh / path).write_bytes(data)
