"""`Registry`: everything but conversion, in Python.

Methods import the modules that only they need, so that a push does not wait for promotion, repair and
packages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onnxreg.registry.log import lookup
from onnxreg.registry.log.collect import PUSH_WAIT_SECONDS, RetentionPolicy
from onnxreg.registry.log.commit import load
from onnxreg.registry.log.contents import EVERYTHING, Selection, held_files, selected_artifacts
from onnxreg.registry.log.decisions import DecisionResult, Decisions
from onnxreg.registry.log.ledger import Ledger, mirror_error
from onnxreg.registry.log.lookup import read_blob
from onnxreg.registry.read.remotes import Remotes
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import IndexFile, RegistryReader, RegistryStore
from onnxreg.registry.store.streams import measure
from onnxreg.registry.support.disk import MACHINE_ERRNOS, host_errors, replace_file
from onnxreg.registry.support.environment import cache_directory, default_root
from onnxreg.registry.transfer.copy import TransferResult
from onnxreg.registry.transfer.exchange import Exchange, check_distinct, was_pushed
from onnxreg.registry.transfer.layout_choice import LayoutChoice
from onnxreg.registry.trust.checked_reader import CheckedReader, check_no_rollback, checked_reader, load_trust
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import NotFoundError
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.core.ref import POLICY_LOG, Ref, Version, check_name
from onnxreg.schema.log.events import Expire
from onnxreg.schema.manifest.vocabulary import FILENAME

if TYPE_CHECKING:
    from onnxreg.registry.deliver.resolution import Resolution
    from onnxreg.registry.gates.enforce import BlockedChannel
    from onnxreg.registry.gates.policy_log import PolicyLog
    from onnxreg.registry.gates.promotion import Promotion
    from onnxreg.registry.gates.rollouts import Rollouts
    from onnxreg.registry.gates.statements import AttestResult, SignedEvaluation
    from onnxreg.registry.log.collect import CollectResult
    from onnxreg.registry.maintain.disk_usage import Usage
    from onnxreg.registry.maintain.repair import RepairResult
    from onnxreg.registry.maintain.verification import VerifyReport
    from onnxreg.registry.publish.add import Publisher
    from onnxreg.registry.read.versions import PublishedVersion
    from onnxreg.registry.signing import PrivateKey
    from onnxreg.registry.trust.signatures import SignedRelease
    from onnxreg.schema.compare.manifests import ManifestDiff
    from onnxreg.schema.compare.rebuild_outcome import RebuildComparison
    from onnxreg.schema.formats.package_layout import PackageLayout
    from onnxreg.schema.gates.faithfulness import FaithfulnessReport
    from onnxreg.schema.gates.policy import Policy as GatePolicy
    from onnxreg.schema.inputs.trust_file import Trust
    from onnxreg.schema.log.logline import LogLine
    from onnxreg.schema.log.state import State
    from onnxreg.schema.manifest.draft import Draft
    from onnxreg.schema.query.device import Device
    from onnxreg.schema.query.requirements import Query


@dataclass(frozen=True)
class PurgeResult:
    """Outcome of a takedown: its versions, the blobs that are banned, the blobs deleted now, and other versions
    that use some of the same files, which therefore stay.
    """

    versions: list[Ref]
    blobs: set[Digest]
    collected: CollectResult
    sharing: set[Ref]


class Registry:
    """A registry on this machine, and its transfers from and to others.

    Args:
        root: its directory; default: `REG_HOME`, else the user's data directory.
        create: create an empty registry if none exists; False: NotFoundError; None: neither, to work on
            remotes only.
        actor: the claimed author of events, "" for nobody; default: `REG_ACTOR`, else the user's setting,
            else `user@host` of this machine; see `support.actor`.

    `heads` are the newest states that this user saw of each log. With `yanked_bytes`, artifacts of yanked versions
    are published again under other manifests.
    """

    def __init__(
        self, root: Path | str | None = None, create: bool | None = True, actor: str | None = None
    ) -> None:
        path = default_root() if root is None else Path(root)
        self.store = DirectoryRegistry.create(path) if create else DirectoryRegistry(path)
        if create is False:
            self.store.check_exists()
        self.actor = actor
        self.yanked_bytes = False
        self.heads = KnownHeads()

    @property
    def id(self) -> str:
        return self.store.registry_id

    @property
    def remotes(self) -> Remotes:
        return Remotes.load(self.store)

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """A fresh directory for a converter whose draft will be added; see `scratch`.

        If there is no registry yet, `add` creates one; without it the directory is removed.
        """
        if self.store.is_there and self.store.is_mirror:
            raise mirror_error(self.id)
        with self.store.prospective(), self.scratch() as directory:
            yield directory

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A fresh directory that only this user may write: in the registry, or if others may write there, in the
        user's cache. It is removed at the end, or by a later command after a kill.
        """
        from onnxreg.registry.store.directory.scratch import temporary

        with ExitStack() as stack:
            stack.enter_context(host_errors(f"writing to {self.store.root}", MACHINE_ERRNOS))
            directory = stack.enter_context(self.store.staging())
            if self.store.is_shared:
                directory = stack.enter_context(temporary(cache_directory() / "tmp"))
            yield directory

    def add(
        self, draft: Draft, version: Version | str | None = None, reason: str | None = None
    ) -> PublishedVersion:
        """Publish a draft. The store takes the files of its workspace.

        Without a version: the next patch after the newest, or 0.1.0; if a version already has this manifest,
        nothing is published. ConflictError if the version exists with another manifest, or if only yanked
        versions have an artifact of it, unless `yanked_bytes` is set;
        IntegrityError or ForkError if the model's log does not continue its checkpoint. If there is no
        registry yet, one is created.
        """
        DirectoryRegistry.create(self.store.root, self.store.disk)
        requested = Version.parse(version) if isinstance(version, str) else version
        return self._publisher(requested, reason).add(draft)

    def add_again(self, digest: Digest, version: Version | None = None) -> PublishedVersion | None:
        """Publish a manifest that the store has already; None if it, or a file that it names, is missing.

        Otherwise like `add`.
        """
        return self._publisher(version).add_again(digest)

    def fetch_oci(
        self,
        url: str,
        name: str | None = None,
        version: Version | None = None,
        progress: Progress = SILENT,
        statements: bool | None = None,
    ) -> PublishedVersion:
        """Publish what `reg publish` published at an `oci://` URL; see `registry.oci.versions.fetch`."""
        from onnxreg.registry.oci.target import OciTarget
        from onnxreg.registry.oci.versions import fetch

        target = OciTarget.parse(url)
        DirectoryRegistry.create(self.store.root, self.store.disk)
        return fetch(target, self._publisher(version), name, progress, statements)

    def _publisher(self, version: Version | None, reason: str | None = None) -> Publisher:
        from onnxreg.registry.publish.add import Publisher

        return Publisher(self.store, self.actor, self._refuse_the_past, version, reason, self.yanked_bytes)

    def _refuse_the_past(self, name: str) -> None:
        check_no_rollback(self.store, self.heads, [name])

    def tag(
        self, ref: Ref | str, tag: str, reason: str | None = None, remote: RegistryStore | None = None
    ) -> DecisionResult:
        """Move a channel to a version; does nothing if it holds that already.

        Here, or in a remote, whose log then gets the event; the same holds for each method with this
        argument. GateError if a policy governs the channel; ConflictError if another move came first.
        """
        from onnxreg.registry.gates.policy_log import check_free

        source = CheckedReader(remote or self.store, self.heads)
        check_free(source, _ref(ref).name, tag, remote is not None)
        return self._decisions_on(_ref(ref).name, remote).tag(_ref(ref), tag, reason)

    def promote(
        self,
        ref: Ref | str,
        channel: str,
        dry_run: bool = False,
        reason: str | None = None,
        remote: RegistryStore | None = None,
    ) -> Promotion:
        """Move a governed channel to a version if the policy allows it; see `promotion.promote`."""
        from onnxreg.registry.gates.promotion import promote

        store, is_remote = remote or self.store, remote is not None
        return promote(store, self.heads, _ref(ref), channel, dry_run, reason, self.actor, is_remote)

    def rollouts(self, remote: RegistryStore | None = None) -> Rollouts:
        """Start, advance, halt and finish staged rollouts of channels."""
        from onnxreg.registry.gates.rollouts import Rollouts

        return Rollouts(remote or self.store, self.heads, self.actor, remote is not None)

    def attest(
        self,
        ref: Ref | str,
        report: bytes,
        key: PrivateKey | None = None,
        reason: str | None = None,
        label: str = "report",
        remote: RegistryStore | None = None,
    ) -> AttestResult:
        """Record a later evaluation of a version's artifact, signed if a key is given; see `gates.statements`."""
        from onnxreg.registry.gates.statements import attest

        published = self.get(ref, remote)
        return attest(self._decisions_on(published.name, remote), published, report, key, reason, label)

    def attest_benchmark(self, ref: Ref | str, report: bytes, label: str = "benchmark") -> None:
        """Record the measured speed of a version's artifacts; see `gates.statements`."""
        from onnxreg.registry.gates.statements import attest_benchmark

        published = self.get(ref)
        attest_benchmark(self._decisions_on(published.name), published, report, label)

    def attest_proof(
        self,
        ref: Ref | str,
        report: FaithfulnessReport,
        key: PrivateKey | None = None,
        remote: RegistryStore | None = None,
    ) -> None:
        """Record the proof that an artifact is its parent, rounded; see `gates.statements`."""
        from onnxreg.registry.gates.statements import attest_proof

        published = self.get(ref, remote)
        attest_proof(self._decisions_on(published.name, remote), published, report, key)

    def set_policy(
        self,
        policy: GatePolicy,
        reason: str | None = None,
        remote: RegistryStore | None = None,
    ) -> LogLine | None:
        """Set the policy; None if it is set already. See `policy_log.set_policy`."""
        from onnxreg.registry.gates.policy_log import set_policy

        store = remote or self.store
        reader = CheckedReader(store, self.heads)
        reader.read_index(POLICY_LOG)
        line = set_policy(store, policy, self.actor, reason)
        reader.read_index(POLICY_LOG)
        return line

    def blocked_channels(
        self, policy: GatePolicy, remote: RegistryReader | None = None
    ) -> list[BlockedChannel]:
        """The channels that a policy would stop from resolving; see `enforce.blocked_channels`."""
        from onnxreg.registry.gates.enforce import blocked_channels

        return list(blocked_channels(CheckedReader(remote or self.store, self.heads), policy))

    def policies(self, remote: RegistryReader | None = None) -> PolicyLog:
        """Read every policy that a registry ever had."""
        from onnxreg.registry.gates.policy_log import read_policies

        return read_policies(
            CheckedReader(self.store, self.heads) if remote is None else self._reader(remote)
        )

    def untag(
        self, name: str, tag: str, reason: str | None = None, remote: RegistryStore | None = None
    ) -> Version:
        """Remove a channel; return the version that it held."""
        return self._decisions_on(check_name(name), remote).untag(name, tag, reason)

    def yank(
        self,
        ref: Ref | str,
        reason: str | None = None,
        undo: bool = False,
        remote: RegistryStore | None = None,
    ) -> DecisionResult:
        """Stop a version from being resolved; its digest still finds it."""
        return self._decisions_on(_ref(ref).name, remote).yank(_ref(ref), reason, undo)

    def pin(
        self,
        ref: Ref | str,
        reason: str | None = None,
        undo: bool = False,
        remote: RegistryStore | None = None,
    ) -> DecisionResult:
        """Protect a version from every retention policy."""
        return self._decisions_on(_ref(ref).name, remote).pin(_ref(ref), reason, undo)

    def drop(self, ref: Ref | str, reason: str | None = None) -> DecisionResult:
        """Remove a version that was never pushed; its number is free again. `gc` frees its bytes."""
        return self._decisions_on(_ref(ref).name).drop(
            _ref(ref), lambda located: was_pushed(self.store, located), reason
        )

    def gc(
        self,
        policy: RetentionPolicy | None = None,
        dry_run: bool = False,
        patience: float = PUSH_WAIT_SECONDS,
        remote: RegistryStore | None = None,
    ) -> tuple[list[Ref], CollectResult]:
        """Expire the versions that a policy does not keep, then delete every blob that nothing refers to.

        Returns the versions that expired and what was deleted; with `dry_run` what would be. IntegrityError
        if the registry went back in time: it would lose files that it no longer names.
        """
        from onnxreg.registry.log.collect import collect, survey
        from onnxreg.registry.log.delta_log import withdraw_deltas

        store = _check_registry(remote or self.store)
        self._check_logs(store, remote)
        decisions = Decisions(store, self.actor)
        if not dry_run:
            if remote is None:
                self.store.clear_partial()
            expired = decisions.expire(policy) if policy else []
            return expired, collect(store, patience=patience)
        would: list[Ref] = []
        decide = decisions.expiry(policy or RetentionPolicy())

        def assume(ledger: Ledger) -> None:
            events = decide(ledger)
            gone = [event.version for event in events if isinstance(event, Expire)]
            for event in events:
                ledger.append(event)
            would.extend(Ref(ledger.name, str(version)) for version in gone)
            if gone:
                withdraw_deltas(ledger, gone)

        return would, survey(store, assume)

    def usage(self, names: Collection[str] = (), remote: RegistryStore | None = None) -> Usage:
        """Measure the space of models, and what `gc` would free; see `disk_usage.usage`."""
        from onnxreg.registry.maintain.disk_usage import usage

        store = _check_registry(remote or self.store)
        if remote is not None:
            self._check_logs(store, remote)
        return usage(store, names)

    def purge(
        self, refs: Ref | str | Collection[Ref | str], reason: str, remote: RegistryStore | None = None
    ) -> PurgeResult:
        """Take versions down and delete their bytes now; see `Decisions.purge`."""
        from onnxreg.registry.log.collect import collect

        store = _check_registry(remote or self.store)
        self._check_logs(store, remote)
        named = [_ref(ref) for ref in ([refs] if isinstance(refs, Ref | str) else refs)]
        versions, blobs, sharing = Decisions(store, self.actor).purge(named, reason)
        return PurgeResult([located.ref for located in versions], blobs, collect(store, only=blobs), sharing)

    def _decisions_on(self, name: str, remote: RegistryStore | None = None) -> Decisions:
        """Decisions about a model, after a check that its log continues its checkpoint; of a remote also
        that it has the signatures that the trust file demands. IntegrityError, ForkError.
        """
        if remote is None:
            self._refuse_the_past(name)
        else:
            CheckedReader(remote, self.heads).read_index(name)
        return Decisions(remote or self.store, self.actor)

    def _check_logs(self, store: RegistryStore, remote: RegistryStore | None) -> None:
        """Check that every log continues its checkpoint; in a remote also that it has the signatures that the trust
        file demands. IntegrityError, ForkError.
        """
        names = self.heads.models(store.registry_id)
        if remote is None:
            check_no_rollback(store, self.heads, names)
            return
        reader = CheckedReader(remote, self.heads)
        for name in sorted({*names, *remote.names()}):
            reader.read_index(name)

    def names(self) -> list[str]:
        return list(self.store.names())

    def state(self, name: str) -> State:
        return lookup.read_state(self.store, check_name(name))

    def find(self, ref: Ref | str, remote: RegistryReader | None = None) -> lookup.LocatedVersion:
        return lookup.find(self._reader(remote), _ref(ref))

    def get(self, ref: Ref | str, remote: RegistryReader | None = None) -> PublishedVersion:
        """Read a version's manifest, verified; an expired version too. NotFoundError, IntegrityError."""
        from onnxreg.registry.read.versions import read_version

        return read_version(self._reader(remote), _ref(ref))

    def _reader(self, remote: RegistryReader | None) -> RegistryReader:
        """This registry as it is, or a remote that is compared with known heads and the trust file."""
        return self.store if remote is None else checked_reader(remote, self.heads)

    def resolve(
        self,
        ref: Ref | str,
        query: Query | None = None,
        remote: RegistryReader | None = None,
        device: Device | None = None,
        seed: str | None = None,
    ) -> Resolution:
        """Pick the artifact that answers a query and runs on a device. NoAnswerError with the reasons if none
        does. A device with a seed takes part in rollouts.
        """
        from onnxreg.registry.deliver.resolution import resolve
        from onnxreg.schema.query.requirements import Query

        reader = checked_reader(remote or self.store, self.heads)
        return resolve(reader, _ref(ref), query or Query(), device, known_heads=self.heads, seed=seed)

    def diff(
        self,
        old: Ref | str,
        new: Ref | str,
        old_from: RegistryReader | None = None,
        new_from: RegistryReader | None = None,
    ) -> ManifestDiff:
        """Compare two versions, each in this registry or in the given one."""
        from onnxreg.schema.compare.manifests import diff

        return diff(self.get(old, old_from).manifest, self.get(new, new_from).manifest)

    def preview(self, draft: Draft, version: Version | None = None) -> PublishedVersion:
        """The version that `add` would publish. Nothing is stored. Raise what `add` raises of its name and number."""
        return self._publisher(version, None).preview(draft)

    def compare(self, published: PublishedVersion, draft: Draft) -> RebuildComparison:
        """Compare a draft that was rebuilt by a version's recipe with that version. Nothing is stored."""
        from onnxreg.schema.compare.rebuild_outcome import compare

        recorded = {entry.path: entry.digest for entry in published.manifest.all_files()}

        def contents(path: str) -> tuple[bytes, bytes] | None:
            try:
                return read_blob(self.store, recorded[path]), (draft.root / path).read_bytes()
            except NotFoundError:
                return None

        rebuilt = draft.manifest(measure(draft.root, draft.paths()))
        return compare(published.manifest, rebuilt, contents)

    def log(self, name: str) -> list[LogLine]:
        """Read the model's whole log and verify its chain."""
        from onnxreg.registry.read.versions import read_log

        return read_log(self.store, name)

    def verify(
        self,
        ref: Ref | str | None = None,
        progress: Progress = SILENT,
        remote: RegistryStore | None = None,
    ) -> VerifyReport:
        """Read everything again (or one model, or one version of it) and list every damage."""
        from onnxreg.registry.maintain.verify_trust import verify_watched

        store = _check_registry(remote or self.store)
        return verify_watched(store, self.heads, None if ref is None else _ref(ref), progress)

    def sign(
        self,
        ref: Ref | str,
        key: PrivateKey,
        reason: str | None = None,
        remote: RegistryStore | None = None,
    ) -> DecisionResult:
        """Sign a version: the statement of its release becomes a blob, and an event attests it. Signing is
        idempotent.
        """
        from onnxreg.registry.signing import sign_release
        from onnxreg.schema.signing.dsse import MEDIA_TYPE

        published = self.get(ref, remote)
        envelope = sign_release(published.name, published.version, published.data, key)
        decisions = self._decisions_on(published.name, remote)
        return decisions.attest(published.ref, envelope.encode(), MEDIA_TYPE, reason)

    def sign_bundle(
        self, ref: Ref | str, key: PrivateKey, path: Path, remote: RegistryReader | None = None
    ) -> PublishedVersion:
        """Write the bundle with which model_signing verifies a pulled version. InputError unless the key is
        ECDSA P-256.
        """
        from onnxreg.schema.signing.dsse import make_bundle

        published = self.get(ref, remote)
        files = {file.path: file.digest for file in held_files(published.manifest, published.held)}
        data = make_bundle(published.name, {FILENAME: published.digest, **files}, key.public, key.sign)
        with host_errors(f"writing {path}"):
            replace_file(path, data)
        return published

    def signatures(
        self, ref: Ref | str, remote: RegistryReader | None = None, trust: Trust | None = None
    ) -> list[tuple[lookup.LocatedVersion, list[SignedRelease]]]:
        """The signatures on each version of a model (or on the one that a ref names exactly), with their
        trust.

        `trust` is the user's trust file by default.
        """
        from onnxreg.registry.trust.signatures import signatures

        ledger, versions = self._selected_versions(_ref(ref), remote or self.store)
        manifests = [version.entry.manifest for version in versions]
        signed = list(signatures(ledger, load_trust() if trust is None else trust, manifests))
        return [
            (located, [signature for signature in signed if signature.version == located.version])
            for located in versions
        ]

    def unsigned(
        self, name: str, remote: RegistryReader | None = None, trust: Trust | None = None
    ) -> list[Version]:
        """The versions of a model without a signature that the trust file requires; see `signatures`."""
        from onnxreg.registry.trust.requirements import unsigned
        from onnxreg.registry.trust.signatures import signatures

        ledger, _ = load(remote or self.store, check_name(name))
        trust = load_trust() if trust is None else trust
        return unsigned(trust, ledger, list(signatures(ledger, trust)))

    def evaluations(
        self, ref: Ref | str, remote: RegistryReader | None = None, trust: Trust | None = None
    ) -> list[tuple[lookup.LocatedVersion, list[SignedEvaluation]]]:
        """The signatures on later evaluations of each version's artifacts; see `signatures`."""
        from onnxreg.registry.gates.statements import signed_evaluations

        ledger, versions = self._selected_versions(_ref(ref), remote or self.store)
        signed = list(signed_evaluations(ledger, load_trust() if trust is None else trust))
        return [
            (located, [evaluation for evaluation in signed if evaluation.manifest == located.entry.manifest])
            for located in versions
        ]

    def _selected_versions(
        self, ref: Ref, reader: RegistryReader
    ) -> tuple[Ledger, list[lookup.LocatedVersion]]:
        """The log of a model, and its versions, or the one that a ref names exactly."""
        ledger, index = load(reader, ref.name)
        if index is None:
            raise lookup.unknown_model(ref.name, reader)
        only = None if ref.is_bare else lookup.find(reader, ref, yanked=True, gone=True).version
        entries = ledger.entries.items()
        versions = [lookup.LocatedVersion(ledger.name, version, entry) for version, entry in entries]
        return ledger, [located for located in versions if only in (None, located.version)]

    def repair(
        self,
        ref: Ref | str | None = None,
        source: str | None = None,
        progress: Progress = SILENT,
        remote: RegistryStore | None = None,
    ) -> RepairResult:
        """Verify, fetch good copies of damaged files from a remote, and verify again; see `repair.repair`.

        Without `source`: the only remote, or the one with the name origin; without any, repair only from
        local data. A `remote` is repaired from this registry if no source is named. Damaged index files are
        kept aside here.
        """
        from onnxreg.registry.maintain.repair import gone_models, repair

        store = remote or self.store
        copies = self._source(source) if remote is None or source is not None else self.store
        if copies is not None:
            check_distinct(copies, store)

        def check() -> VerifyReport:
            report = self.verify(ref, progress, store)
            report.damages += gone_models(store, copies) if ref is None else []
            return report

        def keep(name: str, index: IndexFile) -> str:
            prefix = f"{store.registry_id}/" if remote is not None else ""
            path = f"local/damaged/{prefix}{name}.{Digest.of(index.data).short}.jsonl"
            self.store.write_file(path, index.data)
            return path

        return repair(store, copies, check, progress, keep)

    def _source(self, name: str | None) -> RegistryStore | None:
        """The remote with good copies; None if none is named, and none is the default."""
        remotes = self.remotes
        has_default = "origin" in remotes.urls or len(remotes.urls) == 1
        return remotes.open(name) if name is not None or has_default else None

    def push(
        self,
        ref: Ref | str,
        to: str | None = None,
        progress: Progress = SILENT,
        restore: bool = False,
        heal: bool = False,
        channels: Collection[str] = (),
        layout: LayoutChoice | None = None,
    ) -> TransferResult:
        """Copy a version to a remote (a name, URL or path; created if it does not exist). A second push moves
        nothing.

        A yanked version that is named exactly travels too, with its yank. `restore` brings back one that
        expired there. `channels` move there to the versions that they hold here, which are copied too. If a
        remote's log has the versions, it is believed to have their files, unless `heal` checks each; a local
        remote is always checked. `layout` writes the usual files of the model into a repository on the Hub.
        """
        return self._exchange(restore).push(
            _ref(ref), to, progress=progress, heal=heal, channels=channels, layout=layout
        )

    def push_many(
        self,
        glob: str = "*",
        to: str | None = None,
        every: bool = False,
        progress: Progress = SILENT,
        restore: bool = False,
        heal: bool = False,
        channels: Collection[str] = (),
    ) -> list[TransferResult]:
        """Push the newest release of each model that matches, or `every` version of it; see
        `Exchange.push_many`.
        """
        return self._exchange(restore).push_many(
            glob, to, every=every, progress=progress, heal=heal, channels=channels
        )

    def pull(
        self,
        ref: Ref | str,
        source: str | None = None,
        progress: Progress = SILENT,
        restore: bool = False,
        selection: Selection = EVERYTHING,
        channels: Collection[str] = (),
        deltas: bool = True,
    ) -> TransferResult:
        """Copy a version from a remote, every byte verified. `restore` brings back one that expired here.

        If there is no local registry yet, it is created when there is a version to store.

        With a `selection`, only these artifacts with their companions are added; the log then records which
        are present. `channels` move here to the versions that they hold there, which are copied too. `deltas`:
        if files may arrive as differences from files that are here; the result says how each arrived.
        """
        return self._exchange(restore).pull(
            _ref(ref), source, progress=progress, selection=selection, channels=channels, deltas=deltas
        )

    def fetch_index(self, names: Collection[str] = (), source: str | None = None) -> list[State]:
        """Keep the index files and whole logs of a remote's models (none: of all) for offline use.

        Returns their states. A name may be a pattern such as `acme/*`. HostError if they cannot be written
        here.
        """
        return self._exchange().fetch_index(names, source)

    def _exchange(self, restore: bool = False) -> Exchange:
        return Exchange(self.store, self.heads, self.actor, restore, self.yanked_bytes)

    def write_out(self, ref: Ref | str, output: Path, progress: Progress = SILENT) -> PublishedVersion:
        """Write the present files of a version into a directory; an earlier export there is replaced as a
        whole.

        In a run directory (`transfer.export_files`) they go into its `exports/`.
        """
        from onnxreg.registry.transfer.export_files import check_target, folder_in, materialize

        output = folder_in(output)
        check_target(output, self.store.root)
        published = self.get(ref)
        files = held_files(published.manifest, published.held)
        materialize(self.store, files, published.data, output, progress)
        return published

    def write_package(
        self,
        ref: Ref | str,
        output: Path,
        selection: Selection = EVERYTHING,
        progress: Progress = SILENT,
    ) -> tuple[PublishedVersion, PackageLayout]:
        """Write the present or the selected artifacts of a version as a model package of ONNX Runtime.

        An earlier package there is replaced as a whole. NotFoundError if a selected artifact is not here,
        InputError if ONNX Runtime loads none of them.
        """
        from onnxreg.registry.transfer.export_files import check_package_target, write_package
        from onnxreg.schema.formats.package_layout import package

        check_package_target(output, self.store.root)
        published = self.get(ref)
        artifacts = selected_artifacts(published.manifest, published.held, selection, str(published.ref))
        layout = package(published.manifest, published.digest, str(published.version), artifacts)
        write_package(self.store, layout, output, progress)
        return published, layout


def _check_registry(store: RegistryStore) -> RegistryStore:
    """Check that a store still is the same registry, and return it. NotFoundError, IntegrityError."""
    _ = store.is_mirror
    return store


def _ref(ref: Ref | str) -> Ref:
    return Ref.parse(ref) if isinstance(ref, str) else ref
