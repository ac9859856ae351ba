"""The entry of every export: a request becomes a plan, and a plan becomes a draft. `export` does both."""

import gc
import os
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxreg.schema.core.errors import InputError, suggest
from onnxreg.schema.core.units import SILENT, Progress

if TYPE_CHECKING:
    from onnxreg.converters.engine.cache import StepCache
    from onnxreg.converters.engine.plan import ExportPlan
    from onnxreg.converters.evaluation.latency import LatencyTable
    from onnxreg.converters.families.export_family import FamilyPlan
    from onnxreg.converters.tasks.code import Consent
    from onnxreg.schema.inputs.family_file import FamilyFile
    from onnxreg.schema.inputs.recipe_file import RecipeFile
    from onnxreg.schema.manifest.draft import Draft

ON_BY_DEFAULT = ("int8",)
TASK = ("opset", "quantize", "int8_embeddings", "max_seq_length")
EVALUATION = {"eval_suite": "suite"} | {key: key for key in ("item_scores", "margin", "label_map")}
SEARCH = {"confirm_suite": "confirm", "candidate": "candidates"}
SEARCH |= {key: key for key in ("objective", "calibration")}
"""The options of an evaluation (`EVALUATION`) and of a search (`SEARCH`), each with its key in a recipe."""
NAME_SUITE = "name a suite: --eval-suite FILE"
STATEMENTS = ("license", "description")
COMMON = (*EVALUATION, "certify", *SEARCH, *STATEMENTS)
OPTIONS = (*TASK, "checkpoint", *ON_BY_DEFAULT, "min_gold_chars", "min_parent_recall", *COMMON)


def flag(option: str) -> str:
    """Return an option as users type it, such as `--no-int8`."""
    return f"--{'no-' if option in ON_BY_DEFAULT else ''}{option.replace('_', '-')}"


def prepare_process() -> None:
    """Make exports 8 % faster. Call this before importing numpy."""
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # idle threads sleep
    if 0 < gc.get_threshold()[0] < 10_000:
        gc.set_threshold(10_000, 10, 10)


