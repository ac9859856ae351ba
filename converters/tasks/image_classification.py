"""`image-classification`: the module that a factory makes, with the weights of a checkpoint."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, PositiveInt, model_validator

from onnxreg.converters.source.scrub import scrub
from onnxreg.converters.source.source_files import digest_file
from onnxreg.converters.source.toolchain import require
from onnxreg.converters.tasks.checkpoints import image_sample, torch_weights
from onnxreg.converters.tasks.code import factory
from onnxreg.converters.tasks.code.factory import Factory
from onnxreg.converters.tasks.task import (
    ExportSubject,
    LabelledInputs,
    LocatedSource,
    Task,
    TaskOptions,
    read_labelled_inputs,
)
from onnxreg.schema.core.digest import directory_digest
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.manifest.manifest import Source
from onnxreg.schema.manifest.parts import Preprocessing

Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
MAX_SAMPLES = 10_000
MAX_SAMPLE_BYTES = 2**30
"""The most bytes of all images of a sample."""


@dataclass(frozen=True)
class FactorySource:
    """A factory, the weights for its module, and the images that accuracy is measured on."""

    factory: Factory
    checkpoint: Path
    dataset: Path | None


class ImageClassificationOptions(TaskOptions, title="Options"):
    """The options of images that a checkpoint does not state. Paths are relative to the recipe.

    `input` is (channels, height, width). `factory` makes the module if the source is a run directory, `arguments` are
    its own. `outputs` are named in the module's order; one that has no name is `output`. `samples` images, drawn with a seed
    or, if there is a `dataset`, picked from it, are run one by one and in batches; with `fixed_batch` one by one only.
    `preprocessing` has the keys of the manifest's, its size being that of the input. `labels` are the classes of the first output.
    """

    input: tuple[PositiveInt, PositiveInt, PositiveInt]
    checkpoint: str | None = None
    factory: str | None = None
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    input_name: Name = "input"
    outputs: tuple[Name, ...] = ()
    samples: Annotated[int, Field(gt=0, le=MAX_SAMPLES)] = 10
    fixed_batch: bool = False
    dataset: str | None = None
    labels: tuple[str, ...] = ()
    preprocessing: Mapping[str, Any] | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.outputs)) < len(self.outputs) or self.input_name in self.outputs:
            raise ValueError("two inputs or outputs have one name")
        if (size := 4 * self.samples * math.prod(self.input)) > MAX_SAMPLE_BYTES:
            raise ValueError(
                f"{self.samples} samples take {size >> 20} MiB, the most is {MAX_SAMPLE_BYTES >> 20}"
            )
        if len(set(self.labels)) < len(self.labels):
            raise ValueError("two classes have one name")
        if local := scrub(self.model_dump(mode="json", include={"arguments"}), "")[1]:
            raise ValueError(
                f"{local[0]} names a place on this machine, and would be published: a factory finds a file from its own"
            )
        try:
            self.bound()
        except InputError as error:
            raise ValueError(error.message) from error
        return self

    def bound(self) -> Preprocessing | None:
        """The preprocessing as a manifest has it. Raise InputError if it contradicts the input."""
        return None if self.preprocessing is None else Preprocessing.of_input(self.preprocessing, self.input)


class ImageClassification(Task):
    """A torch module that takes images `[batch, channels, height, width]` and gives a vector of classes for
    each.
    """

    id = "image-classification"
    paths = ("checkpoint", "dataset")
    Options = ImageClassificationOptions

    @property
    def has_dataset(self) -> bool:
        return self.options.dataset is not None

    def record(self, source: LocatedSource) -> dict[str, Any]:
        factory_source: FactorySource = source.location
        digests = {"checkpoint": digest_file(factory_source.checkpoint)}
        if factory_source.dataset is not None:
            digests["dataset"] = digest_file(factory_source.dataset)
        paths = {name: str(digest) for name, digest in digests.items()}
        return {**super().record(source), "factory": factory_source.factory.name, **paths}

    def seek(self, source: str) -> None:
        self._locate(source)

    def find(self, source: str) -> LocatedSource:
        factory_source = self._locate(source)
        function = factory_source.factory
        digests = {"checkpoint": digest_file(factory_source.checkpoint), **function.digests}
        data = () if factory_source.dataset is None else (factory_source.dataset,)
        read = (factory_source.checkpoint.parent, factory_source.checkpoint, *function.files.values(), *data)
        return LocatedSource(
            factory_source,
            directory_digest(digests),
            files=read,
            packages=function.packages,
            code=function.code,
        )

    def _locate(self, source: str) -> FactorySource:
        options = self.options
        dataset = None if options.dataset is None else self._file(options.dataset, "dataset")
        checkpoint = None if options.checkpoint is None else self._file(options.checkpoint, "checkpoint")
        if Path(source).is_dir():
            if options.factory is None:
                hint = "name what makes the module: options: {factory: module:function}"
                raise InputError(f"{source} holds weights, and nothing says of what module", hint)
            checkpoint = checkpoint or torch_weights.best_of(Path(source))
            return FactorySource(self._named(options.factory, Path(source)), checkpoint, dataset)
        if not factory.is_factory(source):
            if Path(source).is_file():
                raise InputError(
                    f"{source} does not say which function makes the module", factory.FACTORY_HINT
                )
            raise NotFoundError(f"there is no directory {source} of a training run", factory.FACTORY_HINT)
        is_typed = source == self.consent.source
        places = (Path(), self.directory) if is_typed else (self.directory, Path())
        candidate = factory.find(source, *places)
        self.consent.check(candidate, options.arguments, source)
        if options.factory not in (None, source, candidate.name):
            raise InputError(
                f"the source is {source}, the recipe's factory {options.factory}", "leave one out"
            )
        if checkpoint is None:
            raise InputError(f"{source} makes a module, and nothing gives its weights", "--checkpoint FILE")
        return FactorySource(candidate, checkpoint, dataset)

    def _named(self, name: str, source: Path) -> Factory:
        """The factory that the options name, and that may run."""
        if self.consent.is_recorded:
            candidate = factory.find_recorded(name, source)
        else:
            candidate = factory.find(name, self.directory, Path())
        self.consent.check(candidate, self.options.arguments)
        return candidate

    def _file(self, name: str, label: str) -> Path:
        path = self.directory / name
        if path.is_dir():
            raise InputError(f"the {label} {name} is a directory", "name a file")
        if not path.is_file():
            hint = (
                "check the path" if Path(name).is_absolute() else "relative paths are relative to the recipe"
            )
            raise NotFoundError(f"there is no {label} {name}", hint)
        return path

    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        require("torch")
        factory_source: FactorySource = source.location
        options = self.options
        module = factory.make(factory_source.factory, options.arguments)
        torch_weights.load_into(module, factory_source.checkpoint)
        subject = image_sample.subject_of(
            module, options.input, options.outputs, options.input_name, options.fixed_batch
        )
        data = self._labelled(factory_source, subject.outputs)
        sample = image_sample.measure(subject, self._images(factory_source), self.options.fixed_batch)
        self._check_labels(sample.expected[0][subject.outputs[0]])
        resolved: dict[str, Any] = {"outputs": list(subject.outputs)}
        if data is not None:
            resolved["accuracy"] = image_sample.accuracy(subject, data, self.options.fixed_batch)
        origin = source.origin or Source.from_json({"id": name, "digest": str(source.digest)})
        return ExportSubject(
            origin, sample, subject, fields=self._fields(), resolved_options=resolved, labelled=data
        )

    def dataset(self, source: LocatedSource, resolved_options: Mapping[str, Any]) -> LabelledInputs | None:
        return self._labelled(source.location, resolved_options["outputs"])

    def _labelled(self, factory_source: FactorySource, outputs: Any) -> LabelledInputs | None:
        if factory_source.dataset is None:
            return None
        data = read_labelled_inputs(factory_source.dataset, [self.options.input_name], list(outputs))
        image_sample.check(
            data.inputs[self.options.input_name], self.options.input, factory_source.dataset.name
        )
        return data

    def _images(self, factory_source: FactorySource) -> Any:
        """The sample: float32 `[samples, channels, height, width]`."""
        options = self.options
        if factory_source.dataset is not None:
            return image_sample.pick(factory_source.dataset, options.input_name, options.samples)
        return image_sample.draw(options.samples, options.input)

    def _check_labels(self, scores: Any) -> None:
        if self.options.labels and scores.shape[1:] != (len(self.options.labels),):
            raise InputError(
                f"{len(self.options.labels)} classes are named, the module gives {list(scores.shape[1:])} a row"
            )

    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"task": self.id}
        if self.options.labels:
            fields["labels"] = list(self.options.labels)
        if (bound := self.options.bound()) is not None:
            fields["preprocessing"] = bound.to_json()
        return fields
