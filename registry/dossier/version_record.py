"""Everything that a registry has about one version, read at one moment of its log."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from onnxreg.registry.gates.policy_log import PolicyLog, read_policies
from onnxreg.registry.log import lookup
from onnxreg.registry.log.commit import load
from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.log.lookup import read_manifest
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.registry.trust.checked_reader import load_trust
from onnxreg.registry.trust.signatures import SignatureVerdict, judge_lines
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import NotFoundError
from onnxreg.schema.core.ref import POLICY_LOG, Ref
from onnxreg.schema.dossier.dossier import SourceDocument
from onnxreg.schema.inputs.trust_file import Trust
from onnxreg.schema.log.events import Publish, RolloutStep, Tag
from onnxreg.schema.log.logline import LogLine
from onnxreg.schema.manifest.manifest import Manifest


@dataclass(frozen=True)
class VersionRecord:
    """A version, the log of its model, the log of policies, and the reader's trust file.

    `located` is the version that was asked for; `channels` are the channels whose history belongs to it.
    """

    ledger: Ledger
    located: lookup.LocatedVersion
    channels: tuple[str, ...]
    lines: tuple[LogLine, ...]
    policies: PolicyLog
    trust: Trust
    _blobs: dict[Digest, SourceDocument] = field(default_factory=dict, repr=False)

    @classmethod
    def read(cls, reader: RegistryReader, ref: Ref) -> "VersionRecord":
        """Read a version, its whole log verified. NotFoundError or IntegrityError if it cannot be read.

        The channels are the one that the ref names, else all that ever pointed to the version.
        """
        ledger, index = load(reader, ref.name)
        if index is None:
            raise lookup.unknown_model(ref.name, reader)
        located = lookup.find_in(reader, ledger.state(), ref, yanked=True, gone=True)
        lines = tuple(ledger.lines())
        channels = (ref.tag,) if ref.tag in ledger.channels else _channels(lines, located.entry.manifest)
        return cls(ledger, located, tuple(filter(None, channels)), lines, read_policies(reader), load_trust())

    @property
    def manifest_digest(self) -> Digest:
        return self.located.entry.manifest

    @cached_property
    def manifest(self) -> Manifest:
        return self.manifest_at(self.manifest_digest)

    def manifest_at(self, digest: Digest) -> Manifest:
        """A manifest of the model. NotFoundError if it was taken down."""
        return read_manifest(self.ledger.fetch(digest), digest, self.ledger.name)

    def has_manifest(self, digest: Digest) -> bool:
        """True unless the manifest was taken down with its version."""
        try:
            self.blob(digest)
        except NotFoundError:
            if digest in self.ledger.tombstones:
                return False
            raise
        return True

    def blob(self, digest: Digest) -> SourceDocument:
        """A JSON blob to be quoted."""
        if digest not in self._blobs:
            self._blobs[digest] = SourceDocument.of_blob(digest, self.ledger.fetch(digest))
        return self._blobs[digest]

    @cached_property
    def published(self) -> LogLine:
        """The line that published the version."""
        return next(line for line in reversed(self.lines) if self._publishes(line))

    def _publishes(self, line: LogLine) -> bool:
        event = line.event
        subject = (self.located.version, self.manifest_digest)
        return isinstance(event, Publish) and (event.version, event.manifest) == subject

    @cached_property
    def published_before(self) -> Digest | None:
        """The manifest that was published last before this version; None for the first one."""
        events = (line.event for line in self.lines[: self.published.seq - 1])
        manifests = [event.manifest for event in events if isinstance(event, Publish)]
        return next((digest for digest in reversed(manifests) if digest != self.manifest_digest), None)

    @cached_property
    def line_verdicts(self) -> dict[Digest, SignatureVerdict]:
        """The verdict on the signature of each line of both logs, by the line's digest."""
        logs = ((self.ledger.name, self.lines), (POLICY_LOG, self.policies.lines))
        judged = (judge_lines(self.trust, self.ledger.registry, name, lines) for name, lines in logs)
        return {line.digest: verdict for log in judged for line, verdict in log}

    def policy_line(self, digest: Digest | None) -> LogLine | None:
        """A line of the log of policies by its digest."""
        return next((line for line in self.policies.lines if line.digest == digest), None)


def _channels(lines: tuple[LogLine, ...], manifest: Digest) -> Iterator[str]:
    """The channels that ever pointed to a version, or to which it was rolled out, in ascending order."""
    events = [line.event for line in lines if isinstance(line.event, Tag | RolloutStep)]
    return iter(sorted({event.tag for event in events if event.manifest == manifest}))