@dataclass(frozen=True)
class ExportRequest:
    """A requested export: a `profile`, a `recipe` or a `task`, and `options` by their names on the command line.

    `recipe` is a file, or a recipe whose paths are relative to the working directory. `source` replaces the recipe's
    source. `allow_code` is as in `plan_export`.
    """

    source: str | None = None
    name: str | None = None
    profile: str | None = None
    recipe: "Path | RecipeFile | None" = None
    task: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    trust_remote_code: bool = False
    allow_code: "Collection[str] | Consent" = ()

    def __post_init__(self) -> None:
        given = [key for key in ("profile", "recipe", "task") if getattr(self, key) is not None]
        if len(given) != 1:
            problem = f"{' and '.join(given)} contradict each other" if given else "nothing says what to make"
            hint = (
                "give one of profile, recipe and task; `reg export CHECKPOINT` reads the task from its files"
            )
            raise InputError(problem, hint)

    def plan(self) -> "ExportPlan | FamilyPlan":
        """Find, hash and check all inputs of the export. Return the plan. Raise InputError for a wrong option."""
        from onnxreg.converters.engine.plan import OWN_RECIPE, plan_export
        from onnxreg.converters.profiles import profile_catalog
        from onnxreg.converters.tasks.code import Consent
        from onnxreg.schema.inputs.family_file import FamilyFile

        recipe, directory, label = self._read()
        if isinstance(recipe, FamilyFile):
            from onnxreg.converters.families.export_family import plan_family

            return plan_family(recipe, directory, Consent.of(self.allow_code))
        profile = None if recipe.profile == OWN_RECIPE else profile_catalog.find(recipe.profile)
        more = (directory, self.trust_remote_code, profile, label, self.allow_code)
        plan = plan_export(recipe, self.source, self.name, *more)
        if recipe.search is not None:
            from onnxreg.converters.search.search import Search

            Search(plan)
        return plan

    def check(self) -> str | None:
        """Check the request without reading the source. Return the model's name, or None. Raise errors like `plan`."""
        from onnxreg.converters.engine.plan import read_parts
        from onnxreg.schema.inputs.family_file import FamilyFile

        recipe, directory, label = self._read()
        if isinstance(recipe, FamilyFile):
            return recipe.name
        parts = read_parts(recipe, self.source, directory, self.trust_remote_code, self.allow_code, label)
        hub = parts.task.seek(parts.start)
        return self.name or recipe.name or (hub and hub.lower())

    def _read(self) -> "tuple[RecipeFile | FamilyFile, Path, str]":
        """Return the recipe with all options, the directory for its relative paths, and its name in messages."""
        from onnxreg.converters.engine.plan import read_recipe
        from onnxreg.converters.source.toolchain import require
        from onnxreg.converters.tasks import task_catalog
        from onnxreg.schema.inputs.family_file import FamilyFile

        directory, label, recipe = Path(), "", self.recipe
        if isinstance(recipe, Path):
            directory, label = recipe.parent, recipe.name
        document = read_recipe(recipe, self.name) if isinstance(recipe, Path) else recipe
        if isinstance(document, FamilyFile):
            given = {"SOURCE": self.source, "--trust-remote-code": self.trust_remote_code}
            foreign = [*(name for name, value in given.items() if value), *map(flag, self.options)]
            if foreign:
                hint = "its document names its checkpoints and its limits"
                raise InputError(f"{foreign[0]} does not go with a family", hint)
            return document, directory, label
        if document is not None:
            own = self._own("a recipe", ("checkpoint",))
            document = document.model_copy(update={"options": {**document.options, **own}})
        elif self.task is not None:
            own = self._own("a task", TASK)
            document = task_catalog.task_recipe(self.task, **own, source=self.source)
        else:
            from onnxreg.converters.profiles import profile_catalog

            profile = profile_catalog.find(str(self.profile))
            own = self._own(f"the profile {self.profile}", profile.option_names())
            require(*profile.modules)
            directory, suite = profile.document.parent, self.options.get("eval_suite")
            document = profile.recipe_for(own, suite, bool(self.options.get("certify")))
            document = document.model_copy(update={"profile": self.profile})
        return document.model_copy(update=self._changes(document)), directory, label

    def _own(self, kind: str, names: Collection[str]) -> dict[str, Any]:
        names_here = (*names, *COMMON)
        if foreign := next((key for key in self.options if key not in names_here), None):
            options = list(map(flag, names_here))
            hint = suggest(flag(foreign), options, f"it has {', '.join(options)}", 0.8)
            raise InputError(f"{flag(foreign)[:80]} is not an option of {kind}", hint)
        return {key: self._option(key) for key in self.options if key in names}

    def _option(self, key: str) -> Any:
        value = self.options[key]
        return str(value.absolute()) if isinstance(value, Path) else value

    def _changes(self, recipe: "RecipeFile") -> dict[str, Any]:
        from onnxreg.schema.inputs.recipe_file import EvaluationRequest, ModelStatements, SearchRequest

        given = {key: self._option(key) for key in COMMON if self.options.get(key)}
        changes: dict[str, Any] = {key: given[key] for key in STATEMENTS if key in given}
        ModelStatements.from_json(changes, "an option")
        evaluation = recipe.evaluation
        if judging := [key for key in EVALUATION if key in given]:
            value = {} if evaluation is None else evaluation.to_json()
            value |= {EVALUATION[key]: given[key] for key in judging}
            if "suite" not in value:
                raise InputError(f"{flag(judging[0])} is of an evaluation, and no suite is named", NAME_SUITE)
            changes["evaluation"] = evaluation = EvaluationRequest.from_json(value, "the evaluation")
        searching = [key for key in SEARCH if key in given]
        if "certify" in given:
            if evaluation is None:
                hint = f"{NAME_SUITE} --confirm-suite FILE"
                raise InputError("a search needs a suite to choose on, and none is named", hint)
            value = {"input": recipe.steps[0].name}
            if recipe.search is not None:
                value = recipe.search.to_json()
            elif recipe.outputs:
                first = recipe.outputs[0]
                value = {"input": first.step, "output": first.path or f"{first.step}.onnx"}
            value |= {SEARCH[key]: given[key] for key in searching}
            changes["search"] = SearchRequest.from_json(value, "the search")
        elif searching:
            about = f"{flag(searching[0])} is about a search, and none was asked for"
            raise InputError(about, "add --certify")
        return changes


def run(
    plan: "ExportPlan | FamilyPlan",
    workspace: Path,
    cache: "StepCache | None" = None,
    progress: Progress = SILENT,
) -> "tuple[Draft, list[LatencyTable]]":
    """Run a plan in `workspace`. Return the draft and the tables of measured latencies."""
    from onnxreg.converters.engine.plan import ExportPlan
    from onnxreg.converters.engine.run_plan import execute
    from onnxreg.converters.passes import models

    if not isinstance(plan, ExportPlan):
        from onnxreg.converters.families.export_family import export_family

        with models.scratch_in(workspace):
            return export_family(plan, workspace, progress)
    tables = []
    if plan.evaluation is None:
        draft = execute(plan, workspace, cache, progress)
    else:
        from onnxreg.converters.search.search import run_judged

        with models.scratch_in(workspace):
            draft, timed = run_judged(plan, workspace, cache, progress)
        tables += [timed] if timed.latencies else []
    if plan.recipe.benchmark is not None:
        from onnxreg.converters.evaluation.latency import measure

        progress.step("timing what was made")
        tables.append(measure(draft, plan.recipe.benchmark))
    return draft, tables


