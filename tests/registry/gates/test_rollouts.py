"""Staged rollouts: who gets what, what is refused meanwhile, and what readers notice."""

from pathlib import Path
from typing import Any

import pytest
from support.registries import owner
from support.registries.gated import NAME, refusal
from support.registries.home import Home
from support.trust.tamper import Tree, canonical_json

from onnxreg.registry.log.log import Log
from onnxreg.registry.log.lookup import open_log, read_blob
from onnxreg.registry.transfer.mirror import mirror, open_both
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import (
    ConflictError,
    GateError,
    InputError,
    IntegrityError,
    NotFoundError,
)
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.gates.policy import read_policy
from onnxreg.schema.log.events import Tag

SEED = "0" * 64
NEXT = Ref.parse(f"{NAME}:1.1.0")
EDGE, STABLE = "edge", "stable"


@pytest.fixture
def free(gated: Home) -> Home:
    """`edge` is 1.0.0, and no policy governs it."""
    gated.tag(f"{NAME}:1.0.0", EDGE)
    return gated


@pytest.fixture
def governed(free: Home) -> Home:
    """`stable` is 1.0.0, promoted."""
    owner.promote(free, f"{NAME}:1.0.0", STABLE)
    return free


def version(registry: Home, channel: str, seed: str | None = SEED) -> str:
    return str(registry.resolve(f"{NAME}:{channel}", seed=seed).located.version)


def start(registry: Home, channel: str = EDGE, share: float = 100, **more: Any) -> None:
    owner.rollouts(registry).start(NEXT, channel, share, **more)


def test_from_start_to_finish(free: Home) -> None:
    start(free, share=5)
    rollout = free.state(NAME).rollouts[EDGE]
    assert (str(rollout.to), rollout.percent) == ("1.1.0", 5)
    log = owner.rollouts(free).advance(NAME, EDGE, 100)
    assert log.rollouts[EDGE].salt == rollout.salt
    assert (version(free, EDGE), version(free, EDGE, None)) == ("1.1.0", "1.0.0")
    log = owner.rollouts(free).finish(NAME, EDGE)
    assert str(log.channels[EDGE].version) == "1.1.0" and not log.rollouts
    assert version(free, EDGE, None) == "1.1.0" and not free.state(NAME).rollouts
    assert free.kinds()[-3:] == ["rollout", "rollout", "tag"]


def test_a_digest_names_the_manifest_also_during_a_rollout(free: Home) -> None:
    stable = free.resolve(f"{NAME}:{EDGE}").located.entry.manifest
    start(free)
    assert NEXT not in free.decisions().expire(1), "no retention policy expires it"
    assert version(free, f"{EDGE}@{stable}") == "1.0.0"
    rolled_out = free.state(NAME).rollouts[EDGE].manifest
    assert version(free, f"{EDGE}@{rolled_out}") == "1.1.0"


def test_a_yank_of_the_new_version_halts_it(free: Home) -> None:
    start(free)
    free.yank(NEXT)
    assert version(free, EDGE) == "1.0.0" and not free.state(NAME).rollouts
    free.yank(NEXT, undo=True)
    assert version(free, EDGE) == "1.0.0", "it is not begun again"


REFUSED = {
    "tag": lambda registry: registry.tag(f"{NAME}:1.2.0", EDGE),
    "tag to the new version": lambda registry: registry.tag(NEXT, EDGE),
    "untag": lambda registry: owner.untag(registry, NAME, EDGE),
    "a second start": lambda registry: start(registry, share=1),
    "a start of another version": lambda registry: owner.rollouts(registry).start(
        Ref.parse(f"{NAME}:1.3.0"), EDGE, 1
    ),
    "drop of the new version": lambda registry: owner.drop(registry, NEXT),
    "purge of the new version": lambda registry: owner.purge(registry, NEXT, "leak"),
    "drop of the version before": lambda registry: owner.drop(registry, f"{NAME}:1.0.0"),
    "purge of the version before": lambda registry: owner.purge(registry, f"{NAME}:1.0.0", "leak"),
}


@pytest.mark.parametrize("deed", REFUSED)
def test_commands_refused_during_a_rollout(deed: str, free: Home) -> None:
    start(free, share=50)
    before = len(free.log(NAME))
    with pytest.raises(ConflictError):
        REFUSED[deed](free)
    assert len(free.log(NAME)) == before
    owner.rollouts(free).halt(NAME, EDGE)
    free.tag(NEXT, EDGE)


