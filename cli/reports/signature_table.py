"""`reg verify --signatures`: who signed which version, and which later evaluation."""

from typing import TYPE_CHECKING, Any

from onnxreg.cli.context import Session
from onnxreg.cli.render import output
from onnxreg.schema.core.errors import IntegrityError
from onnxreg.schema.core.ref import Ref

if TYPE_CHECKING:
    from onnxreg.registry.log.log import LocatedVersion
    from onnxreg.registry.store.protocol import RegistryReader
    from onnxreg.registry.trust.signatures import SignedStatement

    Listed = tuple[LocatedVersion, list[SignedStatement], list[SignedStatement], bool]
    """A version, the signatures on it and on later evaluations of it, and whether one that is demanded is missing."""


def run(session: Session, reader: "RegistryReader", ref: str | None) -> None:
    """For the shape of the JSON see `reg verify`."""
    listed = [item for name in ([ref] if ref else reader.names()) for item in _listed(reader, name)]
    signatures = [item for _, signs, evaluations, _ in listed for item in (*signs, *evaluations)]
    invalid = sum(item.verdict.status == "invalid" for item in signatures)
    missing = sum(lacks for _, _, _, lacks in listed)
    rows = sorted(row for item in listed for row in _rows(item))
    session.show(
        {"ok": not (invalid or missing), "versions": list(map(_to_json, listed))},
        output.table(("VERSION", "MANIFEST", "SIGNED", "SIGNATURE", "BY"), rows),
        [] if rows else "there are no versions yet",
    )
    if invalid:
        raise IntegrityError(
            f"{output.counted(invalid, 'signature')} {'is' if invalid == 1 else 'are'} invalid",
            "do not use these versions until you know why",
        )
    if missing:
        raise IntegrityError(
            f"{output.counted(missing, 'version')} {'lacks' if missing == 1 else 'lack'} a signature that your trust file demands",
            "`reg trust show` lists what must be signed; `reg sign` signs",
        )


def _listed(reader: "RegistryReader", name: str) -> "list[Listed]":
    """The versions of a model, or the one that a ref names exactly."""
    from onnxreg.registry.log.log import LocatedVersion
    from onnxreg.registry.log.lookup import load
    from onnxreg.registry.trust.requirements import unsigned
    from onnxreg.registry.trust.signatures import signed_statements
    from onnxreg.registry.trust.trust_file import load_trust

    ref, trust = Ref.parse(name), load_trust()
    log = load(reader, ref.name)
    only = None if ref.is_bare else log.find(ref, yanked=True, gone=True).version
    statements = list(signed_statements(log, trust))
    missing = unsigned(trust, log, statements)
    return [
        (
            LocatedVersion(log.name, version, entry),
            [item for item in statements if item.version == version],
            [item for item in statements if item.version is None and item.event.manifest == entry.manifest],
            version in missing,
        )
        for version, entry in log.versions.items()
        if only in (None, version)
    ]


def _rows(listed: "Listed") -> list[tuple[str, ...]]:
    version, signs, evaluations, missing = listed
    rows: list[tuple[str, str, str]] = [("version", item.verdict.status, str(item.verdict)) for item in signs]
    if missing:
        rows.append(("version", "missing", "a trusted key must sign it"))
    rows = rows or [("version", "unsigned", "")]
    rows += [
        (f"{item.event.artifact.short} is {item.event.state}", item.verdict.status, str(item.verdict))
        for item in evaluations
        if item.event.artifact is not None
    ]
    return [(str(version.ref), version.entry.manifest.short, *row) for row in rows]


def _to_json(listed: "Listed") -> dict[str, Any]:
    version, signs, evaluations, missing = listed
    return {
        "name": version.name,
        "version": str(version.version),
        "manifest": str(version.entry.manifest),
        "signatures": [{**item.verdict.to_json(), "seq": item.seq} for item in signs],
        "missing": missing,
        "evaluations": [
            {"artifact": str(item.event.artifact), "state": item.event.state}
            | {**item.verdict.to_json(), "seq": item.seq}
            for item in evaluations
        ],
    }
