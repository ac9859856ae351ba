"""Registries in S3, on real servers: MiniStack and SeaweedFS; JuiceFS as one that must be found out."""

import itertools
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))
import s3servers
from faults import FAULTS, Proxy, proxy

from onnxreg.cli.main import main
from onnxreg.registry import Registry, copying
from onnxreg.registry.backends import ranges, retrying, s3, s3client, s3upload
from onnxreg.registry.backends.s3 import S3Store, s3_remote
from onnxreg.registry.backends.s3client import Place
from onnxreg.registry.collect import collect
from onnxreg.registry.commit import load
from onnxreg.registry.storage import BlobKey, Remote, blob_path
from onnxreg.registry.testing import RemoteContract, put
from onnxreg.registry.verify import verify
from onnxreg.schema.digest import Digest
from onnxreg.schema.draft import Draft
from onnxreg.schema.errors import HostError, InputError, IntegrityError, RegError, RemoteError

MakeDraft = Callable[..., Draft]


def enter(server: s3servers.Server, patch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        patch.delenv(name)
    for name, value in server.environment.items():
        patch.setenv(name, value)


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3servers.Server]:
    """MiniStack with its root key."""
    with s3servers.ministack(tmp_path_factory.mktemp("ministack")) as server:
        yield server


@pytest.fixture(scope="session")
def ministack(root: s3servers.Server) -> s3servers.Server:
    """MiniStack with the key of an IAM user, whose signature it checks (it does not check the root key's)."""
    return s3servers.Server(root.endpoint, *s3servers.user(root, "tester", ["s3:*"]))


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3servers.Server]:
    with s3servers.seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture(scope="session")
def juicefs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3servers.Server]:
    with s3servers.juicefs(tmp_path_factory.mktemp("juicefs")) as server:
        yield server


class TestMiniStack(RemoteContract):
    @pytest.fixture
    def remote(self, ministack: s3servers.Server, monkeypatch: pytest.MonkeyPatch) -> Remote:
        enter(ministack, monkeypatch)
        return s3_remote(ministack.fresh(), create=True)


@pytest.fixture
def there(ministack: s3servers.Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty prefix at MiniStack."""
    enter(ministack, monkeypatch)
    return ministack.fresh()


@pytest.fixture
def behind(ministack: s3servers.Server, there: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy in front of MiniStack, through which every client goes whose URL names no endpoint."""
    monkeypatch.setattr(retrying, "FIRST_WAIT", 0.001)
    with proxy(ministack.endpoint) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.url)
        yield running


def direct(url: str, server: s3servers.Server) -> Remote:
    """The registry at a URL, with no proxy in between."""
    return s3_remote(f"{url}?endpoint={server.endpoint}")


def versions(remote: Remote) -> set[str]:
    return {str(version) for name in remote.names() for version in load(remote, name)[0].entries}


def at(number: int, fault: str, burst: int = 1) -> Callable[[str, str], str | None]:
    """A plan: this fault meets so many requests from the given one on."""
    count = itertools.count()
    return lambda method, path: fault if number <= next(count) < number + burst else None


