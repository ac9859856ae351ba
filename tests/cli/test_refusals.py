"""Requests that are refused: the exit status of their family, a message that helps, no traceback, nothing written."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command_line import table
from support.sampling import sampled

from onnxreg.cli import app
from onnxreg.cli.output import EXIT_STATUS
from onnxreg.registry import Registry
from onnxreg.registry.store.protocol import blob_path
from onnxreg.registry.system import state_directory
from onnxreg.schema.core import errors
from onnxreg.schema.core.canonical import Digest

REFUSED = """
2 | frob | see `reg --help`
2 | exprot | did you mean export?
2 | artifacts | see `reg --help`
2 | search pii | did you mean query or ls?
2 | quantize pii | did you mean export --quantize?
2 | rollback acme/pii | did you mean tag?
2 | trust list | did you mean show?
2 | key lst | did you mean list?
2 | key create | did you mean new?
2 | policy | reg policy show|set; see `reg policy --help`
2 | certify acme/pii | certificates
2 | publish acme/pii | push
2 | devices acme/pii | builtin devices
2 | unyank acme/pii:0.1.0 | yank --undo
2 | --frob ls | see `reg
2 | ls --quux | see `reg
2 | ls a b | see `reg
2 | ls --quiet | --quiet goes before the verb: reg --quiet ...
2 | ls --registry=x | --registry goes before the verb: reg --registry ...
2 | export --profle android | did you mean --profile?
2 | export model --int8 | did you mean --quantize?
2 | remote add origin | see `reg remote
2 | resolve | see `reg resolve --help`
2 | diff acme/pii:0.1.0 | write reg diff OLD NEW; see `reg diff --help`
2 | show acme/pii ./share | --remote ./share
2 | pull acme/pii origin ./dir | --output ./dir
2 | serve ./home | reg --registry ./home serve
2 | run acme/pii "two words" | --text 'two words'
2 | verify ./home | --registry
3 | diff acme/pii:0.1.0 0.2.0 | a version follows its model: NAME:0.2.0
2 | tag tiny 0.1.0 beta | write reg tag tiny:0.1.0 beta
2 | --quiet tag tiny | write reg tag REF CHANNEL; see `reg tag --help`
2 | tag tiny 1.0.0 | 1.0.0 is a version, not a channel
2 | tag stable tiny:0.1.0 | write reg tag tiny:0.1.0 stable
3 | ls backup | write reg ls --remote backup
3 | ls home | write reg ls --remote home
2 | untag stable | NAME:CHANNEL
3 | push backup | write reg push REF backup
3 | pull backup acme/pii | write reg pull acme/pii backup
2 | pull ./share acme/pii | write reg pull acme/pii ./share
3 | pull acme/pii 0.1.0 | write reg pull acme/pii:0.1.0
2 | log acme/pii backup | write --remote backup
2 | resolve acme/pii ort-android-1.23 | write reg resolve acme/pii --device ort-android-1.23
2 | resolve acme/pii stable | write reg resolve acme/pii:stable
2 | untag acme/pii beta | write reg untag acme/pii:beta
3 | resolve tiny --precision int4 | wanted int4
2 | resolve tiny --seed 00 | not 64 lower-case hex digits
2 | pull https://u:secret@localhost:1/x acme/pii | expected sha256
2 | push acme/pii /LONG | too long
2 | show LONG | not a model name
2 | untag acme/pii:1.0.0 | 1.0.0 is a version, not a channel
2 | yank acme/pii:0.1.0 --reason " " | --reason
2 | yank acme/pii:0.1.0 "it leaks" | write reg yank ... --reason 'it leaks'
2 | pull --format | hint: see `reg pull --help`
2 | --registry | hint: see `reg --help`
2 | resolve acme/pii --context-tokens 4k | '4k' must be an integer
2 | resolve acme/pii --context-tokens -1 | --context-tokens
2 | ls UPPER | UPPER
2 | push tiny acme/pii | acme/pii is a model here, not a remote
2 | log acme/pii:0.2.0 | a name is NAME or ORG/NAME in lower case, such as acme/pii-small, without a version
3 | --registry none ls | none
3 | --registry none serve | there is no registry
3 | --registry none site public | there is no registry
3 | ls nobody | nobody
3 | ls nobody --certified | nobody
2 | ls "Not a name" --certified | Not a name
3 | show acme/pii:9 | a version has three numbers; its newest are 0.2.0, 0.1.0
3 | show acme/pii:beta | its channels: stable
3 | show tiny:latest | `reg tag` makes one; without a tag the newest is meant: tiny
3 | show tiny:9.0.0 | its only version is 0.1.0
3 | diff acme/pii nobody | nobody
3 | log nobody | nobody
3 | verify nobody | nobody
3 | du nobody | nobody
2 | verify --from HOME | --repair
2 | builtin schemas manifest-v9 | manifest-v9
2 | builtin schemas recipie | did you mean recipe
2 | builtin profiles Andriod | did you mean android?
2 | builtin passes OnnxConversoin | did you mean OnnxConversion
3 | remote remove origin | origin
2 | push | what to push is missing
2 | push acme/pii | remote
2 | push acme/pii ./a --remote ./b | two remotes are named
2 | push --all s3://bucket | write reg push --all --remote s3://bucket
2 | push acme/pii:0.1.0 --all --remote ./a | not a model's name or a glob
2 | push acme/pii ./a --tag 1.0.0 | is a version, not a channel
2 | push acme/pii gopher://host/x | gopher
2 | push tiny file | file is a file, and no archive
3 | push acme/pii nowhere | nowhere
3 | push acme/pii ./a --tag beta | has no channel beta
3 | push "acm?/*" --remote ./a --tag beta | acme/pii has no channel beta
3 | push "acme/pi[xy]" --remote ./a | did you mean acme/pii
5 | push acme/pii HOME | itself
9 | push tiny file/below | file
9 | push tiny /proc/nowhere | /proc/nowhere
2 | pull | a REF is missing
2 | pull acme/pii here --remote there | leave --remote away
2 | pull --locked m.lock r --format onnx | a lock says which artifacts
2 | pull --locked --member backbone | a lock says which artifacts
3 | pull --locked | onnxreg.lock
3 | pull acme/pii ./absent | check the path
3 | lock | onnxreg.lock
3 | lock --check | onnxreg.lock
3 | lock nobody | there is no model nobody
3 | lock acme/pii --format webgpu | no artifact of acme/pii answers
2 | lock --format onnx | none is named
2 | lock tiny --update tiny | contradict
2 | lock tiny tiny:0.1.0 | tiny is named twice
3 | resolve acme/pii --precision int4 | model.onnx is float32, wanted int4
3 | resolve acme/pii --precision float32 --certified | model.onnx is the reference
3 | resolve acme/pii --format int8 | did you mean --precision int8?
3 | resolve acme/pii --precision half | did you mean --precision float16?
3 | resolve acme/pii --device ./android | there is no device file ./android
2 | resolve acme/pii --device ort-andriod-1.23 | there is no device preset
2 | resolve acme/pii --device andriod | did you mean ort-android-
2 | resolve acme/pii --max-size "30 MB" | not a size
2 | resolve acme/pii --min-recall PHONE | not a least recall
2 | resolve acme/pii --min-recall PHONE=1.5 | not a least recall
2 | resolve acme/pii --min-recall =0.5 | not a least recall
2 | resolve acme/pii --where "opset >=" | it ends here
2 | resolve acme/pii --compatible-with sha256:12 | not a digest
3 | resolve acme/pii --compatible-with acme/pii:9.0.0 | 9.0.0
3 | coverage acme/nobody --devices ort-web-1.23 | nobody
3 | coverage acme/pii:9.9.9 --devices ort-web-1.23 | 9.9.9
2 | coverage acme/pii --devices ort-web-9 | ort-web-9
2 | coverage acme/pii | write reg coverage ... --devices
2 | coverage acme/pii --devices nobody.json | no device is described
2 | query "" tiny | expression
2 | query --limit 0 | --limit
2 | query --export all.xlsx | a table is called *.parquet, *.jsonl, *.csv
2 | query --export home/index/tiny.jsonl | is inside a registry
2 | query --export nowhere/all.csv | there is no directory nowhere
3 | certificates acme/pii:0.1.0 | has no certificates
3 | sbom acme/pii:9.0.0 | 9.0.0
2 | sbom acme/pii --timestamp yesterday | 2026-01-31T12:00:00Z
3 | dossier acme/pii:9.9.9 --output new | 9.9.9
2 | dossier acme/pii --profile eu-anex-iv --output new | eu-anex-iv
3 | delta make acme/none | acme/none
3 | delta ls acme/none | acme/none
3 | delta make acme/pii --from 9.9.9 | no files of 9.9.9
2 | delta make acme/pii --from x | x
3 | history acme/none | acme/none
2 | rollout start acme/pii:0.2.0 --channel stable --percent 0 | not a percentage
2 | rollout start acme/pii:0.2.0 --channel stable | --percent
3 | rollout start acme/pii:9.0.0 --channel stable --percent 5 | 9.0.0
5 | rollout start acme/pii:0.1.0 --channel stable --percent 5 | 0.1.0
3 | rollout start acme/pii:0.2.0 --channel prod --percent 5 | reg tag acme/pii:VERSION prod makes it
3 | rollout start tiny:0.1.0 --channel prod --percent 5 | it has none yet; reg tag tiny:VERSION prod makes it
3 | rollout halt acme/pii --channel stable | stable
3 | rollout finish acme/none --channel stable | acme/none
2 | promote acme/pii:0.1.0 stable | no policy governs acme/pii:stable
3 | sign acme/pii:0.1.0 --key "-----BEGIN PRIVATE KEY" | that is not the name of a key
3 | promote acme/pii:9.9.9 stable | acme/pii has no version 9.9.9
2 | policy set bad.toml | did you mean max_recall_loss?
2 | policy set idle.toml | faithful
2 | attest tiny --report bad.toml | give a certificate
2 | archive create x.onnxreg | there is nothing to archive
3 | archive create x.onnxreg acme/pii:9.0.0 | 9.0.0
2 | archive create file tiny | file
2 | archive create home/x.onnxreg tiny | is inside a registry
4 | archive verify PK.onnxreg | PK.onnxreg
4 | ls --remote ./PK.onnxreg | PK.onnxreg
4 | push tiny PK.onnxreg | PK.onnxreg
2 | archive package acme/pii | reg archive package REF DIRECTORY
3 | archive package acme/nobody out | acme/nobody
3 | archive package acme/pii out --format webgpu | has no webgpu
3 | archive package acme/pii out --precision int4 | of precision int4
2 | archive package acme/pii home | is inside the registry
2 | archive package acme/pii . | is the working directory
2 | archive package acme/pii file | file is a file
2 | archive package acme/pii file/deeper/still | file/deeper/still is a file, or below one
2 | archive package acme/pii mine | mine holds x, which no earlier package wrote
3 | run tiny --input x=1,2 | --input takes a .npz or .json file, such as {"x": [[1, 2, 3, 4]]}
2 | run tiny | one of --self-test, --text, --audio, --image and --input
2 | run tiny --self-test --text x | one of --self-test, --text, --audio, --image and --input
2 | run tiny --text x | tiny has no tokenizer.json
2 | add model.onnx | write reg add ... --name
2 | add file --name x | file
2 | add a.onnx --name x | a.onnx is a directory
2 | add UP.ONNX --name x | the suffix of UP.ONNX is not in lower case
2 | add x.onnx --name x --version v1.0.0 | versions are SemVer 2.0, such as 1.4.0 or 2.0.0-rc.1
2 | add x.onnx --name x --license "" | write an SPDX expression such as 'MIT OR Apache-2.0'
2 | add x.onnx --name x --task "Text Clasification" | did you mean text-classification?
2 | add x.onnx --name x --task zzz | leave --task out
2 | import mine --name x | reg export
3 | import m.onnx --name x | `reg add` takes files
2 | import hf://acme --name x | not a repository on the Hub
2 | export . | the checkpoint has no config.json
2 | export . --opset many | 'many' must be an integer
2 | export x --task poling --name a | did you mean pooling?
2 | export x --task zzz --name a | one of: feature-extraction, pooling
2 | export x --profile andriod --name a | did you mean android?
2 | export x --profile android --version 1.0 | 1.0
2 | export x --profile android --output mine | mine holds x
2 | export x --profile android --output file | file
2 | export x --profile android --output file/below | file
9 | export x --profile android --output /proc/out | /proc/out
2 | export x --profile android --jobs 2 | --jobs goes with --batch
2 | export x --profile android --scheduler tcp://h:1 | --scheduler goes with --batch
2 | export --recipe r.yaml --name x | there is nothing to export
3 | export m.onnx --recipe r.yaml --name x --push nowhere | there is no remote nowhere
2 | serve --port 70000 | --port
2 | serve --host "not a host" | is not an address here
2 | serve --host 0.0.0.0 | other machines reach 0.0.0.0
9 | serve --host 192.0.2.1 --behind-proxy | cannot listen at 192.0.2.1
2 | serve --token-file empty | holds no token
2 | serve --token-file two | holds no token
2 | serve --url models.example | not a URL
2 | serve --drain -1 | --drain
"""
FILES = {
    "file": "a file",
    "mine/x": "mine",
    "empty": "\n",
    "two": "two words\n",
    "nobody.json": "[]",
    "bad.toml": '[[rule]]\nchannel = "stable"\nmax_recal_loss = 1\n',
    "idle.toml": '[[rule]]\nchannel = "stable"\nfaithful = false\n',
    "PK.onnxreg": "PK",
    "UP.ONNX": "",
    "a.onnx/x": "",
    "m.onnx": "",
    "r.yaml": "task: onnx\nsteps: [{name: int8, pass: OnnxDynamicQuantization}]\n",
}
"""Files of the working directory."""


@pytest.fixture
def place(here: Registry, tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in ("backup", "share", "tiny"):
        here.remotes.add(name, f"./{name}")
    return tmp_path


def contents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and path.suffix != ".lock"}


@pytest.mark.parametrize(("status", "words", "fragment"), table(REFUSED))
def test_a_request_is_refused(status, words, fragment, reg, place, reader_in_process):
    before = contents(place / "home" / "index"), sorted(place.iterdir())
    meant = {"HOME": str(place / "home"), "LONG": "a" * 300, "/LONG": f"/{'a' * 300}"}
    done = reg(*(meant.get(word, word) for word in words))
    assert done.ended(status, fragment)
    assert done.err.startswith("error: ") and done.out == ""
    assert (contents(place / "home" / "index"), sorted(place.iterdir())) == before


MISSING = """
3 | add no.onnx --name acme/x | no.onnx
3 | import no --name acme/x | no
3 | export x --name acme/x --recipe no.yaml | no.yaml
3 | export --batch no.yaml | there is no job file
3 | export hf/x --profile android --eval-suite no.jsonl | no.jsonl
3 | export no.onnx --recipe r.yaml --name x | no.onnx
3 | coverage acme/pii --devices no.json | no.json
3 | resolve acme/pii --device ./no.json | there is no device file ./no.json
3 | lock acme/pii --device no.json | no.json
3 | run acme/pii --input no.json | there is no file no.json
3 | attest acme/pii --report no.json | no.json
3 | policy set no.toml | there is no file no.toml
3 | archive verify no.onnxreg | no.onnxreg
3 | archive verify made.onnxreg --trust no.toml | no.toml
3 | serve --token-file no | there is no file no
3 | serve --try no | no has no try.js
3 | site public --try no | no has no try.js
2 | site public --url ftp://models.example | not a URL
2 | site public --url https://me:secret@models.example | credentials
3 | pull --locked no.lock ./there | no.lock
"""
FOLDERS = """
2 | export --recipe mine | error: mine is a directory
2 | export --batch mine | error: mine is a directory
2 | run tiny --input mine | error: mine is a directory
2 | lock tiny --output mine | error: mine is a directory
2 | policy set mine | error: mine is a directory
2 | attest tiny --report mine | error: mine is a directory
2 | archive verify mine | error: mine is a directory
"""


@pytest.mark.parametrize(("status", "words", "fragment"), [*table(MISSING), *table(FOLDERS)])
def test_a_file_that_is_not_there_or_none(status, words, fragment, reg, place, reader_in_process):
    if "made.onnxreg" in words:
        assert reg("archive", "create", "made.onnxreg", "--all").status == 0
    assert reg(*words).ended(status, fragment)


GONE_WRONG = """
3 | acme/pip HOME | did you mean acme/pii?
3 | nobody HOME | it holds acme/pii, tiny
3 | acme/pii:9.9.9 HOME | its newest are 0.2.0, 0.1.0
3 | acme/pii:beta HOME | its channels: stable
3 | acme/pii:stabel HOME | did you mean stable?
3 | acme/pii HOME --tag beta | its channels: stable
3 | acme/pii HOME --format ort | it has onnx-android (float32)
3 | acme/pii HOME --format onnx-int8 --precision float16 | has no onnx-int8 of precision float16
3 | acme/pii absent | the remotes of this registry: none; a directory is written ./absent
2 | acme/pii HOME --output mine | mine holds x
"""


@pytest.mark.parametrize(("status", "words", "fragment"), table(GONE_WRONG))
def test_a_pull_that_fails_tells_what_is_there_and_makes_nothing_here(status, words, fragment, reg, place):
    home = place / "home"
    done = reg("--registry", "new", "pull", *(home if word == "HOME" else word for word in words))
    assert done.ended(status, fragment)
    assert not Path("new").exists() and Path("mine/x").read_text() == "mine"
    assert reg("--registry", "new", "pull", "acme/pii", home, "--format", "onnx-int8").status == 0
    assert str(home) in (state_directory() / "remotes.json").read_text()


def families(kind: type[errors.RegError] = errors.RegError) -> Iterator[type[errors.RegError]]:
    for below in kind.__subclasses__():
        yield below
        yield from families(below)


GENERAL = [kind for kind in families() if kind.__module__ == errors.__name__]


def test_the_class_of_a_family_does_not_depend_on_the_classes_of_other_modules():
    class OtherError(errors.RegError, family="conversion"):
        pass

    assert errors.FAMILIES["conversion"] is errors.ConversionError


@pytest.mark.parametrize("kind", GENERAL, ids=lambda kind: kind.__name__)
def test_a_family_is_a_status_of_its_own_and_a_message_and_a_hint(kind, reg, monkeypatch):
    def fail(words: list[str]) -> None:
        raise kind("no \x1b[31mluck", "try again")

    assert {kind.family for kind in families()} - {errors.RegError.family} == EXIT_STATUS.keys()
    assert len(set(EXIT_STATUS.values())) == len(EXIT_STATUS)
    monkeypatch.setattr(app, "run_app", fail)
    done, as_json = reg("ls"), reg("ls", "--json")
    assert (done.status, done.out) == (as_json.status, as_json.out) == (EXIT_STATUS[kind.family], "")
    assert done.err == "error: no \\x1b[31mluck\nhint: try again\n"
    assert as_json.error == {"family": kind.family, "message": "no \x1b[31mluck", "hint": "try again"}


def test_ctrl_c_is_130_and_a_bug_keeps_its_traceback(reg, monkeypatch):
    def fail(words: list[str]) -> None:
        raise KeyboardInterrupt if "ls" in words else ZeroDivisionError

    monkeypatch.setattr(app, "run_app", fail)
    assert reg("ls").status == 130
    assert reg("ls", "--json").error["family"] == "interrupted"
    with pytest.raises(ZeroDivisionError):
        reg("show")


def test_damage_is_4_and_every_damage_is_listed(reg, home):
    files = reg("--registry", home, "resolve", "acme/pii", "--json").json["files"]
    short, flipped = (home / blob_path(Digest.parse(entry["digest"])) for entry in files[:2])
    for path, data in ((short, b"cut"), (flipped, b"[]")):
        path.chmod(0o644)
        path.write_bytes(data)
    done, report = reg("--registry", home, "verify"), reg("--registry", home, "verify", "--json")
    assert done.ended(4, "error: 2 damaged parts")
    assert sorted(line.split()[0] for line in done.out.splitlines()[1:3]) == ["damaged", "short"]
    assert (report.status, report.json["ok"], report.error["family"]) == (4, False, "integrity")
    assert {damage["digest"] for damage in report.json["damages"]} == {entry["digest"] for entry in files[:2]}
    assert reg("--registry", "new", "pull", "acme/pii:0.2.0", home, "--output", "out").status == 4
    assert not Path("out").exists()


def test_an_unwritable_directory_is_named(reg, home, monkeypatch, other_user):
    place = other_user(home)
    monkeypatch.chdir(place)
    tag, lock = ("--registry", place, "tag", "tiny"), ("--registry", place, "lock", "tiny", "--output")
    assert (reg(*tag, "beta").status, reg(*lock, "first.lock").status) == (0, 0)
    directories = [place, *(path for path in place.rglob("*") if path.is_dir())]
    for directory in directories:
        directory.chmod(0o555)
    own = os.geteuid()
    try:
        os.seteuid(65534) if own == 0 else None
        tagged, written = reg(*tag, "gamma"), reg(*lock, "second.lock")
    finally:
        os.seteuid(own)
        for directory in directories:
            directory.chmod(0o755)
    assert tagged.ended(9, f"error: writing to {place} failed: Permission denied\n")
    assert written.ended(9, "error: writing second.lock failed: Permission denied\n")


@pytest.mark.parametrize(
    ("words", "content", "status"),
    [
        (("pull", "acme/pii"), "a file", 2),
        (("pull", "acme/pii"), "something else", 2),
        (("pull", "acme/absent"), "nothing", 3),
        (("show", "acme/pii", "--remote"), "something else", 0),
    ],
)
def test_nothing_is_written_beside_other_things(reg, home, tmp_path, words, content, status):
    """Nor into an empty directory before there is something for it."""
    place = tmp_path / "project"
    if content == "a file":
        place.write_text("thesis")
    else:
        place.mkdir()
        if content == "something else":
            (place / "thesis.txt").write_text("thesis")
    before = sorted(tmp_path.rglob("*"))
    assert reg("--registry", place, *words, home).status == status
    assert sorted(tmp_path.rglob("*")) == before


def run(*words: str, **options: object) -> "subprocess.CompletedProcess[str]":
    """Run `reg` in a process of its own."""
    command = [*options.pop("prefix", ()), sys.executable, "-m", "onnxreg.cli", *words]  # type: ignore[misc]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(command, check=False, text=True, **{**pipes, **options})  # type: ignore[call-overload, no-any-return]


@pytest.mark.parametrize(
    "words", sampled([["ls"], ["ls", "--json"], ["builtin", "schemas"], ["--version"]], 2)
)
def test_a_reader_that_leaves_early_is_no_error(words, here):
    read, write = os.pipe()
    os.close(read)
    done = run(*words, stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    "words", ["add locked.onnx --name x", "export --recipe locked.onnx", "policy set locked.onnx"]
)
def test_a_file_that_nobody_may_read_is_a_fault_of_this_machine(words, place):
    """Root may read it, too, unless a capability is dropped."""
    Path("locked.onnx").touch(0)
    prefix = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
    done = run(*words.split(), prefix=prefix)
    assert done.returncode == 9 and "locked.onnx" in done.stderr


def test_errors_of_a_process(here):
    """A family as JSON, a full disk behind the output, and a bug."""
    done = run("--registry", "absent", "show", "a", "--json")
    assert (done.returncode, json.loads(done.stderr)["error"]["family"]) == (3, "not-found")
    with Path("/dev/full").open("wb") as full:
        done = run("ls", stdout=full)
    assert done.returncode == 9 and "output" in done.stderr
    code = "import sys; from onnxreg.cli import main; from onnxreg.cli.options import Session; Session.reader = lambda *a, **k: 1 / 0; sys.exit(main.main(['ls']))"
    bug = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert bug.returncode == 1 and "ZeroDivisionError" in bug.stderr


def test_byte_order_marks_are_skipped(reg, fleet):
    Path("device.json").write_bytes(b'\xef\xbb\xbf{"ort": "1.23"}')
    Path("policy.toml").write_bytes(b'\xef\xbb\xbf[[rule]]\nchannel = "stable"\nlicenses = ["MIT"]\n')
    assert reg("resolve", "acme/fleet", "--device", "device.json").status == 0
    assert reg("policy", "set", "policy.toml").status == 5


def test_a_missing_library_names_its_extra(reg, monkeypatch):
    def lacks(module: str) -> None:
        def plan(*_: object) -> None:
            raise ModuleNotFoundError(name=module)

        monkeypatch.setattr("onnxreg.converters.request.ExportRequest.plan", plan)

    words = ("--registry", "r", "export", "x", "--profile", "android")
    lacks("torch.nn")
    assert reg(*words).ended(9, "reg export needs torch, which is not installed", "[export]")
    lacks("onnxreg.converters.nothing")
    with pytest.raises(ModuleNotFoundError):
        reg(*words)
