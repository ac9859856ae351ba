/** Calls of the client, each with a registry object of its own: a line of JSON in, a line of JSON out */

import { createHash } from 'node:crypto'
import { createInterface } from 'node:readline'

import { directoryStore } from '../../examples/web-client/directory-store.mjs'
import { memoryStore, Registry, RegError } from '../../examples/web-client/onnxreg.mjs'

const delays = [1, 1, 1]
delete AbortSignal.any // React Native and older browsers lack it

async function whole(registry, release) {
  const found = {}
  for (const file of release.files) {
    found[file.path] = `sha256:${createHash('sha256').update(await registry.read(release, file.path)).digest('hex')}`
  }
  return { version: release.version, artifact: release.artifact.path, files: found }
}

const calls = {
  async update(registry, name, question) {
    const [progress, arrivals] = [[], []]
    const onProgress = (done, total) => progress.push([done, total])
    const release = await registry.update(name, question, { onProgress, onArrival: (arrival) => arrivals.push(arrival) })
    return { ...(await whole(registry, release)), progress, arrivals }
  },
  /** With a self-test that passes only these versions. */
  async tested(registry, name, question, passing) {
    const selfTest = ({ version }) => {
      if (passing === null) throw new Error('ONNX Runtime cannot load it')
      return passing.includes(version)
    }
    return whole(registry, await registry.update(name, question, { selfTest }))
  },
  async abort(registry, name, bytes) {
    const control = new AbortController()
    const onProgress = (done) => done >= bytes && control.abort(new RegError('given up', 'test'))
    return registry.update(name, {}, { signal: control.signal, onProgress })
  },
  resolve: async (registry, name, question) => {
    const { version, artifact, rejected, offline } = await registry.resolve(name, question)
    return { version, artifact: artifact?.path ?? null, rejected, offline }
  },
  present: async (registry, name) => {
    const { current, previous } = await registry.slot(name)
    return { ...(current && (await whole(registry, current))), previous: previous?.version ?? null }
  },
  rollback: async (registry, name) => whole(registry, await registry.rollback(name)),
  tidy: (registry) => registry.tidy(),
}

async function answer({ url, directory, call, words, token }) {
  try {
    const store = directory === null ? memoryStore() : directoryStore(directory)
    const registry = new Registry(url, store, { delays, patience: 500, token: token ?? undefined })
    return (await calls[call](registry, ...words)) ?? null
  } catch (error) {
    if (!(error instanceof RegError)) throw error
    return { error: error.family, message: error.message, rejected: error.rejected }
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await answer(JSON.parse(line))))
}
