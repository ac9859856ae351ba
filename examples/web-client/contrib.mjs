/**
 * Contrib operators: those that ONNX Runtime adds to ONNX's, and the releases that run them.
 *
 * `docs/resolve.md`, "Contrib operators", has the rules.
 */

import { FIRST_RELEASES } from './contrib-releases.mjs'
import { own } from './values.mjs'

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
