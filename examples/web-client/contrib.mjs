/**
 * Contrib operators: those that ONNX Runtime adds to ONNX's, and the releases that run them.
 *
 * `docs/resolve.md`, "Contrib operators", has the rules.
 */

import { FIRST_RELEASES } from './contrib-releases.mjs'
import { own } from './values.mjs'

/** @typedef {import('./values.mjs').Json} Json */
/** @typedef {import('./operators.mjs').Need} Need */

export const DOMAIN = 'com.microsoft'

/** Whether a release has all that is needed. @param {string[]} needs @param {[major: number, minor: number]} release */
export function meets(needs, [major, minor]) {
  return needs.every((need) => {
    const first = firstRelease(need)
    return first && (major > 1 || (major === 1 && first <= minor))
  })
}

/** The minor release that first has a need, such as `Attention` or `Attention bits=8`; 0 if none has it. @param {string} need */
function firstRelease(need) {
  const [operator, feature = ''] = need.split(' ')
  const prefix = feature && `${feature} `
  const rows = (own(FIRST_RELEASES, operator) ?? '').split(', ')
  return rows.map((/** @type {string} */ row) => (row.startsWith(prefix) ? Number(row.slice(prefix.length)) : 0)).find(Boolean) ?? 0
}

/**
 * The needs of an artifact of which only the operator set is recorded, which has no attributes: `bits` counts as 8,
 * unless the weights have 4.
 * @param {Need[]} operators
 * @param {string} precision
 * @param {boolean} isOrt in ORT format nothing is cast
 */
export function needsOfSet(operators, precision, isOrt) {
  return operators.flatMap(({ domain, name, inputs = {}, outputs = {} }) => {
    const operator = domain === DOMAIN ? name : `${domain}:${name}`
    const types = [...Object.values(inputs), ...Object.values(outputs)].flat()
    const positions = Object.keys(inputs).filter((position) => /^[0-9]{1,4}$/.test(position))
    const count = Math.max(-1, ...positions.map(Number)) + 1
    const kernels = isOrt ? types.map((type) => `kernel=${type}`) : []
    const features = [`inputs=${count}`, ...types, ...kernels, ...(precision === 'int4' ? [] : ['bits', 'bits=8'])]
    const listed = [operator, ...features.map((feature) => `${operator} ${feature}`)]
    return listed.filter((word) => firstRelease(word) || (domain === DOMAIN && word === name))
  })
}
