"""Everything that reads bytes from outside, each with documents to make wrong and with what must hold of an answer.

A reader returns, or raises a member of the RegError family; anything else that leaves it is a bug.
"""

import base64
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from onnxreg.registry import resolution
from onnxreg.registry.dossier.dossier import PROFILES, load_profile
from onnxreg.registry.log.log import Log, fetcher, find, open_log, read_manifest, read_segment
from onnxreg.registry.remotes import Remotes
from onnxreg.registry.resolution import Resolution
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import blob_path, index_path, new_identity, read_identity
from onnxreg.registry.system import replace_file, state_directory
from onnxreg.registry.transfer.exchange import apply_delta
from onnxreg.registry.trust.known_heads import observe
from onnxreg.registry.trust.signatures import RecordedStatement
from onnxreg.schema.compare.manifests import ManifestDiff, diff
from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.document import Document
from onnxreg.schema.core.errors import RegError
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.delta.delta_format import Delta, DeltaHeader, decode_table, encode_table
from onnxreg.schema.gates.statements import RULES, FaithfulnessReport
from onnxreg.schema.inputs.dossier_profile import DossierProfile, OwnerFacts
from onnxreg.schema.log.events import LogLine, PolicyEvent
from onnxreg.schema.log.state import Checkpoint, State
from onnxreg.schema.manifest import manifest as documents
from onnxreg.schema.manifest.manifest import Manifest, Recipe
from onnxreg.schema.query.resolve import Query
from onnxreg.schema.signing.dsse import PAYLOAD_TYPE, PROVEN, Envelope, Statement
from support.fuzz import specimens

DELTAS = Path(__file__).parents[2] / "vectors" / "delta" / "apply.json"


@dataclass(frozen=True)
class Reader:
    """`read` takes the bytes of a document, mutated or not, and asserts what holds of what it accepts."""

    documents: tuple[bytes, ...]
    read: Callable[[bytes], object]

    def accepts(self, data: bytes) -> bool:
        try:
            self.read(data)
        except RegError as error:
            assert error.family in ("input", "not-found", "integrity", "conflict", "environment"), (
                error.family
            )
            assert len(error.message) < 2000, f"a message of {len(error.message)} characters"
            return False
        return True


