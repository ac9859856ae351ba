"""Every profile by name: ours, and those that other packages bring as entry points of the group `onnxreg.profiles`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar

from onnxreg.converters.android import android_recipe
from onnxreg.converters.android.android_profile import AndroidPromises
from onnxreg.converters.engine.plan import ProfilePromises
from onnxreg.converters.engine.read_recipe import PROFILE_KEYS, from_value, read_document
from onnxreg.schema.core.errors import HostError, InputError, suggest
from onnxreg.schema.inputs.recipe_file import RecipeFile

GROUP = "onnxreg.profiles"


def _no_promises(parameters: Mapping[str, Any], suite: Path | None) -> ProfilePromises:
    return ProfilePromises()


@dataclass(frozen=True)
class Profile:
    """A recipe by name, and what it promises beyond.

    `contract` makes the promises of an export from the parameters that its recipe recorded and the evaluation suite,
    if there was one. `name` and `package` are set by `find`: an entry point's, and the distribution that it is in.
    """

    document: Path
    contract: Callable[[Mapping[str, Any], Path | None], ProfilePromises] = _no_promises
    name: str | None = None
    package: str | None = None
    modules: ClassVar[tuple[str, ...]] = ()
    """Modules that an export needs; HostError before the work if one is missing."""

    @property
    def directory(self) -> Path:
        """The base of the recipe's relative paths."""
        return self.document.parent

    def option_names(self) -> tuple[str, ...]:
        """The options of the profile itself; the base has, as any recipe, the weights of a source that is code."""
        return ("checkpoint",)

    def recipe_for(
        self,
        options: Mapping[str, Any],
        evaluation: Mapping[str, Any] | None = None,
        search: Mapping[str, Any] | None = None,
    ) -> RecipeFile:
        """The recipe with the options of a person or a job file.

        Args:
            evaluation, search: in JSON form. The caller sets them; the recipe makes room for them.
        """
        recipe = self.recipe()
        return recipe.with_keys(options={**recipe.options, **options})

    def text(self) -> str:
        """The document without what makes it a profile's: a recipe of one's own may begin with it."""
        lines = self.document.read_text("utf-8").splitlines()
        return "\n".join(line for line in lines if line.partition(":")[0] not in PROFILE_KEYS)

    def recipe(self) -> RecipeFile:
        recipe = from_value(read_document(self.document), self.document.name)
        return recipe if self.name is None else recipe.model_copy(update={"profile": self.name})


@dataclass(frozen=True)
class AndroidProfile(Profile):
    """The android profile, whose options change its steps."""

    modules = android_recipe.MODULES

    @property
    def directory(self) -> Path:
        return Path()

    def option_names(self) -> tuple[str, ...]:
        return android_recipe.option_names()

    def recipe_for(
        self,
        options: Mapping[str, Any],
        evaluation: Mapping[str, Any] | None = None,
        search: Mapping[str, Any] | None = None,
    ) -> RecipeFile:
        android_options = android_recipe.read_options(options)
        android_recipe.check_options(android_options)
        return android_recipe.recipe_of(android_options, evaluation, search)


def _android_promises(parameters: Mapping[str, Any], suite: Path | None) -> AndroidPromises:
    return AndroidPromises()


BUILT_IN: Mapping[str, Profile] = {"android": AndroidProfile(android_recipe.DOCUMENT, _android_promises)}


def names() -> list[str]:
    """The names of all profiles, ours first."""
    return [*BUILT_IN, *sorted({entry.name for entry in entry_points(group=GROUP)} - BUILT_IN.keys())]


def find(name: str) -> Profile:
    """The profile of this name.

    Raises InputError, with the nearest names, for a name that none has, HostError if another package's
    profile does not load.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    for entry in entry_points(group=GROUP, name=name):
        try:
            profile = entry.load()
        except Exception as error:
            raise HostError(f"the profile {name} ({entry.value}) does not load: {error}") from error
        if not isinstance(profile, Profile):
            raise HostError(f"{entry.value} is not a profile", "report it to the authors of its package")
        return replace(profile, name=name, package=None if entry.dist is None else entry.dist.name)
    raise InputError(f"no profile is called {name[:80]!r}", suggest(name, names()))
