"""`reg verify --signatures`: who signed which version."""

from typing import TYPE_CHECKING

from onnxreg.cli import output
from onnxreg.cli.session import Session
from onnxreg.schema.errors import IntegrityError

if TYPE_CHECKING:
    from onnxreg.registry.facade import Registry
    from onnxreg.registry.storage import Remote


def run(
    session: Session, registry: "Registry", place: "Remote | None", ref: str | None, as_json: bool
) -> None:
    """For the shape of the JSON see `reg verify`."""
    names = [ref] if ref is not None else list((place or registry.store).names())
    found = [each for name in names for each in registry.signatures(name, place)]
    wrong = [signed for _, signs in found for signed in signs if signed.verdict.status == "invalid"]
    if as_json:
        versions = [
            {
                "name": version.name,
                "version": str(version.version),
                "manifest": str(version.entry.manifest),
                "signatures": [{**signed.verdict.to_json(), "seq": signed.seq} for signed in signs],
            }
            for version, signs in found
        ]
        output.write_json({"ok": not wrong, "versions": versions})
    else:
        rows = [
            (version.ref, version.entry.manifest.short, each.verdict.status, str(each.verdict))
            for version, signs in found
            for each in signs
        ]
        rows += [
            (version.ref, version.entry.manifest.short, "unsigned", "")
            for version, signs in found
            if not signs
        ]
        session.table(("VERSION", "MANIFEST", "SIGNATURE", "BY"), sorted(rows, key=lambda row: str(row[0])))
    if wrong:
        raise IntegrityError(
            f"{output.counted(len(wrong), 'signature')} {'is' if len(wrong) == 1 else 'are'} invalid",
            "do not use these versions until you know why",
        )
