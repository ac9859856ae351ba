"""docs/recipes.md: every document and command in it works, and its lists are those of the code."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxreg.converters.recipes import olive_passes
from onnxreg.converters.tasks import catalog
from onnxreg.schema.recipe_file import AskedOutput, AskedStep, RecipeFile

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
TEXT = PAGE.read_text("utf-8")
MLP = """
<ir_version: 8, opset_import: ["" : 17]>
mlp (float[batch,64] x) => (float[batch,8] y) <float[64,32] w1, float[32,8] w2>
{ h = MatMul(x, w1) r = Relu(h) y = MatMul(r, w2) }
"""


def write_mlp(path: Path) -> None:
    model, draw = onnx.parser.parse_model(MLP), np.random.default_rng(0)
    del model.graph.initializer[:]
    for name, shape in {"w1": (64, 32), "w2": (32, 8)}.items():
        model.graph.initializer.append(
            numpy_helper.from_array(draw.normal(size=shape).astype(np.float32), name)
        )
    onnx.save(model, path)


def write_llama(path: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4}
    LlamaForCausalLM(
        LlamaConfig(vocab_size=96, max_position_embeddings=64, bos_token_id=2, eos_token_id=3, **sizes)
    ).save_pretrained(path)


def test_every_command_of_the_page_works(
    reg: Callable[..., Any], bert: Path, make_checkpoint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkpoint").symlink_to(bert)
    write_mlp(tmp_path / "mlp.onnx")
    np.savez(tmp_path / "rows.npz", x=np.random.default_rng(1).normal(size=(8, 64)).astype(np.float32))
    write_llama(tmp_path / "llama")
    for file in make_checkpoint("distilbert").glob("tokenizer*"):
        (tmp_path / "llama" / file.name).write_bytes(file.read_bytes())
    for name, document in re.findall(r"```(?:yaml|json) (\S+)\n(.*?)```", TEXT, re.DOTALL):
        (tmp_path / name).write_text(document)
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    commands = re.findall(r"^\$ reg (.*)$", TEXT, re.MULTILINE)
    assert len(commands) > 10
    for command in commands:
        done = reg(*command.split())
        assert done.status == 0, f"{command}: {done.err}"


@pytest.mark.parametrize(("name", "table"), [("tasks", catalog.table), ("olive", olive_passes.table)])
def test_the_lists_of_the_page_are_generated(name: str, table: Callable[[], str]) -> None:
    shown = TEXT.partition(f"<!-- generated: {name} -->\n")[2].partition("<!-- end -->")[0]
    assert shown == f"\n{table()}\n"


@pytest.mark.parametrize("model", [RecipeFile, AskedStep, AskedOutput])
def test_every_key_is_explained(model: Any) -> None:
    for name, field in model.model_fields.items():
        assert f"`{field.alias or name}`" in TEXT
