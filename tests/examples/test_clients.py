"""Both clients take releases from a static server, on good and bad days."""

import json
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from examples.conftest import CLIENTS
from support import jvm
from support.fuzz.mutation import mutate
from support.registries import owner
from support.registries.for_devices import CHECKS, blob, publish
from support.sampling import sampled
from support.servers import static
from support.servers.faults import LIES as FALSE_ANSWERS
from support.servers.faults import Proxy, at
from support.trust.tamper import Tree

from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.registry.resolution import NoAnswerError, contracts_of
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.schema.core.ref import Ref
from onnxreg.schema.query.device import Device
from onnxreg.schema.query.resolve import Query

REPOSITORY = Path(__file__).parents[2]
VECTORS = REPOSITORY / "tests" / "vectors"
NAME = "acme/pii"
PIECE = 8 * 2**20
LARGE = 2 * PIECE + 1000
MODEL = "model_int8.onnx"
STABLE = {"tag": "stable"}
ERRORS = ("integrity", "remote", "not-found")
Publish = Callable[..., dict[str, str]]


def index_of(registry: Registry) -> Path:
    path = registry.store.root / "index" / "acme" / "pii.jsonl"
    path.chmod(0o600)
    return path


def spoil(site: Proxy, fault: str | None, part: str = "") -> None:
    site.plan = lambda method, path: fault if part in path else None


