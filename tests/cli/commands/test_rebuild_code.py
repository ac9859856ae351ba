"""Versions of strangers whose recipes name code, and documents that do: nothing of it runs unless a person names it.

Each attack would make the file `ran`; none may.
"""

import json
import platform
import py_compile
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import pytest
from support import in_process
from support.sampling import sampled

from onnxreg.cli import batch as runner
from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.source.source_files import digest_file
from onnxreg.converters.source.toolchain import distribution_of
from onnxreg.converters.tasks import code
from onnxreg.registry import Registry
from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Digest, directory_digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.recipe_file import RecipeFile
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

NAME = "stranger/net"
SHELL = "subprocess:getoutput"
STEP = {"name": "fp32", "pass": "OnnxConversion"}


@pytest.fixture(autouse=True)
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that code makes if it runs."""
    monkeypatch.setenv("REG_HOME", "home")
    return tmp_path / "ran"


@pytest.fixture
def evil(marker: Path) -> str:
    """A module that makes the marker as it is imported, and again as its function is called."""
    touch = f"open({str(marker)!r}, 'w').close()\n"
    return f"{touch}def build(**given):\n    {touch}    import torch\n    return torch.nn.ReLU()\n"


@pytest.fixture
def folder(tmp_path: Path, evil: str) -> Path:
    """Files that a version brought along, pulled into the working directory's `pulled`."""
    root = tmp_path / "pulled"
    (root / "kit" / "nets").mkdir(parents=True)
    for name in ("net.py", "kit/__init__.py", "kit/nets/__init__.py", "kit/nets/small.py"):
        (root / name).write_text(evil, "utf-8")
    (root / "best.pth").write_bytes(b"weights")
    return root


@dataclass(frozen=True)
class Attack:
    """A recipe with other `options` of its task, `files` of its folder, further keys, and another source."""

    words: str
    said: str = "--allow-code"
    status: int = 2
    options: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    source: Mapping[str, Any] = field(default_factory=dict)
    beside: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


def code_digest(folder: Path, factory: str) -> dict[str, Digest]:
    """The part of the source's digest that is over the code, as whoever publishes a version would reckon it."""
    module = factory.partition(":")[0]
    if module == "net":
        return {"code/net.py": digest_file(folder / "net.py")}
    if module.split(".")[0] == "kit":
        files = {path.relative_to(folder).as_posix(): path for path in (folder / "kit").rglob("*.py")}
        return {f"code/{name}": digest_file(path) for name, path in files.items()}
    distribution, version = distribution_of(module) or ("", "")
    record = {"name": factory, "distribution": distribution, "version": version}
    return {f"code/{factory}": Digest.of(canonical.encode(record))}


def publish(folder: Path, attack: Attack) -> None:
    """Publish what the attacker made into the user's registry, as a pull would."""
    root = Path("draft")
    root.mkdir()
    (root / "model.onnx").write_bytes(b"graph")
    for name, text in attack.files.items():
        (folder / name).write_text(text, "utf-8")
    checkpoint = digest_file(folder / "best.pth")
    options = {"input": [1, 8, 8], "factory": "net:build", "checkpoint": str(checkpoint), **attack.options}
    if options["factory"] == SHELL:
        options = {"arguments": {"cmd": "touch ran"}, **options}
    digests = {"checkpoint": checkpoint, **code_digest(folder, options["factory"])}
    about = {"profile": "recipe", "profile_version": 1}
    asked = {
        "recipe": 1,
        **about,
        "task": "image-classification",
        "options": options,
        "steps": [STEP],
        **attack.recipe,
    }
    recorded = {**about, "steps": [], "tools": {}, **attack.beside, "parameters": {"recipe": asked}}
    source = {"id": NAME, "digest": str(directory_digest(digests)), **attack.source}
    artifacts = (DraftArtifact("onnx", "float32", "model.onnx"),)
    Registry("home").add(Draft(NAME, root, artifacts, (), {"source": source, "recipe": recorded}))


