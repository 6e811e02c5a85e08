// The parts of a text that its translation keeps, as in the package's text/kept.py; places are of UTF-16.
import { OPTIONS, PATTERNS, PRINTF, REFERENCES, SHARE, SIMILAR, SPACELESS } from "./patterns.js";

const whole = ({ source }) => new RegExp(`^(?:${source})$`, "u");
for (const row of PATTERNS) row.whole = whole(row.expression);
const PRINTF_PART = whole(PRINTF);
const escaped = (text) => text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
const cut = (text, [begin, end]) => text.slice(begin, end);
export const meets = ([begin, end], others) => others.some((other) => begin < other[1] && other[0] < end);
const isLetter = (sign) => /^[\p{L}\p{N}]/u.test(sign);
const signOf = (part) => REFERENCES[part] ??
  (/^&#/.test(part) ? String.fromCodePoint(parseInt(part.slice(2).replace(/^x/i, "0x"))) : undefined);

const STANDS = {  // whether a part is code where it stands; named as in text/patterns.py
  is_counted: (part, text, parts) => Array.from({ length: +part.replace(/^[%L$]+/, "") }).every(
    (_, index) => parts.has(part.replace(/\d+$/, "") + (index + 1))),
  is_no_money: (part, text) => !(/^\$[^\p{Ll}]*$/u.test(part) && part.length <= 4 && new RegExp(
    `\\p{Nd}\\s?(?:\\p{L}+\\.?\\s){0,2}${escaped(part)}(?![\\p{L}\\p{N}_])|` +
    `(?<![\\p{L}\\p{N}_])${escaped(part)}\\s?\\p{Nd}`, "u").test(text)),
  is_sign: (part) => /^(?:\p{S}|(?!['"])\p{Po})$/u.test(signOf(part) ?? ""),
  is_among_options: (part, text) => OPTIONS.test(text),
};

export function findParts(text, sure = []) {
  const found = [];
  for (const row of PATTERNS) {
    if (row.signs.length && !row.signs.some((sign) => text.includes(sign))) continue;
    const spans = [...text.matchAll(row.expression)].map((match) => [match.index, match.index + match[0].length]);
    const free = spans.filter((span) => !meets(span, found));
    const parts = new Set(free.map((span) => cut(text, span)));
    found.push(...free.filter((span) => {
      const part = cut(text, span);
      return !row.stands || sure.includes(part) || STANDS[row.stands](part, text, parts);
    }).map((span) => Object.assign(span, { row })));
  }
  return found.sort((one, other) => one[0] - other[0]);
}

// With the parts whose characters the vocabulary lacks.
export function keptSpans(text, isUnknown = () => false) {
  const spans = findParts(text);
  let place = 0, last = null;
  for (const sign of text) {
    const span = [place, place += sign.length];
    if (meets(span, spans) || /\s/u.test(sign) || !isUnknown(sign)) continue;
    if (last?.[1] === span[0]) last[1] = span[1];
    else spans.push(last = Object.assign(span, { isUnknown: true }));
  }
  return spans.sort((one, other) => one[0] - other[0]);
}

const patternOf = (part) => PATTERNS.find((row) => row.whole.test(part));
const POSITION = /%(\d+)\$/;
const isExact = (part) => {
  const row = patternOf(part);
  return !!row && (row.isSure || ["path", "option", "emoji"].includes(row.kind));
};
const canBeNumbered = (part) => part !== "{}" && !part.endsWith("m") && PRINTF_PART.test(part);

function haveNumbers(parts) {  // undefined: only some are
  const found = new Set(parts.filter((part) => PRINTF_PART.test(part)).map((part) => POSITION.test(part)));
  return found.size > 1 ? undefined : found.has(true);
}

function comparableForm(part, isNumbered) {
  const plain = isNumbered ? part : part.replace(/%\d+\$/g, "%");
  return plain.includes("%%") && PRINTF_PART.test(plain) ? `${plain.replace(/\s/g, "").replace("%%", "")}%%` : plain;
}

function counted(items) {
  const counts = new Map();
  for (const item of items) counts.set(item, (counts.get(item) ?? 0) + 1);
  return counts;
}

// Which parts of a source an output has, lacks, and has too many.
function compare(source, spans, output) {
  const parts = spans.map((span) => cut(source, span));
  const others = [...new Set(parts.filter((part) => !patternOf(part)))].sort((one, other) => other.length - one.length);
  const inOutput = findParts(output, parts);
  for (const match of others.length ? output.matchAll(new RegExp(others.map(escaped).join("|"), "gu")) : []) {
    const span = [match.index, match.index + match[0].length];
    if (!meets(span, inOutput)) inOutput.push(span);
  }
  const shapes = new Set(parts.map((part) => comparableForm(part, false)));
  for (const span of inOutput) {  // a percent sign beside a placeholder is a part of it only as in the source
    const part = cut(output, span), value = PRINTF_PART.exec(part)?.[1];
    if (shapes.has(comparableForm(part, false)) || !value) continue;
    span[0] += part.indexOf(value);
    span[1] = span[0] + value.length;
  }
  inOutput.sort((one, other) => one[0] - other[0]);
  const texts = inOutput.map((span) => cut(output, span));
  const sides = [haveNumbers(parts), haveNumbers(texts)];
  const normal = (part) => comparableForm(part, !(sides.includes(true) && sides.includes(false)));
  const wanted = counted(parts.map(normal)), extra = counted(texts.map(normal));
  for (const [text, count] of extra) extra.set(text, wanted.has(text) ? count - wanted.get(text) : 0);
  const rows = new Set(parts.map(patternOf)), found = [], spare = [];
  inOutput.forEach((span, index) => {
    const written = texts[index], text = normal(written), before = found.at(-1) ?? [0, 0];
    const isRepeated = cut(output, before) === written && !output.slice(before[1], span[0]).trim();
    if (wanted.get(text) > 0 && !(isRepeated && extra.get(text) > 0)) {
      wanted.set(text, wanted.get(text) - 1);
      found.push(span);
    } else if (written === "%%") return;
    else if (extra.get(text) > 0) {
      extra.set(text, extra.get(text) - 1);
      spare.push(Object.assign(span, { mustGo: isRepeated || isExact(written) }));
    } else if (span.row && (isInvented(written, span.row, source, rows) || rows.has(span.row))) {
      spare.push(Object.assign(span, { mustGo: isInvented(written, span.row, source, rows) }));
    }
  });
  const missing = [];
  for (const [text, count] of wanted) {
    const sign = signOf(text);
    if (count < 1 || (sign && !"&<>".includes(sign) && output.includes(sign))) continue;
    missing.push({ spans: spans.filter((span) => normal(cut(source, span)) === text), count });
  }
  return { found, spare, missing, normal };
}

function isInvented(part, row, source, rows) {
  if (row.isSure || row.kind !== "placeholder" || !rows.has(row)) return row.isSure;
  const number = /\d+$/.exec(part);
  return !(number && new RegExp(`(?<![\\d%$])${number[0]}(?!\\d)`).test(source));
}

// Returns an output with withDoubledSigns percent signs, if its source doubles its own.
export function withDoubledSigns(source, spans, output) {
  const parts = spans.map((span) => cut(source, span));
  const signsOutside = (text, parts) =>
    Array.from(text.matchAll(/%/g), ({ index }) => index).filter((at) => !meets([at, at + 1], parts));
  const doublesPercent = (part) =>
    part.includes("%%") || /^%[(<]/.test(part) || (part !== "{}" && PRINTF_PART.test(part));
  if (!output.includes("%") || !parts.some(doublesPercent) || signsOutside(source, spans).length) return output;
  const isShare = ([begin]) => { SHARE.lastIndex = begin; return SHARE.test(output); };
  const others = findParts(output, parts).filter((span) => parts.includes(cut(output, span)) || !isShare(span));
  return signsOutside(output, others).reduceRight((text, at) => `${text.slice(0, at)}%${text.slice(at)}`, output);
}

// The share of letters that two texts have in common, in order.
function similarity(one, other) {
  let row = new Array(other.length + 1).fill(0);
  for (const sign of one) {
    const next = [0];
    for (let index = 0; index < other.length; index++) {
      next.push(sign === other[index] ? row[index] + 1 : Math.max(row[index + 1], next[index]));
    }
    row = next;
  }
  return (2 * row.at(-1)) / (one.length + other.length || 1);
}

function withNeededSpaces(part, before, behind) {
  for (const [left, right] of [["", ""], ["", " "], [" ", ""], [" ", " "]]) {
    const head = before + left, rest = right + behind, begin = head.length;
    if (isLetter(part.at(-1)) && /^\p{Script=Latin}{4}/u.test(rest)) continue;
    if (findParts(head + part + rest, [part]).some((span) => span[0] === begin && span[1] === begin + part.length)) {
      return left + part + right;
    }
  }
  return part;
}

// The edit that brings one part back: over its damaged copy, or behind the translation of the text before it.
function editFor(source, span, output, links, spare, taken) {
  const text = cut(source, span), sign = signOf(text);
  const written = new RegExp(`(?:${escaped(text)})+${sign ? `|${escaped(sign)}(?![#\\w])` : ""}`, "gu");
  for (const match of output.matchAll(written)) {
    const copy = [match.index, match.index + match[0].length];
    if (!meets(copy, [...taken, ...spare])) return { span: copy, text };
  }
  const linked = links.filter((link) => meets(link.source, [span])).map((link) => link.target)
    .filter((part) => !meets(part, taken));
  if (linked.length) {
    let [begin, end] = [linked[0][0], linked.at(-1)[1]];
    for (const part of spare.filter((part) => meets(part, [[begin, end]]))) {
      [begin, end] = [Math.min(begin, part[0]), Math.max(end, part[1])];
    }
    if (["address", "path", "option"].includes(patternOf(text)?.kind)) {
      begin -= /[\w.@/:+-]*$/.exec(output.slice(0, begin))[0].length;
      end += /^[\w.@/:+-]*/.exec(output.slice(end))[0].length;
    }
    if (similarity(output.slice(begin, end).replace(/\s/g, ""), text) >= SIMILAR && !meets([begin, end], taken)) {
      return { span: [begin, end], text };
    }
  }
  if (spare.length) return { span: spare.find((part) => meets(part, linked)) ?? spare[0], text };
  const before = source.slice(0, span[0]).at(-1) ?? " ", behind = source[span[1]] ?? "";
  const ends = links.filter((link) => link.source[1] <= span[0]).sort(
    (one, other) => other.source[1] - one.source[1] || other.target[1] - one.target[1]);
  const begins = links.filter((link) => link.source[0] >= span[1]).sort(
    (one, other) => one.source[0] - other.source[0] || one.target[0] - other.target[0]);
  const nearest = [ends[0]?.target[1], begins[0]?.target[0]];
  if (!before.trim() && behind.trim()) nearest.reverse();  // it is glued to the text behind it
  let gap = nearest.find((place) => place !== undefined) ?? output.length;
  const isInside = () => gap > 0 && gap < output.length && isLetter(output[gap - 1]) && isLetter(output[gap]);
  while (isInside() && !SPACELESS.test(output.slice(gap - 1, gap + 1))) gap++;
  gap = taken.find(([begin, end]) => begin < gap && gap < end)?.[1] ?? gap;
  const left = output[gap - 1] ?? "", right = output[gap] ?? "";
  const space = /\s/.test(before) && (left.trim() || (taken.length && !output)) ? " " : "";
  return { span: [gap, gap], text: space + text + (!isLetter(behind) && isLetter(right) ? " " : "") };
}

// Returns an output that has each kept part of its source, where these are, those that were put back, by which edits,
// and whether the source itself must stay: a program would take a value for another one.
export function keep(source, spans, output, findLinks) {
  let compared = compare(source, spans, output);
  const restored = [], edits = [];
  if (compared.missing.length || compared.spare.some(({ mustGo }) => mustGo)) {
    const links = compared.missing.length ? findLinks() : [];
    let spare = compared.spare;
    const taken = [...compared.found];
    const isTaken = (span) => links.some((link) => meets(link.source, [span]) && meets(link.target, taken));
    const lacking = compared.missing.flatMap(({ spans: alike, count }) =>
      [...alike].sort((one, other) => isTaken(one) - isTaken(other)).slice(0, count));
    for (const span of lacking.sort((one, other) => one[0] - other[0])) {
      const edit = editFor(source, span, output, links, spare, taken);
      spare = spare.filter((part) => !meets(part, [edit.span]));
      const part = edit.text.trim(), [head, rest] = edit.text.split(part);
      const isHere = ({ span: [begin, end] }) => begin === edit.span[0] && end === begin;
      const others = edits.filter(isHere).map((other) => other.text).join("");
      const before = output.slice(0, edit.span[0]) + others + head;
      edit.text = head + withNeededSpaces(part, before, rest + output.slice(edit.span[1])) + rest;
      edits.push(edit);
      taken.push(edit.span);
      restored.push(part);
    }
    for (const [begin, end] of spare.filter(({ mustGo }) => mustGo)) {
      edits.push({ span: [output.slice(0, begin).trimEnd().length, end], text: "" });
    }
    let place = 0, edited = "";
    edits.sort((one, other) => one.span[0] - other.span[0] || one.span[1] - other.span[1]);
    for (const { span, text } of edits) {
      edited += output.slice(place, Math.max(place, span[0])) + text;
      place = Math.max(place, span[1]);
    }
    output = edited + output.slice(place);
    compared = compare(source, spans, output);
  }
  const order = (text, places) => places.map((span) => cut(text, span)).filter(canBeNumbered).map(compared.normal);
  const [wanted, found] = [order(source, spans), order(output, compared.found)];
  const stays = !wanted.some((part) => POSITION.test(part)) && wanted.join() !== found.join();
  if (stays) return { text: source, spans, restored: [], stays, edits: [] };
  return { text: output, spans: compared.found, restored, stays, edits };
}
