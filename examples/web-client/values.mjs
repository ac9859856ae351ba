/**
 * Plain values, read strictly: versions, sizes, digests and the parts of JSON documents. Invalid values are an
 * InputError.
 */

/** An error by what its reader can do next; `family` is one of `input`, `not-found`, `integrity`, `remote`. */
export class RegError extends Error {
  static name = 'RegError' // as in the other classes, for what a minifier leaves of their names
  /** @param {string} message */
  constructor(message, family = 'remote') {
    super(message)
    this.name = new.target.name
    this.family = family
  }
}

/** A document or argument that means nothing. */
export class InputError extends RegError {
  static name = 'InputError'
  /** @param {string} message */
  constructor(message) {
    super(message, 'input')
  }
}

/** There is no such model, version, artifact or blob. */
export class NotFoundError extends RegError {
  static name = 'NotFoundError'
  /** @param {string} message */
  constructor(message) {
    super(message, 'not-found')
  }
}

/** The version was yanked, or its files are gone. */
export class WithdrawnError extends NotFoundError {
  static name = 'WithdrawnError'
}

/** The bytes are not those that were promised. Nothing of them was handed out. */
export class IntegrityError extends RegError {
  static name = 'IntegrityError'
  /** @param {string} message */
  constructor(message) {
    super(message, 'integrity')
  }
}

/** @typedef {Record<string, any>} Json */

/** @param {any} value @returns {Json} */
export function mapping(value) {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new InputError('not an object')
  return value
}

/**
 * @template T
 * @param {any} value
 * @param {(item: any) => T} read
 * @returns {T[]}
 */
export function items(value, read) {
  if (!Array.isArray(value)) throw new InputError('not an array')
  return value.map((item) => read(item))
}

/** @param {any} value @returns {string} */
export function text(value) {
  if (typeof value !== 'string') throw new InputError('not a string')
  return value
}

/** @param {any} value @returns {number} */
export function count(value) {
  if (!Number.isSafeInteger(value) || value < 0) throw new InputError('not a count')
  return value
}

/** @param {any} value @returns {boolean} */
export function flag(value) {
  if (typeof value !== 'boolean') throw new InputError('neither true nor false')
  return value
}

/** @param {any} value @returns {number} */
export function share(value) {
  if (typeof value !== 'number' || !(value >= 0 && value <= 1)) throw new InputError('not a number from 0 to 1')
  return value
}

/** @param {any} value @returns {number} */
export function positive(value) {
  if (!(Number.isFinite(value) && value > 0)) throw new InputError('not a number above 0')
  return value
}

/** A number in words. @param {number} value @param {number} [digits] that count */
export function figure(value, digits = 6) {
  return String(Number(value.toPrecision(digits)))
}

/**
 * A key's value if the object itself has it: `constructor` is not a key of `{}`.
 * @param {Json} found
 * @param {string} key
 * @returns {any}
 */
export function own(found, key) {
  return Object.hasOwn(found, key) ? found[key] : undefined
}

/**
 * A key's value, null as good as absent.
 * @template T
 * @template D
 * @param {Json} found
 * @param {string} key
 * @param {(value: any) => T} read
 * @param {D} absent
 * @returns {T | D}
 */
export function optional(found, key, read, absent) {
  const value = own(found, key) ?? null
  if (value === null) return absent
  try {
    return read(value)
  } catch (error) {
    throw error instanceof RegError ? new InputError(`${key}: ${error.message}`) : error
  }
}

const DIGEST = /^sha256:([0-9a-f]{64})$/

/** The 64 hex digits of a digest. @param {any} value @returns {string} */
export function hexOf(value) {
  const found = DIGEST.exec(text(value))
  if (!found) throw new InputError(`not a digest: ${value.slice(0, 80)}`)
  return found[1]
}

/** A digest, as it is written. @param {any} value @returns {string} */
export function digest(value) {
  return `sha256:${hexOf(value)}`
}

