"""Survey a source: its graphs with their facts, and its other files with their roles."""

import filecmp
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath, PurePosixPath
from shlex import quote
from typing import Any

from onnxreg.converters.importers.intake import Difference, Found, Intake
from onnxreg.converters.onnx.facts import LABEL_OUTPUT, GraphFacts, inspect_file, read_weights, weight_type
from onnxreg.converters.onnx.mobile_rules import android_warnings, check_contract
from onnxreg.converters.onnx.onnx_graph import check_model, external_files, load_onnx, scrub_metadata
from onnxreg.converters.onnx.tensors import FLOATS
from onnxreg.converters.runtime import golden
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.source.source_files import below, check_inside, read_metadata, role_of
from onnxreg.schema.core.errors import ConversionError, InputError, NotFoundError, RegError
from onnxreg.schema.formats.hub_layout import PIPELINE_TAGS, is_companion, stem_of
from onnxreg.schema.manifest.draft import NOT_EVALUATED, DraftArtifact, DraftFile, Verdict
from onnxreg.schema.manifest.family import MEMBERS_ADVICE, Graph, check_alternatives, pipeline_of
from onnxreg.schema.manifest.vocabulary import FILENAME

FLOAT_TOLERANCE = 1e-6  # the relative change of a float32 weight that constant folding may cause
HALF_TOLERANCE, HALF_TINY, HALF_MAX = 2.0**-10, 1e-7, 65504.0
"""The relative and absolute tolerance of float16 weights, and the largest float16."""
BLOCK_ELEMENTS = 2**20
MAX_QUANTIZATION_STEPS = 1.001
"""The largest allowed difference between a dequantized weight and its original, in steps of the scale."""
GRAPHS = (".onnx", ".ort")


@dataclass(frozen=True)
class Model:
    """A described model. `facts` is None if its format cannot be read. `files` begins with the graph."""

    artifact: DraftArtifact
    facts: GraphFacts | None
    files: tuple[Found, ...]

    @property
    def path(self) -> str:
        return self.artifact.path


@dataclass(frozen=True)
class Survey:
    """The models of a source, and what else a version of them needs.

    `profile`, `step`, `params` and `result` are for the recipe. `fields` are keys of the manifest. `claims` is a
    document of the source. `differences` are its claims that the graphs contradict.
    """

    models: tuple[Model, ...]
    companions: tuple[Found, ...]
    profile: str
    step: str = "import"
    params: Mapping[str, Any] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    claims: Mapping[str, Any] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()


def describe_model(
    files: Sequence[Found],
    facts: GraphFacts | None,
    format: str | None = None,
    precision: str | None = None,
    parent: str | None = None,
    verdict: Verdict = NOT_EVALUATED,
    is_android: bool = False,
    stated: Mapping[str, Any] = {},
    hint: str = "leave --format out, or correct it",
) -> Model:
    """Describe a model. `files` are its graph, then other files that only this model uses.

    `format`, `precision` and `stated` (fields of the artifact) replace what `facts` says. Only the field `metadata` is
    merged: the artifact has the keys in `stated` and those in `facts`. Raises InputError with the `hint` if the graph
    contradicts the format or breaks android's contract.
    """
    main, *sidecars = files
    fields = dict(stated)
    if facts is not None:
        actual, format, precision = facts.format, format or facts.format, precision or facts.precision
        is_ort, kinds = actual == "ort", ("int8", "int4")
        is_wrong = any(format.endswith(f"-{kind}") and not actual.endswith(kind) for kind in kinds)
        if is_ort != format.startswith("ort") or (is_wrong and not is_ort):
            raise InputError(f"{main.path} is not {format}: the file itself says {actual}", hint)
        metadata = fields.get("metadata", {})
        read = facts.fields(metadata.get("quantization"))
        metadata = metadata | read["metadata"]
        if is_android or format.endswith("-android"):
            try:
                check_contract(facts, main.path, class_count(facts) or 0)
            except ConversionError as error:
                raise InputError(error.message, hint) from error
            metadata |= android_warnings(facts.operator_names)
        fields = {**read, **fields, "metadata": metadata}
    beside = tuple(DraftFile(file.role, file.path) for file in sidecars)
    format, precision = format or "unknown", precision or "unknown"
    artifact = DraftArtifact(format, precision, main.path, beside, parent, verdict, fields)
    return Model(artifact, facts, tuple(files))


def class_count(facts: GraphFacts) -> int | None:
    """Return the last dimension of the output `logits`; None if it is dynamic or there is no such output."""
    outputs = (item for item in facts.outputs if item.name == LABEL_OUTPUT and len(item.shape) > 1)
    return next((output.shape[-1].value for output in outputs), None)


