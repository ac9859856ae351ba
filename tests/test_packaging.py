"""What lies on disk is what is packaged, imported and checked."""

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from onnxreg.cli import VERSION

REPOSITORY = Path(__file__).parents[1]
CODE = ("cli", "converters", "registry", "schema")


def on_disk(*patterns: str) -> set[str]:
    """The files of the code directories, by their paths below the checkout."""
    return {
        path.relative_to(REPOSITORY).as_posix()
        for directory in CODE
        for pattern in patterns
        for path in (REPOSITORY / directory).rglob(pattern)
    }


@pytest.fixture(scope="session")
def packaged(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def test_every_directory_with_code_is_a_package() -> None:
    assert {Path(path).parent for path in on_disk("*.py")} == {
        Path(path).parent for path in on_disk("__init__.py")
    }


@pytest.mark.parametrize("directory", CODE)
def test_the_type_checkers_see_the_same_directories(directory: str) -> None:
    assert (REPOSITORY / ".links" / "onnxreg" / directory).samefile(REPOSITORY / directory)


@pytest.mark.more
def test_the_wheel_holds_every_module_and_data_file(packaged: set[str]) -> None:
    wanted = on_disk("*.py", "py.typed", "*.json", "*.jsonl", "*.yaml", "*.html", "*.css", "*.svg")
    assert {".py", ".json", ".html", ".css"} <= {Path(path).suffix for path in wanted}
    assert {f"onnxreg/{path}" for path in wanted} - packaged == set()


@pytest.mark.more
def test_the_wheel_holds_nothing_else(packaged: set[str]) -> None:
    strangers = {path for path in packaged if not path.startswith(("onnxreg/", "onnxreg-"))}
    assert strangers == set()
    code = {path.removeprefix("onnxreg/") for path in packaged if path.endswith(".py")}
    assert code == on_disk("*.py")


@pytest.mark.more
def test_reg_is_the_console_script(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (entry,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
    assert "reg = onnxreg.cli.main:main" in archive.read(entry).decode().splitlines()


def test_the_command_says_the_version_of_the_distribution() -> None:
    assert tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"] == VERSION


@pytest.mark.more
def test_a_second_build_has_the_same_bytes(distributions: Path, tmp_path: Path) -> None:
    """Another process, another umask, and no time but that of the commit."""
    command = f'umask 077; exec "{sys.executable}" "{REPOSITORY}/.ci/dist.py" "{tmp_path}"'
    done = subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True)
    first, second = (
        {path.name: path.read_bytes() for path in root.iterdir()} for root in (distributions, tmp_path)
    )
    assert {name.partition(VERSION)[0] for name in first} == {"onnxreg-"} and len(first) == 2
    assert first == second
    assert [line.split()[1] for line in done.stdout.splitlines()] == sorted(first)


@pytest.mark.more
def test_the_source_distribution_builds_the_same_modules(distributions: Path, packaged: set[str]) -> None:
    (archive,) = distributions.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        members = source.getmembers()
    paths = {member.name.partition("/")[2] for member in members}
    assert {path.removeprefix("onnxreg/") for path in packaged if path.startswith("onnxreg/")} <= paths
    assert {(member.uid, member.gid, member.uname) for member in members} == {(0, 0, "")}
    assert len({member.mtime for member in members}) == 1
