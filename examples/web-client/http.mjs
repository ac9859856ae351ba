/** Requests to a static tree. Waits have limits, and errors say if a retry may help. */

import { concat } from './documents.mjs'
import { platform } from './platform.mjs'
import { InputError, NotFoundError, RegError } from './values.mjs'

/** The maximum size of a document in bytes. */
const MAX_DOCUMENT = 64 * 2 ** 20
const PASSING = [408, 425, 429, 500, 502, 503, 504]
const MAX_PAUSE_SECONDS = 30

/** The server or the network failed. If `passing` is true, a retry after some seconds may help. */
export class RemoteError extends RegError {
  static name = 'RemoteError'
  /** @param {string} message @param {boolean} passing @param {number} [status] @param {number} [seconds] */
  constructor(message, passing, status, seconds = 0) {
    super(message)
    this.passing = passing
    this.status = status
    this.seconds = seconds
  }
}

/** @typedef {{status: number, headers: Headers, chunks: AsyncGenerator<Uint8Array>}} Answer */

export class Http {
  /**
   * @param {string} url of the tree
   * @param {object} [options]
   * @param {import('./platform.mjs').Platform['fetch']} [options.fetch]
   * @param {string} [options.token] the token of a server with `--token-file`
   * @param {number} [options.patience] milliseconds without a byte after which a server counts as gone
   * @param {number[]} [options.delays] milliseconds before each new attempt
   */
  constructor(url, { fetch = platform.fetch, token, patience = 60_000, delays = [200, 1000, 3000] } = {}) {
    this.url = url.replace(/\/+$/, '')
    if (token && !/^[A-Za-z0-9._~+/-]+=*$/.test(token)) throw new InputError('the token is malformed')
    if (token && !isPrivate(this.url)) throw new InputError('a token is sent over https only, or to this machine')
    this.delays = delays
    /** @type {import('./platform.mjs').Platform['fetch']} */
    this.fetch = (...request) => fetch(...request)
    this.patience = patience
    /** @type {Record<string, string>} */
    this.headers = token ? { Authorization: `Bearer ${token}` } : {}
  }

  /**
   * Send one request. The body comes in chunks. If some are missing, RemoteError is thrown.
   * @param {string} path
   * @param {Record<string, string>} headers
   * @param {AbortSignal} [signal]
   * @returns {Promise<Answer>}
   */
  async open(path, headers, signal) {
    const waiting = new Waiting(this.patience, signal)
    /** @type {Response | undefined} */
    let response
    try {
      response = await this.fetch(`${this.url}/${path}`, {
        headers: { ...this.headers, ...headers },
        signal: waiting.signal,
        cache: 'no-store',
      })
      check(path, response)
      return { status: response.status, headers: response.headers, chunks: chunks(path, response, waiting) }
    } catch (error) {
      waiting.end()
      response?.body?.getReader().cancel().catch(() => undefined)
      throw failure(path, error, signal, this.url)
    }
  }

  /**
   * A small file, or null if it still has this entity tag.
   * @param {string} path
   * @param {string | null} [known]
   * @param {AbortSignal} [signal]
   */
  async document(path, known = null, signal) {
    for (let failures = 0; ; ) {
      try {
        const answer = await this.open(path, known ? { 'If-None-Match': known } : {}, signal)
        const parts = []
        let size = 0
        for await (const part of answer.chunks) {
          size += part.length
          if (size > MAX_DOCUMENT) throw new RemoteError(`${path} is larger than any document`, false)
          parts.push(part)
        }
        return answer.status === 304 ? null : { bytes: concat(parts), etag: answer.headers.get('ETag') }
      } catch (error) {
        await this.pause(failures++, error)
      }
    }
  }

  /** Wait before a new attempt. Throw the error if no attempt is left, or if a retry does not help. @param {number} failures @param {any} error */
  async pause(failures, error) {
    if (!(error instanceof RemoteError && error.passing) || failures >= this.delays.length) throw error
    await platform.wait(Math.max(this.delays[failures], 1000 * error.seconds))
  }
}

