// The model in a worker: greedy search for each line, kept parts, expected quality, alternatives on a word.
import * as ort from "./runtime/ort.wasm.min.mjs";
import { Tokenizer } from "./runtime/tokenizers.min.mjs";
import { edited, editsToUnifySpaces, keep, keptSpans, linesOf, unknownSpans, unmet, withDoubledSigns } from "./kept.js";
import { NO_WORD, REPEATED_PART, REPEATED_WORDS, SURROUNDED } from "./patterns.js";

const here = new URL(".", import.meta.url);
const count = (text) => Array.from(text).length;  // characters as Python counts them
const pause = () => new Promise((resolve) => setTimeout(resolve));  // lets messages in
const int64 = (ids) => new ort.Tensor("int64", BigInt64Array.from(ids, BigInt), [1, ids.length]);
const SENTENCES = new Intl.Segmenter("en", { granularity: "sentence" });
const WORDS = new Intl.Segmenter("en", { granularity: "word" });
const PLAIN = { clean_up_tokenization_spaces: false };
let site, encoder, decoder, reader, writer;
const known = new Map();

async function read(cache, name, size, onBytes) {
  const address = new URL(name, here).href, kept = await cache?.match(address);
  const answer = kept ?? await fetch(address);
  if (!answer.ok) throw new Error(`The file ${name} is missing: export the model again.`);
  const transform = (part, control) => { onBytes(part.length); control.enqueue(part); };
  const counted = answer.body.pipeThrough(new TransformStream({ transform }));
  const bytes = new Uint8Array(await new Response(counted).arrayBuffer());
  if (bytes.length === size) return { address, bytes, isNew: !kept };
  throw new Error(`The file ${name} is damaged: it has ${bytes.length} bytes instead of ${size}.`);
}

async function begin() {
  site = await (await fetch(new URL("site.json", here), { cache: "no-cache" })).json();
  const prefix = `translator ${here.pathname} `, store = globalThis.caches;  // only where the connection is secure
  const cache = await store?.open(prefix + site.version).catch(() => undefined);
  const total = Object.values(site.files).reduce((sum, size) => sum + size);
  let done = 0;
  const onBytes = (bytes) => postMessage({ progress: (done += bytes) / total });
  const files = Object.fromEntries(await Promise.all(Object.entries(site.files).map(
    async ([name, size]) => [name, await read(cache, name, size, onBytes)])));
  const open = async (name, how) => {
    try { return await how(files[name].bytes); } catch (error) {
      throw new Error(`The file ${name} cannot be read: export the model again. (${error.message})`);
    }
  };
  const json = (name) => open(name, (bytes) => JSON.parse(new TextDecoder().decode(bytes)));
  const tokenizer = async (folder) =>
    new Tokenizer(await json(`${folder}tokenizer.json`), await json(`${folder}tokenizer_config.json`));
  ort.env.wasm.numThreads = globalThis.crossOriginIsolated ? Math.min(4, navigator.hardwareConcurrency) : 1;
  ort.env.wasm.wasmBinary = files[site.runtime].bytes.buffer;
  ort.env.logLevel = "error";
  reader = await tokenizer("");
  writer = site.targets ? await tokenizer(`${site.targets}/`) : reader;
  const graph = (name) => open(name, (bytes) => ort.InferenceSession.create(bytes, { executionProviders: ["wasm"] }));
  [encoder, decoder] = [await graph(site.graphs[0]), await graph(site.graphs[1])];
  try {  // what was loaded is whole
    const old = (await store.keys()).filter((name) => name.startsWith(prefix) && name !== prefix + site.version);
    for (const name of old) await store.delete(name);
    const loaded = Object.values(files).filter(({ isNew }) => isNew);
    for (const { address, bytes } of loaded) await cache.put(address, new Response(bytes));
    return { ...site, notice: "" };
  } catch {
    const reason = store ? "the browser's storage is full" : "that needs an address with https";
    return { ...site, notice: `Nothing is kept for the next visit: ${reason}.` };
  }
}

