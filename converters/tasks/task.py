"""The contract of a task: it finds a source without loading it, and loads it when a step needs it.

A source may have labelled inputs, for measuring accuracy.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ValidationError

from onnxreg.converters.passes.base import PassParams
from onnxreg.converters.passes.tools import samples
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.source.location import hub_id
from onnxreg.converters.tasks.code import NO_CONSENT, Consent
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import InvalidValueError
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.draft import DraftFile
from onnxreg.schema.manifest.manifest import Source
from onnxreg.schema.manifest.parts import Code

LABELS = "labels"
"""Name of the array with the classes of the first output; those of another output are in `labels_<output>`."""
Run = Callable[[Feed], Mapping[str, Any]]
"""Function from arrays by input name to arrays by output name."""


class TaskOptions(PassParams):
    """Options of a task: frozen, and an unknown key is an error."""


@dataclass(frozen=True)
class LocatedSource:
    """A source that is found and hashed, but not loaded.

    `location` is the task's own. `digest` is over everything that shapes the graphs and is not in the recipe;
    `described` over what else a manifest is made of, such as a model card. `origin` is the record of the
    source in a manifest, None for a source without a name of its own; `name` is the model name that a hub id
    gives. `files` are all local files read, and each directory whose names decide what is read; None if
    unknown. `packages` are the installed packages whose code is run, such as those that a factory imports.
    `code` is the function that makes the module, if any.
    """

    location: Any
    digest: Digest
    origin: Source | None = None
    name: str | None = None
    described: Digest | None = None
    files: tuple[Path, ...] | None = None
    packages: tuple[str, ...] = ()
    code: Code | None = None


@dataclass(frozen=True)
class Sample:
    """Inputs with the outputs of the source itself; every graph of an export is measured on them.

    `feeds` and `expected` are numpy arrays by name, one mapping for each run. Outputs `per_token` have the
    axes batch and sequence first: of these, positions that the input `attention_mask` leaves out do not
    count. `golden` are the small inputs, by the names of their cases, that other runtimes are tested with.
    """

    feeds: Sequence[Feed]
    expected: Sequence[Mapping[str, Any]]
    per_token: frozenset[str] = frozenset()
    golden: Mapping[str, Feed] = field(default_factory=dict)


@dataclass(frozen=True)
class LabelledInputs:
    """`inputs` by name and `classes` by output name, int64 `[rows]`: the position of the largest value that
    is right.

    `digest` is over all of it. `accuracy` of the source itself is that of its own outputs, by output name.
    """

    inputs: Feed
    classes: Mapping[str, Any]
    digest: Digest

    @property
    def rows(self) -> int:
        return len(next(iter(self.inputs.values())))

    def batches(self, size: int) -> Iterator[Feed]:
        for start in range(0, self.rows, size):
            yield {name: array[start : start + size] for name, array in self.inputs.items()}

    def accuracy(self, run: Run, size: int) -> dict[str, float]:
        """Return the share of rows with the right class, by output name. InputError if an output is not one
        vector per row.

        Args:
            size: rows in a batch.
        """
        import numpy as np

        results = [run(feed) for feed in self.batches(size)]
        accuracies = {}
        for name, classes in self.classes.items():
            values = np.concatenate([result[name] for result in results])
            if values.ndim != 2 or len(values) != len(classes):
                raise InputError(f"{LABELS} are for one vector a row; {name} has the shape {values.shape}")
            if classes.max() >= values.shape[1]:
                raise InputError(
                    f"the dataset has the class {classes.max()}, the output {name} has {values.shape[1]} values"
                )
            accuracies[name] = float((values.argmax(axis=1) == classes).mean())
        return accuracies


@dataclass(frozen=True)
class ExportSubject:
    """A loaded source.

    `start` is the input of the first step, such as a `TorchModel`; None if the subject came out of a cache.
    `companions` are in the directory that `load` was given. `fields` are keys of the manifest in their JSON
    form; `resolved_options` are the effective options, for the recipe's `parameters`. `loaded` is the task's
    own. If accuracy is measured, `labelled` is its data, and `resolved_options` has the `accuracy` of the
    source by output.
    """

    origin: Source
    sample: Sample
    start: Any = None
    companions: tuple[DraftFile, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    resolved_options: Mapping[str, Any] = field(default_factory=dict)
    loaded: Any = None
    labelled: LabelledInputs | None = None


class Task(ABC):
    """One kind of source, with typed options. `version` goes up if the same source gives another subject.

    `paths` are the options that name files; a manifest has their digests instead.
    """

    id: ClassVar[str]
    version: ClassVar[int] = 1
    paths: ClassVar[tuple[str, ...]] = ()
    Options: ClassVar[type[TaskOptions]] = TaskOptions

    def __init__(
        self,
        directory: Path = Path(),
        trust_remote_code: bool = False,
        consent: Consent = NO_CONSENT,
        /,
        **options: Any,
    ) -> None:
        """Args:
        directory: base of relative paths in the options.
        trust_remote_code: True if code of a transformers checkpoint may run.
        consent: other code that may run.
        """
        self.directory = directory
        self.trust_remote_code = trust_remote_code
        self.consent = consent
        try:
            self.options: Any = self.Options(**options)
        except ValidationError as error:
            raise InvalidValueError(
                error, f"an option of task {self.id}", self.Options.model_fields
            ) from error

    def record(self, source: LocatedSource) -> dict[str, Any]:
        """Return the options as a manifest has them: paths are replaced by the digests of their files."""
        value: dict[str, Any] = self.options.model_dump(mode="json")
        return value

    @property
    def has_dataset(self) -> bool:
        """True if there are labelled inputs, so that accuracy can be measured."""
        return False

    def dataset(self, source: LocatedSource, resolved_options: Mapping[str, Any]) -> LabelledInputs | None:
        """Return the labelled inputs; `resolved_options` is the subject's. InputError if they cannot be read."""
        return None

    def seek(self, source: str) -> None:
        """Raise NotFoundError for a missing local source; nothing is hashed or fetched."""
        hub_id(source)

    @abstractmethod
    def find(self, source: str) -> LocatedSource:
        """Find and hash a source; nothing heavy is imported.

        Raises NotFoundError or RemoteError if it cannot be read, InputError if it is not a source of this
        task.
        """

    def warnings(self, source: LocatedSource) -> Sequence[str]:
        """Return what people should know of a located source before it is exported."""
        return ()

    def check_evaluation(self, source: LocatedSource) -> None:  # noqa: B027
        """Raise InputError for a located source that cannot be evaluated."""

    @abstractmethod
    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        """Load a source, and write its companions into `directory`.

        Args:
            name: the model's name, for a source without one of its own.

        Raises InputError if it is not complete and trained, HostError if an extra is missing.
        """


