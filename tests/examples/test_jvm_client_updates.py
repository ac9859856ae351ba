"""The client in examples/jvm-client takes releases from a static server, on good and bad days."""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import pytest
from support import jvm
from support.fuzz.mutation import mutate
from support.registries import owner
from support.registries.for_devices import CHECKS, LIES, blob, edit_state, publish
from support.sampling import sampled
from support.servers import static
from support.servers.faults import LIES as FALSE_ANSWERS
from support.servers.faults import Proxy, at, proxy
from support.servers.web_client import Call, driven

from onnxreg.registry import Registry
from onnxreg.registry.log.decisions import publish_deltas
from onnxreg.registry.resolution import contracts_of
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.ref import Ref, Version
from onnxreg.schema.delta.delta_format import Delta

NAME = "acme/pii"
PIECE = 8 * 2**20
LARGE = 2 * PIECE + 1000

pytestmark = pytest.mark.skipif(jvm.JAVAC is None, reason=jvm.REASON)


@pytest.fixture
def site(registry: Registry) -> Iterator[Proxy]:
    with static.serve(registry.store.root) as url, proxy(url) as running:
        yield running


@pytest.fixture(scope="module")
def client() -> Iterator[Call]:
    with jvm.running() as call:
        yield call


@pytest.fixture
def call(client: Call, site: Proxy, tmp_path: Path) -> Call:
    """Call the client with the directory that the last call left."""

    def run(name: str, *arguments: Any, store: Path = tmp_path / "store", token: str | None = None) -> Any:
        return client(site.url, store, name, *arguments, token=token)

    return run


def test_update_returns_every_file(registry: Registry, call: Call, site: Proxy, tmp_path: Path) -> None:
    files = publish(registry, tmp_path / "1", "1.0.0")
    outcome = call("update", NAME, {"device": {"ort": "1.30"}})
    assert (outcome["version"], outcome["artifact"], outcome["files"]) == ("1.0.0", "model_int8.onnx", files)
    total = 100_000 + 5
    assert outcome["progress"][-1] == [total, total]
    assert site.requests("GET", "/index/") == 1
    assert call("role", NAME, "config")["text"] == "1.0.0"


def test_files_that_are_here_are_not_fetched_again(
    registry: Registry, call: Call, site: Proxy, tmp_path: Path
) -> None:
    publish(registry, tmp_path / "1", "1.0.0")
    first = call("update", NAME)
    before = len(site.seen)
    again = call("update", NAME)
    assert (again["version"], again["files"]) == (first["version"], first["files"])
    assert site.seen[before:] == [("GET", "/index/acme/pii.jsonl")]
    assert site.answers[-1] == 304


def test_a_delta_that_is_a_file_of_the_release_in_use_takes_nothing_away(
    registry: Registry, call: Call, site: Proxy, tmp_path: Path
) -> None:
    """The table names the old file itself as the delta; then the update fails, and the old file is still here."""
    old = publish(registry, tmp_path / "1", "1.0.0")["model_int8.onnx"]
    call("update", NAME)
    new = publish(registry, tmp_path / "2", "2.0.0")["model_int8.onnx"]
    lie = Delta(Digest.parse(new), (Digest.parse(old),), Digest.parse(old), 1, Version.parse("1.0.0"))
    with registry.store.push() as push:
        publish_deltas(registry.store, push, NAME, Version.parse("2.0.0"), [lie], None)
    site.plan = lambda method, path: "astray" if new.removeprefix("sha256:") in path else None
    assert "error" in call("update", NAME)
    assert [path for path in (tmp_path / "store").rglob("*") if path.name == old.removeprefix("sha256:")]


def test_reasons_of_an_update_without_a_match(registry: Registry, call: Call, tmp_path: Path) -> None:
    publish(registry, tmp_path / "1", "1.0.0")
    outcome = call("update", NAME, {"query": {"certified": True, "max_size": 10}})
    assert outcome["error"] == "not-found"
    assert [each["code"] for each in outcome["rejected"]] == ["not-certified", "too-large"]
    assert call("update", "acme/none")["error"] == "not-found"
    assert call("update", "../pii")["error"] == "input"


