"""The documents of a model package: its model files, their weights, and the claims of its variants.

A package has nothing but files and directories, and the digests that it states hold.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.external_data import locations
from onnxreg.converters.onnx.onnx_graph import load_onnx
from onnxreg.converters.source.source_files import GENAI_CONFIG, digest_file
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest, directory_digest
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.core.paths import check_path
from onnxreg.schema.formats.ort_package import (
    ASSETS,
    COMPONENT,
    MANIFEST,
    RUNTIME,
    WEIGHTS_FOLDER,
    Component,
    PackageExtension,
    PackageManifest,
    Variant,
    asset_directory,
    asset_of,
    read_component,
    read_package,
    written_by_us,
)
from onnxreg.schema.formats.package_layout import LOADABLE

_COPY_HINT = "copy the whole package again, or make it again"


class PackageTree:
    """The files below a directory, by path, each hashed at most once. InputError for links and special files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = frozenset(_list_files(root))
        self._digests: dict[str, Digest] = {}

    def digest(self, path: str) -> Digest:
        if path not in self._digests:
            self._digests[path] = digest_file(self.root / path)
        return self._digests[path]

    def below(self, directory: str) -> dict[str, str]:
        """Every file of a directory by its path there; its path in the package."""
        prefix = f"{directory}/" if directory else ""
        return {path.removeprefix(prefix): path for path in self.files if path.startswith(prefix)}

    def read(self, path: str, role: str) -> bytes:
        """The bytes of a document. InputError for one that is too large to be one."""
        file = self.root / self.check_present(path, role)
        if file.stat().st_size > canonical.MAX_BYTES:
            raise InputError(
                f"{path} in the package is larger than a document may be: {canonical.MAX_BYTES} bytes"
            )
        return file.read_bytes()

    def check_present(self, path: str, role: str) -> str:
        """The path, of a file that is in the package; InputError, saying what it was to be, if it is not."""
        if path not in self.files:
            raise InputError(f"the package names the {role} {path[:200]}, which is missing", _COPY_HINT)
        return path


@dataclass(frozen=True)
class PackageFacts:
    """One variant: its name, its document, and its payload for ONNX Runtime."""

    name: str
    document: Variant
    runtime: Mapping[str, Any]


@dataclass(frozen=True)
class SurveyedBuild:
    """One model file, by paths in the package.

    `home` is the directory that its own path is relative to; `weights` its external data, by location; `other_files` what else
    is in the directories of its variants, by path there.
    """

    main: str
    home: str
    weights: Mapping[str, str]
    other_files: Mapping[str, str]
    variants: tuple[PackageFacts, ...]


@dataclass(frozen=True)
class PackageSurvey:
    """A package whose stated digests all hold. `companions` are the files of shared assets, by path there."""

    manifest: PackageManifest
    extension: PackageExtension | None
    builds: tuple[SurveyedBuild, ...]
    companions: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...]


def survey_package(tree: PackageTree) -> PackageSurvey:
    """Read a package.

    Raise InputError if it is not a whole package of schema 1, IntegrityError if a digest does not hold.
    """
    manifest = read_package(tree.read(MANIFEST, "document"))
    extension = written_by_us(manifest)
    if extension is not None:
        check_listed(tree, extension)
    assets = verified_assets(tree, manifest)
    documents = {MANIFEST}
    models: dict[str, list[_VariantModel]] = {}
    for directory, component in _components(tree, manifest, documents):
        for name, variant in component.variants.items():
            model = _variant_model(tree, assets, directory, name, variant, documents)
            models.setdefault(model.main, []).append(model)
    if not models:
        raise InputError("the package has no variant", "make the package again")
    builds = tuple(_builds(tree, models, documents))
    named_paths = {
        path
        for build in builds
        for path in (build.main, *build.weights.values(), *build.other_files.values())
    }
    shared = [(path, at) for directory in assets.values() for path, at in tree.below(directory).items()]
    companions = tuple(sorted((path, at) for path, at in shared if at not in named_paths))
    left_out = tree.files - documents - named_paths - {at for _, at in companions}
    return PackageSurvey(manifest, extension, builds, companions, tuple(sorted(left_out)))


