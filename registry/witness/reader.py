"""The check of a reader who demands witnesses: a log is in the newest witnessed map, or extends its entry.

Requests: `proofs`, then a page of the map for each 8 bits of the way to a name: at most four for a million names.
What was read before is in the user's state directory: pages never change, and `proofs` is asked for with its token.
"""

import json
import time
from base64 import b64decode, b64encode
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxreg.registry.store.layout import PROOFS, page_path
from onnxreg.registry.store.protocol import IndexFile, PathReader, RegistryReader, innermost, location
from onnxreg.registry.support.disk import host_errors, replace_file
from onnxreg.registry.support.environment import state_directory
from onnxreg.registry.witness.copies import parse_proofs
from onnxreg.registry.witness.heads import LogEnd
from onnxreg.registry.witness.note_keys import is_signed_by_log, require_signature, valid_signatures
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import Advice, IntegrityError
from onnxreg.schema.core.units import counted
from onnxreg.schema.witness.merkle_map import MapEntry, MerkleMap
from onnxreg.schema.witness.note import TreeHead, origin_of
from onnxreg.schema.witness.witnessed import WitnessedHead

if TYPE_CHECKING:
    from onnxreg.schema.inputs.trust_file import WitnessRequirement

MAX_CLOCK_SKEW_SECONDS = 600
"""A cosignature that is further in the future does not count."""
MAX_OBSERVATIONS = 64
"""The heads of one model that are not witnessed yet, and are remembered with the time when they were first seen."""
WITNESS_ADVICE = Advice("ask-for-witnesses")
PENDING_HINT = Advice("allow-pending-lines")


