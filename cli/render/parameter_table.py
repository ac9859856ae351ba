"""Parameters, which documents have as JSON Schema, in a table for people."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from onnxreg.cli.render import output

TYPES = {"boolean": "true | false", "string": "text", "object": "keys and values"}
"""Names of types for people; other types keep their names."""

BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}


def table(schema: Mapping[str, Any], name: str = "PARAMETER") -> Iterator[str]:
    """A table of each parameter's values and default; one line if there are no parameters.

    Args:
        name: what a parameter is called in the header.
    """
    fields = schema.get("properties", {})
    required = schema.get("required", ())
    if not fields:
        yield f"no {name.lower()}s"
    yield from output.table(
        (name, "TYPE", "DEFAULT"),
        [(key, kind(field), _default(field, key in required)) for key, field in fields.items()],
    )


def kind(field: Mapping[str, Any]) -> str:
    """`integer >= 1`, `"arm" | "amd64"`, `list of text`"""
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


def _default(field: Mapping[str, Any], required: bool) -> str:
    """Nothing for null, which says that there is none."""
    if required:
        return "required"
    return "" if field.get("default") is None else _value(field["default"])


def _value(value: object) -> str:
    """A value as a recipe has it: a text without quotes, if YAML reads it as a text."""
    if isinstance(value, str) and value.isidentifier():
        return value
    return json.dumps(value).replace('"', "") if isinstance(value, list) else json.dumps(value)
