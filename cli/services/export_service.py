"""Exports between converters and registry: publish what a plan makes, or recognise an earlier run, and push it."""

from collections.abc import Callable
from shlex import quote
from typing import TYPE_CHECKING

from onnxreg.cli.context import Session
from onnxreg.cli.errors import resumable
from onnxreg.registry.support import environment
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import RegError
from onnxreg.schema.core.progress import Progress
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.core.units import parse_size

if TYPE_CHECKING:
    from onnxreg.converters.engine.cache import StepCache
    from onnxreg.converters.engine.latency import LatencyTable
    from onnxreg.converters.engine.plan import ExportPlan
    from onnxreg.converters.families.family_plan import FamilyPlan
    from onnxreg.registry import Registry
    from onnxreg.registry.log.lookup import Release


def publish(
    registry: "Registry",
    plan: "ExportPlan | FamilyPlan",
    version: Version | None,
    progress: Progress,
    cached: bool = True,
    is_preview: bool = False,
) -> "tuple[Release, LatencyTable | None]":
    """Run a plan and publish its draft; return the version, and the latency of a family.

    A plan is not run again if a version has what an equal one made. A family is always run, because its limit of
    latency holds for this moment; so is a draft that lacks an optional step, whose tool may be there the next time.

    Args:
        cached: False to run every step, and keep nothing of them.
        is_preview: publish nothing; the version is that which would be new.
    """
    from onnxreg.converters.engine.cache import EXPORTS
    from onnxreg.converters.engine.plan import ExportPlan
    from onnxreg.converters.request import run
    from onnxreg.registry.gates.statements import attest_benchmark

    cache, limit = step_cache() if cached else None, cache_limit()
    key = plan.key() if cache is not None and not is_preview and isinstance(plan, ExportPlan) else None
    if cache is not None and key is not None and (earlier := cache.find_value(EXPORTS, key)):
        again = registry.publisher(version).add_again(Digest.parse(earlier))
        if again is not None:
            return again, None
    with registry.workspace() as workspace:
        draft, latency = run(plan, workspace, cache, progress)
        if is_preview:
            return registry.publisher(version).preview(draft), None
        release = registry.add(draft, version)
    if latency is not None and release.new:
        report = latency.document(release.manifest).encode()
        attest_benchmark(registry.decisions(release.name), release, report, "benchmark")
    if cache is not None:
        cache.trim(limit)
        if key is not None and not any(step.get("skipped") for step in draft.fields["recipe"]["steps"]):
            cache.remember(EXPORTS, key, str(release.digest))
    return release, None if isinstance(plan, ExportPlan) else latency


def report_and_push(session: Session, ref: Ref, remote: str | None, report: Callable[..., None]) -> None:
    """Call `report`, and push the version if a remote is named.

    With --json the push comes first, and the report has the key `pushed`: what `reg push --json` prints, or null if the
    push failed. Raises what push raises.
    """
    if remote is None:
        report()
        return
    from onnxreg.cli.reports import transfer_report

    if not session.as_json:
        report()
    registry, pushed = session.open(), None
    url, watch = registry.remotes.url_of(remote), transfer_report.Stopwatch()
    try:
        with resumable(), session.progress(f"pushing {ref}") as progress:
            result = registry.push(ref, remote, progress)
        pushed = transfer_report.to_json(result, url)
    except RegError as error:
        error.message = f"{ref} is published here, but not pushed: {error.message}"
        again = f"to try again: reg push {ref} {quote(remote)}"
        error.hint = f"{error.hint}; {again}" if error.hint else again
        raise
    finally:
        if session.as_json:
            report(pushed=pushed)
    if not session.as_json:
        session.say("")
        transfer_report.report_transfer(session, "pushed", result, url, watch)


def step_cache() -> "StepCache":
    """The user's cache of export steps, which no other writer of a shared registry can fill."""
    from onnxreg.converters.engine.cache import StepCache

    return StepCache(environment.cache_directory() / "steps")


def cache_limit() -> int:
    """Bytes: `REG_CACHE_SIZE`, such as `20GB`, else 10 GiB."""
    from onnxreg.converters.engine.cache import MAX_CACHE_BYTES

    limit = environment.read("REG_CACHE_SIZE")
    return parse_size(limit) if limit else MAX_CACHE_BYTES
