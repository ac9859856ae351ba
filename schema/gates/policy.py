"""Policies: rules that a version must meet before a channel may point to it. People write TOML; the policy log has JSON."""

from typing import Annotated, Any, cast

from msgspec import Struct
from pydantic import Field

from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.document import WrittenDocument
from onnxreg.schema.core.errors import IntegrityError, about
from onnxreg.schema.core.files import read_toml
from onnxreg.schema.core.ref import POLICY_LOG
from onnxreg.schema.gates.rule import Rule
from onnxreg.schema.log.events import UPGRADE, LogLine, PolicyEvent, genesis, walk_chain

TAMPERED = "the registry was tampered with or damaged: compare policy.jsonl with a mirror's"


class Policy(WrittenDocument):
    """The rules of a registry. If several rules cover a channel of a model, the version must meet all of them."""

    rules: Annotated[tuple[Rule, ...], Field(alias="rule")] = ()

    def covering(self, model: str, channel: str) -> tuple[Rule, ...]:
        """Return the rules that a channel of a model must meet; empty if no rule covers the channel."""
        return tuple(rule for rule in self.rules if rule.covers(model, channel))

    def to_json(self) -> dict[str, Any]:
        return {"rule": [rule.to_json() for rule in self.rules]}


def read_policy(data: bytes, label: str) -> Policy:
    """Read a policy file. Raise InputError, naming the file and the rule, if the file is malformed."""
    return Policy.from_json(read_toml(data, label), label)


def policy_of(line: LogLine) -> Policy:
    """Return the policy that a line of a `PolicyLog` sets. Raise IntegrityError if this build cannot read the line."""
    with about(f"line {line.seq} of policy.jsonl cannot be read", IntegrityError, UPGRADE):
        return Policy.from_json({"rule": cast("PolicyEvent", line.event).rules}, "the policy")


class PolicyLog(Struct, frozen=True):
    """Every policy that a registry had, oldest first; the newest applies. Empty if the registry never had a policy.

    The log is the file `policy.jsonl`: chained lines without a state line.
    """

    registry: str
    lines: tuple[LogLine, ...] = ()

    @classmethod
    def decode(cls, data: bytes, registry: str) -> "PolicyLog":
        """Read the log. Raise IntegrityError if a line is unreadable, not a policy, or does not follow the line before it."""
        if not data.endswith(b"\n"):
            raise IntegrityError("policy.jsonl is cut short", TAMPERED)
        with about("policy.jsonl cannot be read", IntegrityError):
            lines = tuple(LogLine.decode(raw) for raw in data[:-1].split(b"\n"))
        for line in walk_chain(lines, POLICY_LOG, genesis(registry, POLICY_LOG), TAMPERED):
            if not isinstance(line.event, PolicyEvent):
                raise IntegrityError(f"policy.jsonl is broken at line {line.seq}", TAMPERED)
        return cls(registry, lines)

    @property
    def head(self) -> Digest:
        return self.lines[-1].digest if self.lines else genesis(self.registry, POLICY_LOG)

    @property
    def policy(self) -> Policy:
        """The newest policy, which applies. Raise IntegrityError as `policy_of` does."""
        return policy_of(self.lines[-1]) if self.lines else Policy()
