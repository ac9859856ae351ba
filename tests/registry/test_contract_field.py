"""Contracts from the manifest to `resolve`: an app gets only releases that it was written for."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.registries import owner
from support.trust.tamper import Tree

from onnxreg.registry import Registry
from onnxreg.registry.deliver.resolution import NoAnswerError
from onnxreg.schema.core.errors import IntegrityError
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.query.requirements import Query

MakeDraft = Callable[..., Draft]
NAME = "acme/pii"
INPUT = {
    "name": "input_ids",
    "dtype": "int64",
    "shape": [{"kind": "dynamic", "name": "batch"}, {"kind": "static", "value": 16}],
}
OUTPUT = {"name": "logits", "dtype": "float32", "shape": [{"kind": "dynamic", "name": ""}]}


def typed(draft: Draft, labels: list[str], outputs: int = 1) -> Draft:
    """With recorded tensors of the first artifact, and labels."""
    first, int8 = draft.artifacts
    metadata = {"opset": 18, "inputs": [INPUT], "outputs": [OUTPUT] * outputs}
    fields = {**draft.fields, "labels": labels}
    return replace(draft, artifacts=(replace(first, fields={"metadata": metadata}), int8), fields=fields)


@pytest.fixture
def grown(registry: Registry, make_draft: MakeDraft) -> Registry:
    """Two releases with the same labels, and a third with others."""
    registry.add(typed(make_draft(seed="a"), ["O", "NAME"]), "1.0.0")
    registry.add(typed(make_draft(seed="b"), ["O", "NAME"]), "1.1.0")
    registry.add(typed(make_draft(seed="c"), ["NAME", "O"]), "2.0.0")
    return registry


def contract(registry: Registry, version: str) -> Any:
    artifacts = Tree(registry.store.root).state(NAME)["summaries"][version]["artifacts"]
    assert "contract" not in artifacts[1], "no tensor of it is recorded"
    return artifacts[0]["contract"]


def query(*contracts: str) -> Query:
    return Query.read({"contract": list(contracts)})


def test_the_digest_is_that_of_the_document_in_the_docs(grown: Registry) -> None:
    files = grown.get(f"{NAME}:1.0.0").manifest.files
    tokenizer = {file.path: str(file.digest) for file in files if file.role == "tokenizer"}
    document = {
        "inputs": [{"name": "input_ids", "dtype": "int64", "shape": [None, 16]}],
        "outputs": [{"name": "logits", "dtype": "float32", "shape": [None]}],
        "labels": ["O", "NAME"],
        **({"tokenizer": tokenizer} if tokenizer else {}),
    }
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    assert contract(grown, "1.0.0") == f"sha256:{hashlib.sha256(canonical).hexdigest()}"


def test_equal_weights_and_names_of_axes_do_not_matter_labels_and_tensors_do(
    grown: Registry, make_draft: MakeDraft
) -> None:
    assert contract(grown, "1.0.0") == contract(grown, "1.1.0") != contract(grown, "2.0.0")
    grown.add(typed(make_draft(seed="d"), ["O", "NAME"], outputs=2), "3.0.0")
    assert contract(grown, "3.0.0") not in (contract(grown, "1.0.0"), contract(grown, "2.0.0"))


def test_an_app_stays_on_the_newest_release_that_it_understands(grown: Registry) -> None:
    resolution = grown.resolve(NAME, query(contract(grown, "1.0.0")))
    assert str(resolution.located.version) == "1.1.0"
    codes = {(str(item.version), item.artifact): item.code for item in resolution.rejected}
    assert set(codes.values()) == {"contract"}
    both = query(contract(grown, "1.0.0"), contract(grown, "2.0.0"))
    assert str(grown.resolve(NAME, both).located.version) == "2.0.0"
    with pytest.raises(NoAnswerError) as caught:
        grown.resolve(f"{NAME}:2.0.0", query(contract(grown, "1.0.0")))
    assert "the app was written for another one" in str(caught.value.hint)


def test_a_wrong_contract_in_an_index_file_is_damage(grown: Registry) -> None:
    wrong = contract(grown, "2.0.0")

    def change(state: Any) -> None:
        state["summaries"]["1.1.0"]["artifacts"][0]["contract"] = wrong

    Tree(grown.store.root).edit_state(NAME, change)
    assert owner.verify(grown).damages


@pytest.mark.parametrize("value", ["", 7, ["sha256:" + 64 * "0"]])
def test_a_malformed_contract_in_an_index_file_is_an_error(grown: Registry, value: Any) -> None:
    def change(state: Any) -> None:
        state["summaries"]["2.0.0"]["artifacts"][0]["contract"] = value

    Tree(grown.store.root).edit_state(NAME, change)
    with pytest.raises(IntegrityError, match="cannot be read"):
        grown.resolve(NAME)
