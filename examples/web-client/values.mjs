/**
 * Plain values, read strictly: versions, sizes, digests and the parts of JSON documents. Invalid values are an
 * InputError.
 */

/** An error. `family` says what its reader can do next: `input`, `not-found`, `integrity` or `remote`. */
export class RegError extends Error {
  static name = 'RegError' // as in the other classes, for what a minifier leaves of their names
  static family = 'remote'
  /** @param {string} message @param {string} [family] */
  constructor(message, family) {
    super(message)
    this.name = new.target.name
    this.family = family ?? new.target.family
  }
}

/** A malformed document or argument. */
export class InputError extends RegError {
  static name = 'InputError'
  static family = 'input'
}

/** There is no such model, version, artifact or blob. */
export class NotFoundError extends RegError {
  static name = 'NotFoundError'
  static family = 'not-found'
}

/** The version was yanked, or its files are gone. */
export class WithdrawnError extends NotFoundError {
  static name = 'WithdrawnError'
}

/** The bytes are not those that were promised. No part of them was handed out. */
export class IntegrityError extends RegError {
  static name = 'IntegrityError'
  static family = 'integrity'
}

/** @typedef {Record<string, any>} Json */
/** Gives a value back as it is meant, or throws an InputError. @template T @typedef {(value: any) => T} Reader */

/** @template T @param {string} fault @param {(value: any) => boolean} fits @returns {Reader<T>} of values that fit */
export const reader = (fault, fits) => (value) => {
  if (!fits(value)) throw new InputError(typeof value === 'string' ? `${fault}: ${value.slice(0, 80)}` : fault)
  return value
}

/** @type {Reader<Json>} */
export const mapping = reader('not an object', (value) => typeof value === 'object' && value !== null && !Array.isArray(value))
/** @type {Reader<string>} */
export const text = reader('not a string', (value) => typeof value === 'string')
/** @param {string} fault @param {(value: string) => boolean} fits @returns {Reader<string>} of texts that fit */
export const written = (fault, fits) => reader(fault, (value) => fits(text(value)))
/** @type {Reader<number>} */
export const count = reader('not a count', (value) => Number.isSafeInteger(value) && value >= 0)
/** @type {Reader<boolean>} */
export const flag = reader('neither true nor false', (value) => typeof value === 'boolean')
/** @type {Reader<number>} */
export const share = reader('not a number from 0 to 1', (value) => typeof value === 'number' && value >= 0 && value <= 1)
/** @type {Reader<number>} */
export const positive = reader('not a number above 0', (value) => Number.isFinite(value) && value > 0)

/** A reader of arrays. Each item is read by `read`. @template T @param {Reader<T>} read @returns {Reader<T[]>} */
export const list = (read) => (value) => {
  if (!Array.isArray(value)) throw new InputError('not an array')
  return value.map((item) => read(item))
}

/** A reader of values that may be missing. Null counts as missing. @template T @param {Reader<T>} read @returns {Reader<T | undefined>} */
export const maybe = (read) => (value) => ((value ?? null) === null ? undefined : read(value))

/** A reader of objects. Each value is read by `read`. @param {Reader<any>} read @param {Reader<string>} [readKey] @returns {Reader<Json>} */
export const table = (read, readKey = text) => (value) =>
  Object.fromEntries(Object.entries(mapping(value)).map(([key, item]) => [readKey(key), within(key, read, item)]))

/** A reader of some keys of an object, which may have others. @param {Record<string, Reader<any>>} readers @returns {Reader<any>} */
export const object = (readers) => (value) => {
  const found = mapping(value)
  return Object.fromEntries(Object.entries(readers).map(([key, read]) => [key, within(key, read, own(found, key))]))
}

/**
 * The values of an object that an app wrote. Null counts as missing. A key without a reader is an error, because it may be
 * misspelt.
 * @param {any} value @param {Record<string, Reader<any>>} readers @param {string} label
 */
