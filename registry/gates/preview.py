"""The channels that a new policy would block, before it is in force."""

from collections.abc import Iterator
from dataclasses import dataclass

from onnxreg.registry.gates.enforce import check_held
from onnxreg.registry.gates.policy_log import PolicyLog, read_policies, with_policy
from onnxreg.registry.log import lookup
from onnxreg.registry.log.commit import read_ledger
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.schema.core.errors import RegError
from onnxreg.schema.core.version import Version
from onnxreg.schema.gates.policy import Policy


@dataclass(frozen=True)
class BlockedChannel:
    """A channel that will not resolve any more, and why.

    Where a model cannot be read, channel and version are None.
    """

    name: str
    channel: str | None
    version: Version | None
    why: str

    def to_json(self) -> dict[str, str | None]:
        version = None if self.version is None else str(self.version)
        return {"name": self.name, "channel": self.channel, "version": version, "why": self.why}


def blocked_channels(source: RegistryReader, policy: Policy) -> list[BlockedChannel]:
    """The channels, by model and name, that hold a version which a policy refuses or which was not promoted.

    Signatures are judged by the user's trust file. Raise UnlistedError if the place does not tell its models.
    """
    log = with_policy(read_policies(source), policy)
    return [blocked for name in source.names() for blocked in _stopped(source, name, log)]


def _stopped(source: RegistryReader, name: str, log: PolicyLog) -> Iterator[BlockedChannel]:
    try:
        index = source.read_index(name)
        channels = lookup.state_of(source, name, index).channels
        governed = [channel for channel in sorted(channels) if log.policy.covering(name, channel)]
        if not governed:
            return
        ledger = read_ledger(source, name, index)
    except RegError as error:
        yield BlockedChannel(name, None, None, error.message)
        return
    for channel in governed:
        try:
            check_held(ledger, log, channel)
        except RegError as error:
            yield BlockedChannel(name, channel, channels[channel].version, error.message)
