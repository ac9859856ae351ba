"""Read the catalog that `ls` and `query` search, and print messages about its age and damage."""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from onnxreg.cli.options import Session
from onnxreg.cli.output import duration
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import RegistryReader, innermost
from onnxreg.schema.core.errors import VERIFY_ADVICE, IntegrityError
from onnxreg.schema.core.units import SILENT, Progress

if TYPE_CHECKING:
    from onnxreg.registry.search.catalog import Catalog

MAX_NAMED_DAMAGES = 5


def read_catalog(
    session: Session, reader: RegistryReader, pattern: str, artifacts: bool, max_age: int | None
) -> "Catalog":
    """Read the models of a registry. With `artifacts`, also read the artifacts of the models that match `pattern`."""
    from onnxreg.registry.search.catalogs import LocalCatalog, read_remote

    with reading_steps(session) as progress:
        if isinstance(reader, DirectoryRegistry):
            return LocalCatalog(DirectoryRegistry(reader.root)).refresh(pattern, artifacts, progress)
        return read_remote(reader, session.warn, pattern, artifacts, progress, max_age)


def reading_steps(session: Session) -> AbstractContextManager[Progress]:
    return session.steps() if sys.stderr.isatty() else nullcontext(SILENT)


def tell_time(session: Session, time: str | None, reader: RegistryReader) -> dict[str, str]:
    """Print the age of a published catalog. Return `{snapshot: time}` for the JSON, or {} if `time` is None."""
    if time is None:
        return {}
    from onnxreg.registry.search.catalogs import age_of

    age = duration(age_of(time))
    session.warn(f"catalog: {reader.url} as it was {age} ago; --max-age 0s reads every index file")
    return {"snapshot": time}


def fail(damages: Sequence[str], reader: RegistryReader) -> None:
    """Raise IntegrityError if models are damaged, and HostError if this machine cannot read them."""
    if damages:
        for name in reader.names() if isinstance(innermost(reader), DirectoryRegistry) else ():
            reader.read_index(name)
        more = [f"and {len(damages) - MAX_NAMED_DAMAGES} more"] if len(damages) > MAX_NAMED_DAMAGES else []
        message = "; ".join([*damages[:MAX_NAMED_DAMAGES], *more])
        raise IntegrityError(message, f"the other models are listed; {VERIFY_ADVICE}")
