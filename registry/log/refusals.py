"""Record the refusals that manifests state, so that they hold for the bytes in every version.

A manifest alone refuses its own version only. The statement is the report that the manifest names; without a
good one, an evaluation document is made from the manifest, whether or not it names a suite.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.log.stamp import stamp
from onnxreg.registry.store.manifests import read_manifest
from onnxreg.registry.support.actor import NOBODY
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError
from onnxreg.schema.log.events import Attest, Publish
from onnxreg.schema.manifest.manifest import Artifact, Manifest

REASON = "by its manifest"


def record_refusals(ledger: Ledger, since: int) -> Mapping[Digest, bytes]:
    """Append an `attest` for each refusal that is not on record. Returns the statements, by their digests.

    Looked at are the versions that were published after line `since`, and those that the state line
    summarises.
    """
    statements: dict[Digest, bytes] = {}
    for digest in dict.fromkeys([*_published(ledger, since), *_summarised(ledger)]):
        with suppress(IntegrityError, NotFoundError):  # damage is for `reg verify` to tell
            data = ledger.fetch(digest)
            if b'"refused"' in data:
                statements |= _record(ledger, digest, read_manifest(data, digest, ledger.name))
    return statements


def _published(ledger: Ledger, since: int) -> Iterator[Digest]:
    """The manifests of versions that are new in the log."""
    present = {entry.manifest for entry in ledger.entries.values() if entry.gone is None}
    for line in ledger.tail:
        if line.seq > since and isinstance(line.event, Publish) and line.event.manifest in present:
            yield line.event.manifest


def _summarised(ledger: Ledger) -> Iterator[Digest]:
    """The manifests whose summaries tell of a refusal that is not on record."""
    present = {entry.manifest for entry in ledger.entries.values() if entry.gone is None}
    for summary in ledger.summaries.values():
        with suppress(InputError, KeyError, TypeError):
            refused = {
                artifact["digest"] for artifact in summary["artifacts"] if artifact["state"] == "refused"
            }
            manifest = Digest.parse(summary["manifest"])
            if manifest in present and refused - set(map(str, ledger.refused)):
                yield manifest


def _record(ledger: Ledger, digest: Digest, manifest: Manifest) -> dict[Digest, bytes]:
    statements: dict[Digest, bytes] = {}
    for artifact in manifest.artifacts:
        if artifact.certification.state != "refused" or artifact.digest in ledger.refused:
            continue
        evaluation = _statement(ledger, digest, artifact)
        if evaluation is not None:
            media_type, statement = evaluation
            about = stamp(ledger.name, NOBODY, REASON) | {"artifact": artifact.digest, "state": "refused"}
            ledger.append(
                Attest(**about, manifest=digest, statement=Digest.of(statement), media_type=media_type)
            )
            statements[Digest.of(statement)] = statement
    return statements


def _statement(ledger: Ledger, manifest: Digest, artifact: Artifact) -> tuple[str, bytes] | None:
    """The media type and bytes of what refuses an artifact of a manifest. None if they were taken down."""
    from onnxreg.schema.gates.evaluation import EVALUATION, read_evaluation

    evidence = artifact.certification.evidence
    if evidence is not None and evidence.report is not None and evidence.report not in ledger.tombstones:
        with suppress(InputError, IntegrityError, NotFoundError):
            data = ledger.fetch(evidence.report)
            media_type, evaluation = read_evaluation(data)
            verdict = (evaluation.artifact, evaluation.state, evaluation.suite)
            if verdict == (artifact.digest, "refused", evidence.suite or evaluation.suite):
                return media_type, data
    encoded = canonical.encode(_document(manifest, artifact))
    return None if Digest.of(encoded) in ledger.tombstones else (EVALUATION, encoded)


def _document(manifest: Digest, artifact: Artifact) -> dict[str, Any]:
    """The claim of a manifest about an artifact, as an evaluation.

    Without a suite, the suite is the manifest.
    """
    certification, evidence = artifact.certification, artifact.certification.evidence
    value = {} if evidence is None else evidence.to_json()
    basis = {key: value[key] for key in ("parent", "suite", "synthetic") if value.get(key) is not None}
    claim = {} if "suite" in basis else {"suite": str(manifest), "claimed": True}
    return {
        **basis,
        **claim,
        "artifact": str(artifact.digest),
        "format": "onnxreg-evaluation",
        "format_version": 1,
        "state": certification.state,
        "reasons": list(certification.reasons),
        "checks": [check.to_json() for check in artifact.checks],
    }
