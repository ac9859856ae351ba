"""The base of every pydantic document: frozen, strict, and lossless for keys that this build does not know.

An invalid document is an `InvalidValueError`: the place and the fault of the first error of pydantic, in words for
people.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NoReturn, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import ErrorDetails

from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import InputError, nearest, suggest
from onnxreg.schema.core.paths import PATTERN, check_path
from onnxreg.schema.core.ref import check_name

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


def _refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
    raise TypeError("a document is frozen: make a new one from its JSON value")


class FrozenDict(dict[str, Any]):
    """A JSON object that raises TypeError on every attempt to change it."""

    def __reduce__(self) -> Any:
        return FrozenDict, (dict(self),)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


class FrozenList(list[Any]):
    """A JSON array that raises TypeError on every attempt to change it."""

    def __reduce__(self) -> Any:
        return FrozenList, (list(self),)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


for _name in ("__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"):
    setattr(FrozenDict, _name, _refuse)
for _name in (
    *("__setitem__", "__delitem__", "__iadd__", "__imul__"),
    *("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"),
):
    setattr(FrozenList, _name, _refuse)


def freeze(value: Any) -> Any:
    """A JSON value with all its containers frozen."""
    if isinstance(value, dict):
        return FrozenDict({key: freeze(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return FrozenList(freeze(item) for item in value)
    return value


T = TypeVar("T")


def value_error(check: Callable[[str], str]) -> Callable[[str], str]:
    """The check with the exception that pydantic gives a place in the document to."""

    def checked(text: str) -> str:
        try:
            return check(text)
        except InputError as error:
            raise ValueError(error.message) from error

    return checked


Count = Annotated[int, Field(ge=0, le=canonical.MAX_INTEGER)]
"""A whole number that is not negative."""

Size = Count
"""A count of bytes."""


def _no_flag(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a version is a number")  # noqa: TRY004
    return value


First = Annotated[Literal[1], BeforeValidator(_no_flag)]
"""The format version 1; `true`, which equals 1 in Python, is refused."""

Text = Annotated[str, Field(max_length=4096)]

ModelName = Annotated[str, AfterValidator(value_error(check_name))]

RelPath = Annotated[
    str,
    AfterValidator(check_path),
    WithJsonSchema({"type": "string", "maxLength": 1024, "pattern": PATTERN}),
]
"""A path inside a manifest, see `paths.check_path`."""

Items = Annotated[tuple[T, ...], Field(fail_fast=True)]
"""A JSON array. The first wrong element ends the reading, so that a hostile one cannot cost a million messages."""

Table = Annotated[Mapping[str, T], AfterValidator(FrozenDict)]
"""A JSON object whose keys are data."""

JsonValue = Annotated[Any, AfterValidator(freeze)]
"""Any JSON value, frozen."""

JsonObject = Annotated[Mapping[str, Any], AfterValidator(freeze)]
"""Any JSON object, frozen."""


class Document(BaseModel):
    """A JSON object. Keys that were absent stay absent when it is written, unknown keys are kept."""

    model_config = ConfigDict(
        frozen=True, extra="allow", strict=True, allow_inf_nan=False, validate_by_name=True
    )

    __pydantic_extra__: dict[str, JsonValue]

    def to_json(self) -> dict[str, Any]:
        """The JSON value: only what was set, under the names of the format."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def encode(self) -> bytes:
        """The canonical bytes (RFC 8785)."""
        return canonical.encode(self.to_json(), type(self).__name__)

    @classmethod
    def from_json(cls, value: Any, label: str = "document") -> Self:
        """Validate a decoded JSON value; an InputError names the path of the first offending field."""
        return cls._validate(canonical.encode(value, label), label)

    @classmethod
    def decode(cls, data: bytes, label: str = "document") -> Self:
        """Validate JSON bytes; an InputError names the path of the first offending field."""
        canonical.decode(data, label)
        return cls._validate(data, label)

    @classmethod
    def _validate(cls, data: bytes, label: str) -> Self:
        try:
            return cls.model_validate_json(data, by_alias=True, by_name=False)
        except ValidationError as error:
            written = json.loads(data) if cls.model_config.get("extra") == "forbid" else None
            raise invalid(error, label, cls, written) from error


class RuledDocument(Document):
    """A document with rules that join two fields. They are in a class of its own, so that they can be kept without pydantic;
    see `schema_reader`.
    """

    @model_validator(mode="after")
    def _keep_rules(self) -> Self:
        self.check_rules()
        return self

    def check_rules(self) -> None:
        """Raise ValueError with the rule that is broken."""
        raise NotImplementedError


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
