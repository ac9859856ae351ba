/**
 * Texts to token ids as BERT's `tokenizer.json` has it: just enough of the format for WordPiece.
 *
 * A text goes through four stages: added tokens such as [SEP] are found in it as they are; the rest is normalized
 * character by character, so that each keeps its place in the text; split at spaces and punctuation; and each word cut
 * into the longest pieces that the vocabulary has. Other features of a `tokenizer.json` are refused.
 */

/** @typedef {Record<string, any>} Json */
/** @typedef {{char: string, place: number}} Char a normalized character, and the code point it came from */
/** `offsets` are half-open ranges of code points; those of tokens that the template adds are empty. */
/** @typedef {{ids: number[], offsets: [number, number][], special: boolean[]}} Encoding */

const CJK =
  /[\u4E00-\u9FFF\u3400-\u4DBF\u{20000}-\u{2A6DF}\u{2A700}-\u{2B73F}\u{2B740}-\u{2B81F}\u{2B920}-\u{2CEAF}\uF900-\uFAFF\u{2F800}-\u{2FA1F}]/u
const DROPPED = /[\0\uFFFD]|(?![\t\n\r])[\p{Cc}\p{Cf}\p{Co}]/u
const SPACE = /\p{White_Space}/u
const PUNCTUATION = /[!-/:-@[-`{-~]|\p{P}/u

export class WordPiece {
  #vocabulary
  #model
  #normalizer
  #added
  #template

  /** @param {Json} tokenizer the content of `tokenizer.json` */
  constructor(tokenizer) {
    const { model, normalizer, pre_tokenizer: words, post_processor: template } = tokenizer
    refuseUnless(model.type === 'WordPiece', `a ${model.type} model`)
    refuseUnless(normalizer?.type === 'BertNormalizer', `the normalizer ${normalizer?.type}`)
    refuseUnless(words?.type === 'BertPreTokenizer', `the pre-tokenizer ${words?.type}`)
    this.#model = model
    this.#vocabulary = new Map(Object.entries(model.vocab))
    this.#normalizer = { ...normalizer, strip_accents: normalizer.strip_accents ?? normalizer.lowercase }
    this.#added = addedTokens(tokenizer.added_tokens ?? [])
    this.#template = templateOf(template)
  }

  /** @param {string} text @returns {Encoding} */
  encode(text) {
    /** @type {Encoding} */
    const content = { ids: [], offsets: [], special: [] }
    for (const part of this.#parts([...text])) {
      if (part.id !== undefined) add(content, part.id, part.start, part.end)
      else this.#encodePart(part.chars, part.start, content)
    }
    return this.#template(content)
  }

  /** The text between added tokens, and these. @param {string[]} chars */
  *#parts(chars) {
    let start = 0
    for (let place = 0; place < chars.length; place++) {
      const found = this.#added.find(({ content }) => content.every((char, at) => chars[place + at] === char))
      if (!found) continue
      if (start < place) yield { chars: chars.slice(start, place), start, end: place }
      start = place + found.content.length
      yield { chars: [], id: found.id, start: place, end: start }
      place = start - 1
    }
    if (start < chars.length) yield { chars: chars.slice(start), start, end: chars.length }
  }

  /** @param {string[]} chars @param {number} start @param {Encoding} encoding */
  #encodePart(chars, start, encoding) {
    const normalized = chars.flatMap((char, at) => this.#normalize(char).map((each) => ({ char: each, place: start + at })))
    for (const word of wordsOf(normalized)) this.#encodeWord(word, encoding)
  }

  /** The replacement of one character. @param {string} char @returns {string[]} */
  #normalize(char) {
    const { clean_text: clean, handle_chinese_chars: chinese, strip_accents: strip, lowercase } = this.#normalizer
    if (clean && DROPPED.test(char)) return []
    let found = clean && SPACE.test(char) ? ' ' : char
    if (strip) found = found.normalize('NFD').replace(/\p{Mn}/gu, '')
    if (lowercase) found = Array.from(found, (each) => each.toLowerCase()).join('')
    return chinese && CJK.test(char) ? [' ', ...found, ' '] : [...found]
  }

  /**
   * The longest pieces of the vocabulary, one after the other; a single unknown token if none matches.
   * @param {Char[]} word
   * @param {Encoding} encoding
   */
  #encodeWord(word, encoding) {
    const { unk_token: unknown, continuing_subword_prefix: prefix, max_input_chars_per_word: most } = this.#model
    /** @type {[number, number, number][]} */
    const pieces = []
    for (let start = 0; start < word.length && word.length <= most; ) {
      let end = word.length
      while (end > start && !this.#vocabulary.has(spelling(word, start, end, prefix))) end--
      if (end === start) break
      pieces.push([this.#vocabulary.get(spelling(word, start, end, prefix)), start, end])
      start = end
    }
    const isWhole = pieces.at(-1)?.[2] === word.length
    for (const [id, start, end] of isWhole ? pieces : [[this.#vocabulary.get(unknown), 0, word.length]]) {
      add(encoding, id, word[start].place, word[end - 1].place + 1)
    }
  }
}

/** @param {Encoding} encoding @param {number} id @param {number} start @param {number} end */
function add({ ids, offsets, special }, id, start, end, isSpecial = false) {
  ids.push(id)
  offsets.push([start, end])
  special.push(isSpecial)
}

/** @param {Char[]} word @param {number} start @param {number} end @param {string} prefix */
function spelling(word, start, end, prefix) {
  const letters = word.slice(start, end).map(({ char }) => char)
  return (start ? prefix : '') + letters.join('')
}

/** Words and single punctuation marks. @param {Char[]} chars @returns {Generator<Char[]>} */
function* wordsOf(chars) {
  /** @type {Char[]} */
  let word = []
  for (const each of chars) {
    const isMark = PUNCTUATION.test(each.char)
    if (!isMark && !SPACE.test(each.char)) {
      word.push(each)
      continue
    }
    if (word.length) yield word
    if (isMark) yield [each]
    word = []
  }
  if (word.length) yield word
}

/** Longest first. @param {Json[]} tokens @returns {{content: string[], id: number}[]} */
function addedTokens(tokens) {
  return tokens
    .map(({ id, content, normalized, single_word: single, lstrip, rstrip }) => {
      refuseUnless(!normalized && !single && !lstrip && !rstrip, `the added token ${content}`)
      return { id, content: [...content] }
    })
    .sort((a, b) => b.content.length - a.content.length)
}

/**
 * The function that puts special tokens around a text.
 * @param {Json | null} template
 * @returns {(content: Encoding) => Encoding}
 */
function templateOf(template) {
  if (!template) return (content) => content
  const around = template.type === 'BertProcessing' ? [template.cls[1], null, template.sep[1]] : itemsOf(template)
  return (content) => {
    /** @type {Encoding} */
    const whole = { ids: [], offsets: [], special: [] }
    for (const id of around) {
      if (id !== null) add(whole, id, 0, 0, true)
      else content.ids.forEach((each, at) => add(whole, each, ...content.offsets[at]))
    }
    return whole
  }
}

/** The ids of a template; null in the place of the text. @param {Json} template @returns {(number | null)[]} */
function itemsOf({ type, single, special_tokens: special }) {
  refuseUnless(type === 'TemplateProcessing', `the post-processor ${type}`)
  return single.flatMap((/** @type {Json} */ item) => (item.SpecialToken ? special[item.SpecialToken.id].ids : [null]))
}

/** @param {boolean} known @param {string} what */
function refuseUnless(known, what) {
  if (!known) throw new Error(`this tokenizer has ${what}, which is not WordPiece as BERT has it`)
}
