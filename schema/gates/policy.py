"""Policies: the rules that a version must meet before a channel may point to it. People write them in TOML."""

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
    """The rules of a registry. A version must meet all rules that cover the channel."""

    rules: Annotated[tuple[Rule, ...], Field(alias="rule")] = ()

    def covering(self, model: str, channel: str) -> tuple[Rule, ...]:
        return tuple(rule for rule in self.rules if rule.covers(model, channel))

    def to_json(self) -> dict[str, Any]:
        return {"rule": [rule.to_json() for rule in self.rules]}


def read_policy(data: bytes, label: str) -> Policy:
    """Read a policy in TOML. Raise InputError, naming the file and the rule, if it is malformed."""
    return Policy.from_json(read_toml(data, label), label)


def policy_of(line: LogLine) -> Policy:
    """Return the policy that a line of the policy log sets. Raise IntegrityError if this build cannot read the policy."""
    with about(f"line {line.seq} of policy.jsonl cannot be read", IntegrityError, UPGRADE):
        return Policy.from_json({"rule": cast("PolicyEvent", line.event).rules}, "the policy")


class PolicyLog(Struct, frozen=True):
    """The file `policy.jsonl`: all policies of a registry, oldest first, as chained lines. The last policy applies."""

    registry: str
    lines: tuple[LogLine, ...] = ()

    @classmethod
    def decode(cls, data: bytes, registry: str) -> "PolicyLog":
        """Read the log. Raise IntegrityError if a line is malformed, not a policy, or breaks the chain."""
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
        """The policy that applies. Raise IntegrityError if this build cannot read the policy."""
        return policy_of(self.lines[-1]) if self.lines else Policy()
