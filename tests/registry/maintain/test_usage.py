"""Space by model: what is shared, what is a model's own, what nothing refers to."""

import pytest
from support.registries import owner
from support.registries.home import Home

from onnxreg.registry.log.commit import blob_keys, survey
from onnxreg.registry.maintain.space import usage
from onnxreg.registry.store.layout import BlobKey
from onnxreg.schema.core.errors import NotFoundError


@pytest.fixture
def filled(registry: Home) -> Home:
    """Two models with the same companions; the weights of `small` are also those of a version of `acme/pii`."""
    registry.make(seed="a")
    registry.make(seed="b", size=1000)
    registry.make(name="small", seed="a")
    return registry


def test_the_parts_make_the_whole(filled: Home) -> None:
    found = usage(filled.store)
    assert [(model["name"], model["versions"]) for model in found["models"]] == [
        ("acme/pii", 2),
        ("small", 1),
    ]
    large, small = found["models"]
    assert large["shared"] == small["shared"] > 0
    assert large["unique"] + small["unique"] + small["shared"] == found["total"]["bytes"]
    assert found["total"] == {
        "blobs": len(blob_keys(filled.store)),
        "bytes": sum(blob_keys(filled.store).values()),
    }
    assert found["unreferenced"] == {"blobs": 0, "bytes": 0}


def test_unique_bytes_are_freed_with_the_model(filled: Home) -> None:
    (small,) = usage(filled.store, ["small"])["models"]
    (filled.store.root / "index" / "small.jsonl").unlink()
    filled.heads.reset(filled.id)
    assert usage(filled.store)["unreferenced"]["bytes"] == small["unique"] == owner.gc(filled)[1].size


def test_unreferenced_bytes_are_freed_by_a_collection(filled: Home) -> None:
    owner.gc(filled, 1, dry_run=True)
    owner.drop(filled, "acme/pii:0.1.1")
    found, collected = usage(filled.store), survey(filled.store)
    assert found["unreferenced"] == {"blobs": len(collected.freed), "bytes": collected.size}
    assert collected.freed
    assert found["models"][0]["versions"] == 1


def test_a_blob_under_two_keys_counts_twice(filled: Home) -> None:
    digest = filled.get("small").digest
    data = (filled.store.root / BlobKey(digest).path).read_bytes()
    before = usage(filled.store, ["small"])["models"][0]["unique"]
    (filled.store.root / BlobKey(digest, 1).path).write_bytes(data)
    assert usage(filled.store, ["small"])["models"][0]["unique"] == before + len(data)


def test_an_unknown_name_is_not_found(filled: Home) -> None:
    with pytest.raises(NotFoundError, match="there is no model smal"):
        usage(filled.store, ["smal"])