const PART = '[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?'
const NAME = new RegExp(`^${PART}(?:/${PART})?$`)

/** A model's name, which is safe in a URL. @param {any} value @returns {string} */
export function modelName(value) {
  if (!NAME.test(text(value)) || value.length > 200 || value.includes('..')) {
    throw new InputError(`not a model's name: ${value.slice(0, 80)}`)
  }
  return value
}

/** @type {Readonly<Record<string, bigint>>} */
export const UNITS = Object.freeze({
  '': 1n,
  B: 1n,
  kB: 10n ** 3n,
  MB: 10n ** 6n,
  GB: 10n ** 9n,
  TB: 10n ** 12n,
  KiB: 2n ** 10n,
  MiB: 2n ** 20n,
  GiB: 2n ** 30n,
  TiB: 2n ** 40n,
})
const SIZE = /^([0-9]{1,15})(?:\.([0-9]{1,9}))?([A-Za-z]*)$/

/** SIZE = a number of bytes, or DIGITS ["." DIGITS] [UNIT]. @param {any} value @returns {number} */
export function size(value) {
  if (typeof value !== 'string') return count(value)
  const found = SIZE.exec(value)
  if (!found) throw new InputError(`not a size: ${value.slice(0, 40)}`)
  return wholeBytes(found[1], found[2] ?? '', found[3])
}

/**
 * The bytes that `whole.part unit` comes to, exactly.
 * @param {string} whole
 * @param {string} part
 * @param {string} unit
 */
export function wholeBytes(whole, part, unit) {
  if (!Object.hasOwn(UNITS, unit)) throw new InputError(`${unit.slice(0, 40)} is not a unit of size`)
  const bytes = BigInt(whole + part) * UNITS[unit]
  const scale = 10n ** BigInt(part.length)
  if (bytes % scale || bytes / scale > BigInt(Number.MAX_SAFE_INTEGER)) {
    throw new InputError(`${whole}.${part}${unit} is not a whole number of bytes below 2^53`)
  }
  return Number(bytes / scale)
}

const NUMBER = '(0|[1-9][0-9]*)'
const PRE = '(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)'
const SEMVER = new RegExp(
  `^${NUMBER}\\.${NUMBER}\\.${NUMBER}(?:-(${PRE}(?:\\.${PRE})*))?(?:\\+[0-9A-Za-z-]+(?:\\.[0-9A-Za-z-]+)*)?$`,
)

/** @param {string} tag */
export function isVersion(tag) {
  return tag.length <= 128 && SEMVER.test(tag)
}

/** @param {any} value @returns {string} */
export function version(value) {
  if (!isVersion(text(value))) throw new InputError(`not a version: ${value.slice(0, 80)}`)
  return value
}

/** @param {string} release a version */
export function isPrerelease(release) {
  return identifiers(release)[3] === 0n
}

/**
 * Below 0, 0, above 0: the order of two versions by SemVer 2.0, section 11.
 * @param {string} a
 * @param {string} b
 */
export function precedence(a, b) {
  const [left, right] = [identifiers(a), identifiers(b)]
  for (const [place, one] of left.entries()) {
    const other = right[place]
    if (one === other) continue
    if (other === undefined) return 1
    return (typeof one === typeof other ? one < other : typeof one === 'bigint') ? -1 : 1
  }
  return left.length - right.length
}

/** The numbers of a version, 0 for a pre-release or 1, and what a pre-release has. @param {string} release @returns {(bigint | string)[]} */
function identifiers(release) {
  const [, major, minor, patch, pre] = /** @type {RegExpExecArray} */ (SEMVER.exec(version(release)))
  const rest = pre ? pre.split('.').map((part) => (/^[0-9]+$/.test(part) ? BigInt(part) : part)) : []
  return [BigInt(major), BigInt(minor), BigInt(patch), pre ? 0n : 1n, ...rest]
}

/** @param {string} a @param {string} b */
export function codeUnits(a, b) {
  return a < b ? -1 : Number(a > b)
}
