"""`reg prove`: each small artifact of a version is held against the big one that it was made from."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxreg.cli.context import Session
from onnxreg.cli.errors import needs
from onnxreg.cli.render.output import printable
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, NotFoundError, RegError
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.gates.statements import FaithfulnessReport, full_precision_ancestor
from onnxreg.schema.manifest.manifest import Artifact, Manifest

if TYPE_CHECKING:
    from onnxreg.registry import Registry
    from onnxreg.registry.log.lookup import Release
    from onnxreg.registry.store.protocol import RegistryReader

SUFFIXES = (".onnx", ".ort")


@dataclass(frozen=True)
class ArtifactProof:
    """The proof of one artifact; `parent` is the artifact, or the file with its folder, that it was compared with."""

    path: str
    parent: str
    report: FaithfulnessReport


def prove_version(
    reader: "RegistryReader",
    version: "Release",
    paths: tuple[str, ...] = (),
    parent: Path | None = None,
    progress: Progress = SILENT,
) -> Iterator[ArtifactProof]:
    """Yield the proof of each artifact that has a parent in the version, or of those named by their paths.

    Args:
        parent: a file that takes the place of the recorded parent.

    Raises InputError if no artifact has a parent, or a named one does not exist, has none or is not a graph;
    NotFoundError without the file that takes its place.
    """
    from onnxreg.registry.transfer.export_files import fetched

    if parent is not None and not parent.is_file():
        raise NotFoundError(f"there is no file {parent}", "check the path")
    pairs = _pairs(version.manifest, str(version.ref), paths, parent is not None)
    with needs("onnx", "reg prove"), ExitStack() as stack:
        from onnxreg.converters.prove.prove import prove
        from onnxreg.converters.source.source_files import digest_file

        files: dict[Digest, Path] = {}
        for child, one in pairs:
            for artifact in (child, one):
                if artifact is not None and artifact.digest not in files:
                    files[artifact.digest] = stack.enter_context(
                        fetched(reader, artifact, version.held, progress)
                    )
            if parent is not None:
                source, digest = parent, digest_file(parent)
                name = (
                    f"./{parent}" if parent.name == str(parent) else str(parent)
                )  # unlike an artifact's path
            else:
                assert one is not None, "pairs without a parent need one from outside"
                source, digest, name = files[one.digest], one.digest, one.path
            yield ArtifactProof(child.path, name, prove(source, files[child.digest], (digest, child.digest)))


def prove_added(session: Session, registry: "Registry", published: "Release") -> list[dict[str, Any]]:
    """The verdict on each artifact of a new version whose parent is in it. A failure is only a warning."""
    if not any(artifact.parent for artifact in published.manifest.artifacts):
        return []
    try:
        with session.progress("comparing with the parent") as progress:
            proofs = list(prove_version(registry.store, published, progress=progress))
    except RegError as error:
        session.warn(f"warning: no proof: {error.message}")
        return []
    return [
        {
            "path": proof.path,
            "parent": proof.parent,
            "verdict": proof.report.verdict,
            "reasons": list(proof.report.reasons),
        }
        for proof in proofs
    ]


def proof_lines(proofs: list[dict[str, Any]]) -> Iterator[str]:
    """The verdicts of `prove_added` for people, with the first reason of each that is not proven."""
    for proof in proofs:
        reason = f": {printable(proof['reasons'][0])}" if proof["reasons"] else ""
        yield f"{proof['path']} is {proof['verdict']} from {proof['parent']} (reg prove){reason}"


def _pairs(
    manifest: Manifest, ref: str, paths: tuple[str, ...], has_parent: bool
) -> list[tuple[Artifact, Artifact | None]]:
    by_path: Mapping[str, Artifact] = {artifact.path: artifact for artifact in manifest.artifacts}
    if unknown := [path for path in paths if path not in by_path]:
        raise InputError(
            f"{ref} has no artifact {unknown[0]}", f"its artifacts are {', '.join(sorted(by_path))}"
        )
    others = [path for path in paths or by_path if not path.endswith(SUFFIXES)]
    models = [by_path[path] for path in paths or by_path if path.endswith(SUFFIXES)]
    if others and (paths or not models):
        raise InputError(
            f"{others[0]} of {ref} is not an .onnx or .ort file", "only such files can be proven"
        )
    if has_parent:
        return [(artifact, None) for artifact in models]
    pairs = [(artifact, full_precision_ancestor(manifest, artifact)) for artifact in models]
    orphan = next((artifact.path for artifact, parent in pairs if paths and parent is None), None)
    pairs = [(artifact, parent) for artifact, parent in pairs if parent is not None]
    if orphan is not None or not pairs:
        subject = (
            f"no artifact of {ref} has a parent" if orphan is None else f"{orphan} of {ref} has no parent"
        )
        raise InputError(f"{subject} in the version", "name a file with --parent")
    return pairs
