"""`resolve`, `coverage`, `lock`, `rollout`: which artifact a question gets, why not another, and that an answer is kept."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from support.command_line import Reg, make_draft
from support.registries import gated
from support.trust.tamper import Tree

from onnxreg.registry import Registry
from onnxreg.registry.trust.known_heads import KnownHeads
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.ref import Version

MODEL = "acme/fleet"
PII = "acme/pii"
LOCK = Path("onnxreg.lock")


@pytest.mark.parametrize(
    ("words", "version", "path"),
    [
        ("", "1.1.0", "model.ort"),
        ("--format onnx-int8", "1.1.0", "int8.onnx"),
        ("--precision int8", "1.1.0", "int8.onnx"),
        ("--format ort --format onnx", "1.1.0", "model.ort"),
        ("--certified", "1.0.0", "int8.onnx"),
        ("--max-size 3120", "1.1.0", "model.ort"),
        ("--max-size 3.12kB --precision float32", "1.1.0", "model.ort"),
        ("--min-recall PHONE=0.96", "1.1.0", "int8.onnx"),
        ("--where opset=18", "1.0.0", "model.ort"),
        ("--device ort-android-1.16 --precision float32", "1.0.0", "model.ort"),
        ("--device ort-web-1.18 --format onnx", "1.1.0", "model.onnx"),
        ("--device ram.json", "1.1.0", "int8.onnx"),
        ("--device ./any", "1.1.0", "model.ort"),
        ("--device whole.json", "1.1.0", "model.ort"),
        ("--device small.json", None, None),
    ],
)
def test_options_choose_an_artifact(reg, fleet, words, version, path):
    Path("build").mkdir()
    Path("build/ops.config").write_text('ai.onnx;13;MatMul{"inputs": {"0": ["float"]}}\nai.onnx;20;Gelu\n')
    write_device("ram.json", ram="2kB")
    write_device("any")
    write_device("small.json", build="minimal", operators="ai.onnx;13;MatMul")
    write_device("whole.json", build="minimal", operators_file="build/ops.config")
    done = reg("resolve", MODEL, *words.split(), "--json")
    assert done.status == (0 if version else 3)
    assert (done.json["version"], (done.json["artifact"] or {"path": None})["path"]) == (version, path)
    if "small" in words:
        codes = {each["code"] for each in done.json["rejected"] if each["artifact"] == "model.ort"}
        assert codes == {"operators"}
        assert "needs ai.onnx:Gelu (opset 20), which this build lacks" in done.error["hint"]
    assert reg("--registry", "mine", "index", "fetch", "--remote", fleet.store.root).status == 0
    fleet.store.root.rename("gone")
    offline = reg("resolve", MODEL, *words.split(), "--remote", fleet.store.root, "--offline", "--json")
    assert (offline.status, offline.json) == (done.status, done.json)


def write_device(name: str, **more: Any) -> str:
    Path(name).write_text(json.dumps({"ort": "1.23", **more}))
    return name


def test_every_artifact_that_is_not_chosen_has_a_reason(reg, fleet):
    words = ("--device", "ort-android-1.17", "--format", "onnx", "--format", "ort")
    found = reg("resolve", MODEL, *words, "--json").json
    assert found["manifest"] == str(fleet.find(f"{MODEL}:1.0.0").entry.manifest)
    assert found["size"] == 3000 + 120 == sum(file["size"] for file in found["files"])
    assert [(each["version"], each["artifact"], each["code"]) for each in found["rejected"]] == [
        ("1.1.0", "model.onnx", "opset"),
        ("1.1.0", "model.ort", "opset"),
        ("1.1.0", "int8.onnx", "format"),
        ("1.0.0", "model.onnx", "ir-version"),
        ("1.0.0", "int8.onnx", "format"),
    ]
    for file in found["files"]:
        assert str(Digest.of(Path(file["url"].removeprefix("file://")).read_bytes())) == file["digest"]
    fleet.yank(f"{MODEL}:1.1.0")
    shown = reg("resolve", MODEL, "--format", "ort")
    assert shown.ended(0, "is yanked", "int8.onnx   format  is onnx-int8, wanted ort")


def test_nothing_answers(reg, fleet, monkeypatch):
    words = ("resolve", MODEL, "--format", "ort", "--certified")
    done, found = reg(*words), reg(*words, "--json")
    assert done.ended(3, f"error: no artifact of {MODEL} ", "hint: 1.1.0 model.ort is the reference")
    assert reg(*words, "--explain").ended(3, "not-certified", "leave out --certified")
    assert (found.error["family"], len(found.json["rejected"])) == ("not-found", 6)
    nearest = reg("resolve", MODEL, "--precision", "int8", "--max-size", "5B").err.splitlines()[1]
    misses = (f"{n} int8.onnx takes 1.1 kB to download, at most 5 B are wanted" for n in ("1.1.0", "1.0.0"))
    assert nearest == f"hint: {'; '.join(misses)}; 1.1.0 model.onnx is float32, wanted int8"
    monkeypatch.setattr("onnxreg.cli.commands.resolve.MAX_REJECTIONS", 1)
    few = reg("resolve", MODEL, "--format", "onnx-int8").out
    assert few.endswith("and 1 more, which --explain lists\n") and "model.ort" not in few
    assert "model.ort" in reg("resolve", MODEL, "--format", "onnx-int8", "--explain").out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", "holds 0 devices"),
        ('[{"ort": "1.23"}, {"ort": "1.22"}]', "holds 2 devices"),
        ('{"ort": "1.23", "operators_file": 5}', "operators_file is not a path"),
    ],
)
def test_a_malformed_device_file(reg, fleet, content, message):
    Path("device.json").write_text(content)
    assert reg("resolve", MODEL, "--device", "device.json").ended(2, message, "device.json")


def test_a_lying_index_is_found_out(reg, fleet, tmp_path):
    words = ("resolve", MODEL, "--verify", "--json")
    assert reg(*words).status == reg("resolve", f"{MODEL}:stable", "--verify").status == 0
    path = fleet.store.root / "index" / "acme" / "fleet.jsonl"
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b'"state":"unknown"', b'"state":"certified"'))
    seen = reg(*words[:2], "--json")
    message = f"the index says other things of {MODEL}:1.0.0 than before"
    assert (seen.status, seen.error["message"]) == (4, message)
    KnownHeads().reset(fleet.id)
    assert reg(*words[:2], "--json").json["artifact"]["state"] == "certified"
    assert reg(*words).ended(4, "says other things of manifest")
    pulled = reg("--registry", "mine", "pull", f"{MODEL}:1.1.0", fleet.store.root)
    assert pulled.ended(4, "says other things of manifest")
    assert reg("push", f"{MODEL}:1.1.0", tmp_path / "there").status == reg("verify").status == 4


def test_a_damaged_operator_set_is_no_reason_to_offer(reg, fleet):
    digest = fleet.state(MODEL).summaries[Version.parse("1.1.0")].artifacts[1].operators
    place = Path(fleet.store.blob_url(digest).removeprefix("file://"))
    place.chmod(0o644)
    place.write_bytes(b"[]")
    device = write_device("d.json", build="minimal", operators="ai.onnx;13;MatMul")
    assert reg("resolve", MODEL, "--device", device).ended(4, "damaged")


# Warnings and the winner of a search


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """1.0.0 has an int8 file that is refused, and 2.0.0 none."""
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    registry = Registry(tmp_path / "home")
    registry.add(gated.draft(tmp_path / "a", "a", "refused"), "1.0.0")
    newer = gated.draft(tmp_path / "b", "b")
    registry.add(replace(newer, artifacts=newer.artifacts[:1]), "2.0.0")
    return registry


def test_an_older_or_refused_answer_is_said(reg, refused):
    done = reg("resolve", PII, "--precision", "int8", "--json")
    older, state = done.err.splitlines()
    assert (done.json["version"], "2.0.0" in older, "refused" in state) == ("1.0.0", True, True)
    assert reg("lock", PII, "--precision", "int8").ended(0, "2.0.0", "refused")
    assert reg("resolve", PII).err == ""
    (named,) = reg("resolve", f"{PII}:1.0.0", "--precision", "int8").err.splitlines()
    assert "refused" in named
    assert reg("ls", PII).ended(0, "1 of 2 refused")


@pytest.mark.parametrize("suite, path", [(b"suite", "small"), (b"other", "int8"), (None, "int8")])
def test_the_winner_of_a_search_is_what_resolve_gives(reg, refused, tmp_path, suite, path):
    """Of the format that ranks last, and larger than the others; it was judged on the suite to confirm on."""
    made = gated.draft(tmp_path / "c", "c")
    (made.root / "model_small.onnx").write_bytes(b"small" * 1000)
    judged = made.artifacts[1] if suite else gated.DraftArtifact("onnx-int8", "int8", "model_int8.onnx")
    winner = replace(judged, path="model_small.onnx", format="onnx")
    recipe = {"profile": "own", "profile_version": 1, "tools": {}, "steps": []}
    recipe |= {"parameters": {"search": {"output": winner.path, "confirm": suite and Digest.of(suite)}}}
    fields = {**made.fields, "recipe": recipe}
    refused.add(replace(made, artifacts=(made.artifacts[0], judged, winner), fields=fields), "3.0.0")
    found = reg("resolve", PII, "--precision=int8", "--json").json["artifact"]["path"]
    assert found == f"model_{path}.onnx"
    named = reg("resolve", PII, "--format", "onnx-int8", "--format", "onnx", "--json").json
    assert named["artifact"]["path"] == "model_int8.onnx" and reg("verify").status == 0


# The memory of a decoder

LLM = "acme/llm"
CACHE = {"bytes_per_token": 1024, "max_tokens": 4096}


@pytest.fixture
def decoders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Two releases of a decoder of 35,000 bytes; the second needs twice the memory for a token, and keeps half as many."""
    registry = Registry(tmp_path / "home")
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    for version, cache in {"1.0.0": CACHE, "1.1.0": {"bytes_per_token": 2048, "max_tokens": 2048}}.items():
        made = make_draft(tmp_path / version, name=LLM)
        fields = {"metadata": {"opset": 18}, "kv_cache": cache}
        registry.add(replace(made, artifacts=(replace(made.artifacts[0], fields=fields),)), version)
    return registry


