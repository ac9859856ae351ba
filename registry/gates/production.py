"""The versions in production: that of each channel, since when, by whom, why, signed by whom, and if it resolves."""

from collections.abc import Iterator
from typing import NamedTuple

from onnxreg.registry.log.log import Log
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.registry.trust.signatures import judge_for, signatures_of
from onnxreg.schema.core.errors import RegError
from onnxreg.schema.core.ref import POLICY_LOG, Version
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.logline import LogLine
from onnxreg.schema.log.state import Rollout


class ChannelStatus(NamedTuple):
    """The version of a channel, and the line that moved it there.

    `signed` names the signers: `the move by release, the version by release`. `gate` is empty if no policy governs the
    channel, `met`, or the reason for which it does not resolve.
    """

    tag: str
    version: Version
    line: LogLine
    signed: str
    gate: str
    rollout: Rollout | None


def in_production(reader: RegistryReader, log: Log, trust: Trust) -> Iterator[ChannelStatus]:
    """The status of each channel of a model, judged by the reader's trust file. Raises what reading its log raises."""
    seqs = {channel.seq for channel in log.channels.values()}
    lines = {line.seq: line for line in log.lines() if line.seq in seqs}
    judge = judge_for(log, trust)
    for tag, channel in sorted(log.channels.items()):
        line, version = lines[channel.seq], channel.version
        verdicts = signatures_of(log, trust, version, channel.manifest)
        signers = {
            "the move": str(judge.line(line)),
            "the version": ", ".join(dict.fromkeys(map(str, verdicts))),
        }
        signed = ", ".join(f"{part} by {signer}" for part, signer in signers.items() if signer)
        gate = _gate(reader, log, tag, trust)
        yield ChannelStatus(tag, version, line, signed, gate, log.rollouts.get(tag))


def _gate(reader: RegistryReader, log: Log, tag: str, trust: Trust) -> str:
    """The verdict on a channel; see `ChannelStatus`."""
    version = log.channels[tag].version
    if log.versions[version].yanked:
        return f"{version} is yanked"
    try:
        if reader.read_index(POLICY_LOG) is None:
            return ""
        from onnxreg.registry.gates.enforce import ChannelGate, read_policies

        gate = ChannelGate(log, read_policies(reader), tag, trust)
        gate.check()
    except RegError as error:
        return error.message
    return "met" if gate.rules else ""
