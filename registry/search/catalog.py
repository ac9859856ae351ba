"""The catalog of a registry: everything that `ls` and `query` say of its models, as lines of JSON.

The first line is a `Header`. Then follows one `ModelLine` for each model, and then the artifacts of the models in pieces
(`Piece`), so that a list of models reads only the first part. A catalog is a hint, as old as its time: nothing that decides
about a version reads it. Lines from elsewhere are bounded, and their types checked; docs/query.md has the format.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from itertools import count
from typing import Any

import msgspec

from onnxreg.registry.log import lookup
from onnxreg.registry.log.lookup import LocatedVersion
from onnxreg.registry.search.listing import channels, newest, total_size
from onnxreg.registry.search.scan import UNSETTLED, index_tokens
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.registry.support.parallel import run_parallel
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import HostError, IntegrityError, NotFoundError, RegError
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.state import State, VersionEntry
from onnxreg.schema.log.summary import effective_state
from onnxreg.schema.query.expression.fields import FIELDS, LABELLED, FieldKind, of_artifact, of_version
from onnxreg.schema.query.expression.parser import Expression
from onnxreg.schema.query.expression.tree import spend

FORMAT, FORMAT_VERSION = "onnxreg-catalog", 1
MAX_BYTES, MAX_LINE_BYTES = 2**30, 4 * 2**20
"""Bytes of all lines, and of one."""
MAX_MODELS = MAX_ARTIFACTS = 1_000_000
PIECE_BYTES = 2**18
"""Bytes of artifacts after which a piece ends."""
BATCH_MODELS = 64
"""Models that are read at a time."""

REVISIONS = count()


class CatalogError(Exception):
    """A catalog that cannot be used. Its text completes "the catalog of PLACE"."""


class LaterFormatError(CatalogError):
    """A catalog that a later build published."""


class Header(msgspec.Struct):
    """The first line: the registry, the number of its models, and the time, RFC 3339, if the catalog was published."""

    format: str
    format_version: int
    registry: str
    models: int
    time: str | None = None


class Release(msgspec.Struct, omit_defaults=True, gc=False):
    """The newest release of a model; `size` counts the bytes that are here. `releases` reads the last three fields."""

    version: str
    manifest: str
    task: str | None
    license: str | None
    size: int
    formats: list[str]
    published: str | None = None
    description: str | None = None
    words: str | None = None


class ModelLine(msgspec.Struct, omit_defaults=True, gc=False):
    """A model as of `head`, with the token of its index file; or `damage`, the reason why it cannot be read."""

    name: str
    token: str = UNSETTLED
    newest: str | None = None
    versions: int = 0
    channels: dict[str, str] = {}
    head: str | None = None
    damage: str | None = None
    release: Release | None = None

    def to_json(self) -> dict[str, Any]:
        """The documented shape of `reg ls --json`."""
        return {key: getattr(self, key) for key in ("name", "versions", "newest", "channels")}


class Piece(msgspec.Struct, omit_defaults=True, gc=False):
    """Artifacts of a model as of `head`, by version and path, without its name; `gaps` says why others are missing."""

    name: str
    head: str
    artifacts: msgspec.Raw
    gaps: list[str] = []


_UNKNOWN = ("family", "license", "min_recall", "opset", "ort_format", "profile", "task")
"""The fields that may be unknown."""
_TYPES: Mapping[FieldKind, tuple[Any, Any]] = {
    **dict.fromkeys((FieldKind.TEXT, FieldKind.VERSION), (str, msgspec.NODEFAULT)),
    **dict.fromkeys((FieldKind.SIZE, FieldKind.COUNT), (int, msgspec.NODEFAULT)),
    FieldKind.FLAG: (bool, False),
    FieldKind.LIST: (list[str], msgspec.field(default_factory=list)),
}
"""The type and the default of a field that is never unknown."""
Artifact: Any = msgspec.defstruct(
    "Artifact",
    [
        (name, dict[str, float], msgspec.field(default_factory=dict))
        if name in LABELLED
        else (name, float | None if kind is FieldKind.SHARE else _TYPES[kind][0] | None, None)
        if name in _UNKNOWN
        else (name, str, "")
        if name == "name"
        else (name, *_TYPES[kind])
        for name, kind in FIELDS.items()
    ]
    + [("held", bool, True)],
    namespace={"get": lambda artifact, name: getattr(artifact, name, None)},
    omit_defaults=True,
    kw_only=True,
    gc=False,
)
"""One artifact, with the `FIELDS` of an expression, which may be evaluated on it. Its files are here if it is `held`."""
_HEADER, _MODEL, _PIECE, _ARTIFACTS = (
    msgspec.json.Decoder(kind) for kind in (Header, ModelLine, Piece, list[Artifact])
)


class Catalog:
    """The lines of a catalog in memory. `time`: when it was published, None if index files were read for it."""

    def __init__(self, registry_id: str, time: str | None = None) -> None:
        self.registry_id = registry_id
        self.time = time
        self.models: dict[str, ModelLine] = {}
        self.pieces: dict[str, list[Piece]] = {}
        self.revision = next(REVISIONS)
        """A number that no other lines in this process have."""

    @classmethod
    def decode(cls, lines: Iterable[bytes], registry_id: str, only_models: bool = False) -> "Catalog":
        """Read lines, with `only_models` just the first part. CatalogError if they are malformed, or of another registry."""
        lines = _bounded(lines)
        header = _decoded(_HEADER, next(lines, b""))
        if header.format != FORMAT:
            raise CatalogError("is not a catalog")
        if header.format_version != FORMAT_VERSION:
            raise LaterFormatError(f"has format {header.format_version}, this onnxreg reads {FORMAT_VERSION}")
        if header.registry != registry_id:
            raise CatalogError("is of another registry")
        catalog = cls(registry_id, header.time)
        for _ in range(header.models):
            model = _decoded(_MODEL, next(lines, b""))
            if len(catalog.models) == MAX_MODELS:
                raise CatalogError("has too many models")
            catalog.models[model.name] = model
        if not only_models:
            catalog.add_pieces(lines)
        return catalog

    def add_pieces(self, lines: Iterable[bytes]) -> None:
        """Read the second part; pieces of unknown models are left out. CatalogError if it is malformed."""
        for line in _bounded(lines):
            piece = _decoded(_PIECE, line)
            if piece.name in self.models:
                self.pieces.setdefault(piece.name, []).append(piece)

    def model_lines(self, time: str | None = None) -> Iterator[bytes]:
        """The first part, each line with its line end."""
        header = Header(FORMAT, FORMAT_VERSION, self.registry_id, len(self.models), time)
        for record in (header, *(model for _, model in sorted(self.models.items()))):
            yield msgspec.json.encode(record) + b"\n"

    def piece_lines(self) -> Iterator[bytes]:
        """The second part, each line with its line end."""
        for _, pieces in sorted(self.pieces.items()):
            yield from (msgspec.json.encode(piece) + b"\n" for piece in pieces)

    def fitting(self, pattern: str = "*") -> list[ModelLine]:
        """The models whose name fits a shell pattern, by name, damaged ones too."""
        return [self.models[name] for name in sorted(self.models) if fnmatchcase(name, pattern)]

    def readable(self, pattern: str = "*") -> list[ModelLine]:
        """The same without the damaged ones."""
        return [model for model in self.fitting(pattern) if model.damage is None]

    def damages(self, pattern: str = "*", artifacts: bool = False) -> list[str]:
        """The reasons why models cannot be read; with `artifacts` also those of versions."""
        damages = [model.damage for model in self.fitting(pattern) if model.damage is not None]
        for model in self.fitting(pattern) if artifacts else ():
            damages += _gaps(self.pieces.get(model.name, []))
        return damages

    def query(self, expression: Expression | None = None, pattern: str = "*") -> Iterator[Any]:
        """The artifacts that an expression is true of (None: all), by name, then version, then path. CatalogError if
        one is malformed.
        """
        number = 0
        for model in self.readable(pattern):
            for artifact in self._artifacts(model.name):
                number += 1
                if number > MAX_ARTIFACTS or not Version.is_version(artifact.version):
                    raise CatalogError("has too many artifacts, or one without a valid version")
                spend(1)
                if expression is None or expression.matches(artifact):
                    yield artifact

    def _artifacts(self, name: str) -> Iterator[Any]:
        for piece in self.pieces.get(name, ()):
            for artifact in _decoded(_ARTIFACTS, piece.artifacts):
                artifact.name = name
                yield artifact

    def update(
        self,
        reader: RegistryReader,
        names: Collection[str] | None = None,
        pattern: str = "*",
        artifacts: bool = False,
        progress: Progress = SILENT,
    ) -> int:
        """Read the index files that changed; with `artifacts` also what is missing of the artifacts of models whose name fits.

        Returns the number of models that differ. `names`: only these models, whatever others there are. A model or version
        that cannot be read is recorded as damage, and read again at the next update.
        """
        tokens = index_tokens(reader, self.models) if names is None else dict.fromkeys(names, UNSETTLED)
        gone = self.models.keys() - tokens.keys()
        for name in gone:
            del self.models[name]
            self.pieces.pop(name, None)
        complete = {name for name in tokens if artifacts and fnmatchcase(name, pattern)}
        stale = [
            name for name, token in tokens.items() if not self._is_current(name, token, name in complete)
        ]
        stale.sort()
        changed = len(gone)
        if gone:
            self.revision = next(REVISIONS)
        for start in range(0, len(stale), BATCH_MODELS):
            progress.step(f"reading models {start + 1:,} of {len(stale):,}")
            batch = stale[start : start + BATCH_MODELS]
            contents = {name: self._contents(name) for name in batch if name in complete}
            for line, pieces in read_models(reader, {name: tokens[name] for name in batch}, contents):
                changed += self._set(line, pieces)
        return changed

    def _is_current(self, name: str, token: str, with_artifacts: bool) -> bool:
        model, pieces = self.models.get(name), self.pieces.get(name, [])
        if model is None or not token or model.token != token:
            return False
        is_complete = bool(pieces) and all(piece.head == model.head and not piece.gaps for piece in pieces)
        return not with_artifacts or is_complete

    def _contents(self, name: str) -> "Contents":
        """The artifacts of a model that were read before."""
        contents: Contents = {}
        first: dict[str, str] = {}
        with suppress(CatalogError):
            for artifact in self._artifacts(name):
                if first.setdefault(artifact.manifest, artifact.version) == artifact.version:
                    contents.setdefault(artifact.manifest, []).append(msgspec.structs.asdict(artifact))
        return contents

    def _set(self, line: ModelLine, pieces: list[Piece] | None) -> bool:
        """Replace what is known of a model. Return True if its history or its damages differ."""
        before, former = self.models.get(line.name), self.pieces.get(line.name, [])
        is_same = before is not None and (before.head, before.damage) == (line.head, line.damage)
        new, old = line.release, before.release if before is not None else None
        if new is not None and old is not None and (new.version, new.manifest) == (old.version, old.manifest):
            new.published, new.description, new.words = old.published, old.description, old.words
        if pieces is not None and pieces != former:
            is_same = is_same and _gaps(pieces) == _gaps(former)
            self.pieces[line.name] = pieces
            self.revision = next(REVISIONS)
        if line != before:
            self.models[line.name] = line
            self.revision = next(REVISIONS)
        return not is_same


def _gaps(pieces: list[Piece]) -> list[str]:
    return [gap for piece in pieces for gap in piece.gaps]


def _bounded(lines: Iterable[bytes]) -> Iterator[bytes]:
    size = 0
    for line in lines:
        size += len(line)
        if len(line) > MAX_LINE_BYTES or size > MAX_BYTES:
            raise CatalogError("is too large")
        yield line


def _decoded(decoder: msgspec.json.Decoder[Any], data: bytes | msgspec.Raw) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CatalogError(f"is damaged: {error}") from error


Contents = dict[str, list[dict[str, Any]]]
"""The artifacts of manifests: all versions with one manifest have the same."""


def read_models(
    reader: RegistryReader, tokens: Mapping[str, str], contents: Mapping[str, Contents] = {}
) -> Iterator[tuple[ModelLine, list[Piece] | None]]:
    """Read some models, several at a time; the artifacts only of those in `contents`, from manifests that it does not have."""
    states = dict(zip(tokens, _attempt(lambda name: lookup.read_versions(reader, name), tokens), strict=True))
    missing = [
        LocatedVersion(name, version, entry)
        for name, manifests in contents.items()
        if not isinstance(states[name], RegError)
        for version, entry in sorted(states[name][1].items())
        if entry.gone is None and entry.manifest not in manifests
    ]

    def summarized(located: LocatedVersion) -> list[dict[str, Any]]:
        summary = lookup.read_summary(reader, states[located.name][0], located, ("metric", "profile"))
        return sorted(
            (of_artifact(summary, *item) for item in summary.downloads(None)), key=lambda row: row["path"]
        )

    rows = dict(
        zip([(item.name, item.version) for item in missing], _attempt(summarized, missing), strict=True)
    )
    for name, token in tokens.items():
        if isinstance(states[name], RegError):
            yield ModelLine(name, damage=states[name].message), None
            continue
        state, entries = states[name]
        line = ModelLine(name, token, newest(state), len(entries), channels(state), str(state.head))
        line.release = _release(state)
        if name not in contents:
            yield line, None
            continue
        present = {version: entries[version] for version in sorted(entries) if entries[version].gone is None}
        artifacts = {
            version: rows.get((name, version)) or contents[name][entry.manifest]
            for version, entry in present.items()
        }
        gaps = [
            f"{name}:{version}: {e.message}" for version, e in artifacts.items() if isinstance(e, RegError)
        ]
        if gaps and lookup.read_state(reader, name).head != state.head:
            yield from read_models(reader, {name: token}, {name: contents[name]})  # a version went meanwhile
        else:
            yield line, _pieces(state, present, artifacts, gaps)


def _attempt(read: Callable[[Any], Any], items: Collection[Any]) -> list[Any]:
    """The result, or the error, of reading each item."""

    def attempt(item: Any) -> Any:
        try:
            return read(item)
        except (NotFoundError, IntegrityError, HostError) as error:
            return error

    return run_parallel(attempt, items) if items else []


def _release(state: State) -> Release | None:
    version = state.newest_release()
    summary = None if version is None else lookup.held_summary(state, version)
    if version is None or summary is None:
        return None
    entry = state.versions[version]
    formats = sorted({artifact.format for artifact, _ in summary.downloads(entry.held)})
    size = total_size(summary, entry.held)
    return Release(str(version), str(entry.manifest), summary.task, summary.license, size, formats)


def _pieces(
    state: State, entries: Mapping[Version, VersionEntry], rows: Mapping[Version, Any], gaps: list[str]
) -> list[Piece]:
    """The artifacts of a model in pieces, at least one; the first has the gaps."""
    parts: list[list[bytes]] = [[]]
    size = 0
    for version, entry in entries.items():
        verdicts, status = state.verdicts(entry), of_version(state, version, entry)
        for row in () if isinstance(rows[version], RegError) else rows[version]:
            word = effective_state(row["state"], verdicts.get(Digest.parse(row["digest"])))
            fields = {**row, **status, "state": word, "certified": word == "certified", "name": ""}
            fields["held"] = entry.held is None or row["path"] in entry.held
            encoded = msgspec.json.encode(Artifact(**fields))
            size += len(encoded)
            if size > PIECE_BYTES:
                parts.append([])
                size = len(encoded)
            parts[-1].append(encoded)
    raws = [msgspec.Raw(b"[" + b",".join(part) + b"]") for part in parts]
    return [Piece(state.name, str(state.head), raw, sorted(gaps) if raw is raws[0] else []) for raw in raws]
