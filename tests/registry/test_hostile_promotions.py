"""Promotions that are copied from elsewhere: another model, registry, channel, version, or an earlier time.

The registry has a policy and 1.0.0 is `stable`, by a real promotion. Each case appends the event of a real promotion, or one
that names its evidence. Who resolves judges anew, so that nothing is gained by it.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.registries.gated import LAX, NAME, POLICY, Attacker, draft, filled, refusal

from onnxreg.registry import Registry
from onnxreg.registry.support.actor import stamp
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import ConflictError, GateError, RegError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.gates.policy import read_policy
from onnxreg.schema.log.events import Tag

STABLE = f"{NAME}:stable"


@pytest.fixture
def attacker(gated: Registry) -> Attacker:
    gated.promote(f"{NAME}:1.0.0", "stable")
    gated.resolve(STABLE)
    return Attacker(gated)


def promotion(registry: Registry, channel: str = "stable") -> Tag:
    """The last real promotion."""
    found = [line.event for line in registry.log(NAME) if isinstance(line.event, Tag)]
    return next(event for event in reversed(found) if event.tag == channel)


def replay(attacker: Attacker, event: Tag, **changes: Any) -> None:
    """Append a move as that event, from what the channel holds now."""
    held = attacker.registry.state(NAME).channels.get(event.tag)
    attacker.append(replace(event, expects=held.manifest if held else None, **changes))


def elsewhere(attacker: Attacker) -> Registry:
    """Another registry of the same versions, with a policy that lets 1.2.0 pass."""
    root = attacker.root.parent / "elsewhere"
    registry = filled(root)
    registry.set_policy(read_policy(LAX, "policy"))
    return registry


def bring(attacker: Attacker, registry: Registry, event: Tag) -> None:
    """Copy the evidence of a promotion from another registry."""
    assert event.evidence is not None
    with registry.store.open_blob(event.evidence) as stream:
        attacker.blob(stream.read())


def from_another_registry(attacker: Attacker) -> None:
    other = elsewhere(attacker)
    other.promote(f"{NAME}:1.2.0", "stable")
    bring(attacker, other, promotion(other))
    replay(attacker, promotion(other))


def from_another_registry_naming_our_policy(attacker: Attacker) -> None:
    other = elsewhere(attacker)
    other.promote(f"{NAME}:1.2.0", "stable")
    bring(attacker, other, promotion(other))
    replay(attacker, promotion(other), policy=attacker.registry.policies().head)


def from_another_registry_of_what_would_do(attacker: Attacker) -> None:
    other = elsewhere(attacker)
    other.promote(f"{NAME}:1.1.0", "stable")
    bring(attacker, other, promotion(other))
    replay(attacker, promotion(other))


def from_another_channel(attacker: Attacker) -> None:
    attacker.registry.set_policy(read_policy(POLICY + LAX.replace(b"stable", b"beta"), "policy"))
    attacker.registry.promote(f"{NAME}:1.0.0", "stable")
    attacker.registry.promote(f"{NAME}:1.2.0", "beta")
    replay(attacker, replace(promotion(attacker.registry, "beta"), tag="stable"))


def from_another_model(attacker: Attacker) -> None:
    """The evidence of a model whose files are the same, and whose promotion is real."""
    made = replace(draft(attacker.root.parent / "other", "b"), name="acme/other")
    registry = attacker.registry
    registry.add(made, "1.1.0")
    registry.promote("acme/other:1.1.0", "stable")
    event = next(line.event for line in registry.log("acme/other") if isinstance(line.event, Tag))
    manifest = registry.get(f"{NAME}:1.1.0").digest
    replay(attacker, event, name=NAME, manifest=manifest)


def from_another_version(attacker: Attacker) -> None:
    manifest = attacker.registry.get(f"{NAME}:1.2.0").digest
    replay(attacker, promotion(attacker.registry), version=Version.parse("1.2.0"), manifest=manifest)


def from_an_earlier_time_under_a_policy_that_was_replaced(attacker: Attacker) -> None:
    first = promotion(attacker.registry)
    attacker.registry.set_policy(read_policy(POLICY + b"synthetic = false\n", "policy"))
    attacker.registry.promote(f"{NAME}:1.1.0", "stable")
    replay(attacker, first)


def from_before_a_refusal(attacker: Attacker) -> None:
    """1.1.0 was promoted, then refused; its promotion is played again."""
    registry = attacker.registry
    registry.promote(f"{NAME}:1.1.0", "stable")
    event = promotion(registry)
    registry.promote(f"{NAME}:1.0.0", "stable")
    registry.attest(f"{NAME}:1.1.0", refusal(registry, "1.1.0"))
    replay(attacker, event)


def from_a_policy_that_lets_it_pass(attacker: Attacker) -> None:
    """The version was promoted while the policy was lax; it is strict again now."""
    registry = attacker.registry
    registry.set_policy(read_policy(LAX, "policy"))
    registry.promote(f"{NAME}:1.2.0", "stable")
    event = promotion(registry)
    registry.set_policy(read_policy(POLICY, "policy"))
    registry.promote(f"{NAME}:1.0.0", "stable")
    replay(attacker, event)


def with_evidence_of_an_older_promotion(attacker: Attacker) -> None:
    old = promotion(attacker.registry)
    attacker.append(attacker.move("1.1.0", attacker.registry.policies().head, old.evidence))


def with_the_policy_of_the_evidence_of_another(attacker: Attacker) -> None:
    head = attacker.registry.policies().head
    other = attacker.evidence("1.1.0", Digest.of(b"another policy"))
    attacker.append(attacker.move("1.1.0", head, other))


def without_its_evidence(attacker: Attacker) -> None:
    event = promotion(attacker.registry)
    attacker.registry.promote(f"{NAME}:1.1.0", "stable")
    replay(attacker, event, evidence=None)


def without_its_policy(attacker: Attacker) -> None:
    event = promotion(attacker.registry)
    attacker.registry.promote(f"{NAME}:1.1.0", "stable")
    replay(attacker, event, policy=None, evidence=None)


Attack = Callable[[Attacker], None]
REFUSED: tuple[Attack, ...] = (
    from_another_registry,
    from_another_registry_naming_our_policy,
    from_another_registry_of_what_would_do,
    from_another_channel,
    from_another_model,
    from_another_version,
    from_an_earlier_time_under_a_policy_that_was_replaced,
    from_before_a_refusal,
    from_a_policy_that_lets_it_pass,
    with_evidence_of_an_older_promotion,
    with_the_policy_of_the_evidence_of_another,
    without_its_evidence,
    without_its_policy,
)


@pytest.mark.parametrize("attack", REFUSED, ids=lambda attack: attack.__name__)
def test_a_copied_promotion_is_refused(attack: Attack, attacker: Attacker, tmp_path: Path) -> None:
    attack(attacker)
    with pytest.raises(GateError):
        attacker.registry.resolve(STABLE)
    with pytest.raises(RegError):
        Registry(tmp_path / "reader").pull(STABLE, str(attacker.root))


@pytest.mark.parametrize("attack", REFUSED, ids=lambda attack: attack.__name__)
def test_a_newcomer_refuses_it_too(
    attack: Attack, attacker: Attacker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack(attacker)
    monkeypatch.setenv("REG_STATE", str(tmp_path / "another user"))
    with pytest.raises(GateError):
        Registry(tmp_path / "reader").pull(STABLE, str(attacker.root))


def test_an_event_is_in_a_log_at_one_place(attacker: Attacker) -> None:
    """Verbatim, a promotion expects what the channel held then."""
    event = promotion(attacker.registry)
    attacker.registry.promote(f"{NAME}:1.1.0", "stable")
    with pytest.raises(ConflictError):
        attacker.append(event)


def test_a_promotion_of_what_meets_the_policy_still(attacker: Attacker) -> None:
    """Without signed lines anybody can play the channel back to a version that meets the policy; docs/threat-model.md says so."""
    event = promotion(attacker.registry)
    attacker.registry.promote(f"{NAME}:1.1.0", "stable")
    replay(attacker, replace(event, **{key: item for key, item in stamp(NAME).items() if key != "name"}))
    assert str(attacker.registry.resolve(STABLE).located.version) == "1.0.0"
