/**
 * A client of an onnxreg registry for browsers and Node. It needs only a static web server, and has no dependencies.
 *
 *     const registry = new Registry('https://models.example/tree', browserStore('models'))
 *     const question = { tag: 'stable', query: { certified: true }, device: { ort: '1.30' } }
 *     const { release } = await registry.update('acme/pii', question)
 *     const model = await registry.read(release, release.artifact.path)
 *
 * `update` asks the registry which artifact this device gets, and downloads the missing files. Then the new release takes the
 * place of the current one, which stays for `rollback`. All files are verified by their SHA-256. Without a network, the last
 * seen state in the store answers.
 *
 * Keys of the store, beside those of `blobs.mjs`: `index/<name>` is the last seen index file, with the withdrawn releases,
 * `slot/<name>` the current and the previous release, `seed` the private text by which this device takes part in rollouts.
 */

import { Blobs, piecesOf } from './blobs.mjs'
import { canonical, decode, sha256 } from './documents.mjs'
import { Http, RemoteError } from './http.mjs'
import { readNeeds } from './operators.mjs'
import { platform } from './platform.mjs'
import { isShared, resolve } from './resolve.mjs'
import { newSeed } from './rollout.mjs'
import { decide, refusing, undone, withdrawals } from './slot.mjs'
import { checkContinues, checkFirst, linesFrom, readIndex } from './state.mjs'
import { comparable, summarize } from './summary.mjs'
import { chooseDeltas, makeByDelta, offeredDeltas } from './updates.mjs'
import {
  count, digest, given, hexOf, InputError, IntegrityError, isVersion, list, mapping, maybe, modelName, NotFoundError, object, own, RegError, text,
} from './values.mjs'

export { IntegrityError, InputError, NotFoundError, RegError } from './values.mjs'
export { RemoteError } from './http.mjs'
export { preset, presets } from './presets.mjs'
export { usePlatform } from './platform.mjs'
export { browserStore, memoryStore } from './stores.mjs'
export { resolve, sha256 }

/** @typedef {import('./values.mjs').Json} Json */
/** @typedef {import('./stores.mjs').Store} Store */
/** @typedef {import('./resolve.mjs').Rejection} Rejection */
/**
 * @typedef {{tag?: string | null, query?: import('./resolve.mjs').Query | null,
 *   device?: import('./device.mjs').DeviceDocument | null, seed?: string | null}} Question
 */
/** @typedef {{role: string, path: string, digest: string, size: number, pieces?: any}} File */
/**
 * `onArrival` is called for each file that is here; `deltas: false` fetches whole files only. `selfTest` runs the new
 * release before it becomes the current one: if it returns false or throws, that artifact is not taken again, and the next
 * certified one of the release is tried.
 * @typedef {{signal?: AbortSignal, onProgress?: (done: number, total: number) => void,
 *   onArrival?: (arrival: import('./updates.mjs').Arrival) => void, deltas?: boolean,
 *   selfTest?: (release: Release) => boolean | Promise<boolean>}} Options
 */
/**
 * One artifact of one version, and every file that goes with it. `files[0]` is the artifact's main file.
 * @typedef {{name: string, version: string, manifest: string, artifact: File & Json, files: File[]}} Release
 */
/** @typedef {{state: Json, offline: boolean, stale: boolean}} Contact */
/**
 * The current release after an update. `changed` is true if it was another one before, `offline` if the registry was out of
 * reach.
 * @typedef {{release: Release, changed: boolean, offline: boolean}} Update
 */
/**
 * The current release and the one before it; `failed` are digests of artifacts that failed on this device, and of artifacts
 * and manifests that were rolled back.
 * @typedef {{current: Release | null, previous: Release | null, failed: string[]}} Slot
 */

const QUESTION = { tag: text, query: mapping, device: mapping, seed: text }
const FILE = object({ role: text, path: text, digest, size: count, pieces: maybe(object({ size: count, digests: list(digest) })) })

/** Matches the digest of a document that a state or a line names. */
const DOCUMENT = /"(?:checkpoint|operators|statement)":"sha256:([0-9a-f]{64})"/g

