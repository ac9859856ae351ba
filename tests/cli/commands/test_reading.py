"""`ls`, `query`, `show`, `history`, `log`, `index`, `config`, `builtin`, `sbom`: what they print, for people and programs."""

import hashlib
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.command_line import Reg, make_draft
from support.registries.judged import judged_draft
from support.servers.showroom import draft as showroom_draft
from support.servers.static import serve
from support.terminal import on_a_terminal
from support.trust.tamper import Tree

from onnxreg.cli import search_report
from onnxreg.cli.commands import query
from onnxreg.registry import Registry, system
from onnxreg.registry.search.catalogs import MODELS
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.formats import json_schema
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile, Verdict
from onnxreg.schema.query.fields import FIELDS

NAME, INT8 = "acme/pii", "model_int8.onnx"


def squeezed(text: str) -> str:
    return re.sub(r" +", " ", text)


def test_a_malformed_manifest_is_refused(reg, here, tmp_path):
    def change(value: Any) -> None:
        value["artifacts"][0].update(certification={"state": "certified"})

    (tmp_path / "model.onnx").write_bytes(b"model")
    here.add(Draft("small", tmp_path, (DraftArtifact("onnx", "float32", "model.onnx"),)))
    Tree(here.store.root).plant_manifest("small", change)
    reg("trust", "reset", here.id)
    for words in (("show", "small"), ("show", "small", "--json"), ("diff", "small", "small")):
        assert reg(*words).ended(4, "certified without evidence of the artifact")


def test_ls(reg, here):
    assert reg("ls").out == (
        "NAME      NEWEST  VERSIONS  CHANNELS\n"
        "acme/pii  0.2.0          2  stable=0.1.0\n"
        "tiny      0.1.0          1\n"
    )
    here.yank("acme/pii:0.2.0", "wrong labels")
    new, old = reg("ls", NAME, "--json").json["versions"]
    published = here.get("acme/pii:0.1.0")
    assert (new["version"], new["yanked"], old["manifest"]) == ("0.2.0", True, str(published.digest))
    assert old["size"] == sum({item.digest: item.size for item in published.manifest.all_files()}.values())
    header, first, second = (line.split() for line in reg("ls", NAME).out.splitlines())
    assert header == ["VERSION", "MANIFEST", "SIZE", "CHANNELS", "STATE"]
    assert first == ["0.2.0", new["manifest"][7:19], "yanked"]
    assert second == ["0.1.0", old["manifest"][7:19], *["43.8", "kB", "stable", "1", "of", "2", "refused"]]


@pytest.mark.parametrize(
    ("words", "key", "told"),
    [
        (["remote", "list"], "remotes", "there are no remotes: reg remote add"),
        (["ls"], "models", "empty holds no models yet: reg export"),
        (["ls", "--remote", "./empty"], "models", "holds no models yet: reg push brings some"),
        (["query"], "matches", "no artifact fits"),
        (["verify", "--signatures"], "versions", "there are no versions yet"),
    ],
    ids=str,
)
def test_an_empty_list_says_so(words, key, told, reg):
    assert told in reg("--registry", "nowhere", "remote", "list").out or "remote" not in words
    assert not Path("nowhere").exists()
    Registry("empty")
    assert told in reg("--registry", "empty", *words).out
    assert reg("--registry", "empty", *words, "--json").json[key] == []


