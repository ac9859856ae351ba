/**
 * Choose one artifact by a model's state, as `docs/resolve.md` specifies. `run-vectors.mjs` tests it with the vectors.
 *
 * Everything is decided on the device. Nothing about the device is sent anywhere.
 */

import { readDevice } from './device.mjs'
import { shortfall } from './operators.mjs'
import { admits } from './rollout.mjs'
import {
  codeUnits, count, digest, figure, flag, given, InputError, isPrerelease, isVersion, list, NotFoundError, own, precedence, share,
  size, table, text, WithdrawnError,
} from './values.mjs'
import { parse } from './where.mjs'

/** @typedef {import('./values.mjs').Json} Json */
/** @typedef {import('./device.mjs').Requirement} Requirement */
/** @typedef {import('./operators.mjs').Need} Need */
/** @typedef {{version: string, artifact: string | null, code: string, detail: string}} Rejection `detail` says the code in words */
/**
 * The requirements on an artifact (docs/resolve.md, "Query"). A size is a number of bytes or a text such as `30MB`.
 * @typedef {{formats?: string[] | null, precision?: string | null, certified?: boolean | null, max_size?: number | string | null,
 *   min_recall?: Record<string, number> | null, where?: string | null, member?: string | null,
 *   contract?: string | string[] | null, context?: number | null}} Query
 */
/**
 * The artifact that answers, as the state's summary has it, or null; `size` is the whole download in bytes.
 * @typedef {{version: string | null, artifact: Json | null, size: number | null, rejected: Rejection[]}} Outcome
 */

const PREFERENCE = ['onnx-int8', 'ort-android', 'onnx-android', 'ort', 'onnx']
const RELEASES = 4
const FLOATS = ['float32', 'float16', 'bfloat16']
const MAX_CONDITIONS = 100
/** Words for each reason why a version is a candidate only if the question names it. @type {Record<string, string>} */
const WITHHELD = {
  yanked: 'is yanked',
  prerelease: 'is a pre-release, which only its own tag or a channel means',
  expired: 'has expired: its files are no longer here',
  purged: 'was taken down',
  dropped: 'was dropped',
}
/** The keys of a query. @type {Record<string, import('./values.mjs').Reader<any>>} */
const KEYS = {
  ...{ formats: (value) => limited(list(text)(value)), precision: text, certified: flag, max_size: size, member: text, context: count },
  contract: (value) => limited(list(digest)(Array.isArray(value) ? value : [value])),
  min_recall: (value) => limited(table(share)(value)),
  where: (value) => ({ expression: text(value), holds: parse(value) }),
}

/**
 * Resolve a model by its state. Throws InputError for unreadable input, NotFoundError for a missing version.
 * @param {Json} state line 1 of the model's index file
 * @param {object} [question]
 * @param {string | null} [question.tag] a version or a channel; without it the newest release that answers
 * @param {Query | null} [question.query]
 * @param {import('./device.mjs').DeviceDocument | null} [question.device]
 * @param {string | null} [question.seed] of this device, by which it takes part in rollouts
 * @param {string[]} [question.failed] digests of artifacts and manifests that failed on this device
 * @param {Set<string>} [question.here] digests of files that are on this device
 * @param {(digest: string) => Promise<Need[]>} [operatorSet] reads the operators of an artifact, if they matter
 * @returns {Promise<Outcome>}
 */
export async function resolve(state, { tag = null, query = {}, device = null, seed = null, failed = [], here = new Set() } = {}, operatorSet = noOperatorSet) {
  const asked = { ...readQuery(query ?? {}), failed, here }
  const runtime = device === null ? null : readDevice(device, asked.context)
  const rollout = own(state.rollouts ?? {}, tag ?? '')
  const versions = tag === null ? releases(state) : [tag]
  if (rollout && (await admits(rollout, seed, device))) versions.unshift(rollout.to)
  /** @type {Rejection[]} */
  const rejected = []
  /** @type {Outcome} */
  let answer = { version: null, artifact: null, size: null, rejected }
  for (const named of versions) {
    const version = tag === null ? named : usable(state, named)
    const judged = await judge(state, version, asked, runtime, operatorSet)
    const [best] = judged.filter(({ miss }) => !miss).sort((a, b) => rank(a, b, asked, runtime))
    for (const each of judged) {
      const [code, detail] = each.miss ?? ['ranked-lower', `${best.artifact.path} ranks higher`]
      if (each !== best) rejected.push({ version, artifact: each.artifact.path, code, detail })
    }
    if (best) {
      answer = { version, artifact: best.artifact, size: best.download, rejected }
      break
    }
  }
  if (tag === null) rejected.push(...passedOver(state, answer.version ?? versions.at(-1) ?? null))
  rejected.sort((a, b) => precedence(b.version, a.version))
  return answer
}

/**
 * The versions that a name without a tag may mean, newest first. The key `newest` of the state is not read.
 * @param {Json} state
 */
function releases({ versions }) {
  return Object.keys(versions)
    .filter((version) => !versions[version].gone && !versions[version].yanks && !isPrerelease(version))
    .sort((a, b) => precedence(b, a) || versions[b].seq - versions[a].seq)
    .slice(0, RELEASES)
}

