/**
 * The functions that the client needs from its host. The defaults are standard functions of browsers and Node.
 *
 * Another host, such as JavaScriptCore in an iOS app or React Native, replaces what it lacks before anything else:
 * `usePlatform({ sha256, inflate, ... })`. `docs/ios-client.md` specifies each function.
 */

/**
 * @typedef {object} Platform
 * @property {(bytes: Uint8Array) => Promise<Uint8Array> | Uint8Array} sha256 the 32 bytes of the digest
 * @property {(bytes: Uint8Array) => AsyncIterable<Uint8Array> | Iterable<Uint8Array>} inflate raw DEFLATE (RFC 1951), of
 *   which all is used, in parts of any size; throws if the data is malformed
 * @property {(count: number) => Uint8Array} random cryptographically random bytes
 * @property {(text: string) => Uint8Array} encode UTF-8
 * @property {(bytes: Uint8Array) => string} decode UTF-8; throws if the bytes are malformed
 * @property {() => number} now milliseconds since some moment, which never go back
 * @property {(milliseconds: number) => Promise<void>} wait
 * @property {typeof fetch} fetch of the web; of the answer `status`, `headers.get`, `body` or `arrayBuffer` are used
 */

/** Node's own hash is faster than its WebCrypto, which copies what it hashes. @type {any} */
const node = /** @type {any} */ (globalThis).process?.getBuiltinModule?.('node:crypto')

/** @type {Platform} */
export const platform = {
  sha256: async (bytes) => node
    ? node.createHash('sha256').update(bytes).digest()
    : new Uint8Array(await crypto.subtle.digest('SHA-256', /** @type {BufferSource} */ (bytes))),
  inflate,
  random: (count) => crypto.getRandomValues(new Uint8Array(count)),
  encode: (text) => new TextEncoder().encode(text),
  decode: (bytes) => new TextDecoder('utf-8', { fatal: true }).decode(bytes),
  now: () => performance.now(),
  wait: (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds)),
  fetch: (...request) => globalThis.fetch(...request),
}

/** Replace functions of the platform. Call it before the first use of the client. @param {Partial<Platform>} functions */
export function usePlatform(functions) {
  Object.assign(platform, functions)
}

/** @param {Uint8Array} bytes */
async function* inflate(bytes) {
  const stream = new Blob([/** @type {BlobPart} */ (bytes)]).stream().pipeThrough(new DecompressionStream('deflate-raw'))
  const reader = stream.getReader()
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) yield part.value
  } finally {
    reader.cancel().catch(() => {})
  }
}
