// What of a text its translation keeps, as in text/kept.py and text/readings.py of the package; places are of UTF-16.
import { BRANCHED, BY_NUMBER, INVISIBLE, LINE_BREAKS, NUMBER, OPTIONS, OTHER_SPACE, PATTERNS, PIPES, PRINTF, REFERENCES,
  SHARE, SIMILAR, SPACELESS, WORDS, ZERO_WIDTH } from "./patterns.js";

const whole = ({ source }) => new RegExp(`^(?:${source})$`, "u");
for (const row of PATTERNS) row.whole = whole(row.expression);
const PRINTF_PART = whole(PRINTF), POSITION = /%(\d+)\$/;
const escaped = (text) => text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
const cut = (text, [begin, end]) => text.slice(begin, end);
const spansIn = (text, expression) =>
  Array.from(text.matchAll(expression), ({ index, 0: part }) => [index, index + part.length]);
const isAt = (expression, text, [begin]) => { expression.lastIndex = begin; return expression.test(text); };
const sorted = (spans) => spans.sort((one, other) => one[0] - other[0] || one[1] - other[1]);
const meets = ([begin, end], others) => others.some((other) => begin < other[1] && other[0] < end);
const isLetter = (sign) => /^[\p{L}\p{N}]/u.test(sign);
const signOf = (part) => REFERENCES[part] ??
  (/^&#/.test(part) ? String.fromCodePoint(parseInt(part.slice(2).replace(/^x/i, "0x"))) : undefined);

const IS_CODE = {  // whether a part is code where it stands; named as in text/patterns.py
  is_counted: (part, text, parts) => Array.from({ length: +part.replace(/^[%L$]+/, "") }).every(
    (_, index) => parts.has(part.replace(/\d+$/, "") + (index + 1))),
  is_variable: (part, text) => !(/^\$[^\p{Ll}]*$/u.test(part) && part.length <= 4 && new RegExp(
    `\\p{Nd}\\s?(?:\\p{L}+\\.?\\s){0,2}${escaped(part)}(?![\\p{L}\\p{N}_])|` +
    `(?<![\\p{L}\\p{N}_])${escaped(part)}\\s?\\p{Nd}`, "u").test(text)),
  is_symbol: (part) => /^(?:\p{S}|(?!['"])\p{Po})$/u.test(signOf(part) ?? ""),
  is_about_command_line: (part, text) => OPTIONS.test(text),
};

// Lines and breaks alternately, as in text/lines.py.
export const linesOf = (text) =>
  text.split(LINE_BREAKS).flatMap((line) => (BRANCHED.test(line) ? line.split(PIPES) : [line]));

function findParts(text, sourceParts = []) {
  const found = [];
  for (const row of PATTERNS.filter(({ signs }) => !signs.length || signs.some((sign) => text.includes(sign)))) {
    const free = spansIn(text, row.expression).filter((span) => !meets(span, found));
    const parts = new Set(free.map((span) => cut(text, span)));
    const isCode = (part) => !row.isCode || sourceParts.includes(part) || IS_CODE[row.isCode](part, text, parts);
    for (const span of free) if (isCode(cut(text, span))) found.push(Object.assign(span, { row }));
  }
  return sorted(found);
}

// The characters that a vocabulary lacks, where it lacks their word too.
export function unknownSpans(text, isUnknown) {
  const spans = [];
  for (const word of isUnknown(text) ? spansIn(text, /[\p{L}\p{M}\p{N}_]+|\S/gu) : []) {
    let place = word[0];
    for (const sign of isUnknown(cut(text, word)) ? cut(text, word) : "") {
      const span = [place, place += sign.length];
      if (isUnknown(sign)) spans.push(span);
    }
  }
  return spans;
}

export const unmet = (spans, others) => spans.filter((span) => !meets(span, others));

// With the spans that the vocabulary lacks; those side by side are one.
export function keptSpans(text, unknown = []) {
  const spans = findParts(text), others = [];
  for (const [begin, end] of unmet(unknown, spans)) {
    if (others.at(-1)?.[1] === begin) others.at(-1)[1] = end;
    else others.push([begin, end]);
  }
  return sorted([...spans, ...others]);
}

const patternOf = (part) => PATTERNS.find((row) => row.whole.test(part));
const mayNotRepeat = ({ isUnambiguous, kind } = {}) => isUnambiguous || ["path", "option", "emoji"].includes(kind);
const canBeNumbered = (part) => !["%m", "%n"].includes(part) && PRINTF_PART.test(part);

function haveNumbers(parts) {  // undefined: only some are
  const found = new Set(parts.filter((part) => PRINTF_PART.test(part)).map((part) => POSITION.test(part)));
  return found.size > 1 ? undefined : found.has(true);
}

function normalizedPart(part, isNumbered) {
  const plain = isNumbered ? part : part.replace(/%\d+\$/g, "%");
  return plain.includes("%%") && PRINTF_PART.test(plain) ? `${plain.replace(/\s/g, "").replace("%%", "")}%%` : plain;
}

// Takes one out of a list; returns whether it was there.
function take(forms, form) {
  const at = forms.indexOf(form);
  return at >= 0 && !!forms.splice(at, 1);
}

// Which parts of a source an output has, lacks (their forms), and has too many.
function compare(source, spans, output) {
  const parts = spans.map((span) => cut(source, span)), shapes = parts.map((part) => normalizedPart(part, false));
  const others = parts.filter((part) => !patternOf(part)).sort((one, other) => other.length - one.length);
  const inOutput = findParts(output, parts);
  const ofOthers = others.length ? spansIn(output, new RegExp(others.map(escaped).join("|"), "gu")) : [];
  inOutput.push(...ofOthers.filter((span) => !meets(span, inOutput)));
  for (const span of inOutput) {  // a percent sign beside a placeholder is a part of it only as in the source
    const part = cut(output, span), value = PRINTF_PART.exec(part)?.[1];
    if (shapes.includes(normalizedPart(part, false)) || !value) continue;
    span[0] += part.indexOf(value);
    span[1] = span[0] + value.length;
  }
  const texts = sorted(inOutput).map((span) => cut(output, span));
  const sides = [haveNumbers(parts), haveNumbers(texts)];
  const normal = (part) => normalizedPart(part, !(sides.includes(true) && sides.includes(false)));
  const wanted = parts.map(normal), extra = texts.map(normal).filter((form) => wanted.includes(form));
  for (const form of wanted) take(extra, form);
  const rows = new Set(parts.map(patternOf).filter(Boolean)), found = [], spare = [];
  for (const span of inOutput) {
    const part = cut(output, span), form = normal(part), before = found.at(-1) ?? [0, 0];
    const isBehind = found.length && !output.slice(before[1], span[0]).trim();
    const isRepeated = isBehind && cut(output, before) === part;
    const isToGo = (mustGo) => spare.push(Object.assign(span, { mustGo }));
    if (!(isRepeated && extra.includes(form)) && take(wanted, form)) found.push(span);
    else if (part === "%%" && (isAt(BY_NUMBER, output, span) || (isBehind && output[before[1] - 1] !== "%"))) continue;
    else if (take(extra, form)) isToGo(isRepeated || mayNotRepeat(patternOf(part)));
    else if (span.row && isInvented(part, span.row, source, rows)) isToGo(true);
    else if (rows.has(span.row)) isToGo(false);
  }
  const isWritten = (sign) => sign && !"&<>".includes(sign) && output.includes(sign);
  return { found, spare, missing: wanted.filter((form) => !isWritten(signOf(form))), normal };
}

function isInvented(part, row, source, rows) {
  if (row.isUnambiguous || row.kind !== "placeholder" || !rows.has(row)) return row.isUnambiguous;
  const number = /\d+$/.exec(part);  // %2 may be a share where the source has a 2
  return !(number && new RegExp(`(?<![\\d%$])${number[0]}(?!\\d)`).test(source));
}

// Returns an output with doubled percent signs, if its source doubles its own.
export function withDoubledSigns(source, spans, output) {
  const parts = spans.map((span) => cut(source, span));
  const signsOutside = (text, parts) => spansIn(text, /%/g).filter((span) => !meets(span, parts));
  const doublesPercent = (part) =>
    part.includes("%%") || /^%[(<]/.test(part) || (part[0] === "%" && PRINTF_PART.test(part));
  if (!output.includes("%") || !parts.some(doublesPercent) || signsOutside(source, spans).length) return output;
  const others = findParts(output, parts).filter(
    (span) => parts.includes(cut(output, span)) || !isAt(SHARE, output, span));
  return edited(output, signsOutside(output, others).map(([begin, end]) =>
    [begin, end, output[begin - 1] === "%" ? "" : "%%"]));
}

// The share of signs that two texts have in common, in order.
function similarity(one, other) {
  let row = new Array(other.length + 1).fill(0);
  for (const sign of one) {
    const next = [0];
    for (let at = 0; at < other.length; at++) {
      next.push(sign === other[at] ? row[at] + 1 : Math.max(row[at + 1], next[at]));
    }
    row = next;
  }
  return (2 * row.at(-1)) / (one.length + other.length || 1);
}

// %d before a letter is no placeholder, /tmp behind one no path.
function withNeededSpaces(part, before, behind) {
  const isPart = ([left, right]) => {
    const begin = (before + left).length, end = begin + part.length, rest = right + behind;
    const isInWord = isLetter(part.at(-1)) && /^\p{Script=Latin}{4}/u.test(rest);
    const isIt = (span) => span[0] === begin && span[1] === end;
    return !isInWord && findParts(before + left + part + rest, [part]).some(isIt);
  };
  return ([["", ""], ["", " "], [" ", ""], [" ", " "]].find(isPart) ?? ["", ""]).join(part);
}

// The edit that brings one part back: over its damaged copy, or behind the translation of the text before it.
function editFor(source, span, output, links, spare, taken) {
  const text = cut(source, span), sign = signOf(text);
  const written = new RegExp(`(?:${escaped(text)})+${sign ? `|${escaped(sign)}(?![#\\w])` : ""}`, "gu");
  const copy = spansIn(output, written).find((copy) => !meets(copy, [...taken, ...spare]));
  if (copy) return [...copy, text];
  const linked = links.filter((link) => meets(link.source, [span])).map((link) => link.target)
    .filter((part) => !meets(part, taken));
  if (linked.length) {
    const all = [linked[0][0], linked.at(-1)[1]], met = [all, ...spare.filter((part) => meets(part, [all]))];
    let begin = Math.min(...met.map((part) => part[0])), end = Math.max(...met.map((part) => part[1]));
    const isPath = ["address", "path", "option"].includes(patternOf(text)?.kind);
    if (isPath || text.includes("{")) {  // some of its tokens may be linked with other words, or with none
      const [left, right] = isPath ? ["\\w.@/:+-", "\\w.@/:+-"] : [`${escaped(text[0])}{`, "}"];
      begin -= new RegExp(`[${left}]*$`).exec(output.slice(0, begin))[0].length;
      end += new RegExp(`^[${right}]*`).exec(output.slice(end))[0].length;
    }
    const letters = output.slice(begin, end).replace(/\s/g, "");
    if (similarity(letters, text) >= SIMILAR && !meets([begin, end], taken)) return [begin, end, text];
  }
  if (spare.length) return [...spare.find((part) => meets(part, linked)) ?? spare[0], text];
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
  return [gap, gap, space + text + (!isLetter(behind) && isLetter(right) ? " " : "")];
}

// The edits, in order, after which an output has each missing part, and no other that must go.
function editsToRestore(source, spans, output, { found, spare, missing, normal }, links) {
  const taken = [...found], edits = [];
  const isTaken = (span) => links.some((link) => meets(link.source, [span]) && meets(link.target, taken));
  const lacking = [...new Set(missing)].flatMap((form) => spans.filter((span) => normal(cut(source, span)) === form)
    .sort((one, other) => isTaken(one) - isTaken(other)).slice(0, missing.filter((one) => one === form).length));
  for (const span of sorted(lacking)) {
    const [begin, end, text] = editFor(source, span, output, links, spare, taken);
    spare = spare.filter((part) => !meets(part, [[begin, end]]));
    const part = text.trim(), [head, rest] = text.split(part);
    const here = edits.filter((other) => other[0] === begin && other[1] === begin).map((other) => other[2]).join("");
    const needed = withNeededSpaces(part, output.slice(0, begin) + here + head, rest + output.slice(end));
    edits.push([begin, end, head + needed + rest]);
    taken.push([begin, end]);
  }
  for (const [begin, end] of spare.filter(({ mustGo }) => mustGo)) {  // with the space before it
    edits.push([output.slice(0, begin).trimEnd().length, end, ""]);
  }
  return sorted(edits);
}

// The edits that put one space for other white space within a text, and nothing for a soft hyphen.
export function editsToUnifySpaces(text) {
  return spansIn(text, OTHER_SPACE).flatMap(([begin, end]) => {
    const run = text.slice(begin, end), isInside = begin > 0 && end < text.length;
    const isBetween = isAt(INVISIBLE, text, [begin]) && !SPACELESS.test(text[begin - 1] + text[end]);
    const isRead = run === "\u00ad" || (isInside && !ZERO_WIDTH.test(run)) || isBetween;
    return isRead ? [[begin, end, run === "\u00ad" ? "" : " "]] : [];
  });
}

// The edits that put other white space than a space between the same words.
function editsToRestoreSpaces(source, spaces, output, links) {
  const words = spansIn(source, WORDS), written = spansIn(output, WORDS);
  const linked = (isBeside) => links.filter((link) => meets(link.source, words.filter(isBeside))).map((link) => link.target);
  const gaps = written.slice(1).map((word, index) => [written[index], word])
    .filter(([before, behind]) => output.slice(before[1], behind[0]) === " ");
  return sorted(spaces.flatMap(([begin, end]) => {
    const before = linked((word) => word[1] === begin), behind = linked((word) => word[0] === end);
    const at = gaps.findIndex((gap) => meets(gap[0], before) && meets(gap[1], behind));
    return at < 0 ? [] : gaps.splice(at, 1).map((gap) => [gap[0][1], gap[1][0], source.slice(begin, end)]);
  }));
}

export function edited(output, edits) {
  let text = "", place = 0;
  for (const [begin, end, other] of edits) {
    text += output.slice(place, begin) + other;
    place = Math.max(place, end);  // an empty part may lie in the part before it
  }
  return text + output.slice(place);
}

// The numbers outside of parts, each with its percent sign, the word behind it and its end.
const numbersOf = (text, parts) => Array.from(
  edited(text, parts.map(([begin, end]) => [begin, end, "\0".repeat(end - begin)])).matchAll(NUMBER),
  ({ index, 1: before, 2: number, 3: behind, 4: word }) => {
    const end = index + (before ?? "").length + number.length;
    return { number: number.replaceAll(",", "."), sign: before ?? behind, word, end };
  });

// The edits that give numbers of an output the percent signs of its source.
function editsToAddPercents(source, spans, output, found) {
  const inSource = numbersOf(source, spans), inOutput = numbersOf(output, found);
  const lost = (wanted) => inSource.filter(({ number, sign }) => sign && number === wanted).length -
    inOutput.filter(({ number, sign, word }) => (sign || word) && number === wanted).length;
  const bare = new Set(inSource.filter(({ sign }) => !sign).map(({ number }) => number)), edits = [];
  const given = (wanted) => edits.filter(({ number }) => number === wanted).length;
  for (const { number, sign, word, end } of inOutput) {
    if (sign || word || bare.has(number) || lost(number) <= given(number)) continue;
    edits.push(Object.assign([end, end, output[end] === "%" ? "% " : "%"], { number }));
  }
  return edits;
}

// Returns an output that has the white space and each kept part of its source, where these are, the edits that made it
// so, whether parts were put back, and whether the source must stay: a program would take a value for another one.
export function keep({ line: source, spans, spaces }, output, findLinks) {
  let linked;
  const linksOf = () => linked ??= findLinks();
  const gaps = spaces.length ? editsToRestoreSpaces(source, spaces, output, linksOf()) : [];
  const spaced = edited(output, gaps);
  const behind = (at) => gaps.reduce((all, [, end, text]) => (end <= at ? all + text.length - 1 : all), at);
  const before = compare(source, spans, spaced), { missing } = before;
  const links = missing.length ? linksOf().map((link) => ({ ...link, target: link.target.map(behind) })) : [];
  const edits = editsToRestore(source, spans, spaced, before, links), whole = edited(spaced, edits);
  const signs = editsToAddPercents(source, spans, whole, compare(source, spans, whole).found);
  const text = edited(whole, signs), after = compare(source, spans, text);
  const order = (text, places) => places.map((span) => cut(text, span)).filter(canBeNumbered).map(after.normal);
  const [wanted, found] = [order(source, spans), order(text, after.found)];
  const untranslated = !wanted.some((part) => POSITION.test(part)) && wanted.join() !== found.join();
  if (untranslated) return { text: source, spans, edits: [], restored: 0, untranslated };
  const restored = missing.length + signs.length;
  return { text, spans: after.found, edits: [...signs, ...edits, ...gaps], restored, untranslated };
}
