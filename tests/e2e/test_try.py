"""*Try it* in a real browser: on the pages of `reg serve` and of `reg site`, it answers what `reg run` answers, or nothing."""

import json
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from e2e.test_web import drive
from support.e2e.tried import TEXT, fill
from support.servers.browser import browsing, needs_chromium, serving
from support.servers.client_package import build, tools
from support.servers.faults import Proxy, proxy
from support.servers.regserve import running
from support.tasks.saved_images import photograph

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.server.settings import Settings
from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile

DEMO = Path(__file__).parents[2] / ".cache" / "demo" / "home"
SENTENCE = "Anna Berger was born on 3 May 1990 in Oslo; call her at 555-0199."
pytestmark = [pytest.mark.more, needs_chromium, pytest.mark.timeout(900)]
TRY = """async (...given) => {
  const form = document.querySelector('#try form')
  if (!form || form.closest('[hidden]')) return null
  const fields = form.querySelectorAll('textarea, input')
  for (const [index, value] of given.entries()) {
    if (typeof value === 'string') fields[index].value = value
    else {
      const data = new DataTransfer()
      data.items.add(new File([Uint8Array.from(value)], 'photograph.png', { type: 'image/png' }))
      fields[index].files = data.files
    }
  }
  form.requestSubmit()
  while (form.querySelector('button').disabled) await new Promise((done) => setTimeout(done, 20))
  const lines = (selector) => [...document.querySelectorAll(`#try .result ${selector}`)].map((line) => line.innerText)
  const status = document.querySelector('#try [role=status]').innerText
  return { status, marks: lines('mark'), classes: lines('li'), result: lines('p').join(), isOffered: !form.hidden }
}"""


ANSWERS: dict[str, list[Any]] = {
    "tags": [TEXT],
    "mood": [TEXT],
    "vectors": [TEXT, "Bob left."],
    "pets": ["photograph"],
}


@pytest.fixture(scope="module")
def models(isolated_user: None, tmp_path_factory: pytest.TempPathFactory) -> Registry:
    """A model for each task, and two of which a browser makes other tokens, or other outputs, than were published."""
    root = tmp_path_factory.mktemp("try")
    registry = Registry(fill(root / "models", root / "made"))

    def add(name: str, path: str, change: Callable[[Any], None]) -> None:
        """Add the tagger with another file at a path."""
        manifest = registry.write_out("acme/tags:1.0.0", root / name).manifest.to_json()
        value = json.loads((root / name / path).read_bytes())
        change(value)
        (root / name / path).write_text(json.dumps(value), "utf-8")
        (artifact,) = manifest["artifacts"]
        companions = tuple(DraftFile(each["role"], each["path"]) for each in manifest["files"])
        sidecars = tuple(DraftFile(each["role"], each["path"]) for each in artifact["files"])
        facts = {key: artifact[key] for key in ("metadata", "opset_imports", "operators", "ir_version")}
        artifacts = (DraftArtifact("onnx", "float32", artifact["path"], sidecars, fields=facts),)
        fields = {key: manifest[key] for key in ("task", "labels", "max_sequence_length")}
        registry.add(Draft(f"acme/{name}", root / name, artifacts, companions, fields), "1.0.0")

    def change_output(golden: Any) -> None:
        golden["cases"][0]["outputs"]["logits"]["data"][0] += 9

    add("other-outputs", "model.onnx.golden.json", change_output)
    add("other-tokens", "tokenizer.json", lambda value: value["normalizer"].update(lowercase=False))
    return registry


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("client"), "try") / "build" / "try"


@pytest.fixture
def served(models: Registry, trial: Path) -> Iterator[Proxy]:
    with running(models.store.root, Settings(trial=trial)) as server, proxy(server.url) as spoiled:
        yield spoiled


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    with browsing(tools(), tmp_path / "profile") as evaluate:
        yield lambda page, *given: evaluate(page, TRY, *given)


def reg(models: Registry, *words: str) -> Any:
    with redirect_stdout(StringIO()) as printed:
        assert main(["--registry", str(models.store.root), *words, "--json"]) == 0
    return json.loads(printed.getvalue())


