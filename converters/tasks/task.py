"""The contract of a task: it finds a source without loading it, and loads it when a step needs it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ValidationError

from onnxreg.converters.passes.base import PassParams
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.source.source_files import hub_id
from onnxreg.converters.tasks.code.consent import NO_CONSENT, Consent
from onnxreg.converters.tasks.labelled_inputs import LabelledInputs
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.problems import refusal
from onnxreg.schema.manifest.draft import DraftFile
from onnxreg.schema.manifest.manifest import Source
from onnxreg.schema.manifest.recorded_recipe import Code


class TaskOptions(PassParams):
    """Options of a task: frozen, and an unknown key is an error."""


@dataclass(frozen=True)
class LocatedSource:
    """A source that was found and hashed, and not loaded.

    `digest` is over everything that shapes the graphs and does not stand in the recipe; `described` over what else a
    manifest is made of, such as a model card. `origin` is what a manifest says of the source, without a name for what
    has none of its own; `name` the model name that a hub id gives. `files` are all that was read of this machine, and
    each directory whose names decide what is read; None where that cannot be said. `packages` are the installed ones
    whose code is run, such as those that a factory imports. `code` is the function that makes the module, if one does.
    """

    where: Any
    digest: Digest
    origin: Source | None = None
    name: str | None = None
    described: Digest | None = None
    files: tuple[Path, ...] | None = None
    packages: tuple[str, ...] = ()
    code: Code | None = None


@dataclass(frozen=True)
class Sample:
    """Inputs, and what the source itself gives for them: what every graph of an export is measured on.

    `feeds` and `expected` are numpy arrays by name, one mapping for each run. Outputs `per_token` have the axes batch
    and sequence first: of these, positions that the input `attention_mask` leaves out do not count. `golden` are the
    small inputs, by the names of their cases, that other runtimes are tested with.
    """

    feeds: Sequence[Feed]
    expected: Sequence[Mapping[str, Any]]
    per_token: frozenset[str] = frozenset()
    golden: Mapping[str, Feed] = field(default_factory=dict)


@dataclass(frozen=True)
class ExportSubject:
    """A source that was loaded.

    `start` is what the first step takes, such as a `TorchModel`; None where all that is here came out of a cache.
    `companions` lie in the directory that `load` was given. `fields` are keys of the manifest in their JSON form;
    `got` what became of the options, for the recipe's `parameters`. `loaded` is the task's own. Where accuracy is
    measured, `labelled` is what on, and `got` has the `accuracy` of the source itself by output.
    """

    origin: Source
    sample: Sample
    start: Any = None
    companions: tuple[DraftFile, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    got: Mapping[str, Any] = field(default_factory=dict)
    loaded: Any = None
    labelled: LabelledInputs | None = None


class Task(ABC):
    """One kind of source, with typed options. `version` goes up where the same source gives another subject.

    `paths` are the options that name files: a manifest has their digests instead.
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
        directory: what relative paths in the options are relative to.
        trust_remote_code: whether code that a checkpoint of transformers brings may run.
        consent: what other code may run.
        """
        self.directory = directory
        self.trust_remote_code = trust_remote_code
        self.consent = consent
        try:
            self.options: Any = self.Options(**options)
        except ValidationError as error:
            raise refusal(error, f"task {self.id}: option", self.Options.model_fields) from error

    def record(self, found: LocatedSource) -> dict[str, Any]:
        """The options as a manifest has them: paths are replaced by the digests of what lay there."""
        value: dict[str, Any] = self.options.model_dump(mode="json")
        return value

    @property
    def has_dataset(self) -> bool:
        """Whether there are inputs whose right class is known, so that accuracy can be measured."""
        return False

    def dataset(self, found: LocatedSource, got: Mapping[str, Any]) -> LabelledInputs | None:
        """These inputs; `got` is that of the subject. InputError where they cannot be read."""
        return None

    def seek(self, source: str) -> None:
        """NotFoundError where a source on this machine is not there; nothing is hashed or fetched."""
        hub_id(source)

    @abstractmethod
    def find(self, source: str) -> LocatedSource:
        """Find and hash a source; nothing heavy is imported.

        Raises NotFoundError or RemoteError where it cannot be had, InputError where it is none of this task.
        """

    @abstractmethod
    def load(self, found: LocatedSource, name: str, directory: Path) -> ExportSubject:
        """Load what was found, and write its companions into `directory`.

        Args:
            name: the model's name, for what has none of its own.

        Raises InputError where it is not complete and trained, HostError where an extra is missing.
        """
