/**
 * A device document, by which an app describes its ONNX Runtime and its phone, turned into tests of artifacts.
 *
 * `docs/resolve.md` is the specification.
 */

import { DOMAIN, problem } from './contrib.mjs'
import { readBuild } from './operators.mjs'
import { figure, given, InputError, list, own, positive, reader, size, text, version } from './values.mjs'

/** @typedef {import('./values.mjs').Json} Json */
/**
 * A requirement on an artifact: `lacks` says in words why it is not met, and returns nothing if it is.
 * @typedef {[code: string, lacks: (artifact: Json, download: number, missing: number) => string | false | null | undefined]} Requirement
 */
/**
 * `document` has the given keys. `requirements` are tested first, then `build`, which reads an artifact's operator set.
 * `isSlow` is true for an artifact that is known to be slower than full precision.
 * @typedef {{document: Json, requirements: Requirement[],
 *   isSlow: (artifact: Json) => boolean, build: import('./operators.mjs').Build | null}} Device
 */

/**
 * A device document (docs/resolve.md, "Device"). A size is a number of bytes or a text such as `4GB`.
 * @typedef {{ort: string, name?: string | null, build?: 'full' | 'minimal' | null, operators?: string | null,
 *   providers?: string[] | null, domains?: string[] | null, ram?: number | string | null,
 *   free_space?: number | string | null, platform?: string | null, abi?: string | null, locale?: string | null,
 *   app_version?: string | null, max_latency_ratio?: number | null}} DeviceDocument
 */
/** The newest opset, IR version and ORT format that a release loads. For a release between two rows, the row before counts. */
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
/** The processor family of each ABI with another name. Names of instruction sets begin with the family. */
const FAMILIES = {
  ...{ 'arm64-v8a': 'arm64', aarch64: 'arm64', arm64e: 'arm64', 'armeabi-v7a': 'arm', armv7l: 'arm' },
  ...{ amd64: 'x86_64', 'x86-64': 'x86_64', x64: 'x86_64', wasm32: 'wasm' },
}
const KEYS = {
  build: reader('not full or minimal', (value) => value === 'full' || value === 'minimal'),
  ...{ name: text, ort: text, operators: text, providers: list(text), domains: list(text), platform: text, abi: text },
  ...{ ram: size, free_space: size, locale: text, app_version: version, max_latency_ratio: positive },
}

/** Read a device document. @param {any} value @param {number | null} [context] tokens of the query @returns {Device} */
export function readDevice(value, context = null) {
  const document = given(value, KEYS, 'a device')
  const { ort = '', build, operators: config, domains = [], providers = ['CPU'], ram = Infinity, free_space: space = Infinity } = document
  const most = document.max_latency_ratio ?? Infinity
  const abi = document.abi?.toLowerCase() ?? null
  const family = own(FAMILIES, abi ?? '') ?? abi
  const release = runtime(ort)
  const loads = `ONNX Runtime ${ort} loads`
  const minimal = build === 'minimal'
  if (minimal !== (config !== undefined)) throw new InputError('operators and a minimal build belong together')
  return {
    document,
    isSlow: (artifact) => speedsOn(family, artifact).some(({ low }) => low > 1),
    build: config === undefined ? null : readBuild(config),
    requirements: [
      ['runtime', ({ format }) => format === 'openvino-ir' && `is ${format}, which is not for ONNX Runtime`],
      ['ort-format', (artifact) => {
        const number = artifact.ort_format
        if (!isOrt(artifact)) return minimal && 'is ONNX, a minimal build loads only ORT format'
        if (number === undefined) return 'is of an ORT format whose number is not recorded'
        const isLoaded = number >= OLDEST_FORMAT && number <= release.format
        return !isLoaded && `is of ORT format ${number}, ${loads} ${OLDEST_FORMAT} to ${release.format}`
      }],
      ['opset', ({ opset = null }) => opset === null ? 'has an opset that is not recorded'
        : opset > release.opset && `has opset ${opset}, ${loads} up to ${release.opset}`],
      ['ir-version', (artifact) => !isOrt(artifact) && artifact.ir_version > release.ir
        && `has ONNX IR version ${artifact.ir_version}, ${loads} up to ${release.ir}`],
      ['domain', (artifact) => {
        const missing = minimal ? [] : (artifact.domains ?? []).filter((/** @type {string} */ name) => ![...BUILT_IN, ...domains].includes(name))
        return missing.length > 0 && `needs operators of ${missing.join(' and ')}`
      }],
      ['provider', (artifact) => {
        const usable = runsOn(artifact)
        return !usable.some((name) => providers.map(provider).includes(provider(name)))
          && `runs on ${usable.join(' and ')}, this build on ${providers.join(' and ') || 'nothing'}`
      }],
      ['ram', ({ size: main, files = [], kv_cache: cache }) => { // weights must fit at least, and the keys and values of a decoder
        const external = files.filter((/** @type {Json} */ file) => file.role === 'external-data')
        const weights = external.reduce((/** @type {number} */ sum, /** @type {Json} */ file) => sum + file.size, main)
        const tokens = context ?? cache?.max_tokens
        const bytes = weights + (cache ? cache.bytes_per_token * tokens : 0)
        const parts = cache ? `: ${weights} of weights, and ${cache.bytes_per_token} for each of ${tokens} tokens` : ''
        return bytes > ram && `has ${bytes} bytes to hold in ${ram} bytes of memory${parts}`
      }],
      ['space', (_, download, missing) => missing > space && `needs ${missing} bytes of ${space} that are free`],
      ['latency', (artifact) => { // the largest ratio that was measured counts
        const speeds = speedsOn(family, artifact)
        if (!speeds.length && artifact.precision !== 'float32') return most < Infinity && 'has no measured latency on such a device'
        const ratio = Math.max(...(speeds.length ? speeds.map((speed) => speed.ratio) : [1]))
        return ratio > most && `takes ${figure(ratio, 3)} times as long as full precision, at most ${figure(most)} is wanted`
      }],
      ['contrib', ({ format, contrib = [], domains: needed }) => { // the table is of the CPU
        if (format === 'webgpu') return null
        return needed?.includes(DOMAIN) && !contrib.length ? 'has contrib operators that are not recorded' : problem(contrib, ort)
      }],
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

/** The formats and opsets that a release such as 1.23.2 loads. @param {string} written */
function runtime(written) {
  if (!/^[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,4})?$/.test(written)) throw new InputError(`not a release of ONNX Runtime: ${written.slice(0, 40)}`)
  const [major, minor] = written.split('.').map(Number)
  const known = RELEASES.filter((release) => major > 1 || (major === 1 && release.minor <= minor)).at(-1)
  if (!known) throw new InputError(`ONNX Runtime ${major}.${minor} is older than 1.15, the oldest known here`)
  return known
}

/** @param {Json} artifact */
function isOrt(artifact) {
  return own(artifact, 'ort_format') !== undefined || ['ort', 'ort-android'].includes(artifact.format)
}

/**
 * The providers that run an artifact. Every artifact except a `webgpu` one also runs on the CPU.
 * @param {Json} artifact
 * @returns {string[]}
 */
function runsOn({ format, providers = [] }) {
  if (format !== 'webgpu') return ['CPU', ...providers]
  return providers.length ? providers : ['WebGPU']
}

/** One name for the names of a provider: `NnapiExecutionProvider` is `NNAPI`, and WASM is the CPU. @param {string} name */
function provider(name) {
  const short = name.toLowerCase().replace(/executionprovider$/, '')
  return short === 'wasm' ? 'cpu' : short
}
