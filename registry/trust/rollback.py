"""Known heads on disk: `heads/<registry id>/<name>.json` in the user's state directory. Light, for `resolve`.

Files are replaced atomically. Of two processes that learn at once, the one that knows less does not overwrite the other,
but for a moment too short to matter: what is lost then is one observation, never a wrong one gained.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onnxreg.registry.store.blobs import fetcher
from onnxreg.registry.store.protocol import BlobReader, IndexFile, RefreshableReader, RegistryReader
from onnxreg.registry.support.disk import replace_file
from onnxreg.registry.support.home import state_directory
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import EXTENT, ForkError, HostError, InputError, IntegrityError, placed
from onnxreg.schema.core.ref import POLICY_LOG

if TYPE_CHECKING:
    from onnxreg.schema.log.checkpoint import Checkpoint, StaleIndex


class StaleNotice(NamedTuple):
    """A place whose log of a model lacks lines that were seen elsewhere.

    `seconds`: how long ago the newer log was first seen, which is how old the place's answer is at least.
    """

    name: str
    url: str
    lines: int
    seconds: float


class CheckpointStore:
    """The known heads of one user.

    Args:
        directory: where they are kept; default: the user's state directory.
        stale: is told of a place that is behind; it may raise.
        warn: is told once where nothing can be remembered.
    """

    def __init__(
        self,
        directory: Path | None = None,
        stale: Callable[[StaleNotice], None] = lambda found: None,
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        self._root = (directory or state_directory()) / "heads"
        self._stale = stale
        self._warn = warn
        self._warned = False

    def known(self, registry_id: str, name: str) -> "Checkpoint | None":
        """What was last seen; None if nothing was. Raise IntegrityError if the file cannot be read."""
        return self._decoded(registry_id, name, self.recall(registry_id, name))

    def knows(self, registry_id: str, name: str) -> bool:
        """Return True if anything of a model was seen before."""
        return self._path(registry_id, name).is_file()

    def recall(self, registry_id: str, name: str) -> Any:
        """What is known, as JSON; None if nothing is.

        To be asked before the index file is read: what another process learns meanwhile must not count
        against it.
        """
        path = self._path(registry_id, name)
        try:
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise HostError(
                f"the known head of {name} cannot be read: {error.strerror}",
                "look at heads/ in your state directory (REG_STATE)",
            ) from error
        try:
            return json.loads(data) if data else None
        except (ValueError, RecursionError):
            raise self._damaged(registry_id, name) from None

    def _decoded(self, registry_id: str, name: str, value: Any) -> "Checkpoint | None":
        from onnxreg.schema.log.checkpoint import Checkpoint

        try:
            return None if value is None else Checkpoint.from_json(value)
        except InputError:
            raise self._damaged(registry_id, name) from None

    def _damaged(self, registry_id: str, name: str) -> IntegrityError:
        return IntegrityError(f"the known head of {name} is damaged", f"reg trust reset {registry_id} {name}")

    def check(
        self,
        place: RegistryReader,
        name: str,
        index: IndexFile | None,
        before: Any,
        policy: str = "",
        near: Sequence[BlobReader] = (),
    ) -> bool:
        """Compare what a place says of a model with what was known `before` (see `recall`), and remember it.

        Sealed parts of the log are read from the place, or from others that are `near`.

        Whether these very bytes were accepted before under this `policy` (the digest of a trust file).

        Raise ForkError, or IntegrityError if the place itself went back; a place that is behind another is
        only told of.
        """
        if before is not None and index is not None:
            same = _accepted(before, Digest.of(index.data).hex, _place(place))
            if same is not None:
                return same == policy
        with placed(place.url):
            try:
                return self._compare(place, name, index, before, policy, near)
            except InputError as error:
                what = f"the index of {name} in {place.url} is damaged: {error.message}"
                raise IntegrityError(what, EXTENT) from error

    def _compare(
        self,
        place: RegistryReader,
        name: str,
        index: IndexFile | None,
        before: Any,
        policy: str,
        near: Sequence[BlobReader],
    ) -> bool:
        from onnxreg.registry.trust.state_check import check_state, is_proven
        from onnxreg.schema.log.checkpoint import ObservedIndex, StaleIndex, compare, relearn

        where, registry_id = _place(place), place.registry_id
        known = self._decoded(registry_id, name, before)
        if index is None:
            if known is not None and known.places.get(where, 0):
                raise _back(place, name, 0, known.places[where])
            return True
        if known is not None and known.index == Digest.of(index.data).hex:
            self._keep(registry_id, name, known, known.at(where, known.seq))
            return known.policy == policy
        seen = ObservedIndex.read(index.data, name)
        if seen.state.registry != registry_id:
            return False  # the reader of the index says so
        seq = seen.state.seq
        went_back = known is not None and seq < known.places.get(where, 0)
        if known is not None and went_back and known.digest_at(seq) in (None, seen.state.head):
            raise _back(place, name, seq, known.places[where])
        fetch = fetcher(*near, place)
        sealed = partial(_sealed, fetch, seen.state.segments)
        try:
            found = compare(known, seen, sealed)
            check_state(None if isinstance(found, StaleIndex) else known, seen, fetch, sealed)
        except ForkError:
            raise
        except IntegrityError:
            if known is None or seq < known.seq or not is_proven(seen, fetch, sealed):
                raise
            found = relearn(known, seen, sealed)
        if isinstance(found, StaleIndex):
            assert known is not None
            self._behind(place, name, known, seq, found)
            return False
        self._keep(registry_id, name, known, found.at(where, found.seq))
        return False

    def check_policies(
        self, place: RegistryReader, index: IndexFile | None, before: Any, policy: str = ""
    ) -> bool:
        """As `check`, for a registry's log of policies, of which an earlier state is refused wherever it lies."""
        if (
            index is not None
            and isinstance(before, dict)
            and before.get("index") == Digest.of(index.data).hex
        ):
            return before.get("policy") == policy
        from onnxreg.schema.log.checkpoint import follow, reset_hint
        from onnxreg.schema.log.logline import LogLineHeader, genesis

        registry_id, where = place.registry_id, _place(place)
        known, hint = self._decoded(registry_id, POLICY_LOG, before), reset_hint(registry_id, POLICY_LOG)
        if index is None:
            if known is not None:
                raise IntegrityError(f"the policy log of {place.url} is gone: it had {known.seq} lines", hint)
            return True
        digest = Digest.of(index.data).hex
        try:
            lines = [LogLineHeader.read(raw) for raw in index.data.removesuffix(b"\n").split(b"\n")]
        except InputError as error:
            raise IntegrityError(
                f"the policy log of {place.url} cannot be read: {error.message}", error.hint
            ) from error
        if lines[0].prev != genesis(registry_id, POLICY_LOG):
            raise IntegrityError(f"the policy log of {place.url} is another registry's", hint)
        found = follow(known, digest, lines, registry_id, POLICY_LOG, where)
        self._keep(registry_id, POLICY_LOG, known, found)
        return False

    def _behind(
        self, place: RegistryReader, name: str, known: "Checkpoint", seq: int, behind: "StaleIndex"
    ) -> None:
        self._keep(place.registry_id, name, known, known.at(_place(place), seq))
        with suppress(OSError):
            age = abs(time.time() - self._path(place.registry_id, name).stat().st_mtime)
            self._stale(StaleNotice(name, place.url, behind.lines, age))

    def approve(self, place: RegistryReader, name: str, index: IndexFile, policy: str) -> None:
        """Remember that an index file also keeps a policy, where it is the newest that is known."""
        known = self.known(place.registry_id, name)
        if known is not None and known.index == Digest.of(index.data).hex:
            self._keep(place.registry_id, name, known, replace(known, policy=policy))

    def passed(self, registry_id: str, name: str, channel: str, proof: str) -> bool:
        """Return True if a governed channel was found to meet its policy with this proof before; see
        `watch.check_holder_of`."""
        known = self.recall(registry_id, name)
        return known is not None and known.get("gates", {}).get(channel) == proof

    def keep_passed(self, registry_id: str, name: str, channel: str, index: IndexFile, proof: str) -> None:
        """Remember that a governed channel meets its policy, where the index file is the newest that is known."""
        known = self.known(registry_id, name)
        if known is not None and known.index == Digest.of(index.data).hex:
            gates = {**known.gates, channel: proof}
            self._keep(registry_id, name, known, replace(known, gates=gates))

    def reset(self, registry_id: str, name: str | None = None) -> list[str]:
        """Forget the head of a model, or of all models of a registry. Returns the names that were known."""
        import shutil

        known = [each for each in self.names(registry_id) if name in (None, each)]
        for each in known:
            with suppress(FileNotFoundError):
                self._path(registry_id, each).unlink()
        if name is None:
            shutil.rmtree(self._root / registry_id, ignore_errors=True)
        return known

    def names(self, registry_id: str) -> list[str]:
        """The models of a registry whose heads are known."""
        top = self._root / registry_id
        return sorted(path.relative_to(top).as_posix()[: -len(".json")] for path in top.rglob("*.json"))

    def models(self, registry_id: str) -> list[str]:
        """As `names`, without the log of policies."""
        return [name for name in self.names(registry_id) if name != POLICY_LOG]

    def registries(self) -> list[str]:
        """The ids of registries of which something is known."""
        return sorted(path.name for path in self._root.iterdir()) if self._root.is_dir() else []

    def _path(self, registry_id: str, name: str) -> Path:
        return self._root / registry_id / f"{name}.json"

    def _keep(self, registry_id: str, name: str, before: "Checkpoint | None", known: "Checkpoint") -> None:
        """Write what is known now, unless it is what was known, or another process knows more by now."""
        if known == before:
            return
        path = self._path(registry_id, name)
        try:
            latest = self.known(registry_id, name)
            if latest is not None and latest.seq > known.seq:
                return
            found = path.stat() if before is not None and before.seq == known.seq else None
            times = (found.st_atime, found.st_mtime) if found is not None else None
            replace_file(path, json.dumps(known.to_json()).encode(), times)
        except OSError as error:
            if not self._warned:
                self._warned = True
                self._warn(
                    f"known heads cannot be kept in {self._root}: {error.strerror}; a rollback will go unnoticed"
                )


