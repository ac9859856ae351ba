/**
 * The client as an app of React Native has it, in Node: `node react_native.mjs MODULE TOOLS DIRECTORY URL`. Without TOOLS
 * the functions of an app's packages are those of Node.
 *
 * expo-file-system and react-native-fs do not run here: what the client calls of them is done by `node:fs`, as their pages
 * say: no move onto a file that is there.
 */

import { appendFileSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { createHash, randomBytes } from 'node:crypto'
import { dirname, join } from 'node:path'
import { inflateRawSync } from 'node:zlib'

const [kind, client, tools, directory, url] = process.argv.slice(2)
const { Registry, usePlatform } = await import(`${client}/onnxreg.mjs`)
const { expoFiles, file, fileStore, reactNative, rnfsFiles } = await import(`${client}/react-native.mjs`)
const inNode = { sha256: (bytes) => new Uint8Array(createHash('sha256').update(bytes).digest()), inflateRaw: inflateRawSync }
const { sha256 } = tools ? await import(`${tools}/@noble/hashes/sha2.js`) : inNode
const { inflateRaw } = tools ? await import(`${tools}/pako/dist/pako.mjs`) : inNode
usePlatform(reactNative({ sha256, inflateRaw, random: (count) => new Uint8Array(randomBytes(count)) }))

/** How many more operations of the disk succeed before the app is killed. */
let left = Infinity
const disk = (act) => {
  if (left-- <= 0) throw new Error('killed')
  return act()
}
const free = (path) => {
  if (existsSync(path)) throw new Error(`${path} is there`)
}

class Entry {
  constructor(...parts) {
    this.path = join(...parts.map((part) => part.path ?? part))
    this.name = this.path.split('/').at(-1)
  }
  get exists() {
    return existsSync(this.path)
  }
  get uri() {
    return `file://${encodeURI(this.path)}`
  }
  create({ intermediates = false } = {}) {
    free(this.path)
    if (intermediates) disk(() => mkdirSync(dirname(this.path), { recursive: true }))
    disk(() => writeFileSync(this.path, ''))
  }
  list() {
    return disk(() => readdirSync(this.path).map((name) => new File(this, name)))
  }
  async bytes() {
    return new Uint8Array(disk(() => readFileSync(this.path)))
  }
  open() {
    const writeBytes = (bytes) => disk(() => appendFileSync(this.path, bytes))
    return { size: statSync(this.path).size, writeBytes, close() {} }
  }
  move(target) {
    free(target.path)
    disk(() => renameSync(this.path, target.path))
  }
  delete() {
    disk(() => rmSync(this.path))
  }
}
class Directory extends Entry {}
class File extends Entry {}
const expo = { Directory, File, Paths: { document: new Directory(directory) } }
const rnfs = {
  DocumentDirectoryPath: directory,
  exists: async (path) => existsSync(path),
  mkdir: async (path) => disk(() => mkdirSync(path, { recursive: true })),
  readDir: async (path) => disk(() => readdirSync(path).map((name) => ({ name }))),
  readFile: async (path, encoding) => disk(() => readFileSync(path, encoding)),
  appendFile: async (path, text, encoding) => disk(() => appendFileSync(path, text, encoding)),
  moveFile: async (from, to) => disk(() => (free(to), renameSync(from, to))),
  unlink: async (path) => disk(() => rmSync(path)),
}
const files = (folder = 'models') => (kind === 'expo' ? expoFiles(expo, folder) : rnfsFiles(rnfs, folder))

const registry = () => new Registry(url, fileStore(files()))
const first = await registry().update('acme/pii', { device: { ort: '1.30' } })
const again = await registry().update('acme/pii', { device: { ort: '1.30' } })
const bytes = await registry().read(again.release, again.release.artifact.path)

/** What is copied for a runtime, over what was copied before; a file of two parts; one that fails; and paths that lead outside. */
const own = files('files')
const copied = async (parts, path) => {
  const release = { files: [] }
  const found = await file({ parts: async function* () { yield* parts } }, release, path, own)
  return readFileSync(found, 'utf8')
}
const text = (...words) => words.map((word) => new TextEncoder().encode(word))
const paths = await Promise.all([1, 2].map(() => file(registry(), again.release, again.release.artifact.path, own)))
const model = readFileSync(paths[1])
const texts = [await copied(text('one, ', 'two'), 'onnx/a b.txt'), await copied(text('three'), 'onnx/a b.txt'), await copied(text(''), 'b.txt')]
const failing = { [Symbol.iterator]: () => ({ next: () => { throw new Error('a wrong byte') } }) }
const refused = []
for (const [parts, path] of [[failing, 'onnx/a b.txt'], [text('x'), '../evil'], [text('x'), 'a/../../evil'], [text('x'), '/evil'], [text('x'), '..']]) {
  refused.push(await copied(parts, path).then(() => 'copied', ({ family }) => family ?? 'failed'))
}
const extracted = readdirSync(join(directory, 'files'), { recursive: true }).sort()

/** What a key holds after an app was killed while it replaced the value: by the number of operations before. */
const kept = []
for (let operations = 0; operations < 8; operations++) {
  left = Infinity
  await fileStore(files()).put('slot/acme/pii', Uint8Array.of(1))
  const store = fileStore(files())
  left = operations
  await store.put('slot/acme/pii', Uint8Array.of(2)).catch(() => undefined)
  left = Infinity
  const after = fileStore(files())
  kept.push([...((await after.get('slot/acme/pii')) ?? [])])
  await after.keys('')
}
await fileStore(files()).delete('slot/acme/pii')
const keys = await fileStore(files()).keys('slot/')
const shared = fileStore(files('shared'))
await Promise.all([1, 2].map((value) => shared.put('seed', Uint8Array.of(value))))
const latest = [...(await shared.get('seed'))]
const names = readdirSync(join(directory, 'models')).filter((name) => name.startsWith('new') || name.startsWith('slot'))
console.log(JSON.stringify({ changed: [first.changed, again.changed], size: bytes.length, kept, keys, latest, names, texts, refused, extracted, isSame: model.equals(bytes) }))
