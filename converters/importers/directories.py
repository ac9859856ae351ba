"""Surveys of directories: what `--output` wrote, repositories as people publish them, and exports of OpenMed.

Layouts of repositories: Transformers.js and onnx-community (`onnx/model_quantized.onnx`), Optimum (`model.onnx`),
sentence-transformers (`onnx/`, `modules.json`) and plain snapshots. Files keep their paths. What a graph is, is read from the
graph: its precision, its contract, and by its weights which other file it was made from. Certificates are `unknown`.
"""

import filecmp
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

from onnxreg.converters.importers.intake import Found, Intake
from onnxreg.converters.importers.loose_files import NO_MEMBERS, survey_files
from onnxreg.converters.importers.openmed import survey_openmed
from onnxreg.converters.importers.survey import (
    GRAPHS,
    Difference,
    Model,
    Survey,
    files_below,
    named_file,
    read_graph,
)
from onnxreg.converters.importers.weight_compare import compare_weights
from onnxreg.converters.onnx.facts import GraphFacts, read_weights
from onnxreg.converters.source.location import check_inside
from onnxreg.converters.source.scrub import read_json
from onnxreg.converters.source.source_files import CONFIG, read_metadata
from onnxreg.schema.core import canonical
from onnxreg.schema.core.bounds import MAX_RECORD_BYTES
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.formats.hub_layout import is_companion, stem_of
from onnxreg.schema.manifest.manifest import Artifact, Manifest
from onnxreg.schema.manifest.vocabulary import FILENAME, FORMAT

MINE = f"to make a version of your own of its files: reg add FILE... --name NAME, without {FILENAME}"


def survey_directory(directory: Path, intake: Intake) -> Survey:
    """Survey a directory by what its manifest says that it is; without one it is a repository.

    Raises NotFoundError if it is not there; for InputError see `survey_written`, `survey_openmed` and `survey_repository`.
    """
    if not directory.is_dir():
        raise NotFoundError(
            f"there is no directory {directory.name}", "give the directory that holds the models"
        )
    path = directory / FILENAME
    if not path.is_file():
        return survey_repository(directory, intake)
    if path.stat().st_size > MAX_RECORD_BYTES:
        raise InputError(f"{FILENAME} is larger than a manifest may be: {MAX_RECORD_BYTES} bytes")
    data = path.read_bytes()
    value = canonical.decode(data, FILENAME)
    if isinstance(value, dict) and (value.get("format"), value.get("format_version")) == (FORMAT, 2):
        return survey_written(directory, data, intake)
    return survey_openmed(directory, data, intake)


def survey_written(directory: Path, written: bytes, intake: Intake) -> Survey:
    """The version that `reg pull --output` or `reg export --output` wrote, under its own manifest: the same files give the same digest.

    Each file must have the digest that the manifest states (`Draft.manifest` compares them), and each graph is judged as
    `reg add` judges it. Files that the manifest does not name are left out and reported. A manifest with other spaces,
    as another tool writes it, is the same manifest. In a run directory `--output` is `exports/`, without that beginning of
    the paths: so `exports/model.onnx` of the manifest is also looked for as `model.onnx`.

    Raises InputError for a manifest of another name, one with an edit that contradicts the rest, a missing file, and a
    manifest that says something else than the graphs do.
    """
    data = canonical.encode(canonical.decode(written, FILENAME))
    try:
        manifest = Manifest.decode(data)
    except InputError as error:
        edited = "was edited by another tool" if written != data else "is not valid"
        raise InputError(f"{FILENAME} {edited}: {error.message}", MINE) from error
    if manifest.name != intake.name:
        raise InputError(
            f"{FILENAME} is of {manifest.name}, not {intake.name}", f"use --name {manifest.name}"
        )
    intake.look_below(directory)
    by_path = {}
    for entry in manifest.all_files():
        short = entry.path.removeprefix("exports/")
        is_short = (directory / short).exists() and not (directory / entry.path).exists()
        file = named_file(directory, short if is_short else entry.path, entry.role)
        by_path[entry.path] = Found(entry.role, file, entry.path)
    models = []
    for artifact in manifest.artifacts:
        files = [by_path[entry.path] for entry in artifact.files]
        main, facts = by_path[artifact.path], None
        if artifact.path.endswith(GRAPHS):
            facts = read_graph(main.file)
            _check_stated(artifact, facts)
        models.append(Model(main, facts, tuple(files), artifact.format, artifact.precision))
    companions = tuple(by_path[entry.path] for entry in manifest.files)
    named = {directory / FILENAME, *(item.file for item in by_path.values())}
    left_out = [path for path in files_below(directory) if directory / path not in named]
    differences = tuple(Difference(path, None, "not named by the manifest; left out") for path in left_out)
    return Survey(tuple(models), companions, "", differences=differences, hint=MINE, document=data)


