"""The catalog of a registry: the data of `ls` and `query` about all models, as lines of JSON.

The first part is a `Header` and a `ModelLine` for each model. `reg ls` needs only this part. The second part has the
artifacts of the models, in pieces (`Piece`). docs/query.md has the format. A catalog is a hint: no decision about a
version depends on it. An index file is read again only if its token (`RegistryReader.index_tokens`) changed.
"""

import fnmatch
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain, count, islice
from operator import itemgetter
from typing import Annotated, Any
from unicodedata import normalize

import msgspec

from onnxreg.registry.log.log import Log, open_log, read_blob, read_consistently, read_manifest, unknown_model
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import RegistryReader, StoredObject, index_path, innermost
from onnxreg.registry.system import run_parallel
from onnxreg.schema.core.bounds import MAX_CATALOG_ARTIFACTS, MAX_CATALOG_LINE_BYTES, MAX_CATALOG_MODELS
from onnxreg.schema.core.canonical import Count, Digest, decode_json, is_digest
from onnxreg.schema.core.errors import InputError, IntegrityError, RegError
from onnxreg.schema.core.ref import Version, check_tag
from onnxreg.schema.core.units import SILENT, Progress
from onnxreg.schema.log import state as log_state
from onnxreg.schema.query.expression import Expression, spend
from onnxreg.schema.query.fields import FIELDS, LABELLED, FieldKind, artifact_values, version_values

FORMAT, FORMAT_VERSION = "onnxreg-catalog", 1
MAX_DESCRIPTION_BYTES = 4096
PIECE_BYTES = 2**18
BATCH_MODELS = 64
REVISIONS = count()
MAX_WORDS = 20


class CatalogError(Exception):
    """A catalog cannot be used. The message is the end of a sentence that begins with "the catalog of PLACE"."""


class LaterFormatError(CatalogError):
    """A newer build published the catalog, in a later format."""


class Header(msgspec.Struct, omit_defaults=True):
    """The first line of a catalog: the registry, the number of models and, if it is published, the time (RFC 3339)."""

    format: str
    format_version: int
    registry: str
    models: Count
    time: str | None = None


class ModelLine(msgspec.Struct, omit_defaults=True, gc=False):
    """A model in a catalog.

    `head` is the digest of the model's last log line. `damage` says why the model's index file cannot be read. The
    fields from `manifest` on are about the newest release. `find_models` fills in the last three fields.
    """

    name: str
    token: str = ""
    newest: str | None = None
    versions: Count = 0
    channels: dict[str, str] = {}
    head: str | None = None
    damage: str | None = None
    manifest: str | None = None
    task: str | None = None
    license: str | None = None
    size: Count | None = None
    formats: list[str] = []
    published: str | None = None
    description: Annotated[str, msgspec.Meta(max_length=MAX_DESCRIPTION_BYTES)] | None = None
    words: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {key: getattr(self, key) for key in ("name", "versions", "newest", "channels")}


class Piece(msgspec.Struct, omit_defaults=True, gc=False):
    """Some artifacts of a model. `head` is the digest of its last log line. `gaps` says why artifacts are missing."""

    name: str
    head: str
    artifacts: msgspec.Raw
    gaps: list[str] = []


_TYPES: Mapping[FieldKind, tuple[Any, Any]] = {
    **dict.fromkeys((FieldKind.TEXT, FieldKind.VERSION), (str, msgspec.NODEFAULT)),
    **dict.fromkeys((FieldKind.SIZE, FieldKind.COUNT), (Count, msgspec.NODEFAULT)),
    **dict.fromkeys((FieldKind.NUMBER, FieldKind.SHARE), (float, msgspec.NODEFAULT)),
    FieldKind.FLAG: (bool, False),
    FieldKind.LIST: (list[str], msgspec.field(default_factory=list)),
}
_FIELDS = {name: _TYPES[kind] for name, kind in FIELDS.items()}
for _name in ("family", "latency", "license", "min_recall", "opset", "ort_format", "profile", "task"):
    _FIELDS[_name] = _FIELDS[_name][0] | None, None  # the value may be unknown
_FIELDS |= dict.fromkeys(LABELLED, (dict[str, float], msgspec.field(default_factory=dict)))
_FIELDS |= {"name": (str, ""), "held": (bool, True)}
Artifact: Any = msgspec.defstruct(
    "Artifact",
    [(name, *field) for name, field in _FIELDS.items()],
    namespace={"get": lambda artifact, name: getattr(artifact, name, None)},
    omit_defaults=True,
    kw_only=True,
    gc=False,
)
"""One artifact with the `FIELDS` that an expression can test. `held` is True if the artifact's files are here."""
_HEADER, _MODEL, _PIECE = (msgspec.json.Decoder(kind) for kind in (Header, ModelLine, Piece))
_ARTIFACTS: msgspec.json.Decoder[list[Any]] = msgspec.json.Decoder(list[Artifact])


