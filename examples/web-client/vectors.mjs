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
import { parse } from './where.mjs'

/** @typedef {import('./values.mjs').Json} Json */

/** @typedef {[name: string, find: () => any, expected: any]} Case what `find` returns is to be equal */

/**
 * Run all vectors; returns how many passed, and a message for each that failed.
 * @param {(path: string) => Promise<Json> | Json} load reads a JSON file by its path in `tests/vectors`
 * @param {string[]} resolveFiles the names of the files in `resolve/`
 */
export async function runVectors(load, resolveFiles) {
  let passed = 0
  /** @type {string[]} */
  const failures = []
  for await (const [name, find, expected] of cases(load, resolveFiles)) {
    try {
      const [left, right] = [await find(), expected].map(canonical)
      if (left !== right) throw new Error(`${left}\nis not\n${right}`)
      passed++
    } catch (error) {
      failures.push(`${name}\n${error instanceof Error ? error.message : error}`)
    }
  }
  return { passed, failures }
}

/** @param {(path: string) => Promise<Json> | Json} load @param {string[]} resolveFiles @returns {AsyncGenerator<Case>} */
async function* cases(load, resolveFiles) {
  for (const file of [...resolveFiles.map((name) => `resolve/${name}`), 'rollout.json']) {
    const document = await load(file)
    for (const vector of document.vectors) {
      yield [`${file}: ${vector.name}`, async () => asExpected(await answer(document, vector).catch(failed), vector.expect), vector.expect]
    }
  }

  const { candidate, ...where } = await load('where.json')
  for (const expression of where.true) {
    yield [`true: ${expression}`, () => [expression, `not (${expression})`].map((each) => parse(each)(candidate)), [true, false]]
  }
  for (const expression of where.unknown) {
    const found = () => [candidate, {}].flatMap((each) => [parse(expression)(each), parse(`not ${expression}`)(each)])
    yield [`unknown: ${expression}`, found, [false, true, false, true]]
  }
  for (const { expression, span } of where.errors) {
    const find = async () => parse(expression)
    yield [`error: ${expression}`, () => find().then(() => null, (error) => error.span), span]
  }

  const rollout = await load('rollout.json')
  for (const { in: expected, seed, ...admission } of rollout.admissions) {
    yield [`rollout: ${seed} at ${admission.percent} %`, () => admits(admission, seed, null), expected]
  }
  for (const { where: cohort, device, error, in: expected } of rollout.cohorts) {
    const find = () => admits({ salt: '0', percent: 100, where: cohort }, '0'.repeat(64), device).catch(failed)
    yield [`cohort: ${cohort}`, find, error ? { error } : expected]
  }

  const history = await load('history.json')
  const documents = async (/** @type {string} */ digest) => platform.encode(history.documents[digest])
  for (const { name, after, error } of history.vectors) {
    const read = (/** @type {string} */ text) => readIndex(platform.encode(text), 'acme/pii')
    const continues = async () => checkContinues((await read(history.before)).state, await read(after), documents)
    yield [`history: ${name}`, () => continues().then(() => null, failed), error ? { error } : null]
  }

  const device = await load('device.json')
  for (const { name, state, question, slot, withdrawn, expect } of device.updates) {
    const ask = (/** @type {Json} */ asked) => resolve(device.states[state], { ...asked, failed: slot.failed })
    yield [`update: ${name}`, async () => {
      const { version, artifact, stays, leaves, error } = await decide(slot, question, ask, async () => withdrawn)
      if (artifact) return { version, artifact: artifact.path }
      return { ...(stays && { stays }), ...(leaves && { leaves }), ...(!stays && { error: error?.family ?? 'not-found' }) }
    }, expect]
  }
  for (const { name, slot, withdrawn, expect } of device.rollbacks) {
    const find = async () => undone('acme/pii', slot, withdrawn)
    const shown = (/** @type {Json} */ { current, previous, failed }) => ({ current: previous || current?.version, failed })
    yield [`rollback: ${name}`, () => find().then(shown, failed), expect]
  }
  for (const { name, before, rollouts, lines, expect } of device.withdrawals) {
    yield [`withdrawn: ${name}`, () => withdrawals(before, rollouts, lines), expect]
  }

  const behaviour = await load('behaviour.json')
  for (const { name, steps } of behaviour.vectors) {
    yield [`behaviour: ${name}`, async () => {
      const store = memoryStore()
      const found = []
      for (const step of steps) {
        const registry = new Registry('https://models.invalid', store, { delays: [], fetch: serving(behaviour, step) })
        found.push(asExpected(await behaved(registry, step), step.expect))
      }
      return found
    }, steps.map((/** @type {Json} */ { expect }) => expect)]
  }

  for (const vector of (await load('delta/apply.json')).vectors) {
    const find = () => applied(vector).then((bytes) => [...bytes], (error) => error instanceof IntegrityError || error)
    yield [`delta: ${vector.name}`, find, 'new' in vector ? [...fromBase64(vector.new)] : true]
  }
  for (const { name, sizes, present, deltas, chosen } of (await load('delta/choose.json')).vectors) {
    const find = () => Object.fromEntries([...chooseDeltas(deltas, sizes, new Set(present))].map(([file, { delta }]) => [file, delta]))
    yield [`choose: ${name}`, find, chosen]
  }
}

/** The expected keys of an answer. @param {Json} found @param {Json} expect */
function asExpected(found, expect) {
  return Object.fromEntries(Object.keys(expect).map((key) => [key, found[key]]))
}

/** An error as vectors expect it. @param {any} error @returns {Json} */
function failed(error) {
  if (!(error instanceof RegError)) throw error
  return { error: error instanceof SelfTestError ? 'self-test' : error.family }
}

/** The result of the code, in the shape of a vector's `expect`. @param {Json} document @param {Json} vector */
async function answer(document, vector) {
  const { tag, query, device, seed = null } = vector
  const operatorSet = async (/** @type {string} */ digest) => readNeeds(document.operator_sets[digest])
  const found = await resolve(document.states[vector.state], { tag, query, device, seed }, operatorSet)
  const rejected = found.rejected.map(({ detail, ...each }) => (detail ? each : { ...each, detail }))
  return { ...found, artifact: found.artifact?.path ?? null, rejected }
}

/** The answers of a step's server. @param {Json} behaviour @param {Json} step @returns {any} */
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
  const found = await calls[call]().catch(failed)
  const { current, previous } = await registry.slot('acme/pii')
  for (const release of [current, previous]) for (const { path } of release?.files ?? []) await registry.read(/** @type {any} */ (release), path)
  return /** @type {Json} */ ({ ...found, artifact: found.artifact?.path, codes: found.rejected?.map((/** @type {Json} */ { code }) => code), ran, current: current?.version ?? null, previous: previous?.version ?? null })
}

/** The bytes that a vector's delta makes. The expected files are those of the delta's own header. @param {Json} vector */
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
