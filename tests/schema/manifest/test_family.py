"""Families and pipelines in a manifest: what the document refuses, what an index says of it, how two of them differ."""

import copy
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from support.schema.edits import replaced_at, sha

from onnxreg.schema.compare.manifests import diff
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.gates.rule import PromotionCandidate
from onnxreg.schema.log.state import VersionSummary, summarize
from onnxreg.schema.manifest.family import (
    MAX_STAGES,
    Graph,
    ModelFamily,
    check_alternatives,
    classes_digest,
    pipeline_of,
)
from onnxreg.schema.manifest.manifest import Manifest
from onnxreg.schema.manifest.vocabulary import Tensor

WIDTH = 8
HEADS = {"tomato": ["healthy", "blight"], "potato": ["healthy", "rot", "scab"]}
SPECIES = ["tomato", "potato", "weed"]


def tensor(name: str, *dims: int | str) -> dict[str, Any]:
    shape = [
        {"kind": "static", "value": dim} if isinstance(dim, int) else {"kind": "dynamic", "name": dim}
        for dim in dims
    ]
    return {"name": name, "dtype": "float32", "shape": shape}


def artifact(path: str, number: int, inputs: list[Any], outputs: list[Any]) -> dict[str, Any]:
    return {
        "format": "onnx",
        "precision": "float32",
        "path": path,
        "digest": sha(number),
        "size": 100,
        "metadata": {"inputs": inputs, "outputs": outputs, "opset": 18},
    }


def classes(output: str, ids: list[str]) -> dict[str, Any]:
    return {"output": output, "ids": list(ids), "digest": str(classes_digest(ids))}


EMBEDDING = tensor("embedding", "batch_size", WIDTH)
LAYOUT = {"role": "metadata", "path": "onnx-metadata.json", "digest": sha(90), "size": 2}


def about(name: str, role: str, *artifacts: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "role": role, **({"artifacts": list(artifacts)} if artifacts else {}), **more}


@pytest.fixture
def family() -> dict[str, Any]:
    pixels = tensor("input", "batch_size", 3, 16, 16)
    species = tensor("species_logits", "batch_size", len(SPECIES))
    artifacts = [artifact("swin.onnx", 1, [pixels], [species, EMBEDDING])]
    members = [about("backbone", "backbone", "swin.onnx", classes=classes("species_logits", SPECIES))]
    for number, (species_id, ids) in enumerate(HEADS.items(), 10):
        path = f"heads/{species_id}.onnx"
        logits = tensor("disease_logits", "batch_size", len(ids))
        artifacts.append(artifact(path, number, [EMBEDDING], [logits]))
        members.append(about(f"head:{species_id}", "head", path, classes=classes("disease_logits", ids)))
    artifacts.append(artifact("ood.onnx", 40, [EMBEDDING], [tensor("distance", "batch_size")]))
    members.append(about("ood", "ood", "ood.onnx"))
    members.append(about("layout", "metadata", files=["onnx-metadata.json"]))
    edges = [
        {"source": "backbone", "output": "embedding", "target": role, "input": "embedding"}
        for role in ("head", "ood")
    ]
    routing = {"tomato": "head:tomato", "potato": "head:potato", "weed": None}
    return {
        "format": "openmed-onnx",
        "format_version": 2,
        "name": "acme/crops",
        "formats": ["onnx"],
        "artifacts": artifacts,
        "files": [LAYOUT],
        "model_family": {"members": members, "edges": edges, "routing": routing},
    }


def member(value: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in value["model_family"]["members"] if each["name"] == name)


def the_artifact(value: dict[str, Any], path: str) -> dict[str, Any]:
    return next(each for each in value["artifacts"] if each["path"] == path)


