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


def test_a_browser_store_reads_what_another_tab_wrote():
    script = """const held = new Map()
    const objects = { put: (bytes, key) => held.set(key, bytes), get: (key) => ({ result: held.get(key) }) }
    const begin = () => {
      const transaction = { objectStore: () => objects }
      setTimeout(() => transaction.oncomplete())
      return transaction
    }
    globalThis.indexedDB = { open: () => {
      const opened = { result: { transaction: begin } }
      setTimeout(() => opened.onsuccess())
      return opened
    } }
    const [tab, other, first] = [client.browserStore('x'), client.browserStore('x'), Uint8Array.of(1)]
    await tab.put('slot/acme/pii', first)
    await other.put('slot/acme/pii', Uint8Array.of(2))
    console.log((await tab.get('slot/acme/pii'))[0], first.length)"""
    assert run_with("stores.mjs", script) == "2 1\n"


def test_a_size_that_no_memory_has_is_an_error_with_a_family():
    """Memory is taken as bytes arrive: a petabyte that is absent, and one of which three bytes come."""
    script = """const [{ Http }, { memoryStore }] = await Promise.all(['http', 'stores'].map((name) => import(`${process.argv[1]}/${name}.mjs`)))
    for (const status of [404, 206]) {
      const fetch = async () => ({ status, headers: { get: () => null }, arrayBuffer: async () => new ArrayBuffer(3) })
      const blobs = new client.Blobs(new Http('https://models.invalid', { fetch, delays: [] }), memoryStore())
      await blobs.fetch({ digest: `sha256:${'0'.repeat(64)}`, size: 2 ** 50 }).catch(({ family }) => console.log(family))
    }"""
    assert run_with("blobs.mjs", script, CLIENT.as_uri()).split() == ["not-found", "remote"]


def test_pieces_come_in_parallel_and_their_order_is_kept():
    """The first one alone, since it shows whether the server sends parts; then four at a time."""
    script = """const [{ Http }, { memoryStore }, { sha256 }] = await Promise.all(
      ['http', 'stores', 'documents'].map((name) => import(`${process.argv[1]}/${name}.mjs`)))
    const bytes = Uint8Array.of(5, 3, 8, 1, 9, 2)
    const digest = async (part) => `sha256:${await sha256(part)}`
    const digests = await Promise.all([...bytes].map((byte) => digest(Uint8Array.of(byte))))
    const file = { digest: await digest(bytes), size: 6, pieces: { size: 1, digests } }
    let [now, most, seen] = [0, 0, []]
    const fetch = async (url, { headers }) => {
      seen.push(most = Math.max(most, ++now))
      await new Promise((done) => setTimeout(done, 20))
      now--
      const [start, end] = headers.Range.match(/\\d+/g).map(Number)
      return { status: 206, headers: { get: () => null }, arrayBuffer: async () => bytes.slice(start, end + 1).buffer }
    }
    const blobs = new client.Blobs(new Http('https://models.invalid', { fetch }), memoryStore())
    await blobs.fetch(file)
    console.log(`${most} ${seen[0]} ${await blobs.read(file)}`)"""
    assert run_with("blobs.mjs", script, CLIENT.as_uri()) == "4 1 5,3,8,1,9,2\n"


def test_a_page_of_another_origin_is_told_what_the_server_must_allow():
    script = """globalThis.location = { origin: 'https://app.example', href: 'https://app.example/' }
    const fetch = async () => { throw new TypeError('Failed to fetch') }
    for (const url of ['https://models.example', 'https://app.example/models', 'models'])
      await new client.Http(url, { fetch, delays: [] }).document('registry.json').catch(({ family, message }) =>
        console.log(family, message.includes('Access-Control-Allow-Origin: https://app.example')))"""
    assert run_with("http.mjs", script).splitlines() == ["remote true", "remote false", "remote false"]


def test_a_store_that_ends_with_the_program(registry, tmp_path):
    files = publish(registry, tmp_path / "1", "1.0.0")
    with web_client.running(str(NODE)) as call, static.serve(registry.store.root) as url:
        assert call(url, None, "update", "acme/pii")["files"] == files
