"""Policies: rules that a version must meet before a channel may point to it. TOML for people, JSON in the log.

[[rule]]
channel = "stable"
models = ["acme/*"]                    # shell patterns; default: every model
certified = ["onnx-int8"]              # formats that must be there, and certified
signed_by = ["release"]                # keys, by the reader's name for them or by id ...
signatures = 1                         # ... so many of which must have signed (default: all)
suites = ["sha256:..."]                # evaluation suites, each of which certified them and refused none
max_recall_loss = 0.005
loss_interval = true                   # the upper end of the loss's 95 % interval counts, not the point
where = "metric['sts/spearman'] >= 0.82"   # the certified artifacts meet an expression
synthetic = false                      # the suite of a certificate says that it is not synthetic
max_size = {onnx-int8 = "40MB"}        # the most bytes to download, companions included
licenses = ["Apache-2.0"]
devices = ["ort-android-1.23"]         # presets, or device documents: each must get an artifact
contract = ["sha256:..."]              # what apps in the field were written for: each is that of an artifact
breaking = false                       # nothing breaks an app that ran what the channel held before
planned = ["weights-*", "notable"]     # changes since then: kinds of `reg diff` or severities; cosmetic ones always may be
faithful = true                        # a proof is on record that each smaller artifact is its parent, rounded
min_hours = 24                         # a rollout of so many hours goes before it
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, get_args

from onnxreg.schema.compare.severity import Severity
from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import count, flag, items, mapping, number, required, text
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.text_files import read_toml
from onnxreg.schema.core.units import size
from onnxreg.schema.log.events import check_channel
from onnxreg.schema.query.device import Device, preset
from onnxreg.schema.query.expression import parser
from onnxreg.schema.query.expression.fields import ARTIFACT_FIELDS
from onnxreg.schema.query.expression.parser import Expression
from onnxreg.schema.query.question_document import digests
from onnxreg.schema.query.requirements import share

PLANNED_KIND = re.compile(r"[a-z0-9*]+(-[a-z0-9*]+)+")
"""A kind of change, `<noun>-<verb>`, or a pattern of kinds."""
MAX_HOURS = 8760
"""A year: the longest rollout that a rule may demand."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The demands of a channel of some models; None or empty demands nothing. Sizes are bytes by format."""

    channel: str
    models: tuple[str, ...] = ("*",)
    certified: tuple[str, ...] = ()
    signed_by: tuple[str, ...] = ()
    signatures: int | None = None
    suites: tuple[str, ...] = ()
    max_recall_loss: float | None = None
    loss_interval: bool = False
    where: Expression | None = None
    synthetic: bool | None = None
    max_size: Mapping[str, int] = field(default_factory=dict)
    licenses: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    contract: tuple[str, ...] = ()
    breaking: bool | None = None
    planned: tuple[str, ...] = ()
    faithful: bool | None = None
    min_hours: float | None = None

    @property
    def threshold(self) -> int:
        """The number of keys that must have signed."""
        return len(self.signed_by) if self.signatures is None else self.signatures

    def covers(self, model: str, channel: str) -> bool:
        return channel == self.channel and any(fnmatchcase(model, pattern) for pattern in self.models)

    def to_json(self) -> dict[str, Any]:
        """The JSON value, without absent demands. A preset is written by its name."""
        value: dict[str, Any] = {key: getattr(self, key) for key in _READ}
        value["devices"] = [_device_to_json(device) for device in self.devices]
        value["max_size"] = dict(self.max_size)
        value = {key: list(item) if isinstance(item, tuple) else item for key, item in value.items()}
        value["loss_interval"] = self.loss_interval or None
        value["where"] = None if self.where is None else str(self.where)
        return {key: item for key, item in value.items() if item is not None and item != [] and item != {}}

    @classmethod
    def read(cls, value: Any) -> "Rule":
        """Read a rule strictly: a misspelt demand would demand nothing. InputError names the key."""
        fields = mapping(value)
        for key in fields:
            if key not in _READ:
                raise InputError(f"{key[:40]!r} is not a key of a rule", f"the keys are {', '.join(_READ)}")
        required(fields, "channel")
        rule = cls(**{key: _keyed(key, item) for key, item in fields.items()})
        rule.check()
        return rule

    def check(self) -> None:
        """InputError if the parts do not fit each other."""
        if self.to_json().keys() <= {"channel", "models"}:
            raise InputError(f"the rule for {self.channel} demands nothing", f"known are {', '.join(_READ)}")
        if self.signatures is not None and not 0 < self.signatures <= len(self.signed_by):
            raise InputError(
                f"signatures is {self.signatures}, and signed_by names {len(self.signed_by)} keys",
                "ask for at least one, and for no more than are named",
            )
        if self.loss_interval and self.max_recall_loss is None:
            raise InputError("loss_interval says what max_recall_loss is held against, which is missing")
        for key, idle in (("synthetic", True), ("breaking", True), ("faithful", False)):
            if getattr(self, key) is idle:
                word, other = (str(value).lower() for value in (idle, not idle))
                raise InputError(
                    f"{key} = {word} demands nothing", f"write {key} = {other}, or leave it away"
                )


