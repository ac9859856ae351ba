/** A store in a directory, for Node: each key a file, which appears by a rename and so is whole. */

import { randomBytes } from 'node:crypto'
import { mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises'
import { join } from 'node:path'

/** @param {string} root created if missing @returns {import('./stores.mjs').Store} */
export function directoryStore(root) {
  const path = (/** @type {string} */ key) => join(root, encodeURIComponent(key))
  return {
    get: (key) => readFile(path(key)).catch(absent),
    put: async (key, bytes) => {
      await mkdir(root, { recursive: true })
      const fresh = join(root, `${TEMPORARY}${randomBytes(8).toString('hex')}`)
      const file = await open(fresh, 'wx')
      await file.writeFile(bytes)
      await file.sync()
      await file.close()
      await rename(fresh, path(key))
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

/** @param {NodeJS.ErrnoException} error */
function absent(error) {
  if (error.code === 'ENOENT') return undefined
  throw error
}
