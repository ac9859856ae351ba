"""Whatever is exported, and by whichever pass: nothing in the registry says where it was made."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support.sampling import sampled

Reg = Callable[..., Any]
GRAPH = """
<ir_version: 8, opset_import: ["" : 17]>
mlp (float[batch,64] x) => (float[batch,8] logits) <float[64,32] w1, float[32,8] w2>
{ h = MatMul(x, w1) r = Relu(h) logits = MatMul(r, w2) }
"""
RECIPE = """
task: onnx
options: {data: rows.npz}
steps:
  - {name: newer, pass: OnnxOpVersionConversion, params: {target_opset: 21}}
  - {name: safe, pass: MobileSafeRewrite}
  - {name: half, pass: OnnxFloatToFloat16}
  - {name: mixed, pass: OrtMixedPrecision}
  - {name: types, pass: OnnxIODataTypeConverter, params: {name_pattern: x, source_dtype: 1, target_dtype: 10}}
  - {name: fixed, pass: DynamicToFixedShape, params: {dim_param: [batch], dim_value: [1]}}
  - {name: int8, pass: OnnxDynamicQuantization}
  - {name: static, pass: OnnxStaticQuantization, data: rows.npz}
  - {name: int4, pass: OnnxBlockWiseRtnQuantization}
  - {name: ort, pass: OrtFormat}
"""
TOLD = "made by /home/jane/train.py, line 3"
NET = """
import torch


def build() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10), torch.nn.ReLU())
"""


@pytest.fixture
def clean(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], int]:
    """Assert that no published file names a directory of this machine; how many were looked at."""
    places = (tmp_path_factory.getbasetemp(), Path(sys.prefix), Path(__file__).parents[2], Path("/home/jane"))

    def look() -> int:
        files = [
            path
            for part in ("blobs", "index")
            for path in (tmp_path / "r" / part).rglob("*")
            if path.is_file()
        ]
        for path in files:
            data = path.read_bytes()
            found = [str(place) for place in places if str(place).encode() in data]
            assert not found, (data[:80], found)
        return len(files)

    return look


def export(reg: Reg, *words: object) -> None:
    done = reg("--registry", "r", "export", *words, "--name", "acme/x")
    assert done.status == 0, done.err


def soil(model: onnx.ModelProto) -> None:
    """Notes as exporters leave them, at every place that has one."""
    for message in (model, model.graph, *model.graph.node, *model.graph.input, *model.graph.initializer):
        message.doc_string = TOLD
    for message in (model, model.graph, *model.graph.node):
        message.metadata_props.add(key="stack_trace", value=f'File "{Path.cwd()}/net.py", line 1')


def test_a_graph_with_notes_through_every_pass(reg: Reg, tmp_path: Path, clean: Callable[[], int]) -> None:
    model, draw = onnx.parser.parse_model(GRAPH), np.random.default_rng(0)
    del model.graph.initializer[:]
    for name, shape in {"w1": (64, 32), "w2": (32, 8)}.items():
        array = draw.normal(size=shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    soil(model)
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "rows.npz", x=draw.normal(size=(8, 64)).astype(np.float32))
    (tmp_path / "all.yaml").write_text(RECIPE)
    export(reg, "m.onnx", "--recipe", "all.yaml")
    assert clean() > 10
    assert reg("--registry", "other", "pull", "acme/x", "r", "--output", "out").status == 0
    kept = onnx.load(tmp_path / "out" / "fixed.onnx")
    assert kept.doc_string == "made by train.py, line 3"


@pytest.fixture
def soiled(tmp_path: Path) -> Callable[[Path], Path]:
    """A copy of a checkpoint, whose files say where it was made."""

    def copy(source: Path) -> Path:
        place = tmp_path / "checkpoint"
        shutil.copytree(source, place)
        for name, keys in {
            "config.json": ("_name_or_path", "note"),
            "tokenizer_config.json": ("name_or_path", "note"),
        }.items():
            value = json.loads((place / name).read_text())
            (place / name).write_text(
                json.dumps({**value, keys[0]: str(place), keys[1]: f"see {place}/notes.md"})
            )
        (place / "chat_template.jinja").write_text(f"{{# {place}/chat.py; {TOLD} #}}{{{{ messages }}}}")
        return place

    return copy


@pytest.mark.parametrize(
    "words", [("--profile", "android"), ("--task", "token-classification", "--quantize")]
)
def test_an_exported_checkpoint_names_no_private_path(
    reg: Reg, bert: Path, soiled: Callable[[Path], Path], clean: Callable[[], int], words: Any
) -> None:
    export(reg, soiled(bert), *words)
    assert clean() > 5


@pytest.mark.more
def test_an_exported_decoder_names_no_private_path(
    reg: Reg, make_checkpoint: Any, soiled: Callable[[Path], Path], clean: Callable[[], int], tmp_path: Path
) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=96, max_position_embeddings=64, bos_token_id=2, eos_token_id=3, **sizes)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "llama")
    for file in make_checkpoint("distilbert").glob("tokenizer*"):
        shutil.copy(file, tmp_path / "llama")
    (tmp_path / "llm.yaml").write_text(
        "task: text-generation\nsteps:\n  - {name: int4, pass: ModelBuilder, params: {precision: int4}}\n"
    )
    export(reg, soiled(tmp_path / "llama"), "--recipe", "llm.yaml")
    assert clean() > 5
    assert reg("--registry", "other", "pull", "acme/x", "r", "--output", "out").status == 0
    assert (tmp_path / "out" / "chat_template.jinja").read_text().startswith("{# chat.py; made by train.py")


@pytest.mark.parametrize("dynamo", sampled(["auto", "true", "false"], 3))
def test_an_exported_module_names_no_private_path(
    reg: Reg, tmp_path: Path, clean: Callable[[], int], dynamo: str
) -> None:
    import torch

    (tmp_path / "net.py").write_text(NET)
    space: dict[str, Any] = {}
    exec(NET, space)  # noqa: S102
    torch.save(space["build"]().state_dict(), tmp_path / "best.pth")
    (tmp_path / "net.yaml").write_text(
        "task: image-classification\noptions: {input: [1, 8, 8]}\nsteps:\n"
        f"  - {{name: fp32, pass: OnnxConversion, params: {{use_dynamo_exporter: {dynamo}}}}}\n"
    )
    export(reg, "net.py:build", "--checkpoint", "best.pth", "--recipe", "net.yaml")
    assert clean() > 1
