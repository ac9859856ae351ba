/** Documents as bytes: JSON, its canonical form, and digests. */

import { platform } from './platform.mjs'
import { IntegrityError, mapping } from './values.mjs'

/** @typedef {import('./values.mjs').Json} Json */

/** The SHA-256 of some bytes, in hex. @param {Uint8Array} bytes */
export async function sha256(bytes) {
  return Array.from(await platform.sha256(bytes), (byte) => byte.toString(16).padStart(2, '0')).join('')
}

/** @param {Uint8Array} bytes @param {string[]} parts that are objects too @returns {Json} */
export function decode(bytes, ...parts) {
  try {
    const value = mapping(JSON.parse(platform.decode(bytes)))
    parts.forEach((part) => mapping(value[part]))
    return value
  } catch {
    throw new IntegrityError('what the registry sent is malformed')
  }
}

/**
 * Canonical JSON (RFC 8785): JavaScript writes numbers and texts as it wants them.
 * @param {any} value
 * @returns {string}
 */
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  const keys = Object.keys(value).sort()
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join()}}`
}

/** @param {Json | undefined} value @param {string[]} keys @returns {Json} with null for missing keys */
export function picked(value, keys) {
  return Object.fromEntries(keys.map((key) => [key, value?.[key] ?? null]))
}

/** @param {Uint8Array[]} parts */
export function concat(parts) {
  if (parts.length === 1) return parts[0]
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0))
  let end = 0
  for (const part of parts) {
    whole.set(part, end)
    end += part.length
  }
  return whole
}
