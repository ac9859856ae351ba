/**
 * A model's index file, as `docs/format.md` has it: line 1 is the state, then come the latest lines of its log.
 *
 * The lines are hash-chained and the state names the last one, so a client that remembers the last line it saw notices
 * a registry that goes back, or has another history.
 */

import { canonical, decode, picked, sha256 } from './documents.mjs'
import { CHANNEL, checkChanges, each, ENTRY } from './history.mjs'
import { readRollout } from './rollout.mjs'
import { comparable } from './summary.mjs'
import { count, digest, IntegrityError, InputError, items, mapping, positive, text, version } from './values.mjs'

/** @typedef {import('./values.mjs').Json} Json */
/** @typedef {import('./history.mjs').Line} Line */

const SEGMENT = 64

/**
 * Read an index file. Throws IntegrityError if its lines do not form a chain that ends in the state's head.
 * @param {Uint8Array} bytes
 * @param {string} name
 * @returns {Promise<{state: Json, lines: Line[]}>}
 */
export async function readIndex(bytes, name) {
  const [first, ...rest] = linesOf(bytes)
  const state = readState(decode(first), name)
  const lines = await chain(rest)
  const last = lines.at(-1)
  if (last?.seq !== state.seq || last?.head !== state.head) {
    throw new IntegrityError(`the index file of ${name}: the state is not that of its last line`)
  }
  return { state, lines }
}

/**
 * Throw IntegrityError if a first state is not the result of its lines, when these are all there are.
 * @param {Json} index its `state` and `lines`
 */
export async function checkFirst({ state, lines }) {
  if (lines[0].seq === 1) await checkChanges({ seq: 0, channels: {}, versions: {} }, state, lines)
}

/**
 * The lines of a log after those that were seen. Throws IntegrityError if a new state does not continue the last one seen.
 * @param {Json} seen
 * @param {Json} index its `state` and `lines`
 * @param {(digest: string) => Promise<Uint8Array>} document reads a sealed segment of the log
 * @returns {Promise<Line[]>}
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
 * The lines from the segment of a line on; if that is not sealed, those of the index file.
 * @param {number} seq
 * @param {Json} state
 * @param {Line[]} tail
 * @param {(digest: string) => Promise<Uint8Array>} document
 */
export async function linesFrom(seq, state, tail, document) {
  const segments = state.segments.slice(Math.floor((seq - 1) / SEGMENT))
  const parts = await Promise.all(
    segments.map(async (/** @type {string} */ segment) => chain(linesOf(await document(segment)))),
  )
  const lines = [...parts.flat(), ...tail]
  if (lines[0].seq > seq) throw new IntegrityError(`line ${seq} of the log of ${state.name} is not there`)
  lines.reduce((before, line) => {
    if (line.seq !== before.seq + 1 || line.prev !== before.head) {
      throw new IntegrityError(`line ${line.seq} of a log does not follow the one before it`)
    }
    return line
  })
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

/**
 * The lines of a log, each of which names the one before it.
 * @param {Uint8Array[]} lines
 * @returns {Promise<Line[]>}
 */
async function chain(lines) {
  /** @type {Line[]} */
  const found = []
  for (const line of lines) {
    const value = /** @type {Line} */ (decode(line, 'event'))
    const { seq, prev } = value
    const before = found.at(-1)
    if (before && (seq !== before.seq + 1 || prev !== before.head)) {
      throw new IntegrityError(`line ${seq} of a log does not follow the one before it`)
    }
    found.push({ ...value, head: `sha256:${await sha256(line)}` })
  }
  return found
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

/** Check the parts that resolving relies on. @param {Json} state @param {string} name */
function readState(state, name) {
  try {
    text(state.registry)
    count(state.seq)
    digest(state.head)
    items(state.segments, digest)
    Object.values(mapping(state.channels)).forEach((channel) => version(channel.version))
    Object.entries(mapping(state.versions)).forEach(([tag, entry]) => version(tag) && digest(entry.manifest))
    Object.values(mapping(state.summaries)).forEach(readSummary)
    Object.values(mapping(state.rollouts ?? {})).forEach(readRollout)
    Object.values(mapping(state.speeds ?? {})).forEach((table) =>
      Object.values(mapping(table)).forEach((speeds) => items(speeds, readSpeed)))
  } catch (error) {
    throw error instanceof InputError ? new IntegrityError(`the state of ${name}: ${error.message}`) : error
  }
  if (state.name !== name) throw new IntegrityError(`this is the index file of ${state.name}, not of ${name}`)
  return state
}

/** @param {any} value */
function readSummary(value) {
  const { manifest, artifacts, files } = mapping(value)
  digest(manifest)
  items(files, readFile)
  for (const artifact of items(artifacts, readFile)) {
    ;[artifact.format, artifact.precision, artifact.state].forEach(text)
    items(artifact.files ?? [], readFile)
    items(artifact.providers ?? [], text)
    items(artifact.domains ?? [], text)
    items(artifact.contrib ?? [], text)
    mapping(artifact.recall ?? {})
    mapping(artifact.metrics ?? {})
    text(artifact.member ?? '')
    readCache(artifact.kv_cache ?? { bytes_per_token: 0, max_tokens: 0 })
    digest(artifact.contract ?? `sha256:${'0'.repeat(64)}`)
  }
}

/** @param {any} value */
function readSpeed(value) {
  const { isa, runtime, ratio, low } = mapping(value)
  ;[isa, runtime].forEach(text)
  ;[ratio, low].forEach(positive)
}

/** @param {any} value */
function readCache(value) {
  const { bytes_per_token, max_tokens } = mapping(value)
  ;[bytes_per_token, max_tokens].forEach(count)
}

/** @param {any} value */
function readFile(value) {
  const found = mapping(value)
  text(found.path)
  digest(found.digest)
  count(found.size)
  return found
}
