"""The documents of a model package of ONNX Runtime, schema 1.0: `manifest.json` and `component.json`.

Source: `model_package/README.md` and `onnxruntime/core/session/model_package/README.md` of ONNX Runtime. A package is a
directory. A component is a logical model, a variant one build of it for one execution provider, a shared asset a directory
named by `directory_digest`.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import (
    Document,
    FrozenDict,
    JsonObject,
    JsonValue,
    ModelName,
    RelPath,
    Table,
    Text,
)
from onnxreg.schema.core.errors import InputError

MANIFEST = "manifest.json"
COMPONENT = "component.json"
ASSETS = "shared_assets"
MAJOR, MINOR = 1, 0
"""The schema that this build knows."""
NAMESPACE = "onnxreg"
"""Our key in `executor_info` and `additional_metadata`."""
RUNTIME = "ort"
"""ONNX Runtime's key in `executor_info`."""
WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
"""The session option with the folder of external data, if that is not beside the model."""
_VERSION = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})")


def _version(value: Any) -> Any:
    return f"{value}.0" if isinstance(value, int) and not isinstance(value, bool) else value


def _no_slash(value: Any) -> Any:
    return value.removeprefix("./").rstrip("/") or value if isinstance(value, str) else value


PackagePath = Annotated[RelPath, BeforeValidator(_no_slash)]
"""A path inside the package, of a file or directory."""


def _kind(value: Any) -> str:
    return "path" if isinstance(value, str) else "document"


_Path = Annotated[PackagePath, Tag("path")]
_ByKind = Discriminator(_kind)


class Variant(Document):
    """One build of a component. `executor_info` has a payload for each consumer, or the path of a JSON file with it."""

    variant_directory: PackagePath | None = None
    ep: Text | None = None
    device: Text | None = None
    compatibility_string: Text | None = None
    executor_info: Table[Annotated[_Path | Annotated[JsonObject, Tag("document")], _ByKind]] = Field(
        default_factory=FrozenDict
    )
    additional_metadata: JsonValue = None


class Component(Document):
    """`component.json`, or the same inside the manifest."""

    component_name: Text | None = None
    variants: Table[Variant]
    additional_metadata: JsonValue = None


class PackageManifest(Document):
    """`manifest.json`. `components` are documents, or paths of them or of their directories."""

    schema_version: Annotated[str, BeforeValidator(_version)]
    package_name: Text | None = None
    package_version: Text | None = None
    description: Text | None = None
    layout: Literal["portable", "installed"] = "portable"
    components: Annotated[
        Table[Annotated[_Path | Annotated[Component, Tag("document")], _ByKind]], Field(min_length=1)
    ]
    shared_assets: Table[PackagePath] = Field(default_factory=FrozenDict)
    additional_metadata: JsonValue = None

    @property
    def newer(self) -> bool:
        """True if a newer minor wrote it, which may have added keys."""
        return int(self.schema_version.partition(".")[2]) > MINOR


class PackageExtension(Document):
    """Our part of `additional_metadata`: the version, and the digest of every other file by its path."""

    name: ModelName
    manifest: Digest
    files: Table[Digest]


def written_by_us(manifest: PackageManifest) -> PackageExtension | None:
    """Our metadata in a package; None in a package of another tool. InputError if it is malformed."""
    metadata = manifest.additional_metadata
    extension = metadata.get(NAMESPACE) if isinstance(metadata, dict) else None
    return (
        None
        if extension is None
        else PackageExtension.from_json(extension, f"{MANIFEST}, additional_metadata.{NAMESPACE}")
    )


def read_package(data: bytes) -> PackageManifest:
    """Read `manifest.json`. InputError for another schema, a key that it does not have, and an installed package."""
    value = canonical.decode(data, MANIFEST)
    if isinstance(value, dict) and isinstance(value.get("components"), list):
        raise InputError(
            f"{MANIFEST} lists its components, as `olive generate-model-package` of Olive 0.13 wrote them",
            "ONNX Runtime refuses that older shape; make the package again with a newer Olive",
        )
    _check_version(value)
    manifest = PackageManifest.decode(data, MANIFEST)
    if manifest.layout == "installed":
        raise InputError(
            f"{MANIFEST} has the layout 'installed': it may refer to files elsewhere on its machine",
            "import the portable package that it was installed from",
        )
    _check_keys(manifest, MANIFEST, manifest.newer)
    for name, component in manifest.components.items():
        if isinstance(component, Component):
            check_component(component, f"{MANIFEST}, component {name[:80]!r}", manifest.newer)
    return manifest


def read_component(data: bytes, label: str, newer: bool) -> Component:
    """Read a `component.json`. InputError for a key that the schema does not have, unless the package is `newer`."""
    component = Component.decode(data, label)
    check_component(component, label, newer)
    return component


def check_component(component: Component, label: str, newer: bool) -> None:
    """InputError for a key that neither a component nor a variant has."""
    _check_keys(component, label, newer)
    for name, variant in component.variants.items():
        _check_keys(variant, f"{label}, variant {name[:80]!r}", newer)


def asset_directory(digest: Digest) -> str:
    """The path of a shared asset, unless the manifest states another."""
    return f"{ASSETS}/sha256-{digest.hex}"


def asset_of(name: str) -> Digest | None:
    """The shared asset whose directory has this name below `shared_assets`; None if it is not one."""
    try:
        return Digest(name.removeprefix("sha256-")) if name.startswith("sha256-") else None
    except InputError:
        return None


def _check_version(value: Any) -> None:
    version = _version(value.get("schema_version")) if isinstance(value, dict) else None
    parts = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if parts is None:
        raise InputError(f"{MANIFEST} has no schema_version", 'a model package says "schema_version": "1.0"')
    if int(parts[1]) != MAJOR:
        raise InputError(
            f"{MANIFEST} has schema_version {version}; this build reads {MAJOR}.x",
            "upgrade onnxreg to read a newer schema",
        )


def _check_keys(document: Document, label: str, newer: bool) -> None:
    unknown = sorted(document.__pydantic_extra__ or ())
    if unknown and not newer:
        raise InputError(
            f"{label} has the unknown key {unknown[0][:80]!r}",
            "ONNX Runtime refuses it too; make the package again with the tool that wrote it",
        )
