"""A family in a manifest: what the document itself refuses, what an index says of it, and how two of them differ."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from onnxreg.schema.compare.manifests import diff
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.gates.rule import PromotionCandidate
from onnxreg.schema.log.summary import VersionSummary, summarize
from onnxreg.schema.manifest.family import classes_digest
from onnxreg.schema.manifest.manifest import Manifest

WIDTH = 8
HEADS = {"tomato": ["healthy", "blight"], "potato": ["healthy", "rot", "scab"]}
SPECIES = ["tomato", "potato", "weed"]


def sha(number: int) -> str:
    return f"sha256:{number:064x}"


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


@pytest.fixture
def family() -> dict[str, Any]:
    pixels = tensor("input", "batch_size", 3, 16, 16)
    species = tensor("species_logits", "batch_size", len(SPECIES))
    artifacts = [artifact("swin.onnx", 1, [pixels], [species, EMBEDDING])]
    members: list[dict[str, Any]] = [
        {
            "name": "backbone",
            "role": "backbone",
            "artifacts": ["swin.onnx"],
            "classes": classes("species_logits", SPECIES),
        }
    ]
    for number, (species_id, ids) in enumerate(HEADS.items(), 10):
        path = f"heads/{species_id}.onnx"
        logits = tensor("disease_logits", "batch_size", len(ids))
        artifacts.append(artifact(path, number, [EMBEDDING], [logits]))
        members.append(
            {
                "name": f"head:{species_id}",
                "role": "head",
                "artifacts": [path],
                "classes": classes("disease_logits", ids),
            }
        )
    artifacts.append(artifact("ood.onnx", 40, [EMBEDDING], [tensor("distance", "batch_size")]))
    members.append({"name": "ood", "role": "ood", "artifacts": ["ood.onnx"]})
    members.append({"name": "layout", "role": "metadata", "files": ["onnx-metadata.json"]})
    edges = [
        {"source": "backbone", "output": "embedding", "target": role, "input": "embedding"}
        for role in ("head", "ood")
    ]
    return {
        "format": "openmed-onnx",
        "format_version": 2,
        "name": "acme/crops",
        "formats": ["onnx"],
        "artifacts": artifacts,
        "files": [LAYOUT],
        "model_family": {
            "members": members,
            "edges": edges,
            "routing": {"tomato": "head:tomato", "potato": "head:potato", "weed": None},
        },
    }


def member(value: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in value["model_family"]["members"] if each["name"] == name)


def the_artifact(value: dict[str, Any], path: str) -> dict[str, Any]:
    return next(each for each in value["artifacts"] if each["path"] == path)


Edit = Callable[[dict[str, Any]], Any]
WRONG: dict[str, tuple[Edit, str]] = {
    "a class without a route": (
        lambda v: v["model_family"]["routing"].pop("weed"),
        "class weed has neither a head",
    ),
    "a route of no class": (lambda v: v["model_family"]["routing"].update(rye=None), "class rye"),
    "a missing head": (
        lambda v: v["model_family"]["routing"].update(weed="head:weed"),
        "head:weed, which is not a head",
    ),
    "an orphan head": (
        lambda v: v["model_family"]["routing"].update(potato=None),
        "member head:potato is an orphan",
    ),
    "two of one name": (
        lambda v: member(v, "head:potato").update(name="head:tomato"),
        "two members are called head:tomato",
    ),
    "two backbones": (lambda v: member(v, "head:potato").update(role="backbone"), "one backbone, this one 2"),
    "permuted classes": (
        lambda v: member(v, "head:tomato")["classes"]["ids"].reverse(),
        "not in the order of training",
    ),
    "a class twice": (
        lambda v: member(v, "head:tomato").update(classes=classes("disease_logits", ["blight", "blight"])),
        "class 'blight' is listed twice",
    ),
    "too many classes": (
        lambda v: member(v, "head:tomato").update(classes=classes("disease_logits", ["a", "b", "c"])),
        "member head:tomato has 3 classes, and disease_logits of heads/tomato.onnx 2 columns",
    ),
    "no classes": (lambda v: member(v, "head:tomato").pop("classes"), "member head:tomato does not say"),
    "another width": (
        lambda v: the_artifact(v, "heads/potato.onnx")["metadata"].update(
            inputs=[tensor("embedding", "batch", 9)]
        ),
        r"member head:potato: embedding of heads/potato.onnx is float32\[\?, 9\]",
    ),
    "another type": (
        lambda v: the_artifact(v, "ood.onnx")["metadata"]["inputs"].__setitem__(
            0, EMBEDDING | {"dtype": "float16"}
        ),
        r"member ood: embedding of ood.onnx is float16",
    ),
    "an output that is not there": (
        lambda v: the_artifact(v, "heads/potato.onnx")["metadata"].update(
            outputs=[tensor("logits", "batch", 3)]
        ),
        "member head:potato: heads/potato.onnx has no output called disease_logits",
    ),
    "an artifact of nobody": (
        lambda v: v["artifacts"].append(artifact("stray.onnx", 50, [], [])),
        "artifact stray.onnx belongs to no member",
    ),
    "an artifact that is not there": (
        lambda v: member(v, "head:tomato").update(artifacts=["heads/tomato.onnx", "heads/none.onnx"]),
        "member head:tomato names heads/none.onnx, which is not among the artifacts",
    ),
    "an artifact of two": (
        lambda v: member(v, "ood").update(artifacts=["ood.onnx", "heads/tomato.onnx"]),
        "member ood names heads/tomato.onnx, which another member has",
    ),
    "a head that nothing feeds": (
        lambda v: v["model_family"]["edges"].pop(0),
        "member head:tomato is fed by no edge",
    ),
    "an edge from nowhere": (
        lambda v: v["model_family"]["edges"][0].update(source="trunk"),
        "comes from trunk",
    ),
    "a member without artifacts": (
        lambda v: member(v, "ood").update(artifacts=[]),
        "member ood has no artifact",
    ),
}


def test_a_family_that_fits_is_read(family: dict[str, Any]) -> None:
    read = Manifest.from_json(family).model_family
    assert read is not None
    assert [member.name for member in read.of_role("backbone")] == ["backbone"]
    assert [head.name for head in read.of_role("head")] == ["head:tomato", "head:potato"]


@pytest.mark.parametrize("what", WRONG)
def test_inconsistent_members_are_refused_by_name(family: dict[str, Any], what: str) -> None:
    edit, message = WRONG[what]
    edit(family)
    with pytest.raises(InputError, match=message):
        Manifest.from_json(family)


def test_an_index_lists_the_backbone_only(family: dict[str, Any]) -> None:
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


def test_a_diff_says_which_heads_changed_and_how(family: dict[str, Any]) -> None:
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


def test_a_class_with_another_head_is_breaking(family: dict[str, Any]) -> None:
    new = copy.deepcopy(family)
    routing = new["model_family"]["routing"]
    routing["potato"], routing["tomato"] = routing["tomato"], routing["potato"]
    found = diff(Manifest.from_json(family), Manifest.from_json(new))
    assert not found.compatible and {change.kind for change in found.changes} == {"route-changed"}