/** No artifact matches the question. `rejected` has the reason for each. */
export class NothingFitsError extends NotFoundError {
  static name = 'NothingFitsError'
  /** @param {string} name @param {Rejection[]} rejected */
  constructor(name, rejected) {
    super(`${name} has no artifact for this device and query`)
    this.rejected = rejected
  }
}

/** The new release failed its self-test on this device. The current release stays. */
export class SelfTestError extends RegError {
  static name = 'SelfTestError'
  static family = 'integrity'
  /** @param {Release} release @param {unknown} [cause] */
  constructor(release, cause) {
    super(`${release.name}:${release.version} failed its self-test on this device`)
    this.release = release
    this.cause = cause
  }
}

export class Registry {
  #http
  #store
  #blobs
  #trust

  /**
   * @param {string} url of the registry's tree
   * @param {Store} store of this registry alone
   * @param {ConstructorParameters<typeof Http>[1] & {trust?: import('./signatures.mjs').Trust}} [options] `trust` says what must be signed
   */
  constructor(url, store, { trust, ...options } = {}) {
    this.#trust = trust
    this.#http = new Http(url, options)
    this.#store = store
    this.#blobs = new Blobs(this.#http, store)
  }

  /**
   * A model's state in the registry, by one conditional request. The last seen state answers if the registry cannot be reached
   * (`offline`), or if it sends an older state even past the web caches (`stale`).
   * @param {string} name
   * @param {AbortSignal} [signal]
   * @returns {Promise<Contact>}
   */
  async state(name, signal) {
    const seen = await this.#load(`index/${modelName(name)}`)
    const document = (/** @type {string} */ digest) => this.#blobs.document(digest)
    const checks = this.#trust?.lines ?? ''
    const isChecked = seen && (seen.checks ?? '') === checks // earlier clients did not write `checks`
    let [state, offline, stale] = [seen?.state, false, false]
    try {
      let index = await this.#index(name, '', isChecked ? seen.etag : null, signal)
      if (index?.state.seq < state?.seq) index = await this.#index(name, `?after=${index?.state.seq}`, null, signal)
      stale = index?.state.seq < state?.seq
      if (index && stale) {
        await checkContinues(index.state, seen, document)
        if (!isChecked) throw new RemoteError(`index/${name}.jsonl is older than the one that was seen before`, true)
      } else if (index) {
        const lines = seen ? await checkContinues(state, index, document) : []
        if (!seen) await checkFirst(index)
        if (checks) {
          const unchecked = await linesFrom(isChecked ? state.seq : 1, index.state, index.lines, document)
          if (!isChecked) await checkFirst({ ...index, lines: unchecked })
          await this.#trust?.checkLines(index.state, unchecked)
        }
        await this.#checkIdentity(index.state.registry)
        const withdrawn = withdrawals(seen?.withdrawn ?? [], state?.rollouts, lines)
        await this.#save(`index/${name}`, { ...index, checks, withdrawn, confirmed: seen?.confirmed ?? false })
        state = index.state
      }
    } catch (error) {
      if (!(error instanceof RemoteError && isChecked)) throw error
      offline = true
    }
    return { state, offline, stale }
  }

  /**
   * The artifact that matches a question, and why the others do not. Downloads documents only.
   * @param {string} name
   * @param {Question} [question]
   */
  async resolve(name, question = {}, /** @type {AbortSignal | undefined} */ signal = undefined) {
    given(question, QUESTION, 'a question')
    return this.#answer(name, question, await this.state(name, signal), signal)
  }

