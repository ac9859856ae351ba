"""The survey of a source: files with their roles, facts of the graphs among them, and claims of documents."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from onnxreg.converters.importers.intake import Found, Intake
from onnxreg.converters.onnx.external_data import external_files
from onnxreg.converters.onnx.facts import GraphFacts, inspect_model, inspect_ort, weight_type
from onnxreg.converters.onnx.onnx_graph import check_model, load_onnx
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.source.source_files import below
from onnxreg.schema.core.errors import InputError, RegError
from onnxreg.schema.manifest.draft import NOT_EVALUATED, Draft, Verdict

GRAPHS = (".onnx", ".ort")
"""The suffixes of model files that are read."""


@dataclass(frozen=True)
class Difference:
    """A field of a document (`artifacts.2.metadata.operators`), its claim, and what the files say.

    `actual` is None if nothing supports the claim; `claimed` is None if a fact was not claimed.
    """

    path: str
    claimed: Any
    actual: Any


Adopted = tuple[Draft, list[Difference]]
"""A draft, and the claims that its files contradict."""


@dataclass(frozen=True)
class Model:
    """One model with the files that belong to it alone.

    Args:
        main: the file that runs.
        facts: what it says; None for a format that cannot be read.
        files: its sidecars, external data among them.
        format, precision: what to call it; None: what the file itself says.
        member: its stage, if the models are a pipeline.
        parent: the path of the model that it was made from.
        is_android: the tensor contract of the android profile is promised, whatever the format.
        claims: the entry of a document whose claims are compared with the file.
        fields: further keys of the artifact that a document states.
    """

    main: Found
    facts: GraphFacts | None
    files: tuple[Found, ...] = ()
    format: str | None = None
    precision: str | None = None
    member: str | None = None
    parent: str | None = None
    verdict: Verdict = NOT_EVALUATED
    is_android: bool = False
    claims: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The path in the version."""
        return self.main.path


@dataclass(frozen=True)
class Survey:
    """The models of one source, and all else that its version gets.

    Args:
        profile, step, params, result: for the recipe.
        fields: what documents state of the version, without paths of a machine; `scrubbed` says where there were some.
        claims: the document whose claims are compared with the files.
        differences: those that the survey found.
        hint: what to do if a file is not what its format promises.
        document: the manifest that is kept as it is.
    """

    models: tuple[Model, ...]
    companions: tuple[Found, ...]
    profile: str
    step: str = "import"
    params: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    scrubbed: tuple[str, ...] = ()
    claims: Mapping[str, Any] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()
    hint: str = "leave --format out, or correct it"
    document: bytes | None = None


def read_graph(file: Path, intake: Intake | None = None) -> GraphFacts:
    """The facts of an .onnx or .ort file. Raise InputError if it is not one, or if nothing can run it.

    Args:
        intake: looks at external data before it is read.
    """
    if file.suffix == ".ort":
        return inspect_ort(file)
    model = load_onnx(file)
    if intake is not None:
        for location in external_files(model, file):
            intake.look(file.parent / location)
    facts = inspect_model(model, file)
    try:
        check_model(model, file)
    except InputError as error:
        try:  # the runtime knows operators that ONNX's checker does not
            load_session(file, name=file.name)
        except RegError:
            raise error from None
    return facts


def external_data(main: Found, facts: GraphFacts) -> Iterator[Found]:
    """The files of a graph's external data; they keep their place beside it."""
    for location in facts.external_data:
        path = PurePosixPath(main.path).parent / location
        yield Found("external-data", main.file.parent / location, path.as_posix())


def default_format(facts: GraphFacts) -> str:
    """The format name that the file itself justifies: `ort`, `onnx-int8`, `onnx-int4` or `onnx`."""
    if facts.ort_format is not None:
        return "ort"
    kind = weight_type(facts.precision)
    return f"onnx-{kind}" if kind in ("int8", "int4") else "onnx"


def compare(
    claimed: Mapping[str, Any], actual: Mapping[str, Any], at: str, keys: Iterable[str]
) -> list[Difference]:
    """The keys whose claims, if made and not null, differ from what was found. Lists of names compare as sets."""

    def comparable(value: Any) -> Any:
        is_names = isinstance(value, list) and all(isinstance(item, str) for item in value)
        return sorted(value) if is_names else value

    prefix = f"{at}." if at else ""
    return [
        Difference(f"{prefix}{key}", claimed[key], actual.get(key))
        for key in keys
        if claimed.get(key) is not None and comparable(claimed[key]) != comparable(actual.get(key))
    ]


def files_below(root: Path, folder: str = "") -> list[str]:
    """Every file below a folder, relative to `root`, sorted."""
    return sorted(path.relative_to(root).as_posix() for path in below(root / folder) if path.is_file())


def named_file(root: Path, path: str, role: str) -> Path:
    """A file that a manifest names, checked to be there; InputError says by which `role` it is named."""
    file = root / path
    if not file.is_file():
        raise InputError(
            f"the manifest names the {role} {path}, which is missing",
            "copy the whole directory again, or export the model again",
        )
    if not file.resolve().is_relative_to(root.resolve()):
        raise InputError(
            f"the manifest names the {role} {path}, a link that leads out of the directory",
            "look at who made that directory; an export holds files only",
        )
    return file
