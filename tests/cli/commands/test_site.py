"""`reg site`: pages as files, whose links all lead somewhere, in a directory that appears as a whole."""

import json
import re
import shutil
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest
from support.made_once import made_once
from support.registries.home import Home
from support.servers import showroom, static

from onnxreg.cli.main import main
from onnxreg.registry import Registry


def make(path: Path) -> None:
    showroom.fill(path / "models", path / "made")


@pytest.fixture(scope="module")
def models(isolated_user: None) -> Path:
    return made_once(make) / "models"


@pytest.fixture
def written(models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["--registry", str(models), "site", str(tmp_path / "public"), "--json"]) == 0
    names = [name for name in (tmp_path / "public").iterdir() if name.suffix == ".html"]
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"output": str(tmp_path / "public"), "models": 5, "pages": len(names)}
    return tmp_path / "public"


def test_every_link_leads_to_a_file_of_the_site(written):
    pages = list(written.glob("*.html"))
    assert {"404.html", "model~acme~pii@2.0.0-rc.1.html"} <= {page.name for page in pages}
    for page in pages:
        text = page.read_text("utf-8")
        links = {unquote(unescape(link)) for link in re.findall(r'(?:href|src)="([^"#]+)"', text)}
        assert all((written / link.partition("?")[0]).is_file() for link in links), (page.name, links)
        assert "<form" not in text and "<script" not in text
        (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
        assert "default-src 'none'" in unescape(policy) and "script-src" not in policy


def test_the_tree_in_it_is_a_remote(written, tmp_path):
    with static.serve(written) as url:
        assert main(["--registry", str(tmp_path / "other"), "pull", "acme/pii:1.3.0", f"{url}/tree"]) == 0
    assert Registry(tmp_path / "other").state("acme/pii").versions.keys()


def test_a_push_meanwhile_leaves_no_page_or_event_without_its_blobs(tmp_path, monkeypatch):
    home, copyfile = Home(tmp_path / "home"), shutil.copyfile
    home.make("1.0.0")

    def slowly(source: Path, target: Path, **options: bool) -> None:
        copyfile(source, target, **options)
        if str(target).endswith("registry.json"):
            home.make("2.0.0", "b")

    monkeypatch.setattr(shutil, "copyfile", slowly)
    assert main(["--registry", str(home.store.root), "site", str(tmp_path / "public")]) == 0
    assert main(["--registry", str(tmp_path / "public" / "tree"), "verify"]) == 0


def test_a_published_catalog_is_in_the_tree(models, tmp_path, capsys):
    own = ["--registry", str(shutil.copytree(models, tmp_path / "models"))]
    assert main([*own, "index", "publish"]) == 0
    assert main([*own, "site", str(tmp_path / "public")]) == 0
    with static.serve(tmp_path / "public") as url:
        assert main(["--registry", str(tmp_path / "other"), "ls", "--remote", f"{url}/tree"]) == 0
    assert "acme/pii" in capsys.readouterr().out


def test_a_site_replaces_an_earlier_one_and_nothing_else(models, written, capsys):
    (written / "index.html").write_text("an earlier one")
    again = ["--registry", str(models), "site", str(written), "--url", "https://models.example/tree"]
    assert main(again) == 0
    page = (written / "model~acme~pii@1.3.0.html").read_text("utf-8")
    assert "an earlier one" not in (written / "index.html").read_text("utf-8")
    assert not (written / "tree").exists()
    assert 'href="https://models.example/tree/blobs/sha256/' in page
    assert "reg pull acme/pii:1.3.0 https://models.example/tree" in unescape(page)
    assert "hf download" not in page
    (written / "CNAME").write_text("models.example")
    before = sorted(written.rglob("*"))
    assert main(again) == 2
    assert "CNAME" in capsys.readouterr().err and sorted(written.rglob("*")) == before


def test_a_damaged_model_is_named_and_the_earlier_site_stays(models, written, tmp_path, capsys):
    copy = shutil.copytree(models, tmp_path / "copy")
    index = copy / "index" / "acme" / "pii.jsonl"
    index.write_bytes(index.read_bytes()[:-40])
    before = {path: path.read_bytes() for path in written.glob("*.html")}
    assert main(["--registry", str(copy), "site", str(written)]) == 4
    assert "acme/pii" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in written.glob("*.html")} == before


def test_a_site_is_not_written_into_the_folder_that_it_copies(models, tmp_path):
    (tmp_path / "try").mkdir()
    (tmp_path / "try" / "try.js").touch()
    words = ["site", str(tmp_path / "try" / "public"), "--try", str(tmp_path / "try")]
    assert main(["--registry", str(models), *words]) == 2
    assert [path.name for path in (tmp_path / "try").iterdir()] == ["try.js"]


@pytest.mark.parametrize(
    "url", ["//models.example/tree", "//ada:secret@models.example/tree", "ftp://models.example"]
)
def test_the_url_of_a_tree_elsewhere_names_its_scheme(models, tmp_path, capsys, url):
    assert main(["--registry", str(models), "site", str(tmp_path / "public"), "--url", url]) == 2
    said = capsys.readouterr().err
    assert "https://" in said or "credentials" in said
    assert not (tmp_path / "public").exists() and "secret" not in said