@dataclass
class WitnessedReader:
    """Checks what one place says of a registry's models. One object reads `proofs` once."""

    source: RegistryReader
    directory: Path | None = None
    _proofs: list[WitnessedHead] | None = field(default=None, repr=False)
    _is_fresh: bool = False
    _pages: dict[bytes, bytes] = field(default_factory=dict, repr=False)

    @property
    def _folder(self) -> Path:
        return (self.directory or state_directory()) / "witness" / "seen" / self.source.registry_id

    def check(self, name: str, index: IndexFile | None, needs: Sequence["WitnessRequirement"]) -> None:
        """Raise IntegrityError if a log is not as these witnesses saw it.

        `index` is None if the place has no such model: then the newest map must not have it either. A cache in between
        may have older proofs, so a refusal is repeated with those that are there now.
        """
        for need in needs:
            try:
                self._check(name, index, need)
            except IntegrityError:
                if self._is_fresh:
                    raise
                self._proofs, self._is_fresh = None, True
                self._check(name, index, need)

    def missing(self, names: Collection[str], needs: Sequence["WitnessRequirement"]) -> list[MapEntry]:
        """The logs that these witnesses saw and that are not among these names. Reads the whole map."""
        entries = {
            entry.name: entry for need in needs for entry in MerkleMap(self.newest(need).map_root, self._page)
        }
        return [entry for name, entry in sorted(entries.items()) if name not in names]

    def _check(self, name: str, index: IndexFile | None, need: "WitnessRequirement") -> None:
        entry = self._entry(self.newest(need), name)
        if index is None:
            if entry is not None:
                raise self._error(f"{name} is gone: witnesses saw {counted(entry.seq, 'line')} of it")
            return
        end = LogEnd.read(self.source, name, index)
        if entry is not None:
            self._check_continues(end, entry)
        self._check_pending(end, entry.seq if entry else 0, need)

    def _check_continues(self, end: LogEnd, entry: MapEntry) -> None:
        try:
            end.check_continues(entry)
        except IntegrityError as error:
            raise self._error(f"{entry.name} is not as witnesses saw it: {error.message}") from error

    def _check_pending(self, end: LogEnd, seq: int, need: "WitnessRequirement") -> None:
        """Raise IntegrityError if lines after `seq` are not witnessed, and may not be, or not for so long."""
        name, lines = end.entry.name, end.entry.seq - seq
        age = self._age(end, seq)
        if lines == 0:
            return
        if need.pending is None:
            raise self._error(f"{counted(lines, 'line')} of {name} {_is(lines)} not witnessed", PENDING_HINT)
        if age > need.pending:
            raise self._error(
                f"{counted(lines, 'line')} of {name} {_is(lines)} not witnessed, and {_is(lines)} known for {age} seconds",
                PENDING_HINT,
            )

    def _age(self, end: LogEnd, seq: int) -> int:
        """Seconds since the first line after `seq` was first seen; the head is remembered as seen now, if it is new."""
        path = self._folder / "pending" / f"{end.entry.name}.json"
        observations = _observations(path)
        heads = [head for head in observations if head[0] > seq]
        now = int(time.time())
        if end.entry.seq > seq and all(head[0] < end.entry.seq for head in heads):
            heads = [*heads, (end.entry.seq, now)]
            heads = [*heads[: MAX_OBSERVATIONS - 1], heads[-1]] if len(heads) > MAX_OBSERVATIONS else heads
        if heads != observations:
            with host_errors(f"remembering when the lines of {end.entry.name} were first seen"):
                replace_file(path, json.dumps(heads).encode())
        return abs(now - heads[0][1]) if heads else 0

    def _entry(self, witnessed: WitnessedHead, name: str) -> MapEntry | None:
        """The entry of a name in the map of a checkpoint. Pages are remembered once their hashes are right."""
        try:
            entry = MerkleMap(witnessed.map_root, self._page).get(name)
        except IntegrityError as error:
            raise self._error(error.message) from error
        for page in [page for page in self._pages if not self._page_file(page).exists()]:
            self._remember(self._page_file(page), self._pages[page])
        return entry

    def _page_file(self, page: bytes) -> Path:
        return self._folder / "map" / page.hex()

    def _page(self, page: bytes) -> bytes:
        """A page, from the state directory if it was read before."""
        if page not in self._pages:
            self._pages[page] = self._read_page(page)
        return self._pages[page]

    def _read_page(self, page: bytes) -> bytes:
        if self._page_file(page).is_file():
            return self._page_file(page).read_bytes()
        stored = self._files().read_file(page_path(page), (b"", ""))
        if stored is None:
            raise IntegrityError(f"page {page.hex()[:12]}... of the witness map is missing")
        return stored[0]

    def _files(self) -> PathReader:
        inner = innermost(self.source)
        if not isinstance(inner, PathReader):
            raise self._error("it has no witness log")
        return inner

    def newest(self, need: "WitnessRequirement") -> WitnessedHead:
        """The newest checkpoint that enough witnesses cosigned recently."""
        if self._proofs is None:
            self._proofs = self._read_proofs()
        problems = []
        for witnessed in self._proofs:
            problem = self._problem(witnessed, need)
            if problem is None:
                self._check_growth(witnessed.head)
                return witnessed
            problems.append(problem)
        raise self._error(problems[0] if problems else "no witness has cosigned its log")

    def _problem(self, witnessed: WitnessedHead, need: "WitnessRequirement") -> str | None:
        """The reason why a checkpoint is not accepted; None if it is."""
        if witnessed.head.origin != origin_of(self.source.registry_id):
            return f"its witness log is that of {witnessed.head.origin[:80]}"
        if need.log is not None:
            require_signature(witnessed.note, need.log)
        now = int(time.time())
        log_keys = [key for key in need.keys if is_signed_by_log(witnessed.note, key.public)]
        times = {
            key.raw: signature.time
            for key in need.keys
            if key not in log_keys
            for signature in valid_signatures(witnessed.note, key)
        }
        ages = [now - stamp for stamp in times.values() if stamp - now <= MAX_CLOCK_SKEW_SECONDS]
        if len(ages) < need.count:
            remark = "".join(f"; {key.name} is the key of the log, which does not count" for key in log_keys)
            return (
                f"{len(ages)} of the {need.count} witnesses that the trust file demands cosigned it{remark}"
            )
        oldest = sorted(ages)[need.count - 1]
        if oldest > need.max_age:
            return f"its cosignatures are {counted(oldest, 'second')} old, the limit is {counted(need.max_age, 'second')}"
        return None

    def _check_growth(self, head: TreeHead) -> None:
        """Raise IntegrityError if this place had a larger witnessed tree before, or any had another of this size."""
        path, url = self._folder / "trees.json", location(self.source)
        trees = _trees(path)
        largest = max(trees.values(), default=(0, ""))
        if head.size < trees.get(url, (0, ""))[0]:
            raise IntegrityError(
                f"{self.source.url}: its witness log went back in time: the cosigned tree has size {head.size}, "
                f"{trees[url][0]} was seen before",
                Advice("reset-registry", registry=self.source.registry_id),
            )
        if head.size == largest[0] and head.root.hex() != largest[1]:
            raise self._error(f"witnesses cosigned two different trees of size {head.size}")
        if trees.get(url) != (head.size, head.root.hex()):
            self._remember(path, json.dumps({**trees, url: (head.size, head.root.hex())}).encode())

    def _read_proofs(self) -> list[WitnessedHead]:
        """Read the cosigned checkpoints; unless they must be fresh, with the token that they had last time."""
        path = self._folder / "proofs" / Digest.of(location(self.source).encode()).hex
        cached = None if self._is_fresh else _cached_proofs(path)
        self._is_fresh = cached is None
        stored = self._files().read_file(PROOFS, cached)
        if stored is None:
            raise self._error("no witness has cosigned its log")
        if stored != cached:
            value = {"data": b64encode(stored[0]).decode(), "token": stored[1]}
            self._remember(path, json.dumps(value).encode())
        try:
            return parse_proofs(stored[0])
        except IntegrityError as error:
            raise self._error(error.message) from error

    def _remember(self, path: Path, data: bytes) -> None:
        with host_errors("remembering what witnesses saw"):
            replace_file(path, data)

    def _error(self, problem: str, hint: Advice = WITNESS_ADVICE) -> IntegrityError:
        return IntegrityError(f"{self.source.url}: {problem}", hint)


def _is(lines: int) -> str:
    return "is" if lines == 1 else "are"


def _trees(path: Path) -> dict[str, tuple[int, str]]:
    """Size and root of the largest tree that was seen at each place. IntegrityError if the file is damaged."""
    if not path.is_file():
        return {}
    try:
        return {url: (int(size), str(root)) for url, (size, root) in json.loads(path.read_bytes()).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise IntegrityError(
            f"{path.name} in your state directory is damaged", "remove it: then no earlier tree is known"
        ) from error


def _cached_proofs(path: Path) -> tuple[bytes, str] | None:
    try:
        value = json.loads(path.read_bytes())
        return b64decode(value["data"]), str(value["token"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _observations(path: Path) -> list[tuple[int, int]]:
    """Heads that were not witnessed when they were first seen, with the time. IntegrityError if the file is damaged."""
    if not path.is_file():
        return []
    try:
        value: Any = json.loads(path.read_bytes())
        return [(int(seq), int(stamp)) for seq, stamp in value]
    except (ValueError, TypeError) as error:
        raise IntegrityError(
            f"{path.name} in your state directory is damaged", "remove it: the lines count as seen now"
        ) from error