@pytest.mark.parametrize(
    ("tokens", "ram", "version"),
    [
        (None, 2048 * 2048, "1.1.0"),
        (None, 2048 * 2048 - 1, None),
        (100, 2048 * 100 - 1, "1.0.0"),
        (4097, 2**40, None),
    ],
)
def test_the_context_decides_the_memory(decoders, reg, tokens, ram, version):
    words = ("--device", write_device("phone.json", ram=35_000 + ram))
    words += () if tokens is None else ("--context-tokens", str(tokens))
    answer = reg("resolve", LLM, *words, "--json")
    assert (answer.status, answer.json["version"]) == (0 if version else 3, version)
    if version == "1.0.0":
        assert answer.json["artifact"]["kv_cache"] == CACHE
        assert reg("lock", LLM, *words).status == reg("lock", "--check").status == 0
        assert json.loads(LOCK.read_bytes())["models"][0]["asked"]["context"] == tokens


def test_the_reason_has_the_sizes_and_other_verbs_the_cache(decoders, reg):
    device = write_device("phone.json", ram=35_100)
    parts = "137400 bytes to hold in 35100 bytes of memory: 35000 of weights, and 2048 for each of 50 tokens"
    small = reg("resolve", LLM, "--device", device, "--context-tokens", "50")
    assert small.ended(3, f"1.1.0 model.onnx has {parts}")
    long = reg("resolve", LLM, "--context-tokens", "4097")
    assert long.ended(3, "1.0.0 model.onnx has a context of 4096 tokens, 4097 are wanted")
    shown = reg("show", f"{LLM}:1.0.0")
    assert shown.ended(0, "kv cache 1.0 kB a token, at most 4096 tokens (4.2 MB)")
    changes = reg("diff", f"{LLM}:1.0.0", f"{LLM}:1.1.0", "--json").json["changes"]
    cache = {row["path"].rpartition(".")[2]: row["severity"] for row in changes if "kv_cache" in row["path"]}
    assert cache == {"bytes_per_token": "degrading", "max_tokens": "breaking"}
    back = reg("diff", f"{LLM}:1.1.0", f"{LLM}:1.0.0", "--json").json["changes"]
    assert {row["severity"] for row in back if "kv_cache" in row["path"]} == {"notable"}