def _keyed(key: str, value: Any) -> Any:
    try:
        return _READ[key](value)
    except InputError as error:
        raise InputError(f"{key}: {error.message}", error.advice) from error


def _texts(value: Any) -> tuple[str, ...]:
    texts = items(value, text)
    if not texts or len(set(texts)) < len(texts) or "" in texts:
        raise InputError("not a list of different words, at least one")
    return texts


def _expression(value: Any) -> Expression:
    """An expression about an artifact; not about the status of its version, which a promotion changes."""
    expression = parser.parse(text(value))
    for name in sorted(expression.fields()):
        if name not in ARTIFACT_FIELDS:
            raise InputError(
                f"{name} is not a field of an artifact", f"the fields are {', '.join(ARTIFACT_FIELDS)}"
            )
    return expression


def _device(value: Any) -> Device:
    return preset(value) if isinstance(value, str) else Device.read(value)


def _device_to_json(device: Device) -> str | dict[str, Any]:
    try:
        preset_device = preset(device.name)
    except InputError:
        preset_device = None
    return device.name if preset_device == device else device.to_json()


def _planned(value: Any) -> tuple[str, ...]:
    """Severities, and patterns of kinds of changes: each of these has a hyphen, so that a misspelt severity is refused."""
    words = _texts(value)
    for word in words:
        if word not in get_args(Severity) and not PLANNED_KIND.fullmatch(word):
            raise InputError(
                f"{word[:40]!r} is neither a severity nor a kind of change",
                f"write {', '.join(get_args(Severity))}, or a kind such as weights-changed or check-*",
            )
    return words


def _hours(value: Any) -> float:
    hours = number(value)
    if not 0 < hours <= MAX_HOURS:
        raise InputError(f"not a number of hours: {hours:g}", f"write a number above 0, at most {MAX_HOURS}")
    return hours


_READ: dict[str, Callable[[Any], Any]] = {
    "channel": check_channel,
    "models": _texts,
    "certified": _texts,
    "signed_by": _texts,
    "signatures": count,
    "suites": lambda value: tuple(str(Digest.parse(suite)) for suite in _texts(value)),
    "max_recall_loss": share,
    "loss_interval": flag,
    "where": _expression,
    "synthetic": flag,
    "max_size": lambda value: {form: size(most) for form, most in mapping(value).items()},
    "licenses": _texts,
    "devices": lambda value: items(value, _device),
    "contract": lambda value: tuple(map(str, digests(value))),
    "breaking": flag,
    "planned": _planned,
    "faithful": flag,
    "min_hours": _hours,
}
"""The words of a rule, and how each is read."""


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
    def read(cls, value: Any) -> "Policy":
        """Read the rules as JSON. InputError names the rule and the key."""
        return cls(tuple(_numbered(number, rule) for number, rule in enumerate(items(value, mapping), 1)))


def _numbered(number: int, value: Any) -> Rule:
    try:
        return Rule.read(value)
    except InputError as error:
        raise InputError(f"rule {number}: {error.message}", error.advice) from error


def policy_in_force(log: bytes) -> Policy:
    """Read the last policy of `policy.jsonl`, without its chain. Raise InputError if it cannot be read."""
    line = mapping(canonical.decode(log.removesuffix(b"\n").rpartition(b"\n")[2], "policy"))
    return Policy.read(required(mapping(required(line, "event")), "rules"))


def read_policy(data: bytes, label: str) -> Policy:
    """Read a policy file. InputError, naming the file and the rule, if it is malformed."""
    value = read_toml(data, label)
    try:
        unknown = value.keys() - {"rule"}
        if unknown:
            raise InputError(f"{min(unknown)[:40]!r} is not a key of a policy", "it is a list of [[rule]]")
        return Policy.read(value.get("rule", []))
    except InputError as error:
        raise InputError(f"{label}: {error.message}", error.advice) from error
