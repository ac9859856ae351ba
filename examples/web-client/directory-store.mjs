/** A store in a directory, for Node: each key a file, which appears by a rename and so is whole. */

import { randomBytes } from 'node:crypto'
import { mkdir, open, readdir, readFile, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'

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
      const fresh = join(root, `${TEMPORARY}${randomBytes(8).toString('hex')}`)
      try {
        await write(fresh, bytes)
        await rename(fresh, path(key))
      } catch (error) {
        await rm(fresh, { force: true })
        throw error
      }
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

/** @param {string} fresh @param {Uint8Array} bytes */
async function write(fresh, bytes) {
  const file = await open(fresh, 'wx')
  try {
    await file.writeFile(bytes)
    await file.sync()
  } finally {
    await file.close()
  }
}

/** Delete what programs that were killed left half written. @param {string} root */
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