@pytest.mark.parametrize("cache", [7, {**CACHE, "max_tokens": 1}])
def test_a_wrong_cache_in_an_index_file_is_damage(decoders, reg, cache):
    def change(state: Any) -> None:
        state["summaries"]["1.1.0"]["artifacts"][0]["kv_cache"] = cache

    Tree(decoders.store.root).edit_state(LLM, change)
    assert reg("verify").status == 4
    if cache != {**CACHE, "max_tokens": 1}:
        assert reg("resolve", LLM).ended(4, "cannot be read")


# --compatible-with


def test_an_answer_has_the_contract_that_the_app_was_written_for(here, reg, tmp_path):
    """Two releases with the same labels, and a third with others."""
    tensor = {"name": "x", "dtype": "float32", "shape": []}
    for version, labels in {"1.0.0": "AB", "1.1.0": "AB", "2.0.0": "BA"}.items():
        made = make_draft(tmp_path / version, seed=version)
        metadata = {"opset": 18, "inputs": [tensor], "outputs": [tensor]}
        artifacts = tuple(replace(item, fields={"metadata": metadata}) for item in made.artifacts)
        here.add(replace(made, artifacts=artifacts, fields={**made.fields, "labels": list(labels)}), version)
    first = str(here.resolve(f"{PII}:1.0.0").artifact.contract)
    answer = reg("resolve", PII, "--compatible-with", f"{PII}:1.0.0", "--json").json
    assert (answer["version"], answer["artifact"]["contract"]) == ("1.1.0", first)
    none = reg("resolve", PII, "--compatible-with", f"{PII}:0.2.0")
    assert none.ended(3, "has no recorded contract")
    reg("lock", f"{PII}:1.0.0")
    assert json.loads(LOCK.read_bytes())["models"][0]["artifact"]["contract"] == first
    same = reg("lock", f"{PII}:1.1.0").out
    assert "1.0.0 " in same and "-> 1.1.0 " in same and "contract" not in same
    assert reg("lock", f"{PII}:2.0.0").ended(0, "its contract is another one")
    place = here.store.root
    assert reg("index", "fetch", "--remote", place).status == 0
    place.rename("gone")
    words = ("--compatible-with", f"{PII}:1.0.0", "--remote", place, "--offline")
    offline = reg("resolve", PII, *words, "--json")
    assert (offline.json, offline.err.count("offline: ")) == (answer, 1)
    assert reg("resolve", PII, *words, "--max-age", "0s").status == 8


