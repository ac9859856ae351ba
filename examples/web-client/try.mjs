/**
 * *Try it* on a version's page of `reg serve` and `reg site`: this browser downloads the artifact that fits it, verified,
 * and runs it on a text or an image. Nothing leaves the machine.
 *
 * Before any answer, the runtime must reproduce the release's golden vectors, and the tokenizer or the scaling of images must
 * give the numbers that the export published (docs/golden.md). Otherwise there is no answer.
 *
 * `node build.mjs try` writes this script with its runtime; the page has the form (`version.html`).
 */

import { Tokenizer } from '@huggingface/tokenizers'

import { goldenTest } from './golden-test.mjs'
import { browserStore, IntegrityError, NotFoundError, preset, RegError, Registry } from './onnxreg.mjs'
import { numbersOf } from './pixels.mjs'
import { placesOf, spansOf, tagsOf } from './spans.mjs'

/** @typedef {import('./onnxreg.mjs').Release} Release */
/** @typedef {import('./values.mjs').Json} Json */
/** @typedef {Record<string, {dims: number[], data: Float32Array, type: string}>} Outputs */
/** A loaded model; `json` reads the first file of the release that fits, null if none does. @typedef {{ort: any, session: any, release: Release, json: (fits: (file: import('./onnxreg.mjs').File) => boolean) => Promise<any>}} Model */
/** The shown nodes, and the milliseconds that the graph took. @typedef {{shown: (Node | string)[], milliseconds: number}} Answer */

/** The text whose tokens are the golden vectors of an export (docs/golden.md). */
export const TEXT = [
  'The patient was seen on 2024-03-18 by Dr. Maria Lindqvist and can be reached at +1 (555) 010-4477.',
  'Please send the invoice to 12 Harbour Street, Apt. 4B, Springfield, or to anna.keller@example.org.',
  'Le dossier n° 88-1204 a été transmis au médecin traitant; la prochaine visite est fixée au 7 mai.',
  '昨日、田中さんから電話がありました。住所は変わっていません。',
].join(' ')
/** The lengths of the two rows from which the padded case of the golden vectors is cut. The second row comes first. */
const ROWS = [48, 31]
/** Width and height of the drawn image whose numbers an export publishes, and the value of a pixel's channel. */
const [WIDTH, HEIGHT] = [331, 247]
const drawn = (/** @type {number} */ x, /** @type {number} */ y, /** @type {number} */ channel) => (2 * x + y + 64 * channel + ((x * y) % 50)) % 256
const CLOSE = 1e-4

const section = /** @type {HTMLElement} */ (document.getElementById('try'))
const { name = '', version = '', task = '', registry: id = '', tree = '' } = section.dataset
const preprocessing = JSON.parse(section.dataset.preprocessing || 'null')
const form = /** @type {HTMLFormElement} */ (section.querySelector('form'))
const status = /** @type {HTMLElement} */ (section.querySelector('[role=status]'))
const result = /** @type {HTMLElement} */ (section.querySelector('.result'))
/** @type {Promise<{backend: string, offline: boolean, release: Release, answer: (given: any[]) => Promise<Answer>}> | undefined} */
let loading

section.hidden = false
form.addEventListener('submit', async (event) => {
  event.preventDefault()
  const button = /** @type {HTMLButtonElement} */ (form.querySelector('button'))
  button.disabled = true
  result.replaceChildren()
  try {
    const given = [...form.querySelectorAll('textarea, input')].map((/** @type {any} */ field) => (field.files ? field.files[0] : field.value))
    const { answer, backend, offline, release } = await (loading ??= load())
    const { shown, milliseconds } = await answer(given)
    result.append(...shown)
    const { path, precision, state } = release.artifact
    status.textContent = `${milliseconds.toFixed(1)} ms in ${backend}, by ${path} (${precision}${state === 'unknown' ? '' : `, ${state}`}), verified${offline ? '; the registry cannot be reached' : ''}`
  } catch (error) {
    status.textContent = message(error)
    if (error instanceof Unlike) form.hidden = true
    else if (!(error instanceof Unfit)) loading = undefined
  }
  button.disabled = false
})

/** This browser does not compute what the export published. */
class Unlike extends Error {}
/** The model cannot answer this text or image. */
class Unfit extends Error {}

