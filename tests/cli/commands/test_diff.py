"""`reg diff` for people, programs, pages and gates, here and elsewhere."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.registries import owner
from support.registries.gated import refusal_of
from support.registries.judged import judged_draft
from support.terminal import on_a_terminal

from onnxreg.cli.diff_report import escaped
from onnxreg.registry import Registry
from onnxreg.schema.compare.manifests import diff
from onnxreg.schema.compare.severity import SEVERITIES
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, Verdict

HOSTILE = "<script>alert(1)</script> | \x1b[2J `x` [a](javascript:b)"
OLD, NEW, BROKEN, EVIL = (f"acme/pii:{version}" for version in ("1.0.0", "1.1.0", "2.0.0", "2.1.0"))


def checked(root: Path, seed: str, recall: dict[str, float], **fields: Any) -> Draft:
    root.mkdir(parents=True)
    (root / "m.onnx").write_bytes(seed.encode())
    kind = {"metric": "character_recall", "verdict": "pass"}
    checks = [{"name": f"character_recall/{key}", "value": value, **kind} for key, value in recall.items()]
    artifact = DraftArtifact("onnx", "float32", "m.onnx", fields={"checks": checks})
    return Draft("acme/pii", root, (artifact,), (), fields)


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """1.0.0; 1.1.0 with a worse recall; 2.0.0 with its labels in another order; 2.1.0 hostile."""
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    made, labels = Registry(tmp_path / "home"), ["O", "NAME", "DATE"]
    worse = {"NAME": 0.95, "DATE": 0.98}
    made.add(checked(tmp_path / "1", "a", {"NAME": 0.99, "DATE": 0.97}, labels=labels), "1.0.0")
    made.add(checked(tmp_path / "2", "b", worse, labels=labels), "1.1.0")
    made.add(checked(tmp_path / "3", "b", worse, labels=labels[::-1]), "2.0.0")
    made.add(checked(tmp_path / "4", "c", {HOSTILE: 0.5}, labels=[HOSTILE], license=HOSTILE), "2.1.0")
    return made


def test_fail_on_names_the_first_changes(reg, registry):
    done = reg("diff", OLD, NEW, "--fail-on", "breaking,degrading")
    assert done.ended(8, "1 change that --fail-on breaking,degrading refuses: check value changed\n")
    assert done.out.startswith("An app that runs the old version can run the new one unchanged")
    done = reg("diff", OLD, BROKEN, "--fail-on", "breaking", "--json")
    assert (done.status, done.error["family"], done.json["compatible"]) == (8, "gate", False)
    assert "label reordered" in done.error["message"]
    for gate in ("bad", "", "breaking,", "Breaking"):
        assert reg("diff", OLD, NEW, "--fail-on", gate).ended(2, "breaking, degrading, notable, cosmetic")


@pytest.mark.parametrize("gate", [*SEVERITIES, ",".join(SEVERITIES)])
def test_fail_on_holds_exactly_where_a_change_has_it(gate, reg, registry):
    for one in (OLD, NEW, BROKEN):
        for other in (OLD, NEW, BROKEN):
            found = diff(registry.get(one).manifest, registry.get(other).manifest)
            refused = any(change.severity in gate.split(",") for change in found.changes)
            assert reg("--quiet", "diff", one, other, "--fail-on", gate).status == (8 if refused else 0)


def test_fail_on_sees_a_later_refusal(reg, registry, tmp_path):
    registry.add(
        checked(tmp_path / "5", "d", {"NAME": 0.99, "DATE": 0.97}, labels=["O", "NAME", "DATE"]), "1.0.1"
    )
    words = ("--quiet", "diff", OLD, "acme/pii:1.0.1", "--fail-on", "degrading")
    assert reg(*words).status == 0
    digest = registry.get("acme/pii:1.0.1").manifest.artifacts[0].digest
    owner.attest(registry, "acme/pii:1.0.1", refusal_of(str(digest)))
    assert reg(*words).status == 8
    (change,) = [
        change for change in reg(*words, "--json").json["changes"] if change["severity"] == "degrading"
    ]
    assert (change["kind"], change["old"], change["new"]) == ("certification-changed", "unknown", "refused")


def test_markdown(reg, registry):
    shown = reg("diff", OLD, NEW, "--markdown").out
    assert shown.startswith("### acme/pii:1.0.0 → acme/pii:1.1.0\n\n**An app that runs")
    assert r"| NAME | float32 | 0.9900 | 0.9500 | \-0.0400 | worse |" in shown
    assert r"| DATE | float32 | 0.9700 | 0.9800 | \+0.0100 | better |" in shown
    assert "\n#### 1 degrading\n\n- check value changed" in shown
    assert "<details><summary>2 notable</summary>" in shown
    evil = reg("diff", BROKEN, EVIL, "--markdown").out
    assert "\x1b" not in evil and r"\<script\>" in evil
    assert not re.search(r"(?<!\\)(<script|</script|\]\(javascript|`x)", evil)
    assert reg("diff", OLD, NEW, "--markdown", "--json").status == 2


LINKS = "https://evil.example HTTP://evil www.evil.example WWW.evil @name #1 org/repo#1 GH-1 a@b.c"


@pytest.mark.parametrize("text", LINKS.split())
def test_addresses_mentions_and_references_are_text_in_markdown(text):
    shown = escaped(f"see {text} there")
    assert not re.search(r"(?i)://|www\.|@\w|#\w|GH\\?-\d", shown)
    assert shown.replace("\\", "").replace("\u200b", "") == f"see {text} there"


def test_html_is_one_page_and_says_what_the_diff_says(reg, registry, tmp_path):
    words = ("diff", OLD, BROKEN, "--html")
    assert reg(*words, "page.html").err == "written to page.html\n"
    page = (tmp_path / "page.html").read_text()
    found = diff(registry.get(OLD).manifest, registry.get(BROKEN).manifest)
    assert f"<strong>{found.summary}</strong>" in page and str(tmp_path) not in page
    assert page.count('class="bar ') == 4
    assert not re.search(r"(src|href)=|url\(|@import|<script", page)
    assert page.index("1 breaking change<") < page.index("1 degrading change<")
    assert reg(*words, "page.html").status == 0
    for target in ("nowhere/page.html", tmp_path, tmp_path / "home" / "page.html"):
        assert reg(*words, target).status == 2
    page = reg("diff", BROKEN, EVIL, "--html", "evil.html") and Path("evil.html").read_text()
    assert "<script" not in page and "\x1b" not in page and "&lt;script&gt;" in page


def test_versions_of_two_registries(reg, registry, tmp_path):
    there = str(tmp_path / "there")
    registry.push(OLD, there)
    expected = reg("diff", OLD, NEW, "--json").json
    assert reg("diff", "acme/pii", NEW, "--from", there, "--json").json == expected
    assert reg("diff", NEW, NEW, "--from", there).status == 3
    assert reg("diff", NEW, NEW, "--remote", there).status == 3
    assert reg("diff", "acme/pii", OLD, "--remote", there).out == "The two versions do not differ.\n"
    back = reg("diff", NEW, "acme/pii", "--from", tmp_path / "home", "--remote", there, "--json")
    assert back.json["changes"] == reg("diff", NEW, OLD, "--json").json["changes"]


def evaluated(root: Path, figures: dict[str, tuple[float, str]], suite: str) -> Draft:
    """A version whose artifact was judged on a suite: figures by name, each with its direction."""
    draft, digest = checked(root, f"{suite} {figures}", {}), Digest.of(suite.encode())
    checks = [
        {"name": name, "metric": name.rpartition("/")[2], "value": value, "verdict": "pass"}
        | {"dataset": str(digest), "samples": 500, "limit": 0.01, "interval": [value - 0.001, value + 0.001]}
        | ({"direction": direction} if direction else {})
        for name, (value, direction) in figures.items()
    ]
    verdict = Verdict("unknown", "rule", suite=digest)
    judged = replace(draft.artifacts[0], verdict=verdict, fields={"checks": checks})
    return replace(draft, name="acme/embed", artifacts=(judged,))


def test_metrics_are_better_or_worse_by_their_direction_on_one_suite(reg, registry, tmp_path):
    before = {"sts/spearman": (0.83, "higher"), "sts/ppl": (12.5, "lower"), "quant_recall_delta": (0.001, "")}
    after = {"sts/spearman": (0.81, "higher"), "sts/ppl": (11.0, "lower"), "quant_recall_delta": (0.002, "")}
    for version, figures, suite in (("1.0.0", before, "a"), ("1.1.0", after, "a"), ("1.2.0", before, "b")):
        registry.add(evaluated(tmp_path / version, figures, suite), version)
    shown = reg("diff", "acme/embed:1.0.0", "acme/embed:1.1.0", "--markdown").out
    for row in (
        "| FIGURE | IN | BEFORE | AFTER | CHANGE | 95 % | VERDICT |",
        r"| sts/spearman | float32 | 0.8300 | 0.8100 | \-0.0200 | \-0.021, \-0.019 | worse |",
        r"| sts/ppl | float32 | 12.5000 | 11.0000 | \-1.5000 | \-1.501, \-1.499 | better |",
        r"| quant\_recall\_delta | float32 | 0.0010 | 0.0020 | \+0.0010 | \-0.000, \+0.002 | unclear |",
    ):
        assert row in shown
    reg("diff", "acme/embed:1.0.0", "acme/embed:1.1.0", "--html", "page.html")
    page = re.sub(r"\s+", " ", Path("page.html").read_text())
    assert '<span class="worse">-0.0200</span>' in page and '<span class="better">-1.5000</span>' in page
    other = ("diff", "acme/embed:1.1.0", "acme/embed:1.2.0")
    shown = reg(*other, "--markdown").out.replace("\\", "")
    assert "No figure is compared: the versions have no suite in common." in shown
    assert "worse" not in shown and "better" not in shown


# The screen: an ordinary retrain fits it, nothing is lost, and each form begins with it

NAME = "acme/tagger"
RETRAIN = ("diff", f"{NAME}:1.0.0", f"{NAME}:1.1.0")


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tagger of 20 labels: retrained, with one worse label; with 200 labels."""
    root = tmp_path_factory.mktemp("tagger")
    registry = Registry(root / "home", actor="ada@lab")
    registry.add(judged_draft(root / "1", 1), "1.0.0")
    registry.add(judged_draft(root / "2", 2, worse={"LABEL03": 0.9}), "1.1.0")
    for number in (6, 7):
        registry.add(judged_draft(root / str(number), number, labels=200), f"2.{number}.0")
    return registry.store.root


