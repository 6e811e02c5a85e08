// The page. What translates, and where, is the engine's: `load(base, { onProgress })` of translator.js, which a folder
// with a model and a server (requests.js) have each their own. It resolves to an object with
//   settings: languages ({ code, name, targets }), source, models, formats, delay; of a server also charLimit and more
//   translate(text, { source, target, glossary, key, signal, onPart }): { text, parts }, of a server detected, memory
//     parts: white space, and lines as { text, marks, doubts, quality }; onPart(parts, share) tells the first ones
//   alternatives(part, place, options): parts that begin as this one, and have another word at a place of its text
//   translateFile(file, options): { name, address, texts }, of a server notes
//   correct(text, correction, options): only of a server
import { load } from "./translator.js";

const { from, to, swap, source, result, status, doubts, file, clear, copy, correct, progress, glossary, terms, key,
  secret, count, notice, models, choices } = Object.fromEntries(
  Array.from(document.querySelectorAll("[id]"), (element) => [element.id, element]));
const REASONS = {
  unsure: (part) => `the model is unsure, quality ${Math.round(part.quality)} of 100`,
  repeated: () => "it repeats itself",
  cut: () => "it is cut off",
  unknown: () => "the model does not know some of the characters",
  restored: () => "a part that stays was missing, and was put back: check its place",
  untranslated: () => "it stays as it is, since its placeholders would be in another order",
};
const WORDS = new Intl.Segmenter("en", { granularity: "word" });
const wordsOf = (text) => [...WORDS.segment(text)].filter((one) => one.isWordLike);
let engine, newest = new AbortController(), shown = {}, written = [], timer;

const make = (tag, fields) => Object.assign(document.createElement(tag), fields);
const asked = () => ({ source: from.value, target: to.value, glossary: terms.value, key: secret.value });
const nameOf = (code) => engine.settings.languages.find((one) => one.code === code)?.name;
const reasonsOf = (part) => (part.doubts ?? []).map((name) => REASONS[name](part)).join("; ");

function tell(text, isProblem = false) {
  status.replaceChildren(text);
  status.classList.toggle("problem", isProblem);
}

addEventListener("unhandledrejection", (event) => {  // of all that waits for the engine
  event.preventDefault();
  if (event.reason.name === "AbortError") return;  // a newer text has stopped it
  progress.hidden = true;
  if (result.classList.contains("waiting")) show([]);  // that of a former text
  result.classList.remove("waiting");
  tell(event.reason.message, true);
});

function fill(select, choices, wanted) {
  select.replaceChildren(...choices.map(({ code, name }) => new Option(name, code)));
  select.value = choices.some(({ code }) => code === wanted) ? wanted : (choices[0]?.code ?? "");
}

// Offers the targets that the source has; "auto" has those of all sources.
function offerTargets(wanted = to.value) {
  const { languages } = engine.settings;
  const chosen = languages.filter(({ code }) => ["auto", code].includes(from.value));
  const codes = new Set(chosen.flatMap(({ targets }) => targets));
  fill(to, languages.filter(({ code }) => codes.has(code)), wanted);
  swap.disabled = !languages.some(({ code, targets }) => code === to.value && targets.includes(from.value));
}

function drawn(part) {
  if (part.text === undefined) return part;
  const reasons = reasonsOf(part), line = make("span", reasons ? { className: "doubt", title: reasons } : {});
  let place = 0;
  for (const { begin, end, kind } of part.marks) {
    const title = kind === "term" ? "Term of the glossary" : "Kept as it is";
    const mark = make("mark", { className: kind, title, textContent: part.text.slice(begin, end) });
    line.append(part.text.slice(place, begin), mark);
    place = end;
  }
  line.append(part.text.slice(place));
  return line;
}

function show(parts) {
  written = parts;
  choices.hidePopover();
  result.replaceChildren(...parts.map(drawn));
  const lines = parts.filter((part) => part.text !== undefined), checked = lines.filter(reasonsOf);
  doubts.replaceChildren(...checked.slice(0, 20).map((part) => {
    const signs = Array.from(part.text), textContent = signs.slice(0, 60).join("") + (signs.length > 60 ? "…" : "");
    const quote = make("q", { dir: "auto", textContent }), item = make("li", {});
    item.append(...(lines.length > 1 ? [quote, ": "] : ["To be checked: "]), reasonsOf(part));
    return item;
  }));
  if (checked.length > 20) doubts.append(make("li", { textContent: `and ${checked.length - 20} more` }));
}