def readers(directory: Path) -> dict[str, Reader]:
    """All readers by name; those that need a file system use the directory."""
    files = specimens.tree()
    indexes = tuple(files[index_path(name)] for name in (specimens.EVENTFUL, specimens.SEALED))
    states = tuple(index.split(b"\n")[0] for index in indexes)
    lines = tuple(line for index in indexes for line in index.split(b"\n")[1:-1])
    sealed = State.decode(states[1])
    stranger = specimens.remote(files)
    known = {
        name: observe(None, stranger.registry_id, name, files[index_path(name)], "here", fetcher(stranger))
        for name in (specimens.EVENTFUL, specimens.SEALED)
    }
    rules = [{"channel": "stable", "max_recall_loss": 0.005, "licenses": ["\u00e9"]}]
    about = {"name": ".policy", "time": "2026-01-02T03:04:05Z", "nonce": "0" * 32}
    lines += (LogLine.make(1, Digest.of(b""), PolicyEvent(**about, rules=rules)).raw,)
    segments = tuple(files[blob_path(digest)] for digest in sealed.segments)
    checkpoints = tuple(files[blob_path(digest)] for digest in (sealed.checkpoint,) if digest)
    manifests = tuple(specimens.manifest(*about).encode() for about in _published())
    first = Manifest.decode(manifests[0])
    recipes = (canonical.encode(first.to_json()["recipe"]),)
    identity = new_identity("f" * 32).replace(b"\n", b"")
    names = {str((directory / "home").resolve()): {"origin": str(directory)}}
    remotes = canonical.encode({"names": names, "pins": {str(directory): "f" * 32}})
    vectors = json.loads(DELTAS.read_text())["vectors"][7:10]
    deltas = tuple(base64.b64decode(vector["delta"]) for vector in vectors)
    delta = Delta(Digest.of(b"new"), (Digest.of(b"old"),), Digest.of(b"delta"), 9, Version.parse("1.0.0"))
    table = encode_table([delta])
    words = tuple(text.encode() for text in ("acme/pii:1.0.0-rc.1+b", f"acme/pii:stable@{Digest.of(b'')}"))
    proof = FaithfulnessReport.from_json(
        {
            "format": "onnxreg-faithfulness",
            "format_version": 1,
            "rules": RULES,
            "artifact": str(Digest.of(b"child")),
            "parent": str(Digest.of(b"parent")),
            "verdict": "bounded",
            "reasons": ["2 weights of w are clipped"],
            "largest": {"steps": 0.75, "tensor": "w", "index": [1, 2]},
            "scales": [{"rule": "symmetric/254", "count": 3}],
        }
    )
    profiles = tuple(canonical.encode(load_profile(name)[0].to_json()) for name in PROFILES)
    return {
        "index": Reader(indexes, lambda data: _index(files, known, data)),
        "lookup": Reader(indexes, lambda data: _lookup(files, data)),
        "state": Reader(states, _state),
        "line": Reader(lines, _line),
        "segment": Reader(segments, lambda data: [_same(line) for line in read_segment(data, "sealed")]),
        "checkpoint": Reader(checkpoints, _checkpoint),
        "proof": Reader((proof.encode(),), lambda data: _document(FaithfulnessReport, data)),
        "signed proof": Reader(
            (Statement.of(PROVEN, proof.artifact, proof.to_json()).encode(),),
            lambda data: RecordedStatement("proof", data, Envelope(PAYLOAD_TYPE, data, ())).report("proof"),
        ),
        "manifest": Reader((*manifests, specimens.version_1()), _manifest),
        "stored manifest": Reader(
            manifests, lambda data: read_manifest(data, Digest.of(data), specimens.EVENTFUL)
        ),
        "diff of a manifest": Reader(manifests, lambda data: _diff(first, data)),
        "recipe": Reader(recipes, lambda data: _document(Recipe, data)),
        "identity": Reader((identity,), _identity),
        "remotes": Reader((remotes,), lambda data: _remotes(directory, data)),
        "ref": Reader(words, _ref),
        "delta": Reader(deltas, lambda data: _delta(data, vectors[0]["old"])),
        "table of deltas": Reader((table,), _table),
        "owner's facts": Reader((_FACTS,), lambda data: _document(OwnerFacts, data)),
        "dossier profile": Reader(profiles, lambda data: _document(DossierProfile, data)),
    }


_FACTS = b'{"facts":1,"name":"acme/pii","statements":{"limitations":["a","b"],"provider":"Acme"}}'


def _delta(data: bytes, old: list[str]) -> None:
    """Applied, or refused; of a bounded size either way."""
    stream = BytesIO(data)
    header = DeltaHeader.read_from(stream)
    files = [BytesIO(base64.b64decode(old[0])) for _ in header.old]
    size = sum(len(part) for part in apply_delta(stream, header, files))
    assert size == header.new.size


def _table(data: bytes) -> None:
    deltas = decode_table(data)
    assert decode_table(encode_table(deltas)) == deltas


def _published() -> list[tuple[str, str]]:
    return [(name, version) for name, versions in specimens.VERSIONS.items() for version in versions]


def _index(files: specimens.Tree, known: Mapping[str, Any], data: bytes) -> None:
    """What is accepted is a chain; it can be written again, and is then the same to the reader.

    Who has seen the specimen before may be alarmed by it, and reads it as strictly.
    """
    name, remote = _model(data), specimens.remote(files)
    for before in (None, known[name]):
        with suppress(RegError):
            observe(before, remote.registry_id, name, data, "here", fetcher(remote))
    ledger = Log.decode(data, remote.registry_id, name, fetcher(remote)).check()
    for line in ledger.tail:
        _same(line)
    assert [line.seq for line in ledger.lines()] == list(range(1, ledger.seq + 1))
    written = ledger.encode()
    again = Log.decode(written, remote.registry_id, name, fetcher(remote))
    assert (again.encode(), again.head) == (written, ledger.head)