class TestLargeObjects:
    """What goes up in parts and comes down in ranges, in small."""

    @pytest.fixture(autouse=True)
    def small_sizes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(s3, "SINGLE", 6 * 2**20)
        monkeypatch.setattr(s3upload, "PART", 5 * 2**20)
        for module in (s3, ranges):
            monkeypatch.setattr(module, "BLOCK", 2**20)

    @pytest.mark.parametrize("size", [0, 1, 6 * 2**20, 6 * 2**20 + 1, 10 * 2**20, 17 * 2**20 + 3])
    def test_come_back(self, there: str, size: int) -> None:
        data = random.Random(size).randbytes(size)
        remote = s3_remote(there, create=True)
        with remote.push() as push:
            assert push.put(BytesIO(data), Digest.of(data)) == (Digest.of(data), size)
            push.put(BytesIO(data), Digest.of(data))
        with remote.open_blob(Digest.of(data)) as stream:
            assert stream.read() == data

    def test_wrong_bytes_are_given_up(self, there: str, ministack: s3servers.Server) -> None:
        remote = s3_remote(there, create=True)
        with remote.push() as push, pytest.raises(IntegrityError):
            push.put(BytesIO(bytes(12 * 2**20)), Digest.of(b"other"))
        assert not remote.has([Digest.of(b"other")])
        assert uploads(ministack, there) == []

    @pytest.mark.parametrize("size", [3 * 2**20, 12 * 2**20])
    def test_bytes_count_when_they_are_sent(self, there: str, behind: Proxy, size: int) -> None:
        data = random.Random(size).randbytes(size)
        remote = s3_remote(there, create=True)
        counts: list[int] = []
        before: list[int] = []

        def once(method: str, path: str) -> str | None:
            if method != "PUT" or "/blobs/" not in path or before:
                return None
            before.append(sum(counts))
            return "slow-down"

        behind.plan = once
        metered = copying.Metered(BytesIO(data), counts.append, threading.Event(), "reading", size)
        with remote.push() as push:
            push.put(cast(BinaryIO, metered), Digest.of(data))
        assert behind.met == ["slow-down"]
        assert before[0] < size
        assert min(counts) < 0, "what was sent in vain is taken back"
        assert sum(counts) == size

    @pytest.mark.parametrize("fault", ["reset", "lost", "slow-down", "garbled"])
    def test_parts_are_sent_again(self, there: str, behind: Proxy, fault: str) -> None:
        data = random.Random(1).randbytes(17 * 2**20)
        remote = s3_remote(there, create=True)
        met: set[str] = set()

        def once(method: str, path: str) -> str | None:
            """The fault meets each request of the upload the first time."""
            known, new = method + path.partition("&uploadId")[0], "uploadId" in path or "uploads" in path
            if not new or known in met or (fault == "garbled" and method != "PUT"):
                return None
            met.add(known)
            return fault

        behind.plan = once
        with remote.push() as push:
            push.put(BytesIO(data), Digest.of(data))
        assert len(behind.met) >= 4
        behind.plan = lambda method, path: None
        with remote.open_blob(Digest.of(data)) as stream:
            assert stream.read() == data

    def test_a_failed_upload_leaves_no_part(
        self, there: str, behind: Proxy, ministack: s3servers.Server
    ) -> None:
        remote = s3_remote(there, create=True)
        behind.plan = lambda method, path: "error" if "partNumber=2" in path else None
        with (
            remote.push() as push,
            pytest.raises(RemoteError, match=r"uploading blobs/sha256/.*InternalError"),
        ):
            push.put(BytesIO(bytes(17 * 2**20)), Digest.of(bytes(17 * 2**20)))
        assert uploads(ministack, there) == []

    @pytest.mark.parametrize("fault", ["reset", "lost", "truncated", "error"])
    def test_ranges_are_fetched_again(self, there: str, behind: Proxy, fault: str) -> None:
        data = random.Random(2).randbytes(9 * 2**20)
        remote = s3_remote(there, create=True)
        with remote.push() as push:
            push.put(BytesIO(data), Digest.of(data))
        before = behind.requests("GET", "blobs")
        behind.plan = at(2, fault, burst=3)
        with remote.open_blob(Digest.of(data)) as stream:
            assert stream.read() == data
        assert behind.requests("GET", "blobs") - before == 9 + 3

    def test_an_object_that_changes_meanwhile_is_noticed(
        self, there: str, ministack: s3servers.Server
    ) -> None:
        data = bytes(12 * 2**20)
        remote = s3_remote(there, create=True)
        with remote.push() as push:
            push.put(BytesIO(data), Digest.of(data))
        with (
            remote.open_blob(Digest.of(data)) as stream,
            pytest.raises(RemoteError, match="PreconditionFailed"),
        ):
            assert stream.read(10) == bytes(10)
            prefix = there.rpartition("/")[2]
            client = ministack.client()
            client.put_object(
                Bucket=s3servers.BUCKET, Key=f"{prefix}/{blob_path(Digest.of(data))}", Body=b"x" * len(data)
            )
            client.close()
            stream.read()


def uploads(server: s3servers.Server, url: str) -> list[str]:
    """The uploads below a URL that were neither completed nor given up."""
    client = server.client()
    try:
        found = client.list_multipart_uploads(Bucket=s3servers.BUCKET).get("Uploads", [])
        return [upload["Key"] for upload in found if upload["Key"].startswith(url.rpartition("/")[2])]
    finally:
        client.close()