/** The text that says what happened, and what to do. @param {any} error */
function message(error) {
  if (error instanceof Unlike || error instanceof Unfit) return error.message
  if (error?.name === 'QuotaExceededError') return 'This browser has no room for the model: free some space, or leave its private mode.'
  if (error instanceof IntegrityError) return `What came is not what was published, and was thrown away: ${error.message}. Try again.`
  if (error instanceof NotFoundError) return `Nothing runs in this browser: ${error.message}.`
  if (error instanceof RegError) return `The registry does not answer: ${error.message}. Try again.`
  return `That failed: ${error?.message ?? error}`
}

/** Load in WebGPU if it is available and reproduces the golden vectors, else in WebAssembly. @returns {ReturnType<typeof loadIn>} */
async function load() {
  const hasGpu = await /** @type {any} */ (navigator).gpu?.requestAdapter().catch(() => null)
  return (hasGpu && (await loadIn('webgpu').catch(() => null))) || loadIn('wasm')
}

/** Download the matching artifact, and check that it reproduces the published numbers. @param {'webgpu' | 'wasm'} backend */
async function loadIn(backend) {
  const registry = new Registry(new URL(tree, location.href).href, browserStore(`onnxreg-try ${id}`))
  const onProgress = (/** @type {number} */ done, /** @type {number} */ total) => {
    status.textContent = `Downloading: ${(done / 1e6).toFixed(1)} of ${(total / 1e6).toFixed(1)} MB`
  }
  const update = async () => {
    const updated = await registry.update(name, { tag: version, device: preset(`ort-${backend === 'wasm' ? 'web' : backend}-1.30`) }, { onProgress })
    await registry.tidy()
    if (updated.release.version !== version) throw new NotFoundError(`${name}:${version} is not offered any more`)
    return updated
  }
  status.textContent = 'Asking the registry'
  const { release, offline } = await (navigator.locks ? navigator.locks.request('onnxreg-try', update) : update()) // one tab deletes what another needs
  status.textContent = 'Checking the model'
  const ort = await runtime(backend)
  const session = await ort.InferenceSession.create(await registry.read(release, release.artifact.path), { executionProviders: [backend] })
  const json = async (/** @type {(file: import('./onnxreg.mjs').File) => boolean} */ fits) => {
    const file = release.files.find(fits)
    return file ? JSON.parse(new TextDecoder().decode(await registry.read(release, file.path))) : null
  }
  const golden = await json(({ role }) => role === 'golden')
  const lasting = { run: (/** @type {any} */ feeds) => session.run(feeds) }
  if (!golden || !(await goldenTest(registry, ort, { open: async () => lasting })(release))) {
    throw new Unlike('This browser does not compute the published golden vectors, so the model cannot be tried here.')
  }
  const answer = await (task === 'image-classification' ? ofImages : ofTexts)({ ort, session, release, json }, golden)
  return { answer, backend: backend === 'wasm' ? 'WebAssembly' : 'WebGPU', offline, release }
}

/** The runtime. Its WebAssembly is stored beside the models. @param {'webgpu' | 'wasm'} backend */
async function runtime(backend) {
  const ort = await import(new URL(`ort.${backend}.js`, import.meta.url).href)
  const file = new URL(backend === 'webgpu' ? 'ort-wasm-simd-threaded.asyncify.wasm' : 'ort-wasm-simd-threaded.wasm', import.meta.url)
  const [store, key] = [browserStore('onnxreg-try runtime'), `${file.pathname} ${ort.env.versions.web}`]
  let bytes = await store.get(key)
  if (!bytes) {
    const response = await fetch(file)
    if (!response.ok) throw new Error(`${file.pathname} is not there`)
    bytes = new Uint8Array(await response.arrayBuffer())
    for (const old of await store.keys('')) await store.delete(old)
    await store.put(key, bytes)
  }
  Object.assign(ort.env.wasm, { numThreads: 1, wasmBinary: bytes })
  return ort
}

