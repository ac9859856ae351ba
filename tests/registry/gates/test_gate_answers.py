"""What a gate judges is what the reader was told: not what the channel holds a moment later."""

from typing import Any

import pytest
from support.registries import owner
from support.registries.gated import NAME
from support.registries.home import Home
from support.trust.attack_operations import attack

from onnxreg.registry.log.lookup import find
from onnxreg.registry.resolution import check_version_trust, coverage
from onnxreg.registry.store.protocol import IndexFile, MissingBlobError
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import GateError, NotFoundError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.query.requirements import Query

STABLE = f"{NAME}:stable"
REF = Ref.parse(STABLE)


@pytest.fixture
def registry(gated: Home) -> Home:
    owner.promote(gated, f"{NAME}:1.0.0", "stable")
    return gated


class TwoFaced:
    """Serves one index file, keeps back what would show that it is forged, and then serves another."""

    def __init__(self, registry: Home, *answers: IndexFile | None, withheld: Any = ()) -> None:
        self._store, self._answers, self.withheld = registry.store, list(answers), list(withheld)

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


def forged(registry: Home) -> TwoFaced:
    """Tells of a forged promotion, and then of a history that goes on innocently."""
    attack(registry, "forge 1.2.0")
    evil = registry.store.read_index(NAME)
    owner.promote(registry, f"{NAME}:1.0.0", "stable")
    withheld = registry.get(f"{NAME}:1.2.0").digest
    return TwoFaced(registry, evil, registry.store.read_index(NAME), withheld=[withheld])


def test_resolve_judges_the_index_that_answered(registry: Home) -> None:
    place = forged(registry)
    registry.heads.reset(registry.id)
    with pytest.raises(GateError, match=r"1\.2\.0 was found"):
        registry.resolve(STABLE, remote=place)


def test_a_remote_without_an_index_is_judged_too(registry: Home) -> None:
    place = forged(registry)
    found = find(place, REF)
    assert str(found.version) == "1.2.0"
    place.withheld.clear()
    with pytest.raises(GateError, match=r"1\.2\.0 was found"):
        check_version_trust(place, REF, found, None, registry.heads, look_for_policy=True)


def test_coverage_judges_the_index_that_answered(registry: Home) -> None:
    with pytest.raises(GateError, match=r"1\.2\.0 was found"):
        coverage(forged(registry), REF, Query(), [])


def test_resolve_judges_the_rollout_that_answered(registry: Home) -> None:
    owner.rollouts(registry).start(Ref.parse(f"{NAME}:1.1.0"), "stable", 0.01)
    for version in ("1.2.0", "1.3.0") * 35:
        registry.tag(f"{NAME}:{version}", "beta")
    true = registry.store.read_index(NAME)
    attack(registry, "set rollouts/stable/percent 100; set checkpoint @other")
    place = TwoFaced(registry, registry.store.read_index(NAME), true)
    registry.heads.reset(registry.id)
    with pytest.raises(NotFoundError):  # the state is compared with the checkpoint first
        registry.resolve(STABLE, remote=place, seed="0" * 64)