HONEST = "from subprocess import getoutput\n\ndef build():\n    import torch\n    return torch.nn.ReLU()\n"
"""A file that nobody would object to."""
STAR = HONEST.replace("getoutput", "*")
REPLACED = "def shell(cmd):\n    pass\ntry:\n    from subprocess import getoutput as shell\nexcept ImportError:\n    pass\n"
TOUCH = {"arguments": {"cmd": "touch ran"}}
GET, KIT, SMALL = ({"factory": name, **TOUCH} for name in ("net:getoutput", "kit:getoutput", "net:shell"))
BY_SHELL, BY_KIT = {"factory": SHELL}, {"factory": "kit.nets.small:build"}
OPEN = "tarfile:bltn_open"
"""The `open` of builtins under another module's name."""
BY_OPEN = {"factory": OPEN, "arguments": {"file": "ran", "mode": "w"}}
PYTHON = {"distribution": "python", "version": platform.python_version()}
PULLED = "--source pulled"
NET = f"{PULLED} --allow-code pulled/net.py"
DATA = "--data options.checkpoint=pulled/best.pth"
NO_GET, NO_SHELL = (f"net.py does not define {name}" for name in ("getoutput", "shell"))
ZERO = f"sha256:{'0' * 64}"
ATTACKS: dict[str, Attack] = {
    "a companion is the factory": Attack(PULLED, "--allow-code net.py"),
    "a package is the factory": Attack(PULLED, "--allow-code kit/nets/small.py", options=BY_KIT),
    "a function of Python's own": Attack(PULLED, f"--allow-code {SHELL}", options=BY_SHELL),
    "the same, with the file named": Attack(f"{PULLED} {DATA}", f"--allow-code {SHELL}", options=BY_SHELL),
    "leave for transformers is none for a function": Attack(f"{PULLED} --trust-remote-code", options=BY_SHELL),
    "leave for another function": Attack(f"{PULLED} --allow-code subprocess:run", options=BY_SHELL),
    "leave for another file": Attack(f"{PULLED} --allow-code other.py"),
    "leave for a file of that name here": Attack(f"{PULLED} --allow-code net.py", "--allow-code pulled/net.py"),
    "the file is here and not in the source": Attack(f"--source empty {DATA} --allow-code net.py", "no Python module net", 3),
    "leave for a module is none for a file": Attack(f"{PULLED} --allow-code net:build"),
    "leave for an installed package is none for a folder": Attack(f"{PULLED} --allow-code kit.nets.small:build", options=BY_KIT),
    "what an allowed file imports": Attack(NET, NO_GET, options=GET, files={"net.py": HONEST}),
    "the same, by its name": Attack(f"{NET}:getoutput", NO_GET, options=GET, files={"net.py": HONEST}),
    "the same, and no leave": Attack(PULLED, NO_GET, options=GET, files={"net.py": HONEST}),
    "what all of an allowed file's imports bring": Attack(NET, NO_GET, options=GET, files={"net.py": STAR}),
    "another name of what an allowed file imports": Attack(NET, NO_SHELL, options=SMALL, files={"net.py": f"{HONEST}shell = getoutput\n"}),
    "a definition that an import replaces": Attack(f"{NET}:shell", NO_SHELL, options=SMALL, files={"net.py": REPLACED}),
    "what a package imports": Attack(f"{PULLED} --allow-code pulled/kit/__init__.py", "kit/__init__.py does not define getoutput", options=KIT, files={"kit/__init__.py": HONEST}),
    "what a package imports from a file that imports it": Attack(f"{PULLED} --allow-code pulled/kit/__init__.py --allow-code pulled/kit/nets/small.py", "kit/__init__.py does not define getoutput", options=KIT, files={"kit/__init__.py": "from .nets.small import getoutput\n", "kit/nets/small.py": HONEST}),
    "leave for the file that imports it from another": Attack(f"{PULLED} --allow-code kit/__init__.py --allow-code kit/__init__.py:build", "kit/__init__.py does not define build", options={"factory": "kit:build"}, files={"kit/__init__.py": "from kit.nets.small import build\n"}),
    "leave for another function of the file": Attack(f"{NET}:other", "--allow-code net.py:build"),
    "arguments that a person has not read": Attack(PULLED, 'called with {"cmd": "touch ran"}', options=TOUCH),
    "what an installed module has from another": Attack(f"{PULLED} --allow-code {OPEN}", "tarfile does not define bltn_open", options=BY_OPEN, beside={"code": {"name": OPEN, **PYTHON}}),
    "a file that no parser can read": Attack(NET, "cannot be parsed", files={"net.py": "-" * 200_000}),
    "the factory is a path": Attack(PULLED, "which is not module:function", 4, {"factory": "pulled/net.py:build"}),
    "the factory is a path upwards": Attack(PULLED, "not module:function", 4, {"factory": "../pulled/net:build"}),
    "the source is the pulled folder": Attack(DATA, "is a path here", source={"id": "pulled", "revision": "1"}),
    "the source is a factory": Attack(DATA, "cannot be a model on the hub", source={"id": "pulled/net.py", "revision": "x:build"}),
    "the source is an absolute path": Attack(DATA, "cannot be a model on the hub", source={"id": "/tmp", "revision": "x"}),
    "no source is named": Attack(DATA, "--source"),
    "the checkpoint is a path": Attack(PULLED, "names a file", 4, {"checkpoint": "pulled/best.pth"}),
    "a step's data are a path": Attack(PULLED, "names a file", 4, recipe={"steps": [{"name": "q", "pass": "OnnxStaticQuantization", "data": "/etc"}]}),
    "the recipe names its own source": Attack(DATA, "--source", recipe={"source": "pulled/net.py:build"}),
    "the options trust code": Attack(PULLED, "trust_remote_code", options={"trust_remote_code": True}),
    "the options give leave": Attack(PULLED, "allow_code", options={"allow_code": ["net.py"]}),
    "the options say whose leave": Attack(PULLED, "consent", options={"consent": ["net.py"]}),
    "other code than was recorded": Attack(NET, "was made by net:build of sha256:", beside={"code": {"name": "net:build", "digest": ZERO}}),
    "a file in place of an installed function": Attack(NET, "if you trust it", beside={"code": {"name": "net:build", "distribution": "net", "version": "1.0"}}),
    "another version of the distribution": Attack(f"{PULLED} --allow-code {SHELL}", f"{SHELL} of python 2.7, here it is {SHELL} of python 3.", options=BY_SHELL, beside={"code": {"name": SHELL, "distribution": "python", "version": "2.7"}}),
    "no version of the distribution": Attack(f"{PULLED} --allow-code {SHELL}", f"was made by nothing, here it is {SHELL}", options=BY_SHELL),
    "another digest of the source": Attack(NET, "the source differs", source={"digest": ZERO}),
    "another task's options": Attack(PULLED, "there is no such key", recipe={"task": "token-classification"}),
    "a pass of a stranger": Attack(NET, "no pass is called", recipe={"steps": [{"name": "a", "pass": "net:build"}]}),
    "a profile of a stranger": Attack(PULLED, "no profile is called", beside={"profile": "net:build"}),
}  # fmt: skip


