"""The Python and JavaScript of the pages: an audit, an app, a query and the stable names work as they stand there."""

import json
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.docs.pages import REPOSITORY, Block, blocks
from support.registries import grow
from support.sampling import sampled
from support.servers import regserve, static

from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.engine.run_plan import execute
from onnxreg.registry.search.catalogs import publish
from onnxreg.schema.inputs.recipe_file import RecipeFile

DOCS = REPOSITORY / "docs"
NODE = shutil.which("node")
DOCUMENTED = "http://127.0.0.1:8080"


def program(page: str) -> str:
    """The Python of a page."""
    (block,) = (block for block in blocks(DOCS / page) if block.language == "python")
    return block.text


@pytest.fixture(scope="module")
def certificates(make_checkpoint: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the certificate of a pooled encoder's INT8 file, and its item scores."""
    root = tmp_path_factory.mktemp("judged")
    texts = [(f"w{10 + n % 50} w{20 + n // 50}", f"w{10 + n * 7 % 50}") for n in range(660)]
    rows = [
        {"text": one, "text_pair": two, "score": n % 6, "group": n // 3} for n, (one, two) in enumerate(texts)
    ]
    (root / "suite.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    value = {
        "task": "pooling",
        "steps": [
            {"name": "fp32", "pass": "OnnxConversion"},
            {"name": "int8", "pass": "OnnxDynamicQuantization", "input": "fp32"},
        ],
        "outputs": [{"step": "int8", "path": "model_int8.onnx"}],
        "evaluation": {
            "suite": str(root / "suite.jsonl"),
            "item_scores": True,
            "metrics": [{"metric": "spearman"}, {"metric": "mean_cosine"}],
        },
    }
    workspace = root / "w"
    workspace.mkdir()
    execute(plan_export(RecipeFile.from_json(value), str(make_checkpoint("bert", "")), "acme/x"), workspace)
    return workspace / "certificates"


@pytest.mark.more
@pytest.mark.parametrize("metric", sampled(["mean_cosine", "spearman"], 2, pytest.mark.large))
def test_an_auditor_derives_the_verdict_with_the_lines_of_the_page(metric, certificates, tmp_path):
    audit = program("certification.md")
    assert len(audit.splitlines()) <= 45 and "onnxreg" not in audit, "it is short and needs nothing of ours"
    (tmp_path / "audit.py").write_text(audit)
    certificate = certificates / "model_int8.onnx.json"
    table = certificates / f"model_int8.onnx.{metric}.csv"
    command = [sys.executable, str(tmp_path / "audit.py"), str(certificate), metric, str(table)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    derived, recorded = printed.splitlines()
    loss, _, low, high = map(float, re.findall(r"-?\d[\d.e-]*", derived))
    (record,) = [item for item in json.loads(certificate.read_text())["metrics"] if item["metric"] == metric]
    assert loss == pytest.approx(record["loss"], rel=1e-5, abs=1e-12)
    assert (low, high) == pytest.approx(tuple(record["interval"]), rel=1e-5, abs=1e-12)
    assert recorded.endswith(record["state"])


def test_duckdb_answers_from_the_catalog_of_a_server(tmp_path):
    query = program("dev/scale.md")
    assert DOCUMENTED in query
    registry = grow.grow(tmp_path / "models", 3, 2, manifests=True)
    publish(registry.store, None)
    with regserve.running(registry.store.root) as site:
        command = [sys.executable, "-c", query.replace(DOCUMENTED, site.url)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    for words in (*registry.store.names(), "float32", "int8", "98"):
        assert words in done.stdout


APP = """
const { Registry } = await import(process.argv[1] + '/onnxreg.mjs')
const { directoryStore } = await import(process.argv[1] + '/directory-store.mjs')
const [, , url, CONTRACT] = process.argv
const browserStore = directoryStore
const { goldenTest } = await import(process.argv[1] + '/golden-test.mjs')
const InferenceSession = { create: async (bytes) => ({ bytes: bytes.length }) }
const ort = { InferenceSession } // the files of this page have no golden vectors
CODE
console.log(release.version)
"""


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_app_gets_what_the_page_for_mobile_apps_ships(shell, tmp_path):
    versions: list[str] = []
    code = ""

    def update() -> str:
        status, out, err = shell.run("reg resolve acme/pii:stable --remote prod --json")
        assert status == 0, err
        contract = json.loads(out)["artifact"]["contract"]
        client = (REPOSITORY / "examples" / "web-client").as_uri()
        with static.serve(shell.world.scratch / "bucket" / "prod") as url:
            script = APP.replace("CODE", code.replace("'https://models.example/prod'", "url"))
            command = [str(NODE), "--input-type=module", "--eval", script, client, url, contract]
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def each(block: Block) -> None:
        nonlocal code
        if block.language == "js":
            code = block.text
            versions.append(update())

    shell.play(DOCS / "mobile.md", each)
    versions.append(update())
    assert versions == ["1.0.0", "2.0.0"]


def test_the_promised_names_are_there_and_the_readme_has_no_others(tmp_path):
    page, readme = (DOCS / "stability.md").read_text("utf-8"), (REPOSITORY / "README.md").read_text("utf-8")
    (tmp_path / "names.py").write_text(program("stability.md"))
    names = runpy.run_path(str(tmp_path / "names.py"))
    (methods,) = re.findall(r"these are stable:\s+`Registry\(root\)`,\s+(.*?)\.", page, re.DOTALL)
    promised = re.findall(r"`(\w+)`", methods)
    assert len(promised) > 5
    assert [name for name in promised if not callable(getattr(names["Registry"], name, None))] == []
    assert issubclass(names["RegError"], Exception) and names["RegError"].family
    imported = re.findall(r"^from onnxreg\.\S+ import \w+$", readme, re.MULTILINE)
    assert imported and [line for line in imported if line not in page] == []
    assert [name for name in re.findall(r"registry\.(\w+)\(", readme) if f"`{name}`" not in page] == []
