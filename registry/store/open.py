"""Open a registry by URL or path, and normalize URLs and paths."""

import errno
import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import RegistryStore
from onnxreg.registry.support.disk import path_text
from onnxreg.schema.core.errors import InputError, hub_library, missing_extra, why

BUCKETS = ("s3", "gs", "az")
SPELLINGS = "write a path, s3://bucket/prefix or hf://org/repo"
_SECRET = re.compile(r"(?i)(^|&)[^=&]*(token|secret|password|signature|credential)[^=&]*=")


def open_url(
    url: str, create: bool = False, mirror_of: str | None = None, known_id: str | None = None
) -> RegistryStore:
    """Open the registry at a URL (`file://`, `s3://`, `https://`, `hf://`, ...) or path.

    With `create`, a missing registry is created; with `mirror_of`, as a mirror of that registry. A remote store may assume
    that the registry's id is `known_id`, which saves a request; the first index file that it reads shows the id.
    """
    scheme = _scheme(url)
    if scheme in BUCKETS:
        try:
            from onnxreg.registry.store.bucket import bucket_remote
        except ModuleNotFoundError as error:
            extra = "s3" if scheme == "s3" else "bucket"
            raise missing_extra(error.name or "obstore", extra, f"a registry at {scheme}://") from None
        return bucket_remote(url, create, mirror_of, known_id)
    if scheme in ("http", "https"):
        from onnxreg.registry.store.requests import http_remote

        return http_remote(url, known_id)
    if scheme == "hf":
        with hub_library("a registry on the Hugging Face Hub"):
            from onnxreg.registry.store.hub import open_hub
        return open_hub(url, create, mirror_of, known_id)
    path = path_of(url)
    if path is None:
        from onnxreg.registry.store.fsspec_store import file_remote

        return file_remote(url, create, mirror_of)
    try:
        if path.is_file():
            from onnxreg.registry.store.archive_reader import open_archive

            return open_archive(path)
        if create and path.suffix == ".onnxreg" and not path.exists():
            raise InputError(f"{path} would be an archive", "`reg archive create` makes one")
        return DirectoryRegistry.create(path, mirror_of=mirror_of) if create else DirectoryRegistry.open(path)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise InputError(f"{url[:80]}... is too long for a path", "name a shorter path") from error


def path_of(address: str) -> Path | None:
    """The path that a `file://` URL or a path names; None for any other URL."""
    scheme, parts = _scheme(address), urlsplit(address)
    if len(scheme) <= 1:  # no scheme, or the drive of Windows
        try:
            return Path(address).expanduser()
        except RuntimeError as error:
            raise InputError(f"{address}: {error}", "write the directory out in full") from error
    if scheme != "file":
        return None
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise InputError(f"{address} names the host {parts.netloc!r}", "write file:///absolute/path")
    return Path(unquote(parts.path, errors="surrogateescape"))


def _scheme(address: str) -> str:
    """Return the scheme of a URL, "" for a path. InputError if the address is neither a URL nor a path."""
    if "\0" in address:
        raise InputError(f"not a path or URL: {address[:80]!r}", SPELLINGS)
    try:
        return urlsplit(address).scheme
    except ValueError as error:
        raise InputError(f"not a URL: {address[:80]!r}: {why(error)}", SPELLINGS) from error


def absolute(address: str) -> str:
    """Return an absolute path or a normalized URL. InputError if a URL has a secret: URLs are stored and shown."""
    parts = urlsplit(address) if len(_scheme(address)) > 1 else None
    if parts and (parts.password is not None or _SECRET.search(parts.query)):
        hint = "leave them out: each kind of place finds them where its own tools do"
        raise InputError("the URL holds credentials, which would be written to disk and shown", hint)
    path = path_of(address)
    if parts is None and path is not None:
        return path_text(Path(os.path.abspath(path)))  # noqa: PTH100
    if parts and parts.scheme in BUCKETS:
        from onnxreg.registry.store.bucket_url import BucketUrl

        return BucketUrl.parse(address).url
    base, mark, options = address.partition("?")
    return re.sub(r"(?<=[^:/])/+$", "", base) + mark + options
