/** Transformers.js with our adapter in Node: `node adapter_client.mjs MODULES PACKAGE STORE HOST MODEL TEXT QUERY` */

import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [modules, dist, store, host, model, text, query] = process.argv.slice(2)
const { env, pipeline } = await import(pathToFileURL(createRequire(`${modules}/`).resolve('@huggingface/transformers')))
const load = (name) => import(pathToFileURL(`${dist}/${name}.js`))
const { Registry, preset } = await load('onnxreg')
const { directoryStore } = await load('directory-store')
const { serveTransformers } = await load('transformers')

const registry = new Registry(host, directoryStore(store))
serveTransformers(env, registry, { query: JSON.parse(query), device: preset('ort-desktop-1.30') })
const tag = await pipeline('token-classification', model)
const labels = (await tag(text, { ignore_labels: [] })).map(({ entity }) => entity)
const { current } = await registry.slot(model)
const missing = await pipeline('token-classification', 'acme/nothing').catch((error) => error.family ?? String(error))
console.log(JSON.stringify({ labels, path: current.artifact.path, missing }))
