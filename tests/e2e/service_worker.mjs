/** The package in a service worker of headless Chromium: `node service_worker.mjs MODULES CHROMIUM PROFILE PAGE` */

import { createRequire } from 'node:module'

const [modules, executablePath, profile, page] = process.argv.slice(2)
const { chromium } = createRequire(`${modules}/`)('playwright-core')
const quiet = ['--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update']
const context = await chromium.launchPersistentContext(profile, {
  executablePath,
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-sync', ...quiet],
})
const tab = await context.newPage()
await tab.goto(page)
const answer = await tab.evaluate(async () => {
  await navigator.serviceWorker.register('/worker.js', { type: 'module' })
  const { active } = await navigator.serviceWorker.ready
  const { port1, port2 } = new MessageChannel()
  const answered = new Promise((resolve) => (port1.onmessage = ({ data }) => resolve(data)))
  active.postMessage('update', [port2])
  return answered
})
console.log(JSON.stringify(answer))
await context.close()
