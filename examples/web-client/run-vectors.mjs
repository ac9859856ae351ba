/**
 * Runs the vectors in Node: node run-vectors.mjs [DIRECTORY], by default those of this repository. Exits with 1 if one fails.
 */

import { readdir, readFile } from 'node:fs/promises'

import { runVectors } from './vectors.mjs'

const directory = new URL(process.argv[2] ? `file://${process.argv[2]}/` : '../../tests/vectors/', import.meta.url)
const load = async (/** @type {string} */ path) => JSON.parse(await readFile(new URL(path, directory), 'utf-8'))
const { passed, failures } = await runVectors(load, (await readdir(new URL('resolve/', directory))).sort())
for (const failure of failures) console.error(`FAILED ${failure}\n`)
console.log(`${passed} passed, ${failures.length} failed`)
process.exitCode = failures.length ? 1 : 0