def read_graph(main: Found, intake: Intake) -> tuple[GraphFacts, list[Found]]:
    """Read an .onnx or .ort file: its facts, and its files of external data. Raise InputError if it is not valid."""
    file = main.file
    if file.suffix == ".ort":
        return inspect_file(file), []
    model = load_onnx(file)
    for location in external_files(model, file):  # before it is read
        intake.look(file.parent / location)
    facts, folder = inspect_file(file, model), PurePosixPath(main.path).parent
    try:
        check_model(model, file)
    except InputError as error:
        try:  # ONNX Runtime has operators that ONNX's checker lacks
            load_session(file, name=file.name)
        except RegError:
            raise error from None
    if keys := scrub_metadata(model, file.parent):
        intake.warnings.append(
            f"{main.path} has notes on how it was made ({keys[0][:80]}), and is registered as it is; without them: "
            f"reg export {quote(main.path)} --name NAME"
        )
    pairs = [(file.parent / location, (folder / location).as_posix()) for location in facts.external_data]
    return facts, [Found("external-data", *pair) for pair in pairs]


def compare(
    claimed: Mapping[str, Any], actual: Mapping[str, Any], at: str, keys: Iterable[str]
) -> list[Difference]:
    """Return a difference for each wrong claim. A claim of None is ignored, and so is the order of a list of names."""

    def comparable(value: Any) -> Any:
        is_names = isinstance(value, list) and all(isinstance(item, str) for item in value)
        return sorted(value) if is_names else value

    prefix = f"{at}." if at else ""
    return [
        Difference(f"{prefix}{key}", claimed[key], actual.get(key))
        for key in keys
        if claimed.get(key) is not None and comparable(claimed[key]) != comparable(actual.get(key))
    ]


def files_below(root: Path, folder: str = "") -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in below(root / folder))


def named_file(root: Path, path: str, role: str) -> Path:
    """Return the file at a manifest's path. Raise InputError if it is missing, or if it is a link out of `root`."""
    file = root / path
    if not file.is_file():
        message = f"the manifest names the {role} {path}, which is missing"
        raise InputError(message, "copy the whole directory again, or export the model again")
    check_inside(root, file)
    return file


def of_files(
    files: Sequence[Path],
    intake: Intake,
    *,
    format: str | None = None,
    precision: str | None = None,
    members: Mapping[Path, str] | None = None,
    parent: Path | None = None,
    root: Path | None = None,
) -> Survey:
    """Survey .onnx and .ort files, and their companions among `files`. External data need not be listed.

    `STEM.*.config` belongs to the .ort file with this stem, and `MODEL.golden.json` to the file MODEL.

    Args:
        format, precision: replace the names that are otherwise derived from each graph.
        members: the stage of each model in a pipeline. It is empty if the models are alternatives.
        parent: the model from which all other models were made.
        root: the directory that the version's paths are relative to. Without it, a file's path is its name.

    Raises NotFoundError if a file is missing, and InputError if a file is not a valid model or contradicts an argument.
    """

    def found(file: Path, role: str) -> Found:
        return Found(role, file, file.name if root is None else file.relative_to(root).as_posix())

    paths = [file for file in dict.fromkeys(files) if file.suffix in GRAPHS]
    others = [file for file in dict.fromkeys(files) if file.suffix not in GRAPHS]
    members = members or {}
    _refuse_unfit(paths, others, members)
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
        main = found(path, "model")
        facts, own = read_graph(main, intake)
        if path in configs:
            own.append(found(configs[path], "operator-config"))
        if path in vectors:
            golden.decode(vectors[path].read_bytes(), vectors[path].name)
            own.append(found(vectors[path], golden.ROLE))
        is_uniform = facts.weights.weights_total > 0 and facts.precision != "mixed"
        fitting = (None, facts.precision, weight_type(facts.precision))
        if is_uniform and precision not in fitting:
            message = f"{path.name} has {facts.precision} weights, not {precision}"
            raise InputError(message, "leave --precision out")
        made_from = None if parent is None or parent == path else found(parent, "model").path
        models.append(describe_model([main, *own], facts, format, precision, made_from))
    stages = {model.path: members[path] for path, model in zip(paths, models, strict=True) if members}
    _check_contracts(models, stages)
    placed = {intake.resolved(file.file) for model in models for file in model.files}
    companions = []
    for file in others:
        is_deep = root is not None and file.parent != root
        if intake.resolved(file) not in placed:  # in a folder, it belongs to another library
            companions.append(found(file, "other" if is_deep else role_of(file.name)))
    stated = {"format": format, "precision": precision}
    params = {key: value for key, value in stated.items() if value is not None}
    fields = {"model_family": pipeline_of(stages)} if stages else {}
    return Survey(tuple(models), tuple(companions), "as-is", "add", params, fields=fields)


