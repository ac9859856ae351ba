"""The pages in a real browser: what a person does there, and that axe-core finds nothing, light and dark, 320 px to wide.

Chromium comes from the distribution (`apt-get install chromium`), the driver and axe-core from npm, into `.cache/web`.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from e2e.conftest import npm
from support.servers import showroom
from support.servers.browser import CHROMIUM, needs_chromium
from support.servers.regserve import running

pytestmark = [pytest.mark.more, needs_chromium]
DRIVER = Path(__file__).with_name("web.mjs")
SIZES = (("light", 1280), ("dark", 390), ("light", 320))
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


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the browser saw of every page, in every scheme and size, and on the way of a person."""
    root = tmp_path_factory.mktemp("web")
    showroom.fill(root / "registry", root / "made")
    visits = [{"path": path, "scheme": scheme, "width": width} for path in PAGES for scheme, width in SIZES]
    job = {"profile": str(root / "profile"), "visits": visits, "flow": True}
    with running(root / "registry") as site:
        return drive(site.url, job)


def drive(url: str, job: Any) -> Any:
    """What the browser saw."""
    modules = npm("web", "playwright-core@1.65.1", "axe-core@4.14.1").parent
    command = ["node", DRIVER, modules, str(CHROMIUM), url, json.dumps(job)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_page_is_clean_in_every_scheme_and_size(seen):
    """axe finds nothing, nothing comes from elsewhere, nothing is wider than the window, and the console is silent.

    But for the line with which Chromium tells of a page whose status is an error.
    """
    visits = seen["visits"]
    assert [(visit["path"], visit["status"]) for visit in visits[:: len(SIZES)]] == list(PAGES.items())
    for visit in visits:
        assert (visit["violations"], visit["elsewhere"], visit["overflow"] <= 0) == ([], [], True), visit
        told = f"Failed to load resource: the server responded with a status of {visit['status']}"
        assert all(said.startswith(told) and visit["status"] >= 400 for said in visit["said"]), visit
    assert (seen["flow"]["said"], seen["flow"]["elsewhere"]) == ([], [])
    backgrounds = {(visit["scheme"], visit["background"]) for visit in visits}
    assert backgrounds == {("light", "rgb(246, 247, 250)"), ("dark", "rgb(14, 17, 23)")}


def test_both_columns_of_a_comparison_fit_on_a_phone(seen):
    narrow = [visit for visit in seen["visits"] if visit["width"] == 390]
    assert [visit["path"] for visit in narrow if visit["clipped"]] == []
    assert all(visit["stacked"] for visit in narrow if visit["path"].startswith("/diff"))


def test_a_person_finds_the_way(seen):
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
    by_the_link_and_by_the_answer = seen["flow"]["downloads"]
    assert by_the_link_and_by_the_answer == ["model_int8.onnx", "model_int8.onnx"]
