/** The fastest way to get files: whole, by a delta, or by a chain of deltas. docs/delta.md, "Choosing". */

/** @typedef {{new: string, old: string[], delta: string, size: number, from?: string}} Delta */
/** @typedef {{deltas: Delta[], size: number}} Route no deltas: the whole file; `size` are the bytes to fetch */
/**
 * @typedef {object} Situation
 * @property {Record<string, number>} sizes of the files to get, by digest
 * @property {Set<string>} present digests of files that are here
 * @property {Delta[]} deltas that the registry offers
 * @property {number} [rate] bytes that arrive in a second, if it was measured
 * @property {number} [applyRate] bytes of a new file that applying makes in a second
 */

const MAX_CHAIN = 3
const MAX_CHOICES = 16
const MAX_WAITING = 16
export const APPLY_RATE = 60e6

/** The route of each file, by digest. A file whose route needs another one of these comes after it. @param {Situation} situation */
export function planRoutes({ sizes, present, deltas, rate, applyRate = APPLY_RATE }) {
  /** @type {Map<string, Delta[]>} */
  const makers = new Map()
  for (const delta of deltas) makers.set(delta.new, [...(makers.get(delta.new) ?? []), delta])
  /** @type {Map<string, Route & {cost: number}>} */
  const routes = new Map()

  /** @param {string} file @param {Delta[]} chain */
  const route = (file, chain) => {
    const size = chain.length ? chain.reduce((sum, delta) => sum + delta.size, 0) : sizes[file]
    const cost = rate === undefined ? size : size / rate + (chain.length * sizes[file]) / applyRate
    return { deltas: chain, size, cost }
  }

  /** A file of the same transfer arrives before those that wait. @param {string} file @param {Set<string>} pending */
  const willBe = (file, pending) => file in sizes && !pending.has(file) && pending.size < MAX_WAITING

  /** @param {string} file @param {Delta[]} later @param {Set<string>} pending @returns {Generator<Route & {cost: number}>} */
  function* chains(file, later, pending) {
    for (const delta of (makers.get(file) ?? []).slice(0, MAX_CHOICES)) {
      const chain = [delta, ...later]
      const missing = delta.old.filter((old) => !present.has(old) && !willBe(old, pending))
      if (!missing.length) yield route(chain[chain.length - 1].new, chain)
      else if (missing.length === 1 && chain.length < MAX_CHAIN && chain.every((link) => link.new !== missing[0])) {
        yield* chains(missing[0], chain, pending)
      }
    }
  }

  /** @param {string} file @param {Set<string>} waiting files that wait for this one, which it cannot need */
  const settle = (file, waiting) => {
    if (routes.has(file)) return
    const pending = new Set([...waiting, file])
    let best = route(file, [])
    for (const other of chains(file, [], pending)) {
      if (other.cost < best.cost || (other.cost === best.cost && other.deltas.length < best.deltas.length)) best = other
    }
    for (const old of needsOf(best)) if (!present.has(old)) settle(old, pending)
    routes.set(file, best)
  }
  for (const file of Object.keys(sizes)) settle(file, new Set())
  return routes
}

/** The files that must be there first, apart from those that the chain itself makes. @param {Route} route */
export function needsOf({ deltas }) {
  const links = new Set(deltas.map((delta) => delta.new))
  return deltas.flatMap((delta) => delta.old).filter((old) => !links.has(old))
}
