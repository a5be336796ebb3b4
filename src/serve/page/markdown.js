// A subset of Markdown as nodes of the page: paragraphs, headings, lists, tables, code, quotes,
// emphasis. Text gets into the page as text alone, so nothing that a model writes is ever markup.
// Links are shown with their target and open nothing. Whatever a text is, it is read in a time that
// grows like its length.

const kItem = /^(\s*)([-*+]|\d{1,9}[.)])(?:\s+(.*)|$)/;
const kRuler = /^ {0,3}([-*_])( *\1){2,} *$/;
const kMaxDepth = 8;
const kMaxTail = 16384;  // characters that are drawn again with each part of a stream
const kMaxBlocks = 64;  // that are laid out together, unless they have kMaxTail characters before

function make(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children);
  return node;
}

// How emphasis begins, where the next mark of its kind may be, and what ends it there.
const kMarks = [
  {name: "strong", begin: /\*\*(?=\S)/y, next: /(?<=\S)\*\*(?!\*)/g, end: /\*\*/y},
  {name: "strong", begin: /(?<!\w)__(?=\S)/y, next: /(?<=\S)__(?!\w)/g, end: /__/y},
  {name: "em", begin: /\*(?=[^\s*])/y, next: /\*/g, end: /(?<=\S)\*/y},
  {name: "em", begin: /(?<!\w)_(?=[^\s_])/y, next: /_/g, end: /(?<=\S)_(?!\w)/y},
  {name: "s", begin: /~~(?=\S)/y, next: /(?<=\S)~~/g, end: /~~/y},
];

function matchAt(pattern, text, at) {
  pattern.lastIndex = at;
  return pattern.exec(text);
}

// Where a pattern is next. It is asked from places that only grow, and reads the text once.
function finder(text, pattern) {
  let found = -1;
  return (from) => {
    if (found < from) found = matchAt(pattern, text, from)?.index ?? Infinity;
    return found;
  };
}

// What reads something of one kind returns where it ends and its nodes, or null where there is none.
function codeReader(text) {
  const starts = new Map();  // of runs, by their length, the last first
  for (const {0: run, index} of [...text.matchAll(/`+/g)].reverse()) {
    if (!starts.has(run.length)) starts.set(run.length, []);
    starts.get(run.length).push(index);
  }
  return (at) => {
    const size = matchAt(/`*/y, text, at)[0].length;
    if (!size) return null;
    const ends = starts.get(size) ?? [];
    while (ends.at(-1) < at + size) ends.pop();
    if (!ends.length) return [at + size, text.slice(at, at + size)];
    const code = text.slice(at + size, ends.at(-1)).trim();
    return [ends.at(-1) + size, make("code", {textContent: code})];
  };
}

function markReader(text, depth, {name, begin, next, end}) {
  const find = finder(text, next);
  return (at) => {
    const size = matchAt(begin, text, at)?.[0].length;
    const last = size && find(at + size + 1);
    if (!size || !matchAt(end, text, last)) return null;
    return [last + size, make(name, {}, ...inline(text.slice(at + size, last), depth + 1))];
  };
}

function linkReader(text, depth) {
  const findLabelEnd = finder(text, /[\]\n]/g);
  const findEnd = finder(text, /[)\n]/g);
  return (at) => {
    const begin = at + (text[at] === "!" ? 2 : 1);
    const middle = text[begin - 1] === "[" ? findLabelEnd(begin) : Infinity;
    const end = text.startsWith("](", middle) ? findEnd(middle + 2) : Infinity;
    if (text[end] !== ")") return null;
    const label = text.slice(begin, middle);
    const target = text.slice(middle + 2, end).trim().match(/^<?([^\s>]*)/)[1];
    const link = make("span", {className: "link"}, ...inline(label, depth + 1));
    if (target === label) return [end + 1, link];
    return [end + 1, link, make("span", {className: "target"}, ` (${target})`)];
  };
}