class Catalog:
    """A catalog in memory. `time` is the time of its publication, or None if it was made here from index files."""

    def __init__(self, registry_id: str, time: str | None = None) -> None:
        self.registry_id = registry_id
        self.time = time
        self.models: dict[str, ModelLine] = {}
        self.pieces: dict[str, list[Piece]] = {}
        self.touch()

    def touch(self) -> None:
        """Give the catalog a new `revision`, a number that is unique in this process."""
        self.revision = next(REVISIONS)

    @classmethod
    def decode(cls, lines: Iterator[bytes], registry_id: str) -> "Catalog":
        """Read the first part, the models. Raises CatalogError if it is malformed or of another registry."""
        header = _decoded(_HEADER.decode, next(lines, b""))
        if header.format != FORMAT:
            raise CatalogError("is not a catalog")
        if header.format_version != FORMAT_VERSION:
            raise LaterFormatError(f"has format {header.format_version}, this onnxreg reads {FORMAT_VERSION}")
        if header.registry != registry_id:
            raise CatalogError("is of another registry")
        if header.models > MAX_CATALOG_MODELS:
            raise CatalogError("has too many models")
        catalog = cls(registry_id, header.time)
        models = _decoded(_MODEL.decode_lines, b"".join(islice(lines, header.models)))
        if len(models) != header.models:
            raise CatalogError("is damaged: it is cut short")
        catalog.models = {model.name: model for model in models}
        return catalog

    def add_pieces(self, lines: Iterable[bytes]) -> None:
        """Read the second part, the artifacts, but skip models that the first part does not list.

        Raises CatalogError, and changes nothing, if the part is malformed.
        """
        pieces: dict[str, list[Piece]] = {}
        artifacts = 0
        for line in lines:
            piece = _decoded(_PIECE.decode, line)
            for artifact in _decoded(_ARTIFACTS.decode, piece.artifacts):
                artifacts += 1
                is_sound = Version.is_version(artifact.version) and is_digest(artifact.digest)
                if not is_sound or not is_digest(artifact.manifest) or artifacts > MAX_CATALOG_ARTIFACTS:
                    raise CatalogError("has too many artifacts, or one without a valid version or digest")
            if piece.name in self.models:
                pieces.setdefault(piece.name, []).append(piece)
        self.pieces = pieces

    def model_lines(self, time: str | None = None) -> Iterator[bytes]:
        header = Header(FORMAT, FORMAT_VERSION, self.registry_id, len(self.models), time)
        yield msgspec.json.encode(header) + b"\n"
        yield from (msgspec.json.encode(model) + b"\n" for model in self.matching_models())

    def piece_lines(self) -> Iterator[bytes]:
        for _, pieces in sorted(self.pieces.items()):
            yield from (msgspec.json.encode(piece) + b"\n" for piece in pieces)

    def matching_models(self, pattern: str = "*") -> list[ModelLine]:
        """Return all models whose names match a shell pattern, sorted by name. Damaged models are included."""
        return [self.models[name] for name in fnmatch.filter(sorted(self.models), pattern)]

    def readable(self, pattern: str = "*") -> list[ModelLine]:
        """Return the models whose names match a shell pattern, sorted by name, without damaged models."""
        return [model for model in self.matching_models(pattern) if model.damage is None]

    def damages(self, pattern: str = "*", artifacts: bool = False) -> list[str]:
        """Return the reasons why models cannot be read and, with `artifacts`, why versions cannot be read."""
        fitting = self.matching_models(pattern)
        damages = [model.damage for model in fitting if model.damage is not None]
        pieces = chain(*(self.pieces.get(model.name, ()) for model in fitting if artifacts))
        return damages + [gap for piece in pieces for gap in piece.gaps]

    def query(self, expression: Expression | None = None, pattern: str = "*") -> Iterator[Any]:
        """Yield the artifacts that match an expression (None: all), sorted by name, version and path."""
        for model in self.readable(pattern):
            for artifact in self._artifacts(model.name):
                spend(1)
                if expression is None or expression.matches(artifact):
                    yield artifact

    def _artifacts(self, name: str) -> Iterator[Any]:
        for piece in self.pieces.get(name, ()):
            for artifact in _ARTIFACTS.decode(piece.artifacts):
                artifact.name = name
                yield artifact

    def update(
        self,
        reader: RegistryReader,
        names: Collection[str] | None = None,
        pattern: str = "*",
        artifacts: bool = False,
        progress: Progress = SILENT,
    ) -> None:
        """Update all models, or only `names`.

        With `artifacts`, also update the artifacts of the models that match `pattern`.
        """
        tokens = innermost(reader).index_tokens() if names is None else dict.fromkeys(names, "")
        for name in self.models.keys() - tokens.keys():
            del self.models[name]
            self.pieces.pop(name, None)
            self.touch()
        complete = {*fnmatch.filter(tokens, pattern)} if artifacts else set[str]()
        stale = [
            name for name in sorted(tokens) if not self._is_current(name, tokens[name], name in complete)
        ]
        for start in range(0, len(stale), BATCH_MODELS):
            progress.step(f"reading models {start + 1:,} of {len(stale):,}")
            batch = stale[start : start + BATCH_MODELS]
            contents = {name: self._contents(name) for name in batch if name in complete}
            read = partial(read_model, reader, tokens=tokens, contents=contents)
            for line, pieces in _run(reader, read, batch):
                self._set(line, pieces)

    def _is_current(self, name: str, token: str, with_artifacts: bool) -> bool:
        model, pieces = self.models.get(name), self.pieces.get(name) if with_artifacts else ()
        if model is None or not token or model.token != token or pieces is None:
            return False
        return all(piece.head == model.head and not piece.gaps for piece in pieces)

    def _contents(self, name: str) -> "Contents":
        contents, first = Contents(), dict[str, str]()
        for artifact in self._artifacts(name):
            if first.setdefault(artifact.manifest, artifact.version) == artifact.version:
                contents.setdefault(artifact.manifest, []).append(msgspec.structs.asdict(artifact))
        return contents

    def _set(self, line: ModelLine, pieces: list[Piece] | None) -> None:
        before = self.models.get(line.name)
        if before is not None and (before.newest, before.manifest) == (line.newest, line.manifest):
            line.published, line.description, line.words = before.published, before.description, before.words
        if line != before or pieces not in (None, self.pieces.get(line.name)):
            self.touch()
        self.models[line.name] = line
        if pieces is not None:
            self.pieces[line.name] = pieces


