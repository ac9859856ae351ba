/** The client in a headless browser: one JSON call a line, one JSON answer a line. */

import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

const [modules, executablePath, profile] = process.argv.slice(2)
const { chromium } = createRequire(`${modules}/`)('playwright-core')
const quiet = ['--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update']
const args = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-sync', ...quiet]
const context = await chromium.launchPersistentContext(profile, { executablePath, args })
const page = await context.newPage()

const run = async ([url, call, name]) => {
  const { browserStore, Registry, sha256 } = await import('./onnxreg.js')
  const registry = new Registry(url, browserStore('models'), { delays: [10] })
  try {
    const found = await registry[call](name)
    const release = call === 'slot' ? found.current : found
    if (!release) return null
    const digest = async ({ path }) => [path, `sha256:${await sha256(await registry.read(release, path))}`]
    return { version: release.version, files: Object.fromEntries(await Promise.all(release.files.map(digest))) }
  } catch (error) {
    return { error: error.family ?? String(error) }
  }
}
for await (const line of createInterface({ input: process.stdin })) {
  const [site, ...words] = JSON.parse(line)
  await page.goto(`${site}/page.html`)
  console.log(JSON.stringify(await page.evaluate(run, words)))
}
await context.close()
