"""`push`, `pull`, `remote`, `tag`, `yank`: what moves, what is said of it, and that a yank goes with its manifest."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from onnx import parser, save
from support.command_line import Reg, make_draft
from support.registries.drafts import write_draft
from support.servers.docker_registry import OciServer, docker_registry

from onnxreg.cli import output
from onnxreg.registry import Registry
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.manifest.vocabulary import FILENAME

NAME = "acme/pii"
INT8 = "model_int8.onnx"


def test_push_moves_what_is_missing_and_then_nothing(reg, here, tmp_path):
    share = tmp_path / "share"
    done = reg("push", "acme/pii:0.1.0", share)
    assert done.out.startswith(f"pushed acme/pii:0.1.0 to {share}: 6 blobs, 45.9 kB") and done.err == ""
    again = reg("push", "acme/pii:0.1.0", share)
    assert again.out == f"nothing to do: acme/pii:0.1.0 is up to date with {share}\n"
    second = reg("push", "acme/pii", share, "--json").json
    assert (second["ref"], second["events"], second["blobs"]) == ("acme/pii:0.2.0", 1, 3)
    healed = reg("push", "acme/pii", share, "--heal").out
    assert healed == f"nothing to do: acme/pii:0.2.0 is up to date with {share}\n"


def test_everything_is_pushed_with_a_channel(reg, here, tmp_path):
    share = tmp_path / "share"
    words = ("push", "*", "--remote", share, "--tag", "stable")
    first = reg(*words).out.splitlines()
    assert first[0].split() == ["PUSHED", "VERSION", "BLOBS", "SIZE", "CHANNELS"]
    assert first[1].startswith("acme/pii  0.1.0, 0.2.0") and first[1].endswith("stable: 0.1.0")
    assert first[-2].startswith(f"pushed 2 models to {share}: ") and first[-1].startswith(f"{share} is a new")
    assert reg(*words).out == f"up to date with {share}: 2 models\n"
    assert str(Registry(share).find("acme/pii:stable").version) == "0.1.0"
    done = reg("push", "--all", *words[2:3], tmp_path / "other", *words[4:], "--json")
    assert (done.status, done.err) == (0, "")
    assert [one["ref"] for one in done.json["pushed"]] == ["acme/pii", "tiny:0.1.0"]
    assert done.json["channels"] == [{"name": "acme/pii", "tag": "stable", "version": "0.1.0"}]


def test_one_failure_gives_its_status_and_the_others_go(reg, here, tmp_path):
    share = Registry(tmp_path / "share")
    share.add(make_draft(tmp_path / "w", seed="z"), "0.2.0")
    words = ("push", "--all", "--remote", share.store.root)
    assert reg(*words).ended(5, "acme/pii  0.2.0  acme/pii:0.2.0 has manifest")
    assert sorted(share.names()) == ["acme/pii", "tiny"]
    as_json = reg(*words, "--json")
    assert (as_json.status, as_json.error["family"]) == (5, "conflict")
    assert [item["ref"] for item in as_json.json["skipped"]] == ["acme/pii:0.2.0"]
    (here.store.root / "index/tiny.jsonl").write_bytes(b"{}\n")
    damaged = reg("push", "tiny", "--all", "--remote", share.store.root)
    assert damaged.status == 4
    assert "up to date" not in reg("push", "acme/pii", *words[1:]).out + damaged.out


def test_a_channel_travels_with_one_version(reg, here, tmp_path):
    share = tmp_path / "share"
    done = reg("push", "acme/pii", share, "--tag", "stable")
    assert done.status == 0 and "pushed channel stable: acme/pii:0.1.0" in done.out.splitlines()
    back = reg("--registry", "mine", "pull", "acme/pii:0.2.0", share, "--tag", "stable", "--json").json
    assert back["ref"] == "acme/pii:0.2.0"
    assert back["channels"] == [{"name": "acme/pii", "tag": "stable", "version": "0.1.0"}]
    assert "channels" not in reg("push", "acme/pii", share, "--json").json
    assert reg("tag", "acme/pii:0.2.0", "stable", "--remote", share).status == 0
    done = reg("push", "acme/pii", share, "--tag", "stable")
    assert f"pushed acme/pii to {share}: 1 event\n" in done.out
    assert "the channel acme/pii:stable went back there, from 0.2.0 to 0.1.0" in done.err


def test_pull_brings_a_version_and_writes_its_files(reg, here, home):
    done = reg("--registry", "mine", "pull", NAME, "--remote", home, "--output", "out", "--json").json
    assert (done["ref"], done["remote"], done["output"]) == ("acme/pii:0.2.0", str(home), "out")
    assert Path("out", FILENAME).read_text() == reg("show", NAME, "--json").out
    names = {"model.onnx", INT8, "config.json", "recall_delta.json", FILENAME}
    assert {path.name for path in Path("out").iterdir()} == names
    again = reg("--registry", "mine", "pull", NAME, home, "--output", "out")
    assert again.out == f"acme/pii:0.2.0 is up to date with {home}\nwritten to out\n"


def test_pull_by_channel_and_by_digest(reg, here, home):
    done = reg("--registry", "mine", "pull", f"{NAME}:stable", home, "--output", "stable", "--json")
    assert done.json["ref"] == "acme/pii:0.1.0"
    digest = Digest.of(Path("stable", FILENAME).read_bytes())
    reg("yank", "acme/pii:0.1.0")
    assert reg("--registry", "new", "pull", f"{NAME}@{digest}", home, "--output", "exact").status == 0
    assert Path("exact", FILENAME).read_bytes() == Path("stable", FILENAME).read_bytes()


def test_pull_of_one_format_is_partial_and_every_verb_says_so(reg, here, home, tmp_path):
    mine, ref = ("--registry", "mine"), f"{NAME}:0.2.0"
    words = (*mine, "pull", ref, home, "--format", "onnx-int8")
    assert reg(*words, "--output", "out", "--json").json["held"] == [INT8]
    written = {"config.json", "recall_delta.json", INT8, FILENAME}
    assert {path.name for path in Path("out").iterdir()} == written
    assert reg(*words).ended(0, "nothing to do", f"held here: {INT8}")
    (listed,) = reg(*mine, "ls", NAME, "--json").json["versions"]
    (source, _) = reg("ls", NAME, "--json").json["versions"]
    assert (listed["held"], source["held"]) == ([INT8], None) and listed["size"] < source["size"]
    assert reg(*mine, "ls", NAME).ended(0, f"refused  {INT8}")
    assert reg(*mine, "show", ref).ended(0, f"partial: reg pull {ref} fetches the rest", "HELD")
    assert "HELD" not in reg("ls", NAME).out + reg("show", ref).out
    assert reg(*mine, "show", ref, "--json").out == reg("show", ref, "--json").out
    assert reg(*mine, "log", NAME).ended(0, f"hold     0.2.0 {listed['manifest'][7:19]} {INT8}")
    resolved = reg(*mine, "resolve", NAME, "--json").json
    codes = {item["artifact"]: item["code"] for item in resolved["rejected"]}
    assert (resolved["artifact"]["path"], codes) == (INT8, {"model.onnx": "not-held"})
    absent = reg(*mine, "resolve", NAME, "--format", "onnx-android")
    assert absent.ended(3, "model.onnx is not held here")
    assert reg(*mine, "verify").status == reg(*mine, "diff", ref, ref).status == 0
    refused = reg(*mine, "push", ref, tmp_path / "there")
    assert refused.ended(3, f"only onnx-int8 (int8) of {ref}")
    assert reg(*mine, "pull", ref, home, "--json").json["held"] is None
    assert reg(*mine, "log", NAME).ended(0, "everything")
    assert reg(*words, "--output", "whole").status == 0
    assert {path.name for path in Path("whole").iterdir()} == written, (
        "what was chosen, whatever else is here"
    )


def test_remotes_have_names(reg, here, tmp_path):
    assert reg("remote", "add", "origin", tmp_path / "share").out == "remote origin added\n"
    assert reg("remote", "add", "origin", tmp_path / "elsewhere").status == 5
    assert reg("remote", "list").out.splitlines()[1].split() == ["origin", str(tmp_path / "share")]
    assert reg("push", "tiny").out.startswith(f"pushed tiny:0.1.0 to {tmp_path / 'share'}")
    assert reg("--registry", "none", "resolve", "tiny", "--remote", tmp_path / "share").status == 0
    assert reg("resolve", "tiny", "--remote", "origin", "--json").json["version"] == "0.1.0"
    assert reg("remote", "remove", "origin").status == 0
    assert reg("remote", "list", "--json").json == {"remotes": []}


@pytest.mark.parametrize(
    ("words", "before"),
    [
        (("tag", f"{NAME}:0.1.0", "stable"), f"{NAME}:stable is already 0.1.0"),
        (("yank", f"{NAME}:0.2.0"), f"{NAME}:0.2.0 is already yanked"),
        (("yank", f"{NAME}:0.1.0", "--undo"), f"{NAME}:0.1.0 is not yanked"),
        (("pin", f"{NAME}:0.2.0", "--undo"), f"{NAME}:0.2.0 is not pinned"),
    ],
)
def test_a_decision_that_changes_nothing_says_so_and_logs_nothing(words, before, reg, here):
    assert reg("yank", f"{NAME}:0.2.0").status == 0
    lines = reg("log", NAME, "--json").json["lines"]
    assert reg(*words).out == f"nothing to do: {before}\n"
    assert reg(*words, "--reason", "again").out == f"nothing to do: {before}; the reason is not logged\n"
    assert reg("log", NAME, "--json").json["lines"] == lines


def test_durations_and_sizes():
    times = {1.2: "1 s", 59.4: "59 s", 65: "1 min 05 s", 3600: "1 h 00 min", 8100: "2 h 15 min"}
    assert {seconds: output.duration(seconds) for seconds in times} == times
    sizes = {0: "0 B", 999: "999 B", 1000: "1.0 kB", 1_234_567: "1.2 MB", 5 * 10**9: "5.0 GB"}
    assert {count: output.size(count) for count in sizes} == sizes


# A registry of containers


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciServer]:
    with docker_registry(tmp_path_factory.mktemp("oci")) as running:
        yield running


def test_a_version_travels_by_a_registry_of_containers(reg, server, tmp_path):
    own = Registry(tmp_path / "own")
    own.add(write_draft(tmp_path / "files", NAME, "a", 100), "1.0.0")
    url, push = server.url("cli/pii"), ("--registry", own.store.root, "push")
    done = reg(*push, NAME, url, "--json")
    assert done.status == 0, done.err
    counts = {"blobs": 7, "referrers": 1}
    assert done.json.items() >= {"ref": "acme/pii:1.0.0", "url": f"{url}:1.0.0", **counts}.items()
    other = ("--registry", tmp_path / "other", "import")
    imported = reg(*other, f"{url}@{done.json['digest']}", "--json")
    assert imported.json["digest"] == str(own.get(NAME).digest)
    assert reg(*push, NAME, url).ended(0, "sent 0 blobs")
    latest = server.url("cli/statuses:latest")
    assert reg(*push, NAME, latest).status == 0
    own.add(write_draft(tmp_path / "more", NAME, "b", 100), "2.0.0")
    assert reg(*push, NAME, latest).status == 5
    assert reg(*push, "acme/*", latest).status == 2
    assert reg(*push, f"{NAME}:9.9.9", latest).status == 3
    assert reg(*other, server.url("cli/statuses:none")).status == 3
    assert reg(*other, latest, "--name", "acme/another").status == reg(*other, tmp_path).status == 2


# A yank holds for a manifest, wherever it goes and under whatever number

M = "me/m"
Add = Callable[..., Any]


@pytest.fixture
def add(reg: Reg, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, reader_in_process: None) -> Add:
    """Add a version of a model, of which `value` decides the bytes."""
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))

    def run(value: float, *words: object) -> Any:
        text = f"<float[2, 2] w = {{{value}, {value}, {value}, {value}}}> {{ y = MatMul(x, w) }}"
        graph = f'<ir_version: 8, opset_import: ["" : 14]> g (float[n, 2] x) => (float[n, 2] y) {text}'
        save(parser.parse_model(graph), "a.onnx")
        return reg("add", "a.onnx", "--name", M, "--json", *words)

    return run


def yanked(root: object = None) -> dict[str, bool]:
    registry = Registry(None if root is None else str(root))
    return {str(version): entry.yanked for version, entry in registry.state(M).versions.items()}


def test_the_same_manifest_is_not_published_again_and_stays_yanked(reg, add):
    add(1, "--version", "1.0.0")
    assert reg("yank", f"{M}:1.0.0", "--reason", "leaks\n\x1b[2J").status == 0
    again = add(1)
    assert (again.status, again.json["version"]) == (0, "1.0.0")
    assert again.json["yanked"] == {"version": "1.0.0", "reason": "leaks\n\x1b[2J"}
    shown = reg("add", "a.onnx", "--name", M)
    assert shown.ended(0, "leaks\\x0a\\x1b[2J") and "\x1b" not in shown.out + shown.err
    assert add(1, "--version", "1.0.1").json["yanked"]["version"] == "1.0.0"
    assert yanked() == {"1.0.0": True, "1.0.1": True}
    assert reg("resolve", M).status == reg("resolve", f"{M}:1.0.1").status == 3
    assert reg("drop", f"{M}:1.0.0").status == 5, "a dropped version would take the yank with it"
    assert reg("yank", f"{M}:1.0.1", "--undo").status == 0
    assert yanked() == {"1.0.0": False, "1.0.1": False}
    add(2, "--version", "1.1.0")
    assert reg("yank", f"{M}:1.0.1").ended(0, f"{M}:1.0.0")
    assert yanked() == {"1.0.0": True, "1.0.1": True, "1.1.0": False}
    assert reg("verify").status == 0


def test_earlier_bytes_are_published_again_only_under_a_version_that_is_named(reg, add):
    add(1, "--version", "0.2.1")
    add(2, "--version", "0.3.0")
    again = add(1)
    assert (again.status, again.json["version"]) == (0, "0.2.1")
    assert reg("add", "a.onnx", "--name", M).ended(0, f"{M}:0.2.1", "--version")
    assert set(yanked()) == {"0.2.1", "0.3.0"}
    assert add(1, "--version", "0.4.0").json["version"] == "0.4.0"


def test_a_push_meets_the_yanks_of_the_remote(reg, add, tmp_path):
    """Nothing here knows of the yank: it was made there."""
    share = tmp_path / "share"
    add(1, "--version", "0.2.1")
    reg("push", f"{M}:0.2.1", share)
    reg("yank", f"{M}:0.2.1", "--remote", share, "--reason", "leaks names")
    add(2, "--version", "0.3.0")
    reg("push", f"{M}:0.3.0", share)
    add(1, "--version", "0.3.1")
    done = reg("push", f"{M}:0.3.1", share)
    assert done.status == 0 and "leaks names" in done.err
    assert yanked(share) == {"0.2.1": True, "0.3.0": False, "0.3.1": True}
    again = reg("push", f"{M}:0.2.1", share)
    assert again.err == f"warning: {M}:0.2.1 is yanked there: leaks names\n"
    reg("yank", f"{M}:0.3.0", "--reason", "slow")
    assert reg("pull", f"{M}:0.3.0", share).err == f"warning: {M}:0.3.0 is yanked here: slow\n"
    assert reg("resolve", M, "--remote", share).ended(0, "0.3.0")


def test_the_times_of_a_log_are_those_of_arrival(reg, add, tmp_path, monkeypatch):
    """A version that was written first, and pushed last."""
    for day, version in ((2, "0.1.0"), (3, "0.2.0")):
        monkeypatch.setattr("onnxreg.registry.system.TIME_FORMAT", f"2026-01-0{day}T03:04:05Z")
        add(day, "--version", version)
    for version in ("0.2.0", "0.1.0"):
        reg("push", f"{M}:{version}", tmp_path / "share")
    add(2)  # writes the first file again
    for version, status in (("0.1.0", 0), ("0.2.0", 5)):
        assert reg("add", "a.onnx", "--name", M, "--version", version).ended(status, "--version 0.2.1")
    lines = reg("log", M, "--remote", tmp_path / "share").out.splitlines()[1:]
    times = [line.split()[1] for line in lines]
    assert times == sorted(times) and min(times) > "2026-01-04"
    assert "written 2026-01-03T03:04:05Z in " in lines[0] and "written 2026-01-02T03:04:05Z in " in lines[1]


def test_a_channel_takes_no_yanked_version_and_a_yank_names_the_channels_that_hold_it(reg, here):
    manifest = here.get("acme/pii:0.1.0").digest
    yanked = reg("yank", "acme/pii:0.1.0", "--reason", "leak")
    assert yanked.ended(0, "reg tag acme/pii:VERSION stable")
    assert "reg yank acme/pii:0.1.0 --undo" in yanked.out
    assert reg("tag", f"acme/pii@{manifest}", "canary").status == 5
    assert "canary" not in reg("ls", "acme/pii").out
    assert reg("show", "acme/pii:stable").ended(3, "leak")
    for ref in ("acme/pii:0.1.0", f"acme/pii@{manifest}"):  # for auditors
        assert reg("show", ref).ended(0, "acme/pii:0.1.0, yanked: leak")
        assert "yanked: leak" in reg("show", ref, "--json").err
        assert reg("diff", ref, "acme/pii").ended(0, "acme/pii:0.1.0, yanked: leak")
        assert reg("sbom", ref).status == 0
    assert reg("diff", "acme/pii:stable", "acme/pii").status == 3
    assert reg("yank", "acme/pii:0.1.0", "--undo").status == 0
    yanked = reg("yank", "acme/pii:stable", "--reason", "leak")  # the channel may move before the undo
    assert "reg yank acme/pii:0.1.0 --undo" in yanked.out
    assert reg("tag", "acme/pii:0.2.0", "stable").ended(0, "0.1.0 -> 0.2.0")
