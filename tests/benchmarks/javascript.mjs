/**
 * What `javascript.py` measures; each command prints its answer as JSON:
 *
 *     node javascript.mjs download DIST URL DIRECTORY NAME QUESTION
 *     node javascript.mjs open MODULES CHROMIUM PROFILE PAGE
 */

import { createRequire } from 'node:module'

const [command, place, ...words] = process.argv.slice(2)

async function registry(url, directory) {
  const { Registry } = await import(`${place}/onnxreg.js`)
  const { directoryStore, nodeFetch } = await import(`${place}/directory-store.js`)
  return new Registry(url, directoryStore(directory), { fetch: nodeFetch })
}

const commands = {
  async download(url, directory, name, question) {
    const { release } = await (await registry(url, directory)).update(name, JSON.parse(question))
    return release.version
  },
  /** Milliseconds from the start of a page's loading to its first answer, in a new profile. */
  async open(executablePath, profile, page) {
    const { chromium } = createRequire(`${place}/`)('playwright-core')
    const quiet = ['--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update']
    const args = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-sync', ...quiet]
    const context = await chromium.launchPersistentContext(profile, { executablePath, args })
    const tab = await context.newPage()
    await tab.goto(page)
    await tab.waitForFunction(() => 'answer' in globalThis, null, { timeout: 60_000 })
    const answer = await tab.evaluate(() => globalThis.answer)
    await context.close()
    return answer
  },
}
console.log(JSON.stringify(await commands[command](...words)))