def _refuse_unfit(models: list[Path], companions: list[Path], members: Mapping[Path, str]) -> None:
    for file in (*models, *companions):
        if not file.exists():
            raise NotFoundError(f"there is no file {file}", "check the path")
        if not file.is_file():
            kind = "a directory" if file.is_dir() else "not a regular file"
            hint = f"name files, or take a directory whole: reg import {quote(str(file))} --name NAME"
            raise InputError(f"{file} is {kind}", hint)
    if upper_case := [file for file in companions if file.suffix.lower() in GRAPHS]:
        lower = upper_case[0].with_suffix(upper_case[0].suffix.lower())
        raise InputError(f"the suffix of {upper_case[0]} is not in lower case", f"rename it to {lower.name}")
    if not models:
        raise InputError("there is no .onnx or .ort file among the files", "export a checkpoint: reg export")
    if any(file.name == FILENAME for file in companions):
        hint = "leave it out, or take the whole directory: reg import DIRECTORY --name NAME"
        raise InputError(f"{FILENAME} is a manifest, not a companion", hint)
    if unknown := [file for file in members if file not in models]:
        message = f"{unknown[0].name} is not a model, so it cannot be a member"
        raise InputError(message, "name a .onnx or .ort file")
    if members and (nameless := [model for model in models if model not in members]):
        message = f"{nameless[0].name} has no name, and other models have one"
        raise InputError(message, f"--member NAME={nameless[0].name}, for each model of the pipeline")


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


def _check_contracts(models: Sequence[Model], stages: Mapping[str, str]) -> None:
    """Raise InputError if the models of a stage have different inputs or outputs."""
    groups: dict[str | None, dict[str, Graph]] = {}
    for model in models:
        assert model.facts is not None
        sides = (model.facts.inputs, model.facts.outputs)
        inputs, outputs = ({spec.name: spec.tensor for spec in side} for side in sides)
        groups.setdefault(stages.get(model.path), {})[model.path] = inputs, outputs
    for name, graphs in groups.items():
        advice = MEMBERS_ADVICE if name is None else f"both are called {name}: give each its own name"
        check_alternatives(graphs, advice)


def of_repository(directory: Path, intake: Intake) -> Survey:
    """Survey the graphs of a repository as one version, with the companions that a runtime needs.

    Graphs with different stems (`encoder_model`, `decoder_model_merged`) become stages of a pipeline. The recipe lists
    the files that are left out. Raises the errors of `of_files`, and InputError for a link out of the repository.
    """
    paths = _paths(directory)
    names = list(_distinct(directory, [path for path in paths if path.endswith(GRAPHS)]))
    stems = {directory / path: stem_of(path) for path in names}
    members = stems if len(set(stems.values())) > 1 else None
    files = [directory / path for path in (*names, *filter(is_companion, paths))]
    survey = of_files(files, intake, members=members, root=directory)
    taken = {file.path for file in survey.companions}
    for model in survey.models:
        taken |= {file.path for file in model.files}
        if hidden := next((file for file in model.files if _is_hidden(file.path)), None):
            message = f"{model.path} keeps tensors in {hidden.path}, which is hidden"
            raise InputError(message, "look at who made the file")
    return replace(
        survey,
        models=tuple(_with_parents(survey.models)),
        profile="repository",
        step="import",
        result={"left_out": [path for path in paths if path not in taken]},
        fields={**survey.fields, **_stated(read_metadata(directory))},
    )


def _paths(directory: Path) -> list[str]:
    """List the visible files below a directory, files in folders last. Raise InputError for a link out of it."""
    paths = [path for path in files_below(directory) if not _is_hidden(path)]
    root = directory.resolve()
    for path in paths:
        check_inside(directory, directory / path)
        real = (directory / path).resolve()
        if real.is_relative_to(root) and _is_hidden(real.relative_to(root)):
            message = f"{path} is a link that leads out of {directory.name}"
            raise InputError(message, "replace the link by the file")
    return sorted(paths, key=lambda path: (path.count("/"), path))


def _is_hidden(path: str | PurePath) -> bool:
    return any(part.startswith(".") for part in PurePath(path).parts)


