"""Registries of any size. Logs and index files are written by the code that writes real ones.

A model's manifests follow one of a few patterns: `Draft` makes the pattern with stand-ins for the name and the digests,
which are then put in as text; canonical JSON keeps its order. So ten thousand models take minutes, not hours.
"""

import json
import os
import re
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from io import BytesIO
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from onnxreg.registry import Registry
from onnxreg.registry.log.log import Log
from onnxreg.registry.store.protocol import blob_path, index_path
from onnxreg.schema.core.canonical import Descriptor, Digest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import Publish, Tag, Yank
from onnxreg.schema.log.state import VersionSummary, newest_of, operator_set, summarize
from onnxreg.schema.manifest.draft import NOT_EVALUATED, Draft, DraftArtifact, DraftFile, Verdict
from support.registries.home import Home

SHARED = {"config.json": b"{}", "suite": b"suite", "base": b"base"}
FILES = ("model.onnx", "model_int8.onnx", "model.ort", "report.json", "tokenizer.json")
STAND_IN = "stand-in-name"
SIZE = 32
PATTERNS = 6
PARALLEL_FROM = 1_000
"""With so many models or more, each core makes its share."""
OPERATORS = [{"domain": "ai.onnx", "name": "MatMul", "opset": 13}]
COMMON: dict[str, Any] = {"time": "2026-01-02T03:04:05Z", "actor": "ada"}


@dataclass(frozen=True)
class Pattern:
    """What the manifests of some models have in common; `operators` are blobs that all of them refer to."""

    manifest: bytes
    summary: bytes
    operators: tuple[bytes, ...]


@cache
def pattern(number: int) -> Pattern:
    """Pattern 0 has a certified int8 artifact, 1 a refused one; the others were not evaluated, some have an .ort."""
    verdict = {0: Verdict("certified", "G4/point", (), _stand_in("suite"), "report.json")}
    verdict[1] = Verdict("refused", "G4/point", ("recall falls by 0.02",), _stand_in("suite"), "report.json")
    recall = {"metric": "character_recall", "value": 0.9 + number / 100, "verdict": "info"}
    checks = [{"name": f"character_recall/{label}", **recall} for label in ("NAME", "DATE")]
    loss = {"metric": "character_recall", "value": 0.02 * number, "verdict": "fail" if number else "pass"}
    checks.append({"name": "quant_recall_delta", "dataset": str(_stand_in("suite")), **loss})
    artifacts = [
        DraftArtifact("onnx-android", "float32", "model.onnx", fields={"metadata": {"opset": 17}}),
        DraftArtifact(
            "onnx-int8",
            "int8",
            "model_int8.onnx",
            parent="model.onnx",
            verdict=verdict.get(number, NOT_EVALUATED),
            fields={"operators": OPERATORS, "checks": checks if number < 2 else []},
        ),
        DraftArtifact("ort-android", "int8", "model.ort", fields={"ort_format": 6}),
    ]
    draft = Draft(
        STAND_IN,
        Path(),
        tuple(artifacts[: 3 if number % 2 else 2]),
        (
            DraftFile("config", "config.json"),
            DraftFile("tokenizer", "tokenizer.json"),
            DraftFile("report", "report.json"),
        ),
        {
            "task": "token-classification",
            "license": "apache-2.0",
            "source": {"id": "acme/base", "digest": str(_stand_in("base"))},
        },
    )
    manifest = draft.manifest({path: _descriptor(path) for path in (*FILES, *SHARED)})
    operators = {operator_set(artifact) for artifact in manifest.artifacts} - {None}
    summary = summarize(manifest, _stand_in("manifest"), 0)
    return Pattern(manifest.encode(), json.dumps(summary.to_json()).encode(), tuple(filter(None, operators)))


def _descriptor(path: str) -> Descriptor:
    data = SHARED.get(path)
    return Descriptor(
        _stand_in(path) if data is None else Digest.of(data), SIZE if data is None else len(data)
    )


def _stand_in(path: str) -> Digest:
    return Digest.of(SHARED[path]) if path in SHARED else Digest.of(f"stand-in for {path}".encode())


def contents(name: str, version: Version) -> dict[str, bytes]:
    """The files of a version that are not the same in every model."""
    return {path: sha256(f"{name} {version} {path}".encode()).digest() for path in FILES}


@dataclass(frozen=True)
class Made:
    """One version: the bytes of its manifest, and its summary."""

    manifest: bytes
    digest: Digest
    summary: dict[str, Any]


