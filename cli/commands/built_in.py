"""`reg builtin`: passes, profiles, devices and schemas, which come with the program."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from onnxreg.cli.context import Session
from onnxreg.cli.errors import needs
from onnxreg.cli.options import argument
from onnxreg.cli.render import output, parameter_table
from onnxreg.schema.query.device import presets
from onnxreg.schema.query.runtimes import OLDEST_FORMAT

if TYPE_CHECKING:
    from onnxreg.schema.inputs.recipe_file import RecipeFile

EXAMPLES = (
    "reg builtin passes",
    "reg builtin profiles",
    "reg builtin profiles android",
    "reg builtin devices",
    "reg builtin schemas",
    "reg builtin schemas manifest-v2 > manifest-v2.json",
)


def passes(
    session: Session,
    name: str | None = argument("One pass; default: all of them.", "[NAME]"),
) -> None:
    """List all passes, including those of other packages, or the parameters of one, with their defaults.

    With --json: {passes: [{name, version, summary, package, parameters}]}; parameters is a JSON Schema,
    package is the Python package of the pass.
    """
    from onnxreg.converters.passes import pass_catalog

    descriptions = [
        pass_catalog.describe(pass_name) for pass_name in ([name] if name else pass_catalog.names())
    ]
    if name:
        summary = f"{descriptions[0]['summary']} (version {descriptions[0]['version']})"
        session.show(
            {"passes": descriptions}, summary, "", parameter_table.table(descriptions[0]["parameters"])
        )
        return
    rows = [(item["name"], item["version"], item["summary"]) for item in descriptions]
    session.show({"passes": descriptions}, output.table(("PASS", "VERSION", "SUMMARY"), rows))


def profiles(
    session: Session,
    name: str | None = argument("The profile; default: list all.", "[NAME]"),
) -> None:
    """List all profiles, or show the recipe of one, to start your own from; comments list further parameters.

    With --json: {profiles: [{name, version, task, steps, outputs}]}; of one profile the recipe, see `reg builtin
    schemas recipe-file`.
    """
    with needs("export", "reg builtin profiles"):
        from onnxreg.converters.profiles import profile_catalog

        names = profile_catalog.names() if name is None else [name]
        chosen = {item: profile_catalog.find(item) for item in names}
        recipes = {item: profile.recipe() for item, profile in chosen.items()}
    if name is not None:
        choices = (f"# {line}".rstrip() for line in _choices(recipes[name]))
        session.show(recipes[name].to_json(), chosen[name].text(), choices)
        return
    documents = [
        {
            "name": item,
            "version": recipe.profile_version,
            "task": recipe.task,
            "steps": [step.name for step in recipe.steps],
            "outputs": [item.path or item.step for item in recipe.outputs],
        }
        for item, recipe in recipes.items()
    ]
    rows = [
        [" ".join(cell) if isinstance(cell, list) else cell for cell in row.values()] for row in documents
    ]
    session.show(
        {"profiles": documents}, output.table(("PROFILE", "VERSION", "TASK", "STEPS", "OUTPUTS"), rows)
    )


def _choices(recipe: "RecipeFile") -> Iterator[str]:
    """The options of its task and the parameters of its passes."""
    from onnxreg.converters.passes import pass_catalog
    from onnxreg.converters.tasks.task_catalog import find

    yield from ("", f"options of the task {recipe.task}:")
    yield from parameter_table.table(find(recipe.task).Options.model_json_schema(), "OPTION")
    for name in dict.fromkeys(step.pass_ for step in recipe.steps):
        yield from ("", f"params of {name}:")
        yield from parameter_table.table(pass_catalog.describe(name)["parameters"])


def devices(session: Session) -> None:
    """List the presets for --device: stock releases of ONNX Runtime and what they load.

    With --json: {devices: [{name, ort, opset, ir_version, ort_formats, platform, providers, source}]}; opset and
    ir_version are the newest that load, ort_formats the oldest and newest.
    """
    sources = [(preset.source, preset.device, preset.device.runtime) for preset in presets().values()]
    documents = [
        {
            "name": device.name,
            "ort": device.ort,
            "opset": loads.opset,
            "ir_version": loads.ir,
            "ort_formats": [OLDEST_FORMAT, loads.ort_format],
            "platform": device.platform,
            "providers": list(device.providers),
            "source": source,
        }
        for source, device, loads in sources
    ]
    rows = [
        (
            *(device.name, loads.opset, loads.ir),
            *(f"{OLDEST_FORMAT}-{loads.ort_format}", ", ".join(device.providers)),
        )
        for _, device, loads in sources
    ]
    header = ("DEVICE", "OPSET", "IR", "ORT FORMAT", "PROVIDERS")
    session.show({"devices": documents}, output.table(header, rows))


def schemas(
    session: Session,
    name: str | None = argument("The document; default: list all.", "[NAME]"),
) -> None:
    """Print the JSON Schema of a document, or the names of the documents that have one."""
    from onnxreg.schema.formats import json_schema

    if name is None:
        print("\n".join(json_schema.MODELS))
    else:
        output.write_bytes(json_schema.text(name).encode())