// Searches greedily behind the tokens that have begun the output; the first one is none of those of `without`.
async function search(ids, direction, signal, { begun = direction.begun, without = [], repeats }) {
  const mask = int64(ids.map(() => 1n));
  const { last_hidden_state: states } = await encoder.run({ input_ids: int64(ids), attention_mask: mask });
  let past = Object.fromEntries(decoder.inputMetadata.filter(({ name }) => name.startsWith("past")).map(
    ({ name, shape }) => [name, new ort.Tensor("float32", new Float32Array(), [1, shape[1], 0, shape[3]])]));
  const tokens = [], scores = [], aligned = [];
  let next = direction.start, isComplete = false, since = performance.now();
  while (!isComplete && tokens.length < site.longest) {
    if (performance.now() - since > 20) { await pause(); since = performance.now(); }
    signal.throwIfAborted();
    const feeds = { input_ids: int64([next]), encoder_hidden_states: states, encoder_attention_mask: mask, ...past };
    const { logits: { data: row }, alignment, ...present } = await decoder.run(feeds);
    const banned = tokens.length === begun.length ? [...site.banned, ...without] : site.banned;
    for (const id of banned) row[id] = -Infinity;
    for (let end = repeats - 1; end < tokens.length; end++) {
      const before = tokens.slice(end - repeats + 1, end);
      if (before.join() === tokens.slice(1 - repeats).join()) row[tokens[end]] = -Infinity;
    }
    let sum = 0, best = 0;
    for (let id = 1; id < row.length; id++) if (row[id] > row[best]) best = id;
    for (let id = 0; id < row.length; id++) sum += Math.exp(row[id] - row[best]);
    next = begun[tokens.length] ?? best;
    isComplete = site.ends.includes(next);
    const isAsked = tokens.length < direction.begun.length;
    scores.push(isAsked ? 0 : Math.max(-100, row[next] - row[best] - Math.log(sum)));
    if (isComplete) break;
    tokens.push(next);
    const words = alignment.data.subarray(0, Math.max(ids.length - direction.after.length, 1));
    aligned.push(words.indexOf(words.reduce((most, weight) => Math.max(most, weight))));
    past = Object.fromEntries(Object.entries(present).map(
      ([name, value]) => [name.replace("present", "past_key_values"), value]));
  }
  return { tokens, scores, aligned, isComplete, text: textOf(tokens) };
}

const textOf = (ids) => {
  const shown = ids.filter((id) => !site.silent.includes(id));
  return shown.length ? writer.decode(shown, PLAIN) : "";
};

// The spans of tokens in a text, from the texts of the first 1, 2, 3 ... of them; the cases may differ. An unknown token
// has what lies between the tokens beside it.
function spansOf(ids, decode, text) {
  const small = Array.from(text, (sign) => sign.toLowerCase().slice(0, sign.length)).join("");
  let end = 0, before = "", isLost = false;
  const spans = ids.map((_, index) => {
    const prefix = decode(ids.slice(0, index + 1)).toLowerCase();
    let same = 0;
    while (same < before.length && before[same] === prefix[same]) same++;
    const grown = prefix.slice(same), added = grown.trim(), at = small.indexOf(added, end);
    before = prefix;
    if (grown && !added) return Array(2).fill(text.length - text.slice(end).trimStart().length);
    const isFound = added && at >= 0 && (isLost || !text.slice(end, at).trim());
    isLost = added ? !isFound : isLost;
    return isFound ? [at, end = at + added.length] : [end, end];
  });
  const next = (index) => spans.slice(index).find(([from, to]) => from < to)?.[0] ?? text.length;
  return spans.map((span, index) => (ids[index] === site.unknown ? [span[0], next(index)] : span));
}

const encoded = (text) => reader.encode(text, { add_special_tokens: false }).ids;

const isUnknown = (text) => encoded(text).includes(site.unknown);

function repeatsItself(text) {
  const small = text.toLowerCase(), words = small.replace(NO_WORD, " ").trim();
  return [...words.matchAll(REPEATED_WORDS), ...small.matchAll(REPEATED_PART)].some((match) => /\p{L}/u.test(match[1]));
}

// What the model reads of a line: its own placeholders for the parts that stay, and one space for other white space.
function readingOf(line, { before, tag, after }) {
  const others = editsToUnifySpaces(line), unknown = unmet(unknownSpans(line, isUnknown), others);
  const spans = keptSpans(line, site.keepsUnknown ? unknown : []);
  const isStrange = (span) => !unmet([span], unknown).length &&
    Array.from(line.slice(...span).replace(/[\ufe0f\u200d]/g, "")).every(isUnknown);
  const parts = spans.map((span, index) => {  // the token for unknown characters would mislead the model
    const read = site.placeholders[index] ?? (isStrange(span) ? "" : line.slice(...span).replace("% ", "%"));
    const isGap = !read && line[span[0] - 1] === " ";
    return [span[0] - isGap, span[1], read];
  });
  const all = [...parts, ...others].sort((one, other) => one[0] - other[0]);
  const edits = edited(line, all).trim() ? all : others, read = tag + edited(line, edits);
  const inner = encoded(read), spaces = others.filter((edit) => edit[2]);
  const unread = unmet(unknown, spans.slice(0, site.placeholders.length));
  const missing = unread.length / count(line.replace(/\s/gu, ""));
  return { line, spans, spaces, missing, edits, read, inner, ids: [...before, ...inner, ...after] };
}