# Coverage of a fleet


def test_each_device_gets_what_resolve_gives_it(reg, fleet):
    names = ("ort-web-1.16", "ort-webgpu-1.30", "ort-desktop-1.20")
    words = [word for name in names for word in ("--devices", name)]
    done = reg("coverage", MODEL, *words, "--precision", "float32", "--json")
    assert (done.status, done.json["ref"], done.json["stranded"]) == (0, MODEL, 0)
    for name, found in zip(names, done.json["devices"], strict=True):
        alone = reg("resolve", MODEL, "--device", name, "--precision", "float32", "--json").json
        assert found == {"device": name} | {key: alone[key] for key in found if key != "device"}
    words = ("coverage", MODEL, "--devices", "ort-web-1.23", "--json")
    there = reg("--registry", "none", *words, "--remote", fleet.store.root).json
    assert there == reg(*words).json


def test_a_stranded_device_shuts_the_gate(reg, fleet):
    """A version that is named gives way to no other."""
    stranded = {"ort": "1.23", "free_space": "1kB"}
    phones = [{"name": "new", "ort": "1.23"}, {"name": "old", "ort": "1.16"}, stranded]
    Path("phones.json").write_text(json.dumps(phones))
    done = reg("coverage", MODEL, "--devices", "phones.json")
    assert done.ended(8, "1 device of 3 get nothing of acme/fleet: phones[2]")
    rows = [line.split() for line in done.out.splitlines()]
    assert rows[1][:4] == ["new", "1.1.0", "model.ort", "ort"] and rows[3][0] == "phones[2]"
    value = reg("coverage", MODEL, "--devices", "phones.json", "--json")
    assert (value.status, value.error["family"], value.json["stranded"]) == (8, "gate", 1)
    nothing = value.json["devices"][2]
    assert (nothing["version"], {each["code"] for each in nothing["rejected"]}) == (None, {"space"})
    words = ["coverage", "--devices", "phones.json", "--precision", "float32", "--where", "size>0", "--json"]
    counts = [reg(*words, f"{MODEL}{tag}").json["stranded"] for tag in ("", ":1.1.0", ":stable")]
    assert counts == [1, 2, 1]
    certified = ("coverage", "--devices", "ort-android-1.23", "--certified")
    assert reg(*certified, f"{MODEL}:1.0.0").status == 0
    assert reg(*certified, f"{MODEL}:1.1.0").ended(8, "leave out --certified")


