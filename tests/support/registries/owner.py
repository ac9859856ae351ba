"""The deeds of a registry's owner, as the command line does them: here, or in a remote."""

from types import SimpleNamespace
from typing import Any

from onnxreg.registry import Registry, gates, maintain
from onnxreg.registry.gates import Promotions
from onnxreg.registry.log.commit import PUSH_WAIT_SECONDS, collect
from onnxreg.registry.log.contents import was_pushed
from onnxreg.registry.signing import sign_statement
from onnxreg.registry.trust import signatures
from onnxreg.registry.trust.known_heads import CheckedReader
from onnxreg.schema.core.ref import POLICY_LOG, Ref
from onnxreg.schema.signing.dsse import MEDIA_TYPE, release_statement


def _ref(ref: Any) -> Ref:
    return Ref.parse(ref) if isinstance(ref, str) else ref


def promote(
    registry: Registry, ref: Any, channel: str, dry_run: bool = False, reason: Any = None, remote: Any = None
) -> Any:
    judged, is_moved, before = rollouts(registry, remote).promote(_ref(ref), channel, dry_run, reason)
    more = {"findings": judged.findings, "holds": not judged.failed, "refuse": judged.refusal}
    return SimpleNamespace(judged=judged, moved=is_moved, before=before, **more)


def rollouts(registry: Registry, remote: Any = None) -> Promotions:
    return Promotions(remote or registry.store, registry.heads, registry.actor)


def attest(
    registry: Registry,
    ref: Any,
    report: bytes,
    key: Any = None,
    reason: Any = None,
    label: str = "report",
    remote: Any = None,
) -> Any:
    release = registry.get(ref, remote)
    decisions = registry.decisions(release.name, remote)
    return signatures.attest(decisions, release, report, key, reason, label)


def set_policy(registry: Registry, policy: Any, reason: Any = None, remote: Any = None) -> Any:
    store = remote or registry.store
    reader = CheckedReader(store, registry.heads)
    reader.read_index(POLICY_LOG)
    line = gates.set_policy(store, registry.heads, policy, registry.actor, reason)
    reader.read_index(POLICY_LOG)
    return line


def policies(registry: Registry, remote: Any = None) -> Any:
    return gates.read_policies(CheckedReader(remote or registry.store, registry.heads))


def untag(registry: Registry, name: str, tag: str, reason: Any = None, remote: Any = None) -> Any:
    return registry.decisions(name, remote).untag(name, tag, reason)


def pin(registry: Registry, ref: Any, reason: Any = None, undo: bool = False, remote: Any = None) -> Any:
    return registry.decisions(_ref(ref).name, remote).pin(_ref(ref), reason, undo)


def drop(registry: Registry, ref: Any, reason: Any = None) -> Any:
    decisions = registry.decisions(_ref(ref).name)
    return decisions.drop(_ref(ref), lambda located: was_pushed(registry.store, located), reason)


def sign(registry: Registry, ref: Any, key: Any, reason: Any = None, remote: Any = None) -> Any:
    release = registry.get(ref, remote)
    envelope = sign_statement(release_statement(release.name, release.version, release.data), key)
    decisions = registry.decisions(release.name, remote)
    return decisions.attest(release.ref, envelope.encode(), MEDIA_TYPE, reason)


def verify(registry: Registry, ref: Any = None, remote: Any = None) -> Any:
    return maintain.verify(remote or registry.store, registry.heads, ref and _ref(ref))


def repair(registry: Registry, source: Any = None) -> Any:
    copies = maintain.good_copies(registry.remotes, source)
    return maintain.repair(registry.store, copies, registry.heads, backup=registry.store)


def gc(
    registry: Registry,
    keep: Any = None,
    dry_run: bool = False,
    patience: float = PUSH_WAIT_SECONDS,
    remote: Any = None,
) -> Any:
    return registry.decisions(remote=remote).gc(keep, dry_run, patience)


def purge(registry: Registry, refs: Any, reason: str, remote: Any = None) -> Any:
    named = [_ref(ref) for ref in ([refs] if isinstance(refs, Ref | str) else refs)]
    decisions = registry.decisions(remote=remote)
    versions, blobs, sharing = decisions.purge(named, reason)
    freed = collect(decisions.store, only=blobs)
    refs = [version.ref for version in versions]
    return SimpleNamespace(versions=refs, blobs=blobs, collected=freed, sharing=sharing)
