/**
 * Check that a state changed only as the new lines of the log say. `docs/format.md` has the events.
 *
 * A client compares a new state with the last seen one. Channels must be where the lines moved them. A version may differ only
 * if a line is about it. A yank stays unless a line takes it back, and verdicts stay.
 */

import { canonical, digestOf, picked } from './documents.mjs'
import { IntegrityError } from './values.mjs'

/** @typedef {import('./values.mjs').Json} Json */
/**
 * A line of the log, and its digest.
 * @typedef {{seq: number, prev: string, head: string, event: Json, sig?: string, via?: Json}} Line
 */

export const CHANNEL = ['version', 'manifest', 'seq', 'policy', 'evidence']
export const ENTRY = ['manifest', 'size', 'seq', 'yanks', 'pinned', 'gone', 'held', 'attested']
const ROLLOUT = ['to', 'manifest', 'percent', 'salt', 'where', 'seq', 'policy', 'evidence']

/**
 * Throw IntegrityError if a state differs from the last seen one by more than the changes of the lines since then.
 * @param {Json} seen
 * @param {Json} state
 * @param {Line[]} lines those after the last one seen
 */
export async function checkChanges(seen, state, lines) {
  checkChannels(seen, state, lines)
  checkRollouts(seen, state, lines)
  checkVersions(seen, state, lines)
  await checkYanks(seen, state, lines)
  checkVerdicts(state, lines)
}

/** @param {Json} seen @param {Json} state @param {Line[]} lines */
function checkChannels(seen, state, lines) {
  const expected = { ...seen.channels }
  for (const { seq, event } of lines) {
    if (event.kind === 'untag') delete expected[event.tag]
    if (event.kind === 'tag') expected[event.tag] = { ...event, seq }
  }
  if (!isSame(expected, state.channels, CHANNEL)) {
    throw new IntegrityError(`a channel of ${state.name} was moved without an event in the log`)
  }
}

/** @param {Json} seen @param {Json} state @param {Line[]} lines */
function checkRollouts(seen, state, lines) {
  /** @type {Json} */
  const expected = { ...seen.rollouts }
  for (const { seq, event } of lines) {
    if (['tag', 'untag'].includes(event.kind) || (event.kind === 'rollout' && !event.version)) delete expected[event.tag]
    else if (event.kind === 'rollout') expected[event.tag] = { ...event, to: event.version, seq }
    if (!['yank', 'expire', 'purge', 'drop'].includes(event.kind)) continue
    const [key, ended] = event.kind === 'yank' ? ['manifest', event.manifest] : ['to', event.version]
    for (const tag of Object.keys(expected)) if (expected[tag][key] === ended) delete expected[tag]
  }
  if (!isSame(expected, state.rollouts ?? {}, ROLLOUT)) {
    throw new IntegrityError(`a rollout of ${state.name} is not what its log says`)
  }
}

/** @param {Json} seen @param {Json} state @param {Line[]} lines */
function checkVersions(seen, state, lines) {
  const manifests = new Map(Object.entries(seen.versions).map(([version, entry]) => [version, entry.manifest]))
  const touched = new Set()
  for (const { event } of lines) {
    if (event.kind === 'publish') manifests.set(event.version, event.manifest)
    if (['attest', 'yank', 'unyank'].includes(event.kind)) {
      for (const [version, manifest] of manifests) {
        if ((event.kind !== 'attest' || event.state) && manifest === event.manifest) touched.add(version)
      }
    } else if (event.kind !== 'tag' && !event.optional) touched.add(event.version)
  }
  for (const [version, entry] of Object.entries(state.versions)) {
    const isInvented = !manifests.has(version) && entry.seq > seen.seq
    if (isInvented || (manifests.get(version) ?? entry.manifest) !== entry.manifest) {
      throw new IntegrityError(`${state.name}:${version} is not the version that the log published`)
    }
    const before = seen.versions[version]
    if (before && !touched.has(version) && canonical(picked(before, ENTRY)) !== canonical(picked(entry, ENTRY))) {
      throw new IntegrityError(`${state.name}:${version} was changed without an event in the log`)
    }
  }
}

/**
 * Check that each version has all its yanks: its earlier ones, those of the lines and, if it is new, those of earlier versions
 * with the same manifest. A yank that a line takes back may be missing.
 * @param {Json} seen @param {Json} state @param {Line[]} lines
 */
async function checkYanks(seen, { name, versions }, lines) {
  const published = new Set(), undone = new Set()
  /** @type {Json[]} */
  const yanks = []
  for (const { event } of lines) {
    if (event.kind === 'publish') published.add(event.version)
    if (event.kind === 'unyank') undone.add(event.yank)
    if (event.kind === 'yank') yanks.push({ ...event, id: await digestOf(event) })
  }
  for (const [version, entry] of Object.entries(/** @type {Json} */ (versions))) {
    if (entry.gone?.how === 'dropped') continue
    const earlier = published.has(version) ? Object.values(seen.versions) : [seen.versions[version] ?? {}]
    const expected = [
      ...earlier.filter((item) => item.manifest === entry.manifest).flatMap((item) => item.yanks ?? []),
      ...yanks.filter((yank) => yank.manifest === entry.manifest).map(({ id }) => id),
    ]
    if (expected.some((yank) => !undone.has(yank) && !entry.yanks?.includes(yank))) {
      throw new IntegrityError(`${name}:${version} was yanked, and its state does not say so`)
    }
  }
}

/** @param {Json} state @param {Line[]} lines */
function checkVerdicts({ name, versions, refused = [] }, lines) {
  for (const { seq, event } of lines) {
    if (event.kind !== 'attest' || !event.artifact || !event.state) continue
    const isAhead = event.state === 'refused' && refused.includes(event.artifact)
    for (const [version, entry] of Object.entries(/** @type {Json} */ (versions))) {
      if (entry.gone?.how === 'dropped' || entry.manifest !== event.manifest) continue
      const verdict = entry.attested?.[event.artifact]
      const isMissing = !verdict || (event.state === 'refused' && verdict !== 'refused')
      if (isMissing && !(isAhead && seq < entry.seq)) {
        throw new IntegrityError(`${name}:${version} was evaluated, and its state does not say so`)
      }
    }
  }
}

/** True if two tables have the same rows, and the rows agree in these keys. @param {Json} one @param {Json} other @param {string[]} keys */
function isSame(one, other, keys) {
  return canonical(each(one, (row) => picked(row, keys))) === canonical(each(other, (row) => picked(row, keys)))
}

/** @param {Json} table @param {(item: Json) => Json} change @returns {Json} */
export function each(table, change) {
  return Object.fromEntries(Object.entries(table).map(([key, item]) => [key, change(item)]))
}