def test_an_unsigned_version_covers_nothing_if_signatures_are_required(reg, fleet, own_user):
    own_user.mkdir(parents=True, exist_ok=True)
    (own_user / "trust").write_text("[[require]]\nversions = true\n")
    done = reg("coverage", MODEL, "--devices", "ort-android-1.23", "--json")
    assert (done.status, done.error["family"], done.out) == (4, "integrity", "")


# Locks


def locked() -> Any:
    return json.loads(LOCK.read_bytes())["models"]


def test_a_lock_changes_with_the_answer_alone(reg, fleet, tmp_path):
    done = reg("lock", MODEL, "--device", "ort-android-1.16", "--precision", "float32")
    assert done.ended(0, "acme/fleet: added 1.0.0 model.ort", "written to onnxreg.lock")
    before = LOCK.read_bytes()
    (entry,) = locked()
    assert (entry["asked"]["precision"], entry["asked"]["device"]["ort"]) == ("float32", "1.16")
    for words in ((), ("--update", MODEL), ("--check",)):
        assert reg("lock", *words).ended(0, "nothing changed") and LOCK.read_bytes() == before
    assert reg("lock", MODEL, "--json").json["changes"][0]["before"]["version"] == "1.0.0"
    before = LOCK.read_bytes()
    fleet.yank(f"{MODEL}:1.1.0")
    checked = reg("lock", "--check")
    assert checked.ended(8, f"{MODEL}: 1.1.0 model.ort -> 1.0.0 int8.onnx", "without --check\n")
    assert LOCK.read_bytes() == before
    assert reg("lock").status == reg("lock", "--check").status == 0
    fleet.add(make_draft(tmp_path / "w", name="tiny"))
    reg("lock", "tiny", "--format", "onnx-int8")
    assert [(each["name"], each["version"]) for each in locked()] == [(MODEL, "1.0.0"), ("tiny", "0.1.0")]


