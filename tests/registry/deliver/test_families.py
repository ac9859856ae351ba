"""A family in a registry: one head is pulled, one head is updated, the index stays small, and so does the number of requests."""

import copy
from dataclasses import replace

import pytest
from support.registries.family_drafts import NAME, VARIANTS, write_family
from support.registries.home import Home

from onnxreg.registry.log.contents import Selection
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.manifest.draft import Draft

ONE = f"{NAME}:1.0.0"


def index_bytes(registry: Home) -> bytes:
    index = registry.store.read_index(NAME)
    assert index is not None
    return index.data


@pytest.fixture
def crops(registry, tmp_path) -> Home:
    registry.add(write_family(tmp_path / "draft", 3), "1.0.0")
    return registry


def test_one_member_is_pulled(crops, other, tmp_path):
    wanted = Selection(members=("head:species001",))
    done = other.pull(ONE, crops.place, selection=wanted)
    paths = ("heads/species001-fp16.onnx", "heads/species001-int8.onnx", "heads/species001.onnx")
    assert done.artifacts == {Version(1, 0, 0): paths}
    other.write_out(f"{NAME}:1.0.0", tmp_path / "out")
    found = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.onnx")}
    assert found == set(paths)
    other.check()


def test_members_and_formats_narrow_each_other(crops, other):
    wanted = Selection(("onnx-int8",), members=("backbone", "head:species001"))
    done = other.pull(ONE, crops.place, selection=wanted)
    assert done.artifacts == {Version(1, 0, 0): ("heads/species001-int8.onnx", "swin-int8.onnx")}


def test_a_member_without_what_is_asked_for_is_named(crops, other, tmp_path):
    """And comes along by a pull of its own, beside what is here."""
    draft = write_family(tmp_path / "plain", 2)
    plain = only(draft, "head:species001", "heads/species001.onnx")
    crops.add(plain, "2.0.0")
    newest, url = f"{NAME}:2.0.0", crops.place
    both = Selection(("onnx-int8",), members=("backbone", "head:species001"))
    with pytest.raises(NotFoundError, match=f"head:species001 of {newest} has no onnx-int8") as caught:
        other.pull(newest, url, selection=both)
    assert caught.value.hint == "it has onnx (float32)"
    other.pull(newest, url, selection=both._replace(members=("backbone",)))
    done = other.pull(newest, url, selection=Selection(members=("head:species001",)))
    assert done.artifacts == {Version(2, 0, 0): ("heads/species001.onnx", "swin-int8.onnx")}


def test_a_part_can_be_pulled_from_a_partial_holder(crops, other, tmp_path):
    held = Selection(members=("head:species001",))
    other.pull(ONE, crops.place, selection=held)
    third, url = Home(tmp_path / "third"), other.place
    with pytest.raises(NotFoundError, match="is held by the registry that it comes from"):
        third.pull(ONE, url)
    assert third.pull(ONE, url, selection=held).artifacts


def only(draft: Draft, member: str, path: str) -> Draft:
    """With one artifact of a member alone."""
    family = copy.deepcopy(dict(draft.fields["model_family"]))
    (entry,) = (each for each in family["members"] if each["name"] == member)
    gone, entry["artifacts"] = {*entry["artifacts"]} - {path}, [path]
    kept = tuple(item for item in draft.artifacts if item.path not in gone)
    return replace(draft, artifacts=kept, fields={**draft.fields, "model_family": family})


def test_a_member_that_is_not_there_is_named(crops, other):
    with pytest.raises(NotFoundError, match="has no member head:species01") as caught:
        other.pull(ONE, crops.place, selection=Selection(members=("head:species01",)))
    assert "head:species001" in caught.value.hint


def test_updating_one_head_sends_its_files_and_a_manifest(crops, other, tmp_path):
    crops.push(ONE, other.place)
    crops.add(write_family(tmp_path / "next", 3, {"species001": "b"}), "1.1.0")
    done = crops.push(f"{NAME}:1.1.0", other.place)
    variants = 3
    assert done.blobs == variants + 1
    before, after = (crops.get(f"{NAME}:{tag}").manifest for tag in ("1.0.0", "1.1.0"))
    fresh = {file.path for file in after.all_files()} - {
        file.path for file in before.all_files() if file in set(after.all_files())
    }
    assert fresh == {f"heads/species001{suffix}.onnx" for suffix in ("", "-fp16", "-int8")}


def test_more_artifacts_than_an_event_can_name_are_refused_before_any_is_fetched(registry, other, tmp_path):
    """Six hundred characters a path; the whole version is told without naming them."""
    draft = write_family(tmp_path / "draft", 120, folder="/".join(["h" * 200] * 3))
    registry.add(draft, "1.0.0")
    with pytest.raises(InputError, match="the hold event on acme/crops would have") as caught:
        other.pull(ONE, registry.place, selection=Selection(("onnx-int8",)))
    assert "take the whole version, or fewer artifacts" in caught.value.hint
    assert not list((other.store.root / "blobs").rglob("*/*"))
    members = ("backbone", "head:species001")
    assert other.pull(ONE, registry.place, selection=Selection(members=members)).artifacts
    assert other.pull(ONE, registry.place).artifacts == {Version(1, 0, 0): None}


def test_hundreds_of_heads_leave_the_index_as_it_is(registry, tmp_path):
    sizes = []
    for version, heads in (("1.0.0", 2), ("1.1.0", 100)):
        registry.add(write_family(tmp_path / version, heads), version)
        sizes.append(len(index_bytes(registry)))
    assert sizes[1] < 3 * sizes[0]
    assert registry.resolve(f"{NAME}:1.1.0") is not None


HEADS = 100
INT8 = VARIANTS[-1:]
BLOBS = HEADS + 4
"""The heads, the backbone, the layout, the manifest, and the set of operators that all of them need."""
AROUND = 30
"""Requests of a first push beside those of its blobs: what may be written there is tried, once."""


@pytest.fixture(scope="module")
def many_heads(tmp_path_factory) -> Home:
    """Two versions, one head apart, of one variant."""
    root = tmp_path_factory.mktemp("many_heads")
    registry = Home(root / "home")
    registry.add(write_family(root / "one", HEADS, variants=INT8), "1.0.0")
    registry.add(write_family(root / "two", HEADS, {"species001": "b"}, variants=INT8), "1.1.0")
    return registry


def test_requests_at_s3(many_heads, bucket_url, s3_proxy):
    """One for each new blob, and as many around them whether there are two or hundreds: what is there is listed, not asked for."""
    assert many_heads.push(f"{NAME}:1.0.0", bucket_url).blobs == BLOBS
    assert s3_proxy.requests("PUT", "/blobs/") == BLOBS
    assert len(s3_proxy.seen) <= BLOBS + AROUND
    s3_proxy.seen.clear()
    assert many_heads.push(f"{NAME}:1.1.0", bucket_url).blobs == 2
    assert s3_proxy.requests("PUT", "/blobs/") == 2
    assert s3_proxy.requests("PUT", "/index/") == 1
    assert s3_proxy.requests("PUT") == 2 + 1 + s3_proxy.requests("PUT", "/gc/intents/")
    assert len(s3_proxy.seen) <= 15
    s3_proxy.seen.clear()
    assert many_heads.push(f"{NAME}:1.1.0", bucket_url).blobs == 0
    assert len(s3_proxy.seen) <= 2