def _model(data: bytes) -> str:
    """Whose index file this was once."""
    return specimens.SEALED if b'"name":"sealed"' in data[:10_000] else specimens.EVENTFUL


def _lookup(files: specimens.Tree, data: bytes) -> None:
    """Every question that one index file answers; each may fail by itself. What is handed out is safe to create."""
    name = _model(data)
    stranger = specimens.remote({**files, index_path(name): data})
    state = open_log(stranger, name).state
    questions: list[Callable[[], Any]] = [lambda: open_log(stranger, name).versions]
    for tag in (None, "stable", *map(str, state.releases), *map(str, state.versions), *state.channels):
        questions.append(partial(find, stranger, Ref(name, tag)))
        questions.append(partial(resolution.resolve, stranger, Ref(name, tag), Query(("onnx-int8", "x"))))
    for entry in state.versions.values():
        questions.append(partial(find, stranger, Ref(name, digest=entry.manifest)))
    for question in questions[:60]:
        try:
            answer = question()
        except RegError:
            continue
        if isinstance(answer, Resolution):
            assert all(".." not in file.path.split("/") and file.path[0] != "/" for file, _ in answer.files)


def _state(data: bytes) -> None:
    """What it means survives being written."""
    state = State.decode(data)
    assert State.decode(canonical.encode(state.to_json())) == state


def _line(data: bytes) -> None:
    _same(LogLine.decode(data))


def _same(line: LogLine) -> LogLine:
    """What was read of a line is what stands in it, so that an event has one id whoever reads it."""
    value = canonical.decode(line.raw)
    assert canonical.encode(value) == line.raw
    assert canonical.encode(value["event"]) == canonical.encode(line.event.to_json())
    value.pop("sig", None)
    assert LogLine.make(line.seq, line.prev, line.event, line.via).raw == canonical.encode(value)
    return line


def _checkpoint(data: bytes) -> None:
    checkpoint = Checkpoint.decode(data, "sealed")
    assert Checkpoint.decode(checkpoint.encode()) == checkpoint


def _manifest(data: bytes) -> None:
    _lossless(documents.read_manifest(data), data)


def _document(kind: type[Document], data: bytes) -> None:
    _lossless(kind.decode(data), data)


def _lossless(document: Document, data: bytes) -> None:
    """Nothing is lost or changed, unknown keys included; canonical bytes come back byte for byte."""
    assert document.encode() == canonical.encode(canonical.decode(data))


def _diff(first: Manifest, data: bytes) -> None:
    """The laws of `diff`, and that a diff can be read again."""
    other = Manifest.decode(data)
    there, back = diff(first, other), diff(other, first)
    assert bool(there.changes) == (first.encode() != other.encode())
    assert sorted(change.path for change in there.changes) == sorted(change.path for change in back.changes)
    _lossless(ManifestDiff.decode(there.encode()), there.encode())


def _identity(data: bytes) -> None:
    value = read_identity(data, "there")
    assert isinstance(value.id, str), "an id that is no text"


def _remotes(directory: Path, data: bytes) -> None:
    """`remotes.json` is read again by every push and pull; each of its remotes can be asked for and opened."""
    registry = DirectoryRegistry(directory / "home")
    replace_file(state_directory() / "remotes.json", data)
    try:
        remotes = Remotes(registry)
    finally:
        (state_directory() / "remotes.json").unlink()
    for name in (None, "origin", "x", *remotes.urls):
        try:
            remotes.open(remotes.url_of(name))
        except RegError:
            continue


def _ref(data: bytes) -> None:
    """Values of one word: what one of them accepts, it writes in the same letters."""
    text = data.decode("utf-8", "surrogateescape")
    refused = []
    for parse in (Digest.parse, Version.parse, Ref.parse):
        try:
            assert str(parse(text)) == text
        except RegError as error:
            refused.append(error)
    if len(refused) == 3:
        raise refused[-1]