/** True if nobody on the way can read the request. @param {string} url */
function isPrivate(url) {
  const absolute = /^[a-z][a-z0-9+.-]*:/i.test(url) ? url : String(globalThis.location?.href)
  return /^(https:\/\/|http:\/\/(localhost|127(\.\d+){3}|\[::1\])(:\d+)?([/?#]|$))/i.test(absolute)
}

/**
 * Ends a request if no bytes arrive for a while, or if the caller gives it up. A host without AbortController (an iOS app) ends
 * its own requests.
 */
class Waiting {
  #controller = globalThis.AbortController && new AbortController()
  #giveUp = () => this.#controller?.abort(this.caller?.reason)
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer

  /** @param {number} patience @param {AbortSignal} [signal] */
  constructor(patience, signal) {
    this.patience = patience
    this.caller = signal
    this.signal = this.#controller?.signal
    if (signal?.aborted) this.#giveUp()
    signal?.addEventListener('abort', this.#giveUp)
    this.renew()
  }

  renew() {
    if (!this.#controller) return
    clearTimeout(this.#timer)
    this.#timer = setTimeout(() => this.#controller.abort(new Error('nothing came for a while')), this.patience)
  }

  end() {
    if (this.#controller) clearTimeout(this.#timer)
    this.caller?.removeEventListener('abort', this.#giveUp)
  }
}

/** @param {string} path @param {Response} response */
function check(path, response) {
  const { status, headers } = response
  if (status === 404 || status === 410) throw new NotFoundError(`there is no ${path}`)
  if (status === 401) throw new RemoteError(`${path} is read with a token: give the option \`token\``, false)
  if (status < 300 && headers.get('Content-Type')?.startsWith('text/html')) {
    throw new RemoteError(`${path} is a web page, and no file of a registry`, false, 403)
  }
  if ([200, 206, 304].includes(status)) return
  const seconds = secondsOf(headers)
  const more = status === 403 ? ': absent, or not allowed' : seconds ? `: try again in ${seconds} s` : ''
  throw new RemoteError(`${path} answers ${status}${more}`, PASSING.includes(status) && seconds <= MAX_PAUSE_SECONDS, status, seconds)
}

/** The seconds that a server asks to wait, or 0. A date is compared with the date of the answer. @param {Headers} headers */
function secondsOf(headers) {
  const after = headers.get('Retry-After') ?? ''
  const limit = /;\s*t=(\d+)/.exec(headers.get('RateLimit') ?? '')?.[1]
  const date = (Date.parse(after) - Date.parse(headers.get('Date') ?? '')) / 1000
  return Math.max(0, /^\d*$/.test(after) ? Number(after || limit || 0) : date || 0)
}

/** @param {string} path @param {Response} response @param {Waiting} waiting */
async function* chunks(path, response, waiting) {
  const reader = response.body?.getReader()
  const cancel = () => void reader?.cancel().catch(() => undefined) // Node 20 leaves some reads waiting after an abort
  waiting.signal?.addEventListener('abort', cancel)
  try {
    if (!response.body && response.arrayBuffer) yield new Uint8Array(await response.arrayBuffer())
    while (reader) {
      const { done, value } = await reader.read()
      waiting.signal?.throwIfAborted()
      if (done) return
      waiting.renew()
      yield value
    }
  } catch (error) {
    throw failure(path, error, waiting.caller)
  } finally {
    waiting.end()
    cancel()
  }
}

/**
 * Convert an error of `fetch` to one of ours; an aborted call gets the caller's reason. A page cannot see why a request to
 * another origin failed, so the message names the likely cause.
 * @param {string} path
 * @param {any} error
 * @param {AbortSignal} [signal]
 * @param {string} [url] of the tree, if a page may not be allowed to read it
 */
function failure(path, error, signal, url = '') {
  if (signal?.aborted) return signal.reason
  if (error instanceof RegError) return error
  const isForeign = globalThis.location?.origin && /^https?:/i.test(url) && !`${url}/`.startsWith(`${location.origin}/`)
  const cause = isForeign && error instanceof TypeError ? `; if the server runs, it must allow this page: Access-Control-Allow-Origin: ${location.origin}` : ''
  return new RemoteError(`reading ${path} failed: ${error?.message ?? error}${cause}`, true)
}