def test_a_version_that_was_pushed_since_is_the_same(reg, fleet, tmp_path):
    """The registry that answers is another one, the digests are not."""
    assert reg("lock", MODEL).status == 0
    before, there = LOCK.read_bytes(), tmp_path / "there"
    fleet.push(f"{MODEL}:1.1.0", str(there))
    also = f"{MODEL}: registry {Registry(there).id[:12]}... has the locked manifest too"
    for words in (["--check"], []):
        assert reg("lock", *words, "--remote", there).ended(0, "nothing changed", also)
        assert LOCK.read_bytes() == before
    LOCK.write_bytes(before.replace(locked()[0]["manifest"].encode(), b"sha256:" + b"0" * 64))
    assert reg("lock", "--check", "--remote", there).status == 8


def test_a_lock_that_is_none(reg, fleet):
    LOCK.write_text("{}")
    for words in (["lock"], ["lock", MODEL], ["pull", "--locked"]):
        assert reg(*words).ended(2, "onnxreg.lock is not a lock")
    assert LOCK.read_text() == "{}"


def test_a_build_gets_the_locked_files(reg, fleet, tmp_path):
    reg("lock", MODEL, "--format", "ort")
    pull = ("--registry", "build", "pull", "--locked", LOCK, fleet.store.root, "--output", "app")
    assert reg(*pull).ended(0, "pulled what is locked from", "written to app")
    files = ["labels.json", "model.ort", "openmed-onnx.json", "report.json"]
    assert sorted(path.name for path in Path("app/acme/fleet").iterdir()) == files
    fleet.yank(f"{MODEL}:1.1.0", "wrong labels")
    assert reg(*pull).ended(0, "nothing to do", f"{MODEL}:1.1.0 is yanked: ")
    (model,) = reg(*pull, "--json").json["models"]
    assert (model["path"], model["yanked"], model["bytes"]) == ("model.ort", True, 0)
    imposter = Registry(tmp_path / "imposter")
    imposter.add(make_draft(tmp_path / "w", name=MODEL), "1.1.0")
    words = ("--registry", "new", "pull", "--locked", LOCK, imposter.store.root, "--output", "other")
    assert reg(*words).status == 4 and not Path("other").exists()


# Rollouts

STABLE = ("--channel", "stable")


def test_a_rollout_from_start_to_finish(reg, here):
    done = reg("rollout", "start", f"{PII}:0.2.0", *STABLE, "--percent", "5", "--where", "platform = android")
    assert done.ended(0, "stable is 0.2.0 for 5 % of the devices with platform = 'android', and 0.1.0")
    moved = reg("tag", f"{PII}:0.2.0", "stable")
    assert moved.ended(5, "reg rollout finish acme/pii --channel stable")
    assert reg("rollout", "status", PII).ended(0, "0.2.0", "platform = 'android'")
    twice = reg("rollout", "start", f"{PII}:0.2.0", *STABLE, "--percent", "9")
    assert twice.ended(5, f"0.2.0 is being rolled out to {PII}:stable", "reg rollout advance")
    halted = reg("rollout", "halt", PII, *STABLE, "--reason", "crashes")
    assert halted.ended(0, "acme/pii:stable is 0.1.0, for every device")
    reg("rollout", "start", f"{PII}:0.2.0", *STABLE, "--percent", "20")
    assert "its rollout to stable is over" in reg("yank", f"{PII}:0.2.0").err
    assert "rollout" not in reg("yank", f"{PII}:0.2.0", "--undo").err
    reg("rollout", "start", f"{PII}:0.2.0", *STABLE, "--percent", "20")
    assert reg("lock", f"{PII}:stable").ended(0, "0.1.0", "0.2.0 is being rolled out to 20 % of the devices")
    reg("rollout", "advance", PII, *STABLE, "--percent", "100")
    value = reg("resolve", f"{PII}:stable", "--json").json
    assert (value["version"], value["rollout"]["to"], value["rollout"]["in"]) == ("0.1.0", "0.2.0", False)
    value = reg("resolve", f"{PII}:stable", "--seed", "0" * 64, "--json").json
    assert (value["version"], value["rollout"]["in"]) == ("0.2.0", True)
    assert reg("resolve", f"{PII}:stable").ended(0, "0.2.0 is being rolled out to 100 % of the devices")
    assert reg("rollout", "finish", PII, *STABLE).ended(0, "acme/pii:stable is 0.2.0, for every device")
    assert reg("rollout", "status", PII).ended(0, "has no rollout") and "rollout" in reg("log", PII).out
    reg("push", PII, "./there")
    done = reg("rollout", "start", f"{PII}:0.2.0", *STABLE, "--percent", "5", "--remote", "./there")
    assert done.ended(3, f"reg tag {PII}:VERSION stable makes it")