@pytest.mark.parametrize("case", sampled(ATTACKS, 3))
def test_no_code_of_a_stranger_runs(reg, folder, marker, evil, case):
    attack = ATTACKS[case]
    if "here" in case:
        Path("net.py").write_text(evil, "utf-8")
    Path("empty").mkdir()
    Path("pulled@1").mkdir()
    publish(folder, attack)
    assert reg("rebuild", NAME, *attack.words.split()).ended(attack.status, attack.said)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("attack", "leave", "said"),
    [
        (Attack(PULLED), "net.py", "best.pth is not a checkpoint of tensors alone"),
        (Attack(PULLED, options=BY_SHELL, beside={"code": {"name": SHELL, **PYTHON}}), SHELL, "gives a str"),
    ],
)
def test_allowed_code_runs(reg, folder, marker, attack, leave, said):
    """The attacks would work if it were not for the name: with it the code runs, and what it gives is refused then."""
    publish(folder, attack)
    for words, ran in (([], False), (["--allow-code", leave], True), ([], False)):
        done = reg("rebuild", NAME, *PULLED.split(), *words)
        assert (done.status, marker.exists()) == (2, ran)
        assert said in done.err or not ran
        marker.unlink(missing_ok=True)


MODEL = {"input": [1, 8, 8], "checkpoint": "best.pth"}
VISION = {"options": MODEL, "export": {}, "name": "acme/x"}
BY_SOURCE = {**VISION, "source": "net.py:build"}
BACKBONE = {"factory": "net.py:build", "classes": ["a", "b"], **MODEL}
SENT: dict[str, Any] = {
    "source": BY_SOURCE,
    "factory": {**VISION, "options": {**MODEL, "factory": "net.py:build"}, "source": "run"},
    "shell": {**VISION, "options": {**MODEL, "factory": SHELL}, "source": "run"},
    "upward": {**VISION, "source": "../sent/net.py:build"},
    "package": {**VISION, "source": "kit.nets.small:build"},
    "family": {"family": 1, "name": "acme/f", "factory": "net.py:build"},
    "backbone": {"family": 1, "name": "acme/f", "backbone": BACKBONE, "heads": {"folder": "run"}},
    "jobs": [{"recipe": "source.json", "name": "acme/a"}],
    "options": [{"source": "net.py:build", "task": "image-classification", "name": "a/b", "options": {"factory": "net.py:build"}}],
    "leave": [{"recipe": "source.json", "name": "acme/a", "allow_code": ["net.py"]}],
    "recipe-leave": {**BY_SOURCE, "allow_code": ["net.py"]},
    "mixed": [{"recipe": "source.json", "source": "kit.nets.small:build", "name": "a/b"}],
}  # fmt: skip
DOCUMENTS: dict[str, tuple[str, str]] = {
    "a recipe's source": ("--recipe sent/source.json", "--allow-code net.py"),
    "a recipe's factory": ("--recipe sent/factory.json", "--allow-code net.py"),
    "a recipe's factory, with a typed directory": (
        "sent/run --recipe sent/factory.json",
        "--allow-code net.py",
    ),
    "a function of Python's own": ("--recipe sent/shell.json", f"--allow-code {SHELL}"),
    "a path upwards": ("--recipe sent/upward.json", "--allow-code net.py"),
    "a package": ("--recipe sent/package.json", "--allow-code kit/nets/small.py"),
    "a family": ("--recipe sent/family.json", "factory"),
    "a family's backbone": ("--recipe sent/backbone.json", "--allow-code net.py"),
    "trust in transformers": ("--recipe sent/source.json --trust-remote-code", "--allow-code net.py"),
    "leave for another": ("--recipe sent/source.json --allow-code other.py", "--allow-code net.py"),
    "a job's recipe": ("--batch sent/jobs.json", "--allow-code net.py"),
    "a job's source": ("--batch sent/mixed.json", "--allow-code kit/nets/small.py"),
    "a job's options": ("--batch sent/options.json", "factory"),
    "a job that gives leave": ("--batch sent/leave.json", "allow_code"),
    "a recipe that gives leave": ("--recipe sent/recipe-leave.json", "allow_code"),
}


