/** For Node: a store in a directory with a complete file for each key, releases as files, and a faster `fetch`. */

import { randomBytes } from 'node:crypto'
import { mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises'
import http from 'node:http'
import https from 'node:https'
import { dirname, join } from 'node:path'
import { pipeline } from 'node:stream'
import { createGunzip } from 'node:zlib'

import { inside } from './values.mjs'

/** @typedef {import('./onnxreg.mjs').Release} Release */

/** @param {string} root created if missing @returns {import('./stores.mjs').Store} */
export function directoryStore(root) {
  const path = (/** @type {string} */ key) => join(root, encodeURIComponent(key))
  /** @type {Promise<void> | undefined} */
  let swept
  return {
    get: (key) => readFile(path(key)).catch(absent),
    put: async (key, bytes) => {
      await mkdir(root, { recursive: true })
      await (swept ??= sweep(root).catch(() => undefined)) // another program may hold one open
      await write(path(key), root, [bytes])
    },
    delete: (key) => rm(path(key), { force: true }),
    keys: async (prefix) => {
      const names = (await readdir(root).catch(absent)) ?? []
      const keys = names.filter((name) => !name.startsWith(TEMPORARY)).map(decodeURIComponent)
      return keys.filter((key) => key.startsWith(prefix)).sort()
    },
  }
}

const TEMPORARY = '%tmp-'
const MAX_TEMPORARY_MS = 3_600_000

/**
 * Copy a file of a release to its own path below a directory, and return where it is. The copy is verified, and complete or
 * absent. Use it for a runtime that takes a path, and for files that exceed the memory.
 * @param {import('./onnxreg.mjs').Registry} registry @param {Release} release @param {string} path @param {string} directory
 */
export async function file(registry, release, path, directory) {
  const target = join(directory, inside(path))
  await mkdir(dirname(target), { recursive: true })
  await write(target, dirname(target), registry.parts(release, path))
  return target
}

/**
 * Copy every file of a release, such as external data. Returns the path of the artifact.
 * @param {import('./onnxreg.mjs').Registry} registry @param {Release} release @param {string} directory
 */
export async function extract(registry, release, directory) {
  for (const { path } of release.files) await file(registry, release, path, directory)
  return join(directory, release.artifact.path)
}

/**
 * A `fetch` that needs half of the processor time of Node's `fetch`: `new Registry(url, store, { fetch: nodeFetch })`.
 * @param {any} address
 * @param {any} [init]
 * @returns {Promise<any>}
 */
export async function nodeFetch(address, { headers = {}, signal } = {}) {
  const { Authorization, ...others } = headers
  const first = new URL(address)
  for (let [url, left] = [first, 5]; left > 0; left--) {
    const sent = url.origin === first.origin ? headers : others
    /** @type {http.IncomingMessage} */
    const response = await new Promise((done, failed) => {
      ;(url.protocol === 'https:' ? https : http).get(url, { headers: sent, signal }, done).on('error', failed)
    })
    const { statusCode: status, headers: found } = response
    if (found.location && [301, 302, 303, 307, 308].includes(status ?? 0)) {
      response.resume()
      url = new URL(found.location, url)
      if (first.protocol === 'https:' && url.protocol !== 'https:') throw new TypeError('redirected to a place that is not private')
      continue
    }
    const body = found['content-encoding'] === 'gzip' ? pipeline(response, createGunzip(), () => undefined) : response
    const parts = body[Symbol.asyncIterator]()
    const reader = { read: () => parts.next(), cancel: async () => void response.destroy() }
    const get = (/** @type {string} */ name) => found[name.toLowerCase()] ?? null
    return { status, headers: { get }, body: { getReader: () => reader } }
  }
  throw new TypeError('redirected too often')
}

/**
 * Write a file that is complete or absent.
 * @param {string} target @param {string} directory for the file on its way
 * @param {Iterable<Uint8Array> | AsyncIterable<Uint8Array>} parts
 */
async function write(target, directory, parts) {
  const fresh = join(directory, `${TEMPORARY}${randomBytes(8).toString('hex')}`)
  try {
    const file = await open(fresh, 'wx')
    try {
      for await (const part of parts) await file.writeFile(part)
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(fresh, target)
  } catch (error) {
    await rm(fresh, { force: true })
    throw error
  }
}

/** Delete the unfinished files of killed programs. @param {string} root */
async function sweep(root) {
  for (const name of await readdir(root)) {
    if (!name.startsWith(TEMPORARY)) continue
    const state = await stat(join(root, name)).catch(absent)
    if (state && Date.now() - state.mtimeMs > MAX_TEMPORARY_MS) await rm(join(root, name), { force: true })
  }
}

/** @param {NodeJS.ErrnoException} error */
function absent(error) {
  if (error.code === 'ENOENT') return undefined
  throw error
}
