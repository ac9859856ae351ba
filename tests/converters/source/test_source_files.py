"""Files of sources: digests, paths of machines, licences, stand-ins for files, and the tools that read them."""

import hashlib
import json
import os
import re
import time
from pathlib import Path

import pytest
from support.tasks.checkpoints import task_of

from onnxreg.converters.evaluation.evaluators import TokenSpans
from onnxreg.converters.evaluation.suite import load
from onnxreg.converters.runtime.golden import read_arrays
from onnxreg.converters.source import source_files, toolchain
from onnxreg.converters.source.source_files import digest_file, scrub, scrub_file
from onnxreg.converters.source.toolchain import refuse_missing
from onnxreg.converters.tasks.checkpoint import described
from onnxreg.converters.tasks.task import TOKENS
from onnxreg.schema.core.errors import HostError, InputError, missing_extra
from onnxreg.schema.core.files import SETTLED_NANOSECONDS


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were read."""
    found: list[str] = []
    real = hashlib.file_digest

    def noted(file: object, algorithm: str) -> object:
        found.append(Path(getattr(file, "name", "")).name)
        return real(file, algorithm)  # type: ignore[arg-type]

    monkeypatch.setattr(source_files.hashlib, "file_digest", noted)
    return found


def settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written now was written long ago."""
    now = time.time_ns
    monkeypatch.setattr(source_files.time, "time_ns", lambda: now() + 10 * SETTLED_NANOSECONDS)


