"""Make a draft of existing files: check them, place them in a workspace, and describe the version."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxreg.converters.importers import survey
from onnxreg.converters.importers.intake import Adopted, Difference, Found, Intake
from onnxreg.converters.importers.openmed import survey_openmed
from onnxreg.converters.onnx.facts import GraphFacts, with_kv_caches
from onnxreg.converters.source.source_files import below, read_json, read_object
from onnxreg.converters.tasks.task import head_of, modality_of
from onnxreg.schema.core import canonical
from onnxreg.schema.core.bounds import MAX_RECORD_BYTES
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.core.ref import check_name
from onnxreg.schema.manifest.draft import DraftFile
from onnxreg.schema.manifest.manifest import Artifact, Manifest
from onnxreg.schema.manifest.vocabulary import FILENAME, FORMAT

MINE = f"to make a version of your own of its files: reg add FILE... --name NAME, without {FILENAME}"
_CLASSIFIERS = frozenset({"token-classification", "text-classification", "image-classification"})


def adopt(
    source: Path | Sequence[Path], workspace: Path, *, name: str, is_foreign: bool = False, **options: Any
) -> Adopted:
    """Make a draft of a directory, or of a list of .onnx and .ort files and their companions.

    `workspace` is an empty directory. `options` are arguments of `survey.of_files`. With `is_foreign`, the verdicts of a
    manifest do not count. Raises NotFoundError or InputError if the files cannot make a version.
    """
    intake = Intake(workspace, check_name(name))
    if not isinstance(source, Path):
        return _adopt(survey.of_files(source, intake, **options), intake)
    if not source.is_dir():
        raise NotFoundError(f"there is no directory {source.name}", "give a directory; `reg add` takes files")
    path = source / FILENAME
    if not path.is_file():
        return _adopt(survey.of_repository(source, intake), intake)
    if path.stat().st_size > MAX_RECORD_BYTES:
        raise InputError(f"{FILENAME} is larger than a manifest may be: {MAX_RECORD_BYTES} bytes")
    data = path.read_bytes()
    value = canonical.decode(data, FILENAME)
    if isinstance(value, dict) and (value.get("format"), value.get("format_version")) == (FORMAT, 2):
        if not is_foreign:
            return _adopt_written(source, data, intake)
        intake.warnings.append(f"{FILENAME} is left out: the verdicts in it are its publisher's, not yours")
        return _adopt(survey.of_repository(source, intake), intake)
    return _adopt(survey_openmed(source, data, intake), intake)


def _adopt_written(directory: Path, written: bytes, intake: Intake) -> Adopted:
    """Make a draft with the manifest of a directory that `reg pull --output` or `reg export --output` wrote."""
    data = canonical.encode(canonical.decode(written, FILENAME))
    try:
        manifest = Manifest.decode(data)
    except InputError as error:
        edited = "was edited by another tool" if written != data else "is not valid"
        raise InputError(f"{FILENAME} {edited}: {error.message}", MINE) from error
    if manifest.name != intake.name:
        message = f"{FILENAME} is of {manifest.name}, not {intake.name}"
        raise InputError(message, f"use --name {manifest.name}")
    for existing in below(directory):
        intake.look(existing)
    by_path = {}
    for entry in manifest.all_files():
        short = entry.path.removeprefix("exports/")  # written into `exports/` of a run directory
        is_short = (directory / short).exists() and not (directory / entry.path).exists()
        file = survey.named_file(directory, short if is_short else entry.path, entry.role)
        by_path[entry.path] = Found(entry.role, file, entry.path)
    for artifact in manifest.artifacts:
        if artifact.path.endswith(survey.GRAPHS):
            main = by_path[artifact.path]
            facts, _ = survey.read_graph(main, intake)
            _check_stated(artifact, facts)
            survey.describe_model([main], facts, artifact.format, hint=MINE)  # refuses another format
    files = tuple(map(intake.take, by_path.values()))
    if intake.scrubbed:
        raise InputError(f"{min(intake.scrubbed)} names a path of a machine, which is not published", MINE)
    named = {directory / FILENAME, *(item.file for item in by_path.values())}
    left_out = [path for path in survey.files_below(directory) if directory / path not in named]
    differences = [Difference(path, None, "not named by the manifest; left out") for path in left_out]
    return intake.draft((), files, document=data), differences


def _check_stated(artifact: Artifact, facts: GraphFacts) -> None:
    stated, (inputs, outputs) = artifact.metadata, (facts.inputs, facts.outputs)
    for side, claimed, read in (("inputs", stated.inputs, inputs), ("outputs", stated.outputs, outputs)):
        if [(spec.name, spec.dtype) for spec in claimed] != [(spec.name, spec.dtype) for spec in read]:
            raise InputError(f"{FILENAME} states other {side} of {artifact.path} than the file has", MINE)
    if set(stated.operators) != set(facts.operator_names):
        raise InputError(f"{FILENAME} states other operators of {artifact.path} than the file has", MINE)


def _adopt(source: survey.Survey, intake: Intake) -> Adopted:
    companions = tuple(map(intake.take, source.companions))
    for file in (file for model in source.models for file in model.files):
        intake.take(file)
    artifacts = tuple(model.artifact for model in source.models)
    described = _companion_fields(intake.workspace, companions)
    fields = {**source.fields, **described}
    for model in () if "model_family" in fields else source.models:
        classes, labels = model.facts and survey.class_count(model.facts), described.get("labels")
        if labels is not None and classes is not None and len(labels) != classes:
            message = f"{model.path} has {classes} classes, but the labels beside it are {len(labels)}"
            hint = "use the id2label.json and config.json that were exported with this model"
            raise InputError(message, hint)
    claimed, tokenizer = source.claims.get("tokenizer") or {}, described.get("tokenizer") or {}
    formats = list(dict.fromkeys(artifact.format for artifact in artifacts))
    stated = ("task", "family", "max_sequence_length", "formats")
    differences = [
        *survey.compare(source.claims, described | {"formats": formats}, "", stated),
        *survey.compare(claimed, tokenizer, "tokenizer", ["files"]),
        *source.differences,
    ]
    result = {"scrubbed": sorted(intake.scrubbed), **source.result}
    if source.claims:
        result["differences"] = [difference.path for difference in differences]
    step = {"name": source.step, "pass": source.step, "version": 1, "params": source.params, "result": result}
    fields["recipe"] = {"profile": source.profile, "profile_version": 1, "steps": [step], "tools": {}}
    return with_kv_caches(intake.draft(artifacts, companions, fields=fields)), differences


def _companion_fields(root: Path, companions: Iterable[DraftFile]) -> dict[str, Any]:
    paths: dict[str, list[str]] = {}
    for companion in companions:
        paths.setdefault(companion.role, []).append(companion.path)
    fields: dict[str, Any] = {}
    if "config" in paths:
        path = root / paths["config"][0]
        config, modality = read_object(path), modality_of(path.parent)
        fields["config_path"] = paths["config"][0]
        if head := head_of(config, None if modality == "text" else modality):
            fields["task"] = head.task
        if isinstance(config.get("model_type"), str):
            fields["family"] = config["model_type"]
        if (length := _longest(path.parent, config)) is not None:
            fields["max_sequence_length"] = length
        if config.get("id2label"):
            fields["labels"] = _parse_labels(config["id2label"], f"id2label in {path.name}")
    if "labels" in paths:
        path = root / paths["labels"][0]
        labels = _parse_labels(read_json(path), path.name)
        if fields.get("labels", labels) != labels and fields.get("task") in _CLASSIFIERS:
            hint = "they come from two models; use the pair that was exported with this one"
            raise InputError("id2label.json and config.json name different labels", hint)
        fields |= {"labels": labels, "label_map_path": paths["labels"][0]}
    elif fields.get("task") not in _CLASSIFIERS:
        fields.pop("labels", None)
    if "tokenizer" in paths:
        fields["tokenizer"] = {"path": ".", "files": sorted(paths["tokenizer"])}
    return fields


def _longest(directory: Path, config: Mapping[str, Any]) -> int | None:
    """Return the maximum number of tokens. A limit of the tokenizer or of sentence-transformers can only lower it.

    Models like RoBERTa number positions from `pad_token_id + 1`, so their 514 positions are enough for 512 tokens only.
    """
    length, padding = config.get("max_position_embeddings"), config.get("pad_token_id")
    if type(length) is int and type(padding) is int and (length - padding - 1).bit_count() == 1:
        length -= padding + 1
    limits = [
        config.get("max_sequence_length") or length,
        read_object(directory / "tokenizer_config.json").get("model_max_length"),
        read_object(directory / "sentence_bert_config.json").get("max_seq_length"),
    ]
    given = [limit for limit in limits if type(limit) is int and limit > 0]
    return min(given) if limits[0] in given else None


def _parse_labels(value: Any, origin: str) -> list[str]:
    """Return the labels of an `id2label` object: `{"0": "O", "1": "B-NAME"}` gives `["O", "B-NAME"]`."""
    ok = isinstance(value, dict) and all(isinstance(label, str) for label in value.values())
    if ok and set(value) == {str(index) for index in range(len(value))} and value:
        return [value[str(index)] for index in range(len(value))]
    message = f"{origin} is not a label map"
    raise InputError(message, 'expected {"0": "O", "1": "B-NAME", ...} with every class index from 0 on')
