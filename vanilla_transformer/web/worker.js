// The model in a worker: greedy search for each line, kept parts, expected quality.
import * as ort from "./runtime/ort.wasm.min.mjs";
import { Tokenizer } from "./runtime/tokenizers.min.mjs";
import { keep, keptSpans, withDoubledSigns } from "./kept.js";
import { INVISIBLE, LINE_BREAKS, NO_WORD, REPEATED_PART, REPEATED_WORDS, SPACELESS, SURROUNDED } from "./patterns.js";

const here = new URL(".", import.meta.url);
const count = (text) => Array.from(text).length;  // characters as Python counts them
const pause = () => new Promise((resolve) => setTimeout(resolve));  // lets messages in
const int64 = (ids) => new ort.Tensor("int64", BigInt64Array.from(ids, BigInt), [1, ids.length]);
const SENTENCES = new Intl.Segmenter("en", { granularity: "sentence" });
const PLAIN = { clean_up_tokenization_spaces: false };
let site, encoder, decoder, reader, writer;
const known = new Map(), unknownSigns = new Map();

async function read(cache, name, size, onBytes) {
  const address = new URL(name, here).href;
  const kept = await cache?.match(address);
  const answer = kept ?? await fetch(address);
  if (!answer.ok) throw new Error(`The file ${name} is missing: export the model again.`);
  const bytes = new Uint8Array(size), stream = answer.body.getReader();
  let place = 0;
  for (let part = await stream.read(); !part.done; part = await stream.read()) {
    if (place + part.value.length <= size) bytes.set(part.value, place);
    place += part.value.length;
    onBytes(part.value.length);
  }
  if (place !== size) throw new Error(`The file ${name} is damaged: it has ${place} bytes instead of ${size}.`);
  return { address, bytes, isNew: !kept };
}

async function begin() {
  site = await (await fetch(new URL("site.json", here), { cache: "no-cache" })).json();
  const prefix = `translator ${here.pathname} `, store = globalThis.caches;  // only where the connection is secure
  const cache = await store?.open(prefix + site.version).catch(() => undefined);
  const total = Object.values(site.files).reduce((sum, size) => sum + size);
  let done = 0, told = 0;
  const onBytes = (bytes) => {
    done += bytes;
    if (done - told < total / 100 && done < total) return;
    told = done;
    postMessage({ progress: done / total });
  };
  const files = {};
  await Promise.all(Object.entries(site.files).map(async ([name, size]) => {
    files[name] = await read(cache, name, size, onBytes);
  }));
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
  const found = { ...site, notice: "" };
  if (!cache) return { ...found, notice: "Nothing is kept for the next visit: that needs an address with https." };
  try {  // what was loaded is whole
    const old = (await store.keys()).filter((name) => name.startsWith(prefix) && name !== prefix + site.version);
    for (const name of old) await store.delete(name);
    for (const { address, bytes } of Object.values(files).filter(({ isNew }) => isNew)) {
      await cache.put(address, new Response(bytes));
    }
  } catch {
    return { ...found, notice: "Nothing is kept for the next visit: the browser's storage is full." };
  }
  return found;
}

