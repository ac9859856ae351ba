"""A server is a remote: what `reg` does with any static host, it does with this."""

import json
from pathlib import Path

import pytest
from support.registries import owner
from support.servers.regserve import Site, wait

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.store.layout import blob_path


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def test_pull(site: Site, filled: Registry, other: Registry) -> None:
    other.pull("acme/pii", site.url)
    assert other.get("acme/pii").digest == filled.get("acme/pii").digest
    assert not owner.verify(other).damages
    manifest = filled.get("acme/pii").manifest
    paths = [f"/{blob_path(file.digest)}" for file in (*manifest.artifacts, *manifest.files)]
    wait(lambda: all(any(path in line for line in site.lines) for path in paths))
    requests = [(line["path"], line["status"]) for line in site.log(0) if line["path"] in paths]
    assert sorted(requests) == sorted((path, 200) for path in paths)


def test_the_command_line(site: Site, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    home = ["--registry", str(tmp_path / "home")]
    assert main([*home, "pull", "tiny", site.url, "--output", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "model.onnx").read_bytes().startswith(b"fp32 c ")
    capfd.readouterr()
    assert main([*home, "resolve", "acme/pii", "--remote", site.url, "--json"]) == 0
    resolved = json.loads(capfd.readouterr().out)
    assert resolved == site.resolve({"ref": "acme/pii"}).json
    assert resolved["files"][0]["url"].startswith(site.url)
