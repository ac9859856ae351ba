"""Staged rollouts: who gets what, what is refused meanwhile, and what readers notice."""

from typing import Any

import pytest
from support.registries import owner
from support.registries.gated import NAME, refusal
from support.registries.home import Home
from support.sampling import sampled
from support.trust.tamper import Tree, canonical_json

from onnxreg.registry.log.log import Log, load, open_log
from onnxreg.registry.transfer.mirror import mirror, open_both
from onnxreg.schema.core.errors import ConflictError, GateError, IntegrityError, RegError
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.gates.policy import read_policy
from onnxreg.schema.log.events import Tag

SEED = "0" * 64
NEXT = Ref.parse(f"{NAME}:1.1.0")
EDGE, STABLE = "edge", "stable"


@pytest.fixture
def free(gated) -> Home:
    """`edge` is 1.0.0, and no policy governs it."""
    gated.tag(f"{NAME}:1.0.0", EDGE)
    return gated


@pytest.fixture
def governed(free) -> Home:
    """`stable` is 1.0.0, promoted."""
    owner.promote(free, f"{NAME}:1.0.0", STABLE)
    return free


def version(registry: Home, channel: str, seed: str | None = SEED) -> str:
    return str(registry.resolve(f"{NAME}:{channel}", seed=seed).located.version)


def start(registry: Home, channel: str = EDGE, share: float = 100, **more: Any) -> None:
    owner.rollouts(registry).start(NEXT, channel, share, **more)


def test_from_start_to_finish(free):
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


def test_a_digest_names_the_manifest_also_during_a_rollout(free):
    stable = free.resolve(f"{NAME}:{EDGE}").located.entry.manifest
    start(free)
    assert NEXT not in free.decisions().expire(1), "no retention policy expires it"
    assert version(free, f"{EDGE}@{stable}") == "1.0.0"
    rolled_out = free.state(NAME).rollouts[EDGE].manifest
    assert version(free, f"{EDGE}@{rolled_out}") == "1.1.0"


def test_a_yank_of_the_new_version_halts_it(free):
    start(free)
    free.yank(NEXT)
    assert version(free, EDGE) == "1.0.0" and not free.state(NAME).rollouts
    free.yank(NEXT, undo=True)
    assert version(free, EDGE) == "1.0.0", "it is not begun again"


def do(registry: Home, deed: str) -> None:
    """A verb and its words: `start VERSION SHARE CHANNEL COHORT`, where a channel is `edge` unless it is named."""
    verb, *words = deed.split(maxsplit=4)
    ref = Ref(NAME, words[0]) if words else None
    channel, steps = words[2] if words[2:] else EDGE, owner.rollouts(registry)
    match verb:
        case "tag":
            registry.tag(ref, EDGE)
        case "untag":
            owner.untag(registry, NAME, EDGE)
        case "start":
            steps.start(ref, channel, float(words[1]), where=words[3] if words[3:] else None)
        case "advance":
            steps.advance(NAME, EDGE, 5)
        case "finish":
            steps.finish(NAME, EDGE)
        case "drop":
            owner.drop(registry, ref)
        case "purge":
            owner.purge(registry, ref, "leak")


REFUSED = """
during | tag 1.2.0 | ConflictError
during | tag 1.1.0 | ConflictError
during | untag | ConflictError
during | start 1.1.0 1 | ConflictError
during | start 1.3.0 1 | ConflictError
during | drop 1.1.0 | ConflictError
during | purge 1.1.0 | ConflictError
during | drop 1.0.0 | ConflictError
during | purge 1.0.0 | ConflictError
before | start 1.1.0 100 beta | NotFoundError
before | start 1.0.0 5 | ConflictError
before | start 9.0.0 5 | NotFoundError
before | start 1.1.0 0 | InputError
before | start 1.1.0 101 | InputError
before | start 1.1.0 100 edge platform = | ExpressionError
before | start 1.1.0 100 edge opset <= 18 | ExpressionError
before | advance | NotFoundError
before | finish | NotFoundError
"""


@pytest.mark.parametrize("row", REFUSED.strip().splitlines())
def test_deeds_that_are_refused_before_a_rollout_and_during_it(row, free):
    when, deed, error = row.split(" | ")
    if when == "during":
        start(free, share=50)
    before = len(free.log(NAME))
    with pytest.raises(RegError) as caught:
        do(free, deed)
    assert type(caught.value).__name__ == error
    assert len(free.log(NAME)) == before
    if when == "during":
        owner.rollouts(free).halt(NAME, EDGE)
        free.tag(NEXT, EDGE)


def test_a_governed_rollout_is_a_promotion(governed):
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


def test_every_reader_that_is_in_judges_again_and_so_does_each_step(governed):
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


def test_a_rollout_that_nobody_promoted_is_refused(governed):
    """A policy that came after the start governs the rollout too."""
    start(governed, EDGE)
    rules = b'[[rule]]\nchannel = "edge"\nlicenses = ["Apache-2.0"]\n'
    owner.set_policy(governed, read_policy(rules, "policy"))
    with pytest.raises(GateError, match="without a promotion"):
        version(governed, EDGE)


@pytest.mark.parametrize("lie", sampled([{"percent": 100}, {"salt": "1" * 32}, {"where": None}], 3))
def test_tables_of_a_sealed_log_widen_no_rollout(lie, governed):
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


def test_a_replay_and_a_mirror_have_the_same_state_and_other_registries_none(free, other, tmp_path):
    start(free, share=33.33, where="platform = android")
    log = load(free.store, NAME)
    replayed = Log.replay(log.lines(), free.id, NAME, log.fetch)
    assert replayed.encode() == free.tree.index(NAME).read_bytes()
    free.check()
    mirror(*open_both(free.remotes, free.place, str(tmp_path / "mirror")))
    copy = open_log(free.remotes.open(str(tmp_path / "mirror")), NAME)
    assert copy.state.rollouts == free.state(NAME).rollouts
    other.pull(f"{NAME}:1.1.0", free.place)
    assert not other.state(NAME).rollouts and not other.state(NAME).channels
