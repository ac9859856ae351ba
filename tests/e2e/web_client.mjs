/** A headless browser that does what it is told: one JSON command a line, one JSON answer a line. */

import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

const [modules, executablePath, profile] = process.argv.slice(2)
const { chromium } = createRequire(modules)('playwright-core')
const quiet = ['--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update']
const context = await chromium.launchPersistentContext(profile, {
  executablePath,
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-sync', ...quiet],
})
const page = await context.newPage()
const problems = []
page.on('pageerror', (error) => problems.push(String(error)))

const settled = async () => {
  await page.waitForFunction(() => /Ready|stays|Rolled|\.$/.test(document.getElementById('status').textContent) && !/Looking/.test(document.getElementById('status').textContent), null, { timeout: 60_000 })
  return { status: await page.textContent('#status'), release: await page.textContent('#release'), problems }
}
const commands = {
  open: async (url) => {
    await page.goto(url)
    return settled()
  },
  press: async (id) => {
    await page.evaluate(() => (document.getElementById('status').textContent = 'Looking'))
    await page.click(`#${id}`)
    return settled()
  },
  tag: async (text) => {
    await page.fill('#text', text)
    await page.evaluate(() => document.getElementById('output').replaceChildren('...'))
    await page.click('#tag')
    await page.waitForFunction(() => document.getElementById('output').textContent !== '...')
    return page.$$eval('mark', (marks) =>
      marks.map(({ dataset, firstChild }) => [Number(dataset.start), Number(dataset.end), dataset.label, firstChild.data]),
    )
  },
}
for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...words] = JSON.parse(line)
  try {
    console.log(JSON.stringify(await commands[name](...words)))
  } catch (error) {
    console.log(JSON.stringify({ failed: String(error), problems }))
  }
}
await context.close()
