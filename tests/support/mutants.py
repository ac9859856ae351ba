"""A hundred seeded mutants of the program: the judge of a smaller suite and of rewritten code.

    python tests/support/mutants.py map            # which tests of `.ci/run` execute which lines: half an hour or more
    python tests/support/mutants.py run 0-99       # one line for each mutant: killed, survived or not covered

A mutant is chosen by its seed alone: the seed decides the package, a place in its syntax trees and the change. Rewritten
code has other places, so that what is compared is the share of the killed, package by package. With `--tests DIR` the
tests are another checkout's: those of a frozen revision, so far as they pass on this code.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

REPOSITORY = Path(__file__).parents[2]
PACKAGES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "log": (("schema/log", "registry/log"), ("schema/log", "registry/log", "registry/test_frozen.py")),
    "trust": (("registry/trust", "registry/signing.py", "schema/signing"), ("registry/trust", "registry/gates")),
    "transfer": (("registry/transfer", "registry/publish.py", "registry/remotes.py"), ("registry/transfer", "registry/log")),
    "store": (("registry/store",), ("registry/store", "crash")),
    "query": (("schema/query", "registry/search", "registry/resolution.py"), ("schema/query", "registry/search", "registry/deliver")),
    "evaluation": (("converters/evaluation",), ("converters/evaluation", "converters/search")),
    "prove": (("converters/prove",), ("converters/prove",)),
}  # fmt: skip
"""Package -> its folders of source, and of the tests that judge it, beside `tests/cli`."""
COMPARISONS = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
MAX_TESTS = 150
"""The most tests for one mutant, the quickest first."""
TIMEOUT_SECONDS = 240


@dataclass(frozen=True)
class Mutant:
    """One change of one file, and the lines whose tests may notice it."""

    package: str
    path: str
    line: int
    change: str
    source: str


def sites(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield the places that can be changed, in the order of the file, with the kind of change."""
    skipped: set[ast.AST] = set()
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        parts = (part for part in ast.walk(function) if isinstance(part, ast.arg | ast.AnnAssign))
        notes = [function.returns, *(part.annotation for part in parts)]
        skipped |= {part for note in notes if note is not None for part in ast.walk(note)}
        for node in ast.walk(function):
            if node not in skipped and (kind := kind_of(node)):
                yield node, kind
            skipped.add(node)


def kind_of(node: ast.AST) -> str:
    """How a node can be changed; empty if it cannot."""
    value = getattr(node, "value", None)
    match node:
        case ast.Compare() if type(node.ops[0]) in COMPARISONS:
            return "comparison"
        case ast.BoolOp():
            return "and/or"
        case ast.UnaryOp(op=ast.Not()):
            return "without not"
        case ast.BinOp() if type(node.op) in ARITHMETIC:
            return "arithmetic"
        case ast.Constant() if type(node.value) in (bool, int):
            return "constant"
        case ast.If() | ast.While():
            return "condition"
        case ast.Expr() | ast.Raise() if not isinstance(value, ast.Constant):
            return "left out"
        case ast.Return() if value is not None and not isinstance(value, ast.Constant):
            return "returns None"
    return ""


def change(node: ast.AST, kind: str) -> None:
    """Change a node of a syntax tree in place."""
    match node:
        case ast.Compare() if kind == "comparison":
            node.ops[0] = COMPARISONS[type(node.ops[0])]()
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.UnaryOp():
            node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
        case ast.BinOp():
            node.op = ARITHMETIC[type(node.op)]()
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant():
            node.value = node.value + 1 if isinstance(node.value, int) else node.value
        case ast.If() | ast.While():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.Return():
            node.value = ast.Constant(None)
        case _:
            vars(node).update(vars(ast.Pass(lineno=node.lineno, col_offset=0)))  # type: ignore[attr-defined]
            node.__class__ = ast.Pass


def mutant(seed: int) -> Mutant:
    """The mutant of a seed."""
    chance = random.Random(seed)
    package = list(PACKAGES)[seed % len(PACKAGES)]
    folders = [REPOSITORY / folder for folder in PACKAGES[package][0]]
    files = sorted(
        path for folder in folders for path in ([folder] if folder.is_file() else folder.rglob("*.py"))
    )
    weights = [sum(1 for _ in sites(ast.parse(path.read_text("utf-8")))) for path in files]
    (path,) = chance.choices(files, weights)
    tree = ast.parse(path.read_text("utf-8"))
    node, kind = chance.choice(list(sites(tree)))
    statements = (part for part in ast.walk(tree) if isinstance(part, ast.stmt))
    around = (part for part in statements if part.lineno <= node.lineno <= (part.end_lineno or 0))  # type: ignore[attr-defined]
    statement = max(around, key=lambda part: part.lineno)
    if isinstance(statement, ast.FunctionDef):  # a default: its own line is executed at the import
        statement = statement.body[-1]
    what = f"{kind}: {ast.unparse(node).splitlines()[0][:70]}"
    change(node, kind)
    source = ast.unparse(ast.fix_missing_locations(tree))
    return Mutant(package, str(path.relative_to(REPOSITORY)), statement.lineno, what, source)


