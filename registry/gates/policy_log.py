"""The policies of a registry: set one, copy them to a mirror, and refuse a move of a governed channel."""

from functools import partial
from shlex import quote

from onnxreg.registry.log.log import mirror_error
from onnxreg.registry.signing import line_signer
from onnxreg.registry.store.protocol import IndexFile, RegistryReader, RegistryStore
from onnxreg.registry.support.actor import stamp
from onnxreg.registry.trust.checked_reader import load_trust
from onnxreg.registry.trust.requirements import unauthorized_policies
from onnxreg.schema.core.errors import ConflictError, ForkError, GateError, LostRaceError
from onnxreg.schema.core.ref import POLICY_LOG
from onnxreg.schema.gates.policy import Policy, PolicyLog
from onnxreg.schema.log.events import PolicyEvent
from onnxreg.schema.log.logline import LogLine
from onnxreg.schema.signing.dsse import SignLine, sign_line


def read_policies(reader: RegistryReader) -> PolicyLog:
    """The log of policies of a registry, its chain verified."""
    return policies_in(reader.read_index(POLICY_LOG), reader.registry_id)


def policies_in(index: IndexFile | None, registry: str) -> PolicyLog:
    """The log of policies in an index file that was read."""
    return PolicyLog(registry) if index is None else PolicyLog.decode(index.data, registry)


def with_policy(
    log: PolicyLog,
    policy: Policy,
    actor: str | None = None,
    reason: str | None = None,
    sign: SignLine | None = None,
) -> PolicyLog:
    """The log with a further policy; nothing is written."""
    event = PolicyEvent(**stamp(POLICY_LOG, actor, reason), rules=policy.to_json())
    line = LogLine.make(len(log.lines) + 1, log.head, event, sign=sign)
    return PolicyLog(log.registry, (*log.lines, line))


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
    log = policies_in(index, store.registry_id)
    if log.lines and log.policy == policy:
        return None
    signer = line_signer()
    sign = partial(sign_line, store.registry_id, signer) if signer else None
    longer = with_policy(log, policy, actor, reason, sign)
    for _, problem in unauthorized_policies(load_trust(), longer.registry, longer.lines[-2:]):
        raise GateError(
            problem,
            "sign with one of them: set REG_SIGNING_KEY, and trust it by that name: reg trust add NAME KEY",
        )
    _publish(store, longer, index)
    return longer.lines[-1]


def _publish(store: RegistryStore, log: PolicyLog, before: IndexFile | None) -> None:
    """Put a log in the place of the file that was read before. ConflictError if another one is there."""
    data = b"".join(line.raw + b"\n" for line in log.lines)
    try:
        with store.push() as push:
            push.publish(POLICY_LOG, data, before.token if before else None)
    except LostRaceError as error:
        raise ConflictError(
            "somebody else set a policy meanwhile", "`reg policy show` shows it; then decide again"
        ) from error


def copy_policies(original: PolicyLog, destination: RegistryStore) -> None:
    """Copy a log of policies to a mirror, verbatim. Raise ForkError if the mirror has other lines."""
    index = destination.read_index(POLICY_LOG)
    copy = policies_in(index, original.registry)
    if original.lines[: len(copy.lines)] != copy.lines[: len(original.lines)]:
        raise ForkError(
            f"two copies of registry {original.registry} have different policy logs",
            "one of them was rewritten; nothing was changed",
        )
    if len(original.lines) > len(copy.lines):
        _publish(destination, original, index)


def check_free(reader: RegistryReader, name: str, channel: str, is_remote: bool = False) -> None:
    """Raise GateError if a channel is governed: only a promotion moves it."""
    if read_policies(reader).policy.covering(name, channel):
        remote = f" --remote {quote(reader.url)}" if is_remote else ""
        raise GateError(
            f"a policy governs {name}:{channel} in {reader.url}",
            f"promote instead: reg promote {name}:VERSION {channel}{remote}",
        )