def verified_assets(tree: PackageTree, manifest: PackageManifest) -> Mapping[Digest, str]:
    """The directory of each shared asset.

    Raise InputError if one is missing, IntegrityError if its files are not its own.
    """
    directories = {Digest.parse(uri): directory for uri, directory in manifest.shared_assets.items()}
    for path in tree.below(ASSETS):
        digest = asset_of(path.partition("/")[0])
        if digest is not None:
            directories.setdefault(digest, asset_directory(digest))
    for digest, directory in directories.items():
        files = tree.below(directory)
        if not files:
            raise InputError(f"the shared asset {digest} is missing: {directory} holds no file", _COPY_HINT)
        measured = directory_digest({path: tree.digest(at) for path, at in files.items()})
        if measured != digest:
            raise IntegrityError(
                f"the shared asset {directory} is damaged: its files have the digest {measured.short}...",
                _COPY_HINT,
            )
    return directories


def check_listed(tree: PackageTree, extension: PackageExtension) -> None:
    """A package that `reg package` wrote lists its files: InputError if one is missing or too many,
    IntegrityError if one was changed."""
    for path in extension.files:
        tree.check_present(path, "file")
    unlisted = tree.files - {MANIFEST, *extension.files}
    if unlisted:
        raise InputError(
            f"{min(unlisted)} is not a file of this package", "move it away; the package lists its files"
        )
    for path, digest in extension.files.items():
        if tree.digest(path) != digest:
            raise IntegrityError(
                f"{path} in the package is damaged: its bytes have the digest {tree.digest(path).short}..., "
                f"not {digest.short}...",
                _COPY_HINT,
            )


@dataclass(frozen=True)
class _VariantModel:
    """The location of a variant's model: its directory, its file, the folder of its weights, its base."""

    facts: PackageFacts
    directory: str
    main: str
    folder: str
    home: str


def _components(
    tree: PackageTree, manifest: PackageManifest, documents: set[str]
) -> Iterator[tuple[str, Component]]:
    """Each component and its directory; the documents that were read are added to `documents`."""
    for value in manifest.components.values():
        if isinstance(value, Component):
            yield "", value
            continue
        path = value if value in tree.files else f"{value}/{COMPONENT}"
        data = tree.read(path, "component")
        documents.add(path)
        yield path.rpartition("/")[0], read_component(data, path, manifest.newer)


def _variant_model(
    tree: PackageTree,
    assets: Mapping[Digest, str],
    base: str,
    name: str,
    variant: Variant,
    documents: set[str],
) -> _VariantModel:
    label = f"variant {name[:80]!r}"
    directory = _join(base, variant.variant_directory or name, label)
    payload = _payload(tree, directory, variant, label, documents)
    file = payload["model_file"] if payload else _genai_model(tree, directory, label)
    main, home = _resolve(file, directory, assets, label)
    tree.check_present(main, f"model of {label}")
    if not main.endswith(LOADABLE):
        raise InputError(f"{label} names {main}, which is not a model file ({', '.join(LOADABLE)})")
    options = payload.get("session_options")
    folder = options.get(WEIGHTS_FOLDER) if isinstance(options, dict) else None
    if folder is not None and not isinstance(folder, str):
        raise InputError(f"{label} has a {WEIGHTS_FOLDER} that is not text")
    weights = main.rpartition("/")[0] if folder is None else _resolve(folder, directory, assets, label)[0]
    return _VariantModel(PackageFacts(name, variant, payload), directory, main, weights, home)


