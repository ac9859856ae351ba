/** One call of the client in a process of its own: node web_client.mjs URL DIRECTORY CALL ARGUMENTS(JSON) */

import { createHash } from 'node:crypto'

import { directoryStore } from '../../examples/web-client/directory-store.mjs'
import { memoryStore, Registry, RegError } from '../../examples/web-client/onnxreg.mjs'

const [url, directory, call, ...words] = process.argv.slice(2)
const delays = [1, 1, 1]
const store = directory === '-' ? memoryStore() : directoryStore(directory)
const token = process.env.TOKEN

async function whole(release) {
  const found = {}
  for (const file of release.files) {
    found[file.path] = `sha256:${createHash('sha256').update(await registry.read(release, file.path)).digest('hex')}`
  }
  return { version: release.version, artifact: release.artifact.path, files: found }
}

const calls = {
  async update(name, question) {
    const progress = []
    const release = await registry.update(name, question, { onProgress: (done, total) => progress.push([done, total]) })
    return { ...(await whole(release)), progress }
  },
  async abort(name, bytes) {
    const control = new AbortController()
    const onProgress = (done) => done >= bytes && control.abort(new RegError('given up', 'test'))
    return registry.update(name, {}, { signal: control.signal, onProgress })
  },
  resolve: async (name, question) => {
    const { version, artifact, rejected, offline } = await registry.resolve(name, question)
    return { version, artifact: artifact?.path ?? null, rejected, offline }
  },
  present: async (name) => {
    const { current, previous } = await registry.slot(name)
    return { ...(current && (await whole(current))), previous: previous?.version ?? null }
  },
  rollback: async (name) => whole(await registry.rollback(name)),
  tidy: () => registry.tidy(),
}

let registry
try {
  registry = new Registry(url, store, { delays, patience: 500, token })
  const found = await calls[call](...words.map((word) => JSON.parse(word)))
  console.log(JSON.stringify(found ?? null))
} catch (error) {
  if (!(error instanceof RegError)) throw error
  console.log(JSON.stringify({ error: error.family, message: error.message, rejected: error.rejected }))
}
