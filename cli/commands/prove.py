"""`reg prove`: that the small file is the big one, rounded, from the bytes of both."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json, RefArgument, RemoteOption
from onnxreg.cli.render import output
from onnxreg.schema.core.errors import GateError, InputError
from onnxreg.schema.core.ref import Ref

if TYPE_CHECKING:
    from onnxreg.cli.services.prove_service import ArtifactProof

EXAMPLES = (
    "reg prove acme/pii-small",
    "reg prove acme/pii-small:1.2.0 --artifact onnx-int8/model_int8.onnx --strict",
    "reg prove acme/imported --artifact model_quantized.onnx --parent model.onnx",
    "reg prove acme/pii-small:1.2.0 --attest --key release",
)


def command(
    session: Session,
    ref: RefArgument,
    artifact: Annotated[
        list[str] | None,
        typer.Option(help="Only this artifact, by its path; may be repeated.", metavar="PATH"),
    ] = None,
    parent: Annotated[
        Path | None, typer.Option(help="Compare with this file, not with the recorded parent.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with status 8 unless every verdict is proven.")
    ] = False,
    attest: Annotated[
        bool, typer.Option("--attest", help="Log the reports, so that a policy can demand them.")
    ] = False,
    key: Annotated[str | None, typer.Option(help="Sign the logged reports with this key of yours.")] = None,
    remote: RemoteOption = None,
    as_json: Json = False,
) -> None:
    """Prove that each quantized artifact is its parent with rounded weights, from the bytes alone.

    Each weight must be the parent's value, rounded under the artifact's own scale, every other tensor
    equal, the graph the same but for the rewrites of docs/prove.md. The verdict is `proven`, `bounded`
    (with the largest error in steps) or `not-provable` (with the reason). Nothing is run, and no
    checkpoint is needed. A proof says nothing about the parent itself.

    With --json: {ref, proofs: [{path, parent, report}]}; report is `reg schema faithfulness`.
    """
    from onnxreg.cli.services.prove_service import prove_version
    from onnxreg.registry.read.versions import read_version

    if key is not None and not attest:
        raise InputError("--key signs logged reports, and nothing is logged", "add --attest")
    reader = session.reader(remote)
    version = read_version(reader, Ref.parse(ref))
    with session.progress("reading the files") as progress:
        proofs = list(prove_version(reader, version, tuple(artifact or ()), parent, progress))
    logged = _attest(session, version.ref, proofs, key, remote) if attest else ""
    documents = [
        {"path": item.path, "parent": item.parent, "report": item.report.to_json()} for item in proofs
    ]
    session.show(
        {"ref": str(version.ref), "proofs": documents},
        output.table(COLUMNS, map(_row, proofs)),
        [output.printable(f"{item.path}: {reason}") for item in proofs for reason in item.report.reasons],
        [logged] if logged else [],
    )
    if strict and (doubtful := [proof.path for proof in proofs if proof.report.verdict != "proven"]):
        raise GateError(
            f"not proven: {', '.join(doubtful)}", "read the reasons above; docs/prove.md has the rules"
        )


COLUMNS = ("PATH", "PARENT", "VERDICT", "WEIGHTS", "QUANTIZED", "CLIPPED", "LARGEST ERROR")


def _attest(
    session: Session, ref: Ref, proofs: "list[ArtifactProof]", key: str | None, remote: str | None
) -> str:
    """Log the reports, here or in the remote that has the version. Returns what to say about it."""
    from onnxreg.registry.gates.statements import attest_proof
    from onnxreg.registry.signing import signing_key

    private = None if key is None else signing_key(key)
    registry, store = session.with_remote(remote)
    published, decisions = registry.get(ref, store), registry.decisions(ref.name, store)
    for proof in proofs:
        attest_proof(decisions, published, proof.report, private)
    reports = "1 report" if len(proofs) == 1 else f"{len(proofs)} reports"
    signed = "" if private is None else f", signed with key {private.public.id[:12]}"
    return f"logged {reports} in {ref.name}{session.place(store)}{signed}"


def _row(proof: "ArtifactProof") -> tuple[object, ...]:
    report = proof.report
    steps = f"{report.largest.steps:.4g}" if report.largest else ""
    largest = steps and f"{steps} step{'' if steps == '1' else 's'}"
    counts = (report.weights, report.quantized, report.clipped)
    return (proof.path, proof.parent, report.verdict, *(f"{count:,}" for count in counts), largest)