# Pipelines: graphs that work together under names

IMAGES = "float[n,3,h,w] x"
GRAPHS = {
    "det.onnx": f"g ({IMAGES}) => (float[n,3,h,w] y) {{ y = Sigmoid(x) }}",
    "det-fixed.onnx": "g (float[1,3,64,64] x) => (float[1,3,64,64] y) { y = Sigmoid(x) }",
    "det-half.onnx": "g (float16[n,3,h,w] x) => (float16[n,3,h,w] y) { y = Sigmoid(x) }",
    "rec.onnx": f"g ({IMAGES}) => (float[n,h,w] y) {{ y = ReduceMean<axes=[1],keepdims=0>(x) }}",
    "cls.onnx": f"g ({IMAGES}) => (float[n,3] y) {{ y = ReduceMean<axes=[2,3],keepdims=0>(x) }}",
    "decoder.onnx": "g (int64[n,s] ids) => (int64[n,s] next) { next = Identity(ids) }",
    "integers.onnx": "g (int64[n,3,h,w] x) => (int64[n,3,h,w] y) { y = Identity(x) }",
}
OCR, OCR_NAME = "acme/ocr", ("--name", "acme/ocr")
DETECTOR, RECOGNIZER = ("--member", "detector=det.onnx"), ("--member", "recognizer=rec.onnx")


def save_graph(path: str, text: str, opset: int = 17) -> None:
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}'), path)


@pytest.fixture
def graphs(tmp_path: Path, reader_in_process: None) -> None:
    for name, text in GRAPHS.items():
        save_graph(name, text)


@pytest.fixture
def ocr(reg: Reg, graphs: None) -> None:
    """A detector in two variants, a recognizer and a classifier."""
    words = (*DETECTOR, "--member", "detector=det-fixed.onnx", *RECOGNIZER, "--member", "classifier=cls.onnx")
    assert reg("add", *words, *OCR_NAME).status == 0


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("det.onnx", "det-fixed.onnx"), 0, ""),
        (("det.onnx", "det-half.onnx"), 0, ""),
        *(
            (("det.onnx", f"{other}.onnx"), 2, f"{other}.onnx")
            for other in ("rec", "cls", "decoder", "integers")
        ),
        (("det.onnx", "rec.onnx"), 2, "--member NAME=FILE"),
        (("det.onnx", *RECOGNIZER), 2, "det.onnx has no name"),
        ((*DETECTOR, "--member", "detector=rec.onnx"), 2, "det.onnx and rec.onnx are not alternatives"),
        (("--member", "det.onnx"), 2, "write --member NAME=FILE, not 'det.onnx'"),
        (("--member", "a b=det.onnx"), 2, "'a b' cannot be the name of a member"),
        ((*DETECTOR, "--member", "other=det.onnx"), 2, "det.onnx is detector and other"),
        ((), 2, "no file is named"),
    ],
)
def test_alternatives_take_and_give_the_same_tensors_and_members_have_names(
    reg, graphs, words, status, message
):
    assert reg("add", *words, *OCR_NAME).ended(status, message)


