"""The images that a graph of a vision model is measured on, and what the module gives for them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxreg.converters.passes.tools import samples, torch_model
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.passes.tools.torch_model import TorchModel
from onnxreg.converters.tasks.labelled_inputs import LabelledInputs
from onnxreg.converters.tasks.task import Sample
from onnxreg.schema.core.errors import ConversionError, InputError, first_line

BATCH = 32
"""The most images in one run."""
MAX_GOLDEN = 4_500
"""Values of the input and output of the golden vectors, which other runtimes are tested with: larger images have none."""


def subject_of(module: Any, options: Any) -> TorchModel:
    """A module in evaluation mode and float32, with its outputs named; `options` are those of the task."""
    import torch

    for part in module.modules():
        if hasattr(part, "set_attn_implementation"):
            part.set_attn_implementation("eager")
    module = module.float().eval()
    example = torch.from_numpy(draw(2, options.input)[: 1 if options.fixed_batch else 2])
    wrapped, names = _named(module, example, options.outputs)
    axes = {} if options.fixed_batch else {name: {0: "batch"} for name in (options.input_name, *names)}
    return TorchModel(wrapped, {options.input_name: example}, names, axes)


def _named(module: Any, example: Any, asked: Sequence[str]) -> tuple[Any, tuple[str, ...]]:
    """The module as one that takes an image by any name and gives a tuple, and the names of its members."""
    import torch

    try:
        with torch.no_grad():
            given = module(example)
    except Exception as error:
        shape = list(example.shape[1:])
        raise ConversionError(
            f"the module does not take an input of shape {shape}: {first_line(error)}"
        ) from error
    names = _names(given, asked)

    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, **image: Any) -> Any:
            return tuple(_tensors(self.module(*image.values()), asked).values())

    return Named().eval(), names


def _names(given: Any, asked: Sequence[str]) -> tuple[str, ...]:
    import torch

    found = _tensors(given, asked)
    if not found or not all(isinstance(one, torch.Tensor) for one in found.values()):
        kinds = ", ".join(sorted({type(one).__name__ for one in found.values()})) or "nothing"
        raise InputError(
            f"the module gives {kinds}, not tensors", "return a tensor, a tuple or a dict of tensors"
        )
    if asked and len(asked) != len(found):
        raise InputError(
            f"the module gives {len(found)} outputs, and {len(asked)} are named: {', '.join(asked)}"
        )
    if asked:
        return tuple(asked)
    if len(found) > 1 and not isinstance(given, Mapping):
        raise InputError(
            f"the module gives {len(found)} outputs without names", "name them: options: {outputs: [...]}"
        )
    return tuple(found) if len(found) > 1 else ("output",)


def _tensors(given: Any, asked: Sequence[str]) -> Mapping[str, Any]:
    """What a module gives by name: members of a mapping, those that are asked for if it has them, or by position."""
    if isinstance(given, Mapping):
        return {name: given[name] for name in asked} if asked and set(asked) <= set(given) else dict(given)
    several = given if isinstance(given, tuple | list) else (given,)
    return {str(index): one for index, one in enumerate(several)}


def draw(count: int, shape: Sequence[int]) -> Any:
    """Normal values, drawn with a seed: float32 `[count, *shape]`."""
    import numpy as np

    return np.random.default_rng(samples.SEED).normal(size=(count, *shape)).astype(np.float32)


def pick(path: Path, name: str, count: int) -> Any:
    """Rows of a dataset, picked with a seed: float32. InputError where it has fewer than are asked for."""
    import numpy as np

    return np.concatenate([row[name] for row in samples.read(path, count)]).astype(np.float32)


def check(images: Any, shape: Sequence[int], what: str) -> None:
    """InputError unless images are finite floats of a shape."""
    import numpy as np

    if images.dtype.kind != "f" or images.shape[1:] != tuple(shape):
        found = f"{images.dtype} {list(images.shape[1:])}"
        raise InputError(
            f"{what} holds {found}, the input is float32 {list(shape)}", "preprocess the images first"
        )
    if not np.isfinite(images).all():
        raise InputError(f"{what} holds NaN or infinity")


def measure(subject: TorchModel, images: Any, fixed_batch: bool) -> Sample:
    """Each image alone, then all of them in batches of at most `BATCH`, with what the module gives for them.

    A single image is there twice in its batch, so that a graph which knows only one row is found out.
    """
    import numpy as np

    (name,) = subject.inputs
    feeds: list[Feed] = [{name: images[index : index + 1]} for index in range(len(images))]
    if not fixed_batch:
        several = images if len(images) > 1 else np.concatenate([images, images])
        feeds += [{name: several[start : start + BATCH]} for start in range(0, len(several), BATCH)]
    expected = torch_model.run(subject, feeds)
    values = images[:1].size + sum(array.size for array in expected[0].values())
    return Sample(feeds, expected, golden={"image": feeds[0]} if values <= MAX_GOLDEN else {})


def accuracy(subject: TorchModel, data: LabelledInputs, fixed_batch: bool) -> dict[str, float]:
    """Of the module itself, by output name."""
    cast = lambda feed: torch_model.run(subject, [as_float32(feed)])[0]
    return data.accuracy(cast, 1 if fixed_batch else BATCH)


def as_float32(feed: Feed) -> Feed:
    import numpy as np

    return {name: array.astype(np.float32) for name, array in feed.items()}
