"""`export`, `add`: what they hand to the converters, publish, push and say; checkpoints, ONNX files, profiles, searches."""

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from safetensors.numpy import save_file
from support import in_process
from support.command_line import make_draft
from support.docs.nets import write_mlp

from onnxreg.cli import batch
from onnxreg.converters import request as module
from onnxreg.converters.engine.plan import read_recipe
from onnxreg.converters.evaluation.latency import Latency, LatencyTable
from onnxreg.converters.passes import model_builder
from onnxreg.converters.passes.model_builder import LIBRARY_BYTES, PARAMETER_BYTES, peak_memory
from onnxreg.converters.profiles.profile_catalog import find
from onnxreg.converters.request import ExportRequest
from onnxreg.converters.source import toolchain
from onnxreg.converters.tasks.code import Consent
from onnxreg.registry import Registry
from onnxreg.registry.trust.signatures import attest_benchmark
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import ConversionError
from onnxreg.schema.inputs.recipe_file import Benchmark
from onnxreg.schema.manifest.vocabulary import FILENAME
from onnxreg.schema.query.runtimes import NEWEST

pytestmark = pytest.mark.usefixtures("reader_in_process")
ANDROID = ("--registry", "r", "export", "x", "--profile", "android", "--name", "acme/x")
FIXED = "task: onnx\nsteps: [{name: f, pass: DynamicToFixedShape, params: {dim_param: [batch], dim_value: [1]}}]\n"