@pytest.fixture(scope="module")
def site(models: Registry, trial: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The pages as files, behind a plain web server."""
    directory = tmp_path_factory.mktemp("site") / "public"
    reg(models, "site", str(directory), "--try", str(trial))
    with serving(directory) as url:
        yield url


@pytest.mark.parametrize(("host", "name"), [*(("serve", name) for name in ANSWERS), ("site", "tags")])
def test_a_page_answers_what_the_command_line_answers(host, name, models, served, site, browser, tmp_path):
    page = (
        f"{served.url}/models/acme/{name}:1.0.0"
        if host == "serve"
        else f"{site}/model~acme~{name}@1.0.0.html"
    )
    image = photograph(tmp_path / "p.png", size=(300, 211))
    given = [list(image.read_bytes()) if text == "photograph" else text for text in ANSWERS[name]]
    words = (
        ["--image", str(image)] if name == "pets" else [word for text in given for word in ("--text", text)]
    )
    right, seen = reg(models, "run", f"acme/{name}", *words), browser(page, *given)
    assert "WebAssembly" in seen["status"] and "ms" in seen["status"], seen
    if name == "tags":
        assert seen["marks"] == [f"{span['text']} {span['label']}" for span in right["spans"]] != []
    elif name == "vectors":
        assert f"{right['similarity'][0][1]:.4f}" in seen["result"]
    else:
        assert seen["classes"] == [f"{each['label']} {each['score']:.4f}" for each in right["classes"]] != []


@pytest.mark.large
@pytest.mark.skipif(not DEMO.is_dir(), reason="`make demo` trains and exports this tagger")
@pytest.mark.parametrize("version", ["0.1.0", "0.2.0"])
def test_the_tagger_of_the_demo_is_tried_on_its_page(version, trial, browser):
    words = ("--text", SENTENCE, "--device", "ort-web-1.30")
    right = reg(Registry(DEMO), "run", f"demo/pii:{version}", *words)
    with running(DEMO, Settings(trial=trial)) as server:
        seen = browser(f"{server.url}/models/demo/pii:{version}", SENTENCE)
    assert seen["marks"] == [f"{span['text']} {span['label']}" for span in right["spans"]] != [], seen
    assert right["path"] in seen["status"]


@pytest.mark.parametrize("name", ["other-outputs", "other-tokens"])
def test_what_does_not_reproduce_is_never_answered(name, served, browser):
    seen = browser(f"{served.url}/models/acme/{name}:1.0.0", TEXT)
    assert (seen["isOffered"], seen["marks"], seen["result"]) == (False, [], "")


def test_garbled_bytes_are_refused_and_the_second_time_needs_no_registry(served, browser):
    page = f"{served.url}/models/acme/tags:1.0.0"

    def spoil(fault: str | None, *parts: str) -> None:
        served.plan = lambda method, path: fault if path.startswith(parts) else None

    spoil("garbled", "/blobs/")
    seen = browser(page, TEXT)
    assert (seen["isOffered"], seen["marks"]) == (True, []) and "not what was published" in seen["status"]
    spoil("reset", "/blobs/")
    seen = browser(page, TEXT)
    assert (seen["isOffered"], seen["marks"]) == (True, []) and "does not answer" in seen["status"]
    spoil(None)
    right = browser(page, TEXT)["marks"]
    spoil("reset", "/blobs/", "/index/", "/try/ort-wasm")
    seen = browser(page, TEXT)
    assert (seen["marks"], "cannot be reached" in seen["status"]) == (right, True)


def test_an_address_may_get_another_registry_and_a_page_answers_by_its_own_version(
    models, trial, served, browser, tmp_path
):
    pages = [f"{served.url}/models/acme/tags:{version}" for version in ("1.0.0", "1.1.0")]
    assert browser(pages[0], TEXT)["marks"]
    other = Registry(tmp_path / "other")
    for number, page in enumerate(pages):
        directory = tmp_path / str(number)
        models.write_out("acme/tags:1.0.0", directory)
        (directory / "LICENSE").write_text(page)
        version = page.rpartition(":")[2]
        reg(other, "import", str(directory), "--name", "acme/tags", "--version", version)
    with running(other.store.root, Settings(trial=trial)) as server:
        served.upstream = f"127.0.0.1:{server.port}"
        served.first.clear()
        for page in pages:
            assert browser(page, TEXT)["marks"]
        other.yank("acme/tags:1.0.0", "broken")
        served.plan = lambda method, path: "stale" if path.startswith("/models/") else None
        assert (answer := browser(pages[0], TEXT))["marks"] == [] and "1.0.0" in answer["status"]


def test_a_browser_without_room_says_so(served, tmp_path):
    with browsing(tools(), tmp_path / "profile", quota=100_000) as evaluate:
        seen = evaluate(f"{served.url}/models/acme/tags:1.0.0", TRY, TEXT)
    assert (seen["isOffered"], seen["marks"]) == (True, []) and "no room" in seen["status"]


@pytest.mark.large
def test_the_page_is_clean_in_every_scheme_and_size_after_an_answer(served, tmp_path):
    page = {"path": "/models/acme/tags:1.0.0", "text": TEXT}
    visits = [
        {**page, "scheme": scheme, "width": width} for scheme in ("light", "dark") for width in (1280, 390)
    ]
    for visit in drive(served.url, {"profile": str(tmp_path / "profile"), "visits": visits})["visits"]:
        assert (visit["violations"], visit["elsewhere"], visit["overflow"] <= 0) == ([], [], True), visit
        assert visit["said"] in ([], ["No available adapters."]), visit  # of WebGPU, which this machine lacks
