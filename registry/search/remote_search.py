"""Questions over all models of a remote: from its snapshot, else from every index file."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from onnxreg.registry.read.remotes import TrackedReader
from onnxreg.registry.search import candidates, listing
from onnxreg.registry.search.snapshot import AbsentError, SearchSnapshot, SnapshotError, fetch
from onnxreg.registry.store.protocol import RegistryReader, UnlistedError, layers
from onnxreg.registry.support.actor import TIME_FORMAT
from onnxreg.schema.core.errors import RegError
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.core.ref import is_name

if TYPE_CHECKING:
    from onnxreg.registry.search.listing import ModelListing
    from onnxreg.schema.query.expression.parser import Expression

FILE = "snapshot.sqlite"
"""The copy of a remote's snapshot, in `local/` of its tracking copy."""
MAX_SILENT_MODELS = 50
"""Models whose index files are read without a word that there is no snapshot."""

Answer = TypeVar("Answer")


class RemoteSearch:
    """Answers from the snapshot of a remote. If it cannot be used, says so and reads every index file.

    Args:
        tell: takes a sentence for people.
        fresh: read every index file.
        max_age: the most seconds that the snapshot may be old, None for any.
    """

    def __init__(
        self,
        reader: RegistryReader,
        tell: Callable[[str], None],
        fresh: bool = False,
        max_age: int | None = None,
    ) -> None:
        self._reader = reader
        self._tell = tell
        self._fresh = fresh
        self._max_age = max_age
        self.time: str | None = None
        """The time of the snapshot that answered, RFC 3339; None if index files did."""

    def models(self, pattern: str) -> tuple[list["ModelListing"], list[str]]:
        """The models whose name fits a shell pattern, and the reasons why others cannot be listed."""
        return self._ask(
            pattern,
            lambda snapshot: snapshot.models(pattern),
            lambda names: listing.read_models(self._reader, names),
        )

    def query(
        self,
        expression: "Expression | None",
        pattern: str,
        take: Callable[[Iterator[dict[str, Any]]], Answer],
        progress: Progress = SILENT,
        profiled: bool = False,
    ) -> tuple[Answer, list[str]]:
        """Pass the candidates that fit to `take`; see `SearchIndex.query`."""
        return self._ask(
            pattern,
            lambda snapshot: snapshot.query(expression, pattern, take),
            lambda names: candidates.query(self._reader, expression, names, take, progress, profiled),
        )

    def _ask(
        self,
        pattern: str,
        from_snapshot: Callable[[SearchSnapshot], Answer],
        from_files: Callable[[Sequence[str]], Answer],
    ) -> Answer:
        if is_name(pattern):
            return from_files([pattern])
        problem: Exception | None = None
        if not self._fresh:
            try:
                with fetch(self._reader, self._copy()) as search_snapshot:
                    self._check_age(search_snapshot)
                    answer = from_snapshot(search_snapshot)
                    self.time = search_snapshot.time
                    return answer
            except (SnapshotError, RegError) as error:
                problem = error
        try:
            names = [name for name in self._reader.names() if fnmatchcase(name, pattern)]
        except UnlistedError as error:
            if isinstance(problem, RegError):
                raise problem from error
            if problem is None or isinstance(problem, AbsentError):
                raise
            raise UnlistedError(f"{error.message}, and the snapshot there {problem}", error.advice) from error
        if problem is not None and (not isinstance(problem, AbsentError) or len(names) > MAX_SILENT_MODELS):
            reason = (
                problem.message
                if isinstance(problem, RegError)
                else f"the snapshot of {self._reader.url} {problem}"
            )
            self._tell(f"{reason}; every index file is read instead")
        return from_files(names)

    def _copy(self) -> Path | None:
        for layer in layers(self._reader):
            if isinstance(layer, TrackedReader):
                return layer.tracking.local_path(FILE)
        return None

    def _check_age(self, snapshot: SearchSnapshot) -> None:
        if self._max_age is not None and age_of(snapshot.time) > self._max_age:
            raise SnapshotError("is older than allowed")


def age_of(time: str) -> float:
    """Seconds since the time of a snapshot, at least 0."""
    moment = datetime.strptime(time, TIME_FORMAT).replace(tzinfo=UTC)
    return max(0.0, (datetime.now(UTC) - moment).total_seconds())