Contents = dict[str, list[dict[str, Any]]]
"""A model's artifacts by the digest of their manifest. Several versions may share a manifest."""


def read_lines(readline: Callable[[int], bytes], max_bytes: int) -> Iterator[bytes]:
    """Yield a file's lines, with line ends. Raises CatalogError if it is damaged or exceeds a limit of size."""
    try:
        while line := readline(MAX_CATALOG_LINE_BYTES + 1):
            max_bytes -= len(line)
            if len(line) > MAX_CATALOG_LINE_BYTES or max_bytes < 0:
                raise CatalogError("is too large")
            yield line
    except (EOFError, OSError, zlib.error) as error:
        raise CatalogError(f"is damaged: {error}") from error


def _decoded(decode: Callable[[Any], Any], data: bytes | msgspec.Raw) -> Any:
    try:
        return decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CatalogError(f"is damaged: {error}") from error


def _run(reader: RegistryReader, read: Callable[[Any], Any], items: Collection[Any]) -> Iterable[Any]:
    """Apply `read` to each item. If the registry is on another machine, several items are read at once."""
    return map(read, items) if isinstance(innermost(reader), DirectoryRegistry) else run_parallel(read, items)


class _File(msgspec.Struct, gc=False):
    path: str
    digest: str
    size: Count
    format: str = ""
    files: "tuple[_File, ...]" = ()


class _Summary(msgspec.Struct, gc=False):
    """The fields of a `VersionSummary` that a `ModelLine` needs. It is faster to decode only these fields."""

    manifest: Digest
    artifacts: tuple[_File, ...]
    files: tuple[_File, ...]
    task: str | None = None
    license: str | None = None


class _Entry(msgspec.Struct, gc=False):
    seq: Count
    yanks: tuple[str, ...] = ()
    gone: log_state.Gone | None = None
    paths: tuple[str, ...] | None = msgspec.field(default=None, name="held")


class _State(msgspec.Struct, gc=False):
    """The fields of a state line or checkpoint that a `ModelLine` needs. It is faster to decode only these fields."""

    registry: str = ""
    name: str = ""
    head: Digest | None = None
    channels: dict[str, log_state.Channel] = {}
    versions: dict[str, _Entry] = {}
    summaries: dict[str, msgspec.Raw] = {}
    checkpoint: Digest | None = None


