"""The versions in production: for each channel its version, who moved the channel, and if it resolves. Imports little."""

from collections.abc import Iterator
from typing import NamedTuple

from onnxreg.registry.log.log import Log
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.registry.trust import signatures
from onnxreg.schema.core.errors import RegError
from onnxreg.schema.core.ref import POLICY_LOG, Version
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.events import LogLine
from onnxreg.schema.log.state import Rollout


class ChannelStatus(NamedTuple):
    """The status of a channel: its version, the log line that moved it there, and `signed`, a text with the line's signers.

    `gate` is "" if no policy governs the channel, "met" if the version passes, else the reason why it does not resolve.
    """

    tag: str
    version: Version
    line: LogLine
    signed: str
    gate: str
    rollout: Rollout | None


def in_production(reader: RegistryReader, log: Log, trust: Trust) -> Iterator[ChannelStatus]:
    """Yield the status of each channel of a model. Signatures are judged by `trust`. IntegrityError if the log is damaged."""
    lines = list(log.lines())
    judge = signatures.judge_for(log, trust)
    for tag, channel in sorted(log.channels.items()):
        line, version = lines[channel.seq - 1], channel.version
        verdicts = dict.fromkeys(map(str, signatures.signatures_of(log, trust, version, channel.manifest)))
        signers = {"the move": str(judge.line(line)), "the version": ", ".join(verdicts)}
        signed = ", ".join(f"{part} by {signer}" for part, signer in signers.items() if signer)
        gate = _gate(reader, log, tag, trust)
        yield ChannelStatus(tag, version, line, signed, gate, log.rollouts.get(tag))


def _gate(reader: RegistryReader, log: Log, tag: str, trust: Trust) -> str:
    version = log.channels[tag].version
    if log.versions[version].yanked:
        return f"{version} is yanked"
    try:
        if (policy := reader.read_index(POLICY_LOG)) is None:
            return ""
        from onnxreg.registry.gates import ChannelGate, policies_in

        gate = ChannelGate(log, policies_in(policy, reader.registry_id), tag, trust)
        gate.check()
    except RegError as error:
        return error.message
    return "met" if gate.rules else ""
