/**
 * The vectors of `docs/resolve.md`, `docs/query.md`, `docs/delta.md`, `docs/format.md` and `docs/rollouts.md`, for any host.
 *
 * `run-vectors.mjs` runs them in Node, `tests/examples/jsc_shell.mjs` in JavaScriptCore.
 */

import { applyDelta } from './delta.mjs'
import { canonical, concat, fromBase64, sha256 } from './documents.mjs'
import { Registry, SelfTestError } from './onnxreg.mjs'
import { readNeeds } from './operators.mjs'
import { platform } from './platform.mjs'
import { resolve } from './resolve.mjs'
import { admits } from './rollout.mjs'
import { decide, undone, withdrawals } from './slot.mjs'
import { checkContinues, readIndex } from './state.mjs'
import { memoryStore } from './stores.mjs'
import { chooseDeltas } from './updates.mjs'
import { IntegrityError, RegError } from './values.mjs'
import { ExpressionError, parse } from './where.mjs'

/** @typedef {import('./values.mjs').Json} Json */

/**
 * Run all vectors; returns how many passed, and a message for each that failed.
 * @param {(path: string) => Promise<Json> | Json} load reads a JSON file by its path in `tests/vectors`
 * @param {string[]} resolveFiles the names of the files in `resolve/`
 */
export async function runVectors(load, resolveFiles) {
  let passed = 0
  /** @type {string[]} */
  const failures = []

  /** @param {string} name @param {() => void | Promise<void>} test */
  async function check(name, test) {
    try {
      await test()
      passed++
    } catch (error) {
      failures.push(`${name}\n${error instanceof Error ? error.message : error}`)
    }
  }

  for (const file of [...resolveFiles.map((name) => `resolve/${name}`), 'rollout.json']) {
    const document = await load(file)
    for (const vector of document.vectors) {
      await check(`${file}: ${vector.name}`, async () => {
        const found = /** @type {Json} */ (await answer(document, vector))
        const keys = Object.keys(vector.expect)
        equal(Object.fromEntries(keys.map((key) => [key, found[key]])), vector.expect)
      })
    }
  }

  const where = await load('where.json')
  for (const expression of where.true) {
    await check(`true: ${expression}`, () => {
      equal(parse(expression)(where.candidate), true)
      equal(parse(`not (${expression})`)(where.candidate), false)
    })
  }
  for (const expression of where.unknown) {
    await check(`unknown: ${expression}`, () => {
      for (const candidate of [where.candidate, {}]) {
        equal(parse(expression)(candidate), false)
        equal(parse(`not ${expression}`)(candidate), true)
      }
    })
  }
  for (const { expression, span } of where.errors) {
    await check(`error: ${expression}`, () => equal(spanOf(expression), span))
  }

  const rollout = await load('rollout.json')
  for (const { in: expected, seed, ...admission } of rollout.admissions) {
    await check(`rollout: ${seed} at ${admission.percent} %`, async () =>
      equal(await admits(admission, seed, null), expected))
  }
  for (const { where: cohort, device, error, in: expected } of rollout.cohorts) {
    await check(`cohort: ${cohort}`, async () => {
      const outcome = admits({ salt: '0', percent: 100, where: cohort }, '0'.repeat(64), device)
      equal(await outcome.catch((failure) => failure.family ?? failure), error ?? expected)
    })
  }

  const history = await load('history.json')
  const documents = async (/** @type {string} */ digest) => platform.encode(history.documents[digest])
  for (const { name, after, error } of history.vectors) {
    await check(`history: ${name}`, async () => {
      const [seen, index] = [history.before, after].map((text) => platform.encode(text))
      const { state } = await readIndex(seen, 'acme/pii')
      const outcome = readIndex(index, 'acme/pii').then((found) => checkContinues(state, found, documents))
      equal(await outcome.then(() => null, (failure) => failure.family ?? failure), error)
    })
    if (error || name === 'nothing') continue
    await check(`history, an edge that is behind: ${name}`, async () => {
      const [old, seen] = await Promise.all([history.before, after].map((text) => readIndex(platform.encode(text), 'acme/pii')))
      await checkContinues(old.state, seen, documents)
    })
  }

  const device = await load('device.json')
  for (const { name, state, question, slot, withdrawn, expect } of device.updates) {
    await check(`update: ${name}`, async () => {
      const ask = (/** @type {Json} */ asked) => resolve(device.states[state], { ...asked, failed: slot.failed })
      const { version, artifact, stays, leaves, error } = await decide(slot, question, ask, async () => withdrawn)
      if (artifact) equal({ version, artifact: artifact.path }, expect)
      else equal({ ...(stays && { stays }), ...(leaves && { leaves }), ...(!stays && { error: error?.family ?? 'not-found' }) }, expect)
    })
  }
  for (const { name, slot, withdrawn, expect } of device.rollbacks) {
    await check(`rollback: ${name}`, async () => {
      const outcome = Promise.resolve().then(() => undone('acme/pii', slot, withdrawn))
      const found = await outcome.then(
        ({ current, previous, failed }) => ({ current: previous || current?.version, failed }),
        (error) => ({ error: error.family ?? error }),
      )
      equal(found, expect)
    })
  }
  for (const { name, before, rollouts, lines, expect } of device.withdrawals) {
    await check(`withdrawn: ${name}`, () => equal(withdrawals(before, rollouts, lines), expect))
  }

  const behaviour = await load('behaviour.json')
  for (const { name, steps } of behaviour.vectors) {
    await check(`behaviour: ${name}`, async () => {
      const store = memoryStore()
      for (const step of steps) {
        const registry = new Registry('https://models.invalid', store, { delays: [], fetch: serving(behaviour, step) })
        const found = await behaved(registry, step)
        equal(Object.fromEntries(Object.keys(step.expect).map((key) => [key, found[key]])), step.expect)
      }
    })
  }

  for (const vector of (await load('delta/apply.json')).vectors) {
    await check(`delta: ${vector.name}`, async () => {
      const outcome = applied(vector).then((bytes) => [...bytes], (error) => error instanceof IntegrityError || error)
      equal(await outcome, 'new' in vector ? [...fromBase64(vector.new)] : true)
    })
  }
  for (const { name, sizes, present, deltas, chosen } of (await load('delta/choose.json')).vectors) {
    await check(`choose: ${name}`, () => {
      const found = chooseDeltas(deltas, sizes, new Set(present))
      equal(Object.fromEntries([...found].map(([file, { delta }]) => [file, delta])), chosen)
    })
  }
  return { passed, failures }
}

