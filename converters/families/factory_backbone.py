"""The backbone that a factory makes: a torch module with the weights of a file.

The document names its two outputs by key or position.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxreg.converters.families.backbone import (
    EMBEDDING,
    EXAMPLE_ROWS,
    LOGITS,
    LoadedBackbone,
    check_classes,
    check_finite,
)
from onnxreg.converters.families.find_checkpoints import checkpoint_of
from onnxreg.converters.source.scrub import scrub
from onnxreg.converters.source.source_files import digest_file
from onnxreg.converters.tasks.checkpoints import image_sample, torch_weights
from onnxreg.converters.tasks.code import factory
from onnxreg.converters.tasks.code.consent import Consent
from onnxreg.converters.tasks.code.factory import Factory
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConversionError, InputError, RegError, first_line
from onnxreg.schema.inputs.family_file import BackboneOutputs, BackboneSpec


def find(spec: BackboneSpec, directory: Path) -> Factory | None:
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


def load(spec: BackboneSpec, directory: Path, function: Factory, consent: Consent) -> LoadedBackbone:
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
            f"backbone: the module does not take an input of shape {list(shape)}: {first_line(error)}"
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
