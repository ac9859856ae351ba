"""`reg verify --signatures`: who signed which version, and which later evaluation."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onnxreg.cli.context import Session
from onnxreg.cli.render import output
from onnxreg.schema.core.errors import IntegrityError
from onnxreg.schema.core.ref import Ref

if TYPE_CHECKING:
    from onnxreg.registry.gates.evaluations import SignedEvaluation
    from onnxreg.registry.log.lookup import LocatedVersion
    from onnxreg.registry.registry import Registry
    from onnxreg.registry.store.protocol import RegistryStore
    from onnxreg.registry.trust.releases import SignedRelease

    Listed = tuple[LocatedVersion, list[SignedRelease], list[SignedEvaluation], bool]
    """A version, the signatures on it and on later evaluations of it, and whether one that is demanded is missing."""


def run(
    session: Session, registry: "Registry", place: "RegistryStore | None", ref: str | None, as_json: bool
) -> None:
    """For the shape of the JSON see `reg verify`."""
    names = [ref] if ref is not None else list((place or registry.store).names())
    found = [each for name in names for each in _listed(registry, name, place)]
    wrong = sum(_wrong(signs) + _wrong(said) for _, signs, said, _ in found)
    missing = sum(lacks for _, _, _, lacks in found)
    if as_json:
        output.write_json({"ok": not (wrong or missing), "versions": list(map(_to_json, found))})
    else:
        rows = [row for each in found for row in _rows(each)]
        session.table(("VERSION", "MANIFEST", "SIGNED", "SIGNATURE", "BY"), sorted(rows))
        if not rows:
            session.say("there are no versions yet")
    if wrong:
        raise IntegrityError(
            f"{output.counted(wrong, 'signature')} {'is' if wrong == 1 else 'are'} invalid",
            "do not use these versions until you know why",
        )
    if missing:
        raise IntegrityError(
            f"{output.counted(missing, 'version')} {'lacks' if missing == 1 else 'lack'} a signature that your trust file demands",
            "`reg trust show` lists what must be signed; `reg sign` signs",
        )


def _listed(registry: "Registry", name: str, place: "RegistryStore | None") -> "list[Listed]":
    said = {found.version: evaluations for found, evaluations in registry.evaluations(name, place)}
    missing = registry.unsigned(Ref.parse(name).name, place)
    return [
        (found, signs, said.get(found.version, []), found.version in missing)
        for found, signs in registry.signatures(name, place)
    ]


def _wrong(signed: "Sequence[SignedRelease] | Sequence[SignedEvaluation]") -> int:
    return sum(each.verdict.status == "invalid" for each in signed)


def _rows(listed: "Listed") -> list[tuple[str, ...]]:
    version, signs, said, missing = listed
    found: list[tuple[str, str, str]] = [
        ("version", each.verdict.status, str(each.verdict)) for each in signs
    ]
    if missing:
        found.append(("version", "missing", "a trusted key must sign it"))
    found = found or [("version", "unsigned", "")]
    found += [
        (f"{each.artifact.short} is {each.state}", each.verdict.status, str(each.verdict)) for each in said
    ]
    return [(str(version.ref), version.entry.manifest.short, *row) for row in found]


def _to_json(listed: "Listed") -> dict[str, Any]:
    version, signs, said, missing = listed
    return {
        "name": version.name,
        "version": str(version.version),
        "manifest": str(version.entry.manifest),
        "signatures": [{**signed.verdict.to_json(), "seq": signed.seq} for signed in signs],
        "missing": missing,
        "evaluations": [each.to_json() for each in said],
    }
