"""`reg resolve --context-tokens`: the KV cache of a decoder in the memory of a device; in `show`, `diff` and `lock` too."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.trust.tamper import Tree

from onnxreg.registry import Registry
from onnxreg.schema.manifest.draft import Draft

Reg = Callable[..., Any]
MakeDraft = Callable[..., Draft]
NAME = "acme/llm"
CACHE = {"bytes_per_token": 1024, "max_tokens": 4096}


@pytest.fixture
def decoders(tmp_path: Path, draft: MakeDraft, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Two releases of a decoder; the second needs twice the memory for a token, and keeps half as many."""
    registry = Registry(tmp_path / "home")
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for version, cache in {"1.0.0": CACHE, "1.1.0": {"bytes_per_token": 2048, "max_tokens": 2048}}.items():
        made = draft(tmp_path / version, name=NAME)
        fields = {"metadata": {"opset": 18}, "kv_cache": cache}
        (model, _) = made.artifacts
        registry.add(replace(made, artifacts=(replace(model, fields=fields),)), version)
    return registry


def phone(tmp_path: Path, ram: int) -> str:
    """A device with the weights' memory, 35,000 bytes, and so many more."""
    (tmp_path / "phone.json").write_text(json.dumps({"ort": "1.23", "ram": 35_000 + ram}))
    return "phone.json"


@pytest.mark.parametrize(
    ("words", "ram", "version"),
    [
        ((), 2048 * 2048, "1.1.0"),
        ((), 2048 * 2048 - 1, None),
        (("--context-tokens", 100), 2048 * 100, "1.1.0"),
        (("--context-tokens", 100), 2048 * 100 - 1, "1.0.0"),
        (("--context-tokens", 100), 1024 * 100 - 1, None),
        (("--context-tokens", 4096), 4096 * 1024, "1.0.0"),
        (("--context-tokens", 4097), 2**40, None),
    ],
)
def test_the_context_decides_the_memory(
    decoders: Registry, reg: Reg, tmp_path: Path, words: tuple[object, ...], ram: int, version: str | None
) -> None:
    sizes = {artifact.size for artifact in decoders.get(f"{NAME}:1.0.0").manifest.artifacts}
    assert sizes == {35_000}
    answer = reg("resolve", NAME, "--device", phone(tmp_path, ram), *words, "--json")
    assert answer.status == (0 if version else 3)
    assert answer.json["version"] == version
    if version == "1.0.0":
        assert answer.json["artifact"]["kv_cache"] == CACHE


def test_the_reason_has_the_sizes(decoders: Registry, reg: Reg, tmp_path: Path) -> None:
    answer = reg("resolve", NAME, "--device", phone(tmp_path, 100), "--context-tokens", "50")
    assert answer.status == 3
    assert (
        "1.1.0 model.onnx has 137400 bytes to hold in 35100 bytes of memory: 35000 of weights, and 2048 for each of 50 tokens"
        in answer.err
    )
    answer = reg("resolve", NAME, "--context-tokens", "4097")
    assert "1.0.0 model.onnx has a context of 4096 tokens, 4097 are wanted" in answer.err
    assert reg("resolve", NAME, "--context-tokens", "-1").status == 2
    assert reg("resolve", NAME, "--context-tokens", "4k").status == 2


def test_an_encoder_has_no_context(home: Path, reg: Reg, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REG_HOME", str(home))
    answer = reg("resolve", "acme/pii", "--context-tokens", "1", "--json")
    assert answer.status == 3
    assert {row["code"] for row in answer.json["rejected"]} == {"context"}
    assert "kv_cache" not in reg("resolve", "acme/pii", "--json").json["artifact"]


def test_a_wrong_cache_in_an_index_file_is_damage(decoders: Registry, reg: Reg) -> None:
    def change(state: Any) -> None:
        state["summaries"]["1.1.0"]["artifacts"][0]["kv_cache"]["max_tokens"] = 2**20

    Tree(decoders.store.root).edit_state(NAME, change)
    assert reg("verify").status == 4


@pytest.mark.parametrize(
    "cache", [7, {}, {"bytes_per_token": 1}, {"bytes_per_token": -1, "max_tokens": 1}], ids=str
)
def test_a_malformed_cache_in_an_index_file_is_an_error(decoders: Registry, reg: Reg, cache: Any) -> None:
    def change(state: Any) -> None:
        state["summaries"]["1.1.0"]["artifacts"][0]["kv_cache"] = cache

    Tree(decoders.store.root).edit_state(NAME, change)
    answer = reg("resolve", NAME)
    assert answer.status == 4 and "cannot be read" in answer.err


def test_show_and_diff_have_the_cache(decoders: Registry, reg: Reg) -> None:
    assert "kv cache 1.0 kB a token, at most 4096 tokens (4.2 MB)" in reg("show", f"{NAME}:1.0.0").out
    changes = reg("diff", f"{NAME}:1.0.0", f"{NAME}:1.1.0", "--json").json["changes"]
    severities = {
        row["path"].rpartition(".")[2]: row["severity"] for row in changes if "kv_cache" in row["path"]
    }
    assert severities == {"bytes_per_token": "degrading", "max_tokens": "breaking"}
    back = reg("diff", f"{NAME}:1.1.0", f"{NAME}:1.0.0", "--json").json["changes"]
    assert {row["severity"] for row in back if "kv_cache" in row["path"]} == {"notable"}


def test_a_lock_keeps_the_question(decoders: Registry, reg: Reg, tmp_path: Path) -> None:
    device = phone(tmp_path, 1024 * 100)
    answer = reg("lock", NAME, "--device", device, "--context-tokens", "100")
    assert answer.status == 0, answer.err
    (lock,) = tmp_path.glob("*.lock*")
    assert '"context": 100' in lock.read_text() or "context = 100" in lock.read_text()
    assert reg("lock", "--check").status == 0
