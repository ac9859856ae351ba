"""The layout of a version as a model package of ONNX Runtime, schema 1.0.

Source: `model_package/README.md` of ONNX Runtime. A component is a logical model. A variant is one file of the model
for one execution provider. A shared asset is a directory whose name is its digest.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import chain, count
from typing import Any, NamedTuple

from msgspec import Struct

from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Digest, directory_digest
from onnxreg.schema.core.errors import InputError, about
from onnxreg.schema.core.ref import check_path
from onnxreg.schema.manifest.manifest import Artifact, FileEntry, Manifest
from onnxreg.schema.query.device import provider

MANIFEST = "manifest.json"
NAMESPACE = "onnxreg"  # onnxreg's key in objects for further keys
LOADABLE = (".onnx", ".ort")
_PROVIDERS = (
    "CPU ACL Azure CANN CoreML CUDA Dml Dnnl Js MIGraphX Nnapi NvTensorRTRTX OpenVINO QNN Rknpu Tensorrt VSINPU "
    "VitisAI WebGpu WebNN Xnnpack"
)
# ONNX Runtime's names of execution providers (`onnxruntime.get_all_providers()`), by normalized name.
PROVIDERS = {provider(name): f"{name}ExecutionProvider" for name in _PROVIDERS.split()}


class PackageVariant(NamedTuple):
    """A variant in a package: an artifact for one execution provider `ep`. `directory` is the `directory_digest` of its
    files.
    """

    name: str
    ep: str
    artifact: Artifact
    directory: Digest


class PackageLayout(Struct, frozen=True):
    """The result of `package`: the content of a model package. `documents` are new files, as bytes by path. `files` are
    the files of the version that are copied.
    """

    component: str
    documents: Mapping[str, bytes]
    files: tuple[FileEntry, ...]
    variants: tuple[PackageVariant, ...]
    assets: tuple[Digest, ...]
    left_out: tuple[str, ...]  # paths of omitted artifacts

    @property
    def size(self) -> int:
        return sum(map(len, self.documents.values())) + sum(entry.size for entry in self.files)


def package(manifest: Manifest, digest: Digest, version: str, artifacts: Sequence[Artifact]) -> PackageLayout:
    """Lay out artifacts of a version as one component. Raise InputError if ONNX Runtime can load none of the artifacts.

    Each artifact gets a directory, and a variant for each execution provider that the artifact names. It also gets a
    variant for the CPU, except in the format `webgpu`. The companion files are one shared asset. If several variants
    fit equally, ONNX Runtime chooses the first.
    """
    chosen = [artifact for artifact in artifacts if artifact.path.endswith(LOADABLE)]
    if not chosen:
        raise InputError(
            f"ONNX Runtime loads none of {', '.join(dict.fromkeys(item.format for item in artifacts))}",
            "a model package needs an .onnx or .ort file; name its format with --format",
        )
    component = manifest.name.rpartition("/")[2]
    assets = (_digest(manifest.files),) if manifest.files else ()
    files = {f"shared_assets/sha256-{a.hex}/{item.path}": item for a in assets for item in manifest.files}
    executor = {NAMESPACE: {"companions": str(assets[0])}} if assets else {}
    bodies: dict[str, Any] = {}
    variants: list[PackageVariant] = []

    def free(name: str) -> str:
        choices = chain([name], (f"{name}-{number}" for number in count(2)))
        return next(choice for choice in choices if choice not in bodies)

    for artifact in chosen:
        own_files = list(artifact.all_files())
        directory = _digest(own_files)
        has_precision = artifact.format.endswith(f"-{artifact.precision}")
        name = free(artifact.format if has_precision else f"{artifact.format}-{artifact.precision}")
        files.update({f"model/{name}/{entry.path}": entry for entry in own_files})
        facts = {"format": artifact.format, "precision": artifact.precision, "directory": str(directory)}
        preferred = [provider(name) for name in artifact.metadata.execution_providers]
        # as in resolve: the CPU and the providers that the artifact names; for `webgpu` only these providers
        every = (preferred or ["webgpu"]) if artifact.format == "webgpu" else ["cpu", *preferred]
        providers = [PROVIDERS[name] for name in dict.fromkeys(every) if name in PROVIDERS]
        for ep in providers or [PROVIDERS["cpu"]]:
            variant = free(f"{name}-{provider(ep)}") if name in bodies else name
            variants.append(PackageVariant(variant, ep, artifact, directory))
            bodies[variant] = {
                "variant_directory": name,
                "ep": ep,
                "executor_info": {"ort": {"model_file": artifact.path}} | executor,
                "additional_metadata": {NAMESPACE: facts},
            }
    documents = {"model/component.json": _encode({"component_name": component, "variants": bodies})}
    with about("a model package cannot hold this"):
        entries = tuple(entry.model_copy(update={"path": check_path(path)}) for path, entry in files.items())
    digests = {entry.path: entry.digest for entry in entries}
    digests |= {path: Digest.of(data) for path, data in documents.items()}
    listed = {path: str(digests[path]) for path in sorted(digests)}
    documents[MANIFEST] = _encode(
        {
            "schema_version": "1.0",
            "package_name": manifest.name,
            "package_version": version,
            "layout": "portable",
            "components": {component: "model"},
            "additional_metadata": {
                NAMESPACE: {"name": manifest.name, "manifest": str(digest), "files": listed}
            },
        }
    )
    left_out = tuple(artifact.path for artifact in artifacts if artifact not in chosen)
    return PackageLayout(component, documents, entries, tuple(variants), assets, left_out)


def packaged_files(manifest: bytes) -> set[str]:
    """Return the paths in a package's `manifest.json`. Return no paths if another program wrote the package."""
    try:
        return {MANIFEST, *canonical.decode(manifest, MANIFEST)["additional_metadata"][NAMESPACE]["files"]}
    except (InputError, KeyError, TypeError):
        return set()


def _digest(files: Sequence[FileEntry]) -> Digest:
    return directory_digest({entry.path: entry.digest for entry in files})


def _encode(value: dict[str, Any]) -> bytes:
    # Keys are not sorted: the order of variants has a meaning.
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