Edit = Callable[[dict[str, Any]], Any]
WRONG = r"""
/model_family/routing/weed | removed | class weed has neither a head
/model_family/routing/rye | null | class rye
/model_family/routing/weed | "head:weed" | head:weed, which is not a head
/model_family/routing/potato | null | member head:potato is an orphan
/model_family/members/2/name | "head:tomato" | two members are called head:tomato
/model_family/members/2/role | "backbone" | one backbone, this one 2
/model_family/members/1/classes/ids | ["blight", "healthy"] | not in the order of training
/model_family/members/1/classes | CLASSES ["blight", "blight"] | class 'blight' is listed twice
/model_family/members/1/classes | CLASSES ["a", "b", "c"] | member head:tomato has 3 classes, and disease_logits of heads/tomato.onnx 2 columns
/model_family/members/1/classes | removed | member head:tomato does not say
/model_family/members/1/artifacts/- | "heads/none.onnx" | member head:tomato names heads/none.onnx, which is not among the artifacts
/model_family/members/3/artifacts/- | "heads/tomato.onnx" | member ood names heads/tomato.onnx, which another member has
/model_family/members/3/artifacts | [] | member ood has no artifact
/model_family/members/4/files/- | "none.json" | member layout names none.json, which is not among the files
/model_family/edges/0 | removed | member head:tomato is fed by no edge
/model_family/edges/0/source | "trunk" | comes from trunk
/artifacts/2/metadata/inputs/0/shape/1/value | 9 | member head:potato: embedding of heads/potato.onnx is float32[?, 9]
/artifacts/3/metadata/inputs/0/dtype | "float16" | member ood: embedding of ood.onnx is float16
/artifacts/2/metadata/outputs/0/name | "logits" | member head:potato: heads/potato.onnx has no output called disease_logits
/artifacts/3/path | "stray.onnx" | member ood names ood.onnx, which is not among the artifacts
/model_family/members/3 | removed | an edge leads to the role ood, which no member has
"""
"""The pointer, the new value, and a part of the reason."""


def test_a_family_that_fits_is_read(family):
    read = Manifest.from_json(family).model_family
    assert read is not None
    assert [member.name for member in read.of_role("backbone")] == ["backbone"]
    assert [head.name for head in read.of_role("head")] == ["head:tomato", "head:potato"]


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_inconsistent_members_are_refused_by_name(family, line):
    pointer, text, message = line.split(" | ")
    value: Any = ... if text == "removed" else json.loads(text.removeprefix("CLASSES "))
    if text.startswith("CLASSES"):
        value = classes("disease_logits", value)
    with pytest.raises(InputError, match=re.escape(message)):
        Manifest.from_json(replaced_at(family, pointer, value))


def test_an_artifact_of_nobody_is_refused(family):
    family["artifacts"].append(artifact("stray.onnx", 50, [], []))
    with pytest.raises(InputError, match=r"artifact stray\.onnx belongs to no member"):
        Manifest.from_json(family)


def test_an_index_lists_the_backbone_only(family):
    manifest = Manifest.from_json(family)
    digest = Digest.of(b"")
    short = VersionSummary.read(summarize(manifest, digest, 1))
    whole = VersionSummary.read(summarize(manifest, digest, 1, every=True))
    assert [each.path for each in short.artifacts] == ["swin.onnx"]
    assert len(whole.artifacts) == len(manifest.artifacts)
    candidate = PromotionCandidate(manifest, digest, 1)
    assert (candidate.summary, candidate.full_summary) == (short, whole)


def changed(family: dict[str, Any], edit: Edit) -> dict[str, str]:
    """Severity by kind."""
    new = copy.deepcopy(family)
    edit(new)
    found = diff(Manifest.from_json(family), Manifest.from_json(new))
    return {change.kind: change.severity for change in found.changes}


def _without_potato(value: dict[str, Any]) -> None:
    value["model_family"]["routing"]["potato"] = None
    value["model_family"]["members"].remove(member(value, "head:potato"))
    value["artifacts"].remove(the_artifact(value, "heads/potato.onnx"))


def _retrained(value: dict[str, Any]) -> None:
    the_artifact(value, "heads/tomato.onnx")["digest"] = sha(77)


