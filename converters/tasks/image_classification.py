"""The task `image-classification`: a module that a factory makes, with weights from a file that cannot run code."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, PositiveInt, model_validator

from onnxreg.converters.passes import conversion, samples
from onnxreg.converters.passes.base import PassParams
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.source.source_files import digest_file, scrub
from onnxreg.converters.source.toolchain import require
from onnxreg.converters.tasks import code
from onnxreg.converters.tasks.checkpoint import part_of
from onnxreg.converters.tasks.code import Factory
from onnxreg.converters.tasks.task import ExportSubject, LocatedSource, Task
from onnxreg.schema.core.canonical import directory_digest
from onnxreg.schema.core.errors import ConversionError, InputError, NotFoundError, listing, why
from onnxreg.schema.manifest.manifest import Preprocessing

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
MAX_SAMPLES = 10_000
MAX_SAMPLE_BYTES = 2**30
MAX_BATCH_IMAGES = 32
WRAPPER_KEYS = ("model_state_dict", "state_dict", "model", "net", "params", "weights")
"""The usual keys of weights in a file that also has other values."""
AVERAGED_KEYS = ("model_ema", "state_dict_ema", "ema_state_dict", "params_ema", "ema", "swa_state_dict")
PREFIXES = ("_orig_mod.", "module.", "model.")
"""The prefixes of names that `torch.compile`, `DataParallel` and Lightning add."""


class ImageClassificationOptions(PassParams, title="Options"):
    """The options of an image classifier. Paths are relative to the recipe. docs/vision.md explains the rest.

    `input` is (channels, height, width). `factory` makes the module if the source is a directory. `outputs` are names
    in the module's order; `labels` are the classes of the first output. `samples` is the number of random images, which
    run one by one and, without `fixed_batch`, also in batches. `preprocessing` has the manifest's keys.
    """

    input: tuple[PositiveInt, PositiveInt, PositiveInt]
    checkpoint: str | None = None
    factory: str | None = None
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    input_name: Name = "input"
    outputs: tuple[Name, ...] = ()
    samples: Annotated[int, Field(gt=0, le=MAX_SAMPLES)] = 10
    fixed_batch: bool = False
    labels: tuple[str, ...] = ()
    preprocessing: Mapping[str, Any] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.outputs)) < len(self.outputs) or self.input_name in self.outputs:
            raise ValueError("two inputs or outputs have one name")
        if (size := 4 * self.samples * math.prod(self.input)) > MAX_SAMPLE_BYTES:
            message = f"{self.samples} samples take {size >> 20} MiB, at most {MAX_SAMPLE_BYTES >> 20}"
            raise ValueError(message)
        if len(set(self.labels)) < len(self.labels):
            raise ValueError("two classes have one name")
        if local := scrub(self.model_dump(mode="json", include={"arguments"}), "")[1]:
            raise ValueError(f"{local[0]} names a place on this machine, and would be published")
        if self.preprocessing is not None:
            Preprocessing.of_input(self.preprocessing, self.input)
        return self


class ImageClassification(Task):
    """The task of a factory's module that classifies images, `[batch, channels, height, width]`."""

    id, exporter = "image-classification", "TransformersExport"
    products = ("MatMul", "Gemm", "Conv")
    paths = ("checkpoint",)
    Options = ImageClassificationOptions

    def record(self, source: LocatedSource) -> dict[str, Any]:
        factory, checkpoint = source.location
        return {**super().record(source), "factory": factory.name, "checkpoint": str(digest_file(checkpoint))}

    def seek(self, source: str) -> str | None:
        self._locate(source)
        return None

    def find(self, source: str) -> LocatedSource:
        factory, checkpoint = self._locate(source)
        return LocatedSource(
            (factory, checkpoint),
            directory_digest({"checkpoint": digest_file(checkpoint), **factory.digests}),
            files=(checkpoint.parent, checkpoint, *factory.files.values()),
            packages=factory.packages,
            code=factory.code,
        )

    def _locate(self, source: str) -> tuple[Factory, Path]:
        options, is_typed = self.options, source == self.consent.source
        if Path(source).is_dir():
            if options.factory is None:
                hint = "name what makes the module: options: {factory: module:function}"
                raise InputError(f"{source} is a directory, and nothing says of what module", hint)
            if self.consent.is_recorded:
                factory = code.find_recorded(options.factory, Path(source))
            else:
                factory = code.find(options.factory, self.directory, Path())
            self.consent.check(factory, options.arguments)
        elif code.is_factory(source):
            places = (Path(), self.directory) if is_typed else (self.directory, Path())
            factory = code.find(source, *places)
            self.consent.check(factory, options.arguments, source)
            if options.factory not in (None, source, factory.name):
                message = f"the source is {source}, the recipe's factory {options.factory}"
                raise InputError(message, "leave one out")
        elif Path(source).is_file():
            raise InputError(f"{source} does not say which function makes the module", code.FACTORY_HINT)
        else:
            raise NotFoundError(f"there is no directory {source}", code.FACTORY_HINT)
        if options.checkpoint is None:
            raise InputError(f"{source} makes a module, and nothing gives its weights", "--checkpoint FILE")
        checkpoint = self.directory / options.checkpoint
        if checkpoint.is_dir():
            raise InputError(f"the checkpoint {options.checkpoint} is a directory", "name a file")
        if not checkpoint.is_file():
            hint = "relative paths are relative to the recipe"
            raise NotFoundError(f"there is no checkpoint {options.checkpoint}", hint)
        return factory, checkpoint

    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        require("torch")
        import numpy as np

        options, (factory, checkpoint) = self.options, source.location
        module = code.make(factory, options.arguments)
        load_into(module, checkpoint)
        subject = subject_of(module, options.input, options.outputs, options.input_name, options.fixed_batch)

        # each image alone, then in batches, to detect a graph that is fixed to one row
        images = draw(options.samples, options.input)
        feeds: list[Feed] = [{options.input_name: images[index : index + 1]} for index in range(len(images))]
        if not options.fixed_batch:
            several = images if len(images) > 1 else np.concatenate([images, images])
            starts = range(0, len(several), MAX_BATCH_IMAGES)
            feeds += [{options.input_name: several[start : start + MAX_BATCH_IMAGES]} for start in starts]
        part = part_of(subject.module, feeds, subject.axes or {}, subject.outputs, True)

        given, named = list(part.expected[0][subject.outputs[0]].shape[1:]), len(options.labels)
        if named and given != [named]:
            raise InputError(f"{named} classes are named, the module gives {given} a row")
        fields: dict[str, Any] = {"task": self.id}
        if options.labels:
            fields["labels"] = list(options.labels)
        if options.preprocessing is not None:
            fields["preprocessing"] = Preprocessing.of_input(options.preprocessing, options.input).to_json()
        resolved = {"outputs": list(subject.outputs)}
        return ExportSubject(source.record(name), {"": part}, fields=fields, resolved_options=resolved)


