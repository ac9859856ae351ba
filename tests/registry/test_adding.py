"""Files that stay where they are while a version is made of them, and the version that they become."""

import os
from pathlib import Path

import pytest
from support.registries.home import Home

from onnxreg.registry.log.contents import Release
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConflictError, InputError
from onnxreg.schema.core.files import FileState
from onnxreg.schema.core.ref import Version
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile


def add(registry: Home, folder: Path, states: dict[str, FileState]) -> Release:
    """As `reg add` does: the workspace has links."""
    with registry.workspace() as workspace:
        for name in states:
            (workspace / name).symlink_to(folder / name)
        files = (DraftFile("companion", "large.bin"),)
        artifact = DraftArtifact("onnx", "float32", "model.onnx")
        return registry.add(Draft("acme/m", workspace, (artifact,), files, {}, states))


def test_the_users_files_stay_and_are_read_each_time(tmp_path: Path) -> None:
    registry = Home(tmp_path / "home")
    for name in ("model.onnx", "large.bin"):
        (tmp_path / name).write_bytes(os.urandom(2**16))
    states = {name: FileState.of((tmp_path / name).stat()) for name in ("model.onnx", "large.bin")}
    first = add(registry, tmp_path, states)
    assert not add(registry, tmp_path, states).new
    blob = registry.store.blob_path(first.manifest.files[0].digest)
    blob.chmod(0o644)
    blob.write_bytes(b"cut")
    (tmp_path / "model.onnx").write_bytes(b"new")
    with pytest.raises(InputError, match=r"model\.onnx changed while it was read"):
        add(registry, tmp_path, states)
    assert list(registry.state("acme/m").versions) == [first.version]
    states["model.onnx"] = FileState.of((tmp_path / "model.onnx").stat())
    assert add(registry, tmp_path, states).new
    assert Digest.of(blob.read_bytes()) == Digest.of((tmp_path / "large.bin").read_bytes())


def test_a_model_for_another_task_is_no_next_patch(tmp_path: Path) -> None:
    registry = Home(tmp_path / "home")

    def publish(task: str | None, text: str, version: str | None = None) -> str:
        with registry.workspace() as workspace:
            (workspace / "model.onnx").write_text(text)
            artifacts = (DraftArtifact("onnx", "float32", "model.onnx"),)
            draft = Draft("acme/m", workspace, artifacts, fields={"task": task} if task else {})
            return registry.add(draft, Version.parse(version) if version else None).version

    assert publish("token-classification", "a") == "0.1.0"
    with pytest.raises(ConflictError, match=r"acme/m:0\.1\.0 .*token-classification.*text-classification"):
        publish("text-classification", "b")
    assert list(registry.state("acme/m").versions) == ["0.1.0"]
    assert publish("text-classification", "b", "1.0.0") == "1.0.0"
    assert publish("token-classification", "a") == "0.1.0", "a version of the past stays what it is"
    assert publish(None, "c") == "1.0.1", "an unknown task may be the same"
