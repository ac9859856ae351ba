/**
 * A token classifier in ONNX Runtime Web: a text in, labelled spans out.
 *
 * It needs only a release of the registry: the model, `tokenizer.json`, the labels and `config.json`.
 */

import { WordPiece } from './wordpiece.mjs'

/** @typedef {Record<string, any>} Json */
/** @typedef {{start: number, end: number, label: string}} Span half open, in code points */

export class Tagger {
  #ort
  #session
  #tokenizer
  #labels
  #most

  /**
   * @param {any} ort the module of onnxruntime-web
   * @param {any} session
   * @param {{tokenizer: Json, labels: Json, config: Json}} files
   */
  constructor(ort, session, { tokenizer, labels, config }) {
    this.#ort = ort
    this.#session = session
    this.#tokenizer = new WordPiece(tokenizer)
    this.#labels = Object.keys(labels).map((index) => labels[index])
    this.#most = config.max_sequence_length ?? config.max_position_embeddings
  }

  /**
   * @param {any} ort
   * @param {import('./onnxreg.mjs').Registry} registry
   * @param {import('./onnxreg.mjs').Release} release
   */
  static async load(ort, registry, release) {
    const json = async (/** @type {string} */ path) =>
      JSON.parse(new TextDecoder().decode(await registry.read(release, path)))
    const [tokenizer, labels, config] = await Promise.all(['tokenizer.json', 'id2label.json', 'config.json'].map(json))
    const model = await registry.read(release, release.artifact.path)
    return new Tagger(ort, await ort.InferenceSession.create(model), { tokenizer, labels, config })
  }

  /**
   * The spans of a text, and how many code points were read: fewer than all if the text is too long for the model.
   * @param {string} text
   */
  async tag(text) {
    const { ids, offsets, special } = fitting(this.#tokenizer.encode(text), this.#most)
    const { logits } = await this.#session.run(this.#feeds(ids))
    const [, , width] = logits.dims
    const tags = ids.map((_, at) => best(logits.data.subarray(at * width, (at + 1) * width)))
    const kept = ids.map((_, at) => at).filter((at) => !special[at])
    const spans = spansOf(kept.map((at) => this.#labels[tags[at]]), kept.map((at) => offsets[at]), this.#labels)
    return { spans, tags, read: offsets.reduce((most, [, end]) => Math.max(most, end), 0) }
  }

  /** @param {number[]} ids */
  #feeds(ids) {
    /** @type {Record<string, bigint[]>} */
    const values = {
      input_ids: ids.map(BigInt),
      attention_mask: ids.map(() => 1n),
      token_type_ids: ids.map(() => 0n),
    }
    const tensor = (/** @type {string} */ name) => new this.#ort.Tensor('int64', BigInt64Array.from(values[name]), [1, ids.length])
    return Object.fromEntries(this.#session.inputNames.map((/** @type {string} */ name) => [name, tensor(name)]))
  }
}

/**
 * The first tokens, and the special ones behind the text.
 * @param {import('./wordpiece.mjs').Encoding} encoding
 * @param {number} most
 */
function fitting({ ids, offsets, special }, most) {
  const behind = special.length - 1 - special.lastIndexOf(false)
  const cut = Math.max(0, ids.length - most)
  const keep = (/** @type {any[]} */ list) => [...list.slice(0, list.length - behind - cut), ...list.slice(list.length - behind)]
  return { ids: keep(ids), offsets: keep(offsets), special: keep(special) }
}

/** @param {Float32Array} row */
function best(row) {
  return row.reduce((found, value, at) => (value > row[found] ? at : found), 0)
}

/**
 * Neighbouring tokens of one label form one span, unless a tag says that it begins or ends one.
 *
 * The marks of tags (B, I, E, ...) are read as `reg` reads them: see `schemeOf`.
 * @param {string[]} tags of tokens in reading order
 * @param {[number, number][]} offsets
 * @param {string[]} labels all that the model has
 * @returns {Span[]}
 */
export function spansOf(tags, offsets, labels) {
  /** @type {Span[]} */
  const found = []
  const scheme = schemeOf(labels)
  let open = false
  tags.forEach((tag, at) => {
    const [start, end] = offsets[at]
    if (start >= end) return
    const [mark, label] = scheme.get(tag) ?? ['', '']
    const last = found.at(-1)
    if (open && last?.label === label && !'BSU'.includes(mark || '-')) last.end = end
    else if (label) found.push({ start, end, label })
    open = label !== '' && !'ELSU'.includes(mark || '-')
  })
  return found
}

const PATTERNS = [...'-_:/.'].flatMap((joint) => [
  { isPrefix: true, form: new RegExp(`^(?<mark>[BILUESM])\\${joint}(?<name>.+)$`, 'is') },
  { isPrefix: false, form: new RegExp(`^(?<name>.+)\\${joint}(?<mark>[BILUESM])$`, 'is') },
])

/**
 * The mark and the label of each tag but `O`: BIO, BIOES, BILOU, BMES and IO, in any case of letters, as `B-NAME` or `NAME-B`.
 * @param {string[]} labels all that the model has
 * @returns {Map<string, [string, string]>}
 */
export function schemeOf(labels) {
  const inside = labels.filter((tag) => tag !== 'O' && tag !== 'o')
  const scheme = new Map(inside.map((tag) => /** @type {[string, [string, string]]} */ ([tag, ['', tag]])))
  for (const { isPrefix, form } of PATTERNS) {
    /** @type {[string, string, string][]} */
    const marked = inside.flatMap((tag) => {
      const groups = form.exec(tag)?.groups
      return groups ? [[tag, groups.mark.toUpperCase(), groups.name]] : []
    })
    const isEveryTag = marked.length > 0 && marked.length === inside.length
    const begun = new Set(marked.filter(([, mark]) => mark === 'B').map(([, , name]) => name))
    const isContinued = marked.some(([, mark, name]) => begun.has(name) && (isPrefix ? mark !== 'B' : 'IM'.includes(mark)))
    if (isContinued || (isPrefix && isEveryTag && marked.every(([, mark]) => 'BI'.includes(mark)))) {
      for (const [tag, mark, name] of marked) {
        if (begun.has(name) || (isEveryTag && 'BI'.includes(mark))) scheme.set(tag, [mark, name])
      }
      break
    }
  }
  return scheme
}
