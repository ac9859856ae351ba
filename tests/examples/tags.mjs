/** node tags.mjs TAGS.json: prints the mark and the label of each tag, for each list of tags. */

import { readFileSync } from 'node:fs'

import { schemeOf } from '../../examples/web-client/tagger.mjs'

const lists = JSON.parse(readFileSync(process.argv[2], 'utf-8'))
console.log(JSON.stringify(lists.map((tags) => tags.map((tag) => schemeOf(tags).get(tag) ?? null))))
