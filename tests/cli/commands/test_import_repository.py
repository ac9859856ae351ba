"""`reg import hf://...`: a repository from an emulator of the Hub, by the real client."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.servers.hub import Hub, Repository, running

pytestmark = pytest.mark.usefixtures("reader_in_process")
Reg = Callable[..., Any]
BERT = Path(__file__).parents[2] / "fixtures/openmed-v1/bert"
FILES = {
    "config.json": "config.json",
    "tokenizer.json": "tokenizer.json",
    "onnx/model.onnx": "model.onnx",
    "onnx/model_quantized.onnx": "model_int8.onnx",
}
WORDS = ("import", "hf://acme/ner", "--name", "acme/ner", "--version", "1.0.0")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running(tmp_path / "hub") as hub:
        hub.enter(monkeypatch, tmp_path / "hf")
        hub.repositories["models/acme/ner"] = Repository()
        hub.repositories["models/acme/ner"].add("main", "new", {})
        files = {path: (BERT / name).read_bytes() for path, name in FILES.items()}
        hub.commit(
            "acme/ner",
            {
                **files,
                "model.safetensors": b"weights",
                "2_Dense/model.safetensors": b"dense",
                "README.md": b"---\nlicense: mit\n---\n",
            },
        )
        yield hub


def test_a_repository_becomes_a_version(reg: Reg, hub: Hub) -> None:
    done = reg(*WORDS, "--json")
    assert done.status == 0, done.err
    manifest = done.json["manifest"]
    commit = hub.history("acme/ner")[-1].id
    assert manifest["source"] == {"id": "acme/ner", "revision": commit}
    assert manifest["license"] == "mit"
    assert [item["path"] for item in manifest["artifacts"]] == [
        "onnx/model.onnx",
        "onnx/model_quantized.onnx",
    ]
    assert manifest["artifacts"][1]["parent"] == manifest["artifacts"][0]["digest"]
    assert [line for line in hub.requests if line.startswith("GET") and "safetensors" in line] == [
        f"GET /acme/ner/resolve/{commit}/2_Dense/model.safetensors"
    ]
    assert "2_Dense/model.safetensors" in {file["path"] for file in manifest["files"]}
    hub.requests.clear()
    assert "nothing new" in reg(*WORDS[:4]).out
    assert not any(line.startswith("GET") and "/resolve/" in line for line in hub.requests)


def test_external_data_of_any_name_is_downloaded(reg: Reg, hub: Hub, tmp_path: Path) -> None:
    """One file for all tensors of one graph, and one for each tensor of another."""
    for name, together in (("model", True), ("model_fp16", False)):
        model = onnx.load(BERT / ("model.onnx" if together else "model_int8.onnx"))
        options: dict[str, Any] = {"all_tensors_to_one_file": together, "location": "weights [1]"}
        onnx.save(model, tmp_path / f"{name}.onnx", save_as_external_data=True, size_threshold=0, **options)
    files = {f"onnx/{path.name}": path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    hub.commit("acme/ner", files | {"onnx/model.bin": b"weights of another framework"})
    done = reg(*WORDS, "--json")
    assert done.status == 0, done.err
    first = done.json["manifest"]["artifacts"][0]
    assert [file["path"] for file in first["files"]] == ["onnx/weights [1]"]
    assert not [line for line in hub.requests if line.startswith("GET") and "model.bin" in line]
    hub.commit("acme/ner", {"onnx/weights [1]": None})
    lost = reg("import", "hf://acme/ner", "--name", "acme/other")
    assert (lost.status, "weights [1]" in lost.err) == (2, True)


def test_a_revision(reg: Reg, hub: Hub) -> None:
    first = hub.history("acme/ner")[-1].id
    hub.commit("acme/ner", {"README.md": b"---\nlicense: apache-2.0\n---\n"})
    done = reg("import", f"hf://acme/ner@{first}", "--name", "acme/ner", "--json")
    assert done.json["manifest"]["license"] == "mit"


def test_an_absent_repository_is_refused(reg: Reg, hub: Hub) -> None:
    missing = reg("import", "hf://acme/nothing", "--name", "acme/ner")
    assert (missing.status, "the Hub has no repository acme/nothing" in missing.err) == (3, True)
    malformed = reg("import", "hf://acme", "--name", "acme/ner")
    assert (malformed.status, "not a repository on the Hub" in malformed.err) == (2, True)


def test_a_registry_is_pulled_from(reg: Reg, hub: Hub) -> None:
    hub.commit("acme/ner", {"registry.json": b"{}"})
    done = reg(*WORDS)
    assert done.status == 2
    assert "reg pull NAME hf://acme/ner" in done.err


def test_a_damaged_file_in_the_cache_is_downloaded_again(reg: Reg, hub: Hub, tmp_path: Path) -> None:
    hub.repositories["models/acme/ner"].add("main", "lfs", in_lfs_of(hub, "acme/ner", "onnx/model.onnx"))
    assert reg(*WORDS).status == 0
    (blob,) = (path for path in (tmp_path / "hf").glob("**/blobs/*") if len(path.name) == 64)
    blob.chmod(0o644)
    data = bytearray(blob.read_bytes())
    data[-1] ^= 1
    blob.write_bytes(data)
    assert "nothing new" in reg(*WORDS[:4]).out


def in_lfs_of(hub: Hub, name: str, path: str) -> dict[str, Any]:
    """The files of a repository, of which one lies in LFS."""
    from hashlib import sha256

    from support.servers.hub import in_lfs

    data = hub.read(name, path)
    digest = sha256(data).hexdigest()
    (hub.root / digest).write_bytes(data)
    return {**hub.files(name), path: in_lfs(digest, len(data))}


def test_a_repository_of_openmed(reg: Reg, hub: Hub) -> None:
    hub.commit("acme/ner", dict.fromkeys(FILES))
    hub.commit("acme/ner", {path.name: path.read_bytes() for path in BERT.iterdir()})
    done = reg(*WORDS, "--json")
    assert done.status == 0, done.err
    assert done.json["manifest"]["recipe"]["profile"] == "openmed-v1"