def test_show(reg, here, tmp_path):
    data = reg("show", NAME, "--json").out.encode()
    assert (data, hashlib.sha256(data).hexdigest()) == (here.get(NAME).data, here.get(NAME).digest.hex)
    shown = reg("show", "acme/pii:0.1.0", "--full").out
    for line in (
        *("acme/pii:0.1.0", "source   acme/pii-base@main", "labels   2: O, B-NAME", "recipe   android v1"),
        "note: model.onnx: outside the mobile-safe operators: Einsum",
        "warning: model.onnx: opset 18 needs ORT 1.14",
        *("refused by G4/point: model_int8.onnx", "  recall of NAME falls by 0.02"),
        "skipped: ort: onnxruntime is not installed",
    ):
        assert line in shown.splitlines()
    rows = [line.split() for line in shown.splitlines()]
    assert [INT8, "onnx-int8", "int8", "8.8", "kB", "refused"] in rows
    assert [INT8, "quant_recall_delta", "0.02", "0.005", "120", "fail"] in rows
    assert "--full" not in shown and "--full" in reg("show", NAME).out
    made = make_draft(tmp_path / "w", name="local")
    source = {"id": made.name, "digest": str(Digest.of(b"files"))}
    here.add(replace(made, fields={**made.fields, "source": source}))
    assert reg("show", "local").ended(0, f"source   local files, digest {Digest.of(b'files').short}...")


def test_show_of_a_version_whose_files_are_gone(reg, here):
    """It says so, to programs too, and names no command that would fail."""
    assert reg("untag", f"{NAME}:stable").status == reg("gc", "--keep-versions", 1).status == 0
    assert reg("purge", "tiny:0.1.0", "--reason", "taken down").status == 0
    for ref, state in (("acme/pii:0.1.0", "expired"), ("tiny:0.1.0", "purged")):
        assert reg("resolve", ref).status == 3
        shown = reg("show", ref)
        assert shown.ended(0, state) and "reg resolve" not in shown.out and "reg pull" not in shown.out
        done = reg("show", ref, "--json")
        assert done.out.encode() == here.get(ref).data and state in json.loads(done.err)["warning"]


def test_log(reg, here):
    header, first, *_ = (line.split() for line in reg("log", NAME).out.splitlines())
    assert header == ["SEQ", "TIME", "EVENT", "WHAT", "ACTOR", "REASON"]
    assert (first[2:4], first[-2:]) == (["publish", "0.1.0"], ["ada", "first"])
    assert reg("--registry", "copy", "pull", "tiny", here.store.root).status == 0
    (line,) = reg("--registry", "copy", "log", "tiny", "--json").json["lines"]
    (original,) = reg("log", "tiny", "--json").json["lines"]
    assert line["via"].pop("time") >= line["event"]["time"]
    assert line["via"] == {"registry": here.id, "seq": 1, "head": original["digest"]}
    assert line["event"] == original["event"]


def test_sbom(reg, here):
    """The same on stdout, in a file, and from a remote."""
    printed = reg("sbom", "acme/pii:0.1.0")
    made = json.loads(printed.out)["metadata"]["component"]
    assert made["hashes"][0]["content"] == here.get("acme/pii:0.1.0").digest.hex
    assert reg("sbom", "acme/pii:0.1.0", "--output", "bill.json").out == "written to bill.json\n"
    assert Path("bill.json").read_text() == printed.out
    assert reg("push", "acme/pii:0.1.0", "./there").status == 0
    assert reg("sbom", "acme/pii:0.1.0", "--remote", "./there", "--json").out == printed.out
    dated = reg("sbom", NAME, "--timestamp", "2026-01-31T12:00:00Z").json
    assert dated["metadata"]["timestamp"] == "2026-01-31T12:00:00Z"
    for wrong in (
        "2026-02-30T12:00:00Z",
        "2026-01-31T24:00:01Z",
        "2026-01-31 12:00:00Z",
        "2026-01-31T12:00:00",
    ):
        assert reg("sbom", NAME, "--timestamp", wrong).status == 2


# Filters and expressions


@pytest.fixture
def shop(here: Registry, tmp_path: Path) -> Path:
    """The usual registry and a model of three versions: certified, not evaluated, a certified pre-release."""
    for version in ("1.0.0", "1.1.0", "2.0.0-rc.1"):
        root = tmp_path / "files" / version
        root.mkdir(parents=True)
        for name in ("model.onnx", INT8, "report.json"):
            (root / name).write_text(name)
        verdict = Verdict("certified", "G4/point", (), Digest.of(b"suite"), "report.json")
        small = DraftArtifact("onnx-int8", "int8", INT8, (), "model.onnx", verdict)
        artifacts = (DraftArtifact("onnx", "float32", "model.onnx"), small)
        companions, source = (DraftFile("report", "report.json"),), {"id": "acme/base", "digest": str(SOURCE)}
        made = Draft("acme/sure", root, artifacts, companions, {"source": source})
        here.add(
            replace(made, artifacts=artifacts[:1], companions=()) if version == "1.1.0" else made, version
        )
    return here.store.root


