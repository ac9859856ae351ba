/** The same in headless Chromium: `node hub_page.mjs PLAYWRIGHT CHROMIUM PROFILE PAGE HOST MODEL TEXT DTYPE`, twice for one cache. */

import { createRequire } from 'node:module'

const [modules, executablePath, profile, page, host, model, text, dtype] = process.argv.slice(2)
const { chromium } = createRequire(`${modules}/`)('playwright-core')
const quiet = ['--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update']
const context = await chromium.launchPersistentContext(profile, {
  executablePath,
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-sync', ...quiet],
})
const tab = await context.newPage()
await tab.goto(page)
const labels = await tab.evaluate(
  async ([host, model, text, dtype]) => {
    const { env, pipeline } = await import('@huggingface/transformers')
    Object.assign(env, { remoteHost: host, allowLocalModels: false })
    env.backends.onnx.wasm.wasmPaths = `${location.origin}/onnxruntime-web/dist/`
    env.backends.onnx.wasm.numThreads = 1
    const tag = await pipeline('token-classification', model, { dtype, device: 'wasm' })
    return (await tag(text, { ignore_labels: [] })).map(({ entity }) => entity)
  },
  [host, model, text, dtype],
)
console.log(JSON.stringify({ [dtype]: labels }))
await context.close()
