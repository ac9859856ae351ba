"""`reg passes`: the transformations that a recipe is made of."""

import json
from typing import Annotated

import typer

from onnxreg.cli import output
from onnxreg.cli.options import Json

EXAMPLES = ("reg passes", "reg passes OnnxFloatToFloat16 --json", "reg passes --json")


def command(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="One pass; without it, all of them.")] = None,
    as_json: Json = False,
) -> None:
    """List the passes, those that other packages bring included, or the parameters of one of them.

    With --json: {passes: [{name, version, summary, package, parameters}]}; parameters is a JSON Schema, package the
    name of the Python package that the pass is from.
    """
    from onnxreg.converters.passes import catalog

    found = [catalog.describe(each) for each in ([name] if name else catalog.names())]
    if as_json:
        output.write_json({"passes": found})
        return
    if name:
        context.obj.say(f"{found[0]['summary']} (version {found[0]['version']})")
        fields = found[0]["parameters"].get("properties", {})
        context.obj.table(
            ("PARAMETER", "DEFAULT"), [(key, _shown(field.get("default"))) for key, field in fields.items()]
        )
        return
    context.obj.table(
        ("PASS", "VERSION", "SUMMARY"), [(one["name"], one["version"], one["summary"]) for one in found]
    )


def _shown(default: object) -> str:
    return "" if default is None else json.dumps(default)
