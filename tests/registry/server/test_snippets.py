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


def graph(path: Path, seed: float) -> None:
    """Write a small valid model."""
    from onnx import parser, save

    text = (
        '<ir_version: 8, opset_import: ["" : 18]> g (float[n,2] x) => (float[n,2] y) '
        f"<float w = {{{seed}}}> {{ y = Mul(x, w) }}"
    )
    save(parser.parse_model(text), path)


@pytest.fixture(scope="module")
def home(isolated_user, tmp_path_factory) -> Path:
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
def site(home) -> Iterator[Site]:
    with running(home) as site:
        yield site


@pytest.fixture
def copied(home, tmp_path) -> Registry:
    return Registry(shutil.copytree(home, tmp_path / "home"))


def shell(code: str, directory: Path, **variables: str) -> str:
    """What lines print in a shell that stops at the first failure."""
    own = {"PATH": f"{BIN}:{os.environ['PATH']}", "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
    own |= {"HF_HOME": str(directory / "hf-home"), "REG_HOME": str(directory / "own"), **variables}
    done = subprocess.run(
        ["bash", "-ec", code],
        cwd=directory,
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def node(code: str, directory: Path, **variables: str) -> str:
    """What the lines print with the package in this tree, and one that prints the digest of the model."""
    for package, file in {"client/node": "directory-store.mjs", "client": "onnxreg.mjs"}.items():
        code = code.replace(f"'@onnxreg/{package}'", f"'{(WEB_CLIENT / file).as_uri()}'")
    print_it = "console.log(createHash('sha256').update(model).digest('hex'))"
    whole = f"import {{ createHash }} from 'node:crypto'\n{code}\n{print_it}\n"
    (directory / "snippet.mjs").write_text(whole, encoding="utf-8")
    return shell("node snippet.mjs", directory, **variables).strip()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def served(home: Path, ref: str, path: str) -> str:
    """The digest of a file of a version."""
    return next(file.digest.hex for file in Registry(home).get(ref).manifest.all_files() if file.path == path)


ODD = "acme/odd:1.0.0"
INT8 = "model_int8.onnx"
BOTH = pytest.mark.parametrize(("ref", "path"), [(REF, INT8), (ODD, HOSTILE)])


def test_each_client_that_fits_has_lines(site, copied, tmp_path):
    everybody = ["reg", "hf", "curl", "ONNX Runtime", "Transformers.js", "JavaScript client", "JVM client"]
    assert list(snippets_of(site, REF)) == everybody
    assert list(snippets_of(site, ODD)) == [each for each in everybody if each != "Transformers.js"]
    copied.add(showroom.draft(tmp_path / "r", "acme/refused", "r", showroom.WORSE), "1.0.0")
    with running(copied.store.root) as other:
        refused = snippets_of(other, "acme/refused:1.0.0")["curl"]
    assert "/model.onnx" in refused and "model_int8" not in refused


def test_reg_and_hf(site, home, tmp_path):
    code = snippets_of(site, REF)
    assert f"{REF}  onnx-int8  int8  certified" in shell(code["reg"], tmp_path)
    (tmp_path / "hf").mkdir()
    shell(code["hf"], tmp_path / "hf")
    for folder in (tmp_path / "pii", tmp_path / "hf" / "pii"):
        assert sha256(folder / INT8) == served(home, REF, INT8)
    assert (tmp_path / "hf" / "pii" / "config.json").is_file()


@BOTH
def test_curl_saves_the_file_under_its_name_and_checks_it(ref, path, site, home, tmp_path):
    code = snippets_of(site, ref)["curl"]
    assert ": OK" in shell(code, tmp_path)
    assert sha256(tmp_path / path) == served(home, ref, path)
    assert [item.name for item in tmp_path.iterdir()] == [path]
    with pytest.raises(AssertionError):
        shell(code.replace("echo '", "echo 'f", 1).replace("  model_int8", "", 1), tmp_path)


@pytest.mark.parametrize("ref", sampled([REF, ODD], 2))
def test_onnx_runtime(ref, site, tmp_path):
    (tmp_path / "snippet.py").write_text(snippets_of(site, ref)["ONNX Runtime"], encoding="utf-8")
    assert "[('x', 'tensor(float)', ['n', 2])]" in shell(f"{sys.executable} snippet.py", tmp_path)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.skipif(NODE is None, reason="node is not installed")
@pytest.mark.parametrize(("ref", "path"), [(REF, INT8), pytest.param(ODD, HOSTILE, marks=pytest.mark.more)])
def test_the_javascript_client(ref, path, site, home, tmp_path):
    assert node(snippets_of(site, ref)["JavaScript client"], tmp_path) == served(home, ref, path)


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_what_an_app_copied_from_a_version_in_production_updates(copied, tmp_path):
    copied.tag(REF, "stable")
    draft = showroom.draft(tmp_path / "next", "acme/pii", "next", showroom.GOOD)
    for number, name in enumerate(("model.onnx", "model_int8.onnx")):
        graph(draft.root / name, number + 7.5)
    after = copied.add(draft, "9.0.0")
    with running(copied.store.root) as site:
        code = snippets_of(site, REF)["JavaScript client"]
        first = node(code, tmp_path)
        copied.tag(after.ref, "stable")
        assert (first, node(code, tmp_path)) == tuple(
            served(copied.store.root, ref, INT8) for ref in (REF, "acme/pii:9.0.0")
        )


@pytest.mark.more
@pytest.mark.skipif(jvm.JAVAC is None, reason=jvm.REASON)
@BOTH
def test_the_jvm_client(ref, path, site, home, tmp_path):
    first, body = snippets_of(site, ref)["JVM client"].split("\n\n")
    main = f"public static void main(String[] words) throws Exception {{ {body} System.out.println(model); }}"
    (tmp_path / "Snippet.java").write_text(f"{first} class Snippet {{ {main} }}", encoding="utf-8")
    printed = shell(f"java -cp {jvm.classes()} Snippet.java", tmp_path)
    assert sha256(tmp_path / printed.strip()) == served(home, ref, path)


@pytest.mark.more
def test_a_yanked_version_is_named_by_its_digest(copied, tmp_path):
    digest = copied.get(REF).digest
    copied.yank(REF, "wrong")
    with running(copied.store.root) as site:
        code = snippets_of(site, REF)
        assert not {"JavaScript client", "JVM client"} & code.keys()
        assert str(digest) in code["reg"] and str(digest) in code["hf"]
        assert ": OK" in shell(code["curl"], tmp_path)
        shell(code["reg"], tmp_path)
    assert (tmp_path / "pii" / INT8).is_file()


@pytest.mark.more
def test_a_guarded_server_shows_where_its_token_goes(home, tmp_path):
    with running(home, Settings("t0ken")) as site:
        code = snippets_of(site, REF, Authorization="Bearer t0ken")
        assert "t0ken" not in "".join(code.values())
        token = {f"REG_TOKEN_127_0_0_1_{site.port}": "t0ken"}
        assert ": OK" in shell(code["curl"], tmp_path, **token)
        (tmp_path / "hub").mkdir()
        shell(code["hf"], tmp_path / "hub", HF_TOKEN="t0ken")
        shell(code["reg"], tmp_path, **token)
        if NODE is not None:
            assert node(code["JavaScript client"], tmp_path, **token) == served(home, REF, INT8)


def test_lines_name_the_address_that_the_reader_used(home, site):
    named = snippets_of(site, REF, Host="models.example:81")["curl"]
    assert "http://models.example:81/acme/pii/resolve" in named
    with running(home, Settings(url="https://models.example/reg")) as behind:
        assert "https://models.example/reg/acme/pii/resolve/" in snippets_of(behind, REF)["curl"]
    assert site.get(f"/models/{REF}", Host="a b'\"<x>").status == 400
