"""`reg passes`: the transformations that a recipe is made of."""

from typing import Annotated

import typer

from onnxreg.cli.options.shared import Json
from onnxreg.cli.render import output, parameter_table

EXAMPLES = ("reg passes", "reg passes OnnxFloatToFloat16 --json", "reg passes --json")


def command(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="One pass; without it, all of them.")] = None,
    as_json: Json = False,
) -> None:
    """List the passes, those that other packages bring included, or the parameters of one of them: what each may be, what
    it is where a recipe does not say, and which are required.

    With --json: {passes: [{name, version, summary, package, parameters}]}; parameters is a JSON Schema, package the
    name of the Python package that the pass is from.
    """
    from onnxreg.converters.passes import pass_catalog

    found = [pass_catalog.describe(each) for each in ([name] if name else pass_catalog.names())]
    if as_json:
        output.write_json({"passes": found})
        return
    if name:
        shown = found[0]
        context.obj.say(f"{shown['summary']} (version {shown['version']})", "")
        context.obj.say(*parameter_table.table(shown["parameters"]))
        return
    context.obj.table(
        ("PASS", "VERSION", "SUMMARY"), [(one["name"], one["version"], one["summary"]) for one in found]
    )