function describe({ parts, detected, memory }, target) {
  const lines = parts.filter((part) => part.text !== undefined), name = detected && nameOf(detected.language);
  const found = detected?.confidence && `Detected: ${name}, ${detected.confidence}%`;
  const is = detected?.language === target ? `The text is in ${name} already` : found;
  const known = memory && (memory.is_exact ? "From the memory" : `Similar in the memory: ${memory.source}`);
  const isRated = lines.length === 1 && lines[0].quality !== null;
  const quality = isRated && `Estimated quality: ${Math.round(lines[0].quality)} of 100`;
  return [is, known, quality].filter(Boolean).join(". ");
}

async function translate() {
  clearTimeout(timer);
  newest.abort();  // a later answer is not overwritten by an earlier one
  const { signal } = newest = new AbortController();
  const text = source.value, options = asked();
  tellCount();
  clear.hidden = !text;
  result.classList.add("waiting");
  tell("Translating …");
  const onPart = (parts, done) => {
    if (signal.aborted) return;
    show(parts);
    tell(`Translating … ${Math.round(100 * done)}%`);
  };
  const answer = text.trim() ? await engine.translate(text, { ...options, signal, onPart }) : { parts: [] };
  if (signal.aborted) return;
  show(answer.parts);
  tell(describe(answer, options.target));
  const language = answer.detected?.language ?? options.source;
  shown = { ...options, source: language, text };
  const isPlain = language === options.target || !/^.*\p{L}.*$/u.test(text.trim());  // or several lines
  correct.hidden = !engine.settings.suggestions || isPlain;
  result.contentEditable = correct.hidden ? "false" : "plaintext-only";
  result.ariaReadOnly = String(correct.hidden);
  result.classList.remove("waiting");
  copy.hidden = !text.trim() || !navigator.clipboard;  // a page without HTTPS has none
}

// Where the caret stands in the output, or where the selected word ends.
function caretPlace() {
  const { focusNode, focusOffset } = getSelection(), range = new Range();
  range.setStart(result, 0);
  if (result.contains(focusNode)) range.setEnd(focusNode, focusOffset);
  return range.toString().length;
}

function rangeOf(begin, end) {
  const nodes = document.createTreeWalker(result, NodeFilter.SHOW_TEXT), range = new Range();
  for (let place = 0; place < end; place += nodes.currentNode.length) {
    const { length } = nodes.nextNode();
    if (begin >= place && begin < place + length) range.setStart(nodes.currentNode, begin - place);
    if (end <= place + length) range.setEnd(nodes.currentNode, end - place);
  }
  return range;
}

function selectWord(isNext) {
  const place = caretPlace(), words = wordsOf(result.textContent);
  const word = isNext
    ? words.find(({ index }) => index >= place)
    : words.findLast(({ index, segment }) => index + segment.length < place);
  if (!word) return;
  const range = rangeOf(word.index, word.index + word.segment.length);
  getSelection().setBaseAndExtent(range.startContainer, range.startOffset, range.endContainer, range.endOffset);
}

// Offers the other outputs of a line that begin as this one, and differ at the word of the caret.
async function offerChoices(isByKey) {
  const caret = caretPlace(), { signal } = newest;
  let begin = 0;
  const index = written.findIndex((part) => caret <= (begin += (part.text ?? part).length)), part = written[index];
  if (part?.text === undefined || result.childNodes[index].textContent !== part.text) return;  // a person has edited it
  begin -= part.text.length;
  const word = wordsOf(part.text).find((one) => caret - begin <= one.index + one.segment.length);
  if (!word) return;
  tell("Looking for other translations …");
  const isKept = part.marks.some((mark) => mark.begin <= word.index && word.index < mark.end);
  const others = isKept ? [] : await engine.alternatives(part, word.index, { ...shown, signal });
  if (signal.aborted) return;
  tell(others.length ? "" : `No other translation from “${word.segment}” on.`);
  if (!others.length) return;
  choices.replaceChildren(...others.map((other) => make("button", {
    textContent: other.text.slice(word.index) || "(nothing more)",
    onclick: () => { show(written.with(index, other)); result.focus(); },
  })));
  const place = rangeOf(begin + word.index, begin + word.index + word.segment.length).getBoundingClientRect();
  choices.showPopover();
  const { offsetWidth: width, offsetHeight: height } = choices;
  const { clientWidth, clientHeight } = document.documentElement;
  const left = choices.matches(":dir(rtl)") ? place.right - width : place.left;
  const isAbove = place.bottom + height > clientHeight && place.top > height;
  choices.style.left = `${scrollX + Math.max(8, Math.min(left, clientWidth - width - 8))}px`;
  choices.style.top = `${scrollY + (isAbove ? place.top - height : place.bottom)}px`;
  if (isByKey) choices.firstChild.focus();  // after a click, a person may go on in the text
}

