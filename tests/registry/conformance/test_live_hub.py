"""`reg doctor --live` of a registry on the Hugging Face Hub, against the emulator of it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub.utils import close_session
from support.progress import RecordedSteps
from support.servers.hub import READER, TOKEN, Hub, running

from onnxreg.cli import hints
from onnxreg.registry import Registry
from onnxreg.registry.conformance import conformance
from onnxreg.registry.conformance.trial import TrialOutcome
from onnxreg.registry.log.collect import RetentionPolicy
from onnxreg.registry.maintain import doctor
from onnxreg.registry.maintain.doctor import examine
from onnxreg.registry.store.hub import commits, hub_client
from onnxreg.registry.store.hub.hub import open_hub
from onnxreg.schema.core.errors import RemoteError
from onnxreg.schema.manifest.draft import Draft

# The client hands its uploads to its HTTP library in a way that this one calls outdated.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")

URL = "hf://acme/models"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub with a registry that this process may write to."""
    with running(tmp_path / "hub") as found:
        monkeypatch.setenv("HF_ENDPOINT", found.endpoint)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr(commits, "MAX_WAIT_SECONDS", 0.02)
        open_hub(URL, create=True)
        yield found
        close_session()


def broken(outcomes: list[TrialOutcome]) -> dict[str, str]:
    return {outcome.check: outcome.detail for outcome in outcomes if not outcome.ok}


@pytest.mark.parametrize("url", [URL, "hf://datasets/acme/models@dev"])
def test_the_hub_keeps_its_promises(hub: Hub, url: str) -> None:
    before = hub.history("acme/models").copy()
    scratch = conformance.scratch_at(url)
    outcomes = conformance.run(scratch)
    assert broken(outcomes) == {}
    assert [outcome.check for outcome in outcomes if outcome.state == "not applicable"] == []
    assert len(outcomes) == 12
    assert hub.repositories.keys() == {"models/acme/models"}
    assert hub.history("acme/models") == before
    assert not [line for line in hub.requests if "acme/models" in line and line.startswith("DELETE")]
    assert (
        "datasets/acme/onnxreg-live-" if "datasets" in url else "hf://acme/onnxreg-live-"
    ) in scratch.description


def test_the_scratch_is_private(hub: Hub) -> None:
    scratch = conformance.scratch_at(URL)
    scratch.make()
    (made,) = hub.repositories.keys() - {"models/acme/models"}
    assert hub.repositories[made].private
    assert list(scratch.clear()) == []


def test_commits_upon_a_stale_parent_that_are_taken(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = hub_client.HfApi.create_commit

    def careless(self: hub_client.HfApi, *words: object, **more: object) -> object:
        return commit(self, *words, **{**more, "parent_commit": None})  # type: ignore[arg-type]

    monkeypatch.setattr(hub_client.HfApi, "create_commit", careless)
    found = broken(conformance.run(conformance.scratch_at(URL)))
    assert {"compare-and-swap", "compare-and-swap, raced"} <= found.keys()
    assert "scratch" not in found


def test_a_token_that_may_only_read(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", READER)
    with pytest.raises(RemoteError, match="making a scratch repository"):
        conformance.run(conformance.scratch_at(URL))
    assert hub.repositories.keys() == {"models/acme/models"}


def test_a_scratch_repository_that_stays_is_named(hub: Hub) -> None:
    hub.fail("DELETE /api/repos/delete", status=403, times=10)
    outcome = conformance.run(conformance.scratch_at(URL))[-1]
    assert (outcome.check, outcome.state) == ("scratch", "broken")
    (made,) = hub.repositories.keys() - {"models/acme/models"}
    name = made.removeprefix("models/")
    assert f"hf://{name} may be left" in outcome.detail
    assert hints.text(outcome.fix) == f"hf repos delete {name} --type model"


def test_an_interruption_deletes_the_scratch(hub: Hub) -> None:
    def stop(check: str) -> None:
        if check == "LFS":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        conformance.run(conformance.scratch_at(URL), RecordedSteps(stop))
    assert hub.repositories.keys() == {"models/acme/models"}


def test_the_hub_ignores_ranges(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    get = hub_client.HubClient.get
    monkeypatch.setattr(
        hub_client.HubClient,
        "get",
        lambda self, path, revision, offset, cached=None: get(self, path, revision, 0),
    )
    outcomes = {outcome.check: outcome.state for outcome in conformance.run(conformance.scratch_at(URL))}
    assert outcomes["ranges"] == "not applicable"


def test_leftovers_of_a_dead_collection_are_cleared_by_a_commit(hub: Hub) -> None:
    remote = open_hub(URL)
    note = "gc/condemned/0123456789abcdef"
    remote.add_note("condemned", note.rpartition("/")[2], b"")
    (finding,) = (finding for finding in examine(remote) if not finding.ok)
    assert hints.text(finding.fix) == f"reg doctor {URL} --clear {note}"
    assert doctor.clear_leftovers(open_hub(URL), [note]) == [note]
    assert note not in hub.files("acme/models")
    assert [finding for finding in examine(open_hub(URL)) if not finding.ok] == []


def test_a_registry_on_the_hub_is_collected_and_verified(
    hub: Hub, registry: Registry, make_draft: Callable[..., Draft]
) -> None:
    for version in ("1.0.0", "2.0.0"):
        registry.add(make_draft(seed=version), version)
        registry.push(f"acme/pii:{version}", URL)
    remote = registry.remotes.open(URL)
    expired, collected = registry.gc(RetentionPolicy(1), remote=remote)
    assert list(map(str, expired)) == ["acme/pii:1.0.0"] and len(collected.freed) == 2
    report = registry.verify("acme/pii", remote=open_hub(URL))
    assert (report.versions, report.damages) == (1, [])
