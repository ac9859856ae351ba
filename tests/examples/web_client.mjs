/** Calls of the client, each with a registry object of its own: a line of JSON in, a line of JSON out */

import { createHash } from 'node:crypto'
import { createInterface } from 'node:readline'

import { directoryStore, extract, nodeFetch } from '../../examples/web-client/directory-store.mjs'
import { benchmark } from '../../examples/web-client/benchmark.mjs'
import { memoryStore, Registry, RegError } from '../../examples/web-client/onnxreg.mjs'
import { signedBy } from '../../examples/web-client/signatures.mjs'

const delays = [1, 1, 1]
const fetch = process.argv[2] === 'node' ? nodeFetch : undefined
delete AbortSignal.any // React Native and older browsers lack it

async function whole(registry, release) {
  const found = {}
  for (const file of release.files) {
    found[file.path] = `sha256:${createHash('sha256').update(await registry.read(release, file.path)).digest('hex')}`
  }
  return { version: release.version, artifact: release.artifact.path, files: found }
}

const calls = {
  async update(registry, name, question, options = {}) {
    const [progress, arrivals] = [[], []]
    const control = new AbortController()
    const onProgress = (done, total) => {
      progress.push([done, total])
      if (done >= (options.cancel_at ?? Infinity)) control.abort(new RegError('given up', 'cancelled'))
    }
    const onArrival = (arrival) => arrivals.push(arrival)
    const { release, changed, offline } = await registry.update(name, question, { onProgress, onArrival, signal: control.signal })
    return { ...(await whole(registry, release)), changed, offline, progress, arrivals }
  },
  resolve: async (registry, name, question) => {
    const { version, artifact, rejected, offline, stale } = await registry.resolve(name, question)
    return { version, artifact: artifact?.path ?? null, rejected, offline, stale }
  },
  present: async (registry, name) => {
    const { current, previous } = await registry.slot(name)
    return { ...(current && (await whole(registry, current))), previous: previous?.version ?? null }
  },
  rollback: async (registry, name) => whole(registry, await registry.rollback(name)),
  tidy: (registry) => registry.tidy(),
  extract: async (registry, name, directory) => void (await extract(registry, (await registry.slot(name)).current, directory)),
  /** Time a model that takes half as long as in full precision. */
  async benchmark(registry, name, url) {
    const { release: full } = await new Registry(url, memoryStore()).update(name, { query: { precision: 'float32' } })
    const { release } = await registry.update(name)
    const machine = { cpu: 'test', isa: 'arm64', runtime: 'onnxruntime-web 1.30.0', threads: 2 }
    const pairs = ['short', 'long'].map((input) => ({ input, run: () => spin(2), runFull: () => spin(4) }))
    return { document: JSON.stringify(await benchmark(machine, release, full, pairs)) }
  },
}

function spin(milliseconds) {
  for (const end = performance.now() + milliseconds; performance.now() < end; );
}

async function answer({ url, directory, call, words, token }) {
  try {
    const store = directory === null ? memoryStore() : directoryStore(directory)
    const demands = words[2] ?? {}
    const trust = demands.keys && signedBy(demands.keys, demands)
    const registry = new Registry(url, store, { delays, patience: 500, fetch, token: token ?? undefined, trust })
    return (await calls[call](registry, ...words)) ?? null
  } catch (error) {
    if (!(error instanceof RegError)) throw error
    return { error: error.family, message: error.message, rejected: error.rejected }
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await answer(JSON.parse(line))))
}