def test_each_stage_has_an_answer(reg, ocr, tmp_path):
    done = reg("resolve", OCR, "--json")
    assert (done.status, {each["code"] for each in done.json["rejected"]}) == (3, {"member"})
    said = reg("resolve", OCR).err
    assert "det.onnx is one stage of several: detector; " in said
    assert said.endswith("; name one, such as --member classifier or detector or recognizer\n")
    files = {"detector": "det-fixed.onnx", "recognizer": "rec.onnx", "classifier": "cls.onnx"}
    for name, path in files.items():
        artifact = reg("resolve", OCR, "--member", name, "--json").json["artifact"]
        assert (artifact["path"], artifact["member"]) == (path, name)
    assert reg("resolve", OCR, "--member", "vocoder").status == 3
    assert reg("show", OCR).ended(0, "detector, recognizer, classifier")
    covered = ("coverage", OCR, "--devices", "ort-android-1.23", "--json")
    rows = {each["member"]: each["artifact"]["path"] for each in reg(*covered).json["devices"]}
    assert rows == files
    (one,) = reg(*covered, "--member", "recognizer").json["devices"]
    assert one["artifact"]["path"] == "rec.onnx"
    assert reg(*covered, "--max-size", "123").status == 8
    assert reg("lock", OCR, "--member", "recognizer").status == reg("lock", "--check").status == 0
    assert locked()[0]["asked"]["member"] == "recognizer"
    assert reg("push", OCR, "./remote").status == 0
    assert reg("--registry", "away", "pull", OCR, "./remote", "--member", "recognizer").status == 0
    assert reg("--registry", "away", "resolve", OCR, "--member", "recognizer").status == 0
    rejected = reg("--registry", "away", "resolve", OCR, "--member", "detector", "--json").json["rejected"]
    assert {each["code"] for each in rejected if each["artifact"].startswith("det")} == {"not-held"}
    assert reg("add", *DETECTOR, *RECOGNIZER, *OCR_NAME).status == 0
    found = reg("diff", f"{OCR}:0.1.0", f"{OCR}:0.1.1", "--json").json
    gone = {change["kind"] for change in found["changes"] if change["severity"] == "breaking"}
    assert {"artifact-removed", "member-removed"} <= gone


def test_a_gate_wants_every_stage_on_each_device(reg, ocr):
    device = "ort-android-1.17"
    Path("policy.toml").write_text(f'[[rule]]\nchannel = "stable"\ndevices = ["{device}"]\n')
    assert reg("policy", "set", "policy.toml", "--yes").status == 0
    assert reg("promote", f"{OCR}:0.1.0", "stable", "--dry-run").status == 0
    save_graph("new.onnx", "g (float[n] x) => (float[n] y) { y = Sigmoid(x) }", 22)
    assert reg("add", *DETECTOR, "--member", "recognizer=new.onnx", *OCR_NAME).status == 0
    refused = reg("promote", f"{OCR}:0.1.1", "stable", "--dry-run")
    assert refused.ended(8, f"{device} gets nothing of recognizer")


@pytest.mark.parametrize("words", [("show",), ("resolve",), ("resolve", "--member", "detector")])
def test_stages_that_are_not_those_seen_before_are_refused(reg, ocr, tmp_path, words):
    """The log is as it was: the lie is in the state line alone."""
    assert reg("resolve", OCR, "--member", "detector").status == 0
    (index,) = tmp_path.rglob("index/acme/ocr.jsonl")

    def swap(state: Any) -> None:
        first, *_, last = state["summaries"]["0.1.0"]["artifacts"]
        first["member"], last["member"] = last["member"], first["member"]

    Tree(index.parents[2]).edit_state(OCR, swap)
    assert reg(words[0], OCR, *words[1:]).status == 4
