/**
 * The operators of a minimal build of ONNX Runtime, by its operator config, compared with those that an artifact needs.
 * `docs/resolve.md`, "Operators of a minimal build", has the rules.
 */

import { count, InputError, list, maybe, object, own, table, text, written } from './values.mjs'

/** @typedef {Record<string, string[]>} Types the element types at a position, such as {"0": ["float"]} */
/** @typedef {{inputs?: Types, outputs?: Types, custom?: string[][]}} Restriction */
/** @typedef {{domain: string, name: string, opset: number, inputs?: Types, outputs?: Types}} Need */
/**
 * `operators` is null if the build has all; `everywhere` has the globally allowed types, null if all are.
 * @typedef {{operators: Set<string> | null, types: Map<string, Restriction>, everywhere: string[] | null}} Build
 */

const GLOBAL = '!globally_allowed_types;'
const ALL = '!no_ops_specified_means_all_ops_are_required'
const UNRECORDED = 'types that are not recorded'
const MAX_LISTED = 3
const OPSET = written('not an opset', (value) => /^[0-9]{1,9}$/.test(value))

/**
 * The first need that a build lacks, as a code and in words, or undefined if it lacks none.
 * @param {Build} build
 * @param {Need[]} needs
 * @returns {[code: string, detail: string] | undefined}
 */
export function shortfall(build, needs) {
  const { operators } = build
  const missing = operators ? needs.filter((need) => !operators.has(key(need.domain, need.opset, need.name))).map(named) : []
  if (missing.length) return ['operators', `needs ${few(missing)}, which this build lacks`]
  const faults = needs.map((need) => [named(need), wrongTypes(need, build)]).filter(([, fault]) => fault)
  return faults.length ? ['types', `needs ${few(faults.map((each) => each.join(' with ')))}`] : undefined
}

/** @param {(string | number)[]} parts */
function key(...parts) {
  return parts.join(';')
}

/** @param {Need} need */
function named({ domain, name, opset }) {
  return `${domain}:${name} (opset ${opset})`
}

/** @param {string[]} names */
function few(names) {
  const more = names.length - MAX_LISTED
  return [...names.slice(0, MAX_LISTED), ...(more > 0 ? [`${more} more`] : [])].join(' and ')
}

/** The needed types of an operator that a build lacks, in words; empty if it lacks none. @param {Need} need @param {Build} build */
function wrongTypes(need, { types, everywhere }) {
  const { inputs = {}, outputs = {} } = need
  if (everywhere) return without([...Object.values(inputs), ...Object.values(outputs)].flat(), everywhere)
  const restriction = types.get(key(need.domain, need.name))
  if (!restriction) return ''
  const isOneHot = need.domain === 'ai.onnx' && need.name === 'OneHot' // built for triples: other forms allow none
  if (restriction.custom || isOneHot) return wrongTriple(inputs, restriction.custom ?? [])
  const sides = [[inputs, restriction.inputs ?? {}], [outputs, restriction.outputs ?? {}]]
  const faults = sides.flatMap(([found, allowed]) =>
    Object.entries(allowed).map(([position, names]) => without(own(found, position) ?? [], names)))
  return faults.find(Boolean) ?? ''
}

/** The types that are not allowed. Types that were not recorded are not allowed. @param {string[]} found @param {string[]} allowed */
function without(found, allowed) {
  return found.length ? [...new Set(found)].filter((name) => !allowed.includes(name)).sort().join(' and ') : UNRECORDED
}

/** OneHot is built for triples of types: of its indices, values and depth, which are inputs 0, 2 and 1. */
function wrongTriple(/** @type {Types} */ inputs, /** @type {string[][]} */ allowed) {
  const [indices, values, depths] = ['0', '2', '1'].map((position) => [...(own(inputs, position) ?? [])].sort())
  const listed = allowed.map((triple) => triple.join(', '))
  const wanted = indices.flatMap((a) => values.flatMap((b) => depths.map((c) => `${a}, ${b}, ${c}`)))
  return wanted.length ? wanted.find((triple) => !listed.includes(triple)) ?? '' : UNRECORDED
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
  const numbers = opsets.split(',').map((each) => Number(OPSET(each.trim())))
  for (const [name, restriction] of entries(rest)) {
    for (const number of numbers) operators.add(key(domain, number, name))
    if (restriction) types.set(key(domain, name), restriction)
  }
}

/** entries = name [json] {"," name [json]} @param {string} rest @returns {Generator<[string, Restriction | null]>} */
function* entries(rest) {
  for (let place = 0; place < rest.length; place++) {
    const found = /^[^{,]*/.exec(rest.slice(place))
    const name = (found?.[0] ?? '').trim()
    if (!name) throw new InputError('an operator has no name')
    place += found?.[0].length ?? 0
    const [types, length] = rest[place] === '{' ? firstObject(rest.slice(place)) : [null, 0]
    yield [name, types && RESTRICTION(types)]
    place += length
    if (place < rest.length && rest[place] !== ',') throw new InputError(`there is no comma after ${name}`)
  }
}

/** The JSON object that a text begins with, and its length: it ends where it can be read. @param {string} source */
function firstObject(source) {
  for (let end = source.indexOf('}'); end >= 0; end = source.indexOf('}', end + 1)) {
    try {
      return [JSON.parse(source.slice(0, end + 1)), end + 1]
    } catch {} // the bracket is within the object
  }
  throw new InputError('the types of an operator are not JSON')
}

const TYPES = maybe(table(list(text)))
const RESTRICTION = object({ inputs: TYPES, outputs: TYPES, custom: maybe(list(list(text))) })

/** The content of an operator-set blob. @type {import('./values.mjs').Reader<Need[]>} */
export const readNeeds = list(object({ domain: text, name: text, opset: count, inputs: TYPES, outputs: TYPES }))
