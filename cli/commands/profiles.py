"""`reg profiles`: the recipes that come with the program."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.errors import needs
from onnxreg.cli.options.shared import Json
from onnxreg.cli.render import output, parameter_table

if TYPE_CHECKING:
    from onnxreg.schema.inputs.recipe_file import RecipeFile

EXAMPLES = ("reg profiles list", "reg profiles show android", "reg profiles show android --json")


def list_profiles(session: Session, as_json: Json = False) -> None:
    """List all profiles, including those of other packages.

    With --json: {profiles: [{name, version, task, steps, outputs}]}; steps and outputs are names and paths.
    """
    with needs("export", "reg profiles"):
        from onnxreg.converters.profiles import profile_catalog

        recipes = [(name, profile_catalog.find(name).recipe()) for name in profile_catalog.names()]
    rows = [
        {
            "name": name,
            "version": recipe.profile_version,
            "task": recipe.task,
            "steps": [step.name for step in recipe.steps],
            "outputs": [item.path or item.step for item in recipe.outputs],
        }
        for name, recipe in recipes
    ]
    if as_json:
        output.write_json({"profiles": rows})
        return
    shown = [
        tuple(" ".join(cell) if isinstance(cell, list) else cell for cell in row.values()) for row in rows
    ]
    session.table(("PROFILE", "VERSION", "TASK", "STEPS", "OUTPUTS"), shown)


def show(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The profile.")],
    as_json: Json = False,
) -> None:
    """Show the recipe of a profile, to start your own from; comments list further parameters.

    With --json: the recipe, see `reg schema recipe-file`.
    """
    with needs("export", "reg profiles"):
        from onnxreg.converters.profiles import profile_catalog

        profile = profile_catalog.find(name)
        recipe = profile.recipe()
    if as_json:
        output.write_json(recipe.to_json())
    else:
        session.say(profile.text(), *(f"# {line}".rstrip() for line in _choices(recipe)))


def _choices(recipe: "RecipeFile") -> Iterator[str]:
    """The options of its task and the parameters of its passes."""
    from onnxreg.converters.passes import pass_catalog
    from onnxreg.converters.tasks.task_catalog import find

    yield ""
    yield f"options of the task {recipe.task}:"
    yield from parameter_table.table(find(recipe.task).Options.model_json_schema(), "OPTION")
    for name in dict.fromkeys(step.pass_ for step in recipe.steps):
        yield ""
        yield f"params of {name}:"
        yield from parameter_table.table(pass_catalog.describe(name)["parameters"])