function inline(text, depth = 0) {
  if (depth > kMaxDepth) return [text];
  const readers = [
    codeReader(text), ...kMarks.map((mark) => markReader(text, depth, mark)),
    linkReader(text, depth),
    (at) => matchAt(/\\[!-/:-@[-`{-~]/y, text, at) && [at + 2, text[at + 1]],
  ];
  const findNext = finder(text, /[`*_~![\\]/g);
  const nodes = [];
  let done = 0;
  for (let at = findNext(0); at < text.length; at = findNext(at)) {
    let found = null;
    for (const read of readers) found ??= read(at);
    if (!found) {
      ++at;
      continue;
    }
    const [end, ...read] = found;
    if (at > done) nodes.push(text.slice(done, at));
    nodes.push(...read);
    at = done = end;
  }
  if (done < text.length) nodes.push(text.slice(done));
  return nodes;
}

// The characters of a line that opens code, and what language it says.
function fenceOf(line) {
  const fence = line.match(/^\s*(`{3,}|~{3,})/);
  const rest = fence && line.slice(fence[0].length);
  return fence && !rest.includes("`") ? [fence[1], rest.trim().match(/^[\w+#.-]*/)[0]] : null;
}

// Level and text.
function headingOf(line) {
  const begin = line.match(/^ {0,3}(#{1,6})\s+/);
  if (!begin) return null;
  let end = line.length;
  while (end > begin[0].length && /[\s#]/.test(line[end - 1])) --end;
  return [begin[1].length, line.slice(begin[0].length, end)];
}

function isColumns(line) {
  return cells(line).every((cell) => /^:?-+:?$/.test(cell));
}

function cells(line) {
  return line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
}

function table(lines) {
  const row = (line, name) => make("tr", {},
    ...cells(line).map((cell) => make(name, {}, ...inline(cell))));
  return make("div", {className: "table"}, make("table", {},
    make("thead", {}, row(lines[0], "th")),
    make("tbody", {}, ...lines.slice(2).map((line) => row(line, "td")))));
}

// Lines of a list: what is indented further than the first marker belongs to its item.
function list(lines, depth) {
  const [, indent, marker] = lines[0].match(kItem);
  const isOrdered = /\d/.test(marker);
  const items = [];
  for (const line of lines) {
    const found = line.match(kItem);
    if (found && found[1].length <= indent.length + 1) {
      items.push([found[3] ?? ""]);
    } else {
      items.at(-1).push(line.slice(Math.min(line.search(/\S|$/), indent.length + marker.length + 1)));
    }
  }
  const node = make(isOrdered ? "ol" : "ul", {},
    ...items.map((item) => make("li", {}, ...blocks(item, depth + 1))));
  if (isOrdered) node.start = parseInt(marker);
  return node;
}

function isBlock(line) {
  return kItem.test(line) || headingOf(line) || kRuler.test(line) || /^\s*>/.test(line);
}

// The nodes of lines without code between fences.
function blocks(lines, depth = 0) {
  const nodes = [];
  const takeWhile = (from, test) => {
    let end = from;
    while (end < lines.length && test(lines[end], end)) ++end;
    return lines.slice(from, end);
  };
  for (let i = 0; i < lines.length;) {
    const line = lines[i];
    const heading = headingOf(line);
    let taken = [line];
    if (!line.trim()) {
      // nothing
    } else if (heading) {
      nodes.push(make(heading[0] < 3 ? "h3" : "h4", {}, ...inline(heading[1])));
    } else if (kRuler.test(line)) {
      nodes.push(make("hr"));
    } else if (depth < kMaxDepth && /^\s*>/.test(line)) {
      taken = takeWhile(i, (next) => /^\s*>/.test(next));
      const inner = taken.map((quoted) => quoted.replace(/^\s*> ?/, ""));
      nodes.push(make("blockquote", {}, ...blocks(inner, depth + 1)));
    } else if (line.includes("|") && isColumns(lines[i + 1] ?? "")) {
      taken = takeWhile(i, (next) => next.includes("|"));
      nodes.push(table(taken));
    } else if (depth < kMaxDepth && kItem.test(line)) {
      taken = takeWhile(i, (next, at) => next.trim() ? at === i || lines[at - 1].trim() ||
        kItem.test(next) || /^\s/.test(next) : (lines[at + 1] ?? "").trim());
      nodes.push(list(taken, depth));
    } else {
      taken = takeWhile(i, (next, at) => next.trim() && (at === i || !isBlock(next)));
      nodes.push(make("p", {}, ...inline(taken.join("\n"))));
    }
    i += taken.length;
  }
  return nodes;
}

// A text that grows: what has come to its end is drawn once, the rest with each part.
class Markdown {
  constructor(root) {
    this.root = root;
    this.tail = "";
    this.done = null;  // the last section of blocks that are drawn once
    this.size = 0;     // characters in it
    this.numLive = 0;  // nodes at the end of root that are drawn again
    this.code = null;  // the end of the block of code that is open
    this.fence = "";
  }

  add(text) {
    this.tail += text;
    this.clear();
    while (this.code ? this.takeCode() : this.takeBlocks()) { /* goes on */ }
    const live = this.code ? [] : blocks(this.tail.split("\n"));
    this.numLive = live.length;
    this.root.append(...live);
  }

  // A browser lays out the sections that are in sight alone.
  keep(nodes) {
    for (const node of nodes) {
      if (!this.done || this.done.childElementCount === kMaxBlocks || this.size > kMaxTail) {
        this.done = make("section");
        this.root.append(this.done);
        this.size = 0;
      }
      this.done.append(node);
      this.size += node.textContent.length;
    }
  }

  clear() {
    for (; this.numLive > 0; --this.numLive) this.root.lastChild.remove();
  }

  // Lines up to the fence; all that cannot be one.
  takeCode() {
    for (let at = 0;;) {
      const end = this.tail.indexOf("\n", at);
      const line = this.tail.slice(at, end < 0 ? undefined : end);
      const closes = line.trim().startsWith(this.fence) && !line.trim().slice(this.fence.length)
        .replaceAll(this.fence[0], "");
      if (end < 0) {
        const size = /^\s*[`~]*$/.test(line) ? at : this.tail.length;
        this.addCode(this.tail.slice(0, size));
        this.tail = this.tail.slice(size);
        return false;
      }
      if (closes) {
        this.addCode(this.tail.slice(0, at));
        this.tail = this.tail.slice(end + 1);
        this.code = null;
        return true;
      }
      at = end + 1;
    }
  }

  // Blocks that no further text changes. True where a block of code begins after them.
  takeBlocks() {
    let cut = 0;
    let at = 0;
    let isBlank = false;
    for (let end; (end = this.tail.indexOf("\n", at)) >= 0; at = end + 1) {
      const line = this.tail.slice(at, end);
      const fence = fenceOf(line);
      if (fence) {
        this.keep(blocks(this.tail.slice(0, at).split("\n")));
        this.openCode(...fence);
        this.tail = this.tail.slice(end + 1);
        return true;
      }
      if (isBlank && line.trim() && !/^\s/.test(line) && !kItem.test(line)) cut = at;
      isBlank = !line.trim();
    }
    if (this.tail.length - cut > kMaxTail) cut = at > cut ? at : this.tail.length;
    if (cut > 0) this.keep(blocks(this.tail.slice(0, cut).split("\n")));
    this.tail = this.tail.slice(cut);
    return false;
  }

  openCode(fence, language) {
    this.fence = fence;
    this.code = make("code");
    const pre = make("pre", {tabIndex: 0}, this.code);
    const copy = make("button", {className: "plain", type: "button", textContent: "Copy"});
    copy.addEventListener("click", () => copyText(pre.textContent, copy));
    this.keep([make("figure", {}, make("figcaption", {className: "row"}, language || "text", copy),
      pre)]);
  }

  // In parts that end with a line, so that a browser lays out those in sight alone.
  addCode(text) {
    const last = this.code.textContent;
    if (last.length > kMaxTail && last.endsWith("\n")) {
      const next = make("code");
      this.code.after(next);
      this.code = next;
    }
    this.code.append(text);
  }
}
