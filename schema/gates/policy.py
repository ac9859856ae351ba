"""Policies: rules that a version must meet before a channel may point to it. TOML for people, JSON in the log."""

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, PlainValidator, model_validator

from onnxreg.schema.compare.severity import Severity
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import Table, WrittenDocument, value_error
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.text_files import read_toml
from onnxreg.schema.core.units import size
from onnxreg.schema.gates import demands
from onnxreg.schema.gates.demands import GateFinding, PromotionCandidate
from onnxreg.schema.log.events import check_channel
from onnxreg.schema.query.device import Device, preset
from onnxreg.schema.query.expression.fields import ARTIFACT_FIELDS
from onnxreg.schema.query.expression.parser import Expression, parse

Check = Callable[["Rule", PromotionCandidate], demands.Found]
"""Yields for each part of a demand if a candidate meets it, and the detail in words."""
PLANNED_KIND = r"[a-z0-9*]+(-[a-z0-9*]+)+"
"""A kind of change, `<noun>-<verb>`, or a pattern of kinds: it has a hyphen, so that a misspelt severity is refused."""
MAX_HOURS = 8760
"""A year: the longest rollout that a rule may demand."""


def _different(words: tuple[Any, ...]) -> tuple[Any, ...]:
    if not words or len(set(words)) < len(words) or "" in words:
        raise ValueError("not a list of different words, at least one")
    return words


def _expression(text: Any) -> Expression:
    """An expression about an artifact; not about the status of its version, which a promotion changes."""
    if not isinstance(text, str):
        raise InputError("not a text")
    expression = parse(text)
    for name in sorted(expression.fields() - {*ARTIFACT_FIELDS}):
        raise InputError(f"{name} is not a field of an artifact: these are {', '.join(ARTIFACT_FIELDS)}")
    return expression


def _device(value: Any) -> Device:
    return preset(value) if isinstance(value, str) else Device.read(value)


def _device_to_json(device: Device) -> str | dict[str, Any]:
    try:
        return device.name if preset(device.name) == device else device.to_json()
    except InputError:
        return device.to_json()


Words = Annotated[tuple[str, ...], AfterValidator(_different)]
Digests = Annotated[tuple[Digest, ...], AfterValidator(_different)]
Where = Annotated[Expression, PlainValidator(value_error(_expression)), PlainSerializer(str)]
Devices = tuple[
    Annotated[Device, PlainValidator(value_error(_device)), PlainSerializer(_device_to_json)], ...
]
Sizes = Table[Annotated[int, BeforeValidator(value_error(size))]]
Planned = Annotated[
    tuple[Severity | Annotated[str, Field(pattern=f"^{PLANNED_KIND}$")], ...], AfterValidator(_different)
]


class Rule(WrittenDocument):
    """The demands of a channel of some models; a key that is absent demands nothing. docs/gates.md explains the keys.

    The keys of demands have their check beside them. Sizes are bytes by format.
    """

    channel: Annotated[str, AfterValidator(value_error(check_channel))]
    models: Words = ("*",)
    certified: Annotated[Words, demands.certified] = ()
    signed_by: Annotated[Words, demands.signed_by] = ()
    signatures: Annotated[int, Field(gt=0)] | None = None
    suites: Annotated[Digests, demands.suites] = ()
    max_recall_loss: Annotated[float | None, Field(ge=0, le=1), demands.max_recall_loss] = None
    loss_interval: bool = False
    where: Annotated[Where | None, demands.where] = None
    synthetic: Annotated[Literal[False] | None, demands.synthetic] = None
    max_size: Annotated[Sizes, demands.max_size] = Field(default_factory=dict)
    licenses: Annotated[Words, demands.licenses] = ()
    devices: Annotated[Devices, demands.devices] = ()
    contract: Annotated[Digests, demands.contract] = ()
    breaking: Annotated[Literal[False] | None, demands.breaking] = None
    planned: Annotated[Planned, demands.planned] = ()
    faithful: Annotated[Literal[True] | None, demands.faithful] = None
    min_hours: Annotated[float | None, Field(gt=0, le=MAX_HOURS), demands.min_hours] = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.checks:
            raise ValueError(f"the rule for {self.channel} demands nothing")
        if self.signatures is not None and self.signatures > len(self.signed_by):
            raise ValueError(
                f"signatures is {self.signatures}, and signed_by names {len(self.signed_by)} keys"
            )
        if self.loss_interval and self.max_recall_loss is None:
            raise ValueError("loss_interval says what max_recall_loss is held against, which is missing")
        return self

    @property
    def checks(self) -> dict[str, Check]:
        """The checks of what it demands, by key."""
        return {
            key: check
            for key, field in type(self).model_fields.items()
            for check in field.metadata
            if callable(check) and getattr(self, key) not in (None, (), {})
        }

    @property
    def threshold(self) -> int:
        """The number of keys that must have signed."""
        return len(self.signed_by) if self.signatures is None else self.signatures

    def covers(self, model: str, channel: str) -> bool:
        return channel == self.channel and any(fnmatchcase(model, pattern) for pattern in self.models)

    def only(self, *keys: str) -> "Rule":
        """The rule with these demands alone."""
        return self.model_copy(update={key: None for key in self.checks if key not in keys})

    def to_json(self) -> dict[str, Any]:
        """The JSON value, without absent demands. A preset is written by its name."""
        demanded = self.model_dump(mode="json", exclude_defaults=True)
        return {"channel": self.channel, "models": list(self.models), **demanded}

    def evaluate(self, candidate: PromotionCandidate) -> tuple[GateFinding, ...]:
        """Hold a candidate against every demand."""
        return tuple(
            GateFinding(key, "pass" if is_met else "fail", detail)
            for key, check in self.checks.items()
            for is_met, detail in check(self, candidate)
        )


class _PolicyFile(WrittenDocument):
    """A policy as people write it."""

    rule: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of a registry. If several cover a channel of a model, all of them must hold."""

    rules: tuple[Rule, ...] = ()

    @property
    def signers(self) -> frozenset[str]:
        """The names and ids of the keys that its rules name: one of them signs the line of the next policy."""
        return frozenset(name for rule in self.rules for name in rule.signed_by)

    def covering(self, model: str, channel: str) -> tuple[Rule, ...]:
        """The rules that a channel of a model must meet; empty if it is free."""
        return tuple(rule for rule in self.rules if rule.covers(model, channel))

    def to_json(self) -> list[Any]:
        return [rule.to_json() for rule in self.rules]

    @classmethod
    def read(cls, value: Any, label: str = "the policy") -> "Policy":
        """Read the rules as JSON. InputError names the rule and the key."""
        return cls(_PolicyFile.from_json({"rule": value}, label).rule)


def policy_in_force(log: bytes) -> Policy:
    """Read the last policy of `policy.jsonl`, without its chain. Raise InputError if it cannot be read."""
    line = canonical.decode(log.removesuffix(b"\n").rpartition(b"\n")[2], "policy.jsonl")
    try:
        return Policy.read(line["event"]["rules"])
    except (KeyError, TypeError) as error:
        raise InputError("policy.jsonl does not end in a policy") from error


def read_policy(data: bytes, label: str) -> Policy:
    """Read a policy file. InputError, naming the file and the rule, if it is malformed."""
    return Policy(_PolicyFile.from_json(read_toml(data, label), label).rule)
