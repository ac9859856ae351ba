/**
 * The labelled spans of a text, from the tokens of `@huggingface/tokenizers` and a model's tag for each: the same as those
 * of `reg run --text` (converters/evaluation/tokens.py).
 */

/** @typedef {{start: number, end: number, label: string, text: string}} Span in code points, half-open */
/** @typedef {{label: string, begins: boolean, ends: boolean}} Tag `label` is '' for the outside tag */

/** The characters that stand for another byte in tokens of byte-level models, and this byte. */
const BYTES = new Map(
  Array.from({ length: 256 }, (_, byte) => byte)
    .filter((byte) => !((byte > 32 && byte < 127) || (byte > 160 && byte !== 173)))
    .map((byte, index) => [String.fromCodePoint(256 + index), byte]),
)

/**
 * The place of each token in the text, or null for a special token. If a token differs from the text at its place, the result
 * is null for all, so that no span is at a wrong place.
 * @param {any} tokenizer of `@huggingface/tokenizers`
 * @param {Record<string, any>} json its tokenizer.json
 * @param {string} text
 * @param {string[]} tokens
 * @returns {([number, number] | null)[] | null}
 */
export function placesOf(tokenizer, json, text, tokens) {
  const special = new Set((json.added_tokens ?? []).filter((/** @type {any} */ each) => each.special).map((/** @type {any} */ each) => each.content))
  const isOfBytes = /"type":"ByteLevel"/.test(JSON.stringify([json.pre_tokenizer, json.decoder]))
  const prefix = json.model.continuing_subword_prefix || '\uffff'
  const unknown = json.model.unk_token ?? json.model.vocab?.[json.model.unk_id]?.[0]
  const gap = json.model.type === 'BPE' && !json.model.fuse_unk ? /^\S/u : /^([^\s\p{P}$+<=>^`|~]+|\S)/u
  /** @type {number[]} */
  const origins = []
  let written = ''
  for (const [place, character] of [...text].entries()) {
    const normal = tokenizer.normalizer ? tokenizer.normalizer.normalize(character) : character
    const piece = isOfBytes ? String.fromCodePoint(...new TextEncoder().encode(normal)) : normal
    written += piece
    origins.push(...Array(piece.length).fill(place))
  }
  /** @type {([number, number] | null)[]} */
  const places = []
  let at = 0
  for (const token of tokens) {
    if (special.has(token) && token !== unknown) {
      places.push(null)
      continue
    }
    at += /^\s*/.exec(written.slice(at))?.[0].length ?? 0
    const own = isOfBytes ? [...token].map((each) => String.fromCodePoint(BYTES.get(each) ?? each.codePointAt(0) ?? 0)).join('') : token
    const piece = own.replace(own.startsWith(prefix) ? prefix : '', '').replaceAll('▁', ' ').trim()
    const run = token === unknown ? gap.exec(written.slice(at))?.[0] : piece
    if (run === undefined || !written.startsWith(run, at)) return null
    places.push(run ? [origins[at], origins[at + run.length - 1] + 1] : null)
    at += run.length
  }
  return written.slice(at).trim() ? null : places
}

/**
 * The meaning of each of a model's tags, in the scheme of its labels: BIO, BIOES, BILOU, BMES or IO. A mark is read if the
 * label also has a tag with B. The marks B and I are also read if every tag has a mark.
 * @param {string[]} tags in the order of the logits
 * @returns {Tag[]}
 */
export function tagsOf(tags) {
  const inside = tags.filter((tag) => tag !== 'O' && tag !== 'o')
  const patterns = ['\\-', '_', ':', '/', '\\.'].flatMap((joint) => [`(?<mark>[BILUESM])${joint}(?<name>.+)`, `(?<name>.+)${joint}(?<mark>[BILUESM])`])
  for (const [place, pattern] of patterns.entries()) {
    const split = inside.map((tag) => new RegExp(`^${pattern}$`, 'is').exec(tag)?.groups)
    const pairs = split.flatMap((groups) => (groups ? [{ mark: groups.mark.toUpperCase(), name: groups.name }] : []))
    const [isPrefix, isEvery] = [place % 2 === 0, pairs.length > 0 && pairs.length === inside.length]
    const begun = new Set(pairs.filter(({ mark }) => mark === 'B').map(({ name }) => name))
    const isContinued = pairs.some(({ mark, name }) => begun.has(name) && ('IM'.includes(mark) || (isPrefix && mark !== 'B')))
    if (!isContinued && !(isPrefix && isEvery && pairs.every(({ mark }) => 'BI'.includes(mark)))) continue
    return tags.map((tag) => {
      const groups = split[inside.indexOf(tag)]
      const mark = groups?.mark.toUpperCase() ?? ''
      const isRead = groups && (begun.has(groups.name) || (isEvery && 'BI'.includes(mark)))
      if (!isRead) return { label: inside.includes(tag) ? tag : '', begins: false, ends: false }
      return { label: groups.name, begins: 'BSU'.includes(mark), ends: 'ELSU'.includes(mark) }
    })
  }
  return tags.map((tag) => ({ label: inside.includes(tag) ? tag : '', begins: false, ends: false }))
}

/**
 * Label every character, then join runs of one label. Neighbouring tokens of a label are one span with the text between them,
 * unless the left token ends a span or the right token begins one. Two spans that touch are shown as one.
 * @param {string} text
 * @param {([number, number] | null)[]} places
 * @param {Tag[]} tags of each token
 */
export function spansOf(text, places, tags) {
  const characters = [...text]
  const labels = Array(characters.length).fill('')
  let [current, reach] = ['', 0]
  for (const [index, place] of places.entries()) {
    if (!place) continue
    const { label, begins, ends } = tags[index]
    labels.fill(label, label === current && !begins ? reach : place[0], place[1])
    ;[current, reach] = [ends ? '' : label, place[1]]
  }
  /** @type {Span[]} */
  const spans = []
  for (let start = 0, end; start < labels.length; start = end) {
    for (end = start + 1; end < labels.length && labels[end] === labels[start]; ) end += 1
    if (labels[start]) spans.push({ start, end, label: labels[start], text: characters.slice(start, end).join('') })
  }
  return spans
}