def test_a_cancelled_update_resumes_within_its_piece(
    registry: Registry, call: Call, site: Proxy, tmp_path: Path
) -> None:
    files = publish(registry, tmp_path / "1", "1.0.0", LARGE)
    assert call("update", NAME, {}, {"cancel_at": PIECE + 3 * 2**20})["error"] == "cancelled"
    assert call("present", NAME) == {"previous": None}
    outcome = call("update", NAME)
    assert outcome["files"] == files
    assert outcome["progress"][0][0] >= PIECE + 3 * 2**20
    model = blob(registry, files["model_int8.onnx"]).name
    assert site.requests("GET", model) == 2


ERRORS = ("integrity", "remote", "not-found")
FAULTS = ("reset", "lost", "slow-down", "error", "truncated")


@pytest.mark.parametrize("fault", sampled(FAULTS, 2))
def test_a_passing_fault_costs_only_its_request(
    registry: Registry, call: Call, site: Proxy, tmp_path: Path, fault: str
) -> None:
    files = publish(registry, tmp_path / "1", "1.0.0", 3 * 2**20)
    for number in range(5):
        site.plan = at(number, fault)
        assert call("update", NAME, store=tmp_path / f"store{number}")["files"] == files, number
    assert len(site.met) == 5


@pytest.mark.parametrize("fault", ["page", "garbled"])
def test_wrong_bytes_are_never_returned(
    registry: Registry, call: Call, site: Proxy, tmp_path: Path, fault: str
) -> None:
    files = publish(registry, tmp_path / "1", "1.0.0")
    model = blob(registry, files["model_int8.onnx"]).name
    for part in (model, "/blobs/", "/index/", "registry.json"):
        site.plan = lambda method, path, part=part: fault if part in path else None
        store = tmp_path / part.strip("/")
        assert call("update", NAME, store=store)["error"] in ("integrity", "remote"), part
        site.plan = lambda method, path: None
        assert call("present", NAME, store=store) == {"previous": None}
        outcome = call("update", NAME, store=store)
        assert outcome.get("files") == files, (part, outcome)


@pytest.mark.more
@pytest.mark.parametrize("lie", FALSE_ANSWERS)
def test_one_false_answer_gives_the_right_files_or_an_error(
    registry: Registry, call: Call, site: Proxy, tmp_path: Path, lie: str
) -> None:
    files = publish(registry, tmp_path / "1", "1.0.0")
    for number in range(5):
        store = tmp_path / f"store{number}"
        site.plan = at(number, lie)
        outcome = call("update", NAME, store=store)
        assert outcome.get("files") == files or outcome["error"] in ERRORS, number
        site.plan = lambda method, path: None
        outcome = call("update", NAME, store=store)
        assert outcome.get("files") == files, (number, outcome)


def test_only_a_bad_piece_is_fetched_again(
    registry: Registry, call: Call, site: Proxy, tmp_path: Path
) -> None:
    files = publish(registry, tmp_path / "1", "1.0.0", LARGE)
    model = blob(registry, files["model_int8.onnx"]).name
    bad = at(0, "garbled")
    site.plan = lambda method, path: bad(method, path) if model in path else None
    outcome = call("update", NAME)
    assert outcome["files"] == files
    assert site.met == ["garbled"]
    assert site.requests("GET", model) == 2


def test_a_stalled_server_is_given_up(registry: Registry, call: Call, site: Proxy, tmp_path: Path) -> None:
    publish(registry, tmp_path / "1", "1.0.0")
    site.plan = lambda method, path: "stalled" if "/blobs/" in path else None
    assert call("update", NAME)["error"] == "remote"


def test_a_changed_byte_on_the_device_is_detected_and_repaired(
    registry: Registry, call: Call, tmp_path: Path
) -> None:
    files = publish(registry, tmp_path / "1", "1.0.0")
    model = Path(call("update", NAME)["model"])
    data = bytearray(model.read_bytes())
    data[500] ^= 1
    model.write_bytes(data)
    assert call("present", NAME)["error"] == "integrity"
    assert call("update", NAME)["files"] == files


