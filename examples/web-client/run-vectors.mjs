/**
 * Runs the vectors of `docs/resolve.md`, `docs/query.md`, `docs/delta.md` and `docs/rollouts.md`: node run-vectors.mjs [DIRECTORY]
 *
 * DIRECTORY has `where.json`, `history.json`, `resolve/*.json` and `delta/*.json`; by default that of this repository. Exits with 1 if one fails.
 */

import assert from 'node:assert/strict'
import { readdir, readFile } from 'node:fs/promises'

import { sha256 } from './blobs.mjs'
import { planRoutes } from './choose.mjs'
import { applyDelta } from './delta.mjs'
import { readNeeds } from './operators.mjs'
import { resolve } from './resolve.mjs'
import { admits } from './rollout.mjs'
import { checkContinues, readIndex } from './state.mjs'
import { IntegrityError, RegError } from './values.mjs'
import { ExpressionError, parse } from './where.mjs'

/** @typedef {import('./values.mjs').Json} Json */

const directory = new URL(process.argv[2] ? `file://${process.argv[2]}/` : '../../tests/vectors/', import.meta.url)

let passed = 0
let failed = 0

/** @param {string} name @param {() => void | Promise<void>} test */
async function check(name, test) {
  try {
    await test()
    passed++
  } catch (error) {
    failed++
    console.error(`FAILED ${name}\n${error instanceof Error ? error.message : error}\n`)
  }
}

/** @param {string} path */
async function load(path) {
  return JSON.parse(await readFile(new URL(path, directory), 'utf-8'))
}

/** The result of the code, in the shape of a vector's `expect`. @param {Json} document @param {Json} vector */
async function answer(document, vector) {
  try {
    const { tag, query, device, seed = null } = vector
    const operatorSet = async (/** @type {string} */ digest) => readNeeds(document.operator_sets[digest])
    const found = await resolve(document.states[vector.state], { tag, query, device, seed }, operatorSet)
    return { ...found, artifact: found.artifact?.path ?? null }
  } catch (error) {
    if (error instanceof RegError) return { error: error.family }
    throw error
  }
}

/** @param {string} expression */
function spanOf(expression) {
  try {
    parse(expression)
  } catch (error) {
    if (error instanceof ExpressionError) return error.span
    throw error
  }
  return null
}

for (const file of (await readdir(new URL('resolve/', directory))).sort()) {
  const document = await load(`resolve/${file}`)
  for (const vector of document.vectors) {
    await check(`${file}: ${vector.name}`, async () => {
      const found = /** @type {Json} */ (await answer(document, vector))
      const keys = Object.keys(vector.expect)
      assert.deepEqual(Object.fromEntries(keys.map((key) => [key, found[key]])), vector.expect)
    })
  }
}

const where = await load('where.json')
for (const expression of where.true) {
  await check(`true: ${expression}`, () => {
    assert.equal(parse(expression)(where.candidate), true)
    assert.equal(parse(`not (${expression})`)(where.candidate), false)
  })
}
for (const expression of where.unknown) {
  await check(`unknown: ${expression}`, () => {
    for (const candidate of [where.candidate, {}]) {
      assert.equal(parse(expression)(candidate), false)
      assert.equal(parse(`not ${expression}`)(candidate), true)
    }
  })
}
for (const { expression, span } of where.errors) {
  await check(`error: ${expression}`, () => assert.deepEqual(spanOf(expression), span))
}

const rollout = await load('rollout.json')
for (const { in: expected, seed, ...admission } of rollout.admissions) {
  await check(`rollout: ${seed} at ${admission.percent} %`, async () =>
    assert.equal(await admits(admission, seed, null), expected))
}
for (const { where: cohort, device, error, in: expected } of rollout.cohorts) {
  await check(`cohort: ${cohort}`, async () => {
    const outcome = admits({ salt: '0', percent: 100, where: cohort }, '0'.repeat(64), device)
    assert.equal(await outcome.catch((failure) => failure.family ?? failure), error ?? expected)
  })
}
for (const vector of rollout.vectors) {
  await check(`rollout: ${vector.name}`, async () => {
    const found = /** @type {Json} */ (await answer(rollout, vector))
    const keys = Object.keys(vector.expect)
    assert.deepEqual(Object.fromEntries(keys.map((key) => [key, found[key]])), vector.expect)
  })
}

const history = await load('history.json')
const documents = async (/** @type {string} */ digest) => new TextEncoder().encode(history.documents[digest])
for (const { name, after, error } of history.vectors) {
  await check(`history: ${name}`, async () => {
    const [seen, index] = [history.before, after].map((text) => new TextEncoder().encode(text))
    const { state } = await readIndex(seen, 'acme/pii')
    const outcome = readIndex(index, 'acme/pii').then((found) => checkContinues(state, found, documents))
    assert.equal(await outcome.then(() => null, (failure) => failure.family ?? failure), error)
  })
}

/** The bytes that a vector's delta makes, by the header of the delta itself. @param {Json} vector */
async function applied(vector) {
  const [delta, ...old] = [vector.delta, ...vector.old].map((text) => new Uint8Array(Buffer.from(text, 'base64')))
  const size = delta.length >= 12 ? new DataView(delta.buffer, delta.byteOffset).getUint32(8, true) : 0
  let header = { new: { digest: '' }, old: [] }
  try {
    header = JSON.parse(Buffer.from(delta.subarray(12, 12 + size)).toString())
  } catch {
    // the delta itself is what is tested
  }
  const expected = { digest: header.new.digest, old: header.old.map((/** @type {Json} */ file) => file.digest) }
  const readOld = async (/** @type {number} */ source, /** @type {number} */ offset, /** @type {number} */ length) =>
    old[source].slice(offset, offset + length)
  const parts = []
  for await (const part of applyDelta(inChunks(delta), expected, readOld)) parts.push(part)
  const bytes = new Uint8Array(Buffer.concat(parts))
  if (`sha256:${await sha256(bytes)}` !== expected.digest) throw new IntegrityError('other bytes')
  return Buffer.from(bytes).toString('base64')
}

/** @param {Uint8Array} bytes */
function* inChunks(bytes) {
  for (let at = 0; at < bytes.length; at += 7) yield bytes.subarray(at, at + 7)
}

for (const vector of (await load('delta/apply.json')).vectors) {
  await check(`delta: ${vector.name}`, async () => {
    if ('new' in vector) assert.equal(await applied(vector), vector.new)
    else await assert.rejects(applied(vector), IntegrityError)
  })
}
for (const { name, sizes, present, deltas, rate, apply_rate: applyRate, routes } of (await load('delta/choose.json')).vectors) {
  await check(`choose: ${name}`, () => {
    const found = planRoutes({ sizes, present: new Set(present), deltas, rate, applyRate })
    const taken = [...found].map(([file, route]) => [file, route.deltas.map(({ delta }) => delta)])
    assert.deepEqual(Object.fromEntries(taken), routes)
  })
}

console.log(`${passed} passed, ${failed} failed`)
process.exitCode = failed ? 1 : 0
