/**
 * Staged rollouts, as specified by `docs/rollouts.md`: each device decides by its own random seed whether it takes part.
 */

import { readDevice } from './device.mjs'
import { sha256 } from './documents.mjs'
import { platform } from './platform.mjs'
import { count, digest, InputError, maybe, object, positive, reader, text, version, written } from './values.mjs'
import { parse } from './where.mjs'

/** @typedef {import('./values.mjs').Json} Json */

const PARTS = 10_000
const SALT = /^[0-9a-f]{32}$/
const SEED = /^[0-9a-f]{64}$/
/** A rollout of a state line. */
export const readRollout = object({
  ...{ to: version, manifest: digest, seq: count, where: maybe(text), salt: written('not a salt', (value) => SALT.test(value)) },
  percent: reader('not a percentage', (value) => positive(value) <= 100),
})

/** The keys of a device document that an expression may test. @type {Record<string, string>} */
const KINDS = {
  name: 'text', ort: 'version', build: 'text', providers: 'list', platform: 'text', abi: 'text', ram: 'size',
  free_space: 'size', locale: 'text', app_version: 'version',
}

/**
 * True if the device with this seed takes part. A device without a seed takes no part.
 * @param {Json} rollout of the state line
 * @param {string | null} seed 64 hex digits, which stay on the device
 * @param {any} device the device document, or null
 */
export async function admits({ salt, percent, where }, seed, device) {
  if (seed === null) return false
  if (!SEED.test(seed)) throw new InputError('a seed is not 64 lower-case hex digits')
  const hash = await sha256(platform.encode(salt + seed))
  if (parseInt(hash.slice(0, 8), 16) * PARTS >= Math.round(percent * 100) * 2 ** 32) return false
  if ((where ?? null) === null) return true
  if (device === null) return false
  const { document } = readDevice(device)
  const ort = `${document.ort}${document.ort.split('.').length === 2 ? '.0' : ''}`
  return parse(where, KINDS)({ build: 'full', providers: ['CPU'], ...document, ort })
}

/** A new seed for this device. */
export function newSeed() {
  return Array.from(platform.random(32), (byte) => byte.toString(16).padStart(2, '0')).join('')
}
