"""`reg gc`: old versions give up their files, and what nothing refers to is deleted."""

from onnxreg.registry.log.collect import PUSH_WAIT_SECONDS, CollectResult, RetentionPolicy, collect, survey
from onnxreg.registry.log.decisions import Decisions
from onnxreg.registry.log.delta_log import withdraw_deltas
from onnxreg.registry.log.log import Log
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.log.events import Expire


def gc(
    decisions: Decisions,
    policy: RetentionPolicy | None = None,
    dry_run: bool = False,
    patience: float = PUSH_WAIT_SECONDS,
) -> tuple[list[Ref], CollectResult]:
    """Expire the versions that a policy does not keep, then delete every blob that nothing refers to.

    Returns the versions that expired and what was deleted; with `dry_run` what would be. The caller checks first that no
    log went back in time: the registry would lose files that it no longer names.
    """
    store, policy = decisions.store, policy or RetentionPolicy()
    if not dry_run:
        if isinstance(store, DirectoryRegistry):
            store.clear_partial()
        return decisions.expire(policy), collect(store, patience=patience)
    expired: list[Ref] = []
    decide = decisions.expiry(policy)

    def assume(log: Log) -> None:
        events = decide(log)
        gone = [event.version for event in events if isinstance(event, Expire)]
        for event in events:
            log.append(event)
        if gone:
            withdraw_deltas(log, gone)
        expired.extend(Ref(log.name, str(version)) for version in gone)

    return expired, survey(store, assume)
