"""`reg attest`: a later evaluation goes on record."""

from pathlib import Path
from typing import Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json, Reason, RefArgument, TargetRemote

EXAMPLES = (
    "reg attest acme/pii-small:1.2.0 --report recall_delta.json",
    "reg attest acme/pii-small:1.2.0 --report field-test.json --key lab --reason 'field test of May'",
    "reg attest acme/pii-small:1.2.0 --report field-test.json --remote origin",
)


def command(
    session: Session,
    ref: RefArgument,
    report: Annotated[
        Path, typer.Option(help="A recall_delta.json, or the document that docs/gates.md describes.")
    ],
    key: Annotated[str | None, typer.Option(help="Sign with this key of yours.")] = None,
    remote: TargetRemote = None,
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Log a later evaluation of an artifact. If verdicts disagree, the refusal wins.

    The report names an artifact of the version by its digest. It becomes a blob and an event of the log,
    and travels with the version on every push and pull.

    With --json: {ref, artifact, path, stated, attested, state}; stated is the manifest's state, attested
    the report's, state the one that counts from now on.
    """
    from onnxreg.registry.gates.statements import attest
    from onnxreg.registry.signing import signing_key
    from onnxreg.schema.core.given_file import read_given

    data = read_given(report)
    private = None if key is None else signing_key(key)
    registry, store = session.with_remote(remote)
    release = registry.get(ref, store)
    decisions = registry.decisions(release.name, store)
    attestation = attest(decisions, release, data, private, reason, str(report))
    path, state = attestation.path, attestation.evaluation.state
    document = {
        "ref": str(release.ref),
        "artifact": str(attestation.evaluation.artifact),
        "path": path,
        "stated": attestation.stated,
        "attested": state,
        "state": attestation.state,
    }
    stays = f"it stays {attestation.state}: only a refusal changes the state of a published artifact"
    session.show(
        document,
        f"{release.ref} {path}: {state}; its manifest says {attestation.stated}",
        [stays] if attestation.state != state else [],
    )
