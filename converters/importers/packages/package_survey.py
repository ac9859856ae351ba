"""What the documents of a model package name: model files, where their weights lie, and what the variants say of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onnxreg.converters.importers.packages.package_files import PackageTree, check_listed, verified_assets
from onnxreg.converters.onnx.external_data import locations
from onnxreg.converters.onnx.onnx_graph import load_onnx
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.paths import check_path
from onnxreg.schema.formats.ort_package import (
    COMPONENT,
    MANIFEST,
    RUNTIME,
    WEIGHTS_FOLDER,
    Component,
    PackageExtension,
    PackageManifest,
    Variant,
    read_component,
    read_package,
    written_by_us,
)
from onnxreg.schema.formats.package_layout import LOADABLE

GENAI_CONFIG = "genai_config.json"


@dataclass(frozen=True)
class PackageFacts:
    """One variant: its name, its document, and its payload for ONNX Runtime."""

    name: str
    document: Variant
    runtime: Mapping[str, Any]


@dataclass(frozen=True)
class SurveyedBuild:
    """One model file, by paths in the package.

    `home` is the directory that its own path is relative to; `weights` its external data, by location; `others` what else
    lies in the directories of its variants, by path there.
    """

    main: str
    home: str
    weights: Mapping[str, str]
    others: Mapping[str, str]
    variants: tuple[PackageFacts, ...]


@dataclass(frozen=True)
class PackageSurvey:
    """A package whose stated digests all hold. `companions` are the files of shared assets, by path there."""

    manifest: PackageManifest
    ours: PackageExtension | None
    builds: tuple[SurveyedBuild, ...]
    companions: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class _Place:
    """Where a variant's model is: its directory, its file, the folder of its weights, what its file is relative to."""

    told: PackageFacts
    directory: str
    main: str
    folder: str
    home: str


def survey_package(tree: PackageTree) -> PackageSurvey:
    """Read a package. InputError where it is no whole package of schema 1, IntegrityError where a digest does not hold."""
    manifest = read_package(tree.read(MANIFEST, "document"))
    ours = written_by_us(manifest)
    if ours is not None:
        check_listed(tree, ours)
    assets = verified_assets(tree, manifest)
    documents = {MANIFEST}
    places: dict[str, list[_Place]] = {}
    for directory, component in _components(tree, manifest, documents):
        for name, variant in component.variants.items():
            place = _place(tree, assets, directory, name, variant, documents)
            places.setdefault(place.main, []).append(place)
    if not places:
        raise InputError("the package has no variant", "make the package again")
    builds = tuple(_builds(tree, places, documents))
    named = {
        path for build in builds for path in (build.main, *build.weights.values(), *build.others.values())
    }
    shared = [(path, at) for directory in assets.values() for path, at in tree.below(directory).items()]
    companions = tuple(sorted((path, at) for path, at in shared if at not in named))
    left_out = tree.files - documents - named - {at for _, at in companions}
    return PackageSurvey(manifest, ours, builds, companions, tuple(sorted(left_out)))


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


def _place(
    tree: PackageTree,
    assets: Mapping[Digest, str],
    base: str,
    name: str,
    variant: Variant,
    documents: set[str],
) -> _Place:
    at = f"variant {name[:80]!r}"
    directory = _join(base, variant.variant_directory or name, at)
    payload = _payload(tree, directory, variant, at, documents)
    file = payload["model_file"] if payload else _genai_model(tree, directory, at)
    main, home = _resolve(file, directory, assets, at)
    tree.there(main, f"model of {at}")
    if not main.endswith(LOADABLE):
        raise InputError(f"{at} names {main}, which is no model file ({', '.join(LOADABLE)})")
    options = payload.get("session_options")
    folder = options.get(WEIGHTS_FOLDER) if isinstance(options, dict) else None
    if folder is not None and not isinstance(folder, str):
        raise InputError(f"{at} has a {WEIGHTS_FOLDER} that is no text")
    weights = main.rpartition("/")[0] if folder is None else _resolve(folder, directory, assets, at)[0]
    return _Place(PackageFacts(name, variant, payload), directory, main, weights, home)


def _payload(
    tree: PackageTree, directory: str, variant: Variant, at: str, documents: set[str]
) -> Mapping[str, Any]:
    """What a variant says to ONNX Runtime; empty where that is nothing."""
    payload = variant.executor_info.get(RUNTIME)
    if payload is None:
        return {}
    if isinstance(payload, str):
        path = _join(directory, payload, at)
        payload = canonical.decode(tree.read(path, f"{RUNTIME} document of {at}"), path)
        documents.add(path)
    if not isinstance(payload, dict) or not isinstance(payload.get("model_file"), str):
        raise _no_model(at)
    return payload


def _genai_model(tree: PackageTree, directory: str, at: str) -> str:
    """The decoder that the `genai_config.json` of onnxruntime-genai names, relative to the variant's directory."""
    path = f"{directory}/{GENAI_CONFIG}"
    if path not in tree.files:
        raise _no_model(at)
    found = canonical.decode(tree.read(path, "configuration"), path)
    for key in ("model", "decoder", "filename"):
        found = found.get(key) if isinstance(found, dict) else None
    if not isinstance(found, str):
        raise InputError(f"{path} names no decoder", "expected model.decoder.filename")
    return found


def _no_model(at: str) -> InputError:
    return InputError(
        f"{at} names no model for ONNX Runtime",
        f'expected "executor_info": {{"ort": {{"model_file": ...}}}}, or a {GENAI_CONFIG} in its directory',
    )


def _builds(
    tree: PackageTree, places: Mapping[str, list[_Place]], documents: set[str]
) -> Iterator[SurveyedBuild]:
    weights = {main: _weights(tree, main, found) for main, found in places.items()}
    taken = {*places, *documents, *(path for files in weights.values() for path in files.values())}
    for main, found in places.items():
        others = {
            path: at for place in found for path, at in tree.below(place.directory).items() if at not in taken
        }
        told = tuple(place.told for place in found)
        yield SurveyedBuild(main, found[0].home, weights[main], others, told)


def _weights(tree: PackageTree, main: str, places: list[_Place]) -> dict[str, str]:
    folders = {place.folder for place in places}
    if len(folders) > 1:
        raise InputError(f"variants give {main} different weights", "give each a model file of its own")
    if not main.endswith(".onnx"):
        return {}
    path = tree.root / main
    names = locations(load_onnx(path), path)
    folder = folders.pop()
    return {name: tree.there(_join(folder, name, main), f"external data of {main}") for name in names}


def _resolve(reference: str, base: str, assets: Mapping[Digest, str], at: str) -> tuple[str, str]:
    """The path that a reference means, and the directory that it is relative to: `base`, or that of a shared asset."""
    if not reference.startswith("sha256:"):
        return _join(base, reference, at), base
    uri, _, below = reference.partition("/")
    digest = Digest.parse(uri)
    if digest not in assets:
        raise InputError(
            f"{at} refers to the shared asset {digest}, which is missing", "make the package again"
        )
    return _join(assets[digest], below, at) if below else assets[digest], assets[digest]


def _join(base: str, path: str, at: str) -> str:
    inner = path.removeprefix("./").rstrip("/")
    if path in (".", "./"):
        return base
    try:
        return check_path(f"{base}/{check_path(inner)}" if base else check_path(inner))
    except ValueError as error:
        raise InputError(f"{at} names a file that cannot be in a portable package: {error}") from error
