"""Writing a version out as a model package of ONNX Runtime: verified, in a fresh directory, swapped in whole."""

from pathlib import Path

from onnxreg.registry.moving.copying import Progress
from onnxreg.registry.moving.materialize import check_target, fill, replacing
from onnxreg.registry.storage import BlobReader
from onnxreg.schema.errors import InputError
from onnxreg.schema.ortpackage import MANIFEST, read_package, written_by_us
from onnxreg.schema.packaging import Package


def check_package_target(target: Path, registry: Path | None = None) -> None:
    """InputError where writing a package there would lose or hide anything that is not an earlier package of ours."""
    check_target(target, registry, _packaged)


def _packaged(directory: Path) -> set[str]:
    try:
        ours = written_by_us(read_package((directory / MANIFEST).read_bytes()))
    except (OSError, InputError):
        return set()
    return {MANIFEST, *ours.files} if ours else set()


def write_package(
    store: BlobReader, package: Package, target: Path, progress: Progress | None = None
) -> None:
    """Write a package into `target`; an earlier one there is replaced as a whole.

    IntegrityError where a blob is damaged: then the target is as it was before.
    """
    with replacing(target) as fresh:
        fill(store, package.files, fresh, progress or Progress())
        for path, data in package.documents.items():
            (fresh / path).parent.mkdir(parents=True, exist_ok=True)
            (fresh / path).write_bytes(data)
