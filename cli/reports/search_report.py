"""The searches of `ls`, `query` and `index`, and what these verbs say of them: age, damage, an unfinished mirror."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from onnxreg.cli import hints
from onnxreg.cli.context import Session
from onnxreg.cli.render import output
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import LocalStore, RegistryReader, innermost
from onnxreg.schema.core.errors import VERIFY_ADVICE, IntegrityError, at
from onnxreg.schema.core.progress import SILENT, Progress

if TYPE_CHECKING:
    from onnxreg.registry.search.remote_search import RemoteSearch
    from onnxreg.registry.search.search_index import SearchIndex

MAX_NAMED_DAMAGES = 5
"""Damaged models that a message names."""


def index(reader: RegistryReader) -> "SearchIndex":
    """The search index of the registry on this machine."""
    from onnxreg.registry.search.search_index import SearchIndex

    assert isinstance(reader, LocalStore)
    return SearchIndex(DirectoryRegistry(reader.root))


def reading_steps(session: Session) -> AbstractContextManager[Progress]:
    """Show how far a long reading is; nothing if stderr is not a terminal."""
    return session.steps() if sys.stderr.isatty() else nullcontext(SILENT)


def search_of(session: Session, reader: RegistryReader, fresh: bool) -> "RemoteSearch":
    """The search over a remote."""
    from onnxreg.registry.search.remote_search import RemoteSearch

    return RemoteSearch(reader, session.warn, fresh, session.max_age)


def tell_time(session: Session, search: "RemoteSearch", reader: RegistryReader) -> dict[str, str]:
    """Say how old an answer from a snapshot is; return its part of a JSON document."""
    if search.time is None:
        return {}
    from onnxreg.registry.search.remote_search import age_of

    age = output.age(age_of(search.time))
    session.warn(f"snapshot: {reader.url} as it was {age} ago; --fresh reads every index file")
    return {"snapshot": search.time}


def warn_unfinished(session: Session, reader: RegistryReader) -> None:
    """Warn that an unfinished mirror may lack models."""
    if reader.is_mirror:
        from onnxreg.registry.transfer.mirror_registry import unfinished_warning

        if message := unfinished_warning(reader):
            session.warn(f"warning: {hints.text(message)}")


def fail(damages: Sequence[str], reader: RegistryReader) -> None:
    """IntegrityError if something is damaged, HostError if it cannot be read here, after everything else is shown."""
    if damages:
        for name in reader.names() if isinstance(innermost(reader), LocalStore) else ():
            reader.read_index(name)
        more = [f"and {len(damages) - MAX_NAMED_DAMAGES} more"] if len(damages) > MAX_NAMED_DAMAGES else []
        message = "; ".join([*damages[:MAX_NAMED_DAMAGES], *more])
        raise IntegrityError(
            message, f"the other models are listed; {hints.text(at(VERIFY_ADVICE, reader.url))}"
        )
