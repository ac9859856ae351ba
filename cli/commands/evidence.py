"""`reg attest`, `reg measure`, `reg prove` and `reg certificates`: log, make and list statements about artifacts."""

import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from onnxreg.cli.options import REASON, REF, REMOTE, Session, flag, option
from onnxreg.cli.output import counted, fields, needs, number, printable, table, write_file
from onnxreg.cli.versions import benchmark, blocks, doubts
from onnxreg.registry.log.contents import Release, read_version
from onnxreg.registry.log.log import read_blob
from onnxreg.schema.core import canonical
from onnxreg.schema.core.bounds import MAX_RECORD_BYTES
from onnxreg.schema.core.errors import GateError, InputError, IntegrityError, NotFoundError, about
from onnxreg.schema.core.files import read_given
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.gates.statements import BenchmarkDocument, EvaluationDocument, MetricRecord
from onnxreg.schema.log.state import CERTIFICATE, ArtifactState
from onnxreg.schema.manifest.vocabulary import LOSS

if TYPE_CHECKING:
    from onnxreg.cli.services import ArtifactProof
    from onnxreg.registry.store.protocol import RegistryReader
    from onnxreg.schema.manifest.manifest import Artifact

EXAMPLES = (
    "reg attest acme/pii-small:1.2.0 --report certificates/model_int8.onnx.json",
    "reg attest acme/pii-small:1.2.0 --report field-test.json --key lab --reason 'field test of May'",
    "reg measure acme/pii-small",
    "reg measure acme/pii-small:1.2.0 --on-device pixel.json",
    "reg prove acme/pii-small",
    "reg prove acme/pii-small:1.2.0 --artifact onnx-int8/model_int8.onnx --strict",
    "reg prove acme/imported --artifact model_quantized.onnx --parent model.onnx",
    "reg prove acme/pii-small:1.2.0 --attest --key release",
    "reg certificates acme/pii-small",
    "reg certificates acme/pii-small:1.2.0 --recompute",
)


def attest(
    session: Session,
    ref: str = REF,
    report: Path = option("A certificate, a benchmark, or the document of docs/gates.md.", default=...),
    key: str | None = option("Sign with this key of yours."),
    remote: str | None = REMOTE,
    reason: str | None = REASON,
) -> None:
    """Log a later evaluation of an artifact, or a benchmark. If verdicts on an artifact disagree, a refusal wins.

    The report names an artifact by its digest, and travels with the version.

    With --json: {ref, artifact, path, stated, attested, state}; `stated` is the state in the manifest, `attested` is
    the state in the report, and `state` is the state that is valid from now on. For a benchmark, the document is as in
    `reg measure`.
    """
    from onnxreg.registry.signing import signing_key
    from onnxreg.registry.trust.signatures import attest as attest_evaluation

    data, value = read_given(report), None
    with suppress(InputError):  # reading it as an evaluation gives the error
        value = canonical.decode(data)
    if isinstance(value, dict) and value.get("format") == "onnxreg-benchmark":
        if key is not None:
            raise InputError("a benchmark is not signed: no gate reads it", "leave --key away")
        _log_benchmark(session, ref, data, str(report), remote, reason=reason)
        return
    private = None if key is None else signing_key(key)
    registry, store = session.with_remote(remote)
    release = registry.get(ref, store)
    decisions = registry.decisions(release.name, store)
    artifact, evaluation, state = attest_evaluation(decisions, release, data, private, reason, str(report))
    stated, path = artifact.certification.state, artifact.path
    document = {"ref": release.ref, "artifact": artifact.digest, "path": path}
    stays = f"it stays {state}: only a refusal changes the state of a published artifact"
    session.show(
        document | {"stated": stated, "attested": evaluation.state, "state": state},
        f"{release.ref} {path}: {evaluation.state}; its manifest says {stated}",
        stays if state != evaluation.state else None,
    )


def measure(
    session: Session,
    ref: str = REF,
    artifact: list[str] | None = option("Only this artifact, by its path; may be repeated.", metavar="PATH"),
    on_device: Path | None = option(
        "Take the document that a client on a phone or in a browser wrote; - is stdin.", metavar="FILE|-"
    ),
    output: Path | None = option("Write the document to this file, and log nothing."),
    remote: str | None = REMOTE,
) -> None:
    """Time artifacts and their full-precision parents on this machine, and log the latencies.

    Runs of artifact and parent alternate, on one thread, with random inputs of 32 and 128 tokens. `reg export` with a
    suite measures this too. With --on-device nothing runs on this machine: FILE has the latencies that a client in
    examples/ has measured (docs/latency.md).

    With --json: {ref, benchmark, speeds, logged}; the schema of benchmark is `reg builtin schemas benchmark`; speeds
    are by path.
    """
    if on_device is not None and artifact:
        raise InputError("--artifact chooses what is timed here", "leave it away with --on-device")
    if on_device is None:
        from onnxreg.cli.services import measure_version

        reader = session.reader(remote)
        with session.progress("reading the files") as progress:
            report = measure_version(reader, read_version(reader, Ref.parse(ref)), artifact or (), progress)
    elif str(on_device) == "-":
        report = sys.stdin.buffer.read(MAX_RECORD_BYTES + 1)
    else:
        report = read_given(on_device)
    _log_benchmark(session, ref, report, str(on_device or "the benchmark"), remote, output)


