"""The profile of a recipe as a field of questions: it is in the summaries of the index file."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onnxreg.registry import Registry
from onnxreg.registry.search.catalogs import LocalCatalog
from onnxreg.schema.core.errors import NotFoundError
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.query.expression import parse
from onnxreg.schema.query.requirements import Query

MakeDraft = Callable[..., Draft]
Reg = Callable[..., Any]


@pytest.fixture
def profiled(registry: Registry, make_draft: MakeDraft) -> Registry:
    """`acme/pii` 0.1.0 of the profile mobile, 0.2.0 of web, and 0.3.0 of none."""
    for number, profile in enumerate(("mobile", "web", None), 1):
        draft = make_draft(seed=str(number))
        recipe = {"profile": profile, "profile_version": 1, "steps": [], "tools": {}}
        fields = {**draft.fields, **({"recipe": recipe} if profile else {})}
        registry.add(replace(draft, fields=fields), f"0.{number}.0")
    return registry


QUESTIONS = {
    "profile = mobile": {"0.1.0"},
    "profile != mobile": {"0.2.0"},
    "not profile = mobile": {"0.2.0", "0.3.0"},
    "profile ~ '*'": {"0.1.0", "0.2.0"},
    "profile in (web, mobile)": {"0.1.0", "0.2.0"},
    "profile not in (web)": {"0.1.0"},
    "profile = ''": set(),
}


@pytest.mark.parametrize("text", QUESTIONS)
def test_questions_about_it(profiled: Registry, text: str) -> None:
    for _ in range(2):
        assert versions(profiled, text) == QUESTIONS[text]


def versions(registry: Registry, text: str) -> set[str]:
    found = LocalCatalog(registry.store).refresh(artifacts=True)
    return {row.version for row in found.query(parse(text))}


def test_a_new_version_is_read_too(profiled: Registry, make_draft: MakeDraft) -> None:
    assert versions(profiled, "profile = mobile") == {"0.1.0"}
    draft = make_draft(seed="4")
    recipe = {"profile": "mobile", "profile_version": 1, "steps": [], "tools": {}}
    profiled.add(replace(draft, fields={**draft.fields, "recipe": recipe}), "0.4.0")
    assert versions(profiled, "profile = mobile") == {"0.1.0", "0.4.0"}


def test_resolve_reads_the_profile(profiled: Registry) -> None:
    asked = Query(where=parse("profile = mobile"))
    assert str(profiled.resolve("acme/pii:0.1.0", asked).located.version) == "0.1.0"
    with pytest.raises(NotFoundError):
        profiled.resolve("acme/pii:0.2.0", asked)


def test_the_command_line(profiled: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    from onnxreg.cli.main import main

    home = ["--registry", str(profiled.store.root)]
    for words, wanted in (
        (["--profile", "web"], [("0.2.0", "web")]),
        (["version > 0.1.0", "--profile", "mobile"], []),
        (["version < 0.2.0 or profile = web", "--profile", "mobile"], [("0.1.0", "mobile")]),
        (["not yanked"], [("0.1.0", "mobile"), ("0.2.0", "web"), ("0.3.0", None)]),
    ):
        assert main([*home, "query", *words, "--json"]) == 0
        matches = json.loads(capsys.readouterr().out)["matches"]
        assert [(each["version"], each["profile"]) for each in matches[::2]] == wanted
    target = Path(profiled.store.root).parent / "all.jsonl"
    assert main([*home, "query", "--export", str(target)]) == 0
    rows = [json.loads(line) for line in target.read_text().splitlines()]
    assert [row["profile"] for row in rows] == ["mobile", "mobile", "web", "web", None, None]
