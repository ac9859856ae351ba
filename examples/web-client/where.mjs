/**
 * The expression language of `docs/query.md`: `format = onnx-int8 and size <= 30MB and recall.PHONE >= 0.95`.
 *
 * `parse` makes a predicate over candidates. Each function of the parser has its production above it, and returns a function
 * from a candidate to true or false. A parsed expression cannot fail, and its time is bounded.
 */

import { codeUnits, InputError, own, precedence, share, text, version, wholeBytes } from './values.mjs'

/** @typedef {import('./values.mjs').Json} Json */
/** @typedef {(candidate: Json) => boolean} Predicate */
/** @typedef {{kind: string, text: string, start: number, end: number}} Token */
/** @typedef {{name: string, kind: string, read: (candidate: Json) => any, start: Token}} Field */

const LENGTH = 4096
const DEPTH = 64
const DIGITS = 15

/** @type {Record<string, string>} */
const KINDS = {
  name: 'text', version: 'version', manifest: 'text', channels: 'list', newest: 'flag', prerelease: 'flag',
  yanked: 'flag', pinned: 'flag', task: 'text', family: 'text', license: 'text', profile: 'text', format: 'text', precision: 'text',
  path: 'text', digest: 'text', size: 'size', download_size: 'size', state: 'text', certified: 'flag',
  opset: 'number', ort_format: 'number', providers: 'list', recall: 'share', min_recall: 'share',
  metric: 'number', latency: 'number',
}

/** The fields that are written with a label, and the meaning of the label for messages. @type {Record<string, string>} */
const LABELLED = { recall: 'the label whose recall is meant', metric: 'the name of the metric' }
const RECALL = 'character_recall/'

/** The kinds of tokens in which a value of a kind may be written. @type {Record<string, string[]>} */
const WRITTEN = {
  text: ['word', 'string'], version: ['number', 'string'], size: ['number'], number: ['number'], share: ['number'],
}

/** A malformed expression. `span` is the wrong part, in code points. */
export class ExpressionError extends InputError {
  static name = 'ExpressionError'
  /** @param {string} message @param {[number, number]} span */
  constructor(message, span) {
    super(`the expression cannot be read: ${message}`)
    this.span = span
  }
}

/** Read an expression over these fields. @param {string} expression @param {Record<string, string>} [kinds] of the fields */
export function parse(expression, kinds = KINDS) {
  return new Parser(expression, kinds).whole()
}

/** The kinds of tokens, in the order of the groups of `TOKEN`. Engines of older phones have no named groups. */
const TOKENS = ['space', 'word', 'number', 'string', 'operator', 'mark']
const TOKEN = /([ \t\r\n]+)|([A-Za-z_][A-Za-z0-9_./+-]*)|([0-9][A-Za-z0-9.+-]*)|('[^']*'|"[^"]*")|(==|!=|<=|>=|[=<>~])|([()[\],])/y
const KEYWORDS = ['and', 'or', 'not', 'in']
const HALF = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/

/** The tokens, and one of kind `end` behind them. @param {string} source @returns {Token[]} */
function tokenize(source) {
  const length = [...source].length
  if (length > LENGTH) throw new ExpressionError(`it is longer than ${LENGTH} characters`, [LENGTH, length])
  const half = source.search(HALF)
  if (half >= 0) throw wrong(source, half, half + 1, 'a character is cut in two')
  const found = []
  for (let place = 0; place < source.length; ) {
    TOKEN.lastIndex = place
    const match = TOKEN.exec(source)
    if (!match) throw unexpected(source, place)
    const kind = TOKENS[match.slice(1).findIndex((part) => part !== undefined)]
    const start = place
    place += match[0].length
    if (kind === 'space') continue
    found.push({ kind: KEYWORDS.includes(match[0]) ? 'keyword' : kind, text: match[0], start, end: place })
  }
  found.push({ kind: 'end', text: '', start: source.length, end: source.length })
  return found
}

/** @param {string} source @param {number} place */
function unexpected(source, place) {
  const char = String.fromCodePoint(/** @type {number} */ (source.codePointAt(place)))
  if (`'"`.includes(char)) return wrong(source, place, source.length, `the text that begins with ${char} has no end`)
  return wrong(source, place, place + char.length, `'${char}' is not part of the language`)
}

/** @param {string} source @param {number} start @param {number} end @param {string} message */
function wrong(source, start, end, message) {
  const points = (/** @type {number} */ units) => [...source.slice(0, units)].length
  return new ExpressionError(message, [points(start), points(end)])
}

/** Reads tokens from left to right, with one token of look-ahead. */
class Parser {
  #tokens
  #place = 0
  #depth = 0

