"""What people get told of a value that is not valid: where it stands and what is wrong, of pydantic's first error."""

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.suggest import nearest, suggest

UNKNOWN = "extra_forbidden"
"""What pydantic calls a key that a strict document does not have."""

Place = Sequence[int | str]
"""Keys, and positions from 0, from the top of a document."""

TOLD = {
    UNKNOWN: "there is no such key",
    "missing": "it is missing",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "it is no whole number"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "it is no number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "it is neither true nor false"),
    "string_type": "it is no text",
    **dict.fromkeys(("tuple_type", "list_type", "set_type"), "it is no list"),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type", "model_attributes_type"), "it has no keys"),
    "literal_error": "it can only be {expected}",
    "greater_than": "it must be more than {gt}",
    "greater_than_equal": "it must be at least {ge}",
    "less_than": "it must be less than {lt}",
    "less_than_equal": "it must be at most {le}",
    "string_too_long": "it is longer than {max_length} characters",
    "too_short": "it needs at least {min_length}",
    "too_long": "it may have at most {max_length}",
    "string_pattern_mismatch": "it does not match {pattern}",
}
"""Our words for pydantic's types of errors; whatever is not here keeps pydantic's."""


class InvalidValueError(InputError):
    """A document that is not valid. `what` is how people call it, `place` where in it something is wrong, and `told` what."""

    def __init__(self, what: str, place: Place, told: str, hint: str = "") -> None:
        super().__init__(f"{what} is not valid{told}", hint)
        self.place = place
        self._told = told

    def at_line(self, what: str, line: int) -> "InvalidValueError":
        """The same with the line of the file that it was read from."""
        return InvalidValueError(f"{what}, line {line},", self.place, self._told, self.hint)


def invalid(
    error: ValidationError, what: str, model: type[BaseModel], written: Any = None
) -> InvalidValueError:
    """The first of the errors, printable and short whatever the document holds.

    Args:
        written: the decoded document, where people wrote it: they count from 1 and know the parts that have a name.
    """
    found = first(error)
    place = found["loc"]
    path = dotted(place) if written is None else called(place, written)
    shown = path if path.isprintable() else repr(path)
    at = f" at {shown[:200]}" if path else ""
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    hint = _near_key(str(place[-1]), model) if found["type"] == UNKNOWN else ""
    return InvalidValueError(what, place, f"{at}: {words(found)}{more}", hint)


def refusal(error: ValidationError, what: str, known: Iterable[str]) -> InputError:
    """The first error of one of several named parameters, with what there is instead of one that is unknown.

    Args:
        what: such as `pass OrtFormat: parameter`.
        known: the names that there are.
    """
    found, names = first(error), list(known)
    place = [*found["loc"][:1], *(part for part in found["loc"][1:2] if isinstance(part, int))]
    where = called(place, None)[:80]
    if found["type"] == UNKNOWN:
        hint = suggest(where, names) if names else "it takes none"
        return InputError(f"{what} {where}: there is none", hint)
    told = [words(each) for each in error.errors(include_url=False) if each["loc"][:1] == found["loc"][:1]]
    return InputError(f"{f'{what} {where}'.rstrip()}: {' or '.join(dict.fromkeys(told))}")


def first(error: ValidationError) -> ErrorDetails:
    """An unknown key comes first: what is missing is what it was meant to be."""
    found = error.errors(include_url=False)
    return next((each for each in found if each["type"] == UNKNOWN), found[0])


def words(found: ErrorDetails) -> str:
    """What is wrong. YAML takes some texts for numbers, which their writer does not see."""
    told = TOLD.get(found["type"], found["msg"].removeprefix("Value error, "))
    said = told.format_map(found.get("ctx") or {}) if found["type"] in TOLD else told
    given = found["input"]
    if found["type"] == "string_type" and isinstance(given, int | float):
        return f"{said}: write it in quotes"
    return said


def dotted(place: Place) -> str:
    """`artifacts.0.size`"""
    return ".".join(map(str, place))


def called(place: Place, written: Any) -> str:
    """`steps[int8].params`; a part without a name is counted from 1: `steps[#2].params`"""
    path, value = "", written
    for part in place:
        value = _inside(value, part)
        if isinstance(part, int):
            name = value.get("name") if isinstance(value, dict) else None
            path += f"[{name if isinstance(name, str) else f'#{part + 1}'}]"
        else:
            path += f".{part}" if path else part
    return path


def _inside(value: Any, part: int | str) -> Any:
    try:
        return value[part]
    except (KeyError, IndexError, TypeError):
        return None


def _near_key(key: str, model: type[BaseModel]) -> str:
    """The key of the model, or of a part of it, that is most alike."""
    schema = model.model_json_schema()
    parts = [schema, *schema.get("$defs", {}).values()]
    near = nearest(key, {name for part in parts for name in part.get("properties", ())} - {key}, 0.7)
    return f"did you mean {' or '.join(near)}?" if near else ""
