/**
 * React Native: a store on its file system, and what its engine Hermes lacks.
 *
 *     import * as FileSystem from 'expo-file-system'
 *     import { inflateRaw } from 'pako'
 *
 *     usePlatform(reactNative({ sha256, inflateRaw, random }))
 *     const registry = new Registry(url, fileStore(expoFiles(FileSystem, 'models')))
 */

import { inside } from './values.mjs'

/** @typedef {import('./stores.mjs').Store} Store */
/**
 * The files of one folder. `move` goes to a name that is free, at once.
 * @typedef {object} Files
 * @property {(name: string) => Promise<Uint8Array>} read
 * @property {(name: string, bytes: Uint8Array) => Promise<void>} append a missing file is made, with the folders above it
 * @property {(from: string, to: string) => Promise<void>} move
 * @property {(name: string) => Promise<void>} remove removing a missing file is allowed
 * @property {() => Promise<string[]>} names without the folder: none
 * @property {(name: string) => string} path for a runtime
 */

/**
 * A store of one app. A key is a file `KEY~NUMBER` with `+` for `/`. A new value gets the next number, then the old file is
 * removed, because a phone's file system cannot replace a file by a move.
 * @param {Files} files
 * @returns {Store}
 */
export function fileStore(files) {
  /** @type {Promise<Map<string, number>> | undefined} */
  let opened
  const open = () => (opened ??= numbersOf(files))
  const name = (/** @type {string} */ key, /** @type {number} */ number) => `${key.replaceAll('/', '+')}~${number}`
  let writes = 0
  const inTurn = queue() // two models may share a file, and a value is read while it is replaced
  return {
    get: (key) => inTurn(async () => {
      const number = (await open()).get(key)
      return number === undefined ? undefined : files.read(name(key, number))
    }),
    put: (key, bytes) => inTurn(async () => {
      const numbers = await open()
      const [fresh, before] = [`new-${writes++}`, numbers.get(key) ?? 0]
      await files.append(fresh, bytes)
      await files.move(fresh, name(key, before + 1))
      numbers.set(key, before + 1)
      await files.remove(name(key, before))
    }),
    delete: (key) => inTurn(async () => {
      const numbers = await open()
      await files.remove(name(key, numbers.get(key) ?? 0))
      numbers.delete(key)
    }),
    keys: async (prefix) => [...(await open()).keys()].filter((key) => key.startsWith(prefix)).sort(),
  }
}

/** The newest number of each key. Older files, which a killed app left, are removed. @param {Files} files */
async function numbersOf(files) {
  /** @type {Map<string, number>} */
  const numbers = new Map()
  const found = (await files.names()).map((name) => {
    const [, key, number] = /^(.+)~([1-9][0-9]*)$/.exec(name) ?? [name, '', '0']
    return { name, key: key.replaceAll('+', '/'), number: Number(number) }
  })
  for (const { key, number } of found) if (number > (numbers.get(key) ?? 0)) numbers.set(key, number)
  for (const { name, key, number } of found) if (numbers.get(key) !== number) await files.remove(name)
  return numbers
}

/** A function that runs actions one at a time. @returns {<T>(act: () => Promise<T>) => Promise<T>} */
function queue() {
  /** @type {Promise<unknown>} */
  let last = Promise.resolve()
  return (act) => {
    const done = last.then(act)
    last = done.catch(() => undefined)
    return done
  }
}

const copying = queue()

/**
 * Copy a file of a release to its own path below a folder, and return where it is. The copy is verified, and complete or
 * absent. Files are copied one at a time. Use it for a runtime that takes a path, and for files that exceed the memory.
 * @param {import('./onnxreg.mjs').Registry} registry @param {import('./onnxreg.mjs').Release} release @param {string} path
 * @param {Files} files of a folder of their own: a store keeps no others
 */
