"""What only the client in examples/web-client has: its stores."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.registries.for_devices import publish
from support.servers import static, web_client

NODE = shutil.which("node")
CLIENT = Path(__file__).parents[2] / "examples" / "web-client"

pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")


def node(*words: str | Path) -> str:
    done = subprocess.run([str(NODE), *words], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def run_with(module: str, script: str, *words: str | Path) -> str:
    """What a script prints that imports a module of the client as `client`."""
    imported = f"import * as client from '{(CLIENT / module).as_uri()}'\n"
    return node("--input-type=module", "--eval", imported + script, *words)


def test_a_directory_keeps_no_temporary_file_of_a_failed_or_killed_put(tmp_path):
    for name in ("%tmp-old", "%tmp-new"):
        (tmp_path / name).touch()
    os.utime(tmp_path / "%tmp-old", (0, 0))
    (tmp_path / "taken").mkdir()
    script = """const store = client.directoryStore(process.argv[1])
    for (const [key, bytes] of [['taken', new Uint8Array(1)], ['other', {}]])
      await store.put(key, bytes).then(() => console.log(key), () => console.log('failed'))"""
    assert run_with("directory-store.mjs", script, tmp_path).split() == ["failed", "failed"]
    assert {path.name for path in tmp_path.iterdir()} == {"%tmp-new", "taken"}


def test_a_browser_store_says_why_it_failed():
    script = """const request = { error: new Error('the disk is full') }
    const transaction = { error: null, objectStore: () => ({ put: () => request }) }
    const opened = { result: { transaction: () => transaction } }
    globalThis.indexedDB = { open: () => opened }
    setTimeout(() => { opened.onsuccess(); setTimeout(() => transaction.onerror()) })
    await client.browserStore('x').put('key', new Uint8Array(1)).catch((error) => console.log(error.message))"""
    assert run_with("stores.mjs", script) == "the disk is full\n"


def test_a_store_that_ends_with_the_program(registry, tmp_path):
    files = publish(registry, tmp_path / "1", "1.0.0")
    with web_client.running(str(NODE)) as call, static.serve(registry.store.root) as url:
        assert call(url, None, "update", "acme/pii")["files"] == files