def read_model(
    reader: RegistryReader, name: str, tokens: Mapping[str, str], contents: Mapping[str, Contents]
) -> tuple[ModelLine, list[Piece] | None]:
    """Read a model and return its line. If `contents` has `name`, also return the artifacts of all versions, in pieces.

    A manifest whose artifacts are in `contents[name]` is not read again.
    """

    def read(index: StoredObject | None) -> tuple[ModelLine, list[Piece] | None]:
        line = _read_line(reader, name, tokens[name], index)
        if index is None or name not in contents:
            return line, None
        return line, _read_pieces(reader, index.data, contents[name])

    try:
        data = reader.store.read(index_path(name)) if isinstance(reader, DirectoryRegistry) else None
        line, pieces = read_consistently(reader, name, read, StoredObject(data, "") if data else None)
        gaps = pieces[0].gaps if pieces else ()
        if gaps and _read_line(reader, name, "", reader.read_index(name)).head != line.head:
            return read_model(reader, name, tokens, contents)  # a version was deleted meanwhile
        return line, pieces
    except RegError as error:
        if error.family not in ("input", "not-found", "integrity", "environment"):
            raise
        label = f"the index of {name} in {reader.url} is damaged: " if error.family == "input" else ""
        return ModelLine(name, damage=f"{label}{error.message}"), None


def _read_line(reader: RegistryReader, name: str, token: str, index: StoredObject | None) -> ModelLine:
    if index is None:
        raise unknown_model(name, reader)
    data = index.data
    state = decode_json(data[: data.find(b"\n")], _State, "its state line")
    last = data.rfind(b"\n", 0, -1) + 1
    is_other = (state.registry, state.name) != (reader.registry_id, name)
    if is_other or (last and Digest.of(data[last:-1]) != state.head):
        raise IntegrityError(f"the index of {name} in {reader.url} does not fit its own history")
    entries = state.versions
    if state.checkpoint is not None:
        tables = decode_json(read_blob(reader, state.checkpoint), _State, "its checkpoint")
        entries = tables.versions | entries
    usable = [Version.parse(key) for key, item in state.versions.items() if not (item.yanks or item.gone)]
    releases = [version for version in usable if not version.pre]
    newest = max(releases, key=lambda version: (version.precedence, entries[version].seq), default=None)
    channels = {check_tag(tag): str(channel.version) for tag, channel in sorted(state.channels.items())}
    count = sum([entry.gone is None or entry.gone.how != "dropped" for entry in entries.values()])
    line = ModelLine(name, token, newest and str(newest), count, channels, str(state.head))
    if newest is not None and (raw := state.summaries.get(newest)) is not None:
        summary = decode_json(bytes(raw), _Summary, f"the summary of {newest}")
        paths, line.manifest = entries[newest].paths, str(summary.manifest)
        line.task, line.license, line.size = summary.task, summary.license, total_size(summary, paths)
        artifacts = (item for item in summary.artifacts if paths is None or item.path in paths)
        line.formats = sorted({artifact.format for artifact in artifacts})
    return line


def _read_pieces(reader: RegistryReader, data: bytes, contents: Contents) -> list[Piece]:
    """Return the artifacts of all versions in an index file, in pieces. The first piece has all `gaps` of the model."""
    state = decode_json(data[: data.find(b"\n")], log_state.State, "its state line")
    entries: Mapping[Version, log_state.VersionEntry] = state.versions
    if state.checkpoint is not None:
        checkpoint = log_state.Checkpoint.decode(read_blob(reader, state.checkpoint), "its checkpoint")
        entries = {**checkpoint.versions, **entries}
    parts: list[list[bytes]] = [[]]
    gaps: list[str] = []
    size = 0

    def read(version: Version) -> list[dict[str, Any]] | str:
        summary, manifest = state.summaries.get(version), entries[version].manifest
        try:
            if summary is None and manifest in contents:
                return contents[manifest]
            if summary is None:
                data = read_blob(reader, manifest)
                summary = log_state.summarize(read_manifest(data, manifest, state.name), manifest, len(data))
        except RegError as error:
            return f"{state.name}:{version}: {error.message}"
        rows = (artifact_values(summary, *item) for item in summary.downloads(None))
        return sorted(rows, key=itemgetter("path"))

    present = [version for version in sorted(entries) if entries[version].gone is None]
    for version, rows in zip(present, _run(reader, read, present), strict=True):
        entry = entries[version]
        if isinstance(rows, str):
            gaps.append(rows)
            continue
        verdicts, status = state.verdicts(entry), version_values(state, version, entry)
        timed = state.speeds.get(entry.manifest, {})
        for row in rows:
            word = log_state.effective_state(row["state"], verdicts.get(row["digest"]))
            fields = {**row, **status, "state": word, "certified": word == "certified", "name": ""}
            fields["latency"] = max((speed.ratio for speed in timed.get(row["digest"], ())), default=None)
            fields["held"] = entry.held is None or row["path"] in entry.held
            encoded = msgspec.json.encode(Artifact(**fields))
            size += len(encoded)
            if size > PIECE_BYTES:
                parts.append([])
                size = len(encoded)
            parts[-1].append(encoded)
    raws = [msgspec.Raw(b"[" + b",".join(part) + b"]") for part in parts]
    return [Piece(state.name, str(state.head), raw, gaps if raw is raws[0] else []) for raw in raws]