// For each character that is read of a line, the part of the line that it stands for.
function originsOf({ line, edits }) {
  const plain = (begin, end) => Array.from({ length: Math.max(end - begin, 0) }, (_, at) => [begin + at, begin + at + 1]);
  let place = 0;
  const origins = edits.flatMap(([begin, end, { length }]) => {
    const before = plain(place, begin);
    place = end;
    return [...before, ...Array.from({ length }, () => [begin, end])];
  });
  return [...origins, ...plain(place, line.length)];
}

// The text of tokens, with the parts that stay in place of their placeholders.
const withParts = ({ line, spans }, tokens) => site.placeholders.reduce(
  (all, token, index) => (spans[index] ? all.replaceAll(token, line.slice(...spans[index])) : all), textOf(tokens));
const writtenOf = (reading, tokens) => withDoubledSigns(reading.line, reading.spans, withParts(reading, tokens));

// An output that repeats itself, or does not end, is searched again without repetitions.
async function searchLine({ line, ids }, direction, signal, branch = {}) {
  const repeats = ({ text }) => repeatsItself(text) && !repeatsItself(line);
  const isLost = (found) => repeats(found) || (!found.isComplete && found.tokens.length > 2 * ids.length);
  const found = await search(ids, direction, signal, branch);
  if (!isLost(found)) return found;
  const again = await search(ids, direction, signal, { ...branch, repeats: site.repeats });
  return isLost(again) ? found : again;
}

// An output with its kept parts, and what is to be told about it.
function finished(reading, result, { before, tag, language }) {
  const { line, spans, missing, read, inner, ids } = reading, { tokens, aligned, isComplete } = result;
  const text = writtenOf(reading, tokens);
  const findLinks = () => {
    const origins = originsOf(reading), sources = spansOf(inner, (some) => reader.decode(some, PLAIN), read);
    const sourceOf = (index) => {
      const part = spans[site.placeholders.indexOf(textOf([tokens[index]]))];
      if (part) return part;
      const [begin, end] = sources[aligned[index] - before.length] ?? [0, 0];
      return [origins[begin - tag.length]?.[0] ?? 0, origins[end - 1 - tag.length]?.[1] ?? 0];
    };
    return spansOf(tokens, (some) => withParts(reading, some), text)
      .map((target, index) => ({ target, source: sourceOf(index) })).filter(({ target }) => target[0] < target[1]);
  };
  const kept = keep(reading, text, findLinks);
  const facts = { repeated: repeatsItself(kept.text) && !repeatsItself(line), cut: !isComplete,
    untranslated: kept.untranslated, unknown: missing > 0, restored: kept.restored > 0 };
  const doubts = Object.keys(facts).filter((name) => facts[name]);
  const quality = site.quality && expected(result, ids.length, reading, kept, missing, facts, language);
  if (quality !== null && quality < site.doubtful) doubts.push("unsure");
  const marks = kept.spans.map(([begin, end]) => ({ begin, end, kind: "kept" }));
  return { source: line, text: kept.text, marks, doubts, quality, tokens, edits: kept.edits };
}

// Returns the parts of the translation of a line, or of a sentence of one.
async function translateLine(line, direction, signal, canCut = true) {
  const key = [direction.source, direction.target, line].join("\n");
  if (known.has(key)) return known.get(key);
  const reading = readingOf(line, direction), { spans, ids } = reading;
  const others = spans.reduceRight((text, [begin, end]) => text.slice(0, begin) + text.slice(end), line);
  const isInOrder = spans.length < 2 || reading.read === direction.tag + line;
  if (isInOrder && !others.replace(/[ ,;]/g, "")) return [line];
  const sentences = Array.from(SENTENCES.segment(line), ({ segment }) => segment);
  const inPieces = (pieces, canCut) => inOrder(
    direction.spaces ? pieces : pieces.map((piece) => piece.trimEnd()),
    (piece) => translateLine(piece, direction, signal, canCut));
  if (ids.length > site.limit) {
    const middle = line.lastIndexOf(" ", line.length / 2) + 1 || Math.ceil(line.length / 2);
    return inPieces(sentences.length > 1 ? sentences : [line.slice(0, middle), line.slice(middle)], true);
  }
  const result = await searchLine(reading, direction, signal);
  if (!result.isComplete && canCut && sentences.length > 1) return inPieces(sentences, false);
  if (known.size > 5000) known.clear();
  known.set(key, [finished(reading, result, direction)]);
  return known.get(key);
}