def _distinct(directory: Path, models: Sequence[str]) -> Iterator[str]:
    by_size: dict[int, list[str]] = {}
    for path in models:
        same_size = by_size.setdefault((directory / path).stat().st_size, [])
        if not any(filecmp.cmp(directory / path, directory / other, shallow=False) for other in same_size):
            same_size.append(path)
            yield path


def _with_parents(models: Sequence[Model]) -> Iterator[Model]:
    """Yield the models with their parents. A parent is a float32 graph of the same stage with the original weights."""

    def is_derived(model: Model, parent: Model) -> bool:
        try:
            weights, reference = (read_weights(item.files[0].file) for item in (model, parent))
            return compare_weights(reference, weights, model.path, parent.path) > 0
        except InputError:
            return False

    plain = [item for item in models if item.facts is not None and item.facts.precision == "float32"]
    parents = [item for item in plain if item.path.endswith(".onnx")]
    for model in models:
        stage = [
            item for item in parents if model not in parents and stem_of(item.path) == stem_of(model.path)
        ]
        parent = next((item.path for item in stage if is_derived(model, item)), None)
        yield replace(model, artifact=replace(model.artifact, parent=parent))


def _stated(card: Mapping[str, Any]) -> dict[str, Any]:
    base, tag = card.get("base_model"), card.get("pipeline_tag")
    names = (
        name for name, own in PIPELINE_TAGS.items() if own == tag
    )  # other aliases could not become the tag again
    statements = {
        "license": card.get("license"),
        "source_model_id": base[0] if isinstance(base, list) and len(base) == 1 else base,
        "task": next(names, tag),
    }
    return {
        key: value for key, value in statements.items() if isinstance(value, str) and 0 < len(value) <= 200
    }


def compare_weights(parent: Mapping[str, Any], child: Mapping[str, Any], path: str, parent_path: str) -> int:
    """Count the matrices in `child` that are conversions of weights in `parent`. Both map names to arrays.

    Weights are compared if they have the same name and shape. A quantized weight is called `NAME_quantized`, and its
    scale `NAME_scale`. Raises InputError if a weight differs by more than a conversion may change.
    """
    import numpy as np

    compared = 0
    for name in child:
        stem = name.removesuffix("_quantized")
        if stem not in parent or (stem != name and f"{stem}_scale" not in child):
            continue
        reference, value = np.asarray(parent[stem]), np.asarray(child[name])
        if reference.shape != value.shape or reference.dtype.name not in FLOATS or not value.size:
            continue
        if stem != name:
            zero = child.get(f"{stem}_zero_point", 0)
            agree = _quantized_agree(reference, value, *map(np.asarray, (child[f"{stem}_scale"], zero)))
        elif value.dtype.name in FLOATS:
            agree = _floats_agree(reference.reshape(-1), value.reshape(-1))
        else:
            continue
        if not agree:
            message = f"{path} is not a conversion of {parent_path}: their weights differ in {stem}"
            hint = "the directory mixes files of two exports; export again into an empty directory"
            raise InputError(message, hint)
        compared += reference.ndim >= 2
    return compared


def _floats_agree(reference: Any, value: Any) -> bool:
    import numpy as np

    half = "float16" in (reference.dtype.name, value.dtype.name)
    wide = np.float64 if "float64" in (reference.dtype.name, value.dtype.name) else np.float32
    relative, absolute = (HALF_TOLERANCE, HALF_TINY) if half else (FLOAT_TOLERANCE, 0.0)
    for start in range(0, reference.size, BLOCK_ELEMENTS):
        sides = [array[start : start + BLOCK_ELEMENTS].astype(wide) for array in (value, reference)]
        if half:
            sides = [np.clip(side, -HALF_MAX, HALF_MAX) for side in sides]
        if not np.allclose(sides[0], sides[1], relative, absolute, equal_nan=True):
            return False
    return True


def _quantized_agree(reference: Any, value: Any, scale: Any, zero_point: Any) -> bool:
    import numpy as np

    if zero_point.size not in (1, scale.size):
        return False
    axes = [None] if scale.size == 1 else [at for at in range(value.ndim) if value.shape[at] == scale.size]
    for axis in axes:
        shape = [scale.size if at == axis else 1 for at in range(value.ndim)]
        steps = scale.astype(np.float32).reshape(shape)
        distance = value.astype(np.float32)
        distance -= zero_point.astype(np.float32).reshape(shape if zero_point.size > 1 else ())
        distance *= steps
        distance -= reference
        np.abs(distance, out=distance)
        if np.all(distance <= MAX_QUANTIZATION_STEPS * np.abs(steps)):
            return True
    return False