def find_models(
    catalog: Catalog, reader: RegistryReader, words: str, after: str, limit: int
) -> tuple[list[ModelLine], int]:
    """Find models whose texts have all `words`. Return up to `limit` models after the name `after`, and the total."""
    parts = dict.fromkeys(_folded(words).split())
    if len(parts) > MAX_WORDS:
        raise InputError(f"{len(parts)} words are too many for one search", f"use at most {MAX_WORDS}")
    models = catalog.readable()
    if parts:
        _fill(catalog, reader, models)
    spend(len(models) * (1 + len(parts)))
    fitting = [model for model in models if all(part in (model.words or model.name) for part in parts)]
    shown = [model for model in fitting if model.name > after][:limit]
    _fill(catalog, reader, shown)
    return shown, len(fitting)


def _fill(catalog: Catalog, reader: RegistryReader, models: Iterable[ModelLine]) -> None:
    for model in models:
        if model.manifest is None or model.newest is None or model.words is not None:
            continue
        with suppress(RegError, LookupError):
            digest = Digest.parse(model.manifest)
            manifest = read_manifest(read_blob(reader, digest), digest, model.name)
            log = open_log(reader, model.name)
            model.published = next(log.lines(log.versions[Version.parse(model.newest)].seq - 1)).event.time
            labels = {label.removeprefix("B-").removeprefix("I-"): None for label in manifest.labels or ()}
            texts = (model.name, manifest.task, manifest.family, manifest.license, manifest.description)
            model.words = "\n".join(_folded(text) for text in (*texts, *labels, *manifest.formats) if text)
            model.description = manifest.description
            catalog.touch()


def _folded(text: str) -> str:
    return normalize("NFKC", text).casefold()


def versions_json(log: Log) -> dict[str, Any]:
    """Return a model's versions in the documented form of `reg ls NAME --json`, newest first."""
    state, versions = log.state, []
    for version, entry in sorted(log.versions.items(), reverse=True):
        summary = state.effective_summary(version)
        artifacts = summary.artifacts if summary else ()
        digests = {artifact.digest for artifact in artifacts}
        attested = {**entry.attested, **{digest: "refused" for digest in state.refused if digest in digests}}
        row = {
            "version": str(version),
            "manifest": str(entry.manifest),
            "size": None if summary is None else total_size(summary, entry.held),
            "state": entry.status(artifact.state for artifact in artifacts),
            "yanked": entry.yanked,
            "held": None if entry.held is None else list(entry.held),
            "states": {artifact.path: artifact.state for artifact in artifacts},
            "attested": {str(digest): word for digest, word in attested.items()},
            "speeds": {
                item.path: [speed.to_json() for speed in item.speeds] for item in artifacts if item.speeds
            },
            "channels": sorted(tag for tag, channel in state.channels.items() if channel.version == version),
        }
        optional = ("size", "states", "attested", "speeds")
        versions.append({key: row[key] for key in row if key not in optional or row[key] not in (None, {})})
    return {"name": state.name, "registry": state.registry, "versions": versions}


def total_size(summary: log_state.VersionSummary | _Summary, paths: Collection[str] | None) -> int:
    """Return the size of the files that artifacts at `paths` (None: all) need, in bytes. Equal files count once."""
    artifacts = [item for item in summary.artifacts if paths is None or item.path in paths]
    files = chain(artifacts, summary.files, *(item.files for item in artifacts))
    return sum({file.digest: file.size for file in files}.values())
