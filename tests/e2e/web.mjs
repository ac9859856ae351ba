// Drives the pages of a running server in headless Chromium and prints, as JSON, what it saw.
//
//   node web.mjs MODULES CHROMIUM URL JOB    JOB: {profile, visits: [{path, scheme, width, text?}], flow?}
//
// For each visit: title, status, what axe-core finds, what the console said, which other hosts were asked, and whether
// the page is wider than the window; with a text, after the model was tried on it. The flow is what a person does: type,
// press Enter, follow links, by keyboard.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";

const [modules, executablePath, url, job] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { chromium } = require("playwright-core");
const axe = await readFile(require.resolve("axe-core/axe.min.js"), "utf8");
const { profile, visits, flow } = JSON.parse(job);
const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];

const context = await chromium.launchPersistentContext(profile, { executablePath, headless: true, args: FLAGS });
const page = await context.newPage();
const said = [];
const elsewhere = [];
page.on("console", message => said.push(message.text()));
page.on("pageerror", error => said.push(String(error)));
page.on("request", request => request.url().startsWith(`${url}/`) || elsewhere.push(request.url()));

async function judge() {
  const found = await page.evaluate(`${axe}; axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]})`);
  return found.violations.map(({ id, nodes }) => ({ id, nodes: nodes.map(node => node.html.slice(0, 200)) }));
}

async function visit({ path, scheme, width, text }) {
  said.length = elsewhere.length = 0;
  await page.emulateMedia({ colorScheme: scheme });
  await page.setViewportSize({ width, height: 900 });
  const answer = await page.goto(url + path, { waitUntil: "load" });
  if (text) {
    await page.locator("#try textarea").first().fill(text);
    await page.locator("#try button").click();
    await page.waitForFunction(() => !document.querySelector("#try button").disabled, null, { timeout: 60_000 });
  }
  const seen = { path, scheme, width, status: answer.status(), title: await page.title(), violations: await judge() };
  seen.overflow = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth");
  seen.background = await page.evaluate("getComputedStyle(document.body).backgroundColor");
  Object.assign(seen, await page.evaluate(`(() => {
    const tables = [...document.querySelectorAll("table.halves, table.stack")];
    return {
      stacked: tables.length > 0 && tables.every(table => getComputedStyle(table.tBodies[0].rows[0]).display !== "table-row"),
      clipped: tables.filter(table => table.scrollWidth > table.parentElement.clientWidth).length,
    };
  })()`));
  return { ...seen, said: [...said], elsewhere: [...elsewhere] };
}

async function walk() {
  said.length = elsewhere.length = 0;
  const trail = [];
  const here = async step => trail.push({ step, path: page.url().slice(url.length), heading: await page.locator("h1").innerText() });
  await page.goto(`${url}/`);
  await here("open");
  await page.keyboard.press("Tab");
  trail.push({ step: "tab", path: "", heading: await page.evaluate("document.activeElement.textContent") });
  await page.getByLabel("Find models").fill("phone acme/pii");
  await page.getByRole("button", { name: "Search" }).first().click();
  await page.waitForURL("**words=phone**");
  await here("words");
  await page.getByText("Search artifacts with an expression").click();
  await page.getByLabel("Find artifacts in every version of every model").fill("certified and recall.PHONE >= 0.99");
  await page.keyboard.press("Enter");
  await page.waitForURL("**q=**");
  await here("search");
  await page.getByRole("link", { name: "acme/pii:1.3.0" }).click();
  await here("version");
  const downloads = [];
  for (const attribute of [true, false]) {
    const link = page.getByRole("link", { name: "Download model_int8.onnx" });
    if (!attribute) await link.evaluate(element => element.removeAttribute("download"));
    const [download] = await Promise.all([page.waitForEvent("download"), link.click()]);
    downloads.push(download.suggestedFilename());
    await download.cancel();
  }
  await page.getByRole("link", { name: "Compare with 1.2.0" }).click();
  await here("compare");
  await page.getByRole("navigation", { name: "Where you are" }).getByRole("link", { name: "acme/pii" }).click();
  await here("model");
  await page.getByLabel("Old version").selectOption("acme/pii:1.2.0");
  await page.getByLabel("New version").selectOption("acme/pii:1.1.0");
  await page.getByRole("button", { name: "Compare" }).press("Enter");
  await page.waitForURL("**/diff?**");
  await here("diff");
  return { trail, downloads, said: [...said], elsewhere: [...elsewhere] };
}

const seen = [];
for (const each of visits) seen.push(await visit(each));
console.log(JSON.stringify({ visits: seen, flow: flow ? await walk() : null }));
await context.close();