@dataclass(frozen=True)
class Ordered:
    """An order of which nothing is known but that it is another one than those before."""

    name: str
    number: int

    def warnings(self) -> tuple[str, ...]:
        return ()


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A converter that needs no torch: what it was asked for, call by call."""
    calls: list[Any] = []

    def plan(request: ExportRequest) -> Ordered:
        calls.append(request)
        return Ordered(request.name or "acme/pii", len(calls))

    def run(order: Ordered, workspace: Path, cache: Any, progress: Any) -> Any:
        progress.step("converting to ONNX")
        return make_draft(workspace / "made", order.name), []

    monkeypatch.setattr(ExportRequest, "plan", plan)
    monkeypatch.setattr(module, "run", run)
    return calls


def test_export_publishes_writes_out_and_says_so(reg, exported):
    done = reg(*ANDROID, "--output", "out", "--json")
    assert (done.status, done.err) == (0, "")
    assert exported == [ExportRequest("x", "acme/x", "android", allow_code=Consent(source="x"))]
    value = done.json
    keys = "ref name version new digest manifest states yanked newer output"
    assert (set(value), value["ref"], value["output"]) == (set(keys.split()), "acme/x:0.1.0", "out")
    assert value["digest"] == str(Digest.of(Path("out", FILENAME).read_bytes()))
    assert reg("--registry", "r", "show", value["ref"], "--json").json == value["manifest"]
    words = ("--registry", "r", "export", "acme/pii@main", "--profile", "android", "--version", "1.0.0")
    done = reg(*words)
    assert done.err == "converting to ONNX ...\n"
    assert done.out.startswith("published acme/pii:1.0.0\nmanifest sha256:")
    for line in (
        "note: model.onnx: outside the mobile-safe operators: Einsum",
        "warning: model.onnx: opset 18 needs ORT 1.14",
        *("refused by G4/point: model_int8.onnx", "  recall of NAME falls by 0.02"),
        "skipped: ort: onnxruntime is not installed",
    ):
        assert line in done.out.splitlines()
    assert reg(*words).out.startswith("nothing new: this is acme/pii:1.0.0\n")


def test_export_hands_every_option_on(reg, exported):
    spans = [{"start": 0, "end": 3, "label": "NAME"}]
    Path("golden.jsonl").write_text(json.dumps({"id": "a", "text": "Ann", "gold_spans": spans}) + "\n")
    suite = ("--eval-suite", "golden.jsonl", "--min-gold-chars", 50, "--min-parent-recall", 0.7)
    words = ("--int8-embeddings", "--max-seq-length", 128, *suite, "--trust-remote-code")
    assert reg(*ANDROID, *words).status == reg(*ANDROID, "--no-int8").status == 0
    evaluation = {"eval_suite": Path("golden.jsonl"), "min_gold_chars": 50, "min_parent_recall": 0.7}
    first = {"int8_embeddings": True, "max_seq_length": 128, **evaluation}
    assert [request.options for request in exported] == [first, {"int8": False}]
    assert [request.trust_remote_code for request in exported] == [True, False]


ENDS = {"it broke": ConversionError("it broke"), "interrupted": KeyboardInterrupt()}


@pytest.mark.parametrize("end", ENDS)
def test_a_failed_export_leaves_nothing(end, reg, exported, monkeypatch):
    def run(order: Any, workspace: Path, cache: Any, progress: Any) -> Any:
        (workspace / "model.onnx").write_bytes(b"half")
        raise ENDS[end]

    monkeypatch.setattr(module, "run", run)
    status = 130 if end == "interrupted" else 7
    assert reg(*ANDROID, "--output", "out").ended(status, end)
    assert not Path("out").exists() and not Path("r").exists()


def test_a_failed_export_leaves_an_empty_directory_as_it_was(reg):
    Path("r").mkdir()
    done = reg("--registry", "r", "export", "json:lods", "--task", "pooling", "--name", "x")
    assert done.status in (2, 3, 9) and list(Path("r").iterdir()) == []


def test_an_export_that_cannot_be_written_out_says_that_it_was_published(reg, exported, monkeypatch):
    made = module.run

    def run(*about: Any) -> Any:
        Path("out").mkdir()
        Path("out", "thesis.txt").write_text("somebody came first")
        return made(*about)

    monkeypatch.setattr(module, "run", run)
    done = reg(*ANDROID, "--version", "1.0.0", "--output", "out")
    assert done.ended(2, "error: published acme/x:1.0.0, but out holds thesis.txt")
    assert reg("--registry", "r", "show", "acme/x:1.0.0").status == 0


def test_latencies_lost_by_an_interruption_are_logged_by_the_next_export(reg, exported, monkeypatch):
    made, stops = module.run, iter([True, False, True, False])
    latencies = [Latency(("model.onnx",), 1, 1.0, 1.0, runs) for runs in (5, 6)]

    def attest(*about: Any) -> None:
        if next(stops):
            raise KeyboardInterrupt
        attest_benchmark(*about)

    tables = [LatencyTable(Benchmark(), (latency,)) for latency in latencies]
    monkeypatch.setattr(module, "run", lambda *about: (made(*about)[0], tables))
    monkeypatch.setattr("onnxreg.registry.trust.signatures.attest_benchmark", attest)
    assert [reg(*ANDROID).status for _ in range(4)] == [130, 130, 0, 0]
    found = reg("--registry", "r", "show", "acme/x", "--benchmark", "--json").json["benchmarks"]
    assert [item["artifacts"][0]["checks"][0]["samples"] for item in found] == [5, 6]


@pytest.mark.parametrize("option", ["--version 1.0", "--output a-file/below", "--output dangling"])
def test_what_cannot_be_published_is_refused_before_the_work(reg, exported, option):
    Path("a-file").write_text("thesis")
    Path("dangling").symlink_to("elsewhere")
    assert reg(*ANDROID, *option.split()).ended(2, option.split()[1])
    assert exported == [] and not Path("elsewhere").exists()


# `reg add`, and ONNX files as a source


def test_add_registers_a_model_and_its_companions(reg, tmp_path):
    write_mlp(tmp_path / "mlp.onnx")
    Path("config.json").write_text("{}")
    words = ("--registry", "r", "add", "mlp.onnx", "config.json", "--name", "acme/mlp")
    value = reg(*words, "--json").json
    (artifact,) = value["manifest"]["artifacts"]
    assert (value["ref"], artifact["format"], artifact["precision"]) == ("acme/mlp:0.1.0", "onnx", "float32")
    assert artifact["metadata"]["operators"] == ["MatMul", "Relu"]
    assert reg(*words, "--format", "onnx", "--version", "1.0.0").out.startswith("published acme/mlp:1.0.0")
    model = onnx.load("mlp.onnx")
    model.opset_import[0].version = NEWEST.opset + 2
    onnx.save(model, "new.onnx")
    new = reg("--registry", "r", "add", "new.onnx", "--name", "me/new")
    assert new.ended(0, "warning: new.onnx", NEWEST.opset + 2)


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    write_mlp(tmp_path / "mlp.onnx")
    Path("pooling.yaml").write_text("task: pooling\nsteps: [{name: fp32, pass: OnnxConversion}]\n")
    Path("texts.jsonl").write_text('{"text": "a"}\n')
    Path("empty.jsonl").write_text("")
    for name, rows in {"rows": 220, "none": 0}.items():
        np.savez(f"{name}.npz", x=np.random.default_rng(0).standard_normal((rows, 64)).astype(np.float32))
    return tmp_path / "mlp.onnx"


def test_an_onnx_file_is_published_byte_for_byte_with_int8_judged_beside_it(reg, mlp):
    words = ("export", mlp, "--quantize", "--eval-suite", "rows.npz", "--name", "me/mlp", "--json")
    done = reg("--registry", "r", *words)
    assert done.status == 0, done.err
    full, int8 = done.json["manifest"]["artifacts"]
    assert full["digest"] == f"sha256:{hashlib.sha256(mlp.read_bytes()).hexdigest()}"
    found = (int8["precision"], int8["parent"], int8["certification"]["state"])
    assert found == ("int8", full["digest"], "certified")
    assert "output_cosine" in {check["metric"] for check in int8["checks"]} and "not top_1" in done.err


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("none.onnx --quantize", 3, "none.onnx"),
        ("mlp.onnx --opset 17", 2, "--opset"),
        ("mlp.onnx --task pooling", 2, "mlp.onnx"),
        ("mlp.onnx --quantize --eval-suite texts.jsonl", 2, "texts.jsonl"),
        ("mlp.onnx --quantize --eval-suite empty.jsonl", 2, "empty.jsonl"),
        ("mlp.onnx --quantize --eval-suite none.npz", 2, "none.npz"),
        ("mlp.onnx --recipe pooling.yaml", 2, "pooling.yaml: its task is pooling"),
    ],
)
def test_what_an_onnx_file_does_not_take_is_refused(reg, mlp, words, status, said):
    assert reg("--registry", "r", "export", *words.split(), "--name", "me/mlp").ended(status, said)
    assert not Path("r").exists()


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json"])
def test_a_link_beside_a_file_publishes_nothing_of_the_user(reg, mlp, name):
    """A cloned directory may link to any file."""
    folder = Path("clone")
    folder.mkdir()
    mlp.rename(folder / mlp.name)
    Path("secret.json").write_text('{"key": "hunter2"}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to("../secret.json")
    assert reg("--registry", "r", "export", folder / mlp.name, "--name", "me/mlp").ended(2, name)


# --push

PUSHED = ("--registry", "r", "export", "mlp.onnx", "--recipe", "fixed.yaml", "--name", "acme/x")


@pytest.fixture
def share(mlp: Path, tmp_path: Path) -> Path:
    Path("fixed.yaml").write_text(FIXED)
    return tmp_path / "share"


def versions(root: str | Path) -> list[str]:
    return [str(version) for version in Registry(root, create=False).state("acme/x").versions]


def test_a_version_is_published_and_pushed(reg, share):
    lines = reg(*PUSHED, "--push", "./share").out.splitlines()
    assert lines[0] == "published acme/x:0.1.0" and lines[-1].startswith(f"pushed acme/x:0.1.0 to {share}: ")
    assert versions("r") == versions("share") == ["0.1.0"]
    lines = reg(*PUSHED, "--push", "./share").out.splitlines()
    assert lines[0] == "nothing new: this is acme/x:0.1.0"
    assert lines[-1].startswith("nothing to do: acme/x:0.1.0 is up to date")
    pushed = reg(*PUSHED, "--push", "./other", "--json").json["pushed"]
    assert (pushed["ref"], pushed["events"], Path(pushed["remote"]).name) == ("acme/x:0.1.0", 1, "other")


def test_after_a_failed_push_the_version_stays(reg, share, tmp_path):
    Registry(share).add(make_draft(tmp_path / "w", name="acme/x"), "0.1.0")
    done = reg(*PUSHED, "--push", share)
    told = f"to try again: reg push acme/x:0.1.0 {share}\n"
    assert done.ended(5, "error: acme/x:0.1.0 is published here, but not pushed: ", told)
    assert done.out.startswith("published acme/x:0.1.0\n") and versions("r") == ["0.1.0"]
    done = reg(*PUSHED, "--push", share, "--json")
    assert (done.status, done.error["family"], done.json["pushed"]) == (5, "conflict", None)
    row = {"source": "mlp.onnx", "recipe": "fixed.yaml", "name": "acme/x"}
    Path("jobs.yaml").write_text(json.dumps([row]))
    words = ("--registry", "r", "export", "--batch", "jobs.yaml", "--jobs", 1, "--push", "./empty")
    assert [job["pushed"] for job in reg(*words, "--json").json["jobs"]] == [True]
    assert versions("empty") == ["0.1.0"]


# --task


@pytest.fixture(scope="module")
def encoder(make_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint("bert", "").rename(tmp_path_factory.mktemp("secret-folder") / "secret-checkpoint")


def test_a_task_is_exported_published_and_rebuilt(reg, encoder, tmp_path, monkeypatch):
    words = ("--registry", "r", "export", encoder, "--task", "pooling", "--quantize", "--name", "acme/x")
    words = (*words, "--opset", 17, "--max-seq-length", 16)
    done = reg(*words, "--json")
    assert (done.status, done.err) == (0, "")
    manifest = done.json["manifest"]
    files = [(item["path"], item["precision"]) for item in manifest["artifacts"]]
    assert files == [("model.onnx", "float32"), ("model_int8.onnx", "int8")]
    assert {item["opset_imports"]["ai.onnx"] for item in manifest["artifacts"]} == {17}
    assert (manifest["task"], manifest["max_sequence_length"]) == ("pooling", 16)
    assert manifest["recipe"]["parameters"]["got"]["pooling"] == {"mode": "mean", "normalize": False}
    assert reg("--registry", "r", "rebuild", "acme/x", "--source", encoder).status == 0
    assert reg(*words).out.startswith("nothing new: this is acme/x:0.1.0")
    weights = shutil.copytree(encoder, tmp_path / "other") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    monkeypatch.setattr(module, "run", None)  # the refusal comes before the work
    assert reg(*words[:3], weights.parent, *words[4:], "--version", "0.1.0").ended(5, "is already published")


@pytest.mark.more
def test_licence_and_description_are_of_the_version_and_its_rebuild(reg, encoder):
    words = *PUSHED[:3], encoder, *["--task", "default", "--name", "acme/x", "--license", "mit"]
    first = reg(*words, "--description", "Vectors", "--json").json["manifest"]
    assert (first["license"], first["description"]) == ("MIT", "Vectors")
    (artifact,) = first["artifacts"]
    assert (artifact["opset_imports"]["ai.onnx"], artifact["precision"]) == (14, "float32")
    other = reg(*words, "--description", "Vectors of texts", "--json").json
    assert (other["version"], other["manifest"]["artifacts"]) == ("0.1.1", first["artifacts"])
    assert reg("--registry", "r", "rebuild", "acme/x", "--source", encoder).status == 0
    assert reg(*words[:-1], "mti").ended(2, "no licence is called 'mti'")


@pytest.mark.more
def test_embedding_tables_are_int8_on_request(reg, encoder):
    words = ("--registry", "r", *POOLED.split(), encoder, "--json")
    plain, small = reg(*words).json["manifest"], reg(*words, "--int8-embeddings").json["manifest"]
    counts = [each["artifacts"][1]["quantization"]["measured"] for each in (plain, small)]
    assert counts[0]["weights_quantized"] < counts[0]["weights_total"] == counts[1]["weights_quantized"]
    assert small["artifacts"][1]["size"] < plain["artifacts"][1]["size"]
    step = next(step for step in small["recipe"]["steps"] if step["name"] == "int8")
    assert step["result"]["embeddings"]["tables"] == step["result"]["embeddings"]["tables_quantized"] > 0


POOLED = "export --task pooling --quantize --name acme/x"
CHOOSE = "--task pooling --certify --eval-suite choose.jsonl"
TOO_NEW = "there is no opset {} to export to\nhint: PyTorch's exporters support 7 to 23\n"


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("--task pooling --profile android", 2, "profile and task"),
        ("--task pooling --no-int8", 2, "--no-int8"),
        ("--task pooling --min-gold-chars 3", 2, "--min-gold-chars"),
        ("--task pooling --int8-embeddings", 2, "--quantize"),
        ("--profile android --quantize", 2, "--quantize"),
        ("--recipe pooling.yaml --quantize", 2, "--quantize"),
        ("--recipe pooling.yaml --opset 17", 2, "--opset"),
        ("--task embed", 2, "did you mean embedding? one of: feature-extraction, pooling,"),
        ("--task question-answering", 2, "config.json says BertModel"),
        ("--profile android", 2, "--task feature-extraction in place of your --profile"),
        ("--profile android --eval-suite choose.jsonl", 2, "android judges a token classifier; for another"),
        ("--task sentiment", 2, "not a text classifier"),
        ("--task pooling --eval-suite choose.jsonl", 2, "add --quantize or --certify"),
        ("--task pooling --quantize --eval-suite suite.csv", 2, "{text, text_pair, score}"),
        *((f"--task pooling --opset {opset}", 2, TOO_NEW.format(opset)) for opset in (6, 24, 99)),
        *((f"--task pooling --dry-run {word} out", 2, word) for word in ("--push", "--output")),
        *((f"--task pooling --label-map {pair}", 2, "--label-map") for pair in ("NAME", "=NAME", "A=B")),
        ("--task pooling --certify", 2, "hint: name a suite: --eval-suite FILE"),
        ("--task pooling --confirm-suite confirm.jsonl", 2, "hint: add --certify"),
        (f"{CHOOSE} --candidate fp17", 2, "hint: did you mean fp16?"),
        (f"{CHOOSE} --candidate static-int8", 2, "no candidate is called static-int8"),
        (f"{CHOOSE} --calibration gone.npz", 2, "no file exists at"),
        (f"{CHOOSE} --calibration junk.npz", 2, "junk.npz is not an .npz file of plain arrays"),
        (f"{CHOOSE} --confirm-suite none.jsonl", 3, "there is no evaluation suite none.jsonl"),
        (f"{CHOOSE} --confirm-suite choose.jsonl", 2, "220 items are in both suites"),
        (f"{CHOOSE} --objective cheap", 2, "'bytes' or 'latency'"),
        (f"{CHOOSE} --candidate fp16", 2, "the suite has 110 independent items"),
    ],
)
def test_an_export_that_cannot_end_well_publishes_nothing(reg, encoder, suites, mlp, words, status, said):
    done = reg("--registry", "r", "export", encoder, "--name", "acme/x", *words.split())
    assert done.ended(status, said) and not list(Path("r/index").rglob("*.jsonl"))


def test_a_dry_run_judges_and_publishes_nothing(reg, encoder):
    Path("two.jsonl").write_text('{"text": "w20 w21"}\n{"text": "w30"}\n')
    words = (*POOLED.split(), encoder, "--eval-suite", "two.jsonl")
    value = reg(*words, "--dry-run", "--json").json
    assert (value["dry_run"], value["ref"], value["output"]) == (True, "acme/x:0.1.0", None)
    assert value["states"] == {"model.onnx": "unknown", "model_int8.onnx": "unknown"}
    assert reg(*words, "--dry-run").ended(0, "model_int8.onnx")
    assert reg("ls", "acme/x").status == reg("log", "acme/x").status == 3
    published = reg(*words, "--json").json
    assert (published["ref"], published["digest"]) == (value["ref"], value["digest"])
    assert "dry_run" not in published
    assert reg(*words, "--dry-run").ended(0, "acme/x:0.1.0")
    assert reg(*words, "--version", "0.2.0").ended(0, "next: model_int8.onnx", "--certify")


SECRETS = ("zebra", "secret-id", "secret-group", "secret-folder", "secret-checkpoint", "choose.jsonl")


@pytest.fixture
def suites() -> None:
    """`choose.jsonl` and `confirm.jsonl` in the working directory."""
    for name, word in (("choose", "zebra"), ("confirm", "zebras")):
        texts = (f"w{10 + n % 40} w{10 + n // 40} {word}" for n in range(220))
        rows = [
            {"text": text, "id": f"secret-id-{n}", "group": f"secret-group-{n}"}
            for n, text in enumerate(texts)
        ]
        Path(f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    Path("junk.npz").write_bytes(b"junk")
    Path("suite.csv").write_text("text,label\n")


@pytest.mark.more
def test_nothing_of_suites_and_of_this_machine_is_published(reg, encoder, suites, tmp_path, monkeypatch):
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(batch, "_in_processes", in_process.run_lines)
    words = (*CHOOSE.split(), "--confirm-suite", "confirm.jsonl", "--item-scores", "--objective", "latency")
    names = ("--candidate", "fp16", "--candidate", "int8")
    done = reg("export", encoder, "--name", "acme/x", *words, *names)
    assert done.status == 0, done.err
    assert reg("certificates", "acme/x", "--recompute").status == 0
    found = reg("show", "acme/x", "--json").json["recipe"]["parameters"]["search"]["output"]
    answer = reg("resolve", "acme/x", "--device", "ort-android-1.22", "--json").json
    assert answer["artifact"]["path"] == found
    suite = {"eval_suite": "choose.jsonl", "confirm_suite": "confirm.jsonl"}
    options = {"certify": True, **suite, "candidate": ["fp16"]}
    row = {"source": str(encoder), "name": "acme/y", "task": "pooling", "options": options}
    Path("jobs.json").write_text(json.dumps([row]))
    assert reg("export", "--batch", "jobs.json").status == 0
    paths = (path for path in (tmp_path / "home").rglob("*") if path.is_file())
    published = (path for path in paths if "local" not in path.relative_to(tmp_path / "home").parts)
    contents = b"\n".join(path.read_bytes() for path in published)
    assert b"certificates/model_fp16.onnx.json" in contents
    assert not [secret for secret in (*SECRETS, str(tmp_path)) if secret.encode() in contents]


# Profiles that other packages bring

WATCH = "task: onnx\nsteps: [{name: v, pass: OnnxOpVersionConversion, params: {target_opset: 19}}]\n"
VISION = (
    "task: image-classification\noptions: {input: [1, 2, 2]}\nsteps: [{name: fp32, pass: OnnxConversion}]\n"
)
PROFILES = """
from pathlib import Path
from onnxreg.converters.engine.plan import Profile
from onnxreg.schema.core.errors import ConversionError
class Broken(Profile):
    def check(self, output, subject):
        raise ConversionError(f"{output.path} breaks what the watch promises")