@pytest.fixture
def at_judged(judged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REG_HOME", str(judged))


def test_an_ordinary_retrain_is_one_screen(judged, at_judged, reg):
    status, drawn = on_a_terminal(judged, *RETRAIN, NO_COLOR="1")
    lines = drawn.splitlines()
    assert status == 0 and len(lines) <= 40 and max(map(len, lines)) <= 80
    text = re.sub(r"\s+", " ", drawn)
    worse = "LABEL03 in model_int8.onnx by 0.0801 (95 %: 0.0267 to 0.14)."
    assert f"1 of 44 comparable figures got worse: {worse}" in text
    assert "model_int8.onnx int8 17.5 kB certified same new" in text
    assert "LABEL03 int8 0.9801 0.9000 -0.0801 -0.140, -0.027 worse" in text
    assert "and 22 changes that follow (--full): 12 from new weights, 10 from the evaluation" in text
    done = reg(*RETRAIN)
    rows = [line for line in done.out.splitlines() if line.startswith("LABEL")]
    assert rows[0].endswith("worse") and all(line.endswith("unclear") for line in rows[1:])
    assert f"and {44 - len(rows)} figures more: 26 unclear, 1 better, 2 equal" in done.out
    many = reg("diff", f"{NAME}:2.6.0", f"{NAME}:2.7.0").out
    assert len(many.splitlines()) <= 40 and re.search(r"and 389 figures more: .*unclear", many)
    assert "\x1b[31mworse" in on_a_terminal(judged, *RETRAIN)[1] and "\x1b" not in drawn + done.out


def test_each_form_begins_with_the_screen_and_lists_every_change(at_judged, reg):
    document = reg(*RETRAIN, "--json").json
    overview, changes = document["overview"], document["changes"]
    head = reg(*RETRAIN).out.partition("\nand 22 changes")[0]
    full = reg(*RETRAIN, "--full").out
    assert full.startswith(head)
    listed = [line for line in full.removeprefix(head).splitlines() if line.startswith("  ")]
    assert listed == [f"  {change['message']}" for change in changes]
    tables = [overview[key] for key in ("artifacts", "figures", "facts", "folded")]
    positions = [position for table in tables for row in table for position in row["changes"]]
    assert sorted(positions) == list(range(len(changes)))
    verdict = overview["verdict"][1]
    shown = reg(*RETRAIN, "--markdown").out.replace("\\", "")
    assert shown.index(verdict) < shown.index("| LABEL03 |") < shown.index("#### 22 degrading")
    reg(*RETRAIN, "--html", "page.html")
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", Path("page.html").read_text()))
    assert page.index(verdict) < page.index("-0.1400 to -0.0267") < page.index("22 degrading changes")