def pytest(tree: Path, words: list[str], timeout: float | None = None, **more: str) -> int:
    """Run tests on a copy of the program; the exit status, 1 if they run too long."""
    environment = {"PYTHONPATH": f"{tree / '.links'}:{tree / 'tests'}", "OMP_NUM_THREADS": "1", **more}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", *words]
    options = {"cwd": tree, "env": os.environ | environment, "capture_output": not more}
    try:
        return subprocess.run(command, check=False, timeout=timeout, **options).returncode  # type: ignore[call-overload]
    except subprocess.TimeoutExpired:
        return 1


def copy_tree(target: Path, tests: Path) -> Path:
    """A copy of the program, with the tests of a checkout."""
    skipped = shutil.ignore_patterns(".git", ".venv*", "__pycache__", "node_modules", "build")
    shutil.copytree(REPOSITORY, target, symlinks=True, ignore=skipped)
    if tests != REPOSITORY:
        shutil.rmtree(target / "tests")
        shutil.copytree(tests / "tests", target / "tests", ignore=skipped)
    return target


def write_map(target: Path, tests: Path) -> None:
    """Run the tests of each package once, and write which tests execute which lines and how long each takes."""
    from coverage import CoverageData

    with tempfile.TemporaryDirectory() as scratch:
        tree = copy_tree(Path(scratch) / "tree", tests)
        data, times = Path(scratch) / "data", Path(scratch) / "seconds.json"
        folders = sorted({"cli", *(folder for _, judges in PACKAGES.values() for folder in judges)})
        words = [f"tests/{folder}" for folder in folders if (tree / "tests" / folder).exists()]
        options = ["-p", "support.mutants", "-m", "not large"]
        pytest(tree, [*options, *words], MUTANTS_DATA=str(data), MUTANTS_SECONDS=str(times))
        seconds: dict[str, float] = json.loads(times.read_text())
        recorded = CoverageData(str(data))
        recorded.read()
        numbers = {test: number for number, test in enumerate(seconds)}
        lines = {
            str(Path(file).resolve().relative_to(tree.resolve())): {
                line: sorted(numbers[context] for context in contexts if context in numbers)
                for line, contexts in recorded.contexts_by_lineno(file).items()
            }
            for file in recorded.measured_files()
        }
    target.write_text(json.dumps({"lines": lines, "tests": list(seconds.items())}))


def pytest_sessionstart() -> None:
    """Measure which lines each test executes; this module is then a plug-in of pytest."""
    import coverage

    global measured
    folders = [str(Path.cwd() / folder) for folder in ("schema", "registry", "converters")]
    measured = coverage.Coverage(os.environ["MUTANTS_DATA"], source=folders, config_file=False)
    measured.start()


def pytest_runtest_logstart(nodeid: str) -> None:
    measured.switch_context(nodeid)  # type: ignore[name-defined]


_seconds: dict[str, float] = {}


def pytest_runtest_logreport(report: object) -> None:
    if report.when == "call" and report.passed:  # type: ignore[attr-defined]
        _seconds[report.nodeid] = report.duration  # type: ignore[attr-defined]


def pytest_sessionfinish() -> None:
    measured.stop()  # type: ignore[name-defined]
    measured.save()  # type: ignore[name-defined]
    Path(os.environ["MUTANTS_SECONDS"]).write_text(json.dumps(_seconds))


def judge(seed: int, tree: Path, tests_of: Any, all_tests: list[tuple[str, float]]) -> str:
    """Run the tests of a mutant's line on a copy of the program; the outcome."""
    one = mutant(seed)
    covering = [all_tests[number] for number in tests_of.get(one.path, {}).get(str(one.line), [])]
    tests = [test for test, _ in sorted(covering, key=lambda test: test[1])[:MAX_TESTS]]
    verdict, began = "not covered", time.monotonic()
    if tests:
        path = tree / one.path
        original = path.read_text("utf-8")
        path.write_text(one.source, "utf-8")
        try:
            verdict = "killed" if pytest(tree, ["-x", *tests], TIMEOUT_SECONDS) else "survived"
        finally:
            path.write_text(original, "utf-8")
    took = f"({len(tests)} tests, {time.monotonic() - began:.0f} s)"
    return f"{seed:3} {one.package:10} {verdict:11} {one.path}:{one.line} {one.change} {took}"


def run(seeds: range, map_file: Path, tests: Path, jobs: int) -> None:
    """Judge mutants, several at a time, and print the share of the killed."""
    value = json.loads(map_file.read_text())
    trees: SimpleQueue[Path] = SimpleQueue()
    verdicts: dict[str, list[bool]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(jobs) as pool:
        for number in range(jobs):
            trees.put(copy_tree(Path(scratch) / str(number), tests))

        def work(seed: int) -> str:
            tree = trees.get()
            try:
                return judge(seed, tree, value["lines"], value["tests"])
            finally:
                trees.put(tree)

        for line in pool.map(work, seeds):
            print(line, flush=True)
            verdicts[line.split()[1]].append(line.split()[2] == "killed")
    for package, killed in verdicts.items():
        print(f"{package}: {sum(killed)} of {len(killed)} killed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("act", choices=["map", "run"])
    parser.add_argument("seeds", nargs="?", default="0-99")
    parser.add_argument("--map", type=Path, default=Path(tempfile.gettempdir()) / "mutants.json")
    parser.add_argument("--tests", type=Path, default=REPOSITORY, help="another checkout, whose tests judge")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    if options.act == "map":
        write_map(options.map, options.tests.resolve())
    else:
        run(range(int(first), int(last or first) + 1), options.map, options.tests.resolve(), options.jobs)


if __name__ == "__main__":
    main()
