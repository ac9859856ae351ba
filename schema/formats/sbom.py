"""A version as a bill of materials: CycloneDX 1.6 (ECMA-424) or 1.7 with model cards, made from its manifest alone.

The same manifest under the same version gives the same document: its serial number follows from the digest, and it has
no time unless one is given. Facts without a place in the standard are in properties named `onnxreg:...`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal
from uuid import NAMESPACE_URL, uuid5

from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.formats import model_card as card
from onnxreg.schema.formats.model_card import Json, properties
from onnxreg.schema.gates.faithfulness import RecordedProof
from onnxreg.schema.log.summary import ArtifactStates
from onnxreg.schema.manifest.license import spdx_expression
from onnxreg.schema.manifest.manifest import LOCAL_FILES, MEDIA_TYPE, Artifact, FileEntry, Manifest, Source
from onnxreg.schema.manifest.parts import Recipe, Step

SCHEMA = "http://cyclonedx.org/schema/bom-{}.schema.json"
SpecVersion = Literal["1.6", "1.7"]
ROOT, SOURCE, RECIPE = "version", "source", "recipe"
NO_PROOFS: Mapping[str, RecordedProof] = MappingProxyType({})


@dataclass(frozen=True)
class BomSubject:
    """The version that a bill is about; the manifest's digest is that of its exact bytes.

    `states` are those of its artifacts after later evaluations; without them those of the manifest count.
    """

    manifest: Manifest
    digest: Digest
    version: Version
    states: ArtifactStates = ()

    @property
    def ref(self) -> str:
        return f"{self.manifest.name}:{self.version}@{self.digest}"


def bill(
    subject: BomSubject,
    timestamp: str | None = None,
    spec: SpecVersion = "1.6",
    proofs: Mapping[str, RecordedProof] = NO_PROOFS,
) -> Json:
    """The document as a JSON value.

    Args:
        timestamp: RFC 3339, when the bill is said to be made.
        spec: the version of CycloneDX.
        proofs: those on record that artifacts are their parents, rounded, by the paths of the artifacts.
    """
    manifest, states = subject.manifest, {item.path: item.state for item in subject.states}
    value: Json = {
        "$schema": SCHEMA.format(spec),
        "bomFormat": "CycloneDX",
        "specVersion": spec,
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, f'onnxreg:{subject.ref}')}",
        "version": 1,
        "metadata": {
            **({} if timestamp is None else {"timestamp": timestamp}),
            "tools": {"components": [{"type": "application", "name": "onnxreg"}]},
            "component": _version(subject),
        },
        "components": [
            *(
                _artifact(artifact, states.get(artifact.path), proofs.get(artifact.path))
                for artifact in manifest.artifacts
            ),
            *_files(manifest),
        ],
        "dependencies": list(_dependencies(manifest)),
    }
    if manifest.recipe is not None:
        value["formulation"] = [_formula(manifest.recipe)]
    return value


def _version(subject: BomSubject) -> Json:
    manifest = subject.manifest
    group, _, name = manifest.name.rpartition("/")
    value: Json = {
        "type": "machine-learning-model",
        "bom-ref": ROOT,
        **({"group": group} if group else {}),
        "name": name,
        "version": str(subject.version),
        "mime-type": MEDIA_TYPE,
        "hashes": [_hash(subject.digest)],
        "modelCard": card.of_version(manifest),
    }
    if manifest.license is not None:
        value["licenses"] = [_license(manifest.license)]
    if manifest.description is not None:
        value["description"] = manifest.description
    if manifest.source is not None:
        value["pedigree"] = {"ancestors": [_source(manifest.source, manifest.name)]}
    return value


def _license(text: str) -> Json:
    """An SPDX identifier or expression; any other licence is written by its name."""
    expression = spdx_expression(text)
    if expression is None:
        return {"license": {"name": text}}
    is_identifier = re.fullmatch(r"[A-Za-z0-9.-]+", expression) and not expression.startswith("LicenseRef-")
    return {"license": {"id": expression}} if is_identifier else {"expression": expression}


def _source(source: Source, model: str) -> Json:
    """Its digest is one over all source files (see `manifest.Source`), so it is not written as the hash of a file."""
    return {
        "type": "machine-learning-model",
        "bom-ref": SOURCE,
        "name": source.public_id(model) or LOCAL_FILES,
        **({"version": source.revision} if source.revision else {}),
        **properties([("source:digest", source.digest)]),
    }


def _artifact(artifact: Artifact, state: str | None, proof: RecordedProof | None) -> Json:
    facts: list[tuple[str, object]] = [
        ("role", "artifact"),
        ("size", artifact.size),
        ("format", artifact.format),
        ("precision", artifact.precision),
        ("parent", artifact.parent),
        ("reproducible", artifact.reproducible),
        *card.quantization(artifact),
    ]
    if proof is not None:
        report = proof.report
        facts += [("faithfulness", report.verdict), ("faithfulness:parent", report.parent)]
        facts += [("faithfulness:rules", report.rules), ("faithfulness:authority", proof.authority)]
    return {
        "type": "machine-learning-model",
        "bom-ref": _ref_of(artifact),
        "name": artifact.path,
        "hashes": [_hash(artifact.digest)],
        "modelCard": card.of_artifact(artifact, state),
        **properties(facts),
    }


def _files(manifest: Manifest) -> Iterator[Json]:
    """Sidecars and companions, each path once."""
    entries = [entry for artifact in manifest.artifacts for entry in artifact.files] + list(manifest.files)
    for path, entry in {entry.path: entry for entry in reversed(entries)}.items():
        yield {
            "type": "file",
            "bom-ref": _file_ref(entry),
            "name": path,
            "hashes": [_hash(entry.digest)],
            **properties([("role", entry.role), ("size", entry.size)]),
        }


def _dependencies(manifest: Manifest) -> Iterator[Json]:
    """The version consists of its artifacts and companions; an artifact needs its sidecars."""
    parts = [*map(_ref_of, manifest.artifacts), *_refs(manifest.files)]
    yield {"ref": ROOT, "dependsOn": list(dict.fromkeys(parts))}
    for artifact in manifest.artifacts:
        yield {"ref": _ref_of(artifact), "dependsOn": _refs(artifact.files)}


def _formula(recipe: Recipe) -> Json:
    """The making of the version: the tools that shaped its bytes, and the steps in their order."""
    tools = [
        {"type": "application", "bom-ref": f"tool:{name}", "name": name, "version": version}
        for name, version in sorted(recipe.tools.items())
        if name != "isa"
    ]
    facts: list[tuple[str, object]] = [
        ("recipe:profile_version", recipe.profile_version),
        ("recipe:parameters", recipe.parameters),
        ("recipe:isa", recipe.tools.get("isa")),
        ("recipe:trust_remote_code", recipe.trust_remote_code),
        ("recipe:code", None if recipe.code is None else recipe.code.to_json()),
    ]
    workflow = {
        "bom-ref": RECIPE,
        "uid": RECIPE,
        "name": recipe.profile,
        "taskTypes": ["build"],
        "steps": list(map(_step, recipe.steps)),
        **properties(facts),
    }
    return {"components": tools, "workflows": [workflow]}


def _step(step: Step) -> Json:
    facts: list[tuple[str, object]] = [
        ("step:pass", step.pass_),
        ("step:version", step.version),
        ("step:params", step.params),
        ("step:input", step.input),
        ("step:skipped", step.skipped),
    ]
    return {"name": step.name, **properties(facts)}


def _ref_of(artifact: Artifact) -> str:
    return f"artifact:{artifact.format}/{artifact.precision}/{artifact.path}"


def _file_ref(entry: FileEntry) -> str:
    return f"file:{entry.path}"


def _refs(entries: Iterable[FileEntry]) -> list[str]:
    return list(dict.fromkeys(map(_file_ref, entries)))


def _hash(digest: Digest) -> dict[str, Any]:
    return {"alg": "SHA-256", "content": digest.hex}
