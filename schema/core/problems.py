"""Messages about invalid values: the place and the fault of pydantic's first error, in words for people."""

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from onnxreg.schema.core.errors import InputError, nearest, suggest

UNKNOWN_KEY = "extra_forbidden"
"""Pydantic's error type for an unknown key of a strict document."""

Place = Sequence[int | str]
"""Keys, and positions from 0, from the top of a document."""

MESSAGE_TEMPLATES = {
    UNKNOWN_KEY: "there is no such key",
    "missing": "it is missing",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "it must be an integer"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "it must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "it must be true or false"),
    "string_type": "it must be text",
    **dict.fromkeys(("tuple_type", "list_type", "set_type"), "it must be a list"),
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
    """A document that is not valid. `label` names it, `location` is the path of the fault, `detail` says what is wrong."""

    def __init__(self, label: str, location: Place, detail: str, hint: str = "") -> None:
        super().__init__(f"{label} is not valid{detail}", hint)
        self.place = location
        self._detail = detail

    def at_line(self, label: str, line: int) -> "InvalidValueError":
        """The same with the line of the file that it was read from."""
        return InvalidValueError(f"{label}, line {line},", self.place, self._detail, self.hint)


def invalid(
    error: ValidationError, label: str, model: type[BaseModel], written: Any = None
) -> InvalidValueError:
    """Turn the first error into an InvalidValueError, printable and short whatever the document holds.

    Args:
        written: the decoded document, if people wrote it: they count from 1 and know parts by name.
    """
    problem = first(error)
    location = problem["loc"]
    path = dotted(location) if written is None else called(location, written)
    path_text = path if path.isprintable() else repr(path)
    at = f" at {path_text[:200]}" if path else ""
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    hint = _near_key(str(location[-1]), model) if problem["type"] == UNKNOWN_KEY else ""
    return InvalidValueError(label, location, f"{at}: {words(problem)}{more}", hint)


def refusal(error: ValidationError, label: str, known_names: Iterable[str]) -> InputError:
    """Turn the first error of a named parameter into an InputError; for an unknown name with the known ones.

    Args:
        label: such as `pass OrtFormat: parameter`.
        known_names: the names that there are.
    """
    problem, names = first(error), list(known_names)
    location = [*problem["loc"][:1], *(part for part in problem["loc"][1:2] if isinstance(part, int))]
    name = called(location, None)[:80]
    if problem["type"] == UNKNOWN_KEY:
        hint = suggest(name, names) if names else "it takes none"
        return InputError(f"{label} {name}: there is none", hint)
    reasons = [
        words(item) for item in error.errors(include_url=False) if item["loc"][:1] == problem["loc"][:1]
    ]
    return InputError(f"{f'{label} {name}'.rstrip()}: {' or '.join(dict.fromkeys(reasons))}")


def first(error: ValidationError) -> ErrorDetails:
    """The error to report first: an unknown key, since a missing key is often its correct spelling."""
    problems = error.errors(include_url=False)
    return next((problem for problem in problems if problem["type"] == UNKNOWN_KEY), problems[0])


def words(problem: ErrorDetails) -> str:
    """Describe an error. YAML reads some texts as numbers, which is not obvious to their writer."""
    template = MESSAGE_TEMPLATES.get(problem["type"], problem["msg"].removeprefix("Value error, "))
    message = (
        template.format_map(problem.get("ctx") or {}) if problem["type"] in MESSAGE_TEMPLATES else template
    )
    value = problem["input"]
    if problem["type"] == "string_type" and isinstance(value, int | float):
        return f"{message}: write it in quotes"
    return message


def dotted(location: Place) -> str:
    """`artifacts.0.size`"""
    return ".".join(map(str, location))


def called(location: Place, written: Any) -> str:
    """`steps[int8].params`; a part without a name is counted from 1: `steps[#2].params`"""
    path, value = "", written
    for part in location:
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
    """A hint with the most similar key of the model, or of a part of it."""
    schema = model.model_json_schema()
    parts = [schema, *schema.get("$defs", {}).values()]
    candidates = nearest(key, {name for part in parts for name in part.get("properties", ())} - {key}, 0.7)
    return f"did you mean {' or '.join(candidates)}?" if candidates else ""