def subject_of(
    module: Any,
    shape: Sequence[int],
    outputs: Sequence[str] = (),
    input_name: str = "input",
    fixed_batch: bool = False,
) -> conversion.TorchModel:
    """Wrap a module that takes an image of this `shape`. Its input and outputs get names.

    If the module returns a dict, `outputs` are its keys, otherwise they are names for the returned tensors, in order.
    Raises ConversionError if the module fails. Raises InputError if its result does not fit `outputs`.
    """
    import torch

    for part in module.modules():
        if hasattr(part, "set_attn_implementation"):
            part.set_attn_implementation("eager")  # which exporters keep
    module = module.float().eval()
    example = torch.from_numpy(draw(2, shape)[: 1 if fixed_batch else 2])

    def tensors(given: Any) -> tuple[Any, ...]:
        if isinstance(given, Mapping):
            chosen = outputs if outputs and {*outputs} <= {*given} else given
            return tuple(given[name] for name in chosen)
        return tuple(given) if isinstance(given, tuple | list) else (given,)

    try:
        with torch.no_grad():
            given = module(example)
    except Exception as error:
        message = f"the module does not take an input of shape {list(shape)}: {why(error)}"
        raise ConversionError(message) from error
    outcome = tensors(given)
    if not outcome or not all(isinstance(tensor, torch.Tensor) for tensor in outcome):
        kinds = ", ".join(sorted({type(tensor).__name__ for tensor in outcome})) or "nothing"
        hint = "return a tensor, a tuple or a dict of tensors"
        raise InputError(f"the module gives {kinds}, not tensors", hint)
    gives = f"the module gives {len(outcome)} outputs"
    if outputs and len(outputs) != len(outcome):
        raise InputError(f"{gives}, and {len(outputs)} are named: {', '.join(outputs)}")
    if not outputs and len(outcome) > 1 and not isinstance(given, Mapping):
        raise InputError(f"{gives} without names", "name them: options: {outputs: [...]}")
    names = tuple(outputs) or (tuple(given) if len(outcome) > 1 else ("output",))

    def run(**image: Any) -> Any:
        return dict(zip(names, tensors(module(*image.values())), strict=True))

    axes = {} if fixed_batch else {name: {0: "batch"} for name in (input_name, *names)}
    return conversion.TorchModel(conversion.module_of(run, module=module), {input_name: example}, names, axes)


