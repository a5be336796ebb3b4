// Conversations with the model of this server. All of them stay in the browser.

const $ = (id) => document.getElementById(id);
const kSettings = "subbyte.settings";
const kChat = "subbyte.chat.";  // and the conversation's id
const kNumbers = ["temperature", "top_p", "top_k", "min_p", "presence_penalty",
  "repetition_penalty", "seed", "max_tokens"];
const kThemes = ["auto", "light", "dark"];

const settings = {system: "", theme: "auto", ...read(kSettings)};
let chat = null;      // the conversation that is shown
let running = null;   // the answer that is written
let follows = true;   // the end of the messages stays in sight, until somebody scrolls up
let lastTop = 0;

// --- what the browser keeps -------------------------------------------------------------------

function read(key) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? {};
  } catch {
    return {};
  }
}

function write(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {
    say("The browser has no room to keep this conversation.", true);
  }
}

function chats() {
  return Object.keys(localStorage).filter((key) => key.startsWith(kChat)).map(read)
    .filter((one) => Array.isArray(one.messages)).sort((a, b) => b.time - a.time);
}

function keep(one) {
  if (!one.messages.length) return;
  one.time = Date.now();
  one.title = one.messages[0].content.slice(0, 80);
  write(kChat + one.id, one);
  drawList();
}

// --- the server -------------------------------------------------------------------------------

function headers() {
  const key = sessionStorage.getItem("subbyte.key");
  return {"Content-Type": "application/json", ...(key ? {Authorization: `Bearer ${key}`} : {})};
}

async function ask(path, body, signal) {
  const response = await fetch(path, {method: body ? "POST" : "GET", headers: headers(), signal,
    body: body && JSON.stringify(body)});
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  const problem = new Error(answer.error?.message ?? `HTTP ${response.status}`);
  problem.status = response.status;
  throw problem;
}

async function loadModels() {
  try {
    await ask("ready");
    const {data} = await (await ask("v1/models")).json();
    $("model").replaceChildren(...data.map((one) => make("option", {textContent: one.id})));
    say("");
  } catch (problem) {
    if (problem.status === 401) {
      say("This server wants a key: Settings has a place for it.", true);
      return;
    }
    say(problem.message);
    setTimeout(loadModels, 2000);
  }
}

// The data of the events of a stream.
async function* events(response) {
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  for (let rest = "";;) {
    const {done, value} = await reader.read();
    rest += done ? decoder.decode() : decoder.decode(value, {stream: true});
    const parts = rest.split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) yield part.slice(6);
    if (done) return;
  }
}

function requestBody() {
  const messages = chat.messages.filter(({role, content}) => role === "user" || content)
    .map(({role, content}) => ({role, content}));
  if (settings.system) messages.unshift({role: "system", content: settings.system});
  const body = {messages, stream: true, stream_options: {include_usage: true}};
  if ($("model").value) body.model = $("model").value;
  for (const name of kNumbers) if (settings[name] !== undefined) body[name] = settings[name];
  return body;
}

// Answers what stands at the end of the conversation.
async function answer() {
  const own = chat;  // another may be opened meanwhile
  const message = {role: "assistant", content: ""};
  own.messages.push(message);
  const view = drawMessage(message);
  $("messages").append(view.node);
  running = {abort: new AbortController(), message, view};
  keep(own);
  drawState();
  follows = true;
  follow();
  say("Answering…");
  try {
    await takeStream(message, view, running.abort.signal);
    say(message.stats ? `Answered. ${message.stats}` : "Answered.");
  } catch (problem) {
    const isStopped = problem.name === "AbortError";
    if (!isStopped) message.error = problem.message;
    say(isStopped ? "Stopped." : `Error: ${problem.message}`, !isStopped);
  }
  running = null;
  view.finish();
  keep(own);
  drawState();
}

