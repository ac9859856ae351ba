"""What is asked of an export, by flags or in a row of a job file, and the order that this makes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxreg.converters.recipes.order import Order
    from onnxreg.schema.recipe_file import RecipeFile

ANDROID = "android"


@dataclass(frozen=True)
class Asked:
    """One of `profile`, `recipe` and `task` is given; `options` are the profile's or the task's own."""

    source: str | None = None
    name: str | None = None
    profile: str | None = None
    recipe: Path | None = None
    task: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    trust_remote_code: bool = False


def check(asked: Asked) -> None:
    """Read everything that can be read without the source: the recipe or profile, and the options."""
    if asked.profile == ANDROID:
        from onnxreg.converters.android.options import check_options, read_options

        check_options(read_options(asked.options))
    else:
        from onnxreg.converters.recipes import tree
        from onnxreg.converters.tasks import catalog

        recipe = _recipe(asked)
        tree.outputs(recipe, tree.nodes(recipe, _directory(asked)))
        catalog.find(recipe.task)(_directory(asked), asked.trust_remote_code, **recipe.options)


def place(asked: Asked) -> "Order":
    """Find and hash the source too. Raises what `place_order` raises."""
    if asked.profile == ANDROID:
        from onnxreg.converters.android import order_android
        from onnxreg.converters.android.options import read_options

        options = read_options({**asked.options, "trust_remote_code": asked.trust_remote_code})
        return order_android(asked.source, asked.name, options)
    from onnxreg.converters.recipes.order import place_order

    return place_order(_recipe(asked), asked.source, asked.name, _directory(asked), asked.trust_remote_code)


def _recipe(asked: Asked) -> "RecipeFile":
    """The recipe, with the options in the place of its own."""
    from onnxreg.converters.recipes.reading import from_value, read_recipe

    if asked.recipe is not None:
        found = read_recipe(asked.recipe)
    elif asked.profile is not None:
        from onnxreg.converters.profiles.catalog import find

        found = find(asked.profile).recipe()
    else:
        value = {"recipe": 1, "task": asked.task, "steps": [{"name": "fp32", "pass": "OnnxConversion"}]}
        found = from_value(value, f"task {asked.task}")
    return found.model_copy(update={"options": {**found.options, **asked.options}})


def _directory(asked: Asked) -> Path:
    """What relative paths of the recipe are relative to."""
    return Path() if asked.recipe is None else asked.recipe.parent