def written(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def test_an_unchanged_file_is_read_once_but_a_fresh_one_again(tmp_path, read, monkeypatch):
    known = written(tmp_path / "fresh", b"one")
    assert [str(digest_file(tmp_path / "fresh")) for _ in range(2)] == [known] * 2
    settle(monkeypatch)
    assert written(tmp_path / "weights", b"one") == known
    assert [str(digest_file(tmp_path / "weights")) for _ in range(3)] == [known] * 3
    assert read == ["fresh", "fresh", "weights"]


@pytest.mark.parametrize("how", ["written over", "replaced"])
def test_a_change_is_seen_though_size_and_time_are_put_back(tmp_path, monkeypatch, how):
    settle(monkeypatch)
    path = tmp_path / "weights"
    before, times = written(path, b"one"), path.stat()
    assert str(digest_file(path)) == before
    time.sleep(0.05)  # the clock of a file system ticks a hundred times a second or oftener
    after = written(path if how == "written over" else tmp_path / "new", b"two")
    if how == "replaced":
        (tmp_path / "new").replace(path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_mtime_ns == times.st_mtime_ns
    assert str(digest_file(path)) == after


PATHS = (
    "/home/jane/model", "/tmp/x/", "/Users/jane doe/my model", "~/models/a", "~jane/models/a", "C:\\Users\\jane", "d:/models/a",
    "\\\\server\\share\\model", "file:///home/jane/model",
)  # fmt: skip
OTHERS = (
    "", "/", "//", "/x", "acme/pii", "a/b/c", "</s>", "https://hub.example/acme/pii", "B-DATE/TIME", "~", "C:", "model.onnx",
)  # fmt: skip


@pytest.mark.parametrize("text", [*PATHS, *OTHERS])
def test_paths(text):
    assert (scrub({"base_model": text}, "acme/name")[0] == {"base_model": "acme/name"}) is (text in PATHS)


def test_identity_becomes_the_name_and_others_keep_their_last_part_and_no_key_is_lost():
    nested = [{"tokenizer_file": "C:\\work\\tokenizer.json"}, 3, None]
    value = {"_name_or_path": "/home/jane/model", "nested": nested, "kept": "acme/pii"}
    value["paths"] = {"/home/jane/a": 1, "/home/joe/a": "/home/joe/b", "a": 2}
    result, changed = scrub(value, "acme/pii")
    assert result == {
        "_name_or_path": "acme/pii",
        "nested": [{"tokenizer_file": "tokenizer.json"}, 3, None],
        "kept": "acme/pii",
        "paths": {"a_": 1, "a__": "b", "a": 2},
    }
    assert changed == ["_name_or_path", "nested.0.tokenizer_file", "paths.a_", "paths.a__"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("trained in /home/jane/run7 on 2 gpus", "trained in run7 on 2 gpus"),
        ("--data=/tmp/x/train.json,/Users/jane/dev.json", "--data=train.json,dev.json"),
        ("see file:///root/a/b.txt.", "see b.txt."),
        ("in 'C:\\Users\\jane\\run7' and d:/Users/jane/b", "in 'run7' and b"),
        ("PATH=/usr/bin:/home/jane/bin", "PATH=/usr/bin:bin"),
        ("the home of /home/jane, or C:\\Users\\jane", "the home of ~, or ~"),
        ("two lines:\n/home/jane/a\n", "two lines:\na\n"),
        ("/home/jane", "~"),
        ("at /work/site/models/a", "at a"),
        ("in /work/site", "in site"),
        ("in /work/sites", "in /work/sites"),
    ],
)
def test_paths_in_running_text(text, expected):
    changed = ["note"] * (text != expected)
    assert scrub({"note": text}, "acme/a", Path("/work/site")) == ({"note": expected}, changed)


@pytest.mark.parametrize(
    "text",
    [
        "use </s> and /think or /no_think",
        "either/or, a/b/c, ../tmp/x and ~/models",
        "https://hub.example/home/jane/model and s3://tmp/home/x",
        "{% if a %}/{% endif %}",
        "(?i:\\p{L}+)|C:\\s",
        "/home",
    ],
)
def test_running_text_without_paths(text):
    assert scrub([text], "acme/a") == ([text], [])


def test_places_of_this_process(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/people/jane doe")
    monkeypatch.setattr("tempfile.tempdir", "/scratchy")
    monkeypatch.chdir(tmp_path)
    text = f"from /people/jane doe/a to /scratchy/b in {tmp_path}/c"
    assert scrub(text, "acme/a")[0] == "from a to b in c"


def test_tokens_and_labels_are_kept(tmp_path):
    path = "/home/jane/a"
    value = {"added_tokens_decoder": {"3": {"content": path}}, "label2id": {path: 0}, "id2label": {"0": path}}
    assert scrub(value, "acme/a") == (value, [])
    for name in ("tokenizer.json", "vocab.json", "id2label.json", "added_tokens.json"):
        (tmp_path / name).write_text(json.dumps({"0": "/usr/bin/python"}))
        assert scrub_file(tmp_path / name, "a") is None


def test_a_file_without_paths_is_left_and_text_survives_whatever_it_holds(tmp_path):
    path = tmp_path / "tokenizer_config.json"
    path.write_text('{"a":   1}')
    assert scrub_file(path, "a") is None
    value = {"a": "\ud83d \u00e9", "b": 10**30, "c": 1e-12}
    path.write_text(json.dumps(value | {"name_or_path": "/home/jane/model"}))
    scrubbed = scrub_file(path, "acme/a")
    assert scrubbed is not None
    assert json.loads(scrubbed[0]) == value | {"name_or_path": "acme/a"}
    assert scrubbed[1] == ["name_or_path"]


@pytest.mark.parametrize(
    ("card", "stated"),
    [
        ("---\nlicense: apache-2.0\nlanguage: en\n---\n# A model\n", "apache-2.0"),
        ("---\r\nlicense: mit\r\n---\r\n", "mit"),
        ("# A model\n\n---\nlicense: mit\n---\n", None),
        ("---\nlanguage: en\n---\n", None),
        ("---\nlicense: [a, b]\n---\n", None),
        ("---\nlicense: {a\n---\n", None),
        ("---\n!!python/object/apply:os.system ['false']\n---\n", None),
        ("---\nlicense: mit\nfast: !!bool foo\n---\n", None),
        ("---\nlicense: mit\ntime: !!timestamp foo\n---\n", None),
        ("", None),
    ],
)
def test_the_licence_of_a_model_card(tmp_path, card, stated):
    assert described("x", tmp_path, None) == {"task": "x"}
    (tmp_path / "README.md").write_bytes(card.encode())
    assert described("x", tmp_path, None).get("license") == stated


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 400000\n"
PAGE = b"<!doctype html><html><title>Sign in</title></html>"

stand_ins = pytest.mark.parametrize("data", [POINTER, PAGE], ids=["pointer", "page"])


@stand_ins
@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
)
def test_stand_ins_for_files_of_a_checkpoint(make_checkpoint, name, data):
    checkpoint = make_checkpoint()
    (checkpoint / name).write_bytes(data)
    with pytest.raises(InputError, match=f"{re.escape(name)} is a (Git LFS pointer|web page)"):
        task_of(TOKENS).find(str(checkpoint))


@stand_ins
@pytest.mark.parametrize(
    ("name", "read"), [("suite.jsonl", lambda path: load(TokenSpans, path)), ("rows.npz", read_arrays)]
)
def test_stand_ins_for_a_suite_and_calibration_data(tmp_path, name, read, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=f"{re.escape(name)} is a (Git LFS pointer|web page)"):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("fpu sse2 avx avx2 avx512f avx512_vnni", "x86_64+avx512_vnni"),
        ("fpu sse2 avx avx2 avx_vnni", "x86_64+avx_vnni"),
        ("fpu sse2 avx avx2", "x86_64+avx2"),
        ("fpu sse2", "x86_64"),
    ],
)
def test_instruction_set(tmp_path, monkeypatch, flags, expected):
    monkeypatch.setattr("platform.machine", lambda: "AMD64")
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: {flags}\n")
    assert toolchain.instruction_set(cpuinfo) == expected
    assert toolchain.instruction_set(tmp_path / "absent") == "x86_64"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ModuleNotFoundError("No module", name="onnx_ir.passes"), ("x needs onnx_ir, which is not installed", missing_extra("", "export", "").hint)),
        (ModuleNotFoundError("No module named 'einops'", name="einops"), ("x needs a package: No module named 'einops'", "install the package that it names")),
        (ImportError("T requires the SentencePiece library"), ("x needs a package: T requires the SentencePiece library", "install the package that it names")),
    ],
)  # fmt: skip
def test_a_missing_package_is_named_however_deep_it_is(error, told):
    toolchain.require("json", "onnx")
    with pytest.raises(HostError, match="needs no_such_tool, which is not installed") as caught:
        toolchain.require("json", "no_such_tool")
    assert "[export]" in caught.value.hint
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = error
    with pytest.raises(HostError) as caught:
        refuse_missing(wrapped, "x")
    assert (caught.value.message, caught.value.hint) == told
    for other in (ValueError("no"), ImportError("cannot import name", name="torch")):
        refuse_missing(other, "x")


def test_a_link_to_itself_is_a_file_that_is_missing(tmp_path):
    (tmp_path / "model.safetensors").symlink_to("model.safetensors")
    source_files.check_inside(tmp_path, tmp_path / "model.safetensors")
