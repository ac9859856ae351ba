"""The draft of a family: artifacts, members, edges, routing, the server's JSON files, the recorded recipe."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxreg.converters.families import family_files
from onnxreg.converters.families.backbone import EMBEDDING, LOGITS
from onnxreg.converters.families.build_members import BACKBONE, FUSED, LoadedFamily
from onnxreg.converters.families.detector import Detector
from onnxreg.converters.families.family_plan import DOCUMENT, FamilyPlan
from onnxreg.converters.families.head_graphs import INPUT, OUTPUT
from onnxreg.converters.families.precisions import MemberFile, artifact
from onnxreg.converters.source.source_files import digest_file
from onnxreg.converters.source.toolchain import tool_versions
from onnxreg.schema.manifest.draft import Draft, DraftFile
from onnxreg.schema.manifest.family import ModelFamily, classes_digest
from onnxreg.schema.manifest.parts import Recipe

PROFILE, PROFILE_VERSION = "family", 1


def draft_of(
    plan: FamilyPlan,
    family: LoadedFamily,
    detector: Detector | None,
    files: Sequence[MemberFile],
    workspace: Path,
) -> Draft:
    """Write the JSON files of a server, and describe all files."""
    document = plan.document
    artifacts = tuple(artifact(file, workspace) for file in files)
    members = ModelFamily.from_json(_members(family, files, workspace), f"the family of {plan.name}")
    tools = tool_versions(() if plan.factory is None else plan.factory.packages)
    record = detector.record() if detector else {}
    layout = {
        family_files.LIST: family_files.heads_list(members, artifacts),
        family_files.METADATA: family_files.metadata(members, artifacts, document, tools, record),
    }
    for path, value in layout.items():
        (workspace / path).write_bytes(family_files.json_bytes(value))
    model_type, preprocessing = family.backbone.model_type, family.preprocessing
    fields = {
        "task": "image-classification",
        **({} if model_type is None else {"family": model_type}),
        "model_family": members.to_json(),
        "source": {"id": plan.name, "digest": str(plan.source)},
        "source_model_id": plan.name,
        "recipe": _recipe(plan, files, tools, record).to_json(),
        **({"license": document.license} if document.license else {}),
        **({"description": document.description} if document.description else {}),
        **({"preprocessing": preprocessing.to_json()} if preprocessing else {}),
    }
    companions = tuple(DraftFile("metadata", path) for path in layout)
    in_order = tuple(sorted(artifacts, key=lambda item: item.path))
    return Draft(plan.name, workspace, in_order, companions, fields)


def _members(family: LoadedFamily, files: Sequence[MemberFile], workspace: Path) -> dict[str, Any]:
    names = dict.fromkeys(file.member for file in files)
    members = [_member(name, family, files, workspace) for name in names]
    members.append(
        {"name": "layout", "role": "metadata", "files": [family_files.LIST, family_files.METADATA]}
    )
    roles = [role for role in ("head", "ood", "fused") if any(file.role == role for file in files)]
    edges = [{"source": BACKBONE, "output": EMBEDDING, "target": role, "input": INPUT} for role in roles]
    heads = family.heads
    routing = {
        class_id: heads[class_id].name if class_id in heads else None for class_id in family.backbone.classes
    }
    return {"members": members, "edges": edges, "routing": routing}


def _member(name: str, family: LoadedFamily, files: Sequence[MemberFile], workspace: Path) -> dict[str, Any]:
    own = [file for file in files if file.member == name]
    value: dict[str, Any] = {"name": name, "role": own[0].role, "artifacts": [file.path for file in own]}
    if name == BACKBONE:
        value["classes"] = _classes(LOGITS, family.backbone.classes)
    if own[0].role == "head":
        (head,) = (head for head in family.heads.values() if head.name == name)
        value["classes"] = _classes(OUTPUT, head.classes)
    if name == FUSED:
        paths = {file.member: file.path for file in reversed(files) if file.role == "head"}
        value["heads"] = [
            {"member": head.name, "digest": str(digest_file(workspace / paths[head.name]))}
            for head in family.heads.values()
        ]
    return value


def _classes(output: str, ids: Sequence[str]) -> dict[str, Any]:
    return {"output": output, "ids": list(ids), "digest": str(classes_digest(ids))}


def _recipe(
    plan: FamilyPlan, files: Sequence[MemberFile], tools: Mapping[str, str], detector: Mapping[str, Any]
) -> Recipe:
    """Record one step for each role and precision: 320 heads are made in one way."""
    steps: dict[str, dict[str, Any]] = {}
    for file in files:
        name = f"{file.role}-{file.precision}"
        result = steps.setdefault(name, _step(name, file))["result"]
        result["graphs"] = result.get("graphs", 0) + 1
    if detector:
        steps["ood-float32"]["result"] |= detector
    value = {
        "profile": PROFILE,
        "profile_version": PROFILE_VERSION,
        "steps": list(steps.values()),
        "tools": dict(tools),
        "parameters": {DOCUMENT: dict(plan.recorded)},
        **({} if plan.factory is None else {"code": plan.factory.code.to_json()}),
    }
    return Recipe.from_json(value)


def _step(name: str, file: MemberFile) -> dict[str, Any]:
    if file.step is None:
        return {"name": name, "pass": f"family-{file.role}", "version": 1, "params": {}, "result": {}}
    recorded = file.step.to_json()
    result = recorded.get("result", {}) if file.role == BACKBONE else {}
    parent = {"input": f"{file.role}-float32"} if file.parent else {}
    step = {key: recorded[key] for key in ("pass", "version", "params")}
    return {"name": name, **step, "result": result, **parent}
