"""The lines to copy on a version's page: each is run as it is, against the server that shows it."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support import jvm
from support.sampling import sampled
from support.servers import showroom
from support.servers.page_snippets import snippets_of
from support.servers.regserve import Site, running

from onnxreg.registry import Registry
from onnxreg.registry.server.settings import Settings

BIN = Path(sys.executable).parent
WEB_CLIENT = Path(__file__).parents[3] / "examples" / "web-client"
NODE = shutil.which("node")
REF = "acme/pii:1.0.0+build.7"
HOSTILE = "m'; $(touch pwned) & `id` é.onnx"


def graph(path: Path, seed: float) -> bytes:
    """A small valid model."""
    from onnx import parser, save

    text = (
        '<ir_version: 8, opset_import: ["" : 18]> g (float[n,2] x) => (float[n,2] y) '
        f"<float w = {{{seed}}}> {{ y = Mul(x, w) }}"
    )
    save(parser.parse_model(text), path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def home(isolated_user: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`acme/pii` with a certified INT8 file, and `acme/odd` whose file has a hostile name."""
    root = tmp_path_factory.mktemp("snippets")
    registry = Registry(root / "home")
    draft = showroom.draft(root / "a", "acme/pii", "a", showroom.GOOD)
    for number, name in enumerate(("model.onnx", "model_int8.onnx")):
        graph(draft.root / name, number + 0.5)
    registry.add(draft, REF.partition(":")[2])
    odd = showroom.draft(root / "b", "acme/odd", "b", None, task="object-detection")
    first, _ = odd.artifacts
    graph(odd.root / HOSTILE, 3.5)
    registry.add(replace(odd, artifacts=(replace(first, path=HOSTILE),)), "1.0.0")
    return root / "home"


@pytest.fixture
def site(home: Path) -> Iterator[Site]:
    with running(home) as site:
        yield site


