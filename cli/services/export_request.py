"""A requested export, from options or from a row of a job file, and its recipe and plan."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxreg.schema.core.errors import InputError, NotFoundError, about, suggest

if TYPE_CHECKING:
    from onnxreg.converters.engine.plan import ExportPlan
    from onnxreg.converters.engine.read_recipe import RecipeDocument
    from onnxreg.converters.evaluation.evaluation_plan import EvaluationPlan
    from onnxreg.converters.families.family_plan import FamilyPlan
    from onnxreg.converters.profiles.profile_catalog import Profile
    from onnxreg.converters.tasks.code.consent import Consent
    from onnxreg.schema.core.digest import Digest
    from onnxreg.schema.inputs.recipe_file import RecipeFile

TASK_OPTIONS = ("opset", "quantize", "int8_embeddings", "max_seq_length")
EVALUATION_OPTIONS = ("eval_suite", "item_scores", "margin", "label_map")
SEARCH_OPTIONS = ("certify", "confirm_suite", "candidate", "objective", "devices", "calibration")
SCALES = "scales_from"
OWNER_FIELDS = ("license", "description")
COMMON_OPTIONS = (*EVALUATION_OPTIONS, *SEARCH_OPTIONS, SCALES, *OWNER_FIELDS)
"""The options of every kind of export."""
PROFILE = "profile "
"""The kind of an export by a profile begins so; its name follows."""
FAMILY_FIELDS = frozenset({"recipe", "name", "allow_code", "source", "directory"})
"""Fields of a request that go with a family: its document says everything else."""
FLAGS = ("quantize", "int8_embeddings")
"""The options of a task that are true or false; the others are numbers."""
ON_BY_DEFAULT = ("int8", "rewrite")
"""The options that a person can only turn off."""


def flag(option: str) -> str:
    """The option as a person types it, such as `--no-int8`."""
    return f"--{'no-' if option in ON_BY_DEFAULT else ''}{option.replace('_', '-')}"


@dataclass(frozen=True)
class CodeTrust:
    """The code that a person lets run for one command: that of transformers checkpoints, and functions by name."""

    remote_code: bool = False
    code: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExportRequest:
    """One of `profile`, `recipe` and `task` is given; `options` are the profile's or the task's own.

    `evaluation` is that of a job file, in JSON form.
    """

    source: str | None = None
    name: str | None = None
    profile: str | None = None
    recipe: Path | None = None
    task: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    trust: CodeTrust = field(default_factory=CodeTrust)
    evaluation: Mapping[str, Any] | None = None
    is_typed: bool = False
    """True if a person typed the source (not a job file): for a function, that is consent to run it."""

    @classmethod
    def of(
        cls,
        source: str | None,
        name: str | None = None,
        profile: str | None = None,
        recipe: Path | None = None,
        task: str | None = None,
        trust_remote_code: bool = False,
        allow_code: Sequence[str] = (),
        **options: Any,
    ) -> "ExportRequest":
        """By flags."""
        trust = CodeTrust(trust_remote_code, tuple(allow_code))
        return cls(source, name, profile, recipe, task, options, trust, is_typed=True)

    @cached_property
    def values(self) -> dict[str, Any]:
        """The request without defaults, as JSON values: an equal one is recognised the next time.

        Paths are absolute; so is a source that is a path. The working directory is part of it: the file of a factory
        such as `net.py:build` is looked for there.
        """
        fields: dict[str, Any] = {key: getattr(self, key) for key in ("name", "profile", "recipe", "task")}
        fields |= {"trust_remote_code": self.trust.remote_code, "allow_code": list(self.trust.code)}
        stated = {key: value for key, value in fields.items() if value not in (None, False, [])}
        is_path = self.source is not None and Path(self.source).exists()
        source = str(Path(self.source or "").absolute()) if is_path else self.source
        evaluation = {} if self.evaluation is None else {"evaluation": dict(self.evaluation)}
        stated = _absolute({**stated, **self.options})
        return {**stated, **evaluation, "source": source, "directory": str(Path.cwd())}

    @property
    def documents(self) -> "dict[Path, Digest | None]":
        """The files that the request names; of the recipe, which is read once, the digest."""
        paths = [value for value in self.options.values() if isinstance(value, Path)]
        paths += [] if self.evaluation is None else [Path(self.evaluation["suite"])]
        read = {} if self.recipe is None else {self.recipe: self.document.digest}
        return {**dict.fromkeys(paths), **read}

    @cached_property
    def document(self) -> "RecipeDocument":
        """The document that `recipe` names, read once."""
        from onnxreg.converters.engine.read_recipe import RecipeDocument

        assert self.recipe is not None
        return RecipeDocument.read(self.recipe)

    @property
    def label(self) -> str:
        """The name of the recipe for people; "" for a built-in one."""
        return "" if self.recipe is None else self.recipe.name

    def family(self) -> "FamilyPlan | None":
        """The plan of the family that the document describes; None if this is any other export.

        Raises InputError if it is malformed, or the request has options that belong into the document, and what
        `plan_family` raises.
        """
        if self.recipe is None or not self.document.is_family:
            return None
        from onnxreg.converters.families.family_plan import plan_family, read_family

        family = read_family(self.document, self.name)
        foreign = [flag(key) for key in sorted(self.values.keys() - FAMILY_FIELDS)]
        if self.source is not None:
            foreign = ["SOURCE"]
        if foreign:
            raise InputError(
                f"{foreign[0]} does not go with a family", "its document names its checkpoints and its limits"
            )
        return plan_family(family, self.recipe.parent, _consent(self))

    def plan(self) -> "ExportPlan":
        """The plan, its source found and hashed.

        Raises what `plan_export` raises, and InputError for an option that has no meaning for this kind of export.
        """
        plan = self._plan()
        statements = {key: self.options[key] for key in OWNER_FIELDS if key in self.options}
        return replace(plan, recipe=plan.recipe.with_keys(**statements)) if statements else plan

    def _plan(self) -> "ExportPlan":
        if self.is_typed:
            _check_options(self.options, self._kind)
        from onnxreg.converters.engine.plan import plan_export
        from onnxreg.converters.source.toolchain import require

        recipe, directory = _recipe(self)
        if self._profile is not None:
            require(*self._profile.modules)
        promises = None if self._profile is None else self._profile.contract({}, None)
        arguments = (recipe, self.source, self.name, directory, self.trust.remote_code)
        plan = plan_export(*arguments, promises, self.label, _consent(self))
        if self._profile is None:
            return plan
        return replace(plan, document=self._profile.document, package=self._profile.package)

    def evaluation_plan(self) -> "EvaluationPlan | None":
        """The plan of the evaluation, its suite read; the source is not looked at."""
        from onnxreg.converters.engine.plan import evaluation_of

        with about(self.label):
            return evaluation_of(*_recipe(self))

    @property
    def _kind(self) -> str:
        return f"{PROFILE}{self.profile}" if self.profile else "task" if self.task else "recipe"

    @cached_property
    def _profile(self) -> "Profile | None":
        if self.profile is None:
            return None
        from onnxreg.converters.profiles.profile_catalog import find

        return find(self.profile)

    def check(self) -> str | None:
        """Read recipe or profile and options, and look for files on this machine. Returns the model's name, if it has one."""
        from onnxreg.converters.engine import steps
        from onnxreg.converters.engine.plan import start_of
        from onnxreg.converters.tasks import task_catalog

        recipe, directory = _recipe(self)
        with about(self.label):
            steps.outputs(recipe, steps.nodes(recipe, directory))
            task = task_catalog.find(recipe.task)(
                directory, self.trust.remote_code, _consent(self), **recipe.options
            )
        task.seek(start_of(recipe, self.source, directory))
        self.evaluation_plan()
        return self.name or recipe.name or _hub_name(self.source or recipe.source)