def vectors_of(which: str, directory: Path) -> "subprocess.CompletedProcess[str]":
    """Run the vectors of a directory in a client."""
    command = ["node", REPOSITORY / "examples" / "web-client" / "run-vectors.mjs"]
    if which == "jvm":
        program = "org.onnxreg.client.RunVectors"
        command = [str(jvm.JAVA), *jvm.QUICK_START, "-cp", str(jvm.classes()), program]
    return subprocess.run([*command, directory], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("which", CLIENTS)
def test_vectors_pass_and_others_are_noticed(which, tmp_path):
    done = vectors_of(which, VECTORS)
    assert done.returncode == 0, done.stderr
    count, failed = (int(word) for word in done.stdout.split() if word.isdigit())
    assert (count > {"web": 450, "jvm": 900}[which], failed) == (True, 0)
    shutil.copytree(VECTORS, tmp_path / "vectors")
    changes = {
        "where": ("format = onnx-int8", "format = onnx"),
        "behaviour": ('"changed": true', '"changed": false'),
    }
    for name, change in changes.items():
        path = tmp_path / "vectors" / f"{name}.json"
        path.write_text(path.read_text().replace(*change, 1))
    for path in (tmp_path / "vectors" / "resolve").glob("*.json"):
        path.write_text(path.read_text().replace('"ranked-lower"', '"opset"', 1))
    done = vectors_of(which, tmp_path / "vectors")
    assert done.returncode == 1 and 4 <= done.stderr.count("FAILED") <= 9, done.stderr


def test_update_returns_every_file_and_fetches_none_again(release, call, site, tmp_path):
    files = release("1.0.0")
    first = call("update", {"device": {"ort": "1.30"}})
    assert (first["version"], first["artifact"], first["files"]) == ("1.0.0", MODEL, files)
    assert (first["changed"], first["offline"]) == (True, False)
    assert first["progress"][-1] == [100_000 + 5, 100_000 + 5]
    assert site.requests("GET", "/index/") == 1
    before = len(site.seen)
    again = call("update")
    assert (again["version"], again["files"]) == (first["version"], first["files"])
    assert site.seen[before:] == [("GET", "/index/acme/pii.jsonl")]
    assert site.answers[-1] == 304
    spoil(site, "reset")
    for index in tmp_path.rglob("*index%2Facme%2Fpii"):  # as clients stored it that checked no signatures
        index.write_bytes(index.read_bytes().replace(b'"checks":"",', b""))
    for outcome, offline in ((again, False), (call("update"), True)):
        assert (outcome["version"], outcome["changed"], outcome["offline"]) == ("1.0.0", False, offline)


def test_a_client_measures_for_the_registry(release, call, registry, site, tmp_path):
    """Its document is taken as it is, and the next device of this class is answered by it."""
    release("1.0.0")
    document = call("benchmark", site.url, {"directory": str(tmp_path / "full")})["document"]
    (tmp_path / "device.json").write_text(document)
    for check in json.loads(document)["artifacts"][0]["checks"]:
        assert check.get("direction") == ("lower" if check["metric"] == "ratio" else None)
    words = ("measure", f"{NAME}:1.0.0", "--on-device", str(tmp_path / "device.json"))
    assert main(["--registry", str(registry.store.root), *words]) == 0
    (speed,) = next(state.speeds for state in registry.get(f"{NAME}:1.0.0").states.values() if state.speeds)
    assert (speed.isa, speed.threads, speed.runtime.partition("-")[0]) == ("arm64", 2, "onnxruntime")
    assert 0 < speed.low <= speed.ratio and speed.median_ms >= 2
    device = {"ort": "1.30", "abi": "arm64-v8a", "max_latency_ratio": speed.ratio}
    assert call("resolve", {"device": device})["artifact"] == MODEL
    outcome = call("resolve", {"device": {**device, "max_latency_ratio": speed.ratio / 2}})
    assert {each["code"] for each in outcome["rejected"]} == {"latency"}


QUESTIONS: list[tuple[dict[str, Any], dict[str, Any] | None]] = [
    ({"certified": True, "max_size": 10}, None),
    ({"formats": ["ort", "webgpu"]}, None),
    ({"precision": "int4"}, None),
    ({"min_recall": {"NAME": 0.95}}, None),
    ({"member": "ocr"}, None),
    ({"context": 9}, None),
    ({"contract": f"sha256:{'0' * 64}"}, None),
    ({"where": "size = 7B"}, None),
    ({}, {"ort": "1.30", "ram": 10}),
    ({}, {"ort": "1.30", "free_space": 10}),
    ({}, {"ort": "1.30", "providers": []}),
    ({}, {"ort": "1.30", "max_latency_ratio": 0.25}),
    ({}, {"ort": "1.30", "build": "minimal", "operators": "ai.onnx;18;Add"}),
]


def test_without_a_match_the_reasons_are_those_of_the_command_line(
    registry, release, call, client, site, tmp_path
):
    release("1.0.0", checks=CHECKS)
    for query, device in QUESTIONS:
        with pytest.raises(NoAnswerError) as caught:
            registry.resolve(NAME, Query.read(query), device=device and Device.read(device))
        outcome, expected = call("update", {"query": query, "device": device}), caught.value.to_json()
        assert outcome["error"] == "not-found"
        for row, same in zip(outcome["rejected"], expected["rejected"], strict=True):
            keys = ["version", "artifact", "code", *(["detail"] if same["code"] == "not-certified" else ())]
            assert [row[key] for key in keys] == [same[key] for key in keys]
    assert client(site.url, tmp_path / "store", "update", "acme/none")["error"] == "not-found"
    assert client(site.url, tmp_path / "store", "update", "../pii")["error"] == "input"


def test_a_cancelled_update_resumes_within_its_piece(release, call, site):
    files = release("1.0.0", LARGE)
    assert call("update", {}, {"cancel_at": PIECE + 3 * 2**20})["error"] == "cancelled"
    assert call("present") == {"previous": None}
    outcome = call("update")
    assert outcome["files"] == files
    assert max(done for done, _ in outcome["progress"][:2]) >= PIECE + 2 * 2**20


@pytest.mark.parametrize("fault", sampled(("reset", "lost", "slow-down", "error", "truncated"), 2))
def test_a_passing_fault_costs_only_its_request(release, call, site, fault):
    files = release("1.0.0", 3 * 2**20)
    for number in range(5):
        site.plan = at(number, fault)
        assert call("update", store=f"store{number}")["files"] == files, number
    assert len(site.met) == 5


@pytest.mark.parametrize("fault", ["page", "garbled"])
def test_wrong_bytes_are_never_returned(registry, release, call, site, fault):
    files = release("1.0.0")
    for part in (blob(registry, files[MODEL]).name, "/blobs/", "/index/", "registry.json"):
        spoil(site, fault, part)
        run = partial(call, store=part.strip("/"))
        assert run("update")["error"] in ("integrity", "remote"), part
        spoil(site, None)
        assert run("present") == {"previous": None}
        assert run("update").get("files") == files, part


@pytest.mark.parametrize(
    "pieces",
    [5, {"size": 5}, {"size": 10**5, "digests": 5}, {"size": 0, "digests": []}, {"size": 1, "digests": []}],
)
def test_pieces_that_do_not_make_their_file_are_refused(registry, release, call, request, pieces):
    release("1.0.0")
    plant = Tree(registry.store.root).plant_manifest
    plant(NAME, lambda manifest: manifest["artifacts"][1].update(pieces=pieces))
    families = {"web": "input", "jvm": "integrity"}
    assert call("update")["error"] == families[request.node.callspec.params["client"]]
    assert call("present") == {"previous": None}


@pytest.mark.parametrize("path", ["../evil", "a/../../evil", "/../evil", ".."])
def test_no_file_of_a_release_is_written_outside_of_its_directory(registry, release, call, tmp_path, path):
    """As a registry may say that lies: the programs of `reg` publish no such path."""
    release("1.0.0")
    tree, files = Tree(registry.store.root), tmp_path / "files"
    tree.plant_manifest(NAME, lambda manifest: manifest["files"][0].update(path=path))
    tree.edit_state(NAME, lambda state: state["summaries"]["1.0.0"]["files"][0].update(path=path))
    assert path in call("update")["files"]
    assert call("extract", str(files))["error"] == "integrity"
    assert [each.name for each in files.iterdir()] == [MODEL]
    assert not (tmp_path / "evil").exists()


@pytest.mark.more
@pytest.mark.parametrize("lie", sampled(FALSE_ANSWERS, 2, pytest.mark.large))
def test_one_false_answer_gives_the_right_files_or_an_error(release, call, site, lie):
    files = release("1.0.0")
    for number in range(5):
        site.plan = at(number, lie)
        run = partial(call, "update", store=f"store{number}")
        outcome = run()
        assert outcome.get("files") == files or outcome["error"] in ERRORS, number
        spoil(site, None)
        assert run().get("files") == files, number


@pytest.mark.parametrize(("fault", "requests"), [("garbled", (2, 4)), ("truncated", (1, 2, 3, 4))])
def test_only_a_bad_piece_is_fetched_again(registry, release, call, site, fault, requests):
    """One answer for all pieces, or one for each, and one more for what was bad."""
    files = release("1.0.0", LARGE)
    bad, model = at(0, fault), blob(registry, files[MODEL]).name
    site.plan = lambda method, path: bad(method, path) if model in path else None
    outcome = call("update")
    assert (outcome["files"], site.met) == (files, [fault])
    assert site.requests("GET", model) in requests
    done = [progress for progress, _ in outcome["progress"]]
    assert fault == "garbled" or done == sorted(done)


def test_a_stalled_server_is_given_up(release, call, site):
    release("1.0.0")
    spoil(site, "stalled", "/blobs/")
    assert call("update")["error"] == "remote"


def test_a_changed_byte_on_the_device_is_detected_and_repaired(registry, release, call, tmp_path):
    files = release("1.0.0")
    call("update")
    (kept,) = (tmp_path / "store").rglob(f"*{blob(registry, files[MODEL]).name}")
    data = bytearray(kept.read_bytes())
    data[500] ^= 1
    kept.write_bytes(data)
    assert call("present")["error"] == "integrity"
    assert call("update")["files"] == files


def test_a_blob_under_a_generation_key(registry, release, call):
    files = release("1.0.0")
    path = blob(registry, files[MODEL])
    path.rename(path.with_name(f"{path.name}.7"))
    assert call("update")["files"] == files
    path.with_name(f"{path.name}.7").unlink()
    assert call("update", store="fresh")["error"] == "not-found"


@pytest.fixture
def two(registry: Registry, release: Publish) -> Registry:
    """Two versions, the first of which is stable."""
    release("1.0.0", channel="stable")
    release("2.0.0")
    return registry


def test_a_rollout_reaches_a_device_by_its_own_seed(two, call, tmp_path):
    assert call("update", STABLE)["version"] == "1.0.0"
    assert not (tmp_path / "store" / "seed").exists()
    rollouts = owner.rollouts(two)
    rollouts.start(Ref.parse(f"{NAME}:2.0.0"), "stable", 0.01)
    assert call("update", STABLE)["version"] == "1.0.0", "one of 10,000 devices is in"
    seed = (tmp_path / "store" / "seed").read_text()
    assert len(seed.strip('"')) == 64
    rollouts.advance(NAME, "stable", 100)
    assert call("update", {**STABLE, "seed": None})["version"] == "1.0.0"
    assert call("update", STABLE)["version"] == "2.0.0"
    assert (tmp_path / "store" / "seed").read_text() == seed


IMAGES = {"size": [8, 8], "mean": [0.485], "std": [0.229], "layout": "NCHW", "color": "L", "resize": 9}


def test_an_app_gets_only_the_contract_that_it_asks_for(registry, release, call):
    for version, name in (("1.0.0", "ids"), ("1.1.0", "tokens")):
        shape = [{"kind": "dynamic", "name": "batch"}, {"kind": "static", "value": 2}]
        tensor = {"name": name, "dtype": "float32", "shape": shape}
        release(version, metadata={"inputs": [tensor], "outputs": [tensor]}, preprocessing=IMAGES)
    (contract,) = contracts_of(registry.store, Ref.parse(f"{NAME}:1.0.0"))
    assert call("update", {"query": {"contract": str(contract)}})["version"] == "1.0.0"
    rejected = call("update", {"query": {"contract": [f"sha256:{'0' * 64}"]}}, store="other")["rejected"]
    assert {row["code"] for row in rejected} == {"contract"}


def test_tidy_keeps_current_and_previous(release, call, tmp_path):
    def count() -> int:
        return sum(path.is_file() for path in (tmp_path / "store").rglob("*"))

    for number in (1, 2, 3):
        files = release(f"1.{number}.0")
        call("update")
    before = count()
    call("tidy")
    assert count() == before - 3
    assert call("present")["files"] == files
    assert call("rollback")["version"] == "1.2.0"


def test_files_that_are_here_need_no_space(registry, release, call):
    """A full phone keeps its release, and goes back to the one before if that was withdrawn."""

    def asked(free: int) -> dict[str, Any]:
        return {"query": {"certified": True}, "device": {"ort": "1.30", "free_space": free}}

    release("1.0.0")
    assert {row["code"] for row in call("update", asked(99_999))["rejected"]} >= {"space"}
    assert call("update", asked(150_000))["version"] == "1.0.0"
    assert call("update", asked(0))["changed"] is False
    release("1.1.0")
    assert call("update", asked(150_000))["version"] == "1.1.0"
    registry.yank(f"{NAME}:1.1.0", "broken")
    assert call("update", asked(0))["version"] == "1.0.0"


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> tuple[Registry, list[bytes]]:
    """A model with a log of 140 lines, two segments of which are sealed, and its index file as it was at each line."""
    root = tmp_path_factory.mktemp("long")
    registry = Registry(root / "home")
    DirectoryRegistry.create(registry.store.root)
    seen = [b""]
    for number in range(1, 141):
        if number == 1 or number in range(4, 10):
            publish(registry, root / str(number), f"1.{number if number > 1 else 0}.0", 100)
        else:
            owner.pin(registry, f"{NAME}:1.0.0", undo=number % 2 == 1)
        seen.append(index_of(registry).read_bytes())
    assert len(registry.state(NAME).segments) == 2
    return registry, seen


@pytest.mark.parametrize("seen", sampled([1, 64, 65, 100, 128, 129], 2))
def test_lines_that_were_sealed_since_are_compared_too(long, client, tmp_path, seen):
    registry, indexes = long
    with static.serve(registry.store.root) as url:
        resolve = partial(client, url, tmp_path / "store", "resolve", NAME)
        index_of(registry).write_bytes(indexes[seen])
        assert resolve()["version"]
        index_of(registry).write_bytes(indexes[-1])
        (kept,) = (path for path in (tmp_path / "store").rglob("*pii") if "index" in str(path))
        before = kept.read_bytes()
        assert resolve()["version"] == "1.9.0"
        head = json.loads(indexes[seen].splitlines()[0])["head"].encode()
        assert before.count(head) >= 1
        kept.write_bytes(before.replace(head, b"sha256:" + b"0" * 64).replace(b'"etag":"', b'"etag":"x'))
        assert "is not the one that was there before" in resolve()["message"]


def test_a_version_that_only_the_checkpoint_has(long, client, tmp_path):
    registry, _ = long
    assert "1.4.0" not in [str(version) for version in registry.state(NAME).versions]
    with static.serve(registry.store.root) as url:
        update = partial(client, url, tmp_path / "store", "update", NAME)
        found = update({"tag": "1.4.0"})
        assert (found["version"], found["artifact"]) == ("1.4.0", MODEL)
        assert update({"tag": "1.99.0"})["error"] == "not-found"


def test_a_token_is_sent_over_https_or_to_this_machine_only(client, tmp_path):
    public = client("http://models.example", tmp_path / "x", "resolve", NAME, token="secret")
    assert public["error"] == "input"
    assert "https" in public["message"]


@pytest.mark.more
def test_a_damaged_index_file_gives_the_right_files_or_an_error(two, release, client, tmp_path):
    owner.rollouts(two).start(Ref.parse(f"{NAME}:2.0.0"), "stable", 100)
    files = release("3.0.0", checks=CHECKS)
    right = index_of(two).read_bytes()
    chance = Random(11)
    query = {"where": "recall.NAME >= 0.5 or size > 1", "formats": ["onnx-int8"]}
    families = set()
    with static.serve(two.store.root) as url:
        for number in range(500):
            index_of(two).write_bytes(mutate(right, [right], chance))
            question = {"tag": chance.choice([None, "stable"]), "query": query, "device": {"ort": "1.30"}}
            outcome = client(url, tmp_path / f"store{number}", "update", NAME, question)
            families.add(outcome.get("error"))
            assert outcome.get("version") != "3.0.0" or outcome["files"] == files
    assert families == {None, "integrity", "not-found"}
