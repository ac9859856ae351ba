"""`Registry`, the Python API for everything except conversion. Its methods import rarely needed modules when called."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from onnxreg.registry.log.commit import load_own
from onnxreg.registry.log.contents import EVERYTHING, Release, Selection, held_files, read_version, set_pushed
from onnxreg.registry.log.decisions import DecisionResult, Decisions
from onnxreg.registry.log.log import (
    LocatedVersion,
    Log,
    consult,
    find,
    load,
    matching,
    mirror_error,
    open_log,
    read_lines,
)
from onnxreg.registry.remotes import RemoteCopy, RemoteReader, Remotes, check_distinct
from onnxreg.registry.store.directory import DirectoryRegistry, temporary
from onnxreg.registry.store.protocol import RegistryReader, RegistryStore, check_writer
from onnxreg.registry.system import MACHINE_ERRNOS, cache_directory, default_root, host_errors
from onnxreg.registry.transfer import exchange
from onnxreg.registry.trust.known_heads import CheckedReader, KnownHeads, checked_reader
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import HostError, InputError, IntegrityError, NotFoundError, RemoteError
from onnxreg.schema.core.ref import POLICY_LOG, Ref, Version, check_name
from onnxreg.schema.core.units import SILENT, Progress
from onnxreg.schema.log.events import LogLine, check_channel
from onnxreg.schema.log.state import State, no_channel

if TYPE_CHECKING:
    from onnxreg.registry.publish import Publisher
    from onnxreg.registry.resolution import Resolution
    from onnxreg.registry.store.hub import HubRegistry
    from onnxreg.schema.manifest.draft import Draft
    from onnxreg.schema.query.device import Device
    from onnxreg.schema.query.resolve import Query


class Registry:
    """A registry on this machine. It also transfers versions from and to other registries.

    `root` is the directory, by default `REG_HOME` or else the user's data directory. If the directory has no registry,
    `create=True` makes one, `create=False` raises NotFoundError, and `create=None` allows work on remotes only. `actor`
    is the claimed author of events. The default is `REG_ACTOR` or else `user@host`; "" means nobody.
    """

    def __init__(
        self, root: Path | str | None = None, create: bool | None = True, actor: str | None = None
    ) -> None:
        path = default_root() if root is None else Path(root)
        self.store = DirectoryRegistry.create(path) if create else DirectoryRegistry(path)
        if create is False:
            self.store.check_exists()
        self.actor = actor
        self.heads = KnownHeads()

    @property
    def id(self) -> str:
        return self.store.registry_id

    @property
    def remotes(self) -> Remotes:
        return Remotes(self.store)

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """A context with a directory for a draft's files. If no registry exists at the end, nothing stays on disk."""
        if self.store.is_there and self.store.is_mirror:
            raise mirror_error(self.id)
        self.store.check_not_foreign()
        root, new = self.store.root, () if self.store.root.exists() else ("",)
        try:
            with self.scratch() as directory:
                yield directory
        finally:
            if not self.store.is_there:
                with suppress(OSError):  # another command uses it
                    for part in ("local/tmp", "local/locks", "local", *new):
                        (root / part).rmdir()

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A context with a directory, in the registry or the user's cache, to which only this user may write."""
        with ExitStack() as stack:
            stack.enter_context(host_errors(f"writing to {self.store.root}", MACHINE_ERRNOS))
            if self.store.is_there:
                check_writer(self.store.identity, self.store.url)
            directory = stack.enter_context(self.store.store.staging())
            if self.store.is_shared:
                directory = stack.enter_context(temporary(cache_directory() / "tmp"))
            yield directory

    def add(self, draft: Draft, version: Version | str | None = None, reason: str | None = None) -> Release:
        """Publish a draft as this version, by default as the next version (see `Publisher`). Create a missing registry.

        Raise ConflictError if the version has another manifest. Raise IntegrityError or ForkError if the log lost
        lines.
        """
        DirectoryRegistry.create(self.store.root, self.store.disk)
        requested = Version.parse(version) if isinstance(version, str) else version
        return self.publisher(requested, reason).add(draft)

    def publisher(self, version: Version | None = None, reason: str | None = None) -> Publisher:
        from onnxreg.registry.publish import Publisher

        return Publisher(self.store, self.heads, self.actor, version, reason)

    def tag(
        self, ref: Ref | str, tag: str, reason: str | None = None, remote: RegistryStore | None = None
    ) -> DecisionResult:
        """Move a channel to a version, here or in a remote. If the channel already points to this version, do nothing.

        Raise GateError if a policy governs the channel. Raise ConflictError if another move came first.
        """
        from onnxreg.registry.gates import check_free

        ref = _ref(ref)
        check_free(CheckedReader(remote or self.store, self.heads), ref.name, check_channel(tag))
        return self.decisions(ref.name, remote).tag(ref, tag, reason)

    def yank(
        self,
        ref: Ref | str,
        reason: str | None = None,
        undo: bool = False,
        remote: RegistryStore | None = None,
    ) -> DecisionResult:
        """Yank a version, so that only a ref with its digest resolves. If `undo` is set, take the yank back."""
        return self.decisions(_ref(ref).name, remote).yank(_ref(ref), reason, undo)

    def decisions(self, name: str | None = None, remote: RegistryStore | None = None) -> Decisions:
        """Return the `Decisions` of this registry, or of `remote`.

        The log of the model `name` is checked, or all logs if `name` is None. If both `name` and `remote` are given,
        the log is not checked now, but when a decision reads it.
        """
        if name is None or remote is None:
            self.check_logs(None if name is None else [name], remote)
        reader = None if remote is None else CheckedReader(remote, self.heads)
        return Decisions(remote or self.store, self.actor, self.heads.remember, reader)

    def check_logs(self, names: Collection[str] | None = None, remote: RegistryStore | None = None) -> None:
        """Check that logs (None: all) continue their known heads. In a remote, also check the required signatures.

        Raise IntegrityError or ForkError if a check fails, and NotFoundError if there is no registry.
        """
        store = remote or self.store
        _ = store.is_mirror  # reads registry.json anew
        if names is None:
            names = {*self.heads.models(store.registry_id), *(remote.names() if remote else ())}
        for name in sorted(names):
            if remote is None:
                self.heads.check_own(store, name)
            else:
                self.heads.read_index(remote, name)

    def names(self) -> list[str]:
        return list(self.store.names())

    def state(self, name: str) -> State:
        return open_log(self.store, check_name(name)).state

    def find(self, ref: Ref | str, remote: RegistryReader | None = None) -> LocatedVersion:
        return find(self._reader(remote), _ref(ref))

    def get(self, ref: Ref | str, remote: RegistryReader | None = None) -> Release:
        """Read and verify a version's manifest, even if its files expired."""
        return read_version(self._reader(remote), _ref(ref))

    def _reader(self, remote: RegistryReader | None) -> RegistryReader:
        return self.store if remote is None else checked_reader(remote, self.heads)

    def resolve(
        self,
        ref: Ref | str,
        query: Query | None = None,
        remote: RegistryReader | None = None,
        device: Device | None = None,
        seed: str | None = None,
    ) -> Resolution:
        """Pick the artifact for a query, or raise NoAnswerError. With `seed`, the device takes part in rollouts."""
        from onnxreg.registry.resolution import resolve
        from onnxreg.schema.query.resolve import Query

        reader = checked_reader(remote or self.store, self.heads)
        return resolve(reader, _ref(ref), query or Query(), device, known_heads=self.heads, seed=seed)

    def log(self, name: str) -> list[LogLine]:
        return read_lines(self.store, name)

    def push(
        self,
        ref: Ref | str,
        to: str | None = None,
        progress: Progress = SILENT,
        restore: bool = False,
        heal: bool = False,
        channels: Collection[str] = (),
        layout: str | None = None,
    ) -> exchange.TransferResult:
        """Copy a version to a remote, given as a name, URL or path. A missing remote is created.

        A yanked version is copied, together with its yank, only if `ref` names exactly this version. If `restore` is
        set, a version that expired in the remote is brought back. For each of `channels`, the version that the channel
        holds is copied too, and the channel is set to it in the remote. If `heal` is set, files that the remote has
        lost are copied again. A remote on this machine gets these files even without `heal`. `layout="hub"` also writes
        the files to the paths at which other libraries load them from the Hub.
        """
        ref, home = _ref(ref), self.store
        log = open_log(home, ref.name)
        version = log.find(ref, yanked=Version.is_version(ref.tag or "")).version
        versions = [version, *_held_by(log, channels, version)]
        if layout is not None and (layout != "hub" or not self.remotes.url_of(to).startswith("hf://")):
            raise InputError(f"no layout {layout[:40]!r} there", "--layout hub is for hf://ORG/NAME")
        remote = self._destination(to)
        hub = None if layout is None else cast("HubRegistry", remote)
        if hub is not None:
            hub.choose_layout(log.name)
        set_pushed(home, log, versions)
        copy = RemoteCopy(remote.registry_id, remote.url)
        own = load_own(CheckedReader(remote, self.heads), log.name, home, copy.store)
        heal = heal or isinstance(remote, DirectoryRegistry)
        demand = exchange.ExchangeRequest(log.name, versions, EVERYTHING, channels, restore, heal, self.actor)
        result = exchange.exchange(home, remote, demand, progress, log=log, own=own, more=[copy.store])
        if hub is not None:
            hub.refresh_layout(log.name)
        if result.log is not None:
            self.heads.remember(remote, result.name, result.log.index)
            _keep(copy, result.log)
        return result

    def push_many(
        self,
        glob: str = "*",
        to: str | None = None,
        every: bool = False,
        progress: Progress = SILENT,
        restore: bool = False,
        heal: bool = False,
        channels: Collection[str] = (),
    ) -> list[exchange.TransferResult]:
        """Push the newest release of each model whose name matches `glob`, and move `channels`.

        If `every` is set, all versions are pushed. An error about one model or version is stored in the model's result.
        Only RemoteError and HostError are raised.
        """
        names = matching(self.store, [glob])
        present = {tag for name in names if channels for tag in open_log(self.store, name).channels}
        for channel in channels:
            if check_channel(channel) not in present:
                raise no_channel(names[0] if len(names) == 1 else glob, channel, sorted(present))
        remote = self._destination(to)

        def choose(log: Log) -> exchange.ExchangeRequest:
            tags = [tag for tag in channels if tag in log.channels]
            newest = sorted({*log.state.releases[:1], *(log.channels[tag].version for tag in tags)})
            versions = log.versions if every else newest
            return exchange.ExchangeRequest(log.name, versions, EVERYTHING, tags, restore, heal, self.actor)

        results = []
        for name in names:
            result = exchange.exchange_possible(self.store, remote, name, choose, progress, self.heads)
            if not result.versions and not result.skipped:
                lack = "version" if every else "usable release: each version is yanked or a pre-release"
                result.skipped.append(exchange.SkippedVersion(name, None, f"{name} has no {lack}"))
            results.append(result)
        return results

    def pull(
        self,
        ref: Ref | str,
        source: str | None = None,
        progress: Progress = SILENT,
        restore: bool = False,
        selection: Selection = EVERYTHING,
        channels: Collection[str] = (),
        deltas: bool = True,
    ) -> exchange.TransferResult:
        """Copy a version from a remote and verify every byte. If there is no registry here, create it.

        If `restore` is set, a version that expired here is brought back. If `selection` is given, only the selected
        artifacts and their companions are added, and the log records which artifacts are present. For each of
        `channels`, the version that the channel holds is copied too, and the channel is set to it in this registry. If
        `deltas` is set, files may arrive as differences from local files.
        """
        from onnxreg.registry.resolution import check_version_trust

        ref, home, remotes = _ref(ref), self.store, self.remotes
        if not home.is_there:
            home.check_not_foreign()
        remote = remotes.reach(source)
        check_distinct(remote, home)
        reader = RemoteReader(remote, self.heads)
        if home.is_there:
            self.heads.check_own(home, ref.name, reader)
        own = load_own(home, ref.name, reader) if home.is_there else None

        def choose(log: Log) -> tuple[Log, list[Version]]:
            located = log.check().find(ref)
            present = own.versions if own else ()
            versions = [located.version, *_held_by(log, channels, located.version)]
            is_new = any(version not in present for version in versions)
            tags = [(Ref(log.name, tag), log.find(Ref(log.name, tag), yanked=True)) for tag in channels]
            for target, version in [(ref, located), *tags]:
                check_version_trust(reader, target, version, log.index, self.heads, is_new)
            return log, versions

        with reader.copy.refetch_after_error(ref.name):
            log, versions = consult(reader, ref.name, choose, home)
            remotes.remember(remote, source)  # only now: a garbled id must not be stored
            if selection.paths and own and own.registry == log.registry:
                selection = EVERYTHING  # a copy holds whatever the original holds
            if not home.is_there:
                exchange.selected_paths(log, versions, selection)  # raises before anything is created
                DirectoryRegistry.create(home.root, home.disk)
            request = exchange.ExchangeRequest(
                log.name, versions, selection, channels, restore, actor=self.actor, deltas=deltas
            )
            result = exchange.exchange(reader, home, request, progress, log=log, own=own)
        if result.log is not None:
            self.heads.remember(home, result.name, result.log.index)
        with_policy = {tag for tag, channel in log.channels.items() if channel.policy}
        if with_policy and ref.tag not in with_policy:  # else the policies were read, or there are none
            with suppress(HostError, IntegrityError, NotFoundError, RemoteError):
                reader.read_index(POLICY_LOG)
        _keep(reader.copy, log, _evidence(log))
        return result

    def fetch_index(self, names: Collection[str] = (), source: str | None = None) -> list[State]:
        """Store a remote's policies and logs for offline use. Return the logs' states. `names` may be patterns."""
        reader = RemoteReader(self.remotes.open(source), self.heads)
        states = []
        for name in matching(reader, names) if names else reader.names():
            with host_errors(f"remembering {name}", MACHINE_ERRNOS), reader.copy.refetch_after_error(name):
                log = load(reader, name, self.store)
                if log.index is not None:
                    reader.copy.keep(name, log.index)
                pairs = [(log.state.versions[version], item) for version, item in log.state.summaries.items()]
                downloads = [summary.downloads(entry.held) for entry, summary in pairs if entry.gone is None]
                operators = {item.operators for rows in downloads for item, _ in rows if item.operators}
                reader.copy.keep_log(log, {*_evidence(log), *operators})
            states.append(log.state)
        reader.read_index(POLICY_LOG)  # last, so that it has the policies of all promotions
        return states

    def _destination(self, to: str | None) -> RegistryStore:
        remote = self.remotes.open(to, create=True)
        check_distinct(remote, self.store)
        return remote

    def write_out(
        self, ref: Ref | str, output: Path, progress: Progress = SILENT, selection: Selection = EVERYTHING
    ) -> Release:
        """Replace the directory `output` by the files of a version, or by those of the selected artifacts.

        If `output` is a run directory, only its folder `exports` is replaced.
        """
        from onnxreg.registry.transfer.export_files import check_target, folder_in, materialize

        output = folder_in(output)
        check_target(output, self.store.root)
        published = self.get(ref)
        paths = selection.of(published.manifest, str(published.ref)) if selection else published.held
        materialize(self.store, held_files(published.manifest, paths), published.data, output, progress)
        return published


def _ref(ref: Ref | str) -> Ref:
    return Ref.parse(ref) if isinstance(ref, str) else ref


def _keep(copy: RemoteCopy, log: Log, documents: Collection[Digest] = ()) -> None:
    with suppress(HostError, NotFoundError, RemoteError):  # the transfer itself has succeeded
        copy.keep_log(log, documents)


def _evidence(log: Log) -> Collection[Digest]:
    if not any(channel.evidence for channel in log.channels.values()):
        return ()
    from onnxreg.registry.gates import promotion_documents

    return promotion_documents(log)


def _held_by(log: Log, channels: Collection[str], located: Version) -> list[Version]:
    return sorted({log.channel(tag).version for tag in channels} - {located})
