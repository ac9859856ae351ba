/**
 * Signatures: an app takes only what a key that it trusts has signed (`docs/signing.md`).
 *
 *     const trust = signedBy(['ecdsa-p256:BASE64'], { releases: true, lines: 57 })
 *     const registry = new Registry(url, store, { trust })
 *
 * `releases` demands a signature on each release that is taken (`reg sign`). `lines` demands one on each line of the log from
 * this number on, and on the last line (`REG_SIGNING_KEY`). So each move of a channel is signed. Revocations are not read: take
 * a revoked key out of the app.
 */

import { canonical, concat, decode, fromBase64, picked, sha256 } from './documents.mjs'
import { platform } from './platform.mjs'
import { hexOf, InputError, IntegrityError, list, mapping, NotFoundError } from './values.mjs'

/** @typedef {import('./values.mjs').Json} Json */
/** @typedef {import('./history.mjs').Line} Line */
/** @typedef {'ed25519' | 'ecdsa-p256'} Kind */
/** @typedef {(digest: string) => Promise<Uint8Array>} Documents */
/**
 * True if a signature over some bytes is valid; `key` has the 32 bytes of Ed25519, or the 65 of the point, and an ECDSA
 * signature (over SHA-256) is in DER.
 * @typedef {(kind: Kind, key: Uint8Array, signature: Uint8Array, bytes: Uint8Array) => Promise<boolean>} Verify
 */
/**
 * The checks of an app, of which `lines` is a name: an index file that passed others is read again.
 * @typedef {{lines: string, checkLines: (state: Json, lines: Line[]) => Promise<void>,
 *   checkRelease: (name: string, version: string, manifest: string, lines: Line[], read: Documents) => Promise<void>}} Trust
 */

const LINE = 'application/vnd.onnxreg.line.v1+json'
const ENVELOPE = 'application/vnd.dsse.envelope.v1+json'
const IN_TOTO = 'application/vnd.in-toto+json'
const STATEMENT = 'https://in-toto.io/Statement/v1'
const RELEASE = 'urn:onnxreg:release:v1'
const CERTIFICATE = ['format', 'precision', 'path', 'digest', 'certification']
/** The bytes before a key in DER, and the size of a key. @type {Record<Kind, [prefix: string, size: number]>} */
const KINDS = {
  ed25519: ['302a300506032b6570032100', 32],
  'ecdsa-p256': ['3059301306072a8648ce3d020106082a8648ce3d030107034200', 65],
}

/**
 * The demands of an app. Each key is written as `reg key show` prints it.
 * @param {string[]} keys
 * @param {{releases?: boolean, lines?: number, verify?: Verify}} demands `verify` replaces WebCrypto on a host without it
 * @returns {Trust}
 */