  /** @param {string} source @param {Record<string, string>} kinds */
  constructor(source, kinds) {
    this.source = source
    this.kinds = kinds
    this.#tokens = tokenize(source)
  }

  get #next() {
    return this.#tokens[this.#place]
  }

  /** whole = alternatives END */
  whole() {
    const found = this.#alternatives()
    if (this.#next.kind !== 'end') throw this.#expected('and, or, or the end')
    return found
  }

  /** alternatives = conditions {"or" conditions} @returns {Predicate} */
  #alternatives() {
    const found = [this.#conditions()]
    while (this.#accept('or')) found.push(this.#conditions())
    return (candidate) => found.some((test) => test(candidate))
  }

  /** conditions = condition {"and" condition} @returns {Predicate} */
  #conditions() {
    const found = [this.#condition()]
    while (this.#accept('and')) found.push(this.#condition())
    return (candidate) => found.every((test) => test(candidate))
  }

  /** condition = "not" condition | "(" alternatives ")" | test @returns {Predicate} */
  #condition() {
    if (this.#next.text === 'not') {
      const test = this.#deeper(() => this.#condition())
      return (candidate) => !test(candidate)
    }
    if (this.#next.text !== '(') return this.#test()
    const test = this.#deeper(() => this.#alternatives())
    this.#require(')', 'and, or, or )')
    return test
  }

  /** The condition after the next token, one level deeper. @param {() => Predicate} read */
  #deeper(read) {
    if (this.#depth === DEPTH) throw this.#wrong(this.#next, `it is nested deeper than ${DEPTH} levels`)
    this.#depth++
    this.#place++
    const found = read()
    this.#depth--
    return found
  }

  /** test = text ["not"] "in" LIST | field [relation] @returns {Predicate} */
  #test() {
    if (this.#isMembership()) return this.#membership()
    const field = this.#field()
    if (this.#next.kind === 'operator') return this.#relation(field)
    if (this.#next.text === 'not' || this.#next.text === 'in') return this.#among(field)
    if (field.kind !== 'flag') throw this.#expected(`a comparison: ${field.name} is neither true nor false`)
    return (candidate) => field.read(candidate) === true
  }

  /** Return true for a value and `in`, without the bracket of a list of values. */
  #isMembership() {
    const after = this.#tokens.slice(this.#place + 1, this.#place + 4).map((token) => token.text)
    if (after[0] === 'not') after.shift()
    return ['word', 'string', 'number'].includes(this.#next.kind) && after[0] === 'in' && after[1] !== '('
  }

  /** membership = text ["not"] "in" LIST @returns {Predicate} */
  #membership() {
    const wanted = this.#literal('text')
    const negated = this.#accept('not')
    this.#require('in', 'in')
    const field = this.#field()
    if (field.kind !== 'list') {
      throw this.#wrong(field.start, 'expected channels or providers, or values in brackets')
    }
    return known(field, (found) => found.includes(wanted) !== negated)
  }

  /** relation = ("=" | "==" | "!=" | "<" | "<=" | ">" | ">=") value | "~" text @param {Field} field */
  #relation(field) {
    const sign = this.#next
    this.#place++
    this.#comparable(field)
    if (sign.text === '~') {
      if (field.kind !== 'text' && field.kind !== 'version') {
        throw this.#wrong(sign, `${field.name} is a ${field.kind}, which has no patterns`)
      }
      const pattern = [...this.#literal('text')]
      return known(field, (found) => fits([...found], pattern))
    }
    if (field.kind === 'text' && sign.text.match(/[<>]/)) {
      throw this.#wrong(sign, `${field.name} is a text, which has no order`)
    }
    const value = this.#literal(field.kind)
    return known(field, (found) => holds(sign.text, order(field.kind, found, value)))
  }

  /** among = ["not"] "in" "(" value {"," value} ")" @param {Field} field @returns {Predicate} */
  #among(field) {
    this.#comparable(field)
    const negated = this.#accept('not')
    this.#require('in', 'in')
    this.#require('(', '(')
    const values = [this.#literal(field.kind)]
    while (this.#accept(',')) values.push(this.#literal(field.kind))
    this.#require(')', ', or )')
    return known(field, (found) => values.some((value) => order(field.kind, found, value) === 0) !== negated)
  }

  /** @param {Field} field */
  #comparable({ kind, name, start }) {
    if (kind === 'flag') throw this.#wrong(start, `${name} is true or false by itself and is not compared`)
    if (kind === 'list') throw this.#wrong(start, `${name} is a list and is not compared`)
  }

  /**
   * field = NAME | ("recall" | "metric") ("." LABEL | "[" STRING "]"); `metric['character_recall/X']` is `recall.X`
   * @returns {Field}
   */
  #field() {
    const start = this.#next
    if (start.kind !== 'word') throw this.#expected('a field, such as size, on the left')
    this.#place++
    const [name] = start.text.split('.', 1)
    const missing = own(this.kinds, name) && own(LABELLED, name)
    if (missing !== undefined) {
      const label = start.text.slice(name.length + 1) || this.#label(start, missing)
      const [of, key] = name === 'metric' && label.startsWith(RECALL) ? ['recall', label.slice(RECALL.length)] : [name, label]
      return { name: of, kind: KINDS[of], start, read: (candidate) => own(own(candidate, of) ?? {}, key) }
    }
    const kind = own(this.kinds, start.text)
    if (kind === undefined) throw this.#wrong(start, `there is no field ${start.text.slice(0, 40)}`)
    return { name: start.text, kind, start, read: (candidate) => own(candidate, start.text) }
  }

  /** @param {Token} field @param {string} missing */
  #label(field, missing) {
    if (!this.#accept('[')) throw this.#wrong(field, `expected ${missing}`)
    const label = this.#next
    if (label.kind !== 'string') throw this.#expected('a label in quotes')
    this.#place++
    this.#require(']', ']')
    return label.text.slice(1, -1)
  }

  /** value = text | version | size | number, whichever the field is @param {string} kind @returns {any} */
  #literal(kind) {
    const token = this.#next
    if (!WRITTEN[kind].includes(token.kind)) throw this.#expected(`a ${kind}`)
    this.#place++
    const written = token.kind === 'string' ? token.text.slice(1, -1) : token.text
    try {
      return READERS[kind](written)
    } catch (error) {
      throw error instanceof InputError ? this.#wrong(token, `expected a ${kind}: ${error.message}`) : error
    }
  }

  /** @param {string} word */
  #accept(word) {
    const found = ['keyword', 'mark'].includes(this.#next.kind) && this.#next.text === word
    if (found) this.#place++
    return found
  }

  /** @param {string} word @param {string} expected */
  #require(word, expected) {
    if (!this.#accept(word)) throw this.#expected(expected)
  }

  /** @param {string} what */
  #expected(what) {
    const found = this.#next.text ? `found ${this.#next.text.slice(0, 40)}` : 'it ends here'
    return this.#wrong(this.#next, `expected ${what}; ${found}`)
  }

  /** @param {Token} token @param {string} message */
  #wrong(token, message) {
    return wrong(this.source, token.start, token.end, message)
  }
}