@pytest.fixture
def sent(folder: Path, evil: str) -> None:
    """Files that a stranger sent, unpacked in `sent`."""
    folder.rename("sent")
    Path("sent", "run", "checkpoints").mkdir(parents=True)
    Path("sent", "run", "checkpoints", "best_net.pth").write_bytes(b"weights")
    for name, value in SENT.items():
        Path("sent", f"{name}.json").write_text(json.dumps(value), "utf-8")
    Path("sent", "helper.py").write_text(evil, "utf-8")


@pytest.mark.parametrize("case", DOCUMENTS)
def test_no_code_of_a_document_runs(reg, sent, marker, case):
    words, said = DOCUMENTS[case]
    assert reg("export", *words.split()).ended(2, said)
    assert not marker.exists()


def test_leave_is_for_one_command(reg, sent, marker, monkeypatch):
    monkeypatch.setattr(runner, "_in_processes", in_process.run_lines)
    batch = "--batch sent/jobs.json --jobs 1 --allow-code sent/net.py"
    for words in ("--recipe sent/source.json --allow-code net.py", "--recipe sent/source.json", batch):
        assert reg("export", *words.split()).status != 0
        assert marker.exists() == ("--allow-code" in words)
        marker.unlink(missing_ok=True)


def test_a_typed_source_is_the_file_here_and_not_one_beside_the_recipe(reg, sent, marker):
    Path("net.py").write_text("def build():\n    raise SystemExit\n", "utf-8")
    done = reg("export", "net.py:build", "--recipe", "sent/source.json")
    assert done.ended(7, "raised SystemExit at net.py:2") and not marker.exists()