def test_a_diff_says_which_heads_changed_and_how(family):
    assert changed(family, _without_potato) == {
        "artifact-removed": "breaking",
        "member-removed": "breaking",
        "route-changed": "degrading",
    }
    assert changed(family, _retrained) == {"artifact-bytes-changed": "notable"}
    swapped = {"tomato": "head:potato", "potato": "head:tomato"}
    assert changed(family, lambda v: v["model_family"]["routing"].update(swapped)) == {
        "route-changed": "breaking"
    }
    other = classes("disease_logits", ["blight", "healthy"])
    found = changed(family, lambda v: member(v, "head:tomato").update(classes=other))
    assert found == {"class-reordered": "breaking", "classes-digest-changed": "cosmetic"}


def test_a_class_with_another_head_is_breaking(family):
    new = copy.deepcopy(family)
    routing = new["model_family"]["routing"]
    routing["potato"], routing["tomato"] = routing["tomato"], routing["potato"]
    found = diff(Manifest.from_json(family), Manifest.from_json(new))
    assert not found.compatible and {change.kind for change in found.changes} == {"route-changed"}


PIPELINE = pipeline_of({"det.onnx": "detector", "rec.onnx": "recognizer", "det-int8.onnx": "detector"})
IMAGES: Tensor = ("float32", (None, 3, None, None))


def graph(inputs: dict[str, Tensor], outputs: dict[str, Tensor]) -> Graph:
    return inputs, outputs


def test_a_stage_has_all_its_files():
    family = ModelFamily.from_json(PIPELINE)
    assert {each.name: list(each.artifacts) for each in family.stages} == {
        "detector": ["det.onnx", "det-int8.onnx"],
        "recognizer": ["rec.onnx"],
    }
    assert family.to_json()["members"][0]["role"] == "stage"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"routing": {"apple": None}}, "neither edges nor routing"),
        (
            {"edges": [{"source": "detector", "output": "y", "target": "stage", "input": "x"}]},
            "neither edges",
        ),
        (
            {"members": [*PIPELINE["members"], {"name": "ood", "role": "ood", "artifacts": ["o.onnx"]}]},
            "ood is not a stage",
        ),
        ({"members": [*PIPELINE["members"], PIPELINE["members"][0]]}, "two members are called detector"),
        (pipeline_of({f"{n}.onnx": f"s{n}" for n in range(MAX_STAGES + 1)}), f"at most {MAX_STAGES} stages"),
    ],
)
def test_a_pipeline_is_nothing_but_stages(more, message):
    with pytest.raises(InputError, match=message):
        ModelFamily.from_json({**PIPELINE, **more})


def test_files_that_describe_a_pipeline_may_be_a_member():
    about = {"name": "about", "role": "metadata", "files": ["about.json"]}
    assert len(ModelFamily.from_json({"members": [*PIPELINE["members"], about]}).stages) == 2


SAME = graph({"x": IMAGES}, {"y": ("float32", (None, 10))})


@pytest.mark.parametrize(
    "other",
    [
        graph({"x": ("float16", (None, 3, None, None))}, {"y": ("float16", (None, 10))}),
        graph({"x": ("float32", (1, 3, 224, 224))}, {"y": ("float32", (1, 10))}),
    ],
    ids=["half", "fixed"],
)
def test_sizes_and_float_types_may_differ(other):
    check_alternatives({"a": SAME, "b": other})


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (graph({"z": IMAGES}, SAME[1]), "input x is in one of them only"),
        (graph(SAME[0], {"y": ("float32", (None, 5, 10))}), "output y has 2 axes in one and 3 in the other"),
        (graph({"x": ("uint8", (None, 3, None, None))}, SAME[1]), "input x is float32 in one and uint8"),
    ],
    ids=["name", "axes", "type"],
)
def test_alternatives_share_inputs_and_outputs(other, message):
    with pytest.raises(InputError, match=message):
        check_alternatives({"a": SAME, "b": other})
