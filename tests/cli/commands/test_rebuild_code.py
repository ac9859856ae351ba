"""Versions of strangers whose recipes name code, and documents that do: nothing of it runs unless a person names it.

Each attack would make the file `ran`; none may.
"""

import json
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support import in_process

from onnxreg.cli.batch import run_batch
from onnxreg.converters.source.source_files import digest_file
from onnxreg.converters.source.toolchain import distribution_of
from onnxreg.registry import Registry
from onnxreg.schema.core import canonical
from onnxreg.schema.core.digest import Digest, directory_digest
from onnxreg.schema.manifest.draft import Draft, DraftArtifact

Reg = Callable[..., Any]
NAME = "stranger/net"
SHELL = "subprocess:getoutput"


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """The file that code makes if it runs."""
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
    """Another recipe than an honest one: `options` of its task, further keys, and what its manifest says of the source.

    `files` replace files of the folder that the version brought along.
    """

    words: tuple[str, ...]
    status: int = 2
    said: str = "--allow-code"
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


def publish(
    root: Path, folder: Path, marker: Path, attack: Attack, task: str = "image-classification"
) -> None:
    """Publish what the attacker made into the user's registry, as a pull would."""
    root.mkdir()
    (root / "model.onnx").write_bytes(b"graph")
    for name, text in attack.files.items():
        (folder / name).write_text(text, "utf-8")
    options = {
        "input": [1, 8, 8],
        "factory": "net:build",
        "checkpoint": str(digest_file(folder / "best.pth")),
        "arguments": {"cmd": f"touch {marker.name}"} if attack.options.get("factory") == SHELL else {},
        **attack.options,
    }
    digests = {"checkpoint": digest_file(folder / "best.pth"), **code_digest(folder, options["factory"])}
    asked = {
        "recipe": 1,
        "profile": "recipe",
        "profile_version": 1,
        "task": task,
        "options": options,
        "steps": [{"name": "fp32", "pass": "OnnxConversion"}],
        **attack.recipe,
    }
    recorded = {"profile": "recipe", "profile_version": 1, "steps": [], "tools": {}, **attack.beside}
    recorded["parameters"] = {"recipe": asked}
    source = {"id": NAME, "digest": str(directory_digest(digests)), **attack.source}
    Registry(Path("home")).add(
        Draft(
            NAME,
            root,
            (DraftArtifact("onnx", "float32", "model.onnx"),),
            (),
            {"source": source, "recipe": recorded},
        )
    )


