"""Verify an archive: complete history, complete versions, and nothing else in it."""

from collections.abc import Iterator

from onnxreg.registry.log.lookup import read_versions
from onnxreg.registry.maintain.verification import Audit, Damage, VerifyReport, no_audit, verify
from onnxreg.registry.store.archive.archive_reader import TRUST, ArchiveRegistry
from onnxreg.schema.core.errors import RegError
from onnxreg.schema.core.progress import SILENT, Progress


def verify_archive(
    archive: ArchiveRegistry, progress: Progress = SILENT, audit: Audit = no_audit
) -> VerifyReport:
    """Verify the versions that the archive carries, without any other source."""
    report = verify(archive, progress, audit, archive.carried)
    report.damages += _contradictions(archive)
    if report.unreferenced:
        detail = f"{report.unreferenced} blobs that no carried version and no log refers to"
        report.damages.append(Damage("stray", archive.url, detail))
    return report


def _contradictions(archive: ArchiveRegistry) -> Iterator[Damage]:
    """Contradictions of `archive.json` and the logs, and damage of parts that no digest covers."""
    try:
        archive.store.get(TRUST)
    except RegError as error:
        yield Damage("archive", TRUST, error.message)
    if not any(archive.carried.values()):
        yield Damage("archive", archive.url, "it carries no version")
    for name, versions in archive.carried.items():
        try:
            _, entries = read_versions(archive, name)
        except RegError as error:
            yield Damage("archive", name, f"it says that it carries {name}: {error.message}")
            continue
        for version in sorted(versions):
            if version not in entries or entries[version].gone is not None:
                yield Damage(
                    "archive", f"{name}:{version}", "it says that it carries what its log does not have"
                )
