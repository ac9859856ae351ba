"""The backbone: an image classifier as one graph that gives its logits and their embedding."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.families.head_graph import BATCH
from onnxreg.converters.passes import base
from onnxreg.converters.passes.conversion import OnnxConversion
from onnxreg.converters.passes.tools import torch_model
from onnxreg.converters.passes.tools.torch_model import TorchModel
from onnxreg.converters.tasks.checkpoints.checkpoint import load_model
from onnxreg.converters.tasks.checkpoints.task_heads import IMAGES
from onnxreg.schema.core.errors import ConversionError, InputError
from onnxreg.schema.manifest.parts import Step

INPUT, LOGITS, EMBEDDING = "input", "species_logits", "embedding"
CLASS_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ ,'()&+-]{0,63}")
EXAMPLE_ROWS = 2
"""Rows of the example input: a single row could be mistaken for an axis of 1."""


@dataclass(frozen=True)
class LoadedBackbone:
    """A trained classifier; `module` takes `input` and gives `species_logits` and `embedding`.

    `classes` are in the order of the logits, `shape` is channels, height and width, `width` is that of the
    embedding. `model_type` is the name in transformers, None if a factory made the module.
    """

    module: Any
    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    width: int
    model_type: str | None = None


def load_backbone(directory: Path, classes: Sequence[str] | None = None) -> LoadedBackbone:
    """Load an image classification checkpoint of transformers, every weight of which was trained.

    Args:
        classes: the class ids of the document, in order; the checkpoint's config must have the same.

    Raises InputError if it is not a complete image classifier with a square input, or has other classes.
    """
    model = _load(directory)
    config = model.config
    trained = _labels(config.id2label)
    check_classes(trained, classes)
    size = getattr(config, "image_size", None)
    if not isinstance(size, int):
        raise InputError("backbone: its config does not say one image_size")
    shape = (int(config.num_channels), size, size)
    width = model.classifier.in_features
    return LoadedBackbone(_with_embedding(model), trained, shape, width, config.model_type)


def _load(directory: Path) -> Any:
    """Load the torch module. Errors name the backbone."""
    import torch

    try:
        model = load_model(directory, IMAGES)
    except InputError as error:
        raise InputError(f"backbone: {error.message}", error.advice) from error
    check_finite(model)
    if not isinstance(getattr(model, "classifier", None), torch.nn.Linear):
        raise InputError("backbone: its classifier is not one linear layer over an embedding")
    return model


def check_finite(module: Any) -> None:
    """Raise InputError if a weight is NaN or infinite."""
    import torch

    for name, weight in module.named_parameters():
        if not torch.isfinite(weight).all():
            raise InputError(f"backbone: {name} holds NaN or infinity")


def _labels(id2label: Mapping[int, Any]) -> tuple[str, ...]:
    """List the class ids in the order of the logits; InputError if one is missing or not a text."""
    labels = [id2label.get(index) for index in range(len(id2label))]
    for index, label in enumerate(labels):
        if not isinstance(label, str):
            raise InputError(f"backbone: id2label of its config.json has no text for {index}")
    return tuple(map(str, labels))


def check_classes(trained: Sequence[str], stated: Sequence[str] | None) -> None:
    """Raise InputError for class ids that cannot be names of files, repeat, or are not the stated ones."""
    for class_id in trained:
        if not CLASS_ID.fullmatch(class_id):
            raise InputError(
                f"backbone: the class {class_id[:80]!r} is not an id",
                "letters, digits, spaces and . _ - , ' ( ) & +; name it so in id2label of its config.json",
            )
    if len(set(trained)) != len(trained):
        raise InputError("backbone: two of its classes have one id")
    if stated is not None and tuple(stated) != tuple(trained):
        raise InputError(
            "backbone: the classes asked for are not in the order of training",
            f"the checkpoint's config says {', '.join(trained)[:300]}",
        )


def _with_embedding(model: Any) -> Any:
    """Wrap the classifier so that it also gives the input of its last layer, the embedding.

    The model runs without its last layer. The body and that layer are the parts of the module, and name its
    nodes.
    """
    import torch

    body, classifier = getattr(model, model.base_model_prefix), model.classifier
    model.classifier = torch.nn.Identity()

    class Backbone(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.classifier = body, classifier

        def forward(self, input: Any) -> dict[str, Any]:
            embedding = model(input).logits
            return {LOGITS: self.classifier(embedding), EMBEDDING: embedding}

    return Backbone().eval()


def subject_of(backbone: LoadedBackbone) -> TorchModel:
    """Make the subject of the exporters; the batch is the only dynamic axis."""
    import torch

    names = (INPUT, LOGITS, EMBEDDING)
    example = torch.zeros(EXAMPLE_ROWS, *backbone.shape)
    return TorchModel(
        backbone.module, {INPUT: example}, (LOGITS, EMBEDDING), {name: {0: BATCH} for name in names}
    )


def export_backbone(subject: TorchModel, opset: int) -> tuple[Any, Step]:
    """Make the float32 graph, by the first exporter whose graph agrees with the module at other batch sizes.

    Raises ConversionError if no exporter agrees, or an output has another number of axes than in the module.
    """
    graph, step = base.run(
        "backbone", OnnxConversion(use_dynamo_exporter="auto", target_opset=opset), subject
    )
    (outputs,) = torch_model.run(subject, [{name: tensor.numpy() for name, tensor in subject.inputs.items()}])
    fix_axes(graph, outputs)
    return graph, step


def fix_axes(graph: Any, outputs: Mapping[str, Any]) -> None:
    """Fix every axis but the batch at its length in the module: exporters leave some without a size."""
    for value in graph.graph.output:
        dims = value.type.tensor_type.shape.dim
        sizes = outputs[value.name].shape
        if len(dims) != len(sizes):
            raise ConversionError(f"the exporter gave {value.name} {len(dims)} axes, the module {len(sizes)}")
        for dim, length in list(zip(dims, sizes, strict=True))[1:]:
            dim.Clear()
            dim.dim_value = length
