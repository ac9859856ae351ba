/**
 * The store of a client: bytes by key. `directory-store.mjs` has one for Node.
 *
 * A store promises that a value is complete or absent, even if the program ends during `put`, and that it stays until `delete`.
 * A store may lose all values at once, for example if a browser clears its sites. Then everything is fetched again.
 */

/**
 * @typedef {object} Store
 * @property {(key: string) => Promise<Uint8Array | undefined>} get
 * @property {(key: string, bytes: Uint8Array) => Promise<void>} put
 * @property {(key: string) => Promise<void>} delete deleting a missing key is allowed
 * @property {(prefix: string) => Promise<string[]>} keys in order
 */

/** A store that ends with the program. @returns {Store} */
export function memoryStore() {
  /** @type {Map<string, Uint8Array>} */
  const held = new Map()
  return {
    get: async (key) => held.get(key),
    put: async (key, bytes) => void held.set(key, bytes.slice()),
    delete: async (key) => void held.delete(key),
    keys: async (prefix) => [...held.keys()].filter((key) => key.startsWith(prefix)).sort(),
  }
}

/**
 * A store in a browser's IndexedDB. Because IndexedDB reads slowly, a piece that was just stored is kept in memory. Other
 * values are not, because another tab may replace them.
 * @param {string} name @returns {Store}
 */
export function browserStore(name) {
  /** @type {Map<string, WeakRef<Uint8Array>>} */
  const recent = new Map()
  /** @type {Promise<IDBDatabase> | undefined} */
  let opened
  const open = () => (opened ??= new Promise((done, failed) => {
    const request = indexedDB.open(name, 1)
    request.onupgradeneeded = () => request.result.createObjectStore('bytes')
    request.onsuccess = () => done(request.result)
    request.onerror = () => failed(request.error)
  }))

  /**
   * @template T
   * @param {IDBTransactionMode} mode
   * @param {(held: IDBObjectStore) => IDBRequest<T>} act
   * @returns {Promise<T>}
   */
  const act = async (mode, act) => {
    const transaction = (await open()).transaction('bytes', mode)
    const request = act(transaction.objectStore('bytes'))
    return new Promise((done, failed) => {
      transaction.oncomplete = () => done(request.result)
      transaction.onabort = transaction.onerror = () => failed(transaction.error ?? request.error)
    })
  }
  return {
    get: async (key) => recent.get(key)?.deref()?.slice() ?? act('readonly', (held) => held.get(key)),
    put: async (key, bytes) => {
      await act('readwrite', (held) => held.put(bytes.slice(), key))
      if (key.startsWith('piece/')) recent.set(key, new WeakRef(bytes))
    },
    delete: async (key) => {
      recent.delete(key)
      await act('readwrite', (held) => held.delete(key))
    },
    keys: async (prefix) => {
      const found = await act('readonly', (held) => held.getAllKeys(IDBKeyRange.bound(prefix, `${prefix}\uffff`)))
      return found.map(String)
    },
  }
}