def _options_of(kind: str) -> tuple[str, ...]:
    """The options of exports by a profile, a task or a recipe."""
    own: tuple[str, ...] = {"task": TASK_OPTIONS, "recipe": ("checkpoint",)}.get(kind, ())
    if kind.startswith(PROFILE):
        from onnxreg.converters.profiles.profile_catalog import find

        own = find(kind.removeprefix(PROFILE)).option_names()
    return tuple(dict.fromkeys((*own, *COMMON_OPTIONS)))


def _check_options(options: Iterable[str], kind: str) -> None:
    """Raise InputError for an option that this kind of export does not have."""
    allowed = _options_of(kind)
    for key in options:
        if key not in allowed:
            from onnxreg.converters.profiles.profile_catalog import BUILT_IN

            kinds = (*(f"{PROFILE}{name}" for name in BUILT_IN), "task", "recipe")
            owners = [other for other in kinds if key in _options_of(other)]
            raise InputError(
                f"{flag(key)} is an option of --{' and --'.join(owners)}, not of --{kind}",
                f"--{kind} has {', '.join(map(flag, allowed))}",
            )


def _consent(request: ExportRequest) -> "Consent":
    from onnxreg.converters.tasks.code.consent import Consent

    return Consent.of(request.trust.code, request.source if request.is_typed else None)


def _hub_name(source: str | None) -> str | None:
    """The name that a model gets from a hub id; None for a source on this machine."""
    from onnxreg.converters.source.location import hub_id

    try:
        repository = None if source is None else hub_id(source)
    except NotFoundError:
        return None
    return None if repository is None else repository.lower()