export function given(value, readers, label) {
  const entries = Object.entries(mapping(value))
  const unknown = entries.find(([key]) => !Object.hasOwn(readers, key))
  if (unknown) throw new InputError(`${label} has no ${unknown[0].slice(0, 40)}: it has ${Object.keys(readers).join(', ')}`)
  const known = entries.filter(([, item]) => (item ?? null) !== null)
  return Object.fromEntries(known.map(([key, item]) => [key, within(key, readers[key], item)]))
}

/** @param {string} key @param {Reader<any>} read @param {any} value */
function within(key, read, value) {
  try {
    return read(value)
  } catch (error) {
    throw error instanceof RegError ? new InputError(`${key}: ${error.message}`) : error
  }
}

/** A number in words. @param {number} value @param {number} [digits] that count */
export function figure(value, digits = 6) {
  return String(Number(value.toPrecision(digits)))
}

/** A key's value if the object itself has the key. For example, `constructor` is not a key of `{}`. @param {Json} found @param {string} key */
export function own(found, key) {
  return Object.hasOwn(found, key) ? found[key] : undefined
}

const DIGEST = /^sha256:[0-9a-f]{64}$/
export const digest = written('not a digest', (value) => DIGEST.test(value))

/** The 64 hex digits of a digest. @param {any} value */
export function hexOf(value) {
  return digest(value).slice('sha256:'.length)
}

const PART = '[a-z0-9](?:[a-z0-9._-]*[a-z0-9])?'
const NAME = new RegExp(`^${PART}(?:/${PART})?$`)

/** A model's name, which is safe in a URL. */
export const modelName = written("not a model's name", (value) => NAME.test(value) && value.length <= 200 && !value.includes('..'))

/** Bytes of each unit of size. @type {Record<string, bigint>} */
const UNITS = {
  ...{ '': 1n, B: 1n, kB: 10n ** 3n, MB: 10n ** 6n, GB: 10n ** 9n, TB: 10n ** 12n },
  ...{ KiB: 2n ** 10n, MiB: 2n ** 20n, GiB: 2n ** 30n, TiB: 2n ** 40n },
}
const SIZE = /^([0-9]{1,15})(?:\.([0-9]{1,9}))?([A-Za-z]*)$/

/** SIZE = a number of bytes, or DIGITS ["." DIGITS] [UNIT]. @param {any} value @returns {number} */
export function size(value) {
  if (typeof value !== 'string') return count(value)
  const found = SIZE.exec(value)
  if (!found) throw new InputError(`not a size: ${value.slice(0, 40)}`)
  return wholeBytes(found[1], found[2] ?? '', found[3])
}

/** The exact number of bytes of `whole.part unit`. @param {string} whole @param {string} part @param {string} unit */
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

export const version = written('not a version', isVersion)

/** Return a path of a release if it stays below its folder on every system, else throw an error. @param {string} path */
export function inside(path) {
  const leads = /(^|\/)(\/|$)|[\s.](\/|$)|[\\:\0]/.test(path)
  if (leads) throw new IntegrityError(`a release has a file with the path ${path.slice(0, 80)}`)
  return path
}

/** @param {string} release a version */
export function isPrerelease(release) {
  return identifiers(release)[3] === 0n
}

/** Compare two versions by SemVer 2.0, section 11. The result is below 0, 0 or above 0. @param {string} a @param {string} b */
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

/** The numbers of a version, then 0 for a pre-release or 1, then the identifiers of the pre-release. @param {string} release @returns {(bigint | string)[]} */
function identifiers(release) {
  const [, major, minor, patch, pre] = /** @type {RegExpExecArray} */ (SEMVER.exec(version(release)))
  const rest = pre ? pre.split('.').map((part) => (/^[0-9]+$/.test(part) ? BigInt(part) : part)) : []
  return [BigInt(major), BigInt(minor), BigInt(patch), pre ? 0n : 1n, ...rest]
}

/** @param {string} a @param {string} b */
export function codeUnits(a, b) {
  return a < b ? -1 : Number(a > b)
}
