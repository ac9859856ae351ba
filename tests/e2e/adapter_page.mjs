/** The same in headless Chromium: `node adapter_page.mjs PLAYWRIGHT CHROMIUM PROFILE PAGE HOST MODEL TEXT QUERY` */

import { createRequire } from 'node:module'

const [modules, executablePath, profile, page, host, model, text, query] = process.argv.slice(2)
const { chromium } = createRequire(`${modules}/`)('playwright-core')
const quiet = ['--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update']
const context = await chromium.launchPersistentContext(profile, {
  executablePath,
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-sync', ...quiet],
})
const tab = await context.newPage()
await tab.goto(page)
const answer = await tab.evaluate(
  async ([host, model, text, query]) => {
    const { env, pipeline } = await import('@huggingface/transformers')
    const { browserStore, preset, Registry } = await import('@onnxreg/client')
    const { serveTransformers } = await import('@onnxreg/client/transformers')
    env.backends.onnx.wasm.wasmPaths = `${location.origin}/onnxruntime-web/dist/`
    env.backends.onnx.wasm.numThreads = 1
    const registry = new Registry(host, browserStore('models'))
    serveTransformers(env, registry, { query: JSON.parse(query), device: preset('ort-web-1.30') })
    const tag = await pipeline('token-classification', model, { device: 'wasm' })
    const labels = (await tag(text, { ignore_labels: [] })).map(({ entity }) => entity)
    return { labels, path: (await registry.slot(model)).current.artifact.path }
  },
  [host, model, text, query],
)
console.log(JSON.stringify(answer))
await context.close()