async function takeStream(message, view, signal) {
  let first = 0;
  let count = 0;
  const response = await ask("v1/chat/completions", requestBody(), signal);
  for await (const data of events(response)) {
    if (data === "[DONE]") break;
    const part = JSON.parse(data);
    if (part.error) throw new Error(part.error.message);
    const delta = part.choices?.[0]?.delta ?? {};
    const calls = delta.tool_calls?.map((call) => JSON.stringify(call.function, null, 1)) ?? [];
    const text = (delta.content ?? "") +
      calls.map((call) => `\n\`\`\`json\n${call}\n\`\`\`\n`).join("");
    const thought = delta.reasoning_content ?? "";
    if (text || thought) {
      first ||= performance.now();
      ++count;
    }
    message.content += text;
    if (thought) message.reasoning = (message.reasoning ?? "") + thought;
    view.add(text, thought);
    const tokens = part.usage?.completion_tokens ?? count;
    const seconds = Math.max(performance.now() - first, 1) / 1000;
    if (first && tokens > 1) {
      message.stats = `${tokens} tokens, ${((tokens - 1) / seconds).toFixed(1)} tokens/s`;
    }
  }
}

// --- what is shown ----------------------------------------------------------------------------

function say(text, isError = false) {
  $("status").textContent = text;
  $("status").className = isError ? "error" : "";
}

function button(text, action, label) {
  const node = make("button", {className: "plain", type: "button", textContent: text});
  if (label) node.setAttribute("aria-label", label);
  node.addEventListener("click", () => action(node));
  return node;
}

async function copyText(text, node) {
  try {
    await navigator.clipboard.writeText(text);
    node.textContent = "Copied";
  } catch {
    node.textContent = "Not copied";
  }
  setTimeout(() => { node.textContent = "Copy"; }, 1500);
}

function drawUser(message) {
  const body = make("div", {className: "body", textContent: message.content});
  const node = make("article", {className: "user"}, body, make("div", {className: "tools"},
    button("Copy", (own) => copyText(message.content, own)),
    button("Edit", () => edit(message, node))));
  node.setAttribute("aria-label", "You");
  return {node};
}

// Parts that come between two frames are drawn together.
function drawAssistant(message) {
  const body = make("div", {className: "body"});
  const thought = make("div", {className: "body"});
  const details = make("details", {hidden: true}, make("summary", {textContent: "Reasoning"}),
    thought);
  const stats = make("span");
  const error = make("p", {className: "error", hidden: true});
  const tools = make("div", {className: "tools", hidden: true},
    button("Copy", (own) => copyText(message.content, own)), button("Regenerate", regenerate),
    stats);
  const node = make("article", {className: "assistant"}, details, body, error, tools);
  node.setAttribute("aria-label", "Answer");
  const markdown = new Markdown(body);
  const reasoning = new Markdown(thought);
  let waiting = ["", ""];
  let frame = 0;
  const draw = () => {
    frame = 0;
    const [text, more] = waiting;
    waiting = ["", ""];
    if (more) {
      details.hidden = false;
      details.open = !message.content;
      reasoning.add(more);
    }
    if (text) markdown.add(text);
    stats.textContent = message.stats ?? "";
    if (node.isConnected) follow();
  };
  const add = (text, more) => {
    waiting[0] += text;
    waiting[1] += more;
    frame ||= requestAnimationFrame(draw);
  };
  const finish = () => {
    cancelAnimationFrame(frame);
    draw();
    details.open = false;
    tools.hidden = false;
    error.hidden = !message.error;
    error.textContent = message.error ?? "";
  };
  return {node, add, finish};
}

function follow() {
  if (follows) $("messages").scrollTop = $("messages").scrollHeight;
}

function drawMessage(message) {
  return message.role === "user" ? drawUser(message) : drawAssistant(message);
}

function drawChat() {
  $("messages").replaceChildren(...chat.messages.map((message) => {
    const view = drawMessage(message);
    if (view.add) {
      view.add(message.content, message.reasoning ?? "");
      view.finish();
    }
    return view.node;
  }));
  follows = true;
  follow();
  drawState();
}

function drawState() {
  $("send").textContent = running ? "Stop" : "Send";
  $("messages").setAttribute("aria-busy", String(running !== null));
  $("title").textContent = chat.title || "New conversation";
  document.title = chat.title ? `${chat.title} – subbyte` : "subbyte";
}

