/**
 * Builds one script for Hermes, the engine of React Native: `node hermes.mjs TOOLS CLIENT VECTORS REGISTRY OUTPUT`.
 *
 * The client is bundled, and rewritten by Babel as every app of React Native is. The script carries its files, since Hermes's own
 * shell reads none; it prints the results of the vectors, and of an update.
 */

import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { relative } from 'node:path'

const [tools, client, vectors, registry, output] = process.argv.slice(2)
const { build } = createRequire(`${tools}/`)('esbuild')
const { transformSync } = createRequire(`${tools}/`)('@babel/core')

/** @param {string} root @param {BufferEncoding} encoding */
const filesOf = (root, encoding) =>
  Object.fromEntries(
    readdirSync(root, { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => `${entry.parentPath}/${entry.name}`)
      .map((path) => [relative(root, path), readFileSync(path, encoding)]),
  )

const PROGRAM = `
import { Registry, usePlatform } from '${client}/onnxreg.mjs'
import { fileStore, reactNative } from '${client}/react-native.mjs'
import { runVectors } from '${client}/vectors.mjs'
import { sha256 } from '@noble/hashes/sha2.js'
import { inflateRaw } from 'pako'

const bytesOf = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (digits) => parseInt(digits, 16))
const answer = (status, bytes, fields = {}) => ({
  status, headers: { get: (name) => fields[name.toLowerCase()] ?? null }, arrayBuffer: async () => bytes.slice().buffer,
})
const fetch = async (url, { headers }) => {
  const hex = REGISTRY[url.replace('https://registry.example/', '')]
  if (hex === undefined) return answer(404, new Uint8Array())
  const range = /^bytes=(\\d+)-(\\d+)$/.exec(headers.Range ?? '')
  return range ? answer(206, bytesOf(hex).slice(Number(range[1]), Number(range[2]) + 1)) : answer(200, bytesOf(hex))
}
const held = new Map()
const files = {
  read: async (name) => held.get(name), append: async (name, bytes) => void held.set(name, bytes.slice()),
  move: async (from, to) => void (held.set(to, held.get(from)), held.delete(from)),
  remove: async (name) => void held.delete(name), names: async () => [...held.keys()],
}
const run = async () => {
  usePlatform(reactNative({ sha256, inflateRaw, random: (count) => new Uint8Array(count) }))
  usePlatform({ now: () => Date.now(), wait: async () => {}, fetch })
  const { passed, failures } = await runVectors((path) => JSON.parse(VECTORS[path]), NAMES)
  const registry = new Registry('https://registry.example', fileStore(files))
  const { release, changed } = await registry.update('acme/pii', { device: { ort: '1.30' } })
  const { length } = await registry.read(release, release.artifact.path)
  print(JSON.stringify({ passed, failures: failures.map((failure) => failure.split('\\n')[0]), version: release.version, changed, length }))
}
run().catch((error) => print(error.stack))`
const LACKS = `// What Hermes has since React Native 0.70, and this build lacks.
Array.prototype.at = function (place) { return this[place < 0 ? this.length + place : place] }
Promise.allSettled = function (all) { return Promise.all(all.map(function (each) {
  return each.then(function (value) { return { status: 'fulfilled', value: value } }, function (reason) { return { status: 'rejected', reason: reason } })
})) }`

const bundled = await build({
  stdin: { contents: PROGRAM, resolveDir: tools, loader: 'js' },
  ...{ bundle: true, write: false, format: 'iife', target: 'es2022', nodePaths: [`${tools}/node_modules`] },
})
const exclude = ['transform-exponentiation-operator', 'transform-regenerator', 'transform-typeof-symbol'] // Hermes has them
const presets = [[`${tools}/node_modules/@babel/preset-env`, { targets: 'ie 11', modules: false, exclude }]]
const { code } = transformSync(bundled.outputFiles[0].text, { configFile: false, compact: false, presets })
const data = { VECTORS: filesOf(vectors, 'utf8'), REGISTRY: filesOf(registry, 'hex'), NAMES: readdirSync(`${vectors}/resolve`).sort() }
const carried = Object.entries(data).map(([name, value]) => `var ${name} = ${JSON.stringify(value)}`)
writeFileSync(output, [LACKS, ...carried, code].join('\n'))
