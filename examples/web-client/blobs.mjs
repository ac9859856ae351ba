/**
 * Blobs on their way into a store: resumed, verified piece by piece, and handed out only whole and verified.
 *
 * WebCrypto cannot hash a stream. So a large file comes in pieces, and the manifest has their digests. A small file is one
 * piece. Keys of the store:
 *
 *     piece/<hex>               a verified piece, under its SHA-256
 *     arriving/<hex>/<offset>   the part of a piece that arrived, and `etag`; only a resumed download reads these
 */

import { concat, sha256 } from './documents.mjs'
import { RemoteError } from './http.mjs'
import { platform } from './platform.mjs'
import { hexOf, IntegrityError, NotFoundError } from './values.mjs'

/** @typedef {import('./stores.mjs').Store} Store */
/** @typedef {import('./http.mjs').Http} Http */
/** @typedef {{digest: string, size: number, pieces?: {size: number, digests: string[]} | null}} File */
/** @typedef {{hex: string, start: number, size: number}} Piece */
/** @typedef {{signal?: AbortSignal, onBytes?: (count: number) => void}} Options */

/** The bytes of a piece that have arrived are stored each time after this many milliseconds. */
const STORE_AFTER = 1000
/** The number of pieces of a file that are requested at the same time. */
const PARALLEL = 4
const GENERATIONS = ['', '.1', '.2', '.3', '.4', '.5', '.6', '.7']

/** The pieces of a file, which are verified one by one. @param {File} file @returns {Piece[]} */
export function piecesOf({ digest, size, pieces }) {
  if (!pieces) return [{ hex: hexOf(digest), start: 0, size }]
  return pieces.digests.map((each, place) => {
    const start = place * pieces.size
    return { hex: hexOf(each), start, size: Math.min(pieces.size, size - start) }
  })
}

export class Blobs {
  /** @param {Http} http @param {Store} store */
  constructor(http, store) {
    this.http = http
    this.store = store
  }

  /**
   * Fetch the missing pieces of a file into the store. `onBytes` is called with the number of bytes that arrived.
   *
   * The first piece shows whether the server sends parts of a file. If it does, the others come in parallel; if it sends
   * the whole file, all pieces are taken from that one answer.
   * @param {File} file
   * @param {Options} [options]
   */
  async fetch(file, options = {}) {
    const held = new Set(await this.store.keys('piece/'))
    const missing = new Map(piecesOf(file).filter(({ hex }) => !held.has(`piece/${hex}`)).map((piece) => [piece.hex, piece]))
    options.onBytes?.(file.size - [...missing.values()].reduce((sum, { size }) => sum + size, 0))
    const [first, ...rest] = missing.values()
    if (!first || !(await new Arriving(this, file, first, options).fetch())) return
    const work = async () => {
      try {
        for (let piece = rest.shift(); piece; piece = rest.shift()) await new Arriving(this, file, piece, options).fetch()
      } catch (error) {
        rest.length = 0
        throw error
      }
    }
    for (const outcome of await Promise.allSettled(Array.from({ length: PARALLEL }, work))) {
      if (outcome.status === 'rejected') throw outcome.reason
    }
  }

