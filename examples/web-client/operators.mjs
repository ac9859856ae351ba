/**
 * Operators: what a minimal build of ONNX Runtime has, by its operator config, and whether that contains what an
 * artifact needs. `docs/resolve.md`, "Operators of a minimal build", has the rules.
 */

import { InputError, items, mapping, own, text } from './values.mjs'

/** @typedef {Record<string, string[]>} Types the element types at a position, such as {"0": ["float"]} */
/** @typedef {{inputs: Types, outputs: Types, custom?: string[][]}} Restriction */
/** @typedef {{domain: string, name: string, opset: number, inputs?: Types, outputs?: Types}} Need */
/**
 * `operators` is null if the build has all; `everywhere` has the globally allowed types, null if all are.
 * @typedef {{operators: Set<string> | null, types: Map<string, Restriction>, everywhere: string[] | null}} Build
 */

const GLOBAL = '!globally_allowed_types;'
const ALL = '!no_ops_specified_means_all_ops_are_required'

/**
 * The code of what a build lacks for these operators, or null if it has all.
 * @param {Build} build
 * @param {Need[]} needs
 */
export function shortfall(build, needs) {
  const { operators, types, everywhere } = build
  if (operators && needs.some((need) => !operators.has(key(need.domain, need.opset, need.name)))) return 'operators'
  const fine = needs.every((need) =>
    everywhere ? isAllowed(seen(need), everywhere) : fitsTypes(need, types.get(key(need.domain, need.name))),
  )
  return fine ? null : 'types'
}

/** @param {(string | number)[]} parts */
function key(...parts) {
  return parts.join(';')
}

/** Every type of an operator. @param {Need} need */
function seen({ inputs = {}, outputs = {} }) {
  return [...Object.values(inputs), ...Object.values(outputs)].flat()
}

/** Types that nobody recorded are not proven. @param {string[]} found @param {string[]} allowed */
function isAllowed(found, allowed) {
  return found.length > 0 && found.every((name) => allowed.includes(name))
}

/** @param {Need} need @param {Restriction | undefined} restriction */
function fitsTypes(need, restriction) {
  if (!restriction) return true
  if (restriction.custom || isOneHot(need)) return fitsTriples(need.inputs ?? {}, restriction.custom ?? [])
  return [
    [need.inputs ?? {}, restriction.inputs],
    [need.outputs ?? {}, restriction.outputs],
  ].every(([found, allowed]) =>
    Object.entries(allowed).every(([position, names]) => isAllowed(own(found, position) ?? [], names)),
  )
}

/** Its types are always triples: a config in any other form allows none. @param {Need} need */
function isOneHot({ domain, name }) {
  return domain === 'ai.onnx' && name === 'OneHot'
}

/** OneHot is built for triples of types: of its indices, values and depth, which are inputs 0, 2 and 1. */
function fitsTriples(/** @type {Types} */ inputs, /** @type {string[][]} */ allowed) {
  const [indices, values, depths] = ['0', '2', '1'].map((position) => own(inputs, position) ?? [])
  const listed = new Set(allowed.map((triple) => triple.join(' ')))
  const wanted = indices.flatMap((/** @type {string} */ a) =>
    values.flatMap((/** @type {string} */ b) => depths.map((/** @type {string} */ c) => `${a} ${b} ${c}`)),
  )
  return wanted.length > 0 && wanted.every((/** @type {string} */ triple) => listed.has(triple))
}

/** Read an operator config. @param {string} config @returns {Build} */
export function readBuild(config) {
  const operators = new Set()
  /** @type {Map<string, Restriction>} */
  const types = new Map()
  let everywhere = null
  let all = false
  for (const line of config.split(/\r\n|\r|\n/).map((each) => each.trim())) {
    if (!line || line.startsWith('#')) continue
    if (line === ALL) all = true
    else if (line.startsWith(GLOBAL)) {
      if (everywhere) throw new InputError('globally allowed types are given twice')
      everywhere = line.split(';')[1].split(',').map((name) => name.trim())
    } else readOperators(line, operators, types)
  }
  if (everywhere && types.size) throw new InputError('there are globally allowed types and types of single operators')
  return { operators: all && !operators.size ? null : operators, types, everywhere }
}

/**
 * line = domain ";" opset {"," opset} ";" entries
 * @param {string} line
 * @param {Set<string>} operators
 * @param {Map<string, Restriction>} types
 */
function readOperators(line, operators, types) {
  const parts = line.split(';').map((part) => part.trim())
  if (parts.length !== 3 || !parts.every(Boolean)) throw new InputError('a line is not domain;opset;operators')
  const [domain, opsets, rest] = parts
  const numbers = opsets.split(',').map(opset)
  for (const [name, restriction] of entries(rest)) {
    for (const number of numbers) operators.add(key(domain, number, name))
    if (restriction) types.set(key(domain, name), restriction)
  }
}

/** @param {string} written */
function opset(written) {
  if (!/^[0-9]{1,9}$/.test(written.trim())) throw new InputError(`not an opset: ${written.slice(0, 40)}`)
  return Number(written)
}

/**
 * entries = name [json] {"," name [json]}
 * @param {string} rest
 * @returns {Generator<[string, Restriction | null]>}
 */
function* entries(rest) {
  for (let place = 0; place < rest.length; place++) {
    const found = /^[^{,]*/.exec(rest.slice(place))
    const name = (found?.[0] ?? '').trim()
    if (!name) throw new InputError('an operator has no name')
    place += found?.[0].length ?? 0
    const end = rest[place] === '{' ? endOfObject(rest, place) : place
    yield [name, end > place ? readRestriction(rest.slice(place, end)) : null]
    place = end
    if (place < rest.length && rest[place] !== ',') throw new InputError(`there is no comma after ${name}`)
  }
}

/** The end of the JSON object that begins at a position. @param {string} source @param {number} start */
function endOfObject(source, start) {
  const mark = /"(?:[^"\\]|\\.)*"|[{}]/g
  mark.lastIndex = start
  let depth = 0
  for (let found = mark.exec(source); found; found = mark.exec(source)) {
    if (found[0] === '{') depth++
    if (found[0] === '}' && --depth === 0) return mark.lastIndex
  }
  throw new InputError('the types of an operator have no end')
}

/** @param {string} source @returns {Restriction} */
function readRestriction(source) {
  let value
  try {
    value = mapping(JSON.parse(source))
  } catch {
    throw new InputError('the types of an operator are not JSON')
  }
  const custom = own(value, 'custom')
  if (custom !== undefined) return { inputs: {}, outputs: {}, custom: items(custom, (triple) => items(triple, text)) }
  return { inputs: readTypes(own(value, 'inputs')), outputs: readTypes(own(value, 'outputs')) }
}

/** @param {any} value @returns {Types} */
function readTypes(value) {
  const found = Object.entries(mapping(value ?? {}))
  return Object.fromEntries(found.map(([position, names]) => [position, items(names, text)]))
}

/** The content of an operator-set blob. @param {any} value @returns {Need[]} */
export function readNeeds(value) {
  return items(value, (item) => {
    const { domain, name, opset: since, inputs, outputs } = mapping(item)
    if (!Number.isSafeInteger(since)) throw new InputError('an operator has no opset')
    return { domain: text(domain), name: text(name), opset: since, inputs: readTypes(inputs), outputs: readTypes(outputs) }
  })
}
