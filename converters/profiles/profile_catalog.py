"""Every profile by name: ours, and those that other packages bring as entry points of the group `onnxreg.profiles`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

from onnxreg.converters.android import android_recipe
from onnxreg.converters.android.android_profile import AndroidPromises
from onnxreg.converters.engine.plan import ProfilePromises
from onnxreg.converters.engine.read_recipe import PROFILE_KEYS, from_value, read_document
from onnxreg.converters.source.toolchain import PlugIns
from onnxreg.schema.inputs.recipe_file import RecipeFile


@dataclass(frozen=True)
class Profile:
    """A recipe by name, and what it promises beyond.

    `contract` makes the promises of an export from the parameters that its recipe recorded and the evaluation suite,
    if there was one. `name` and `package` are set by `find`: an entry point's, and the distribution that it is in.
    `modules` are those that an export needs.
    """

    document: Path
    contract: Callable[[Mapping[str, Any], Path | None], ProfilePromises] = lambda parameters, suite: (
        ProfilePromises()
    )
    name: str | None = None
    package: str | None = None
    modules: ClassVar[tuple[str, ...]] = ()

    @property
    def directory(self) -> Path:
        """The base of the recipe's relative paths."""
        return self.document.parent

    def option_names(self) -> tuple[str, ...]:
        """The options of the profile itself; by default, as any recipe has, the weights of a source that is code."""
        return ("checkpoint",)

    def recipe_for(
        self, options: Mapping[str, Any], suite: Path | None = None, is_search: bool = False
    ) -> RecipeFile:
        """The recipe with the options of a person or a job file; `suite` and the search are added by the caller."""
        recipe = self.recipe()
        return recipe.model_copy(update={"options": {**recipe.options, **options}})

    def text(self) -> str:
        """The document without what makes it a profile's: a recipe of one's own may begin with it."""
        lines = self.document.read_text("utf-8").splitlines()
        return "\n".join(line for line in lines if line.partition(":")[0] not in PROFILE_KEYS)

    def recipe(self) -> RecipeFile:
        recipe = from_value(read_document(self.document), self.document.name)
        return recipe if self.name is None else recipe.model_copy(update={"profile": self.name})


class AndroidProfile(Profile):
    """The android profile, whose options change its steps."""

    modules = android_recipe.MODULES
    directory = Path()

    def option_names(self) -> tuple[str, ...]:
        return tuple(android_recipe.AndroidOptions.model_fields)

    def recipe_for(
        self, options: Mapping[str, Any], suite: Path | None = None, is_search: bool = False
    ) -> RecipeFile:
        return android_recipe.recipe_of(options, suite, is_search)


BUILT_IN: Mapping[str, Profile] = {
    "android": AndroidProfile(android_recipe.DOCUMENT, lambda parameters, suite: AndroidPromises())
}


def _accept(entry: EntryPoint, profile: Any) -> Profile | None:
    if not isinstance(profile, Profile):
        return None
    return replace(profile, name=entry.name, package=None if entry.dist is None else entry.dist.name)


CATALOG = PlugIns("onnxreg.profiles", "a profile", BUILT_IN, _accept)
find, names = CATALOG.find, CATALOG.names
