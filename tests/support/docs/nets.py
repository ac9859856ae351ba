"""Models that are no checkpoints of an encoder: a perceptron and the stages of a pipeline as graphs, and a tiny decoder."""

from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

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


STAGES = {
    "det": "g (float[n,3,h,w] x) => (float[n,3,h,w] y) { y = Sigmoid(x) }",
    "rec": "g (float[n,3,h,w] x) => (float[n,h,w] y) { y = ReduceMean<axes=[1], keepdims=0>(x) }",
    "cls": "g (float[n,3,h,w] x) => (float[n,3] y) { y = ReduceMean<axes=[2, 3], keepdims=0>(x) }",
}


def write_stages(directory: Path) -> None:
    for name, text in STAGES.items():
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{text}')
        onnx.save(model, directory / f"{name}.onnx")


def write_llama(path: Path) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4}
    LlamaForCausalLM(
        LlamaConfig(vocab_size=96, max_position_embeddings=64, bos_token_id=2, eos_token_id=3, **sizes)
    ).save_pretrained(path)
