/**
 * The golden vectors of a release, run in the app's own ONNX Runtime (docs/golden.md): does this device compute the same?
 *
 *     import * as ort from 'onnxruntime-web'   // or onnxruntime-node, onnxruntime-react-native
 *     await registry.update('acme/pii', question, { selfTest: goldenTest(registry, ort) })
 */

import { platform } from './platform.mjs'

/** @import { Registry, Release } from './onnxreg.mjs' */
/** @typedef {{Tensor: new (type: any, data: any, dims: number[]) => any, InferenceSession: {create: (model: any, options?: any) => any}}} Runtime */
/** @typedef {{dtype: string, shape: number[], data: any[], atol?: number, rtol?: number}} Tensor */

/** For each type whose values are not plain numbers, the function that makes its array. @type {Record<string, (data: any[]) => any>} */
const ARRAYS = {
  bool: (data) => Uint8Array.from(data, Number),
  int8: (data) => Int8Array.from(data),
  uint8: (data) => Uint8Array.from(data),
  int32: (data) => Int32Array.from(data),
  int64: (data) => BigInt64Array.from(data, BigInt),
  float16: (data) => Uint16Array.from(data, halfOf),
  float32: (data) => Float32Array.from(data),
  float64: (data) => Float64Array.from(data),
}

/**
 * A self-test for `update`: true if every output of every case is within its tolerances. An artifact without golden vectors
 * passes if it loads.
 * @param {Registry} registry
 * @param {Runtime} ort the module of the runtime
 * @param {{session?: any, open?: (release: Release) => Promise<any>}} [options] `session`: options of the session; `open`
 *   makes the session, for a runtime that takes a path or external data
 * @returns {(release: Release) => Promise<boolean>}
 */
export function goldenTest(registry, ort, { session: settings, open } = {}) {
  return async (release) => {
    const file = release.files.find(({ role }) => role === 'golden')
    const session = await (open ? open(release) : ort.InferenceSession.create(await registry.read(release, release.artifact.path), settings))
    try {
      const cases = file ? JSON.parse(platform.decode(await registry.read(release, file.path))).cases : []
      for (const each of cases) if (!(await passes(ort, session, each))) return false
      return true
    } finally {
      await session.release?.()
    }
  }
}

/** @param {Runtime} ort @param {any} session @param {{inputs: Record<string, Tensor>, outputs: Record<string, Tensor>}} golden */
async function passes(ort, session, { inputs, outputs }) {
  const feeds = Object.entries(inputs).map(([name, { dtype, shape, data }]) => [name, new ort.Tensor(dtype, ARRAYS[dtype](data), shape)])
  const results = await session.run(Object.fromEntries(feeds))
  return Object.entries(outputs).every(([name, expected]) => results[name] && isClose(results[name], expected))
}

/** @param {{dims: readonly number[], data: any, type: string}} result @param {Tensor} expected */
function isClose({ dims, data, type }, { shape, data: wanted, atol = 0, rtol = 0 }) {
  const isBits = type === 'float16' && data instanceof Uint16Array
  const value = (/** @type {number} */ place) => (isBits ? numberOf(data[place]) : Number(data[place]))
  const isNear = (/** @type {any} */ number, /** @type {number} */ place) =>
    Math.abs(value(place) - Number(number)) <= atol + rtol * Math.abs(Number(number))
  return dims.length === shape.length && dims.every((size, axis) => size === shape[axis]) && wanted.every(isNear)
}

/** The number of a float16 by its bits. @param {number} bits */
function numberOf(bits) {
  const [sign, exponent, fraction] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023]
  if (exponent === 31) return fraction ? NaN : sign * Infinity
  return sign * (exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction)
}

/** The bits of a float16 with this value, which golden vectors hold exactly. @param {number} value */
function halfOf(value) {
  const size = Math.abs(value)
  const exponent = Math.max(-14, Math.floor(Math.log2(size || 2 ** -24)))
  const fraction = Math.round(size * 2 ** (10 - exponent))
  return (value < 0 || Object.is(value, -0) ? 0x8000 : 0) + ((exponent + 14) << 10) + fraction
}
