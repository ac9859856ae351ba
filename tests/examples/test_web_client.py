"""The client in examples/web-client, run by Node: the vectors, and a registry on a static server on good and bad days."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.registries import owner
from support.registries.for_devices import CHECKS, LIES, artifact, blob, edit_state, publish
from support.servers import static, web_client
from support.servers.faults import Proxy, at, proxy
from support.servers.web_client import Call

from onnxreg.registry import Registry
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.schema.core.ref import Ref

NODE = shutil.which("node")
CLIENT = Path(__file__).parents[2] / "examples" / "web-client"
PIECE = 8 * 2**20
LARGE = 2 * PIECE + 1000

pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")


def node(*words: str | Path) -> str:
    assert NODE is not None
    done = subprocess.run([NODE, *words], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def site(registry: Registry) -> Iterator[Proxy]:
    with static.serve(registry.store.root) as url, proxy(url) as running:
        yield running


@pytest.fixture(scope="module")
def client() -> Iterator[Call]:
    assert NODE is not None
    with web_client.running(NODE) as call:
        yield call


@pytest.fixture
def call(client: Call, site: Proxy, tmp_path: Path) -> Call:
    """Call the client with the store that the last call left."""

    def run(name: str, *arguments: Any, store: Path | None = tmp_path / "store") -> Any:
        return client(site.url, store, name, *arguments)

    return run


def blobs(site: Proxy) -> int:
    return site.requests("GET", "/blobs/")


def test_the_client_passes_the_vectors() -> None:
    count, failed = (int(word) for word in node(CLIENT / "run-vectors.mjs").split() if word.isdigit())
    assert count > 450
    assert failed == 0


def test_vectors_that_fail_are_noticed(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parents[1] / "vectors", tmp_path / "vectors")
    where = tmp_path / "vectors" / "where.json"
    where.write_text(where.read_text().replace("format = onnx-int8", "format = onnx", 1))
    for path in (tmp_path / "vectors" / "resolve").glob("*.json"):
        path.write_text(path.read_text().replace('"ranked-lower"', '"opset"', 1))
    done = subprocess.run(
        [str(NODE), CLIENT / "run-vectors.mjs", tmp_path / "vectors"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert 2 <= done.stderr.count("FAILED") <= 6


def run_with(module: str, script: str, *words: str | Path) -> str:
    """What a script prints that imports a module of the client as `client`."""
    imported = f"import * as client from '{(CLIENT / module).as_uri()}'\n"
    return node("--input-type=module", "--eval", imported + script, *words)


def test_a_directory_keeps_no_temporary_file_of_a_failed_or_killed_put(tmp_path: Path) -> None:
    for name in ("%tmp-old", "%tmp-new"):
        (tmp_path / name).touch()
    os.utime(tmp_path / "%tmp-old", (0, 0))
    (tmp_path / "taken").mkdir()
    script = """const store = client.directoryStore(process.argv[1])
    for (const [key, bytes] of [['taken', new Uint8Array(1)], ['other', {}]])
      await store.put(key, bytes).then(() => console.log(key), () => console.log('failed'))"""
    assert run_with("directory-store.mjs", script, tmp_path).split() == ["failed", "failed"]
    assert {path.name for path in tmp_path.iterdir()} == {"%tmp-new", "taken"}


def test_a_browser_store_says_why_it_failed() -> None:
    script = """const request = { error: new Error('the disk is full') }
    const transaction = { error: null, objectStore: () => ({ put: () => request }) }
    const opened = { result: { transaction: () => transaction } }
    globalThis.indexedDB = { open: () => opened }
    setTimeout(() => { opened.onsuccess(); setTimeout(() => transaction.onerror()) })
    await client.browserStore('x').put('key', new Uint8Array(1)).catch((error) => console.log(error.message))"""
    assert run_with("stores.mjs", script) == "the disk is full\n"


@pytest.mark.parametrize("store", ["store", None])
def test_update_hands_out_every_file(
    registry: Registry, call: Call, site: Proxy, tmp_path: Path, store: str | None
) -> None:
    files = publish(registry, tmp_path / "1", "1.0.0")
    found = call("update", "acme/pii", {"device": {"ort": "1.30"}}, store=store and tmp_path / store)
    assert (found["version"], found["artifact"], found["files"]) == ("1.0.0", "model_int8.onnx", files)
    total = 100_000 + 5
    assert found["progress"][-1] == [total, total]
    assert site.requests("GET", "/index/") == 1


def test_present_files_are_not_fetched_again(
    registry: Registry, call: Call, site: Proxy, tmp_path: Path
) -> None:
    publish(registry, tmp_path / "1", "1.0.0")
    found = call("update", "acme/pii")
    before = len(site.seen)
    again = call("update", "acme/pii")
    assert (again["version"], again["files"]) == (found["version"], found["files"])
    assert site.seen[before:] == [("GET", "/index/acme/pii.jsonl")]
    assert site.answers[-1] == 304


def test_reasons_of_an_update_without_a_match(registry: Registry, call: Call, tmp_path: Path) -> None:
    publish(registry, tmp_path / "1", "1.0.0")
    found = call("update", "acme/pii", {"query": {"certified": True, "max_size": 10}})
    assert found["error"] == "not-found"
    assert [each["code"] for each in found["rejected"]] == ["not-certified", "too-large"]
    assert call("update", "acme/none")["error"] == "not-found"
    assert call("update", "../pii")["error"] == "input"


def test_a_large_file_resumes_within_its_piece(
    registry: Registry, call: Call, site: Proxy, tmp_path: Path
) -> None:
    files = publish(registry, tmp_path / "1", "1.0.0", LARGE)
    assert call("abort", "acme/pii", PIECE + 3 * 2**20)["error"] == "test"
    assert call("present", "acme/pii") == {"previous": None}
    found = call("update", "acme/pii")
    assert found["files"] == files
    assert found["progress"][0][0] == PIECE
    assert found["progress"][1][0] >= PIECE + 2 * 2**20


@pytest.mark.more
@pytest.mark.parametrize(
    "fault",
    [
        "reset",
        *(pytest.param(name, marks=pytest.mark.more) for name in ("lost", "slow-down", "error", "truncated")),
    ],
)
def test_a_bad_moment_costs_only_what_it_broke(
    registry: Registry, call: Call, site: Proxy, tmp_path: Path, fault: str
) -> None:
    files = publish(registry, tmp_path / "1", "1.0.0", LARGE)
    for number in range(5):
        site.plan = at(number, fault)
        assert call("update", "acme/pii", store=tmp_path / f"store{number}")["files"] == files, number
    assert len(site.met) == 5


def test_a_truncated_answer_is_continued(registry: Registry, call: Call, site: Proxy, tmp_path: Path) -> None:
    files = publish(registry, tmp_path / "1", "1.0.0", LARGE)
    model = blob(registry, files["model_int8.onnx"]).name
    cut = at(0, "truncated", burst=1)
    site.plan = lambda method, path: cut(method, path) if model in path else None
    found = call("update", "acme/pii")
    assert found["files"] == files
    assert all(
        later >= earlier
        for (earlier, _), (later, _) in zip(found["progress"], found["progress"][1:], strict=False)
    )


def test_a_stalled_server_is_given_up(registry: Registry, call: Call, site: Proxy, tmp_path: Path) -> None:
    publish(registry, tmp_path / "1", "1.0.0")
    site.plan = lambda method, path: "stalled" if "/blobs/" in path else None
    assert call("update", "acme/pii")["error"] == "remote"


@pytest.mark.parametrize("fault", ["page", pytest.param("garbled", marks=pytest.mark.more)])
def test_wrong_bytes_are_never_handed_out(
    registry: Registry, call: Call, site: Proxy, tmp_path: Path, fault: str
) -> None:
    files = publish(registry, tmp_path / "1", "1.0.0", LARGE)
    model = blob(registry, files["model_int8.onnx"]).name
    for part in (model, "/blobs/", "/index/", "registry.json"):
        site.plan = lambda method, path, part=part: fault if part in path else None
        store = tmp_path / part.strip("/")
        assert call("update", "acme/pii", store=store)["error"] in ("integrity", "remote"), part
        site.plan = lambda method, path: None
        assert call("present", "acme/pii", store=store) == {"previous": None}
        assert call("update", "acme/pii", store=store)["files"] == files


def test_only_a_bad_piece_is_fetched_again(
    registry: Registry, call: Call, site: Proxy, tmp_path: Path
) -> None:
    files = publish(registry, tmp_path / "1", "1.0.0", LARGE)
    model = blob(registry, files["model_int8.onnx"]).name
    bad = at(1, "garbled")
    site.plan = lambda method, path: bad(method, path) if model in path else None
    assert call("update", "acme/pii")["files"] == files
    assert site.met == ["garbled"]
    assert site.requests("GET", model) == 4


def test_a_byte_that_changed_in_the_store_is_found_and_mended(
    registry: Registry, call: Call, tmp_path: Path
) -> None:
    files = publish(registry, tmp_path / "1", "1.0.0")
    call("update", "acme/pii")
    (kept,) = (tmp_path / "store").glob(f"*{blob(registry, files['model_int8.onnx']).name}")
    data = bytearray(kept.read_bytes())
    data[500] ^= 1
    kept.write_bytes(data)
    assert call("present", "acme/pii")["error"] == "integrity"
    assert call("update", "acme/pii")["files"] == files


def test_a_blob_under_a_generation_key(registry: Registry, call: Call, tmp_path: Path) -> None:
    files = publish(registry, tmp_path / "1", "1.0.0")
    path = blob(registry, files["model_int8.onnx"])
    path.rename(path.with_name(f"{path.name}.7"))
    assert call("update", "acme/pii")["files"] == files
    path.with_name(f"{path.name}.7").unlink()
    assert call("update", "acme/pii", store=tmp_path / "fresh")["error"] == "not-found"


def test_a_new_release_takes_the_place_and_can_be_taken_back(
    registry: Registry, call: Call, site: Proxy, tmp_path: Path
) -> None:
    first = publish(registry, tmp_path / "1", "1.0.0")
    call("update", "acme/pii")
    second = publish(registry, tmp_path / "2", "1.1.0")
    site.plan = lambda method, path: "garbled" if "/blobs/" in path else None
    assert call("update", "acme/pii")["error"] == "integrity"
    assert call("present", "acme/pii")["files"] == first
    site.plan = lambda method, path: None
    assert call("update", "acme/pii")["files"] == second
    assert call("present", "acme/pii")["previous"] == "1.0.0"

    site.plan = lambda method, path: "reset"
    assert call("rollback", "acme/pii")["files"] == first
    assert call("rollback", "acme/pii")["error"] == "not-found"
    site.plan = lambda method, path: None
    assert call("update", "acme/pii")["version"] == "1.0.0", "what was rolled back is not taken again"
    publish(registry, tmp_path / "3", "1.2.0")
    assert call("update", "acme/pii")["version"] == "1.2.0"


def test_a_release_that_fails_its_self_test_is_never_taken_again(
    registry: Registry, call: Call, tmp_path: Path
) -> None:
    first = publish(registry, tmp_path / "1", "1.0.0")
    assert call("tested", "acme/pii", {}, ["1.0.0"])["files"] == first
    publish(registry, tmp_path / "2", "1.1.0")
    assert call("tested", "acme/pii", {}, ["1.0.0"])["error"] == "integrity"
    assert call("present", "acme/pii")["files"] == first
    assert call("update", "acme/pii")["version"] == "1.0.0", "also without a self-test"
    publish(registry, tmp_path / "3", "1.2.0")
    assert "failed its self-test" in call("tested", "acme/pii", {}, None)["message"]
    publish(registry, tmp_path / "4", "1.3.0")
    assert call("tested", "acme/pii", {}, ["1.3.0"])["version"] == "1.3.0"


def test_a_rollout_reaches_a_device_by_its_own_seed(registry: Registry, call: Call, tmp_path: Path) -> None:
    publish(registry, tmp_path / "1", "1.0.0")
    publish(registry, tmp_path / "2", "2.0.0")
    registry.tag("acme/pii:1.0.0", "stable")
    stable = {"tag": "stable"}
    assert call("update", "acme/pii", stable)["version"] == "1.0.0"
    rollouts = owner.rollouts(registry)
    rollouts.start(Ref.parse("acme/pii:2.0.0"), "stable", 0.01)
    assert call("update", "acme/pii", stable)["version"] == "1.0.0", "one of 10,000 devices is in"
    seed = json.loads((tmp_path / "store" / "seed").read_bytes())
    assert len(seed) == 64
    rollouts.advance("acme/pii", "stable", 100)
    assert call("update", "acme/pii", {**stable, "seed": None})["version"] == "1.0.0"
    assert call("update", "acme/pii", stable)["version"] == "2.0.0"
    rollouts.halt("acme/pii", "stable")
    assert call("update", "acme/pii", stable)["version"] == "1.0.0"
    assert json.loads((tmp_path / "store" / "seed").read_bytes()) == seed


def test_a_rollout_that_fails_on_the_device_is_not_taken_again(
    registry: Registry, call: Call, tmp_path: Path
) -> None:
    first = publish(registry, tmp_path / "1", "1.0.0")
    publish(registry, tmp_path / "2", "2.0.0")
    registry.tag("acme/pii:1.0.0", "stable")
    stable = {"tag": "stable"}
    call("update", "acme/pii", stable)
    owner.rollouts(registry).start(Ref.parse("acme/pii:2.0.0"), "stable", 100)
    assert call("tested", "acme/pii", stable, [])["error"] == "integrity"
    assert call("present", "acme/pii")["files"] == first
    assert call("update", "acme/pii", stable)["version"] == "1.0.0"
    owner.rollouts(registry).finish("acme/pii", "stable")
    assert call("update", "acme/pii", stable)["version"] == "1.0.0", "it failed here, though it is stable now"


def test_an_app_gets_only_the_contract_that_it_asks_for(
    registry: Registry, call: Call, tmp_path: Path
) -> None:
    for version, name in (("1.0.0", "ids"), ("1.1.0", "tokens")):
        tensor = {"name": name, "dtype": "float32", "shape": [{"kind": "static", "value": 2}]}
        metadata = {"inputs": [tensor], "outputs": [tensor]}
        publish(registry, tmp_path / version, version, metadata=metadata)
    contract = str(registry.resolve("acme/pii:1.0.0").artifact.contract)
    found = call("update", "acme/pii", {"query": {"contract": contract}})
    assert found["version"] == "1.0.0"
    rejected = call("resolve", "acme/pii", {"query": {"contract": contract}})["rejected"]
    assert {(item["version"], item["code"]) for item in rejected if item["version"] == "1.1.0"} == {
        ("1.1.0", "contract")
    }


def test_tidy_keeps_the_present_and_the_previous(registry: Registry, call: Call, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        files = publish(registry, tmp_path / str(number), f"1.{number}.0")
        call("update", "acme/pii")
    before = len(list((tmp_path / "store").iterdir()))
    call("tidy")
    assert len(list((tmp_path / "store").iterdir())) == before - 3
    assert call("present", "acme/pii")["files"] == files
    assert call("rollback", "acme/pii")["version"] == "1.2.0"


def test_without_a_network_the_state_seen_last_answers(
    registry: Registry, call: Call, site: Proxy, tmp_path: Path
) -> None:
    files = publish(registry, tmp_path / "1", "1.0.0")
    site.plan = lambda method, path: "reset"
    assert call("update", "acme/pii")["error"] == "remote"
    site.plan = lambda method, path: None
    call("update", "acme/pii")
    site.plan = lambda method, path: "reset"
    assert call("update", "acme/pii")["files"] == files
    assert call("resolve", "acme/pii")["offline"] is True


def test_a_registry_that_goes_back_changes_nothing_and_another_history_is_refused(
    registry: Registry, call: Call, tmp_path: Path
) -> None:
    index = registry.store.root / "index" / "acme" / "pii.jsonl"
    publish(registry, tmp_path / "1", "1.0.0")
    old = index.read_bytes()
    publish(registry, tmp_path / "2", "1.1.0")
    assert call("resolve", "acme/pii")["version"] == "1.1.0"
    new = index.read_bytes()
    index.chmod(0o600)
    index.write_bytes(old)
    assert call("resolve", "acme/pii")["version"] == "1.1.0"
    publish(registry, tmp_path / "3", "1.1.1")
    assert "is not the one that was there before" in call("resolve", "acme/pii")["message"]
    index.write_bytes(new)
    assert call("resolve", "acme/pii")["version"] == "1.1.0"


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> tuple[Registry, list[bytes]]:
    """A model with a log of 140 lines, two segments of which are sealed, and its index file as it was at each line."""
    root = tmp_path_factory.mktemp("long")
    registry = Registry(root / "home")
    DirectoryRegistry.create(registry.store.root)
    index, seen = registry.store.root / "index" / "acme" / "pii.jsonl", [b""]
    publish(registry, root / "1", "1.0.0", 100)
    seen.append(index.read_bytes())
    for number in range(2, 141):
        if number in range(4, 10):
            publish(registry, root / str(number), f"1.{number}.0", 100)
        else:
            owner.pin(registry, "acme/pii:1.0.0", undo=number % 2 == 1)
        seen.append(index.read_bytes())
    assert len(registry.state("acme/pii").segments) == 2
    return registry, seen


@pytest.mark.parametrize("seen", [1, 64, 65, 100, 128, 129])
def test_lines_that_were_sealed_since_are_compared_too(
    long: tuple[Registry, list[bytes]], client: Call, tmp_path: Path, seen: int
) -> None:
    registry, indexes = long
    index = registry.store.root / "index" / "acme" / "pii.jsonl"
    index.chmod(0o600)
    with static.serve(registry.store.root) as url:
        resolve = partial(client, url, tmp_path / "store", "resolve", "acme/pii")
        index.write_bytes(indexes[seen])
        assert resolve()["version"]
        index.write_bytes(indexes[-1])
        (kept,) = (tmp_path / "store").glob("index*")
        before = kept.read_bytes()
        assert resolve()["version"] == "1.9.0"
        value = json.loads(before)
        value["state"]["head"] = f"sha256:{'0' * 64}"
        kept.write_text(json.dumps({**value, "etag": None}))
        assert "is not the one that was there before" in resolve()["message"]


def test_a_version_that_only_the_catalog_has(
    long: tuple[Registry, list[bytes]], client: Call, tmp_path: Path
) -> None:
    registry, _ = long
    state = registry.state("acme/pii")
    old = "1.4.0"
    assert old not in [str(version) for version in state.versions]
    with static.serve(registry.store.root) as url:
        update = partial(client, url, tmp_path / "store", "update", "acme/pii")
        found = update({"tag": old})
        assert (found["version"], found["artifact"]) == (old, "model_int8.onnx")
        assert update({"tag": "1.99.0"})["error"] == "not-found"


def test_another_registry_is_refused(registry: Registry, call: Call, tmp_path: Path) -> None:
    publish(registry, tmp_path / "1", "1.0.0")
    call("resolve", "acme/pii")
    shutil.rmtree(registry.store.root)
    again = Registry(tmp_path / "home")
    DirectoryRegistry.create(again.store.root)
    publish(again, tmp_path / "2", "1.0.0")
    publish(again, tmp_path / "3", "1.0.1")
    assert call("resolve", "acme/pii")["error"] == "integrity"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"state":"unknown"', b'"state":"certified"'),
        (b'"opset":18', b'"opset":17'),
        (b'"precision":"int8"', b'"precision":"int4"'),
        (b'"seq":', b'"seq":1'),
        (b'"name":"acme/pii"', b'"name":"acme/pij"'),
        (b"publish", b"unknown"),
    ],
)
def test_an_index_file_that_lies(
    registry: Registry, call: Call, tmp_path: Path, old: bytes, new: bytes
) -> None:
    publish(registry, tmp_path / "1", "1.0.0")
    index = registry.store.root / "index" / "acme" / "pii.jsonl"
    data = index.read_bytes()
    assert old in data
    index.chmod(0o600)
    index.write_bytes(data.replace(old, new))
    assert call("update", "acme/pii")["error"] == "integrity"
    index.write_bytes(data)
    assert call("update", "acme/pii")["version"] == "1.0.0", "what was garbled once does not block the client"


@pytest.mark.parametrize("lie", LIES)
def test_the_same_log_with_another_state_is_refused(
    registry: Registry, call: Call, tmp_path: Path, lie: str
) -> None:
    publish(registry, tmp_path / "1", "1.0.0")
    publish(registry, tmp_path / "2", "1.1.0")
    call("resolve", "acme/pii")
    edit_state(registry, LIES[lie])
    found = call("resolve", "acme/pii")
    assert found["error"] == "integrity"
    assert "the log is as it was, and its state is not" in found["message"]


def test_keys_of_a_newer_build_are_not_compared(registry: Registry, call: Call, tmp_path: Path) -> None:
    publish(registry, tmp_path / "1", "1.0.0")
    registry.tag("acme/pii:1.0.0", "stable")
    call("resolve", "acme/pii")

    def encode_anew(state: Any) -> None:
        parts = (state, state["channels"]["stable"], state["versions"]["1.0.0"], artifact(state))
        for part in (*parts, state["summaries"]["1.0.0"]):
            part["later"] = [1]

    edit_state(registry, encode_anew)
    assert call("resolve", "acme/pii")["version"] == "1.0.0"
    assert call("update", "acme/pii", {"device": {"ort": "1.30"}})["version"] == "1.0.0"


METRICS = {
    "as it was written": (lambda metrics: metrics, True),
    "another value": (lambda metrics: metrics | {"sts/spearman": 0.99}, False),
    "one more": (lambda metrics: metrics | {"f1": 0.99}, False),
    "none": (lambda metrics: {}, False),
}


@pytest.mark.parametrize("case", METRICS)
def test_the_metrics_of_an_index_file_are_those_of_the_manifest(
    registry: Registry, call: Call, tmp_path: Path, case: str
) -> None:
    publish(registry, tmp_path / "1", "1.0.0", checks=CHECKS)
    change, is_same = METRICS[case]

    def edit(state: Any) -> None:
        int8 = state["summaries"]["1.0.0"]["artifacts"][1]
        int8["metrics"] = change(int8["metrics"])

    edit_state(registry, edit)
    where = "metric['character_recall/NAME'] >= 0.9"
    done = call("update", "acme/pii", {"query": {"where": where}})
    assert done["artifact"] == "model_int8.onnx" if is_same else done["error"] == "integrity"


def test_metrics_answer(registry: Registry, call: Call, tmp_path: Path) -> None:
    publish(registry, tmp_path / "1", "1.0.0", checks=CHECKS)
    for least, path in (("0.82", "model_int8.onnx"), ("0.84", None)):
        answer = call("resolve", "acme/pii", {"query": {"where": f"metric['sts/spearman'] >= {least}"}})
        assert answer["artifact"] == path
