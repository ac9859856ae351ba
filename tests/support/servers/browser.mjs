/** Evaluates functions in a headless Chromium: reads `[page, code, arguments]` a line, writes the answer as a line of JSON. */

import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

const [modules, executablePath, profile, quotaSize] = process.argv.slice(2)
const { chromium } = createRequire(`${modules}/`)('playwright-core')
const quiet = ['--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update']
const args = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-sync', ...quiet]
const context = await chromium.launchPersistentContext(profile, { executablePath, args })
const tab = await context.newPage()
for await (const line of createInterface({ input: process.stdin })) {
  const [page, code, words] = JSON.parse(line)
  if (quotaSize) {
    const { origin } = new URL(page)
    await (await context.newCDPSession(tab)).send('Storage.overrideQuotaForOrigin', { origin, quotaSize: Number(quotaSize) })
  }
  await tab.goto(page)
  console.log(JSON.stringify((await tab.evaluate(`(${code})(${JSON.stringify(words).slice(1, -1)})`)) ?? null))
}
await context.close()
