"""The contract of a task: find a source without loading it, and load the source when a step needs it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from onnxreg.converters.passes.base import PassParams
from onnxreg.converters.passes.samples import Feed
from onnxreg.converters.source.source_files import hub_id
from onnxreg.converters.tasks.code import NO_CONSENT, Consent
from onnxreg.converters.tasks.heads import TaskHead
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.manifest.draft import Draft, DraftFile
from onnxreg.schema.manifest.manifest import Code, Source

SAVE_TOKENIZER = "save the tokenizer beside the model: tokenizer.save_pretrained(DIRECTORY)"


@dataclass(frozen=True)
class Adapter:
    """An adapter: its directory; its record in a manifest, with the digest of its files; its base model's record."""

    directory: Path
    record: Mapping[str, Any]


@dataclass(frozen=True)
class LocatedSource:
    """A source that was found and hashed, but not loaded.

    Only the task uses `location`. `digest` covers all that affects the graphs except the recipe; `described` covers further
    inputs of the manifest, such as a model card. `origin` is the source's record in a manifest (None: the source has no
    name). `files` are all local files that are read, and each directory whose listing decides which files are read (None:
    unknown). `packages` are the installed packages whose code is run; `code` is the function that makes the module, if any.
    `lacks_tokenizer` is True for a checkpoint of texts without a tokenizer. `adapter` is merged into the model at `location`.
    """

    location: Any
    digest: Digest
    origin: Source | None = None
    described: Digest | None = None
    files: tuple[Path, ...] | None = None
    packages: tuple[str, ...] = ()
    code: Code | None = None
    lacks_tokenizer: bool = False
    adapter: Adapter | None = None

    def record(self, name: str) -> Source:
        """Return the source's record in a manifest. A source without a name gets the model's `name`."""
        return self.origin or Source.from_json({"id": name, "digest": str(self.digest)})


@dataclass
class Part:
    """A module of a source, and its own runs, with which every graph made of it is compared.

    `start` is the input of the first step, such as a `TorchModel`; it is dropped after the last step that uses it. `feeds` are
    the inputs, `expected` the source's outputs: for each run, numpy arrays by name. The outputs in `per_token` have batch and
    sequence as first axes; of these, positions at which the input `attention_mask` is 0 are ignored. `golden` has small
    inputs, by names of cases, for tests in other runtimes. `shared` has outputs of graphs for the same inputs, for later steps.
    """

    start: Any
    feeds: Sequence[Feed] = ()
    expected: Sequence[Mapping[str, Any]] = ()
    per_token: frozenset[str] = frozenset()
    golden: Mapping[str, Feed] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True)
class ExportSubject:
    """A loaded source.

    `parts` are its modules by name; the parameter `part` of a step chooses a part. Most sources have a single part, named "".
    `companions` are files in the directory given to `load`. `fields` are keys of the manifest in JSON form;
    `resolved_options` are the effective options, for the recipe's `parameters`. Only the task reads `loaded`. `proof` runs the
    graphs of a finished draft together, and raises ConversionError if their results differ from the source's.
    """

    origin: Source
    parts: Mapping[str, Part]
    companions: tuple[DraftFile, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    resolved_options: Mapping[str, Any] = field(default_factory=dict)
    loaded: Any = None
    directory: Path = Path()
    proof: Callable[[Draft], Draft] | None = None

    @property
    def is_joint(self) -> bool:
        """True if the source becomes several graphs that work together."""
        return "" not in self.parts

    @property
    def part(self) -> Part:
        """The only part; if there are several, a part without runs."""
        return self.parts.get("", Part(None))


class Task(ABC):
    """One kind of source, with typed options.

    `aliases` are names of the task in Optimum, pipelines of transformers and Transformers.js, txtai and the Hub, which people
    may type; only `id` is recorded. `paths` are the options whose values are files; a manifest has the files' digests.
    `exporter` is the first pass of the task's recipe ("": it has no recipe). If the source has several graphs, `members` has
    the file of each; `merged` has the two decoders of each member that `MergeDecoders` makes. `products` are the operators
    whose weights the pass `quantizer` makes INT8.
    """

    id: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    head: ClassVar[TaskHead]
    exporter: ClassVar[str] = ""
    members: ClassVar[Mapping[str, str]] = {}
    merged: ClassVar[Mapping[str, tuple[str, str]]] = {}
    products: ClassVar[tuple[str, ...]] = ("MatMul", "Gemm")
    quantizer: ClassVar[str] = "OnnxDynamicQuantization"
    paths: ClassVar[tuple[str, ...]] = ()
    Options: ClassVar[type[PassParams]] = PassParams

    def __init__(
        self,
        directory: Path = Path(),
        trust_remote_code: bool = False,
        consent: Consent = NO_CONSENT,
        /,
        **options: Any,
    ) -> None:
        """Check the options; relative paths in them begin at `directory`. `consent` has the code of others that may run."""
        self.directory = directory
        self.trust_remote_code = trust_remote_code
        self.consent = consent
        self.options: Any = self.Options.read(options, f"an option of task {self.id}")

    @classmethod
    def of(cls, head: TaskHead, **fields: Any) -> type[Self]:
        """Make the task class of a head; `fields` are further attributes of the class."""
        fields |= {"__module__": cls.__module__, "id": head.task, "aliases": head.aliases, "head": head}
        return type(cls.__name__, (cls,), fields)

    def record(self, source: LocatedSource) -> dict[str, Any]:
        """Return the options in the manifest's form, with digests in place of paths."""
        value: dict[str, Any] = self.options.model_dump(mode="json")
        return value

    def seek(self, source: str) -> str | None:
        """Return the source's hub id; None for a local source. Nothing is hashed or fetched. NotFoundError if it is missing."""
        return hub_id(source)

    @abstractmethod
    def find(self, source: str) -> LocatedSource:
        """Find and hash a source; no heavy module is imported. InputError if the source does not fit this task."""

    @abstractmethod
    def load(self, source: LocatedSource, name: str, directory: Path) -> ExportSubject:
        """Load a source, and write its companions into `directory`. `name` is the model's name, for a source without a name.

        Raises InputError if the source is not complete and trained, HostError if an extra is missing.
        """
