// Starts the mock of the model providers with the fixtures beside this file, or of the file that is
// named. Its base URL is the first line of the output. Keys other than MOCK_KEY are refused, as a provider does it.
//
// Node finds the package by NODE_PATH (see ./install). CommonJS, because the package's modules do
// not load in Debian 12's Node 18.
"use strict";

const path = require("node:path");
const { createServer, loadFixtureFile, validateFixtures } = require("@copilotkit/aimock");

const fixtures = loadFixtureFile(process.argv[2] ?? path.join(__dirname, "fixtures.json"));
const mistakes = validateFixtures(fixtures).filter((result) => result.severity === "error");
if (mistakes.length > 0) {
  console.error(mistakes);
  process.exit(1);
}
createServer(fixtures, {
  host: "127.0.0.1",
  port: 0,
  auth: { apiKeys: [process.env.MOCK_KEY] },
}).then((mock) => console.log(mock.url));