def read_labelled_inputs(path: Path, inputs: Sequence[str], outputs: Sequence[str]) -> LabelledInputs:
    """Read a `.npz` file: an array for each input, and `labels` (of the first output), `labels_<output>`.

    Raises InputError if it is not such a file, or its arrays do not fit each other.
    """
    import numpy as np

    rows = samples.read(path)
    arrays = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    label_names = {outputs[0]: LABELS, **{name: f"{LABELS}_{name}" for name in outputs[1:]}}
    classes = {name: arrays.pop(key) for name, key in label_names.items() if key in arrays}
    if not classes or set(arrays) != set(inputs):
        contents = ", ".join(sorted({*arrays, *(label_names[name] for name in classes)}))
        raise InputError(
            f"{path.name} holds {contents}; a dataset has {', '.join(inputs)} and {LABELS}",
            "np.savez(FILE, " + ", ".join(f"{name}=..." for name in (*inputs, LABELS)) + ")",
        )
    for name, values in classes.items():
        if values.ndim != 1 or values.dtype.kind not in "iu" or values.min() < 0:
            raise InputError(f"{path.name}: {label_names[name]} must be one class, 0 or more, for each row")
    classes = {name: values.astype(np.int64) for name, values in classes.items()}
    arrays_and_classes = [{**arrays, **{label_names[name]: values for name, values in classes.items()}}]
    return LabelledInputs(arrays, classes, samples.digest(arrays_and_classes))