async function translateFile([chosen]) {
  if (!chosen) return;
  newest.abort();
  file.value = "";
  tell("Translating the file …");
  const { name, address, texts, notes = [] } = await engine.translateFile(chosen, asked());
  const counts = [texts ? `${texts} text${texts > 1 ? "s" : ""}` : "no text to translate", ...notes].filter(Boolean);
  tell("");
  status.replaceChildren(make("a", { href: address, download: name, textContent: name }), `: ${counts.join(", ")}`);
}

function tellCount() {
  const most = engine?.settings.charLimit, length = Array.from(source.value).length;
  count.textContent = most ? `${length} of ${most} characters` : "";
}

source.addEventListener("input", () => {
  tellCount();
  clearTimeout(timer);
  if (engine) timer = setTimeout(translate, engine.settings.delay);
});
source.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && engine) translate();
});
from.addEventListener("change", () => { offerTargets(); translate(); });
for (const select of [to, terms]) select.addEventListener("change", translate);
swap.addEventListener("click", () => {
  const target = from.value;
  from.value = to.value;
  offerTargets(target);
  if (result.textContent) source.value = result.textContent;
  translate();
});
clear.addEventListener("click", () => {
  source.value = "";
  translate();
  source.focus();
});
file.addEventListener("change", () => translateFile(file.files));
correct.addEventListener("click", async () => {
  await engine.correct(shown.text, result.textContent, shown);
  tell("Saved: this is the translation from now on.");
});
copy.addEventListener("click", async () => {
  await navigator.clipboard.writeText(result.textContent);
  tell("Copied.");
});
result.addEventListener("click", () => { if (getSelection().isCollapsed) offerChoices(false); });
result.addEventListener("input", () => choices.hidePopover());
result.addEventListener("keydown", (event) => {  // as in a field of text
  const isArrow = result.ariaReadOnly === "true" && ["ArrowLeft", "ArrowRight"].includes(event.key);
  const isAll = event.key === "a" && (event.ctrlKey || event.metaKey);
  if (event.key === "Enter") offerChoices(true);
  else if (isArrow) selectWord((event.key === "ArrowRight") !== result.matches(":dir(rtl)"));
  else if (isAll) getSelection().selectAllChildren(result);
  else return;
  event.preventDefault();
});
for (const [name, isOver] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
  document.addEventListener(name, (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    document.body.classList.toggle("dropping", isOver);
    if (name === "drop" && engine) translateFile(event.dataTransfer.files);
  });
}

async function begin() {
  const onProgress = (share) => {
    progress.hidden = share >= 1;
    progress.value = share;
    tell(share < 1 ? `Loading the model: ${Math.floor(100 * share)}%` : "Starting the model …");
  };
  engine = await load(".", { onProgress });
  const { settings } = engine;
  tell("");
  key.hidden = !settings.keyRequired;
  glossary.hidden = !settings.glossaries?.length;
  file.accept = settings.formats.join();
  const help = make("a", { href: settings.help, textContent: "The interface for programs" });
  notice.replaceChildren(settings.help ? help : settings.notice);
  for (const { name, description } of settings.models) {
    models.append(make("dt", { textContent: name }), make("dd", { textContent: description }));
  }
  fill(terms, [{ code: "", name: "None" }, ...(settings.glossaries ?? []).map((name) => ({ code: name, name }))], "");
  const sources = settings.languages.filter(({ targets }) => targets.length);
  const detected = settings.detects ? [{ code: "auto", name: "Detect language" }] : [];
  fill(from, [...detected, ...sources], settings.source);
  offerTargets();
  translate();
}
begin();