def _recipe(request: ExportRequest) -> "tuple[RecipeFile, Path]":
    """The recipe with its evaluation, and what its relative paths are relative to."""
    recipe, directory = _recipe_without_options(request)
    evaluation, search = _evaluation(request, recipe), _search(request)
    if evaluation is not None:
        recipe = recipe.with_keys(evaluation=evaluation)
    if search is not None:
        if recipe.evaluation is None:
            raise InputError(
                "a search needs a suite to choose on, and none is named", "name a suite: --eval-suite FILE"
            )
        recipe = recipe.with_keys(search={**_search_start(recipe), **search})
    if (scales := _scales(request)) is not None:
        from onnxreg.converters.engine.steps import with_scales

        recipe = with_scales(recipe, scales)
    return recipe, directory


def _scales(request: ExportRequest) -> str | None:
    """The file whose scales the steps take; None to keep the recipe's. InputError for a search."""
    path: Path | None = request.options.get(SCALES)
    if path is None:
        return None
    if request.options.get("certify"):
        raise InputError(
            "--scales-from and --certify contradict each other: a search quantizes by itself",
            "leave one out, or write a candidate with `scales_from` in a recipe",
        )
    return str(path.absolute())


def _search(request: ExportRequest) -> Mapping[str, Any] | None:
    """The search that options ask for, in JSON form, without the step that it begins with.

    Raises InputError for an option of a search without a search, or for one without a suite.
    """
    options = {key: request.options[key] for key in SEARCH_OPTIONS if request.options.get(key)}
    if not options:
        return None
    if not options.pop("certify", False):
        raise InputError(
            f"{flag(next(iter(options)))} is about a search, and none was asked for", "add --certify"
        )
    keys = {"confirm_suite": "confirm", "candidate": "candidates"}
    return {
        keys.get(key, key): str(value.absolute()) if isinstance(value, Path) else value
        for key, value in options.items()
    }


def _search_start(recipe: "RecipeFile") -> Mapping[str, Any]:
    """The step that a search begins with, and the path of its result: those of the recipe, else of its first output."""
    if recipe.search is not None:
        return recipe.search.to_json()
    if not recipe.outputs:
        return {"input": recipe.steps[0].name}
    first = recipe.outputs[0]
    return {"input": first.step, "output": first.path or f"{first.step}.onnx"}


def _evaluation(request: ExportRequest, recipe: "RecipeFile") -> Mapping[str, Any] | None:
    """The evaluation that a job or options ask for in place of the recipe's; None to keep the recipe's."""
    options = {key: request.options[key] for key in EVALUATION_OPTIONS if request.options.get(key)}
    if request.evaluation is not None or not options:
        return request.evaluation
    own = {} if recipe.evaluation is None else recipe.evaluation.to_json()
    suite = options.pop("eval_suite", None)
    if suite is None and not own:
        option = flag(next(iter(options)))
        raise InputError(
            f"{option} is of an evaluation, and no suite is named", "name a suite: --eval-suite FILE"
        )
    return {**own, **options, **({} if suite is None else {"suite": str(Path(suite).absolute())})}


def _recipe_without_options(request: ExportRequest) -> "tuple[RecipeFile, Path]":
    if request.recipe is not None:
        recipe = request.document.recipe()
        if checkpoint := request.options.get("checkpoint"):
            recipe = recipe.with_keys(options={**recipe.options, "checkpoint": str(checkpoint.absolute())})
        return recipe, request.recipe.parent
    if request.task is not None:
        from onnxreg.converters.profiles.task_profiles import task_recipe

        options = _own(request.options)
        _check_task_options(options)
        return task_recipe(request.task, **options), Path()
    profile = request._profile
    assert profile is not None
    own = _own(request.options, profile.option_names())
    recipe = profile.recipe_for(_absolute(own), request.evaluation, _search(request))
    return recipe, profile.directory


def _own(options: Mapping[str, Any], names: Collection[str] = ()) -> dict[str, Any]:
    """The options without the common ones, but for these names."""
    return {key: value for key, value in options.items() if key in names or key not in COMMON_OPTIONS}


def _absolute(options: Mapping[str, Any]) -> dict[str, Any]:
    """Paths as text that means the same file in whatever directory the recipe is."""
    return {
        key: str(value.absolute()) if isinstance(value, Path) else value for key, value in options.items()
    }


def _check_task_options(options: Mapping[str, Any]) -> None:
    for key, value in options.items():
        if key not in TASK_OPTIONS:
            raise InputError(f"a task has no option {key[:80]!r}", suggest(key, TASK_OPTIONS))
        if type(value) is not (bool if key in FLAGS else int):
            raise InputError(
                f"the option {key} is not {'true or false' if key in FLAGS else 'a number'}",
                f"write {key}: {'true' if key in FLAGS else 18 if key == 'opset' else 256}",
            )
