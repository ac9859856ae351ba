"""Surveys of model files of any origin, with the companions that a person or a repository puts beside them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from types import MappingProxyType

from onnxreg.converters.importers.intake import Found, Intake
from onnxreg.converters.importers.survey import GRAPHS, Model, Survey, external_data, read_graph
from onnxreg.converters.onnx.facts import weight_type
from onnxreg.converters.runtime import golden
from onnxreg.converters.source.source_files import role_of
from onnxreg.schema.core.errors import InputError, NotFoundError
from onnxreg.schema.manifest.family import MEMBERS_ADVICE, Graph, check_alternatives
from onnxreg.schema.manifest.vocabulary import FILENAME

NO_MEMBERS: Mapping[Path, str] = MappingProxyType({})


def survey_files(
    files: Sequence[Path],
    intake: Intake,
    *,
    format: str | None = None,
    precision: str | None = None,
    members: Mapping[Path, str] = NO_MEMBERS,
    parent: Path | None = None,
    root: Path | None = None,
) -> Survey:
    """Survey .onnx and .ort files with the companions among `files`; all facts are read from the files.

    External data is found from the model and need not be named. An operator config (`<stem>.*.config`) belongs to
    the .ort file of its stem, or to the only one; golden vectors to the model before `.golden.json`.

    Args:
        files: the files to register; any order.
        format, precision: what to call the artifacts, instead of what their weights say.
        members: the stage of a pipeline that each model is; none for models that are alternatives.
        parent: the model that all others were made from.
        root: the directory from which files keep their paths; without it each is placed by its name.

    Raises:
        NotFoundError: a file is not there.
        InputError: no model among the files, a file that is not what its suffix says or that nothing can run, models of one
            stage whose inputs or outputs differ, a model without a stage beside others, a parent without others, a stated
            precision that contradicts the graph.
    """

    def found(file: Path, role: str) -> Found:
        return Found(role, file, file.name if root is None else file.relative_to(root).as_posix())

    paths = [file for file in dict.fromkeys(files) if file.suffix in GRAPHS]
    others = [file for file in dict.fromkeys(files) if file.suffix not in GRAPHS]
    _refuse_unfit(paths, others)
    _check_members(members, paths)
    if parent is not None and parent not in paths:
        raise InputError(f"{parent} is not one of the models", "name the parent among the files, too")
    if parent is not None and len(paths) == 1:
        hint = "name the files that were made from it too, or leave --parent out"
        raise InputError(f"{parent} is the only model, so no other can be compared with it", hint)
    configs = _match_configs(paths, [file for file in others if role_of(file.name) == "operator-config"])
    vectors = {model: file for model in paths for file in others if file.name == f"{model.name}.golden.json"}
    for file in (*paths, *others):
        intake.look(file)
    models = []
    for path in paths:
        main, facts = found(path, "model"), read_graph(path, intake)
        own = list(external_data(main, facts))
        if path in configs:
            own.append(found(configs[path], "operator-config"))
        if path in vectors:
            golden.decode(vectors[path].read_bytes(), vectors[path].name)
            own.append(found(vectors[path], golden.ROLE))
        is_uniform = facts.weights.weights_total > 0 and facts.precision != "mixed"
        fitting = (None, facts.precision, weight_type(facts.precision))
        if is_uniform and precision not in fitting:
            raise InputError(
                f"{path.name} has {facts.precision} weights, not {precision}", "leave --precision out"
            )
        made_from = None if parent is None or parent == path else found(parent, "model").path
        models.append(Model(main, facts, tuple(own), format, precision, members.get(path), made_from))
    _check_contracts(models)
    placed = {intake.resolved(file.file) for model in models for file in model.files}
    companions = []
    for file in others:
        is_deep = root is not None and file.parent != root
        if intake.resolved(file) not in placed:  # one in a folder belongs to another library
            companions.append(found(file, "other" if is_deep else role_of(file.name)))
    stated = (("format", format), ("precision", precision))
    params = {key: value for key, value in stated if value is not None}
    return Survey(tuple(models), tuple(companions), "as-is", "add", params)


def _refuse_unfit(models: list[Path], companions: list[Path]) -> None:
    """NotFoundError for what is not there, InputError for what is not a file, or cannot be a part of a version."""
    for file in (*models, *companions):
        if not file.exists():
            raise NotFoundError(f"there is no file {file}", "check the path")
        if file.is_dir():
            import_it = f"take it whole: reg import {quote(str(file))} --name NAME"
            hint = import_it if (file / FILENAME).is_file() else f"name the files in it: {quote(str(file))}/*"
            raise InputError(f"{file} is a directory", hint)
        if not file.is_file():
            raise InputError(f"{file} is not a regular file", "put its bytes into a file first")
    if upper_case := [file for file in companions if file.suffix.lower() in GRAPHS]:
        lower = upper_case[0].with_suffix(upper_case[0].suffix.lower())
        raise InputError(f"the suffix of {upper_case[0]} is not in lower case", f"rename it to {lower.name}")
    if not models:
        raise InputError("there is no .onnx or .ort file among the files", "name at least one model file")
    if any(file.name == FILENAME for file in companions):
        raise InputError(
            f"{FILENAME} is a manifest, not a companion",
            "leave it out, or take the whole directory: reg import DIRECTORY --name NAME",
        )


def _check_members(members: Mapping[Path, str], models: Sequence[Path]) -> None:
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


def _check_contracts(models: Sequence[Model]) -> None:
    """InputError if models that are alternatives, all or those of one member, differ in what they take or give."""
    groups: dict[str | None, dict[str, Graph]] = {}
    for model in models:
        assert model.facts is not None
        inputs, outputs = (
            {spec.name: spec.tensor for spec in side} for side in (model.facts.inputs, model.facts.outputs)
        )
        groups.setdefault(model.member, {})[model.path] = inputs, outputs
    for name, graphs in groups.items():
        check_alternatives(
            graphs, MEMBERS_ADVICE if name is None else f"both are called {name}: give each its own name"
        )