/** A function that answers texts, with the release's own tokenizer. @param {Model} model @param {Json} golden */
async function ofTexts(model, golden) {
  const named = (/** @type {string} */ name) => model.json(({ path }) => path.split('/').at(-1) === name)
  const [file, settings, config] = [await named('tokenizer.json'), await named('tokenizer_config.json'), (await named('config.json')) ?? {}]
  const most = Number(section.dataset.most) || Infinity
  const encode = (/** @type {string} */ text) => tokenizer.encode(text, { return_token_type_ids: true })
  const areFound = () => task !== 'token-classification' || placesOf(tokenizer, file, TEXT, encode(TEXT).tokens)
  /** @type {Tokenizer} */
  let tokenizer
  try {
    tokenizer = new Tokenizer(file, settings ?? {})
    if (!isHeld(golden, encode(TEXT).ids, most) || !areFound()) throw new Error('other tokens')
  } catch {
    throw new Unlike('This browser does not make the published tokens of a text, so the model cannot be tried here.')
  }
  const prompt = config.prompts?.[config.default_prompt_name] ?? ''
  const labels = await labelsOf(model)
  const read = async (/** @type {string} */ text) => {
    const encoded = encode(text)
    const count = encoded.ids.length
    if (count > most) throw new Unfit(`The text has ${count} tokens, and the model takes ${most}: shorten it.`)
    if (!count || !text.trim()) throw new Unfit('Write a text.')
    const rows = { input_ids: encoded.ids, attention_mask: encoded.attention_mask, token_type_ids: encoded.token_type_ids }
    const feeds = Object.entries(rows).filter(([name]) => model.session.inputNames.includes(name))
    return { encoded, ...(await run(model, feeds.map(([name, ids]) => [name, 'int64', BigInt64Array.from(ids, BigInt), [1, count]]))) }
  }
  return async (/** @type {string[]} */ [text, other]) => {
    if (task !== 'token-classification' && task !== 'text-classification') {
      const [one, two] = [await read(prompt + text), await read(prompt + other)]
      const [a, b] = [one, two].map(({ outputs, encoded }) => vectorOf(outputs, encoded.ids.length))
      const dot = (/** @type {number[]} */ left, /** @type {number[]} */ right) => left.reduce((sum, value, at) => sum + value * right[at], 0)
      const cosine = dot(a, b) / (Math.sqrt(dot(a, a) * dot(b, b)) || 1)
      return { shown: [element('p', `Cosine ${cosine.toFixed(4)}, of vectors of ${a.length} numbers`)], milliseconds: one.milliseconds + two.milliseconds }
    }
    const { encoded, outputs, milliseconds } = await read(text)
    const { data } = outputs.logits
    if (task === 'text-classification') return { shown: classes(data, labels, config), milliseconds }
    const places = placesOf(tokenizer, file, text, encoded.tokens)
    if (!places) throw new Unfit('The tokens of this text cannot be found in it again: try another one.')
    const width = data.length / encoded.ids.length
    if (width !== labels.length) throw new Unfit(`The model has ${width} tags, and the version ${labels.length} labels.`)
    const tags = tagsOf(labels)
    const highest = (/** @type {Float32Array} */ logits) => logits.indexOf(Math.max(...logits))
    const best = places.map((_, token) => tags[highest(data.subarray(token * width, (token + 1) * width))])
    return { shown: marked(text, spansOf(text, places, best)), milliseconds }
  }
}

/** A function that answers images with their classes. @param {Model} model */
async function ofImages(model) {
  const example = { width: WIDTH, height: HEIGHT, data: new Uint8Array(4 * WIDTH * HEIGHT) }
  example.data.forEach((_, at) => (example.data[at] = drawn((at >> 2) % WIDTH, Math.floor((at >> 2) / WIDTH), at % 4)))
  const { data } = numbersOf(example, preprocessing)
  const sample = preprocessing.sample ?? []
  const isNear = (/** @type {number} */ value, /** @type {number} */ at) => Math.abs(value - data[at * Math.floor(data.length / sample.length)]) <= CLOSE
  if (!sample.length || !sample.every(isNear)) {
    throw new Unlike('This browser does not make the published numbers of an image, so the model cannot be tried here.')
  }
  const [labels, config] = [await labelsOf(model), (await model.json(({ role }) => role === 'config')) ?? {}]
  return async (/** @type {(File | undefined)[]} */ [file]) => {
    if (!file) throw new Unfit('Choose an image.')
    const bitmap = await createImageBitmap(file, { colorSpaceConversion: 'none', premultiplyAlpha: 'none' }).catch(() => null)
    if (!bitmap) throw new Unfit(`${file.name} is not an image that this browser reads.`)
    const context = /** @type {OffscreenCanvasRenderingContext2D} */ (new OffscreenCanvas(bitmap.width, bitmap.height).getContext('2d'))
    context.drawImage(bitmap, 0, 0)
    const numbers = numbersOf(context.getImageData(0, 0, bitmap.width, bitmap.height), preprocessing)
    const { outputs, milliseconds } = await run(model, [[model.session.inputNames[0], 'float32', numbers.data, numbers.shape]])
    return { shown: classes(outputs[model.session.outputNames[0]].data, labels, config), milliseconds }
  }
}