  /** The bytes of a file, whole and verified as they leave the store. @param {File} file */
  async read(file) {
    const bytes = concat(await Promise.all(piecesOf(file).map(({ hex }) => this.#kept(file, hex))))
    if ((await sha256(bytes)) !== hexOf(file.digest)) throw await this.#changed(file)
    return bytes
  }

  /** The pieces of a file in order, each verified as it leaves the store. Use it for a file that exceeds the memory. @param {File} file */
  async *parts(file) {
    for (const { hex } of piecesOf(file)) {
      const part = await this.#kept(file, hex)
      if ((await sha256(part)) !== hex) throw await this.#changed(file)
      yield part
    }
  }

  /** @param {File} file @param {string} hex */
  async #kept(file, hex) {
    const part = await this.store.get(`piece/${hex}`)
    if (!part) throw new NotFoundError(`${file.digest} has not been downloaded`)
    return part
  }

  /** @param {File} file */
  async #changed(file) {
    await Promise.all(piecesOf(file).map(({ hex }) => this.store.delete(`piece/${hex}`)))
    return new IntegrityError(`what was kept of ${file.digest} has changed; download it again`)
  }

  /** A small document by its digest, from the store or the registry. @param {string} digest @param {AbortSignal} [signal] */
  async document(digest, signal) {
    const hex = hexOf(digest)
    const kept = await this.store.get(`piece/${hex}`)
    if (kept && (await sha256(kept)) === hex) return kept
    const found = await anyGeneration(hex, (path) => this.http.document(path, null, signal))
    const bytes = found?.bytes ?? new Uint8Array()
    if ((await sha256(bytes)) !== hex) throw changedOnTheWay({ digest })
    await this.store.put(`piece/${hex}`, bytes)
    return bytes
  }

  /** Delete all pieces except those with these digests, and all parts of unfinished downloads. @param {Set<string>} kept hex digits */
  async keepOnly(kept) {
    for (const key of [...(await this.store.keys('piece/')), ...(await this.store.keys('arriving/'))]) {
      if (!kept.has(key.replace('piece/', ''))) await this.store.delete(key)
    }
  }
}

/** @param {{digest: string}} file */
function changedOnTheWay({ digest }) {
  return new IntegrityError(`the registry sent other bytes than ${digest}`)
}

/**
 * Ask for a blob under its plain key, then under generation keys. Some hosts answer 403, or a page, if a file is absent.
 * @template T
 * @param {string} hex
 * @param {(path: string) => Promise<T>} ask
 */
async function anyGeneration(hex, ask) {
  let refusal
  for (const generation of GENERATIONS) {
    try {
      return await ask(`blobs/sha256/${hex.slice(0, 2)}/${hex}${generation}`)
    } catch (error) {
      if (error instanceof RemoteError && error.status === 403) refusal = error
      else if (!(error instanceof NotFoundError)) throw error
    }
  }
  throw refusal ?? new NotFoundError(`the registry does not have sha256:${hex}; resolve again`)
}

/** A piece of a file that is still arriving. Its bytes outlive the program, and are trusted only after all were hashed. */
class Arriving {
  #size = 0
  /** @type {Uint8Array[]} */
  #stored = []
  /** @type {Uint8Array[]} */
  #fresh = []
  #storedAt = platform.now()
  /** @type {string | null} */
  #etag = null
  /** @type {string | null} */
  #storedEtag = null

  /** @param {Blobs} blobs @param {File} file @param {Piece} piece @param {Options} options */
  constructor({ http, store }, file, piece, { signal, onBytes = () => {} }) {
    this.http = http
    this.store = store
    this.file = file
    this.piece = piece
    this.signal = signal
    this.onBytes = onBytes
    this.prefix = `arriving/${piece.hex}/`
  }

