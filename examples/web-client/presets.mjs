/**
 * The presets of `reg builtin devices`: stock releases of ONNX Runtime, each with its platform and providers.
 *
 * `registry.update(name, { device: preset('ort-web-1.30') })`; more keys describe this device: `{ ...preset(...), ram }`.
 */

import { InputError } from './values.mjs'

/** @typedef {{name: string, ort: string, platform: string, providers: string[]}} Preset */

const [OLDEST, NEWEST] = [16, 31]
/** A package of ONNX Runtime: its platform, its providers, and the minor releases of 1 that it lacks. @type {Record<string, [string, string[], number[]]>} */
const PACKAGES = {
  'ort-android': ['android', ['CPU', 'NNAPI', 'XNNPACK'], []],
  'ort-ios': ['ios', ['CPU', 'CoreML', 'XNNPACK'], [31]],
  'ort-web': ['web', ['CPU'], [28, 31]],
  'ort-webgpu': ['web', ['CPU', 'WebGPU'], [28, 31]],
  'ort-desktop': ['desktop', ['CPU'], []],
}

/** Every preset, the oldest release of a package first. @returns {Preset[]} */
export function presets() {
  return Object.entries(PACKAGES).flatMap(([name, [platform, providers, absent]]) =>
    Array.from({ length: NEWEST - OLDEST + 1 }, (_, index) => OLDEST + index)
      .filter((minor) => !absent.includes(minor))
      .map((minor) => ({ name: `${name}-1.${minor}`, ort: `1.${minor}`, platform, providers })),
  )
}

/** The device document of a preset. @param {string} name @returns {Preset} */
export function preset(name) {
  const found = presets().find((item) => item.name === name)
  if (!found) throw new InputError(`there is no preset ${name}: presets() lists them`)
  return found
}