def load_into(module: Any, path: Path) -> None:
    """Fill a torch module with the weights in a file of safetensors or of `torch.save`.

    Names lose a prefix in `PREFIXES` that the module lacks. Raises InputError unless the file has exactly the module's
    tensors; only counters of batches may be missing.
    """
    expected = module.state_dict()
    weights = _read(path)
    for prefix in PREFIXES:
        are_below = [all(name.startswith(prefix) for name in names) for names in (weights, expected)]
        if are_below == [True, False]:
            weights = {name.removeprefix(prefix): tensor for name, tensor in weights.items()}
    counts = {name: value for name, value in expected.items() if name.endswith("num_batches_tracked")}
    weights = {**counts, **weights}

    def kind(tensor: Any) -> tuple[object, ...]:
        dtype = tensor.dtype
        return dtype.is_floating_point, dtype.is_complex, tensor.layout, tensor.is_quantized, tensor.is_meta

    both = expected.keys() & weights.keys()
    for problem, names in {
        "the checkpoint has no values for": expected.keys() - weights.keys(),
        "the module has no place for": weights.keys() - expected.keys(),
        "the checkpoint has other shapes than the module for": {
            name for name in both if expected[name].shape != weights[name].shape
        },
        "the checkpoint has other kinds of numbers than the module for": {
            name for name in both if kind(expected[name]) != kind(weights[name])
        },
    }.items():
        if names:
            hint = "the factory must make the module that was trained, with the same arguments"
            message = f"{path.name} is not of this module: {problem} {listing(sorted(names), 6)}"
            raise InputError(message, hint)
    module.load_state_dict(weights)


def draw(count: int, shape: Sequence[int]) -> Any:
    import numpy as np

    return np.random.default_rng(samples.SEED).normal(size=(count, *shape)).astype(np.float32)


def _read(path: Path) -> Mapping[str, Any]:
    """Read the weights of a checkpoint file, by name. Raise InputError if it has both weights and averaged weights."""
    require("safetensors")
    import torch
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            value: Any = load_file(path)
        else:
            value = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        hint = "a pickle can run any code, so only tensors are read: torch.save(module.state_dict(), FILE)"
        message = f"{path.name} is not a checkpoint of tensors alone, or it is cut short"
        raise InputError(message, f"copy it again; {hint}") from error
    weights = value if isinstance(value, Mapping) else {}
    keys = [key for key in (*WRAPPER_KEYS, *AVERAGED_KEYS) if isinstance(weights.get(key), Mapping)]
    if averages := [key for key in keys[1:] if key in AVERAGED_KEYS]:
        message = f"{path.name} holds weights under {keys[0]}, and an average of them under {averages[0]}"
        save = f"torch.save(torch.load({path.name!r})[{averages[0]!r}], 'weights.pth')"
        raise InputError(message, f"save the ones to export: {save}")
    weights = weights[keys[0]] if keys else weights
    if not weights or not all(
        isinstance(key, str) and isinstance(tensor, torch.Tensor) for key, tensor in weights.items()
    ):
        hint = f"torch.save(module.state_dict(), FILE): at the top, or under {', '.join(WRAPPER_KEYS)}"
        raise InputError(f"{path.name} holds no tensors by name alone", hint)
    return weights
