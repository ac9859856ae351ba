"""The pages for people: what they say, that they say it safely, and that every link on them leads somewhere."""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from support.dossier.audited import make_audited
from support.registries import owner, retrained
from support.registries.drafts import write_draft
from support.registries.judged import judged_draft
from support.servers import showroom
from support.servers.regserve import Answer, Site, running

from onnxreg.cli.services import make_deltas
from onnxreg.registry import Registry
from onnxreg.registry.dossier.dossier import make_dossier
from onnxreg.registry.log.contents import Selection
from onnxreg.registry.log.log import open_log
from onnxreg.registry.search import catalog
from onnxreg.registry.server.pages import pages
from onnxreg.registry.server.served_registry import ServedRegistry
from onnxreg.registry.server.settings import Settings
from onnxreg.registry.signing import generate
from onnxreg.registry.store.protocol import blob_path, index_path
from onnxreg.registry.system import trust_file
from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.core.units import SILENT
from onnxreg.schema.gates.policy import read_policy
from onnxreg.schema.manifest.draft import DraftFile

FROZEN = Path(__file__).parents[2] / "fixtures" / "registry-v1" / "tree"
HOSTILE = "<script>alert(1)</script>\"'&\u202e{{ 7 * 7 }}"


INLINE = frozenset({"a", "bdi", "code", "q", "span", "strong", "time"})


