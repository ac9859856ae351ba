"""Known heads on disk: `heads/<registry id>/<name>.json` in the user's state directory. Light, for `resolve`.

Files are replaced atomically. A process does not overwrite the longer log of another one. If both write in the
same moment, one observation may be lost; a false one is never saved.
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

from onnxreg.registry.log.lookup import fetcher, sealed_lines
from onnxreg.registry.store.protocol import BlobReader, IndexFile, RefreshableReader, RegistryReader, location
from onnxreg.registry.support.disk import refuse_unlisted, replace_file
from onnxreg.registry.support.environment import state_directory
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import (
    VERIFY_ADVICE,
    Advice,
    ForkError,
    HostError,
    InputError,
    IntegrityError,
    name_registry_in_hint,
)
from onnxreg.schema.core.ref import POLICY_LOG

if TYPE_CHECKING:
    from onnxreg.schema.log.known_head import KnownHead, StaleIndex


class StaleNotice(NamedTuple):
    """A place whose log of a model lacks lines that were seen elsewhere.

    `seconds`: the time since the newer log was first seen. The place's answer is at least as old.
    """

    name: str
    url: str
    lines: int
    seconds: float


class KnownHeads:
    """The known heads of one user.

    Args:
        directory: the directory above `heads/`; default: the user's state directory.
        stale: called for a registry that is behind. It may raise.
        warn: called once if known heads cannot be written.
    """

    def __init__(
        self,
        directory: Path | None = None,
        stale: Callable[[StaleNotice], None] = lambda notice: None,
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        self._root = (directory or state_directory()) / "heads"
        self._stale = stale
        self._warn = warn
        self._warned = False

    def read(self, registry_id: str, name: str) -> "KnownHead | None":
        """Read the known head of a model; None if it is not known.

        Raise IntegrityError if the file cannot be read.
        """
        return self._decoded(registry_id, name, self.read_json(registry_id, name))

    def knows(self, registry_id: str, name: str) -> bool:
        """Return True if anything of a model was seen before."""
        return self._path(registry_id, name).is_file()

    def read_json(self, registry_id: str, name: str) -> Any:
        """Read the known head of a model as JSON; None if it is not known.

        Call it before the index file is read: what another process learns meanwhile must not count against it.
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

    def _decoded(self, registry_id: str, name: str, value: Any) -> "KnownHead | None":
        from onnxreg.schema.log.known_head import KnownHead

        try:
            return None if value is None else KnownHead.from_json(value)
        except InputError:
            raise self._damaged(registry_id, name) from None

    def _damaged(self, registry_id: str, name: str) -> IntegrityError:
        return IntegrityError(
            f"the known head of {name} is damaged",
            Advice("reset-known-head", registry=registry_id, name=name),
        )

    def check(
        self,
        reader: RegistryReader,
        name: str,
        index: IndexFile | None,
        before: Any,
        trust_digest: str = "",
        near: Sequence[BlobReader] = (),
    ) -> bool:
        """Compare an index file with the known head, and remember it.

        Return True if the same bytes were accepted before with this trust file. Raise ForkError, or
        IntegrityError if the place itself went back. A place that is behind another one is only reported.

        Args:
            before: the answer of `read_json` before the index file was read.
            near: further places where the sealed parts of the log may be read.
        """
        if name == POLICY_LOG:
            return self._check_policies(reader, index, before, trust_digest)
        url, digest = location(reader), "" if index is None else Digest.of(index.data).hex
        if before is not None and index is not None:
            accepted = _accepted(before, digest, url)
            if accepted is not None:
                return accepted == trust_digest
        with name_registry_in_hint(reader.url):
            known_head = self._decoded(reader.registry_id, name, before)
            if index is None:
                if known_head is not None and known_head.places.get(url, 0):
                    raise _back(reader, name, 0, known_head.places[url])
                return True
            if known_head is not None and known_head.index == digest:
                self._keep(reader.registry_id, name, known_head, known_head.at(url, known_head.seq))
                return known_head.trust_digest == trust_digest
            try:
                self._compare(reader, name, index, known_head, near)
            except InputError as error:
                message = f"the index of {name} in {reader.url} is damaged: {error.message}"
                raise IntegrityError(message, VERIFY_ADVICE) from error
        return False

    def _compare(
        self,
        reader: RegistryReader,
        name: str,
        index: IndexFile,
        known_head: "KnownHead | None",
        near: Sequence[BlobReader],
    ) -> None:
        """Compare a new index file with the known head. A state that differs is learned anew if its log proves it."""
        from onnxreg.registry.trust.state_check import check_state, is_proven
        from onnxreg.schema.log.known_head import ObservedIndex, StaleIndex, compare, relearn

        observed = ObservedIndex.read(index.data, name)
        if observed.state.registry != reader.registry_id:
            return  # the reader of the index says so
        url, seq = location(reader), observed.state.seq
        went_back = known_head is not None and seq < known_head.places.get(url, 0)
        if known_head is not None and went_back and known_head.digest_at(seq) in (None, observed.state.head):
            raise _back(reader, name, seq, known_head.places[url])
        fetch = fetcher(*near, reader)
        sealed = partial(sealed_lines, fetch, observed.state.segments)
        try:
            outcome = compare(known_head, observed, sealed)
            check_state(None if isinstance(outcome, StaleIndex) else known_head, observed, fetch, sealed)
        except ForkError:
            raise
        except IntegrityError:
            if known_head is None or seq < known_head.seq or not is_proven(observed, fetch, sealed):
                raise
            outcome = relearn(known_head, observed, sealed)
        if isinstance(outcome, StaleIndex):
            assert known_head is not None
            self._behind(reader, name, known_head, seq, outcome)
        else:
            self._keep(reader.registry_id, name, known_head, outcome.at(url, outcome.seq))

    def _check_policies(
        self, reader: RegistryReader, index: IndexFile | None, before: Any, trust_digest: str
    ) -> bool:
        """Check a registry's log of policies. An earlier state of it is refused at any place."""
        if (
            index is not None
            and isinstance(before, dict)
            and before.get("index") == Digest.of(index.data).hex
        ):
            return before.get("policy") == trust_digest
        if index is None and before is None:
            return True
        from onnxreg.schema.log.known_head import follow, reset_hint
        from onnxreg.schema.log.logline import LogLineHeader, genesis

        registry_id, url = reader.registry_id, location(reader)
        known_head, hint = self._decoded(registry_id, POLICY_LOG, before), reset_hint(registry_id, POLICY_LOG)
        if index is None:
            if known_head is not None:
                raise IntegrityError(
                    f"the policy log of {reader.url} is gone: it had {known_head.seq} lines", hint
                )
            return True
        digest = Digest.of(index.data).hex
        try:
            lines = [LogLineHeader.read(raw) for raw in index.data.removesuffix(b"\n").split(b"\n")]
        except InputError as error:
            raise IntegrityError(
                f"the policy log of {reader.url} cannot be read: {error.message}", error.advice
            ) from error
        if lines[0].prev != genesis(registry_id, POLICY_LOG):
            raise IntegrityError(f"the policy log of {reader.url} is another registry's", hint)
        latest = follow(known_head, digest, lines, registry_id, POLICY_LOG, url)
        self._keep(registry_id, POLICY_LOG, known_head, latest)
        return False

    def _behind(
        self, reader: RegistryReader, name: str, known_head: "KnownHead", seq: int, behind: "StaleIndex"
    ) -> None:
        self._keep(reader.registry_id, name, known_head, known_head.at(location(reader), seq))
        with suppress(OSError):
            age = abs(time.time() - self._path(reader.registry_id, name).stat().st_mtime)
            self._stale(StaleNotice(name, reader.url, behind.lines, age))

    def approve(self, reader: RegistryReader, name: str, index: IndexFile, trust_digest: str) -> None:
        """Remember that the newest index file meets the trust file. Ignore an older one."""
        known_head = self.read(reader.registry_id, name)
        if known_head is not None and known_head.index == Digest.of(index.data).hex:
            self._keep(reader.registry_id, name, known_head, replace(known_head, trust_digest=trust_digest))

    def passed(self, registry_id: str, name: str, channel: str, proof: str) -> bool:
        """Return True if a governed channel met its policy with this proof before.

        See `resolution.check_channel_policy`.
        """
        value = self.read_json(registry_id, name)
        return value is not None and value.get("gates", {}).get(channel) == proof

    def keep_passed(self, registry_id: str, name: str, channel: str, index: IndexFile, proof: str) -> None:
        """Remember that a governed channel of the newest index file meets its policy. Ignore an older one."""
        known_head = self.read(registry_id, name)
        if known_head is not None and known_head.index == Digest.of(index.data).hex:
            gates = {**known_head.gates, channel: proof}
            self._keep(registry_id, name, known_head, replace(known_head, gates=gates))

    def reset(self, registry_id: str, name: str | None = None) -> list[str]:
        """Forget the head of a model, or of all models of a registry. Return their names."""
        import shutil

        names = [model for model in self.names(registry_id) if name in (None, model)]
        for model in names:
            with suppress(FileNotFoundError):
                self._path(registry_id, model).unlink()
        if name is None:
            shutil.rmtree(self._root / registry_id, ignore_errors=True)
        return names

    def names(self, registry_id: str) -> list[str]:
        """The models of a registry whose heads are known."""
        top = self._root / registry_id
        files = [
            Path(folder, name) for folder, _, names in os.walk(top, onerror=refuse_unlisted) for name in names
        ]
        return sorted(
            path.relative_to(top).with_suffix("").as_posix() for path in files if path.suffix == ".json"
        )

    def models(self, registry_id: str) -> list[str]:
        """The names with a known head, without the log of policies."""
        return [name for name in self.names(registry_id) if name != POLICY_LOG]

    def registries(self) -> list[str]:
        """The ids of registries with a known head."""
        return sorted(path.name for path in self._root.iterdir()) if self._root.is_dir() else []

    def _path(self, registry_id: str, name: str) -> Path:
        return self._root / registry_id / f"{name}.json"

    def _keep(self, registry_id: str, name: str, before: "KnownHead | None", known_head: "KnownHead") -> None:
        """Save the known head, unless it is unchanged or another process saved a longer log."""
        if known_head == before:
            return
        path = self._path(registry_id, name)
        try:
            latest = self.read(registry_id, name)
            if latest is not None and latest.seq > known_head.seq:
                return
            status = path.stat() if before is not None and before.seq == known_head.seq else None
            times = (status.st_atime, status.st_mtime) if status is not None else None
            replace_file(path, json.dumps(known_head.to_json()).encode(), times)
        except OSError as error:
            if not self._warned:
                self._warned = True
                self._warn(
                    f"known heads cannot be kept in {self._root}: {error.strerror}; a rollback will go unnoticed"
                )


def _accepted(known_head: Any, index: str, location: str) -> str | None:
    """Return the digest of the trust file with which this place's index file was accepted, or None.

    The fast path: most calls end here.
    """
    try:
        same = known_head["index"] == index and known_head["places"].get(location, 0) >= known_head["seq"]
        return str(known_head["policy"]) if same else None
    except (KeyError, TypeError, AttributeError):
        return None


def _back(reader: RegistryReader, name: str, seq: int, lines: int) -> IntegrityError:
    from onnxreg.schema.log.known_head import reset_hint

    cached = ", and no cache in between is to blame" if isinstance(reader, RefreshableReader) else ""
    end = f"the log of {name} ends at line {seq}" if seq else f"{name} is gone"
    return IntegrityError(
        f"{reader.url} went back in time: {end}, {lines} were there before{cached}",
        reset_hint(reader.registry_id, name),
    )
