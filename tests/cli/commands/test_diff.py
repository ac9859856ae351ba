"""`reg diff` for people, programs, pages and gates, here and elsewhere."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import parser

from onnxreg.cli.reports.diff_report import escaped
from onnxreg.converters.importers.adopt import adopt_files
from onnxreg.registry import Registry
from onnxreg.schema.compare.manifests import diff
from onnxreg.schema.compare.severity import SEVERITIES
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, Verdict

Reg = Callable[..., Any]
HOSTILE = "<script>alert(1)</script> | \x1b[2J `x` [a](javascript:b)"
GRAPH = """<ir_version: 10, opset_import: ["" : 18]> g (float[n, 4] x) => (float[n, 2] y)
<float[4, 2] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}> { h = MatMul(x, w) y = Tanh(h) }"""


def checked(root: Path, seed: str, recall: dict[str, float], **fields: Any) -> Draft:
    root.mkdir(parents=True)
    (root / "m.onnx").write_bytes(seed.encode())
    checks = [
        {"name": f"character_recall/{label}", "metric": "character_recall", "value": value, "verdict": "pass"}
        for label, value in recall.items()
    ]
    return Draft(
        "acme/pii", root, (DraftArtifact("onnx", "float32", "m.onnx", fields={"checks": checks}),), (), fields
    )


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """1.0.0; 1.1.0 with a worse recall; 2.0.0 with its labels in another order; 2.1.0 hostile."""
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    made = Registry(tmp_path / "home")
    labels = ["O", "NAME", "DATE"]
    made.add(checked(tmp_path / "1", "a", {"NAME": 0.99, "DATE": 0.97}, labels=labels), "1.0.0")
    made.add(checked(tmp_path / "2", "b", {"NAME": 0.95, "DATE": 0.98}, labels=labels), "1.1.0")
    made.add(checked(tmp_path / "3", "b", {"NAME": 0.95, "DATE": 0.98}, labels=labels[::-1]), "2.0.0")
    made.add(checked(tmp_path / "4", "c", {HOSTILE: 0.5}, labels=[HOSTILE], license=HOSTILE), "2.1.0")
    return made


def model(folder: Path, text: str = GRAPH, producer: str = "") -> Path:
    folder.mkdir(parents=True)
    made = parser.parse_model(text)
    made.producer_name = producer
    onnx.save(made, folder / "model.onnx")
    return folder / "model.onnx"


@pytest.fixture
def models(tmp_path: Path, registry: Registry) -> Registry:
    """`m` in four versions: as it is, by another producer, with other weights, with another node."""
    for version, options in {
        "1.0.0": {},
        "1.0.1": {"producer": "another"},
        "1.1.0": {"text": GRAPH.replace("8.0", "6.0")},
        "1.2.0": {"text": GRAPH.replace("Tanh", "Sigmoid")},
    }.items():
        with registry.workspace() as workspace:
            registry.add(adopt_files([model(tmp_path / version, **options)], workspace, name="m"), version)  # type: ignore[arg-type]
    return registry


def test_fail_on_names_the_first_changes(reg: Reg, registry: Registry) -> None:
    done = reg("diff", "acme/pii:1.0.0", "acme/pii:1.1.0", "--fail-on", "breaking,degrading")
    assert done.status == 8
    assert "1 change that --fail-on breaking,degrading refuses: check value changed\n" in done.err
    assert done.out.startswith("An app that runs the old version can run the new one unchanged")
    done = reg("diff", "acme/pii:1.0.0", "acme/pii:2.0.0", "--fail-on", "breaking", "--json")
    assert (done.status, done.error["family"]) == (8, "gate")
    assert "label reordered" in done.error["message"]
    assert done.json["compatible"] is False


@pytest.mark.parametrize("gate", [*SEVERITIES, ",".join(SEVERITIES)])
def test_fail_on_holds_exactly_where_a_change_has_it(gate: str, reg: Reg, registry: Registry) -> None:
    for one in ("1.0.0", "1.1.0", "2.0.0"):
        for other in ("1.0.0", "1.1.0", "2.0.0"):
            found = diff(*(registry.get(f"acme/pii:{version}").manifest for version in (one, other)))
            refused = any(change.severity in gate.split(",") for change in found.changes)
            done = reg("--quiet", "diff", f"acme/pii:{one}", f"acme/pii:{other}", "--fail-on", gate)
            assert done.status == (8 if refused else 0)


@pytest.mark.parametrize("gate", ["bad", "", "breaking,", "Breaking"])
def test_fail_on_an_unknown_severity(gate: str, reg: Reg, registry: Registry) -> None:
    done = reg("diff", "acme/pii:1.0.0", "acme/pii:1.1.0", "--fail-on", gate)
    assert (done.status, done.out) == (2, "")
    assert "breaking, degrading, notable, cosmetic" in done.err


def test_markdown(reg: Reg, registry: Registry) -> None:
    shown = reg("diff", "acme/pii:1.0.0", "acme/pii:1.1.0", "--markdown").out
    assert shown.startswith("### acme/pii:1.0.0 → acme/pii:1.1.0\n\n**An app that runs")
    assert r"| NAME | float32 | 0.9900 | 0.9500 | \-0.0400 | worse |" in shown
    assert r"| DATE | float32 | 0.9700 | 0.9800 | \+0.0100 | better |" in shown
    assert "\n#### 1 degrading\n\n- check value changed" in shown
    assert "<details><summary>2 notable</summary>" in shown


def evaluated(root: Path, figures: dict[str, tuple[float, str]], suite: str = "suite") -> Draft:
    """A version whose artifact was judged on a suite: figures by name, each with its direction."""
    draft = checked(root, f"{suite} {figures}", {})
    (artifact,) = draft.artifacts
    digest = Digest.of(suite.encode())
    checks = [
        {"name": name, "metric": name.rpartition("/")[2], "value": value, "verdict": "pass"}
        | {"dataset": str(digest), "samples": 500, "limit": 0.01, "interval": [value - 0.001, value + 0.001]}
        | ({"direction": direction} if direction else {})
        for name, (value, direction) in figures.items()
    ]
    verdict = Verdict("unknown", "rule", suite=digest)
    judged = replace(artifact, verdict=verdict, fields={"checks": checks})
    return replace(draft, name="acme/embed", artifacts=(judged,))


@pytest.fixture
def embeddings(tmp_path: Path, registry: Registry) -> Registry:
    """1.0.0; 1.1.0 with other figures; 1.2.0 with the same on another suite."""
    before = {"sts/spearman": (0.83, "higher"), "sts/ppl": (12.5, "lower"), "quant_recall_delta": (0.001, "")}
    after = {"sts/spearman": (0.81, "higher"), "sts/ppl": (11.0, "lower"), "quant_recall_delta": (0.002, "")}
    versions = {"1.0.0": (before, "a"), "1.1.0": (after, "a"), "1.2.0": (before, "b")}
    for version, (figures, suite) in versions.items():
        registry.add(evaluated(tmp_path / version, figures, suite), version)
    return registry


def test_metrics_are_better_or_worse_by_their_direction(
    reg: Reg, embeddings: Registry, tmp_path: Path
) -> None:
    shown = reg("diff", "acme/embed:1.0.0", "acme/embed:1.1.0", "--markdown").out
    assert "| FIGURE | IN | BEFORE | AFTER | CHANGE | 95 % | VERDICT |" in shown
    for row in (
        r"| sts/spearman | float32 | 0.8300 | 0.8100 | \-0.0200 | \-0.021, \-0.019 | worse |",
        r"| sts/ppl | float32 | 12.5000 | 11.0000 | \-1.5000 | \-1.501, \-1.499 | better |",
        r"| quant\_recall\_delta | float32 | 0.0010 | 0.0020 | \+0.0010 | \-0.000, \+0.002 | unclear |",
    ):
        assert row in shown
    done = reg("diff", "acme/embed:1.0.0", "acme/embed:1.1.0", "--html", str(tmp_path / "page.html"))
    assert done.status == 0
    page = re.sub(r"\s+", " ", (tmp_path / "page.html").read_text())
    assert '<span class="worse">-0.0200</span>' in page and '<span class="better">-1.5000</span>' in page


def test_metrics_of_two_suites_are_not_compared(reg: Reg, embeddings: Registry, tmp_path: Path) -> None:
    shown = reg("diff", "acme/embed:1.1.0", "acme/embed:1.2.0", "--markdown").out
    assert "No figure is compared: they were measured on different suites." in shown.replace("\\", "")
    assert "worse" not in shown and "better" not in shown
    reg("diff", "acme/embed:1.1.0", "acme/embed:1.2.0", "--html", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert "different suites" in page and 'class="worse"' not in page


def test_show_lists_metrics_by_their_names(reg: Reg, embeddings: Registry) -> None:
    shown = re.sub(" +", " ", reg("show", "acme/embed:1.0.0", "--full").out)
    assert "m.onnx sts/spearman 0.83 0.01 500 pass" in shown
    assert "m.onnx sts/ppl 12.5 0.01 500 pass" in shown


def test_markdown_of_hostile_words_is_text(reg: Reg, registry: Registry) -> None:
    shown = reg("diff", "acme/pii:2.0.0", "acme/pii:2.1.0", "--markdown").out
    assert "\x1b" not in shown
    assert not re.search(r"(?<!\\)(<script|</script|\]\(javascript|`x)", shown)
    assert r"\<script\>" in shown


@pytest.mark.parametrize(
    "text",
    [
        "https://evil.example",
        "HTTP://evil",
        "www.evil.example",
        "WWW.evil",
        "@name",
        "#1",
        "org/repo#1",
        "GH-1",
        "a@b.c",
    ],
)
def test_addresses_mentions_and_references_are_text_in_markdown(text: str) -> None:
    shown = escaped(f"see {text} there")
    assert not re.search(r"(?i)://|www\.|@\w|#\w|GH\\?-\d", shown)
    assert shown.replace("\\", "").replace("\u200b", "") == f"see {text} there"


def test_html_is_one_page_and_says_what_the_diff_says(reg: Reg, registry: Registry, tmp_path: Path) -> None:
    done = reg("diff", "acme/pii:1.0.0", "acme/pii:2.0.0", "--html", "page.html")
    page = (tmp_path / "page.html").read_text()
    assert done.err == "written to page.html\n"
    found = diff(*(registry.get(f"acme/pii:{version}").manifest for version in ("1.0.0", "2.0.0")))
    assert f"<strong>{found.summary}</strong>" in page
    assert page.count('class="bar ') == 4
    assert not re.search(r"(src|href)=|url\(|@import|<script", page)
    assert page.index("1 breaking change<") < page.index("1 degrading change<")
    assert str(tmp_path) not in page


def test_html_says_that_it_replaced_a_file(reg: Reg, registry: Registry, tmp_path: Path) -> None:
    words = ("diff", "acme/pii:1.0.0", "acme/pii:1.1.0", "--html")
    (tmp_path / "page.html").write_text("mine")
    assert reg(*words, "page.html").err == "written to page.html in place of an earlier file\n"
    assert reg(*words, "nowhere/page.html").status == 2
    assert reg(*words, tmp_path).status == 2
    assert reg(*words, tmp_path / "home" / "page.html").status == 2


def test_html_on_stdout(reg: Reg, registry: Registry) -> None:
    done = reg("diff", "acme/pii:1.0.0", "acme/pii:1.1.0", "--html", "-")
    assert done.out.startswith("<!doctype html>") and done.out.rstrip().endswith("</html>")
    assert reg("diff", "acme/pii:1.0.0", "acme/pii:1.1.0", "--html", "-", "--json").status == 2
    assert reg("diff", "acme/pii:1.0.0", "acme/pii:1.1.0", "--markdown", "--json").status == 2


def test_hostile_words_in_the_page_are_text(reg: Reg, registry: Registry) -> None:
    page = reg("diff", "acme/pii:2.0.0", "acme/pii:2.1.0", "--html", "-").out
    assert "<script" not in page and "\x1b" not in page
    assert "&lt;script&gt;" in page


def test_without_jinja_the_extra_is_named(registry: Registry, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['jinja2'] = None;"
        "from onnxreg.cli.main import main;"
        "sys.exit(main(['diff', 'acme/pii:1.0.0', 'acme/pii:1.1.0', '--html', 'page.html']))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 9 and "[serve]" in done.stderr
    assert not (tmp_path / "page.html").exists()


def test_versions_of_two_registries(reg: Reg, registry: Registry, tmp_path: Path) -> None:
    there = str(tmp_path / "there")
    registry.push("acme/pii:1.0.0", there)
    expected = reg("diff", "acme/pii:1.0.0", "acme/pii:1.1.0", "--json").json
    assert reg("diff", "acme/pii", "acme/pii:1.1.0", "--from", there, "--json").json == expected
    assert reg("diff", "acme/pii:1.1.0", "acme/pii:1.1.0", "--from", there).status == 3
    same = reg("diff", "acme/pii", "acme/pii:1.0.0", "--remote", there)
    assert same.out == "The two versions do not differ.\n"
    assert reg("diff", "acme/pii:1.1.0", "acme/pii:1.1.0", "--remote", there).status == 3
    back = reg("diff", "acme/pii:1.1.0", "acme/pii", "--from", tmp_path / "home", "--remote", there, "--json")
    assert back.json["changes"] == reg("diff", "acme/pii:1.1.0", "acme/pii:1.0.0", "--json").json["changes"]


def test_same_weights_other_producer(reg: Reg, models: Registry) -> None:
    for version, word, note in (
        ("1.0.1", "same   same", "(another producer)"),
        ("1.1.0", "same   new", "(new weights)"),
        ("1.2.0", "new    same", "(another graph)"),
    ):
        assert word in reg("diff", "m:1.0.0", f"m:{version}").out
        assert note in reg("diff", "m:1.0.0", f"m:{version}", "--full").out
