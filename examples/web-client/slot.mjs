/**
 * The releases of a model on a device: which one it takes, which one it leaves, and which one it goes back to.
 *
 * A release that was yanked, purged, dropped, or whose rollout was halted, is *withdrawn*: no device goes back to it, and none
 * stays on it. An artifact that failed here is refused by its digest. `docs/resolve.md` specifies both; `device.json` has
 * vectors.
 */

import { NotFoundError, own, WithdrawnError } from './values.mjs'

/** @typedef {import('./values.mjs').Json} Json */
/** @typedef {{version: string, manifest: string, artifact: {digest: string}}} Held */
/** @typedef {{current: Held | null, previous: Held | null, failed: string[]}} Slot */
/** @typedef {[how: string, manifest: string][]} Withdrawn */

/** How an event withdraws a manifest, and whether it begins or ends the withdrawal. @type {Record<string, [how: string, begins?: boolean]>} */
const EVENTS = {
  yank: ['yanked', true], unyank: ['yanked'], purge: ['purged', true], drop: ['dropped', true], publish: ['dropped'], tag: ['halted'],
}

/**
 * The withdrawn manifests after more lines of the log.
 * @param {Withdrawn} before
 * @param {Json} rollouts of the state before these lines
 * @param {import('./history.mjs').Line[]} lines
 */
export function withdrawals(before, rollouts, lines) {
  const found = [...before]
  const trying = { ...rollouts }
  for (const { event } of lines) {
    let { kind, tag, manifest } = event
    let [how, begins] = own(EVENTS, kind) ?? []
    if (kind === 'rollout') {
      ;[how, begins] = ['halted', !manifest]
      manifest ??= trying[tag]?.manifest
      trying[tag] = event
    }
    const place = found.findIndex((each) => each[0] === how && each[1] === manifest)
    if (!begins && place >= 0) found.splice(place, 1)
    else if (how && manifest && begins && (kind === 'yank' || place < 0)) found.push([how, manifest]) // two yanks are undone by two
  }
  return found
}

/** How a release was withdrawn; undefined if it is offered. @param {Withdrawn} withdrawn @param {Held | null} release */
function howWithdrawn(withdrawn, release) {
  return withdrawn.find(([, manifest]) => manifest === release?.manifest)?.[0]
}

/**
 * The answer that a device takes. Without an answer, the device `leaves` its current release if that is withdrawn. It `stays`
 * if the answer failed here or is withdrawn. Otherwise there is an `error`, or nothing fits.
 *
 * A device whose current release is withdrawn asks for the previous one if nothing else answers.
 * @template {{artifact: any, rejected: import('./resolve.mjs').Rejection[]}} T
 * @param {Slot} slot
 * @param {import('./onnxreg.mjs').Question} question
 * @param {(question: import('./onnxreg.mjs').Question) => Promise<T>} ask
 * @param {() => Promise<Withdrawn>} read the releases that are withdrawn, once the question was asked
 * @returns {Promise<T & {stays?: boolean, leaves?: boolean, error?: NotFoundError}>}
 */
export async function decide({ current, previous }, question, ask, read) {
  /** @type {(asked: import('./onnxreg.mjs').Question) => Promise<T & {error?: NotFoundError}>} */
  const tried = (asked) => ask(asked).catch((/** @type {any} */ error) => {
    if (error instanceof NotFoundError) return /** @type {any} */ ({ error })
    throw error
  })
  const found = await tried(question)
  if (found.artifact || !current) return found
  const withdrawn = await read()
  if (!howWithdrawn(withdrawn, current)) {
    return { ...found, stays: found.error instanceof WithdrawnError || found.rejected?.some(({ code }) => code === 'failed') }
  }
  const isOffered = previous && !howWithdrawn(withdrawn, previous)
  const before = isOffered ? await tried({ ...question, tag: previous.version, seed: null }) : found
  return before.artifact ? before : { ...found, leaves: true }
}

/**
 * A slot after its previous release took the place of the current one, which is never taken again.
 * @template {Slot} T
 * @param {string} name
 * @param {T} slot
 * @param {Withdrawn} withdrawn
 * @returns {T}
 */
export function undone(name, slot, withdrawn) {
  const { current, previous } = slot
  if (!current || !previous) throw new NotFoundError(`${name} has no previous release`)
  const how = howWithdrawn(withdrawn, previous)
  if (how) throw new NotFoundError(`${name}:${previous.version} was ${how}`)
  const bad = [current.manifest, current.artifact.digest].filter((digest) => digest !== previous.artifact.digest)
  return { ...refusing(slot, ...bad), current: previous, previous: null }
}

/** @template {Slot} T @param {T} slot @param {string[]} digests @returns {T} */
export function refusing(slot, ...digests) {
  return { ...slot, failed: [...slot.failed.filter((digest) => !digests.includes(digest)), ...digests] }
}
