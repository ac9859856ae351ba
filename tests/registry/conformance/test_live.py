"""`reg doctor --live`: on servers that keep every promise, on one that ignores conditions, and on stores that lie."""

import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.progress import RecordedSteps
from support.sampling import sampled
from support.servers import s3servers

from onnxreg.cli import hints
from onnxreg.registry import Registry
from onnxreg.registry.conformance import conformance
from onnxreg.registry.conformance.object_trials import S3Scratch
from onnxreg.registry.conformance.trial import (
    InapplicableError,
    PromiseTrial,
    TrialOutcome,
    judge,
    object_trials,
    push_and_pull,
)
from onnxreg.registry.maintain import doctor
from onnxreg.registry.maintain.doctor import examine
from onnxreg.registry.maintain.verification import verify
from onnxreg.registry.store import promises
from onnxreg.registry.store.contract import put
from onnxreg.registry.store.directory.directory import DirectoryRegistry
from onnxreg.registry.store.layout import new_identity
from onnxreg.registry.store.memory import MemoryStore
from onnxreg.registry.store.open import open_url
from onnxreg.registry.store.s3.bucket import S3Store, s3_remote
from onnxreg.registry.store.s3.s3_url import S3Url
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core.errors import InputError, RemoteError


def broken(outcomes: Iterable[TrialOutcome]) -> dict[str, str]:
    return {outcome.check: outcome.detail for outcome in outcomes if not outcome.ok}


def tried(url: str) -> dict[str, TrialOutcome]:
    return {outcome.check: outcome for outcome in conformance.run(conformance.scratch_at(url))}


def objects(url: str) -> dict[str, int]:
    return dict(S3Store(S3Url.parse(url)).list(""))


CHECKS = {
    "create-only",
    "compare-and-swap",
    "create-only, raced",
    "compare-and-swap, raced",
    "read-after-write",
    "list-after-write",
    "large object",
    "delete",
    "batch delete",
    "ranges",
    "conditional read",
    "checksum",
    "multipart",
    "lost answer",
    "two writers",
    "scratch",
}


