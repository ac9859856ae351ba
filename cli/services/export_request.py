"""A requested export, from options or from a row of a job file, and its recipe."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxreg.cli.services.export_lookup import RepeatRequest
from onnxreg.cli.services.export_service import ANDROID, TASK_OPTIONS, check_options
from onnxreg.schema.core.errors import InputError, NotFoundError, about
from onnxreg.schema.core.suggest import suggest

if TYPE_CHECKING:
    from onnxreg.converters.engine.memo import RepeatableExport
    from onnxreg.converters.engine.plan import ExportPlan
    from onnxreg.converters.tasks.code.consent import Consent
    from onnxreg.schema.inputs.recipe_file import RecipeFile

FLAGS = ("quantize", "int8_embeddings")
"""The options of a task that are true or false; the others are numbers."""


@dataclass(frozen=True)
class CodeTrust:
    """The code that a person lets run for one command: that of transformers checkpoints, and functions by name."""

    remote_code: bool = False
    code: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExportRequest:
    """One of `profile`, `recipe` and `task` is given; `options` are the profile's or the task's own."""

    source: str | None = None
    name: str | None = None
    profile: str | None = None
    recipe: Path | None = None
    task: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    trust: CodeTrust = field(default_factory=CodeTrust)
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
        """By flags. InputError for one that has no meaning for what is asked for."""
        kind = f"profile {ANDROID}" if profile == ANDROID else "task" if task else "recipe"
        check_options(options, kind)
        trust = CodeTrust(trust_remote_code, tuple(allow_code))
        return cls(source, name, profile, recipe, task, options, trust, is_typed=True)

    @property
    def document(self) -> str:
        """The name of the recipe for people; "" for a built-in one."""
        return "" if self.recipe is None else self.recipe.name

    def request(self) -> RepeatRequest:
        """The options that differ from the defaults, to recognise a repeated request."""
        fields = {key: getattr(self, key) for key in ("name", "profile", "recipe", "task")}
        fields |= {"trust_remote_code": self.trust.remote_code, "allow_code": list(self.trust.code)}
        changed = {key: value for key, value in fields.items() if value not in (None, False, [])}
        return RepeatRequest.of(self.source, **changed, **self.options)


def plan(request: ExportRequest) -> "ExportPlan":
    """The order, its source found and hashed. Raises what `plan_export` raises."""
    if request.profile == ANDROID:
        from onnxreg.converters.android import order_android
        from onnxreg.converters.android.android_options import read_options

        options = read_options(request.options, request.trust.remote_code)
        return order_android(request.source, request.name, options)
    from onnxreg.converters.engine.plan import plan_export

    recipe, directory = _recipe(request)
    arguments = (recipe, request.source, request.name, directory, request.trust.remote_code)
    consent = _consent(request)
    if request.profile is None:
        return plan_export(*arguments, label=request.document, allow_code=consent)
    from onnxreg.converters.profiles.profile_catalog import find

    profile = find(request.profile)
    order = plan_export(*arguments, profile.contract({}, None), request.document, consent)
    return replace(order, document=profile.document, package=profile.package)


def repeatable(export: ExportRequest, request: RepeatRequest) -> "RepeatableExport":
    """A request with the way to place its order once more."""
    from onnxreg.converters.engine.memo import RepeatableExport

    return RepeatableExport(request.values, request.documents, lambda: plan(export))


def check(request: ExportRequest) -> str | None:
    """Read recipe or profile and options, and look for what lies on this machine. Returns the model's name, if told."""
    if request.profile == ANDROID:
        from onnxreg.converters.android.android_options import read_options
        from onnxreg.converters.android.export import check_here

        check_here(request.source or "", read_options(request.options))
        return request.name or _hub_name(request.source)
    from onnxreg.converters.engine import steps
    from onnxreg.converters.engine.plan import start_of
    from onnxreg.converters.tasks import task_catalog

    recipe, directory = _recipe(request)
    with about(request.document):
        steps.outputs(recipe, steps.nodes(recipe, directory))
        task = task_catalog.find(recipe.task)(
            directory, request.trust.remote_code, _consent(request), **recipe.options
        )
    task.seek(start_of(recipe, request.source, directory))
    return request.name or recipe.name or _hub_name(request.source or recipe.source)


def _consent(request: ExportRequest) -> "Consent":
    from onnxreg.converters.tasks.code.consent import Consent

    return Consent.of(request.trust.code, request.source if request.is_typed else None)


def _hub_name(source: str | None) -> str | None:
    """The name that a model gets from a hub id; None for what lies on this machine."""
    from onnxreg.converters.source.source_files import hub_id

    try:
        repository = None if source is None else hub_id(source)
    except NotFoundError:
        return None
    return None if repository is None else repository.lower()


def _recipe(request: ExportRequest) -> "tuple[RecipeFile, Path]":
    """The recipe, and what its relative paths are relative to."""
    if request.recipe is not None:
        from onnxreg.converters.engine.read_recipe import read_recipe

        recipe = read_recipe(request.recipe)
        if checkpoint := request.options.get("checkpoint"):
            recipe = recipe.with_options(checkpoint=str(checkpoint.absolute()))
        return recipe, request.recipe.parent
    if request.task is not None:
        from onnxreg.converters.profiles.task_profiles import task_recipe

        _check_task_options(request.options)
        return task_recipe(request.task, **request.options), Path()
    from onnxreg.converters.profiles.profile_catalog import find

    profile = find(request.profile or "")
    return profile.recipe().with_options(**_absolute(request.options)), profile.document.parent


def _absolute(options: Mapping[str, Any]) -> dict[str, Any]:
    """Paths as text that means the same file wherever the recipe lies."""
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
