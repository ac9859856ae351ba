"""Small blobs, read whole and always checked."""

from pathlib import Path

import pytest

from onnxreg.registry.backends.local import LocalRemote
from onnxreg.registry.backends.memory import memory_remote
from onnxreg.registry.blobs import fetcher
from onnxreg.registry.layout import BlobKey
from onnxreg.registry.testing import put
from onnxreg.schema.digest import Digest
from onnxreg.schema.errors import IntegrityError

DOCUMENT = b"a document"


def test_a_damaged_copy_is_passed_over(tmp_path: Path) -> None:
    near, far, empty = LocalRemote.create(tmp_path / "near"), memory_remote(), memory_remote()
    for place in (near, far):
        put(place, DOCUMENT)
    path = near.root / BlobKey(Digest.of(DOCUMENT)).path
    path.chmod(0o600)
    path.write_bytes(b"rot")
    assert fetcher(far, near)(Digest.of(DOCUMENT)) == DOCUMENT
    with pytest.raises(IntegrityError, match="is damaged"):
        fetcher(near, empty)(Digest.of(DOCUMENT))
