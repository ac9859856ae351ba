"""Backbones of several architectures: the embedding is what the last layer reads."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from onnxreg.converters.families.backbone import (
    EMBEDDING,
    INPUT,
    LOGITS,
    export_backbone,
    load_backbone,
    subject_of,
)
from onnxreg.converters.passes.tools import samples

ENCODER = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
CONFIGS: dict[str, dict[str, Any]] = {
    "vit": {**ENCODER, "image_size": 16, "patch_size": 8},
    "beit": {**ENCODER, "image_size": 16, "patch_size": 8, "use_relative_position_bias": True},
    "dinov2": {**ENCODER, "image_size": 16, "patch_size": 8},
    "convnext": {
        "image_size": 16,
        "hidden_sizes": [16, 32],
        "depths": [1, 1],
        "num_stages": 2,
        "patch_size": 2,
    },
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_graph_gives_the_logits_of_the_checkpoint_and_the_embedding_behind_them(
    kind: str, tmp_path: Path
) -> None:
    config = transformers.AutoConfig.for_model(kind, num_labels=4, **CONFIGS[kind])
    torch.manual_seed(0)
    model = transformers.AutoModelForImageClassification.from_config(config).eval()
    model.save_pretrained(tmp_path)
    loaded = load_backbone(tmp_path)
    graph, _ = export_backbone(subject_of(loaded), 18)
    images = np.random.default_rng(0).normal(size=(3, 3, 16, 16)).astype(np.float32)
    (outputs,) = samples.all_outputs(graph, [{INPUT: images}], "backbone")
    with torch.no_grad():
        expected = model(torch.from_numpy(images)).logits.numpy()
        read = model.classifier(torch.from_numpy(outputs[EMBEDDING])).numpy()
    np.testing.assert_allclose(outputs[LOGITS], expected, atol=1e-4)
    np.testing.assert_allclose(read, expected, atol=1e-4)
    assert loaded.width == outputs[EMBEDDING].shape[1] == model.classifier.in_features
