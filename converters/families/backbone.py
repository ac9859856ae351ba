"""The backbone: an image classifier of transformers as one graph with its logits and the embedding that it takes them from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.families.heads import BATCH
from onnxreg.converters.passes import base, proof, samples, torch_model
from onnxreg.converters.passes.conversion import OnnxConversion
from onnxreg.converters.passes.torch_model import TorchModel
from onnxreg.converters.source import load_transformers
from onnxreg.converters.sourcefiles import CONFIG, weight_files
from onnxreg.schema.errors import ConversionError, InputError, NotFoundError
from onnxreg.schema.recipe import Step

INPUT, LOGITS, EMBEDDING = "input", "species_logits", "embedding"
TRACED = 2
"""Rows of the example: one could be mistaken for an axis of 1."""


@dataclass(frozen=True)
class LoadedBackbone:
    """A trained classifier; `module` takes `input` and gives `species_logits` and `embedding`.

    `classes` are in the order of the logits, `shape` is channels, height and width.
    """

    module: Any
    classes: tuple[str, ...]
    shape: tuple[int, int, int]
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
    model = load_transformers(directory, "AutoModelForImageClassification", "backbone")
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
    return LoadedBackbone(_with_embedding(model), trained, shape, config.model_type, files)


def _with_embedding(model: Any) -> Any:
    import torch

    body = getattr(model, model.base_model_prefix)

    class Backbone(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.classifier = body, model.classifier

        def forward(self, input: Any) -> dict[str, Any]:  # noqa: A002
            embedding = self.body(input).pooler_output
            return {LOGITS: self.classifier(embedding), EMBEDDING: embedding}

    return Backbone().eval()


@dataclass(frozen=True)
class ExportedBackbone:
    """The float32 graph, the step that made it, and how far each output is from the module's on seeded images."""

    graph: Any
    step: Step
    parity: dict[str, dict[str, float]]
    feeds: tuple[samples.Feed, ...]


def export_backbone(loaded: LoadedBackbone, opset: int) -> ExportedBackbone:
    """Export with the first exporter whose graph agrees with the module at other batch sizes than the traced one.

    The batch is dynamic, all other axes are fixed. ConversionError where no exporter agrees, or an axis is not what it should be.
    """
    import torch

    names = (INPUT, LOGITS, EMBEDDING)
    example = torch.zeros(TRACED, *loaded.shape)
    subject = TorchModel(loaded.module, {INPUT: example}, (LOGITS, EMBEDDING), {name: {0: BATCH} for name in names})
    work = OnnxConversion(use_dynamo_exporter="auto", target_opset=opset)
    graph, step = base.run("backbone", work, subject)
    feeds = samples.draw(graph)
    expected = torch_model.run(subject, feeds)
    fix_axes(graph, expected[0])
    got = _run(graph, feeds)
    return ExportedBackbone(graph, step, proof.compare(expected, got, "the backbone"), feeds)


def fix_axes(graph: Any, outputs: dict[str, Any]) -> None:
    """State every axis but the batch as fixed, as long as the module makes it: exporters leave some without a size."""
    for value in graph.graph.output:
        dims = value.type.tensor_type.shape.dim
        sizes = outputs[value.name].shape
        if len(dims) != len(sizes):
            raise ConversionError(f"the exporter gave {value.name} {len(dims)} axes, the module {len(sizes)}")
        for dim, length in list(zip(dims, sizes, strict=True))[1:]:
            dim.Clear()
            dim.dim_value = length


def _run(graph: Any, feeds: Sequence[samples.Feed]) -> list[dict[str, Any]]:
    from onnxreg.converters.passes import model

    session = model.session(graph, "the backbone")
    return [proof.outputs(session, feed, "the backbone") for feed in feeds]