SOURCE = Digest.of(b"base")
INT8_OF_ALL = {"acme/pii": ("0.2.0", [INT8]), "acme/sure": ("1.0.0", [INT8]), "tiny": ("0.1.0", [INT8])}
FULL_OF_ALL = {
    name: (version, ["model.onnx"])
    for name, version in {"acme/pii": "0.2.0", "acme/sure": "1.1.0", "tiny": "0.1.0"}.items()
}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--certified", {"acme/sure": ("1.0.0", [INT8])}),
        ("--format onnx", {"acme/sure": ("1.1.0", ["model.onnx"])}),
        ("--format onnx --format onnx-int8", {**INT8_OF_ALL, "acme/sure": ("1.1.0", ["model.onnx"])}),
        ("acme/* --precision float32", {name: FULL_OF_ALL[name] for name in ("acme/pii", "acme/sure")}),
        ("acme/pii --certified", {}),
    ],
)
def test_filters_choose_the_newest_release_that_has_such_an_artifact(reg, shop, words, expected):
    found = {
        model["name"]: (model["version"], [artifact["path"] for artifact in model["artifacts"]])
        for model in reg("ls", *words.split(), "--json").json["models"]
    }
    assert found == expected


def test_a_filter_for_people(reg, shop):
    header, row = reg("ls", "--certified").out.splitlines()
    assert " ".join(header.split()) == "NAME VERSION ARTIFACT FORMAT PRECISION DOWNLOAD CERTIFICATION"
    assert row.split() == ["acme/sure", "1.0.0", INT8, "onnx-int8", "int8", "26", "B", "certified"]
    assert reg("ls", "").ended(2, "not a model name: ''")
    assert reg("ls", "--format", "nothing").out == "no release has such an artifact\n"
    assert reg("ls", "z*").out.endswith("is called z*\n")
    for glob, names in (("acme/*", ["acme/pii", "acme/sure"]), ("*[iy]", ["acme/pii", "tiny"]), ("z*", [])):
        assert [model["name"] for model in reg("ls", glob, "--json").json["models"]] == names
    assert reg("yank", "acme/pii:0.2.0").status == 0
    (model,) = reg("ls", NAME, "--format", "onnx-int8", "--json").json["models"]
    assert model["version"] == "0.1.0"


@pytest.mark.parametrize("words", [[], ["--json"], ["--certified"], ["--certified", "--json"]], ids=" ".join)
def test_damage_is_named_after_the_others_are_listed(reg, shop, words):
    (shop / "index" / "tiny.jsonl").write_bytes(b"{}\n")
    done = reg("ls", *words)
    assert done.ended(4, "the index of tiny in") and "acme/sure" in done.out
    assert reg("ls", "acme/*", *words).status == 0
    if not words:
        for number in range(search_report.MAX_NAMED_DAMAGES + 2):
            (shop / "index" / f"bad{number}.jsonl").write_bytes(b"{}\n")
        many = reg("ls")
        assert many.err.count("the index of bad") == search_report.MAX_NAMED_DAMAGES
        assert many.ended(4, "; and 3 more")


ALL = [
    (name, version, path)
    for name, version in ((NAME, "0.1.0"), (NAME, "0.2.0"), ("tiny", "0.1.0"))
    for path in ("model.onnx", INT8)
]


def found(reg: Reg, *words: str) -> list[tuple[str, str, str]]:
    done = reg("query", *words, "--json")
    assert (done.status, done.err) == (0, "")
    return [(match["name"], match["version"], match["artifact"]["path"]) for match in done.json["matches"]]