def _accepted(known: Any, index: str, where: str) -> str | None:
    """The policy under which this index file was accepted from this place; None if it was not.

    For most calls, all.
    """
    try:
        same = known["index"] == index and known["places"].get(where, 0) >= known["seq"]
        return str(known["policy"]) if same else None
    except (KeyError, TypeError, AttributeError):
        return None


def _place(place: RegistryReader) -> str:
    """A place by its URL; a path in full; an archive by what is in it too."""
    archive: str | None = getattr(place, "whereabouts", None)
    if archive is not None:
        return archive
    root = getattr(place, "root", None)
    return os.path.abspath(root) if isinstance(root, Path) else place.url  # noqa: PTH100


def _sealed(fetch: Callable[[Digest], bytes], segments: Sequence[Digest], number: int) -> list[bytes]:
    return fetch(segments[number]).removesuffix(b"\n").split(b"\n")


def _back(place: RegistryReader, name: str, seq: int, known: int) -> IntegrityError:
    from onnxreg.schema.log.checkpoint import reset_hint

    cached = ", and no cache in between is to blame" if isinstance(place, RefreshableReader) else ""
    what = f"the log of {name} ends at line {seq}" if seq else f"{name} is gone"
    return IntegrityError(
        f"{place.url} went back in time: {what}, {known} were there before{cached}",
        reset_hint(place.registry_id, name),
    )