def test_a_blob_under_a_generation_key(registry: Registry, call: Call, tmp_path: Path) -> None:
    files = publish(registry, tmp_path / "1", "1.0.0")
    path = blob(registry, files["model_int8.onnx"])
    path.rename(path.with_name(f"{path.name}.7"))
    assert call("update", NAME)["files"] == files
    path.with_name(f"{path.name}.7").unlink()
    assert call("update", NAME, store=tmp_path / "fresh")["error"] == "not-found"


def test_a_release_becomes_current_and_is_rolled_back(
    registry: Registry, call: Call, site: Proxy, tmp_path: Path
) -> None:
    first = publish(registry, tmp_path / "1", "1.0.0")
    call("update", NAME)
    second = publish(registry, tmp_path / "2", "1.1.0")
    site.plan = lambda method, path: "garbled" if "/blobs/" in path else None
    assert call("update", NAME)["error"] == "integrity"
    assert call("present", NAME)["files"] == first
    site.plan = lambda method, path: None
    assert call("update", NAME)["files"] == second
    assert call("present", NAME)["previous"] == "1.0.0"

    site.plan = lambda method, path: "reset"
    assert call("rollback", NAME)["files"] == first
    assert call("rollback", NAME)["error"] == "not-found"
    site.plan = lambda method, path: None
    assert call("update", NAME)["version"] == "1.0.0", "a release that was rolled back is not taken again"
    publish(registry, tmp_path / "3", "1.2.0")
    assert call("update", NAME)["version"] == "1.2.0"


def test_a_release_that_fails_the_self_test_is_not_taken_again(
    registry: Registry, call: Call, tmp_path: Path
) -> None:
    publish(registry, tmp_path / "1", "1.0.0")
    assert call("update", NAME, {}, {"bad_version": "1.0.0"})["error"] == "self-test"
    assert call("update", NAME)["error"] == "not-found"
    assert call("present", NAME) == {"previous": None}
    call("clear", NAME)
    assert call("update", NAME)["version"] == "1.0.0"
    publish(registry, tmp_path / "2", "1.1.0")
    assert call("update", NAME, {}, {"bad_version": "1.1.0"})["error"] == "self-test"
    assert call("update", NAME)["version"] == "1.0.0"
    publish(registry, tmp_path / "3", "1.2.0")
    assert call("update", NAME, {}, {"bad_version": "1.1.0"})["version"] == "1.2.0"


def test_a_self_test_that_throws_refuses_too(registry: Registry, call: Call, tmp_path: Path) -> None:
    publish(registry, tmp_path / "1", "1.0.0")
    options = {"bad_version": "", "throwing_version": "1.0.0"}
    assert "cannot be loaded" in call("update", NAME, {}, options)["message"]
    assert call("update", NAME)["error"] == "not-found"


STABLE = {"tag": "stable"}


@pytest.fixture
def two(registry: Registry, tmp_path: Path) -> Registry:
    """Two versions, the first of which is stable."""
    publish(registry, tmp_path / "1", "1.0.0")
    publish(registry, tmp_path / "2", "2.0.0")
    registry.tag(f"{NAME}:1.0.0", "stable")
    return registry


def test_a_rollout_reaches_a_device_by_its_own_seed(two: Registry, call: Call, tmp_path: Path) -> None:
    assert call("update", NAME, STABLE)["version"] == "1.0.0"
    assert not (tmp_path / "store" / "seed").exists()
    rollouts = owner.rollouts(two)
    rollouts.start(Ref.parse(f"{NAME}:2.0.0"), "stable", 0.01)
    assert call("update", NAME, STABLE)["version"] == "1.0.0", "one of 10,000 devices is in"
    seed = (tmp_path / "store" / "seed").read_text()
    assert len(seed) == 64
    rollouts.advance(NAME, "stable", 100)
    assert call("update", NAME, {**STABLE, "seed": None})["version"] == "1.0.0"
    assert call("update", NAME, STABLE)["version"] == "2.0.0"
    rollouts.halt(NAME, "stable")
    assert call("update", NAME, STABLE)["version"] == "1.0.0"
    assert (tmp_path / "store" / "seed").read_text() == seed


