"""The draft of a family: artifacts, members, edges, routing, the server's JSON files and the recipe as it was run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.families import server_files
from onnxreg.converters.families.backbone import EMBEDDING, LOGITS, LoadedBackbone
from onnxreg.converters.families.build_members import BACKBONE, FUSED
from onnxreg.converters.families.detector import Detector
from onnxreg.converters.families.family_document import DOCUMENT
from onnxreg.converters.families.head_checkpoints import HeadCheckpoint
from onnxreg.converters.families.head_graph import INPUT, OUTPUT
from onnxreg.converters.families.precisions import MemberFile, artifact
from onnxreg.converters.source.file_hash import digest_file
from onnxreg.converters.source.toolchain import tool_versions
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.inputs.family_file import FamilyFile
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile
from onnxreg.schema.manifest.family import ModelFamily, classes_digest
from onnxreg.schema.manifest.preprocessing import Preprocessing
from onnxreg.schema.manifest.recorded_recipe import Recipe

PROFILE, PROFILE_VERSION = "family", 1


@dataclass(frozen=True)
class Parts:
    """What a family was made from: the loaded backbone, the heads by class id, the detector.

    `document` is the family's, as it is recorded; `source` the digest of all checkpoints.
    """

    backbone: LoadedBackbone
    heads: Mapping[str, HeadCheckpoint]
    document: Mapping[str, Any]
    source: Digest
    detector: Detector | None = None
    preprocessing: Preprocessing | None = None


def assemble(asked: FamilyFile, parts: Parts, made: Sequence[MemberFile], workspace: Path) -> Draft:
    """Write the layout files and put the draft together."""
    artifacts = tuple(artifact(each, workspace) for each in made)
    family = ModelFamily.from_json(_family(parts, made, workspace), f"the family of {asked.name}")
    record = parts.detector.record() if parts.detector else None
    factory = parts.backbone.factory
    tools = tool_versions(() if factory is None else factory.packages)
    documents = {
        server_files.LIST: server_files.heads_list(family, artifacts),
        server_files.METADATA: server_files.metadata(family, artifacts, asked, tools, record),
    }
    for path, value in documents.items():
        (workspace / path).write_bytes(server_files.text(value))
    fields = {
        "task": "image-classification",
        **({} if parts.backbone.model_type is None else {"family": parts.backbone.model_type}),
        "model_family": family.to_json(),
        "source": {"id": asked.name, "digest": str(parts.source)},
        "source_model_id": asked.name,
        "recipe": _recipe(parts, made, tools).to_json(),
        **({"license": asked.license} if asked.license else {}),
        **({"preprocessing": parts.preprocessing.to_json()} if parts.preprocessing else {}),
    }
    companions = tuple(DraftFile("metadata", path) for path in documents)
    return Draft(asked.name, workspace, _in_order(artifacts), companions, fields)


def _in_order(artifacts: Sequence[DraftArtifact]) -> tuple[DraftArtifact, ...]:
    return tuple(sorted(artifacts, key=lambda item: item.path))


def _family(parts: Parts, made: Sequence[MemberFile], workspace: Path) -> dict[str, Any]:
    members = [_member(name, parts, made, workspace) for name in dict.fromkeys(each.member for each in made)]
    members.append(
        {"name": "layout", "role": "metadata", "files": [server_files.LIST, server_files.METADATA]}
    )
    roles = [role for role in ("head", "ood", "fused") if any(each.role == role for each in made)]
    edges = [{"source": BACKBONE, "output": EMBEDDING, "target": role, "input": INPUT} for role in roles]
    routing = {
        class_id: parts.heads[class_id].name if class_id in parts.heads else None
        for class_id in parts.backbone.classes
    }
    return {"members": members, "edges": edges, "routing": routing}


def _member(name: str, parts: Parts, made: Sequence[MemberFile], workspace: Path) -> dict[str, Any]:
    own = [each for each in made if each.member == name]
    value: dict[str, Any] = {"name": name, "role": own[0].role, "artifacts": [each.path for each in own]}
    if name == BACKBONE:
        value["classes"] = _classes(LOGITS, parts.backbone.classes)
    if own[0].role == "head":
        (head,) = (head for head in parts.heads.values() if head.name == name)
        value["classes"] = _classes(OUTPUT, head.classes)
    if name == FUSED:
        files = {each.member: each.path for each in reversed(made) if each.role == "head"}
        value["heads"] = [
            {"member": head.name, "digest": str(digest_file(workspace / files[head.name]))}
            for head in parts.heads.values()
        ]
    return value


def _classes(output: str, ids: Sequence[str]) -> dict[str, Any]:
    return {"output": output, "ids": list(ids), "digest": str(classes_digest(ids))}


def _recipe(parts: Parts, made: Sequence[MemberFile], tools: Mapping[str, str]) -> Recipe:
    """One step for each role and precision: 320 heads were made in one way."""
    steps: dict[str, dict[str, Any]] = {}
    for each in made:
        name = f"{each.role}-{each.precision}"
        known = steps.setdefault(name, _step(name, each))
        known["result"]["graphs"] = known["result"].get("graphs", 0) + 1
    if parts.detector:
        steps["ood-float32"]["result"] |= parts.detector.record()
    factory = parts.backbone.factory
    value = {
        "profile": PROFILE,
        "profile_version": PROFILE_VERSION,
        "steps": list(steps.values()),
        "tools": dict(tools),
        "parameters": {DOCUMENT: dict(parts.document)},
        **({} if factory is None else {"code": factory.code.to_json()}),
    }
    return Recipe.from_json(value)


def _step(name: str, made: MemberFile) -> dict[str, Any]:
    if made.step is None:
        return {"name": name, "pass": f"family-{made.role}", "version": 1, "params": {}, "result": {}}
    recorded = made.step.to_json()
    result = recorded.get("result", {}) if made.role == BACKBONE else {}
    above = {"input": f"{made.role}-float32"} if made.parent else {}
    shared = {key: recorded[key] for key in ("pass", "version", "params")}
    return {"name": name, **shared, "result": result, **above}