HONEST = "from subprocess import getoutput\n\ndef build():\n    import torch\n    return torch.nn.ReLU()\n"
"""A file that nobody would object to."""
TOUCH = {"arguments": {"cmd": "touch ran"}}
OPEN = "tarfile:bltn_open"
"""The `open` of builtins under another module's name."""
PULLED = ("--source", "pulled")
DATA = ("--data", "options.checkpoint=pulled/best.pth")
ATTACKS: dict[str, Attack] = {
    "a companion is the factory": Attack(PULLED, said="--allow-code net.py"),
    "a package is the factory": Attack(
        PULLED, said="--allow-code kit/nets/small.py", options={"factory": "kit.nets.small:build"}
    ),
    "a function of Python's own": Attack(PULLED, said=f"--allow-code {SHELL}", options={"factory": SHELL}),
    "the same, with the file named": Attack(
        (*PULLED, *DATA), said=f"--allow-code {SHELL}", options={"factory": SHELL}
    ),
    "leave for transformers is none for a function": Attack(
        (*PULLED, "--trust-remote-code"), options={"factory": SHELL}
    ),
    "leave for another function": Attack(
        (*PULLED, "--allow-code", "subprocess:run"), options={"factory": SHELL}
    ),
    "leave for another file": Attack((*PULLED, "--allow-code", "other.py")),
    "leave for a file of that name here": Attack(
        (*PULLED, "--allow-code", "net.py"), said="--allow-code pulled/net.py"
    ),
    "the file is here and not in the source": Attack(
        ("--source", "empty", *DATA, "--allow-code", "net.py"), 3, "no Python module net"
    ),
    "leave for a module is none for a file": Attack((*PULLED, "--allow-code", "net:build")),
    "leave for an installed package is none for a folder": Attack(
        (*PULLED, "--allow-code", "kit.nets.small:build"), options={"factory": "kit.nets.small:build"}
    ),
    "what an allowed file imports": Attack(
        (*PULLED, "--allow-code", "pulled/net.py"),
        said="net.py does not define getoutput",
        options={"factory": "net:getoutput", **TOUCH},
        files={"net.py": HONEST},
    ),
    "the same, by its name": Attack(
        (*PULLED, "--allow-code", "pulled/net.py:getoutput"),
        said="net.py does not define getoutput",
        options={"factory": "net:getoutput", **TOUCH},
        files={"net.py": HONEST},
    ),
    "the same, and no leave": Attack(
        PULLED, said="net.py does not define getoutput", options={"factory": "net:getoutput", **TOUCH}, files={"net.py": HONEST}
    ),
    "what all of an allowed file's imports bring": Attack(
        (*PULLED, "--allow-code", "pulled/net.py"),
        said="net.py does not define getoutput",
        options={"factory": "net:getoutput", **TOUCH},
        files={"net.py": f"from subprocess import *\n{HONEST.partition(chr(10))[2]}"},
    ),
    "another name of what an allowed file imports": Attack(
        (*PULLED, "--allow-code", "pulled/net.py"),
        said="net.py does not define shell",
        options={"factory": "net:shell", **TOUCH},
        files={"net.py": f"{HONEST}shell = getoutput\n"},
    ),
    "a definition that an import replaces": Attack(
        (*PULLED, "--allow-code", "pulled/net.py:shell"),
        said="net.py does not define shell",
        options={"factory": "net:shell", **TOUCH},
        files={"net.py": "def shell(cmd):\n    pass\ntry:\n    from subprocess import getoutput as shell\nexcept ImportError:\n    pass\n"},
    ),
    "what a package imports": Attack(
        (*PULLED, "--allow-code", "pulled/kit/__init__.py"),
        said="kit/__init__.py does not define getoutput",
        options={"factory": "kit:getoutput", **TOUCH},
        files={"kit/__init__.py": HONEST},
    ),
    "what a package imports from a file that imports it": Attack(
        (*PULLED, "--allow-code", "pulled/kit/__init__.py", "--allow-code", "pulled/kit/nets/small.py"),
        said="kit/__init__.py does not define getoutput",
        options={"factory": "kit:getoutput", **TOUCH},
        files={"kit/__init__.py": "from .nets.small import getoutput\n", "kit/nets/small.py": HONEST},
    ),
    "leave for the file that imports it from another": Attack(
        (*PULLED, "--allow-code", "kit/__init__.py", "--allow-code", "kit/__init__.py:build"),
        said="kit/__init__.py does not define build",
        options={"factory": "kit:build"},
        files={"kit/__init__.py": "from kit.nets.small import build\n"},
    ),
    "leave for another function of the file": Attack(
        (*PULLED, "--allow-code", "pulled/net.py:other"), said="--allow-code net.py:build"
    ),
    "arguments that a person has not read": Attack(
        PULLED, said='called with {"cmd": "touch ran"}', options=TOUCH
    ),
    "what an installed module has from another": Attack(
        (*PULLED, "--allow-code", OPEN),
        said="tarfile does not define bltn_open",
        options={"factory": OPEN, "arguments": {"file": "ran", "mode": "w"}},
        beside={"code": {"name": OPEN, "distribution": "python", "version": platform.python_version()}},
    ),
    "a file that no parser can read": Attack(
        (*PULLED, "--allow-code", "pulled/net.py"), said="cannot be parsed", files={"net.py": "-" * 200_000}
    ),
    "the factory is a path": Attack(
        PULLED, 4, "which is not module:function", {"factory": "pulled/net.py:build"}
    ),
    "the factory is a path upwards": Attack(PULLED, 4, "not module:function", {"factory": "../pulled/net:build"}),
    "the source is the pulled folder": Attack((*DATA,), 2, "is a path here", source={"id": "pulled", "revision": "1"}),
    "the source is a factory": Attack(
        (*DATA,), 2, "cannot be a model on the hub", source={"id": "pulled/net.py", "revision": "x:build"}
    ),
    "the source is an absolute path": Attack(
        (*DATA,), 2, "cannot be a model on the hub", source={"id": "/tmp", "revision": "x"}
    ),
    "no source is named": Attack((*DATA,), 2, "--source"),
    "the checkpoint is a path": Attack(PULLED, 4, "names a file", {"checkpoint": "pulled/best.pth"}),
    "the dataset is a path": Attack(PULLED, 4, "names a file", {"dataset": "/etc/hostname"}),
    "a step's data are a path": Attack(
        PULLED,
        4,
        "names a file",
        recipe={"steps": [{"name": "q", "pass": "OnnxStaticQuantization", "data": "/etc"}]},
    ),
    "the recipe names its own source": Attack((*DATA,), 2, "--source", recipe={"source": "pulled/net.py:build"}),
    "the options trust code": Attack(PULLED, 2, "trust_remote_code", {"trust_remote_code": True}),
    "the options give leave": Attack(PULLED, 2, "allow_code", {"allow_code": ["net.py"]}),
    "the options say whose leave": Attack(PULLED, 2, "consent", {"consent": ["net.py"]}),
    "other code than was recorded": Attack(
        (*PULLED, "--allow-code", "pulled/net.py"),
        2,
        "was made by net:build of sha256:",
        beside={"code": {"name": "net:build", "digest": f"sha256:{'0' * 64}"}},
    ),
    "a file in place of an installed function": Attack(
        (*PULLED, "--allow-code", "pulled/net.py"),
        2,
        "if you trust it",
        beside={"code": {"name": "net:build", "distribution": "net", "version": "1.0"}},
    ),
    "another version of the distribution": Attack(
        (*PULLED, "--allow-code", SHELL),
        2,
        "subprocess:getoutput of python 2.7, here it is subprocess:getoutput of python 3.",
        {"factory": SHELL},
        beside={"code": {"name": SHELL, "distribution": "python", "version": "2.7"}},
    ),
    "no version of the distribution": Attack(
        (*PULLED, "--allow-code", SHELL), 2, "was made by nothing, here it is subprocess:getoutput", {"factory": SHELL}
    ),
    "another digest of the source": Attack(
        (*PULLED, "--allow-code", "pulled/net.py"),
        2,
        "the source differs",
        source={"digest": f"sha256:{'0' * 64}"},
    ),
    "another task's options": Attack(PULLED, 2, "at arguments: there is no such key", recipe={"task": "token-classification"}),
    "a pass of a stranger": Attack(
        (*PULLED, "--allow-code", "pulled/net.py"), 2, "no pass is called", recipe={"steps": [{"name": "a", "pass": "net:build"}]}
    ),
    "a profile of a stranger": Attack(
        PULLED, 2, "no profile is called", beside={"profile": "net:build"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ATTACKS)
def test_no_code_of_a_stranger_runs(
    reg: Reg, folder: Path, marker: Path, evil: str, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setenv("REG_HOME", "home")
    if "here" in case:
        Path("net.py").write_text(evil, "utf-8")
    Path("empty").mkdir()
    Path("pulled@1").mkdir()
    publish(Path("draft"), folder, marker, ATTACKS[case])
    done = reg("rebuild", NAME, *ATTACKS[case].words, "--json")
    assert done.status == ATTACKS[case].status, done.err
    assert ATTACKS[case].said in f"{done.error['message']} {done.error['hint']}"
    assert not marker.exists()


def test_allowed_code_runs(reg: Reg, folder: Path, marker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attacks would work if it were not for the name: with it the code runs, and its module is refused after that."""
    monkeypatch.setenv("REG_HOME", "home")
    publish(Path("draft"), folder, marker, Attack(PULLED))
    done = reg("rebuild", NAME, *PULLED, "--allow-code", "net.py", "--json")
    assert (done.status, marker.exists()) == (2, True), done.err
    assert "best.pth is not a checkpoint of tensors alone" in done.error["message"]
    marker.unlink()
    assert reg("rebuild", NAME, *PULLED).status == 2
    assert not marker.exists()


def test_an_installed_function_that_was_named_runs(
    reg: Reg, folder: Path, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REG_HOME", "home")
    code = {"name": SHELL, "distribution": "python", "version": platform.python_version()}
    attack = Attack(PULLED, options={"factory": SHELL}, beside={"code": code})
    publish(Path("draft"), folder, marker, attack)
    assert reg("rebuild", NAME, *PULLED, "--json").status == 2
    assert not marker.exists()
    done = reg("rebuild", NAME, *PULLED, "--allow-code", SHELL, "--json")
    assert (done.status, marker.exists()) == (2, True), done.err
    assert "gives a str, not a torch.nn.Module" in done.error["message"]


def documents(evil: str) -> dict[str, tuple[tuple[str, ...], str]]:
    """Files that a stranger sent, unpacked in `sent`: the command that a person types, and what it says."""
    net = {"options": {"input": [1, 8, 8], "checkpoint": "best.pth"}, "export": {}, "name": "acme/x"}
    by_source = {**net, "source": "net.py:build"}
    by_factory = {**net, "options": {**net["options"], "factory": "net.py:build"}, "source": "run"}  # type: ignore[dict-item]
    shell = {**net, "options": {**net["options"], "factory": SHELL}, "source": "run"}  # type: ignore[dict-item]
    upward = {**net, "source": "../sent/net.py:build"}
    package = {**net, "source": "kit.nets.small:build"}
    family = {"family": 1, "name": "acme/f", "factory": "net.py:build"}
    backbone = {
        "factory": "net.py:build",
        "checkpoint": "best.pth",
        "input": [1, 8, 8],
        "classes": ["a", "b"],
    }
    by_backbone = {"family": 1, "name": "acme/f", "backbone": backbone, "heads": {"folder": "run"}}
    files = {
        "source.json": by_source,
        "factory.json": by_factory,
        "shell.json": shell,
        "upward.json": upward,
        "package.json": package,
        "family.json": family,
        "backbone.json": by_backbone,
        "jobs.json": [{"recipe": "source.json", "name": "acme/a"}],
        "options.json": [
            {
                "source": "net.py:build",
                "task": "image-classification",
                "name": "a/b",
                "options": {"factory": "net.py:build"},
            }
        ],
        "leave.json": [{"recipe": "source.json", "name": "acme/a", "allow_code": ["net.py"]}],
        "recipe-leave.json": {**by_source, "allow_code": ["net.py"]},
        "mixed.json": [{"recipe": "source.json", "source": "kit.nets.small:build", "name": "a/b"}],
    }
    for name, value in files.items():
        Path("sent", name).write_text(json.dumps(value), "utf-8")
    for name in ("net.py", "helper.py"):
        Path("sent", name).write_text(evil, "utf-8")
    return {
        "a recipe's source": (("--recipe", "sent/source.json"), "--allow-code net.py"),
        "a recipe's factory": (("--recipe", "sent/factory.json"), "--allow-code net.py"),
        "a recipe's factory, with a typed directory": (("sent/run", "--recipe", "sent/factory.json"), "--allow-code net.py"),
        "a function of Python's own": (("--recipe", "sent/shell.json"), f"--allow-code {SHELL}"),
        "a path upwards": (("--recipe", "sent/upward.json"), "--allow-code net.py"),
        "a package": (("--recipe", "sent/package.json"), "--allow-code kit/nets/small.py"),
        "a family": (("--recipe", "sent/family.json"), "factory"),
        "a family's backbone": (("--recipe", "sent/backbone.json"), "--allow-code net.py"),
        "trust in transformers": (("--recipe", "sent/source.json", "--trust-remote-code"), "--allow-code net.py"),
        "leave for another": (("--recipe", "sent/source.json", "--allow-code", "other.py"), "--allow-code net.py"),
        "a job's recipe": (("--batch", "sent/jobs.json"), "--allow-code net.py"),
        "a job's source": (("--batch", "sent/mixed.json"), "--allow-code kit/nets/small.py"),
        "a job's options": (("--batch", "sent/options.json"), "factory"),
        "a job that gives leave": (("--batch", "sent/leave.json"), "allow_code"),
        "a recipe that gives leave": (("--recipe", "sent/recipe-leave.json"), "allow_code"),
    }  # fmt: skip


DOCUMENTS = (
    "a recipe's source", "a recipe's factory", "a recipe's factory, with a typed directory", "a function of Python's own",
    "a path upwards", "a package", "a family", "a family's backbone", "trust in transformers", "leave for another", "a job's recipe", "a job's source",
    "a job's options", "a job that gives leave", "a recipe that gives leave",
)  # fmt: skip


@pytest.mark.parametrize("case", DOCUMENTS)
def test_no_code_of_a_document_runs(
    reg: Reg, folder: Path, marker: Path, evil: str, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setenv("REG_HOME", "home")
    folder.rename("sent")
    Path("sent", "run", "checkpoints").mkdir(parents=True)
    Path("sent", "run", "checkpoints", "best_net.pth").write_bytes(b"weights")
    words, said = documents(evil)[case]
    done = reg("export", *words, "--json")
    assert done.status == 2, done.err
    told = f"{done.error['message']} {done.error['hint']}" if done.err.startswith("{") else done.err
    assert said in told
    assert not marker.exists()


def test_leave_is_for_one_command(
    reg: Reg, folder: Path, marker: Path, evil: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REG_HOME", "home")
    monkeypatch.setattr(run_batch, "_in_processes", in_process.run_lines)
    folder.rename("sent")
    documents(evil)
    assert reg("export", "--recipe", "sent/source.json", "--allow-code", "net.py").status != 0
    assert marker.exists()
    marker.unlink()
    assert reg("export", "--recipe", "sent/source.json").status == 2
    assert not marker.exists()
    done = reg("export", "--batch", "sent/jobs.json", "--jobs", "1", "--allow-code", "sent/net.py")
    assert done.status != 0, done
    assert marker.exists()


def test_a_typed_source_is_the_file_here_and_not_one_beside_the_recipe(
    reg: Reg, folder: Path, marker: Path, evil: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REG_HOME", "home")
    folder.rename("sent")
    documents(evil)
    Path("net.py").write_text("def build():\n    raise SystemExit\n", "utf-8")
    done = reg("export", "net.py:build", "--recipe", "sent/source.json", "--json")
    assert (done.status, "raised SystemExit at net.py:2" in done.error["message"]) == (7, True), done.err
    assert not marker.exists()


@pytest.mark.more
def test_an_installed_function_is_bound_by_its_distribution(
    reg: Reg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setenv("REG_HOME", "home")
    torch.save(torch.nn.Linear(8, 2).state_dict(), tmp_path / "best.pth")
    options = {"input": [1, 8, 8], "arguments": {"in_features": 8, "out_features": 2}}
    steps = [{"name": "a", "pass": "OnnxConversion"}]
    write(
        tmp_path / "r.json", json.dumps({"task": "image-classification", "options": options, "steps": steps})
    )
    words = ("export", "torch.nn:Linear", "--recipe", "r.json", "--checkpoint", "best.pth", "--name", NAME)
    made = reg(*words, "--json")
    assert made.status == 0, made.err
    code = made.json["manifest"]["recipe"]["code"]
    version = torch.__version__.partition("+")[0]
    assert code == {"name": "torch.nn:Linear", "distribution": "torch", "version": version}
    again = ("rebuild", NAME, "--source", ".", "--json")
    assert reg(*again).error["hint"] == "read it, then pass --allow-code torch.nn:Linear"
    assert reg(*again, "--allow-code", "torch.nn:Linear").status == 0
    monkeypatch.setattr("onnxreg.converters.tasks.code.distribution_of", lambda module: ("torch", "9.9"))
    other = reg(*again, "--allow-code", "torch.nn:Linear")
    assert other.status == 2
    told = f"was made by torch.nn:Linear of torch {version}, here it is torch.nn:Linear of torch 9.9"
    assert told in other.error["message"]


def test_a_folder_that_is_called_site_packages_is_not_installed(
    tmp_path: Path, evil: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnxreg.converters.tasks import code

    write(tmp_path / "site-packages" / "kit_under_test.py", evil)
    found = code.find("kit_under_test:build", tmp_path / "site-packages")
    assert (found.label, found.code.distribution) == ("kit_under_test.py", None)


UNCOVERED: dict[str, Callable[[Path, str], None]] = {
    "a file beside it": lambda root, evil: write(root / "helper.py", evil),
    "a package beside it": lambda root, evil: write(root / "helper" / "__init__.py", evil),
    "a compiled file beside it": lambda root, evil: compiled(root / "helper.py", root / "helper.pyc", evil),
    "a file that Python's own name": lambda root, evil: write(root / "wave.py", evil),
}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, "utf-8")


def compiled(source: Path, target: Path, text: str) -> None:
    """Bytecode of a text, without a check against its source; the source is gone, or is another."""
    import py_compile

    before = source.read_text("utf-8") if source.exists() else None
    write(source, text)
    target.parent.mkdir(exist_ok=True)
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), str(target), doraise=True, invalidation_mode=mode)
    source.unlink() if before is None else source.write_text(before, "utf-8")


@pytest.mark.parametrize("case", UNCOVERED)
def test_code_beyond_the_digest_is_refused_before_it_runs(
    reg: Reg, tmp_path: Path, marker: Path, evil: str, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setenv("REG_HOME", "home")
    name = "wave" if "Python" in case else "helper"
    monkeypatch.delitem(sys.modules, name, raising=False)
    write(
        tmp_path / "net.py",
        f"try:\n    import {name}\nexcept Exception:\n    pass\ndef build():\n    import torch\n    return torch.nn.ReLU()\n",
    )
    UNCOVERED[case](tmp_path, evil)
    (tmp_path / "best.pth").write_bytes(b"weights")
    (tmp_path / "r.json").write_text(
        json.dumps({"name": "a/b", "options": {"input": [1, 8, 8]}, "export": {}})
    )
    done = reg("export", "net.py:build", "--recipe", "r.json", "--checkpoint", "best.pth", "--json")
    assert (done.status, "its digest does not cover" in done.error["message"]) == (2, True), done.err
    assert not marker.exists()


def test_compiled_files_are_not_read_in_place_of_the_text(tmp_path: Path, marker: Path, evil: str) -> None:
    """A `.pyc` that claims to need no check is of other text than the digest is over."""
    from importlib.util import cache_from_source

    from onnxreg.converters.tasks import code

    package = tmp_path / "compiled_under_test"
    honest = "import torch\ndef build():\n    return torch.nn.ReLU()\n"
    for file in (tmp_path / "alone.py", package / "__init__.py", package / "nets.py"):
        write(file, honest)
        compiled(file, Path(cache_from_source(str(file))), evil)
    for source in ("alone.py:build", "compiled_under_test.nets:build"):
        code.make(code.find(source, tmp_path), {})
    assert not marker.exists()
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import compiled_under_test"
    subprocess.run([sys.executable, "-c", script], check=True)
    assert marker.exists()


def test_python_asks_for_the_same_consent(tmp_path: Path, marker: Path, evil: str) -> None:
    from onnxreg.converters.engine.plan import plan_export
    from onnxreg.schema.core.errors import InputError
    from onnxreg.schema.inputs.recipe_file import RecipeFile

    write(tmp_path / "net.py", evil)
    (tmp_path / "best.pth").write_bytes(b"weights")
    asked = {"task": "image-classification", "options": {"input": [1, 8, 8], "checkpoint": "best.pth"}}
    recipe = RecipeFile.from_json({**asked, "steps": [{"name": "a", "pass": "OnnxConversion"}]})
    with pytest.raises(InputError) as refused:
        plan_export(recipe, "net.py:build", "a/b")
    assert refused.value.hint == "read it, then pass --allow-code net.py:build"
    order = plan_export(recipe, "net.py:build", "a/b", allow_code=["net.py"])
    assert order.source.code is not None and order.source.code.digest == digest_file(tmp_path / "net.py")
    assert not marker.exists()