export function file(registry, release, path, files) {
  return copying(async () => {
    const fresh = `${inside(path)}.part.` // no file of a release ends in a dot
    await files.remove(fresh)
    try {
      for await (const part of registry.parts(release, path)) await files.append(fresh, part)
      await files.remove(path)
      await files.move(fresh, path)
    } finally {
      await files.remove(fresh)
    }
    return files.path(path)
  })
}

/**
 * A folder by `expo-file-system` (SDK 54 or later), in the app's documents.
 * @param {any} module `import * as FileSystem from 'expo-file-system'`
 * @param {string} folder
 * @returns {Files}
 */
export function expoFiles({ Directory, File, Paths }, folder) {
  const root = new Directory(Paths.document, folder)
  const at = (/** @type {string} */ name) => new File(root, name)
  return {
    read: (name) => at(name).bytes(),
    append: async (name, bytes) => {
      if (!at(name).exists) at(name).create({ intermediates: true })
      const handle = at(name).open()
      try {
        handle.offset = handle.size
        await handle.writeBytes(bytes)
      } finally {
        handle.close()
      }
    },
    move: async (from, to) => at(from).move(at(to)),
    remove: async (name) => {
      if (at(name).exists) at(name).delete()
    },
    path: (name) => decodeURIComponent(at(name).uri.replace('file://', '')),
    names: async () => (root.exists ? root.list().map((/** @type {{name: string}} */ entry) => entry.name) : []),
  }
}

/**
 * A folder by `react-native-fs`, in the app's documents. Bytes cross its bridge as Base64, so `expo-file-system` is faster.
 * @param {any} module `import RNFS from 'react-native-fs'`
 * @param {string} folder
 * @returns {Files}
 */
export function rnfsFiles(module, folder) {
  const root = `${module.DocumentDirectoryPath}/${folder}`
  const path = (/** @type {string} */ name) => `${root}/${name}`
  return {
    read: async (name) => Uint8Array.from(atob(await module.readFile(path(name), 'base64')), (letter) => letter.charCodeAt(0)),
    append: async (name, bytes) => {
      await module.mkdir(path(name).replace(/\/[^/]*$/, ''))
      await module.appendFile(path(name), btoa(latin1(bytes)), 'base64')
    },
    move: (from, to) => module.moveFile(path(from), path(to)),
    remove: async (name) => {
      if (await module.exists(path(name))) await module.unlink(path(name))
    },
    path,
    names: async () => ((await module.exists(root)) ? await module.readDir(root) : []).map((/** @type {{name: string}} */ { name }) => name),
  }
}

/**
 * The platform of `usePlatform`: these functions, and UTF-8, which Hermes lacks.
 * @param {{sha256: (bytes: Uint8Array) => Uint8Array | Promise<Uint8Array>, inflateRaw: (bytes: Uint8Array) => Uint8Array,
 *   random: (count: number) => Uint8Array}} functions such as `sha256` of `@noble/hashes`, `inflateRaw` of `pako`, and
 *   `getRandomBytes` of `expo-crypto`
 * @returns {Partial<import('./platform.mjs').Platform>}
 */
export function reactNative({ sha256, inflateRaw, random }) {
  return {
    sha256,
    random,
    inflate: (bytes) => [inflateRaw(bytes)],
    encode: (text) => {
      const bytes = encodeURIComponent(text).replace(/%([0-9A-F]{2})/g, (_, digits) => String.fromCharCode(parseInt(digits, 16)))
      return Uint8Array.from(bytes, (letter) => letter.charCodeAt(0))
    },
    decode: (bytes) => {
      const escaped = (/** @type {string} */ letter) => `%${letter.charCodeAt(0).toString(16).padStart(2, '0')}`
      return decodeURIComponent(latin1(bytes).replace(/[%\x80-\xff]/g, escaped))
    },
  }
}

/** Each byte as a letter. @param {Uint8Array} bytes */
function latin1(bytes) {
  const parts = []
  for (let start = 0; start < bytes.length; start += 8192) parts.push(String.fromCharCode(...bytes.subarray(start, start + 8192)))
  return parts.join('')
}
