"""A model as devices read it: one large and one small artifact a version, and index files that lie."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

from onnxreg.registry import Registry
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile, Verdict

ON_SUITE = {"dataset": str(Digest.of(b"suite")), "verdict": "pass"}
CHECKS = (
    {"name": "sts/spearman", "metric": "spearman", "value": 0.83, "direction": "higher", **ON_SUITE},
    {"name": "character_recall/NAME", "metric": "character_recall", "value": 0.9, **ON_SUITE},
)


def publish(
    registry: Registry,
    root: Path,
    version: str,
    size: int = 100_000,
    checks: Sequence[Any] = (),
    metadata: Mapping[str, Any] | None = None,
    name: str = "acme/pii",
    half: bool = False,
    **manifest: Any,
) -> dict[str, str]:
    """Publish a version with one large and one small, certified artifact, and evidence; returns the digests of the files
    that a device downloads for the latter. With `half` there is a second certified artifact, `model_fp16.onnx`. `metadata`
    and `manifest` are more keys of the artifacts and the manifest."""
    root.mkdir()
    random = Random(version)
    files = {
        "model.onnx": random.randbytes(size + 1),
        "model_int8.onnx": random.randbytes(size),
        "config.json": version.encode(),
        "empty.txt": b"",
    }
    others = {"proof.json": b"{}", "scores.csv": b"group", "model_fp16.onnx": random.randbytes(size)}
    for path, data in {**files, **others}.items():
        (root / path).write_bytes(data)
    evidence = (DraftFile("certificate", "proof.json"), DraftFile("item-scores", "scores.csv"))
    fields = {"metadata": {"opset": 18, **(metadata or {})}}
    certified = Verdict("certified", "G4/point", (), Digest.of(b"suite"))
    draft = Draft(
        name,
        root,
        (
            DraftArtifact("onnx-android", "float32", "model.onnx", fields=fields),
            DraftArtifact(
                *("onnx-int8", "int8", "model_int8.onnx"),
                verdict=certified,
                fields={**fields, "checks": list(checks)},
            ),
            *(
                [DraftArtifact("onnx", "float16", "model_fp16.onnx", verdict=certified, fields=fields)]
                if half
                else []
            ),
        ),
        (DraftFile("config", "config.json"), DraftFile("notes", "empty.txt"), *evidence),
        {"source": {"id": "acme/base", "digest": str(Digest.of(b"checkpoint"))}, **manifest},
    )
    registry.add(draft, version)
    return {
        path: f"sha256:{sha256(data).hexdigest()}" for path, data in files.items() if path != "model.onnx"
    }


def blob(registry: Registry, digest: str) -> Path:
    hexed = digest.removeprefix("sha256:")
    return registry.store.root / "blobs" / "sha256" / hexed[:2] / hexed


OTHER = f"sha256:{'0' * 64}"
LIES: dict[str, Callable[[Any], object]] = {
    "a blob is taken down": lambda state: state.update(tombstones=[OTHER]),
    "an artifact is refused": lambda state: state.update(refused=[OTHER]),
    "a channel is added": lambda state: state["channels"].update(
        beta={"version": "1.0.0", "manifest": state["versions"]["1.0.0"]["manifest"], "seq": 1}
    ),
    "a version is yanked": lambda state: state["versions"]["1.0.0"].update(yanks=[OTHER]),
    "a version is hidden": lambda state: state["versions"].pop("1.0.0"),
    "a version has another license": lambda state: state["summaries"]["1.0.0"].update(license="free"),
    "an artifact is of a stage": lambda state: artifact(state).update(member="ocr"),
    "an artifact has another opset": lambda state: artifact(state).update(opset=1),
}


def artifact(state: Any) -> Any:
    return state["summaries"]["1.0.0"]["artifacts"][0]
