"""Plain objects out of JSON, by a published JSON Schema: what a document of pydantic is, a tenth of a second earlier.

The schemas are generated from the documents (`schema/formats/json_schema.py`), so the two cannot differ. What JSON
Schema cannot say are rules: plain classes with a method `check_rules`, which a document and its plain object share.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from keyword import iskeyword
from pathlib import Path
from typing import Any

from onnxreg.schema.core.canonical import array_of, flag, mapping, number, text
from onnxreg.schema.core.canonical import path as read_path
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.paths import PATTERN as PATH

FOLDER = Path(__file__).parents[1] / "schemas"
"""The published schemas, `<name>.json` each."""

Read = Callable[[Any], Any]
"""Returns the plain form of a JSON value. Raises InputError or ValueError if the schema does not allow the value."""


class PlainObject:
    """A JSON object: an attribute for each key of its schema; other keys are in `model_extra`."""

    def __init__(self, values: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
        vars(self).update(values, model_extra=extra)


class SchemaReader:
    """A reader of one kind of document.

    Args:
        name: that of its schema.
        rules: for objects of some title the class with their properties and rules.
    """

    def __init__(self, name: str, rules: Mapping[str, type]) -> None:
        self._schema = json.loads((FOLDER / f"{name}.json").read_bytes())
        self._rules = rules
        self._definition = cache(lambda title: self._reader(self._schema["$defs"][title]))
        self.read = self._reader(self._schema)

    def _reader(self, schema: Mapping[str, Any]) -> Read:
        if "$ref" in schema:
            title = schema["$ref"].rpartition("/")[2]
            return lambda value: self._definition(title)(value)
        if "anyOf" in schema:  # a value or null
            read = self._reader(schema["anyOf"][0])
            return lambda value: None if value is None else read(value)
        if "properties" in schema:
            return self._object(schema)
        kind = schema.get("type")
        if kind == "array":
            return self._array(schema)
        if kind == "object":
            more = schema["additionalProperties"]
            return mapping if more is True else partial(_table, read=self._reader(more))
        return partial(_scalar, schema=schema, read=SCALARS[kind or "null"])

    def _array(self, schema: Mapping[str, Any]) -> Read:
        reads = [self._reader(item) for item in schema.get("prefixItems", ())]
        read_items = array_of(self._reader(schema["items"]) if "items" in schema else lambda value: value)

        def read(value: Any) -> Any:
            values = read_items(value)
            _check_bounds(len(values), schema.get("minItems"), schema.get("maxItems"))
            return tuple(read(item) for read, item in zip(reads, values, strict=True)) if reads else values

        return read

    def _object(self, schema: Mapping[str, Any]) -> Read:
        title = schema["title"]
        bases = (self._rules[title], PlainObject) if title in self._rules else (PlainObject,)
        plain_class = type(title, bases, {})
        reads = {key: self._reader(item) for key, item in schema["properties"].items()}
        names = {key: f"{key}_" if iskeyword(key) else key for key in reads}
        required = frozenset(schema.get("required", ()))
        absent = {
            key: partial(reads[key], item.get("default", {} if item.get("type") == "object" else None))
            for key, item in schema["properties"].items()
            if key not in required
        }

        def read(value: Any) -> Any:
            given = mapping(value)
            if missing := required - given.keys():
                raise InputError(f"{min(missing)} is missing")
            values = {
                names[key]: read(given[key]) if key in given else absent[key]() for key, read in reads.items()
            }
            plain = plain_class(values, {key: item for key, item in given.items() if key not in reads})
            if hasattr(plain_class, "check_rules"):
                plain.check_rules()
            return plain

        return read


def _table(value: Any, read: Read) -> dict[str, Any]:
    return {key: read(item) for key, item in mapping(value).items()}


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"not a whole number: {str(value)[:40]!r}")
    return value


def _null(value: Any) -> None:
    if value is not None:
        raise InputError(f"not null: {str(value)[:40]!r}")


SCALARS: Mapping[str, Read] = {
    "string": text,
    "integer": _integer,
    "number": number,
    "boolean": flag,
    "null": _null,
}
PATTERNS: Mapping[str, Read] = {PATH: read_path, "^sha256:[0-9a-f]{64}$": Digest.parse}
"""The readers of strings whose pattern says less than what is checked, or that are read as another type."""


def _scalar(value: Any, schema: Mapping[str, Any], read: Read) -> Any:
    """A string, number, boolean or null within the limits of its schema."""
    value = read(value)
    if value not in schema.get("enum", (value,)) or value != schema.get("const", value):
        raise InputError(f"not a value that is known here: {str(value)[:40]!r}")
    if isinstance(value, str):
        _check_bounds(len(value), schema.get("minLength"), schema.get("maxLength"))
        pattern = schema.get("pattern", "")
        if pattern in PATTERNS:
            return PATTERNS[pattern](value)
        if pattern and not re.fullmatch(pattern, value):
            raise InputError(f"not of the form {pattern}: {value[:40]!r}")
    else:
        _check_bounds(value, schema.get("minimum"), schema.get("maximum"))
        if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
            raise InputError(f"out of range: {value}")
    return value


def _check_bounds(value: Any, least: Any, most: Any) -> None:
    if (least is not None and value < least) or (most is not None and value > most):
        raise InputError(f"out of range: {value}")
