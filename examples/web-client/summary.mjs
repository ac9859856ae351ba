/**
 * Make the summary of a version from its manifest, as `docs/format.md` specifies. It is compared with the index file, and used
 * for versions without a summary in the index file.
 */

import { digestOf, picked } from './documents.mjs'

/** @typedef {import('./values.mjs').Json} Json */

const RECALL = 'character_recall/'
const MAX_METRICS = 32
const SUMMARY_KEYS = ['manifest', 'size', 'task', 'family', 'license']
const ARTIFACT_KEYS = [
  ...['format', 'precision', 'path', 'digest', 'size', 'state', 'files', 'opset', 'ort_format', 'operators'],
  ...['providers', 'recall', 'ir_version', 'domains', 'member', 'contract', 'contrib', 'kv_cache', 'metrics', 'preferred'],
]

/** A summary of an index file as `summarize` makes one: a newer build may write further keys. @param {Json} summary */
export function comparable(summary) {
  const artifacts = summary.artifacts.map((/** @type {Json} */ artifact) => filled(picked(artifact, ARTIFACT_KEYS)))
  return { ...filled(picked(summary, SUMMARY_KEYS)), files: summary.files, artifacts }
}

/** @param {Json} manifest @param {string} digest of the manifest @param {number} size of the manifest */
export async function summarize(manifest, digest, size) {
  const { artifacts, files, task, family, license, model_family } = manifest
  const entries = (model_family?.members ?? []).filter((/** @type {Json} */ each) => ['backbone', 'stage'].includes(each.role))
  const owners = new Map(entries.flatMap((/** @type {Json} */ { role, name, artifacts: paths }) =>
    paths.map((/** @type {string} */ path) => [path, role === 'stage' ? name : null])))
  const shown = artifacts.filter((/** @type {Json} */ { path }) => !model_family || owners.has(path))
  return {
    ...filled({ manifest: digest, size, task, family, license }),
    artifacts: await Promise.all(shown.map((/** @type {Json} */ each) => artifactSummary(manifest, each, owners.get(each.path)))),
    files: (files ?? []).map(fileSummary),
  }
}

/** @param {Json} manifest @param {Json} artifact @param {string | null | undefined} member */
async function artifactSummary(manifest, { metadata = {}, operators = [], checks = [], certification, ...artifact }, member) {
  const domains = new Set(operators.map((/** @type {Json} */ each) => each.domain))
  domains.delete('ai.onnx')
  const measured = checks.filter((/** @type {Json} */ { value }) => (value ?? null) !== null)
  const isRecall = (/** @type {Json} */ { name }) => name.startsWith(RECALL)
  const suite = certification?.evidence?.suite ?? null
  const isOfSuite = (/** @type {Json} */ check) => suite !== null && check.dataset === suite && !isRecall(check)
  return filled({
    ...{ format: artifact.format, precision: artifact.precision, path: artifact.path },
    ...{ digest: artifact.digest, size: artifact.size, state: certification?.state ?? 'unknown' },
    files: (artifact.files ?? []).map(fileSummary),
    opset: metadata.opset,
    ort_format: artifact.ort_format,
    operators: operators.length ? await digestOf(operators) : null,
    providers: metadata.execution_providers,
    recall: rows(measured.filter(isRecall), (name) => name.slice(RECALL.length)),
    ir_version: artifact.ir_version,
    domains: [...domains].sort(),
    member,
    contrib: artifact.contrib,
    contract: await contractOf(manifest, metadata),
    kv_cache: artifact.kv_cache,
    metrics: rows(measured.filter(isOfSuite).slice(0, MAX_METRICS), (name) => name),
    preferred: manifest.recipe?.parameters?.search?.output === artifact.path || null,
  })
}

/**
 * The digest of everything that an app relies on (docs/resolve.md, "Contracts"), or null if inputs or outputs are not recorded.
 * @param {Json} manifest
 * @param {Json} metadata of the artifact
 */
async function contractOf({ labels, files = [], preprocessing }, { inputs = [], outputs = [] }) {
  if (!inputs.length || !outputs.length) return null
  const digests = (/** @type {string} */ role) => {
    const named = files.filter((/** @type {Json} */ file) => file.role === role)
    return named.length ? Object.fromEntries(named.map((/** @type {Json} */ file) => [file.path, file.digest])) : null
  }
  return digestOf(filled({
    inputs: inputs.map(tensor),
    outputs: outputs.map(tensor),
    labels: labels?.length ? labels : digests('labels'),
    tokenizer: digests('tokenizer'),
    segmenter: digests('segmenter'),
    preprocessing,
  }))
}

/** @param {Json} spec */
function tensor({ name, dtype, shape = [] }) {
  return { name, dtype, shape: shape.map((/** @type {Json} */ dim) => dim.value ?? null) }
}

/** @param {Json} entry */
function fileSummary({ role, path, digest, size }) {
  return { role, path, digest, size }
}

/** Values by name, or null if there are no values. @param {Json[]} checks @param {(name: string) => string} nameOf */
function rows(checks, nameOf) {
  return checks.length ? Object.fromEntries(checks.map(({ name, value }) => [nameOf(name), value])) : null
}

/** An object without its unknown values and empty lists. @param {Json} value @returns {Json} */
function filled(value) {
  return Object.fromEntries(Object.entries(value).filter(([, item]) => (item ?? null) !== null && item.length !== 0))
}
