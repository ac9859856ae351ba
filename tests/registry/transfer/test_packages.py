"""Writing model packages: verified while they are written, whole or not at all, never over somebody's files."""

from pathlib import Path

import pytest
from support.registries import memory

from onnxreg.registry.log.contents import Selection
from onnxreg.registry.transfer.export_files import folder_in, materialize, prefix_in, write_package
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError, NotFoundError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.manifest.manifest import FileEntry


def tree(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def test_bytes_are_those_of_the_version_and_the_same_again(registry, make_draft, tmp_path):
    draft = make_draft()
    sources = {path: (draft.root / path).read_bytes() for path in draft.paths()}
    registry.add(draft)
    published, made = write_package(registry.store, Ref.parse("acme/pii"), tmp_path / "one")
    write_package(registry.store, Ref.parse("acme/pii"), tmp_path / "two")
    found = tree(tmp_path / "one")
    assert found == tree(tmp_path / "two")
    assert {Path(path).name: data for path, data in found.items() if Path(path).name in sources} == sources
    assert sum(map(len, found.values())) == made.size
    assert str(published.digest) in (tmp_path / "one/manifest.json").read_text()


def test_an_earlier_package_is_replaced_as_a_whole(registry, tmp_path):
    registry.make()
    registry.make(seed="b")
    out, fresh = tmp_path / "out", tmp_path / "fresh"
    write_package(registry.store, Ref.parse("acme/pii:0.1.0"), out)
    write_package(registry.store, Ref.parse("acme/pii:0.1.1"), out, Selection(("onnx-int8",)))
    write_package(registry.store, Ref.parse("acme/pii:0.1.1"), fresh, Selection(("onnx-int8",)))
    assert tree(out) == tree(fresh)
    assert not any("model.onnx" in path for path in tree(out))


FOREIGN = {name: ("mine", name) for name in ("notes.txt", "model/onnx-int8/mine.onnx", "shared_assets/x")} | {
    text: (text, "manifest.json")
    for text in ("{}", '{"schema_version":"1.0","components":{"m":"m"}}', "no json")
}
"""Files of others, a manifest of another tool among them."""


@pytest.mark.parametrize(("text", "path"), FOREIGN.values(), ids=FOREIGN)
def test_files_of_others_are_left_alone(registry, tmp_path, text, path):
    registry.make()
    if path != "manifest.json":
        write_package(registry.store, Ref.parse("acme/pii"), tmp_path / "out")
    (tmp_path / "out" / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "out" / path).write_text(text)
    before = tree(tmp_path / "out")
    with pytest.raises(InputError, match=f"holds {path}, which no earlier package wrote"):
        write_package(registry.store, Ref.parse("acme/pii"), tmp_path / "out")
    assert tree(tmp_path / "out") == before
    with pytest.raises(InputError, match="is inside the registry"):
        write_package(registry.store, Ref.parse("acme/pii"), registry.store.root / "out")


def test_damage_leaves_the_earlier_package_and_nothing_beside_it(registry, tmp_path):
    digest = registry.make().manifest.artifacts[0].digest
    (tmp_path / "apart").mkdir()
    out = tmp_path / "apart/out"
    write_package(registry.store, Ref.parse("acme/pii"), out)
    before = tree(out)
    blob = next(registry.store.root.rglob(digest.hex))
    blob.chmod(0o644)
    blob.write_bytes(blob.read_bytes()[:-1] + b"!")
    with pytest.raises(IntegrityError, match=r"model\.onnx"):
        write_package(registry.store, Ref.parse("acme/pii"), out)
    assert tree(out) == before
    with pytest.raises(IntegrityError):
        write_package(registry.store, Ref.parse("acme/pii"), tmp_path / "apart/new")
    assert [path.name for path in (tmp_path / "apart").iterdir()] == ["out"]


def test_of_a_partial_version_what_is_held(registry, other, tmp_path):
    registry.make()
    other.pull("acme/pii", registry.place, selection=Selection(("onnx-int8",)))
    _, made = write_package(other.store, Ref.parse("acme/pii"), tmp_path / "out")
    assert [item.artifact.path for item in made.variants] == ["model_int8.onnx"]
    with pytest.raises(NotFoundError, match=r"model\.onnx of acme/pii:0\.1\.0 is not held here"):
        write_package(other.store, Ref.parse("acme/pii"), tmp_path / "all", Selection(("onnx-android",)))
    assert not (tmp_path / "all").exists()


def test_only_a_directory_with_checkpoints_is_a_run_directory(tmp_path):
    assert folder_in(tmp_path) == tmp_path and prefix_in(tmp_path) == ""
    (tmp_path / "checkpoints").mkdir()
    assert folder_in(tmp_path) == folder_in(tmp_path / "exports") == tmp_path / "exports"
    assert prefix_in(tmp_path / "exports") == "exports/"
    (tmp_path / "openmed-onnx.json").write_text("{}")
    assert folder_in(tmp_path) == tmp_path, "an earlier export with checkpoints of its own"


def test_no_file_takes_the_place_of_another_in_a_run_directory(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    files = [
        FileEntry(path=path, digest=Digest.of(b""), size=0, role="config") for path in ("a", "exports/a")
    ]
    with pytest.raises(InputError, match="would be one"):
        materialize(memory.remote(), files, b"{}", tmp_path / "exports")
    assert not (tmp_path / "exports").exists()
