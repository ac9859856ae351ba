/**
 * Deltas (docs/delta.md): make a new file from old ones. This module uses no network and no store.
 *
 * A delta is not trusted: the caller checks the digest of every piece that it makes.
 */

import { platform } from './platform.mjs'
import { count, digest, IntegrityError, list, mapping } from './values.mjs'

/** @typedef {import('./values.mjs').Json} Json */
/** @typedef {{digest: string, size: number}} Descriptor */
/** @typedef {{next: Descriptor, old: Descriptor[]}} Header the new file, and the old ones in the order of their numbers */
/** @typedef {(source: number, offset: number, length: number) => Promise<Uint8Array>} ReadOld */

const MAGIC = 'ONXDELT1'
const MAX_HEADER = 65_536
const MAX_OLD = 16
const BLOCK = 2 ** 20
const MAX_PAYLOAD = 2 * BLOCK
const [COPY, LITERAL, DIFFERENCE] = [0, 1, 2]
const [FLOAT, SPARSE] = [1, 2]
const SPAN = 20

/**
 * The bytes of the new file, in parts of at most 1 MiB. Throws IntegrityError if the delta is malformed.
 *
 * @param {Uint8Array} delta
 * @param {{digest: string, old: string[]}} expected digests of the new file and the old ones
 * @param {ReadOld} readOld bytes of an old file; fewer than asked for if it ends
 */
export async function* applyDelta(delta, expected, readOld) {
  let at = 0
  const take = (/** @type {number} */ size) => {
    at += size
    if (at > delta.length) throw malformed('is cut short')
    return delta.subarray(at - size, at)
  }
  const { next, old } = readHeader(take)
  if (next.digest !== expected.digest || old.map((file) => file.digest).join() !== expected.old.join()) {
    throw malformed('is for other files than its table says')
  }
  for (let rest = next.size; rest > 0; ) {
    const span = readSpan(take(SPAN), rest, old)
    rest -= span.length
    if (span.op === COPY) yield* copy(span, readOld)
    else yield make(span, take(span.payload), readOld)
  }
  if (at < delta.length) throw malformed('goes on after its last span')
}

/** @param {(size: number) => Uint8Array} take the next bytes @returns {Header} */
function readHeader(take) {
  if (String.fromCharCode(...take(MAGIC.length)) !== MAGIC) throw malformed('is none, or of a later format')
  const size = view(take(4)).getUint32(0, true)
  if (size > MAX_HEADER) throw malformed('has a header that is too long')
  try {
    const header = mapping(JSON.parse(platform.decode(take(size))))
    only(header, ['format', 'format_version', 'new', 'old'])
    const old = list(descriptor)(header.old)
    const isKnown = header.format === 'onnxreg-delta' && header.format_version === 1
    if (!isKnown || old.length < 1 || old.length > MAX_OLD) throw malformed('has a header of another version')
    return { next: descriptor(header.new), old }
  } catch (error) {
    throw error instanceof IntegrityError ? error : malformed('has a header that cannot be read')
  }
}

/** @param {any} value @returns {Descriptor} */
function descriptor(value) {
  only(mapping(value), ['digest', 'size'])
  return { digest: digest(value.digest), size: count(value.size) }
}

/** @param {Json} value @param {string[]} keys */
function only(value, keys) {
  if (Object.keys(value).sort().join() !== keys.sort().join()) throw malformed('has other keys than a header has')
}

/**
 * @typedef {{op: number, width: number, mode: number, source: number, length: number, offset: number, payload: number}} Span
 * @param {Uint8Array} bytes @param {number} rest bytes of the new file that are to be made @param {Descriptor[]} old
 */
function readSpan(bytes, rest, old) {
  const fields = view(bytes)
  const [op, width, mode, source] = bytes
  const length = fields.getUint32(4, true)
  const offset = Number(fields.getBigUint64(8, true))
  const payload = fields.getUint32(16, true)
  if (length < 1 || length > rest) throw malformed('has a span that is empty or too long')
  const plain =
    (op === COPY && width + mode + payload === 0) ||
    (op === LITERAL && width + mode + source + offset === 0) ||
    (op === DIFFERENCE && [1, 2, 4, 8].includes(width) && mode <= (FLOAT | SPARSE) && length % width === 0)
  if (!plain) throw malformed('has a span that its operation does not allow')
  if (op !== COPY && (length > BLOCK || payload < 1 || payload > MAX_PAYLOAD)) throw malformed('has a span over a block')
  if (op !== LITERAL && !(source < old.length && offset + length <= old[source].size)) {
    throw malformed('reads after the end of an old file')
  }
  return { op, width, mode, source, length, offset, payload }
}

/** @param {Span} span @param {ReadOld} readOld */
async function* copy({ source, offset, length }, readOld) {
  for (let at = 0; at < length; at += BLOCK) {
    const size = Math.min(BLOCK, length - at)
    yield exactly(await readOld(source, offset + at, size), size)
  }
}

