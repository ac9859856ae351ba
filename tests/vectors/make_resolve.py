"""Write `resolve/*.json`: the vectors of docs/resolve.md, from cases whose outcomes are stated by hand.

    python tests/vectors/make_resolve.py [--check]

With --check nothing is written; the exit status is 1 where a file differs.
"""

import json
import sys
from pathlib import Path

import cases_contrib
import cases_device
import cases_members
import cases_operators
import cases_query
import cases_versions
from building import Json

FOLDER = Path(__file__).parent / "resolve"
GROUPS = {
    "query": cases_query,
    "versions": cases_versions,
    "device": cases_device,
    "contrib": cases_contrib,
    "operators": cases_operators,
    "members": cases_members,
}


def group(name: str) -> Json:
    module = GROUPS[name]
    vectors = module.vectors()
    return {
        "format": "onnxreg-resolve-vectors",
        "format_version": 1,
        "states": module.STATES.lines,
        "operator_sets": getattr(module, "SETS", {}),
        "vectors": vectors,
    }


def text(value: Json) -> str:
    """One line for each state, operator set and vector."""
    lines = []
    for key, item in value.items():
        if isinstance(item, dict):
            body = [f"{json.dumps(name)}: {json.dumps(each)}" for name, each in item.items()]
            lines.append(f"{json.dumps(key)}: {{\n" + ",\n".join(body) + "\n}")
        elif isinstance(item, list):
            lines.append(f"{json.dumps(key)}: [\n" + ",\n".join(map(json.dumps, item)) + "\n]")
        else:
            lines.append(f"{json.dumps(key)}: {json.dumps(item)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(check: bool) -> int:
    different = 0
    for name in GROUPS:
        path, made = FOLDER / f"{name}.json", text(group(name))
        if check:
            different += not path.exists() or path.read_text("utf-8") != made
        else:
            path.write_text(made, "utf-8")
            print(path.name, len(group(name)["vectors"]), "vectors")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
