"""`reg import`: a repository of ONNX files as people publish them on the Hugging Face Hub.

Layouts of Transformers.js and onnx-community (`onnx/model_quantized.onnx`), Optimum (`model.onnx`), sentence-transformers
(`onnx/`, `modules.json`) and plain snapshots. Files keep their paths. What a graph is, is read from the graph: its
precision, its contract, and by its weights which other file it was made from. Certificates are `unknown`.
"""

import filecmp
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, NoReturn

from onnxreg.converters.importers.add_files import adopt
from onnxreg.converters.importers.weight_compare import compare_weights
from onnxreg.converters.onnx.external_data import external_files
from onnxreg.converters.onnx.facts import read_weights
from onnxreg.converters.onnx.onnx_graph import load_onnx
from onnxreg.converters.source.location import check_inside
from onnxreg.converters.source.scrub import read_json
from onnxreg.converters.source.source_files import CONFIG, read_metadata
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.formats.hub_layout import MODEL_SUFFIXES, is_companion, stem_of
from onnxreg.schema.manifest.draft import Draft, DraftArtifact
from onnxreg.schema.manifest.vocabulary import FILENAME

PROFILE = "repository"


def is_repository(directory: Path) -> bool:
    """Return True if there is a model file in a directory or in the folders in it.

    Raises InputError for an export of OpenMed that did not finish: it writes the manifest last. Labels in
    `id2label.json` and models are side by side, with an .ort file or with `max_sequence_length` in `config.json`.
    """
    models = [path for path in _paths(directory) if path.endswith(MODEL_SUFFIXES)]
    beside = [path for path in models if "/" not in path]
    if beside and (directory / "id2label.json").is_file():
        config = read_json(directory / CONFIG) if (directory / CONFIG).is_file() else {}
        is_ort = any(path.endswith(".ort") for path in beside)
        if is_ort or (isinstance(config, dict) and "max_sequence_length" in config):
            raise InputError(
                f"{directory.name} has the files of an export of OpenMed and no {FILENAME}: the export did not finish",
                "the converter writes the manifest last; to register single model files use: reg add FILE... --name NAME",
            )
    return bool(models)


def import_repository(directory: Path, workspace: Path, *, name: str) -> Draft:
    """Adopt the model files of a repository as one version, with the companions that a runtime needs.

    Of files with equal bytes the first is taken. Weights of other frameworks and other files are left out; the recipe
    lists them. Graphs with different stems (`encoder_model`, `decoder_model_merged`) become stages of a pipeline.

    Args:
        directory: the repository's files, as cloned or downloaded.
        workspace: an empty directory, filled with links to the files.
        name: the model's name.

    Raises:
        InputError: as `add_files.adopt`; a link that leads out of the repository.
    """
    paths = [path for path in _paths(directory) if _check_inside(directory, path)]
    models = list(_distinct(directory, [path for path in paths if path.endswith(MODEL_SUFFIXES)]))
    data = {path for model in models for path in _external(directory, model)}
    companions = [path for path in paths if is_companion(path) and path not in data]
    stems = {path: stem_of(path) for path in models}
    members = {directory / path: stem for path, stem in stems.items()} if len(set(stems.values())) > 1 else {}
    files = [directory / path for path in (*models, *companions)]
    draft = adopt(files, workspace, name=name, members=members, root=directory)
    left_out = [path for path in paths if path not in {*models, *companions, *data}]
    fields = {
        **_described(read_metadata(directory), draft.fields),
        "recipe": _recipe(draft.fields["recipe"], left_out),
    }
    return replace(draft, artifacts=tuple(_with_parents(directory, draft.artifacts, stems)), fields=fields)


def _paths(directory: Path) -> list[str]:
    """The files below a directory, sorted; those in hidden folders, and hidden files, are not part of a repository."""
    paths = []
    for root, folders, names in os.walk(directory, onerror=_refuse):
        folders[:] = sorted(folder for folder in folders if not folder.startswith("."))
        files = (Path(root, name) for name in names if not name.startswith("."))
        paths += [file.relative_to(directory).as_posix() for file in files if file.is_file()]
    return sorted(paths, key=lambda path: (path.count("/"), path))


def _refuse(error: OSError) -> NoReturn:
    """A folder that cannot be listed hides files."""
    raise error


def _check_inside(directory: Path, path: str) -> bool:
    """InputError for a link that leads elsewhere."""
    check_inside(directory, directory / path)
    real, root = (directory / path).resolve(), directory.resolve()
    if real.is_relative_to(root) and _is_hidden(real.relative_to(root)):
        raise InputError(
            f"{path} is a link that leads out of {directory.name}", "replace the link by the file"
        )
    return True


def _is_hidden(path: PurePath) -> bool:
    """Return True for a file that is not part of a repository, such as `.git/config`."""
    return any(part.startswith(".") for part in path.parts)


def _distinct(directory: Path, models: Sequence[str]) -> Iterator[str]:
    """The model files without later copies of the same bytes."""
    by_size: dict[int, list[str]] = {}
    for path in models:
        same_size = by_size.setdefault((directory / path).stat().st_size, [])
        if not any(filecmp.cmp(directory / path, directory / other, shallow=False) for other in same_size):
            same_size.append(path)
            yield path


def _external(directory: Path, model: str) -> list[str]:
    """The paths of a graph's external data."""
    if not model.endswith(".onnx"):
        return []
    file = directory / model
    folder = PurePosixPath(model).parent
    paths = [(folder / location) for location in external_files(load_onnx(file), file)]
    if hidden := next(filter(_is_hidden, paths), None):
        raise InputError(f"{model} keeps tensors in {hidden}, which is hidden", "look at who made the file")
    return [path.as_posix() for path in paths]


def _with_parents(
    directory: Path, artifacts: Sequence[DraftArtifact], stems: Mapping[str, str]
) -> Iterator[DraftArtifact]:
    """The artifacts, each with the float32 graph of its stem whose weights it has."""
    parents = [item for item in artifacts if item.precision == "float32" and item.path.endswith(".onnx")]
    for artifact in artifacts:
        matches = (
            parent.path
            for parent in parents
            if artifact not in parents
            and stems[artifact.path] == stems[parent.path]
            and _derived(directory, artifact.path, parent.path)
        )
        yield replace(artifact, parent=next(matches, None))


def _derived(directory: Path, path: str, parent: str) -> bool:
    """Return True if the weights of a graph are those of another, up to what a conversion changes."""
    weights, reference = (read_weights(directory / item) for item in (path, parent))
    try:
        return compare_weights(reference, weights, path, parent) > 0
    except InputError:
        return False


def _described(card: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a version with what its card says of licence, origin and task."""
    base = card.get("base_model")
    statements = {
        "license": card.get("license"),
        "source_model_id": base[0] if isinstance(base, list) and len(base) == 1 else base,
        "task": card.get("pipeline_tag"),
    }
    texts = {
        key: value for key, value in statements.items() if isinstance(value, str) and 0 < len(value) <= 200
    }
    return {**texts, **fields}


def _recipe(recipe: Mapping[str, Any], left_out: Sequence[str]) -> dict[str, Any]:
    (step,) = recipe["steps"]
    result = {**step["result"], "left_out": list(left_out)}
    return {
        **recipe,
        "profile": PROFILE,
        "steps": [{**step, "name": "import", "pass": "import", "result": result}],
    }
