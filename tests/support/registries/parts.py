"""A version of which a registry may hold parts."""

from pathlib import Path

from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

NAME = "acme/pii"
ONE = f"{NAME}:1.0.0"
FULL, HALF, INT8 = "model.onnx", "model_fp16.onnx", "model_int8.onnx"
SIDECAR = "model_int8.onnx.data"
COMPANIONS = ["config.json", "labels.json"]


def draft(root: Path, seed: str = "a") -> Draft:
    """Two android artifacts of one format, an int8 one with a sidecar, and two companions."""
    root.mkdir(parents=True)
    for path in (FULL, HALF, INT8, SIDECAR):
        (root / path).write_bytes(f"{path} {seed} ".encode() * 20)
    for path in COMPANIONS:
        (root / path).write_bytes(f"{path} of all".encode())

    def artifact(form: str, precision: str, path: str, operator: str, *sidecars: DraftFile) -> DraftArtifact:
        fields = {"operators": [{"domain": "ai.onnx", "name": operator, "opset": 13}]}
        parent = None if path == FULL else FULL
        return DraftArtifact(form, precision, path, sidecars=sidecars, parent=parent, fields=fields)

    artifacts = (
        artifact("onnx-android", "float32", FULL, "MatMul"),
        artifact("onnx-android", "float16", HALF, "MatMul"),
        artifact("onnx-int8", "int8", INT8, "MatMulInteger", DraftFile("external-data", SIDECAR)),
    )
    companions = (DraftFile("config", COMPANIONS[0]), DraftFile("labels", COMPANIONS[1]))
    return Draft(NAME, root, artifacts, companions)
