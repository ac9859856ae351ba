"""Joining converters and registry for a model family: `reg export --recipe` of a document with the key `family`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxreg.cli.context import Session
from onnxreg.cli.reports.publish_report import announce, write_out
from onnxreg.cli.services.push_published import report_and_push

if TYPE_CHECKING:
    from onnxreg.cli.services.export_request import ExportRequest
    from onnxreg.schema.core.version import Version
    from onnxreg.schema.inputs.family_file import FamilyFile


def export(
    session: Session,
    family: "FamilyFile",
    request: "ExportRequest",
    version: "Version | None",
    output: Path | None,
    as_json: bool,
    push: str | None = None,
) -> None:
    """Export the family that a request names, publish it, report it, and push it if a remote is named."""
    from onnxreg.converters.families.export_family import export_family
    from onnxreg.converters.families.family_latency import document
    from onnxreg.converters.tasks.code.consent import Consent

    registry, directory = session.open(create=None), request.document.path.parent
    with registry.workspace() as workspace:
        with session.steps(as_json) as progress:
            done = export_family(family, directory, workspace, progress, Consent.of(request.trust.code))
        published = registry.add(done.draft, version)
    if published.new:
        registry.attest_benchmark(published.ref, document(done.latencies, published.manifest).encode())
    write_out(registry, published, output)

    def outcome(**more: Any) -> None:
        latency = [item.to_json() for item in done.latencies]
        announce(session, published, as_json, output, latency=latency, **more)
        if not as_json:
            session.say("", *(f"latency: {item}" for item in done.latencies))

    report_and_push(session, published.ref, push, as_json, outcome)
