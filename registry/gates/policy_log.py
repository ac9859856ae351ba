"""The registry's log of policies, `policy.jsonl`: chained lines in one file, without a state."""

from dataclasses import dataclass
from functools import partial
from shlex import quote

from onnxreg.registry.log.log import mirror_error, read_line
from onnxreg.registry.signing import line_signer
from onnxreg.registry.store.protocol import IndexFile, RegistryReader, RegistryStore
from onnxreg.registry.support.actor import stamp
from onnxreg.registry.trust.checked_reader import load_trust
from onnxreg.registry.trust.requirements import unauthorized_policies
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import (
    ConflictError,
    ForkError,
    GateError,
    IntegrityError,
    LostRaceError,
)
from onnxreg.schema.core.ref import POLICY_LOG
from onnxreg.schema.gates.policy import Policy, policy_of
from onnxreg.schema.log.events import PolicyEvent
from onnxreg.schema.log.logline import LogLine, genesis, walk_chain
from onnxreg.schema.signing.dsse import SignLine, sign_line

TAMPERED = "the registry was tampered with or damaged: compare policy.jsonl with a mirror's"


@dataclass(frozen=True)
class PolicyLog:
    """Every policy that a registry had, oldest first; the newest is in force. Empty if it never had one."""

    registry: str
    lines: tuple[LogLine, ...] = ()

    @classmethod
    def decode(cls, index: IndexFile | None, registry: str) -> "PolicyLog":
        """Raise IntegrityError if a line cannot be read, is not a policy, or does not follow the one before."""
        if index is None:
            return cls(registry)
        if not index.data.endswith(b"\n"):
            raise IntegrityError("policy.jsonl is cut short", TAMPERED)
        lines = tuple(read_line(raw, POLICY_LOG) for raw in index.data[:-1].split(b"\n"))
        for line in walk_chain(lines, POLICY_LOG, genesis(registry, POLICY_LOG), TAMPERED):
            if not isinstance(line.event, PolicyEvent):
                raise IntegrityError(f"policy.jsonl is broken at line {line.seq}", TAMPERED)
        return cls(registry, lines)

    @property
    def head(self) -> Digest:
        return self.lines[-1].digest if self.lines else genesis(self.registry, POLICY_LOG)

    @property
    def policy(self) -> Policy:
        """The policy in force. Raise IntegrityError as `policy_of`."""
        return policy_of(self.lines[-1]) if self.lines else Policy()

    def at(self, digest: Digest) -> tuple[int, Policy] | None:
        """The number of a line, and the policy that it set; None if no line has that digest."""
        line = next((item for item in self.lines if item.digest == digest), None)
        return None if line is None else (line.seq, policy_of(line))

    def append(
        self,
        policy: Policy,
        actor: str | None = None,
        reason: str | None = None,
        sign: SignLine | None = None,
    ) -> "PolicyLog":
        """The log with a further policy; nothing is written."""
        event = PolicyEvent(**stamp(POLICY_LOG, actor, reason), rules=policy.to_json())
        line = LogLine.make(len(self.lines) + 1, self.head, event, sign=sign)
        return PolicyLog(self.registry, (*self.lines, line))

    def publish(self, store: RegistryStore, before: IndexFile | None) -> None:
        """Put it in the place of the file that was read before. ConflictError if another one is there."""
        data = b"".join(line.raw + b"\n" for line in self.lines)
        try:
            with store.push() as push:
                push.publish(POLICY_LOG, data, before.token if before else None)
        except LostRaceError as error:
            raise ConflictError(
                "somebody else set a policy meanwhile", "`reg policy show` shows it; then decide again"
            ) from error


def read_policies(reader: RegistryReader) -> PolicyLog:
    """The log of policies of a registry, its chain verified."""
    return PolicyLog.decode(reader.read_index(POLICY_LOG), reader.registry_id)


def set_policy(
    store: RegistryStore, policy: Policy, actor: str | None = None, reason: str | None = None
) -> LogLine | None:
    """Put a policy in force; the new line, None if just that policy is in force.

    Raise ConflictError in a mirror, or if another user sets a policy meanwhile. Raise GateError if the policy in force
    names keys, and none of them signs the line.
    """
    if store.is_mirror:
        raise mirror_error(store.registry_id)
    index = store.read_index(POLICY_LOG)
    log = PolicyLog.decode(index, store.registry_id)
    if log.lines and log.policy == policy:
        return None
    signer = line_signer()
    longer = log.append(
        policy, actor, reason, partial(sign_line, store.registry_id, signer) if signer else None
    )
    for _, problem in unauthorized_policies(load_trust(), log.registry, longer.lines[-2:]):
        raise GateError(
            problem,
            "sign with one of them: set REG_SIGNING_KEY, and trust it by that name: reg trust add NAME KEY",
        )
    longer.publish(store, index)
    return longer.lines[-1]


def copy_policies(source: RegistryReader, destination: RegistryStore) -> int:
    """Copy the log of policies to a mirror, verbatim. Return the number of new lines.

    Raise ForkError if it has other lines.
    """
    original, index = read_policies(source), destination.read_index(POLICY_LOG)
    copy = PolicyLog.decode(index, original.registry)
    if original.lines[: len(copy.lines)] != copy.lines[: len(original.lines)]:
        raise ForkError(
            f"two copies of registry {original.registry} have different policy logs",
            "one of them was rewritten; nothing was changed",
        )
    new = max(0, len(original.lines) - len(copy.lines))
    if new:
        original.publish(destination, index)
    return new


def check_free(reader: RegistryReader, name: str, channel: str, is_remote: bool = False) -> None:
    """Raise GateError if a channel is governed: only a promotion moves it."""
    if read_policies(reader).policy.covering(name, channel):
        remote = f" --remote {quote(reader.url)}" if is_remote else ""
        raise GateError(
            f"a policy governs {name}:{channel} in {reader.url}",
            f"promote instead: reg promote {name}:VERSION {channel}{remote}",
        )
