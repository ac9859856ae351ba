/**
 * What a Swift shell gives the client on an iPhone, in JavaScriptCore's own shell.
 *
 *     jsc -m jsc_shell.mjs -- CLIENT TOOLS vectors DIRECTORY FILE...    runs the vectors
 *     jsc -m jsc_shell.mjs -- CLIENT TOOLS update DIRECTORY NAME JSON   updates from the registry in a directory, twice
 *
 * JavaScriptCore has none of the web's functions. Here SHA-256 and INFLATE are those of packages in the directory TOOLS; an
 * app calls CryptoKit and Compression.
 */

const [client, tools, job, directory, ...words] = arguments
const { memoryStore, Registry, usePlatform } = await import(client)
const { sha256 } = await import(`${tools}/@noble/hashes/sha2.js`)
const { Inflate } = await import(`${tools}/pako/dist/pako.mjs`)

let state = 1
const requests = []
const wait = async () => {}
usePlatform({ sha256, inflate, random, encode, decode, now: () => Date.now(), wait, fetch })

if (job === 'vectors') {
  const { runVectors } = await import(client.replace('onnxreg.mjs', 'vectors.mjs'))
  const { passed, failures } = await runVectors((path) => JSON.parse(readFile(`${directory}/${path}`)), words)
  for (const failure of failures) print(`FAILED ${failure}`)
  print(`${passed} passed, ${failures.length} failed`)
} else {
  const [name, question] = words
  const registry = new Registry('https://registry.example', memoryStore())
  try {
    const releases = []
    for (const _ of [1, 2]) releases.push((await registry.update(name, JSON.parse(question))).release)
    const { version, artifact } = releases[0]
    const bytes = await registry.read(releases[1], artifact.path)
    print(JSON.stringify({ version, path: artifact.path, digest: hex(sha256(bytes)), requests }))
  } catch (error) {
    print(JSON.stringify({ error: error.family ?? String(error), requests }))
  }
}

/** A request for a file of the directory, whole or a range, as `fetch` answers it. */
async function fetch(url, { headers }) {
  const path = url.replace('https://registry.example/', '')
  requests.push(path)
  const answer = (status, bytes, fields = {}) => ({
    status,
    headers: { get: (name) => fields[name.toLowerCase()] ?? null },
    arrayBuffer: async () => bytes.slice().buffer,
  })
  let bytes
  try {
    bytes = readFile(`${directory}/${path}`, 'binary')
  } catch {
    return answer(404, new Uint8Array())
  }
  const etag = `"${hex(sha256(bytes))}"`
  if (headers['If-None-Match'] === etag) return answer(304, new Uint8Array(), { etag })
  const range = /^bytes=(\d+)-(\d*)$/.exec(headers.Range ?? '')
  if (!range) return answer(200, bytes, { etag, 'content-length': String(bytes.length) })
  const [start, end] = [Number(range[1]), range[2] ? Number(range[2]) + 1 : bytes.length]
  const part = bytes.slice(start, end)
  return answer(206, part, { etag, 'content-range': `bytes ${start}-${start + part.length - 1}/${bytes.length}` })
}

function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')
}

function random(count) {
  return Uint8Array.from({ length: count }, () => (state = (state * 48271) % 2147483647) & 0xff)
}

function inflate(bytes) {
  const stream = new Inflate({ raw: true })
  if (!stream.push(bytes, true) || !stream.ended || stream.strm.avail_in) throw new Error(stream.msg || 'not one whole stream')
  return [stream.result]
}

function encode(text) {
  return Uint8Array.from(unescape(encodeURIComponent(text)), (character) => character.charCodeAt(0))
}

function decode(bytes) {
  let text = ''
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192))
  return decodeURIComponent(escape(text))
}
