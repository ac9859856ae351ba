"""Image models as transformers saves them: the sample comes from the checkpoint's own image processor."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.quiet import silent_transformers
from onnxreg.converters.passes import conversion
from onnxreg.converters.passes.conversion import TorchModel
from onnxreg.converters.source.source_files import CONFIG, PROCESSOR, copy_scrubbed
from onnxreg.converters.source.toolchain import refuse_missing, require
from onnxreg.converters.tasks.checkpoint import IMAGES, LABELS, find_checkpoint, load_located
from onnxreg.converters.tasks.pixels import preprocessing_of
from onnxreg.converters.tasks.task import ExportSubject, LocatedSource, Sample, Task
from onnxreg.converters.tasks.text import described
from onnxreg.schema.core.errors import InputError, why
from onnxreg.schema.manifest.draft import DraftFile

PIXELS = "pixel_values"
PHOTOGRAPHS = ((97, 131), (160, 120), (64, 64), (211, 90))
"""Height and width of the drawn photographs: wide, high and square."""
MAX_GOLDEN_VALUES = 2**19
"""The most values of the input of golden vectors, which are -1, 0 and 1: about 2.6 bytes each."""


class SavedImages(Task):
    """A checkpoint with an image processor. The graph takes `pixel_values`, float32 `[batch, channels, height, width]`."""

    def find(self, source: str) -> LocatedSource:
        located = find_checkpoint(source, self.head, self.trust_remote_code)
        if not any((located.location / name).is_file() for name in PROCESSOR):
            raise InputError(
                f"the checkpoint has no image processor: {PROCESSOR[0]} says how an image becomes numbers",
                "save it beside the model: image_processor.save_pretrained(DIRECTORY)",
            )
        return replace(located, lacks_tokenizer=False)  # none is needed

    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        require("torch", "transformers", "PIL")
        import numpy as np
        import torch

        alone = replace(source, lacks_tokenizer=True)
        checkpoint = load_located(alone, name, self.head, self.trust_remote_code)
        images = _draw()
        processor, rows = _process(checkpoint.directory, self.trust_remote_code, images)
        if len(shapes := sorted({row.shape[1:] for row in rows})) > 1:
            message = f"the image processor gives images of several sizes: {', '.join(map(str, shapes))}"
            raise InputError(message, f"state one size in {PROCESSOR[0]}")
        batch = np.concatenate(rows)
        axes = {PIXELS: {0: "batch"}} | {
            key: dict(enumerate(names)) for key, names in self.head.outputs.items()
        }
        examples = {PIXELS: torch.from_numpy(batch[:2])}
        subject = TorchModel(checkpoint.model, examples, tuple(self.head.outputs), axes)
        try:
            with torch.no_grad():
                checkpoint.model(**examples)
        except Exception as error:
            sizes = list(batch.shape[1:])
            message = f"the model does not take the {sizes} of its image processor: {why(error)}"
            raise InputError(message, f"{PROCESSOR[0]} must be that of this model") from error
        feeds = [{PIXELS: batch[:1]}, {PIXELS: batch[1:]}]
        tiles = np.random.default_rng(0).integers(-1, 2, batch[:1].shape).astype(np.float32)
        golden = {"tiles": {PIXELS: tiles}} if tiles.size <= MAX_GOLDEN_VALUES else {}
        sample = Sample(feeds, conversion.run(subject, feeds), golden=golden)

        companions = [CONFIG, *(file for file in PROCESSOR if (checkpoint.directory / file).is_file())]
        for file in companions:
            copy_scrubbed(checkpoint.directory / file, directory / file, name)
        files = [DraftFile("config" if file == CONFIG else "other", file) for file in companions]
        fields = {
            **described(self.id, checkpoint.directory, checkpoint.config.model_type),
            "config_path": CONFIG,
        }
        if checkpoint.labels:
            text = json.dumps(dict(enumerate(checkpoint.labels)), indent=2, ensure_ascii=False)
            (directory / LABELS).write_text(f"{text}\n", "utf-8")
            files.append(DraftFile("labels", LABELS))
            fields |= {"labels": list(checkpoint.labels), "label_map_path": LABELS}
        preprocessing = preprocessing_of(processor.to_dict(), list(zip(images, rows, strict=True)))
        if preprocessing is not None:
            fields["preprocessing"] = preprocessing.to_json()
        return ExportSubject(checkpoint.source, sample, subject, tuple(files), fields, loaded=checkpoint)


SavedImageClassification = SavedImages.of(IMAGES)


def _process(directory: Path, trust_remote_code: bool, images: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Load the image processor; return the processor, and its numbers for each image."""
    import numpy as np
    from transformers import AutoImageProcessor

    try:
        with silent_transformers():
            processor = AutoImageProcessor.from_pretrained(
                directory, local_files_only=True, trust_remote_code=trust_remote_code
            )
            values = [processor(image, return_tensors="np")[PIXELS] for image in images]
            return processor, [np.asarray(value, np.float32) for value in values]
    except Exception as error:
        refuse_missing(error, owner := "the image processor of the checkpoint")
        words = why(error, 300).replace(str(directory), "the checkpoint")
        raise InputError(f"{owner} could not be loaded or run: {words}") from error


def _draw() -> Sequence[Any]:
    """Draw photographs with a fixed seed: coloured tiles under noise, so that every way to scale gives other numbers."""
    import numpy as np
    from PIL import Image

    generator = np.random.default_rng(0)

    def draw(height: int, width: int) -> Any:
        tiles = generator.integers(0, 200, (-(-height // 16), -(-width // 16), 3))
        large = tiles.repeat(16, axis=0).repeat(16, axis=1)[:height, :width]
        return Image.fromarray((large + generator.integers(0, 56, large.shape)).astype(np.uint8))

    return [draw(*size) for size in PHOTOGRAPHS]