def export(
    model: Any,
    task: str = "default",
    output: str | os.PathLike[str] | None = None,
    quantize: bool = False,
    opset: int = 14,
    int8_embeddings: bool = False,
) -> bytes | Path:
    """Export a checkpoint to ONNX. Raise an error if a graph does not give the checkpoint's outputs.

    Args:
        model: a checkpoint directory, a hub id with an optional `@revision`, or `(model, tokenizer)` of transformers.
        task: `default`, `pooling`, `question-answering`, ...: see `docs/tasks.md`.
        output: a file to write, or a directory (an existing one, or a text that ends in a slash). A directory gets
            `model.onnx` with config, labels and tokenizer beside it.
        quantize: make an INT8 graph too: `model.onnx` and `model_int8.onnx`.
        opset: version of the default domain.
        int8_embeddings: with `quantize`, quantize the embedding tables too.

    Returns the path of the last graph (the INT8 graph with `quantize`). Without `output`, returns the graph's bytes.

    Raises InputError for an unusable checkpoint, task or opset, NotFoundError or RemoteError if the checkpoint cannot
    be loaded, ConversionError if a graph does not load or differs, and HostError for a missing extra.
    """
    from onnxreg.converters.source.toolchain import require
    from onnxreg.converters.tasks.task_catalog import PATH, task_recipe

    require("torch", "transformers", "onnx", "onnxruntime")
    if not isinstance(task, str) or type(opset) is not int:
        raise InputError(f"a task is a name and an opset a whole number, not {task!r} and {opset!r}")
    target = None if output is None or output == "" else Path(output)
    is_folder = target is not None and (target.is_dir() or str(output).endswith(("/", os.sep)))
    path = PATH if target is None or is_folder else target.name
    if not path.endswith(".onnx"):
        message = f"the output {target} does not end in .onnx"
        raise InputError(message, f"write {target}.onnx, or a directory: {target}/")
    start = model if isinstance(model, str | os.PathLike) else ""
    recipe = task_recipe(task, quantize, opset, None, path, int8_embeddings, str(start))
    if len(recipe.outputs) > 1 + quantize and not is_folder:
        message = f"the task {recipe.task} makes {len(recipe.outputs)} graphs that work together"
        raise InputError(message, "name a directory as the output")
    above = [] if target is None else [target.absolute(), *target.absolute().parents]
    nearest = next((folder for folder in above if folder.is_dir()), None)  # to rename files
    with tempfile.TemporaryDirectory(prefix=".onnxreg-", dir=nearest) as scratch:
        source = _save(model, task, Path(scratch, "model")) if isinstance(model, tuple | list) else str(model)
        draft, _ = run(ExportRequest(source, "model", recipe=recipe).plan(), Path(scratch, "workspace"))
        last = draft.artifacts[-1]
        files = [file for item in draft.artifacts for file in item.sidecars if file.role == "external-data"]
        if target is None:
            if any(file in files for file in last.sidecars):
                raise InputError("a graph of more than 2 GB cannot be returned as bytes", "name an output")
            return (draft.root / last.path).read_bytes()
        directory = target if is_folder else target.parent
        files += draft.companions if is_folder else ()
        for path in [*(item.path for item in draft.artifacts), *(file.path for file in files)]:
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (draft.root / path).replace(directory / path)
    return directory / last.path


def _save(objects: Any, task: str, directory: Path) -> str:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from onnxreg.converters.runtime.sessions import silent_transformers
    from onnxreg.converters.tasks import task_catalog
    from onnxreg.converters.tasks.text import Pooling

    types = [type(item) for item in objects]
    if len(types) != 2 or not all(map(issubclass, types, (PreTrainedModel, PreTrainedTokenizerBase))):
        names = ", ".join(kind.__name__ for kind in types) or "nothing"
        raise InputError(f"not a model and a tokenizer of transformers: {names}")
    if issubclass(task_catalog.find(task), Pooling):
        hint = "save both with save_pretrained, and name the directory"
        raise InputError("pooling follows the files of a checkpoint, which objects lack", hint)
    config = dict(vars(objects[0].config))
    with silent_transformers():
        for item in objects:
            item.save_pretrained(directory)
    objects[0].config.__dict__ = config
    return str(directory)