@pytest.mark.parametrize("line", query.EXAMPLES)
def test_the_examples_of_the_help_run(line, reg, here):
    done = reg(*shlex.split(line)[1:])
    assert (done.status, done.err) == (0, "") and done.out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], ALL),
        (["opset = 18 and 'stable' in channels"], ALL[:1]),
        (["version >= 0.2.0 and recall.NAME >= 0.9"], [ALL[3]]),
        (["newest", "acme/*"], ALL[2:4]),
        (["--limit", "3"], ALL[:3]),
    ],
    ids=str,
)
def test_an_expression_chooses(reg, here, words, expected):
    assert found(reg, *words) == expected


def test_an_answer_of_a_query(reg, here):
    answer = reg("query", "recall.NAME > 0.9 and stable in channels", "--json").json
    (match,) = answer["matches"]
    artifact = match.pop("artifact")
    assert [*match, *artifact] == list(FIELDS)
    resolved = reg("resolve", "acme/pii:stable", "--precision", "int8", "--json").json
    assert match["manifest"] == resolved["manifest"]
    assert {key: artifact[key] for key in resolved["artifact"]} == resolved["artifact"]
    assert reg("yank", "acme/pii:0.1.0").status == 0
    header, row = reg("query", "int8 in channels or (path = model_int8.onnx and yanked)").out.splitlines()
    columns = "NAME VERSION CHANNELS STATE ARTIFACT FORMAT PRECISION DOWNLOAD CERTIFICATION"
    assert header.split() == columns.split()
    assert row.split() == f"{NAME} 0.1.0 stable yanked {INT8} onnx-int8 int8 8.8 kB refused".split()
    assert reg("query", "certified").out == "no artifact fits\n"
    assert reg("query", "--limit", "3").out.endswith("\nand more: these are the first 3\n")
    more = [reg("query", "--limit", limit, "--json").json["more"] for limit in ("3", "6")]
    assert more == [True, False]


def test_a_wrong_expression_is_drawn(reg, here):
    done = reg("query", "newest and sise <= 30MB")
    assert (done.status, done.out) == (2, "")
    assert done.err == (
        "error: the expression cannot be read: there is no field sise\n"
        "  newest and sise <= 30MB\n"
        "             ~~~^\n"
        "hint: did you mean size?\n"
    )
    assert reg("query", NAME, "--json").error["hint"] == f"write name = {NAME}"
    escaped = reg("query", "name = 'a\x1b[2J' and\x1b")
    assert escaped.status == 2 and "\x1b" not in escaped.err


def test_another_registry_is_asked(reg, here, home):
    Registry("mine")
    for words in (["newest"], ["newest", "acme/*"], ["newest", "tiny", "--limit", "1"]):
        own = reg("query", *words, "--json")
        (home / "local" / MODELS).unlink()
        there = reg("--registry", "mine", "query", *words, "--remote", "./home", "--json")
        assert (there.status, there.json) == (0, own.json)
        assert not (home / "local" / MODELS).exists()
    for where in ([], ["--remote", "./home"]):
        assert reg("query", "newest", "tinny", *where).ended(3, "did you mean tiny?")
        assert reg("query", "newest", "tinny*", *where).out == "no artifact fits\n"
    with serve(home) as url:
        assert reg("query", "newest", "--remote", url).ended(6, "a web server does not list what it has")
        assert found(reg, "newest", "tiny", "--remote", url) == ALL[4:]


def test_a_table_is_written(reg, here):
    file = Path("all.jsonl")
    done = reg("query", "precision = int8", "--export", file)
    assert (done.status, done.out) == (0, f"3 artifacts written to {file}\n") and file.stat().st_size
    assert reg("query", "--export", file, "--json").json == {"path": str(file), "rows": 6}
    rows = map(json.loads, file.read_text().splitlines())
    assert [tuple(row[key] for key in ("name", "version", "path")) for row in rows] == ALL


# The published catalog


