"""Policies: rules that a version must meet before a channel may point to it. TOML for people, JSON in the log."""

from dataclasses import dataclass
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.document import WrittenDocument
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.core.text_files import read_toml
from onnxreg.schema.gates.rule import Rule
from onnxreg.schema.log.events import PolicyEvent
from onnxreg.schema.log.logline import LogLine


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


def policy_of(line: LogLine) -> Policy:
    """The policy that a line of `policy.jsonl` set. IntegrityError if this build cannot read it: nothing is known to hold."""
    assert isinstance(line.event, PolicyEvent), "the log of policies has no other events"
    try:
        return Policy.read(line.event.rules)
    except InputError as error:
        raise IntegrityError(
            f"line {line.seq} of policy.jsonl cannot be read: {error.message}",
            "a newer onnxreg may have written it: upgrade this one",
        ) from error


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
