"""Contrib operators from the manifest to `resolve`: an old device never gets a file that it cannot load."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.registries import owner
from support.trust.tamper import Tree

from onnxreg.registry import Registry
from onnxreg.registry.deliver import resolution
from onnxreg.registry.deliver.resolution import Resolution
from onnxreg.schema.core.errors import IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.query.device import Device
from onnxreg.schema.query.requirements import Query

MakeDraft = Callable[..., Draft]
NAME = "acme/pii"
NEEDS = ["MatMulNBits", "MatMulNBits bits=8"]
OPERATORS = [{"domain": "com.microsoft", "name": "MatMulNBits", "opset": 1}]
INT8 = Query(formats=("onnx-int8",))


def needing(draft: Draft, **fields: Any) -> Draft:
    """With 8-bit weights in its second artifact."""
    first, int8 = draft.artifacts
    loads = {"metadata": {"opset": 18}}
    return replace(
        draft,
        artifacts=(
            replace(first, fields={**first.fields, **loads}),
            replace(int8, precision="int8-weights", fields={**int8.fields, **loads, **fields}),
        ),
    )


@pytest.fixture
def weights(registry: Registry, make_draft: MakeDraft) -> Registry:
    registry.add(needing(make_draft(), operators=OPERATORS, contrib=NEEDS), "1.0.0")
    return registry


def resolved(registry: Registry, query: Query, release: str) -> Resolution:
    return resolution.resolve(registry.store, Ref.parse(NAME), query, Device(release))


def contrib(registry: Registry, version: str = "1.0.0") -> Any:
    artifacts = Tree(registry.store.root).state(NAME)["summaries"][version]["artifacts"]
    return [artifact.get("contrib") for artifact in artifacts]


def test_the_state_line_has_the_needs_of_the_manifest(weights: Registry) -> None:
    assert contrib(weights) == [None, NEEDS]
    assert not owner.verify(weights).damages


def test_an_old_device_is_not_offered_what_it_cannot_load(weights: Registry) -> None:
    assert resolved(weights, INT8, "1.23").artifact.precision == "int8-weights"
    with pytest.raises(NotFoundError) as caught:
        resolved(weights, INT8, "1.22")
    assert "needs MatMulNBits bits=8, ONNX Runtime 1.22 lacks it, 1.23 has it" in str(caught.value.hint)
    fallback = resolved(weights, Query(), "1.22")
    assert fallback.artifact.precision == "float32"
    assert [(each.artifact, each.code) for each in fallback.rejected] == [
        (weights.resolve(NAME, INT8).artifact.path, "contrib")
    ]


def test_needs_that_nobody_recorded_are_not_proven(registry: Registry, make_draft: MakeDraft) -> None:
    registry.add(needing(make_draft(), operators=OPERATORS), "1.0.0")
    with pytest.raises(NotFoundError) as caught:
        resolved(registry, INT8, "1.31")
    assert "has contrib operators that are not recorded" in str(caught.value.hint)


def test_wrong_needs_in_an_index_file_are_damage(weights: Registry) -> None:
    def change(state: Any) -> None:
        state["summaries"]["1.0.0"]["artifacts"][1]["contrib"] = ["MatMulNBits"]

    Tree(weights.store.root).edit_state(NAME, change)
    assert owner.verify(weights).damages
    with pytest.raises(IntegrityError, match="says other things of manifest"):
        resolution.resolve(weights.store, Ref.parse(NAME), Query(), verify=True)


@pytest.mark.parametrize("value", [{}, "MatMulNBits", [8], [None]])
def test_malformed_needs_in_an_index_file_are_an_error(weights: Registry, value: Any) -> None:
    def change(state: Any) -> None:
        state["summaries"]["1.0.0"]["artifacts"][1]["contrib"] = value

    Tree(weights.store.root).edit_state(NAME, change)
    with pytest.raises(IntegrityError, match="cannot be read"):
        weights.resolve(NAME)
