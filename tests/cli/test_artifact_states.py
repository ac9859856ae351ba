"""The state of an artifact is one word, whichever verb or page names it."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.registries import owner
from support.registries.gated import draft
from support.servers.regserve import Site, running

from onnxreg.registry import Registry
from onnxreg.registry.support.environment import default_root
from onnxreg.schema.core.digest import Digest

pytestmark = pytest.mark.usefixtures("reader_in_process")
Reg = Callable[..., Any]
INT8 = "model_int8.onnx"
WORDS = {
    "acme/refused": "refused",
    "acme/unbound": "refused",
    "acme/attested": "refused",
    "acme/twin": "certified",
    "acme/unknown": "unknown",
    "acme/lifted": "unknown",
    "acme/certified": "certified",
    "acme/settled": "certified",
}
"""The effective state of the int8 artifact of each model's newest release."""


def evaluation(artifact: Digest, state: str) -> bytes:
    value = {"format": "onnxreg-evaluation", "format_version": 1, "artifact": str(artifact)}
    return json.dumps({**value, "suite": str(Digest.of(b"field")), "state": state}).encode()


@pytest.fixture
def registry(isolated_user: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """One model for each way in which a state comes about; see `WORDS`."""
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    registry = Registry(tmp_path / "home")

    def add(name: str, state: str, version: str = "1.0.0", unbound: bool = False, **fields: Any) -> Digest:
        made = replace(draft(tmp_path / name / version, name, state, **fields), name=name)
        if unbound:
            claimed = replace(made.artifacts[1].verdict, suite=None)
            made = replace(made, artifacts=(made.artifacts[0], replace(made.artifacts[1], verdict=claimed)))
        return registry.add(made, version).manifest.artifacts[1].digest

    add("acme/refused", "refused")
    add("acme/unbound", "refused", unbound=True)
    add("acme/unknown", "unknown")
    add("acme/certified", "certified")
    owner.attest(registry, "acme/attested:1.0.0", evaluation(add("acme/attested", "certified"), "refused"))
    owner.attest(registry, "acme/lifted:1.0.0", evaluation(add("acme/lifted", "unknown"), "certified"))
    add("acme/settled", "unknown")  # the same bytes on a larger suite
    add("acme/settled", "certified", "1.1.0", license="MIT")
    add("acme/twin", "refused")
    add("acme/twin", "certified", "1.1.0", license="MIT")
    return registry


@pytest.fixture
def site(registry: Registry) -> Iterator[Site]:
    with running(registry.store.root) as found:
        yield found


def words_of(text: str, *marks: str) -> set[str]:
    """The states in the lines that have these words."""
    lines = [line for line in text.splitlines() if all(mark in line for mark in marks)]
    return {word for line in lines for word in set(WORDS.values()) if word in line.split()}


def show_table(reg: Reg, name: str) -> set[str]:
    return words_of(reg("show", name).out, INT8, "onnx-int8")


def show_details(reg: Reg, name: str) -> set[str]:
    """The words that a line of the details begins with; none is said of a state that nobody gave a reason for."""
    lines = [line.split() for line in reg("show", name, "--full").out.splitlines() if INT8 in line]
    return {line[0] for line in lines if line[0] in WORDS.values()} or {WORDS[name]}


def ls_versions(reg: Reg, name: str) -> set[str]:
    newest, *_ = reg("ls", name, "--json").json["versions"]
    return {newest["states"][INT8]}


def ls_of_one(reg: Reg, name: str) -> set[str]:
    """The version's own word has a refusal of any artifact, and no other state."""
    newest, *_ = reg("ls", name, "--json").json["versions"]
    return {newest["state"] or WORDS[name]}


def ls_artifacts(reg: Reg, name: str) -> set[str]:
    return words_of(reg("ls", name, "--format", "onnx-int8").out, INT8)


def ls_artifacts_json(reg: Reg, name: str) -> set[str]:
    (model,) = reg("ls", name, "--format", "onnx-int8", "--json").json["models"]
    return {artifact["state"] for artifact in model["artifacts"]}


def ls_certified(reg: Reg, name: str) -> set[str]:
    is_listed = bool(reg("ls", name, "--certified", "--json").json["models"])
    return {"certified"} if is_listed else {WORDS[name]} - {"certified"}


def query(reg: Reg, name: str) -> set[str]:
    return words_of(reg("query", "newest", name).out, INT8)


def query_json(reg: Reg, name: str) -> set[str]:
    found = reg("query", "newest and format = 'onnx-int8'", name, "--json").json["matches"]
    return {each["artifact"]["state"] for each in found}


def query_remote(reg: Reg, name: str) -> set[str]:
    asked = ("query", "newest and format = 'onnx-int8'", name, "--remote", default_root(), "--json")
    return {each["artifact"]["state"] for each in reg(*asked).json["matches"]}


def resolve(reg: Reg, name: str) -> set[str]:
    return set(reg("resolve", name, "--format", "onnx-int8").out.split()[3:4])


def resolve_json(reg: Reg, name: str) -> set[str]:
    return {reg("resolve", name, "--format", "onnx-int8", "--json").json["artifact"]["state"]}


def diff_json(reg: Reg, name: str) -> set[str]:
    found = reg("diff", name, name, "--json").json.get("attested", {"new": {}})
    stated = reg("show", name, "--json").json["artifacts"][1]["certification"]["state"]
    return {found["new"].get(INT8, stated)}


def diff_page(reg: Reg, name: str) -> set[str]:
    (row,) = [
        line for line in reg("diff", name, name, "--html", "-").out.splitlines() if f"<bdi>{INT8}" in line
    ]
    return badges(row)


def badges(html: str) -> set[str]:
    return {word for word in set(WORDS.values()) if f'<span class="badge is-{word}">' in html}


def certificate_states(reg: Reg, name: str) -> set[str]:
    """The word of `reg certificates --json`; a version without a certificate has none."""
    done = reg("certificates", name, "--json")
    certificates = done.json["certificates"] if done.status == 0 else []
    return {item["state"] for item in certificates} or {WORDS[name]}


def bill_of_materials(reg: Reg, name: str) -> set[str]:
    (item,) = [part for part in reg("sbom", name).json["components"] if part["name"] == INT8]
    facts = {fact["name"]: fact["value"] for fact in item["modelCard"]["properties"]}
    return {facts["onnxreg:certification:state"]}


VERBS = (
    *(certificate_states, bill_of_materials),
    *(show_table, show_details, ls_versions, ls_of_one, ls_artifacts, ls_artifacts_json, ls_certified),
    *(query, query_json, query_remote, resolve, resolve_json, diff_json, diff_page),
)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_every_verb_says_the_same_word(
    verb: Callable[[Reg, str], set[str]], reg: Reg, registry: Registry
) -> None:
    assert {name: verb(reg, name) for name in WORDS} == {name: {word} for name, word in WORDS.items()}


def card(html: str) -> str:
    """The part of a page about the int8 artifact."""
    return html.partition(f"<bdi>{INT8}</bdi>")[2].partition("</header>")[0]


def test_every_page_says_the_same_word(site: Site) -> None:
    for name, word in WORDS.items():
        newest, *_ = site.get(f"/v1/models/{name}").json["versions"]
        assert newest["states"][INT8] == word
        of_version = f"/models/{name}:{newest['version']}"
        for path in (f"/models/{name}", of_version):
            assert badges(card(site.get(path).body.decode())) == {word}, path
        page = site.get(f"/diff?old={name}&new={name}").body.decode()
        assert badges(next(line for line in page.splitlines() if f"<bdi>{INT8}" in line)) == {word}
        facts = site.get(of_version).body.decode().partition('<p class="facts">')[2].partition("</p>")[0]
        assert badges(facts) == ({"refused"} if word == "refused" else set())


def test_publishing_verbs_report_states(reg: Reg, tmp_path: Path, isolated_user: None) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 14]> g (float[1] x) => (float[1] y) { y = Relu(x) }'
    )
    onnx.save(model, tmp_path / "model.onnx")
    first = reg("add", "model.onnx", "--name", "acme/relu", "--json").json
    assert first["states"] == {"model.onnx": "unknown"}
    (artifact,) = first["manifest"]["artifacts"]
    (tmp_path / "field.json").write_bytes(evaluation(Digest.parse(artifact["digest"]), "refused"))
    done = reg("attest", "acme/relu", "--report", "field.json", "--json").json
    assert (done["stated"], done["state"]) == ("unknown", "refused")
    remark = "refused by a later evaluation: model.onnx (its manifest says unknown)"
    assert remark in reg("add", "model.onnx", "--name", "acme/relu").out
    assert reg("add", "model.onnx", "--name", "acme/relu", "--json").json["states"] == {
        "model.onnx": "refused"
    }
    (tmp_path / "config.json").write_text("{}")
    said = reg("add", "model.onnx", "config.json", "--name", "acme/relu").out
    assert words_of(said, "model.onnx", "float32") == {"refused"}
    assert "refused with the bytes of another version: model.onnx (its manifest says unknown)" in said
    again = reg("add", "model.onnx", "config.json", "--name", "acme/relu", "--json").json
    assert again["states"] == {"model.onnx": "refused"}


def test_a_certificate_after_the_fact_lifts_nothing(reg: Reg, registry: Registry, tmp_path: Path) -> None:
    said = reg("show", "acme/lifted", "--full").out
    assert f"unknown as its manifest says: {INT8} (a later evaluation says certified)" in said
    digest = registry.get("acme/refused").manifest.artifacts[1].digest
    (tmp_path / "field.json").write_bytes(evaluation(digest, "certified"))
    assert "it stays refused" in reg("attest", "acme/refused", "--report", "field.json").out
