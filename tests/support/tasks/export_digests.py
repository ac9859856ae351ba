"""Print, as JSON, the digest of every file that exports of tiny models write.

python tests/support/tasks/export_digests.py CHECKPOINTS ARCHITECTURE...

Architectures are named as in the tables of docs/architectures.md. CHECKPOINTS is a directory: checkpoints that it has
are used, the others are made there.
"""

import json
import sys
import tempfile
from pathlib import Path

from onnxreg.converters.source.source_files import digest_file
from support.tasks import architectures
from support.tasks import vision_architectures as vision

TEXT = {each.name: each for each in architectures.TEXT}


def digests(directory: Path) -> dict[str, str]:
    return {
        path.relative_to(directory).as_posix(): str(digest_file(path))
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def export(name: str, scratch: Path, checkpoints: Path) -> dict[str, str]:
    """Each task of an architecture of text, or each precision of one of vision."""
    if name in TEXT:
        architectures.row(TEXT[name], workspaces=scratch, checkpoints=checkpoints)
    else:
        vision.row(name, workspaces=scratch)
    return digests(scratch)


if __name__ == "__main__":
    exported = {}
    for name in sys.argv[2:]:
        with tempfile.TemporaryDirectory() as scratch:
            exported[name] = export(name, Path(scratch), Path(sys.argv[1]))
    print(json.dumps(exported))
