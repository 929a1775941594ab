// An identity provider (OpenID Connect) on a free port of 127.0.0.1. Prints its issuer. Usage: node provider.mjs
// NODE_MODULES names the folder of its packages. A line on standard input changes it: `rotate` signs with a new key and
// withdraws the one before the last; `lifetime N` gives tokens of N seconds; `redirect URI` allows a redirect URI for the browser login.
import crypto from "node:crypto";
import http from "node:http";
import path from "node:path";
import readline from "node:readline";
import { pathToFileURL } from "node:url";

const entry = path.join(process.env.NODE_MODULES, "oidc-provider/lib/index.js");
const { Provider } = await import(pathToFileURL(entry).href);

let provider, keys = [], lifetime = 3600, redirects = [], rotations = 0;
const accounts = { alice: ["kafka-operators"], bob: ["kafka-viewers"] };

function newKey() {
  const { privateKey } = crypto.generateKeyPairSync("rsa", { modulusLength: 2048 });
  rotations += 1;
  const key = { ...privateKey.export({ format: "jwk" }), kid: `key-${rotations}`, use: "sig", alg: "RS256" };
  keys = [key, ...keys].slice(0, 2);
}

function restart() {
  provider = new Provider(issuer, {
    jwks: { keys },
    clients: [
      { client_id: "kafka-client", client_secret: "client-PLANTED-7", grant_types: ["client_credentials"], redirect_uris: [], response_types: [] },
      { client_id: "topicwright-page", client_secret: "page-PLANTED-8", grant_types: ["authorization_code"], redirect_uris: redirects, response_types: ["code"] },
    ],
    claims: { openid: ["sub"], groups: ["groups"] },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, groups: accounts[id] || [] }) }),
    conformIdTokenClaims: false,
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => "urn:topicwright",
        useGrantedResource: () => true,
        getResourceServerInfo: () => ({
          scope: "kafka groups", audience: "topicwright", accessTokenTTL: lifetime, accessTokenFormat: "jwt",
          jwt: { sign: { alg: "RS256" } },
        }),
      },
    },
    extraTokenClaims: (_, token) => ({ groups: accounts[token.accountId] || [] }),
    pkce: { required: () => true },
    cookies: { keys: ["a key of the tests"] },
  });
  provider.on("server_error", (_, error) => console.error(error));
}

const server = http.createServer((request, response) => provider.callback()(request, response));
let issuer;
server.listen(0, "127.0.0.1", () => {
  issuer = `http://127.0.0.1:${server.address().port}`;
  newKey();
  restart();
  console.log(`issuer ${issuer}`);
});
readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const [word, value] = line.split(" ");
  if (word === "rotate") newKey();
  if (word === "lifetime") lifetime = Number(value);
  if (word === "redirect") redirects = [value];
  restart();
  console.log(`done ${line}`);
}).on("close", () => process.exit(0));
