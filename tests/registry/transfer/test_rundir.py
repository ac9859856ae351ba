"""Run directories: which folder a version goes into, and under which names."""

from pathlib import Path

from onnxreg.registry.transfer.export_files import folder_in, prefix_in


def test_only_a_directory_with_checkpoints_is_one(tmp_path: Path) -> None:
    assert folder_in(tmp_path) == tmp_path and prefix_in(tmp_path) == ""
    (tmp_path / "checkpoints").mkdir()
    assert folder_in(tmp_path) == folder_in(tmp_path / "exports") == tmp_path / "exports"
    assert prefix_in(tmp_path / "exports") == "exports/"
    (tmp_path / "openmed-onnx.json").write_text("{}")
    assert folder_in(tmp_path) == tmp_path, "an earlier export with checkpoints of its own"
