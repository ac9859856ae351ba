"""The screen of `reg show`: what it is, what may ship, what was measured, what it needs, how to get it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.registries.judged import judged_draft
from support.servers.showroom import TENSORS, draft
from support.terminal import on_a_terminal

from onnxreg.registry import Registry

Reg = Callable[..., Any]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tagger of 20 labels, and a small one that is refused."""
    root = tmp_path_factory.mktemp("show")
    registry = Registry(root / "home")
    registry.add(judged_draft(root / "1", 1), "1.0.0")
    refused = draft(root / "2", "acme/pii", "a", {"DATE": 0.9, "NAME": 0.99})
    fields = {"operators": [{"domain": "com.microsoft", "name": "BiasGelu", "opset": 1}]}
    for artifact in refused.artifacts:
        assert artifact.fields["metadata"]["inputs"] == TENSORS["inputs"]
    refused.artifacts[1].fields.update(fields)  # type: ignore[attr-defined]
    registry.add(refused, "1.0.0")
    return registry.store.root


@pytest.fixture(autouse=True)
def _home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REG_HOME", str(home))


def test_the_screen_says_what_may_ship_and_what_was_measured(home: Path) -> None:
    status, drawn = on_a_terminal(home, "show", "acme/tagger", NO_COLOR="1")
    lines = drawn.splitlines()
    assert status == 0 and len(lines) <= 45 and max(map(len, lines)) <= 80
    text = re.sub(r" +", " ", drawn)
    assert "ship certified: model_fp16.onnx" in text and "unknown not judged: model.onnx" in text
    assert re.search(r"model_int8.onnx\s\(interval above the\slimit\)", text)
    assert "model_int8.onnx quant_recall_delta 0.0" in text
    assert len([line for line in lines if line.startswith("model_") and " LABEL" in line]) == 6
    assert "and 38 checks more (--full)" in text and "suite sha256:" in text


def test_the_worst_labels_and_the_reasons_of_a_refusal_come_first(reg: Reg) -> None:
    text = re.sub(r" +", " ", reg("show", "acme/pii").out)
    assert "not refused: model_int8.onnx" in text
    assert "refused by G4/point: model_int8.onnx\n DATE: recall falls by 0.0931" in text
    assert text.index("model_int8.onnx DATE 0.9 ") < text.index("model_int8.onnx NAME 0.99 ")


def test_it_prints_inputs_outputs_opset_and_operators(reg: Reg) -> None:
    lines = re.sub(r" +", " ", reg("show", "acme/pii").out).splitlines()
    assert "inputs input_ids int64[batch, tokens], attention_mask int64[batch, tokens]" in lines
    assert "outputs logits float32[batch, tokens, 13]" in lines
    assert "opset ai.onnx 18" in lines
    assert "also model_int8.onnx: 1 operator: com.microsoft:BiasGelu" in lines
    assert "needs 1 operator: MatMul" in re.sub(r" +", " ", reg("show", "acme/tagger").out)


def test_it_says_how_to_get_it(reg: Reg, home: Path, tmp_path: Path) -> None:
    assert "reg pull acme/pii:1.0.0 REMOTE --output DIRECTORY" in reg("show", "acme/pii").out
    there = str(tmp_path / "over there")
    Registry(home).push("acme/pii", there)
    shown = reg("show", "acme/pii", "--remote", there).out
    assert f"reg pull acme/pii:1.0.0 '{there}' --output DIRECTORY" in shown
    assert f"get it   reg resolve acme/pii:1.0.0 --remote '{there}' --device DEVICE\n" in shown


def test_full_adds_every_check_and_file(reg: Reg) -> None:
    screen, full = reg("show", "acme/tagger").out, reg("show", "acme/tagger", "--full").out
    assert full.startswith(screen.partition("\nand ")[0])
    assert full.count("LABEL") == 6 + 40 + screen.count("LABEL") - 6
    assert "recipe   android v1" in full and "recall_delta.json" in full
    assert "recall_delta.json" not in screen
