/**
 * A model's index file, as `docs/format.md` has it: line 1 is the state, then come the latest lines of its log.
 *
 * The lines are hash-chained, and the state names the last line. So a client that remembers the last line notices a registry
 * that goes back or has another history.
 */

import { canonical, decode, picked, sha256 } from './documents.mjs'
import { CHANNEL, checkChanges, each, ENTRY } from './history.mjs'
import { readRollout } from './rollout.mjs'
import { comparable } from './summary.mjs'
import { count, digest, IntegrityError, InputError, list, mapping, maybe, object, positive, table, text, version } from './values.mjs'

/** @typedef {import('./values.mjs').Json} Json */
/** @typedef {import('./history.mjs').Line} Line */

const SEGMENT = 64

/**
 * Read an index file. Throws IntegrityError if its lines do not form a chain that ends in the state's head.
 * @param {Uint8Array} bytes
 * @param {string} name
 */
export async function readIndex(bytes, name) {
  const [first, ...rest] = linesOf(bytes)
  const state = decode(first)
  try {
    readState(state)
  } catch (error) {
    throw error instanceof InputError ? new IntegrityError(`the state of ${name}: ${error.message}`) : error
  }
  if (state.name !== name) throw new IntegrityError(`this is the index file of ${state.name}, not of ${name}`)
  const lines = await withHeads(rest)
  checkChain(lines)
  const last = lines.at(-1)
  if (last?.seq !== state.seq || last?.head !== state.head) {
    throw new IntegrityError(`the index file of ${name}: the state is not that of its last line`)
  }
  return { state, lines }
}

/**
 * Throw IntegrityError if an index file has all lines of its log, but the state is not their result.
 * @param {Json} index its `state` and `lines`
 */
export async function checkFirst({ state, lines }) {
  if (lines[0].seq === 1) await checkChanges({ seq: 0, channels: {}, versions: {} }, state, lines)
}

/**
 * The new lines of a log. Throws IntegrityError if a new state does not continue the last seen one.
 * @param {Json} seen
 * @param {Json} index its `state` and `lines`
 * @param {(digest: string) => Promise<Uint8Array>} document reads a sealed segment of the log
 */
export async function checkContinues(seen, { state, lines }, document) {
  if (state.registry !== seen.registry) {
    throw new IntegrityError(`${state.name}: this is registry ${state.registry}, it was ${seen.registry} before`)
  }
  const known = await linesFrom(seen.seq, state, lines, document)
  if (known.find(({ seq }) => seq === seen.seq)?.head !== seen.head) {
    throw new IntegrityError(`${state.name}: line ${seen.seq} is not the one that was there before`)
  }
  if (state.seq === seen.seq && said(state) !== said(seen)) {
    throw new IntegrityError(`${state.name}: the log is as it was, and its state is not`)
  }
  const fresh = known.filter(({ seq }) => seq > seen.seq)
  await checkChanges(seen, state, fresh)
  return fresh
}

/**
 * The lines from the segment with a line on, or the lines of the index file if no segment has the line.
 * @param {number} seq
 * @param {Json} state
 * @param {Line[]} tail
 * @param {(digest: string) => Promise<Uint8Array>} document
 */
export async function linesFrom(seq, state, tail, document) {
  const segments = state.segments.slice(Math.floor((seq - 1) / SEGMENT))
  const parts = await Promise.all(
    segments.map(async (/** @type {string} */ segment) => withHeads(linesOf(await document(segment)))),
  )
  const lines = [...parts.flat(), ...tail]
  if (lines[0].seq > seq) throw new IntegrityError(`line ${seq} of the log of ${state.name} is not there`)
  checkChain(lines)
  return lines
}

/** @param {Uint8Array} bytes @returns {Uint8Array[]} each without its newline */
function linesOf(bytes) {
  const found = []
  for (let start = 0; start < bytes.length; ) {
    const end = bytes.indexOf(10, start)
    if (end < 0) throw new IntegrityError('the last line of a log has no end')
    found.push(bytes.subarray(start, end))
    start = end + 1
  }
  if (!found.length) throw new IntegrityError('an index file is empty')
  return found
}

/** @param {Uint8Array[]} lines of a log @returns {Promise<Line[]>} */
function withHeads(lines) {
  return Promise.all(lines.map(async (line) => ({ .../** @type {Line} */ (decode(line, 'event')), head: `sha256:${await sha256(line)}` })))
}

/** Throw IntegrityError unless each line names the one before it. @param {Line[]} lines */
function checkChain(lines) {
  for (const [place, { seq, prev }] of lines.entries()) {
    const before = lines[place - 1]
    if (before && (seq !== before.seq + 1 || prev !== before.head)) {
      throw new IntegrityError(`line ${seq} of a log does not follow the one before it`)
    }
  }
}

/**
 * The keys of a state line that every build of onnxreg writes; a newer build may add keys for the same log.
 * @param {Json} state
 */
function said({ registry, name, seq, head, segments, channels, versions, summaries, ...more }) {
  return canonical({
    ...{ registry, name, seq, head, segments },
    channels: each(channels, (channel) => picked(channel, CHANNEL)),
    versions: each(versions, (entry) => picked(entry, ENTRY)),
    summaries: each(summaries, comparable),
    ...{ checkpoint: more.checkpoint ?? null, tombstones: more.tombstones ?? [], refused: more.refused ?? [] },
    rollouts: more.rollouts ?? {},
  })
}

const FILE = { path: text, digest, size: count }
const ARTIFACT = {
  ...{ ...FILE, format: text, precision: text, state: text, member: maybe(text), contract: maybe(digest) },
  ...{ files: maybe(list(object(FILE))), providers: maybe(list(text)), domains: maybe(list(text)), contrib: maybe(list(text)) },
  ...{ recall: maybe(mapping), metrics: maybe(mapping), kv_cache: maybe(object({ bytes_per_token: count, max_tokens: count })) },
}
/** The parts that resolving relies on. */
const readState = object({
  ...{ registry: text, seq: count, head: digest, segments: list(digest) },
  channels: table(object({ version })),
  versions: table(object({ manifest: digest }), version),
  summaries: table(object({ manifest: digest, files: list(object(FILE)), artifacts: list(object(ARTIFACT)) })),
  rollouts: maybe(table(readRollout)),
  speeds: maybe(table(table(list(object({ isa: text, runtime: text, ratio: positive, low: positive }))))),
})