@pytest.mark.parametrize("words", [("ls",), ("query", "newest")])
def test_an_answer_of_a_catalog_says_how_old_it_is(words, here, reg):
    home = here.store.root
    assert reg("index", "publish").ended(0, "2 models, 6 artifacts, ")
    document = reg("index", "publish", "--json").json
    assert document["size"] == (home / "search" / "catalog.jsonl.gz").stat().st_size
    assert reg("verify").status == 0
    own = ("--registry", "own")
    with serve(home) as url:
        done = reg(*own, *words, "--remote", url)
        assert done.ended(0, NAME, "--max-age 0s") and done.err.startswith(f"catalog: {url} as it was ")
        assert reg(*own, *words, "--remote", url, "--json").json["snapshot"] == document["time"]
        assert reg(*own, *words, "--remote", url, "--max-age", "0s").ended(6, "reg index publish")
        assert reg("index", "publish", "--remote", url).status != 0
    done = reg(*own, *words, "--remote", home, "--max-age", "0s", "--json")
    assert (done.err, done.json) == ("", reg(*words, "--json").json)
    exported = reg("query", "--remote", home, "--export", "table.csv", "--json").json
    assert exported == {"path": "table.csv", "rows": 6, "snapshot": document["time"]}


# Screens of versions that were judged

