"""The backbone: an image classifier as one graph that gives its logits and their embedding.

It is a checkpoint of transformers, or a torch module that a factory makes, filled with the weights of a file; then the
document names its two outputs by key or position.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.families.head_checkpoints import checkpoint_of
from onnxreg.converters.families.head_graphs import BATCH
from onnxreg.converters.passes import base
from onnxreg.converters.passes.conversion import OnnxConversion
from onnxreg.converters.passes.tools import torch_model
from onnxreg.converters.passes.tools.torch_model import TorchModel
from onnxreg.converters.source.scrub import scrub
from onnxreg.converters.source.source_files import digest_file
from onnxreg.converters.tasks.checkpoints import image_sample, torch_weights
from onnxreg.converters.tasks.checkpoints.checkpoint import IMAGES, load_model
from onnxreg.converters.tasks.code import factory
from onnxreg.converters.tasks.code.consent import Consent
from onnxreg.converters.tasks.code.factory import Factory
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConversionError, InputError, RegError, about, why
from onnxreg.schema.inputs.family_file import BackboneOutputs, BackboneSpec
from onnxreg.schema.manifest.parts import Step

INPUT, LOGITS, EMBEDDING = "input", "species_logits", "embedding"
CLASS_ID = re.compile(r"[^\W_][\w. ,'()&+-]{0,63}")
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

    with about("backbone"):
        model = load_model(directory, IMAGES)
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
                "up to 64 letters (of any script), digits, spaces and . _ - , ' ( ) & +, a letter or digit first; "
                "name it so in id2label of its config.json",
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


def find_factory(spec: BackboneSpec, directory: Path) -> Factory | None:
    """Find the factory of a backbone beside the document or among installed packages; None if it names none.

    Nothing runs. Raises InputError if its arguments, which are published, name a path of this machine, and
    what `factory.find` raises.
    """
    if spec.factory is None:
        return None
    if paths := scrub(spec.model_dump(mode="json", include={"arguments"}), "")[1]:
        raise InputError(f"backbone: {paths[0]} names a place on this machine, and would be published")
    return factory.find(spec.factory, directory)


def code_digests(function: Factory) -> dict[str, Digest]:
    """Hash each file of a factory's code, or the record of the distribution that it is installed from."""
    if function.code.digest is None:
        return {f"code/{function.name}": Digest.of(canonical.encode(function.code.to_json()))}
    return {f"code/{name}": digest_file(path) for name, path in function.files.items()}


def load_factory_backbone(
    spec: BackboneSpec, directory: Path, function: Factory, consent: Consent
) -> LoadedBackbone:
    """Make the module and fill it with the weights of the checkpoint.

    Raises InputError if the consent does not name the factory (then nothing ran), or if an output is not what
    the document says.
    """
    assert spec.classes is not None and spec.input is not None and spec.outputs is not None
    check_classes(spec.classes, None)
    consent.check(function, spec.arguments)
    module = factory.make(function, spec.arguments)
    torch_weights.load_into(module, checkpoint_of(spec, directory))
    check_finite(module)
    backbone = _with_outputs(image_sample.prepare(module), spec.outputs)
    width = _width(backbone, spec.input, len(spec.classes))
    return LoadedBackbone(backbone, spec.classes, spec.input, width)


def _with_outputs(module: Any, outputs: BackboneOutputs) -> Any:
    """Wrap a module so that it gives logits and embedding by the names of a family."""
    import torch

    class Backbone(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = module

        def forward(self, input: Any) -> dict[str, Any]:
            values = self.body(input)
            return {LOGITS: _output(values, outputs.logits), EMBEDDING: _output(values, outputs.embedding)}

    return Backbone().eval()


def _output(values: Any, key: int | str) -> Any:
    """Select an output of a module by its key or its position."""
    if not isinstance(values, Mapping | tuple | list):
        raise InputError(
            f"backbone: the module gives one {type(values).__name__}",
            "return a dict of tensors, or a tuple (logits, embedding)",
        )
    by_key = dict(values if isinstance(values, Mapping) else enumerate(values))
    outputs = {**dict(enumerate(by_key.values())), **by_key}
    if key not in outputs:
        raise InputError(
            f"backbone: the module has no output {key}", f"it gives {', '.join(map(str, by_key))[:300]}"
        )
    return outputs[key]


def _width(backbone: Any, shape: tuple[int, int, int], classes: int) -> int:
    """Measure the width of the embedding.

    Raises InputError if an output is not one row for each image, or there is not one logit for each class.
    """
    import torch

    try:
        with torch.no_grad():
            outputs = backbone(torch.zeros(EXAMPLE_ROWS, *shape))
    except RegError:
        raise
    except Exception as error:
        raise ConversionError(
            f"backbone: the module does not take an input of shape {list(shape)}: {why(error)}"
        ) from error
    for name, tensor in outputs.items():
        if not isinstance(tensor, torch.Tensor) or tensor.ndim != 2 or len(tensor) != EXAMPLE_ROWS:
            shape_text = list(tensor.shape) if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            raise InputError(
                f"backbone: {name} is {shape_text} for {EXAMPLE_ROWS} images, "
                "not one row of numbers for each",
                "outputs: {logits: ..., embedding: ...} says which output is which",
            )
    logits = outputs[LOGITS].shape[1]
    if logits != classes:
        raise InputError(f"backbone: it gives {logits} logits, and has {classes} classes")
    return int(outputs[EMBEDDING].shape[1])