/** The result of the code, in the shape of a vector's `expect`. @param {Json} document @param {Json} vector */
async function answer(document, vector) {
  try {
    const { tag, query, device, seed = null } = vector
    const operatorSet = async (/** @type {string} */ digest) => readNeeds(document.operator_sets[digest])
    const found = await resolve(document.states[vector.state], { tag, query, device, seed }, operatorSet)
    const rejected = found.rejected.map(({ detail, ...each }) => (detail ? each : { ...each, detail }))
    return { ...found, artifact: found.artifact?.path ?? null, rejected }
  } catch (error) {
    if (error instanceof RegError) return { error: error.family }
    throw error
  }
}

/** What the server of a step answers. @param {Json} behaviour @param {Json} step @returns {any} */
function serving({ trees, documents }, { tree, cached = tree, fault }) {
  return async (/** @type {string} */ url) => {
    if (fault === 'down') throw new TypeError('no network')
    const [, path] = /^https:..models.invalid.([^?]*)/.exec(url) ?? []
    const blob = path?.startsWith('blobs/') && fault !== 'absent' ? documents[path.split('/')[3]] : undefined
    const text = path === 'registry.json' ? trees[tree].registry : path === 'index/acme/pii.jsonl' ? trees[url.includes('?') ? tree : cached].index : blob
    const bytes = Uint8Array.from(text ?? '', (letter) => letter.charCodeAt(0))
    if (fault === 'garbled' && text === blob && bytes.length) bytes[0] ^= 1
    return { status: text === undefined ? 404 : 200, headers: { get: () => null }, arrayBuffer: async () => bytes.buffer }
  }
}

/** The answer to a step, in the shape of its `expect`; every file of the releases that are kept is read. @param {Registry} registry @param {Json} step */
async function behaved(registry, { call, question, bad = [], throws }) {
  /** @type {string[]} */
  const ran = []
  const selfTest = (/** @type {import('./onnxreg.mjs').Release} */ { version, artifact }) => {
    ran.push(artifact.path)
    if (throws) throw new Error('the model cannot be loaded')
    return !bad.includes(version) && !bad.includes(artifact.path)
  }
  /** @type {Record<string, () => Promise<Json>>} */
  const calls = {
    update: () => registry.update('acme/pii', question, { selfTest }).then(({ release, ...more }) => ({ ...release, ...more })),
    resolve: () => registry.resolve('acme/pii', question),
    rollback: () => registry.rollback('acme/pii'),
    clear: async () => (await registry.clearRefusals('acme/pii')) ?? {},
  }
  /** @type {Json} */
  const found = await calls[call]().catch((error) => {
    if (!(error instanceof RegError)) throw error
    return { error: error instanceof SelfTestError ? 'self-test' : error.family }
  })
  const { current, previous } = await registry.slot('acme/pii')
  for (const release of [current, previous]) for (const { path } of release?.files ?? []) await registry.read(/** @type {any} */ (release), path)
  return /** @type {Json} */ ({ ...found, artifact: found.artifact?.path, codes: found.rejected?.map((/** @type {Json} */ { code }) => code), ran, current: current?.version ?? null, previous: previous?.version ?? null })
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

/** The bytes that a vector's delta makes, by the header of the delta itself. @param {Json} vector */
async function applied(vector) {
  const [delta, ...old] = [vector.delta, ...vector.old].map((text) => fromBase64(text))
  const size = delta.length >= 12 ? new DataView(delta.buffer, delta.byteOffset).getUint32(8, true) : 0
  let header = { new: { digest: '' }, old: [] }
  try {
    header = JSON.parse(platform.decode(delta.subarray(12, 12 + size)))
  } catch {
    // the delta itself is what is tested
  }
  const expected = { digest: header.new.digest, old: header.old.map((/** @type {Json} */ file) => file.digest) }
  const readOld = async (/** @type {number} */ source, /** @type {number} */ offset, /** @type {number} */ length) =>
    old[source].slice(offset, offset + length)
  const parts = []
  for await (const part of applyDelta(delta, expected, readOld)) parts.push(part)
  const bytes = concat(parts)
  if (`sha256:${await sha256(bytes)}` !== expected.digest) throw new IntegrityError('other bytes')
  return bytes
}

/** Throw an error unless two JSON values are the same. @param {any} found @param {any} expected */
function equal(found, expected) {
  const [left, right] = [found, expected].map(canonical)
  if (left !== right) throw new Error(`${left}\nis not\n${right}`)
}