def test_a_rollout_that_fails_on_the_device_is_not_taken_again(two: Registry, call: Call) -> None:
    first = call("update", NAME, STABLE)["files"]
    owner.rollouts(two).start(Ref.parse(f"{NAME}:2.0.0"), "stable", 100)
    assert call("update", NAME, STABLE, {"bad_version": "2.0.0"})["error"] == "self-test"
    assert call("present", NAME)["files"] == first
    assert call("update", NAME, STABLE)["version"] == "1.0.0"
    owner.rollouts(two).finish(NAME, "stable")
    assert call("update", NAME, STABLE)["version"] == "1.0.0", "it failed here, though it is stable now"


def test_a_share_that_was_changed_by_hand_is_detected(two: Registry, call: Call) -> None:
    owner.rollouts(two).start(Ref.parse(f"{NAME}:2.0.0"), "stable", 1)
    call("resolve", NAME, STABLE)
    owner.pin(two, f"{NAME}:1.0.0")
    edit_state(two, lambda state: state["rollouts"]["stable"].update(percent=100))
    assert "a rollout of" in call("resolve", NAME, STABLE)["message"]


def test_tidy_keeps_current_and_previous(registry: Registry, call: Call, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        files = publish(registry, tmp_path / str(number), f"1.{number}.0")
        call("update", NAME)
    blobs = tmp_path / "store" / "blobs"
    before = len(list(blobs.iterdir()))
    call("tidy")
    assert len(list(blobs.iterdir())) == before - 3
    assert call("present", NAME)["files"] == files
    call("tidy", 150_000)
    assert sum(path.stat().st_size for path in blobs.iterdir()) < 150_000
    assert call("present", NAME) == {**call("present", NAME), "previous": None, "files": files}


def test_extract_gives_files_their_own_names(registry: Registry, call: Call, tmp_path: Path) -> None:
    files = publish(registry, tmp_path / "1", "1.0.0")
    call("update", NAME)
    call("extract", NAME, str(tmp_path / "own"))
    assert {path.name for path in (tmp_path / "own").iterdir()} == set(files)
    assert (tmp_path / "own" / "config.json").read_bytes() == b"1.0.0"


def test_extract_neither_takes_nor_leaves_temporary_files(
    registry: Registry, call: Call, tmp_path: Path
) -> None:
    publish(registry, tmp_path / "1", "1.0.0")
    call("update", NAME)
    own = tmp_path / "own"
    own.mkdir()
    (own / "config.json.tmp").write_bytes(b"of another caller")
    assert call("extract", NAME, str(own)) == {}
    assert (own / "config.json.tmp").read_bytes() == b"of another caller"
    (own / "config.json").unlink()
    (own / "config.json").mkdir()
    assert call("extract", NAME, str(own))["error"] == "local"
    assert [path.name for path in own.glob("*.tmp")] == ["config.json.tmp"]


def test_without_a_network_the_state_seen_last_answers(
    registry: Registry, call: Call, site: Proxy, tmp_path: Path
) -> None:
    files = publish(registry, tmp_path / "1", "1.0.0")
    site.plan = lambda method, path: "reset"
    assert call("update", NAME)["error"] == "remote"
    site.plan = lambda method, path: None
    call("update", NAME)
    site.plan = lambda method, path: "reset"
    assert call("update", NAME)["files"] == files
    assert call("resolve", NAME)["offline"] is True


def test_a_registry_that_goes_back_changes_nothing_and_another_history_is_refused(
    registry: Registry, call: Call, tmp_path: Path
) -> None:
    index = registry.store.root / "index" / "acme" / "pii.jsonl"
    publish(registry, tmp_path / "1", "1.0.0")
    old = index.read_bytes()
    publish(registry, tmp_path / "2", "1.1.0")
    assert call("resolve", NAME)["version"] == "1.1.0"
    new = index.read_bytes()
    index.chmod(0o600)
    index.write_bytes(old)
    assert call("resolve", NAME)["version"] == "1.1.0"
    publish(registry, tmp_path / "3", "1.1.1")
    assert "is not the one that was there before" in call("resolve", NAME)["message"]
    index.write_bytes(new)
    assert call("resolve", NAME)["version"] == "1.1.0"


def test_another_registry_is_refused(registry: Registry, call: Call, tmp_path: Path) -> None:
    publish(registry, tmp_path / "1", "1.0.0")
    call("resolve", NAME)
    shutil.rmtree(registry.store.root)
    again = Registry(tmp_path / "home")
    DirectoryRegistry.create(again.store.root)
    publish(again, tmp_path / "2", "1.0.0")
    publish(again, tmp_path / "3", "1.0.1")
    assert call("resolve", NAME)["error"] == "integrity"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"state":"unknown"', b'"state":"certified"'),
        (b'"opset":18', b'"opset":17'),
        (b'"precision":"int8"', b'"precision":"int4"'),
        (b'"seq":', b'"seq":1'),
        (b'"name":"acme/pii"', b'"name":"acme/pij"'),
        (b"publish", b"unknown"),
        (b'"opset":18', b'"opset":"x"'),
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
    assert call("update", NAME)["error"] == "integrity"


@pytest.mark.parametrize("lie", LIES)
def test_the_same_log_with_another_state_is_refused(
    registry: Registry, call: Call, tmp_path: Path, lie: str
) -> None:
    publish(registry, tmp_path / "1", "1.0.0")
    publish(registry, tmp_path / "2", "1.1.0")
    call("resolve", NAME)
    edit_state(registry, LIES[lie])
    assert "the log is as it was, and its state is not" in call("resolve", NAME)["message"]


def test_the_first_channels_must_be_those_of_the_lines(
    registry: Registry, call: Call, tmp_path: Path
) -> None:
    publish(registry, tmp_path / "1", "1.0.0")
    edit_state(registry, LIES["a channel is added"])
    assert "was moved without an event" in call("resolve", NAME)["message"]


METRICS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "as it was written": (lambda metrics: metrics, True),
    "another value": (lambda metrics: metrics | {"sts/spearman": 0.99}, False),
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
    done = call("update", NAME, {"query": {"where": "metric['character_recall/NAME'] >= 0.9"}})
    assert done["artifact"] == "model_int8.onnx" if is_same else done["error"] == "integrity"


IMAGES = {"size": [8, 8], "mean": [0.485], "std": [0.229], "layout": "NCHW", "color": "L", "resize": 9}
TENSOR = {
    "dtype": "float32",
    "shape": [{"kind": "dynamic", "name": "batch"}, {"kind": "static", "value": 64}],
}


def test_a_contract_follows_from_the_manifest(registry: Registry, call: Call, tmp_path: Path) -> None:
    metadata = {"inputs": [{"name": "x", **TENSOR}], "outputs": [{"name": "y", **TENSOR}]}
    publish(registry, tmp_path / "1", "1.0.0", metadata=metadata, preprocessing=IMAGES)
    (contract,) = contracts_of(registry.store, Ref(NAME))
    question = {"query": {"contract": str(contract)}, "device": {"ort": "1.30"}}
    assert call("update", NAME, question)["artifact"] == "model_int8.onnx"
    other = {"query": {"contract": [f"sha256:{'0' * 64}"]}}
    assert {row["code"] for row in call("update", NAME, other)["rejected"]} == {"contract"}


def test_versions_of_sealed_lines_and_of_the_catalog(
    client: Call, registry: Registry, tmp_path: Path
) -> None:
    """The log grows by 139 lines between two questions; two segments are sealed."""
    publish(registry, tmp_path / "1", "1.0.0", 100)
    with static.serve(registry.store.root) as url:
        assert client(url, tmp_path / "store", "resolve", NAME)["version"] == "1.0.0"
        for number in range(2, 141):
            if number in range(4, 10):
                publish(registry, tmp_path / str(number), f"1.{number}.0", 100)
            else:
                owner.pin(registry, f"{NAME}:1.0.0", undo=number % 2 == 1)
        state = registry.state(NAME)
        assert len(state.segments) == 2
        assert "1.4.0" not in [str(version) for version in state.versions]
        assert client(url, tmp_path / "store", "resolve", NAME)["version"] == "1.9.0"
        old = client(url, tmp_path / "store", "update", NAME, {"tag": "1.4.0"})
        assert (old["version"], old["artifact"]) == ("1.4.0", "model_int8.onnx")
        assert client(url, tmp_path / "store", "update", NAME, {"tag": "1.99.0"})["error"] == "not-found"


def test_a_token_is_sent_to_this_machine_only(call: Call, client: Call, tmp_path: Path) -> None:
    public = client("http://models.example", tmp_path / "x", "resolve", NAME, token="secret")
    assert public["error"] == "input"
    assert "https" in public["message"]


@contextmanager
def answering(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[tuple[str, list[str | None]]]:
    """A server that answers as it is told: its URL, and the Authorization of each request."""
    tokens: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tokens.append(self.headers["Authorization"])
            answer(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", tokens
        server.shutdown()
        thread.join()


def test_a_redirect_to_another_origin_gets_no_token(client: Call, registry: Registry, tmp_path: Path) -> None:
    files = publish(registry, tmp_path / "1", "1.0.0")

    def serve(request: BaseHTTPRequestHandler) -> None:
        path = registry.store.root / request.path.lstrip("/")
        request.send_response(200 if path.exists() else 404)
        request.end_headers()
        request.wfile.write(path.read_bytes() if path.exists() else b"")

    def redirect(request: BaseHTTPRequestHandler) -> None:
        request.send_response(307)
        request.send_header("Location", other + request.path)
        request.end_headers()

    with answering(serve) as (other, there), answering(redirect) as (url, here):
        outcome = client(url, tmp_path / "store", "update", NAME, token="secret")
    assert outcome["files"] == files
    assert set(here) == {"Bearer secret"}
    assert set(there) == {None}


def test_a_full_disk_is_an_error_and_the_current_release_stays(
    registry: Registry, site: Proxy, call: Call, tmp_path: Path
) -> None:
    """A limit on the size of files fails the write of the new model as a full disk does."""
    first = publish(registry, tmp_path / "1", "1.0.0")
    assert call("update", NAME)["files"] == first
    second = publish(registry, tmp_path / "2", "1.1.0", 3_000_000)
    limited = (
        "bash",
        "-c",
        f"ulimit -f 1000; exec {jvm.JAVA} -cp {jvm.classes()} org.onnxreg.client.JvmClient",
    )
    with driven(*limited) as call_limited:
        outcome = call_limited(site.url, tmp_path / "store", "update", NAME)
    assert outcome["error"] == "local"
    assert call("present", NAME)["files"] == first
    assert call("update", NAME)["files"] == second


def test_two_processes_update_one_directory(registry: Registry, site: Proxy, tmp_path: Path) -> None:
    files = publish(registry, tmp_path / "1", "1.0.0", 3_000_000)
    site.piece = 100_000
    site.plan = lambda method, path: "slow" if "/blobs/" in path else None
    with jvm.running() as one, jvm.running() as other, ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(call, site.url, tmp_path / "store", "update", NAME) for call in (one, other)]
        assert [done.result()["files"] for done in calls] == [files, files]
    model = blob(registry, files["model_int8.onnx"]).name
    assert site.requests("GET", model) == 1


@pytest.mark.more
def test_a_damaged_index_file_gives_the_right_files_or_an_error(
    two: Registry, client: Call, tmp_path: Path
) -> None:
    owner.rollouts(two).start(Ref.parse(f"{NAME}:2.0.0"), "stable", 100)
    files = publish(two, tmp_path / "3", "3.0.0", checks=CHECKS)
    index = two.store.root / "index" / "acme" / "pii.jsonl"
    right = index.read_bytes()
    index.chmod(0o600)
    chance = Random(11)
    query = {"where": "recall.NAME >= 0.5 or size > 1", "formats": ["onnx-int8"]}
    families = set()
    with static.serve(two.store.root) as url:
        for number in range(500):
            index.write_bytes(mutate(right, [right], chance))
            question = {"tag": chance.choice([None, "stable"]), "query": query, "device": {"ort": "1.30"}}
            outcome = client(url, tmp_path / f"store{number}", "update", NAME, question)
            families.add(outcome.get("error"))
            assert outcome.get("version") != "3.0.0" or outcome["files"] == files
    assert families == {None, "integrity", "not-found"}
