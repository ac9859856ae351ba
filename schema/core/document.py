"""The base classes of pydantic documents, and types of their fields."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

import pydantic

from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import convert
from onnxreg.schema.core.errors import InputError, nearest, value_error
from onnxreg.schema.core.ref import PATTERN, check_name, check_path

T = TypeVar("T")

Count = Annotated[int, pydantic.Field(ge=0, le=canonical.MAX_INTEGER)]  # from 0 to 2**53 - 1
# The format version 1. `true` equals 1 in Python, and is refused.
First = Annotated[
    Literal[1], pydantic.BeforeValidator(value_error(lambda value: convert(value, int, "a version")))
]
Text = Annotated[str, pydantic.Field(max_length=4096)]
ModelName = Annotated[str, pydantic.AfterValidator(value_error(check_name))]
# A path inside a manifest, which `check_path` accepts.
RelPath = Annotated[
    str,
    pydantic.AfterValidator(value_error(check_path)),
    pydantic.WithJsonSchema({"type": "string", "maxLength": 1024, "pattern": PATTERN}),
]
# A JSON array. Only the first wrong element is reported: a hostile array cannot cause a million messages.
Items = Annotated[tuple[T, ...], pydantic.Field(fail_fast=True)]
Table = Mapping[str, T]  # keys are data, such as names
JsonObject = Mapping[str, Any]


class Document(pydantic.BaseModel):
    """A JSON object, validated strictly. Unknown keys are kept. Default values are not written."""

    model_config = pydantic.ConfigDict(
        frozen=True, extra="allow", strict=True, allow_inf_nan=False, validate_by_name=True, defer_build=True
    )

    def to_json(self) -> dict[str, Any]:
        """Return the document as a JSON value, with only the fields that were set."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)

    def encode(self) -> bytes:
        """Return the canonical bytes (RFC 8785)."""
        return canonical.encode(self.to_json(), type(self).__name__)

    @classmethod
    def from_json(cls, value: Any, label: str = "document") -> Self:
        """Read a decoded JSON value. Raise InputError, naming the path of the first wrong field."""
        return cls.decode(canonical.encode(value, label), label)

    @classmethod
    def decode(cls, data: bytes, label: str = "document") -> Self:
        """Read JSON. Raise InputError, naming the path of the first wrong field."""
        canonical.decode(data, label)
        try:
            return cls.model_validate_json(data, by_alias=True, by_name=False)
        except pydantic.ValidationError as error:
            own = [field.alias or name for name, field in cls.model_fields.items()]
            raise invalid(error, label, _keys(cls), f"its keys are {', '.join(own)}") from error


def _keys(model: type[Document]) -> Iterator[str]:
    # The schema takes 20 ms, so it is made only if a key is needed.
    schema = model.model_json_schema()
    for part in (schema, *schema.get("$defs", {}).values()):
        yield from part.get("properties", ())


class WrittenDocument(Document):
    """A document that people write. Unknown keys are refused, because they may be misspellings."""

    model_config = pydantic.ConfigDict(extra="forbid")


def invalid(
    error: pydantic.ValidationError, label: str, keys: Iterable[str] = (), listing: str = ""
) -> InputError:
    """Return the error for a document in which pydantic found faults. It reports an unknown key first.

    The hint for an unknown key names similar keys among `keys`. If none is similar, `listing` is the hint for a key of
    the outermost object.
    """
    problems = sorted(error.errors(include_url=False), key=lambda item: item["type"] != "extra_forbidden")
    problem, kind, alike = problems[0], problems[0]["type"], list[str]()
    words = problem["msg"].removeprefix("Value error, ").replace("Input should be", "it must be")
    words = {"extra_forbidden": "there is no such key", "missing": "it is missing"}.get(kind, words)
    if kind == "extra_forbidden":
        alike = nearest(key := str(problem["loc"][-1]), sorted(set(keys) - {key}))
    if kind == "string_type" and isinstance(problem["input"], int | float):
        words += ": write it in quotes"  # YAML reads some texts as numbers
    path = ".".join(map(str, problem["loc"]))
    location = f" at {(path if path.isprintable() else repr(path))[:200]}" if path else ""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    is_unknown = kind == "extra_forbidden" and len(problem["loc"]) == 1
    hint = f"did you mean {' or '.join(alike)}?" if alike else listing if is_unknown else ""
    return InputError(f"{label} is not valid{location}: {words[:200]}{more}", hint)
