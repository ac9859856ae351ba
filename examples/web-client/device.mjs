/**
 * A device: an app's description of its ONNX Runtime and its phone, as tests of artifacts.
 *
 * `docs/resolve.md` is the specification. A test returns a code if an artifact does not meet it, otherwise null.
 */

import { DOMAIN, meets } from './contrib.mjs'
import { readBuild } from './operators.mjs'
import { InputError, items, mapping, optional, own, positive, size, text, version } from './values.mjs'

/** @typedef {import('./values.mjs').Json} Json */
/** @typedef {(artifact: Json, download: number) => boolean} Meets */
/** @typedef {[code: string, meets: Meets]} Requirement */
/**
 * `build` is tested after the requirements: it reads an artifact's operator set.
 * `isSlow` says that an artifact is known to be slower than full precision. `ram` and `space` are bytes, or null. The requirements are those for a context of so many tokens, null for the longest.
 * @typedef {{ram: number | null, space: number | null, requirements: Requirement[],
 *   isSlow: (artifact: Json) => boolean,   build: import('./operators.mjs').Build | null}} Device
 */

/**
 * What a device is (docs/resolve.md, "Device"); a size is a number of bytes or a text such as `4GB`.
 * @typedef {{ort: string, name?: string | null, build?: 'full' | 'minimal' | null, operators?: string | null,
 *   providers?: string[] | null, domains?: string[] | null, ram?: number | string | null,
 *   free_space?: number | string | null, platform?: string | null, abi?: string | null, locale?: string | null,
 *   app_version?: string | null, max_latency_ratio?: number | null}} DeviceDocument
 */
/** The newest opset, IR version and ORT format that a release loads; a release between two rows is as the one before. */
const RELEASES = [
  { minor: 15, opset: 19, ir: 9, format: 5 },
  { minor: 16, opset: 19, ir: 9, format: 6 },
  { minor: 17, opset: 20, ir: 9, format: 6 },
  { minor: 18, opset: 21, ir: 10, format: 6 },
  { minor: 21, opset: 22, ir: 10, format: 6 },
  { minor: 23, opset: 23, ir: 11, format: 6 },
  { minor: 24, opset: 25, ir: 13, format: 6 },
  { minor: 25, opset: 26, ir: 13, format: 6 },
]
const OLDEST_FORMAT = 5
const BUILT_IN = ['ai.onnx', 'ai.onnx.ml', DOMAIN]
/** The family of processors, as instruction sets begin with it, of an ABI with another name. */
const FAMILIES = {
  ...{ 'arm64-v8a': 'arm64', aarch64: 'arm64', arm64e: 'arm64', 'armeabi-v7a': 'arm', armv7l: 'arm' },
  ...{ amd64: 'x86_64', 'x86-64': 'x86_64', x64: 'x86_64', wasm32: 'wasm' },
}
const KEYS = [
  ...['name', 'ort', 'build', 'operators', 'providers', 'domains'],
  ...['platform', 'abi', 'ram', 'free_space', 'locale', 'app_version', 'max_latency_ratio'],
]

/** Read a device document. @param {any} value @param {number | null} [context] tokens of the query @returns {Device} */
export function readDevice(value, context = null) {
  const found = mapping(value)
  const unknown = Object.keys(found).find((key) => !KEYS.includes(key))
  if (unknown !== undefined) throw new InputError(`a device has no ${unknown.slice(0, 40)}`)
  for (const key of ['name', 'platform', 'locale']) optional(found, key, text, null)
  optional(found, 'app_version', version, null)
  const number = releaseNumber(optional(found, 'ort', text, ''))
  const release = runtime(number)
  const minimal = optional(found, 'build', build, 'full') === 'minimal'
  const config = optional(found, 'operators', text, null)
  if (minimal !== (config !== null)) throw new InputError('operators and a minimal build belong together')
  const domains = [...BUILT_IN, ...optional(found, 'domains', texts, [])]
  const providers = optional(found, 'providers', texts, ['CPU']).map(provider)
  const ram = optional(found, 'ram', size, Infinity)
  const space = optional(found, 'free_space', size, Infinity)
  const most = optional(found, 'max_latency_ratio', positive, Infinity)
  const abi = optional(found, 'abi', text, null)?.toLowerCase() ?? null
  const family = own(FAMILIES, abi ?? '') ?? abi
  return {
    ram: ram === Infinity ? null : ram,
    space: space === Infinity ? null : space,
    isSlow: (artifact) => speedsOn(family, artifact).some(({ low }) => low > 1),
    build: config === null ? null : readBuild(config),
    requirements: [
      ['runtime', (artifact) => artifact.format !== 'openvino-ir'],
      ['ort-format', (artifact) => (isOrt(artifact) ? loads(artifact.ort_format, release.format) : !minimal)],
      ['opset', (artifact) => (artifact.opset ?? Infinity) <= release.opset],
      ['ir-version', (artifact) => isOrt(artifact) || (artifact.ir_version ?? 0) <= release.ir],
      ['domain', (artifact) => minimal || all(artifact.domains, (name) => domains.includes(name))],
      ['provider', (artifact) => runsOn(artifact).some((name) => providers.includes(provider(name)))],
      ['ram', (artifact) => weights(artifact) + cache(artifact, context) <= ram],
      ['space', (_, download) => download <= space],
      ['latency', (artifact) => latency(family, artifact) <= most],
      ['contrib', (artifact) => runsContrib(artifact, number)],
    ],
  }
}

