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


def subject_of(
    module: Any,
    shape: Sequence[int],
    outputs: Sequence[str] = (),
    input_name: str = "input",
    fixed_batch: bool = False,
) -> TorchModel:
    """Wrap a module, in evaluation mode and float32, to take an image by name and give a tuple of tensors.

    Args:
        shape: channels, height and width.
        outputs: the names of the outputs: keys of the mapping that the module gives, or names for what it gives, in order.

    Raises ConversionError if it does not take the shape, InputError if it gives other things than tensors, or not as many.
    """
    import torch

    for part in module.modules():
        if hasattr(part, "set_attn_implementation"):
            part.set_attn_implementation("eager")  # which exporters keep
    module = module.float().eval()
    example = torch.from_numpy(draw(2, shape)[: 1 if fixed_batch else 2])

    def tensors(given: Any) -> dict[str, Any]:
        if isinstance(given, Mapping):
            chosen = outputs if outputs and set(outputs) <= set(given) else given
            return {name: given[name] for name in chosen}
        members = given if isinstance(given, tuple | list) else (given,)
        return {str(index): member for index, member in enumerate(members)}

    try:
        with torch.no_grad():
            given = module(example)
    except Exception as error:
        raise ConversionError(
            f"the module does not take an input of shape {list(shape)}: {why(error)}"
        ) from error
    outcome = tensors(given)
    if not outcome or not all(isinstance(tensor, torch.Tensor) for tensor in outcome.values()):
        kinds = ", ".join(sorted({type(tensor).__name__ for tensor in outcome.values()})) or "nothing"
        raise InputError(
            f"the module gives {kinds}, not tensors", "return a tensor, a tuple or a dict of tensors"
        )
    if outputs and len(outputs) != len(outcome):
        raise InputError(
            f"the module gives {len(outcome)} outputs, and {len(outputs)} are named: {', '.join(outputs)}"
        )
    if not outputs and len(outcome) > 1 and not isinstance(given, Mapping):
        raise InputError(
            f"the module gives {len(outcome)} outputs without names", "name them: options: {outputs: [...]}"
        )
    names = tuple(outputs) or (tuple(outcome) if len(outcome) > 1 else ("output",))

    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, **image: Any) -> Any:
            return tuple(tensors(self.module(*image.values())).values())

    axes = {} if fixed_batch else {name: {0: "batch"} for name in (input_name, *names)}
    return TorchModel(Named().eval(), {input_name: example}, names, axes)


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
