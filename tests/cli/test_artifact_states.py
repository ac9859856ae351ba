"""The state of an artifact is one word, whichever verb or page names it."""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.command_line import Reg
from support.docs.nets import write_mlp
from support.registries import owner
from support.registries.gated import draft
from support.servers.regserve import Site, running

from onnxreg.registry import Registry
from onnxreg.schema.core.canonical import Digest

pytestmark = pytest.mark.usefixtures("reader_in_process")
INT8 = "model_int8.onnx"
STATES = {
    **dict.fromkeys(("acme/refused", "acme/unbound", "acme/attested"), "refused"),
    **dict.fromkeys(("acme/unknown", "acme/lifted"), "unknown"),
    **dict.fromkeys(("acme/twin", "acme/certified", "acme/settled"), "certified"),
}
"""The effective state of the int8 artifact of each model's newest release."""
ALL = {"refused", "unknown", "certified"}


def evaluation(artifact: Digest, state: str) -> bytes:
    value = {"format": "onnxreg-evaluation", "format_version": 1, "artifact": str(artifact)}
    return json.dumps({**value, "suite": str(Digest.of(b"field")), "state": state}).encode()


@pytest.fixture(scope="module")
def filled(isolated_user: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One model for each way in which a state comes about."""
    root = tmp_path_factory.mktemp("states")
    registry = Registry(root / "home")

    def add(name: str, state: str, version: str = "1.0.0", **fields: Any) -> Digest:
        made = replace(draft(root / name / version, name, state, **fields), name=name)
        if name == "acme/unbound":
            full, small = made.artifacts
            made = replace(made, artifacts=(full, replace(small, verdict=replace(small.verdict, suite=None))))
        return registry.add(made, version).manifest.artifacts[1].digest

    for name, state in {
        "refused": "refused",
        "unbound": "refused",
        "unknown": "unknown",
        "certified": "certified",
    }.items():
        add(f"acme/{name}", state)
    owner.attest(registry, "acme/attested:1.0.0", evaluation(add("acme/attested", "certified"), "refused"))
    owner.attest(registry, "acme/lifted:1.0.0", evaluation(add("acme/lifted", "unknown"), "certified"))
    for name, first in {"acme/settled": "unknown", "acme/twin": "refused"}.items():
        add(name, first)
        add(name, "certified", "1.1.0", license="MIT")  # the same bytes on a larger suite
    return registry.store.root


@pytest.fixture
def registry(filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    return Registry(shutil.copytree(filled, tmp_path / "home"))


@pytest.fixture
def site(registry: Registry) -> Iterator[Site]:
    with running(registry.store.root) as found:
        yield found


def words_of(text: str, *marks: str) -> set[str]:
    """The states in the lines that have these words."""
    lines = [line.split() for line in text.splitlines() if all(mark in line for mark in marks)]
    return {word for line in lines for word in ALL if word in line}


def badges(html: str) -> set[str]:
    return {word for word in ALL if f'<span class="badge is-{word}">' in html}


def first_words(reg: Reg, name: str) -> set[str]:
    """The words that a line of the details begins with; none is said of a state that nobody gave a reason for."""
    lines = [line.split() for line in reg("show", name, "--full").out.splitlines() if INT8 in line]
    return {line[0] for line in lines if line[0] in ALL} or {STATES[name]}


def newest(reg: Reg, name: str) -> Any:
    return reg("ls", name, "--json").json["versions"][0]


def matches(reg: Reg, name: str, *words: object) -> set[str]:
    found = reg("query", "newest and format = 'onnx-int8'", name, *words, "--json").json["matches"]
    return {each["artifact"]["state"] for each in found}


def listed(reg: Reg, name: str) -> set[str]:
    (model,) = reg("ls", name, "--format", "onnx-int8", "--json").json["models"]
    return {artifact["state"] for artifact in model["artifacts"]}


def diff_page(reg: Reg, name: str) -> set[str]:
    reg("diff", name, name, "--html", "page.html")
    return badges(next(line for line in Path("page.html").read_text().splitlines() if f"<bdi>{INT8}" in line))


def diff_json(reg: Reg, name: str) -> set[str]:
    found = reg("diff", name, name, "--json").json.get("attested", {"new": {}})
    stated = reg("show", name, "--json").json["artifacts"][1]["certification"]["state"]
    return {found["new"].get(INT8, stated)}


def certificates(reg: Reg, name: str) -> set[str]:
    """A version without a certificate has no word."""
    done = reg("certificates", name, "--json")
    return {item["state"] for item in (done.json["certificates"] if done.status == 0 else [])} or {
        STATES[name]
    }


def bill_of_materials(reg: Reg, name: str) -> set[str]:
    (item,) = [part for part in reg("sbom", name).json["components"] if part["name"] == INT8]
    return {
        fact["value"]
        for fact in item["modelCard"]["properties"]
        if fact["name"].endswith("certification:state")
    }


def is_certified(reg: Reg, name: str) -> set[str]:
    is_listed = bool(reg("ls", name, "--certified", "--json").json["models"])
    return {"certified"} if is_listed else {STATES[name]} - {"certified"}


INT8_ONLY = ("--format", "onnx-int8")
VERBS: dict[str, Callable[[Reg, str], set[str]]] = {
    "show": lambda reg, name: words_of(reg("show", name).out, INT8, "onnx-int8"),
    "show --full": first_words,
    "ls of a model, artifacts": lambda reg, name: {newest(reg, name)["states"][INT8]},
    "ls of a model, versions": lambda reg, name: {newest(reg, name)["state"] or STATES[name]},
    "ls --format": lambda reg, name: words_of(reg("ls", name, *INT8_ONLY).out, INT8),
    "ls --format --json": listed,
    "ls --certified": is_certified,
    "query": lambda reg, name: words_of(reg("query", "newest", name).out, INT8),
    "query --json": matches,
    "query --remote": lambda reg, name: matches(reg, name, "--remote", "./home"),
    "resolve": lambda reg, name: set(reg("resolve", name, *INT8_ONLY).out.split()[3:4]),
    "resolve --json": lambda reg, name: {
        reg("resolve", name, *INT8_ONLY, "--json").json["artifact"]["state"]
    },
    "diff --json": diff_json,
    "diff --html": diff_page,
    "certificates": certificates,
    "sbom": bill_of_materials,
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_says_the_same_word(verb, reg, registry):
    assert {name: VERBS[verb](reg, name) for name in STATES} == {
        name: {word} for name, word in STATES.items()
    }


def test_every_page_says_the_same_word(site):
    for name, word in STATES.items():
        version, *_ = site.get(f"/v1/models/{name}").json["versions"]
        assert version["states"][INT8] == word
        of_version = f"/models/{name}:{version['version']}"
        for path in (f"/models/{name}", of_version):
            html = site.get(path).body.decode()
            assert badges(html.partition(f"<bdi>{INT8}</bdi>")[2].partition("</tr>")[0]) == {word}, path
        page = site.get(f"/diff?old={name}&new={name}").body.decode()
        assert badges(next(line for line in page.splitlines() if f"<bdi>{INT8}" in line)) == {word}
        facts = site.get(of_version).body.decode().partition('<p class="facts">')[2].partition("</p>")[0]
        assert badges(facts) == ({"refused"} if word == "refused" else set())


def test_publishing_verbs_report_states(reg, tmp_path):
    write_mlp(tmp_path / "model.onnx")
    add = ("add", "model.onnx", "--name", "acme/mlp")
    first = reg(*add, "--json").json
    (artifact,) = first["manifest"]["artifacts"]
    Path("field.json").write_bytes(evaluation(Digest.parse(artifact["digest"]), "refused"))
    done = reg("attest", "acme/mlp", "--report", "field.json", "--json").json
    assert (first["states"], done["stated"], done["state"]) == (
        {"model.onnx": "unknown"},
        "unknown",
        "refused",
    )
    assert reg(*add).ended(0, "refused by a later evaluation: model.onnx (its manifest says unknown)")
    Path("config.json").write_text("{}")
    more = ("add", "model.onnx", "config.json", "--name", "acme/mlp")
    said = reg(*more)
    assert said.ended(0, "refused with the bytes of another version: model.onnx (its manifest says unknown)")
    assert words_of(said.out, "model.onnx", "float32") == {"refused"}
    for words in (add, more):
        assert reg(*words, "--json").json["states"] == {"model.onnx": "refused"}


def test_a_certificate_after_the_fact_lifts_nothing(reg, registry):
    message = f"unknown as its manifest says: {INT8} (a later evaluation says certified)"
    assert reg("show", "acme/lifted", "--full").ended(0, message)
    digest = registry.get("acme/refused").manifest.artifacts[1].digest
    Path("field.json").write_bytes(evaluation(digest, "certified"))
    assert reg("attest", "acme/refused", "--report", "field.json").ended(0, "it stays refused")
