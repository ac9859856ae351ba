"""The sample images of a vision model, with the outputs of its module."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxreg.converters.passes.tools import samples, torch_model
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.passes.tools.torch_model import TorchModel
from onnxreg.converters.tasks.task import LabelledInputs, Sample
from onnxreg.schema.core.errors import ConversionError, InputError, why

MAX_BATCH_IMAGES = 32
"""Images in one run."""
MAX_GOLDEN_VALUES = 4_500
"""Values of input and output together in golden vectors; larger images have no golden vectors."""


def subject_of(module: Any, options: Any) -> TorchModel:
    """Wrap a module in evaluation mode and float32, with named outputs; `options` are those of the task."""
    import torch

    module = prepare(module)
    example = torch.from_numpy(draw(2, options.input)[: 1 if options.fixed_batch else 2])
    wrapped, names = _named(module, example, options.outputs)
    axes = {} if options.fixed_batch else {name: {0: "batch"} for name in (options.input_name, *names)}
    return TorchModel(wrapped, {options.input_name: example}, names, axes)


def prepare(module: Any) -> Any:
    """Put a module into evaluation mode and float32, with attention that exporters keep."""
    for part in module.modules():
        if hasattr(part, "set_attn_implementation"):
            part.set_attn_implementation("eager")
    return module.float().eval()


def _named(module: Any, example: Any, output_names: Sequence[str]) -> tuple[Any, tuple[str, ...]]:
    """Wrap the module to take an image by any name and return a tuple; return it with the names of the
    tuple's members.
    """
    import torch

    try:
        with torch.no_grad():
            output = module(example)
    except Exception as error:
        shape = list(example.shape[1:])
        raise ConversionError(f"the module does not take an input of shape {shape}: {why(error)}") from error
    names = _names(output, output_names)

    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, **image: Any) -> Any:
            return tuple(_tensors(self.module(*image.values()), output_names).values())

    return Named().eval(), names


def _names(output: Any, output_names: Sequence[str]) -> tuple[str, ...]:
    import torch

    tensors = _tensors(output, output_names)
    if not tensors or not all(isinstance(tensor, torch.Tensor) for tensor in tensors.values()):
        kinds = ", ".join(sorted({type(tensor).__name__ for tensor in tensors.values()})) or "nothing"
        raise InputError(
            f"the module gives {kinds}, not tensors", "return a tensor, a tuple or a dict of tensors"
        )
    if output_names and len(output_names) != len(tensors):
        raise InputError(
            f"the module gives {len(tensors)} outputs, and {len(output_names)} are named: {', '.join(output_names)}"
        )
    if output_names:
        return tuple(output_names)
    if len(tensors) > 1 and not isinstance(output, Mapping):
        raise InputError(
            f"the module gives {len(tensors)} outputs without names", "name them: options: {outputs: [...]}"
        )
    return tuple(tensors) if len(tensors) > 1 else ("output",)


def _tensors(output: Any, output_names: Sequence[str]) -> Mapping[str, Any]:
    """Map names to outputs: the requested members of a mapping, all of its members, or positions."""
    if isinstance(output, Mapping):
        return (
            {name: output[name] for name in output_names}
            if output_names and set(output_names) <= set(output)
            else dict(output)
        )
    members = output if isinstance(output, tuple | list) else (output,)
    return {str(index): member for index, member in enumerate(members)}


def draw(count: int, shape: Sequence[int]) -> Any:
    """Draw normal values with a fixed seed: float32 `[count, *shape]`."""
    import numpy as np

    return np.random.default_rng(samples.SEED).normal(size=(count, *shape)).astype(np.float32)


def pick(path: Path, name: str, count: int) -> Any:
    """Pick rows of a dataset with a fixed seed: float32. InputError if it has fewer rows."""
    import numpy as np

    return np.concatenate([row[name] for row in samples.read(path, count)]).astype(np.float32)


def check(images: Any, shape: Sequence[int], label: str) -> None:
    """Raise InputError unless images are finite floats of a shape."""
    import numpy as np

    if images.dtype.kind != "f" or images.shape[1:] != tuple(shape):
        description = f"{images.dtype} {list(images.shape[1:])}"
        raise InputError(
            f"{label} holds {description}, the input is float32 {list(shape)}", "preprocess the images first"
        )
    if not np.isfinite(images).all():
        raise InputError(f"{label} holds NaN or infinity")


def measure(subject: TorchModel, images: Any, fixed_batch: bool) -> Sample:
    """Run the module on each image alone, then on batches of at most `MAX_BATCH_IMAGES`; return the sample.

    A single image is repeated in its batch, to detect a graph that is fixed to one row.
    """
    import numpy as np

    (name,) = subject.inputs
    feeds: list[Feed] = [{name: images[index : index + 1]} for index in range(len(images))]
    if not fixed_batch:
        several = images if len(images) > 1 else np.concatenate([images, images])
        feeds += [
            {name: several[start : start + MAX_BATCH_IMAGES]}
            for start in range(0, len(several), MAX_BATCH_IMAGES)
        ]
    expected = torch_model.run(subject, feeds)
    values = images[:1].size + sum(array.size for array in expected[0].values())
    return Sample(feeds, expected, golden={"image": feeds[0]} if values <= MAX_GOLDEN_VALUES else {})


def accuracy(subject: TorchModel, data: LabelledInputs, fixed_batch: bool) -> dict[str, float]:
    """Measure the accuracy of the module itself, by output name."""
    cast = lambda feed: torch_model.run(subject, [as_float32(feed)])[0]
    return data.accuracy(cast, 1 if fixed_batch else MAX_BATCH_IMAGES)


def as_float32(feed: Feed) -> Feed:
    import numpy as np

    return {name: array.astype(np.float32) for name, array in feed.items()}
