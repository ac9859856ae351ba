"""The pages in a real browser: what a person does there, and that axe-core finds nothing, light and dark, 320 px to wide.

Chromium comes from the distribution (`apt-get install chromium`), the driver and axe-core from npm, into `.cache/web`.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
from support.servers import showroom
from support.servers.regserve import running

pytestmark = pytest.mark.more
DRIVER = Path(__file__).with_name("web.mjs")
MODULES = REPOSITORY / ".cache" / "web"
PACKAGES = {"playwright-core": "1.65.1", "axe-core": "4.14.1"}
SIZES = (("light", 1280), ("dark", 1280), ("light", 390), ("light", 320), ("dark", 320))
PAGES = {
    "/": 200,
    "/?words=phone+onnx-int8": 200,
    "/?words=zz": 200,
    "/?q=size+%3E+0": 200,
    "/?q=size+%3C+1": 200,
    "/?q=newest+and+sise+%3C%3D+30MB": 400,
    "/models/acme/pii": 200,
    "/models/tiny": 200,
    "/models/acme/pii:1.1.0": 200,
    "/models/acme/langid:0.1.0": 200,
    "/diff?old=acme/pii:1.2.0&new=acme/pii:1.1.0": 200,
    "/diff?old=acme/pii&new=acme/langid": 200,
    "/models/acme/pi": 404,
    "/nothing": 404,
}


@pytest.fixture(scope="session")
def browser() -> str:
    """The path of Chromium; skips where something is missing."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("Node.js with npm is not installed, which drives the browser")
    if not all(_has(name, version) for name, version in PACKAGES.items()):
        MODULES.mkdir(parents=True, exist_ok=True)
        wanted = [f"{name}@{version}" for name, version in PACKAGES.items()]
        install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(MODULES), *wanted]
        done = subprocess.run(install, check=False, capture_output=True, text=True, timeout=300)
        if done.returncode:
            pytest.skip(f"npm cannot install {' and '.join(wanted)}")
    return found


def _has(name: str, version: str) -> bool:
    package = MODULES / "node_modules" / name / "package.json"
    return package.is_file() and json.loads(package.read_text())["version"] == version


@pytest.fixture(scope="module")
def seen(browser: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the browser saw of every page, in every scheme and size, and on the way of a person."""
    root = tmp_path_factory.mktemp("web")
    showroom.fill(root / "registry", root / "made")
    visits = [{"path": path, "scheme": scheme, "width": width} for path in PAGES for scheme, width in SIZES]
    job = {"profile": str(root / "profile"), "visits": visits, "flow": True}
    with running(root / "registry") as site:
        command = ["node", str(DRIVER), str(MODULES), browser, site.url, json.dumps(job)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_every_page_was_visited(seen: dict[str, Any]) -> None:
    assert [(visit["path"], visit["status"]) for visit in seen["visits"][:: len(SIZES)]] == list(
        PAGES.items()
    )
    titles = {visit["title"] for visit in seen["visits"]}
    assert {
        "Models · onnxreg",
        "acme/pii · onnxreg",
        "acme/pii:1.1.0 · onnxreg",
        "Not found · onnxreg",
    } <= titles


def test_axe_finds_nothing(seen: dict[str, Any]) -> None:
    assert [visit for visit in seen["visits"] if visit["violations"]] == []


def test_the_console_is_silent(seen: dict[str, Any]) -> None:
    """But for the line with which Chromium tells of a page whose status is an error."""
    for visit in seen["visits"]:
        told = f"Failed to load resource: the server responded with a status of {visit['status']}"
        assert all(said.startswith(told) and visit["status"] >= 400 for said in visit["said"]), visit
    assert seen["flow"]["said"] == []


def test_nothing_comes_from_elsewhere(seen: dict[str, Any]) -> None:
    assert [visit["elsewhere"] for visit in (*seen["visits"], seen["flow"]) if visit["elsewhere"]] == []


def test_no_page_is_wider_than_the_window(seen: dict[str, Any]) -> None:
    assert [visit for visit in seen["visits"] if visit["overflow"] > 0] == []


def test_both_columns_of_a_comparison_fit_on_a_phone(seen: dict[str, Any]) -> None:
    narrow = [visit for visit in seen["visits"] if visit["width"] == 390]
    assert [visit["path"] for visit in narrow if visit["clipped"]] == []
    assert all(visit["stacked"] for visit in narrow if visit["path"].startswith("/diff"))


def test_downloads_have_the_names_of_the_files(seen: dict[str, Any]) -> None:
    """By the link, and by the answer alone."""
    assert seen["flow"]["downloads"] == ["model_int8.onnx", "model_int8.onnx"]


def test_dark_is_dark(seen: dict[str, Any]) -> None:
    backgrounds = {(visit["scheme"], visit["background"]) for visit in seen["visits"]}
    assert backgrounds == {("light", "rgb(246, 247, 250)"), ("dark", "rgb(14, 17, 23)")}


def test_a_person_finds_the_way(seen: dict[str, Any]) -> None:
    trail = [(step["step"], step["heading"]) for step in seen["flow"]["trail"]]
    assert trail == [
        ("open", "Models"),
        ("tab", "Skip to the content"),
        ("words", "Models"),
        ("search", "Search"),
        ("version", "acme/pii:1.3.0"),
        ("compare", "acme/pii:1.2.0 to acme/pii:1.3.0"),
        ("model", "acme/pii"),
        ("diff", "acme/pii:1.2.0 to acme/pii:1.1.0"),
    ]
