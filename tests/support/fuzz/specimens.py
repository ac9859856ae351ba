"""Whole documents to make wrong: two models in memory whose logs hold every kind of event, one of them sealed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from onnxreg.registry.log.log import Log
from onnxreg.registry.store.protocol import MemoryStore, RegistryStore, blob_path, index_path, new_identity
from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Descriptor, Digest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.delta.delta_format import Delta, encode_table
from onnxreg.schema.gates.statements import BenchmarkDocument
from onnxreg.schema.log import events as kinds
from onnxreg.schema.log.events import Via
from onnxreg.schema.log.state import SEGMENT_LINES, State, operator_set
from onnxreg.schema.manifest.manifest import Manifest

EVENTFUL, SEALED = "acme/eventful", "sealed"
Tree = dict[str, bytes]
"""The files of a registry by their paths."""
History = Callable[["_Author"], Iterator[kinds.Event]]
DELTA = b"a delta"
STATEMENT = b'{"suite":"none"}'
OTHER = "0123456789abcdef0123456789abcdef"


def tree(identity: str = "f" * 32) -> Tree:
    """A registry with both models; equal identities give equal bytes."""
    files = {"registry.json": new_identity(identity)}
    for name, history in ((EVENTFUL, _eventful), (SEALED, _sealed)):
        author = _Author(name, files)
        ledger = Log(identity, name, lambda digest: files[blob_path(digest)])
        for event in history(author):
            ledger.append(
                event, Via(OTHER, ledger.seq + 1, Digest.of(b"there")) if ledger.seq % 5 == 4 else None
            )
        author.put(*ledger.blobs)
        files[index_path(name)] = ledger.encode()
    return files


def remote(files: Tree) -> RegistryStore:
    """The registry that a tree of files is; writing to it leaves the tree as it is."""
    store = MemoryStore()
    store.objects = dict(files)
    return RegistryStore(store)


def empty(identity: str) -> Tree:
    """A registry without models."""
    return {"registry.json": new_identity(identity)}


@dataclass
class _Author:
    """Writes events on one model: the same ones every time."""

    name: str
    files: Tree

    def __post_init__(self) -> None:
        self._numbers = count()

    def say(self, kind: type[kinds.Event], **fields: Any) -> Any:
        about = {"name": self.name, "time": "2026-01-02T03:04:05Z", "nonce": f"{next(self._numbers):032x}"}
        return kind(**about, actor="Ada \u00e9", reason="since \U0001f600 1 < 2", **fields)

    def put(self, *blobs: bytes) -> None:
        self.files.update({blob_path(Digest.of(blob)): blob for blob in blobs})

    def publish(self, version: str) -> tuple[kinds.Publish, dict[str, Any]]:
        """The event, and the version and manifest that later events name. The blobs are there by then."""
        found = manifest(self.name, version)
        self.put(*blobs_of(found))
        data = found.encode()
        about = {"version": Version.parse(version), "manifest": Digest.of(data)}
        return self.say(kinds.Publish, **about, size=len(data)), about


def _eventful(author: _Author) -> Iterator[kinds.Event]:
    """Every kind of event at least once, and at the end a channel, a yanked, a pinned and a purged version."""
    event, one = author.publish("1.0.0")
    yield event
    event, two = author.publish("1.1.0")
    yield event
    event, rc = author.publish("2.0.0-rc.1+b")
    yield event
    yield author.say(kinds.Tag, tag="stable", **one)
    yield author.say(kinds.Tag, tag="stable", **two, expects=one["manifest"])
    share: dict[str, Any] = {"percent": 2.5, "salt": "0" * 32, "where": "platform = 'android'"}
    yield author.say(kinds.Tag, tag="old", **one)
    yield author.say(kinds.RolloutStep, tag="old", expects=one["manifest"], **two, **share)
    yield author.say(kinds.RolloutStep, tag="old", expects=one["manifest"])
    yield author.say(kinds.Untag, tag="old", expects=one["manifest"])
    yank = author.say(kinds.Yank, **one)
    yield yank
    yield author.say(kinds.Unyank, **one, yank=yank.id)
    author.put(STATEMENT)
    yield author.say(
        kinds.Attest, manifest=two["manifest"], statement=Digest.of(STATEMENT), media_type="application/json"
    )
    timed = benchmark(author.name)
    author.put(timed)
    speeds = BenchmarkDocument.decode(timed, "a benchmark").speeds
    blob = Descriptor(Digest.of(timed), len(timed))
    yield author.say(kinds.Timing, manifest=two["manifest"], speeds=speeds, blobs=(blob,))
    yield author.say(kinds.Yank, **rc)
    yield author.say(kinds.Pin, **one)
    yield author.say(kinds.Unpin, **one)
    expire = author.say(kinds.Expire, **one)
    yield expire
    yield author.say(kinds.Restore, **one, expire=expire.id)
    yield author.say(kinds.Pin, **one)
    event, bad = author.publish("1.2.0")
    yield event
    yield author.say(kinds.Purge, **bad, blobs=(Digest.of(b"leaked"),))
    event, slip = author.publish("1.3.0")
    yield event
    yield author.say(kinds.Drop, **slip)
    yield author.say(kinds.Hold, **two)
    yield author.say(kinds.Hold, **one, paths=("model.onnx",))
    yield author.say(kinds.Fence, intent=f"{'0' * 16}-{'1' * 16}")
    table = delta_table()
    author.put(DELTA, table)
    blobs = sorted(
        (Descriptor(Digest.of(blob), len(blob)) for blob in (DELTA, table)), key=lambda blob: blob.digest
    )
    yield author.say(kinds.Deltas, **two, table=Digest.of(table), blobs=tuple(blobs))
    yield author.say(kinds.RolloutStep, tag="stable", expects=two["manifest"], **one, **share)


def benchmark(name: str) -> bytes:
    """The latency of an INT8 file beside its float32 file."""
    parent, artifact = manifest(name, "1.1.0").artifacts[:2]
    check = {
        "name": "latency, short",
        "metric": "ratio",
        "value": 0.5,
        "verdict": "info",
        "interval": [0.4, 0.6],
    }
    timed = {"artifact": artifact.digest, "path": artifact.path, "parent": parent.digest, "checks": [check]}
    machine = {
        "cpu": "Z80",
        "isa": "z80",
        "runtime": "onnxruntime 1.31.1",
        "threads": 1,
        "warm_up": 1,
        "runs": 9,
    }
    about = {"format": "onnxreg-benchmark", "format_version": 1}
    return canonical.encode({**about, **machine, "artifacts": [timed]})


def delta_table() -> bytes:
    """One delta of a version, whose bytes nobody reads."""
    delta = Delta(
        Digest.of(b"new"), (Digest.of(b"old"),), Digest.of(DELTA), len(DELTA), Version.parse("1.0.0")
    )
    return encode_table([delta])


def _sealed(author: _Author) -> Iterator[kinds.Event]:
    """One segment, and a tail of a few lines."""
    event, one = author.publish("0.1.0")
    yield event
    event, two = author.publish("0.2.0")
    yield event
    held = None
    for turn in range(SEGMENT_LINES):
        now = (one, two)[turn % 2]
        yield author.say(kinds.Tag, tag="latest", **now, expects=held)
        held = now["manifest"]
    yield author.say(kinds.Pin, **one)


def manifest(name: str, version: str) -> Manifest:
    """Two artifacts, operators, checks, a recipe, and a key that this build does not know; small enough to be quick."""
    weights, int8 = f"{name} {version}".encode(), f"{name} {version} int8".encode()
    check = {"name": "character_recall/NAME", "metric": "character_recall", "value": 0.93, "verdict": "info"}
    suite = str(Digest.of(b"suite"))
    metric = {"name": "sts/f1", "metric": "f1", "value": 0.8, "verdict": "pass", "dataset": suite}
    evidence = {"artifact": str(Digest.of(int8)), "suite": suite}
    verdict = {"state": "refused", "rule": "G4/point", "reasons": ["recall falls"], "evidence": evidence}
    axes = [{"kind": "dynamic", "name": "batch"}, {"kind": "static", "value": 17}]
    artifacts = [
        {
            **_file("model.onnx", weights, format="onnx-android", precision="float32"),
            "metadata": {
                "opset": 18,
                "inputs": [{"name": "ids", "dtype": "int64", "axes": ["b", "s"], "shape": axes}],
            },
            "opset_imports": {"ai.onnx": 18},
            "operators": [{"domain": "ai.onnx", "name": "MatMul", "opset": 13, "inputs": {"0": ["float"]}}],
            "contrib": ["Gelu"],
        },
        {
            **_file("int8/model.onnx", int8, format="onnx-int8", precision="int8"),
            "files": [_file("int8/model.onnx.data", b"", role="external-data")],
            "parent": str(Digest.of(weights)),
            "checks": [
                check,
                {**check, "limit": 0.5, "samples": 3, "interval": [0.9, 1.0]},
                {**metric, "direction": "higher"},
            ],
            "certification": verdict,
        },
    ]
    recipe = {
        "profile": "android",
        "profile_version": 1,
        "steps": [{"name": "int8", "pass": "Quantize", "version": 2, "params": {"types": ["MatMul"]}}],
        "tools": {"onnx": "1.23.2"},
    }
    value = {
        "format": "openmed-onnx",
        "format_version": 2,
        "name": name,
        "formats": ["onnx-android", "onnx-int8"],
        "artifacts": artifacts,
        "files": [_file("config.json", b"{}", role="config")],
        "recipe": recipe,
        "source": {"id": "acme/base", "revision": "main", "digest": str(Digest.of(b"source"))},
        "labels": ["O", "B-NAME"],
        "quant_recall_delta": 0.02,
        "x-unknown": {"kept": [1, 2.5, None]},
    }
    return Manifest.from_json(value)


def _file(path: str, data: bytes, **fields: Any) -> dict[str, Any]:
    return {"path": path, "digest": str(Digest.of(data)), "size": len(data), **fields}


def blobs_of(found: Manifest) -> list[bytes]:
    """Everything that a version of the specimens refers to, itself included."""
    version = [f"{found.name} {tag}".encode() for tag in VERSIONS[found.name]]
    files = [data for weights in version for data in (weights, weights + b" int8")] + [b"", b"{}"]
    wanted = {entry.digest for entry in found.all_files()}
    sets = [data for artifact in found.artifacts if (data := operator_set(artifact)) is not None]
    return [found.encode(), *(data for data in files if Digest.of(data) in wanted), *sets]


VERSIONS = {EVENTFUL: ("1.0.0", "1.1.0", "2.0.0-rc.1+b", "1.2.0", "1.3.0"), SEALED: ("0.1.0", "0.2.0")}
GONE = {EVENTFUL: ("1.2.0", "1.3.0"), SEALED: ()}
"""The versions whose blobs nothing needs any more."""


def referenced(files: Tree) -> list[str]:
    """Where every blob lies that a reader may ask for: a change of any of them is damage."""
    wanted = {Digest.of(STATEMENT), Digest.of(DELTA), Digest.of(delta_table())}
    for name, versions in VERSIONS.items():
        for version in set(versions) - set(GONE[name]):
            wanted |= {Digest.of(blob) for blob in blobs_of(manifest(name, version))}
        state = State.decode(files[index_path(name)].split(b"\n")[0])
        wanted |= {*state.segments} | ({state.checkpoint} if state.checkpoint else set())
    return sorted(map(blob_path, wanted))


def version_1() -> bytes:
    """A manifest as OpenMed's converter writes it."""
    metadata = {
        "opset": 18,
        "operators": ["MatMul"],
        "inputs": [
            {"name": "ids", "dtype": "int64", "axes": ["batch", None], "shape": [{"kind": "dynamic"}]}
        ],
        "certified": True,
        "quant_recall_delta": 0,
    }
    return canonical.encode(
        {
            "format": "openmed-onnx",
            "format_version": 1,
            "formats": ["onnx", "onnx-int8"],
            "artifacts": [
                {"format": "onnx", "path": "model.onnx", "metadata": metadata},
                {"format": "onnx-int8", "path": "int8", "precision": "int8", "metadata": None},
            ],
            "tokenizer": {"path": ".", "files": ["tokenizer.json"]},
            "segmenter": {"resource_files": [{"path": "s.bin", "size_bytes": 3, "sha256": "0" * 64}]},
            "operator_fallbacks": [{"op": "Einsum"}],
            "certification": {"state": "certified"},
        }
    )
