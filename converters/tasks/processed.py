"""Tasks of image and sound checkpoints of transformers; the checkpoint's own processor computes the sample."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from onnxreg.converters.runtime.sessions import silent_transformers
from onnxreg.converters.source.source_files import PROCESSOR
from onnxreg.converters.tasks.checkpoint import unloadable
from onnxreg.converters.tasks.heads import DEPTH, LOADERS, Modality
from onnxreg.converters.tasks.pixels import preprocessing_of
from onnxreg.converters.tasks.saved import Graphs, LoadedCheckpoint, Saved, part_of
from onnxreg.converters.tasks.sound import audio_of
from onnxreg.converters.tasks.task import Part
from onnxreg.schema.core.errors import InputError, why

PHOTOGRAPHS = ((97, 131), (160, 120), (64, 64), (211, 90))
"""Height and width of the generated photographs: wide, high and square."""
SECONDS = (0.5, 0.73, 0.41, 1.02)
"""Lengths of the generated sounds."""
MAX_RATE = 1_000_000
"""The highest sampling rate that is accepted, in samples a second."""


class Processed(Saved):
    """Task of checkpoints with an image processor or feature extractor, whose result is the graph's only input.

    The batch is dynamic. If results for different samples vary in size along an axis, that axis is dynamic too.
    """

    exporter = "TransformersExport"
    products: ClassVar[tuple[str, ...]] = ("MatMul", "Gemm", "Conv")

    def graphs(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        given = checkpoint.directory, self.head.modality, self.trust_remote_code
        processor = Processor(*given)
        if processor.varying and self.head is DEPTH:
            processor = Processor(*given, is_square=True)  # as such a model is trained
        part = processor.part(checkpoint.model, self.head.axes, self.head.outputs)
        return Graphs({"": part}, fields=processor.contract())


class Processor:
    """The image processor or feature extractor of a checkpoint, with its results for generated photographs or sounds.

    `varying` are the axes along which the results vary in size. With `is_square`, all photographs are squares.

    Raises InputError if the processor cannot be loaded, or does not run; HostError if a package for it is not installed.
    """

    def __init__(
        self, directory: Path, modality: Modality, trust_remote_code: bool, is_square: bool = False
    ) -> None:
        import numpy as np
        import transformers

        self.modality, self.is_square = modality, is_square
        name, kind = LOADERS[modality]
        try:
            with silent_transformers():
                self.processor = getattr(transformers, name).from_pretrained(
                    directory, local_files_only=True, trust_remote_code=trust_remote_code
                )
                self.input = self.processor.model_input_names[0]
                options: dict[str, Any] = {}
                if modality == "audio":
                    options["sampling_rate"] = rate = self.processor.sampling_rate
                    if not 0 < rate <= MAX_RATE:
                        raise ValueError(f"{rate} samples a second")
                    self.drawn = [draw_sound(rate, seconds) for seconds in SECONDS]
                else:
                    self.drawn = draw_photographs(is_square)
                values = [
                    self.processor(one, return_tensors="np", **options)[self.input] for one in self.drawn
                ]
                self.rows: list[Any] = [np.asarray(value, np.float32) for value in values]
        except Exception as error:
            raise unloadable(f"the {kind} of the checkpoint", directory, error) from error
        sizes = zip(*(row.shape for row in self.rows), strict=True)
        self.varying = {at for at, along in enumerate(sizes) if len({*along}) > 1}

    def part(self, model: Any, names: Mapping[int, str], outputs: Mapping[str, Sequence[str]]) -> Part:
        """Make the model's part. The batches of its sample differ in length and, if the results vary in size, in size.

        Raises InputError if sizes vary along an axis that `names` lacks, or if the model does not take the sizes.
        """
        import numpy as np
        import torch

        if not names.keys() >= self.varying:
            shapes = ", ".join(map(str, sorted({row.shape[1:] for row in self.rows})))
            message = f"the {LOADERS[self.modality][1]} gives numbers of several sizes: {shapes}"
            raise InputError(message, f"state one size in {PROCESSOR[0]}")
        groups = [self.rows[:1], self.rows[1:]]
        if self.varying:
            counted = zip(self.rows, (1, 3, 2), strict=False)
            groups = [[row, row[..., ::-1], row / 2][:count] for row, count in counted]
        batches = list(map(np.concatenate, groups))
        axes = {self.input: {at: names.get(at, "batch") for at in sorted({0, *self.varying})}}
        axes |= {key: dict(enumerate(at if self.varying else at[:1])) for key, at in outputs.items()}
        try:
            with torch.no_grad():
                model(**{self.input: torch.from_numpy(batches[-1])})
        except Exception as error:
            sizes = list(batches[-1].shape[1:])
            message = f"the model does not take the {sizes} of its {LOADERS[self.modality][1]}: {why(error)}"
            raise InputError(message, f"{PROCESSOR[0]} must be that of this model") from error
        return part_of(model, [{self.input: batch} for batch in batches], axes, tuple(outputs), True)

    def contract(self) -> dict[str, Any]:
        """Return the manifest's key for the preprocessing, in JSON form; empty if that gives other numbers than the processor."""
        pairs = list(zip(self.drawn, self.rows, strict=True))
        if self.modality == "audio":
            sound = audio_of(self.processor.to_dict(), pairs)
            return {} if sound is None else {"audio_preprocessing": sound.to_json()}
        if self.is_square or self.varying:
            return {}
        preprocessing = preprocessing_of(self.processor.to_dict(), pairs)
        return {} if preprocessing is None else {"preprocessing": preprocessing.to_json()}


def draw_sound(rate: int, seconds: float) -> Any:
    """Generate a sound with a fixed seed, float32: two tones that grow and fade, under noise."""
    import numpy as np

    time = np.arange(int(rate * seconds)) / rate
    tones = np.sin(2 * np.pi * 220 * time) + 0.5 * np.sin(2 * np.pi * 1_730 * time)
    noise = np.random.default_rng(0).normal(scale=0.1, size=time.shape)
    return (0.3 * tones * np.sin(np.pi * time / seconds) + noise).astype(np.float32)


def draw_photographs(is_square: bool = False) -> list[Any]:
    """Generate photographs with a fixed seed: coloured tiles under noise, so that different scaling gives different numbers."""
    import numpy as np
    from PIL import Image

    generator = np.random.default_rng(0)

    def draw(height: int, width: int) -> Any:
        tiles = generator.integers(0, 200, (-(-height // 16), -(-width // 16), 3))
        large = tiles.repeat(16, axis=0).repeat(16, axis=1)[:height, :width]
        return Image.fromarray((large + generator.integers(0, 56, large.shape)).astype(np.uint8))

    return [draw(height, height if is_square else width) for height, width in PHOTOGRAPHS]