class Reader(HTMLParser):
    """What a page is made of: its text, its tags, and their attributes: links are `href`, `src` and `action`."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._texts: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.feed(answer.body.decode())
        self.words = "".join(self._texts).split()
        self.text = " ".join(self.words)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_endtag(tag)
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        self._texts.append("" if tag in INLINE else " ")

    def handle_data(self, data: str) -> None:
        self._texts.append(data)

    @property
    def links(self) -> list[str]:
        return [value for name, value in self.attributes if name in ("href", "src")]

    def says(self, *parts: str) -> bool:
        """True if each part is in the text."""
        absent = [part for part in parts if part not in self.text]
        assert not absent, (absent, self.text)
        return True


@pytest.fixture(scope="module")
def showroom_template(isolated_user, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("showroom")
    return showroom.fill(root / "room", root / "made").store.root


@pytest.fixture
def room(showroom_template, tmp_path) -> Registry:
    return Registry(shutil.copytree(showroom_template, tmp_path / "room"), actor=showroom.ACTOR)


@pytest.fixture
def shown(room) -> Iterator[Site]:
    with running(room.store.root) as site:
        yield site


def read(site: Site, path: str, status: int = 200) -> Reader:
    answer = site.get(path, Accept="text/html")
    assert (answer.status, answer.headers["content-type"]) == (status, "text/html; charset=utf-8"), path
    return Reader(answer)


def crawl(site: Site, start: str = "/", stride: int = 1) -> dict[str, Answer]:
    """Every page that can be reached, by its path, of comparisons one in `stride`; of files only the heads."""
    found: dict[str, Answer] = {}
    waiting, comparisons = [start], count()
    while waiting:
        path = waiting.pop().partition("#")[0]
        if path in found or not path or (path.startswith("/diff?") and next(comparisons) % stride):
            continue
        is_file = path.startswith("/blobs/") or "/resolve/" in path
        found[path] = answer = site.ask("HEAD" if is_file else "GET", path)
        if answer.headers["content-type"].startswith("text/html"):
            waiting += Reader(answer).links
    return found


def test_the_list_has_every_model(shown):
    page = read(shown, "/")
    today = datetime.now(UTC).date()
    facts = f"1.3.0 of acme/pii {today} 1.2 MB token-classification Apache-2.0 Versions 5"
    assert page.says("5 models, by name", f"acme/pii {facts} beta 1.3.0 stable 1.2.0")
    assert page.says("tiny no release Versions 1 no channel")
    assert {"/models/acme/pii", "/models/acme/pii:1.3.0", "/models/hospital/triage"} <= set(page.links)


def test_an_empty_registry_says_so(registry):
    with running(registry.store.root) as site:
        assert read(site, "/").says("This registry holds no models yet.")
        assert read(site, "/?q=certified").says("No artifact fits.")


def test_a_search_is_a_query(shown):
    page = read(shown, "/?q=certified+and+recall.PHONE+%3E%3D+0.99")
    assert page.says("2 artifacts, by name, version and path")
    assert page.says("acme/pii:1.3.0 beta model_int8.onnx onnx-int8 int8 231.7 kB certified 0.9688")
    assert "/models/acme/deid-notes:0.1.0" in page.links
    assert read(shown, "/?q=yanked").says("yanked")
    assert read(shown, "/?q=size+%3C+1").says("No artifact fits.")


def test_an_unreadable_expression_is_underlined(shown):
    answer = shown.get("/?q=newest+and+sise+%3C%3D+30MB")
    assert answer.status == 400
    assert b"newest and sise &lt;= 30MB\n           ~~~^</pre>" in answer.body
    assert b'value="newest and sise &lt;= 30MB"' in answer.body
    words = "The expression cannot be read: there is no field sise. newest"
    assert Reader(answer).says(words, "Did you mean size?")


WORDS: dict[str, list[str]] = {
    "LETTERS": ["acme/letters"],
    "german+phone": ["acme/letters"],
    "openrail": ["acme/letters"],
    "bert+acme+apache": ["acme/deid-notes", "acme/langid", "acme/pii"],
    "onnx-int8+tiny": [],
    "triage+token-classification+apache-2.0+onnx-int8": ["hospital/triage"],
    "triage+MIT": [],
    "tiny": ["tiny"],
    "%27+OR+1%3D1": [],
    "100%25+_": [],
}


def test_plain_words_find_models(shown, room, tmp_path):
    about = {"description": "Finds names in German letters", "license": "openrail"}
    room.add(showroom.draft(tmp_path / "l", "acme/letters", "l", showroom.GOOD, **about), "1.0.0")
    for words, names in WORDS.items():
        page = read(shown, f"/?words={words}")
        models = [link for link in page.links if link.startswith("/models/") and ":" not in link]
        assert models == [f"/models/{name}" for name in names]
        assert ("No newest release matches." in page.text) == (not names)
        assert (about["description"] in page.text) == ("acme/letters" in names)


def test_words_stay_on_the_next_page(shown, monkeypatch):
    monkeypatch.setattr(pages, "MODELS_PER_PAGE", 2)
    answer = shown.get("/?words=acme")
    assert b'value="acme"' in answer.body
    (more,) = [link for link in Reader(answer).links if "after=" in link]
    assert more == "/?after=acme%2Flangid&words=acme"
    assert "/models/acme/pii" in read(shown, more).links
    assert "21 words are too many" in read(shown, f"/?words={'+'.join(map(str, range(21)))}", 400).text


def test_blob_reads_of_a_page_of_models(shown, room, monkeypatch):
    """A list reads the releases that it shows, a search by words all; each only once."""
    reads: list[str] = []
    read_blob = catalog.read_blob

    def counted(remote: Any, digest: Any, *more: Any) -> bytes:
        reads.append(str(digest))
        return read_blob(remote, digest, *more)

    monkeypatch.setattr(catalog, "read_blob", counted)
    monkeypatch.setattr(pages, "MODELS_PER_PAGE", 1)
    counts = []
    for path in ("/", "/?words=phone", "/?words=email", "/?words=email+onnx-int8", "/"):
        read(shown, path)
        counts.append(len(reads))
    assert counts == [2, 4, 4, 4, 4]
    room.tag("acme/pii:1.2.0", "canary")
    read(shown, "/?words=location")
    assert len(reads) == 4
    room.yank("acme/pii:1.3.0", "wrong")
    assert "1.2.0" in read(shown, "/?words=pii").text
    assert reads[4:] == [str(room.state("acme/pii").versions[Version(1, 2, 0)].manifest)]


def test_a_model_has_its_evidence_and_its_history(shown, room):
    page = read(shown, "/models/acme/pii")
    assert page.says(
        "token-classification bert Apache-2.0 5 versions", "1.0.0 pinned", "PHONE 0.9903 731 pass"
    )
    assert page.says("model_int8.onnx onnx-int8 int8 220.0 kB", "certified by G4/point")
    assert page.says(str(room.state("acme/pii").head))
    assert page.tags.count("svg") == 10
    assert re.search(r"Chain verified: 1[0-9] lines", page.text)
    who = "grace@acme.example"
    assert page.says(f"tag stable 1.0.0 → to 1.2.0 {who} two weeks in beta without a report")
    assert page.says(f"yank 1.1.0 {who} PHONE recall fell by five points: do not ship")


def test_the_metrics_of_a_certificate_are_shown(room, tmp_path):
    draft = showroom.draft(tmp_path / "embed", "acme/embed", "b", {})
    model, int8 = draft.artifacts
    common = {"verdict": "pass", "samples": 1500, "dataset": str(showroom.SUITE)}
    checks = [
        {"name": "sts/spearman", "metric": "spearman", "value": 0.83, "direction": "higher"} | common,
        {"name": "sts/spearman/loss", "metric": "spearman_loss", "value": 0.002, "limit": 0.01}
        | {"direction": "lower", "interval": [-0.001, 0.004]}
        | common,
        {"name": HOSTILE, "metric": "x", "value": 1.0} | common,
    ]
    measured = replace(int8, fields={**int8.fields, "checks": checks})
    room.add(replace(draft, artifacts=(model, measured)), "1.0.0")
    with running(room.store.root) as site:
        for path in ("/models/acme/embed", "/models/acme/embed:1.0.0"):
            page = read(site, path)
            assert page.says("sts/spearman higher is better 0.83 Samples 1,500 pass")
            loss = "lower is better 0.002 95 % -0.001 to 0.004 Limit 0.01 Samples 1,500 pass"
            assert page.says(f"sts/spearman/loss {loss}")
            assert "script" not in page.tags and page.text.count("reference") == 1
        found = read(site, "/?q=metric%5B%27sts/spearman%27%5D+%3E%3D+0.82")
        assert found.says("acme/embed:1.0.0", "1 artifact,")


def test_a_version_has_everything_its_manifest_tells(shown, room):
    page = read(shown, "/models/acme/pii:1.1.0")
    manifest = room.get(f"acme/pii@{room.state('acme/pii').versions[Version(1, 1, 0)].manifest}")
    assert page.says(
        "Yanked on",
        "PHONE recall fell by five points: do not ship",
        "refused by G4/point",
        "PHONE: recall falls by 0.0564, more than 0.0100",
        "PHONE 0.9312 731 fail",
        "logits output float32 [batch, tokens, 13]",
        "model.onnx parity argmax_agreement 0.9997 Limit 0.999 Samples 8,192 pass",
        "tokenizer.json tokenizer 11.7 kB",
        "int8 quantize-dynamic v4 float32",
        "skipped onnxruntime is too old",
        "onnx 1.21.0",
        "Apache-2.0",
    )
    for file in manifest.manifest.all_files():
        (link,) = [item for item in page.links if item.endswith(f"/{file.path}")]
        answer = shown.get(link)
        assert Digest.of(answer.body) == file.digest
        assert answer.headers["content-disposition"] == f"inline; filename*=UTF-8''{file.path}"
    assert read(shown, "/models/acme/pii:stable").words[0] == "acme/pii:1.2.0"
    room.yank("acme/pii:1.1.0", "it is shown again", undo=True)
    for path in ("/models/acme/pii:1.1.0", "/models/acme/pii"):
        assert read(shown, path).says("1 of 2 refused")


def test_the_history_of_a_figure_is_charted(shown):
    page = read(shown, "/history?model=acme/pii&metric=PHONE")
    assert page.says("character_recall/PHONE from 1.0.0 to", "1.1.0: 0.9312, refused")
    answer = read(shown, "/history?model=acme/pii")
    assert answer.says("character_recall/", "Vertical lines are published 95 % intervals")
    assert "/history?model=acme%2Fpii" in " ".join(read(shown, "/models/acme/pii").links)
    assert shown.get("/history?model=acme/pii&metric=nonsense").status == 404


def test_two_versions_stand_side_by_side(shown):
    page = read(shown, "/diff?old=acme/pii:1.2.0&new=acme/pii:1.1.0")
    assert page.says("can run the new one unchanged, with worse results or weaker evidence")
    assert page.says("model_int8.onnx certified 220.0 kB onnx-int8, int8 refused 220.0 kB onnx-int8, int8")
    assert page.says("PHONE model_int8.onnx 0.9876 0.9312 -0.0564")
    assert page.says("degrading certification changed certification.state")
    assert "not in this version" not in page.text
    assert read(shown, "/diff?old=acme/pii&new=acme/pii:1.3.0").says("The two versions do not differ.")
    assert read(shown, "/diff?old=acme/pii&new=acme/langid").text.count("not measured") == 6


def test_only_a_version_that_can_be_held_to_what_it_published_has_a_script(registry, tmp_path):
    """The script and its policy are on no other page, and on none without the folder of the script."""
    (tmp_path / "script").mkdir()
    (tmp_path / "script" / "try.js").write_text("export {}")
    facts = {"tags": {}, "chat": {"task": "text-generation"}, "bare": {}, "yanked": {}}
    for name, fields in facts.items():
        draft = showroom.draft(tmp_path / name, f"acme/{name}", "a", None, **fields)
        (tmp_path / name / "golden.json").write_text("{}")
        vectors = () if name == "bare" else (DraftFile("golden", "golden.json"),)
        first, *others = draft.artifacts
        registry.add(replace(draft, artifacts=(replace(first, sidecars=vectors), *others)), "1.0.0")
    registry.yank("acme/yanked:1.0.0", "no")
    for trial, names in ((tmp_path / "script", {"tags"}), (None, set[str]())):
        with running(registry.store.root, Settings(trial=trial)) as site:
            for name in facts:
                answer = site.get(f"/models/acme/{name}:1.0.0")
                sources = {
                    value for kind, value in Reader(answer).attributes if kind == "src" and "try" in value
                }
                assert sources == ({"/try/try.js"} if name in names else set()), name
                policy = answer.headers["content-security-policy"]
                assert ("script-src 'self' 'wasm-unsafe-eval'" in policy) == (trial is not None)
            assert "script-src" not in site.get("/models/acme/tags").headers["content-security-policy"]
            assert site.get("/try/try.js").status == (200 if trial else 404)


def test_every_link_leads_somewhere_and_no_page_needs_a_script(shown):
    found = crawl(shown)
    assert {answer.status for answer in found.values()} == {200}
    assert len([path for path in found if path.startswith("/models/")]) == 5 + 9
    assert any(path.startswith("/diff?") for path in found)
    found |= {path: shown.get(path, Accept="text/html") for path in ("/none", "/models/none", "/?q=x")}
    for path, answer in found.items():
        if not answer.headers["content-type"].startswith("text/html"):
            continue
        page = Reader(answer)
        assert not {"script", "style", "iframe", "object"} & set(page.tags), path
        names = {name for name, _ in page.attributes}
        assert not {name for name in names if name == "style" or name.startswith("on")}, path
        actions = [value for name, value in page.attributes if name == "action"]
        assert all(re.match(r"/(?!/)|#", link) for link in (*page.links, *actions)), path
        ids = [value for name, value in page.attributes if name == "id"]
        assert len(ids) == len(set(ids)), path
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'") and "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.more
@pytest.mark.parametrize("stride", [25, pytest.param(1, marks=pytest.mark.large)])
def test_the_frozen_registry_is_shown_with_all_that_became_of_it(tmp_path, stride):
    shutil.copytree(FROZEN, tmp_path / "frozen")
    registry = Registry(tmp_path / "frozen", create=False)
    with running(tmp_path / "frozen") as site:
        found = crawl(site, stride=stride)
        versions = [
            f"/models/{name}:{version}"
            for name in registry.names()
            for version in open_log(registry.store, name).versions
        ]
        shown = " ".join(read(site, path).text for path in versions)
        assert all(word in shown for word in ("Purged on", "Expired on", "Yanked on", "Pinned"))
    logs = " ".join(Reader(each).text for path, each in found.items() if path.startswith("/models/acme/pii?"))
    assert all(kind in logs for kind in ("attest", "fence", "untag", "unyank", "purge", "drop"))
    assert {answer.status for path, answer in found.items() if not path.startswith("/blobs/")} == {200}


def test_a_partial_version_is_marked(room, other):
    other.pull("acme/pii:1.3.0", str(room.store.root), selection=Selection(("onnx-int8",)))
    with running(other.store.root) as site:
        page = read(site, "/models/acme/pii:1.3.0")
        assert page.says("Partial: only some artifacts are held here (model_int8.onnx)", "not held")
        assert {answer.status for answer in crawl(site).values()} == {200}


def test_nothing_of_a_stranger_is_markup(shown, room, tmp_path):
    stranger = Registry(room.store.root, actor=HOSTILE)
    draft = showroom.draft(
        tmp_path / "hostile",
        "acme/hostile",
        "h",
        dict.fromkeys(showroom.GOOD, 0.9),
        **dict.fromkeys(("license", "family", "task"), HOSTILE),
        description=HOSTILE.replace("\u202e", ""),
        labels=[HOSTILE],
        source={"id": HOSTILE, "revision": HOSTILE},
        recipe={**showroom.RECIPE, "profile": HOSTILE, "tools": {HOSTILE: HOSTILE}},
    )
    stranger.add(draft, "1.0.0", HOSTILE)
    stranger.tag("acme/hostile:1.0.0", "stable", HOSTILE)
    stranger.yank("acme/hostile:1.0.0", HOSTILE)
    stranger.add(
        showroom.draft(tmp_path / "h2", "acme/hostile", "i", None, license="MIT", task=HOSTILE), "1.1.0"
    )
    script, quoted = "%3Cscript%3Ealert(1)%3C/script%3E", "%22%3E%3Cscript%3Ealert(1)"
    for path in (
        "/models/acme/hostile",
        "/models/acme/hostile:1.0.0",
        "/diff?old=acme/hostile:1.0.0&new=acme/hostile:1.1.0",
        "/?words=hostile",
        *(f"/{start}{script}" for start in ("", "?q=", "?after=", "?words=")),
        *(f"/?words={quoted}%3C/script%3E", "/models/%3Cscript%3Ealert(1)", f"/diff?old={quoted}&new=x"),
    ):
        answer = shown.get(path, Accept="text/html")
        text = answer.body.decode()
        assert "text/html" in answer.headers["content-type"]
        assert "alert(1)" in text or "hostile" in path, path
        assert "<script" not in text and "\u202e" not in text
        assert "49" not in Reader(answer).words
    assert read(shown, "/models/acme/hostile:1.0.0").says("\\x202e")


def test_a_page_is_asked_for_again(shown, room):
    diff = "/diff?old=acme/pii:1.0.0&new=acme/pii:stable"
    for path in ("/", "/models/acme/pii", "/models/acme/pii:stable", diff):
        answer = shown.get(path)
        tag = answer.headers["etag"]
        assert answer.headers["cache-control"] == "no-cache"
        again = shown.get(path, If_None_Match=tag)
        assert (again.status, again.body) == (304, b"")
        assert "content-security-policy" in again.headers
        head = shown.ask("HEAD", path)
        assert (head.status, head.body, head.headers["etag"]) == (200, b"", tag)
        room.tag("acme/pii:1.3.0", "stable")
        assert shown.get(path, If_None_Match=tag).status == 200
        room.tag("acme/pii:1.2.0", "stable")


def test_the_style_is_asked_for_by_its_digest(shown):
    (style,) = [link for link in read(shown, "/").links if ".css" in link]
    answer = shown.get(style)
    assert re.search(r"style\.css\?[0-9a-f]{16}$", style)
    assert answer.headers["content-type"] == "text/css; charset=utf-8"
    assert shown.get(style, If_None_Match=answer.headers["etag"]).status == 304
    assert b"prefers-color-scheme: dark" in answer.body
    assert re.search(rb"url\(|@import", answer.body) is None
    assert shown.get("/static/..%2fpages.py").status == 404


ERRORS = """
/models/acme/pi | 404 | There is no model acme/pi here. The first page lists those that are
/models/acme/pi:1.0.0 | 404 | There is no model acme/pi here. The first page lists those that are
/models/acme/pii:1.4.0 | 404 | acme/pii has no version 1.4.0
/models/acme/pii:stabel | 404 | acme/pii has no channel stabel. Did you mean stable?
/diff?old=acme/pii:1.4.0&new=acme/pii | 404 | acme/pii has no version 1.4.0
/diff?old=acme/pii:1.0.0 | 400 | Two versions are compared.
/diff?old=acme/pii:1.0.0&new=A | 400 | Not a model name: 'A'.
/models/ACME | 400 | Not a model name: 'ACME'.
/models/acme/pii?before=x | 400 | Before is 'x'.
/models/acme/pii?older=x | 400 | Not a version
/nothing/at/all | 404 | There is no /nothing/at/all.
"""


def test_errors_are_pages_too(shown):
    for path, status, words in (row.split(" | ") for row in ERRORS.strip().splitlines()):
        assert read(shown, path, int(status)).says(words, "All models")


def test_a_bug_is_a_page_for_browsers_and_json_for_programs(shown, monkeypatch):
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(pages, "history_chart", fail)
    page = read(shown, "/history?model=acme/pii", 500)
    assert page.says("Something went wrong here The server's log has the cause.")
    assert "a bug" not in page.text
    assert shown.get("/history?model=acme/pii").error["family"] == "internal"


def test_a_log_that_was_rewritten_is_not_believed(shown):
    path = shown.root / index_path("acme/pii")
    lines = path.read_bytes().splitlines(keepends=True)
    assert b"first release" in lines[2]
    lines[2] = lines[2].replace(b"first release", b"other reason!")
    path.write_bytes(b"".join(lines))
    page = read(shown, "/models/acme/pii", 500)
    assert page.text.startswith("Damaged")
    assert "other reason!" not in page.text and str(shown.root) not in page.text


def test_a_manifest_that_was_changed_is_not_shown(shown, room):
    blob = room.store.root / blob_path(room.get("acme/pii:1.3.0").digest)
    blob.chmod(0o644)
    blob.write_bytes(canonical.encode({}))
    assert read(shown, "/models/acme/pii:1.3.0", 500).text.startswith("Damaged")
    for path in ("/", "/?words=pii"):
        assert {"/models/acme/pii", "/models/acme/pii:1.3.0"} <= set(read(shown, path).links)
    assert "/models/acme/pii" not in read(shown, "/?words=pii+phone").links
    assert "Published" in read(shown, "/models/acme/pii:1.2.0").text


@pytest.mark.more
def test_a_long_history_has_pages(shown, room, monkeypatch):
    monkeypatch.setattr(pages, "LINES_PER_PAGE", 20)
    for number in range(100):
        room.tag(f"acme/pii:1.{number % 2 * 2}.0", "canary", f"move {number}")
    page, lines = read(shown, "/models/acme/pii"), len(room.log("acme/pii"))
    assert page.says(f"Chain verified: {lines} lines", "move 99") and "move 79" not in page.text
    earlier = f"/models/acme/pii?before={lines - 19}"
    assert f"{earlier}#log-title" in page.links
    assert read(shown, earlier).says("move 79")
    assert read(shown, "/models/acme/pii?before=1").says("There are no lines before that one.")
    assert sum("?before=" in path for path in crawl(shown)) == 5


def test_many_versions_have_pages(shown, monkeypatch):
    monkeypatch.setattr(pages, "VERSIONS_PER_PAGE", 2)
    assert "/models/acme/pii?older=1.3.0" in read(shown, "/models/acme/pii").links
    page = read(shown, "/models/acme/pii?older=1.3.0")
    assert "/models/acme/pii?older=1.1.0" in page.links
    assert "Newest release" not in page.text


def test_behind_a_proxy_links_keep_its_path(room):
    with running(room.store.root, Settings(url="https://models.example/reg")) as site:
        page = read(site, "/")
        actions = [value for name, value in page.attributes if name == "action"]
        assert all(link.startswith(("/reg/", "#")) for link in (*page.links, *actions))
        assert "/reg/models/acme/pii" in page.links


def test_a_version_shows_what_its_updates_take(registry, tmp_path):
    for step in range(2):
        registry.add(retrained.draft(tmp_path / f"draft{step}", step))
    with running(registry.store.root) as site:
        assert "Updates" not in Reader(site.get("/models/acme/pii:0.1.1")).text
    make_deltas(registry, registry.store, Ref("acme/pii"), (), SILENT)
    with running(registry.store.root) as site:
        page = Reader(site.get("/models/acme/pii:0.1.1")).text
    assert "At 10 Mbit/s" in page and "model_int8.onnx 0.1.0" in page


NAME = "acme/pii"


@pytest.fixture(scope="module")
def audited_template(isolated_user, tmp_path_factory) -> tuple[Registry, str]:
    """A governed channel, signed lines and versions, a rollout that was halted; and the public key."""
    key = generate("ed25519")
    registry = make_audited(tmp_path_factory.mktemp("audited"), key, generate("ed25519"))
    owner.rollouts(registry).start(Ref.parse(f"{NAME}:1.1.0"), "nightly", 5)
    owner.rollouts(registry).halt(NAME, "nightly", "too many crashes")
    return registry, str(key.public)


@pytest.fixture
def audited(audited_template) -> Registry:
    """The same; the reader trusts the key."""
    registry, public = audited_template
    trust_file().parent.mkdir(parents=True, exist_ok=True)
    trust_file().write_text(f'[keys.release]\nkey = "{public}"\n')
    return registry


def tables_of(registry: Registry, ref: str, label: str) -> list[Any]:
    """The tables of a field of the dossier."""
    dossier = json.loads(make_dossier(registry.store, Ref.parse(f"{NAME}:{ref}"), "plain")["dossier.json"])
    fields = (field for section in dossier["sections"] for field in section["fields"])
    return next(list(field.get("tables", ())) for field in fields if field["label"] == label)


def page(registry: Registry, end: str = "") -> str:
    """The words of a page of the model."""
    with running(registry.store.root) as site:
        return read(site, f"/models/{NAME}{end}").text


def test_the_log_has_the_versions_that_the_events_name(registry):
    """Two versions share a manifest, and the later one was in no channel."""
    for version, seed in {"1.0.0": "a", "1.1.0": "b", "1.2.0": "a"}.items():
        registry.make(version, seed=seed)
    registry.tag(f"{NAME}:1.0.0", "stable")
    registry.tag(f"{NAME}:1.1.0", "stable", "fix")
    text = page(registry)
    assert "tag stable 1.0.0 → to 1.1.0" in text and "stable 1.2.0" not in text
    registry.yank(f"{NAME}:1.1.0", "leaks names")
    assert "does not resolve 1.1.0 is yanked" in page(registry)


def test_the_command_for_a_channel_is_the_command_that_moves_it(registry):
    registry.make("1.0.0")
    assert f"reg tag {NAME} stable makes one" in page(registry)
    assert f"reg tag {NAME}:1.0.0 stable." in page(registry, ":1.0.0")
    owner.set_policy(registry, read_policy(b'[[rule]]\nchannel = "stable"\ncertified = ["onnx"]\n', "policy"))
    assert f"reg promote {NAME} stable makes one" in page(registry)
    assert f"reg promote {NAME}:1.0.0 stable." in page(registry, ":1.0.0")


def test_an_unknown_name_is_not_compared_with_all_names(registry, monkeypatch):
    registry.make("1.0.0")
    monkeypatch.setattr(ServedRegistry, "names", None)
    with running(registry.store.root) as site:
        answer = read(site, "/models/acme/pi", 404)
    assert answer.says("There is no model acme/pi here. The first page lists those that are")


def test_what_is_in_production_comes_first(audited):
    text = page(audited)
    assert text.index("In production") < text.index("Newest release")
    row = text.partition("In production")[2].partition("Newest release")[0].partition(" stable 1.2.0")[2]
    assert re.search(r"ada@<lab> <b>monthly</b> .*the move by release, the version by release.* met", row)


def test_the_log_says_promotion_policy_signature_and_rollout(audited):
    newest, first = page(audited), page(audited, "?before=20")
    assert re.search(r"rollout nightly [0-9.]+ → to 1.1.0 halted ada@<lab> too many crashes", newest)
    assert re.search(r"rollout nightly [0-9.]+ → to 1.1.0 5 %", newest)
    assert re.search(r"promote stable 1.0.0 → to 1.1.0 policy [0-9a-f]{12} evidence [0-9a-f]{12}", first)
    assert "attest 1.1.0 signature by release" in first


def test_the_dossier_has_the_rollouts(audited):
    moves = tables_of(audited, "nightly", "History of its channels")[0]
    steps = [[cell["value"] for cell in row][moves["columns"].index("Move") :] for row in moves["rows"]][-2:]
    assert [step[:3] for step in steps] == [["rollout", "1.1.0", 5], ["rollout", None, None]]
    assert "too many crashes" in steps[1]


def test_a_model_is_not_made_from_itself(registry, tmp_path):
    draft = write_draft(tmp_path / "a", NAME, "a", 100)
    registry.add(replace(draft, fields={**draft.fields, "source": {"id": NAME}}), "1.0.0")
    assert "Made from local files" in page(registry, ":1.0.0")
    tables = tables_of(registry, "1.0.0", "Source")
    assert all(cell["value"] != NAME for table in tables for row in table["rows"] for cell in row)


@pytest.mark.parametrize("damage", ["changed", "gone", "a pipe"])
def test_a_damaged_log_of_policies_is_never_no_policy(audited, tmp_path, damage):
    root = Path(shutil.copytree(audited.store.root, tmp_path / "copy"))
    policies = root / "policy.jsonl"
    with running(root) as site:
        assert " met" in read(site, f"/models/{NAME}").text.partition("Newest release")[0]
        data = policies.read_bytes()
        policies.unlink()
        if damage == "changed":
            policies.write_bytes(data.replace(b"stable", b"staple"))
        elif damage == "a pipe":
            policies.mkdir()
        text = read(site, f"/models/{NAME}").text.partition("Newest release")[0]
    assert " met" not in text and ("does not resolve" in text or "is not known" in text)
    assert "no policy" not in text.partition("stable")[2]


def test_only_the_limit_of_a_loss_is_called_one(tmp_path: Path) -> None:
    registry, draft = Registry(tmp_path / "home"), judged_draft(tmp_path / "draft", 1, 2)
    suite = {"dataset": str(Digest.of(b"suite")), "verdict": "pass"}
    exact = {"name": "exact", "metric": "exact", "value": 0.9, "limit": 0.75, "direction": "higher"} | suite
    artifacts = []
    for item in draft.artifacts:
        checks = [one for one in item.fields.get("checks", ()) if one["name"] != "quant_recall_delta"]
        artifacts.append(replace(item, fields=item.fields | {"checks": [*checks, exact] if checks else []}))
    registry.add(replace(draft, artifacts=tuple(artifacts)), "1.0.0")
    with running(registry.store.root) as site:
        page = Reader(site.get("/models/acme/tagger:1.0.0"))
    assert page.says("limit 0.75") and "limit of the loss" not in page.text
