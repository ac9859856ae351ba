"""A model's page: what is in production, and the log as its events say it."""

import re
import shutil
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from support.dossier.audited import make_audited
from support.registries import owner
from support.registries.drafts import write_draft
from support.servers.regserve import Site, running

from onnxreg.registry import Registry
from onnxreg.registry.dossier.dossier import make_dossier
from onnxreg.registry.signing import generate
from onnxreg.registry.support.environment import trust_file
from onnxreg.schema.core.ref import Ref

NAME = "acme/pii"


@pytest.fixture(scope="module")
def template(isolated_user, tmp_path_factory) -> tuple[Registry, str]:
    """A governed channel, signed lines and versions, a rollout that was halted; and the public key."""
    key = generate("ed25519")
    registry = make_audited(tmp_path_factory.mktemp("audited"), key, generate("ed25519"))
    owner.rollouts(registry).start(Ref.parse(f"{NAME}:1.1.0"), "nightly", 5)
    owner.rollouts(registry).halt(NAME, "nightly", "too many crashes")
    return registry, str(key.public)


@pytest.fixture
def audited(template) -> Registry:
    """The same; the reader trusts the key."""
    registry, public = template
    trust_file().parent.mkdir(parents=True, exist_ok=True)
    trust_file().write_text(f'[keys.release]\nkey = "{public}"\n')
    return registry


def tables_of(registry: Registry, ref: str, label: str) -> list[Any]:
    """The tables of a field of the dossier."""
    dossier = make_dossier(registry.store, Ref.parse(f"{NAME}:{ref}"), "plain", None).dossier
    fields = (field for section in dossier["sections"] for field in section["fields"])
    return next(list(field.get("tables", ())) for field in fields if field["label"] == label)


def text_of(site: Site, end: str = "") -> str:
    """The words of a page of the model."""
    body = site.get(f"/models/{NAME}{end}").body.decode()
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", body)))


def page(registry: Registry, end: str = "") -> str:
    with running(registry.store.root) as site:
        return text_of(site, end)


def test_the_log_has_the_versions_that_the_events_name(registry, tmp_path):
    """Two versions share a manifest, and the later one was in no channel."""
    for version, seed in {"1.0.0": "a", "1.1.0": "b", "1.2.0": "a"}.items():
        registry.add(write_draft(tmp_path / version, NAME, seed, 100), version)
    registry.tag(f"{NAME}:1.0.0", "stable")
    registry.tag(f"{NAME}:1.1.0", "stable", "fix")
    text = page(registry)
    assert "tag stable 1.0.0 → to 1.1.0" in text and "stable 1.2.0" not in text
    registry.yank(f"{NAME}:1.1.0", "leaks names")
    assert "does not resolve 1.1.0 is yanked" in page(registry)


def test_what_is_in_production_comes_first(audited):
    text = page(audited)
    assert text.index("In production") < text.index("Newest release")
    row = text.partition("In production")[2].partition("Newest release")[0].partition(" stable 1.2.0")[2]
    assert re.search(r"ada@<lab> <b>monthly</b> .*the move by release, the version by release.* met", row)


def test_the_log_says_promotion_policy_signature_and_rollout(audited):
    newest, first = page(audited), page(audited, "?before=20")
    assert re.search(r"rollout nightly [0-9.]+ → to 1.1.0 halted ada@<lab> too many crashes", newest)
    assert re.search(r"rollout nightly [0-9.]+ → to 1.1.0 5 %", newest)
    assert re.search(r"promote stable 1.0.0 → to 1.1.0 policy [0-9a-f]{12} evidence [0-9a-f]{12}", first)
    assert "attest 1.1.0 signature by release" in first


def test_the_dossier_has_the_rollouts(audited):
    moves = tables_of(audited, "nightly", "History of its channels")[0]
    steps = [[cell["value"] for cell in row][moves["columns"].index("Move") :] for row in moves["rows"]][-2:]
    assert [step[:3] for step in steps] == [["rollout", "1.1.0", 5], ["rollout", None, None]]
    assert "too many crashes" in steps[1]


def test_a_model_is_not_made_from_itself(registry, tmp_path):
    draft = write_draft(tmp_path / "a", NAME, "a", 100)
    registry.add(replace(draft, fields={**draft.fields, "source": {"id": NAME}}), "1.0.0")
    assert "Made from local files" in page(registry, ":1.0.0")
    tables = tables_of(registry, "1.0.0", "Source")
    assert all(cell["value"] != NAME for table in tables for row in table["rows"] for cell in row)


@pytest.mark.parametrize("damage", ["changed", "gone", "a pipe"])
def test_a_damaged_log_of_policies_is_never_no_policy(audited, tmp_path, damage):
    root = Path(shutil.copytree(audited.store.root, tmp_path / "copy"))
    policies = root / "policy.jsonl"
    with running(root) as site:
        assert " met" in text_of(site).partition("Newest release")[0]
        data = policies.read_bytes()
        policies.unlink()
        if damage == "changed":
            policies.write_bytes(data.replace(b"stable", b"staple"))
        elif damage == "a pipe":
            policies.mkdir()
        text = text_of(site).partition("Newest release")[0]
    assert " met" not in text and ("does not resolve" in text or "is not known" in text)
    assert "no policy" not in text.partition("stable")[2]