def _check_stated(artifact: Artifact, facts: GraphFacts) -> None:
    """InputError for a graph of which the manifest says something else."""
    stated, (inputs, outputs) = artifact.metadata, (facts.inputs, facts.outputs)
    for field, claimed, read in (("inputs", stated.inputs, inputs), ("outputs", stated.outputs, outputs)):
        if [(spec.name, spec.dtype) for spec in claimed] != [(spec.name, spec.dtype) for spec in read]:
            raise InputError(f"{FILENAME} states other {field} of {artifact.path} than the file has", MINE)
    if set(stated.operators) != set(facts.operator_names):
        raise InputError(f"{FILENAME} states other operators of {artifact.path} than the file has", MINE)


def survey_repository(directory: Path, intake: Intake) -> Survey:
    """The model files of a repository as one version, with the companions that a runtime needs.

    Of files with equal bytes the first is taken. Weights of other frameworks and other files are left out; the recipe
    lists them. Graphs with different stems (`encoder_model`, `decoder_model_merged`) become stages of a pipeline.

    Raises InputError as `survey_files`, for a link that leads out of the repository, and for an export of OpenMed that did not
    finish.
    """
    paths = _paths(directory)
    _refuse_unfinished(directory, [path for path in paths if path.endswith(GRAPHS)])
    names = list(_distinct(directory, [path for path in paths if path.endswith(GRAPHS)]))
    stems = {directory / path: stem_of(path) for path in names}
    members = stems if len(set(stems.values())) > 1 else NO_MEMBERS
    files = [directory / path for path in (*names, *filter(is_companion, paths))]
    survey = survey_files(files, intake, members=members, root=directory)
    taken = {file.path for file in survey.companions}
    for model in survey.models:
        taken |= {model.path, *(file.path for file in model.files)}
        if hidden := next((file for file in model.files if _is_hidden(PurePath(file.path))), None):
            message = f"{model.path} keeps tensors in {hidden.path}, which is hidden"
            raise InputError(message, "look at who made the file")
    return replace(
        survey,
        models=tuple(_with_parents(survey.models)),
        profile="repository",
        step="import",
        result={"left_out": [path for path in paths if path not in taken]},
        fields=_stated(read_metadata(directory)),
    )


def _paths(directory: Path) -> list[str]:
    """The files below a directory, those at the root first; hidden ones are not part of a repository.

    Raises InputError for a link that leads elsewhere.
    """
    paths = [path for path in files_below(directory) if not _is_hidden(PurePath(path))]
    root = directory.resolve()
    for path in paths:
        check_inside(directory, directory / path)
        real = (directory / path).resolve()
        if real.is_relative_to(root) and _is_hidden(real.relative_to(root)):
            message = f"{path} is a link that leads out of {directory.name}"
            raise InputError(message, "replace the link by the file")
    return sorted(paths, key=lambda path: (path.count("/"), path))


def _refuse_unfinished(directory: Path, models: Sequence[str]) -> None:
    """InputError without models, and for an export of OpenMed that did not finish: it writes the manifest last.

    Labels in `id2label.json` and models are side by side, with an .ort file or with `max_sequence_length` in `config.json`.
    """
    hint = "the converter writes the manifest last; to register single model files use: reg add FILE... --name NAME"
    if not models:
        raise InputError(f"{directory.name} has no {FILENAME}: it is not a finished export", hint)
    beside = [path for path in models if "/" not in path]
    if beside and (directory / "id2label.json").is_file():
        config = read_json(directory / CONFIG) if (directory / CONFIG).is_file() else {}
        is_ort = any(path.endswith(".ort") for path in beside)
        if is_ort or (isinstance(config, dict) and "max_sequence_length" in config):
            message = (
                f"{directory.name} has the files of an export of OpenMed and no {FILENAME}: "
                "the export did not finish"
            )
            raise InputError(message, hint)


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


def _with_parents(models: Sequence[Model]) -> Iterator[Model]:
    """The models, each with the float32 graph of its stem whose weights it has, up to what a conversion changes."""

    def is_derived(model: Model, parent: Model) -> bool:
        weights, reference = (read_weights(item.main.file) for item in (model, parent))
        try:
            return compare_weights(reference, weights, model.path, parent.path) > 0
        except InputError:
            return False

    parents = [
        model
        for model in models
        if model.facts is not None and model.facts.precision == "float32" and model.path.endswith(".onnx")
    ]
    for model in models:
        candidates = [parent for parent in parents if model not in parents and model.member == parent.member]
        yield replace(model, parent=next((item.path for item in candidates if is_derived(model, item)), None))


def _stated(card: Mapping[str, Any]) -> dict[str, Any]:
    """The statements of a card on licence, origin and task."""
    base = card.get("base_model")
    statements = {
        "license": card.get("license"),
        "source_model_id": base[0] if isinstance(base, list) and len(base) == 1 else base,
        "task": card.get("pipeline_tag"),
    }
    return {
        key: value for key, value in statements.items() if isinstance(value, str) and 0 < len(value) <= 200
    }
