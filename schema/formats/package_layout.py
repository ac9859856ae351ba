"""Layout of a version as a model package of ONNX Runtime, schema 1.0. Pure: nothing is read, every digest is known already.

Source: `model_package/README.md` of ONNX Runtime. A component is a logical model, a variant one build of it for one
execution provider, a shared asset a directory named by `directory_digest`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest, directory_digest
from onnxreg.schema.core.errors import Advice, InputError
from onnxreg.schema.core.paths import check_path
from onnxreg.schema.manifest.manifest import Artifact, FileEntry, Manifest
from onnxreg.schema.query.device import provider

MANIFEST = "manifest.json"
COMPONENT = "component.json"
SCHEMA_VERSION = "1.0"
NAMESPACE = "onnxreg"
"""Our key in `executor_info` and `additional_metadata`."""
RUNTIME = "ort"
"""ONNX Runtime's key in `executor_info`."""
WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
"""The session option with the folder of external data, if that is not beside the model."""
COMPONENT_DIRECTORY = "model"
LOADABLE = (".onnx", ".ort")
"""The suffixes of model files that ONNX Runtime loads."""
CPU = "CPUExecutionProvider"
PROVIDERS = {
    provider(name): name
    for name in (
        CPU,
        *(
            "ACLExecutionProvider",
            "AzureExecutionProvider",
            "CANNExecutionProvider",
            "CoreMLExecutionProvider",
        ),
        *("CUDAExecutionProvider", "DmlExecutionProvider", "DnnlExecutionProvider", "JsExecutionProvider"),
        *("MIGraphXExecutionProvider", "NnapiExecutionProvider", "NvTensorRTRTXExecutionProvider"),
        *("OpenVINOExecutionProvider", "QNNExecutionProvider", "RknpuExecutionProvider"),
        *("TensorrtExecutionProvider", "VSINPUExecutionProvider", "VitisAIExecutionProvider"),
        *("WebGpuExecutionProvider", "WebNNExecutionProvider", "XnnpackExecutionProvider"),
    )
}
"""ONNX Runtime's names of its execution providers (`onnxruntime.get_all_providers()`), by how they are compared."""
Files = dict[str, FileEntry]


@dataclass(frozen=True)
class PackageBuild:
    """One artifact in a package: its directory below the component, which may serve several variants.

    `variants` maps the name of each to its execution provider; `directory` is the digest of the directory's files.
    """

    artifact: Artifact
    name: str
    variants: Mapping[str, str]
    directory: Digest


@dataclass(frozen=True)
class PackageLayout:
    """The content of a package: documents as bytes, files of the version, each by its path; and the artifacts left out."""

    component: str
    documents: Mapping[str, bytes]
    files: tuple[FileEntry, ...]
    builds: tuple[PackageBuild, ...]
    assets: tuple[Digest, ...]
    left_out: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(map(len, self.documents.values())) + sum(entry.size for entry in self.files)


@dataclass
class _Layout:
    """A package while it is laid out: file entries by their path in the package, and the bodies of the variants."""

    files: Files = field(default_factory=dict)
    assets: list[Digest] = field(default_factory=list)
    variants: dict[str, Any] = field(default_factory=dict)
    builds: list[PackageBuild] = field(default_factory=list)

    def place(self, directory: str, files: Files) -> None:
        for path, entry in files.items():
            self.files[f"{directory}/{path}"] = entry

    def share(self, files: Files) -> str:
        """Add a shared asset; its URI."""
        digest = _digest(files)
        if digest not in self.assets:
            self.assets.append(digest)
            self.place(f"shared_assets/sha256-{digest.hex}", files)
        return str(digest)


def package(manifest: Manifest, digest: Digest, version: str, artifacts: Sequence[Artifact]) -> PackageLayout:
    """Lay out these artifacts of a version as one component, each a directory with a variant for the CPU and for every
    execution provider that it names.

    Files that all artifacts share, and external data that several do, are shared assets. Variants are in the order of the
    artifacts, by which ONNX Runtime chooses among equals. InputError if no artifact is a model that it loads.
    """
    chosen = [artifact for artifact in artifacts if artifact.path.endswith(LOADABLE)]
    if not chosen:
        raise InputError(
            f"ONNX Runtime loads none of {', '.join(dict.fromkeys(item.format for item in artifacts))}",
            Advice("package-format"),
        )
    layout, component = _Layout(), manifest.name.rpartition("/")[2]
    companions = layout.share({entry.path: entry for entry in manifest.files}) if manifest.files else None
    weights = {artifact.path: _weights(artifact) for artifact in chosen}
    shared = Counter(_digest(files) for files in weights.values() if files)
    for artifact in chosen:
        files = weights[artifact.path]
        folder = layout.share(files) if files and shared[_digest(files)] > 1 else None
        _add_build(layout, artifact, folder, companions)
    body = {"component_name": component, "variants": layout.variants}
    documents = {f"{COMPONENT_DIRECTORY}/{COMPONENT}": _encode(body)}
    entries = tuple(entry.model_copy(update={"path": _checked(path)}) for path, entry in layout.files.items())
    digests = {entry.path: entry.digest for entry in entries}
    digests |= {path: Digest.of(data) for path, data in documents.items()}
    documents[MANIFEST] = _encode(_manifest(manifest.name, digest, version, component, digests))
    left_out = tuple(artifact.path for artifact in artifacts if artifact not in chosen)
    return PackageLayout(component, documents, entries, tuple(layout.builds), tuple(layout.assets), left_out)


