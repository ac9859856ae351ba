"""Hints of errors."""

from pathlib import Path

import pytest

from onnxreg.schema.core.errors import pip_command


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'onnxreg[s3]'"),
        ('{"url": "file:///home/ada/my%20reg", "dir_info": {}}', "pip install '/home/ada/my reg[s3]'"),
        ('{"url": "file:///src", "dir_info": {"editable": true}}', "pip install -e '/src[s3]'"),
        (
            '{"url": "file:///tmp/onnxreg-1.whl", "archive_info": {}}',
            "pip install 'onnxreg[s3] @ file:///tmp/onnxreg-1.whl'",
        ),
        (
            '{"url": "https://host/reg.git", "vcs_info": {"vcs": "git", "commit_id": "0ff"}}',
            "pip install 'onnxreg[s3] @ git+https://host/reg.git@0ff'",
        ),
    ],
)
def test_an_extra_is_installed_from_where_the_program_came(
    origin: str | None, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "onnxreg-0.2.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: onnxreg\nVersion: 0.2.0\n")
    if origin is not None:
        (installed / "direct_url.json").write_text(origin)
    monkeypatch.syspath_prepend(tmp_path)
    assert pip_command("s3") == command
