"""`reg export --certify`: what the options refuse, and that nothing of suites and of this machine is published."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import in_process

from onnxreg.cli.batch import run_batch
from onnxreg.registry import Registry

Reg = Callable[..., Any]
Make = Callable[..., Path]
SECRETS = ("zebra", "secret-id", "secret-group", "secret-folder", "secret-checkpoint", "choose.jsonl")


@pytest.fixture(scope="module")
def encoder(make_checkpoint: Make, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint("bert", "").rename(tmp_path_factory.mktemp("secret-folder") / "secret-checkpoint")


@pytest.fixture
def suites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`choose.jsonl` and `confirm.jsonl` in the working directory."""
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for name, word in (("choose", "zebra"), ("confirm", "zebras")):
        rows = [
            {
                "text": f"w{10 + n % 40} w{10 + n // 40} {word}",
                "id": f"secret-id-{n}",
                "group": f"secret-group-{n}",
            }
            for n in range(220)
        ]
        Path(f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    Path("junk.npz").write_bytes(b"junk")


CHOOSE = ("--certify", "--eval-suite", "choose.jsonl")


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (("--certify",), 2, "hint: name a suite: --eval-suite FILE"),
        (("--confirm-suite", "confirm.jsonl"), 2, "hint: add --certify"),
        ((*CHOOSE, "--candidate", "fp17"), 2, "hint: did you mean fp16?"),
        ((*CHOOSE, "--candidate", "static-int8"), 2, "no candidate is called static-int8"),
        ((*CHOOSE, "--calibration", "none.npz"), 2, "no file exists at"),
        ((*CHOOSE, "--calibration", "junk.npz"), 2, "junk.npz is not an .npz file of plain arrays"),
        ((*CHOOSE, "--confirm-suite", "none.jsonl"), 3, "there is no evaluation suite none.jsonl"),
        ((*CHOOSE, "--confirm-suite", "choose.jsonl"), 2, "220 items are in both suites"),
        ((*CHOOSE, "--objective", "cheap"), 2, "'bytes' or 'latency'"),
        ((*CHOOSE, "--candidate", "fp16"), 2, "the suite has 110 independent items"),
    ],
)
@pytest.mark.usefixtures("suites")
def test_a_search_that_cannot_end_well_publishes_nothing(
    reg: Reg, encoder: Path, words: Sequence[str], status: int, message: str
) -> None:
    done = reg("export", encoder, "--task", "pooling", "--name", "acme/x", *words)
    assert (done.status, "Traceback" in done.err) == (status, False)
    assert message in done.err
    assert reg("ls").status in (0, 3) and "acme/x" not in reg("ls").out


@pytest.mark.more
@pytest.mark.usefixtures("suites")
def test_nothing_of_suites_and_of_this_machine_is_published(
    reg: Reg, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_batch, "_in_processes", in_process.run_lines)
    words = (*CHOOSE, "--confirm-suite", "confirm.jsonl", "--item-scores", "--objective", "latency")
    names = ("--candidate", "fp16", "--candidate", "int8")
    done = reg("export", encoder, "--task", "pooling", "--name", "acme/x", *words, *names)
    assert done.status == 0, done.err
    assert reg("certificates", "acme/x", "--recompute").status == 0
    found = reg("show", "acme/x", "--json").json["recipe"]["parameters"]["search"]["output"]
    assert (
        reg("resolve", "acme/x", "--device", "ort-android-1.22", "--json").json["artifact"]["path"] == found
    )
    job = {
        "certify": True,
        "eval_suite": "choose.jsonl",
        "confirm_suite": "confirm.jsonl",
        "candidate": ["fp16"],
    }
    row = {"source": str(encoder), "name": "acme/y", "task": "pooling", "options": job}
    Path("jobs.json").write_text(json.dumps([row]))
    assert reg("export", "--batch", "jobs.json").status == 0
    root = Registry(tmp_path / "home").store.root
    published = [
        path for path in root.rglob("*") if path.is_file() and "local" not in path.relative_to(root).parts
    ]
    contents = b"\n".join(path.read_bytes() for path in published)
    assert b"certificates/model_fp16.onnx.json" in contents
    assert not [secret for secret in (*SECRETS, str(tmp_path)) if secret.encode() in contents]
