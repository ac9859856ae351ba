/** Transformers.js, unmodified, on encoder-decoders of a registry: `node generation_client.mjs MODULES HOST CACHE JOBS` */

import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [modules, host, cache, jobs] = process.argv.slice(2)
const { env, pipeline } = await import(pathToFileURL(createRequire(`${modules}/`).resolve('@huggingface/transformers')))
Object.assign(env, { remoteHost: host, cacheDir: cache, allowLocalModels: false })

const answers = []
for (const { task, model, dtype, text, samples, tokens } of JSON.parse(jobs)) {
  const run = await pipeline(task, model, { dtype })
  const input = samples ? new Float32Array(readFileSync(samples).buffer.slice(0)) : text
  const [answer] = [await run(input, { max_new_tokens: tokens })].flat()
  answers.push(answer.text ?? answer.translation_text ?? answer.generated_text)
}
console.log(JSON.stringify(answers))
