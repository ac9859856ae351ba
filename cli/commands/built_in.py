"""`reg builtin`: show the passes, profiles, devices and schemas that come with the program."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from onnxreg.cli.options import Session, argument
from onnxreg.cli.output import fields, needs, table, write_bytes
from onnxreg.schema.query.device import presets
from onnxreg.schema.query.runtimes import OLDEST_FORMAT

EXAMPLES = (
    "reg builtin passes",
    "reg builtin profiles",
    "reg builtin profiles android",
    "reg builtin devices",
    "reg builtin schemas",
    "reg builtin schemas manifest-v2 > manifest-v2.json",
)
# Types of JSON Schema in other words
TYPES = {"boolean": "true | false", "string": "text", "object": "keys and values"}
BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


def builtin_passes(
    session: Session, name: str | None = argument("One pass; default: all of them.", "[NAME]")
) -> None:
    """List all passes, including those of other packages. With NAME, list the parameters of one pass and their
    defaults.

    With --json: {passes: [{name, version, summary, package, parameters}]}; parameters is a JSON Schema, package is the
    Python package of the pass.
    """
    from onnxreg.converters.passes import pass_catalog

    descriptions = list(map(pass_catalog.describe, pass_catalog.names() if name is None else [name]))
    first, rows = descriptions[0], [(item["name"], item["version"], item["summary"]) for item in descriptions]
    head = (
        f"{first['summary']} (version {first['version']})",
        "",
        *_parameters(first["parameters"], "PARAMETER"),
    )
    session.show({"passes": descriptions}, head if name else table(("PASS", "VERSION", "SUMMARY"), rows))


def builtin_profiles(
    session: Session, name: str | None = argument("The profile; default: list all.", "[NAME]")
) -> None:
    """List all profiles, or show one profile's recipe, for you to change. Comments list further parameters.

    With --json: {profiles: [{name, version, task, steps, outputs}]}; for one profile, it is the recipe of the profile
    (see `reg builtin schemas recipe-file`).
    """
    with needs("export", "reg builtin profiles"):
        from onnxreg.converters.profiles import profile_catalog

        names = profile_catalog.names() if name is None else [name]
        chosen = {item: profile_catalog.find(item) for item in names}
        recipes = {item: profile.recipe() for item, profile in chosen.items()}
    if name is not None:
        recipe = recipes[name]
        choices = _choices(recipe.task, [step.pass_ for step in recipe.steps])
        session.show(recipe, chosen[name].text(), (f"# {line}".rstrip() for line in choices))
        return
    documents = [
        {"name": item, "version": recipe.profile_version, "task": recipe.task}
        | {"steps": [step.name for step in recipe.steps]}
        | {"outputs": [item.path or item.step for item in recipe.outputs]}
        for item, recipe in recipes.items()
    ]
    rows = [list(item.values()) for item in documents]
    session.show({"profiles": documents}, table(("PROFILE", "VERSION", "TASK", "STEPS", "OUTPUTS"), rows))


def _choices(task: str, passes: list[str]) -> Iterator[str]:
    from onnxreg.converters.passes import pass_catalog
    from onnxreg.converters.tasks.task_catalog import find

    yield from ("", f"options of the task {task}:")
    yield from _parameters(find(task).Options.model_json_schema(), "OPTION")
    for name in dict.fromkeys(passes):
        yield from ("", f"params of {name}:")
        yield from _parameters(pass_catalog.describe(name)["parameters"], "PARAMETER")


def _parameters(schema: Mapping[str, Any], name: str) -> Iterator[str]:
    fields, required = schema.get("properties", {}), schema.get("required", ())
    if not fields:
        yield f"no {name.lower()}s"
    rows = [
        (key, kind(field), "required" if key in required else _value(field.get("default")))
        for key, field in fields.items()
    ]
    yield from table((name, "TYPE", "DEFAULT"), rows)


def kind(field: Mapping[str, Any]) -> str:
    """Describe the type of a field: `integer >= 1`, `"arm" | "amd64"`, `list of text`."""
    if "anyOf" in field:
        return " | ".join(kind(choice) for choice in field["anyOf"] if choice.get("type") != "null")
    if choices := field.get("enum", [field["const"]] if "const" in field else None):
        return " | ".join(map(_value, choices))
    if "prefixItems" in field:
        return f"list of {len(field['prefixItems'])} {kind(field['prefixItems'][0])}"
    if field.get("type") == "array":
        items = kind(field["items"])
        return f"list of ({items})" if " | " in items else f"list of {items}"
    bounds = [f"{sign} {_value(field[key])}" for key, sign in BOUNDS.items() if key in field]
    named = TYPES.get(field.get("type", ""), field.get("type", "any value"))
    return " ".join([named, ", ".join(bounds)]).rstrip()


def _value(value: object) -> str:
    if isinstance(value, str) and value.isidentifier():
        return value
    text = "" if value is None else json.dumps(value)
    return text.replace('"', "") if isinstance(value, list) else text


def builtin_devices(session: Session) -> None:
    """List the presets for --device: stock releases of ONNX Runtime and what they load.

    With --json: {devices: [{name, ort, opset, ir_version, ort_formats, platform, providers, source}]}; opset and
    ir_version are the newest that the release loads; ort_formats has the oldest and the newest.
    """
    documents, rows = [], []
    for device, source in presets().values():
        opset, ir, newest = device.runtime.opset, device.runtime.ir, device.runtime.ort_format
        document = fields(device, "name ort platform providers") | {"opset": opset, "ir_version": ir}
        documents.append(document | {"ort_formats": [OLDEST_FORMAT, newest], "source": source})
        rows.append((device.name, opset, ir, f"{OLDEST_FORMAT}-{newest}", device.providers))
    session.show({"devices": documents}, table(("DEVICE", "OPSET", "IR", "ORT FORMAT", "PROVIDERS"), rows))


def builtin_schemas(
    session: Session, name: str | None = argument("The document; default: list all.", "[NAME]")
) -> None:
    """Print the JSON Schema of a document, or the names of the documents that have one."""
    from onnxreg.schema.formats import json_schema

    if name is None:
        print("\n".join(json_schema.MODELS))
    else:
        write_bytes(json_schema.text(name).encode())
