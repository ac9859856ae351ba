"""Joining converters and registry for a model family: `reg export --recipe` of a document with the key `family`."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxreg.cli.context import Session
from onnxreg.cli.reports.publish_report import announce, write_out
from onnxreg.cli.services.push_published import report_and_push
from onnxreg.schema.core.errors import InputError

if TYPE_CHECKING:
    from onnxreg.schema.core.version import Version
    from onnxreg.schema.inputs.family_file import FamilyFile

BESIDE = frozenset({"recipe", "name", "allow_code"})
"""The options that go with a family."""


def read(recipe: Path, name: str | None) -> "FamilyFile | None":
    """The family that a file describes, under another name where one is given; None where it is a recipe of passes."""
    from onnxreg.converters.families import family_document

    return family_document.read(recipe, name)


def check_options(source: str | None, given: Collection[str]) -> None:
    """InputError for what a family's document says itself."""
    surplus = (
        ["SOURCE"]
        if source is not None
        else [f"--{key.replace('_', '-')}" for key in sorted({*given} - BESIDE)]
    )
    if surplus:
        raise InputError(
            f"{surplus[0]} does not go with a family", "its document names its checkpoints and its limits"
        )


def export(
    session: Session,
    family: "FamilyFile",
    directory: Path,
    version: "Version | None",
    output: Path | None,
    as_json: bool,
    push: str | None = None,
    allow_code: Sequence[str] = (),
) -> None:
    """Export a family, whose relative paths are relative to `directory`, publish it, say so, and push it if a remote is named."""
    from onnxreg.converters.families.export_family import export_family
    from onnxreg.converters.families.family_latency import document
    from onnxreg.converters.tasks.code.consent import Consent

    registry = session.open(create=None)
    with registry.workspace() as workspace:
        with session.steps(as_json) as progress:
            done = export_family(family, directory, workspace, progress, Consent.of(allow_code))
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