DOCUMENT = Path(__file__).with_name("watch.yaml")
class Odd(Profile):
    def finish(self, output):
        return output
ODD = Odd(DOCUMENT)
PLAIN = Profile(DOCUMENT)
STRICT = Broken(DOCUMENT)
"""


@pytest.fixture
def package(mlp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The site directory of a package with the profiles `plain` and `strict`."""
    site = tmp_path / "site"
    (site / "watchpkg-1.0.dist-info").mkdir(parents=True)
    (site / "watch.yaml").write_text(WATCH)
    (site / "watchpkg.py").write_text(PROFILES)
    entries = "[onnxreg.profiles]\nplain = watchpkg:PLAIN\nstrict = watchpkg:STRICT\nodd = watchpkg:ODD\n"
    (site / "watchpkg-1.0.dist-info" / "entry_points.txt").write_text(entries)
    install(site, "1.0")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "watchpkg", raising=False)
    return site


def install(site: Path, version: str) -> None:
    """Give the package a version, as installers do: in a folder with the version in its name."""
    (folder,) = site.glob("watchpkg-*.dist-info")
    folder = folder.rename(site / f"watchpkg-{version}.dist-info")
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: watchpkg\nVersion: {version}\n")
    toolchain.tools.cache_clear()
    toolchain.tool_versions.cache_clear()