@pytest.mark.more
def test_an_installed_function_is_bound_by_its_distribution(reg, monkeypatch):
    import torch

    torch.save(torch.nn.Linear(8, 2).state_dict(), "best.pth")
    options = {"input": [1, 8, 8], "arguments": {"in_features": 8, "out_features": 2}}
    Path("r.json").write_text(
        json.dumps({"task": "image-classification", "options": options, "steps": [STEP]})
    )
    words = ("export", "torch.nn:Linear", "--recipe", "r.json", "--checkpoint", "best.pth", "--name", NAME)
    made = reg(*words, "--json")
    assert made.status == 0, made.err
    version = torch.__version__.partition("+")[0]
    recorded = made.json["manifest"]["recipe"]["code"]
    assert recorded == {"name": "torch.nn:Linear", "distribution": "torch", "version": version}
    again, leave = ("rebuild", NAME, "--source", "."), ("--allow-code", "torch.nn:Linear")
    assert reg(*again).ended(2, "read it, then pass --allow-code torch.nn:Linear")
    assert reg(*again, *leave).status == 0
    monkeypatch.setattr("onnxreg.converters.tasks.code.distribution_of", lambda module: ("torch", "9.9"))
    message = f"was made by torch.nn:Linear of torch {version}, here it is torch.nn:Linear of torch 9.9"
    assert reg(*again, *leave).ended(2, message)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, "utf-8")


def test_a_folder_that_is_called_site_packages_is_not_installed(tmp_path, evil):
    write(tmp_path / "site-packages" / "kit_under_test.py", evil)
    found = code.find("kit_under_test:build", tmp_path / "site-packages")
    assert (found.label, found.code.distribution) == ("kit_under_test.py", None)


def compiled(source: Path, target: Path, text: str) -> None:
    """Bytecode of a text, without a check against its source; the source is gone, or is another."""
    before = source.read_text("utf-8") if source.exists() else None
    write(source, text)
    target.parent.mkdir(exist_ok=True)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), str(target), doraise=True, invalidation_mode=mode)
    source.unlink() if before is None else source.write_text(before, "utf-8")


@pytest.mark.parametrize("file", ["helper.py", "helper/__init__.py", "helper.pyc", "wave.py"])
def test_code_beyond_the_digest_is_refused_before_it_runs(reg, tmp_path, marker, evil, monkeypatch, file):
    """A file, a package or a compiled file beside it, and a file of the name of Python's own."""
    name = "wave" if "wave" in file else "helper"
    monkeypatch.delitem(sys.modules, name, raising=False)
    imports = f"try:\n    import {name}\nexcept Exception:\n    pass\n"
    write(tmp_path / "net.py", f"{imports}def build():\n    import torch\n    return torch.nn.ReLU()\n")
    if file.endswith(".pyc"):
        compiled(tmp_path / "helper.py", tmp_path / file, evil)
    else:
        write(tmp_path / file, evil)
    Path("best.pth").write_bytes(b"weights")
    Path("r.json").write_text(json.dumps({"name": "a/b", "options": {"input": [1, 8, 8]}, "export": {}}))
    done = reg("export", "net.py:build", "--recipe", "r.json", "--checkpoint", "best.pth")
    assert done.ended(2, "its digest does not cover") and not marker.exists()


def test_compiled_files_are_not_read_in_place_of_the_text(tmp_path, marker, evil):
    """A `.pyc` that claims to need no check is of other text than the digest is over."""
    package, honest = tmp_path / "compiled_under_test", HONEST.partition("\n\n")[2]
    for file in (tmp_path / "alone.py", package / "__init__.py", package / "nets.py"):
        write(file, honest)
        compiled(file, Path(cache_from_source(str(file))), evil)
    for source in ("alone.py:build", "compiled_under_test.nets:build"):
        code.make(code.find(source, tmp_path), {})
    assert not marker.exists()
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import compiled_under_test"
    subprocess.run([sys.executable, "-c", script], check=True)
    assert marker.exists()


def test_python_asks_for_the_same_consent(tmp_path, marker, evil):
    write(tmp_path / "net.py", evil)
    (tmp_path / "best.pth").write_bytes(b"weights")
    asked = {"task": "image-classification", "options": MODEL, "steps": [STEP]}
    recipe = RecipeFile.from_json(asked)
    with pytest.raises(InputError) as refused:
        plan_export(recipe, "net.py:build", "a/b")
    assert refused.value.hint == "read it, then pass --allow-code net.py:build"
    order = plan_export(recipe, "net.py:build", "a/b", allow_code=["net.py"])
    assert order.source.code is not None and order.source.code.digest == digest_file(tmp_path / "net.py")
    assert not marker.exists()