def shell(code: str, directory: Path, **variables: str) -> str:
    """What lines print in a shell that stops at the first failure."""
    path = f"{BIN}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1", **variables}
    environment["HF_HOME"] = str(directory / "hf-home")
    done = subprocess.run(
        ["bash", "-ec", code], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def node_code(code: str) -> str:
    """The lines with the package in this tree, and one that prints the digest of the model."""
    code = code.replace("'@onnxreg/client/node'", f"'{(WEB_CLIENT / 'directory-store.mjs').as_uri()}'")
    code = code.replace("'@onnxreg/client'", f"'{(WEB_CLIENT / 'onnxreg.mjs').as_uri()}'")
    print_it = "console.log(createHash('sha256').update(model).digest('hex'))"
    return f"import {{ createHash }} from 'node:crypto'\n{code}\n{print_it}\n"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def served(home: Path, ref: str, path: str) -> str:
    """The digest of a file of a version."""
    name, _, version = ref.partition(":")
    files = Registry(home).get(f"{name}:{version}").manifest.all_files()
    return next(file.digest.hex for file in files if file.path == path)


def test_each_client_that_fits_has_lines(site: Site, home: Path) -> None:
    everybody = ["reg", "hf", "curl", "ONNX Runtime", "Transformers.js"]
    assert list(snippets_of(site, REF)) == [*everybody, "JavaScript client", "JVM client"]
    for_any_task = [*everybody[:4], "JavaScript client", "JVM client"]
    assert list(snippets_of(site, "acme/odd:1.0.0")) == for_any_task


def test_reg(site: Site, home: Path, tmp_path: Path) -> None:
    printed = shell(snippets_of(site, REF)["reg"], tmp_path, REG_HOME=str(tmp_path / "own"))
    assert sha256(tmp_path / "pii" / "model_int8.onnx") == served(home, REF, "model_int8.onnx")
    assert f"{REF}  onnx-int8  int8  certified" in printed


@pytest.mark.parametrize(("ref", "path"), [(REF, "model_int8.onnx"), ("acme/odd:1.0.0", HOSTILE)])
def test_curl_saves_the_file_under_its_name_and_checks_it(
    ref: str, path: str, site: Site, home: Path, tmp_path: Path
) -> None:
    assert ": OK" in shell(snippets_of(site, ref)["curl"], tmp_path)
    assert sha256(tmp_path / path) == served(home, ref, path)
    assert [item.name for item in tmp_path.iterdir()] == [path]


def test_curl_refuses_other_bytes(site: Site, tmp_path: Path) -> None:
    code = snippets_of(site, REF)["curl"]
    wrong = code.replace("echo '", "echo 'f", 1).replace("  model_int8", "", 1)
    with pytest.raises(AssertionError):
        shell(wrong, tmp_path)


def test_hf(site: Site, home: Path, tmp_path: Path) -> None:
    shell(snippets_of(site, REF)["hf"], tmp_path)
    assert sha256(tmp_path / "pii" / "model_int8.onnx") == served(home, REF, "model_int8.onnx")
    assert (tmp_path / "pii" / "config.json").is_file()


@pytest.mark.parametrize("ref", sampled([REF, "acme/odd:1.0.0"], 2))
def test_onnx_runtime(ref: str, site: Site, tmp_path: Path) -> None:
    script = tmp_path / "snippet.py"
    script.write_text(snippets_of(site, ref)["ONNX Runtime"], encoding="utf-8")
    assert "[('x', 'tensor(float)', ['n', 2])]" in shell(f"{sys.executable} snippet.py", tmp_path)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.skipif(NODE is None, reason="node is not installed")
@pytest.mark.parametrize(
    ("ref", "path"),
    [(REF, "model_int8.onnx"), pytest.param("acme/odd:1.0.0", HOSTILE, marks=pytest.mark.more)],
)
def test_the_javascript_client(ref: str, path: str, site: Site, home: Path, tmp_path: Path) -> None:
    code = node_code(snippets_of(site, ref)["JavaScript client"])
    (tmp_path / "snippet.mjs").write_text(code, encoding="utf-8")
    assert shell("node snippet.mjs", tmp_path).strip() == served(home, ref, path)


@pytest.mark.more
@pytest.mark.skipif(jvm.JAVAC is None, reason=jvm.REASON)
@pytest.mark.parametrize(("ref", "path"), [(REF, "model_int8.onnx"), ("acme/odd:1.0.0", HOSTILE)])
def test_the_jvm_client(ref: str, path: str, site: Site, home: Path, tmp_path: Path) -> None:
    first, body = snippets_of(site, ref)["JVM client"].split("\n\n")
    main = f"public static void main(String[] words) throws Exception {{ {body} System.out.println(model); }}"
    (tmp_path / "Snippet.java").write_text(f"{first} class Snippet {{ {main} }}", encoding="utf-8")
    printed = shell(f"java -cp {jvm.classes()} Snippet.java", tmp_path)
    assert sha256(tmp_path / printed.strip()) == served(home, ref, path)


@pytest.mark.more
def test_a_yanked_version_is_named_by_its_digest(home: Path, tmp_path: Path) -> None:
    registry = Registry(shutil.copytree(home, tmp_path / "home"))
    digest = registry.get(REF).digest
    registry.yank(REF, "wrong")
    with running(registry.store.root) as site:
        code = snippets_of(site, REF)
        assert not {"JavaScript client", "JVM client"} & code.keys()
        assert str(digest) in code["reg"] and str(digest) in code["hf"]
        assert ": OK" in shell(code["curl"], tmp_path)
        shell(code["reg"], tmp_path, REG_HOME=str(tmp_path / "own"))
    assert (tmp_path / "pii" / "model_int8.onnx").is_file()


def test_a_refused_artifact_is_never_the_one(home: Path, tmp_path: Path) -> None:
    registry = Registry(shutil.copytree(home, tmp_path / "home"))
    registry.add(showroom.draft(tmp_path / "r", "acme/refused", "r", showroom.WORSE), "1.0.0")
    with running(registry.store.root) as site:
        assert "/model.onnx" in snippets_of(site, "acme/refused:1.0.0")["curl"]
        assert "model_int8" not in snippets_of(site, "acme/refused:1.0.0")["curl"]


@pytest.mark.more
def test_a_guarded_server_shows_where_its_token_goes(home: Path, tmp_path: Path) -> None:
    with running(home, Settings("t0ken")) as site:
        code = snippets_of(site, REF, Authorization="Bearer t0ken")
        assert "t0ken" not in "".join(code.values())
        token = {f"REG_TOKEN_127_0_0_1_{site.port}": "t0ken"}
        assert ": OK" in shell(code["curl"], tmp_path, **token)
        (tmp_path / "hub").mkdir()
        shell(code["hf"], tmp_path / "hub", HF_TOKEN="t0ken")
        shell(code["reg"], tmp_path, REG_HOME=str(tmp_path / "own"), **token)
        if NODE is not None:
            (tmp_path / "snippet.mjs").write_text(node_code(code["JavaScript client"]), encoding="utf-8")
            digest = served(home, REF, "model_int8.onnx")
            assert shell("node snippet.mjs", tmp_path, **token).strip() == digest


def test_lines_name_the_address_that_the_reader_used(home: Path, site: Site) -> None:
    assert (
        "http://models.example:81/acme/pii/resolve"
        in snippets_of(site, REF, Host="models.example:81")["curl"]
    )
    with running(home, Settings(url="https://models.example/reg")) as behind:
        assert "https://models.example/reg/acme/pii/resolve/" in snippets_of(behind, REF)["curl"]
    assert site.get(f"/models/{REF}", Host="a b'\"<x>").status == 400
