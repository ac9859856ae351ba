"""The contract of an artifact: all that the code of an app relies on, as one digest.

An app that was written for one release runs with another one if both have the same contract: the same tensors go
in and come out, the labels mean the same, and text or images become tensors in the same way. `docs/resolve.md`
specifies the document; a query demands its digest with the key `contract`.
"""

from typing import TYPE_CHECKING, Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest

if TYPE_CHECKING:
    from onnxreg.schema.manifest.manifest import Artifact, Manifest, TensorSpec


def contract_of(manifest: "Manifest", artifact: "Artifact") -> Digest | None:
    """The digest of an artifact's contract; None if its inputs or outputs are not recorded."""
    document = contract_document(manifest, artifact)
    return None if document is None else Digest.of(canonical.encode(document))


def contract_document(manifest: "Manifest", artifact: "Artifact") -> dict[str, Any] | None:
    """The document itself; keys without a value are left out.

    Labels that the manifest does not list count by the digests of their files.
    """
    metadata = artifact.metadata
    if not metadata.inputs or not metadata.outputs:
        return None
    preprocessing = manifest.preprocessing
    parts = {
        "inputs": [_tensor(spec) for spec in metadata.inputs],
        "outputs": [_tensor(spec) for spec in metadata.outputs],
        "labels": list(manifest.labels or ()) or _files(manifest, "labels"),
        "tokenizer": _files(manifest, "tokenizer"),
        "segmenter": _files(manifest, "segmenter"),
        "preprocessing": None if preprocessing is None else preprocessing.to_json(),
    }
    return {key: item for key, item in parts.items() if item}


def _tensor(spec: "TensorSpec") -> dict[str, Any]:
    """Name, element type and shape; a dynamic axis is null, whatever its name."""
    return {"name": spec.name, "dtype": spec.dtype, "shape": [dim.value for dim in spec.shape]}


def _files(manifest: "Manifest", role: str) -> dict[str, str]:
    return {entry.path: str(entry.digest) for entry in manifest.files if entry.role == role}
