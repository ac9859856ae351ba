"""Tasks of checkpoints for images and sounds, whose processor makes the graph's input."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxreg.converters.passes.conversion import module_of
from onnxreg.converters.runtime.sessions import silent_transformers
from onnxreg.converters.source.source_files import PROCESSOR
from onnxreg.converters.tasks import preprocessing
from onnxreg.converters.tasks.checkpoint import Graphs, LoadedCheckpoint, Saved, part_of, unloadable
from onnxreg.converters.tasks.task import DEPTH, LOADERS, MATCHES, PER_ROW, VIDEOS, Modality, Part
from onnxreg.schema.core.errors import ConversionError, InputError, why

SECONDS = (0.5, 0.73, 0.41, 1.02)


class Processed(Saved):
    """The task of checkpoints whose image processor or feature extractor makes the graph's only input.

    The batch is dynamic, and so are axes along which the processor's results vary.
    """

    has_tokens = False
    products = ("MatMul", "Gemm", "Conv")

    def graphs(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        given = checkpoint.directory, self.head.modality, self.trust_remote_code
        frames = checkpoint.config.num_frames if self.head is VIDEOS else 2 * (self.head is MATCHES)
        processor = Processor(*given, frames=frames)
        if processor.varying and self.head is DEPTH:
            processor = Processor(*given, is_square=True)  # as in the model's training
        part = processor.part(checkpoint.model, self.head.axes, self.head.outputs)
        return Graphs({"": part}, fields=processor.contract())


class Masks(Processed):
    """The task of SAM, which finds the object at a point of an image. Names are as in Transformers.js.

    | member | inputs, to outputs |
    |---|---|
    | `vision_encoder` | `pixel_values`, to `image_embeddings` and `image_positional_embeddings` |
    | `prompt_encoder_mask_decoder` | these outputs, `input_points`, `input_labels`, to `iou_scores` and `pred_masks` |
    """

    members = {name: f"{name}.onnx" for name in ("vision_encoder", "prompt_encoder_mask_decoder")}

    def graphs(self, checkpoint: LoadedCheckpoint, directory: Path) -> Graphs:
        import numpy as np

        model, states = checkpoint.model, ("image_embeddings", "image_positional_embeddings")

        def encode(pixel_values: Any) -> Any:
            places = model.get_image_wide_positional_embeddings()
            return model.get_image_embeddings(pixel_values), places.repeat(pixel_values.shape[0], 1, 1, 1)

        def decode(input_points: Any, input_labels: Any, **embeddings: Any) -> Any:
            sparse, dense = model.prompt_encoder(input_points, input_labels, None, None)
            prompts = {"sparse_prompt_embeddings": sparse, "dense_prompt_embeddings": dense}
            masks, scores = model.mask_decoder(**embeddings, **prompts, multimask_output=True)
            return scores, masks

        processor = Processor(checkpoint.directory, self.head.modality, self.trust_remote_code)
        encoder = processor.part(module_of(encode, model=model), {}, dict.fromkeys(states, PER_ROW))
        generator, feeds = np.random.default_rng(0), []
        for rows, groups, points in ((1, 1, 1), (2, 3, 4), (1, 2, 2)):
            given = {name: encoder.expected[1][name][:rows] for name in states}
            size = (rows, groups, points)
            edge = processor.rows[0].shape[-1]
            given["input_points"] = generator.uniform(0, edge, (*size, 2)).astype(np.float32)
            feeds.append({**given, "input_labels": generator.integers(0, 2, size)})
        per_mask = {0: "batch", 1: "point_batch_size"}
        axes = {name: {0: "batch"} for name in states} | {"iou_scores": per_mask, "pred_masks": per_mask}
        axes |= {name: {**per_mask, 2: "nb_points_per_image"} for name in ("input_points", "input_labels")}
        decoder = part_of(module_of(decode, model=model), feeds, axes, ("iou_scores", "pred_masks"))
        return Graphs(dict(zip(self.members, (encoder, decoder), strict=True)), fields=processor.contract())


class Processor:
    """The image processor or feature extractor of a checkpoint, with its results for generated photographs or sounds.

    `varying` are the axes along which the results differ in size. With `frames`, each photograph becomes a video of
    rotated copies. Raises InputError if the processor does not run, and HostError if a package is missing.
    """

    def __init__(
        self,
        directory: Path,
        modality: Modality,
        trust_remote_code: bool,
        is_square: bool = False,
        frames: int = 0,
    ) -> None:
        import numpy as np
        import transformers

        self.modality, self.is_square, self.frames = modality, is_square, frames
        name, kind = LOADERS[modality]
        try:
            with silent_transformers():
                # `image_input` gives Pillow's numbers; torchvision scales otherwise
                backend = {"backend": "pil"} if modality == "image" else {}
                self.processor = getattr(transformers, name).from_pretrained(
                    directory, local_files_only=True, trust_remote_code=trust_remote_code, **backend
                )
                self.input = self.processor.model_input_names[0]
                options: dict[str, Any] = {}
                if modality == "audio":
                    options["sampling_rate"] = rate = self.processor.sampling_rate
                    if not 0 < rate <= 1_000_000:
                        raise ValueError(f"{rate} samples a second")
                    self.drawn = [preprocessing.draw_sound(rate, seconds) for seconds in SECONDS]
                else:
                    self.drawn = preprocessing.draw_photographs(is_square)
                if transform := getattr(self.processor, "val_transforms", None):
                    preprocessing.use_own_crop(transform)
                    color = "L" if self.processor.data_config["input_size"][0] == 1 else "RGB"
                    self.drawn = [image.convert(color) for image in self.drawn]
                videos = [[image.rotate(angle) for angle in range(frames)] for image in self.drawn if frames]
                self.results = [
                    self.processor(one, return_tensors="pt", **options) for one in videos or self.drawn
                ]
                self.rows: list[Any] = [np.asarray(result[self.input], np.float32) for result in self.results]
        except Exception as error:
            raise unloadable(f"the {kind} of the checkpoint", directory, error) from error
        sizes = zip(*(row.shape for row in self.rows), strict=True)
        self.varying = {at for at, along in enumerate(sizes) if len({*along}) > 1}

    def part(self, model: Any, names: Mapping[int, str], outputs: Mapping[str, Sequence[str]]) -> Part:
        """Make a model's `Part`. `names` has the input axes that may be dynamic, `outputs` the axes of each output.

        Raises InputError if the results vary along another axis, or if the model does not accept their sizes.
        """
        import numpy as np

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
            return part_of(model, [{self.input: batch} for batch in batches], axes, tuple(outputs), True)
        except ConversionError as error:
            if error.__cause__ is None:  # the module runs
                raise
            sizes, cause = list(batches[-1].shape[1:]), why(error.__cause__)
            message = f"the model does not take the {sizes} of its {LOADERS[self.modality][1]}: {cause}"
            raise InputError(message, f"{PROCESSOR[0]} must be that of this model") from error

    def contract(self) -> dict[str, Any]:
        """Return the manifest's description of the preprocessing, as JSON; {} if the manifest cannot describe it."""
        rows = [row[:, 0] for row in self.rows] if self.frames else self.rows
        pairs = list(zip(self.drawn, rows, strict=True))
        if self.modality == "audio":
            sound = preprocessing.audio_of(self.processor.to_dict(), pairs)
            return {} if sound is None else {"audio_preprocessing": sound.to_json()}
        if self.is_square or self.varying:
            return {}
        image = preprocessing.preprocessing_of(self.processor.to_dict(), pairs)
        return {} if image is None else {"preprocessing": image.to_json()}
