"""Syncing asks the operating system, in a process whose calls are not replaced by the suite's `unsynced`."""

import subprocess
import sys
from pathlib import Path

CODE = """
import sys
from pathlib import Path
from onnxreg.registry.support.disk import SYNCFS_THRESHOLD, Disk

root = Path(sys.argv[1])
files = [root / str(number) for number in range(SYNCFS_THRESHOLD)]
for file in files:
    file.touch()
Disk().sync_file(files[0])
Disk().sync_files(files)
Disk().sync_directories([root] * len(files))
Disk().sync_all(root)
Disk().sync_file(root / "missing")
"""


def test_files_directories_and_file_systems_are_synced(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CODE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith("FileNotFoundError: ") and "missing" in done.stderr
