"""Hints that name the place which they are about."""

from pathlib import Path

import pytest

from onnxreg.cli import hints
from onnxreg.schema.core.errors import (
    SERVED,
    VERIFY_ADVICE,
    ForkError,
    IntegrityError,
    name_registry_in_hint,
    pip_command,
)


@pytest.mark.parametrize("kind", [IntegrityError, ForkError])
def test_a_hint_names_the_place_as_a_shell_takes_it(kind: type[IntegrityError]) -> None:
    with pytest.raises(kind) as caught, name_registry_in_hint("/srv/my models"):
        raise kind("a blob is damaged", VERIFY_ADVICE)
    assert caught.value.code == "verify-extent" and caught.value.facts == {"place": "/srv/my models"}
    assert "`reg verify --remote '/srv/my models'`" in hints.text(caught.value.advice)
    assert caught.value.message == "a blob is damaged"


def test_a_server_does_not_say_where_its_registry_lies() -> None:
    with pytest.raises(IntegrityError) as caught, name_registry_in_hint(SERVED):
        raise IntegrityError("a blob is damaged", VERIFY_ADVICE)
    assert caught.value.advice is VERIFY_ADVICE
    assert "--remote PLACE" in hints.text(VERIFY_ADVICE)


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