@pytest.mark.parametrize(("fault", "burst"), [("lost", 1), ("reset", 2), ("slow-down", 4), ("error", 4)])
def test_a_swap_that_is_answered_late_is_no_lost_race(
    there: str, behind: Proxy, fault: str, burst: int
) -> None:
    remote = s3_remote(there, create=True)
    store = remote.store
    put(remote, index=b"1\n")
    found = remote.read_index("m")
    assert found is not None
    behind.plan = at(0, fault, burst)
    assert store.swap("index/m.jsonl", b"2\n", found.token)
    behind.plan = at(0, fault, burst)
    assert not store.swap("index/m.jsonl", b"3\n", found.token)
    assert behind.met == [fault] * burst * 2
    again = remote.read_index("m")
    assert again is not None and again.data == b"2\n"


REQUESTS = 46
"""A push of the tests' draft makes about so many."""
SCENARIOS = [
    (fault, number, burst) for fault in FAULTS for number in range(0, REQUESTS, 2) for burst in (1, 20)
]


@pytest.mark.parametrize(
    ("fault", "number", "burst"),
    [pytest.param(*each, marks=[pytest.mark.large] if n % 29 else []) for n, each in enumerate(SCENARIOS)],
)
def test_a_push_is_whole_or_invisible(
    there: str,
    behind: Proxy,
    ministack: s3servers.Server,
    registry: Registry,
    make_draft: MakeDraft,
    fault: str,
    number: int,
    burst: int,
) -> None:
    registry.add(make_draft())
    behind.plan = at(number, fault, burst)
    try:
        registry.push("acme/pii:0.1.0", there)
        whole = True
    except RegError:
        whole = False
    behind.plan = lambda method, path: None
    sent = set(finished(there, ministack))
    if "registry.json" in sent:
        remote = direct(there, ministack)
        assert [damage for damage in verify(remote).damages if "gc/probe-" not in damage.name] == []
        assert versions(remote) == {"0.1.0"} or not whole
    behind.seen.clear()
    registry.push("acme/pii:0.1.0", there)
    again = [path for method, path in behind.seen if method == "PUT" and "/blobs/" in path]
    assert not [path for path in again if path.partition("?")[0].partition("blobs/")[2] in sent]
    remote = direct(there, ministack)
    assert versions(remote) == {"0.1.0"}
    assert [damage for damage in verify(remote).damages if "gc/probe-" not in damage.name] == []


def finished(url: str, server: s3servers.Server) -> list[str]:
    """What lies below a URL; blobs without `blobs/`."""
    store = S3Store(Place.parse(f"{url}?endpoint={server.endpoint}"))
    return [key.removeprefix("blobs/") for key, _ in store.list("")]


