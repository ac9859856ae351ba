/**
 * The latency of an artifact on this device, as a document that `reg measure NAME --on-device FILE` takes.
 *
 *     import { benchmark } from '@onnxreg/client/benchmark'
 *
 *     const machine = { cpu: 'Pixel 8', isa: 'arm64', runtime: 'onnxruntime-web 1.30.0', threads: 1 }
 *     const { release: full } = await new Registry(url, otherStore).update('acme/pii', { query: { precision: 'float32' } })
 *     const short = { input: 'short (32 tokens)', run: () => session.run(feeds), runFull: () => fullSession.run(feeds) }
 *     const document = await benchmark(machine, release, full, [short])
 */

import { platform } from './platform.mjs'

/** @typedef {{cpu: string, isa: string, runtime: string, threads: number}} Machine */
/** @typedef {import('./onnxreg.mjs').Release} Release */
/** An input of the app, and the functions that run it by the artifact and in full precision. @typedef {{input: string, run: Run, runFull: Run}} Pair */
/** @typedef {() => unknown} Run */

const [WARM_UP, RUNS] = [3, 30]

/**
 * Time an artifact and the same model in full precision. They run in turn, so that a busy moment slows both.
 * @param {Machine} machine `isa` is the processor's family: `arm64`, `x86_64` or `wasm`, and maybe `+` and an extension
 * @param {Release} release
 * @param {Release} full
 * @param {Pair[]} pairs
 */
export async function benchmark(machine, { artifact }, full, pairs) {
  const checks = []
  for (const pair of pairs) checks.push(...(await compare(pair)))
  const timed = { artifact: artifact.digest, path: artifact.path, parent: full.artifact.digest, checks }
  return { format: 'onnxreg-benchmark', format_version: 1, ...machine, warm_up: WARM_UP, runs: RUNS, artifacts: [timed] }
}

/** @param {Pair} pair */
async function compare({ input, run, runFull }) {
  const [times, ratios] = [/** @type {number[]} */ ([]), /** @type {number[]} */ ([])]
  for (let turn = -WARM_UP; turn < RUNS; turn++) {
    const before = turn % 2 ? await milliseconds(runFull) : null
    const own = await milliseconds(run)
    const other = before ?? (await milliseconds(runFull))
    if (turn < 0) continue
    times.push(own)
    ratios.push(own / other)
  }
  const half = 0.98 * Math.sqrt(RUNS) // of the order statistics around a median, for 95 %
  const interval = [RUNS / 2 - half, Math.ceil(RUNS / 2 + half)].map((at) => sorted(ratios)[Math.floor(at)])
  const common = { name: `latency, ${input}`, samples: RUNS, verdict: 'info' }
  return [
    { ...common, metric: 'median_ms', value: quantile(times, 0.5) },
    { ...common, metric: 'p95_ms', value: quantile(times, 0.95) },
    { ...common, metric: 'ratio', value: quantile(ratios, 0.5), interval, direction: 'lower' },
  ]
}

/** @param {Run} run */
async function milliseconds(run) {
  const begin = platform.now()
  await run()
  return Math.max(platform.now() - begin, 1e-3)
}

/** @param {number[]} values */
const sorted = (values) => [...values].sort((a, b) => a - b)

/** @param {number[]} values @param {number} share */
function quantile(values, share) {
  const [ordered, at] = [sorted(values), share * (values.length - 1)]
  const [low, high] = [ordered[Math.floor(at)], ordered[Math.ceil(at)]]
  return low + (high - low) * (at % 1)
}