def packaged_files(manifest: bytes) -> set[str]:
    """The files of a package by its `manifest.json`; empty for a package that we did not write."""
    try:
        value = canonical.decode(manifest, MANIFEST)
        return {MANIFEST, *value["additional_metadata"][NAMESPACE]["files"]}
    except (InputError, KeyError, TypeError):
        return set()


def _manifest(
    name: str, digest: Digest, version: str, component: str, files: Mapping[str, Digest]
) -> dict[str, Any]:
    file_digests = {path: str(files[path]) for path in sorted(files)}
    return {
        "schema_version": SCHEMA_VERSION,
        "package_name": name,
        "package_version": version,
        "layout": "portable",
        "components": {component: COMPONENT_DIRECTORY},
        "additional_metadata": {NAMESPACE: {"name": name, "manifest": str(digest), "files": file_digests}},
    }


def _weights(artifact: Artifact) -> Files:
    """The external data by its path relative to the model's folder; empty if not all of it belongs to the main file."""
    home = PurePosixPath(artifact.path).parent
    if any(entry.role == "model" for entry in artifact.files):
        return {}
    files = [entry for entry in artifact.files if entry.role == "external-data"]
    if not all(PurePosixPath(entry.path).is_relative_to(home) for entry in files):
        return {}
    return {PurePosixPath(entry.path).relative_to(home).as_posix(): entry for entry in files}


def _add_build(layout: _Layout, artifact: Artifact, folder: str | None, companions: str | None) -> None:
    own_files = {
        entry.path: entry for entry in artifact.all_files() if folder is None or entry.role != "external-data"
    }
    runtime: dict[str, Any] = {"model_file": artifact.path}
    if folder is not None:
        runtime["session_options"] = {WEIGHTS_FOLDER: folder}
    info = {RUNTIME: runtime} | ({NAMESPACE: {"companions": companions}} if companions else {})
    metadata = {
        "format": artifact.format,
        "precision": artifact.precision,
        "directory": str(_digest(own_files)),
    }
    name = _free(_name(artifact), layout.variants)
    variants: dict[str, str] = {}
    for ep in _providers(artifact):
        variant = name if not variants else _free(f"{name}-{provider(ep)}", layout.variants)
        variants[variant] = ep
        layout.variants[variant] = {
            "variant_directory": name,
            "ep": ep,
            "executor_info": info,
            "additional_metadata": {NAMESPACE: metadata},
        }
    layout.place(f"{COMPONENT_DIRECTORY}/{name}", own_files)
    layout.builds.append(PackageBuild(artifact, name, variants, _digest(own_files)))


def _name(artifact: Artifact) -> str:
    """A component's name: `onnx-float32`; `onnx-int8` if the format already has the precision."""
    has_precision = artifact.format.endswith(f"-{artifact.precision}")
    return artifact.format if has_precision else f"{artifact.format}-{artifact.precision}"


def _free(name: str, names: Iterable[str]) -> str:
    """The name, with a number after it if it is taken."""
    used = set(names)
    return next(choice for choice in _numbered(name) if choice not in used)


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}-{number}"
        number += 1


def _providers(artifact: Artifact) -> list[str]:
    """Those it runs on, as resolve has it: the CPU and what it names; of the format `webgpu` only what it names."""
    preferred = [provider(name) for name in artifact.metadata.execution_providers]
    every = (preferred or ["webgpu"]) if artifact.format == "webgpu" else ["cpu", *preferred]
    supported = [PROVIDERS[name] for name in dict.fromkeys(every) if name in PROVIDERS]
    return supported or [CPU]


def _digest(files: Files) -> Digest:
    return directory_digest({path: entry.digest for path, entry in files.items()})


def _checked(path: str) -> str:
    try:
        return check_path(path)
    except ValueError as error:
        raise InputError(f"a model package cannot hold this: {error}") from error


def _encode(value: dict[str, Any]) -> bytes:
    """JSON in the order of its keys, which is that of the variants."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
