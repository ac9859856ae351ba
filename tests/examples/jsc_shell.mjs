/**
 * What a Swift shell gives the client on an iPhone, in JavaScriptCore's own shell.
 *
 *     jsc -m jsc_shell.mjs -- CLIENT vectors DIRECTORY FILE...    runs the vectors
 *     jsc -m jsc_shell.mjs -- CLIENT update DIRECTORY NAME JSON   updates from the registry in a directory, twice
 *
 * JavaScriptCore has none of the web's functions. SHA-256, INFLATE and UTF-8 are written here in plain JavaScript, since
 * this shell has no other; an app calls CryptoKit, Compression and String.
 */

const [client, job, directory, ...words] = arguments
const { memoryStore, Registry, usePlatform } = await import(client)

let state = 1
const requests = []
const wait = async () => {}
usePlatform({ sha256, inflate: (bytes) => [inflate(bytes)], random, encode, decode, now: () => Date.now(), wait, fetch })

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
    for (const _ of [1, 2]) releases.push(await registry.update(name, JSON.parse(question)))
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

/** SHA-256 (FIPS 180-4). */
function sha256(bytes) {
  const primes = []
  for (let number = 2; primes.length < 64; number++) if (primes.every((prime) => number % prime)) primes.push(number)
  const fraction = (root) => Math.floor((root - Math.floor(root)) * 2 ** 32)
  const constants = primes.map((prime) => fraction(Math.cbrt(prime)))
  const hash = primes.slice(0, 8).map((prime) => fraction(Math.sqrt(prime)))
  const length = Math.ceil((bytes.length + 9) / 64) * 64
  const padded = new Uint8Array(length)
  padded.set(bytes)
  padded[bytes.length] = 0x80
  const view = new DataView(padded.buffer)
  view.setUint32(length - 8, Math.floor(bytes.length / 2 ** 29))
  view.setUint32(length - 4, (bytes.length * 8) >>> 0)
  const rotate = (word, count) => (word >>> count) | (word << (32 - count))
  const w = new Array(64)
  for (let block = 0; block < length; block += 64) {
    for (let at = 0; at < 64; at++) {
      if (at < 16) w[at] = view.getUint32(block + 4 * at)
      else {
        const small0 = rotate(w[at - 15], 7) ^ rotate(w[at - 15], 18) ^ (w[at - 15] >>> 3)
        const small1 = rotate(w[at - 2], 17) ^ rotate(w[at - 2], 19) ^ (w[at - 2] >>> 10)
        w[at] = (w[at - 16] + small0 + w[at - 7] + small1) >>> 0
      }
    }
    let [a, b, c, d, e, f, g, h] = hash
    for (let at = 0; at < 64; at++) {
      const big1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)
      const first = (h + big1 + ((e & f) ^ (~e & g)) + constants[at] + w[at]) >>> 0
      const big0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)
      const second = (big0 + ((a & b) ^ (a & c) ^ (b & c))) >>> 0
      ;[h, g, f, e, d, c, b, a] = [g, f, e, (d + first) >>> 0, c, b, a, (first + second) >>> 0]
    }
    ;[a, b, c, d, e, f, g, h].forEach((word, at) => (hash[at] = (hash[at] + word) >>> 0))
  }
  const out = new DataView(new ArrayBuffer(32))
  hash.forEach((word, at) => out.setUint32(4 * at, word))
  return new Uint8Array(out.buffer)
}

/** INFLATE (RFC 1951), after Mark Adler's description of canonical Huffman codes. */
function inflate(input) {
  const out = []
  let at = 0
  let buffer = 0
  let count = 0
  const bits = (need) => {
    while (count < need) {
      if (at >= input.length) throw new Error('cut short')
      buffer |= input[at++] << count
      count += 8
    }
    const value = buffer & ((1 << need) - 1)
    buffer >>>= need
    count -= need
    return value
  }
  const table = (lengths) => {
    const counts = new Array(16).fill(0)
    for (const length of lengths) counts[length]++
    counts[0] = 0
    const offsets = [0, 0]
    for (let length = 1; length < 15; length++) offsets[length + 1] = offsets[length] + counts[length]
    const symbols = []
    lengths.forEach((length, symbol) => length && (symbols[offsets[length]++] = symbol))
    return { counts, symbols }
  }
  const symbol = ({ counts, symbols }) => {
    for (let length = 1, code = 0, first = 0, index = 0; length <= 15; length++) {
      code |= bits(1)
      if (code - counts[length] < first) return symbols[index + code - first]
      index += counts[length]
      first = (first + counts[length]) << 1
      code <<= 1
    }
    throw new Error('no such code')
  }
  const lengthBase = [3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258]
  const lengthExtra = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0]
  const distanceBase = [1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577]
  const codes = (literals, distances) => {
    for (let code = symbol(literals); code !== 256; code = symbol(literals)) {
      if (code < 256) out.push(code)
      else {
        if (code > 285) throw new Error('no such length')
        const length = lengthBase[code - 257] + bits(lengthExtra[code - 257])
        const place = symbol(distances)
        if (place > 29) throw new Error('no such distance')
        const distance = distanceBase[place] + bits(place < 4 ? 0 : (place >> 1) - 1)
        if (distance > out.length) throw new Error('too far back')
        for (let copied = 0; copied < length; copied++) out.push(out[out.length - distance])
      }
    }
  }
  const fixed = table([...Array(144).fill(8), ...Array(112).fill(9), ...Array(24).fill(7), ...Array(8).fill(8)])
  for (let last = 0; !last; ) {
    last = bits(1)
    const kind = bits(2)
    if (kind === 0) {
      buffer = count = 0
      const size = input[at] | (input[at + 1] << 8)
      if (at + 4 + size > input.length || (size ^ 0xffff) !== (input[at + 2] | (input[at + 3] << 8))) throw new Error('bad size')
      for (const byte of input.subarray(at + 4, at + 4 + size)) out.push(byte)
      at += 4 + size
    } else if (kind === 1) codes(fixed, table(Array(30).fill(5)))
    else if (kind === 2) {
      const [literals, distances, lengths] = [bits(5) + 257, bits(5) + 1, bits(4) + 4]
      const order = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15]
      const first = Array(19).fill(0)
      for (let index = 0; index < lengths; index++) first[order[index]] = bits(3)
      const meta = table(first)
      const all = []
      while (all.length < literals + distances) {
        const code = symbol(meta)
        if (code < 16) all.push(code)
        else {
          const [value, times] = code === 16 ? [all.at(-1), 3 + bits(2)] : [0, code === 17 ? 3 + bits(3) : 11 + bits(7)]
          if (value === undefined) throw new Error('nothing to repeat')
          for (let index = 0; index < times; index++) all.push(value)
        }
      }
      codes(table(all.slice(0, literals)), table(all.slice(literals)))
    } else throw new Error('no such block')
  }
  if (at < input.length) throw new Error('more bytes than are used')
  return Uint8Array.from(out)
}

function encode(text) {
  return Uint8Array.from(unescape(encodeURIComponent(text)), (character) => character.charCodeAt(0))
}

function decode(bytes) {
  let text = ''
  for (let at = 0; at < bytes.length; at += 8192) text += String.fromCharCode(...bytes.subarray(at, at + 8192))
  return decodeURIComponent(escape(text))
}
