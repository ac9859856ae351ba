/**
 * The numbers that a graph takes for an image, by the key `preprocessing` of a manifest. They equal those of `reg run --image`,
 * which scales as Pillow does (libImaging/Resample.c), in 8-bit steps.
 */

/** @typedef {{width: number, height: number, data: ArrayLike<number>}} Image RGBA, 8 bits each */
/** @typedef {import('./values.mjs').Json} Json */

/** The reach of each filter, and the function of its weight at a distance. @type {Record<string, [number, (x: number) => number]>} */
const FILTERS = {
  box: [0.5, (x) => (x > -0.5 && x <= 0.5 ? 1 : 0)],
  bilinear: [1, (x) => Math.max(0, 1 - Math.abs(x))],
  hamming: [1, (x) => (x === 0 ? 1 : Math.abs(x) >= 1 ? 0 : sinc(x) * (0.54 + 0.46 * Math.cos(Math.PI * x)))],
  bicubic: [2, (x) => cubic(Math.abs(x))],
  lanczos: [3, (x) => (Math.abs(x) < 3 ? sinc(x) * sinc(x / 3) : 0)],
}
const FIXED_POINT = 2 ** 22

/** Scale, crop and normalize an image. @param {Image} image @param {Json} preprocessing */
export function numbersOf(image, { size: [height, width], mean, std, layout = 'NCHW', color = 'RGB', resize, resample = 'bilinear' }) {
  const shorter = Math.min(image.width, image.height)
  const [wide, high] = resize ? [image.width, image.height].map((edge) => Math.floor((edge * resize) / shorter)) : [width, height]
  const [across, down] = [weights(image.width, wide, resample), weights(image.height, high, resample)]
  const passes = [
    { weighted: across, start: Math.floor((wide - width) / 2), count: width, lines: image.height },
    { weighted: down, start: Math.floor((high - height) / 2), count: height, lines: image.width },
  ]
  const isDownFirst = image.height > high && image.height - high > 2 * (image.width - wide)
  const [first, second] = isDownFirst ? passes.reverse() : passes
  const planes = planesOf(image, color, isDownFirst)
  const data = new Float32Array(planes.length * height * width)
  for (const [channel, plane] of planes.entries()) {
    const whole = scaled(scaled(plane, first), { ...second, lines: first.count })
    for (let place = 0; place < width * height; place++) {
      const at = isDownFirst ? (place % width) * height + Math.floor(place / width) : place
      const value = (whole[at] / 255 - mean[channel]) / std[channel]
      data[layout === 'NHWC' ? place * planes.length + channel : channel * width * height + place] = value
    }
  }
  return { shape: layout === 'NHWC' ? [1, height, width, planes.length] : [1, planes.length, height, width], data }
}

/** The channels of an image, in the order of `color`: row by row, or column by column. @param {Image} image @param {string} color @param {boolean} byColumns @returns {Uint8Array[]} */
function planesOf({ width, height, data }, color, byColumns) {
  const place = (/** @type {number} */ index) => 4 * (byColumns ? (index % height) * width + Math.floor(index / height) : index)
  const plane = (/** @type {(place: number) => number} */ value) => Uint8Array.from({ length: width * height }, (_, index) => value(place(index)))
  if (color === 'L') return [plane((at) => (data[at] * 19595 + data[at + 1] * 38470 + data[at + 2] * 7471 + 0x8000) >> 16)]
  return (color === 'BGR' ? [2, 1, 0] : [0, 1, 2]).map((channel) => plane((at) => data[at + channel]))
}

/** For each pixel of the result, the first source pixel, and the weights of the source pixels from there on, in fixed point. @param {number} before @param {number} after @param {string} name */
function weights(before, after, name) {
  const [step, scale] = [before / after, Math.max(1, before / after)]
  if (step === 1 || name === 'nearest') {
    let place = -step / 2 // added up, as Pillow does: where a place is between two pixels, rounding decides
    return Array.from({ length: after }, () => ({ first: Math.floor((place += step)), shares: [FIXED_POINT] }))
  }
  const [reach, weight] = FILTERS[name]
  return Array.from({ length: after }, (_, at) => {
    const centre = (at + 0.5) * step
    const first = Math.max(0, Math.trunc(centre - reach * scale + 0.5))
    const end = Math.min(before, Math.trunc(centre + reach * scale + 0.5))
    const parts = Array.from({ length: end - first }, (_, index) => weight((index + first - centre + 0.5) * (1 / scale)))
    const sum = parts.reduce((total, part) => total + part, 0)
    const shares = parts.map((part) => Math.trunc((part / sum) * FIXED_POINT + (part < 0 ? -0.5 : 0.5)))
    return { first, shares }
  })
}

/** Scale each line to `count` pixels from `start` on. The result is transposed, so that the next pass scales the other axis. @param {Uint8Array} plane @param {{weighted: ReturnType<typeof weights>, start: number, count: number, lines: number}} pass */
function scaled(plane, { weighted, start, count, lines }) {
  const length = plane.length / lines
  const result = new Uint8ClampedArray(lines * count)
  for (let at = 0; at < count; at++) {
    const { first, shares } = weighted[start + at]
    for (let line = 0; line < lines; line++) {
      let sum = FIXED_POINT / 2
      for (let index = 0; index < shares.length; index++) sum += plane[line * length + first + index] * shares[index]
      result[at * lines + line] = Math.floor(sum / FIXED_POINT)
    }
  }
  return new Uint8Array(result.buffer)
}

/** @param {number} x */
function sinc(x) {
  return x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x)
}

/** Keys' cubic with a = -0.5. @param {number} x */
function cubic(x) {
  if (x < 1) return (1.5 * x - 2.5) * x * x + 1
  return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0
}
