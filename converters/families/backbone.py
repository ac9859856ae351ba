"""The backbone: an image classifier of transformers as one graph with its logits and the embedding that it takes them from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.families.heads import BATCH
from onnxreg.converters.passes import base, torch_model
from onnxreg.converters.passes.conversion import OnnxConversion
from onnxreg.converters.passes.quiet import quiet, quieted
from onnxreg.converters.passes.torch_model import TorchModel
from onnxreg.converters.sourcefiles import CONFIG, weight_files
from onnxreg.schema.errors import ConversionError, InputError, NotFoundError
from onnxreg.schema.recipe import Step

INPUT, LOGITS, EMBEDDING = "input", "species_logits", "embedding"
TRACED = 2
"""Rows of the example: one could be mistaken for an axis of 1."""


@dataclass(frozen=True)
class LoadedBackbone:
    """A trained classifier; `module` takes `input` and gives `species_logits` and `embedding`.

    `classes` are in the order of the logits, `shape` is channels, height and width, `width` that of the embedding.
    """

    module: Any
    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    width: int
    model_type: str
    files: tuple[Path, ...]


def load_backbone(directory: Path, classes: Sequence[str] | None = None) -> LoadedBackbone:
    """Load an image classification checkpoint of transformers, every weight of which was trained.

    Args:
        classes: the class ids that are asked for, in order; the checkpoint's config must say the same.

    Raises NotFoundError where there is no directory, and InputError where it is no complete image classifier with a square
    input, or its classes are others.
    """
    if not directory.is_dir():
        raise NotFoundError(f"backbone: there is no checkpoint directory {directory.name}")
    model = _load(directory)
    config = model.config
    trained = tuple(config.id2label[index] for index in range(len(config.id2label)))
    if classes is not None and tuple(classes) != trained:
        raise InputError(
            "backbone: the classes asked for are not in the order of training",
            f"the checkpoint's config says {', '.join(trained)[:300]}",
        )
    size = getattr(config, "image_size", None)
    if not isinstance(size, int):
        raise InputError("backbone: its config does not say one image_size")
    files = tuple(directory / name for name in (CONFIG, *weight_files(directory)))
    shape = (int(config.num_channels), size, size)
    return LoadedBackbone(
        _with_embedding(model), trained, shape, model.classifier.in_features, config.model_type, files
    )


def _load(directory: Path) -> Any:
    """The torch module in evaluation mode with eager attention: neither exporter traces the fused one of Swin right."""
    import torch
    from transformers import AutoModelForImageClassification
    from transformers.utils import logging

    if not weight_files(directory):
        raise InputError(
            "backbone: the checkpoint has no weights", "give the directory that save_pretrained wrote"
        )
    logging.disable_progress_bar()
    try:
        with quiet(), quieted("transformers"):
            model, report = AutoModelForImageClassification.from_pretrained(
                directory,
                dtype=torch.float32,
                attn_implementation="eager",
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                weights_only=True,
                local_files_only=True,
                trust_remote_code=False,
            )
    except Exception as error:
        reason = str(error).replace(str(directory), "the checkpoint").strip() or type(error).__name__
        raise InputError(
            f"backbone: the checkpoint could not be loaded: {reason.splitlines()[0][:300]}"
        ) from error
    untrained = sorted({*report["missing_keys"], *(str(entry[0]) for entry in report["mismatched_keys"])})
    if untrained:
        raise InputError(
            f"backbone: the checkpoint has no values for {untrained[0]}",
            "it would be random numbers: train it, then save it",
        )
    for name, weight in model.named_parameters():
        if not torch.isfinite(weight).all():
            raise InputError(f"backbone: {name} holds NaN or infinity")
    return model.eval()


def _with_embedding(model: Any) -> Any:
    import torch

    body = getattr(model, model.base_model_prefix)

    class Backbone(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.classifier = body, model.classifier

        def forward(self, input: Any) -> dict[str, Any]:
            embedding = self.body(input).pooler_output
            return {LOGITS: self.classifier(embedding), EMBEDDING: embedding}

    return Backbone().eval()


def subject_of(loaded: LoadedBackbone) -> TorchModel:
    """What the exporters take; the batch is the only dynamic axis."""
    import torch

    names = (INPUT, LOGITS, EMBEDDING)
    example = torch.zeros(TRACED, *loaded.shape)
    return TorchModel(
        loaded.module, {INPUT: example}, (LOGITS, EMBEDDING), {name: {0: BATCH} for name in names}
    )


def export_backbone(subject: TorchModel, opset: int) -> tuple[Any, Step]:
    """The float32 graph, by the first exporter whose graph agrees with the module at other batch sizes than the traced one.

    ConversionError where no exporter agrees, or an output has not as many axes as the module gives it.
    """
    graph, step = base.run(
        "backbone", OnnxConversion(use_dynamo_exporter="auto", target_opset=opset), subject
    )
    (given,) = torch_model.run(subject, [{name: tensor.numpy() for name, tensor in subject.inputs.items()}])
    fix_axes(graph, given)
    return graph, step


def fix_axes(graph: Any, outputs: Mapping[str, Any]) -> None:
    """State every axis but the batch as fixed, as long as the module makes it: exporters leave some without a size."""
    for value in graph.graph.output:
        dims = value.type.tensor_type.shape.dim
        sizes = outputs[value.name].shape
        if len(dims) != len(sizes):
            raise ConversionError(f"the exporter gave {value.name} {len(dims)} axes, the module {len(sizes)}")
        for dim, length in list(zip(dims, sizes, strict=True))[1:]:
            dim.Clear()
            dim.dim_value = length
