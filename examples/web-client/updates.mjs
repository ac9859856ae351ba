/**
 * Updates by deltas: files that are made from those of earlier releases, piece by piece, each verified.
 *
 * What cannot be made is left out; the caller fetches it from the whole file. Keys of the store, beside those of
 * `blobs.mjs`: `making/<hex>/<number>`, the parts of a file between two deltas of a chain.
 */

import { piecesOf, sha256 } from './blobs.mjs'
import { needsOf, planRoutes } from './choose.mjs'
import { applyDelta } from './delta.mjs'
import { platform } from './platform.mjs'
import { canonical } from './summary.mjs'
import { count, digest, hexOf, IntegrityError, items, mapping, own, RegError } from './values.mjs'

/** @typedef {import('./blobs.mjs').Blobs} Blobs */
/** @typedef {import('./blobs.mjs').File} File */
/** @typedef {import('./choose.mjs').Delta} Delta */
/** @typedef {import('./choose.mjs').Route} Route */
/** @typedef {import('./values.mjs').Json} Json */
/** @typedef {{keys: string[], size: number}} Parts the parts of a file in the store, each of `size` bytes but the last */
/**
 * How a file arrived: `deltas` counts those that were applied, `bytes` are the bytes of these; `reason` says why there are none.
 * @typedef {{path: string, size: number, deltas: number, bytes: number, reason: string}} Arrival
 */

const PART = 2 ** 23
/** A file between two deltas of a chain is at most so many times as large as the last one. */
const MAX_GROWTH = 4

/**
 * The deltas that a state offers for a version, and those of others that may lead to it. A malformed offer is none.
 * @param {Blobs} blobs @param {Json} state @param {string} version @param {AbortSignal} [signal]
 * @returns {Promise<Delta[]>}
 */
export async function offeredDeltas(blobs, state, version, signal) {
  /** @type {Delta[]} */
  let found = []
  try {
    for (const [tag, offer] of Object.entries(mapping(state.deltas?.versions ?? {}))) {
      const deltas = items(mapping(offer).deltas, readDelta)
      found = [...found, ...deltas]
      const entry = own(state.versions, tag)
      if (tag !== version || !entry) continue
      const repeated = { deltas: offer.deltas, format: 'onnxreg-deltas', format_version: 1, version }
      const table = canonical({ ...repeated, manifest: entry.manifest, name: state.name })
      if (platform.encode(table).length < count(mapping(offer.table).size)) {
        const bytes = await blobs.document(digest(offer.table.digest), signal)
        found = [...found, ...items(mapping(JSON.parse(platform.decode(bytes))).deltas, readDelta)]
      }
    }
  } catch (error) {
    if (!(error instanceof RegError || error instanceof SyntaxError)) throw error
  }
  return [...new Map(found.map((delta) => [delta.delta, delta])).values()]
}

/** @param {any} value @returns {Delta} */
function readDelta(value) {
  const delta = mapping(value)
  ;[delta.new, delta.delta].forEach(digest)
  items(delta.old, digest)
  count(delta.size)
  return /** @type {Delta} */ (delta)
}

export class Updater {
  /** @type {Map<string, File>} files of earlier releases that are here, and those of this update that arrived */
  #known = new Map()

  /** @param {Blobs} blobs @param {AbortSignal} [signal] */
  constructor(blobs, signal) {
    this.blobs = blobs
    this.store = blobs.store
    this.signal = signal
  }

  /** A file that may be here: it is, if every piece is. @param {File} file @param {Set<string>} held keys of the store */
  know(file, held) {
    if (piecesOf(file).every(({ hex }) => held.has(`piece/${hex}`))) this.#known.set(file.digest, file)
  }