def make(name: str, version: Version, number: int) -> Made:
    """A version whose manifest follows a pattern."""
    digests = {_stand_in(path).hex: Digest.of(data).hex for path, data in contents(name, version).items()}
    shape = pattern(number)

    def fill(template: bytes, more: dict[str, str]) -> bytes:
        values = {**digests, **more, STAND_IN: name}
        return _STAND_INS.sub(lambda found: values[found[0].decode()].encode(), template)

    manifest = fill(shape.manifest, {})
    digest = Digest.of(manifest)
    summary = json.loads(fill(shape.summary, {_stand_in("manifest").hex: digest.hex}))
    return Made(manifest, digest, summary | {"size": len(manifest)})


_STAND_INS = re.compile(
    "|".join([STAND_IN, *(_stand_in(path).hex for path in (*FILES, "manifest"))]).encode()
)


def model_name(number: int) -> str:
    """A hundred models to an organisation."""
    return f"org-{number // 100:03d}/model-{number % 100:02d}"


def history(registry: str, name: str, number: int, versions: int) -> tuple[Log, dict[Version, Made]]:
    """The ledger of one model: every fifth version but the newest is yanked, `stable` is the newest but two."""
    made = {Version(1, minor, 0): make(name, Version(1, minor, 0), number) for minor in range(versions)}
    ledger = Log(registry, name, {}.__getitem__)

    def about(what: str) -> dict[str, Any]:
        return {**COMMON, "name": name, "nonce": sha256(f"{name} {what}".encode()).hexdigest()[:32]}

    for version, item in made.items():
        publish = {"version": version, "manifest": item.digest, "size": len(item.manifest)}
        ledger.append(Publish(**about(f"publish {version}"), **publish))
    for version in list(made)[1:-1:5]:
        ledger.append(Yank(**about(f"yank {version}"), version=version, manifest=made[version].digest))
    stable = list(made)[max(0, versions - 3)]
    ledger.append(Tag(**about("tag"), tag="stable", version=stable, manifest=made[stable].digest))
    ledger.summaries = {
        version: VersionSummary.read(made[version].summary)
        for version in {*newest_of(ledger.versions), stable}
    }
    return ledger, made


def grow(
    root: Path, models: int, versions: int = 20, whole: Iterable[int] = (), manifests: bool = False
) -> Home:
    """A registry with so many models of so many versions each.

    Those in `whole` have every blob, and verify clean; of the others there is what listing, resolving, searching and the
    log read: the index file, and what it was sealed into. `manifests` are read by a server too. Many models are made by
    processes, which import the main module again: a script needs its `if __name__ == "__main__"`.
    """
    registry = Home(root)
    cores = os.cpu_count() or 1
    add = partial(_add_models, root, versions, frozenset(whole), manifests)
    if models < PARALLEL_FROM:
        add(range(models))
    else:
        with ProcessPoolExecutor(cores, get_context("spawn")) as pool:
            list(pool.map(add, (range(start, models, cores) for start in range(cores))))
    return registry


def _add_models(
    root: Path, versions: int, whole: frozenset[int], manifests: bool, numbers: Iterable[int]
) -> None:
    registry = Registry(root)
    for number in numbers:
        add_model(registry, number, versions, number in whole, manifests)


def add_model(registry: Registry, number: int, versions: int, whole: bool, manifests: bool = False) -> str:
    """Write one model; returns its name."""
    name = model_name(number)
    ledger, made = history(registry.id, name, number % PATTERNS, versions)
    data = ledger.encode()
    if whole:
        _put_all(registry, name, number, ledger, made)
    else:
        _put(registry, _history_blobs(ledger))
        for item in made.values() if manifests else ():
            _lay(registry, item)
    path = registry.store.root / index_path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = registry.store.root / "local" / f"next-{number}"
    temporary.write_bytes(data)
    temporary.replace(path)
    return name


def _lay(registry: Registry, item: Made) -> None:
    """A manifest under its final name, not durable: thousands of them are written in a second."""
    path = registry.store.root / blob_path(item.digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(item.manifest)
    path.chmod(0o444)


def _put_all(registry: Registry, name: str, number: int, ledger: Log, made: dict[Version, Made]) -> None:
    blobs = [*_history_blobs(ledger), *SHARED.values(), *pattern(number % PATTERNS).operators]
    for version, item in made.items():
        blobs += [item.manifest, *contents(name, version).values()]
    _put(registry, blobs)


def _history_blobs(ledger: Log) -> list[bytes]:
    """The segments and the last catalog."""
    wanted = {*ledger.segments, ledger.checkpoint}
    return [blob for blob in ledger.blobs if Digest.of(blob) in wanted]


def _put(registry: Registry, blobs: Iterable[bytes]) -> None:
    kept = list(blobs)
    if kept:
        with registry.store.push() as push:
            for blob in kept:
                push.put(BytesIO(blob))
            push.flush()
