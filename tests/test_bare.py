"""Without extras: what needs no ML library works with none installed, and the rest says what to install."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.registries import retrained
from support.servers import static

from onnxreg.cli.services import make_deltas
from onnxreg.registry import Registry
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.core.units import SILENT
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile
from onnxreg.schema.manifest.vocabulary import FILENAME

pytestmark = pytest.mark.more

REPOSITORY = Path(__file__).parents[1]
CODE = ("cli", "converters", "registry", "schema")
EXTRAS = [
    "torch",
    "httpx2",
    "huggingface_hub",
    "s3fs",
    "aiobotocore",
    "botocore",
    "obstore",
    "transformers",
    "onnx",
    "markupsafe",
    "onnxruntime",
    "onnxruntime_genai",
    "onnxscript",
    "sympy",
    "ml_dtypes",
    "numpy",
    "pytest",
    "safetensors",
    "tokenizers",
    "starlette",
    "uvicorn",
    "prometheus_client",
    "httpcore2",
    "anyio",
    "jinja2",
    "dask",
    "distributed",
]
MODULES = sorted(
    f"onnxreg.{path.relative_to(REPOSITORY).with_suffix('').as_posix().replace('/', '.')}".removesuffix(
        ".__init__"
    )
    for directory in CODE
    for path in (REPOSITORY / directory).rglob("*.py")
    if path.name != "__main__.py"
)


@pytest.fixture(scope="session")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that holds the wheel and its base dependencies."""
    root = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root], check=True)
    programs = root / ("Scripts" if os.name == "nt" else "bin")
    install = [sys.executable, "-m", "pip", "--python", programs / "python", "install", "--quiet", wheel]
    subprocess.run([*install, "--disable-pip-version-check"], check=True)
    return programs


@pytest.fixture(scope="session")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry with two versions of one model."""
    root = tmp_path_factory.mktemp("origin")
    registry = Registry(root / "registry")
    for seed in ("one", "two"):
        workspace = root / seed
        workspace.mkdir()
        (workspace / "model.onnx").write_bytes(seed.encode() * 1000)
        (workspace / "config.json").write_bytes(b"{}")
        companions = (DraftFile("config", "config.json"),)
        registry.add(
            Draft("acme/pii", workspace, (DraftArtifact("onnx", "float32", "model.onnx"),), companions)
        )
    return registry.store.root


def reg(bare: Path, home: Path, *words: object) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "REG_HOME": str(home / "registry")}
    environment["REG_ACTOR"] = ""
    command = [str(bare / "reg"), *map(str, words)]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=home)


def test_no_extra_is_installed(bare: Path) -> None:
    code = f"import importlib.util as u; print([name for name in {EXTRAS!r} if u.find_spec(name)])"
    done = subprocess.run([bare / "python", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_every_module_can_be_imported_or_lacks_an_extra(bare: Path, tmp_path: Path) -> None:
    code = (
        "import importlib, json, sys\n"
        "lacking = {}\n"
        f"for name in {MODULES!r}:\n"
        "    try: importlib.import_module(name)\n"
        "    except ModuleNotFoundError as error: lacking[name] = error.name\n"
        "print(json.dumps(lacking))\n"
    )
    command = [bare / "python", "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    lacking = json.loads(done.stdout)
    assert len(lacking) < len(MODULES)
    assert set(lacking.values()) <= set(EXTRAS)
    optional = (
        "onnxreg.converters.",
        "onnxreg.registry.store.hub",
        "onnxreg.registry.store.bucket",
        "onnxreg.registry.server.",
        "onnxreg.schema.delta.difference",
    )
    assert all(name.startswith(optional) for name in lacking)


def test_without_numpy_an_update_is_fetched_whole_and_says_so(bare: Path, tmp_path: Path) -> None:
    source = Registry(tmp_path / "source")
    for step in range(2):
        source.add(retrained.draft(tmp_path / f"draft{step}", step))
    make_deltas(source, source.store, Ref("acme/pii"), (), SILENT)
    with static.serve(source.store.root) as url:
        assert reg(bare, tmp_path, "pull", "acme/pii:0.1.0", url).returncode == 0
        done = reg(bare, tmp_path, "pull", "acme/pii", url)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("note: deltas need numpy") == 1
    assert reg(bare, tmp_path, "verify").returncode == 0


READING = """ls; ls acme/pii; resolve acme/pii --format onnx; show acme/pii; verify; diff acme/pii:0.1.0 acme/pii:0.1.1;
log acme/pii; tag acme/pii stable; push acme/pii ./share; remote list; builtin schemas manifest-v2"""


def test_the_verbs_that_need_no_library(bare: Path, origin: Path, tmp_path: Path) -> None:
    assert reg(bare, tmp_path, "--version").stdout.startswith("reg ")
    pulled = reg(bare, tmp_path, "pull", "acme/pii:0.1.0", origin, "--output", "out")
    assert (pulled.returncode, pulled.stderr) == (0, "")
    assert (tmp_path / "out" / FILENAME).is_file()
    assert reg(bare, tmp_path, "pull", "acme/pii", origin).returncode == 0
    for words in READING.split(";"):
        done = reg(bare, tmp_path, *words.split())
        assert (done.returncode, done.stderr) == (0, ""), words
        assert done.stdout or "remote list" in words


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        ("export ckpt --profile android --name x", "export"),
        ("add model.onnx --name x", "onnx"),
        ("run acme/pii --self-test", "onnx"),
        ("serve", "serve"),
        *(
            (words.replace("URL", url), extra)
            for url, extra in {
                "s3://models/x": "s3",
                "s3://models/x?anonymous=yes": "s3",
                "hf://acme/x": "hf",
            }.items()
            for words in ("ls --remote URL", "pull acme/pii URL", "push acme/pii URL")
        ),
    ],
)
def test_the_others_say_in_one_line_what_to_install(
    bare: Path, origin: Path, tmp_path: Path, words: str, extra: str
) -> None:
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "config.json").write_text("{}")
    (tmp_path / "model.onnx").write_bytes(b"\x08\x09")
    command = ["--registry", origin, *words.split()]
    done = reg(bare, tmp_path, *command)
    assert (done.returncode, done.stdout) == (9, ""), words
    problem, hint = done.stderr.splitlines()
    assert problem.startswith("error: ") and "which is not installed" in problem and f"[{extra}]" in hint
    if words.startswith("export"):
        found = json.loads(reg(bare, tmp_path, *command, "--json").stderr)["error"]
        assert found["family"] == "environment"
