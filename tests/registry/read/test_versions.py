"""A version as it was published."""

from dataclasses import replace
from pathlib import Path

from support.registries import grow

from onnxreg.registry.log.lookup import read_version
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Ref


def test_a_later_key_does_not_hide_sealed_attestations(tmp_path: Path) -> None:
    registry = grow.grow(tmp_path / "models", 1, 1, manifests=True)
    published = read_version(registry.store, Ref.parse(grow.model_name(0)))
    assert published.index is not None and not published.may_be_attested
    first, _, lines = published.index.data.partition(b"\n")
    state = canonical.decode(first) | {"later": {"segments": []}, "segments": [str(Digest.of(b""))]}
    index = published.index._replace(data=canonical.encode(state) + b"\n" + lines)
    assert replace(published, index=index).may_be_attested
    assert replace(published, index=None).may_be_attested