function drawList() {
  $("list").replaceChildren(...chats().map((one) => {
    const item = make("li", {},
      make("button", {textContent: one.title, type: "button", onclick: () => open(one)}),
      button("×", () => remove(one), `Delete ${one.title}`));
    if (one.id === chat?.id) item.setAttribute("aria-current", "true");
    return item;
  }));
}

function drawTheme() {
  document.documentElement.dataset.theme = settings.theme;
  $("theme").textContent = `Theme: ${settings.theme}`;
}

// --- what people do ---------------------------------------------------------------------------

function stop() {
  running?.abort.abort();
}

function openSide(isOpen) {
  $("side").classList.toggle("open", isOpen);
  document.querySelector("main").inert = isOpen;
  (isOpen ? $("new") : $("text")).focus();
}

function open(other) {
  stop();
  chat = other ?? {id: crypto.randomUUID?.() ?? String(Math.random()), title: "", messages: []};
  drawChat();
  drawList();
  openSide(false);
}

function remove(one) {
  localStorage.removeItem(kChat + one.id);
  if (one.id === chat.id) {
    chat.messages.length = 0;  // an answer that is written keeps nothing
    open(null);
  }
  drawList();
}

function send(text) {
  const message = {role: "user", content: text};
  chat.messages.push(message);
  $("messages").append(drawMessage(message).node);
  answer();
}

function regenerate() {
  if (running) return;
  while (chat.messages.at(-1)?.role === "assistant") chat.messages.pop();
  drawChat();
  answer();
}

function edit(message, node) {
  if (running) return;
  const text = make("textarea", {value: message.content, rows: 3});
  text.setAttribute("aria-label", "Message");
  const save = () => {
    if (!text.value.trim()) return;
    chat.messages.length = chat.messages.indexOf(message);
    drawChat();
    send(text.value);
  };
  node.replaceChildren(text, make("div", {className: "tools"}, button("Send", save),
    button("Cancel", () => node.replaceWith(drawMessage(message).node))));
  text.focus();
}

function openSettings() {
  const form = $("settings").querySelector("form");
  for (const name of ["system", ...kNumbers]) form.elements[name].value = settings[name] ?? "";
  $("key").value = sessionStorage.getItem("subbyte.key") ?? "";
  $("settings").showModal();
}

function saveSettings() {
  if ($("settings").returnValue !== "save") return;
  const form = $("settings").querySelector("form");
  settings.system = form.elements.system.value;
  for (const name of kNumbers) {
    const {value} = form.elements[name];
    if (value === "") delete settings[name];
    else settings[name] = Number(value);
  }
  sessionStorage.setItem("subbyte.key", $("key").value);
  $("settings").returnValue = "";
  write(kSettings, settings);
  loadModels();
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running) return stop();
  const text = $("text").value;
  if (!text.trim()) return;
  $("text").value = "";
  send(text);
});
$("text").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  if (!running) $("form").requestSubmit();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !$("settings").open) {
    if ($("side").classList.contains("open")) openSide(false);
    else stop();
  }
  if (event.altKey && event.code === "KeyN") open(null);
});
$("new").addEventListener("click", () => open(null));
$("open-side").addEventListener("click", () => openSide(true));
$("close-side").addEventListener("click", () => openSide(false));
matchMedia("(max-width: 46rem)").addEventListener("change", () => {  // as style.css has it
  if ($("side").classList.contains("open")) openSide(false);
});
$("messages").addEventListener("scroll", ({target}) => {
  const isAtEnd = target.scrollHeight - target.scrollTop - target.clientHeight < 20;
  if (isAtEnd || target.scrollTop < lastTop - 2) follows = isAtEnd;
  lastTop = target.scrollTop;
});
$("open-settings").addEventListener("click", openSettings);
$("settings").addEventListener("close", saveSettings);
$("clear").addEventListener("click", () => {
  $("settings").close();
  for (const one of chats()) remove(one);
});
$("theme").addEventListener("click", () => {
  settings.theme = kThemes[(kThemes.indexOf(settings.theme) + 1) % kThemes.length];
  write(kSettings, settings);
  drawTheme();
});
addEventListener("pagehide", () => { if (running) keep(chat); });

drawTheme();
open(chats()[0] ?? null);
loadModels();
