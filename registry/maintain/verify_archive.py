"""Verifying an archive: the history is whole, the versions that it says it carries are, and nothing else is in it."""

from collections.abc import Iterator

from onnxreg.registry.log.lookup import read_versions
from onnxreg.registry.maintain.verification import Audit, Damage, VerifyReport, unaudited, verify
from onnxreg.registry.store.archive.archive_reader import TRUST, ArchiveRegistry
from onnxreg.registry.transfer.copy import Progress
from onnxreg.schema.core.errors import RegError


def verify_archive(
    archive: ArchiveRegistry, progress: Progress | None = None, audit: Audit = unaudited
) -> VerifyReport:
    """As `verify`, of the versions that the archive carries; asks nobody else."""
    report = verify(archive, progress, audit, archive.carried)
    report.damages += _contradictions(archive)
    if report.unreferenced:
        what = f"{report.unreferenced} blobs that no carried version and no log refers to"
        report.damages.append(Damage("stray", archive.url, what))
    return report


def _contradictions(archive: ArchiveRegistry) -> Iterator[Damage]:
    """Where `archive.json` says something else than the logs, and what no digest covers is damaged."""
    try:
        archive.store.get(TRUST)
    except RegError as error:
        yield Damage("archive", TRUST, error.message)
    if not any(archive.carried.values()):
        yield Damage("archive", archive.url, "it carries no version")
    for name, versions in archive.carried.items():
        try:
            _, known = read_versions(archive, name)
        except RegError as error:
            yield Damage("archive", name, f"it says that it carries {name}: {error.message}")
            continue
        for version in sorted(versions):
            if version not in known or known[version].gone is not None:
                yield Damage(
                    "archive", f"{name}:{version}", "it says that it carries what its log does not have"
                )