  /** @param {string} name @param {Question} question @param {Contact} contact @param {AbortSignal} [signal] */
  async #answer(name, question, { state: found, ...contact }, signal) {
    const { failed } = await this.slot(name)
    const state = await this.#withVersion(found, question.tag ?? null, signal)
    const seed = question.seed === undefined ? await this.#seed(state, question.tag) : question.seed
    const operatorSet = async (/** @type {string} */ digest) =>
      readNeeds(JSON.parse(platform.decode(await this.#blobs.document(digest, signal))))
    const here = new Set((await this.#present()).keys())
    return { ...(await resolve(state, { ...question, seed, failed, here }, operatorSet)), state, ...contact }
  }

  /**
   * Make the matching release the current one, after all of its files are here and verified.
   *
   * An artifact that failed here, or a release that was rolled back, is not taken again: the next certified artifact of the
   * release is tried, then the release of the channel. A device does not stay on a withdrawn release (see `slot.mjs`).
   * @param {string} name
   * @param {Question} [question]
   * @param {Options} [options]
   * @returns {Promise<Update>}
   */
  async update(name, question = {}, options = {}) {
    given(question, QUESTION, 'a question')
    /** @type {Promise<Contact> | undefined} */
    let contact
    const ask = async (/** @type {Question} */ asked) =>
      this.#answer(name, asked, await (contact ??= this.state(name, options.signal)), options.signal)
    for (let failure; ; ) {
      const slot = await this.slot(name)
      const { current } = slot
      const answer = await decide(slot, question, ask, () => this.#withdrawn(name))
      if (!answer.artifact) {
        if (answer.leaves) await this.#save(`slot/${name}`, { ...slot, current: null, previous: null })
        if (current && answer.stays && !failure) return { release: current, changed: false, offline: (await contact)?.offline === true }
        throw failure ?? answer.error ?? new NothingFitsError(name, answer.rejected ?? [])
      }
      const { state, version, artifact } = answer
      const release = await this.#release(state, String(version), artifact, options.signal)
      if (failure && isSame(release, current)) throw failure
      await this.#download(release, state, options)
      const changed = !isSame(release, current)
      failure = changed ? await this.#test(release, options.selfTest) : null
      if (!failure) {
        const now = await this.slot(name)
        const previous = isSame(release, now.current) ? now.previous : now.current
        await this.#save(`slot/${name}`, { ...now, current: release, previous })
        return { release, changed, offline: answer.offline }
      }
    }
  }

  /** Run a new release. Returns the error if it fails; then its artifact is not taken again. @param {Release} release @param {Options['selfTest']} selfTest */
  async #test(release, selfTest) {
    let cause
    try {
      if ((await selfTest?.(release)) ?? true) return null
    } catch (error) {
      cause = error
    }
    await this.#save(`slot/${release.name}`, refusing(await this.slot(release.name), release.artifact.digest))
    return new SelfTestError(release, cause)
  }

  /** The current release of a model and the previous one. Each may be null. @param {string} name @returns {Promise<Slot>} */
  async slot(name) {
    return { current: null, previous: null, failed: [], ...(await this.#load(`slot/${modelName(name)}`)) }
  }

  /**
   * Make the previous release current again, unless it is withdrawn. The release that was current is not taken again.
   * @param {string} name
   */
  async rollback(name) {
    const slot = undone(name, await this.slot(name), await this.#withdrawn(name))
    await this.#save(`slot/${name}`, slot)
    return /** @type {Release} */ (slot.current)
  }

  /** Allow releases again that failed here or were rolled back. @param {string} name */
  async clearRefusals(name) {
    await this.#save(`slot/${name}`, { ...(await this.slot(name)), failed: [] })
  }

  /** A file of a release, whole and verified. @param {Release} release @param {string} path */
  read(release, path) {
    return this.#blobs.read(fileWith(release, 'path', path))
  }

  /** The parts of a file in order, each verified. Use it for a file that exceeds the memory. @param {Release} release @param {string} path */
  parts(release, path) {
    return this.#blobs.parts(fileWith(release, 'path', path))
  }

  /** The file with this role, such as `tokenizer` or `labels`. @param {Release} release @param {string} role */
  readRole(release, role) {
    return this.#blobs.read(fileWith(release, 'role', role))
  }

  /**
   * Delete all bytes that no current or previous release needs. Do not call it while an `update` runs. The documents that the
   * last seen state names stay, because an update without a network reads them.
   */
  async tidy() {
    /** @type {Set<string>} */
    const kept = new Set()
    for (const key of await this.#store.keys('index/')) {
      const segments = (await this.#load(key)).state.segments.map(hexOf)
      for (const text of [key, ...segments.map((/** @type {string} */ hex) => `piece/${hex}`)]) {
        kept.add(text.replace('piece/', ''))
        const bytes = (await this.#store.get(text)) ?? new Uint8Array()
        for (const [, hex] of platform.decode(bytes).matchAll(DOCUMENT)) kept.add(hex)
      }
    }
    for (const { manifest, files } of await this.#releases()) {
      kept.add(hexOf(manifest))
      for (const file of files) piecesOf(file).forEach(({ hex }) => kept.add(hex))
    }
    await this.#blobs.keepOnly(kept)
  }

  /**
   * The seed of this device. It is made when a channel is rolled out for the first time, and never leaves the store.
   * @param {Json} state
   * @param {string | null | undefined} tag
   */
  async #seed(state, tag) {
    if (!own(state.rollouts ?? {}, tag ?? '')) return null
    const seed = (await this.#load('seed')) ?? newSeed()
    await this.#save('seed', seed)
    return seed
  }

  /**
   * A model's index file, or null if it still has this entity tag. With a query, web caches are bypassed.
   * @param {string} name
   * @param {string} query
   * @param {string | null} etag
   * @param {AbortSignal} [signal]
   */
  async #index(name, query, etag, signal) {
    const found = await this.#http.document(`index/${name}.jsonl${query}`, etag, signal)
    return found && { ...(await readIndex(found.bytes, name)), etag: found.etag }
  }

  /** @param {string} name @returns {Promise<import('./slot.mjs').Withdrawn>} */
  async #withdrawn(name) {
    return (await this.#load(`index/${name}`))?.withdrawn ?? []
  }

  /** @param {string} id */
  async #checkIdentity(id) {
    const found = await this.#http.document('registry.json')
    const identity = decode(found?.bytes ?? new Uint8Array())
    if (identity.layout !== 'onnxreg' || !(identity.min_reader <= 1)) {
      throw new RegError('this is not a registry, or it needs a newer client')
    }
    if (identity.id !== id) throw new IntegrityError(`registry.json is of ${identity.id}, the index file of ${id}`)
  }

  /**
   * A state with the version of a tag. If the index file has no summary of it, the checkpoint and the manifest are read.
   * @param {Json} state
   * @param {string | null} tag
   * @param {AbortSignal} [signal]
   */
  async #withVersion(state, tag, signal) {
    if (!tag || !isVersion(tag) || own(state.summaries, tag)) return state
    const tables = state.checkpoint ? decode(await this.#blobs.document(state.checkpoint, signal)) : { versions: {} }
    const sealed = mapping(tables.versions)
    const entry = own(state.versions, tag) ?? own(sealed, tag)
    if (!entry || entry.gone) return { ...state, versions: { ...sealed, ...state.versions } }
    const summary = await this.#summary(entry, signal)
    return {
      ...state,
      versions: { ...state.versions, [tag]: entry },
      summaries: { ...state.summaries, [tag]: summary },
    }
  }

  /** The contents of a version's manifest. @param {Json} entry of the version @param {AbortSignal} [signal] */
  async #summary({ manifest, size }, signal) {
    return summarize(decode(await this.#blobs.document(manifest, signal)), manifest, size)
  }

  /**
   * The files of an artifact, from its manifest. IntegrityError if the index file contradicts it.
   * @param {Json} state
   * @param {string} version
   * @param {Json} summary of the artifact
   * @param {AbortSignal} [signal]
   * @returns {Promise<Release>}
   */
  async #release(state, version, summary, signal) {
    const entry = state.versions[version]
    const manifest = decode(await this.#blobs.document(entry.manifest, signal))
    if (canonical(comparable(state.summaries[version])) !== canonical(await this.#summary(entry, signal))) {
      await this.#settle(state.name, false)
      throw new IntegrityError(`the index file of ${state.name} says of ${version} what its manifest does not`)
    }
    await this.#settle(state.name, true)
    if (this.#trust) {
      const { lines, state: seen } = await this.#load(`index/${state.name}`)
      const read = (/** @type {string} */ digest) => this.#blobs.document(digest, signal)
      await this.#trust.checkRelease(state.name, version, entry.manifest, await linesFrom(1, seen, lines, read), read)
    }
    const artifact = manifest.artifacts.find((/** @type {Json} */ each) => each.path === summary.path)
    const shared = (manifest.files ?? []).filter(isShared)
    const files = [{ ...artifact, role: 'artifact' }, ...(artifact.files ?? []), ...shared].map(readFile)
    return { name: state.name, version, manifest: entry.manifest, artifact: { ...summary, ...files[0] }, files }
  }

  /**
   * Bring every file of a release here: make files by deltas, then fetch the missing pieces.
   * @param {Release} release @param {Json} state @param {Options} options
   */
  async #download({ version, files }, state, { signal, onProgress, onArrival, deltas = true }) {
    const total = files.reduce((sum, file) => sum + file.size, 0)
    let done = 0
    const onBytes = (/** @type {number} */ count) => onProgress?.((done += count), total)
    const present = await this.#present(files)
    const sizes = Object.fromEntries(files.filter((file) => !present.has(file.digest)).map((file) => [file.digest, file.size]))
    const offered = deltas && Object.keys(sizes).length ? await offeredDeltas(this.#blobs, state, version, signal) : []
    const chosen = chooseDeltas(offered, sizes, new Set(present.keys()))
    for (const file of files) {
      const delta = chosen.get(file.digest)
      const reason = delta ? await makeByDelta(this.#blobs, file, delta, present, signal) : 'no delta from a file that is here'
      await this.#blobs.fetch(file, { signal, onBytes })
      chosen.delete(file.digest)
      onArrival?.({ path: file.path, size: file.size, deltas: delta ? 1 : 0, bytes: delta?.size ?? 0, reason })
    }
  }

  /** These files and the files of all releases that are here, by digest. @param {File[]} files */
  async #present(files = []) {
    const held = new Set(await this.#store.keys('piece/'))
    const isHere = (/** @type {File} */ file) => piecesOf(file).every(({ hex }) => held.has(`piece/${hex}`))
    const earlier = (await this.#releases()).flatMap((release) => release.files)
    return new Map([...files, ...earlier].filter(isHere).map((file) => [file.digest, file]))
  }

  /** The current and the previous releases of all models. @returns {Promise<Release[]>} */
  async #releases() {
    const slots = await Promise.all((await this.#store.keys('slot/')).map((key) => this.#load(key)))
    return slots.flatMap(({ current, previous }) => [current, previous].filter(Boolean))
  }

  /**
   * Note if a manifest confirms the first seen state. A contradicted state was garbled on its way, and is forgotten. A
   * confirmed state is not replaced by another history.
   * @param {string} name @param {boolean} isRight
   */
  async #settle(name, isRight) {
    const seen = await this.#load(`index/${name}`)
    if (!seen || seen.confirmed) return
    if (isRight) await this.#save(`index/${name}`, { ...seen, confirmed: true })
    else await this.#store.delete(`index/${name}`)
  }

  /** @param {string} key */
  async #load(key) {
    const bytes = await this.#store.get(key)
    return bytes ? JSON.parse(platform.decode(bytes)) : null
  }

  /** @param {string} key @param {any} value */
  async #save(key, value) {
    await this.#store.put(key, platform.encode(JSON.stringify(value)))
  }
}

/** @param {Release} release @param {'path' | 'role'} key @param {string} value */
function fileWith({ name, version, files }, key, value) {
  const file = files.find((each) => each[key] === value)
  if (!file) throw new NotFoundError(`${name}:${version} has no ${value}`)
  return file
}

/** A file of a manifest. @type {import('./values.mjs').Reader<File>} */
function readFile(entry) {
  const file = FILE(entry)
  const { path, size, pieces } = file
  if (pieces && pieces.digests.length !== Math.ceil(size / pieces.size)) throw new InputError(`the pieces of ${path} do not make the file`)
  return file
}

/** @param {Release} a @param {Release | null} b */
function isSame(a, b) {
  return a.manifest === b?.manifest && a.artifact.path === b.artifact.path
}