/**
 * The speeds of an artifact that were measured with ONNX Runtime on processors of a family, null for any.
 * @param {string | null} family
 * @param {Json} artifact
 * @returns {Json[]}
 */
function speedsOn(family, { speeds = [] }) {
  return speeds.filter(
    (/** @type {Json} */ { isa, runtime }) => runtime.startsWith('onnxruntime') && [null, isa.split('+')[0]].includes(family),
  )
}

/** The largest measured ratio to the latency in full precision; Infinity if none is known. @param {string | null} family @param {Json} artifact */
function latency(family, artifact) {
  const ratios = speedsOn(family, artifact).map(({ ratio }) => ratio)
  return ratios.length ? Math.max(...ratios) : artifact.precision === 'float32' ? 1 : Infinity
}

/**
 * True if a release runs the contrib operators of an artifact; what is not recorded is not proven. The table is of the
 * CPU: formats for another provider are not looked at.
 * @param {Json} artifact
 * @param {[major: number, minor: number]} release
 */
function runsContrib({ format, contrib = [], domains }, release) {
  if (format === 'webgpu') return true
  return meets(contrib, release) && (contrib.length > 0 || !domains?.includes(DOMAIN))
}

/** @param {string[] | undefined} names @param {(name: string) => boolean} test */
function all(names, test) {
  return (names ?? []).every(test)
}

/** @param {any} value */
function build(value) {
  if (value !== 'full' && value !== 'minimal') throw new InputError('write full or minimal')
  return value
}

/** @param {any} value */
function texts(value) {
  return items(value, text)
}

/** The major and minor number of a release such as 1.23.2. @param {string} written @returns {[number, number]} */
function releaseNumber(written) {
  const found = /^([0-9]{1,4})\.([0-9]{1,4})(?:\.[0-9]{1,4})?$/.exec(written)
  if (!found) throw new InputError(`not a release of ONNX Runtime: ${written.slice(0, 40)}`)
  return [Number(found[1]), Number(found[2])]
}

/** The formats and opsets that a release loads. @param {[major: number, minor: number]} release */
function runtime([major, minor]) {
  const known = RELEASES.filter((release) => major > 1 || (major === 1 && release.minor <= minor)).at(-1)
  if (!known) throw new InputError(`ONNX Runtime ${major}.${minor} is older than 1.15, the oldest known here`)
  return known
}

/** @param {Json} artifact */
function isOrt(artifact) {
  return own(artifact, 'ort_format') !== undefined || ['ort', 'ort-android'].includes(artifact.format)
}

/** @param {number | undefined} number @param {number} newest */
function loads(number, newest) {
  return number !== undefined && number >= OLDEST_FORMAT && number <= newest
}

/**
 * Whatever else an artifact was made for, it runs on the CPU too; only `webgpu` ones do not.
 * @param {Json} artifact
 * @returns {string[]}
 */
function runsOn({ format, providers = [] }) {
  if (format !== 'webgpu') return ['CPU', ...providers]
  return providers.length ? providers : ['WebGPU']
}

/** `NnapiExecutionProvider` and `NNAPI` are one, WASM is the CPU. @param {string} name */
function provider(name) {
  const short = name.toLowerCase().replace(/executionprovider$/, '')
  return short === 'wasm' ? 'cpu' : short
}

/** Bytes that must fit into memory at least. @param {Json} artifact */
function weights({ size: main, files = [] }) {
  const external = files.filter((/** @type {Json} */ file) => file.role === 'external-data')
  return external.reduce((/** @type {number} */ sum, /** @type {Json} */ file) => sum + file.size, main)
}

/** Bytes of the keys and values of a decoder. @param {Json} artifact @param {number | null} context */
function cache({ kv_cache: cached }, context) {
  return cached ? cached.bytes_per_token * (context ?? cached.max_tokens) : 0
}