export function signedBy(keys, { releases = false, lines: first = Infinity, verify = webCrypto }) {
  const trusted = keys.map(readKey)
  /** @type {Promise<Map<string, Key>> | undefined} */
  let byId
  /** @param {any} id @param {any} signature @param {string} type @param {Uint8Array} payload */
  const isSigned = async (id, signature, type, payload) => {
    byId ??= Promise.all(trusted.map(async (key) => /** @type {[string, Key]} */ ([await sha256(key.spki), key]))).then((rows) => new Map(rows))
    const key = (await byId).get(id)
    const header = platform.encode(`DSSEv1 ${type.length} ${type} ${payload.length} `)
    return key !== undefined && verify(key.kind, key.raw, fromBase64(signature), concat([header, payload]))
  }
  /** True if a trusted key states in an envelope that a manifest is this version. */
  const isRelease = async (/** @type {Json} */ envelope, /** @type {Json} */ { name, version, manifest }, /** @type {Documents} */ read) => {
    const payload = fromBase64(envelope.payload)
    const signed = list((each) => isSigned(mapping(each).keyid, each.sig, IN_TOTO, payload))(envelope.signatures)
    if (envelope.payloadType !== IN_TOTO || !(await Promise.all(signed)).includes(true)) return false
    const { _type, predicateType, subject, predicate } = decode(payload, 'predicate')
    if (_type !== STATEMENT || predicateType !== RELEASE) return false
    const said = (/** @type {Json} */ { recipe, artifacts }) =>
      [recipe ?? null, list((artifact) => picked(artifact, CERTIFICATE))(artifacts)]
    const stated = [list(({ name, digest }) => [name, digest.sha256])(subject), predicate.version, said(predicate)]
    return canonical(stated) === canonical([[[name, hexOf(manifest)]], version, said(decode(await read(manifest)))])
  }
  return {
    lines: first < Infinity ? `${first} ${keys.join()}` : '',
    async checkLines({ registry, name, seq: last }, lines) {
      for (const { sig, seq, prev, event, via } of lines.filter(({ seq }) => seq >= Math.min(first, last))) {
        const [id, signature] = String(sig).split(':', 2)
        const signed = { registry, name, seq, prev, event, ...(via !== undefined && { via }) }
        if (!(await isSigned(id, signature ?? '', LINE, platform.encode(canonical(signed))))) {
          throw new IntegrityError(`line ${seq} of ${name} is not signed by a trusted key`)
        }
      }
    },
    async checkRelease(name, version, manifest, lines, read) {
      if (!releases) return
      /** @type {Error} */
      let failure = new IntegrityError(`${name}:${version} is not signed by a trusted key`)
      for (const { event } of [...lines].reverse()) {
        if (event.kind !== 'attest' || event.media_type !== ENVELOPE || event.manifest !== manifest) continue
        try {
          if (await isRelease(decode(await read(event.statement)), { name, version, manifest }, read)) return
        } catch (error) {
          if (error instanceof InputError) failure = error
          else if (!(error instanceof NotFoundError)) throw error // a statement that was taken down proves nothing
        }
      }
      throw failure
    },
  }
}

/** @typedef {{kind: Kind, raw: Uint8Array, spki: Uint8Array}} Key the SHA-256 of its SubjectPublicKeyInfo is its id */

/** @param {string} text @returns {Key} */
function readKey(text) {
  const [kind, written] = /** @type {[Kind, string]} */ (text.split(':', 2))
  const [prefix, size] = Object.hasOwn(KINDS, kind) ? KINDS[kind] : []
  const raw = prefix && /^[A-Za-z0-9+/]+=*$/.test(written ?? '') ? fromBase64(written) : new Uint8Array()
  if (!prefix || raw.length !== size) throw new InputError(`not a public key of a known kind: ${text.slice(0, 80)}`)
  const header = Uint8Array.from(prefix.match(/../g) ?? [], (byte) => parseInt(byte, 16))
  return { kind, raw, spki: concat([header, raw]) }
}

/** @type {Verify} */
async function webCrypto(kind, key, signature, bytes) {
  const name = kind === 'ed25519' ? { name: 'Ed25519' } : { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' }
  const [raw, sig, data] = /** @type {BufferSource[]} */ ([key, kind === 'ed25519' ? signature : fixedSize(signature), bytes])
  try {
    return await crypto.subtle.verify(name, await crypto.subtle.importKey('raw', raw, name, false, ['verify']), sig, data)
  } catch (error) {
    if (/** @type {Error} */ (error).name === 'DataError') return false
    throw new InputError(`this platform cannot check ${kind}: sign with a key of the kind ecdsa-p256, or give a function \`verify\``)
  }
}

/** The two numbers of an ECDSA signature, of 32 bytes each, from DER. @param {Uint8Array} der */
function fixedSize(der) {
  const found = new Uint8Array(64)
  let at = 2
  for (const end of [32, 64]) {
    const number = der.subarray(at + 2, at + 2 + der[at + 1])
    const digits = number.subarray(Math.max(0, number.length - 32))
    found.set(digits, end - digits.length)
    at += 2 + der[at + 1]
  }
  return found
}