async function search(ids, direction, signal, repeats) {
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
    for (const id of site.banned) row[id] = -Infinity;
    for (let end = repeats - 1; end < tokens.length; end++) {
      const before = tokens.slice(end - repeats + 1, end);
      if (before.join() === tokens.slice(1 - repeats).join()) row[tokens[end]] = -Infinity;
    }
    let sum = 0, best = 0;
    for (let id = 1; id < row.length; id++) if (row[id] > row[best]) best = id;
    for (let id = 0; id < row.length; id++) sum += Math.exp(row[id] - row[best]);
    const isForced = !tokens.length && direction.first !== null;
    next = isForced ? direction.first : best;
    isComplete = site.ends.includes(next);
    scores.push(isForced ? 0 : Math.max(-100, -Math.log(sum)));
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

// The spans that tokens add to a text, from the texts of the first 1, 2, 3 ... of them.
function spansOf(ids, decode, text) {
  let begin = 0;
  return ids.map((_, index) => {
    const prefix = decode(ids.slice(0, index + 1));
    let end = begin;
    while (end < prefix.length && prefix[end] === text[end]) end++;
    return [begin + /^\s*/.exec(text.slice(begin, end))[0].length, begin = end];
  });
}

const isUnknown = (sign) => {
  const find = () => reader.encode(sign, { add_special_tokens: false }).ids.includes(site.unknown);
  if (!unknownSigns.has(sign)) unknownSigns.set(sign, find());
  return unknownSigns.get(sign);
};

function repeatsItself(text) {
  const small = text.toLowerCase(), words = small.replace(NO_WORD, " ").trim();
  return [...words.matchAll(REPEATED_WORDS), ...small.matchAll(REPEATED_PART)].some((match) => /\p{L}/u.test(match[1]));
}

// The text of a line that the model reads: with placeholders of its own for the parts that stay.
function readingOf(line, spans) {
  let read = "", place = 0;
  spans.forEach((span, index) => {  // the token for unknown characters would mislead the model
    read += line.slice(place, span[0]) + (site.placeholders[index] ?? (span.isUnknown ? "" : line.slice(...span)));
    place = span[1];
  });
  return (read + line.slice(place)).trim().replace(
    INVISIBLE, (run, at, all) => (SPACELESS.test(all[at - 1] + all[at + run.length]) ? run : " "));
}

// An output that repeats itself, or does not end, is searched again without repetitions.
async function searchLine(ids, line, direction, signal) {
  const repeats = ({ text }) => repeatsItself(text) && !repeatsItself(line);
  const isLost = (found) => repeats(found) || (!found.isComplete && found.tokens.length > 2 * ids.length);
  const found = await search(ids, direction, signal);
  if (!isLost(found)) return found;
  const again = await search(ids, direction, signal, site.repeats);
  return isLost(again) ? found : again;
}

// The parts of a line that is translated in several pieces.
function inPieces(pieces, direction, signal, canCut) {
  const spaced = direction.spaces ? pieces : pieces.map((piece) => piece.trimEnd());
  return inOrder(spaced, (piece) => translateLine(piece, direction, signal, canCut));
}

// An output with its kept parts, and what is to be told about it.
function finished(line, spans, { tag, read, inner, ids }, result, direction) {
  const put = (output) => withDoubledSigns(line, spans, site.placeholders.reduce(
    (all, token, index) => (spans[index] ? all.replaceAll(token, line.slice(...spans[index])) : all), output));
  const text = put(result.text);
  const findLinks = () => {
    const sources = spansOf(inner, (some) => reader.decode(some, PLAIN), tag + read)
      .map((span) => span.map((at) => Math.max(at - tag.length, 0)));
    const sourceOf = (index) => sources[result.aligned[index] - direction.before.length] ?? [0, 0];
    return spansOf(result.tokens, (some) => put(textOf(some)), text)
      .map((target, index) => ({ target, source: sourceOf(index) })).filter(({ target }) => target[0] < target[1]);
  };
  const kept = keep(line, spans, text, findLinks);
  const signs = Array.from(line.replace(/\s/gu, "")), missing = signs.filter(isUnknown).length / signs.length;
  const facts = { repeated: repeatsItself(kept.text) && !repeatsItself(line), cut: !result.isComplete,
    stays: kept.stays, unknown: missing > 0, restored: kept.restored.length > 0 };
  const doubts = Object.keys(facts).filter((name) => facts[name]);
  const quality = site.quality && expected(result, ids.length, line, kept, missing, facts, direction.language);
  if (quality !== null && quality < site.doubtful) doubts.push("unsure");
  const marks = kept.spans.map(([begin, end]) => ({ begin, end, kind: "kept" }));
  return { text: kept.text, marks, doubts, quality };
}

// Returns the parts of the translation of a line, or of a sentence of one.
async function translateLine(line, direction, signal, canCut = true) {
  const key = [direction.source, direction.target, line].join("\n");
  if (known.has(key)) return known.get(key);
  const spans = keptSpans(line, site.keepsUnknown ? isUnknown : undefined);
  const alone = spans.reduceRight((text, [begin, end]) => text.slice(0, begin) + text.slice(end), line);
  if (!alone.trim()) return [line];
  const read = readingOf(line, spans), tag = direction.tag && `${direction.tag} `;
  const inner = reader.encode(tag + read, { add_special_tokens: false }).ids;
  const ids = [...direction.before, ...inner, ...direction.after];
  const sentences = Array.from(SENTENCES.segment(line), ({ segment }) => segment);
  if (ids.length > site.limit) {
    const middle = line.lastIndexOf(" ", line.length / 2) + 1 || Math.ceil(line.length / 2);
    const pieces = sentences.length > 1 ? sentences : [line.slice(0, middle), line.slice(middle)];
    return inPieces(pieces, direction, signal, true);
  }
  const result = await searchLine(ids, line, direction, signal);
  if (!result.isComplete && canCut && sentences.length > 1) return inPieces(sentences, direction, signal, false);
  if (known.size > 5000) known.clear();
  known.set(key, [finished(line, spans, { tag, read, inner, ids }, result, direction)]);
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
function expected({ scores }, tokens, line, { text, restored }, missing, { repeated, cut }, language) {
  const { weights, sums, values } = site.quality[language] ?? site.quality[""];
  if (repeated) return values[0];
  const source = count(line), output = Math.max(count(text), 1);
  const sum = (numbers) => numbers.reduce((all, number) => all + number, 0);
  const features = [
    sum(scores.map((score) => Math.sqrt(-score))) / scores.length, sum(scores.map(Math.exp)) / scores.length,
    Math.exp(sum(scores)),
    tokens / source, scores.length / output, Math.log(tokens / scores.length), Math.log1p(tokens),
    Math.abs(Math.log(output / source)), Math.log1p(output), restored.length, missing, 0, +cut, 1];
  const total = sum(features.map((feature, index) => feature * weights[index]));
  const above = sums.findIndex((each) => each >= total);
  if (above < 1) return above ? values.at(-1) : values[0];
  const share = (total - sums[above - 1]) / (sums[above] - sums[above - 1]);
  return Math.round(10 * (values[above - 1] + share * (values[above] - values[above - 1]))) / 10;
}

const running = new Map();
let queue = Promise.resolve();

async function answer({ number, text, source, target }) {
  const { signal } = running.get(number);
  const targets = [...new Set(site.directions.map((one) => one.target))].join(", ");
  const direction = site.directions.find(
    (one) => one.target === target && (source === undefined || one.source === source));
  if (!direction) throw new Error(`The model has no target ${target}: it knows ${targets}.`);
  let since = performance.now();
  const onPart = (parts, done) => {
    if (performance.now() - since < 200) return;
    since = performance.now();
    postMessage({ number, parts, done });
  };
  const lines = text.split(LINE_BREAKS);  // lines and breaks alternately
  return inOrder(lines, (line, index) => (index % 2 ? [line] : translateLine(line, direction, signal)), onPart);
}

onmessage = ({ data }) => {
  if (data.abort) return running.get(data.abort)?.abort();
  running.set(data.number, new AbortController());
  queue = queue.then(async () => {
    try {
      postMessage({ number: data.number, answer: data.text === undefined ? await begin() : await answer(data) });
    } catch (error) {
      postMessage({ number: data.number, error: error.message });
    }
    running.delete(data.number);
  });
};
