// Load Pyodide, unpack the wheels, and run checks.py with the substitute for `env.AI`.
// Arguments: folder with node_modules, folder with wheels, folder of the package's source, folder of the examples, checks.py.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { AI } from "./env_ai.mjs";

const [home, wheels, source, examples, checks] = process.argv.slice(2);
const entry = createRequire(`${home}/package.json`).resolve("pyodide/pyodide.mjs");
const { loadPyodide } = await import(pathToFileURL(entry).href);
const pyodide = await loadPyodide();
for (const [root, at] of [[wheels, "/wheels"], [source, "/source"], [examples, "/examples"]]) {
  pyodide.FS.mkdirTree(at);
  pyodide.FS.mount(pyodide.FS.filesystems.NODEFS, { root }, at);
}
pyodide.registerJsModule("worker", { env: { AI } });
pyodide.runPython(`
import pathlib, site, sys, zipfile
for wheel in pathlib.Path("/wheels").glob("*.whl"):
    zipfile.ZipFile(wheel).extractall(site.getsitepackages()[0])
sys.path.insert(0, "/source")
sys.dont_write_bytecode = True
`);
const failures = await pyodide.runPythonAsync(readFileSync(checks, "utf8") + "\nawait main()", { filename: checks });
process.exit(failures ? 1 : 0);
