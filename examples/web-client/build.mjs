/**
 * Builds the package into `dist/`: npm install --no-package-lock && npm run build && npm pack
 *
 * The modules are bundled without comments, with their types beside them. `onnxreg.script.js` is the client as one script
 * with the global `onnxreg`, for hosts without modules such as a JSContext on iOS. The same sources give the same bytes.
 *
 * `node build.mjs try` writes instead, into `build/try`, what `reg serve --try` and `reg site --try` take: the script of
 * the pages, and onnxruntime-web.
 */

import { execFileSync } from 'node:child_process'
import { cpSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'

import { build } from 'esbuild'

const root = import.meta.dirname
const at = (/** @type {string} */ path) => join(root, path)
const names = ['onnxreg', 'benchmark', 'browser-stores', 'directory-store', 'golden-test', 'react-native', 'signatures', 'transformers']
const entries = names.map((name) => at(`${name}.mjs`))
const options = { bundle: true, minify: true, target: 'es2022', legalComments: /** @type {const} */ ('none'), absWorkingDir: root }

const typeScript = (/** @type {string[]} */ ...words) => {
  const strict = ['--allowJs', '--checkJs', '--strict', '--skipLibCheck', '--module', 'nodenext', '--target', 'es2022']
  const library = ['--lib', 'es2024,dom,dom.iterable,dom.asynciterable', '--types', 'node']
  execFileSync(process.execPath, [at('node_modules/typescript/bin/tsc'), ...strict, ...library, ...words], { stdio: 'inherit' })
}

if (process.argv[2] === 'try') {
  const [target, runtime] = [at('build/try'), at('node_modules/onnxruntime-web/dist')]
  rmSync(target, { recursive: true, force: true })
  await build({ ...options, entryPoints: [at('try.mjs')], outdir: target, format: 'esm' })
  for (const backend of ['wasm', 'webgpu']) cpSync(`${runtime}/ort.${backend}.bundle.min.mjs`, `${target}/ort.${backend}.js`)
  for (const kind of ['', '.asyncify']) cpSync(`${runtime}/ort-wasm-simd-threaded${kind}.wasm`, `${target}/ort-wasm-simd-threaded${kind}.wasm`)
  typeScript('--noEmit', at('try.mjs'))
  process.exit()
}
rmSync(at('dist'), { recursive: true, force: true })
await build({ ...options, entryPoints: entries, outdir: at('dist'), format: 'esm', splitting: true, external: ['node:*'] })
await build({ ...options, entryPoints: [entries[0]], outfile: at('dist/onnxreg.script.js'), format: 'iife', globalName: 'onnxreg' })
typeScript('--declaration', '--emitDeclarationOnly', '--outDir', at('dist'), '--rootDir', root, ...entries)
console.log(readdirSync(at('dist')).sort().join('\n'))