def test_a_profile_of_a_package_keeps_its_promises_and_is_part_of_the_keys(reg, package):
    def export(profile: str, *more: str) -> Any:
        return reg("--registry", "r", "export", "mlp.onnx", "--profile", profile, "--name", "acme/x", *more)

    assert export("strict").ended(7, "breaks what the watch promises")
    assert export("odd").ended(9, "Odd.finish is not a method of Profile")
    told = "--opset is not an option of the profile plain\nhint: it has --checkpoint,"
    assert export("plain", "--opset", "18").ended(2, told)
    assert export("plain", "--json").json["manifest"]["recipe"]["profile"] == "plain"
    assert "running v" not in export("plain").err
    install(package, "1.1")
    assert "describing what was made" in export("plain").err
    (package / "watch.yaml").write_text(WATCH.replace("19", "20"))
    assert "acme/x:0.1.1" in export("plain").out
    (package / "watch.yaml").write_text(VISION)
    Path("net.py").write_text("import torch\ndef build():\n    return torch.nn.Flatten()\n")
    words = ("export", "net.py:build", "--profile", "plain", "--checkpoint", "best.pth", "--name", "acme/x")
    assert reg("--registry", "r", *words).ended(3, "best.pth")


def test_the_output_of_builtin_profiles_is_a_recipe(reg, tmp_path):
    (tmp_path / "mine.yaml").write_text(reg("builtin", "profiles", "android").out)
    assert reg("builtin", "profiles", "").ended(2, "no profile is called ''")
    mine, android = read_recipe(tmp_path / "mine.yaml"), find("android").recipe()
    assert (mine.profile, android.profile) == ("recipe", "android") and mine.steps == android.steps


