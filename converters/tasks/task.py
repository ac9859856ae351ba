"""The contract of a task: it finds a source without loading it, and loads it when a step needs it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ValidationError

from onnxreg.converters.passes.base import PassParams
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.source.location import hub_id
from onnxreg.converters.tasks.code import NO_CONSENT, Consent
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import InvalidValueError
from onnxreg.schema.manifest.draft import DraftFile
from onnxreg.schema.manifest.manifest import Source
from onnxreg.schema.manifest.parts import Code


class TaskOptions(PassParams):
    """Options of a task: frozen, and an unknown key is an error."""


@dataclass(frozen=True)
class LocatedSource:
    """A source that is found and hashed, but not loaded.

    `location` is the task's own. `digest` is over everything that shapes the graphs and is not in the recipe, `described` over
    what else a manifest is made of, such as a model card. `origin` is its record in a manifest, None without a name of its
    own; `name` the model name that a hub id gives. `files` are all local files read, and each directory whose names decide
    what is read; None if unknown. `packages` are the installed packages whose code is run, `code` the function that makes the
    module, if any.
    """

    location: Any
    digest: Digest
    origin: Source | None = None
    name: str | None = None
    described: Digest | None = None
    files: tuple[Path, ...] | None = None
    packages: tuple[str, ...] = ()
    code: Code | None = None

    def record(self, name: str) -> Source:
        """Its record in a manifest; one without a name of its own has that of the model."""
        return self.origin or Source.from_json({"id": name, "digest": str(self.digest)})


@dataclass(frozen=True)
class Sample:
    """Inputs with the outputs of the source itself; every graph of an export is measured on them.

    `feeds` and `expected` are numpy arrays by name, one mapping for each run. Outputs `per_token` have the axes batch and
    sequence first: positions that the input `attention_mask` leaves out do not count. `golden` are the small inputs, by
    the names of their cases, that other runtimes are tested with.
    """

    feeds: Sequence[Feed]
    expected: Sequence[Mapping[str, Any]]
    per_token: frozenset[str] = frozenset()
    golden: Mapping[str, Feed] = field(default_factory=dict)


@dataclass(frozen=True)
class ExportSubject:
    """A loaded source.

    `start` is the input of the first step, such as a `TorchModel`. `companions` are in the directory that `load` was given.
    `fields` are keys of the manifest in their JSON form, `resolved_options` the effective options, for the recipe's
    `parameters`. `loaded` is the task's own.
    """

    origin: Source
    sample: Sample
    start: Any = None
    companions: tuple[DraftFile, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    resolved_options: Mapping[str, Any] = field(default_factory=dict)
    loaded: Any = None
    directory: Path = Path()


class Task(ABC):
    """One kind of source, with typed options. `version` goes up if the same source gives another subject.

    `aliases` are other names that people type, of Optimum, of pipelines in transformers and Transformers.js, of txtai and of the
    Hub; only `id` is recorded. `paths` are the options that name files; a manifest has their digests instead.
    """

    id: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
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