def _payload(
    tree: PackageTree, directory: str, variant: Variant, label: str, documents: set[str]
) -> Mapping[str, Any]:
    """The session options of a variant; empty if it has none."""
    payload = variant.executor_info.get(RUNTIME)
    if payload is None:
        return {}
    if isinstance(payload, str):
        path = _join(directory, payload, label)
        payload = canonical.decode(tree.read(path, f"{RUNTIME} document of {label}"), path)
        documents.add(path)
    if not isinstance(payload, dict) or not isinstance(payload.get("model_file"), str):
        raise _no_model(label)
    return payload


def _genai_model(tree: PackageTree, directory: str, label: str) -> str:
    """The decoder that the `genai_config.json` of onnxruntime-genai names, relative to the variant's directory."""
    path = f"{directory}/{GENAI_CONFIG}"
    if path not in tree.files:
        raise _no_model(label)
    config = canonical.decode(tree.read(path, "configuration"), path)
    for key in ("model", "decoder", "filename"):
        config = config.get(key) if isinstance(config, dict) else None
    if not isinstance(config, str):
        raise InputError(f"{path} names no decoder", "expected model.decoder.filename")
    return config


def _no_model(label: str) -> InputError:
    return InputError(
        f"{label} names no model for ONNX Runtime",
        f'expected "executor_info": {{"ort": {{"model_file": ...}}}}, or a {GENAI_CONFIG} in its directory',
    )


def _builds(
    tree: PackageTree, models: Mapping[str, list[_VariantModel]], documents: set[str]
) -> Iterator[SurveyedBuild]:
    weights = {main: _weights(tree, main, variant_models) for main, variant_models in models.items()}
    used = {*models, *documents, *(path for files in weights.values() for path in files.values())}
    for main, variant_models in models.items():
        other_files = {
            path: at
            for model in variant_models
            for path, at in tree.below(model.directory).items()
            if at not in used
        }
        facts = tuple(model.facts for model in variant_models)
        yield SurveyedBuild(main, variant_models[0].home, weights[main], other_files, facts)


def _weights(tree: PackageTree, main: str, models: list[_VariantModel]) -> dict[str, str]:
    folders = {model.folder for model in models}
    if len(folders) > 1:
        raise InputError(f"variants give {main} different weights", "give each a model file of its own")
    if not main.endswith(".onnx"):
        return {}
    path = tree.root / main
    names = locations(load_onnx(path), path)
    folder = folders.pop()
    return {name: tree.check_present(_join(folder, name, main), f"external data of {main}") for name in names}


def _resolve(reference: str, base: str, assets: Mapping[Digest, str], label: str) -> tuple[str, str]:
    """The path that a reference means, and the directory that it is relative to: `base`, or that of a shared asset."""
    if not reference.startswith("sha256:"):
        return _join(base, reference, label), base
    uri, _, below = reference.partition("/")
    digest = Digest.parse(uri)
    if digest not in assets:
        raise InputError(
            f"{label} refers to the shared asset {digest}, which is missing", "make the package again"
        )
    return _join(assets[digest], below, label) if below else assets[digest], assets[digest]


def _join(base: str, path: str, label: str) -> str:
    inner = path.removeprefix("./").rstrip("/")
    if path in (".", "./"):
        return base
    try:
        return check_path(f"{base}/{check_path(inner)}" if base else check_path(inner))
    except ValueError as error:
        raise InputError(f"{label} names a file that cannot be in a portable package: {error}") from error


def _list_files(root: Path) -> list[str]:
    files = []
    for parent, directories, names in os.walk(root):
        for name in (*directories, *names):
            path = Path(parent, name)
            mode, relative = path.lstat().st_mode, path.relative_to(root).as_posix()
            _check_entry(relative, mode)
            if stat.S_ISREG(mode):
                files.append(relative)
    return files


def _check_entry(path: str, mode: int) -> None:
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        kind = "a symbolic link" if stat.S_ISLNK(mode) else "neither a file nor a directory"
        raise InputError(
            f"{path} in the package is {kind}", "a package holds files only; look at who made it"
        )
    try:
        check_path(path)
    except ValueError as error:
        raise InputError(f"the package holds a file whose name a manifest cannot hold: {error}") from error
