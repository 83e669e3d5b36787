// Calls one function of a Node package inside a sandbox. This file is the program.
//
// Started as `node --conditions=import sdk_node.cjs PACKAGE IMPORT_PATH DIRECTORY`. It loads the
// module (CommonJS or ES), reads one request from stdin and calls the function with the parameters as
// one object. The answer is one JSON document on stdout: `value`, or `error` with `type` and
// `message`. Output of the package itself goes to stderr. The answer is untrusted data.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const { createRequire } = require("node:module");
const { pathToFileURL } = require("node:url");

class PackageNotFound extends Error {}
class ModuleOutsidePackage extends Error {}
class FunctionNotFound extends Error {}
class NotJson extends Error {}

process.stdout.write = process.stderr.write.bind(process.stderr);

function location(name, directory) {
  const base = path.basename(directory) === "node_modules" ? path.dirname(directory) : directory;
  const folder = path.join(base, "node_modules", name);
  if (!fs.existsSync(folder)) {
    throw new PackageNotFound(`${name} is not in ${path.join(base, "node_modules")}`);
  }
  return { folder, resolve: createRequire(path.join(base, "caller.js")).resolve };
}

async function load(name, importPath, directory) {
  const { folder, resolve } = location(name, directory);
  const wanted = importPath.startsWith(".") ? path.join(folder, importPath) : importPath;
  const found = resolve(wanted);
  if (!found.startsWith(fs.realpathSync(folder) + path.sep)) {
    throw new ModuleOutsidePackage(`${importPath} is no module of the package ${name}`);
  }
  return import(pathToFileURL(found).href);
}

function find(space, name) {
  return name.split(".").reduce((found, part) => (found == null ? found : found[part]), space);
}

async function call(module, name, parameters) {
  const named = find(module, name) ?? find(module.default, name);
  if (typeof named !== "function") {
    throw new FunctionNotFound(`the module has no function ${name}`);
  }
  return named(parameters);
}

function checked(value) {
  const text = JSON.stringify({ value: value === undefined ? null : value }, (_key, each) => {
    if (typeof each === "number" && !Number.isFinite(each)) {
      throw new NotJson(`${each} is not a JSON number`);
    }
    if (typeof each === "function" || typeof each === "symbol" || each === undefined) {
      throw new NotJson(`${typeof each} is not a JSON value`);
    }
    return each;
  });
  return text;
}

function leave(text, code) {
  let rest = Buffer.from(text);
  while (rest.length > 0) {
    try {
      rest = rest.subarray(fs.writeSync(1, rest));
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
    }
  }
  process.exit(code);
}

function described(error) {
  process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`);
  const type = error instanceof Error ? error.constructor.name : typeof error;
  return JSON.stringify({ error: { type, message: String(error?.message ?? error) } });
}

async function main() {
  const [name, importPath, directory] = process.argv.slice(2, 5);
  const order = JSON.parse(fs.readFileSync(0, "utf8"));
  const module = await load(name, importPath, directory);
  return checked(await call(module, order.function, order.parameters));
}

process.on("uncaughtException", (error) => leave(described(error), 1));
process.on("unhandledRejection", (error) => leave(described(error), 1));
main().then(
  (text) => leave(text, 0),
  (error) => leave(described(error), 1),
);
