// One job a line on stdin: {"url", "file", "width", "height", "dark", "script", "full", "axe", "wait"}; one JSON line
// back: what the page says, its status, axe-core's serious findings, console errors and what it asked of other hosts.
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

const require = createRequire(process.env.BROWSER_HOME + "/");
const puppeteer = require("puppeteer-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-proxy-server", "--hide-scrollbars"],
});
for await (const line of createInterface({ input: process.stdin })) {
  let answer;
  try {
    answer = await run(JSON.parse(line));
  } catch (error) {
    answer = { error: String(error) };
  }
  console.log(JSON.stringify(answer));
}
await browser.close();

async function run(job) {
  const page = await browser.newPage();
  const errors = [], foreign = [];
  page.on("console", (message) => { if (message.type() === "error") errors.push(message.text()); });
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("request", (request) => {
    const url = new URL(request.url());
    if (url.protocol !== "data:" && url.host !== new URL(job.url).host) foreign.push(request.url());
  });
  try {
    await page.setViewport({ width: job.width || 1280, height: job.height || 900, deviceScaleFactor: job.scale || 1 });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: job.dark ? "dark" : "light" }]);
    await page.setJavaScriptEnabled(job.script !== false);
    const response = await page.goto(job.url, { waitUntil: "domcontentloaded", timeout: 20000 });
    await new Promise((resolve) => setTimeout(resolve, job.wait ?? 1500));
    if (job.file) await page.screenshot({ path: job.file, fullPage: Boolean(job.full) });
    const answer = { status: response.status(), errors, foreign };
    if (job.script !== false) {
      answer.sentence = await page.$eval("h1", (one) => one.textContent.replace(/\s+/g, " ").trim());
      answer.overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (job.axe) {
        // Puppeteer's own evaluation is not bound by the page's policy; the page itself never loads this.
        await page.evaluate(axe);
        const found = await page.evaluate(() => globalThis.axe.run(document));
        answer.axe = found.violations.map((one) => ({
          id: one.id, impact: one.impact, nodes: one.nodes.slice(0, 3).map((node) => node.html.slice(0, 160)),
        }));
      }
    }
    return answer;
  } finally {
    await page.close();
  }
}