async function inOrder(pieces, translate, onPart = () => {}) {
  const parts = [];
  for (const [index, piece] of pieces.entries()) {
    const [, before, content, behind] = SURROUNDED.exec(piece);
    parts.push(before, ...(content ? await translate(content, index) : []), behind);
    onPart(parts, (index + 1) / pieces.length);
  }
  return parts.filter((part) => part !== "");
}

// As inference/quality.py: a weighted sum of features of an output, and a monotone map.
function expected({ scores }, tokens, { line, spans }, { text, restored }, missing, { repeated, cut }, language) {
  const { weights, sums, values } = site.quality[language] ?? site.quality[""];
  if (repeated) return values[0];
  const source = count(line), output = Math.max(count(text), 1);
  const sum = (numbers) => numbers.reduce((all, number) => all + number, 0);
  const hasWords = /\p{L}/u.test(line) && (line !== line.toUpperCase() || line === line.toLowerCase());
  const longest = Math.max(...line.split(/\s+/).map(count));
  const features = [
    sum(scores.map((score) => Math.sqrt(-score))) / scores.length, sum(scores.map(Math.exp)) / scores.length,
    Math.exp(sum(scores)), scores.length / output, Math.log(tokens / scores.length), Math.log1p(tokens),
    Math.abs(Math.log(output / source)), Math.log1p(output), +(text.trim() === line.trim() && hasWords),
    spans.length, restored, (line.match(/\p{Nd}/gu) ?? []).length / source, Math.log1p(longest), missing, 0, +cut, 1];
  const total = sum(features.map((feature, index) => feature * weights[index]));
  const above = sums.findIndex((each) => each >= total);
  if (above < 1) return above ? values.at(-1) : values[0];
  const share = (total - sums[above - 1]) / (sums[above] - sums[above - 1]);
  return Math.round(10 * (values[above - 1] + share * (values[above] - values[above - 1]))) / 10;
}

function directionOf({ source, target }) {
  const found = site.directions.find(
    (one) => one.target === (target ?? one.target) && one.source === (source ?? one.source));
  if (found) return found;
  const targets = [...new Set(site.directions.map((one) => one.target))].join(", ");
  throw new Error(`The model has no target ${target}: it knows ${targets}.`);
}

async function translate({ number, text, ...languages }, signal) {
  const direction = directionOf(languages);
  let since = performance.now();
  const onPart = (parts, done) => {
    if (performance.now() - since < 200) return;
    since = performance.now();
    postMessage({ number, parts, done });
  };
  return inOrder(linesOf(text), (line, index) => (index % 2 ? [line] : translateLine(line, direction, signal)), onPart);
}

// Up to three outputs of a line that begin as a part of the translation, and have each another word at a place of it.
async function alternatives({ part, place, ...languages }, signal) {
  const direction = directionOf(languages), reading = readingOf(part.source, direction);
  const unedited = part.edits.reduce(
    (at, [begin, end, text]) => (begin < at ? at + end - begin - text.length : at), place);
  const isBefore = (_, index) => writtenOf(reading, part.tokens.slice(0, index + 1)).length <= unedited;
  const begun = part.tokens.filter(isBefore), without = [...site.silent, part.tokens[begun.length]], others = [];
  const wordOf = ({ text }) => WORDS.segment(text).containing(place)?.segment, words = new Set([wordOf(part)]);
  for (let tries = 0; tries < 8 && others.length < 3; tries++) {
    const result = await searchLine(reading, direction, signal, { begun, without });
    const other = finished(reading, result, direction);
    without.push(result.tokens[begun.length]);
    if (!other.text.startsWith(part.text.slice(0, place)) || words.has(wordOf(other))) continue;
    words.add(wordOf(other));
    others.push(other);
  }
  return others;
}

const running = new Map(), works = { begin, translate, alternatives };
let queue = Promise.resolve();

onmessage = ({ data: { abort, work, ...values } }) => {
  if (abort) return running.get(abort)?.abort();
  const { number } = values, stop = new AbortController();
  running.set(number, stop);
  queue = queue.then(async () => {
    try {
      postMessage({ number, answer: await works[work](values, stop.signal) });
    } catch (error) {
      postMessage({ number, error: error.message });
    }
    running.delete(number);
  });
};
