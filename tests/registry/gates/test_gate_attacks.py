"""Attacks on gates by somebody who can write every file of a registry and has no key: each is noticed by who resolves.

Tampering is done on the files. `docs/threat-model.md` says what a reader cannot know.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.registries.gated import LAX, NAME, POLICY, Attacker, draft, refusal

from onnxreg.registry import Registry
from onnxreg.registry.signing import PrivateKey, generate
from onnxreg.registry.store.layout import blob_path
from onnxreg.registry.support.actor import stamp
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import GateError, IntegrityError, NotFoundError, RegError
from onnxreg.schema.core.ref import POLICY_LOG
from onnxreg.schema.gates.evaluation import EVALUATION
from onnxreg.schema.gates.policy import Policy, read_policy
from onnxreg.schema.log import events
from onnxreg.schema.log.events import Attest
from onnxreg.schema.log.logline import LogLine, genesis

STABLE = f"{NAME}:stable"


@pytest.fixture
def registry(gated: Registry) -> Registry:
    """1.0.0 is stable, and the reader has resolved it."""
    gated.promote(f"{NAME}:1.0.0", "stable")
    gated.resolve(STABLE)
    return gated


@pytest.fixture
def attacker(registry: Registry) -> Attacker:
    return Attacker(registry)


def moved_by_hand(attacker: Attacker) -> None:
    attacker.append(attacker.move("1.2.0"))


def moved_by_hand_to_what_would_do(attacker: Attacker) -> None:
    attacker.append(attacker.move("1.1.0"))


def forged_evidence(attacker: Attacker) -> None:
    attacker.forge("1.2.0")


def evidence_of_another_version(attacker: Attacker) -> None:
    held = attacker.registry.state(NAME).channels["stable"]
    attacker.append(attacker.move("1.1.0", held.policy, held.evidence))


def evidence_of_another_channel(attacker: Attacker) -> None:
    head = attacker.registry.policies().head
    attacker.append(attacker.move("1.1.0", head, attacker.evidence("1.1.0", head, channel="beta")))


def evidence_that_is_none(attacker: Attacker) -> None:
    attacker.append(
        attacker.move("1.1.0", attacker.registry.policies().head, attacker.blob(b'{"format":"x"}'))
    )


def a_policy_that_never_was(attacker: Attacker) -> None:
    attacker.forge("1.1.0", Digest.of(b"a policy of mine"))


def evidence_without_a_policy(attacker: Attacker) -> None:
    evidence = attacker.evidence("1.1.0", attacker.registry.policies().head)
    attacker.append(attacker.move("1.1.0", None, evidence))


def an_older_policy(attacker: Attacker) -> None:
    """Promote by the rules of a policy that was replaced."""
    first = attacker.registry.policies().head
    attacker.registry.set_policy(read_policy(POLICY + b"synthetic = false\n", "policy"))
    attacker.registry.promote(f"{NAME}:1.0.0", "stable")
    attacker.forge("1.1.0", first)


def breaking_by_way_of_a_third(attacker: Attacker) -> None:
    attacker.forge("1.3.0")
    attacker.forge("1.4.0")


def breaking_by_way_of_a_hand_made_move(attacker: Attacker) -> None:
    attacker.append(attacker.move("1.3.0"))
    attacker.forge("1.4.0")


def breaking_after_taking_away(attacker: Attacker) -> None:
    attacker.registry.untag(NAME, "stable")
    attacker.forge("1.3.0")


def unplanned_by_way_of_a_third(attacker: Attacker) -> None:
    """The last move, to what the channel held before, would be within the plan."""
    plan = b'[[rule]]\nchannel = "stable"\nplanned = ["artifact-*", "certification-*"]\n'
    attacker.registry.set_policy(read_policy(plan, "policy"))
    attacker.registry.promote(f"{NAME}:1.0.0", "stable")
    attacker.forge("1.3.0")
    attacker.forge("1.4.0")


def swapped_evidence(attacker: Attacker) -> None:
    evidence = attacker.registry.state(NAME).channels["stable"].evidence
    assert evidence is not None
    path = attacker.root / blob_path(evidence)
    path.chmod(0o644)
    path.write_bytes(b"{}")


def evidence_taken_away(attacker: Attacker) -> None:
    evidence = attacker.registry.state(NAME).channels["stable"].evidence
    assert evidence is not None
    (attacker.root / blob_path(evidence)).unlink()


def a_verdict_that_its_statement_does_not_say(attacker: Attacker) -> None:
    """Attest a refusal as if it were a certificate."""
    data = refusal(attacker.registry, "1.0.0")
    found = attacker.registry.get(f"{NAME}:1.0.0")
    event = Attest(
        **stamp(NAME),
        manifest=found.digest,
        statement=attacker.blob(data),
        media_type=EVALUATION,
        artifact=found.manifest.artifacts[1].digest,
        state="certified",
    )
    attacker.append(event)


def a_policy_put_back(attacker: Attacker) -> None:
    before = attacker.policies.read_bytes()
    attacker.registry.set_policy(read_policy(b'[[rule]]\nchannel = "stable"\nlicenses = ["MIT"]', "policy"))
    attacker.policies.write_bytes(before)


def a_laxer_policy_in_its_place(attacker: Attacker) -> None:
    write_policies(attacker, read_policy(LAX, "policy"))


def a_policy_cut_short(attacker: Attacker) -> None:
    attacker.policies.write_bytes(attacker.policies.read_bytes()[:-10])


def policies_taken_away(attacker: Attacker) -> None:
    attacker.policies.unlink()


def policies_emptied(attacker: Attacker) -> None:
    attacker.policies.write_bytes(b"")


def policies_of_another_registry(attacker: Attacker) -> None:
    write_policies(attacker, Policy(), registry="f" * 32)


def a_channel_moved_in_the_state_alone(attacker: Attacker) -> None:
    manifest = str(attacker.registry.get(f"{NAME}:1.2.0").digest)

    def change(state: dict[str, object]) -> None:
        state["channels"]["stable"] |= {"version": "1.2.0", "manifest": manifest}  # type: ignore[index]

    attacker.edit_state(change)


def write_policies(attacker: Attacker, policy: Policy, registry: str | None = None) -> None:
    """A log of one policy, whose chain fits."""
    event = events.PolicyEvent(**stamp(POLICY_LOG), rules=policy.to_json())
    line = LogLine.make(1, genesis(registry or attacker.registry.id, POLICY_LOG), event)
    attacker.policies.write_bytes(line.raw + b"\n")


Attack = Callable[[Attacker], None]
ATTACKS: dict[Attack, tuple[type[RegError], str]] = {
    moved_by_hand: (GateError, "without a promotion"),
    moved_by_hand_to_what_would_do: (GateError, "without a promotion"),
    forged_evidence: (GateError, "certified: model_int8.onnx is refused"),
    evidence_of_another_version: (GateError, "of another move"),
    evidence_of_another_channel: (GateError, "of another move"),
    evidence_that_is_none: (GateError, "it is not evidence of a promotion"),
    a_policy_that_never_was: (GateError, "never had"),
    evidence_without_a_policy: (GateError, "never had"),
    an_older_policy: (GateError, "was replaced before"),
    breaking_by_way_of_a_third: (GateError, "on the way: breaking changes"),
    breaking_by_way_of_a_hand_made_move: (GateError, "breaking changes"),
    breaking_after_taking_away: (GateError, "breaking changes"),
    unplanned_by_way_of_a_third: (GateError, "on the way: not planned: label-added, label-removed"),
    swapped_evidence: (IntegrityError, "damaged"),
    evidence_taken_away: (NotFoundError, "is not in"),
    a_verdict_that_its_statement_does_not_say: (IntegrityError, "other things than its statement"),
    a_policy_put_back: (IntegrityError, "put back or rewritten"),
    a_laxer_policy_in_its_place: (IntegrityError, "put back or rewritten"),
    a_policy_cut_short: (IntegrityError, "policy log|policy.jsonl"),
    policies_taken_away: (IntegrityError, "is gone"),
    policies_emptied: (IntegrityError, "policy log"),
    policies_of_another_registry: (IntegrityError, "another registry's"),
    a_channel_moved_in_the_state_alone: (IntegrityError, "without an event"),
}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_is_noticed_by_resolve(attack: Attack, registry: Registry, attacker: Attacker) -> None:
    attack(attacker)
    error, message = ATTACKS[attack]
    with pytest.raises(error, match=message):
        registry.resolve(STABLE)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_is_noticed_by_pull(attack: Attack, registry: Registry, attacker: Attacker, tmp_path: Path) -> None:
    reader = Registry(tmp_path / "reader")
    attack(attacker)
    with pytest.raises(RegError):
        reader.pull(STABLE, str(registry.store.root))
    assert reader.names() == []


FIRST = [attack for attack, (error, _) in ATTACKS.items() if error is GateError]


@pytest.mark.parametrize("attack", FIRST, ids=lambda attack: attack.__name__)
def test_is_noticed_by_who_never_saw_the_registry(
    attack: Attack, registry: Registry, attacker: Attacker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack(attacker)
    monkeypatch.setenv("REG_STATE", str(tmp_path / "another user"))
    with pytest.raises(GateError):
        Registry(tmp_path / "reader").pull(STABLE, str(registry.store.root))


def test_a_refusal_taken_out_of_the_log(registry: Registry, attacker: Attacker, tmp_path: Path) -> None:
    registry.attest(f"{NAME}:1.0.0", refusal(registry, "1.0.0"))
    reader = Registry(tmp_path / "reader")
    with pytest.raises(GateError, match="refused"):
        reader.pull(STABLE, str(registry.store.root))
    attacker.write([line.event for line in attacker.lines() if line.event.kind != "attest"])
    with pytest.raises(IntegrityError):
        reader.pull(STABLE, str(registry.store.root))


def test_a_refusal_taken_out_of_the_state(registry: Registry, attacker: Attacker, tmp_path: Path) -> None:
    registry.attest(f"{NAME}:1.0.0", refusal(registry, "1.0.0"))
    attacker.edit_state(lambda state: state["versions"]["1.0.0"].pop("attested"))
    with pytest.raises(IntegrityError, match=r"was evaluated|was changed without an event"):
        Registry(tmp_path / "reader").pull(STABLE, str(registry.store.root))
    assert {damage.kind for damage in registry.verify().damages} >= {"state"}


def test_a_channel_that_names_a_policy_where_there_is_none(
    registry: Registry, attacker: Attacker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even who never saw the registry notices."""
    attacker.policies.unlink()
    monkeypatch.setenv("REG_STATE", str(tmp_path / "another user"))
    with pytest.raises(GateError, match="must have one"):
        Registry(tmp_path / "reader").pull(STABLE, str(registry.store.root))


