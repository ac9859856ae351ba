"""The backbone: an image classifier of transformers, or a torch module that a user's function (the factory) makes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.passes import conversion
from onnxreg.converters.tasks import code
from onnxreg.converters.tasks.checkpoint import load_model
from onnxreg.converters.tasks.code import Consent, Factory
from onnxreg.converters.tasks.image_classification import load_into, subject_of
from onnxreg.converters.tasks.task import IMAGES
from onnxreg.schema.core.errors import InputError, about
from onnxreg.schema.inputs.family_file import BackboneSpec

INPUT = "input"
CLASS_ID = re.compile(r"[^\W_][\w. ,'()&+-]{0,63}")


@dataclass(frozen=True)
class LoadedBackbone:
    """A trained classifier. `subject` takes `input`, and returns the logits and the embedding.

    `classes` are in the order of the logits. `shape` is (channels, height, width). `width` is the size of the
    embedding. `model_type` is the architecture in transformers, such as `"vit"`; None for a factory's module.
    """

    subject: conversion.TorchModel
    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    width: int
    model_type: str | None


def load_backbone(
    spec: BackboneSpec, directory: Path, factory: Factory | None, consent: Consent
) -> LoadedBackbone:
    """Load the backbone of a family. Paths are relative to `directory`.

    Raises InputError for code without consent, wrong weights or classes; ConversionError if the module does not run.
    """
    import torch

    names, checkpoint = (spec.logits, spec.embedding), directory / spec.checkpoint
    with about("backbone"):
        if factory is None:
            model = load_model(checkpoint, IMAGES)
            size, labels = getattr(model.config, "image_size", None), model.config.id2label
            if not isinstance(size, int):
                raise InputError("its config does not say one image_size")
            shape = (int(model.config.num_channels), size, size)
            classes = tuple(labels.get(index) for index in range(len(labels)))
            module, model_type = _with_embedding(model, names), model.config.model_type
        else:
            assert spec.classes is not None and spec.input is not None
            consent.check(factory, spec.arguments)
            module = code.make(factory, spec.arguments)
            load_into(module, checkpoint)
            shape, classes, model_type = spec.input, tuple(spec.classes), None
        _check_classes(classes, spec.classes)
        for name, weight in module.named_parameters():
            if not torch.isfinite(weight).all():
                raise InputError(f"{name} holds NaN or infinity")
        subject = subject_of(module, shape, names)
        feed = {name: tensor.numpy() for name, tensor in subject.inputs.items()}
        outputs = conversion.run(subject, [feed])[0]
        for name in names:
            if outputs[name].ndim != 2 or len(outputs[name]) != len(feed[INPUT]):
                raise InputError(
                    f"{name} is {list(outputs[name].shape)} for {len(feed[INPUT])} images, not one row of numbers for each"
                )
        if (columns := outputs[spec.logits].shape[1]) != len(classes):
            raise InputError(f"it gives {columns} logits, and has {len(classes)} classes")
    return LoadedBackbone(subject, classes, shape, outputs[spec.embedding].shape[1], model_type)


def _check_classes(trained: Sequence[Any], stated: Sequence[str] | None) -> None:
    for class_id in trained:
        if not isinstance(class_id, str) or not CLASS_ID.fullmatch(class_id):
            raise InputError(
                f"the class {str(class_id)[:80]!r} is not an id",
                "up to 64 letters (of any script), digits, spaces and . _ - , ' ( ) & +, a letter or digit first; "
                "name it so in id2label of its config.json",
            )
    if len(set(trained)) != len(trained):
        raise InputError("two of its classes have one id")
    if stated is not None and tuple(stated) != tuple(trained):
        hint = f"the checkpoint's config says {', '.join(trained)[:300]}"
        raise InputError("the classes asked for are not in the order of training", hint)


def _with_embedding(model: Any, names: tuple[str, str]) -> Any:
    """Wrap a classifier so that it also returns the embedding, which is the input of the last layer."""
    import torch

    classifier: Any = getattr(model, "classifier", None)
    if not isinstance(classifier, torch.nn.Linear):
        raise InputError("its classifier is not one linear layer over an embedding")
    model.classifier = torch.nn.Identity()

    def classify(image: Any) -> dict[str, Any]:
        embedding = model(image).logits
        return dict(zip(names, (classifier(embedding), embedding), strict=True))

    return conversion.module_of(classify, body=model, classifier=classifier)