/** @type {Record<string, (written: string) => any>} */
const READERS = {
  ...{ text, version },
  number: (written) => Number(numeral(written).join('.')),
  share: (written) => share(READERS.number(written)),
  size: (written) => {
    const number = written.replace(/[A-Za-z]+$/, '')
    const unit = written.slice(number.length)
    const [whole, part] = numeral(number)
    return wholeBytes(whole, part ?? '', unit)
  },
}

/** NUMBER = DIGITS ["." DIGITS] @param {string} written @returns {string[]} */
function numeral(written) {
  if (!/^[0-9]+(\.[0-9]+)?$/.test(written)) throw new InputError('it is not a number')
  if (written.replace('.', '').length > DIGITS) throw new InputError(`it has more than ${DIGITS} digits`)
  return written.split('.')
}

/**
 * Every test of an unknown value is false.
 * @param {Field} field
 * @param {(found: any) => boolean} test
 * @returns {Predicate}
 */
function known(field, test) {
  return (candidate) => {
    const found = field.read(candidate) ?? null
    return found !== null && test(found)
  }
}

/** Below 0, 0 or above 0. Texts are only ever equal or not. @param {string} kind @param {any} found @param {any} value */
function order(kind, found, value) {
  return kind === 'version' ? precedence(found, value) : codeUnits(found, value)
}

/** @param {string} sign @param {number} difference */
function holds(sign, difference) {
  if (sign === '!=') return difference !== 0
  if (difference === 0) return sign.includes('=')
  return difference < 0 ? sign.startsWith('<') : sign.startsWith('>')
}

/** Whether a pattern fits the whole text; `*` is any characters, `?` one. */
function fits(/** @type {string[]} */ chars, /** @type {string[]} */ pattern) {
  let ends = new Set([0]) // where the text may be read on after the pattern so far, in order
  for (const part of pattern) {
    const next = new Set(/** @type {number[]} */ ([]))
    if (part === '*') for (let [end] = ends; end <= chars.length; end++) next.add(end)
    else for (const end of ends) if (end < chars.length && (part === '?' || part === chars[end])) next.add(end + 1)
    ends = next
  }
  return ends.has(chars.length)
}
