"""Small blobs, read whole and always checked."""

from pathlib import Path

import pytest
from conformance.contract import put
from support.registries.home import Home

from onnxreg.registry.log.contents import read_history
from onnxreg.registry.log.log import fetcher, load
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.layout import BlobKey
from onnxreg.registry.store.protocol import memory_remote
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import IntegrityError, NotFoundError

DOCUMENT = b"a document"


def test_a_damaged_copy_is_passed_over(tmp_path: Path) -> None:
    near, far, empty = DirectoryRegistry.create(tmp_path / "near"), memory_remote(), memory_remote()
    for place in (near, far):
        put(place, DOCUMENT)
    path = near.root / BlobKey(Digest.of(DOCUMENT)).path
    path.chmod(0o600)
    path.write_bytes(b"rot")
    assert fetcher(far, near)(Digest.of(DOCUMENT)) == DOCUMENT
    with pytest.raises(IntegrityError, match="is damaged"):
        fetcher(near, empty)(Digest.of(DOCUMENT))


def test_a_history_lacks_no_manifest_of_a_version_that_is_here(registry: Home) -> None:
    release = registry.make()
    assert [entry.row.manifest for entry in read_history(load(registry.store, release.name), 5)] == [
        release.digest
    ]
    (registry.store.root / BlobKey(release.digest).path).unlink()
    with pytest.raises(NotFoundError):
        read_history(load(registry.store, release.name), 5)