# The memory of a decoder's build is estimated from its checkpoint, and compared with what is free

STEP = {"name": "int4", "pass": "ModelBuilder", "params": {"precision": "int4"}}
PARAMETERS = 1000 * 64 + 64 * 3


@pytest.fixture
def decoder(tmp_path: Path) -> Path:
    """A checkpoint of two tensors, and a recipe beside it."""
    directory = tmp_path / "decoder"
    directory.mkdir()
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    (directory / "config.json").write_text(json.dumps(config))
    tensors = {"words": np.ones((1000, 64), np.float16), "head": np.ones((64, 3), np.float32)}
    save_file(tensors, directory / "model.safetensors")
    recipe = {"task": "text-generation", "steps": [STEP], "outputs": [{"step": "int4"}]}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return directory


def test_the_estimate_counts_the_parameters_of_all_shards(decoder):
    """Pickles and damaged files have none."""
    assert peak_memory(decoder) == LIBRARY_BYTES + PARAMETER_BYTES * PARAMETERS
    weights = decoder / "model.safetensors"
    weights.rename(decoder / "a.safetensors")
    save_file({"more": np.ones(8, np.float16)}, decoder / "b.safetensors")
    table = {"words": "a.safetensors", "head": "a.safetensors", "more": "b.safetensors"}
    (decoder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))
    assert peak_memory(decoder) == LIBRARY_BYTES + PARAMETER_BYTES * (PARAMETERS + 8)
    (decoder / "model.safetensors.index.json").unlink()
    weights.write_bytes(bytes(20))
    assert peak_memory(decoder) is None
    weights.rename(decoder / "pytorch_model.bin")
    assert peak_memory(decoder) is None


@pytest.mark.parametrize(("free", "status"), [(400_000_000, 9), (None, 7), (10**9, 7)])
def test_a_decoder_that_does_not_fit_is_refused_before_it_is_built(reg, decoder, monkeypatch, free, status):
    built: list[Path] = []

    def build(self: Any, checkpoint: Path, *paths: Path) -> None:
        built.append(checkpoint)
        raise ConversionError("the build ends here")

    monkeypatch.setattr(model_builder.ModelBuilder, "_build", build)
    monkeypatch.setattr(toolchain, "free_memory", lambda: free)
    done = reg("export", decoder, "--recipe", "recipe.yaml", "--name", "acme/decoder", "--no-cache")
    assert (done.status, built) == (status, [decoder] if status == 7 else [])
    if status == 9:
        assert done.ended(
            9, "takes about 0.5 GB of memory, and 0.4 GB are free", "a machine with more memory"
        )
