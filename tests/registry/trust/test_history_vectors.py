"""The vectors of tests/vectors/history.json: a reader who has seen an index file, and what comes after it."""

import json
from pathlib import Path
from typing import Any

import pytest

from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.layout import blob_path, index_path
from onnxreg.registry.trust.known_heads import CheckedReader, KnownHeads
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import IntegrityError

HISTORY = json.loads((Path(__file__).parents[2] / "vectors" / "history.json").read_text())
NAME = "acme/pii"


@pytest.mark.parametrize("vector", HISTORY["vectors"], ids=lambda vector: vector["name"])
def test_vectors_of_the_next_index_file(vector: dict[str, Any], tmp_path: Path) -> None:
    place = DirectoryRegistry.create(tmp_path / "tree")
    identity = json.loads((place.root / "registry.json").read_bytes())
    identity["id"] = json.loads(HISTORY["before"].splitlines()[0])["registry"]
    (place.root / "registry.json").chmod(0o600)
    (place.root / "registry.json").write_text(json.dumps(identity))
    for digest, text in HISTORY["documents"].items():
        path = place.root / blob_path(Digest.parse(digest))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    index = place.root / index_path(NAME)
    index.parent.mkdir(parents=True)

    def read(text: str) -> None:
        index.unlink(missing_ok=True)
        index.write_text(text)
        CheckedReader(DirectoryRegistry.open(place.root), KnownHeads()).read_index(NAME)

    read(HISTORY["before"])
    if vector["error"] is None:
        read(vector["after"])
    else:
        with pytest.raises(IntegrityError):
            read(vector["after"])