def _log_benchmark(
    session: Session,
    ref: str,
    report: bytes,
    label: str,
    remote: str | None,
    output: Path | None = None,
    reason: str | None = None,
) -> None:
    from onnxreg.registry.trust.signatures import attest_benchmark

    document = BenchmarkDocument.decode(report, label)
    registry, store = session.with_remote(remote)
    release = registry.get(ref, store)
    outcome = f"logged in {release.name}{session.place(store)}"
    if output is None:
        attest_benchmark(registry.decisions(release.name, store), release, report, label, reason)
    else:
        write_file(output, report)
        outcome = f"written to {output}"
    paths = {artifact.digest: artifact.path for artifact in release.manifest.artifacts}
    speeds = {paths.get(digest, str(digest)): speed for digest, speed in document.speeds.items()}
    session.show(
        {"ref": release.ref, "benchmark": document, "speeds": speeds, "logged": output is None},
        benchmark(document),
        outcome,
    )


def prove(
    session: Session,
    ref: str = REF,
    artifact: list[str] | None = option("Only this artifact, by its path; may be repeated.", metavar="PATH"),
    parent: Path | None = option("Compare with this file, not with the recorded parent."),
    strict: bool = flag("Exit with status 8 unless every verdict is proven."),
    attest: bool = flag("Log the reports, so that a policy can demand them."),
    key: str | None = option("Sign the logged reports with this key of yours."),
    remote: str | None = REMOTE,
) -> None:
    """Prove that each quantized artifact is its parent with rounded weights.

    The verdict is `proven`, `bounded` (with the largest rounding error of a weight, in steps of its scale) or
    `not-provable` (with the reason). The proof reads only the files, and runs no model. It says nothing about the
    parent itself. See docs/prove.md.

    With --json: {ref, proofs: [{path, parent, report}]}; the schema of report is `reg builtin schemas faithfulness`.
    """
    from onnxreg.cli.services import prove_version
    from onnxreg.registry.signing import signing_key
    from onnxreg.registry.trust.signatures import attest_proof

    if key is not None and not attest:
        raise InputError("--key signs logged reports, and nothing is logged", "add --attest")
    reader = session.reader(remote)
    version = read_version(reader, Ref.parse(ref))
    with session.progress("reading the files") as progress:
        proofs = list(prove_version(reader, version, artifact or (), parent, progress))
    logged = None
    if attest:
        private = None if key is None else signing_key(key)
        registry, store = session.with_remote(remote)
        published, decisions = registry.get(version.ref, store), registry.decisions(version.name, store)
        for proof in proofs:
            attest_proof(decisions, published, proof.report, private)
        signed = "" if private is None else f", signed with key {private.public.id[:12]}"
        logged = f"logged {counted(len(proofs), 'report')} in {version.name}{session.place(store)}{signed}"
    header = ("PATH", "PARENT", "VERDICT", "WEIGHTS", "QUANTIZED", "CLIPPED", "LARGEST ERROR")
    session.show(
        {"ref": version.ref, "proofs": [proof._asdict() for proof in proofs]},
        table(header, map(_proof_row, proofs)),
        [printable(f"{item.path}: {reason}") for item in proofs for reason in item.report.reasons],
        logged,
    )
    if strict and (doubtful := [proof.path for proof in proofs if proof.report.verdict != "proven"]):
        hint = "read the reasons above; docs/prove.md has the rules"
        raise GateError(f"not proven: {', '.join(doubtful)}", hint)


def _proof_row(proof: "ArtifactProof") -> tuple[object, ...]:
    report = proof.report
    steps = f"{report.largest.steps:.4g}" if report.largest else ""
    largest = steps and f"{steps} step{'' if steps == '1' else 's'}"
    counts = (f"{count:,}" for count in (report.weights, report.quantized, report.clipped))
    return proof.path, proof.parent, report.verdict, *counts, largest


CERTIFICATE_COLUMNS = (
    *("ARTIFACT", "METRIC", "PARENT", "VALUE", "LOSS", "95 %"),
    *("LIMIT", "ITEMS", "VERDICT", "LATENCY", "SCORES"),
)