class TestSeaweedFS(RemoteContract):
    @pytest.fixture
    def remote(self, seaweedfs: s3servers.Server, monkeypatch: pytest.MonkeyPatch) -> Remote:
        enter(seaweedfs, monkeypatch)
        return s3_remote(seaweedfs.fresh(), create=True)

    def test_large_blobs_come_back(self, remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(s3, "SINGLE", 6 * 2**20)
        monkeypatch.setattr(s3upload, "PART", 5 * 2**20)
        data = random.Random(3).randbytes(17 * 2**20)
        with remote.push() as push:
            push.put(BytesIO(data), Digest.of(data))
            push.put(BytesIO(data), Digest.of(data))
        with remote.open_blob(Digest.of(data)) as stream:
            assert stream.read() == data

    def test_a_batch_is_deleted(self, remote: Remote) -> None:
        blobs = [b"%d" % number for number in range(20)]
        put(remote, *blobs)
        remote.delete([BlobKey(Digest.of(blob)) for blob in [*blobs, b"absent"]])
        assert remote.has(map(Digest.of, blobs)) == set()


class TestIgnoredConditions:
    """JuiceFS's gateway takes a condition and ignores it."""

    def test_are_found_out_before_the_first_write(
        self,
        juicefs: s3servers.Server,
        monkeypatch: pytest.MonkeyPatch,
        registry: Registry,
        make_draft: MakeDraft,
    ) -> None:
        enter(juicefs, monkeypatch)
        registry.add(make_draft())
        url = juicefs.fresh()
        with pytest.raises(RemoteError, match=r"cannot be written safely: .* can be created again"):
            registry.push("acme/pii", url)
        assert finished(url, juicefs) == []

    def test_do_not_keep_anybody_from_reading(
        self,
        juicefs: s3servers.Server,
        monkeypatch: pytest.MonkeyPatch,
        registry: Registry,
        make_draft: MakeDraft,
    ) -> None:
        enter(juicefs, monkeypatch)
        made = registry.add(make_draft())
        url = juicefs.fresh()
        client = juicefs.client()
        for file in registry.store.files():
            body = (registry.store.root / file.path).read_bytes()
            key = f"{url.rpartition('/')[2]}/{file.path}"
            client.put_object(Bucket=s3servers.BUCKET, Key=key, Body=body)
        client.close()
        reader = Registry(registry.store.root.with_name("reader"))
        reader.pull("acme/pii", url)
        assert reader.get("acme/pii").digest == made.digest
        with pytest.raises(RemoteError, match="cannot be written safely"):
            s3_remote(url).remove_note("intents", "0" * 16)


def test_the_verdict_is_remembered(
    there: str, behind: Proxy, registry: Registry, make_draft: MakeDraft
) -> None:
    for seed in ("a", "b", "c"):
        registry.add(make_draft(seed=seed))
    probed = []
    for version in ("0.1.0", "0.1.1", "0.1.2"):
        behind.seen.clear()
        registry.push(f"acme/pii:{version}", there)
        probed.append(behind.requests("PUT", "gc/probe-") > 0)
    assert probed == [True, False, False]


def test_makes_a_mirror(there: str) -> None:
    remote = s3_remote(there, create=True, mirror_of="ab" * 16)
    assert (remote.registry_id, remote.is_mirror) == ("ab" * 16, True)


def test_collects_what_nothing_refers_to(there: str, registry: Registry, make_draft: MakeDraft) -> None:
    registry.add(make_draft())
    registry.push("acme/pii", there)
    remote = s3_remote(there)
    before = {file.path for file in remote.files()}
    garbage = [b"garbage %d" % number for number in range(5)]
    with remote.push() as push:
        for data in garbage:
            push.put(BytesIO(data))
    collected = collect(remote, patience=0)
    assert {key.digest for key in collected.freed} == set(map(Digest.of, garbage))
    assert {file.path for file in remote.files()} == before
    assert not verify(remote).damages


def test_deletes_key_by_key_where_the_server_knows_no_batch(
    there: str, behind: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = s3_remote(there, create=True)
    blobs = [b"%d" % number for number in range(5)]
    put(remote, *blobs)
    monkeypatch.setattr(retrying, "TRIES", 1)
    behind.plan = lambda method, path: "error" if method == "POST" else None
    remote.delete([BlobKey(Digest.of(blob)) for blob in blobs])
    assert remote.has(map(Digest.of, blobs)) == set()
    assert behind.requests("DELETE", "/blobs/") == 5


def test_a_delete_that_was_not_answered_is_not_repeated(there: str, behind: Proxy) -> None:
    """It may be done at any later time: only the collector's note, which stays, keeps pushes off the key."""
    remote = s3_remote(there, create=True)
    put(remote, b"blob")
    put(remote, b"other", name="n")
    behind.plan = lambda method, path: "lost" if method == "POST" else None
    with pytest.raises(RemoteError, match="deleting 2 objects"):
        remote.delete([BlobKey(Digest.of(blob)) for blob in (b"blob", b"other")])
    assert behind.requests("POST") == 1


PUSHER = """
import sys
from pathlib import Path
from onnxreg.cli.main import main
from onnxreg.registry import Registry
from onnxreg.schema.draft import Draft, DraftArtifact

home, number, url = sys.argv[1:]
registry = Registry(Path(home))
with registry.workspace() as workspace:
    (workspace / "model.onnx").write_text(number * 1000)
    (workspace / "shared.json").write_text("{}")
    registry.add(Draft("acme/busy", workspace, (DraftArtifact("onnx", "float32", "model.onnx"),)), f"0.{number}.0")
registry.push("acme/busy", url)
"""


def test_processes_pushing_versions_of_one_model_lose_nothing(there: str, tmp_path: Path) -> None:
    running = [
        subprocess.Popen([sys.executable, "-c", PUSHER, tmp_path / f"home{number}", str(number), there])
        for number in range(8)
    ]
    assert [process.wait() for process in running] == [0] * 8
    remote = s3_remote(there)
    ledger, _ = load(remote, "acme/busy")
    assert {str(version) for version in ledger.entries} == {f"0.{number}.0" for number in range(8)}
    assert ledger.seq == 8
    assert not verify(remote).damages
    assert not [file.path for file in remote.files() if file.path.startswith("gc/")]


class TestCommandLine:
    def test_push_and_pull(
        self,
        there: str,
        registry: Registry,
        make_draft: MakeDraft,
        tmp_path: Path,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        registry.add(make_draft())

        def reg(home: Path | str, *words: object, status: int = 0) -> Any:
            capfd.readouterr()
            assert main(["--registry", str(home), *map(str, words), "--json"]) == status
            out, err = capfd.readouterr()
            return json.loads(out or err)

        ours, other = registry.store.root, tmp_path / "other"
        assert reg(ours, "push", "acme/pii:0.1.0", there)["events"] == 1
        assert reg(ours, "push", "acme/pii:0.1.0", there)["blobs"] == 0
        assert (
            reg(ours, "resolve", "acme/pii", "--format", "onnx-int8", "--remote", there)["version"] == "0.1.0"
        )
        assert reg(other, "pull", "acme/pii", there, "--output", tmp_path / "out")["events"] == 1
        assert (tmp_path / "out" / "model.onnx").read_bytes() == b"fp32 a " * 100
        assert reg(other, "verify")["ok"]
        assert reg(ours, "doctor", there)["ok"]


def wrong(server: s3servers.Server, url: str) -> dict[str, tuple[str, dict[str, str], int, str]]:
    """URL, environment, exit status and a part of the message for each bad input."""
    closed = f"http://127.0.0.1:{s3servers.free_port()}"
    return {
        "no such bucket": ("s3://nowhere/x", {}, 6, "NoSuchBucket"),
        "impossible bucket": ("s3://Not_A_Bucket/x", {}, 2, "no bucket can be called"),
        "no bucket": ("s3:///x", {}, 2, "no bucket can be called"),
        "credentials in the URL": ("s3://KEY:SECRET@models/x", {}, 2, "the URL holds credentials"),
        "unknown option": (f"{url}?secret=x", {}, 2, "no option 'secret'"),
        "wrong secret": (url, {"AWS_SECRET_ACCESS_KEY": "wrong"}, 6, "SignatureDoesNotMatch"),
        "wrong key": (url, {"AWS_ACCESS_KEY_ID": "AKIAWRONG"}, 6, "InvalidAccessKeyId"),
        "nobody listens": (url, {"AWS_ENDPOINT_URL": closed}, 6, "Could not connect"),
        "no credentials": (url, {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, 6, "no credentials"),
        "anonymous": (f"{url}?anonymous=yes", {}, 6, "AccessDenied"),
        "no such profile": (f"{url}?profile=nobody", {}, 2, "nobody"),
        "no endpoint": (f"{url}?endpoint=nonsense", {}, 2, "nonsense"),
    }


@pytest.mark.parametrize("case", wrong(s3servers.Server("", "", ""), ""))
@pytest.mark.parametrize("verb", ["push", "pull"])
def test_bad_input(
    there: str,
    ministack: s3servers.Server,
    registry: Registry,
    make_draft: MakeDraft,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    case: str,
    verb: str,
) -> None:
    registry.add(make_draft())
    url, environment, status, message = wrong(ministack, there)[case]
    monkeypatch.setattr(retrying, "TRIES", 2)
    for name, value in environment.items():
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
    assert main(["--registry", str(registry.store.root), verb, "acme/pii:0.1.0", url]) == status
    said = capfd.readouterr().err
    assert message in said
    assert not any(secret in said for secret in (ministack.secret, "SECRET"))


def test_a_web_page_is_no_registry(
    there: str, behind: Proxy, registry: Registry, make_draft: MakeDraft, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "TRIES", 1)
    registry.add(make_draft())
    behind.plan = lambda method, path: "page"
    for work in (registry.push, registry.pull):
        with pytest.raises(RemoteError, match="is no S3 server"):
            work("acme/pii:0.1.0", there)


def test_a_prefix_that_holds_something_else_is_left_alone(
    there: str, ministack: s3servers.Server, registry: Registry, make_draft: MakeDraft
) -> None:
    registry.add(make_draft())
    client = ministack.client()
    client.put_object(Bucket=s3servers.BUCKET, Key=f"{there.rpartition('/')[2]}/photo.jpg", Body=b"x")
    client.close()
    with pytest.raises(InputError, match="is not a registry and not empty"):
        registry.push("acme/pii", there)
    assert finished(there, ministack) == ["photo.jpg"]


@pytest.mark.parametrize(
    ("actions", "side"),
    [(["s3:GetObject", "s3:ListBucket"], "writing"), (["s3:PutObject", "s3:ListBucket"], "reading")],
)
def test_a_key_that_may_not(
    there: str,
    root: s3servers.Server,
    registry: Registry,
    make_draft: MakeDraft,
    monkeypatch: pytest.MonkeyPatch,
    actions: list[str],
    side: str,
) -> None:
    registry.add(make_draft())
    key, secret = s3servers.user(root, f"no-{side}", actions)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    with pytest.raises(RemoteError, match=rf"^{side} .* failed: AccessDenied"):
        registry.push("acme/pii", there)


def test_a_library_that_is_missing(there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(HostError, match="needs s3fs") as error:
        s3_remote(there)
    assert error.value.hint == "pip install 'onnxreg[s3]'"


MEASURE = """
import hashlib, random, resource, sys
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO, RawIOBase
from onnxreg.registry import hashing
from onnxreg.registry.backends.s3 import s3_remote
from onnxreg.schema.digest import Digest

class Noise(RawIOBase):
    def __init__(self, seed, size):
        self.block, self.left = random.Random(seed).randbytes(2**20), size
    def readable(self):
        return True
    def readinto(self, buffer):
        count = min(len(buffer), self.left, len(self.block))
        buffer[:count] = self.block[:count]
        self.left -= count
        return count

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

size, url = int(sys.argv[1]), sys.argv[2]
digests = [hashing.pump(Noise(seed, size), None)[0] for seed in range(8)]
remote = s3_remote(url, create=True)
with remote.push() as push:
    push.put(BytesIO(b"small"))
before = peak()
with remote.push() as push, ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda seed: push.put(Noise(seed, size), digests[seed]), range(8)))
pushed = peak()
def read(digest):
    with remote.open_blob(digest) as stream:
        assert hashing.pump(stream, None)[0] == digest
with ThreadPoolExecutor(8) as pool:
    list(pool.map(read, digests))
print(pushed - before, peak() - before)
"""


@pytest.mark.large
@pytest.mark.parametrize("size", [60 * 2**20, 200 * 2**20])
def test_memory_is_flat(there: str, size: int) -> None:
    """MiB above the baseline, eight blobs at a time."""
    command = [sys.executable, "-c", MEASURE, str(size), there]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert all(int(growth) < 64 for growth in done.stdout.split()), done.stdout


def test_over_tls(
    there: str,
    ministack: s3servers.Server,
    registry: Registry,
    make_draft: MakeDraft,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Checksums and payloads are signed in another way than over plain HTTP."""
    certificate = s3servers.certificate(tmp_path)
    made = registry.add(make_draft(size=200_000))
    monkeypatch.setattr(s3, "SINGLE", 2**20)
    monkeypatch.setattr(retrying, "TRIES", 2)
    with proxy(ministack.endpoint, certificate) as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL", running.url)
        with pytest.raises(RemoteError, match="certificate verify failed"):
            registry.push("acme/pii", there)
        monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
        registry.push("acme/pii", there)
        reader = Registry(tmp_path / "reader")
        reader.pull("acme/pii", there)
        assert running.requests("POST", "uploadId") == 1
    assert reader.get("acme/pii").digest == made.digest
    assert not reader.verify().damages


def test_a_server_that_stalls_is_asked_again(
    there: str, behind: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3client, "READ_TIMEOUT", 0.5)
    remote = s3_remote(there, create=True)
    put(remote, b"blob")
    behind.plan = at(0, "stalled", burst=2)
    with remote.open_blob(Digest.of(b"blob")) as stream:
        assert stream.read() == b"blob"
    assert behind.met == ["stalled", "stalled"]


def test_a_server_that_dies_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = s3servers.free_port()
    with s3servers.ministack(tmp_path, port) as server:
        enter(server, monkeypatch)
        remote = s3_remote(url := server.fresh(), create=True)
        with remote.push() as push:
            push.put(BytesIO(b"blob"))
    monkeypatch.setattr(retrying, "TRIES", 2)
    with pytest.raises(RemoteError, match=r"writing index/m\.jsonl"), remote.push() as push:
        push.publish("m", b"1\n", None)
    with s3servers.ministack(tmp_path, port):
        with remote.push() as push:
            push.publish("m", b"1\n", None)
        assert s3_remote(url).has([Digest.of(b"blob")])
