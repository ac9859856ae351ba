/** Transformers.js, unmodified, with a registry as its Hub: `node hub_client.mjs MODULES HOST CACHE MODEL TEXT DTYPE...` */

import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [modules, host, cache, model, text, ...dtypes] = process.argv.slice(2)
const entry = createRequire(`${modules}/`).resolve('@huggingface/transformers')
const { env, pipeline } = await import(pathToFileURL(entry))
Object.assign(env, { remoteHost: host, cacheDir: cache, allowLocalModels: false })

const labels = {}
for (const dtype of dtypes) {
  const tag = await pipeline('token-classification', model, { dtype })
  labels[dtype] = (await tag(text, { ignore_labels: [] })).map(({ entity }) => entity)
}
console.log(JSON.stringify(labels))
