/**
 * Two more stores of a browser, beside IndexedDB: its private file system (OPFS), and the Cache API.
 *
 * `opfsStore` is the faster one for large models; a worker and a page share it. Both clear with the site's data.
 */

/** @typedef {import('./stores.mjs').Store} Store */

/** A store in the origin's private file system. A file appears only when it is closed, so it is complete. @param {string} name @returns {Store} */
export function opfsStore(name) {
  /** @type {Promise<FileSystemDirectoryHandle> | undefined} */
  let opened
  const directory = () =>
    (opened ??= navigator.storage.getDirectory().then((root) => root.getDirectoryHandle(name, { create: true })))
  return {
    get: async (key) => {
      const handle = await (await directory()).getFileHandle(encodeURIComponent(key)).catch(absent)
      return handle && new Uint8Array(await (await handle.getFile()).arrayBuffer())
    },
    put: async (key, bytes) => {
      const handle = await (await directory()).getFileHandle(encodeURIComponent(key), { create: true })
      const file = await handle.createWritable()
      await file.write(/** @type {BufferSource} */ (bytes))
      await file.close()
    },
    delete: async (key) => void (await (await directory()).removeEntry(encodeURIComponent(key)).catch(absent)),
    keys: async (prefix) => {
      const found = []
      for await (const [entry, handle] of (await directory()).entries()) {
        const isWhole = handle.kind === 'file' && !entry.endsWith('.crswap') // Chromium's name of a file that is being written
        if (isWhole && decodeURIComponent(entry).startsWith(prefix)) found.push(decodeURIComponent(entry))
      }
      return found.sort()
    },
  }
}

/** A store in the Cache API, which service workers share with their pages. @param {string} name @returns {Store} */
export function cacheStore(name) {
  const address = (/** @type {string} */ key) => new URL(`/${encodeURIComponent(key)}`, 'https://store.invalid')
  return {
    get: async (key) => {
      const found = await (await caches.open(name)).match(address(key))
      return found && new Uint8Array(await found.arrayBuffer())
    },
    put: async (key, bytes) => (await caches.open(name)).put(address(key), new Response(/** @type {BodyInit} */ (bytes))),
    delete: async (key) => void (await (await caches.open(name)).delete(address(key))),
    keys: async (prefix) => {
      const requests = await (await caches.open(name)).keys()
      return requests.map(({ url }) => decodeURIComponent(new URL(url).pathname.slice(1))).filter((key) => key.startsWith(prefix)).sort()
    },
  }
}

/** @param {DOMException} error */
function absent(error) {
  if (error.name === 'NotFoundError') return undefined
  throw error
}
