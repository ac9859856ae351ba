/**
 * Blobs on their way into a store: resumed, verified piece by piece, and handed out only whole and verified.
 *
 * WebCrypto hashes no stream. So a large file comes in pieces, whose digests its manifest has; a small file is its own
 * only piece. Keys of the store:
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

/** Milliseconds after which the bytes that arrived of a piece are stored: a program that ends loses no more. */
const STORE_AFTER = 1000
/** How many pieces of a file are on their way at once. */
const PARALLEL = 4
const GENERATIONS = ['', '.1', '.2', '.3', '.4', '.5', '.6', '.7']

/** The parts of a file that are verified one by one. @param {File} file @returns {Piece[]} */
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
   * Have every piece of a file in the store. `onBytes` is called with the number of bytes that arrived.
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
    if (!first || !(await this.#fetchPiece(file, first, options))) return
    const work = async () => {
      try {
        for (let piece = rest.shift(); piece; piece = rest.shift()) await this.#fetchPiece(file, piece, options)
      } catch (error) {
        rest.length = 0
        throw error
      }
    }
    for (const outcome of await Promise.allSettled(Array.from({ length: PARALLEL }, work))) {
      if (outcome.status === 'rejected') throw outcome.reason
    }
  }

  /**
   * The bytes of a file, whole and verified as they leave the store.
   * @param {File} file
   * @returns {Promise<Uint8Array>}
   */
  async read(file) {
    const bytes = concat(await Promise.all(piecesOf(file).map(({ hex }) => this.#kept(file, hex))))
    if ((await sha256(bytes)) !== hexOf(file.digest)) throw await this.#changed(file)
    return bytes
  }

  /**
   * The pieces of a file in order, each verified as it leaves the store: for a file beyond memory.
   * @param {File} file
   * @returns {AsyncGenerator<Uint8Array>}
   */
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

  /**
   * A small document by its digest, from the store or the registry.
   * @param {string} digest
   * @param {AbortSignal} [signal]
   */
  async document(digest, signal) {
    const hex = hexOf(digest)
    const kept = await this.store.get(`piece/${hex}`)
    if (kept && (await sha256(kept)) === hex) return kept
    const found = await this.#anyGeneration(hex, (path) => this.http.document(path, null, signal))
    const bytes = found?.bytes ?? new Uint8Array()
    if ((await sha256(bytes)) !== hex) throw new IntegrityError(`the registry sent other bytes than ${digest}`)
    await this.store.put(`piece/${hex}`, bytes)
    return bytes
  }

  /**
   * Only the pieces of these digests stay, and nothing that was arriving.
   * @param {Set<string>} kept hex digits
   */
  async keepOnly(kept) {
    const keys = (await Promise.all(['piece/', 'arriving/', 'making/'].map((prefix) => this.store.keys(prefix)))).flat()
    for (const key of keys) {
      if (!kept.has(key.replace('piece/', ''))) await this.store.delete(key)
    }
  }

  /**
   * Wrong bytes are fetched once more, from their beginning. Returns false if the server sent the whole file instead.
   * @param {File} file
   * @param {Piece} piece
   * @param {Options} options
   */
  async #fetchPiece(file, piece, options) {
    for (const last of [false, true]) {
      const arriving = await Arriving.of(this.store, piece)
      options.onBytes?.(arriving.size)
      if (!(await this.#complete(file, piece, arriving, options))) return false
      if ((await sha256(arriving.bytes)) === piece.hex) {
        await this.store.put(`piece/${piece.hex}`, arriving.bytes)
        await arriving.clear()
        return true
      }
      options.onBytes?.(-arriving.size)
      await arriving.clear()
      if (last) break
    }
    throw new IntegrityError(`the registry sent other bytes than ${file.digest}`)
  }

  /**
   * Request the rest until everything has arrived; give up if several attempts in a row bring nothing new. Returns false if
   * the whole file came.
   */
  async #complete(
    /** @type {File} */ file,
    /** @type {Piece} */ piece,
    /** @type {Arriving} */ arriving,
    /** @type {Options} */ options,
  ) {
    let most = arriving.size
    for (let failures = 0; arriving.size < piece.size; ) {
      try {
        const receive = (/** @type {string} */ path) => this.#receive(path, file, piece, arriving, options)
        if (!(await this.#anyGeneration(hexOf(file.digest), receive))) return false
      } catch (error) {
        if (arriving.size > most) failures = 0
        most = Math.max(most, arriving.size)
        await this.http.pause(failures++, error)
      }
    }
    return true
  }

  /**
   * One answer's share of a piece. Returns false if the answer was the whole file, of which every piece is stored.
   * @param {string} path
   * @param {File} file
   * @param {Piece} piece
   * @param {Arriving} arriving
   * @param {Options} options
   */
  async #receive(path, file, piece, arriving, { signal, onBytes }) {
    const answer = await this.http.open(path, rangeHeaders(piece, arriving), signal)
    if (answer.status !== 206) {
      onBytes?.(-arriving.size)
      await arriving.clear()
      if (file.pieces) return this.#takeAll(path, file, answer.chunks, onBytes)
    }
    try {
      const etag = answer.headers.get('ETag')
      arriving.etag = etag?.startsWith('"') ? etag : null // a strong one says later whether the file is still the same
      for await (const chunk of answer.chunks) {
        const wanted = chunk.subarray(0, piece.size - arriving.size)
        await arriving.add(wanted)
        onBytes?.(wanted.length)
        if (arriving.size === piece.size) return true
      }
    } finally {
      if (arriving.size < piece.size) await arriving.putAway()
    }
    throw new RemoteError(`${path} ended early`, true)
  }

  /**
   * Store every piece of a file that comes front to back: pieces that are stored already are passed over.
   * @param {string} path @param {File} file @param {AsyncIterable<Uint8Array>} chunks @param {Options['onBytes']} onBytes
   */
  async #takeAll(path, file, chunks, onBytes) {
    const sink = new PieceSink(this.store, file, new Set(await this.store.keys('piece/')), onBytes)
    for await (const chunk of chunks) await sink.write(chunk)
    if (!sink.isFull) throw new RemoteError(`${path} ended early`, true)
    if (sink.wrong) throw new IntegrityError(`the registry sent other bytes than ${file.digest}`)
    return false
  }

  /**
   * Ask for a blob under its plain key, then under generation keys. Some hosts answer 403, or a page, for what is absent.
   * @template T
   * @param {string} hex
   * @param {(path: string) => Promise<T>} ask
   */
  async #anyGeneration(hex, ask) {
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
}

/** @param {Piece} piece @param {Arriving} arriving @returns {Record<string, string>} */
function rangeHeaders(piece, { size, etag }) {
  const range = { Range: `bytes=${piece.start + size}-${piece.start + piece.size - 1}` }
  return size && etag ? { ...range, 'If-Range': etag } : range
}

/** The part of a piece that arrived. It outlives the program, and is trusted only when all of it was hashed. */
class Arriving {
  size = 0
  /** @type {string | null} */
  etag = null
  #stored = 0
  #storedAt = platform.now()
  /** @type {string | null} */
  #storedEtag = null

  /** @param {Store} store @param {Piece} piece */
  constructor(store, piece) {
    this.store = store
    this.prefix = `arriving/${piece.hex}/`
    this.bytes = new Uint8Array(piece.size)
  }

  /** @param {Store} store @param {Piece} piece */
  static async of(store, piece) {
    const found = new Arriving(store, piece)
    const etag = await store.get(`${found.prefix}etag`)
    found.etag = found.#storedEtag = etag ? platform.decode(etag) : null
    for (let part = await found.#next(); part && found.size + part.length <= piece.size; part = await found.#next()) {
      found.bytes.set(part, found.size)
      found.#stored = found.size += part.length
    }
    return found
  }

  #next() {
    return this.store.get(`${this.prefix}${this.size}`)
  }

  /** @param {Uint8Array} bytes */
  async add(bytes) {
    this.bytes.set(bytes, this.size)
    this.size += bytes.length
    if (platform.now() - this.#storedAt >= STORE_AFTER) await this.putAway()
  }

  /** Store the bytes that are only in memory. */
  async putAway() {
    this.#storedAt = platform.now()
    if (this.size === this.#stored) return
    if (this.etag && this.etag !== this.#storedEtag) await this.store.put(`${this.prefix}etag`, platform.encode(this.etag))
    this.#storedEtag = this.etag ?? this.#storedEtag
    await this.store.put(`${this.prefix}${this.#stored}`, this.bytes.subarray(this.#stored, this.size))
    this.#stored = this.size
  }

  async clear() {
    if (this.#stored || this.#storedEtag) {
      for (const key of await this.store.keys(this.prefix)) await this.store.delete(key)
    }
    this.#storedEtag = null
    this.size = this.#stored = 0
  }
}

/** Collects bytes into the pieces of a file: only right ones are stored. */
export class PieceSink {
  wrong = 0
  #number = 0
  #filled = 0

  /**
   * @param {Store} store @param {File} file
   * @param {Set<string>} [held] keys of pieces that are stored already @param {(count: number) => void} [onStored]
   */
  constructor(store, file, held = new Set(), onStored = undefined) {
    this.store = store
    this.pieces = piecesOf(file)
    this.held = held
    this.onStored = onStored
    this.buffer = new Uint8Array(this.pieces[0].size)
  }

  get isFull() {
    return this.#number === this.pieces.length
  }

  /** @param {Uint8Array} bytes */
  async write(bytes) {
    while (bytes.length) {
      const part = bytes.subarray(0, this.buffer.length - this.#filled)
      if (!part.length) throw new IntegrityError('the file has another size')
      this.buffer.set(part, this.#filled)
      this.#filled += part.length
      bytes = bytes.subarray(part.length)
      if (this.#filled === this.buffer.length) await this.end()
    }
  }

  /** Store the piece that is collected, if there is one and it is right. */
  async end() {
    if (!this.#filled) return
    const piece = this.buffer.subarray(0, this.#filled)
    const key = `piece/${this.pieces[this.#number++].hex}`
    if (!this.held.has(key)) {
      const isRight = key === `piece/${await sha256(piece)}`
      if (isRight) await this.store.put(key, piece)
      if (isRight) this.onStored?.(piece.length)
      else this.wrong++
    }
    this.buffer = new Uint8Array(this.pieces[this.#number]?.size ?? 0)
    this.#filled = 0
  }
}