@pytest.mark.parametrize("server", ["ministack", pytest.param("seaweedfs", marks=pytest.mark.more)])
def test_s3_keeps_its_promises(
    server: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    (there := request.getfixturevalue(server)).enter(monkeypatch)
    url = there.fresh()
    put(s3_remote(url, create=True), b"blob")
    before = objects(url)
    outcomes = tried(url)
    assert outcomes.keys() == CHECKS
    assert broken(outcomes.values()) == {}
    assert objects(url) == before


@pytest.mark.more
def test_a_gateway_that_ignores_conditions_is_found_out(
    juicefs: s3servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    juicefs.enter(monkeypatch)
    outcomes = tried(url := juicefs.fresh())
    bad = broken(outcomes.values())
    assert {"create-only", "compare-and-swap", "compare-and-swap, raced"} <= bad.keys()
    assert "scratch" not in bad and objects(url) == {}


@pytest.mark.more
def test_a_bucket_without_a_registry_may_be_tried(
    ministack: s3servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ministack.enter(monkeypatch)
    scratch = conformance.scratch_at(f"{ministack.fresh()}?region=us-east-1")
    assert [outcome for outcome in conformance.run(scratch) if not outcome.ok] == []
    remedy = hints.text(scratch.remedy)
    assert remedy.startswith("aws s3 rm --recursive s3://models/") and remedy.endswith("/ --region us-east-1")


def test_an_unwritable_store_is_broken(ministack: s3servers.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    ministack.enter(monkeypatch)
    url = f"s3://no-such-bucket/{os.urandom(4).hex()}"
    with pytest.raises(RemoteError, match="NoSuchBucket"):
        conformance.run(conformance.scratch_at(url))


class Interrupted(S3Scratch):
    """The user presses Ctrl-C in the middle, while parts are on their way."""

    def trials(self) -> list[PromiseTrial]:
        def stop() -> list[str]:
            self._request("create_multipart_upload", Key=self._client.path("unfinished"))
            raise KeyboardInterrupt

        return [*super().trials()[:1], PromiseTrial("stop", "never", stop), *super().trials()[1:]]


def uploads(server: s3servers.Server, url: str) -> list[str]:
    client = server.client()
    try:
        found = client.list_multipart_uploads(Bucket=s3servers.BUCKET).get("Uploads", [])
        return [upload["Key"] for upload in found if upload["Key"].startswith(S3Url.parse(url).prefix)]
    finally:
        client.close()


def test_an_interruption_leaves_nothing(ministack: s3servers.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    ministack.enter(monkeypatch)
    url, steps = ministack.fresh(), RecordedSteps()
    with pytest.raises(KeyboardInterrupt):
        conformance.run(Interrupted(S3Url.parse(url)), steps)
    assert steps.labels == ["create-only", "stop"]
    assert objects(url) == {} and uploads(ministack, url) == []


@pytest.mark.parametrize("reason", sampled([KeyboardInterrupt, RemoteError("access denied")], 2))
def test_leftovers_of_an_interruption_are_named(
    reason: BaseException, ministack: s3servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ministack.enter(monkeypatch)

    class Stuck(Interrupted):
        def clear(self) -> Iterator[str]:
            raise reason

    url = ministack.fresh()
    scratch = Stuck(S3Url.parse(url))
    with pytest.raises(RemoteError, match=r"objects below s3://models/\w+/gc/live-\w+ may be left") as error:
        conformance.run(scratch)
    assert hints.text(error.value.advice) == hints.text(scratch.remedy)
    remote = s3_remote(url, create=True)
    (left,) = doctor.left_trials(remote.files())
    assert not [damage for damage in verify(remote).damages if damage.kind == "stray"]
    (finding,) = (finding for finding in examine(remote) if not finding.ok)
    assert (finding.check, hints.text(finding.fix)) == ("scratch", f"reg doctor {url} --clear {left}")
    assert all(path.startswith(left) for path in doctor.clear_leftovers(remote, [left]))
    assert objects(url).keys() == {"registry.json"}


@pytest.mark.more
def test_a_gateway_that_ignores_conditions_is_a_finding(
    juicefs: s3servers.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The doctor reports it, where a push would refuse."""
    juicefs.enter(monkeypatch)
    url = juicefs.fresh()
    client = juicefs.client()
    client.put_object(
        Bucket=s3servers.BUCKET, Key=f"{S3Url.parse(url).prefix}/registry.json", Body=new_identity()
    )
    client.close()
    (finding,) = (finding for finding in examine(open_url(url)) if not finding.ok)
    assert (finding.check, finding.family) == ("compare-and-swap", "remote")
    assert "can be created again" in finding.detail
    assert objects(url).keys() == {"registry.json"}


def test_a_local_directory_keeps_its_promises(registry: Registry) -> None:
    outcomes = tried(str(registry.store.root))
    assert {"disk", "locks", "compare-and-swap, raced", "two writers", "scratch"} <= outcomes.keys()
    assert broken(outcomes.values()) == {}
    assert list(registry.store.scratch.iterdir()) == []
    assert list(registry.names()) == []


def test_locks_that_do_not_exclude_are_broken(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promises, "exclusive", lambda path: threading.Lock())
    outcomes = tried(str(registry.store.root))
    assert broken(outcomes.values()) == {"locks": "two processes can hold the same lock"}


def test_an_interruption_leaves_no_local_scratch(registry: Registry) -> None:
    def stop(check: str) -> None:
        if check == "two writers":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        conformance.run(conformance.scratch_at(str(registry.store.root)), RecordedSteps(stop))
    assert list(registry.store.scratch.iterdir()) == []


@pytest.mark.parametrize("url", ["memory:trial"])
def test_a_read_only_remote_is_refused(url: str) -> None:
    with pytest.raises(InputError, match=r"nothing can be tried|lost when"):
        conformance.scratch_at(url)


# A file system of fsspec


@pytest.fixture
def sftp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a registry at a host whose files are those of a directory here."""
    fsspec = pytest.importorskip("fsspec")
    (tmp_path / "host").mkdir()

    def url_to_fs(url: str, **options: Any) -> tuple[Any, str]:
        return fsspec.filesystem("file"), f"{tmp_path}/host/{url.partition('host/')[2]}"

    monkeypatch.setattr("fsspec.core.url_to_fs", url_to_fs)
    open_url("sftp://host/models?single_writer=yes", create=True)
    return "sftp://host/models"


def test_a_file_system_of_one_writer(sftp: str, tmp_path: Path) -> None:
    before = set((tmp_path / "host").rglob("*"))
    outcomes = tried(sftp)
    assert broken(outcomes.values()) == {}
    assert {check for check, outcome in outcomes.items() if outcome.state == "not applicable"} == {
        "create-only, raced",
        "compare-and-swap, raced",
    }
    assert {path for path in (tmp_path / "host").rglob("*") if path.is_file()} <= before
    assert list((tmp_path / "host").rglob("live-*")) == []


def test_leftovers_of_a_file_system_are_named(sftp: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec = pytest.importorskip("fsspec")

    def refused(*_: object, **options: object) -> None:
        raise PermissionError

    monkeypatch.setattr(fsspec.filesystem("file").__class__, "rm", refused)
    outcome = tried(sftp)["scratch"]
    assert outcome.state == "broken"
    assert hints.text(outcome.fix).startswith("reg doctor sftp://host/models --clear gc/live-")


# Stores that lie


class Forgetting(MemoryStore):
    """Lists what was there a moment ago."""

    def __init__(self) -> None:
        super().__init__()
        self._last: list[tuple[str, int]] = []

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        self._last, last = list(super().list(prefix)), self._last
        return iter(last)


class Stale(MemoryStore):
    """Reads once more what was there before it was replaced."""

    older: tuple[bytes, str] | None = None

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        older = super().get(key)
        done = super().swap(key, data, expected)
        self.older = older if done else self.older
        return done

    def get(self, key: str) -> tuple[bytes, str] | None:
        if threading.current_thread() is not threading.main_thread() or self.older is None:
            return super().get(key)
        older, self.older = self.older, None
        return older


class Hoarding(MemoryStore):
    """Deletes nothing."""

    def delete(self, keys: Iterable[str]) -> None:
        pass


class Cutting(MemoryStore):
    """Keeps no more than 4 MiB."""

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        return super().swap(key, data[: 4 * 2**20], expected)


class Denying(MemoryStore):
    """Refuses to write."""

    def swap(self, key: str, data: bytes, expected: str | None) -> bool:
        raise RemoteError("writing failed: AccessDenied", "check the credentials")


@pytest.mark.parametrize(
    ("kind", "checks"),
    [
        (MemoryStore, set()),
        (Forgetting, {"list-after-write"}),
        (Stale, {"compare-and-swap", "compare-and-swap, raced", "read-after-write"}),
        (Hoarding, {"create-only, raced", "list-after-write", "delete"}),
        (Cutting, {"large object"}),
        (
            Denying,
            CHECKS
            - {"batch delete", "ranges", "conditional read", "checksum", "multipart"}
            - {"lost answer", "two writers", "scratch"},
        ),
    ],
)
def test_a_store_that_breaks_a_promise_is_found_out(kind: type[MemoryStore], checks: set[str]) -> None:
    outcomes = [judge(trial) for trial in object_trials(kind())]
    assert broken(outcomes).keys() == checks
    assert all(outcome.fix for outcome in outcomes if not outcome.ok)


def test_a_promise_that_a_place_does_not_make() -> None:
    def attempt() -> Iterator[str]:
        raise InapplicableError("it is none of its")
        yield

    outcome = judge(PromiseTrial("checksum", "kept", attempt))
    assert (outcome.ok, outcome.state, outcome.detail) == (True, "not applicable", "it is none of its")


def test_a_trial_leaves_no_checkpoint(tmp_path: Path) -> None:
    remote = DirectoryRegistry.create(tmp_path / "there")
    before = KnownHeads().registries()
    assert list(push_and_pull(lambda: remote)) == []
    assert KnownHeads().registries() == before
