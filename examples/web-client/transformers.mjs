/**
 * Let Transformers.js read its models from a registry. `pipeline()` gets the artifact for this device.
 *
 *     import { env, pipeline } from '@huggingface/transformers'
 *     serveTransformers(env, registry, { query: { certified: true }, device: preset('ort-web-1.30') })
 *     const tag = await pipeline('token-classification', 'acme/pii', { revision: 'stable' })
 *
 * After `Registry.update`, the client's store answers all requests of the library for files of a model, also offline. Whichever
 * precision the library requests, it gets the resolved artifact. This module uses `env.customCache` and `env.fetch` of the
 * library, version 4.
 */

import { NotFoundError } from './values.mjs'

/** @import { Registry, Release } from './onnxreg.mjs' */
/** @typedef {import('./values.mjs').Json} Json */

/** Nobody answers at this address (RFC 6761); each request is answered here. */
export const HOST = 'https://registry.invalid/'
const REQUEST = /^\/([a-z0-9._-]+(?:\/[a-z0-9._-]+)?)\/resolve\/([^/]+)\/(.+)$/

/**
 * Let Transformers.js load from a registry.
 * @param {Json} env of the library
 * @param {Registry} registry
 * @param {Pick<import('./onnxreg.mjs').Question, 'query' | 'device'>} [question]
 * @param {import('./onnxreg.mjs').Options} [options] of each update
 */
export function serveTransformers(env, registry, question = {}, options = {}) {
  /** @type {Map<string, Promise<Release>>} */
  const releases = new Map()
  const before = env.fetch ?? globalThis.fetch
  Object.assign(env, { remoteHost: HOST, remotePathTemplate: '{model}/resolve/{revision}/' })
  Object.assign(env, { allowLocalModels: false, useBrowserCache: false, useFSCache: false, useCustomCache: true })

  /** The release of a model, updated once while the page lives. @param {string} name @param {string} revision */
  const releaseOf = (name, revision) => {
    const key = `${name}:${revision}`
    const asked = { ...question, tag: revision === 'main' ? null : revision }
    const release = releases.get(key) ?? registry.update(name, asked, options).then((update) => update.release)
    releases.set(key, release)
    release.catch(() => releases.delete(key))
    return release
  }

  /** The answer to a request of the library; null if it is not about a model. @param {any} address @param {any} [init] */
  const answer = async (address, init) => {
    const { href, pathname } = new URL(address, HOST)
    const request = href.startsWith(HOST) && REQUEST.exec(decodeURIComponent(pathname))
    if (!request) return null
    const release = await releaseOf(request[1], request[2])
    const file = fileFor(release, request[3])
    if (!file) return new Response(null, { status: 404, statusText: 'Not Found' })
    return respond(await registry.read(release, file), new Headers(init?.headers).get('Range'), file)
  }

  env.fetch = async (/** @type {any} */ address, /** @type {any} */ init) => (await answer(address, init)) ?? before(address, init)
  env.customCache = {
    match: async (/** @type {any} */ address) => {
      const found = await answer(address)
      return found?.ok ? found : undefined
    },
    put: async () => {},
  }
}

/**
 * The path of the requested file. Any precision of a graph means the artifact, and other files have their names. Null for
 * another graph, such as the decoder of a model if the artifact is the encoder.
 * @param {Release} release
 * @param {string} path
 */
export function fileFor({ artifact, files }, path) {
  const graph = /^(?:onnx\/)?([^/]+)\.onnx$/.exec(path)
  if (graph) return ['model', stem(artifact.path)].includes(stem(graph[1])) ? artifact.path : null
  const folder = artifact.path.slice(0, artifact.path.lastIndexOf('/') + 1)
  const name = path.replace(/^onnx\//, '')
  const exact = [path, folder + name, name].find((candidate) => files.some((file) => file.path === candidate))
  const companion = files.find((file) => ['config', 'tokenizer', 'labels'].includes(file.role) && file.path.endsWith(`/${name}`))
  return exact ?? companion?.path ?? null
}

/** The name of a graph without its folder, its suffix and the type of its weights. @param {string} path */
function stem(path) {
  const name = path.slice(path.lastIndexOf('/') + 1).replace(/\.(onnx|ort)$/, '')
  return name.replace(/_(fp32|fp16|bf16|int8|uint8|int4|quantized|q[1248](f16)?|uint8f16|bnb4)$/, '')
}

/** @param {Uint8Array} bytes @param {string | null} range @param {string} path */
function respond(bytes, range, path) {
  const type = path.endsWith('.json') ? 'application/json' : 'application/octet-stream'
  const limits = /^bytes=(\d+)-(\d+)$/.exec(range ?? '')
  if (!limits) return new Response(/** @type {BodyInit} */ (bytes), { headers: { 'Content-Type': type, 'Content-Length': `${bytes.length}` } })
  const [start, end] = [Number(limits[1]), Math.min(Number(limits[2]), bytes.length - 1)]
  if (start > end) throw new NotFoundError(`${path} has no such range`)
  const headers = { 'Content-Type': type, 'Content-Range': `bytes ${start}-${end}/${bytes.length}` }
  return new Response(/** @type {BodyInit} */ (bytes.subarray(start, end + 1)), { status: 206, headers })
}
