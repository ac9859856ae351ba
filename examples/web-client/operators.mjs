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
const UNRECORDED = 'types that are not recorded'
const MAX_LISTED = 3

/**
 * What a build lacks for these operators, by a code and in words; undefined if it has all.
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
  if (restriction.custom || isOneHot(need)) return wrongTriple(inputs, restriction.custom ?? [])
  const sides = [[inputs, restriction.inputs], [outputs, restriction.outputs]]
  const faults = sides.flatMap(([found, allowed]) =>
    Object.entries(allowed).map(([position, names]) => without(own(found, position) ?? [], names)))
  return faults.find(Boolean) ?? ''
}

/** Types that nobody recorded are not proven. @param {string[]} found @param {string[]} allowed */
function without(found, allowed) {
  return found.length ? [...new Set(found)].filter((name) => !allowed.includes(name)).sort().join(' and ') : UNRECORDED
}

/** Its types are always triples: a config in any other form allows none. @param {Need} need */
function isOneHot({ domain, name }) {
  return domain === 'ai.onnx' && name === 'OneHot'
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
