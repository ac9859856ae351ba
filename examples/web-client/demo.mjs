/** The demo page: `index.html?registry=URL&model=NAME` tags the typed text with the model that this browser gets. */

import * as ort from 'onnxruntime-web'

import { browserStore, Registry } from './onnxreg.mjs'
import { Tagger } from './tagger.mjs'

const asked = new URLSearchParams(location.search)
const url = asked.get('registry') ?? new URL('.', location.href).href
const model = asked.get('model') ?? 'demo/pii'
const device = { ort: ort.env.versions.web, providers: ['CPU'], platform: 'web' }
const query = { where: asked.get('where') }

const registry = new Registry(url, browserStore(url))
/** @type {Tagger | undefined} */
let tagger

/** @template {HTMLElement} T @param {string} id @returns {T} */
const element = (id) => /** @type {T} */ (document.getElementById(id))
const [status, release, output] = ['status', 'release', 'output'].map((id) => element(id))
/** @type {HTMLProgressElement} */
const progress = element('progress')
/** @type {HTMLTextAreaElement} */
const text = element('text')

/** Switch to the release that matches now; if that fails, keep the current one. */
async function update() {
  say('Looking for the model that this browser runs...')
  progress.hidden = false
  try {
    await use(await registry.update(model, { device, query }, { onProgress: showProgress }))
    say('Ready.')
  } catch (error) {
    const { current } = await registry.slot(model)
    if (current) await use(current)
    say(`${error instanceof Error ? error.message : error}.${current ? ' The present release stays.' : ''}`)
  } finally {
    progress.hidden = true
  }
}

async function rollBack() {
  await use(await registry.rollback(model))
  say('Rolled back.')
}

/** @param {import('./onnxreg.mjs').Release} found */
async function use(found) {
  tagger = await Tagger.load(ort, registry, found)
  release.textContent = `${found.name} ${found.version}, ${found.artifact.path} (${found.artifact.size.toLocaleString('en')} bytes)`
}

async function tag() {
  if (!tagger) return
  const typed = text.value
  const { spans, read } = await tagger.tag(typed)
  const chars = [...typed]
  output.replaceChildren(...marked(chars, spans))
  if (chars.slice(read).join('').trim()) say(`The model takes no longer texts: only the first ${read} characters were read.`)
}

/**
 * @param {string[]} chars
 * @param {import('./tagger.mjs').Span[]} spans
 * @returns {Generator<Node | string>}
 */
function* marked(chars, spans) {
  let place = 0
  for (const { start, end, label } of spans) {
    yield chars.slice(place, start).join('')
    const mark = document.createElement('mark')
    const name = document.createElement('small')
    name.textContent = label
    mark.append(chars.slice(start, end).join(''), ' ', name)
    Object.assign(mark.dataset, { start, end, label })
    yield mark
    place = end
  }
  yield chars.slice(place).join('')
}

/** @param {number} done @param {number} total */
function showProgress(done, total) {
  progress.max = total
  progress.value = done
}

/** @param {string} message */
function say(message) {
  status.textContent = message
}

/** @param {() => Promise<void>} act */
function guarded(act) {
  return () => act().catch((error) => say(String(error.message ?? error)))
}

element('tag').addEventListener('click', guarded(tag))
element('update').addEventListener('click', guarded(update))
element('rollback').addEventListener('click', guarded(rollBack))
ort.env.wasm.wasmPaths = new URL('node_modules/onnxruntime-web/dist/', location.href).href
ort.env.wasm.numThreads = 1
await guarded(update)()