/** The version of a tag. Throws an error if the version does not exist or is withdrawn. @param {Json} state @param {string} tag @returns {string} */
function usable(state, tag) {
  const version = isVersion(tag) ? tag : own(state.channels, tag)?.version
  const entry = version === undefined ? undefined : own(state.versions, version)
  if (!entry) {
    const channels = Object.keys(state.channels).join(', ') || 'none'
    throw new NotFoundError(`${state.name} has no ${tag}; its channels: ${channels}`)
  }
  const code = withheld(version, entry)
  if (code && code !== 'prerelease') throw new WithdrawnError(`${state.name}:${version} ${WITHHELD[code]}`)
  return version
}

/** The reason why a version is a candidate only if the question names it, or null. @param {string} version @param {Json} entry */
function withheld(version, entry) {
  return entry.gone?.how ?? (entry.yanks ? 'yanked' : isPrerelease(version) ? 'prerelease' : null)
}

/** The rejected versions above the last one that was considered. @param {Json} state @param {string | null} lowest */
function passedOver(state, lowest) {
  const found = []
  for (const [version, entry] of Object.entries(state.versions)) {
    const code = withheld(version, entry)
    if (code === null || code === 'dropped') continue
    if (lowest === null || precedence(version, lowest) > 0) found.push({ version, artifact: null, code, detail: WITHHELD[code] })
  }
  return found
}

/** Why an artifact is not certified, for people; false if it is. @param {Json} artifact */
function notCertified({ state, precision }) {
  return state !== 'certified' && `is ${state === 'unknown' && precision === 'float32' ? 'the reference, in full precision' : state}`
}

/** @typedef {{artifact: Json, download: number, miss?: [code: string, detail: string]}} Judged */

/**
 * Each artifact of a version, with the first requirement that it does not meet. If one failed here, the others must be
 * certified.
 * @param {Json} state
 * @param {string} version
 * @param {Conditions & {failed: string[], here: Set<string>}} query
 * @param {import('./device.mjs').Device | null} device
 * @param {(digest: string) => Promise<Need[]>} operatorSet
 * @returns {Promise<Judged[]>}
 */
async function judge(state, version, query, device, operatorSet) {
  const summary = own(state.summaries, version)
  if (!summary) throw new NotFoundError(`the state line of ${state.name} has no summary of ${version}`)
  const { held, attested, manifest } = state.versions[version]
  const hasFailed = (/** @type {Json} */ { digest }) => query.failed.includes(digest)
  const onlyCertified = summary.artifacts.some(hasFailed)
  const { where } = query
  /** @type {Requirement[]} */
  const requirements = [
    ['failed', (artifact) => (hasFailed(artifact) || query.failed.includes(manifest)) && 'failed on this device, or was rolled back'],
    ['not-certified', (artifact) => onlyCertified && notCertified(artifact)],
    ...query.requirements,
    ['where', (artifact, download) => where && !where.holds(candidate(state, version, artifact, download)) && `does not meet ${where.expression}`],
    ['not-held', (artifact) => held && !held.includes(artifact.path) && 'is not held here'],
    ...(device?.requirements ?? []),
  ]
  const found = []
  for (const stated of summary.artifacts) {
    const refused = own(attested ?? {}, stated.digest) === 'refused' || (state.refused ?? []).includes(stated.digest)
    const speeds = own(own(state.speeds ?? {}, manifest) ?? {}, stated.digest)
    const artifact = { ...stated, ...(speeds && { speeds }), ...(refused && { state: 'refused' }) }
    const [download, missing] = [downloadSize(artifact, summary), downloadSize(artifact, summary, query.here)]
    /** @type {Judged} */
    const judged = { artifact, download }
    for (const [code, lacks] of requirements) {
      const detail = lacks(artifact, download, missing)
      if (detail) judged.miss ??= [code, detail]
      if (detail) break
    }
    if (!judged.miss && device?.build) {
      judged.miss = artifact.operators ? shortfall(device.build, await operatorSet(artifact.operators))
        : ['operators', 'has operators that are not recorded']
    }
    found.push(judged)
  }
  return found
}

/** @param {string} digest @returns {Promise<never>} */
async function noOperatorSet(digest) {
  throw new NotFoundError(`the operator set ${digest} was not handed in`)
}

/**
 * True if a companion is downloaded with an artifact: certificates and item scores prove a verdict, no runtime needs them.
 * @param {{role: string}} file
 */
export function isShared({ role }) {
  return role !== 'certificate' && role !== 'item-scores'
}

/**
 * The size in bytes of an artifact and the shared files. Equal files count once, and files that are here do not count.
 * @param {Json} artifact
 * @param {Json} summary
 * @param {Set<string>} [here] digests
 */
export function downloadSize(artifact, summary, here = new Set()) {
  const files = [artifact, ...(artifact.files ?? []), ...summary.files.filter(isShared)]
  const sizes = new Map(files.filter((file) => !here.has(file.digest)).map((file) => [file.digest, file.size]))
  return [...sizes.values()].reduce((sum, bytes) => sum + bytes, 0)
}

