"""`reg certify`: the certificates of a version, and their verdicts derived again from published item scores."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.errors import needs
from onnxreg.cli.options.shared import Json, RefArgument, RemoteOption
from onnxreg.cli.render import output
from onnxreg.schema.core.errors import IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Ref

if TYPE_CHECKING:
    from onnxreg.registry.read.versions import Release
    from onnxreg.registry.store.protocol import RegistryReader
    from onnxreg.schema.gates.evaluation import EvaluationDocument, MetricRecord
    from onnxreg.schema.log.summary import ArtifactState
    from onnxreg.schema.manifest.manifest import Artifact

EXAMPLES = (
    "reg certify acme/pii-small",
    "reg certify acme/pii-small:1.2.0 --recompute",
    "reg certify acme/pii-small --remote origin --json",
)
HEADER = ("ARTIFACT", "METRIC", "PARENT", "VALUE", "LOSS", "95 %", "LIMIT", "ITEMS", "VERDICT", "SCORES")
Certificates = list[tuple["Artifact", "EvaluationDocument"]]


def command(
    session: Session,
    ref: RefArgument,
    remote: RemoteOption = None,
    recompute: Annotated[
        bool,
        typer.Option("--recompute", help="Derive every verdict again from the published item scores."),
    ] = False,
    as_json: Json = False,
) -> None:
    """List the certificates of a version: for each artifact and metric the figures, the limit and the verdict.

    A certificate names its artifact, parent and suite by digest. A later refusal of the same bytes wins over
    it, and is said.

    --recompute needs the item scores, which `reg export --item-scores` publishes. If a figure differs, the
    exit status is 4. See docs/certification.md.

    With --json: {ref, certificates: [{artifact, digest, suite, parent, task, state, stated, metrics: [{metric,
    version, direction, rule, limit, parent, value, loss, interval, samples, groups, state, reasons,
    settings, item_scores}], differences: [{metric, key, recorded, recomputed}]}]}; stated is the state in the
    certificate, and state that of the bytes, after later evaluations; differences is null without
    --recompute.
    """
    from onnxreg.registry.read.versions import read_version

    reader = session.reader(remote)
    published = read_version(reader, Ref.parse(ref))
    certificates = _certificates(reader, published)
    differences = [_recomputed(reader, *certificate) if recompute else None for certificate in certificates]
    states = {item.path: item for item in published.states}
    rows = [
        (artifact.path, *_row(metric, states[artifact.path]))
        for artifact, document in certificates
        for metric in document.metrics
    ]
    session.show(
        {
            "ref": str(published.ref),
            "certificates": [
                _json(*item, states[item[0].path].state, own)
                for item, own in zip(certificates, differences, strict=True)
            ],
        },
        output.table(HEADER, rows),
        _remarks(published, certificates),
    )
    changed = [str(one) for own in differences for one in own or ()]
    if changed:
        raise IntegrityError(
            f"the item scores of {published.ref} do not give its certificates: {'; '.join(changed[:6])}",
            "do not rely on these certificates; ask the publisher to export again",
        )
    if recompute and not as_json:
        session.say("", f"recomputed from the item scores: {len(certificates)} certificates as recorded")


def _certificates(reader: "RegistryReader", published: "Release") -> Certificates:
    """Each certificate of a version with its artifact.

    Raises NotFoundError without any, IntegrityError if one contradicts the manifest.
    """
    from onnxreg.registry.log.lookup import read_blob
    from onnxreg.schema.gates.evaluation import EvaluationDocument
    from onnxreg.schema.log.summary import CERTIFICATE

    artifacts = {artifact.digest: artifact for artifact in published.manifest.artifacts}
    entries = [entry for entry in published.manifest.files if entry.role == CERTIFICATE]
    if not entries:
        raise NotFoundError(
            f"{published.ref} has no certificates", "reg export ... --eval-suite FILE writes them"
        )
    certificates = []
    for entry in entries:
        document = EvaluationDocument.decode(read_blob(reader, entry.digest), entry.path)
        artifact = artifacts.get(document.artifact)
        evidence = None if artifact is None else artifact.certification.evidence
        if artifact is None or evidence is None or evidence.suite != document.suite:
            raise IntegrityError(
                f"{entry.path} is about another artifact or suite than the manifest", "do not rely on it"
            )
        if document.state != artifact.certification.state:
            raise IntegrityError(
                f"{entry.path} says {document.state}, the manifest says {artifact.certification.state}",
                "do not rely on it",
            )
        certificates.append((artifact, document))
    return certificates


def _recomputed(reader: "RegistryReader", artifact: "Artifact", document: "EvaluationDocument") -> list[Any]:
    from onnxreg.registry.log.lookup import read_blob

    with needs("evaluate", "reg certify --recompute"):
        from onnxreg.converters.evaluation.certificate import recompute

        return list(recompute(document, lambda digest: read_blob(reader, digest), artifact.path))


def _json(
    artifact: "Artifact", document: "EvaluationDocument", state: str, differences: list[Any] | None
) -> dict[str, Any]:
    return {
        "artifact": artifact.path,
        "digest": str(document.artifact),
        "suite": str(document.suite),
        "parent": None if document.parent is None else str(document.parent),
        "task": document.task,
        "state": state,
        "stated": document.state,
        "metrics": [metric.to_json() for metric in document.metrics],
        "differences": None if differences is None else [difference.to_json() for difference in differences],
    }


def _remarks(published: "Release", certificates: Certificates) -> Iterator[str]:
    """The suites, the doubts about the version, and the labels that were not judged as they are."""
    from onnxreg.cli.render import manifest_view

    yield from (f"suite {suite}" for suite in dict.fromkeys(document.suite for _, document in certificates))
    if doubts := list(manifest_view.doubts(published)):
        yield from ("", *doubts)
    for artifact, document in certificates:
        for metric in document.metrics:
            if lines := list(_labels(metric)):
                yield from ("", f"labels of {artifact.path}:", *lines)


def _labels(metric: "MetricRecord") -> Iterator[str]:
    """The labels of the gold that were mapped, and those that were left out of the verdict."""
    for gold, label in metric.settings.get("label_map", {}).items():
        yield f"  {output.printable(gold)} was judged by {output.printable(label)}"
    for key, words in (("excluded_labels", "was excluded"), ("other_labels", "is not one of the model's")):
        for gold, spans in metric.settings.get(key, {}).items():
            yield f"  {output.printable(gold)} {words}: {output.counted(spans, 'span')}"


def _row(metric: "MetricRecord", state: "ArtifactState") -> Iterator[str]:
    yield f"{output.printable(metric.metric)} v{metric.version}"
    yield from (output.number(value) for value in (metric.parent, metric.value, metric.loss))
    yield "" if metric.interval is None else " to ".join(map(output.number, metric.interval))
    yield output.number(metric.limit)
    yield str(metric.samples)
    is_wide = metric.interval is not None and metric.interval[1] >= metric.limit
    verdict = (
        f"{metric.state}, interval above the limit"
        if is_wide and metric.state == "certified"
        else metric.state
    )
    yield verdict if state.state == state.stated else f"{state.state} (here {verdict})"
    yield "no" if metric.item_scores is None else "yes"