/** @param {Span} span @param {Uint8Array} payload @param {ReadOld} readOld */
async function make(span, payload, readOld) {
  const { op, source, offset, length, width, mode } = span
  if (op === LITERAL) return inflate(payload, length, length)
  const before = exactly(await readOld(source, offset, length), length)
  const elements = length / width
  const mask = mode & SPARSE ? Math.ceil(elements / 8) : 0
  const data = await inflate(payload, mask ? mask : length, mask + length)
  const changed = mask ? indicesOf(data.subarray(0, mask), elements) : null
  const planes = data.subarray(mask)
  if (planes.length !== (changed ? changed.length : elements) * width) {
    throw malformed('has not a number for each changed element')
  }
  return restore(planes, before, width, changed, (mode & FLOAT) !== 0)
}

/** The elements whose bits are set. @param {Uint8Array} mask @param {number} elements */
function indicesOf(mask, elements) {
  const found = new Uint32Array(elements)
  let size = 0
  for (let at = 0; at < mask.length; at++) {
    const bits = mask[at]
    if (!bits) continue
    for (let bit = 0; bit < 8; bit++) if (bits & (128 >> bit)) found[size++] = 8 * at + bit
  }
  if (size && found[size - 1] >= elements) throw malformed('has bits after the last element')
  return found.subarray(0, size)
}

/**
 * New elements from old ones and differences. `changed` has the elements that differ (null: all).
 * @param {Uint8Array} planes @param {Uint8Array} before @param {number} width
 * @param {Uint32Array | null} changed @param {boolean} isFloat
 */
function restore(planes, before, width, changed, isFloat) {
  const after = before.slice()
  const size = planes.length / width
  const one = changed ? 1 : 0
  if (width === 8) return restoreWide(planes, after, changed, isFloat)
  const values = width === 1 ? after : width === 2 ? new Uint16Array(after.buffer) : new Uint32Array(after.buffer)
  const [b, c, d] = [size, 2 * size, 3 * size]
  const sign = width === 1 ? 0x80 : width === 2 ? 0x8000 : 0x80000000 | 0
  for (let at = 0; at < size; at++) {
    let z = planes[at]
    if (width > 1) z |= planes[b + at] << 8
    if (width > 2) z |= (planes[c + at] << 16) | (planes[d + at] << 24)
    z = (z + one) | 0
    if (width < 4) z &= width === 1 ? 0xff : 0xffff
    const delta = (z >>> 1) ^ -(z & 1)
    const index = changed ? changed[at] : at
    const old = values[index] | 0
    if (isFloat) {
      const sum = ((old & sign ? ~old : old | sign) + delta) | 0
      values[index] = sum & sign ? sum ^ sign : ~sum
    } else values[index] = old + delta
  }
  return after
}

/** The same for elements of 8 bytes. @param {Uint8Array} planes @param {Uint8Array} after @param {Uint32Array | null} changed @param {boolean} isFloat */
function restoreWide(planes, after, changed, isFloat) {
  const size = planes.length / 8
  const values = new BigUint64Array(after.buffer)
  const sign = 1n << 63n
  for (let at = 0; at < size; at++) {
    let z = changed ? 1n : 0n
    for (let plane = 0; plane < 8; plane++) z += BigInt(planes[plane * size + at]) << BigInt(8 * plane)
    z = BigInt.asUintN(64, z)
    const delta = z & 1n ? -((z + 1n) >> 1n) : z >> 1n
    const index = changed ? changed[at] : at
    const old = values[index]
    if (isFloat) {
      const sum = BigInt.asUintN(64, (old & sign ? ~old : old | sign) + delta)
      values[index] = BigInt.asUintN(64, sum & sign ? sum ^ sign : ~sum)
    } else values[index] = BigInt.asUintN(64, old + delta)
  }
  return after
}

/**
 * Inflate raw deflated data to `least` to `most` bytes. All data must be used. At most one chunk over the limit is inflated.
 * @param {Uint8Array} payload @param {number} least @param {number} most
 */
async function inflate(payload, least, most) {
  const out = new Uint8Array(most)
  let size = 0
  try {
    for await (const part of platform.inflate(payload)) {
      if (size + part.length > most) throw malformed('inflates to more bytes than it states')
      out.set(part, size)
      size += part.length
    }
  } catch (error) {
    throw error instanceof IntegrityError ? error : malformed('has a payload that is not deflated data')
  }
  if (size < least) throw malformed('inflates to fewer bytes than it states')
  return size === most ? out : out.slice(0, size)
}

/** @param {Uint8Array} bytes @param {number} length */
function exactly(bytes, length) {
  if (bytes.length !== length) throw malformed('is for an old file with more bytes')
  return bytes
}

/** @param {Uint8Array} bytes */
const view = (bytes) => new DataView(bytes.buffer, bytes.byteOffset, bytes.length)

/** @param {string} what */
const malformed = (what) => new IntegrityError(`a delta ${what}`)
