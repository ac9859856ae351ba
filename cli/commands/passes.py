"""`reg passes`: the transformations that a recipe is made of."""

from typing import Annotated

import typer

from onnxreg.cli.context import Session
from onnxreg.cli.options.shared import Json
from onnxreg.cli.render import output, parameter_table

EXAMPLES = ("reg passes", "reg passes OnnxFloatToFloat16 --json", "reg passes --json")


def command(
    session: Session,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One pass; default: all of them.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List all passes, including those of other packages, or the parameters of one, with their defaults.

    With --json: {passes: [{name, version, summary, package, parameters}]}; parameters is a JSON Schema,
    package is the Python package of the pass.
    """
    from onnxreg.converters.passes import pass_catalog

    descriptions = [
        pass_catalog.describe(pass_name) for pass_name in ([name] if name else pass_catalog.names())
    ]
    if as_json:
        output.write_json({"passes": descriptions})
        return
    if name:
        shown = descriptions[0]
        session.say(f"{shown['summary']} (version {shown['version']})", "")
        session.say(*parameter_table.table(shown["parameters"]))
        return
    session.table(
        ("PASS", "VERSION", "SUMMARY"),
        [(one["name"], one["version"], one["summary"]) for one in descriptions],
    )
