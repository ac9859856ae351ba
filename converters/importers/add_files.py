"""`reg add`: registering model files that exist already, made by whatever tool."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from posixpath import dirname, join
from shlex import quote
from types import MappingProxyType
from typing import Any

from onnxreg.converters.importers.import_files import Intake
from onnxreg.converters.importers.judge_files import (
    check_format,
    check_labels,
    default_format,
    describe,
    read_model,
)
from onnxreg.converters.onnx.facts import GraphFacts, weight_type, with_kv_caches
from onnxreg.converters.onnx.mobile_rules import android_warnings
from onnxreg.converters.runtime import golden
from onnxreg.converters.source.source_files import role_of
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.core.ref import check_name
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile
from onnxreg.schema.manifest.family import MEMBERS_ADVICE, Graph, check_alternatives, pipeline_of
from onnxreg.schema.manifest.vocabulary import FILENAME

PROFILE = "as-is"
_MODELS = (".onnx", ".ort")
NO_MEMBERS: Mapping[Path, str] = MappingProxyType({})


def adopt(
    files: Sequence[Path],
    workspace: Path,
    *,
    name: str,
    format: str | None = None,
    precision: str | None = None,
    members: Mapping[Path, str] = NO_MEMBERS,
    root: Path | None = None,
) -> Draft:
    """Register existing .onnx and .ort files with the companions among `files`; all facts are read from the files.

    External data is found from the model and need not be named. An operator config (`<stem>.*.config`) belongs to
    the .ort file of its stem, or to the only one; golden vectors to the model before `.golden.json`. Everything is placed in `workspace` by its file name, as a
    link where possible; text that names this machine is scrubbed, and the recipe says where.

    Args:
        files: the files to register; any order.
        workspace: an empty directory.
        format, precision: what to call the artifacts, instead of what their weights say.
        members: the stage of a pipeline that each model is; none for models that are alternatives.
        root: the directory from which files keep their paths; without it each is placed by its name.

    Raises:
        NotFoundError: a file is not there.
        InputError: no model among the files, two of one name, a pickle, a file that is not what its suffix says or that
            nothing can run, models of one stage whose inputs or outputs differ, a model without a stage beside others,
            labels or a stated format or precision that contradict the graph.
    """
    check_name(name)
    intake = Intake(workspace, name, root=root)
    models = [file for file in dict.fromkeys(files) if file.suffix in _MODELS]
    others = [file for file in dict.fromkeys(files) if file.suffix not in _MODELS]
    _refuse_unfit(models, others)
    check_named(members, models)
    configs = _match_configs(models, [file for file in others if role_of(file.name) == "operator-config"])
    vectors = {model: file for model in models for file in others if file.name == f"{model.name}.golden.json"}
    for file in (*models, *others):
        intake.look(file)
    read = [(model, read_model(model, configs.get(model), intake.look)) for model in models]
    artifacts = [
        _artifact(intake, *item, _own_files(item[0], configs, vectors), format, precision) for item in read
    ]
    check_contracts(intake.path_of, dict(read), members)
    sidecars = [model.parent / path for model, facts in read for path in facts.external_data]
    companions = _companions(intake, others, [*sidecars, *configs.values(), *vectors.values()])
    fields = describe(workspace, companions)
    if members:
        fields["model_family"] = pipeline_of({intake.path_of(model): members[model] for model in models})
    else:
        for model, facts in read:
            check_labels(fields, facts, model.name)
    fields["recipe"] = _recipe(format, precision, intake.scrubbed)
    draft = Draft(name, workspace, tuple(artifacts), companions, fields, intake.file_states)
    return with_kv_caches(draft)


def _refuse_unfit(models: list[Path], companions: list[Path]) -> None:
    for file in (*models, *companions):
        _refuse_irregular(file)
    upper_case = [file for file in companions if file.suffix.lower() in _MODELS]
    if upper_case:
        lower = upper_case[0].with_suffix(upper_case[0].suffix.lower())
        raise InputError(f"the suffix of {upper_case[0]} is not in lower case", f"rename it to {lower.name}")
    if not models:
        raise InputError("there is no .onnx or .ort file among the files", "name at least one model file")
    if any(file.name == FILENAME for file in companions):
        raise InputError(
            f"{FILENAME} is a manifest, not a companion",
            "leave it out, or take the whole directory: reg import DIRECTORY --name NAME",
        )


def _refuse_irregular(file: Path) -> None:
    """NotFoundError for what is not there, InputError for a directory, a pipe or a device."""
    if not file.exists():
        raise NotFoundError(f"there is no file {file}", "check the path")
    if (file / FILENAME).is_file():
        raise InputError(
            f"{file} is a directory", f"take it whole: reg import {quote(str(file))} --name NAME"
        )
    if file.is_dir():
        raise InputError(f"{file} is a directory", f"name the files in it: {quote(str(file))}/*")
    if not file.is_file():
        raise InputError(f"{file} is not a regular file", "put its bytes into a file first")


def _companions(intake: Intake, files: Sequence[Path], sidecars: Sequence[Path]) -> tuple[DraftFile, ...]:
    """Place the files that belong to no single model."""
    placed = set(map(intake.resolved, sidecars))
    return tuple(
        DraftFile(_role_of(intake.path_of(file)), intake.take(file, intake.path_of(file)))
        for file in files
        if intake.resolved(file) not in placed
    )


def _role_of(path: str) -> str:
    """The role of a companion. One in a folder belongs to another library, whatever its name."""
    return "other" if "/" in path else role_of(path)


def _match_configs(models: list[Path], configs: list[Path]) -> dict[Path, Path]:
    ort = [model for model in models if model.suffix == ".ort"]
    matched: dict[Path, Path] = {}
    for config in configs:
        candidates = [model for model in ort if config.name.startswith(f"{model.stem}.")] or ort
        if len(candidates) != 1 or candidates[0] in matched:
            raise InputError(
                f"cannot tell which .ort file {config.name} belongs to",
                "name it as the converter does: <model>.required_operators_and_types.config beside <model>.ort",
            )
        matched[candidates[0]] = config
    return matched


def _own_files(model: Path, configs: dict[Path, Path], vectors: dict[Path, Path]) -> list[tuple[str, Path]]:
    """The operator config and the golden vectors of a model, with their roles.

    Raise InputError if these are invalid.
    """
    files = []
    if model in configs:
        files.append(("operator-config", configs[model]))
    if model in vectors:
        golden.decode(vectors[model].read_bytes(), vectors[model].name)
        files.append((golden.ROLE, vectors[model]))
    return files


def _artifact(
    intake: Intake,
    model: Path,
    facts: GraphFacts,
    files: list[tuple[str, Path]],
    format: str | None,
    precision: str | None,
) -> DraftArtifact:
    path = intake.take(model, intake.path_of(model))
    sidecars = [
        DraftFile("external-data", intake.take(model.parent / location, join(dirname(path), location)))
        for location in facts.external_data
    ]
    sidecars += [DraftFile(role, intake.take(file, intake.path_of(file))) for role, file in files]
    if format is not None:
        check_format(format, facts, model.name)
    fitting = (facts.precision, weight_type(facts.precision))
    is_uniform = facts.weights.weights_total > 0 and facts.precision != "mixed"
    if precision is not None and is_uniform and precision not in fitting:
        raise InputError(
            f"{model.name} has {facts.precision} weights, not {precision}", "leave --precision out"
        )
    chosen = format or default_format(facts)
    return DraftArtifact(
        chosen, precision or facts.precision, path, tuple(sidecars), fields=graph_fields(facts, chosen)
    )


def graph_fields(facts: GraphFacts, format: str) -> dict[str, Any]:
    """The facts of the file itself, for `DraftArtifact.fields`."""
    fields = facts.fields()
    if format.endswith("-android"):
        unsupported, warnings = android_warnings(facts.operator_names)
        fields["metadata"] |= {"unsupported_ops": list(unsupported), "warnings": list(warnings)}
    if facts.weights.weights_quantized:
        fields["quantization"] = {"requested": {}, "measured": facts.weights.to_json()}
    return fields


def _recipe(format: str | None, precision: str | None, scrubbed: list[str]) -> dict[str, Any]:
    params = {
        key: value for key, value in (("format", format), ("precision", precision)) if value is not None
    }
    step = {
        "name": "add",
        "pass": "add",
        "version": 1,
        "params": params,
        "result": {"scrubbed": sorted(scrubbed)},
    }
    return {"profile": PROFILE, "profile_version": 1, "steps": [step], "tools": {}}


def check_named(members: Mapping[Path, str], models: Sequence[Path]) -> None:
    """Raise InputError if only some models are named, or a named file is not a model."""
    if unknown := [file for file in members if file not in models]:
        raise InputError(
            f"{unknown[0].name} is not a model, so it cannot be a member", "name a .onnx or .ort file"
        )
    if members and (nameless := [model for model in models if model not in members]):
        raise InputError(
            f"{nameless[0].name} has no name, and other models have one",
            f"--member NAME={nameless[0].name}, for each model of the pipeline",
        )


def check_contracts(
    path_of: Callable[[Path], str], read: Mapping[Path, GraphFacts], members: Mapping[Path, str]
) -> None:
    """InputError if models that are alternatives, all or those of one member, differ in what they take or give."""
    groups: dict[str | None, dict[str, Graph]] = {}
    for model, facts in read.items():
        groups.setdefault(members.get(model), {})[path_of(model)] = _graph(facts)
    for name, graphs in groups.items():
        check_alternatives(
            graphs, MEMBERS_ADVICE if name is None else f"both are called {name}: give each its own name"
        )


def _graph(facts: GraphFacts) -> Graph:
    inputs, outputs = ({spec.name: spec.tensor for spec in side} for side in (facts.inputs, facts.outputs))
    return inputs, outputs
