"""What the diff says of other bytes, by what is known of their meaning."""

import copy
from typing import Any

import pytest

from onnxreg.schema.compare.manifests import Change, diff
from onnxreg.schema.manifest.manifest import Manifest


def sha(number: int) -> str:
    return f"sha256:{number:064x}"


def bytes_changed(full: dict[str, Any], **semantic: str) -> Change:
    """The change of an artifact's digest, beside these changes of its semantic digest."""
    new = copy.deepcopy(full)
    new["artifacts"][2]["digest"] = sha(500)
    new["artifacts"][2]["semantic"] |= semantic
    changes = diff(Manifest.from_json(full), Manifest.from_json(new)).changes
    (found,) = [change for change in changes if change.kind == "artifact-bytes-changed"]
    halves = {change.kind for change in changes} - {"artifact-bytes-changed"}
    assert halves == {f"{half}-changed" for half in semantic}
    return found


@pytest.mark.parametrize(
    ("changed", "severity", "words"),
    [
        ((), "cosmetic", "same graph and weights, other producer"),
        (("graph",), "notable", "same weights, other graph"),
        (("weights",), "notable", "same graph, other weights"),
        (("graph", "weights"), "notable", "other graph and weights"),
    ],
    ids=str,
)
def test_other_bytes(changed: tuple[str, ...], severity: str, words: str, full: dict[str, Any]) -> None:
    found = bytes_changed(full, **dict.fromkeys(changed, sha(501)))
    assert (found.severity, found.message.endswith(f" ({words})")) == (severity, True)


@pytest.mark.parametrize("without", ["old", "new", "both"])
def test_without_a_semantic_digest_no_change_is_claimed(without: str, full: dict[str, Any]) -> None:
    new = copy.deepcopy(full)
    new["artifacts"][2]["digest"] = sha(500)
    for side, value in (("old", full), ("new", new)):
        if without in (side, "both"):
            del value["artifacts"][2]["semantic"]
    changes = diff(Manifest.from_json(full), Manifest.from_json(new)).changes
    assert [change.severity for change in changes if change.kind == "artifact-bytes-changed"] == ["notable"]
    assert all("(" not in change.message for change in changes)
    told = {change.severity for change in changes if "semantic" in change.path}
    assert told == (set() if without == "both" else {"cosmetic"})