/**
 * Certified first, then what was not quantized unless formats or a precision are named, then what is not known to be
 * slower than full precision, then the winner of a search, then the preferred format, then the smallest.
 * @param {Judged} a
 * @param {Judged} b
 * @param {Conditions} query
 * @param {import('./device.mjs').Device | null} device
 */
function rank(a, b, { formats, precision }, device) {
  const open = !formats.length && precision === null
  const unproven = (/** @type {Judged} */ { artifact }) => Number(open && artifact.state !== 'certified' && !FLOATS.includes(artifact.precision))
  const listed = formats.length ? formats : PREFERENCE
  const state = (/** @type {Judged} */ { artifact }) => own({ certified: 0, refused: 2 }, artifact.state) ?? 1
  const place = (/** @type {Judged} */ { artifact }) => (listed.indexOf(artifact.format) + listed.length + 1) % (listed.length + 1)
  const other = (/** @type {Judged} */ { artifact }) => (listed.includes(artifact.format) ? '' : artifact.format)
  const lost = (/** @type {Judged} */ { artifact }) => Number(!formats.length && artifact.preferred !== true)
  const slow = (/** @type {Judged} */ { artifact }) => Number(device?.isSlow(artifact) ?? false)
  const first = state(a) - state(b) || unproven(a) - unproven(b) || slow(a) - slow(b) || lost(a) - lost(b)
  return first || place(a) - place(b) || codeUnits(other(a), other(b)) || a.download - b.download
}

/**
 * @typedef {{formats: string[], precision: string | null, context: number | null, requirements: Requirement[],
 *   where?: {expression: string, holds: import('./where.mjs').Predicate}}} Conditions
 */

/** @param {any} value @returns {Conditions} */
function readQuery(value) {
  const query = given(value, KEYS, 'a query')
  const { formats = [], precision = null, context = null, certified, member = null, contract: contracts = [] } = query
  const most = query.max_size ?? Infinity
  /** @type {[string, number][]} */
  const least = Object.entries(query.min_recall ?? {})
  return {
    ...{ formats, precision, context, where: query.where },
    requirements: [
      ['member', (artifact) => {
        if (member === null) return artifact.member && `is one stage of several: ${artifact.member}`
        return artifact.member !== member && `is ${artifact.member ?? 'not a member of a family'}, wanted ${member}`
      }],
      ['contract', ({ contract }) => {
        if (!contracts.length || contracts.includes(contract)) return null
        const other = `has the contract ${contract?.slice(7, 19)}..., and the app was written for another one`
        return contract ? other : 'has no recorded contract'
      }],
      ['format', ({ format }) => formats.length > 0 && !formats.includes(format) && `is ${format}, wanted ${formats.join(' or ')}`],
      ['precision', (artifact) => precision !== null && artifact.precision !== precision && `is ${artifact.precision}, wanted ${precision}`],
      ['not-certified', (artifact) => certified && notCertified(artifact)],
      ['too-large', (_, download) => download > most && `takes ${download} bytes to download, at most ${most} are wanted`],
      ['recall', ({ recall = {} }) => {
        const miss = least.find(([label, bound]) => !(own(recall, label) >= bound))
        if (!miss) return null
        const [label, bound] = miss
        const measured = own(recall, label)
        return measured === undefined ? `has no measured recall of ${label}`
          : `has a recall of ${label} of ${figure(measured)}, wanted ${figure(bound)}`
      }],
      ['context', ({ kv_cache: cache }) => {
        if (context === null || context <= cache?.max_tokens) return null
        return cache ? `has a context of ${cache.max_tokens} tokens, ${context} are wanted` : 'has a context that is not recorded'
      }],
    ],
  }
}

/** Throw an InputError if there are too many conditions. @template T @param {T} conditions @returns {T} */
function limited(conditions) {
  if (Object.keys(/** @type {any} */ (conditions)).length > MAX_CONDITIONS) throw new InputError(`more than ${MAX_CONDITIONS} entries`)
  return conditions
}

/** The candidate on which an expression is tested (docs/query.md). @param {Json} state @param {string} version @param {Json} artifact @param {number} download */
function candidate(state, version, artifact, download) {
  const { manifest, yanks, pinned } = state.versions[version]
  const { task, family, license, profile } = state.summaries[version]
  const { recall = {}, metrics = {}, providers = [], speeds = [] } = artifact
  const shares = /** @type {number[]} */ (Object.values(recall))
  return {
    ...{ task, family, license, profile, ...artifact, download_size: download, providers, recall, metric: metrics },
    certified: artifact.state === 'certified',
    min_recall: shares.length ? Math.min(...shares) : null,
    latency: speeds.length ? Math.max(...speeds.map((/** @type {Json} */ { ratio }) => ratio)) : null,
    ...{ name: state.name, version, manifest, prerelease: isPrerelease(version), yanked: Boolean(yanks), pinned: pinned === true },
    channels: Object.keys(state.channels).filter((tag) => state.channels[tag].version === version),
    newest: releases(state)[0] === version,
  }
}
