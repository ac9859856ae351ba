"""Checkpoints that mean to run code: refused by every kind of export, nothing runs, and nothing is left."""

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import in_process

from onnxreg.converters.passes import model_builder

Reg = Callable[..., Any]
DECODER = "task: text-generation\nsteps:\n  - {name: int4, pass: ModelBuilder, params: {precision: int4}}\n"
VISION = "task: image-classification\noptions: {input: [1, 2, 2]}\nsteps:\n  - {name: fp32, pass: OnnxConversion}\n"
NET = "import torch\n\n\ndef build():\n    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 2))\n"


class Bomb:
    """What makes a directory when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.target),)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with recipes and a factory, and a temporary directory of its own."""
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    for name, text in {"decoder.yaml": DECODER, "vision.yaml": VISION, "net.py": NET}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def armed(source: Path, here: Path) -> Path:
    """A copy of a checkpoint whose weights are a pickle that does more than hold tensors."""
    import torch
    from safetensors.torch import load_file

    place = Path(shutil.copytree(source, here / "checkpoint"))
    tensors: dict[str, Any] = dict(load_file(place / "model.safetensors"))
    (place / "model.safetensors").unlink()
    torch.save({**tensors, next(iter(tensors)): Bomb(here / "ran")}, place / "pytorch_model.bin")
    return place


def refuse(reg: Reg, here: Path, status: int, *words: object) -> str:
    """What a refused export says; nothing ran, and nothing but what was there is left beside the registry's own files."""
    before = sorted(here.rglob("*"))
    done = reg("--registry", here / "r", "export", *words, "--name", "acme/x")
    assert (done.status, done.out) == (status, "")
    assert "Traceback" not in done.err
    assert not (here / "ran").exists()
    left = [path for path in here.rglob("*") if path not in before and path.is_file()]
    own = [path for path in left if path.relative_to(here).parts[0] == "r"]
    assert left == own
    assert not [path for path in own if path.relative_to(here).parts[1] in ("blobs", "index")]
    assert not [path for path in (here / "r" / "local" / "tmp").rglob("*") if path.is_file()]
    return str(done.err)


@pytest.mark.parametrize("words", [("--profile", "android"), ("--task", "token-classification")])
def test_a_checkpoint_of_a_task(reg: Reg, here: Path, bert: Path, words: tuple[str, str]) -> None:
    assert "more than tensors" in refuse(reg, here, 2, armed(bert, here), *words)


def test_the_weights_of_a_module(reg: Reg, here: Path) -> None:
    import torch

    torch.save({"1.weight": Bomb(here / "ran"), "1.bias": torch.zeros(2)}, here / "best.pth")
    said = refuse(reg, here, 2, "net.py:build", "--checkpoint", "best.pth", "--recipe", "vision.yaml")
    assert "best.pth is not a checkpoint of tensors alone" in said


@pytest.fixture
def llama(make_checkpoint: Any, here: Path) -> Path:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=96, max_position_embeddings=64, bos_token_id=2, eos_token_id=3, **sizes)
    LlamaForCausalLM(config).save_pretrained(here / "llama")
    for file in make_checkpoint("distilbert").glob("tokenizer*"):
        shutil.copy(file, here / "llama")
    return here / "llama"


@pytest.mark.more
def test_a_decoder_bomb_is_refused(reg: Reg, here: Path, llama: Path) -> None:
    said = refuse(reg, here, 7, armed(llama, here), "--recipe", "decoder.yaml")
    assert "onnxruntime-genai could not build the model" in said


def test_the_code_of_a_decoder_is_not_run(
    reg: Reg, here: Path, llama: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_builder, "subprocess", in_process)
    (llama / "own.py").write_text(f"import os\nos.mkdir({str(here / 'ran')!r})\n")
    config = json.loads((llama / "config.json").read_text())
    names = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}
    (llama / "config.json").write_text(json.dumps({**config, "auto_map": names}))
    assert reg("--registry", "r", "export", llama, "--recipe", "decoder.yaml", "--name", "acme/x").status == 0
    assert not (here / "ran").exists()