TAGGER = "acme/tagger"


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tagger of 20 labels, a small model that is refused, and four versions of another tagger for `history`."""
    root = tmp_path_factory.mktemp("judged")
    registry = Registry(root / "home", actor="ada@lab")
    registry.add(judged_draft(root / "1", 1), "1.0.0")
    refused = showroom_draft(root / "2", NAME, "a", {"DATE": 0.9, "NAME": 0.99})
    fields = {"operators": [{"domain": "com.microsoft", "name": "BiasGelu", "opset": 1}]}
    refused.artifacts[1].fields.update(fields)  # type: ignore[attr-defined]
    registry.add(refused, "1.0.0")
    for number, suite in enumerate(("suite", "other", "suite", "suite")):
        worse = {"LABEL01": 0.9 + number / 100}
        made = judged_draft(root / f"h{number}", number, 3, suite, "acme/old", worse)
        registry.add(made, f"1.{number}.0")
    registry.tag("acme/old:1.2.0", "stable")
    registry.yank("acme/old:1.3.0", "leak")
    return registry.store.root


@pytest.fixture
def at_judged(judged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REG_HOME", str(judged))


def test_the_screen_of_a_version(judged, at_judged, reg):
    status, drawn = on_a_terminal(judged, "show", TAGGER, NO_COLOR="1")
    lines = drawn.splitlines()
    assert status == 0 and len(lines) <= 45 and max(map(len, lines)) <= 80
    text = squeezed(drawn)
    assert re.search(r"^model.onnx .* reference$", text, re.MULTILINE)
    assert re.search(r"^model_fp16.onnx .* certified$", text, re.MULTILINE)
    assert "and 38 checks more (--full)" in text and "suite sha256:" in text
    screen, full = reg("show", TAGGER).out, reg("show", TAGGER, "--full").out
    assert re.search(r"^model_int8.onnx .* certified, interval above the limit$", screen, re.MULTILINE)
    assert full.startswith(screen.partition("\nand ")[0])
    assert full.count("LABEL") == 40 + screen.count("LABEL")
    assert "recall_delta.json" in full and "recall_delta.json" not in screen


def test_the_screen_of_a_refused_version(at_judged, judged, tmp_path, reg):
    text = squeezed(reg("show", NAME).out)
    assert re.search(r"^model_int8.onnx .* refused$", text, re.MULTILINE)
    assert "refused by G4/point: model_int8.onnx\n DATE: recall falls by 0.0931" in text
    assert text.index("model_int8.onnx DATE 0.9 ") < text.index("model_int8.onnx NAME 0.99 ")
    for line in (
        "inputs input_ids int64[batch, tokens], attention_mask int64[batch, tokens]",
        "outputs logits float32[batch, tokens, 13]",
        "opset ai.onnx 18",
        "also model_int8.onnx: 1 operator: com.microsoft:BiasGelu",
    ):
        assert line in text.splitlines()
    assert "reg pull acme/pii:1.0.0 REMOTE --output DIRECTORY" in text
    there = str(tmp_path / "over there")
    Registry(judged).push(NAME, there)
    shown = reg("show", NAME, "--remote", there)
    assert shown.ended(0, f"reg pull acme/pii:1.0.0 '{there}' --output DIRECTORY")


def test_history_says_refused_of_versions_beyond_the_index_file_too(reg, here, tmp_path):
    for number in range(3, 8):
        here.add(make_draft(tmp_path / f"{number}", seed=f"{number}"), f"0.{number}.0")
    rows = reg("history", NAME, "--json").json["versions"]
    assert len(here.state(NAME).summaries) < len(rows) and {row["status"] for row in rows} == {"refused"}


def test_history(at_judged, judged, reg):
    words = ("history", "acme/old", "--metric", "LABEL01", "--precision", "int8")
    title, _, header, *rows = reg(*words).out.splitlines()
    assert title == "acme/old: character_recall/LABEL01"
    assert header.split() == ["VERSION", "DATE", "STATE", "ARTIFACT", "SIZE", "VERDICT", "VALUE"]
    assert [re.sub(r"\d{4}-\d\d-\d\d", "DATE", re.sub(r"\s+", " ", row)).strip() for row in rows] == [
        "1.3.0 DATE yanked model_int8.onnx 17.5 kB certified 0.93",
        "1.2.0 DATE stable model_int8.onnx 17.5 kB certified 0.92",
        "1.1.0 DATE model_int8.onnx 17.5 kB certified 0.91 other suite",
        "1.0.0 DATE model_int8.onnx 17.5 kB certified 0.9",
    ]
    document = reg("history", "acme/old", "--last", "2", "--json").json
    assert [row["version"] for row in document["versions"]] == ["1.3.0", "1.2.0"]
    assert document["versions"][0]["artifacts"][2]["figures"]["character_recall/LABEL01"] == 0.93
    drawn = on_a_terminal(judged, "history", "acme/old", NO_COLOR="1")[1].splitlines()
    assert "quant_recall_delta" in drawn[0] and max(map(len, drawn)) <= 80
    assert reg("history", "acme/old", "--metric", "LABEL1").ended(3, "did you mean LABEL01")
    Registry(judged).push("acme/old:1.0.0", "./there")
    shown = reg("history", "acme/old", "--remote", "./there").out
    assert "1.0.0" in shown and "1.1.0" not in shown


# What the program itself has


@pytest.mark.parametrize("name", json_schema.MODELS)
def test_schema(reg, name):
    assert reg("builtin", "schemas", name).out == json_schema.text(name)
    assert json.loads(json_schema.text(name))["$id"] == f"urn:onnxreg:{name}"
    assert name in reg("builtin", "schemas").out.splitlines()


PASSES = {
    "ModelBuilder": [
        ["precision", "int4 | int8 | fp16 | fp32", "required"],
        ["int4_block_size", "16 | 32 | 64 | 128 | 256", "32"],
        ["int4_accuracy_level", "1 | 2 | 3 | 4"],
    ],
    "OnnxConversion": [
        ["target_opset", "integer >= 7, <= 26", "18"],
        ["use_dynamo_exporter", "true | false | auto", "false"],
    ],
    "OnnxDynamicQuantization": [["op_types_to_quantize", "list of (MatMul | Gemm | Conv | Gather)", "[MatMul, Gemm]"]],
    "DynamicToFixedShape": [["dim_param", "list of text"], ["input_shape", "list of list of integer > 0"]],
}  # fmt: skip


@pytest.mark.parametrize("name", PASSES)
def test_passes(reg, name):
    lines = [re.split("  +", line) for line in reg("builtin", "passes", name).out.splitlines()]
    assert lines[2][:2] == ["PARAMETER", "TYPE"]
    assert [line for line in lines if line in PASSES[name]] == PASSES[name]
    assert reg("builtin", "passes", "MobileSafeRewrite").out.splitlines()[2:] == ["no parameters"]
    assert reg("builtin", "passes").ended(0, name, "OrtMixedPrecision")


def config(reg: Reg, part: str, *words: object) -> dict[str, Any]:
    return {each["name"]: each for each in reg(*words, "config", "--json").json[part]}


def test_config_names_every_place_and_what_decides_it(reg, home, own_user, tmp_path, monkeypatch):
    places = config(reg, "places", "--registry", home)
    named = {"name": "registry", "path": str(home), "source": "--registry", "exists": True}
    assert places["registry"] == named
    for name in ("keys", "trust", "state"):
        found = places[name]
        assert (found["path"], found["source"]) == (str(own_user / name), f"REG_{name.upper()}")
    monkeypatch.setenv("REG_HOME", "mine")
    monkeypatch.setenv("REG_MAX_AGE", "")
    registry = config(reg, "places")["registry"]
    assert (registry["path"], registry["source"]) == (str(tmp_path / "mine"), "REG_HOME")
    variables = config(reg, "variables")
    assert variables["REG_HOME"] == {"name": "REG_HOME", "value": "mine", "source": "REG_HOME"}
    assert "REG_MAX_AGE" not in variables
    shown = [line.split() for line in reg("config").out.splitlines()]
    assert ["registry", str(tmp_path / "mine"), "REG_HOME", "no"] in shown
    for name in ("REG_KEYS", "REG_TRUST", "REG_STATE", "REG_HOME"):
        monkeypatch.delenv(name)
    defaults = config(reg, "places")
    assert {each["source"] for each in defaults.values()} == {"default"}
    assert defaults["trust"]["path"] == str(system.trust_file())


@pytest.mark.parametrize(
    "name", ["REG_TOKEN_MODELS_EXAMPLE", "REG_SERVE_TOKEN", "REG_KEY_PASSPHRASE", "REG_SIGNING_KEY"]
)
def test_no_secret_is_shown(reg, monkeypatch, name):
    monkeypatch.setenv(name, "s3cret")
    done, shown = reg("config", "--json"), reg("config")
    assert config(reg, "variables")[name]["value"] is None
    assert "s3cret" not in done.out + shown.out
    assert [name, "(secret)", name] in [line.split() for line in shown.out.splitlines()]
    if name == "REG_SIGNING_KEY":
        monkeypatch.setenv("REG_KEY_PASSPHRASE", "a passphrase")
        monkeypatch.setenv("REG_SIGNING_KEY", "release")
        reg("key", "new", "release")
        assert config(reg, "variables")[name]["value"] == "release"


def test_every_documented_variable_can_be_shown():
    assert set(system.VARIABLES) - set(system.variable_names()) == {"REG_TOKEN_HOST"}


@pytest.mark.parametrize(
    ("variable", "value", "source"),
    [(None, "ada@analytical", "default"), ("ci", "ci", "REG_ACTOR"), ("", None, "REG_ACTOR")],
)
def test_the_actor_is_shown_and_logged(reg, here, monkeypatch, variable, value, source):
    monkeypatch.delenv("REG_ACTOR")
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    monkeypatch.setattr("socket.gethostname", lambda: "analytical")
    if variable is not None:
        monkeypatch.setenv("REG_ACTOR", variable)
    assert reg("config", "--json").json["settings"] == [{"name": "actor", "value": value, "source": source}]
    assert ["actor", value or "(nobody)", source] in [line.split() for line in reg("config").out.splitlines()]
    assert reg("tag", f"{NAME}:0.1.0", "beta").err == ""
    assert reg("log", NAME, "--json").json["lines"][-1]["event"].get("actor") == value


def test_what_is_not_utf_8_enters_no_log(reg, here, monkeypatch):
    assert reg("purge", "tiny:0.1.0", "--reason", "caf\udce9").ended(2, "hint: write it in UTF-8: --reason")
    monkeypatch.setenv("REG_ACTOR", "ren\udce9")
    assert reg("tag", f"{NAME}:0.1.0", "beta").ended(2, "hint: write it in UTF-8: REG_ACTOR")
    assert [len(here.log(name)) for name in ("tiny", NAME)] == [1, 3]
