"""What a gate judges is what the reader was told: not what the channel holds a moment later."""

from typing import Any

import pytest
from support.registries import owner
from support.registries.gated import NAME
from support.trust.attack_operations import attack
from support.trust.tamper import Tree, canonical_json

from onnxreg.registry import Registry
from onnxreg.registry.deliver.coverage import coverage
from onnxreg.registry.deliver.resolution import check_channel_policy
from onnxreg.registry.log.lookup import find
from onnxreg.registry.store.protocol import IndexFile, MissingBlobError
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import GateError, IntegrityError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.query.requirements import Query

STABLE = f"{NAME}:stable"
REF = Ref.parse(STABLE)


@pytest.fixture
def registry(gated: Registry) -> Registry:
    owner.promote(gated, f"{NAME}:1.0.0", "stable")
    return gated


class TwoFaced:
    """Tells of a forged promotion, keeps back what would show that, and then tells of a history that goes on innocently."""

    def __init__(self, registry: Registry) -> None:
        self._store = registry.store
        self.withheld = [registry.get(f"{NAME}:1.2.0").digest]
        attack(registry, "forge 1.2.0")
        evil = registry.store.read_index(NAME)
        owner.promote(registry, f"{NAME}:1.0.0", "stable")
        self._answers = [evil, registry.store.read_index(NAME)]

    def read_index(self, name: str, known: IndexFile | None = None) -> IndexFile | None:
        if name != NAME:
            return self._store.read_index(name)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def open_blob(self, digest: Digest, start: int = 0) -> Any:
        if digest in self.withheld:
            self.withheld.clear()
            raise MissingBlobError(digest, self._store.url)
        return self._store.open_blob(digest, start)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_resolve_judges_the_index_that_answered(registry: Registry) -> None:
    place = TwoFaced(registry)
    registry.heads.reset(registry.id)
    with pytest.raises(GateError, match=r"1\.2\.0 was found"):
        registry.resolve(STABLE, remote=place)


def test_a_remote_without_an_index_is_judged_too(registry: Registry) -> None:
    place = TwoFaced(registry)
    found = find(place, REF)
    assert str(found.version) == "1.2.0"
    place.withheld.clear()
    with pytest.raises(GateError, match=r"1\.2\.0 was found"):
        check_channel_policy(place, REF, found, None, registry.heads, look_for_policy=True)


def test_coverage_judges_the_index_that_answered(registry: Registry) -> None:
    with pytest.raises(GateError, match=r"1\.2\.0 was found"):
        coverage(TwoFaced(registry), REF, Query(), [])


def test_a_summary_that_its_manifest_does_not_say(registry: Registry) -> None:
    """The answer comes from the summary: that of a governed channel is held against the manifest."""
    attack(registry, "copy summaries/1.1.0/artifacts summaries/1.0.0/artifacts")
    registry.heads.reset(registry.id)
    with pytest.raises(IntegrityError, match="than the manifest itself"):
        registry.resolve(STABLE)


def test_tables_of_a_sealed_log_do_not_promote(registry: Registry) -> None:
    """A newcomer does not notice a forged checkpoint, but the lines have no such promotion."""
    owner.promote(registry, f"{NAME}:1.1.0", "stable")
    for _ in range(35):
        registry.tag(f"{NAME}:1.2.0", "beta")
        owner.untag(registry, NAME, "beta")
    tree = Tree(registry.store.root)
    forged = tree.read(tree.state(NAME)["checkpoint"])
    manifest = forged["versions"]["1.3.0"]["manifest"]
    forged["channels"]["stable"] |= {"version": "1.3.0", "manifest": manifest}
    made = tree.put(canonical_json(forged))
    tree.edit_state(NAME, lambda state: state.update(checkpoint=made, channels=forged["channels"]))
    registry.heads.reset(registry.id)
    with pytest.raises(IntegrityError, match="without an event"):
        registry.resolve(STABLE)
