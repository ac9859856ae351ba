"""The contract of a pass: one typed transformation that says what it needs, and proves what it did.

Shaped like the passes of onnx/ir-py: the caller runs `requires`, `apply`, `ensures`, so that a pass cannot forget
its own postconditions.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from onnxreg.schema.core.problems import refusal
from onnxreg.schema.manifest.parts import Step

In = TypeVar("In")
Out = TypeVar("Out")
Takes = Literal["module", "graph", "file", "checkpoint", "outputs"]
"""The subject of a pass: a `TorchModel`, an `onnx.ModelProto`, a graph's path, a checkpoint, or outputs."""


class PassParams(BaseModel):
    """Parameters of a pass: frozen, and an unknown key is an error. A list, as documents have them, is a tuple."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _tuples(cls, value: Any) -> Any:
        return {key: _as_tuples(item) for key, item in value.items()} if isinstance(value, dict) else value


class Pass(ABC, Generic[In, Out]):
    """One transformation with typed parameters.

    `id` and `version` name what the pass does to bytes: a change of output for equal input is a new version.
    """

    id: ClassVar[str]
    version: ClassVar[int] = 1
    Params: ClassVar[type[PassParams]] = PassParams

    takes: ClassVar[Takes] = "graph"
    tools: ClassVar[tuple[str, ...]] = ()
    """Packages that shape what the pass makes, beside those of every recipe (`toolchain.TOOLS`)."""

    def __init__(self, **params: Any) -> None:
        self.params: Any = self.read(params)

    @classmethod
    def read(cls, params: Mapping[str, Any]) -> PassParams:
        """The parameters, checked. InputError names the first that is not valid."""
        try:
            return cls.Params(**params)
        except ValidationError as error:
            raise refusal(error, f"pass {cls.id}: parameter", cls.Params.model_fields) from error

    def requires(self, subject: In) -> None:
        """Raise InputError or ConversionError if the pass cannot work on `subject`.

        The default asks nothing.
        """
        return

    def observe(self, subject: In) -> Mapping[str, Any]:
        """Facts of the input that `ensures` compares with; taken before `apply`, which may consume its input."""
        return {}

    @abstractmethod
    def apply(self, subject: In) -> Out:
        """Do the work. The input belongs to the pass and may be changed in place."""

    @abstractmethod
    def ensures(self, before: Mapping[str, Any], after: Out) -> dict[str, Any]:
        """Return what was got, read from the output; raise ConversionError if that is not what was asked."""


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def run(step: str, work: Pass[In, Out], subject: In, source: str | None = None) -> tuple[Out, Step]:
    """Run one pass under its contract and return its output with the recipe step that records it.

    Args:
        step: name of the step, unique in its recipe.
        source: name of the earlier step whose output `subject` is; None for the first.
    """
    work.requires(subject)
    before = work.observe(subject)
    after = work.apply(subject)
    result = work.ensures(before, after)
    params = work.params.model_dump(mode="json")
    recorded = {"name": step, "pass": work.id, "version": work.version, "params": params, "result": result}
    return after, Step.from_json(recorded if source is None else {**recorded, "input": source})


def skip(step: str, work: Pass[In, Out], source: str, reason: str) -> Step:
    """The recipe step of a pass that could not run where the profile allows that. `reason` names a dependency only."""
    params = work.params.model_dump(mode="json")
    recorded = {"name": step, "pass": work.id, "version": work.version, "params": params, "input": source}
    return Step.from_json({**recorded, "skipped": reason})
