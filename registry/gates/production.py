"""The versions in production: that of each channel, since when, by whom, why, signed by whom, and if it resolves."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

from onnxreg.registry.log.ledger import Ledger, read_line
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.registry.trust.signatures import judge_for, signatures
from onnxreg.schema.core.errors import RegError
from onnxreg.schema.core.ref import POLICY_LOG, Version
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.logline import LogLine
from onnxreg.schema.log.state import Rollout

if TYPE_CHECKING:
    from onnxreg.registry.gates.policy_log import PolicyLog


@dataclass(frozen=True)
class ChannelStatus:
    """The version of a channel, and the line that moved it there.

    `move_signer` signed that line, `version_signers` the version; both are empty without a signature. `gate` is empty
    if no policy governs the channel, `met`, or the reason for which it does not resolve.
    """

    tag: str
    version: Version
    line: LogLine
    move_signer: str
    version_signers: str
    gate: str
    rollout: Rollout | None

    @property
    def signed(self) -> str:
        """The signers in words: `the move by release, the version by release`."""
        parts = {"the move": self.move_signer, "the version": self.version_signers}
        return ", ".join(f"{part} by {signer}" for part, signer in parts.items() if signer)


def in_production(reader: RegistryReader, ledger: Ledger, trust: Trust) -> Iterator[ChannelStatus]:
    """The status of each channel of a model, judged by the reader's trust file. Raises what reading its log raises."""
    seqs = {channel.seq for channel in ledger.channels.values()}
    lines = {line.seq: read_line(line.raw, ledger.name) for line in ledger.skim() if line.seq in seqs}
    judge = judge_for(ledger, trust)
    policies = cache(partial(_policies, reader))
    for tag, channel in sorted(ledger.channels.items()):
        releases = signatures(ledger, trust, [channel.manifest])
        signers = dict.fromkeys(
            str(release.verdict) for release in releases if release.version == channel.version
        )
        yield ChannelStatus(
            tag,
            channel.version,
            lines[channel.seq],
            str(judge.line(lines[channel.seq])),
            ", ".join(signers),
            _gate(policies, ledger, tag, trust),
            ledger.rollouts.get(tag),
        )


def _policies(reader: RegistryReader) -> "PolicyLog | None":
    """The log of policies. None if there is none: to read it costs imports."""
    if reader.read_index(POLICY_LOG) is None:
        return None
    from onnxreg.registry.gates.policy_log import read_policies

    return read_policies(reader)


def _gate(policies: Callable[[], "PolicyLog | None"], ledger: Ledger, tag: str, trust: Trust) -> str:
    """The verdict on a channel; see `ChannelStatus`."""
    version = ledger.channels[tag].version
    if ledger.entries[version].yanked:
        return f"{version} is yanked"
    try:
        log = policies()
        if log is None or not log.policy.covering(ledger.name, tag):
            return ""
        from onnxreg.registry.gates.enforce import check_held

        check_held(ledger, log, tag, trust)
    except RegError as error:
        return error.message
    return "met"
