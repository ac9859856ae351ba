"""Private attributes of libraries: the only module of the registry that uses any.

| attribute | reason |
|---|---|
| httpx2: the network behind a client's transports | limits of one read, also while headers arrive |
| httpx2: the size of the blocks that it sends | 64 KiB cost a quarter more than 1 MiB |
| huggingface_hub: the mark of a file that it will leave out | the file would be lost without an error |

The limits are a promise (docs/threat-model.md), so a library without such an attribute is an error, not a slower way.
"""

from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from onnxreg.schema.core.errors import HostError

if TYPE_CHECKING:
    import httpcore2
    import httpx2
    from huggingface_hub import CommitOperationAdd


def wrap_networks(
    client: "httpx2.Client", wrap: "Callable[[httpcore2.NetworkBackend], httpcore2.NetworkBackend]"
) -> None:
    """Wrap the network behind each transport of a client of httpx2. A transport that was made for a test has none."""
    import httpx2

    mounts = _read("httpx2", client, "_mounts").values()
    for transport in (_read("httpx2", client, "_transport"), *mounts):
        if isinstance(transport, httpx2.HTTPTransport):
            pool = _read("httpx2", transport, "_pool")
            pool._network_backend = wrap(_read("httpcore2", pool, "_network_backend"))


def enlarge_upload_blocks(size: int) -> None:
    """Upload files in blocks of this size, if the installed httpx2 has the setting."""
    with suppress(ImportError):
        from httpx2._content import IteratorByteStream

        IteratorByteStream.CHUNK_SIZE = size


def is_left_out(addition: "CommitOperationAdd") -> bool:
    """True if huggingface_hub will leave a file out of a commit, since the repository's .gitignore hides it."""
    return bool(_read("huggingface_hub", addition, "_should_ignore"))


def _read(library: str, owner: object, path: str) -> Any:
    """HostError if the installed version of the library has no such attribute."""
    try:
        return attrgetter(path)(owner)
    except AttributeError as error:
        raise HostError(
            f"{library} {version(library)} does not fit this onnxreg: {type(owner).__name__} has no {path}",
            f"install another version of {library}; constraints.txt of onnxreg has one that fits",
        ) from error