BAD = {
    "no channel": (lambda registry: start(registry, "beta"), NotFoundError),
    "the version that the channel holds": (
        lambda registry: owner.rollouts(registry).start(Ref.parse(f"{NAME}:1.0.0"), EDGE, 5),
        ConflictError,
    ),
    "no such version": (
        lambda registry: owner.rollouts(registry).start(Ref.parse(f"{NAME}:9.0.0"), EDGE, 5),
        NotFoundError,
    ),
    "a share of 0": (lambda registry: start(registry, share=0), InputError),
    "a share above 100": (lambda registry: start(registry, share=101), InputError),
    "a cohort that cannot be read": (lambda registry: start(registry, where="platform ="), InputError),
    "a cohort over artifacts": (lambda registry: start(registry, where="opset <= 18"), InputError),
    "an advance without a rollout": (
        lambda registry: owner.rollouts(registry).advance(NAME, EDGE, 5),
        NotFoundError,
    ),
    "a finish without a rollout": (
        lambda registry: owner.rollouts(registry).finish(NAME, EDGE),
        NotFoundError,
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_refused_rollouts(case: str, free: Home) -> None:
    do, error = BAD[case]
    before = len(free.log(NAME))
    with pytest.raises(error):
        do(free)
    assert len(free.log(NAME)) == before


def test_a_governed_rollout_is_a_promotion(governed: Home) -> None:
    with pytest.raises(GateError, match=r"breaking|certified"):
        owner.rollouts(governed).start(Ref.parse(f"{NAME}:1.2.0"), STABLE, 5)
    start(governed, STABLE)
    rollout = governed.state(NAME).rollouts[STABLE]
    assert rollout.policy and rollout.evidence
    assert version(governed, STABLE) == "1.1.0"
    with pytest.raises(ConflictError):
        owner.promote(governed, NEXT, STABLE)
    owner.rollouts(governed).finish(NAME, STABLE)
    last = governed.log(NAME)[-1].event
    assert isinstance(last, Tag) and last.evidence and version(governed, STABLE, None) == "1.1.0"


def test_every_reader_that_is_in_judges_again_and_so_does_each_step(governed: Home) -> None:
    start(governed, STABLE, share=99.99)
    owner.attest(governed, NEXT, refusal(governed, "1.1.0"))
    with pytest.raises(GateError, match="does not meet the policy"):
        version(governed, STABLE)
    assert version(governed, STABLE, None) == "1.0.0"
    for step in (
        lambda: owner.rollouts(governed).advance(NAME, STABLE, 100),
        lambda: owner.rollouts(governed).finish(NAME, STABLE),
    ):
        with pytest.raises(GateError):
            step()


def test_a_rollout_that_nobody_promoted_is_refused(governed: Home) -> None:
    """A policy that came after the start governs the rollout too."""
    start(governed, EDGE)
    rules = b'[[rule]]\nchannel = "edge"\nlicenses = ["Apache-2.0"]\n'
    owner.set_policy(governed, read_policy(rules, "policy"))
    with pytest.raises(GateError, match="without a promotion"):
        version(governed, EDGE)


@pytest.mark.parametrize("lie", [{"percent": 100}, {"salt": "1" * 32}, {"where": None}])
def test_tables_of_a_sealed_log_widen_no_rollout(lie: dict[str, Any], governed: Home) -> None:
    """A newcomer does not notice a forged checkpoint, but the lines have no such step."""
    share, where = 0.01 if "percent" in lie else 100, "platform = android" if "where" in lie else None
    start(governed, STABLE, share, where=where)
    for number in ("1.2.0", "1.3.0") * 35:
        governed.tag(f"{NAME}:{number}", "beta")
    tree = Tree(governed.store.root)
    forged = tree.read(tree.state(NAME)["checkpoint"])
    rollout = forged["rollouts"][STABLE] | lie
    forged["rollouts"][STABLE] = {key: value for key, value in rollout.items() if value is not None}
    made = tree.put(canonical_json(forged))
    tree.edit_state(NAME, lambda state: state.update(checkpoint=made, rollouts=forged["rollouts"]))
    governed.heads.reset(governed.id)
    with pytest.raises(IntegrityError, match="is not what its log says"):
        version(governed, STABLE)


def test_a_replay_gives_the_same_state_and_a_mirror_has_it(free: Home, tmp_path: Path) -> None:
    start(free, share=33.33, where="platform = android")
    data = free.store.read_index(NAME)
    assert data is not None

    def fetch(digest: Digest) -> bytes:
        return read_blob(free.store, digest)

    assert data.data == Log.replay(free.log(NAME), free.id, NAME, fetch).encode()
    free.check()
    mirror(*open_both(free.remotes, free.place, str(tmp_path / "mirror")))
    assert (
        open_log(free.remotes.open(str(tmp_path / "mirror")), NAME).state.rollouts
        == free.state(NAME).rollouts
    )


def test_other_registries_are_not_told(free: Home, tmp_path: Path) -> None:
    start(free)
    other = Home(tmp_path / "other")
    other.pull(f"{NAME}:1.1.0", free.place)
    assert not other.state(NAME).rollouts and not other.state(NAME).channels