class Trusting:
    """A reader whose trust file demands signatures, and the key."""

    def __init__(self, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.key: PrivateKey = generate("ed25519")
        self._file, self._patch = own / "trust", monkeypatch
        own.mkdir(parents=True, exist_ok=True)

    def trust(self, *requirements: str) -> None:
        demands = "".join(f"[[require]]\n{each}\n" for each in requirements)
        self._file.write_text(f'[keys.release]\nkey = "{self.key.public}"\n{demands}')

    def sign_lines(self, wanted: bool) -> None:
        if wanted:
            self._patch.setenv("REG_SIGNING_KEY", self.key.pem("secret").decode())
            self._patch.setenv("REG_KEY_PASSPHRASE", "secret")
        else:
            self._patch.delenv("REG_SIGNING_KEY")


@pytest.fixture
def trusting(own_user: Path, monkeypatch: pytest.MonkeyPatch) -> Trusting:
    return Trusting(own_user, monkeypatch)


POLICIES = f'models = ["{POLICY_LOG}"]\nlines = true\nkeys = ["release"]'


def test_a_policy_line_that_is_not_signed(tmp_path: Path, trusting: Trusting) -> None:
    registry = Registry(tmp_path / "home")
    registry.add(draft(tmp_path / "a", "a"), "1.0.0")
    trusting.sign_lines(True)
    registry.set_policy(read_policy(POLICY, "policy"))
    registry.promote(f"{NAME}:1.0.0", "stable")
    trusting.trust(POLICIES)
    registry.resolve(STABLE)
    trusting.sign_lines(False)
    registry.heads.reset(registry.id)
    event = events.PolicyEvent(**stamp(POLICY_LOG), rules=read_policy(LAX, "policy").to_json())
    log = registry.policies()
    line = LogLine.make(len(log.lines) + 1, log.head, event)
    with (registry.store.root / "policy.jsonl").open("ab") as file:
        file.write(line.raw + b"\n")
    with pytest.raises(IntegrityError, match="must be signed"):
        registry.resolve(STABLE)


def test_a_registry_that_must_have_a_policy(registry: Registry, trusting: Trusting) -> None:
    """The trust file says so: a reader who never saw the registry asks for its policy."""
    bare = registry.store.root.parent / "bare"
    free = Registry(bare)
    free.add(draft(bare.parent / "z", "z"), "1.0.0")
    free.tag(f"{NAME}:1.0.0", "stable")
    free.resolve(STABLE)
    trusting.trust(POLICIES)
    with pytest.raises(GateError, match="must have one"):
        free.resolve(STABLE)


SIGNED = b'[[rule]]\nchannel = "stable"\ncertified = ["onnx-int8"]\nsigned_by = ["release"]\n'


def test_a_planted_certificate(registry: Registry, trusting: Trusting, tmp_path: Path) -> None:
    """Bytes whose manifest says certified, and that nobody signed."""
    trusting.trust()
    registry.set_policy(read_policy(SIGNED, "policy"))
    assert not registry.promote(f"{NAME}:1.0.0", "stable").holds
    registry.sign(f"{NAME}:1.0.0", trusting.key)
    assert registry.promote(f"{NAME}:1.0.0", "stable").moved
    registry.resolve(STABLE)
    registry.add(draft(tmp_path / "evil", "evil"), "1.5.0")
    Attacker(registry).forge("1.5.0")
    with pytest.raises(GateError, match="signed_by"):
        registry.resolve(STABLE)


def test_a_signature_on_another_version(registry: Registry, trusting: Trusting) -> None:
    """A signed statement that is attested of other bytes."""
    trusting.trust()
    registry.set_policy(read_policy(SIGNED, "policy"))
    registry.sign(f"{NAME}:1.0.0", trusting.key)
    attests = (line.event for line in registry.log(NAME) if isinstance(line.event, Attest))
    signed = next(event for event in attests if event.artifact is None)
    attacker = Attacker(registry)
    manifest = registry.get(f"{NAME}:1.1.0").digest
    attacker.append(
        Attest(**stamp(NAME), manifest=manifest, statement=signed.statement, media_type=signed.media_type)
    )
    attacker.forge("1.1.0")
    with pytest.raises(GateError, match="signed_by"):
        registry.resolve(STABLE)


def test_a_reader_who_trusts_nobody_is_told(registry: Registry, trusting: Trusting) -> None:
    trusting.trust()
    registry.set_policy(read_policy(SIGNED, "policy"))
    registry.sign(f"{NAME}:1.0.0", trusting.key)
    registry.promote(f"{NAME}:1.0.0", "stable")
    trusting._file.unlink()
    with pytest.raises(GateError, match="no trusted signature by release"):
        registry.resolve(STABLE)
