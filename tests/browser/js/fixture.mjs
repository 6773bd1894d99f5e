// The helpers of the view, from the module that Python joined, and a payload that Python wrote.
import { execFileSync } from "node:child_process";

const SCRIPT = `
import base64, json, sys
sys.path.insert(0, "tests/unit/view")
import made
from divexplore.view.payload import summarise
payload = summarise(made.comparison(texts=made.NASTY, evidence=True))
sample = {name: payload.column(name).ravel().tolist() for name in ("a_token", "b_top_ids", "column_b", "a_tie")}
sample["a_top_logits"] = payload.column("a_top_logits").astype(float).ravel().tolist()
print(json.dumps({"header": payload.header, "blob": base64.b64encode(payload.blob).decode(), "sample": sample}))
`;

/** Header, bytes, and some columns as Python reads them. */
export function payload() {
  const text = execFileSync(process.env.PYTHON ?? "python", ["-c", SCRIPT], { encoding: "utf-8", maxBuffer: 1 << 26 });
  const { header, blob, sample } = JSON.parse(text);
  return { header, bytes: Uint8Array.from(Buffer.from(blob, "base64")), sample };
}