/** The labels in the order of the logits. @param {Model} model @returns {Promise<string[]>} */
async function labelsOf(model) {
  return Object.values((await model.json(({ role }) => role === 'labels')) ?? {})
}

/** True if the tokens of the text are those of the golden vectors. @param {Json} golden @param {number[]} ids @param {number} most */
function isHeld({ cases }, ids, most) {
  const starts = [0, Math.min(ROWS[0], most), Math.min(ROWS[0], most) + Math.min(ROWS[1], most)]
  const rows = ['row', 'padded'].flatMap((name) => {
    const inputs = cases.find((/** @type {Json} */ each) => each.name === name)?.inputs
    const [count, width] = inputs?.input_ids?.shape ?? [0, 0]
    const part = (/** @type {string} */ key, /** @type {number} */ row) => inputs[key].data.slice(row * width, (row + 1) * width)
    return Array.from({ length: count }, (_, row) => part('input_ids', row).filter((/** @type {number} */ _, /** @type {number} */ at) => part('attention_mask', row)[at]))
  })
  const isPart = (/** @type {number[]} */ row, /** @type {number} */ index) => row.every((id, at) => id === (ids[starts[index] + at] ?? id))
  return rows.length === starts.length && rows[0].length > 0 && rows.every(isPart)
}

/** @param {Model} model @param {[string, string, any, number[]][]} feeds name, type, values, shape */
async function run({ ort, session }, feeds) {
  const tensors = feeds.map(([name, type, data, shape]) => [name, new ort.Tensor(type, data, shape)])
  const start = performance.now()
  const outputs = /** @type {Outputs} */ (await session.run(Object.fromEntries(tensors)))
  if (Object.values(outputs).some(({ type }) => type !== 'float32')) throw new Unfit('The model gives numbers of a type that this page does not read.')
  return { outputs, milliseconds: performance.now() - start }
}

/** The vector of a text: the graph's own, or the mean of the vectors of its tokens. @param {Outputs} outputs @param {number} count of tokens @returns {number[]} */
function vectorOf(outputs, count) {
  const { dims, data } = outputs.embeddings ?? outputs.sentence_embedding ?? outputs.text_embeds ?? outputs.last_hidden_state ?? Object.values(outputs)[0]
  if (dims.length === 2) return Array.from(data)
  const width = data.length / count
  return Array.from({ length: width }, (_, at) => {
    let sum = 0
    for (let place = at; place < data.length; place += width) sum += data[place]
    return sum / count
  })
}

/** The classes with their scores, the best first; scored as `reg run` does. @param {Float32Array} logits @param {string[]} labels @param {Json} config */
function classes(logits, labels, { problem_type: problem }) {
  const top = Math.max(...logits)
  const powers = Array.from(logits, (logit) => Math.exp(logit - top))
  const sum = powers.reduce((total, power) => total + power, 0)
  const isSigmoid = problem === 'multi_label_classification' || logits.length === 1
  const scores = Array.from(logits, (logit, at) => (problem === 'regression' ? logit : isSigmoid ? 1 / (1 + Math.exp(-logit)) : powers[at] / sum))
  const order = scores.map((_, at) => at).sort((a, b) => scores[b] - scores[a])
  const rows = order.slice(0, 10).map((at) => element('li', element('strong', labels[at] ?? `LABEL_${at}`), ` ${scores[at].toFixed(4)}`))
  return [element('ol', ...rows), ...(order.length > 10 ? [element('p', `and ${order.length - 10} more`)] : [])]
}

/** A text with its spans marked. @param {string} text @param {import('./spans.mjs').Span[]} spans */
function marked(text, spans) {
  const characters = [...text]
  const parts = []
  let at = 0
  for (const span of spans) {
    const mark = element('mark', span.text, ' ', element('span', span.label))
    parts.push(characters.slice(at, span.start).join(''), mark)
    at = span.end
  }
  const line = element('p', ...parts, characters.slice(at).join(''))
  line.dir = 'auto'
  return [line, ...(spans.length ? [] : [element('p', 'Nothing is marked.')])]
}

/** @param {string} tag @param {(Node | string)[]} children */
function element(tag, ...children) {
  const made = document.createElement(tag)
  made.append(...children)
  return made
}
