/**
 * Updates by deltas: a file that is made from one of an earlier release, piece by piece, each verified.
 *
 * What cannot be made is left out; the caller fetches it from the whole file.
 */

import { PieceSink, piecesOf } from './blobs.mjs'
import { applyDelta } from './delta.mjs'
import { platform } from './platform.mjs'
import { count, digest, hexOf, items, mapping, own, RegError } from './values.mjs'

/** @typedef {import('./blobs.mjs').Blobs} Blobs */
/** @typedef {import('./blobs.mjs').File} File */
/** @typedef {import('./values.mjs').Json} Json */
/** @typedef {{new: string, old: string[], delta: string, size: number, from?: string}} Delta */
/**
 * How a file arrived: `deltas` is 1 if a delta was applied, `bytes` are its bytes; `reason` says why there is none.
 * @typedef {{path: string, size: number, deltas: number, bytes: number, reason: string}} Arrival
 */

/**
 * The deltas that a state offers for a version; none if their table cannot be read, since they are hints.
 * @param {Blobs} blobs @param {Json} state @param {string} version @param {AbortSignal} [signal]
 * @returns {Promise<Delta[]>}
 */
export async function offeredDeltas(blobs, state, version, signal) {
  try {
    const table = own(state.versions, version)?.deltas
    if (!table) return []
    const bytes = await blobs.document(digest(table), signal)
    return items(mapping(JSON.parse(platform.decode(bytes))).deltas, readDelta)
  } catch (error) {
    if (!(error instanceof RegError || error instanceof SyntaxError)) throw error
    return []
  }
}

/** @param {any} value @returns {Delta} */
function readDelta(value) {
  const delta = mapping(value)
  ;[delta.new, delta.delta].forEach(digest)
  items(delta.old, digest)
  count(delta.size)
  return /** @type {Delta} */ (delta)
}

/**
 * The smallest delta of each file to get whose old files are here, if it has less than half of the file's bytes
 * (docs/delta.md, "Choosing").
 * @param {Delta[]} deltas @param {Record<string, number>} sizes by digest @param {Set<string>} present digests of files that are here
 * @returns {Map<string, Delta>}
 */
export function chooseDeltas(deltas, sizes, present) {
  const chosen = new Map()
  const ordered = [...deltas].sort((one, other) => one.size - other.size || (one.delta < other.delta ? -1 : 1))
  for (const delta of ordered) {
    const isSmall = 2 * delta.size < (own(sizes, delta.new) ?? 0)
    if (isSmall && !chosen.has(delta.new) && delta.old.every((old) => present.has(old))) chosen.set(delta.new, delta)
  }
  return chosen
}

/**
 * Make a file by a delta, as far as its pieces come out right. Returns why it did not, if so.
 * @param {Blobs} blobs @param {File} file @param {Delta} delta @param {Map<string, File>} present files that are here, by digest
 * @param {AbortSignal} [signal]
 */
export async function makeByDelta(blobs, file, delta, present, signal) {
  const { store } = blobs
  const key = `piece/${hexOf(delta.delta)}`
  const wasHere = (await store.keys('piece/')).includes(key)
  try {
    await blobs.fetch({ digest: delta.delta, size: delta.size }, { signal })
    const bytes = (await store.get(key)) ?? new Uint8Array()
    const old = delta.old.map((each) => new StoredFile(store, /** @type {File} */ (present.get(each))))
    const readOld = (/** @type {number} */ source, /** @type {number} */ offset, /** @type {number} */ length) =>
      old[source].read(offset, length)
    const sink = new PieceSink(store, file)
    for await (const block of applyDelta(bytes, { digest: delta.new, old: delta.old }, readOld)) {
      signal?.throwIfAborted()
      await sink.write(block)
    }
    await sink.end()
    return sink.wrong ? `${sink.wrong} of ${piecesOf(file).length} pieces came out wrong` : ''
  } catch (error) {
    if (signal?.aborted || !(error instanceof RegError)) throw error
    return error.message
  } finally {
    if (!wasHere) await store.delete(key)
  }
}

/** A file in the store, read anywhere; one part of it is in memory. */
class StoredFile {
  #number = -1
  /** @type {Uint8Array} */
  #part = new Uint8Array()

  /** @param {import('./stores.mjs').Store} store @param {File} file */
  constructor(store, file) {
    this.store = store
    this.keys = piecesOf(file).map(({ hex }) => `piece/${hex}`)
    this.size = file.pieces?.size ?? file.size
  }

  /** @param {number} offset @param {number} length @returns {Promise<Uint8Array>} fewer bytes if the file ends */
  async read(offset, length) {
    const out = new Uint8Array(length)
    for (let done = 0; done < length; ) {
      const number = Math.floor((offset + done) / this.size)
      if (number >= this.keys.length) return out.slice(0, done)
      if (number !== this.#number) {
        this.#part = (await this.store.get(this.keys[number])) ?? new Uint8Array()
        this.#number = number
      }
      const start = offset + done - number * this.size
      const piece = this.#part.subarray(start, start + length - done)
      if (!piece.length) return out.slice(0, done)
      out.set(piece, done)
      done += piece.length
    }
    return out
  }
}
