/**
 * Updates by deltas: make a file from files of an earlier release. Each piece is verified.
 *
 * Pieces that cannot be made are left out, and the caller fetches them.
 */

import { piecesOf, storePieces } from './blobs.mjs'
import { applyDelta } from './delta.mjs'
import { decode } from './documents.mjs'
import { count, digest, hexOf, list, object, own, RegError } from './values.mjs'

/** @import { Blobs, File } from './blobs.mjs' */
/** @typedef {import('./values.mjs').Json} Json */
/** @typedef {{new: string, old: string[], delta: string, size: number}} Delta */
/**
 * How a file arrived: `deltas` is 1 if a delta was applied, `bytes` are its bytes; `reason` says why there is none.
 * @typedef {{path: string, size: number, deltas: number, bytes: number, reason: string}} Arrival
 */

const TABLE = object({ deltas: list(object({ new: digest, old: list(digest), delta: digest, size: count })) })

/**
 * The deltas that a state offers for a version, or none if their table cannot be read: deltas are hints.
 * @param {Blobs} blobs @param {Json} state @param {string} version @param {AbortSignal} [signal]
 * @returns {Promise<Delta[]>}
 */
export async function offeredDeltas(blobs, state, version, signal) {
  try {
    const table = own(state.versions, version)?.deltas
    if (!table) return []
    return TABLE(decode(await blobs.document(digest(table), signal))).deltas
  } catch (error) {
    if (!(error instanceof RegError)) throw error
    return []
  }
}

/**
 * A delta for each file (docs/delta.md, "Choosing"): the smallest one whose old files are here, if it is smaller than half of
 * the file.
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
 * Make a file by a delta, except pieces that come out wrong. Returns the reason why the delta failed, if it did.
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
    const old = delta.old.map((each) => readerOf(store, /** @type {File} */ (present.get(each))))
    const blocks = applyDelta(bytes, { digest: delta.new, old: delta.old }, (source, ...span) => old[source](...span))
    const { wrong, missing } = await storePieces(store, file, blocks, { signal })
    return wrong + missing ? `${wrong + missing} of ${piecesOf(file).length} pieces came out wrong` : ''
  } catch (error) {
    if (signal?.aborted || !(error instanceof RegError)) throw error
    return error.message
  } finally {
    if (!wasHere) await store.delete(key)
  }
}

/**
 * A function that reads a file in the store at any offset, or fewer bytes at its end. One piece is in memory.
 * @param {import('./stores.mjs').Store} store @param {File} file
 */
function readerOf(store, file) {
  const pieces = piecesOf(file)
  const size = file.pieces?.size ?? file.size
  /** @type {{number: number, bytes: Uint8Array}} */
  let held = { number: -1, bytes: new Uint8Array() }
  return async (/** @type {number} */ offset, /** @type {number} */ length) => {
    const out = new Uint8Array(length)
    for (let done = 0; done < length; ) {
      const number = Math.floor((offset + done) / size)
      if (number >= pieces.length) return out.slice(0, done)
      if (number !== held.number) held = { number, bytes: (await store.get(`piece/${pieces[number].hex}`)) ?? new Uint8Array() }
      const start = offset + done - number * size
      const part = held.bytes.subarray(start, start + length - done)
      if (!part.length) return out.slice(0, done)
      out.set(part, done)
      done += part.length
    }
    return out
  }
}
