/** Transformers.js, unmodified, on models of images in a registry: `node image_client.mjs MODULES HOST CACHE IMAGE TEXTS` */

import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [modules, host, cache, file, texts] = process.argv.slice(2)
const { env, pipeline, RawImage } = await import(pathToFileURL(createRequire(`${modules}/`).resolve('@huggingface/transformers')))
Object.assign(env, { remoteHost: host, cacheDir: cache, allowLocalModels: false })

const image = await RawImage.read(file)
const classify = await pipeline('image-classification', 'acme/vit', { dtype: 'fp32' })
const match = await pipeline('zero-shot-image-classification', 'acme/clip', { dtype: 'fp32' })
const answers = [await classify(image, { top_k: 3 }), await match(image, JSON.parse(texts), { hypothesis_template: '{}' })]
console.log(JSON.stringify(answers.map((items) => Object.fromEntries(items.map(({ label, score }) => [label, score])))))
