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

/** Canonical JSON (RFC 8785). JavaScript writes numbers and texts in this form already. @param {any} value @returns {string} */
export function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  const keys = Object.keys(value).sort()
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join()}}`
}

/** The digest of a value's canonical JSON. @param {any} value */
export async function digestOf(value) {
  return `sha256:${await sha256(platform.encode(canonical(value)))}`
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

const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'

/** The bytes of a text in Base64. Engines of older phones have no `atob`. @param {any} text */
export function fromBase64(text) {
  if (typeof text !== 'string' || !/^[A-Za-z0-9+/]*=*$/.test(text)) throw new IntegrityError('a text is not base64')
  const digits = text.replace(/=+$/, '')
  const bytes = new Uint8Array(Math.floor((digits.length * 3) / 4))
  for (let at = 0, bits = 0, count = 0, end = 0; at < digits.length; at++) {
    bits = ((bits << 6) | DIGITS.indexOf(digits[at])) & 0xffff
    count += 6
    if (count >= 8) bytes[end++] = (bits >> (count -= 8)) & 0xff
  }
  return bytes
}
