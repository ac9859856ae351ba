/** node wordpiece.mjs TOKENIZER.json SENTENCES.json: prints ids, offsets and whether special, of each sentence. */

import { readFileSync } from 'node:fs'

import { WordPiece } from '../../examples/web-client/wordpiece.mjs'

const [tokenizer, sentences] = process.argv.slice(2).map((path) => JSON.parse(readFileSync(path, 'utf-8')))
const wordpiece = new WordPiece(tokenizer)
console.log(JSON.stringify(sentences.map((sentence) => wordpiece.encode(sentence))))
