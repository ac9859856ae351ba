/** Transformers.js, unmodified, on models of a registry. A page imports it; in Node: `node pipelines.mjs MODULES HOST CACHE FILE` */

/** The answers of pipelines: a text, or the score of each label. */
export async function answer({ env, pipeline, RawImage }, host, jobs) {
  Object.assign(env, { remoteHost: host, allowLocalModels: false })
  const answers = []
  for (const { task, model, dtype, device, text, samples, image, texts, options } of jobs) {
    const run = await pipeline(task, model, { dtype, device })
    const input = samples ? Float32Array.from(samples) : image ? await RawImage.read(image) : text
    const told = [await run(...(texts ? [input, texts] : [input]), options)].flat()
    const [{ text: heard, translation_text, generated_text, label }] = told
    const scores = () => Object.fromEntries(told.map(({ label, score }) => [label, score]))
    answers.push(label === undefined ? (heard ?? translation_text ?? generated_text) : scores())
  }
  return answers
}

if (globalThis.process?.argv.length > 2) {
  const { readFileSync } = await import('node:fs')
  const [{ createRequire }, { pathToFileURL }] = [await import('node:module'), await import('node:url')]
  const [modules, host, cache, jobs] = process.argv.slice(2)
  const library = await import(pathToFileURL(createRequire(`${modules}/`).resolve('@huggingface/transformers')))
  library.env.cacheDir = cache
  console.log(JSON.stringify(await answer(library, host, JSON.parse(readFileSync(jobs)))))
}
