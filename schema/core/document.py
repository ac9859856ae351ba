"""The base of every pydantic document: frozen, strict, and lossless for keys that this build does not know."""

import json
from collections.abc import Callable, Mapping
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

from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.paths import PATTERN, check_path
from onnxreg.schema.core.problems import invalid
from onnxreg.schema.core.ref import check_name


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