def certificates(
    session: Session,
    ref: str = REF,
    remote: str | None = REMOTE,
    recompute: bool = flag("Derive every verdict again from the published item scores."),
) -> None:
    """List the certificates of a version: for each artifact and metric the figures, the limit and the verdict.

    --recompute derives the verdicts again from the item scores that `reg export --item-scores` published. If a figure
    differs, the exit status is 4. See docs/certification.md.

    With --json: {ref, certificates: [{artifact, digest, suite, parent, task, state, stated, metrics: [{metric, version,
    direction, rule, limit, parent, value, loss, interval, samples, groups, state, reasons, settings, item_scores}],
    differences: [{metric, key, recorded, recomputed}], speeds?}]}; `stated` is the state in the certificate, and
    `state` is the state after later evaluations; `differences` is null without --recompute.
    """
    reader = session.reader(remote)
    published = read_version(reader, Ref.parse(ref), yanked=True)
    certificates = list(_certificates(reader, published))
    states = published.states
    documents, rows, changed = [], [], list[str]()
    for artifact, document in certificates:
        differences = None
        if recompute:
            with needs("evaluate", "reg certificates --recompute"):
                from onnxreg.converters.evaluation.evaluate import recompute as derive

            differences = list(derive(document, partial(read_blob, reader), artifact.path))
        changed += map(str, differences or ())
        rows += [_metric_row(artifact.path, metric, states[artifact.path]) for metric in document.metrics]
        documents.append(
            {"artifact": artifact.path, "digest": document.artifact, "differences": differences}
            | fields(document, "suite parent task metrics")
            | {"state": states[artifact.path].state, "stated": document.state}
            | ({"speeds": timed} if (timed := states[artifact.path].speeds) else {})
        )
    as_recorded = f"recomputed from the item scores: {counted(len(certificates), 'certificate')} as recorded"
    session.show(
        {"ref": published.ref, "certificates": documents},
        blocks(
            [
                *table(CERTIFICATE_COLUMNS, rows),
                *dict.fromkeys(f"suite {item.suite}" for _, item in certificates),
            ],
            doubts(published),
            *(_labels(artifact.path, item) for artifact, item in certificates),
            [as_recorded] if recompute and not changed else [],
        ),
    )
    if changed:
        raise IntegrityError(
            f"the item scores of {published.ref} do not give its certificates: {'; '.join(changed[:6])}",
            "do not rely on these certificates; ask the publisher to export again",
        )


def _certificates(
    reader: "RegistryReader", published: Release
) -> Iterator[tuple["Artifact", EvaluationDocument]]:
    """Yield a version's certificates. Raise NotFoundError if it has none, and IntegrityError if one is wrong."""
    artifacts = {artifact.digest: artifact for artifact in published.manifest.artifacts}
    entries = [entry for entry in published.manifest.files if entry.role == CERTIFICATE]
    if not entries:
        hint = "reg export ... --eval-suite FILE writes them"
        raise NotFoundError(f"{published.ref} has no certificates", hint)
    for entry in entries:
        document = EvaluationDocument.decode(read_blob(reader, entry.digest), entry.path)
        artifact = artifacts.get(document.artifact)
        if artifact is None or artifact.suite != document.suite:
            message = f"{entry.path} is about another artifact or suite than the manifest"
            raise IntegrityError(message, "do not rely on it")
        with about(f"{entry.path} is not about {published.ref}", IntegrityError, "do not rely on it"):
            published.manifest.check_weights(document.external_data)
        if document.state != (state := artifact.certification.state):
            raise IntegrityError(
                f"{entry.path} says {document.state}, the manifest says {state}", "do not rely on it"
            )
        names = {LOSS, *(check.name for check in document.checks)}
        if document.checks != tuple(check for check in artifact.checks if check.name in names):
            raise IntegrityError(f"{entry.path} has other checks than the manifest", "do not rely on it")
        yield artifact, document


def _labels(path: str, document: EvaluationDocument) -> Iterator[str]:
    lines = []
    for metric in document.metrics:
        settings = metric.settings
        lines += [f"  {gold} was judged by {label}" for gold, label in settings.get("label_map", {}).items()]
        for key, words in (("excluded", "was excluded"), ("other", "is not one of the model's")):
            counts = settings.get(f"{key}_labels", {})
            lines += [f"  {gold} {words}: {counted(spans, 'span')}" for gold, spans in counts.items()]
    return map(printable, [f"labels of {path}:", *lines] if lines else [])


def _metric_row(path: str, metric: MetricRecord, state: ArtifactState) -> tuple[object, ...]:
    verdict: str = metric.state
    if verdict == "certified" and metric.interval is not None and metric.interval[1] >= metric.limit:
        verdict += ", interval above the limit"
    return (
        path,
        f"{metric.metric} v{metric.version}",
        *(number(value) for value in (metric.parent, metric.value, metric.loss)),
        " to ".join(map(number, metric.interval or ())),
        number(metric.limit),
        metric.samples,
        verdict if state.state == state.stated else f"{state.state} (here {verdict})",
        state.latency,
        "no" if metric.item_scores is None else "yes",
    )