  /**
   * Fetch the piece into the store. If its bytes are wrong, it is fetched once more from its beginning. Returns false if the
   * server sent the whole file instead. Then every piece of the file is stored.
   */
  async fetch() {
    await this.#resume()
    for (let attempt = 1; attempt <= 2; attempt++) {
      if (!(await this.#complete())) return false
      const bytes = concat([...this.#stored, ...this.#fresh])
      const isRight = (await sha256(bytes)) === this.piece.hex
      if (isRight) await this.store.put(`piece/${this.piece.hex}`, bytes)
      else this.onBytes(-bytes.length)
      await this.#clear()
      if (isRight) return true
    }
    throw changedOnTheWay(this.file)
  }

  async #resume() {
    const etag = await this.store.get(`${this.prefix}etag`)
    this.#etag = this.#storedEtag = etag ? platform.decode(etag) : null
    const next = () => this.store.get(`${this.prefix}${this.#size}`)
    for (let part = await next(); part?.length && this.#size + part.length <= this.piece.size; part = await next()) {
      this.#stored.push(part)
      this.#size += part.length
    }
    this.onBytes(this.#size)
  }

  /**
   * Request the rest until everything has arrived. Give up if several attempts in a row bring nothing new. Returns false if the
   * server sent the whole file instead.
   */
  async #complete() {
    let most = this.#size
    for (let failures = 0; this.#size < this.piece.size; ) {
      try {
        if (!(await anyGeneration(hexOf(this.file.digest), (path) => this.#receive(path)))) return false
      } catch (error) {
        if (this.#size > most) failures = 0
        most = Math.max(most, this.#size)
        await this.http.pause(failures++, error)
      }
    }
    return true
  }

  /** Receive bytes of the piece from one answer. Returns false if the answer was the whole file. @param {string} path */
  async #receive(path) {
    const { start, size } = this.piece
    const range = { Range: `bytes=${start + this.#size}-${start + size - 1}` }
    const answer = await this.http.open(path, this.#size && this.#etag ? { ...range, 'If-Range': this.#etag } : range, this.signal)
    if (answer.status !== 206) {
      this.onBytes(-this.#size)
      await this.#clear()
      if (this.file.pieces) {
        const { wrong, missing } = await storePieces(this.store, this.file, answer.chunks, { onBytes: this.onBytes })
        if (missing) throw new RemoteError(`${path} ended early`, true)
        if (wrong) throw changedOnTheWay(this.file)
        return false
      }
    }
    try {
      const etag = answer.headers.get('ETag')
      this.#etag = etag?.startsWith('"') ? etag : null // a strong one says later whether the file is still the same
      for await (const chunk of answer.chunks) {
        const wanted = chunk.subarray(0, size - this.#size)
        this.#fresh.push(wanted)
        this.#size += wanted.length
        if (platform.now() - this.#storedAt >= STORE_AFTER) await this.#putAway()
        this.onBytes(wanted.length)
        if (this.#size === size) return true
      }
    } finally {
      if (this.#size < size) await this.#putAway()
    }
    throw new RemoteError(`${path} ended early`, true)
  }

  /** Store the bytes that are only in memory. */
  async #putAway() {
    this.#storedAt = platform.now()
    const part = concat(this.#fresh)
    if (!part.length) return
    if (this.#etag && this.#etag !== this.#storedEtag) await this.store.put(`${this.prefix}etag`, platform.encode(this.#etag))
    this.#storedEtag = this.#etag ?? this.#storedEtag
    await this.store.put(`${this.prefix}${this.#size - part.length}`, part)
    this.#stored.push(part)
    this.#fresh = []
  }

  async #clear() {
    if (this.#stored.length || this.#storedEtag) {
      for (const key of await this.store.keys(this.prefix)) await this.store.delete(key)
    }
    this.#storedEtag = null
    this.#stored = []
    this.#fresh = []
    this.#size = 0
  }
}

/**
 * Store the pieces of a file that arrives from front to back, except pieces that are here already, and wrong ones.
 * @param {Store} store @param {File} file @param {AsyncIterable<Uint8Array>} chunks @param {Options} [options]
 * @returns {Promise<{wrong: number, missing: number}>} how many pieces came out wrong, and how many did not come
 */
export async function storePieces(store, file, chunks, { signal, onBytes } = {}) {
  const held = new Set(await store.keys('piece/'))
  const pieces = piecesOf(file)
  /** @type {Uint8Array[]} */
  let parts = []
  let [size, done, wrong] = [0, 0, 0]
  for await (let rest of chunks) {
    signal?.throwIfAborted()
    while (rest.length) {
      const piece = pieces[done]
      if (!piece) throw new IntegrityError('the file has another size')
      const part = rest.subarray(0, piece.size - size)
      rest = rest.subarray(part.length)
      parts.push(part)
      size += part.length
      if (size < piece.size) break
      const [bytes, key] = [concat(parts), `piece/${piece.hex}`]
      if (!held.has(key) && (await sha256(bytes)) === piece.hex) {
        await store.put(key, bytes)
        onBytes?.(size)
      } else if (!held.has(key)) wrong++
      ;[parts, size] = [[], 0]
      done++
    }
  }
  return { wrong, missing: pieces.length - done }
}