  /**
   * The files of an update in the order in which they are fetched, each with its route.
   * @param {File[]} files @param {Delta[]} deltas @returns {[File, Route][]}
   */
  plan(files, deltas) {
    const missing = files.filter((file) => !this.#known.has(file.digest))
    const sizes = Object.fromEntries(missing.map((file) => [file.digest, file.size]))
    const routes = planRoutes({ sizes, present: new Set(this.#known.keys()), deltas, rate: this.blobs.rate })
    const byDigest = new Map(files.map((file) => [file.digest, file]))
    const whole = { deltas: [], size: 0 }
    const known = files.filter((file) => this.#known.has(file.digest))
    const ordered = [...routes].map(([key, route]) => [byDigest.get(key), route])
    return /** @type {[File, Route][]} */ ([...known.map((file) => [file, whole]), ...ordered])
  }

  /**
   * Make a file by the deltas of its route, as far as its pieces come out right. Returns why it did not, if so.
   * @param {File} file @param {Route} route
   */
  async make(file, route) {
    /** @type {Map<string, Parts>} */
    const links = new Map()
    const before = new Set(await this.store.keys('piece/'))
    try {
      if (!needsOf(route).every((old) => this.#known.has(old))) return 'an old file did not arrive'
      for (const [number, delta] of route.deltas.entries()) {
        const isLast = number === route.deltas.length - 1
        const sink = isLast ? new PieceSink(this.store, file) : new PartSink(this.store, delta.new, MAX_GROWTH * file.size)
        await this.#apply(delta, links, sink)
        links.set(delta.new, sink.parts)
        if (sink instanceof PieceSink && sink.wrong) return `${sink.wrong} of ${piecesOf(file).length} pieces came out wrong`
      }
      return ''
    } catch (error) {
      if (this.signal?.aborted || !(error instanceof RegError)) throw error
      return error.message
    } finally {
      for (const key of await this.store.keys('making/')) await this.store.delete(key)
      const fetched = route.deltas.map((delta) => `piece/${hexOf(delta.delta)}`).filter((key) => !before.has(key))
      for (const key of fetched) await this.store.delete(key)
    }
  }

  /** A file of this update is here, and others may be made from it. @param {File} file */
  arrived(file) {
    this.#known.set(file.digest, file)
  }

  /** @param {Delta} delta @param {Map<string, Parts>} links @param {PieceSink | PartSink} sink */
  async #apply(delta, links, sink) {
    await this.blobs.fetch({ digest: delta.delta, size: delta.size }, { signal: this.signal })
    const bytes = await this.store.get(`piece/${hexOf(delta.delta)}`)
    const old = delta.old.map((key) => new StoredFile(this.store, links.get(key) ?? partsOf(this.#known.get(key))))
    const readOld = (/** @type {number} */ source, /** @type {number} */ offset, /** @type {number} */ length) =>
      old[source].read(offset, length)
    for await (const block of applyDelta([bytes ?? new Uint8Array()], { digest: delta.new, old: delta.old }, readOld)) {
      this.signal?.throwIfAborted()
      await sink.write(block)
    }
    await sink.end()
  }
}

/** @param {File | undefined} file @returns {Parts} */
function partsOf(file) {
  if (!file) throw new IntegrityError('an old file is not here')
  return { keys: piecesOf(file).map(({ hex }) => `piece/${hex}`), size: file.pieces?.size ?? file.size }
}

/** A file in the store, read anywhere; one part of it is in memory. */
class StoredFile {
  #number = -1
  /** @type {Uint8Array} */
  #part = new Uint8Array()

  /** @param {import('./stores.mjs').Store} store @param {Parts} parts */
  constructor(store, parts) {
    this.store = store
    this.parts = parts
  }

  /** @param {number} offset @param {number} length @returns {Promise<Uint8Array>} fewer bytes if the file ends */
  async read(offset, length) {
    const out = new Uint8Array(length)
    for (let done = 0; done < length; ) {
      const number = Math.floor((offset + done) / this.parts.size)
      if (number >= this.parts.keys.length) return out.slice(0, done)
      if (number !== this.#number) {
        this.#part = (await this.store.get(this.parts.keys[number])) ?? new Uint8Array()
        this.#number = number
      }
      const start = offset + done - number * this.parts.size
      const piece = this.#part.subarray(start, start + length - done)
      if (!piece.length) return out.slice(0, done)
      out.set(piece, done)
      done += piece.length
    }
    return out
  }
}

/** Collects bytes into parts of one size. */
class Collector {
  #filled = 0

  /** @param {import('./stores.mjs').Store} store @param {number} size of a part @param {number} total of the file */
  constructor(store, size, total) {
    this.store = store
    this.size = size
    this.left = total
    this.number = 0
    this.buffer = new Uint8Array(Math.min(size, total))
  }

  /** @param {Uint8Array} bytes */
  async write(bytes) {
    while (bytes.length) {
      const part = bytes.subarray(0, this.buffer.length - this.#filled)
      if (!part.length) throw new IntegrityError('a delta makes a file of another size')
      this.buffer.set(part, this.#filled)
      this.#filled += part.length
      bytes = bytes.subarray(part.length)
      if (this.#filled === this.buffer.length) await this.#flush()
    }
  }

  async end() {
    if (this.#filled) await this.#flush()
  }

  async #flush() {
    const bytes = this.buffer.subarray(0, this.#filled)
    this.left -= bytes.length
    await this.keep(this.number++, bytes)
    this.buffer = new Uint8Array(Math.min(this.size, Math.max(0, this.left)))
    this.#filled = 0
  }

  /** Store a part. @abstract @param {number} _number @param {Uint8Array} _bytes @returns {Promise<void>} */
  async keep(_number, _bytes) {}
}

/** The pieces of a new file: only right ones are stored. */
class PieceSink extends Collector {
  wrong = 0

  /** @param {import('./stores.mjs').Store} store @param {File} file */
  constructor(store, file) {
    super(store, file.pieces?.size ?? Math.max(1, file.size), file.size)
    this.pieces = piecesOf(file)
    this.parts = { keys: this.pieces.map(({ hex }) => `piece/${hex}`), size: this.size }
  }

  /** @param {number} number @param {Uint8Array} bytes */
  async keep(number, bytes) {
    const hex = this.pieces[number].hex
    if ((await sha256(bytes)) === hex) await this.store.put(`piece/${hex}`, bytes)
    else this.wrong++
  }
}

/** The parts of a file between two deltas. */
class PartSink extends Collector {
  /** @type {Parts} */
  parts

  /** @param {import('./stores.mjs').Store} store @param {string} file its digest @param {number} most its bytes at most */
  constructor(store, file, most) {
    super(store, PART, most)
    this.hex = hexOf(file)
    this.parts = { keys: [], size: PART }
  }

  /** @param {number} number @param {Uint8Array} bytes */
  async keep(number, bytes) {
    const key = `making/${this.hex}/${number}`
    await this.store.put(key, bytes)
    this.parts.keys.push(key)
  }
}
