"""docs/mobile.md as its reader types it: the app in JavaScript gets what the commands ship."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from support.docs.pages import REPOSITORY, Block
from support.docs.shell import Shell
from support.servers import static

NODE = shutil.which("node")
APP = """
const { Registry } = await import(process.argv[1] + '/onnxreg.mjs')
const { directoryStore } = await import(process.argv[1] + '/directory-store.mjs')
const [, , url, CONTRACT] = process.argv
const browserStore = directoryStore
const selfTest = ({ artifact }) => artifact.path === 'model_int8.onnx'
const InferenceSession = { create: async (bytes) => bytes.length }
CODE
console.log(release.version)
"""


@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_the_app_gets_what_the_page_ships(shell: Shell, tmp_path: Path) -> None:
    versions: list[str] = []
    code = ""

    def update() -> str:
        root = shell.world.scratch / "bucket" / "prod"
        status, out, err = shell.run("reg resolve acme/pii:stable --remote prod --json")
        assert status == 0, err
        contract = json.loads(out)["artifact"]["contract"]
        client = (REPOSITORY / "examples" / "web-client").as_uri()
        with static.serve(root) as url:
            script = APP.replace("CODE", code.replace("'https://models.example/prod'", "url"))
            command = [str(NODE), "--input-type=module", "--eval", script, client, url, contract]
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def each(block: Block) -> None:
        nonlocal code
        if block.language == "js":
            code = block.text
            versions.append(update())

    shell.play(REPOSITORY / "docs" / "mobile.md", each)
    versions.append(update())
    assert versions == ["1.0.0", "2.0.0"]
